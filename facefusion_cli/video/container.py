"""Opening media files for reading: the container, its video stream, what its header announces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.codec import CodecContext
from av.container import InputContainer
from av.packet import Packet
from av.stream import Disposition, Stream
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream

from facefusion_cli.errors import NotAVideo, NoVideoStream, TruncatedInput, UnsupportedVideo
from facefusion_cli.video.av_errors import reading
from facefusion_cli.video.image_kinds import is_image
from facefusion_cli.video.structure import glance

_TEXT_DEMUXERS = {"tty", "bin", "xbin", "adf", "idf"}
"""Demuxers that draw text files as pictures: a text file is no video."""
_ALPHA_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
"""Decoders that use the alpha WebM holds beside each packet; FFmpeg's own pass over it."""


def open_container(path: Path) -> InputContainer:
    """Opens a media file for reading; the caller closes it.

    The path is resolved first: FFmpeg would take the part before a colon for a protocol.

    Raises:
        InputError, DecodeError: As `reading` says.
    """
    with reading(path):
        container = av.open(path.resolve(), metadata_errors="replace")
    if container.format.name in _TEXT_DEMUXERS:
        container.close()
        raise NotAVideo("this is a text file, not a video", path=path)
    # Chosen by the name alone: FFmpeg has not looked at a byte yet.
    if container.format.name == "image2" and not is_image(path):
        container.close()
        raise NotAVideo("this is no image that ffx knows, whatever its name says", path=path)
    return container


def video_stream(container: InputContainer, path: Path) -> VideoStream:
    """The stream ffx works on: the first that is a video and not a cover picture.

    Raises:
        NoVideoStream: There is none.
        UnsupportedVideo: FFmpeg has no decoder for it.
    """
    for stream in container.streams.video:
        if stream.disposition & (Disposition.attached_pic | Disposition.timed_thumbnails):
            continue
        if stream.codec_context is None:
            raise UnsupportedVideo(
                "FFmpeg has no decoder for this video", path=path, hint="convert it to H.264 first"
            )
        return stream
    if "mov" in container.format.name.split(",") and glance(path, "mov").missing:
        raise TruncatedInput(
            "the MP4's index (moov) is cut off: the file is incomplete",
            path=path,
            hint="copy or download it again",
        )
    raise NoVideoStream("there is no video in this file", path=path)


def demux(container: InputContainer, *streams: Stream) -> Iterator[Packet[Any]]:
    """Packets of some streams (none: of all), and the empty ones that flush their decoders.

    PyAV ends with an IndexError, after all of them, where damage looked like one more stream that
    was not there when the file was opened (MPEG-TS).
    """
    with suppress(IndexError):
        yield from container.demux(*streams)


def alpha_beside(stream: VideoStream) -> bool:
    """Whether the container holds alpha beside each packet (VP8 and VP9 in WebM)."""
    return any(
        key.lower() == "alpha_mode" and value == "1" for key, value in stream.metadata.items()
    )


def stream_decoder(stream: VideoStream) -> VideoCodecContext:
    """The decoder for a stream's packets: its own, unless another one gives its alpha too.

    One that is not the stream's own must be flushed after seeking.
    """
    own = stream.codec_context
    name = _ALPHA_DECODERS.get(own.name, "") if alpha_beside(stream) else ""
    if name not in av.codecs_available:
        return own
    decoder = CodecContext.create(name, "r")
    assert isinstance(decoder, VideoCodecContext)
    return decoder


def header_duration(container: InputContainer, stream: VideoStream) -> tuple[Fraction | None, bool]:
    """Seconds of video the header announces, and whether it says so of the video stream itself.

    Where only the container has a duration it is that of the longest stream.
    """
    # 0 is what a GIF of one picture says.
    if stream.duration and stream.time_base is not None:
        return stream.duration * stream.time_base, True
    stated = _clock(stream.metadata.get("DURATION"))
    if stated is not None:
        # Matroska states the time of the end, not the length.
        return stated - stream_start(stream, Fraction(0)), True
    if container.duration is None:
        return None, False
    begin = Fraction(container.start_time or 0, av.time_base)
    end = begin + Fraction(container.duration, av.time_base)
    return end - stream_start(stream, begin), False


def stream_start(stream: VideoStream, otherwise: Fraction) -> Fraction:
    """Seconds of the stream's first pts by the header, or what is given instead."""
    if stream.start_time is None or stream.time_base is None:
        return otherwise
    return stream.start_time * stream.time_base


def _clock(text: str | None) -> Fraction | None:
    """Seconds of "HH:MM:SS.fraction"."""
    if text is None:
        return None
    try:
        hours, minutes, seconds = text.split(":")
        return int(hours) * 3600 + int(minutes) * 60 + Fraction(seconds)
    except ValueError:
        return None
