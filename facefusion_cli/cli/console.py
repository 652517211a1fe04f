"""What a person sees: results on stdout, log lines and errors on stderr."""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from facefusion_cli.cli.interrupts import Interrupts
from facefusion_cli.errors import FfxError, OutputNotWritable

log = logging.getLogger("ffx")

BUG = 70
"""Exit code of an exception nobody expected (EX_SOFTWARE of sysexits.h)."""

LineWriter = Callable[[str, TextIO], object]


def _write_line(text: str, stream: TextIO) -> None:
    stream.write(text + "\n")
    stream.flush()


class StderrHandler(logging.Handler):
    """One line a record: ``ffx: text`` for information, ``ffx: warning: text`` and so on above."""

    def __init__(self) -> None:
        super().__init__()
        self.write_line: LineWriter = _write_line
        """Replaced while a progress bar is up, so that a line does not cut through it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the record. A stderr that is closed does not end the run."""
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        text = " ".join(line.strip() for line in record.getMessage().splitlines())
        if sys.stderr is not None:
            try:
                self.write_line(f"ffx: {level}{text}", sys.stderr)
            except OSError:
                self.write_line = lambda text, stream: None


@dataclass(slots=True)
class Session:
    """State of one run of the program; main() and the command share it as the context's obj."""

    interrupts: Interrupts = field(default_factory=Interrupts)
    handler: StderrHandler = field(default_factory=StderrHandler)
    debug: bool = False
    quiet: bool = False

    def be_quiet(self) -> None:
        """Leaves warnings and errors only."""
        self.quiet = True
        log.setLevel(logging.WARNING)

    def show_debug(self) -> None:
        """Shows debug lines, and the traceback of an error."""
        self.debug = True
        log.setLevel(logging.DEBUG)


@contextmanager
def logging_to_stderr(session: Session) -> Iterator[None]:
    """Sends the "ffx" logger and Python's warnings to stderr while the block runs."""
    saved = log.level, log.propagate
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(session.handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _log_warning
            yield
    finally:
        log.removeHandler(session.handler)
        log.level, log.propagate = saved


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A library's warning as one line of ours, without the place in its source."""
    log.warning("%s", str(message).strip())


def emit(text: str) -> None:
    """Writes a result to stdout.

    A reader that has gone away (``ffx probe clip.mp4 | head -1``) is no error: it has what it
    wanted.

    Raises:
        OutputNotWritable: stdout is a file that cannot take it (a full disk).
    """
    if sys.stdout is None:
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names are bytes on Linux: one that is not UTF-8 is printed as the bytes it is.
        sys.stdout.reconfigure(errors="surrogateescape")
    try:
        _write_line(text, sys.stdout)
    except BrokenPipeError:
        _discard_stdout()
    except OSError as error:
        _discard_stdout()
        raise OutputNotWritable(f"standard output cannot be written ({error.strerror})") from error


def _discard_stdout() -> None:
    """What stdout still holds goes nowhere, or the interpreter would complain at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def show_error(error: FfxError, session: Session) -> None:
    """Writes the one line of an error, after its traceback with --debug."""
    _show(str(error), session)


def show_bug(error: Exception, session: Session) -> None:
    """Writes the one line for an exception nobody expected."""
    first = (str(error).strip().splitlines() or ["no message"])[0]
    what_next = "please report it with the traceback above"
    if not session.debug:
        what_next = "run it again with --debug and report it with the traceback"
    _show(f"unexpected {type(error).__name__}: {first} (a bug in ffx: {what_next})", session)


def _show(line: str, session: Session) -> None:
    if session.debug and sys.stderr is not None:
        traceback.print_exc(file=sys.stderr)
    log.error("%s", line)
