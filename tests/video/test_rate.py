"""Constant rates: each tick shows the right frame, and no work goes into frames that none shows."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from facefusion_cli.planes import planes_from_bgr
from facefusion_cli.report import Report
from facefusion_cli.types import BgrBatch, ColorSpec, FrameBatch, PlaneLayout
from facefusion_cli.video.prefetch import prefetch
from facefusion_cli.video.probe import probe
from facefusion_cli.video.rate import RateGrid, keep_shown
from facefusion_cli.video.reader import open_reader
from tests.clips import make_clip

SEC = Fraction(1)
NTSC = Fraction(30_000, 1001)


def batches(times: Sequence[Fraction], n: int, bits: int = 16) -> list[FrameBatch]:
    """Frames whose samples are their number, in batches of n."""
    layout = PlaneLayout((2, 2), bits)
    dtype = torch.uint8 if bits == 8 else torch.uint16
    out = []
    for first in range(0, len(times), n):
        part = tuple(times[first : first + n])
        numbers = torch.arange(first, first + len(part))[:, None, None]
        y, u = numbers.expand(-1, 4, 6).to(dtype), numbers.expand(-1, 2, 3).to(dtype)
        out.append(FrameBatch((y, u, u.clone()), ColorSpec(), layout, part, first, y.clone()))
    return out


def shown(frames: Sequence[tuple[Fraction, int]], rate: Fraction, length: Fraction) -> list[int]:
    """What a writer makes of frames: the number shown at every tick, the last one up to its end."""
    grid = RateGrid(rate, frames[0][0])
    ends = [t for t, _ in frames[1:]] + [frames[0][0] + length]
    out = []
    for (begin, number), end in zip(frames, ends, strict=True):
        ticks = grid.ticks(begin, end)
        assert [t for t in ticks if (t - frames[0][0]) * rate % 1] == []
        out += [number] * len(ticks)
    return out


def ideal(times: Sequence[Fraction], rate: Fraction, length: Fraction) -> list[int]:
    """The same from first principles: of each tick the last frame that has come by then."""
    slack = min(SEC / 1000, 1 / (4 * rate))
    out, k = [], 0
    while k / rate + slack < length:
        come = [i for i, t in enumerate(times) if t - times[0] <= k / rate + slack]
        out.append(come[-1])
        k += 1
    return out


def even(rate: Fraction | int, n: int, start: Fraction = SEC / 2) -> list[Fraction]:
    """Times of a constant rate."""
    return [start + Fraction(i) / rate for i in range(n)]


CASES: dict[str, tuple[list[Fraction], Fraction]] = {
    "60 to 30": (even(60, 61), SEC * 30),
    "30 to 15": (even(30, 60), SEC * 15),
    "25 to 60": (even(25, 50), SEC * 60),
    "60 to 25": (even(60, 120), SEC * 25),
    "29.97 to 30": (even(NTSC, 60), SEC * 30),
    "30 to 29.97": (even(30, 60), NTSC),
    "25 to 25": (even(25, 30), SEC * 25),
    "29.97 in ms to 29.97": ([Fraction(round(t * 1000), 1000) for t in even(NTSC, 60)], NTSC),
    "vfr to 25": ([SEC * t / 100 for t in (0, 1, 2, 10, 11, 50, 53, 100, 230, 231, 232)], SEC * 25),
    "vfr to 2": ([SEC * t / 100 for t in (0, 1, 2, 10, 11, 50, 53, 100, 230, 231, 232)], SEC * 2),
    "one frame": ([SEC * 3], SEC * 30),
    "25 to 0.1": (even(25, 300), SEC / 10),
    "25 to 1000": (even(25, 5), SEC * 1000),
    "long gap": ([SEC * 0, SEC * 9, SEC * 9 + SEC / 25], SEC * 25),
}


@pytest.mark.parametrize("n", [1, 4, 7])
@pytest.mark.parametrize("name", CASES)
def test_each_tick_shows_the_right_frame(name: str, n: int) -> None:
    times, rate = CASES[name]
    usual = times[-1] - times[-2] if len(times) > 1 else SEC / 25
    length = times[-1] + usual - times[0]
    kept = list(keep_shown(batches(times, n), rate))
    frames = [(t, int(b.planes[0][i, 0, 0])) for b in kept for i, t in enumerate(b.pts)]
    assert [times[number] for _, number in frames] == [t for t, _ in frames]
    assert shown(frames, rate, length) == ideal(times, rate, length)
    assert abs(len(ideal(times, rate, length)) / rate - length) <= 1 / rate
    # Nothing is carried along that no tick shows, but for the last frame.
    assert {number for _, number in frames[:-1]} <= set(ideal(times, rate, length))
    assert frames[0][1] == 0
    assert frames[-1][1] == len(times) - 1
    assert [b.first_index for b in kept] == list(range(0, len(frames), n))
    assert {len(b) for b in kept[:-1]} <= {n}


@pytest.mark.parametrize("bits", [8, 10])
def test_all_planes_go_along(bits: int) -> None:
    for batch in keep_shown(batches(even(60, 40), 5, bits), SEC * 24):
        assert isinstance(batch, FrameBatch)
        assert batch.alpha is not None
        for index, time in enumerate(batch.pts):
            number = int((time - SEC / 2) * 60)
            for plane in (*batch.planes, batch.alpha):
                assert (plane[index].int() == number).all()
        assert batch.planes[0].dtype == (torch.uint8 if bits == 8 else torch.uint16)


def test_whole_batches_are_not_copied() -> None:
    given = batches(even(25, 12), 4)
    kept = list(keep_shown(given, SEC * 50))
    assert [a.planes[0].data_ptr() for a in kept] == [b.planes[0].data_ptr() for b in given]


def test_times_that_do_not_grow() -> None:
    """The later of two frames of one time is shown."""
    times = [SEC * 0, SEC / 10, SEC / 10, SEC / 20, SEC * 3 / 10]
    kept = list(keep_shown(batches(times, 2), SEC * 10))
    assert [int(b.planes[0][i, 0, 0]) for b in kept for i in range(len(b))] == [0, 3, 4]


def test_nothing_from_nothing() -> None:
    assert list(keep_shown([], SEC * 25)) == []


@pytest.mark.parametrize("decoder", ["opencv", "pyav"])
@pytest.mark.parametrize(("before", "after", "count"), [(60, 30, 24), (30, 15, 24), (25, 60, 116)])
def test_clips(tmp_path: Path, decoder: str, before: int, after: int, count: int) -> None:
    """30 to 15 is no slow motion: the clip lasts as long, and every tick shows what it should."""
    clip = make_clip(tmp_path / "clip.mp4", fps=before, frames=48)
    frames: list[tuple[Fraction, int]] = []
    info = probe(clip.path)
    with open_reader(info, decoder, Report()) as reader:
        kept = keep_shown(reader.batches(5), Fraction(after))
        with prefetch(kept, 2) as ahead:
            for batch in ahead:
                assert isinstance(batch, BgrBatch if decoder == "opencv" else FrameBatch)
                planes = planes_from_bgr(batch) if isinstance(batch, BgrBatch) else batch
                for index, time in enumerate(batch.pts):
                    value = int(planes.planes[0][index, 24, 32])
                    number = clip.pts.index(time)
                    assert abs(clip.value(number) - value) <= 4
                    frames.append((time, number))
    ticks = shown(frames, Fraction(after), Fraction(48, before))
    assert len(ticks) == count == len(ideal(clip.pts, Fraction(after), Fraction(48, before)))
    assert ticks == ideal(clip.pts, Fraction(after), Fraction(48, before))
