"""When each frame of an output is shown, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

from facefusion_cli.report import Report
from facefusion_cli.video.rate import RateGrid

Frame = TypeVar("Frame")


@dataclass(frozen=True, slots=True)
class Shown(Generic[Frame]):
    """A frame with its place in the output."""

    frame: Frame
    tick: int
    """Its pts, in the output's time base."""
    duration: int
    """Ticks."""


class Pacer(Generic[Frame]):
    """Gives frames their ticks in the output.

    A frame's duration is known when the next one comes, so each push yields what was pushed before.
    Without a rate every frame comes out once, at its own time; with one it comes out at every tick
    it stands for. The last frame stands as long as the one before.

    Args:
        start: The clip's time that is 0 in the output.
        time_base: Seconds a tick of the output.
        usual: Seconds the last frame stands where there is no other.
        rate: Constant frame rate, or None.
        least: Ticks between two frames; one that comes earlier is left out, or, where this is 1,
            moved behind the one before.
        end: The clip's time behind which no frame is shown, or None.
    """

    def __init__(
        self,
        start: Fraction,
        time_base: Fraction,
        usual: Fraction,
        *,
        rate: Fraction | None = None,
        least: int = 1,
        end: Fraction | None = None,
    ) -> None:
        self.start, self._time_base, self._usual = start, time_base, usual
        self._rate, self._least, self._end = rate, least, end
        self._grid: RateGrid | None = None
        self._standing: tuple[Frame, Fraction] | None = None
        self._ready: tuple[Frame, int] | None = None
        self._step = max(round((1 / rate if rate else usual) / time_base), 1)
        self.first: int | None = None
        """Tick of the first frame."""
        self.last = 0
        """Tick of the last frame so far."""
        self._bumped = self._crowded = self._repeated = self._passed = 0

    @property
    def span(self) -> Fraction:
        """Seconds from the first frame's time to the last's."""
        return (self.last - (self.first or 0)) * self._time_base

    def push(self, frame: Frame, time: Fraction) -> Iterator[Shown[Frame]]:
        """Takes a frame with its time on the clip's clock; yields those that are now certain."""
        if self._rate is None:
            yield from self._place(frame, time)
            return
        if self._grid is None:
            self._grid = RateGrid(self._rate, time)
        if self._standing is None:
            self._standing = frame, time
            return
        if time > self._standing[1]:
            self._usual = time - self._standing[1]
            yield from self._fill(time)
        else:
            self._passed += 1
            time = self._standing[1]
        self._standing = frame, time

    def close(self, time: Fraction) -> Iterator[Shown[Frame]]:
        """The frames that are left before a time, at which the next one will be pushed."""
        if self._standing is not None:
            yield from self._fill(time)
            self._standing = None
        if self._ready is not None:
            step = self._step if self._rate else self._tick(time) - self.last
            yield Shown(*self._ready, max(step, 1))
            self._ready = None

    @property
    def origin(self) -> Fraction | None:
        """The clip's time of the constant rate's first tick, once there is one."""
        return None if self._grid is None else self._grid.origin

    def resume(self, first: int, last: int, origin: Fraction | None) -> None:
        """Goes on behind frames that another pacer has placed.

        Args:
            first: Its first tick.
            last: Its last tick.
            origin: Its origin.
        """
        self.first, self.last = first, last
        if self._rate is not None and origin is not None:
            self._grid = RateGrid(self._rate, origin)

    def finish(self) -> Iterator[Shown[Frame]]:
        """The frames that are left, once no more is pushed."""
        if self._standing is not None:
            end = self._standing[1] + self._usual
            yield from self._fill(end if self._end is None else min(end, self._end))
        if self._ready is not None:
            yield Shown(*self._ready, self._last_step())

    def report(self, report: Report) -> None:
        """Says what became of frames that did not come out once at their own time."""
        if self._bumped:
            one = self._bumped == 1
            report.warn(
                f"{self._bumped} timestamp{'' if one else 's'} did not grow and "
                f"{'was' if one else 'were'} moved behind the one before"
            )
        if self._crowded:
            what = "1 frame" if self._crowded == 1 else f"{self._crowded} frames"
            report.warn(
                f"{what} left out: the output's format shows a frame for "
                f"{float(self._least * self._time_base):g} s at least"
            )
        if self._repeated or self._passed:
            report.note(
                f"for {float(self._rate or 0):g} frames a second, frames are shown again "
                f"{self._repeated} times and {self._passed} left out"
            )

    def _fill(self, end: Fraction) -> Iterator[Shown[Frame]]:
        """The standing frame at each tick of the grid up to a time."""
        assert self._grid is not None
        assert self._standing is not None
        frame, begin = self._standing
        ticks = self._grid.ticks(begin, end)
        self._passed += not ticks
        self._repeated += max(len(ticks) - 1, 0)
        for time in ticks:
            yield from self._place(frame, time)

    def _place(self, frame: Frame, time: Fraction) -> Iterator[Shown[Frame]]:
        tick = self._tick(time)
        if self.first is None:
            self.first = tick
        elif tick - self.last < self._least:
            if self._least > 1:
                self._crowded += 1
                return
            tick = self.last + 1
            self._bumped += 1
        if self._ready is not None:
            self._step = tick - self.last
            yield Shown(*self._ready, self._step)
        self._ready, self.last = (frame, tick), tick

    def _tick(self, time: Fraction) -> int:
        return round((time - self.start) / self._time_base)

    def _last_step(self) -> int:
        if self._end is None:
            return self._step
        rest = round((self._end - self.start) / self._time_base) - self.last
        return max(min(self._step, rest), 1)
