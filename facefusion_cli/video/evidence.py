"""What a clip's file proves of frames that did not arrive, learned without decoding."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from fractions import Fraction

from av.container import InputContainer
from av.video.stream import VideoStream

from facefusion_cli.types import WHOLE, VideoInfo, Window
from facefusion_cli.video.av_errors import PACKET_ERRORS, reading
from facefusion_cli.video.container import demux, open_container, video_stream
from facefusion_cli.video.structure import TS_CLOCK, Structure, glance, walk

Gap = tuple[Fraction, Fraction]
"""Times of two frames that follow one another later than usual."""

_HIDES_FRAMES = {"vp8"}
"""Codecs with packets that hold no frame to show."""
_SKIPS_FRAMES = {"mpeg4", "msmpeg4v1", "msmpeg4v2", "msmpeg4v3"}
_SKIPPED = 8
"""Bytes of a packet that stands for a frame which is not coded (MPEG-4 part 2)."""
_REORDERED = 16
"""Frames by which the order of decoding differs from that of display (H.264, HEVC)."""
_NO_CLIPS = {"gif", "apng", "image2"}
_CHAINED = {"mov", "matroska"}
"""Formats whose parts say where the next one begins."""
_PATIENCE = 64


@dataclass(frozen=True, slots=True)
class Seen:
    """The frames that a reader gave."""

    frames: int
    first: Fraction
    last: Fraction
    usual: Fraction
    """Seconds from one to the next."""
    gaps: list[Gap]
    reached_end: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """Frames that are certainly lost, and the state of the file."""

    before: int = 0
    """Frames with packets before the first one that came."""
    inside: int = 0
    after: int = 0
    """Frames with packets after the last one that came."""
    cut_frames: int = 0
    """Frames, at least, whose data the file lacks at its end."""
    missing: int = 0
    """Bytes lacking by the file's own account."""
    zeros: int = 0
    cut_off: bool = False
    behind: bool = False
    """What is lacking comes after all pictures."""
    whole: bool = False
    broken: bool = False
    """There are broken places."""


@dataclass(slots=True)
class _Packets:
    """The video's packets as the container has them."""

    times: array[int]
    """Presentation times, in the order of the file; in ticks."""
    places: array[int]
    """Where they stand in the file."""
    timed: bool
    """All have a time."""
    pictures: int
    """Those that must give a frame."""


def begins_late(info: VideoInfo, first: Fraction, usual: Fraction) -> bool:
    """Whether the beginning may be lacking: Matroska's clock begins with its first cluster.

    Args:
        info: The probe's result.
        first: The first frame's time.
        usual: Seconds from one frame to the next.
    """
    return "matroska" in info.container and first >= 2 * usual


def gather(info: VideoInfo, seen: Seen, window: Window, *, thorough: bool) -> Evidence:
    """Looks at the file.

    Args:
        info: The probe's result.
        seen: What a reader got.
        window: The part that was read.
        thorough: Something is suspicious: all of the file is looked at, else a few bytes.
    """
    if info.images or info.container in _NO_CLIPS:
        return Evidence()
    found = glance(info.path, info.container)
    if not (thorough or found.cut_off or (found.unsaid and not seen.reached_end)):
        return Evidence(whole=found.whole)
    with open_container(info.path) as container, reading(info.path):
        stream = video_stream(container, info.path)
        found = walk(info.path, info.container, found, stream.id)
        listed = _listed(info, stream)
        packets = _packets(info, container, stream)
        lost = _beyond(stream, found, window)
    names = set(info.container.split(","))
    if names & _CHAINED and not (lost or found.missing or found.breaks):
        found = replace(found, zeros=0, whole=not found.unsaid)  # padding, as the chain proves
    before = inside = after = 0
    if _comparable(info, packets):
        before, inside, after = _without_frame(info, packets, seen, window)
    elif info.container == "avi" and window == WHOLE:
        inside = max(0, max(packets.pictures, listed) - seen.frames - lost)
    inside = max(inside, _in_gaps(info, found, packets, seen), _unseen_starts(info, found, seen))
    if window.start is None and begins_late(info, seen.first, seen.usual):
        early = replace(seen, gaps=[(-seen.usual, seen.first)])
        inside += _in_gaps(info, found, packets, early)
    breaks_off = _breaks_off(found, packets)
    if seen.reached_end:
        after = lost = 0
    elif "mpegts" in names and (breaks_off or found.cut_off):
        lost = max(lost, 1)  # no header says how much followed
    elif (found.cut == "video" and not _just_stopped(found)) or (breaks_off and found.unsaid):
        lost = max(lost, 1)
    return Evidence(
        before=before,
        inside=inside,
        after=after,
        cut_frames=lost,
        missing=found.missing,
        zeros=found.zeros,
        cut_off=not seen.reached_end
        and (lost > 0 or breaks_off or (found.cut_off and not _just_stopped(found))),
        behind=found.cut == "behind",
        whole=found.whole and not found.breaks,
        broken=bool(found.breaks),
    )


def _packets(info: VideoInfo, container: InputContainer, stream: VideoStream) -> _Packets:
    found = _Packets(array("q"), array("q"), True, 0)
    smallest = _SKIPPED if info.codec in _SKIPS_FRAMES else 0
    failures = 0
    while failures <= _PATIENCE:
        try:
            for packet in demux(container, stream):
                if not packet.size or packet.is_discard:
                    continue
                found.pictures += packet.size > smallest
                if packet.pts is None:
                    found.timed = False
                    continue
                found.times.append(packet.pts)
                found.places.append(-1 if packet.pos is None else packet.pos)
        except PACKET_ERRORS:
            failures += 1
        else:
            break
    return found


def _comparable(info: VideoInfo, packets: _Packets) -> bool:
    """Whether each packet is a frame and has its time."""
    return (
        packets.timed
        and info.codec not in _HIDES_FRAMES | _SKIPS_FRAMES
        and "interlaced" not in info.hazards
    )


def _without_frame(
    info: VideoInfo, packets: _Packets, seen: Seen, window: Window
) -> tuple[int, int, int]:
    """Packets that gave no frame: before the first one that came, inside, after the last."""
    tick = info.time_base
    times = sorted({t for t in packets.times if t * tick in window})
    # Readers may be off by a tick, where a frame has many.
    slack = min(Fraction(1), seen.usual / tick / 4)
    first = bisect_left(times, seen.first / tick - slack)
    last = bisect_right(times, seen.last / tick + slack)
    inside = max(0, last - first - seen.frames)
    for begin, end in seen.gaps:
        there = bisect_left(times, end / tick - slack) - bisect_right(times, begin / tick + slack)
        inside = max(inside, there)
    return first, inside, len(times) - last


def _listed(info: VideoInfo, stream: VideoStream) -> int:
    """Pictures by the index that an AVI ends with; 0 for other formats."""
    if info.container != "avi":
        return 0
    smallest = _SKIPPED if info.codec in _SKIPS_FRAMES else 0
    return sum(entry.size > smallest for entry in stream.index_entries)


def _beyond(stream: VideoStream, found: Structure, window: Window) -> int:
    """Packets that the header or the index lists behind the end of the data."""
    names = stream.container.format.name.split(",")
    if not found.size or window.end is not None:
        return 0
    entries = stream.index_entries
    if "mov" in names:
        return sum(e.pos + e.size > found.end and e.size > 0 and not e.is_discard for e in entries)
    if "avi" in names and (found.missing or found.zeros) and found.cut != "behind":
        # The index is gone with the end; FFmpeg made another one of what it has read.
        beyond = sum(e.pos + 8 + e.size > found.end and e.size > 0 for e in entries)
        slots = entries[len(entries) - 1].timestamp + 1 if len(entries) else 0
        return max(beyond, stream.frames - slots)
    return 0


def _in_gaps(info: VideoInfo, found: Structure, packets: _Packets, seen: Seen) -> int:
    """Frames lacking in gaps that lie where the file is broken."""
    lost = {}
    for begin, end in found.breaks:
        before = [t for t, p in zip(packets.times, packets.places, strict=True) if p < begin]
        after = [t for t, p in zip(packets.times, packets.places, strict=True) if p >= end]
        since = min(before[-_REORDERED:]) * info.time_base if before else -math.inf
        until = max(after[:_REORDERED]) * info.time_base if after else math.inf
        for gap in seen.gaps:
            if gap[0] < until and gap[1] > since:
                lost[gap] = max(1, round((gap[1] - gap[0]) / seen.usual) - 1)
    return sum(lost.values())


def _unseen_starts(info: VideoInfo, found: Structure, seen: Seen) -> int:
    """Pictures whose beginning the file announces at a time at which none came."""
    tick = info.time_base
    slack = seen.usual / 4
    lost = 0
    for begin, end in seen.gaps:
        since, length = math.ceil((begin + slack) / tick), (end - begin - 2 * slack) / tick
        lost += sum((start - since) % TS_CLOCK <= length for start in found.starts)
    return lost


def _breaks_off(found: Structure, packets: _Packets) -> bool:
    """Whether no picture follows a broken place."""
    return bool(found.breaks) and found.breaks[-1][1] > max(packets.places, default=-1)


def _just_stopped(found: Structure) -> bool:
    """Whether a live recording ends anywhere, as they do."""
    return found.unsaid and not (found.zeros or found.missing or found.breaks)
