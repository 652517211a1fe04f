"""How one clip is encoded: which encoder, fed with what, and with which options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
from av.codec.context import Flags
from av.video.codeccontext import VideoCodecContext

from facefusion_cli.config import OutputConfig
from facefusion_cli.errors import (
    ConfigError,
    EncoderRejected,
    EncoderUnavailable,
    IncompatibleContainer,
)
from facefusion_cli.types import Matrix, PlaneLayout, VideoInfo
from facefusion_cli.video.encoder_options import chooses_rate, join_parameters, parse_options
from facefusion_cli.video.encoder_table import (
    ENCODERS,
    USUAL_ENCODERS,
    EncoderSpec,
    Source,
    chroma_cell,
    pixel_formats,
    planar_format,
)
from facefusion_cli.video.suffixes import CONTAINERS, IMAGES

_RGB, _BT709, _UNSPECIFIED = 0, 1, 2
_LIMITED, _FULL = 1, 2
_HDR_TRANSFERS = {16: "PQ", 18: "HLG"}
_LAYOUTS = {(2, 2): "4:2:0", (2, 1): "4:2:2", (1, 1): "4:4:4"}
_FINEST_TICK = 90_000
_COARSEST_TICK = 10_000
_GIF_TICK = Fraction(1, 100)
_GIF_LEAST_TICKS = 2
"""Players show a GIF's frame of one tick for ten."""
_NARROW = 64
"""Columns of pictures that x265 gets wrong by itself: its cutree writes past the end of its memory
up to 48, and a picture exactly one coding tree unit wide comes out with wrong samples at times."""


@dataclass(frozen=True, slots=True)
class EncodingPlan:
    """How one clip will be encoded; made by plan_encoding, which has checked it."""

    container: str
    """FFmpeg's name."""
    codec: str
    options: Mapping[str, str]
    source_format: str
    """Pixel format of the planes as they arrive."""
    source_range: int
    """Range of their samples, FFmpeg's number: 1 limited, 2 full."""
    source_matrix: Matrix
    pixel_format: str
    """Pixel format the encoder gets."""
    size: tuple[int, int]
    """Encoded width and height; larger than the clip's by one where it had to be made even."""
    tags: tuple[int, int, int, int]
    """Matrix, primaries, transfer, range as written to the output."""
    time_base: Fraction
    rate: Fraction
    sample_aspect: Fraction
    least_ticks: int = 1
    """Ticks of the time base that a frame stands at least; one that comes earlier is left out."""
    codec_tag: str | None = None
    hardware: bool = False
    notes: tuple[str, ...] = ()
    """Conversions that are the rule; for the log."""
    warnings: tuple[str, ...] = ()
    """What the output loses or gains against the clip."""


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
    if output.encoder != "auto":
        return output.encoder
    return USUAL_ENCODERS.get(out.suffix.lower(), "h264")


def container_of(out: Path, encoder: str) -> str:
    """FFmpeg's name of the container for an output file.

    Raises:
        ConfigError: The encoder is one of the OpenCV writer's.
        IncompatibleContainer: The suffix is unknown, or cannot hold what this encoder makes.
    """
    suffix = out.suffix.lower()
    fitting = [n for n, s in ENCODERS.items() if suffix in s.containers and not s.hardware]
    if encoder not in ENCODERS:
        hint = f"use --writer opencv, or --encoder {fitting[0] if fitting else 'h264'}"
        raise ConfigError(f"only the OpenCV writer has the encoder {encoder}", hint=hint)
    possible = ENCODERS[encoder].containers
    if suffix in possible:
        return CONTAINERS[suffix]
    hint = f"with encoder {encoder}: {', '.join(possible)}"
    if suffix in IMAGES:
        raise IncompatibleContainer("a video cannot be written to an image", path=out, hint=hint)
    if fitting:
        hint += f"; {suffix} takes encoder {', '.join(fitting)}"
        raise IncompatibleContainer(f"{suffix} cannot hold {encoder}", path=out, hint=hint)
    what = f"unknown container {suffix}" if suffix else "the output has no suffix"
    raise IncompatibleContainer(what, path=out, hint=hint)


def plan_encoding(
    out: Path,
    info: VideoInfo,
    output: OutputConfig,
    *,
    alpha: bool = False,
    rate: Fraction | None = None,
) -> EncodingPlan:
    """Decides how a clip is encoded.

    Args:
        out: The output; its suffix names the container.
        info: The clip.
        output: Encoder and its settings.
        alpha: The frames come with an alpha plane.
        rate: Constant frame rate of the output; None keeps the clip's times.

    Raises:
        IncompatibleContainer: The container cannot hold it.
        UnsupportedVideo: No pixel format holds the planes.
        ConfigError: The quality, pixel format or an option is none of this encoder's.
        EncoderUnavailable: The encoder is not in this FFmpeg.
        EncoderRejected: The encoder does not encode this size.
    """
    encoder = encoder_of(out, output)
    container = container_of(out, encoder)
    spec = ENCODERS[encoder]
    require_encoder(spec.codec)
    rgb = info.color.matrix == "rgb"
    source = planar_format(info.layout, rgb, alpha)
    kept_alpha = alpha and out.suffix.lower() in spec.alpha_in
    target = _target_format(encoder, output, Source(info.layout, rgb, kept_alpha))
    notes: list[str] = []
    warnings: list[str] = []
    tags = _tags(info, encoder, target, notes)
    _say_losses(info, encoder, (source, target), warnings, notes)
    if alpha and not kept_alpha:
        where = container if spec.alpha_in else encoder
        warnings.append(f"alpha is dropped: {where} cannot hold it{_alpha_hint(encoder, spec)}")
    elif alpha and not _has_alpha(target):
        warnings.append(f"alpha is dropped: {target} has none")
    if info.light is not None and spec.light is None:
        warnings.append(f"the brightness HDR was graded to is dropped: {encoder} cannot hold it")
    if output.crf >= 0 and spec.quality is None:
        notes.append(f"crf means nothing to {encoder} and is ignored")
    step = rate or info.frame_rate
    is_gif = encoder == "gif"
    ticks = _GIF_TICK if is_gif else output_time_base(1 / rate if rate else info.time_base)
    return EncodingPlan(
        container=container,
        codec=spec.codec,
        options=_options(encoder, info, output, target),
        source_format=source,
        source_range=_FULL if info.color.range == "full" else _LIMITED,
        source_matrix=info.color.matrix,
        pixel_format=target,
        size=_size(info, encoder, target, warnings),
        tags=tags,
        time_base=ticks,
        rate=step if step > 0 else Fraction(25),
        sample_aspect=info.sample_aspect,
        least_ticks=_GIF_LEAST_TICKS if is_gif else 1,
        codec_tag=spec.codec_tags.get(container),
        hardware=spec.hardware,
        notes=tuple(notes),
        warnings=tuple(warnings),
    )


def require_encoder(codec: str) -> None:
    """Raises EncoderUnavailable where this FFmpeg has no such encoder."""
    try:
        av.Codec(codec, "w")
    except av.codec.codec.UnknownCodecError as error:
        hint = "this FFmpeg was built without it"
        raise EncoderUnavailable(f"no encoder {codec}", hint=hint) from error


def _target_format(encoder: str, output: OutputConfig, source: Source) -> str:
    """The pixel format the encoder is fed: its own default or the user's choice.

    Raises:
        ConfigError: The encoder does not take the user's.
    """
    spec = ENCODERS[encoder]
    if output.pix_fmt == "auto":
        return spec.pixel_format(source)
    # A GIF's palette is made anew for each frame; the other formats of its encoder have fixed ones.
    known = ("pal8",) if encoder == "gif" else pixel_formats(spec.codec)
    if output.pix_fmt not in known:
        raise ConfigError(
            f"output.pix_fmt: {encoder} does not take {output.pix_fmt!r}",
            hint=f"it takes {', '.join(known)}",
        )
    return output.pix_fmt


def _tags(
    info: VideoInfo, encoder: str, target: str, notes: list[str]
) -> tuple[int, int, int, int]:
    """The output's colour tags; the clip's own wherever its samples are kept as they are."""
    tags = info.color.tags
    target_format = av.VideoFormat(target)
    rgb = info.color.matrix == "rgb"
    if encoder == "gif":
        return (_RGB, _UNSPECIFIED, _UNSPECIFIED, _FULL)
    if rgb:
        if target_format.is_rgb:
            return tags
        primaries, transfer = (t if t != _UNSPECIFIED else _BT709 for t in tags[1:3])
        notes.append(f"RGB becomes {target}, BT.709 limited: {encoder} outputs are YUV")
        return (_BT709, primaries, transfer, _LIMITED)
    if target_format.is_rgb:
        notes.append(f"the clip becomes RGB, {target}, by its own matrix")
        return (_RGB, *tags[1:3], _FULL)
    if info.color.range == "full" and not ENCODERS[encoder].full_range:
        notes.append(f"full range becomes limited: {encoder} knows no other")
        return (*tags[:3], _LIMITED)
    if tags[3] == 0 and info.color.range == "full":
        return (*tags[:3], _FULL)
    return tags


def _say_losses(
    info: VideoInfo,
    encoder: str,
    formats: tuple[str, str],
    warnings: list[str],
    notes: list[str],
) -> None:
    """Says what becomes of chroma, depth and HDR."""
    source, target = formats
    if encoder == "gif":
        notes.append("each frame gets a palette of 256 colours: a GIF holds no more")
        if name := _HDR_TRANSFERS.get(info.color.tags[2]):
            warnings.append(f"{name} colours will look dull: a GIF is SDR (use --tonemap bt2390)")
        return
    both = av.VideoFormat(source), av.VideoFormat(target)
    if not both[0].is_rgb and not both[1].is_rgb:
        if len(both[1].components) < 3:
            warnings.append(f"colours are dropped: {target} has none")
        elif chroma_cell(source) != chroma_cell(target):
            name = _LAYOUTS.get(chroma_cell(target), "different")
            notes.append(f"{source} becomes {target}: {encoder} outputs are {name}")
    depth = both[1].components[0].bits
    if depth < info.layout.bits:
        deeper = _deeper(encoder, target, info.layout)
        why = f"--pix-fmt {deeper} keeps more" if deeper else f"{encoder} has no more"
        warnings.append(f"{info.layout.bits}-bit becomes {depth}-bit: {why}")


def _deeper(encoder: str, target: str, layout: PlaneLayout) -> str | None:
    """A format like this one that the encoder takes and that has more bits."""
    like = av.VideoFormat(target)
    for name in pixel_formats(ENCODERS[encoder].codec):
        other = av.VideoFormat(name)
        alike = other.is_rgb == like.is_rgb and len(other.components) == len(like.components)
        bits = other.components[0].bits
        more = like.components[0].bits < bits <= layout.bits
        if alike and more and chroma_cell(name) == chroma_cell(target):
            return name
    return None


def _has_alpha(pixel_format: str) -> bool:
    fmt = av.VideoFormat(pixel_format)
    return fmt.has_palette or any(c.is_alpha for c in fmt.components)


def _alpha_hint(encoder: str, spec: EncoderSpec) -> str:
    if spec.alpha_in:
        return f" from {encoder} (it can in {', '.join(spec.alpha_in)})"
    return ""


def _size(info: VideoInfo, encoder: str, target: str, warnings: list[str]) -> tuple[int, int]:
    """The encoded size.

    Raises:
        EncoderRejected: It is smaller or larger than the encoder can.
    """
    spec = ENCODERS[encoder]
    across, down = spec.even(target)
    size = (info.width + -info.width % across, info.height + -info.height % down)
    least, most = spec.smallest, spec.largest or size
    if any(side < low or side > high for side, low, high in zip(size, least, most, strict=True)):
        limits = f"at least {least[0]}x{least[1]}"
        if spec.largest is not None:
            limits += f" and at most {most[0]}x{most[1]}"
        raise EncoderRejected(
            f"{spec.codec} refuses: {size[0]}x{size[1]} pixels, and it needs {limits}",
            hint="use another encoder or --scale",
        )
    if size != (info.width, info.height):
        warnings.append(
            f"odd size {info.width}x{info.height} is padded to {size[0]}x{size[1]} by repeating "
            f"the last column or row: {_LAYOUTS[chroma_cell(target)]} {encoder} needs even sizes"
        )
    return size


def _options(encoder: str, info: VideoInfo, output: OutputConfig, target: str) -> dict[str, str]:
    """The encoder's options, the user's own over ours.

    Raises:
        ConfigError: The quality is outside the encoder's scale, or it has no such option.
    """
    spec = ENCODERS[encoder]
    users = parse_options(output.encoder_options, spec.codec)
    options = dict(spec.presets[output.preset]) if spec.presets else {}
    if spec.quality and not (output.crf < 0 and chooses_rate(users)):
        options[spec.quality.option] = str(_quality(encoder, output.crf))
    options |= spec.options
    if encoder == "prores":
        options["profile"] = "hq" if chroma_cell(target) == (2, 1) else "4444"
    if encoder == "vp9" and _has_alpha(target):
        # libvpx makes no hidden reference frames with alpha, and says so each time.
        options["auto-alt-ref"] = "0"
    parameters = dict(spec.own_parameters)
    if encoder == "hevc" and info.width <= _NARROW:
        parameters |= {"ctu": "16", "cutree": "0"}
    if spec.light is not None and info.light is not None:
        parameters |= spec.light(info.light)
    joined = join_parameters(parameters, users.pop(spec.parameters, ""))
    if joined:
        options[spec.parameters] = joined
    return options | users


def _quality(encoder: str, crf: int) -> int:
    quality = ENCODERS[encoder].quality
    assert quality is not None
    if crf < 0:
        return quality.default
    if not quality.low <= crf <= quality.high:
        raise ConfigError(
            f"output.crf = {crf} is outside {quality.low} to {quality.high}, the scale of {encoder}"
        )
    return crf


def configure(context: VideoCodecContext, plan: EncodingPlan) -> None:
    """Sets an encoder up as planned; it is not opened yet."""
    if plan.codec == "libsvtav1":
        # The library writes to stderr itself, whatever FFmpeg's log is set to; 1 leaves errors.
        os.environ.setdefault("SVT_LOG", "1")
    context.width, context.height = plan.size
    context.pix_fmt = plan.pixel_format
    context.time_base = plan.time_base
    context.framerate = plan.rate
    if plan.sample_aspect != 1:
        context.sample_aspect_ratio = plan.sample_aspect
    context.colorspace, context.color_primaries = plan.tags[0], plan.tags[1]
    context.color_trc, context.color_range = plan.tags[2], plan.tags[3]
    if plan.codec_tag is not None:
        context.codec_tag = plan.codec_tag
    context.options = dict(plan.options)
    # Without it packets have no duration, and the file ends a frame early (or late).
    context.flags |= Flags.frame_duration
    # PyAV asks for slices only, which costs x264 compression and, on many cores, speed.
    context.thread_type = "AUTO"  # type: ignore[assignment]
