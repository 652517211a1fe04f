"""What an image file says beside its pixels, carried from one file to the other.

EXIF, ICC profile, XMP and resolution. The orientation is applied to the pixels, so wherever it is
stored it becomes 1; the EXIF thumbnail is dropped, since it shows the picture as it was.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from typing import Any

from PIL import Image
from PIL.ExifTags import IFD, Base

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_KEPT_CHUNKS = {b"iCCP", b"sRGB", b"gAMA", b"cHRM", b"cICP", b"pHYs", b"tEXt", b"zTXt", b"iTXt"}
_XMP_KEYWORD = b"XML:com.adobe.xmp"
_RAW_EXIF_KEYWORDS = (b"Raw profile type exif", b"Raw profile type APP1")
_METRE_IN_INCHES = 39.3701
_ORIENTATION = re.compile(rb'(tiff:Orientation(?:="|>))[2-8]("|<)')


@dataclass(frozen=True, slots=True)
class ImageMetadata:
    """Metadata of an image file, orientation already reset."""

    exif: bytes | None
    icc: bytes | None
    xmp: bytes | None
    dpi: tuple[float, float] | None
    chunks: tuple[tuple[bytes, bytes], ...] = ()
    """PNG chunks (type, data) kept as they are; other formats have none."""

    def save_arguments(self, kind: str) -> dict[str, Any]:
        """Arguments for Image.save of a JPEG or WebP file."""
        values: dict[str, Any] = {"exif": self.exif, "icc_profile": self.icc, "xmp": self.xmp}
        if kind == "JPEG":
            values["dpi"] = self.dpi
        return {name: value for name, value in values.items() if value}

    def png_chunks(self) -> list[tuple[bytes, bytes]]:
        """The chunks that carry it in a PNG file, in an order the format allows."""
        chunks = list(self.chunks)
        present = {name for name, _ in chunks}
        if self.icc and b"iCCP" not in present and b"sRGB" not in present:
            chunks.insert(0, (b"iCCP", b"ICC profile\0\0" + zlib.compress(self.icc)))
        if self.dpi and b"pHYs" not in present:
            x, y = (round(d * _METRE_IN_INCHES) for d in self.dpi)
            chunks.append((b"pHYs", struct.pack(">IIB", x, y, 1)))
        if self.exif:
            chunks.append((b"eXIf", self.exif.removeprefix(b"Exif\0\0")))
        if self.xmp and not any(data.startswith(_XMP_KEYWORD) for _, data in chunks):
            chunks.append((b"iTXt", _XMP_KEYWORD + b"\0\0\0\0\0" + self.xmp))
        return chunks


def read_metadata(image: Image.Image, data: bytes) -> ImageMetadata:
    """The metadata of an opened image.

    Args:
        image: As opened, before anything is applied to it.
        data: The file's bytes.
    """
    exif = image.getexif()
    turned = exif.get(Base.Orientation, 1) in range(5, 9)
    if Base.Orientation in exif:
        exif[Base.Orientation] = 1
    details = exif.get_ifd(IFD.Exif)
    if turned and {Base.ExifImageWidth, Base.ExifImageHeight} <= details.keys():
        wide = details[Base.ExifImageWidth]
        details[Base.ExifImageWidth] = details[Base.ExifImageHeight]
        details[Base.ExifImageHeight] = wide
    xmp = image.info.get("xmp")
    dpi = image.info.get("dpi")
    if turned and dpi:
        dpi = (dpi[1], dpi[0])
    chunks = _kept_chunks(data, turned) if data.startswith(PNG_SIGNATURE) else ()
    return ImageMetadata(
        exif=exif.tobytes() if len(exif) else None,
        icc=image.info.get("icc_profile"),
        xmp=_upright_xmp(xmp) if isinstance(xmp, bytes) else None,
        dpi=(float(dpi[0]), float(dpi[1])) if dpi else None,
        chunks=chunks,
    )


def with_chunks(png: bytes, chunks: list[tuple[bytes, bytes]]) -> bytes:
    """A PNG file with chunks put behind its header, its own of the same kinds removed."""
    own = list(png_chunks(png))
    given = {name for name, _ in chunks} - {b"tEXt", b"zTXt", b"iTXt"}
    parts = [own[0], *chunks, *(c for c in own[1:] if c[0] not in given)]
    return PNG_SIGNATURE + b"".join(_chunk(name, data) for name, data in parts)


def png_chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    """A PNG file's chunks (type, data) in order, as far as they are whole."""
    chunks, at = [], len(PNG_SIGNATURE)
    while at + 12 <= len(png):
        length, name = struct.unpack_from(">I4s", png, at)
        chunks.append((name, png[at + 8 : at + 8 + length]))
        at += 12 + length
    return chunks


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I4s", len(data), name) + data + struct.pack(">I", zlib.crc32(name + data))


def _kept_chunks(png: bytes, turned: bool) -> tuple[tuple[bytes, bytes], ...]:
    kept = []
    for name, data in png_chunks(png):
        if name not in _KEPT_CHUNKS:
            continue
        # Old writers hide EXIF in text; it is written as a chunk of its own instead.
        if name != b"iTXt" and data.startswith(_RAW_EXIF_KEYWORDS):
            continue
        if name == b"iTXt" and data.startswith(_XMP_KEYWORD):
            data = _upright_xmp(data)
        if name == b"pHYs" and turned and len(data) == 9:
            data = data[4:8] + data[:4] + data[8:]
        kept.append((name, data))
    return tuple(kept)


def _upright_xmp(xmp: bytes) -> bytes:
    return _ORIENTATION.sub(rb"\g<1>1\2", xmp)
