"""Frames of clips as the bytes of image files."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image

from facefusion_cli.errors import EncoderRejected, FfxError
from facefusion_cli.planes import read_signal
from facefusion_cli.types import FrameBatch, PlaneLayout, VideoInfo
from facefusion_cli.video.image_kinds import image_bytes, reading_image
from facefusion_cli.video.image_metadata import ImageMetadata, read_metadata
from facefusion_cli.video.image_pixels import (
    GREY,
    IMAGE_COLOR,
    Pixels,
    encode_image,
    encode_png,
    is_grey_profile,
    jpeg_arguments,
    luma,
)
from facefusion_cli.video.suffixes import IMAGES

_LARGEST = {"JPEG": 65_500, "WEBP": 16_383, "PNG": 1_000_000}
"""Longest side in pixels."""
_HDR_CURVES = {16, 18}
_WIDE_PRIMARIES = 9
"""H.273: from this number on the primaries are those of wide gamuts."""


class ImageEncoder:
    """Turns frames into the bytes of image files.

    Args:
        kind: PNG, JPEG or WEBP.
        info: The clip the frames are of.
        quality: Of JPEG and WebP, 1 to 100.
        out: The output, for messages.

    Raises:
        EncoderRejected: The images are too large for their format.
    """

    def __init__(self, kind: str, info: VideoInfo, quality: int, out: Path) -> None:
        self._kind, self._info, self._quality, self._out = kind, info, quality, out
        self.bits = 16 if kind == "PNG" and info.layout.bits > 8 else 8
        """Bits a sample."""
        self.name = f"{kind} {self.bits} bits"
        if max(info.width, info.height) > _LARGEST[kind]:
            what = f"{kind} images cannot be larger than {_LARGEST[kind]} pixels"
            raise EncoderRejected(what, path=out, hint="use PNG")

    def losses(self) -> list[str]:
        """What this kind of image cannot hold of the clip, a warning each."""
        info, kind = self._info, self._kind
        lines = []
        if "alpha" in info.hazards and kind == "JPEG":
            lines.append("the alpha channel is dropped: JPEG cannot hold it")
        if info.layout.bits > self.bits:
            lines.append(f"{info.layout.bits} bits a sample become 8: {kind} cannot hold more")
        if kind != "PNG" and info.sample_aspect != 1:
            lines.append(f"the pixel aspect {info.sample_aspect} is lost: {kind} cannot hold it")
        if kind != "PNG" and self._special_colours():
            lines.append(f"{kind} cannot say that these colours are wide or HDR: they look wrong")
        return lines

    def encode(self, frames: FrameBatch, source: Path | None) -> bytes:
        """The file of the one frame of a batch.

        Args:
            frames: In the host's memory.
            source: The image the frame was read from, if it was one.

        Raises:
            EncoderRejected: The format cannot hold it.
        """
        origin = _Origin.of(source)
        pixels = _pixels(rgb_batch(frames, self.bits), alpha=self._kind != "JPEG")
        if origin.grey and pixels.shape[2] == 3:
            pixels = luma(pixels)
        metadata = origin.metadata_for(pixels)
        if self._kind == "PNG":
            chunks = [] if metadata is None else metadata.png_chunks()
            return encode_png(pixels, [*self._chunks(chunks), *chunks], self._out)
        arguments = {} if metadata is None else metadata.save_arguments(self._kind)
        arguments["quality"] = self._quality
        if self._kind == "JPEG":
            coarse = self._info.layout.subsampling == (2, 2)
            arguments |= origin.jpeg or {"subsampling": "4:2:0" if coarse else "4:4:4"}
        return encode_image(pixels, self._kind, arguments, self._out)

    def _chunks(self, present: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """PNG chunks that say of the picture what the clip says, unless they are there."""
        names = {name for name, _ in present}
        aspect, tags = self._info.sample_aspect, self._info.color.tags
        chunks = []
        if self._special_colours() and not names & {b"cICP", b"iCCP", b"sRGB"}:
            chunks.append((b"cICP", bytes((tags[1], tags[2], 0, 1))))
        if aspect != 1 and b"pHYs" not in names:
            shape = struct.pack(">IIB", aspect.numerator, aspect.denominator, 0)
            chunks.append((b"pHYs", shape))
        return chunks

    def _special_colours(self) -> bool:
        """Whether viewers that take the numbers for sRGB would be far off."""
        _, primaries, transfer, _ = self._info.color.tags
        return transfer in _HDR_CURVES or primaries >= _WIDE_PRIMARIES


@dataclass(frozen=True, slots=True)
class _Origin:
    """What is kept of the file a frame was read from."""

    metadata: ImageMetadata | None = None
    grey: bool = False
    jpeg: dict[str, Any] | None = None

    @classmethod
    def of(cls, path: Path | None) -> _Origin:
        """Nothing, where there is no file or it cannot be read any more."""
        if path is None:
            return cls()
        try:
            data = image_bytes(path)
            with reading_image(path):
                image = Image.open(io.BytesIO(data))
                grey = image.mode in GREY and not image.has_transparency_data
                jpeg = jpeg_arguments(image) if image.format == "JPEG" else None
                metadata = read_metadata(image, data)
                if image.format not in IMAGES.values():
                    # What a TIFF says as EXIF is where its own strips lie, and the like.
                    metadata = replace(metadata, exif=None, xmp=None)
                return cls(metadata, grey, jpeg)
        except FfxError:
            return cls()

    def metadata_for(self, pixels: Pixels) -> ImageMetadata | None:
        """The metadata, without a profile that is for grey images only where they are not."""
        found = self.metadata
        if found is None or found.icc is None or pixels.shape[2] == 1:
            return found
        if not is_grey_profile(found.icc):
            return found
        chunks = tuple(chunk for chunk in found.chunks if chunk[0] != b"iCCP")
        return replace(found, icc=None, chunks=chunks)


def rgb_batch(frames: FrameBatch, bits: int) -> FrameBatch:
    """Whole frames as RGB planes of the full range, on their device.

    Args:
        frames: Of any colours.
        bits: 8 or 16 a sample, of the colours and of alpha.

    Returns:
        The batch itself where it is so already.
    """
    color = frames.color
    if (color.matrix, color.range, frames.layout.bits) == ("rgb", "full", bits):
        return frames
    top, store = 2**bits - 1, torch.uint8 if bits == 8 else torch.uint16
    planes = [torch.empty_like(frames.planes[0], dtype=store) for _ in range(3)]
    for i in range(len(frames)):
        rgb = read_signal(frames, i, (0, 0, frames.width, frames.height))
        rgb = rgb.clamp_(0, 1).mul_(top).round_()
        for plane, channel in zip(planes, (1, 2, 0), strict=True):
            plane[i].copy_(rgb[channel])
    alpha = frames.alpha
    if alpha is not None and frames.layout.bits != bits:
        scale = top / (2**frames.layout.bits - 1)
        alpha = alpha.to(torch.float32).mul_(scale).round_().to(store)
    g, b, r = planes
    layout = PlaneLayout((1, 1), bits)
    return replace(frames, planes=(g, b, r), alpha=alpha, color=IMAGE_COLOR, layout=layout)


def _pixels(frames: FrameBatch, *, alpha: bool) -> Pixels:
    """[H,W,C] RGB, or RGBA where there is alpha and it is wanted, of the one frame of a batch."""
    green, blue, red = (np.ascontiguousarray(p[0].numpy()) for p in frames.planes)
    channels = [red, green, blue]
    if alpha and frames.alpha is not None:
        channels.append(np.ascontiguousarray(frames.alpha[0].numpy()))
    merged: Any = cv2.merge(channels)
    pixels: Pixels = merged
    return pixels
