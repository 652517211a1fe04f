"""Whether all frames of a clip arrived: neither OpenCV nor FFmpeg says when they did not.

A loss is an error where there is evidence of it: packets that fail or give no frame, bytes that
the file lacks, a broken place with a gap in the frames' times. Gaps alone are honest in variable
rates, and headers are often off by a frame or two: without evidence that much is forgiven.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import av

from facefusion_cli.errors import (
    CorruptInput,
    DecodeError,
    FfxError,
    InputNotFound,
    TruncatedInput,
)
from facefusion_cli.report import Report
from facefusion_cli.types import WHOLE, VideoInfo, Window
from facefusion_cli.video.av_errors import PACKET_ERRORS, reading
from facefusion_cli.video.container import (
    demux,
    header_duration,
    open_container,
    video_stream,
)
from facefusion_cli.video.evidence import Evidence, Gap, Seen, begins_late, gather
from facefusion_cli.video.tally import GAP, Tally

MAX_FAILURES_IN_A_ROW = 8
"""Reads or packets that may fail one after another before a reader takes this for the end."""

_ALLOWED_FRAMES, _ALLOWED_SHARE = 2, Fraction(1, 100)
_TAIL = 5
_BETWEEN = Fraction(1, 4)
"""Of a frame's time, what rounding may add to the whole one before a window's first frame."""
_HELD_BACK = 16
"""Frames that a decoder may hold back (H.264, HEVC)."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Frames that did not arrive."""

    at_end: int
    inside: int
    error: DecodeError | None
    """Set where there is evidence, or where more than 2 frames or 1 % are missing."""
    warning: str | None = None
    """What else must be said."""

    @property
    def frames(self) -> int:
        """All of them."""
        return self.at_end + self.inside


@dataclass(frozen=True, slots=True)
class _Estimate:
    """What header and counts let expect, before any evidence."""

    at_end: int
    beyond: bool
    """The header's end is later than the last frame's."""
    late: int
    inside: int


def find_loss(info: VideoInfo, tally: Tally, window: Window = WHOLE) -> Loss:
    """Compares what was decoded with what the probe was told, and with the file where they differ.

    Args:
        info: The probe's result.
        tally: The reader's counts, after its last frame.
        window: The part of the clip that was read.
    """
    part = _within(info, window)
    if tally.first is None or tally.last is None:
        return Loss(0, 0, CorruptInput("no frame could be decoded", path=info.path))
    by_header = _estimate(part, tally, window)
    usual = tally.usual() or 1 / info.frame_rate
    gaps = tally.gaps(usual)
    count, length = part.frame_count_from_header, part.duration_from_header
    suspicious = bool(
        tally.failures
        or tally.gave_up
        or gaps
        or (window.start is None and begins_late(info, tally.first, usual))
        or by_header.late
        or by_header.inside
        or (by_header.beyond and not tally.reached_end)
        or (count is not None and tally.frames < count)
        or (count is None and length is None and not tally.reached_end)
    )
    seen = Seen(tally.frames, tally.first, tally.last, usual, gaps, tally.reached_end)
    evidence = gather(info, seen, window, thorough=suspicious)
    failed = tally.failures > (0 if _under_way(tally, window, gaps, usual) else tally.early)
    return _judge(part, tally, by_header, evidence, failed=failed)


def _under_way(tally: Tally, window: Window, gaps: list[Gap], usual: Fraction) -> bool:
    """Whether failures before the first frame came out of the decoder were no late beginning.

    A window's first frames have others before them; and a decoder holds frames back, so that a
    failure behind the first one may come first.
    """
    assert tally.first is not None
    near = tally.first + _HELD_BACK * usual
    return window.start is not None or any(begin < near for begin, _ in gaps)


def _estimate(info: VideoInfo, tally: Tally, window: Window) -> _Estimate:
    assert tally.first is not None
    assert tally.last is not None
    interval = 1 / info.frame_rate
    length, count = info.duration_from_header, info.frame_count_from_header
    at_end, beyond = 0, False
    if length is not None:
        unseen = (info.start + length - tally.last) / interval
        beyond = unseen >= GAP
        at_end = max(0, round(unseen) - 1)
    if "vfr" in info.hazards:
        at_end = 0
        if count is not None and not tally.failures:
            at_end = max(0, count - tally.frames)
        elif count is None and length is not None:
            unseen = info.start + length - tally.last - max(interval, tally.longest)
            at_end = max(0, round(unseen / interval))
    elif count is not None:
        # By time and not by frames: a frame missing in between is no matter of the end.
        at_end = max(at_end, count - round((tally.last - tally.first) / interval) - 1)
    late = 0
    if window.start is not None and "vfr" not in info.hazards:
        # The start may lie between two frames, and a coarse clock moves each by a bit.
        late = max(0, math.floor((tally.first - info.start) / interval - _BETWEEN))
    at_end = 0 if tally.reached_end else at_end
    return _Estimate(at_end, beyond, late, max(late, _lost_inside(info, tally, at_end, late)))


def _judge(
    info: VideoInfo, tally: Tally, by_header: _Estimate, evidence: Evidence, *, failed: bool
) -> Loss:
    """What is lost, and whether that is an error.

    Args:
        info: What the header says of the part that was read.
        tally: The reader's counts.
        by_header: What is missing by the header.
        evidence: What the file proves.
        failed: Something failed after the first good frame.
    """
    at_end = by_header.at_end
    allowed = max(
        _ALLOWED_FRAMES,
        math.floor((info.frame_count_from_header or tally.frames + at_end) * _ALLOWED_SHARE),
    )
    if evidence.cut_off and not tally.reached_end:
        if by_header.beyond:
            at_end = max(at_end, 1)
        if evidence.behind:
            at_end = 0
    elif at_end > allowed and _others_reach_end(info):
        at_end = 0
    elif at_end <= allowed and evidence.whole and not evidence.after:
        at_end = 0  # the header is not exact
    at_end = max(at_end, evidence.after, evidence.cut_frames)
    # What failed behind the last frame is the end's, as is the packet in which a file is cut.
    cut = int(at_end > 0 and evidence.cut_off)
    of_end = max(evidence.after, evidence.cut_frames, cut)
    inside = max(by_header.inside - of_end, evidence.inside)
    if by_header.late:
        inside = max(inside, evidence.before)
    certain_end = at_end > 0 and (evidence.cut_off or evidence.after > 0)
    certain_inside = inside > 0 and (
        failed or evidence.inside > 0 or (by_header.late > 0 and evidence.before > 0)
    )
    error: DecodeError | None = None
    if certain_inside or inside > allowed or (tally.gave_up and not evidence.cut_off):
        error = _damaged(info, tally, inside)
    elif at_end > allowed or certain_end:
        error = _ends_early(info, tally, at_end, evidence)
    return Loss(at_end, inside, error, None if error else _warning(info, at_end, inside, evidence))


def _damaged(info: VideoInfo, tally: Tally, inside: int) -> CorruptInput:
    what = "1 frame" if inside == 1 else f"{inside} frames"
    told = f"{what} could not be decoded"
    if tally.gave_up:
        told = f"after frame {tally.frames} nothing more could be decoded"
    return CorruptInput(
        f"the video is damaged: {told}", path=info.path, hint="--lenient accepts it"
    )


def _ends_early(info: VideoInfo, tally: Tally, at_end: int, evidence: Evidence) -> DecodeError:
    total = tally.frames + at_end
    if not evidence.missing and not evidence.zeros and (evidence.after or evidence.broken):
        what = "the last frame" if at_end == 1 else f"the last {at_end} of about {total} frames"
        return CorruptInput(
            f"the video is damaged: {what} could not be decoded",
            path=info.path,
            hint="--lenient accepts it",
        )
    if at_end == 1:
        told = "the video is cut off: its last frame is missing or incomplete"
    else:
        told = (
            f"the video ends {float(at_end / info.frame_rate):.2f} s too early: about {at_end} of "
            f"{total} frames are missing"
        )
    if evidence.zeros:
        told += f", the last {evidence.zeros} bytes of the file are zeros"
    elif evidence.missing > 1:
        told += f", the file lacks {evidence.missing} bytes"
    return TruncatedInput(
        told,
        path=info.path,
        hint="copy or download the file again; --lenient accepts it as it is",
    )


def _warning(info: VideoInfo, at_end: int, inside: int, evidence: Evidence) -> str | None:
    if inside:
        what = "frame was" if inside == 1 else "frames were"
        return f"{inside} damaged {what} lost: {info.path}"
    if at_end:
        what = "1 frame" if at_end == 1 else f"{at_end} frames"
        return f"the video ends {what} before its header says: {info.path}"
    if evidence.missing or evidence.cut_off:
        return f"the file is cut off or damaged; no frame is known to be missing: {info.path}"
    if evidence.broken:
        return f"the file is damaged; no frame is known to be missing: {info.path}"
    return None


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
            for packet in demux(container):
                if packet.pts is not None and packet.time_base is not None:
                    stop = (packet.pts + (packet.duration or 0)) * packet.time_base
                    latest = max(latest, stop)
        except PACKET_ERRORS:
            return False
    return end - latest < Fraction(1, 2)


def _restarted(info: VideoInfo) -> CorruptInput:
    return CorruptInput(
        "the clip's clock starts again midway, as in recordings that were joined byte by byte; "
        "behind that place picture and sound do not keep their times",
        path=info.path,
        hint="remux it with a tool that mends the times; --lenient accepts it as it is",
    )


class CountedReader:
    """What both readers count, and what they say of it at the end."""

    def __init__(self, info: VideoInfo, report: Report, window: Window = WHOLE) -> None:
        self.info = info
        self._window = self._counted = window
        self._report = report
        self._tally = Tally()
        self._loss: Loss | None = None
        self._earlier: Tally | None = None

    def count_earlier(self, times: Iterable[Fraction], failures: int, window: Window) -> None:
        """Lets what another reader got before this one's window count for what is missing.

        Args:
            times: Its frames'.
            failures: Packets or reads that failed.
            window: What both together read.
        """
        self._earlier = Tally()
        for time in times:
            self._earlier.add(time)
        self._earlier.failures = failures
        self._counted = window

    @property
    def frames_decoded(self) -> int:
        """Frames handed out so far."""
        return self._tally.frames

    @property
    def progress(self) -> int:
        """Grows with everything that is decoded, even where no batch comes of it."""
        return self._tally.frames + self._tally.skipped + self._tally.failures

    @property
    def decode_failures(self) -> int:
        """Packets or reads that failed with more frames after them."""
        return self._tally.failures

    @property
    def frames_lost(self) -> int:
        """Frames missing by the header or the file; known after check_complete()."""
        return self._loss.frames if self._loss else 0

    def check_complete(self) -> FfxError | None:
        """What is missing; see Reader."""
        tally = self._tally if self._earlier is None else self._tally.behind(self._earlier)
        try:
            self._loss = find_loss(self.info, tally, self._counted)
        except (InputNotFound, FileNotFoundError):
            gone = "the file is gone; whether frames are missing cannot be told"
            self._loss = Loss(0, 0, CorruptInput(gone, path=self.info.path))
        if tally.restarted and self._loss.error is None:
            self._loss = replace(self._loss, error=_restarted(self.info))
        if self._loss.warning:
            self._report.warn(self._loss.warning)
        return self._loss.error
