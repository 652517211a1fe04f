from __future__ import annotations

import io
import logging

import pytest

from facefusion_cli.cli.console import Session, logging_to_stderr
from facefusion_cli.cli.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_no_terminal_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with ProgressBar(Session()) as progress:
        progress(4, 8)
        progress(8, 8)
    assert stream.getvalue() == ""


def test_a_terminal_shows_frames_speed_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with ProgressBar(Session()) as progress:
        progress(2, 8)
        progress(8, 8)
    assert "2/8 frames" in stream.getvalue()
    last = stream.getvalue().rstrip().split("\r")[-1]
    assert "100%" in last
    assert "8/8 frames" in last
    assert "frames/s" in last
    assert "left" in last


def test_an_unknown_number_of_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with ProgressBar(Session()) as progress:
        progress(2, None)
        progress(6, None)
    last = stream.getvalue().rstrip().split("\r")[-1]
    assert "6 frames" in last
    assert "%" not in last


def test_quiet_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with ProgressBar(Session(quiet=True)) as progress:
        progress(2, 8)
    assert stream.getvalue() == ""


def test_a_log_line_does_not_cut_through_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    session = Session()
    with logging_to_stderr(session):
        with ProgressBar(session) as progress:
            progress(2, 8)
            logging.getLogger("ffx").warning("a frame was lost")
        logging.getLogger("ffx").info("done")
    text = stream.getvalue()
    start = text.index("ffx: warning: a frame was lost\n")
    assert text[start - 1] in "\r\n"
    assert text.endswith("\nffx: done\n")


def test_the_bar_is_closed_when_the_run_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    session = Session()
    before = session.handler.write_line

    def run() -> None:
        with ProgressBar(session) as progress:
            progress(2, 8)
            raise KeyError

    with pytest.raises(KeyError):
        run()
    assert stream.getvalue().endswith("\n")
    assert session.handler.write_line == before
