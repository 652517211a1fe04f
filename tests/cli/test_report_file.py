from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from facefusion_cli.cli.report_file import reporting_to
from facefusion_cli.errors import (
    InputNotFound,
    Interrupted,
    OutputExists,
    OutputFolderMissing,
    OutputNotWritable,
    SameFile,
    UsageError,
)
from facefusion_cli.report import Report


def content(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_no_path_no_file() -> None:
    with reporting_to(None, Report(), ()):
        pass


def test_a_good_run(tmp_path: Path) -> None:
    path, report = tmp_path / "run.json", Report()
    path.write_text("of the run before")
    with reporting_to(path, report, ()):
        report.count("frames_out", 3)
    figures = json.loads(path.read_text())
    assert figures["exit_code"] == 0
    assert "error" not in figures
    assert figures["counts"] == {"frames_out": 3}
    assert content(tmp_path) == ["run.json"]


@pytest.mark.parametrize(
    ("error", "name", "code"),
    [
        (InputNotFound("no such file", path="b.mp4"), "InputNotFound", 3),
        (Interrupted(15), "Interrupted", 143),
        (ZeroDivisionError("oops"), "ZeroDivisionError", 70),
    ],
)
def test_a_run_that_fails_is_reported(
    tmp_path: Path, error: Exception, name: str, code: int
) -> None:
    path = tmp_path / "run.json"
    with pytest.raises(type(error)), reporting_to(path, Report(), ()):
        raise error
    figures = json.loads(path.read_text())
    assert figures["error"] == str(error)
    assert figures["error_class"] == name
    assert figures["exit_code"] == code


def test_wrong_arguments_are_not_reported(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with pytest.raises(OutputExists), reporting_to(path, Report(), ()):
        raise OutputExists("the output exists already")
    assert content(tmp_path) == []


def never(path: Path, protected: tuple[Path | None, ...] = ()) -> None:
    with reporting_to(path, Report(), protected):
        pytest.fail("the work must not begin")


def test_a_report_that_would_replace_a_file_of_the_run(tmp_path: Path) -> None:
    target = tmp_path / "target.mp4"
    target.write_bytes(b"x")
    link = tmp_path / "link.json"
    link.symlink_to(target)
    for path in (target, link, tmp_path / "." / "target.mp4"):
        with pytest.raises(SameFile):
            never(path, (None, target))
    with pytest.raises(SameFile):  # an output that is not there yet
        never(tmp_path / "out.mp4", (tmp_path / "out.mp4",))
    assert target.read_bytes() == b"x"


def test_places_a_report_cannot_go_are_found_before_the_work(
    tmp_path: Path, unwritable_folder: Path
) -> None:
    with pytest.raises(OutputFolderMissing, match="nowhere"):
        never(tmp_path / "nowhere" / "run.json")
    with pytest.raises(UsageError, match="is a folder"):
        never(tmp_path)
    with pytest.raises(OutputNotWritable, match=r"run\.json"):
        never(unwritable_folder / "run.json")


def test_a_report_that_fails_late_does_not_hide_the_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()

    def run() -> None:
        with reporting_to(folder / "run.json", Report(), ()):
            folder.rmdir()
            raise InputNotFound("no such file")

    with caplog.at_level(logging.WARNING, "ffx"), pytest.raises(InputNotFound):
        run()
    assert "the report's folder does not exist any more" in caplog.text


def test_a_link_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "link.json"
    for real in (tmp_path / "old.json", tmp_path / "new.json"):
        path.unlink(missing_ok=True)
        path.symlink_to(real)
        (tmp_path / "old.json").touch()
        with reporting_to(path, Report(), ()):
            pass
        assert path.is_symlink()
        assert json.loads(real.read_text())["exit_code"] == 0
    assert content(tmp_path) == ["link.json", "new.json", "old.json"]


def test_what_is_no_file_is_refused_and_stays(tmp_path: Path) -> None:
    pipe, link, loop = tmp_path / "pipe", tmp_path / "link.json", tmp_path / "loop"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    loop.symlink_to(loop)
    for path in (pipe, link):
        with pytest.raises(OutputNotWritable, match="the report is there and is not a regular"):
            never(path)
    with pytest.raises(OutputNotWritable):
        never(loop)
    with pytest.raises(OutputNotWritable):
        never(loop / "run.json", (loop,))
    assert pipe.is_fifo()
    assert content(tmp_path) == ["link.json", "loop", "pipe"]


def test_an_output_whose_links_go_in_circles_is_left_to_its_own_check(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with reporting_to(tmp_path / "run.json", Report(), (loop,)):
        pass


def test_an_output_found_taken_after_the_work_is_reported(tmp_path: Path) -> None:
    path, report = tmp_path / "run.json", Report()

    def run() -> None:
        with reporting_to(path, report, ()):
            report.count("frames_in")
            raise OutputExists("another run wrote the output in the meantime")

    with pytest.raises(OutputExists):
        run()
    assert json.loads(path.read_text())["exit_code"] == 2
