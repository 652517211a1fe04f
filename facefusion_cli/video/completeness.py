"""Whether all frames of a clip arrived: neither OpenCV nor FFmpeg says when they did not."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import av

from facefusion_cli.errors import CorruptInput, DecodeError, FfxError, TruncatedInput
from facefusion_cli.report import Report
from facefusion_cli.types import WHOLE, VideoInfo, Window
from facefusion_cli.video.av_errors import PACKET_ERRORS, reading
from facefusion_cli.video.container import header_duration, open_container, video_stream

MAX_FAILURES_IN_A_ROW = 8
"""Reads or packets that may fail one after another before a reader takes this for the end."""

_ALLOWED_FRAMES, _ALLOWED_SHARE = 2, Fraction(1, 100)
_TAIL = 5
_BETWEEN = Fraction(1, 4)
"""Of a frame's time, what rounding may add to the whole one before a window's first frame."""


@dataclass(slots=True)
class Tally:
    """What a reader got out of a clip."""

    frames: int = 0
    failures: int = 0
    """Packets or reads that failed while more frames followed."""
    gave_up: bool = False
    """MAX_FAILURES_IN_A_ROW were reached, and the reader went no further."""
    reached_end: bool = False
    """A frame after the end of the wanted part was seen: nothing is missing before it."""
    first: Fraction | None = None
    last: Fraction | None = None
    longest: Fraction = Fraction(0)
    """Seconds between two frames, at most."""

    def add(self, pts: Fraction) -> None:
        """Counts one frame."""
        if self.first is None:
            self.first = pts
        if self.last is not None:
            self.longest = max(self.longest, pts - self.last)
        self.last = pts
        self.frames += 1


@dataclass(frozen=True, slots=True)
class Loss:
    """Frames that did not arrive."""

    at_end: int
    inside: int
    error: DecodeError | None
    """Set where more is missing than 2 frames or 1 %, whichever is larger."""

    @property
    def frames(self) -> int:
        """All of them."""
        return self.at_end + self.inside

    def told(self, path: Path) -> str:
        """The warning about frames that are missing inside."""
        what = "frame was" if self.inside == 1 else "frames were"
        return f"{self.inside} damaged {what} lost: {path}"


def find_loss(info: VideoInfo, tally: Tally, window: Window = WHOLE) -> Loss:
    """Compares what was decoded with what the probe was told.

    Args:
        info: The probe's result.
        tally: The reader's counts, after its last frame.
        window: The part of the clip that was read.
    """
    info = _within(info, window)
    if tally.first is None or tally.last is None:
        return Loss(0, 0, CorruptInput("no frame could be decoded", path=info.path))
    interval = 1 / info.frame_rate
    length, count = info.duration_from_header, info.frame_count_from_header
    at_end = 0
    if "vfr" in info.hazards:
        if count is not None and not tally.failures:
            at_end = max(0, count - tally.frames)
        elif count is None and length is not None:
            unseen = info.start + length - tally.last - max(interval, tally.longest)
            at_end = max(0, round(unseen / interval))
    else:
        if length is not None:
            at_end = max(0, round((info.start + length - tally.last) / interval) - 1)
        if count is not None:
            # By time and not by frames: a frame missing in between is no matter of the end.
            at_end = max(at_end, count - round((tally.last - tally.first) / interval) - 1)
    if tally.reached_end:
        at_end = 0
    total = count or tally.frames + at_end
    allowed = max(_ALLOWED_FRAMES, math.floor(total * _ALLOWED_SHARE))
    if at_end > allowed and _others_reach_end(info):
        at_end = 0
    late = 0
    if window.start is not None and "vfr" not in info.hazards:
        # The start may lie between two frames, and a coarse clock moves each by a bit.
        late = max(0, math.floor((tally.first - info.start) / interval - _BETWEEN))
    inside = max(late, _lost_inside(info, tally, at_end, late))
    error: DecodeError | None = None
    if at_end > allowed and not tally.gave_up:
        error = TruncatedInput(
            f"the video ends {float(at_end * interval):.2f} s before its header says: about "
            f"{at_end} of {tally.frames + at_end} frames are missing",
            path=info.path,
            hint="the file is cut off or damaged; --lenient accepts it",
        )
    elif inside > allowed or tally.gave_up:
        frames = "1 frame" if inside == 1 else f"{inside} frames"
        where = f"after frame {tally.frames} nothing more" if tally.gave_up else frames
        verb = "could be decoded" if tally.gave_up else "could not be decoded"
        error = CorruptInput(
            f"the video is damaged: {where} {verb}",
            path=info.path,
            hint="--lenient accepts it",
        )
    return Loss(at_end, inside, error)


def _within(info: VideoInfo, window: Window) -> VideoInfo:
    """What the header announces of a part of the clip; the number of its frames is not known."""
    if window == WHOLE:
        return info
    begin = info.start if window.start is None else max(info.start, window.start)
    length = info.duration_from_header
    ends = [window.end] if window.end is not None else []
    ends += [info.start + length] if length is not None else []
    length = max(Fraction(0), min(ends) - begin) if ends else None
    return replace(info, start=begin, duration_from_header=length, frame_count_from_header=None)


def _lost_inside(info: VideoInfo, tally: Tally, at_end: int, late: int) -> int:
    """Frames missing between the first and the last; each failed packet is one at least.

    Without a failure the header's count is not believed: some formats count packets that hold no
    frame, or fields.
    """
    failures = tally.failures - (MAX_FAILURES_IN_A_ROW + 1 if tally.gave_up else 0)
    if tally.first is None or tally.last is None or failures <= 0:
        return 0
    estimates = [failures]
    if info.frame_count_from_header is not None:
        estimates.append(info.frame_count_from_header - tally.frames - at_end)
    elif "vfr" not in info.hazards:
        span = round((tally.last - tally.first) * info.frame_rate) + 1 + late
        estimates.append(span - tally.frames)
    return max(estimates)


def _others_reach_end(info: VideoInfo) -> bool:
    """Whether the file is whole although the video ends before the container's duration.

    That duration is the longest stream's; sound or subtitles that go on to it prove the file whole.
    """
    if not info.audio and not info.subtitles:
        return False
    with open_container(info.path) as container, reading(info.path):
        _, of_video = header_duration(container, video_stream(container, info.path))
        if of_video or container.duration is None:
            return False
        end = Fraction(container.duration + (container.start_time or 0), av.time_base)
        latest = Fraction(0)
        try:
            container.seek(max(0, int((end - _TAIL) * av.time_base)))
            for packet in container.demux():
                if packet.pts is not None and packet.time_base is not None:
                    stop = (packet.pts + (packet.duration or 0)) * packet.time_base
                    latest = max(latest, stop)
        except PACKET_ERRORS:
            return False
    return end - latest < Fraction(1, 2)


class CountedReader:
    """What both readers count, and what they say of it at the end."""

    def __init__(self, info: VideoInfo, report: Report, window: Window = WHOLE) -> None:
        self.info = info
        self._window = window
        self._report = report
        self._tally = Tally()
        self._loss: Loss | None = None

    @property
    def frames_decoded(self) -> int:
        """Frames handed out so far."""
        return self._tally.frames

    @property
    def decode_failures(self) -> int:
        """Packets or reads that failed with more frames after them."""
        return self._tally.failures

    @property
    def frames_lost(self) -> int:
        """Frames missing by the header; known after check_complete()."""
        return self._loss.frames if self._loss else 0

    def check_complete(self) -> FfxError | None:
        """What is missing; see Reader."""
        self._loss = find_loss(self.info, self._tally, self._window)
        if self._loss.inside and self._loss.error is None:
            self._report.warn(self._loss.told(self.info.path))
        return self._loss.error
