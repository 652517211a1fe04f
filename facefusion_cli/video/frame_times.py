"""At what time a clip's n-th frame is shown, learned without decoding where that is possible."""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction

from av.video.frame import VideoFrame

from facefusion_cli.types import VideoInfo
from facefusion_cli.video.av_errors import PACKET_ERRORS, reading
from facefusion_cli.video.container import demux, open_container, video_stream
from facefusion_cli.video.frame_decoder import FrameDecoder
from facefusion_cli.video.tally import Tally

_REORDERED = 64
"""Packets after a frame's own that may still hold earlier frames; H.264 and HEVC allow 16."""
_HIDES_FRAMES = {"vp8"}
"""Codecs with packets that hold no frame to show."""


def frame_times(info: VideoInfo, wanted: int | None = None) -> list[Fraction]:
    """The pts of a clip's frames in seconds, in order of display.

    Args:
        info: The probe's result.
        wanted: Only the frames up to this number are of interest, counted from 0.

    Returns:
        Up to wanted + 1 times; fewer where the clip has no more frames.

    Raises:
        InputError, DecodeError: The file cannot be read.
    """
    if info.images:
        return [info.start + i / info.frame_rate for i in range(len(info.images))][: _stop(wanted)]
    by_packets = info.codec not in _HIDES_FRAMES and "interlaced" not in info.hazards
    times = _of_packets(info, wanted) if by_packets else None
    if times is None:
        times = _decoded(info, wanted)
    return times[: _stop(wanted)]


def frame_time(frame: VideoFrame, last: Fraction | None, info: VideoInfo) -> Fraction:
    """A frame's pts in seconds; one without follows at the clip's rate.

    Args:
        frame: As decoded.
        last: The time of the frame before it, if there is one.
        info: The probe's result.
    """
    if frame.pts is not None and frame.time_base is not None:
        return frame.pts * frame.time_base
    return info.start if last is None else last + 1 / info.frame_rate


def _stop(wanted: int | None) -> int | None:
    return None if wanted is None else wanted + 1


def _of_packets(info: VideoInfo, wanted: int | None) -> list[Fraction] | None:
    """Times by the container alone; None where it does not give one to every packet."""
    times: list[Fraction] = []
    with open_container(info.path) as container, reading(info.path):
        packets = demux(container, video_stream(container, info.path))
        while wanted is None or len(times) <= wanted + _REORDERED:
            try:
                packet = next(packets, None)
            except PACKET_ERRORS:
                return None
            if packet is None:
                break
            if not packet.size or packet.is_discard:
                continue
            if packet.pts is None or packet.time_base is None:
                return None
            times.append(packet.pts * packet.time_base)
    return sorted(times)


def _decoded(info: VideoInfo, wanted: int | None) -> list[Fraction]:
    times: list[Fraction] = []
    with closing(FrameDecoder(info, Tally())) as decoder, reading(info.path):
        for frame in decoder.frames():
            times.append(frame_time(frame, times[-1] if times else None, info))
            if wanted is not None and len(times) > wanted:
                break
    return times
