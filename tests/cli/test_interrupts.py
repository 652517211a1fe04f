"""Signals: the handler by itself. tests/cli/test_swap_interrupted.py interrupts a real run."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from facefusion_cli.cli import interrupts
from facefusion_cli.cli.interrupts import PATIENCE, interruptible
from facefusion_cli.errors import Interrupted

ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def default_handlers() -> Iterator[None]:
    """Known handlers, whatever the tests were started under (a background job ignores SIGINT)."""
    saved = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in saved.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_the_first_signal_raises(number: signal.Signals) -> None:
    with pytest.raises(Interrupted) as caught, interruptible():
        signal.raise_signal(number)
    assert caught.value.exit_code == 128 + number
    assert number.name in str(caught.value)


def test_a_second_signal_lets_the_clean_up_finish() -> None:
    done = []

    def run() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            done.append("cleaned")

    with pytest.raises(Interrupted) as caught, interruptible():
        run()
    assert done == ["cleaned"]
    assert caught.value.signum == signal.SIGINT


def test_an_ending_that_hangs_can_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    now = [100.0]
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(interrupts.os, "_exit", codes.append)

    def run() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            now[0] += PATIENCE
            signal.raise_signal(signal.SIGINT)
            assert codes == []
            now[0] += 1
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted), interruptible():
        run()
    assert codes == [143]


def test_once_the_run_is_ending_a_signal_does_not_break_it() -> None:
    with interruptible() as signals:
        signals.ignore()
        signal.raise_signal(signal.SIGTERM)


def test_handlers_are_put_back_unless_the_process_ends() -> None:
    with interruptible():
        assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    with interruptible(restore=False):
        pass
    signal.raise_signal(signal.SIGTERM)  # would end the tests if it were not caught


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible():
        signal.raise_signal(signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_outside_the_main_thread_nothing_is_touched() -> None:
    seen = []

    def work() -> None:
        with interruptible():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]
