"""Animated GIF and PNG files: what their headers say that FFmpeg does not pass on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from av.error import FFmpegError
from av.video.frame import VideoFrame

from facefusion_cli.video.container import open_container, video_stream
from facefusion_cli.video.image_metadata import png_chunks

_EXTENSION, _IMAGE = 0x21, 0x2C
_CONTROL, _APPLICATION = 0xF9, 0xFF
_LOOPING = (b"NETSCAPE2.0", b"ANIMEXTS1.0")
_TO_BACKGROUND = 2
"""Disposal method that empties a picture's rectangle before the next one."""
_LOOKED_AT = 300
"""Pictures decoded at most to find out whether any is transparent."""


@dataclass(frozen=True, slots=True)
class Animation:
    """What an animation's blocks say."""

    frames: int | None = None
    loop: int | None = None
    """How often it plays, 0 = for ever; None = once, since nothing is said."""
    empties: bool = False
    """Some picture's place is emptied for the next one."""


def read_animation(path: Path) -> Animation:
    """The blocks of a GIF or animated PNG, as far as the file goes.

    Raises:
        OSError: It cannot be read.
    """
    data = path.read_bytes()
    return _read_gif(data) if data.startswith(b"GIF8") else _read_png(data)


def is_opaque(path: Path, animation: Animation, first: VideoFrame) -> bool:
    """Whether no picture of a GIF is transparent; FFmpeg gives all of them an alpha channel.

    Most GIFs mark as transparent what stays as it was. Where the first picture is opaque and none
    is emptied again, nothing can become transparent; else the pictures are looked at.

    Args:
        path: The file.
        animation: What read_animation() says of it.
        first: Its first picture, decoded.
    """
    if not _opaque(first):
        return False
    if not animation.empties:
        return True
    try:
        with open_container(path) as container:
            for number, frame in enumerate(container.decode(video_stream(container, path))):
                if number >= _LOOKED_AT or not _opaque(frame):
                    return False
    except FFmpegError:  # damaged: so its alpha is carried, which is right in any case
        return False
    return True


def _opaque(frame: VideoFrame) -> bool:
    plane = frame.planes[0]
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)
    return bool(rows[:, 3 : 4 * plane.width : 4].min() == 255)


def _read_gif(data: bytes) -> Animation:
    at = 13 + _table_size(data[10:11])
    frames, loop, empties = 0, None, False
    while at + 1 < len(data):
        kind = data[at]
        if kind == _EXTENSION:
            label, body = data[at + 1], data[at + 3 : at + 3 + data[min(at + 2, len(data) - 1)]]
            if label == _CONTROL and body:
                empties |= body[0] >> 2 & 7 == _TO_BACKGROUND
            elif label == _APPLICATION and body in _LOOPING:
                # A sub-block of three bytes: 1, then the count.
                block = data[at + 14 : at + 18]
                if block[:2] == b"\3\1":
                    loop = int.from_bytes(block[2:4], "little")
            at = _behind_blocks(data, at + 2)
        elif kind == _IMAGE:
            frames += 1
            at = _behind_blocks(data, at + 11 + _table_size(data[at + 9 : at + 10]))
        else:
            break
    return Animation(frames or None, loop, empties)


def _table_size(flags: bytes) -> int:
    """Bytes of the colour table that follows a descriptor with these flags."""
    return 3 << (flags[0] & 7) + 1 if flags and flags[0] & 0x80 else 0


def _behind_blocks(data: bytes, at: int) -> int:
    """Behind a chain of sub-blocks, each with its length before it; the last has none."""
    while at < len(data) and data[at]:
        at += data[at] + 1
    return at + 1


def _read_png(data: bytes) -> Animation:
    for name, body in png_chunks(data):
        if name == b"acTL" and len(body) >= 8:
            frames, loop = int.from_bytes(body[:4], "big"), int.from_bytes(body[4:8], "big")
            return Animation(frames or None, loop)
        if name == b"IDAT":
            break
    return Animation()
