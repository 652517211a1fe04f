"""A thread that works ahead: whatever yields batches goes on while the consumer computes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from facefusion_cli.errors import DecodeError
from facefusion_cli.report import Report

T = TypeVar("T")

_POLL_SECONDS = 0.05
_PATIENCE = 5.0
"""Seconds without progress after which a thread that shall end is taken for hung."""


class prefetch(Generic[T]):
    """Runs an iterable on a thread of its own, at most `depth` items ahead.

    ``with prefetch(reader.batches(8), 4, report) as batches: for batch in batches: ...``

    Items, the end and any exception of the iterable arrive in order; an exception is raised where
    the consumer asks for the item it prevented. When the block is left, for whatever reason, the
    thread has ended, unless it hangs inside the iterable: then it is `abandoned`, and what it works
    with must not be touched any more. It keeps no process from exiting.

    Args:
        iterable: Iterated, and closed if it is a generator, on the thread alone.
        depth: Items that may wait.
        report: The consumer's waiting is timed under `waiting`.
        waiting: A stage of the report.
        stop: Ends both sides early once it is set; the consumer then sees the end of the items.
        stall: Seconds without an item or progress after which a waiting consumer gets a
            DecodeError; None waits for ever.
        progress: Any value that changes while an item that takes long is being made.
        path: The file, for that error.
    """

    def __init__(
        self,
        iterable: Iterable[T],
        depth: int,
        report: Report | None = None,
        *,
        waiting: str = "wait_read",
        stop: threading.Event | None = None,
        stall: float | None = None,
        progress: Callable[[], object] | None = None,
        path: Path | None = None,
    ) -> None:
        if depth < 1:
            raise ValueError(f"depth {depth}")
        self._iterable = iterable
        self._report = report
        self._waiting = waiting
        self._stop = stop or threading.Event()
        self._closed = threading.Event()
        self._queue: queue.Queue[_Item[T] | _End] = queue.Queue(maxsize=depth)
        self._thread = threading.Thread(target=self._run, name="ffx-prefetch", daemon=True)
        self._ended = False
        self._stall, self._path = stall, path
        self._progress = progress or (lambda: None)
        self._stalled = False
        self.abandoned = False
        """After close(): the thread hangs and was left to itself."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        with self._report.timer(self._waiting) if self._report else nullcontext():
            message = self._take()
        if isinstance(message, _Item):
            return message.value
        self._ended = True
        if message is None or message.error is None:
            raise StopIteration
        raise message.error

    def close(self) -> None:
        """Stops the thread and waits until it has ended; once is enough, more does no harm.

        A thread that makes no progress for some seconds, or stalled before, is abandoned.
        """
        self._closed.set()
        self._ended = True
        if self._thread.ident is None or self.abandoned:
            return
        patience = _Patience(_POLL_SECONDS if self._stalled else _PATIENCE, self._progress)
        while self._thread.is_alive() and not patience.exhausted:
            self._thread.join(_POLL_SECONDS)
            patience.waited(_POLL_SECONDS)
        self.abandoned = self._thread.is_alive()

    def _over(self) -> bool:
        return self._closed.is_set() or self._stop.is_set()

    def _take(self) -> _Item[T] | _End | None:
        patience = _Patience(self._stall, self._progress)
        while not self._over():
            try:
                return self._queue.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                patience.waited(_POLL_SECONDS)
            if patience.exhausted:
                self._stalled = True
                return _End(self._stall_error())
        return None

    def _stall_error(self) -> DecodeError:
        return DecodeError(
            f"the decoder gave nothing for {self._stall:g} s",
            path=self._path,
            hint="the file or its disk may hang; --stall waits longer, --decoder takes another one",
        )

    def _put(self, message: _Item[T] | _End) -> bool:
        while not self._over():
            try:
                self._queue.put(message, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def _run(self) -> None:
        end = _End(None)
        items = iter(self._iterable)
        try:
            for item in items:
                if not self._put(_Item(item)):
                    break
        except BaseException as error:  # not lost with the thread: raised where items are taken
            end = _End(error)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()
            self._put(end)


class _Patience:
    """How long was waited without any progress.

    It counts waits and not the clock: a process that was stopped for a while has not waited.

    Args:
        limit: Seconds; None = no limit.
        progress: A value that changes with progress.
    """

    def __init__(self, limit: float | None, progress: Callable[[], object]) -> None:
        self._limit, self._progress = limit, progress
        self._seen, self._seconds = progress(), 0.0

    def waited(self, seconds: float) -> None:
        """Counts a wait, or begins anew where there was progress meanwhile."""
        now = self._progress()
        self._seconds = self._seconds + seconds if now == self._seen else 0.0
        self._seen = now

    @property
    def exhausted(self) -> bool:
        return self._limit is not None and self._seconds >= self._limit


class _Item(Generic[T]):
    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


class _End:
    __slots__ = ("error",)

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
