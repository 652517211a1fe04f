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

PATIENCE = 10.0
"""Seconds that an ending may take; a signal after them ends the process at once."""


class Interrupts:
    """What a signal to end does: the first raises Interrupted, later ones let its clean-up finish.

    Only should the ending hang for longer than PATIENCE does another signal end the process there
    and then.
    """

    def __init__(self) -> None:
        self._ending_since: float | None = None

    def ignore(self) -> None:
        """The run is ending: from here on a signal must not break it off."""
        if self._ending_since is None:
            self._ending_since = time.monotonic()

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self._ending_since is None:
            self.ignore()
            raise Interrupted(signum)
        if time.monotonic() - self._ending_since > PATIENCE:
            os._exit(128 + signum)


@contextmanager
def interruptible(restore: bool = True) -> Iterator[Interrupts]:
    """Raises Interrupted in the block when a signal to end arrives.

    A signal that is ignored already (nohup, a background job of a script) stays ignored. Outside
    the main thread, where Python allows no handlers, this does nothing.

    Args:
        restore: Put the handlers back that were there. False where the process ends after the
            block: a late signal would otherwise print a traceback.
    """
    interrupts = Interrupts()
    saved = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signum = getattr(signal, name, None)  # Windows has no SIGHUP
            if signum is not None and signal.getsignal(signum) != signal.SIG_IGN:
                saved[signum] = signal.signal(signum, interrupts)
    try:
        yield interrupts
    finally:
        interrupts.ignore()
        if restore:
            for signum, previous in saved.items():
                signal.signal(signum, previous)
