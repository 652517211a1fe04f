"""Which files are images, and what goes wrong when they are opened."""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from PIL import Image, UnidentifiedImageError

from facefusion_cli.errors import (
    CorruptInput,
    InputError,
    NotAVideo,
    UnsupportedVideo,
)
from facefusion_cli.video.image_metadata import PNG_SIGNATURE
from facefusion_cli.video.input_file import check_input

_HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1", b"avif"}
_HEAD = 32
_RAW_MOTION_JPEG = {".mjpeg", ".mjpg"}
_CHUNKS_BEFORE_PIXELS = 200


def image_kind(path: Path) -> str | None:
    """What an image file is by its first bytes, whatever its name.

    Returns:
        JPEG, PNG, WEBP, HEIF (AVIF too), TIFF or BMP; None for anything else, GIF and animated PNG
        included (they are read as clips), and for what cannot be read. Raw motion JPEG begins like
        a JPEG; its name tells it apart.
    """
    if path.suffix.lower() in _RAW_MOTION_JPEG:
        return None
    try:
        check_input(path, "an image")
        with path.open("rb") as file:
            head = file.read(_HEAD)
            if head.startswith(PNG_SIGNATURE):
                return None if _moves(file) else "PNG"
    except (OSError, InputError):
        return None
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[4:8] == b"ftyp" and head[8:12] in _HEIF_BRANDS:
        return "HEIF"
    if head[:4] in {b"II*\0", b"MM\0*"}:
        return "TIFF"
    return "BMP" if head[:2] == b"BM" and head[6:10] == bytes(4) else None


def _moves(png: BinaryIO) -> bool:
    """Whether a PNG is an animation of more than one picture: a chunk before the first says so."""
    png.seek(len(PNG_SIGNATURE))
    for _ in range(_CHUNKS_BEFORE_PIXELS):
        head = png.read(8)
        if len(head) < 8 or head[4:] == b"IDAT":
            return False
        if head[4:] == b"acTL":
            return int.from_bytes(png.read(4), "big") > 1
        png.seek(int.from_bytes(head[:4], "big") + 4, os.SEEK_CUR)
    return False


def is_image(path: Path) -> bool:
    """Whether a file is an image by its content, one of a kind that is then refused included."""
    return image_kind(path) is not None


def image_bytes(path: Path) -> bytes:
    """A file's bytes.

    Raises:
        InputError: As check_input says, or the file may not be read.
    """
    check_input(path, "an image")
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"the file cannot be read ({error.strerror})", path=path) from error


@contextmanager
def reading_image(path: Path) -> Iterator[None]:
    """Turns Pillow's errors inside the block into ffx's.

    Raises:
        NotAVideo: Not an image, or of a kind Pillow does not know.
        UnsupportedVideo: Larger than Pillow's safety limit.
        CorruptInput: Damaged or cut off.
    """
    try:
        with warnings.catch_warnings():
            # Half way to its limit Pillow warns; a photo of 100 megapixels is nothing unusual.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            yield
    except UnidentifiedImageError as error:
        kind = image_kind(path)
        hint = "convert it to JPEG or PNG first" if kind else None
        what = f"{kind} images cannot be read" if kind in {"HEIF", "TIFF"} else "not an image"
        raise NotAVideo(what, path=path, hint=hint) from error
    except Image.DecompressionBombError as error:
        hint = "make it smaller first"
        raise UnsupportedVideo("the image is too large", path=path, hint=hint) from error
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
        hint = "copy or download it again"
        raise CorruptInput(f"the image is damaged ({error})", path=path, hint=hint) from error
