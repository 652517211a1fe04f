"""What a reader got out of a clip, in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from heapq import heapify, heappush, heappushpop

from facefusion_cli.video.evidence import Gap

GAP = Fraction(3, 2)
"""Usual steps from one frame to the next that are a gap."""
_RESTART, _DISORDER = Fraction(1, 2), 16
"""Seconds, and frames, that no decoder's disorder takes a frame back."""
_GAPS = 100
_STEPS = 64


@dataclass(slots=True)
class Tally:
    """What a reader got out of a clip."""

    frames: int = 0
    failures: int = 0
    """Packets or reads that failed."""
    early: int = 0
    """Those of them before the first frame: a stream may begin between two key frames."""
    gave_up: bool = False
    """MAX_FAILURES_IN_A_ROW were reached, and the reader went no further."""
    restarted: bool = False
    """The clock went back further than by disorder: two recordings were joined byte by byte."""
    reached_end: bool = False
    """A frame after the end of the wanted part was seen: nothing is missing before it."""
    first: Fraction | None = None
    last: Fraction | None = None
    longest: Fraction = Fraction(0)
    """Seconds between two frames, at most."""
    skipped: int = 0
    """Frames before the wanted part that were decoded on the way."""
    _widest: list[tuple[Fraction, Fraction]] = field(default_factory=list)
    """The longest steps there were, with the moment where each begins; a heap."""
    _steps: dict[Fraction, int] = field(default_factory=dict)

    def add(self, pts: Fraction) -> None:
        """Counts one frame."""
        if self.first is None or pts < self.first:
            self.first = pts
        if self.frames == 0:
            self.early = self.failures
        self.frames += 1
        if self.last is not None and pts < self.last:
            back = self.last - pts
            self.restarted |= back > _RESTART and back > _DISORDER * (self.usual() or 0)
            # Decoders that lost a picture's references hand out some too late.
            self._fill(pts)
            return
        if self.last is not None:
            self._step(self.last, pts - self.last)
        self.last = pts

    def usual(self) -> Fraction | None:
        """Seconds from one frame to the next: their median; None with fewer than two."""
        half, seen = sum(self._steps.values()) / 2, 0
        for step in sorted(self._steps):
            seen += self._steps[step]
            if seen >= half:
                return step
        return None

    def gaps(self, usual: Fraction) -> list[Gap]:
        """The longest steps (_GAPS at most) that are longer than usual, in order of time."""
        wide = [(at, at + step) for step, at in self._widest if step >= GAP * usual]
        return sorted(wide)

    def behind(self, earlier: Tally) -> Tally:
        """Both as one: what another reader got before, and this one's from there on."""
        if earlier.last is None:
            return self
        both = replace(
            earlier,
            frames=earlier.frames + self.frames,
            failures=earlier.failures + self.failures,
            gave_up=self.gave_up,
            restarted=earlier.restarted or self.restarted,
            reached_end=self.reached_end,
            _widest=list(earlier._widest),
            _steps=dict(earlier._steps),
        )
        if self.first is not None and self.last is not None:
            both._step(earlier.last, self.first - earlier.last)
            for step, at in self._widest:
                both._widen(at, step)
            for step, count in self._steps.items():
                both._count(step, count)
            both.last = self.last
        return both

    def _fill(self, pts: Fraction) -> None:
        """A frame that lies in a gap parts it in two."""
        for entry in self._widest:
            step, at = entry
            if at < pts < at + step:
                self._widest.remove(entry)
                heapify(self._widest)
                heappush(self._widest, (pts - at, at))
                heappush(self._widest, (at + step - pts, pts))
                self.longest = max(step for step, _ in self._widest)
                return

    def _step(self, at: Fraction, step: Fraction) -> None:
        self._count(step, 1)
        self._widen(at, step)

    def _count(self, step: Fraction, times: int) -> None:
        if step in self._steps or len(self._steps) < _STEPS:
            self._steps[step] = self._steps.get(step, 0) + times

    def _widen(self, at: Fraction, step: Fraction) -> None:
        self.longest = max(self.longest, step)
        if len(self._widest) < _GAPS:
            heappush(self._widest, (step, at))
        elif step > self._widest[0][0]:
            heappushpop(self._widest, (step, at))
