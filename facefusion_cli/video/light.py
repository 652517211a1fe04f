"""Static HDR metadata: how bright a clip was graded to be, read from what a decoder hands out.

The two structs are those of FFmpeg's libavutil/mastering_display_metadata.h, which carry SMPTE
ST 2086 and CTA-861.3. Decoders attach them to their frames whether they stood in the bitstream
(H.264, HEVC, AV1) or in the container (Matroska, WebM, MP4).
"""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any

from av.video.frame import VideoFrame

from facefusion_cli.types import Light

_MASTERING = struct.Struct("=22i")
"""Ten rationals (red, green, blue, white: x and y; least and greatest luminance) and two flags:
whether there are primaries, whether there is luminance."""
_CONTENT = struct.Struct("=2I")


def light_of(frame: VideoFrame) -> Light | None:
    """What a frame says of the light of its clip; None where it says nothing."""
    try:
        side_data: Any = frame.side_data
    except ValueError:
        # PyAV does not know all kinds of side data that FFmpeg can hand out, and then shows none.
        return None
    mastering = _mastering(side_data.get("MASTERING_DISPLAY_METADATA"))
    max_cll, max_fall = _content(side_data.get("CONTENT_LIGHT_LEVEL"))
    if mastering is None and max_cll is None and max_fall is None:
        return None
    return Light(mastering, max_cll, max_fall)


def _mastering(data: Any) -> tuple[Fraction, ...] | None:
    if data is None or len(bytes(data)) < _MASTERING.size:
        return None
    *numbers, has_primaries, has_luminance = _MASTERING.unpack_from(bytes(data))
    below = numbers[1::2]
    if not (has_primaries and has_luminance and all(below)):
        return None
    return tuple(Fraction(a, b) for a, b in zip(numbers[::2], below, strict=True))


def _content(data: Any) -> tuple[int | None, int | None]:
    """MaxCLL and MaxFALL; 0 means unknown in both."""
    if data is None or len(bytes(data)) < _CONTENT.size:
        return None, None
    max_cll, max_fall = _CONTENT.unpack_from(bytes(data))
    return max_cll or None, max_fall or None
