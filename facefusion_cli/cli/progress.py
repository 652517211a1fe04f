"""The progress bar: frames done, frames a second, time left."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TextIO

from tqdm import tqdm

from facefusion_cli.cli.console import Session

_KNOWN = "{percentage:3.0f}% {bar} {n_fmt}/{total_fmt} frames, {rate_noinv_fmt}, {remaining} left"
_UNKNOWN = "{n_fmt} frames, {rate_noinv_fmt}, {elapsed}"
_COLUMNS = 80
"""Where the terminal does not say: some pseudo-terminals (containers, CI) are 0 columns wide."""


class ProgressBar:
    """A context manager that shows a bar on stderr while it lasts.

    There is none when stderr is no terminal or the session is quiet; calling it then does nothing.
    It appears with the first call, so that loading networks does not count as slow frames.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._wanted = not session.quiet and sys.stderr is not None and sys.stderr.isatty()
        self._bar: tqdm | None = None
        self._write_line = session.handler.write_line

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
            self._session.handler.write_line = self._write_line

    def __call__(self, done: int, total: int | None) -> None:
        """Shows that `done` frames of `total` (None: unknown) are written."""
        if not self._wanted:
            return
        if self._bar is None:
            sized = _has_width(sys.stderr)
            self._bar = tqdm(
                total=total,
                initial=done,
                file=sys.stderr,
                unit=" frames",
                dynamic_ncols=sized,
                ncols=None if sized else _COLUMNS,
                bar_format=_KNOWN if total else _UNKNOWN,
            )
            self._session.handler.write_line = lambda text, stream: tqdm.write(text, file=stream)
            return
        self._bar.total = total
        self._bar.update(done - self._bar.n)


def _has_width(stream: TextIO) -> bool:
    try:
        return os.get_terminal_size(stream.fileno()).columns > 0
    except OSError:
        return False
