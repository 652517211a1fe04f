"""Tags and chapters: which ones an output takes over, and where chapters lie in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from facefusion_cli.types import Window

TIMECODE = "timecode"
_TECHNICAL = {
    "major_brand",
    "minor_version",
    "compatible_brands",
    "encoder",
    "duration",
    "software",
    "handler_name",
    "vendor_id",
    TIMECODE,
    "bps",
    "number_of_frames",
    "number_of_bytes",
    "_statistics_tags",
    "_statistics_writing_app",
    "_statistics_writing_date_utc",
}
"""Tags that describe the file or its streams as they were; Matroska adds a language to some."""
_OF_STREAMS = {"mp4": {"language", "title"}, "mov": {"language", "title"}}
"""Container to the tags that its streams have; others take any."""
_SILENTLY_LOST = {"creation_time"}
_WHOLE_FRAMES = re.compile(r"\d\d:\d\d:\d\d:\d\d")


def own_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags without those that describe the file they stand in."""
    return {k: v for k, v in tags.items() if k.lower().split("-")[0] not in _TECHNICAL}


def stream_tags(tags: Mapping[str, str], container: str) -> tuple[dict[str, str], list[str]]:
    """The tags a stream has in an output, and the names of those it loses there.

    MP4 calls a stream's title its name; in the output it is the title again.
    """
    own = own_tags(tags)
    if "name" in own:
        own.setdefault("title", own.pop("name"))
    known = _OF_STREAMS.get(container)
    if known is None:
        return own, []
    lost = [k for k in own if k.lower() not in known | _SILENTLY_LOST]
    return own, sorted(lost)


def kept_timecode(timecode: str, container: str) -> bool:
    """Whether a start timecode can be told by a tag of the picture.

    MP4 and MOV make a track of it, which fails for drop-frame counting at other rates.
    """
    return container in {"matroska", "webm"} or bool(_WHOLE_FRAMES.fullmatch(timecode))


def moved_chapters(
    chapters: Iterable[Mapping[str, Any]], shift: Fraction, window: Window
) -> list[dict[str, Any]]:
    """Chapters in an output: cut to its part of the clip, those outside left out.

    Args:
        chapters: As PyAV reads them.
        shift: Seconds subtracted from every time.
        window: The part of the clip that is in the output.
    """
    moved = []
    for chapter in chapters:
        base = chapter["time_base"]
        if base is None:
            continue
        start, end = chapter["start"] * base, chapter["end"] * base
        first = shift if window.start is None else max(shift, window.start)
        outside = (end <= first and end > start) or end < first
        if outside or (window.end is not None and start >= window.end):
            continue
        end = end if window.end is None else min(end, window.end)
        times = {"start": max(start, first) - shift, "end": end - shift}
        moved.append({**chapter, **{name: round(time / base) for name, time in times.items()}})
    return moved
