"""The encoders: one row each, with everything that is decided before any work.

FFmpeg would say some of it only when the first packet is written, and some of it never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import av

from facefusion_cli.errors import UnsupportedVideo
from facefusion_cli.types import Light, PlaneLayout
from facefusion_cli.video.hdr_tags import svtav1_light, x264_light, x265_light

_SUBSAMPLING = {(1, 1): "444", (2, 1): "422", (2, 2): "420"}
_ALL = (".mp4", ".mov", ".mkv")
_AV1_IN = (".mp4", ".mkv", ".webm")


@dataclass(frozen=True, slots=True)
class Source:
    """What an encoder is to hold."""

    layout: PlaneLayout
    rgb: bool
    alpha: bool
    """The frames have alpha and the container takes it from this encoder."""


@dataclass(frozen=True, slots=True)
class Quality:
    """An encoder's scale of quality, better is lower."""

    option: str
    default: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """One choice of --encoder."""

    codec: str
    """FFmpeg's encoder."""
    containers: tuple[str, ...]
    """Output suffixes it may go into, the usual one first."""
    pixel_format: Callable[[Source], str]
    """The pixel format it is fed by default."""
    quality: Quality | None = None
    """None: --crf means nothing to it."""
    presets: Mapping[str, Mapping[str, str]] | None = None
    """x264's preset words to its own options; None: --preset means nothing to it."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options that are always set."""
    even: Callable[[str], tuple[int, int]] = lambda _: (1, 1)
    """What width and height must be multiples of, by pixel format."""
    alpha_in: tuple[str, ...] = ()
    """Suffixes in which its alpha is kept."""
    smallest: tuple[int, int] = (1, 1)
    """Least width and height."""
    largest: tuple[int, int] | None = None
    """Where the encoder itself would not say it."""
    parameters: str = ""
    """The option that hands parameters to the library behind it."""
    own_parameters: Mapping[str, str] = field(default_factory=dict)
    """Parameters that are always set."""
    light: Callable[[Light], dict[str, str]] | None = None
    """Static HDR metadata as such parameters; None: it cannot write any."""
    full_range: bool = True
    """Whether a full range can be said in its streams."""
    codec_tags: Mapping[str, str] = field(default_factory=dict)
    """Container to the tag wanted instead of FFmpeg's usual one."""
    hardware: bool = False


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


@lru_cache
def pixel_formats(codec: str) -> tuple[str, ...]:
    """Names of the pixel formats an encoder takes from a program's memory."""
    hardware = {"cuda", "qsv", "d3d11", "vaapi", "vulkan", "drm_prime"}
    formats = av.Codec(codec, "w").video_formats or []
    names = (f.name for f in formats)
    # A full range is said in the stream, not by a pixel format of its own.
    return tuple(n for n in names if n not in hardware and not n.startswith("yuvj"))


def chroma_cell(pixel_format: str) -> tuple[int, int]:
    """Pixels that share a chroma sample: across and down."""
    fmt = av.VideoFormat(pixel_format, 16, 16)
    return 16 // fmt.chroma_width(16), 16 // fmt.chroma_height(16)


def _yuv420(source: Source) -> str:
    return "yuv420p" if source.layout.bits == 8 else "yuv420p10le"


def _vp9(source: Source) -> str:
    name = "yuva420p" if source.alpha else "yuv420p"
    deep = f"{name}10le"
    # Builds of libvpx without high bit depth are usual.
    return deep if source.layout.bits > 8 and deep in pixel_formats("libvpx-vp9") else name


def _ffv1(source: Source) -> str:
    # FFV1 knows 8-bit RGB as packed bytes only.
    if source.rgb and source.layout.bits == 8:
        return "bgra" if source.alpha else "bgr0"
    return planar_format(source.layout, source.rgb, source.alpha)


def _prores(source: Source) -> str:
    if source.alpha:
        return "yuva444p10le"
    full_chroma = source.rgb or source.layout.subsampling == (1, 1)
    return "yuv444p10le" if full_chroma else "yuv422p10le"


_X264_WORDS = (
    "ultrafast",
    "superfast",
    "veryfast",
    "faster",
    "fast",
    "medium",
    "slow",
    "slower",
    "veryslow",
)


def _words(option: str, values: str) -> dict[str, dict[str, str]]:
    """x264's nine words, quickest first, to an option's values."""
    pairs = zip(_X264_WORDS, values.split(), strict=True)
    return {word: {option: value} for word, value in pairs}


_VP9_SPEEDS = {
    word: {"deadline": deadline, "cpu-used": speed}
    for word, deadline, speed in zip(
        _X264_WORDS, ["realtime"] * 3 + ["good"] * 6, "876543210", strict=True
    )
}
_NVENC_PRESETS = _words("preset", "p1 p2 p3 p4 p4 p5 p6 p7 p7")
_QSV_PRESETS = _words(
    "preset", "veryfast veryfast veryfast faster fast medium slow slower veryslow"
)
_APPLE_TAG = {"mp4": "hvc1", "mov": "hvc1"}
"""Apple's players refuse FFmpeg's usual hev1."""


def _hardware(
    codec: str,
    containers: tuple[str, ...],
    formats: tuple[str, str],
    quality: Quality,
    presets: Mapping[str, Mapping[str, str]],
    options: Mapping[str, str],
) -> EncoderSpec:
    """A row for a hardware encoder; formats: for 8 bits and, where it takes that, for more."""

    def pixel_format(source: Source) -> str:
        deep = source.layout.bits > 8 and formats[1] in pixel_formats(codec)
        return formats[deep]

    return EncoderSpec(
        codec,
        containers,
        pixel_format,
        quality,
        presets,
        options=options,
        even=lambda _: (2, 2),
        codec_tags=_APPLE_TAG if codec.startswith("hevc") else {},
        hardware=True,
    )


def _nvenc(codec: str, containers: tuple[str, ...], worst: int) -> EncoderSpec:
    quality = Quality("cq", 20, 1, worst)
    options = {"rc": "vbr", "b": "0"}
    return _hardware(codec, containers, ("yuv420p", "p010le"), quality, _NVENC_PRESETS, options)


def _qsv(codec: str, containers: tuple[str, ...]) -> EncoderSpec:
    quality = Quality("global_quality", 20, 1, 51)
    return _hardware(codec, containers, ("nv12", "p010le"), quality, _QSV_PRESETS, {})


ENCODERS = {
    "h264": EncoderSpec(
        "libx264",
        _ALL,
        _yuv420,
        Quality("crf", 18, 0, 51),
        {word: {"preset": word} for word in _X264_WORDS},
        even=chroma_cell,
        parameters="x264-params",
        light=x264_light,
    ),
    "hevc": EncoderSpec(
        "libx265",
        _ALL,
        _yuv420,
        Quality("crf", 20, 0, 51),
        {word: {"preset": word} for word in _X264_WORDS},
        even=chroma_cell,
        # The library says 16, and below 32 some sizes come out with wrong samples at times.
        smallest=(32, 32),
        parameters="x265-params",
        own_parameters={"log-level": "error"},
        light=x265_light,
        codec_tags=_APPLE_TAG,
    ),
    "av1": EncoderSpec(
        "libsvtav1",
        _AV1_IN,
        _yuv420,
        # 0 is "not set" to FFmpeg, which takes 35 then; presets above 9 are not for real use, as
        # the library itself says.
        Quality("crf", 24, 1, 63),
        _words("preset", "9 9 8 7 6 5 4 3 2"),
        # The library says 4, and below 32 (seen up to 24) writes past the end of its memory.
        smallest=(32, 32),
        largest=(16384, 8704),
        parameters="svtav1-params",
        light=svtav1_light,
    ),
    "vp9": EncoderSpec(
        "libvpx-vp9",
        (".webm", ".mkv", ".mp4"),
        _vp9,
        Quality("crf", 24, 0, 63),
        _VP9_SPEEDS,
        options={"b": "0", "row-mt": "1"},
        alpha_in=(".webm", ".mkv"),
    ),
    "ffv1": EncoderSpec(
        "ffv1", (".mkv",), _ffv1, options={"level": "3", "slicecrc": "1"}, alpha_in=(".mkv",)
    ),
    "prores": EncoderSpec(
        "prores_ks",
        (".mov", ".mkv"),
        _prores,
        options={"vendor": "apl0"},
        # FFmpeg's encoder leaves the last chroma column of an odd width out.
        even=chroma_cell,
        alpha_in=(".mov", ".mkv"),
        full_range=False,
    ),
    "gif": EncoderSpec("gif", (".gif",), lambda _: "pal8", alpha_in=(".gif",)),
    "h264_nvenc": _nvenc("h264_nvenc", _ALL, 51),
    "hevc_nvenc": _nvenc("hevc_nvenc", _ALL, 51),
    "av1_nvenc": _nvenc("av1_nvenc", _AV1_IN, 63),
    "h264_qsv": _qsv("h264_qsv", _ALL),
    "hevc_qsv": _qsv("hevc_qsv", _ALL),
    "av1_qsv": _qsv("av1_qsv", _AV1_IN),
}
"""Name in the configuration to what it means."""

USUAL_ENCODERS = {".webm": "vp9", ".gif": "gif"}
"""Suffix to its encoder where that is not h264."""
