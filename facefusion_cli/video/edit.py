"""What --start, --end, --fps and --scale mean for one clip.

Moments count from the clip's first frame, whatever its pts: 0 is where a player begins, and frame
0f is the first one.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction

from facefusion_cli.config import OutputConfig
from facefusion_cli.errors import ConfigError, UsageError
from facefusion_cli.report import Report
from facefusion_cli.types import WHOLE, Edit, VideoInfo, Window
from facefusion_cli.video.frame_times import frame_times

_FRAME = re.compile(r"(\d{1,9})f", re.ASCII)
_CLOCK = re.compile(r"(?:(?:(\d{1,4}):)?(\d{1,4}):)?(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})", re.ASCII)
_RATIO = re.compile(r"(\d{1,9})/(\d{1,9})", re.ASCII)
_DECIMAL = re.compile(r"\d{1,9}(?:\.(\d{0,9}))?|\.(\d{1,9})", re.ASCII)
_SIZE = re.compile(r"(\d{0,6})[xX](\d{0,6})", re.ASCII)

_NTSC = (12, 15, 24, 30, 48, 60, 96, 120, 240)
"""Rates whose 1000/1001 is meant by its two or more decimals: 29.97, 23.976."""
_RATES = Fraction(1, 10), Fraction(1000)
_LONGEST_SIDE = 16_384
_ONE_ROUNDING = Fraction(3, 2)
"""Pixels that rounding to even sizes may take a side from its exact length."""

_MOMENTS = "write seconds (12.5), [hh:]mm:ss (1:02.5) or a frame's number (120f)"
_SIZES = "write 1280x720, 1280x, x720 or a factor such as 0.5"


@dataclass(frozen=True, slots=True)
class _Moment:
    """A point of the clip as the user wrote it: a number of seconds or of a frame."""

    flag: str
    text: str
    seconds: Fraction | None
    frame: int | None

    def __str__(self) -> str:
        return f"{self.flag} {self.text}"


def plan_edit(info: VideoInfo, output: OutputConfig, report: Report) -> tuple[Edit, VideoInfo]:
    """What is done to a clip besides its faces, and the clip as its output shall be.

    Args:
        info: The probe's result; of a sequence of images, played at_own_rate.
        output: start, end, fps and scale are read.
        report: Told what follows from them.

    Returns:
        The edit, and the info with the output's size, sample aspect, rate, start, duration and
        count of frames; the last two are None where they are not known beforehand.

    Raises:
        ConfigError: A value is written in a way that means nothing.
        UsageError: The window is empty, or the clip has no such moment, frame or size.
        InputError, DecodeError: Frames had to be counted, and the file cannot be read.
    """
    rate = None if info.images else parse_rate(output.fps)
    window = _window(info, output, report)
    size, aspect = _size(info, output.scale, report)
    shown = replace(
        _cut(info, window),
        width=size[0],
        height=size[1],
        sample_aspect=aspect,
        hazards=_hazards(info, size, rate),
    )
    if rate is not None:
        length = shown.duration_from_header
        count = None if length is None else max(1, round(length * rate))
        shown = replace(shown, frame_rate=rate, frame_count_from_header=count)
        report.note(f"frame rate {_number(info.frame_rate)} becomes {_number(rate)}")
    length = info.duration_from_header
    until = None if length is None or rate is None else info.start + length
    same_size = size == (info.width, info.height)
    return Edit(window, rate, None if same_size else size, until), shown


def at_own_rate(info: VideoInfo, output: OutputConfig) -> VideoInfo:
    """A sequence of images played at --fps; any other clip as it is.

    Raises:
        ConfigError: The rate is written in a way that means nothing.
    """
    rate = parse_rate(output.fps)
    if not info.images or rate is None:
        return info
    return replace(
        info, frame_rate=rate, time_base=1 / rate, duration_from_header=len(info.images) / rate
    )


def parse_rate(text: str) -> Fraction | None:
    """Frames a second of "25", "29.97" (30000/1001), "30000/1001" or "12.5"; None of "".

    Raises:
        ConfigError: It is none of these, or not within 0.1 to 1000.
    """
    if not text:
        return None
    hint = "write frames a second: 25, 29.97 or 30000/1001"
    ratio, decimal = _RATIO.fullmatch(text), _DECIMAL.fullmatch(text)
    if ratio and int(ratio[2]):
        rate = Fraction(int(ratio[1]), int(ratio[2]))
    elif decimal and text != ".":
        rate = _meant(Fraction(text), len(decimal[1] or decimal[2] or ""))
    else:
        raise ConfigError(f"--fps {text!r} is no frame rate", hint=hint)
    if not _RATES[0] <= rate <= _RATES[1]:
        raise ConfigError(f"--fps {text} is outside 0.1 to 1000", hint=hint)
    return rate


def _meant(rate: Fraction, digits: int) -> Fraction:
    """The NTSC rate that these decimals are short for, if there is one."""
    for whole in _NTSC:
        exact = Fraction(whole * 1000, 1001)
        if digits >= 2 and abs(exact - rate) <= Fraction(1, 2 * 10**digits):
            return exact
    return rate


def _window(info: VideoInfo, output: OutputConfig, report: Report) -> Window:
    begin, stop = _moment("--start", output.start), _moment("--end", output.end)
    start = info.start if begin is None else _time(info, begin)
    end = None if stop is None else _time(info, stop)
    if start is None:
        raise UsageError(f"{begin} is not within the clip: {_extent(info, begin)}", path=info.path)
    if stop is not None and end is None:
        _check_end(info, stop, report)
    if end is not None and end <= max(start, info.start):
        what = f"is not after {begin}" if begin else "leaves nothing of the clip"
        raise UsageError(f"{stop} {what}", path=info.path)
    if start <= info.start and end is None:
        return WHOLE
    return Window(None if start <= info.start else start, end)


def _moment(flag: str, text: str) -> _Moment | None:
    if not text:
        return None
    frame, clock = _FRAME.fullmatch(text), _CLOCK.fullmatch(text)
    if frame:
        return _Moment(flag, text, None, int(frame[1]))
    if clock is None:
        raise ConfigError(f"{flag} {text!r} is no moment of a clip", hint=_MOMENTS)
    hours, minutes, seconds = (Fraction(part or 0) for part in clock.groups())
    if (clock[2] and seconds >= 60) or (clock[1] and minutes >= 60):
        raise ConfigError(f"{flag} {text!r} has 60 or more seconds or minutes", hint=_MOMENTS)
    return _Moment(flag, text, hours * 3600 + minutes * 60 + seconds, None)


def _time(info: VideoInfo, moment: _Moment) -> Fraction | None:
    """The moment on the clip's own clock; None where the clip has ended by then."""
    if moment.frame is not None:
        times = frame_times(info, moment.frame)
        return times[moment.frame] if moment.frame < len(times) else None
    assert moment.seconds is not None
    length = info.duration_from_header
    if length is None or moment.seconds >= length:
        # Headers err, and live recordings have none.
        times = frame_times(info)
        if not times or moment.seconds >= times[-1] + 1 / info.frame_rate - info.start:
            return None
    return info.start + moment.seconds


def _check_end(info: VideoInfo, stop: _Moment, report: Report) -> None:
    """Says that an end lies behind the clip's.

    Raises:
        UsageError: It is a frame that the clip does not have.
    """
    if stop.frame is None:
        if stop.seconds != info.duration_from_header:
            report.note(f"{stop} is after the clip's end: {info.path}")
    elif stop.frame > len(frame_times(info)):
        raise UsageError(f"{stop} is not within the clip: {_extent(info, stop)}", path=info.path)


def _extent(info: VideoInfo, moment: _Moment | None) -> str:
    times = frame_times(info)
    if moment is not None and moment.frame is not None:
        return f"it has {len(times)} frames, 0f to {len(times) - 1}f"
    length = times[-1] + 1 / info.frame_rate - info.start if times else Fraction(0)
    return f"it lasts {_number(length)} s"


def _cut(info: VideoInfo, window: Window) -> VideoInfo:
    """Start, duration and count of frames of a part; the latter two where they are certain."""
    if window == WHOLE:
        return info
    start = info.start if window.start is None else window.start
    length = info.duration_from_header
    ends = [] if window.end is None else [window.end]
    ends += [] if length is None else [info.start + length]
    length = min(ends) - start if ends else None
    count = None
    if length is not None and "vfr" not in info.hazards:
        ticks = [math.ceil((t - info.start) * info.frame_rate) for t in (start, start + length)]
        count = max(1, ticks[1] - ticks[0])
    return replace(info, start=start, duration_from_header=length, frame_count_from_header=count)


def _size(info: VideoInfo, text: str, report: Report) -> tuple[tuple[int, int], Fraction]:
    """The output's width, height and sample aspect."""
    old = info.width, info.height
    if not text:
        return old, info.sample_aspect
    size = _wanted_size(info, text)
    if not all(1 <= side <= _LONGEST_SIDE for side in size):
        raise ConfigError(
            f"--scale {text} makes {size[0]}x{size[1]}: sides are 1 to {_LONGEST_SIDE} pixels",
            hint=_SIZES,
        )
    aspect = info.sample_aspect * Fraction(old[0] * size[1], old[1] * size[0])
    aspect = aspect.limit_denominator(10_000)
    exact = old[0] * Fraction(size[1], old[1]), old[1] * Fraction(size[0], old[0])
    off = min(abs(side - other) for side, other in zip(size, exact, strict=True))
    if off <= _ONE_ROUNDING or not aspect:
        return size, info.sample_aspect
    report.note(
        f"{size[0]}x{size[1]} is another shape than {old[0]}x{old[1]}: pixels become "
        f"{aspect.numerator}:{aspect.denominator}, so that the picture keeps its own"
    )
    return size, aspect


def _wanted_size(info: VideoInfo, text: str) -> tuple[int, int]:
    def even(exact: Fraction) -> int:
        """The nearest side that every subsampled format takes."""
        return max(1, math.floor(exact / 2 + Fraction(1, 2))) * 2

    factor = _DECIMAL.fullmatch(text) if text != "." else None
    if factor:
        width, height = info.width * Fraction(text), info.height * Fraction(text)
        return even(width), even(height)
    sides = _SIZE.fullmatch(text)
    if not sides or not (sides[1] or sides[2]):
        raise ConfigError(f"--scale {text!r} is no size", hint=_SIZES)
    wide, high = (int(side) if side else None for side in sides.groups())
    if wide and high is None:
        return wide, even(Fraction(info.height * wide, info.width))
    if high and wide is None:
        return even(Fraction(info.width * high, info.height)), high
    return wide or 0, high or 0


def _hazards(info: VideoInfo, size: tuple[int, int], rate: Fraction | None) -> frozenset[str]:
    gone = {"odd_size"} | ({"vfr"} if rate is not None else set())
    odd = {"odd_size"} if size[0] % 2 or size[1] % 2 else set()
    return (info.hazards - gone) | odd


def _number(value: Fraction) -> str:
    return f"{float(value):.3f}".rstrip("0").rstrip(".")
