"""A constant frame rate laid over frames that have times of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor

from facefusion_cli.types import BgrBatch, FrameBatch

_TOLERANCE = Fraction(1, 1000)
"""Seconds by which a coarse container's rounding may put a frame behind its tick."""

_Batch = FrameBatch | BgrBatch
_Kept = list[tuple[_Batch, int]]


@dataclass(frozen=True, slots=True)
class RateGrid:
    """Ticks at origin + k / rate; at each the frame is shown whose time has come last."""

    rate: Fraction
    origin: Fraction
    """The first frame's time: tick 0."""

    def ticks(self, begin: Fraction, end: Fraction) -> list[Fraction]:
        """Times of the ticks at which a frame is shown that stands from begin up to end."""
        slack = min(_TOLERANCE, 1 / (4 * self.rate))
        first = math.ceil((begin - self.origin - slack) * self.rate)
        last = math.ceil((end - self.origin - slack) * self.rate)
        return [self.origin + k / self.rate for k in range(max(first, 0), last)]


def keep_shown(
    batches: Iterable[_Batch], rate: Fraction, origin: Fraction | None = None
) -> Iterator[_Batch]:
    """Leaves out the frames that no tick of a constant rate shows, so that no work goes into them.

    Frames keep their own times, and are numbered anew; a writer that lays the same grid over them,
    with the first frame as its origin, shows each at all of its ticks. The first and the last frame
    stay in any case: how long the last one stands is the writer's matter.

    Args:
        batches: A reader's, in the host's memory.
        rate: Frames a second of the output.
        origin: The clip's time of tick 0; None is the first frame's.

    Yields:
        Batches as long as the first one given; the last may be shorter.
    """
    size = count = 0
    grid = None if origin is None else RateGrid(rate, origin)
    kept: _Kept = []
    standing: tuple[_Batch, int] | None = None
    since = Fraction(0)
    for batch in batches:
        size = size or len(batch)
        for index, time in enumerate(batch.pts):
            grid = grid or RateGrid(rate, time)
            if standing is not None and grid.ticks(since, time):
                kept.append(standing)
            # A time that does not grow takes the place of the one before.
            since = time if standing is None else max(since, time)
            standing = batch, index
            if len(kept) == size:
                yield _gathered(kept, count)
                count += len(kept)
                kept = []
    if standing is not None:
        kept.append(standing)
        yield _gathered(kept, count)


def _gathered(kept: _Kept, first_index: int) -> _Batch:
    """One batch of some frames of several."""
    batch = kept[0][0]
    if len(kept) == len(batch) and all(other is batch for other, _ in kept):
        return replace(batch, first_index=first_index)
    pts = tuple(other.pts[i] for other, i in kept)
    if isinstance(batch, BgrBatch):
        bgr = _copied([other.bgr[i] for other, i in kept if isinstance(other, BgrBatch)])
        return replace(batch, bgr=bgr, pts=pts, first_index=first_index)
    frames = [(other, i) for other, i in kept if isinstance(other, FrameBatch)]
    y, u, v = (_copied([other.planes[k][i] for other, i in frames]) for k in range(3))
    alphas = [other.alpha[i] for other, i in frames if other.alpha is not None]
    alpha = _copied(alphas) if alphas else None
    return replace(batch, planes=(y, u, v), alpha=alpha, pts=pts, first_index=first_index)


def _copied(rows: list[Tensor]) -> Tensor:
    out = torch.empty(
        (len(rows), *rows[0].shape), dtype=rows[0].dtype, pin_memory=rows[0].is_pinned()
    )
    for into, row in zip(out, rows, strict=True):
        into.copy_(row)
    return out
