"""What a run of the program looks like from outside: exit codes, one line of error, streams."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from facefusion_cli import __version__, pipeline
from facefusion_cli.errors import OutOfMemory
from tests.conftest import Ffx

PROGRAM = [sys.executable, "-m", "facefusion_cli"]


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, **options)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["swap", "--help"], ["swap"]])
def test_asking_for_help_loads_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from facefusion_cli.cli.main import main\n"
        f"main({arguments!r})\n"
        "heavy = {'torch', 'torchvision', 'cv2', 'av', 'onnxruntime', 'numpy', 'PIL'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.endswith("loaded: []\n"), done.stdout + done.stderr


def test_version(ffx: Ffx) -> None:
    done = ffx("--version")
    assert (done.code, done.out, done.err) == (0, f"ffx {__version__}\n", "")


def test_no_arguments_show_the_help_and_are_an_error(ffx: Ffx) -> None:
    done = ffx()
    assert done.code == 2
    assert "swap" in done.out
    assert "doctor" in done.out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["swop"], "No such command 'swop'"),
        (["swap"], "Missing argument"),
        (["swap", "a.jpg"], "Missing argument"),
        (["swap", "a.jpg", "b.mp4"], "Missing option"),
        (["swap", "a.jpg", "b.mp4", "-o", "c.mp4", "--crf", "low"], "'--crf'"),
        (["swap", "a.jpg", "b.mp4", "-o", "c.mp4", "--frobnicate"], "No such option"),
        (["swap", "a.jpg", "b.mp4", "-o", "c.mp4", "d.mp4"], "unexpected extra argument"),
        (["--frobnicate"], "No such option"),
    ],
)
def test_wrong_usage_is_one_line_and_2(ffx: Ffx, arguments: list[str], error: str) -> None:
    done = ffx(*arguments)
    assert done.code == 2
    assert error in done.error
    assert "--help'" in done.error
    assert done.err.count("\n") == 1
    assert done.out == ""


ARGUMENTS = ["swap", "a.jpg", "b.mp4", "-o", "c.mp4"]


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def swap(*_: object) -> None:
        raise error

    monkeypatch.setattr(pipeline, "swap", swap)


def test_an_unexpected_exception_is_called_a_bug(ffx: Ffx, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ValueError("first line\nsecond line"))
    done = ffx(*ARGUMENTS)
    assert done.code == 70
    assert done.error.startswith("unexpected ValueError: first line (a bug in ffx")
    assert "--debug" in done.error
    assert "second line" not in done.err


def test_debug_shows_the_traceback(ffx: Ffx, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ValueError("broken"))
    done = ffx(*ARGUMENTS, "--debug")
    assert done.code == 70
    assert "Traceback (most recent call last)" in done.err
    assert done.err.splitlines()[-1].startswith("ffx: error: unexpected ValueError: broken")


def test_debug_of_one_run_does_not_reach_the_next(
    ffx: Ffx, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, ValueError("broken"))
    assert "Traceback" in ffx(*ARGUMENTS, "--debug").err
    assert "Traceback" not in ffx(*ARGUMENTS).err


def test_no_memory_is_no_bug(ffx: Ffx, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, MemoryError())
    done = ffx(*ARGUMENTS)
    assert done.code == OutOfMemory.exit_code
    assert done.error.startswith("out of memory")


def test_a_library_s_warning_is_one_line(ffx: Ffx, monkeypatch: pytest.MonkeyPatch) -> None:
    def swap(*_: object) -> None:
        warnings.warn("the driver\n  is old", UserWarning, stacklevel=1)

    monkeypatch.setattr(pipeline, "swap", swap)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        done = ffx(*ARGUMENTS)
    assert done.code == 0
    assert done.warnings == ["the driver is old"]


@pytest.mark.skipif(os.name != "posix", reason="pipes and /dev/full are of Unix")
def test_a_reader_that_went_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*PROGRAM, "--version"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_result_that_cannot_be_printed_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "--version"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 5
    assert done.stderr.startswith("ffx: error: standard output cannot be written")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux")
def test_a_name_that_is_no_unicode_is_printed_as_it_is() -> None:
    script = (
        "import os\n"
        "from facefusion_cli.cli.console import emit\n"
        "emit(os.fsdecode(b'clip\\xff.mp4'))\n"
    )
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}  # as in a UTF-8 locale
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=strict)
    assert (done.returncode, done.stdout) == (0, b"clip\xff.mp4\n"), done.stderr


def test_the_module_runs_like_the_script() -> None:
    done = run(*ARGUMENTS, "--crf", "99")
    assert done.returncode == 2
    assert done.stderr == "ffx: error: --crf 99 is outside -1 to 63\n"


@pytest.mark.parametrize(("given", "expected"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_waiting_threads_sleep_unless_the_user_says_otherwise(
    given: str | None, expected: str
) -> None:
    script = (
        "import os, sys\n"
        "from facefusion_cli.cli import main\n"
        "main.main = lambda ends_process: print(os.environ['OMP_WAIT_POLICY'])\n"
        "main.entry()\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    environment |= {} if given is None else {"OMP_WAIT_POLICY": given}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stdout) == (0, f"{expected}\n"), done.stderr
