"""The reading thread: order, errors, and that it is gone afterwards."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from facefusion_cli.report import Report
from facefusion_cli.video.prefetch import prefetch


def reading_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "ffx-prefetch"]


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    assert not reading_threads()


def test_items_arrive_in_order_and_then_the_end() -> None:
    with prefetch(range(100), 3) as items:
        assert list(items) == list(range(100))
        assert next(items, "end") == "end"


def test_an_empty_iterable_ends_at_once() -> None:
    with prefetch([], 1) as items:
        assert list(items) == []


def test_it_runs_on_its_own_thread_and_no_further_ahead_than_allowed() -> None:
    made: list[int] = []
    on: set[str] = set()

    def work() -> Iterator[int]:
        for i in itertools.count():
            made.append(i)
            on.add(threading.current_thread().name)
            yield i

    with prefetch(work(), 2) as items:
        assert next(items) == 0
        deadline = time.monotonic() + 10
        while len(made) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        # One taken, two waiting in the queue, one in the thread's hands.
        assert made == [0, 1, 2, 3]
    assert on == {"ffx-prefetch"}


def test_an_error_comes_after_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("in the reader")

    with prefetch(broken(), 8) as items:
        assert [next(items), next(items)] == [1, 2]
        with pytest.raises(KeyError, match="in the reader"):
            next(items)
        assert next(items, "end") == "end"


def test_an_error_finds_its_way_past_a_full_queue() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise SystemExit(3)

    with prefetch(broken(), 1) as items:
        time.sleep(0.2)
        with pytest.raises(SystemExit):
            list(items)


def test_a_failing_consumer_ends_the_thread_and_closes_the_generator() -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            closed.set()

    def consume() -> None:
        with prefetch(endless(), 2) as items:
            next(items)
            raise RuntimeError("in the consumer")

    with pytest.raises(RuntimeError, match="in the consumer"):
        consume()
    assert closed.is_set()


def test_a_stop_event_ends_both_sides() -> None:
    stop = threading.Event()
    with prefetch(itertools.count(), 2, stop=stop) as items:
        for item in items:
            if item == 5:
                stop.set()
        assert item == 5
        items._thread.join(10)
        assert not reading_threads()


def test_a_stop_event_wakes_a_waiting_consumer() -> None:
    stop, never = threading.Event(), threading.Event()

    def stuck() -> Iterator[int]:
        never.wait(30)
        yield 1

    with prefetch(stuck(), 2, stop=stop) as items:
        threading.Timer(0.1, stop.set).start()
        assert list(items) == []
        never.set()


def test_close_may_be_called_twice_and_without_a_start() -> None:
    idle = prefetch([1], 1)
    idle.close()
    with prefetch([1], 1) as items:
        items.close()
        items.close()
        assert list(items) == []


def test_the_wait_is_measured() -> None:
    report = Report()
    with prefetch(range(3), 2, report) as items:
        list(items)
    assert report.stages["wait_read"].calls == 4


def test_a_depth_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="depth 0"):
        prefetch([1], 0)
