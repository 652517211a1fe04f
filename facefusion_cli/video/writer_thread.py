"""The thread of a writer: works on what is put into its bounded queue, one item after another."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from facefusion_cli.report import Report

Item = TypeVar("Item")

_POLL_SECONDS = 0.05


def _as_it_is(error: BaseException) -> BaseException:
    return error


class WriterThread(Generic[Item]):
    """Runs work on each item, and end after the last one.

    An error of either is raised where items are put.

    Args:
        work: Called with each item on the thread.
        end: Called on the thread when all items are done, unless it was halted.
        depth: Items that may wait.
        report: The caller's waiting for room is timed under wait_write.
        translate: Makes of an error on the thread what the caller shall see.
    """

    def __init__(
        self,
        work: Callable[[Item], None],
        end: Callable[[], None],
        depth: int,
        report: Report,
        translate: Callable[[BaseException], BaseException] = _as_it_is,
    ) -> None:
        self._work, self._end, self._report, self._translate = work, end, report, translate
        self._queue: queue.Queue[Item | None] = queue.Queue(depth)
        self._thread = threading.Thread(target=self._run, name="ffx-writer", daemon=True)
        self._error: BaseException | None = None
        self.stop = threading.Event()
        """Set when what is written is not wanted any more; work looks at it between its steps."""

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def put(self, item: Item | None) -> None:
        """Queues an item, or the end marker; blocks while the queue is full.

        Raises:
            BaseException: What the thread has met.
        """
        with self._report.timer("wait_write"):
            while True:
                if self._error is not None:
                    raise self._error
                with suppress(queue.Full):
                    self._queue.put(item, timeout=_POLL_SECONDS)
                    return

    def finish(self) -> None:
        """Waits until all items are done and the thread has ended.

        Raises:
            BaseException: What the thread has met.
        """
        self.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def halt(self) -> None:
        """Ends the thread without what still waits; after a normal end it has ended already."""
        self.stop.set()
        with suppress(queue.Empty):
            while True:
                self._queue.get_nowait()
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                self._work(item)
                del item
            if not self.stop.is_set():
                self._end()
        except BaseException as error:  # raised again in the caller's thread
            self._error = self._translate(error)
            if self._error is not error:
                self._error.__cause__ = error
