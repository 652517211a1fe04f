"""A constant frame rate laid over frames that have times of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

_TOLERANCE = Fraction(1, 1000)
"""Seconds by which a coarse container's rounding may put a frame behind its tick."""


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
