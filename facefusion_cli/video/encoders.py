"""Which encoder goes into which container, and how a clip's planes are handed to it.

Everything here is decided from tables before any work; FFmpeg would say some of it only when the
first packet is written, and some of it never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import av.logging
from av.codec.context import Flags
from av.video.codeccontext import VideoCodecContext

from facefusion_cli.config import OutputConfig
from facefusion_cli.errors import (
    EncoderRejected,
    EncoderUnavailable,
    IncompatibleContainer,
    UnsupportedVideo,
)
from facefusion_cli.types import PlaneLayout, VideoInfo
from facefusion_cli.video.suffixes import CONTAINERS, IMAGES

_UNSPECIFIED = 2
_BT709 = 1
_LIMITED, _FULL = 1, 2
_SUBSAMPLING = {(1, 1): "444", (2, 1): "422", (2, 2): "420"}
_FINEST_TICK = 90_000
_COARSEST_TICK = 10_000


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """One choice of --encoder."""

    codec: str
    """FFmpeg's encoder."""
    containers: tuple[str, ...]
    """Output suffixes it may go into."""
    pixel_format: Callable[[PlaneLayout, bool, bool], str]
    """(layout, is RGB, has alpha) to the pixel format it is fed."""
    options: Callable[[OutputConfig], Mapping[str, str]]
    even: bool
    """Whether width and height must be even."""


def _h264_format(layout: PlaneLayout, rgb: bool, alpha: bool) -> str:
    return "yuv420p" if layout.bits == 8 else "yuv420p10le"


def _ffv1_format(layout: PlaneLayout, rgb: bool, alpha: bool) -> str:
    # FFV1 knows 8-bit RGB as packed bytes only.
    if rgb and layout.bits == 8:
        return "bgra" if alpha else "bgr0"
    return planar_format(layout, rgb, alpha)


ENCODERS = {
    "h264": EncoderSpec(
        "libx264",
        (".mp4", ".mov", ".mkv"),
        _h264_format,
        lambda output: {"preset": output.preset, "crf": str(18 if output.crf < 0 else output.crf)},
        even=True,
    ),
    "ffv1": EncoderSpec(
        "ffv1",
        (".mkv",),
        _ffv1_format,
        lambda _: {"level": "3", "slicecrc": "1"},
        even=False,
    ),
}
"""Name in the configuration to what it means."""


@dataclass(frozen=True, slots=True)
class EncodingPlan:
    """How one clip will be encoded; made by plan_encoding, which has checked it."""

    container: str
    """FFmpeg's name."""
    codec: str
    options: Mapping[str, str]
    source_format: str
    """Pixel format of the planes as they arrive."""
    pixel_format: str
    """Pixel format the encoder gets."""
    size: tuple[int, int]
    """Encoded width and height; larger than the clip's by one where it had to be made even."""
    tags: tuple[int, int, int, int]
    """Matrix, primaries, transfer, range as written to the output."""
    time_base: Fraction
    rate: Fraction
    sample_aspect: Fraction
    notes: tuple[str, ...] = ()
    """Conversions that are the rule; for the log."""
    warnings: tuple[str, ...] = ()
    """What the output loses or gains against the clip."""


def planar_format(layout: PlaneLayout, rgb: bool, alpha: bool) -> str:
    """FFmpeg's name of the pixel format that holds these planes as they are.

    Raises:
        UnsupportedVideo: FFmpeg has none.
    """
    if rgb:
        name = "gbrap" if alpha else "gbrp"
    else:
        name = ("yuva" if alpha else "yuv") + _SUBSAMPLING[layout.subsampling] + "p"
    if layout.bits > 8:
        name += f"{layout.bits}le"
    try:
        av.VideoFormat(name)
    except ValueError as error:
        raise UnsupportedVideo(f"there is no pixel format {name}") from error
    return name


def output_time_base(time_base: Fraction) -> Fraction:
    """The encoder's time base for a clip's: the clip's ticks fall on its ticks where possible.

    Between 1/10000 s, so that subtracting the start of the sound costs no millisecond, and
    1/90000 s, which every container and encoder takes.
    """
    ticks = time_base.denominator
    if ticks > _FINEST_TICK:
        return Fraction(1, _FINEST_TICK)
    while ticks < _COARSEST_TICK:
        ticks *= 2
    return Fraction(1, ticks)


def encoder_of(out: Path, output: OutputConfig) -> str:
    """The encoder by its name in the configuration; auto is the suffix's usual one."""
    return "h264" if output.encoder == "auto" else output.encoder


def container_of(out: Path, encoder: str) -> str:
    """FFmpeg's name of the container for an output file.

    Raises:
        IncompatibleContainer: The suffix is unknown, or cannot hold what this encoder makes.
    """
    suffix = out.suffix.lower()
    possible = ENCODERS[encoder].containers if encoder in ENCODERS else ()
    if suffix in possible:
        return CONTAINERS[suffix]
    hint = f"with encoder {encoder}: {', '.join(possible)}"
    if suffix in IMAGES:
        raise IncompatibleContainer("a video cannot be written to an image", path=out, hint=hint)
    fitting = [name for name, spec in ENCODERS.items() if suffix in spec.containers]
    if fitting:
        hint += f"; {suffix} takes encoder {', '.join(fitting)}"
        raise IncompatibleContainer(f"{suffix} cannot hold {encoder}", path=out, hint=hint)
    what = f"unknown container {suffix}" if suffix else "the output has no suffix"
    raise IncompatibleContainer(what, path=out, hint=hint)


def plan_encoding(
    out: Path, info: VideoInfo, output: OutputConfig, *, alpha: bool = False
) -> EncodingPlan:
    """Decides how a clip is encoded.

    Args:
        out: The output; its suffix names the container.
        info: The clip.
        output: Encoder and its settings.
        alpha: The frames come with an alpha plane.

    Raises:
        IncompatibleContainer: The container cannot hold it.
        UnsupportedVideo: No pixel format holds the planes.
    """
    encoder = encoder_of(out, output)
    container = container_of(out, encoder)
    spec = ENCODERS[encoder]
    rgb = info.color.matrix == "rgb"
    source = planar_format(info.layout, rgb, alpha)
    target = spec.pixel_format(info.layout, rgb, alpha)
    source_format, target_format = av.VideoFormat(source), av.VideoFormat(target)
    notes, warnings = [], []
    tags = info.color.tags
    if tags[3] == 0 and info.color.range == "full" and not rgb:
        tags = (*tags[:3], _FULL)
    if rgb and not target_format.is_rgb:
        primaries, transfer = (t if t != _UNSPECIFIED else _BT709 for t in tags[1:3])
        tags = (_BT709, primaries, transfer, _LIMITED)
        notes.append(f"RGB becomes {target}, BT.709 limited: {encoder} outputs are YUV")
    elif _chroma(source_format) != _chroma(target_format):
        notes.append(f"{source} becomes {target}: {encoder} outputs are 4:2:0")
    depth = target_format.components[0].bits
    if depth < info.layout.bits:
        warnings.append(f"{info.layout.bits}-bit becomes {depth}-bit: {encoder} has no more")
    if alpha and not any(c.is_alpha for c in target_format.components):
        warnings.append(f"alpha is dropped: {encoder} cannot hold it")
    size = (info.width, info.height)
    if spec.even:
        size = (size[0] + size[0] % 2, size[1] + size[1] % 2)
    if size != (info.width, info.height):
        warnings.append(
            f"odd size {info.width}x{info.height} is padded to {size[0]}x{size[1]} by repeating "
            f"the last column or row: 4:2:0 {encoder} needs even sizes"
        )
    return EncodingPlan(
        container=container,
        codec=spec.codec,
        options=dict(spec.options(output)),
        source_format=source,
        pixel_format=target,
        size=size,
        tags=tags,
        time_base=output_time_base(info.time_base),
        rate=info.frame_rate if info.frame_rate > 0 else Fraction(25),
        sample_aspect=info.sample_aspect,
        notes=tuple(notes),
        warnings=tuple(warnings),
    )


def _chroma(fmt: av.VideoFormat) -> tuple[int, int]:
    return fmt.chroma_width(16), fmt.chroma_height(16)


def configure(context: VideoCodecContext, plan: EncodingPlan) -> None:
    """Sets an encoder up as planned; it is not opened yet."""
    context.width, context.height = plan.size
    context.pix_fmt = plan.pixel_format
    context.time_base = plan.time_base
    context.framerate = plan.rate
    if plan.sample_aspect != 1:
        context.sample_aspect_ratio = plan.sample_aspect
    context.colorspace, context.color_primaries = plan.tags[0], plan.tags[1]
    context.color_trc, context.color_range = plan.tags[2], plan.tags[3]
    context.options = dict(plan.options)
    # Without it packets have no duration, and the file ends a frame early (or late).
    context.flags |= Flags.frame_duration
    # PyAV asks for slices only, which costs x264 compression and, on many cores, speed.
    context.thread_type = "AUTO"  # type: ignore[assignment]


_HARDWARE = ("_nvenc", "_qsv", "_amf", "_vaapi", "_videotoolbox", "_v4l2m2m")


def try_encoder(plan: EncodingPlan, out: Path | None = None) -> None:
    """Opens the encoder once with the plan's size, format and options, and closes it again.

    Raises:
        EncoderUnavailable: It is not in this FFmpeg, or its driver or hardware is missing.
        EncoderRejected: It refuses size, format or options; the message has its own reason.
    """
    # Errors carry the encoder's own words only while FFmpeg's log is on. It is on just here: a log
    # line needs Python's lock, and a decoder's threads must never wait for it.
    level = av.logging.get_level()
    av.logging.set_level(av.logging.ERROR)
    try:
        with av.logging.Capture(local=False) as lines:
            context = av.CodecContext.create(plan.codec, "w")
            assert isinstance(context, VideoCodecContext)
            configure(context, plan)
            context.open()
    except av.codec.codec.UnknownCodecError as error:
        hint = "this FFmpeg was built without it"
        raise EncoderUnavailable(f"no encoder {plan.codec}", hint=hint) from error
    except av.error.FFmpegError as error:
        reason = lines[0][2].strip() if lines else error.strerror
        # Hardware encoders also fail with other errors where the hardware is not there.
        if isinstance(error, OSError) or plan.codec.endswith(_HARDWARE):
            raise EncoderUnavailable(f"{plan.codec} does not open: {reason}") from error
        raise EncoderRejected(f"{plan.codec} refuses: {reason}", path=out) from error
    finally:
        av.logging.set_level(level)
