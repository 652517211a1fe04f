"""What a clip is, learned before anything else touches it.

Headers lie or say nothing, so some frames spread over the file are decoded too: they tell the real
pixel format and colour tags, the display matrix, and whether any frame is interlaced.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.container import InputContainer
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from facefusion_cli.errors import (
    CorruptInput,
    EmptyVideo,
    FfxError,
    TruncatedInput,
    UnsupportedVideo,
)
from facefusion_cli.types import AudioStream, ColorSpec, VideoInfo
from facefusion_cli.video.animations import Animation, is_opaque, read_animation
from facefusion_cli.video.av_errors import PACKET_ERRORS, reading
from facefusion_cli.video.container import (
    alpha_beside,
    demux,
    header_duration,
    open_container,
    stream_decoder,
    stream_start,
    video_stream,
)
from facefusion_cli.video.input_file import check_input
from facefusion_cli.video.light import light_of
from facefusion_cli.video.pixel_formats import (
    GIF_FORMAT,
    GIF_OPAQUE,
    MATRICES,
    CarriedFormat,
    carried_format,
)
from facefusion_cli.video.timing import TIMED_PACKETS, timing_of

_FULL, _PQ, _HLG = 2, 16, 18
_ANIMATIONS = {"gif", "apng"}

_FIRST_FRAMES = 4
_SHORT = Fraction(2)
"""Seconds of a clip that is looked at frame by frame, as far as TIMED_PACKETS go."""
_SPREAD = (*(Fraction(part, 16) for part in (1, 3, 5, 8, 10, 12, 14)), Fraction(31, 32))


@dataclass(slots=True)
class _Sampled:
    """What decoding some frames showed."""

    first: VideoFrame | None = None
    interlaced: bool = False
    kinds: set[tuple[int, int, str, int, int]] = field(default_factory=set)
    """Sizes, pixel formats, matrices and ranges met."""
    packets: int = 0
    failures: int = 0
    packet_times: list[int] = field(default_factory=list)

    def see(self, frame: VideoFrame) -> None:
        """Takes a frame into account."""
        self.first = self.first or frame
        self.interlaced |= frame.interlaced_frame
        colour = int(frame.colorspace), int(frame.color_range)
        self.kinds.add((frame.width, frame.height, frame.format.name, *colour))


def probe(path: Path) -> VideoInfo:
    """What a clip is: sizes, timing, colours, streams, and the hazards a reader must heed.

    Args:
        path: Any file; names with colons, percent signs or spaces are fine.

    Raises:
        InputNotFound: No such file.
        InputError: The file may not be read.
        NotAVideo: No regular file, text, or data of no format FFmpeg knows.
        EmptyVideo: Zero bytes, or not a single frame and none announced.
        NoVideoStream: Sound only (a cover picture is no video).
        TruncatedInput: An MP4 without its index, or a file cut off before its first frame.
        UnsupportedVideo: No decoder, or colours coded in a way ffx does not know.
        CorruptInput: There are packets, but none of them can be decoded.
    """
    check_input(path, "a video")
    with open_container(path) as container:
        stream = video_stream(container, path)
        # Before packets are read: FFmpeg guesses a start by the first that has a decoding time,
        # which in Matroska may be the seventh.
        announced = stream.start_time
        with reading(path):
            sampled = _sample(container, stream)
        first = sampled.first
        if first is None:
            raise _no_frame(path, container, stream, sampled)
        return _describe(path, container, stream, first, sampled, announced)


def orientation(frame: VideoFrame) -> tuple[int, bool]:
    """How a stored frame becomes upright, from its display matrix.

    Returns:
        Degrees counter-clockwise (0, 90, 180 or 270) to turn it, and whether it is then mirrored
        left to right.
    """
    try:
        side_data: Any = frame.side_data
    except ValueError:
        # PyAV does not know all kinds of side data that FFmpeg can hand out, and then shows none.
        return 90 * (round(frame.rotation / 90) % 4), False
    matrix = side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return 0, False
    a, b, _, c, d = np.frombuffer(matrix, np.int32)[:5].astype(np.float64)
    mirrored = a * d - b * c < 0
    if mirrored:
        a, c = -a, -c
    quarter_turns = round(math.degrees(math.atan2(c, a)) / 90) % 4
    return 90 * quarter_turns, bool(mirrored)


def color_of(frame: VideoFrame, carried: CarriedFormat, path: Path) -> ColorSpec:
    """What a frame's samples mean; tags stay the stream's own numbers.

    Raises:
        UnsupportedVideo: The matrix is one ffx does not know (YCgCo, ICtCp, ...), or the samples
            are a sensor's.
    """
    if frame.format.name.startswith("bayer_"):
        raise UnsupportedVideo(
            f"the video holds raw sensor data ({frame.format.name}), no pictures yet",
            path=path,
            hint="develop it in a raw converter first",
        )
    tags = (
        int(frame.colorspace),
        int(frame.color_primaries),
        int(frame.color_trc),
        int(frame.color_range),
    )
    if carried.rgb:
        return ColorSpec("rgb", "full", tags)
    # A tag of RGB on a format that is not RGB is a mistake of the file's.
    matrix = MATRICES.get(tags[0] or 2)
    if matrix is None:
        raise UnsupportedVideo(
            f"the colours are coded with matrix {tags[0]}, which ffx does not know",
            path=path,
            hint="convert the video to BT.709 first",
        )
    untagged_full = tags[3] == 0 and (carried.gray or carried.name.startswith("yuvj"))
    if untagged_full:
        # Full by its pixel format alone, which the output will not share: so it must be said.
        tags = (*tags[:3], _FULL)
    return ColorSpec(matrix, "full" if tags[3] == _FULL else "limited", tags)


def _no_frame(
    path: Path, container: InputContainer, stream: VideoStream, sampled: _Sampled
) -> FfxError:
    if sampled.failures or sampled.packets:
        return CorruptInput("no frame of this video can be decoded", path=path)
    length, of_video = header_duration(container, stream)
    of_video |= len(container.streams) == 1
    if stream.frames or (of_video and length):
        return TruncatedInput(
            "the video ends before its first frame, although its header announces some",
            path=path,
            hint="copy or download it again",
        )
    return EmptyVideo("this video has no frames", path=path)


def _sample(container: InputContainer, stream: VideoStream) -> _Sampled:
    sampled = _Sampled()
    decoder = stream_decoder(stream)
    # Frame threads would have to be fed a packet each before the first frame comes out.
    decoder.thread_type = "SLICE"
    length, _ = header_duration(container, stream)
    # Without a length there is no telling where else to look.
    short = length is None or length < _SHORT
    for frame in _first_frames(container, stream, decoder, sampled, every=short):
        sampled.see(frame)
    if sampled.first is None or length is None or short or stream.time_base is None:
        return sampled
    start = stream_start(stream, Fraction(0))
    seen = set(sampled.packet_times[:1])
    for part in _SPREAD:
        if sampled.interlaced:
            break
        try:
            container.seek(int((start + part * length) / stream.time_base), stream=stream)
            decoder.flush_buffers()
            frames = _frame_here(container, stream, decoder, seen)
        except av.error.FFmpegError:
            continue  # no seeking in this file, or a damaged spot: the other frames must do
        for frame in frames:
            sampled.see(frame)
    return sampled


def _first_frames(
    container: InputContainer,
    stream: VideoStream,
    decoder: VideoCodecContext,
    sampled: _Sampled,
    *,
    every: bool,
) -> Iterator[VideoFrame]:
    """The first few frames of the file, or every frame of the packets looked at.

    Goes on to the times of the first packets, without decoding them.
    """
    found = 0
    demuxed = demux(container, stream)
    while found < _FIRST_FRAMES or len(sampled.packet_times) < TIMED_PACKETS:
        try:
            packet = next(demuxed, None)
        except PACKET_ERRORS:
            sampled.failures += 1
            return
        if packet is None:
            return
        sampled.packets += bool(packet.size)
        if packet.pts is not None and not packet.is_discard:
            sampled.packet_times.append(packet.pts)
        if found >= _FIRST_FRAMES and not every:
            continue
        try:
            frames = decoder.decode(packet)
        except PACKET_ERRORS:
            sampled.failures += 1
            continue
        found += len(frames)
        yield from frames


def _frame_here(
    container: InputContainer, stream: VideoStream, decoder: VideoCodecContext, seen: set[int]
) -> list[VideoFrame]:
    """The key frame where the container stands; nothing if its pts is among those seen before.

    The decoder is drained after one packet, or it would want a dozen for its reordering.
    """
    packet = next(demux(container, stream), None)
    if packet is None or not packet.size or packet.pts is None or packet.pts in seen:
        return []
    seen.add(packet.pts)
    return [*decoder.decode(packet), *decoder.decode(None)]


def _describe(
    path: Path,
    container: InputContainer,
    stream: VideoStream,
    first: VideoFrame,
    sampled: _Sampled,
    announced: int | None,
) -> VideoInfo:
    coded = (first.width, first.height)
    turned, mirrored = orientation(first)
    animation = Animation()
    pixel_format = first.format.name
    if container.format.name in _ANIMATIONS:
        animation = read_animation(path)
        if pixel_format == GIF_FORMAT and is_opaque(path, animation, first):
            pixel_format = GIF_OPAQUE
    carried = carried_format(pixel_format, size=coded, turned=turned, mirrored=mirrored)
    color = color_of(first, carried, path)
    width, height = coded if turned % 180 == 0 else coded[::-1]
    aspect = stream.sample_aspect_ratio or Fraction(1)
    time_base = stream.time_base or Fraction(1, 90_000)
    # Raw streams have no times at all: those are counted, by OpenCV too.
    unstated = (
        announced is None and "matroska" in container.format.name and len(sampled.packet_times) > 1
    )
    if announced is None:
        announced = min([first.pts or 0, *sampled.packet_times])
    start = announced * time_base
    sound = _audio(container)
    timing = timing_of(container, stream, sampled.packet_times, first, animation.frames)
    rate = timing.rate
    hazards = {
        "interlaced": sampled.interlaced or stream.codec_context.field_order > 1,
        "hdr": color.tags[2] in {_PQ, _HLG},
        "deep": carried.layout.bits > 8,
        "alpha": carried.alpha,
        "alpha_unread": not carried.alpha and alpha_beside(stream),
        "changing": len(sampled.kinds) > 1,
        "vfr": not timing.steady,
        "unstated_start": unstated,
        "rotated": turned != 0,
        "mirrored": mirrored,
        "late_start": any(
            a.start is not None and start - a.start > Fraction(1, 2) / rate for a in sound
        ),
        "odd_size": bool(width % 2 or height % 2),
        "not_first": stream.index != container.streams.video[0].index,
    }
    return VideoInfo(
        path=path,
        width=width,
        height=height,
        coded_size=coded,
        rotation=turned,
        frame_rate=rate,
        time_base=time_base,
        start=start,
        duration_from_header=timing.length,
        frame_count_from_header=timing.count,
        pixel_format=pixel_format,
        layout=carried.layout,
        color=color,
        sample_aspect=aspect if turned % 180 == 0 else 1 / aspect,
        codec=stream.codec_context.name,
        container=container.format.name,
        hazards=frozenset(name for name, there in hazards.items() if there),
        audio=sound,
        subtitles=tuple(s.index for s in container.streams if s.type == "subtitle"),
        chapters=len(container.chapters()),
        tags=dict(container.metadata) | _loop(animation),
        light=light_of(first),
    )


def _loop(animation: Animation) -> dict[str, str]:
    """How often an animation plays, as a tag: 0 = for ever."""
    return {} if animation.loop is None else {"loop": str(animation.loop)}


def _audio(container: InputContainer) -> tuple[AudioStream, ...]:
    found = []
    for stream in container.streams.audio:
        context = stream.codec_context
        start = None
        if stream.start_time is not None and stream.time_base is not None:
            start = stream.start_time * stream.time_base
        found.append(
            AudioStream(
                index=stream.index,
                codec=context.name if context else "unknown",
                sample_rate=context.sample_rate if context else 0,
                channels=context.channels if context else 0,
                start=start,
                language=stream.language,
            )
        )
    return tuple(found)
