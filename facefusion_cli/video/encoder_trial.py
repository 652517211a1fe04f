"""Opening an encoder before any work: what it refuses, it refuses now, in its own words."""

from __future__ import annotations

from pathlib import Path

import av
import av.logging
from av.video.codeccontext import VideoCodecContext

from facefusion_cli.errors import EncoderRejected, EncoderUnavailable
from facefusion_cli.video.encoders import EncodingPlan, configure, require_encoder

_IGNORED = ("Error parsing option", "Unknown option", "Invalid value")
"""How the wrappers of x264, x265 and SVT-AV1 begin to say that they go on without a parameter."""


def try_encoder(plan: EncodingPlan, out: Path | None = None) -> None:
    """Opens the encoder once with the plan's size, format and options, and closes it again.

    Hardware encoders also encode a frame: some open although nothing is behind them.

    Raises:
        EncoderUnavailable: It is not in this FFmpeg, or its driver or hardware is missing.
        EncoderRejected: It refuses size, format or options; the message has its own reason.
    """
    require_encoder(plan.codec)
    # Errors carry the encoder's own words only while FFmpeg's log is on. It is on just here: a log
    # line needs Python's lock, and a decoder's threads must never wait for it.
    level, skipping = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(av.logging.WARNING)
    av.logging.set_skip_repeated(False)
    try:
        with av.logging.Capture(local=False) as lines:
            context = av.CodecContext.create(plan.codec, "w")
            assert isinstance(context, VideoCodecContext)
            configure(context, plan)
            context.open()
            if plan.hardware:
                _encode_one(context, plan)
    except av.error.FFmpegError as error:
        reason = _reason(lines) or error.strerror
        # Hardware encoders also fail with other errors where the hardware is not there.
        if isinstance(error, OSError) or plan.hardware:
            hint = "its hardware or driver is missing; --encoder h264 needs none"
            raise EncoderUnavailable(f"{plan.codec} does not open: {reason}", hint=hint) from error
        raise EncoderRejected(f"{plan.codec} refuses: {reason}", path=out) from error
    finally:
        av.logging.set_level(level)
        av.logging.set_skip_repeated(skipping)
    for _, name, line in lines:
        if name == plan.codec and line.startswith(_IGNORED):
            raise EncoderRejected(f"{plan.codec} refuses: {_words(line)}", path=out)


def _encode_one(context: VideoCodecContext, plan: EncodingPlan) -> None:
    frame = av.VideoFrame(*plan.size, plan.pixel_format)
    for plane in frame.planes:
        plane.update(bytes(plane.buffer_size))
    frame.pts, frame.time_base = 0, plan.time_base
    if not [*context.encode(frame), *context.encode(None)]:
        raise av.error.ExternalError(0, "it gives no packet")


def _reason(lines: list[tuple[int, str, str]]) -> str | None:
    """The encoder's own words of why it did not open."""
    errors = [_words(line) for level, _, line in lines if level <= av.logging.ERROR]
    settings = [line for line in errors if line.startswith("Error setting option")]
    return next(iter(settings or errors), None)


def _words(line: str) -> str:
    return line.strip().rstrip(".")
