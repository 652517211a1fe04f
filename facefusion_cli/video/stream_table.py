"""What becomes of a clip's other streams: copied, transcoded or dropped, decided from data alone.

FFmpeg would say some of it only when the first packet is written, and then the output is lost; so
nothing is found out by trying. Every entry to be copied has been read back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from av.stream import Disposition

Action = Literal["copy", "transcode", "drop"]

CONTAINERS = ("mp4", "mov", "matroska", "webm", "gif")
"""FFmpeg's names of the containers the table knows."""

_COMPRESSED = frozenset({"aac", "mp3", "mp2", "ac3", "eac3", "alac"})
_OPEN = frozenset({"opus", "vorbis"})
_PCM_MOV = frozenset({"pcm_alaw", "pcm_mulaw", "pcm_u8"}) | {
    f"pcm_{kind}{end}" for kind in ("s16", "s24", "s32", "f32", "f64") for end in ("le", "be")
}
_PCM_MATROSKA = frozenset(
    {"pcm_u8", "pcm_s16be", "pcm_s24be", "pcm_s32be"}
    | {"pcm_s16le", "pcm_s24le", "pcm_s32le", "pcm_f32le", "pcm_f64le"}
)

AUDIO_COPY: Mapping[str, frozenset[str]] = {
    "mp4": _COMPRESSED | _OPEN | {"flac"},
    "mov": _COMPRESSED | _PCM_MOV,
    "matroska": _COMPRESSED | _OPEN | {"flac", "dts", "truehd", "tta", "wavpack"} | _PCM_MATROSKA,
    "webm": _OPEN,
    "gif": frozenset(),
}
"""Container to the audio codecs whose packets it takes as they are. MP4 takes PCM by its standard,
yet FFmpeg refuses most of it when the first packet comes, and few players read it."""

AUDIO_BECOMES: Mapping[str, str] = {"mp4": "aac", "mov": "aac", "matroska": "aac", "webm": "opus"}
"""Container to the codec that any other sound is transcoded to."""

TEXT = frozenset({"mov_text", "subrip", "ass", "ssa", "webvtt", "text"})
"""Subtitle codecs that are text, each of which can become each other."""

SUBTITLE_COPY: Mapping[str, frozenset[str]] = {
    "mp4": frozenset({"mov_text", "dvd_subtitle"}),
    "mov": frozenset({"mov_text"}),
    "matroska": (TEXT - {"mov_text"}) | {"dvd_subtitle", "hdmv_pgs_subtitle", "dvb_subtitle"},
    "webm": frozenset({"webvtt"}),
    "gif": frozenset(),
}
"""Container to the subtitle codecs copied into it."""

SUBTITLE_BECOMES: Mapping[str, str] = {
    "mp4": "mov_text",
    "mov": "mov_text",
    "matroska": "subrip",
    "webm": "webvtt",
}
"""Container to the codec that any other text becomes."""

ATTACHMENTS = frozenset({"matroska"})
"""Containers that hold attached files, such as the fonts of subtitles."""

CHAPTERS = frozenset({"mp4", "mov", "matroska", "webm"})
"""Containers that hold chapters."""

_D = Disposition
_MATROSKA_ROLES = (
    _D.default | _D.forced | _D.dub | _D.original | _D.comment | _D.hearing_impaired
) | _D.visual_impaired
DISPOSITIONS: Mapping[str, Mapping[str, Disposition]] = {
    "mp4": dict.fromkeys(("audio", "subtitle"), _D.default | _D.forced | _D.dub | _D.comment),
    "mov": dict.fromkeys(("audio", "subtitle"), _D.default),
    "matroska": {"audio": _MATROSKA_ROLES, "subtitle": _MATROSKA_ROLES | _D.descriptions},
    "webm": {
        "audio": _D.default | _D.forced,
        "subtitle": _D.default | _D.forced | _D.captions | _D.descriptions,
    },
}
"""Container, then kind of stream, to the dispositions that can be read back from it."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a stream."""

    action: Action
    codec: str | None = None
    """The codec it has in the output; None when it has none."""


def fate(kind: str, codec: str | None, container: str) -> Fate:
    """What becomes of a stream in a container.

    Args:
        kind: FFmpeg's type of the stream: audio, subtitle, attachment, data, video.
        codec: FFmpeg's name of its codec; None when FFmpeg does not know it.
        container: One of CONTAINERS.
    """
    if kind == "attachment" and container in ATTACHMENTS:
        return Fate("copy", codec)
    if codec is None:
        return Fate("drop")
    if kind == "audio":
        if codec in AUDIO_COPY[container]:
            return Fate("copy", codec)
        if container in AUDIO_BECOMES:
            return Fate("transcode", AUDIO_BECOMES[container])
    if kind == "subtitle":
        if codec in SUBTITLE_COPY[container]:
            return Fate("copy", codec)
        if codec in TEXT and container in SUBTITLE_BECOMES:
            return Fate("transcode", SUBTITLE_BECOMES[container])
    return Fate("drop")


def as_markdown() -> str:
    """The whole table as markdown, for the documentation."""
    heads = [c if c != "matroska" else "mkv" for c in CONTAINERS]
    lines = [f"| stream | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    sounds = sorted(frozenset().union(*AUDIO_COPY.values()))
    rows = [("audio", c) for c in _fold(sounds)] + [("audio", "any other that FFmpeg decodes")]
    bitmaps = sorted(frozenset().union(*SUBTITLE_COPY.values()) - TEXT)
    rows += [("subtitle", c) for c in _fold(sorted(TEXT) + bitmaps, "subtitle")]
    rows += [("subtitle", "any other"), ("attachment", "fonts and other files")]
    for kind, codecs in rows:
        cells = [_cell(fate(kind, codecs.split(", ")[0], c)) for c in CONTAINERS]
        lines.append(f"| {kind}: {codecs} | {' | '.join(cells)} |")
    kept = ["kept" if c in CHAPTERS else "drop" for c in CONTAINERS]
    lines.append(f"| chapters, tags | {' | '.join(kept)} |")
    lines.append(f"| data, cover pictures, further videos | {' | '.join(['drop'] * len(heads))} |")
    return "\n".join(lines) + "\n"


def _fold(codecs: list[str], kind: str = "audio") -> list[str]:
    """Codecs with the same fate everywhere, on one line."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for codec in codecs:
        key = tuple(_cell(fate(kind, codec, c)) for c in CONTAINERS)
        alike.setdefault(key, []).append(codec)
    return [", ".join(group) for group in alike.values()]


def _cell(what: Fate) -> str:
    return f"-> {what.codec}" if what.action == "transcode" else what.action
