"""How fast a clip's frames follow one another, and how many there are, by header and by sample."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from statistics import median

from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from facefusion_cli.video.container import header_duration

TIMED_PACKETS = 64
"""Packets whose times are looked at."""

_WHOLE_INDEX = Fraction(9, 10)
"""Share of an AVI's packets that its index covers where it is not cut off; empty packets at the
end are not in it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What is known of a clip's times before it is read."""

    rate: Fraction
    """Average frames a second."""
    steady: bool
    """All frames keep to it."""
    count: int | None
    """Frames by the header."""
    length: Fraction | None
    """Seconds by the header."""


def timing_of(
    container: InputContainer,
    stream: VideoStream,
    times: list[int],
    first: VideoFrame,
    announced: int | None,
) -> Timing:
    """What header and first packets say of a stream's times.

    Args:
        container: Where the stream is from.
        stream: The video.
        times: Presentation times of the first packets, up to TIMED_PACKETS, in its time base.
        first: Its first frame.
        announced: Frames by a header that FFmpeg does not pass on.
    """
    time_base = stream.time_base or Fraction(1, 90_000)
    interval, steady = _interval(times, time_base)
    length, of_video = header_duration(container, stream)
    count = _frame_count(stream) or announced
    slots = _avi_slots(stream)
    if slots:
        steady = len({b - a for a, b in pairwise(slots)}) <= 1
        count = len(slots)
    overall = None
    if count and length and of_video and _timed(stream):
        overall = count / length
    rate, steady = _frame_rate(stream, interval, steady, overall)
    if interval is None and not stream.average_rate and first.duration:
        # A single frame, of a format that has no rate.
        rate = 1 / (first.duration * time_base)
    if _is_avi(stream) and stream.frames and not slots:
        # The header counts ticks; FFmpeg shortens the length of a file that is cut off.
        length = stream.frames * time_base
        count = round(length * rate) if steady else None
    return Timing(rate, steady, count, length)


def _interval(times: list[int], time_base: Fraction) -> tuple[Fraction | None, bool]:
    """The usual seconds between two frames, and whether all of the sampled ones are so."""
    ordered = sorted(times)
    # The last packets are not all in yet where decoding order is not the order of display.
    ordered = ordered[: max(len(ordered) - 8, 3)] if len(ordered) >= TIMED_PACKETS else ordered
    steps = [b - a for a, b in pairwise(ordered)]
    if not steps:
        return None, True
    usual = median(steps)
    if usual <= 0:
        return None, True
    # A coarse clock (Matroska: 1 ms) rounds each time by half a tick, so steps differ by one; a
    # clock that ticks once a frame does not.
    allowed = max(1.5 if usual > 2 else 0.4, 0.02 * usual)
    steady = all(abs(step - usual) <= allowed for step in steps)
    mean = Fraction(ordered[-1] - ordered[0], len(steps)) if steady else Fraction(usual)
    return mean * time_base, steady


def _frame_rate(
    stream: VideoStream, interval: Fraction | None, steady: bool, overall: Fraction | None
) -> tuple[Fraction, bool]:
    """The average rate, and whether the frames keep to it.

    Args:
        stream: Its stated average is taken unless an edit list or a wrong header belies it.
        interval: Seconds between the first frames.
        steady: Whether those are all alike.
        overall: The header's frames through the header's seconds, where it has both.
    """
    stated = stream.average_rate or stream.guessed_rate
    if interval is None:
        return stated or Fraction(25), True
    measured = 1 / interval
    if overall is not None and not _alike(overall, measured):
        steady = False
    if not steady:
        return stated or overall or measured, False
    for rate in (stated, stream.guessed_rate):
        if rate and _alike(rate, measured):
            return _standard(rate), True
    return _standard(measured.limit_denominator(1001)), True


def _standard(rate: Fraction) -> Fraction:
    """A whole number, or 1000/1001 of one, where the rate is a rounded form of that."""
    for step in (Fraction(1), Fraction(1000, 1001)):
        near = round(rate / step) * step
        if abs(rate - near) <= near / 100_000:
            return near
    return rate


def _alike(rate: Fraction, other: Fraction) -> bool:
    return abs(rate - other) <= other / 50


def _frame_count(stream: VideoStream) -> int | None:
    """Frames by the header, less those that an edit list cuts off."""
    index = stream.index_entries
    if stream.frames and _indexed(stream) and 0 < len(index) <= stream.frames:
        kept = sum(not entry.is_discard for entry in index)
        return kept or None
    if stream.frames:
        return stream.frames
    for key, value in stream.metadata.items():
        if key.startswith("NUMBER_OF_FRAMES") and value.isdecimal():
            return int(value) or None
    return None


def _avi_slots(stream: VideoStream) -> list[int]:
    """Where an AVI's frames stand, in its ticks, if its index reaches to the end; else nothing.

    An AVI has no times: an empty packet says that the frame before stands on, and the index leaves
    those out.
    """
    if not _is_avi(stream):
        return []
    slots = [entry.timestamp for entry in stream.index_entries]
    return slots if slots and slots[-1] + 1 >= _WHOLE_INDEX * stream.frames else []


def _is_avi(stream: VideoStream) -> bool:
    return stream.container.format.name == "avi"


def _timed(stream: VideoStream) -> bool:
    """Whether the header's duration is the sum of its frames' durations."""
    return _indexed(stream) or stream.container.format.name == "gif"


def _indexed(stream: VideoStream) -> bool:
    """Whether the header lists every frame with its time (MP4, MOV)."""
    return "mov" in stream.container.format.name.split(",")
