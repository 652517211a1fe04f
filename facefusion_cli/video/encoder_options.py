"""What --encoder-options may say: names are checked, because FFmpeg ignores unknown ones."""

from __future__ import annotations

import re
from difflib import get_close_matches

import av
from av.codec.context import CodecOption, OptionFlags

from facefusion_cli.errors import ConfigError

_SETTING = "output.encoder_options"
_OWN = {
    "pixel_format": "--pix-fmt",
    "video_size": "--scale",
    "time_base": "--fps",
    "sar": "",
    "aspect": "",
    "color_primaries": "",
    "color_trc": "",
    "colorspace": "",
    "color_range": "",
    "alpha_mode": "",
    "codec_tag": "",
    "field_order": "",
}
"""Options that follow from the clip, and the flag that sets them where there is one."""
_FLAG_SETS = {"flags", "flags2"}
_RATE_CONTROLS = {"b", "qp", "cq", "global_quality", "lossless"}
"""Options that choose a quality or rate in another way than crf does."""


def parse_options(text: str, codec: str) -> dict[str, str]:
    r"""Options of an encoder from "name=value:name=value".

    Args:
        text: As given; a colon or backslash within a value is written ``\:`` or ``\\``, so that
            x265-params=aq-mode=3\:psy-rd=1 is one option.
        codec: FFmpeg's encoder, which must exist.

    Raises:
        ConfigError: A part is no name=value, the encoder has no such option (the message names the
            nearest), or ffx itself sets it.
    """
    options = {}
    known = option_names(codec)
    for part in re.findall(r"(?:\\.|[^:\\]|\\$)+", text):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not name or not equals:
            hint = r"write name=value:name=value, a colon within a value as \:"
            raise ConfigError(f"{_SETTING}: {part!r} is no name=value", hint=hint)
        if name in _OWN:
            hint = f"use {_OWN[name]}" if _OWN[name] else "it follows from the clip"
            raise ConfigError(f"{_SETTING}: {name} is set by ffx itself", hint=hint)
        if name not in known:
            close = get_close_matches(name, sorted(known), n=1, cutoff=0.4)
            hint = f"did you mean {close[0]!r}?" if close else "see the encoder's documentation"
            raise ConfigError(f"{_SETTING}: {codec} has no option {name!r}", hint=hint)
        if name in _FLAG_SETS and not value.startswith(("+", "-")):
            hint = f"write {name}=+{value} or {name}=-{value}: ffx sets some itself"
            raise ConfigError(f"{_SETTING}: {name} cannot be replaced as a whole", hint=hint)
        options[name] = re.sub(r"\\(.)", r"\1", value)
    return options


def option_names(codec: str) -> set[str]:
    """Names of all options that an encoder of FFmpeg takes: its own and those of any."""
    options = av.CodecContext.create(codec, "w").supported_options
    generic = {option.name for option in options.generic if _encodes_video(option)}
    return generic | {option.name for option in options.private}


def chooses_rate(options: dict[str, str]) -> bool:
    """Whether options take the place of crf."""
    return not _RATE_CONTROLS.isdisjoint(options)


def join_parameters(parameters: dict[str, str], more: str = "") -> str:
    """An encoder library's own parameters as one value, with those of the user's last."""
    own = ":".join(f"{name}={value}" for name, value in parameters.items())
    return ":".join(part for part in (own, more) if part)


def _encodes_video(option: CodecOption) -> bool:
    wanted = OptionFlags.ENCODING_PARAM | OptionFlags.VIDEO_PARAM
    return option.flags & wanted == wanted
