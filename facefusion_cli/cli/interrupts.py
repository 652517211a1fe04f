"""SIGINT, SIGTERM and SIGHUP become an exception in the main thread, so that clean-up runs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from facefusion_cli.errors import Interrupted

_PATIENCE = 10.0
"""Seconds that cleaning up may take; a signal after them ends the process at once."""


class _Handler:
    """Raises for the first signal; later ones must not break the clean-up it started."""

    def __init__(self) -> None:
        self.first: float | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = now
            raise Interrupted(signum)
        if now - self.first > _PATIENCE:
            os._exit(128 + signum)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raises Interrupted in the block when a signal to end arrives.

    A signal that is ignored already (nohup, a background job of a script) stays ignored. Outside
    the main thread, where Python allows no handlers, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = _Handler()
    saved = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signum = getattr(signal, name, None)  # Windows has no SIGHUP
        if signum is not None and signal.getsignal(signum) != signal.SIG_IGN:
            saved[signum] = signal.signal(signum, handler)
    try:
        yield
    finally:
        for signum, previous in saved.items():
            signal.signal(signum, previous)
