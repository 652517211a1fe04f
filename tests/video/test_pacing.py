"""Frames get the ticks they should have: their own times, or a constant rate's."""

from __future__ import annotations

from fractions import Fraction

import pytest

from facefusion_cli.report import Report
from facefusion_cli.video.pacing import Pacer

MS = Fraction(1, 1000)


def paced(
    times: list[int], *, start: int = 0, **settings: object
) -> tuple[list[tuple[str, int, int]], Pacer[str], Report]:
    """Frames named a, b, c, ... at times in ms, as (frame, tick, duration) in ms."""
    pacer: Pacer[str] = Pacer(start * MS, MS, 40 * MS, **settings)  # type: ignore[arg-type]
    shown = []
    for name, time in zip("abcdefghijklmnopqrstuvwxyz", times, strict=False):
        shown += list(pacer.push(name, time * MS))
    shown += list(pacer.finish())
    report = Report()
    pacer.report(report)
    return [(s.frame, s.tick, s.duration) for s in shown], pacer, report


def test_every_frame_at_its_own_time() -> None:
    shown, pacer, report = paced([100, 133, 500, 540], start=90)
    assert shown == [("a", 10, 33), ("b", 43, 367), ("c", 410, 40), ("d", 450, 40)]
    assert (pacer.first, pacer.last, pacer.span) == (10, 450, Fraction(44, 100))
    assert report.warnings == []


def test_one_frame_and_none() -> None:
    assert paced([7])[0] == [("a", 7, 40)]
    assert paced([7], rate=Fraction(50))[0] == [("a", 7, 20), ("a", 27, 20)]
    assert paced([])[0] == []
    assert paced([], rate=Fraction(50))[1].span == 0


def test_times_that_do_not_grow() -> None:
    shown, _, report = paced([0, 40, 40, 30, 120])
    assert [tick for _, tick, _ in shown] == [0, 40, 41, 42, 120]
    assert "".join(frame for frame, _, _ in shown) == "abcde"
    assert report.warnings == ["2 timestamps did not grow and were moved behind the one before"]


def test_frames_that_are_too_close() -> None:
    shown, _, report = paced([0, 10, 25, 30, 60, 70], least=20)
    assert shown == [("a", 0, 25), ("c", 25, 35), ("e", 60, 35)]
    assert report.warnings == [
        "3 frames left out: the output's format shows a frame for 0.02 s at least"
    ]


def test_the_window_ends_the_last_frame() -> None:
    assert paced([0, 40], end=Fraction(60, 1000))[0][-1] == ("b", 40, 20)
    assert paced([0, 40], end=Fraction(1))[0][-1] == ("b", 40, 40)
    shown = paced([0, 40], rate=Fraction(100), end=Fraction(60, 1000))[0]
    assert [frame for frame, _, _ in shown] == list("aaaabb")


@pytest.mark.parametrize(
    ("rate", "order"),
    [(25, "abcd"), (50, "aabbccdd"), (75, "aaabbbcccddd"), (Fraction(25, 2), "ac")],
)
def test_a_constant_rate_shows_what_stands(rate: Fraction | int, order: str) -> None:
    shown, pacer, _ = paced([1000, 1040, 1080, 1120], start=500, rate=Fraction(rate))
    assert "".join(frame for frame, _, _ in shown) == order
    step = 1000 / Fraction(rate)
    for i, (_, tick, duration) in enumerate(shown):
        assert abs(tick - 500 - i * step) <= Fraction(1, 2)
        assert abs(duration - step) <= 1
    assert pacer.first == 500


def test_a_constant_rate_over_a_gap() -> None:
    shown, _, _ = paced([0, 100, 600, 700], rate=Fraction(10))
    assert "".join(frame for frame, _, _ in shown) == "abbbbbcd"


def test_a_constant_rate_of_times_that_do_not_grow() -> None:
    shown, _, _ = paced([0, 100, 100, 50, 200], rate=Fraction(10))
    assert "".join(frame for frame, _, _ in shown) == "ade"


def test_what_a_constant_rate_did_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ffx")
    paced([0, 100, 110, 120, 500], rate=Fraction(10))
    assert "for 10 frames a second" in caplog.text
    assert "shown again 5 times and 1 left out" in caplog.text
