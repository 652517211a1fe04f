"""The reading thread: order, errors, and that it is gone afterwards."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from facefusion_cli.errors import DecodeError
from facefusion_cli.report import Report
from facefusion_cli.video import prefetch as prefetch_module
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
    with prefetch(list[int](), 1) as items:
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


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What hangs waits for this; set at the end, and then the threads must go by themselves."""
    event = threading.Event()
    yield event
    event.set()
    for thread in reading_threads():
        thread.join(10)


def hanging(
    released: threading.Event, before: int = 2, after: Callable[[], None] | None = None
) -> Iterator[int]:
    """Some items, and then nothing more until it is released."""
    yield from range(before)
    released.wait(60)
    if after is not None:
        after()
    yield before


def test_a_stall_is_an_error_behind_the_items_there_were(released: threading.Event) -> None:
    closed: list[str] = []
    path = Path("clip.mp4")
    reading = prefetch(
        hanging(released, after=lambda: closed.append("by itself")), 4, stall=0.3, path=path
    )
    with reading as items:
        assert [next(items), next(items)] == [0, 1]
        with pytest.raises(DecodeError, match=r"the decoder gave nothing for 0\.3 s") as caught:
            next(items)
        assert (caught.value.path, caught.value.exit_code) == ("clip.mp4", 4)
        assert "--stall" in str(caught.value)
        assert next(items, "end") == "end"
    assert reading.abandoned
    assert [t.daemon for t in reading_threads()] == [True]
    reading.close()
    released.set()
    for thread in reading_threads():
        thread.join(10)
    assert closed == ["by itself"]
    assert not reading_threads()


def test_a_stalled_thread_that_ends_meanwhile_is_not_abandoned(released: threading.Event) -> None:
    with prefetch(hanging(released), 4, stall=0.2) as items:
        with pytest.raises(DecodeError):
            list(items)
        released.set()
        items._thread.join(10)
    assert not items.abandoned


def test_what_is_slow_but_goes_on_is_no_stall() -> None:
    """The limit holds for each wait, and begins anew with every step that is made."""
    steps: list[int] = []

    def slow() -> Iterator[int]:
        for step in range(14):
            time.sleep(0.1)
            steps.append(step)
        yield 1

    with prefetch(slow(), 4, stall=1.0, progress=lambda: len(steps)) as items:
        assert list(items) == [1]
    assert not items.abandoned


def test_a_consumer_that_is_slow_is_no_stall() -> None:
    def quick() -> Iterator[int]:
        yield from range(3)

    with prefetch(quick(), 1, stall=0.1) as items:
        for _ in items:
            time.sleep(0.3)
    assert not items.abandoned


def test_leaving_by_an_error_waits_for_no_hung_thread(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a stall before, and without a limit: Ctrl-C comes earlier than any limit."""
    monkeypatch.setattr(prefetch_module, "_PATIENCE", 0.2)
    reading = prefetch(hanging(released), 4)

    def consume() -> None:
        with reading as items:
            next(items)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert reading.abandoned


def test_leaving_waits_for_what_is_slow_but_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch_module, "_PATIENCE", 1.0)
    began = threading.Event()
    steps: list[int] = []

    def slow() -> Iterator[int]:
        for step in range(14):
            began.set()
            time.sleep(0.1)
            steps.append(step)
        yield 1

    with prefetch(slow(), 4, progress=lambda: len(steps)) as items:
        began.wait(10)
    assert len(steps) == 14
    assert not items.abandoned
