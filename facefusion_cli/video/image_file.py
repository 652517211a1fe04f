"""Photos in, images in and out.

A source photo becomes sRGB pixels. A target image becomes a batch of one frame whose planes are the
file's own samples: its colour space, depth and alpha stay what they are, and its metadata goes into
the output.
"""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps

from facefusion_cli.config import OutputConfig
from facefusion_cli.errors import (
    EncodeError,
    FfxError,
    IncompatibleContainer,
    UnsupportedVideo,
)
from facefusion_cli.report import log
from facefusion_cli.types import FrameBatch, PlaneLayout
from facefusion_cli.video.atomic import atomic_output, output_errors
from facefusion_cli.video.image_kinds import image_bytes, image_kind, is_image, reading_image
from facefusion_cli.video.image_metadata import read_metadata, with_chunks
from facefusion_cli.video.image_pixels import (
    IMAGE_COLOR,
    Pixels,
    encode_image,
    encode_png,
    jpeg_arguments,
    luma,
    orientation,
    pixels_of,
    refuse_animation,
    refuse_unreadable,
    to_srgb,
)
from facefusion_cli.video.suffixes import CONTAINERS, IMAGES

__all__ = ["ImageTarget", "is_image", "load_photo"]

_CONVERT = "convert it to PNG or JPEG first"


def load_photo(path: Path) -> npt.NDArray[np.uint8]:
    """A photo as upright sRGB pixels.

    The EXIF orientation is applied; an embedded ICC profile is converted to sRGB; alpha is
    flattened over white; deeper images are brought to 8 bits; of an animation the first picture
    is taken.

    Returns:
        [H,W,3] uint8, R, G, B.

    Raises:
        InputNotFound: No such file.
        InputError: The file may not be read.
        EmptyVideo: A file of zero bytes.
        NotAVideo: Not an image, or of a kind Pillow does not know.
        CorruptInput: The image is damaged or cut off.
        UnsupportedVideo: The image is larger than Pillow's safety limit.
    """
    data = image_bytes(path)
    with reading_image(path):
        image: Image.Image = Image.open(io.BytesIO(data))
        image.load()
        icc = image.info.get("icc_profile")
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith(("I", "F")):
            deep = np.asarray(image).astype(np.int64) >> 8
            image = Image.fromarray(deep.clip(0, 255).astype(np.uint8))
        if image.has_transparency_data:
            rgba = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
            image = image.convert("RGB")
        if icc:
            image = _in_srgb(image, icc, path)
        return np.array(image.convert("RGB"))


class ImageTarget:
    """An image whose faces are swapped, read whole.

    Args:
        path: A JPEG, PNG or WebP file with one picture.

    Raises:
        InputNotFound: No such file.
        InputError: The file may not be read.
        EmptyVideo: A file of zero bytes.
        NotAVideo: Not an image.
        UnsupportedVideo: An animation, GIF, HEIC, AVIF, TIFF, BMP, CMYK, or a size beyond Pillow's
            safety limit.
        CorruptInput: The image is damaged or cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        data = image_bytes(path)
        kind = image_kind(path)
        with reading_image(path):
            if kind not in IMAGES.values() and kind is not None:
                what = f"{kind} images cannot be a target"
                raise UnsupportedVideo(what, path=path, hint=_CONVERT)
            image = Image.open(io.BytesIO(data))
            if kind is None:
                refuse_animation(image, path)
                what = f"{image.format} images cannot be a target"
                raise UnsupportedVideo(what, path=path, hint=_CONVERT)
            refuse_unreadable(image, kind, path)
            turn = orientation(image)  # reading the metadata resets it
            self._metadata = read_metadata(image, data)
            self._jpeg = jpeg_arguments(image) if kind == "JPEG" else {"subsampling": "4:4:4"}
            self._pixels = pixels_of(image, data, turn)
        self.kind = kind
        """JPEG, PNG or WEBP."""
        self._lossless = kind == "PNG" or _is_lossless_webp(data)

    @property
    def bits(self) -> int:
        """8 or 16 bits a sample."""
        return 8 * self._pixels.itemsize

    @property
    def has_alpha(self) -> bool:
        """Whether there is an alpha channel."""
        return self._pixels.shape[2] in {2, 4}

    def check_output(self, out: Path) -> None:
        """Refuses an output that cannot hold this image; to be called before any work.

        Raises:
            IncompatibleContainer: The suffix is no image's, or its format would lose alpha or
                depth.
        """
        suffix = out.suffix.lower()
        kind = IMAGES.get(suffix)
        own = ", ".join(s for s, k in IMAGES.items() if k == self.kind)
        if kind is None:
            what = (
                "an image cannot be written to a video"
                if suffix in CONTAINERS
                else (f"unknown image format {suffix}" if suffix else "the output has no suffix")
            )
            raise IncompatibleContainer(what, path=out, hint=f"use {own}, as the target has")
        if kind == "JPEG" and self.has_alpha:
            raise IncompatibleContainer("JPEG cannot hold alpha", path=out, hint=f"use {own}")
        if kind != "PNG" and self.bits > 8:
            what = f"{kind} cannot hold {self.bits} bits a sample"
            raise IncompatibleContainer(what, path=out, hint=f"use {own}")

    def read(self) -> FrameBatch:
        """The image as a batch of one frame: planes G, B, R and alpha where there is one."""
        channels = [torch.from_numpy(np.array(c))[None] for c in np.moveaxis(self._pixels, 2, 0)]
        alpha = channels.pop() if self.has_alpha else None
        if len(channels) == 1:
            channels = [channels[0].clone() for _ in range(3)]
        red, green, blue = channels
        layout = PlaneLayout((1, 1), self.bits)
        return FrameBatch((green, blue, red), IMAGE_COLOR, layout, (Fraction(0),), 0, alpha)

    def write(self, frames: FrameBatch, out: Path, output: OutputConfig) -> None:
        """Writes the image back, with everything the file said beside its pixels, atomically.

        A grey image stays grey. Lossless files stay lossless; JPEG keeps its chroma subsampling.

        Args:
            frames: What read() gave, its planes changed; on any device.
            out: The output; see check_output.
            output: image_quality is for JPEG and lossy WebP; overwrite as for atomic_output.

        Raises:
            IncompatibleContainer: See check_output.
            EncoderRejected: The format cannot hold an image of this size.
            EncodeError: The written file cannot be read back.
            DiskFull, OutputNotWritable: See atomic_output.
        """
        self.check_output(out)
        green, blue, red = (p[0].cpu().numpy() for p in frames.planes)
        colours = np.stack([red, green, blue], 2)
        if self._pixels.shape[2] <= 2:
            colours = luma(colours)
        if frames.alpha is not None:
            colours = np.dstack([colours, frames.alpha[0].cpu().numpy()])
        data = self._encoded(colours, IMAGES[out.suffix.lower()], output.image_quality, out)
        with atomic_output(out, overwrite=output.overwrite) as partial:
            with output_errors(out):
                partial.write_bytes(data)
            _verify(partial, (frames.width, frames.height), out)

    def _encoded(self, pixels: Pixels, kind: str, quality: int, out: Path) -> bytes:
        """The file's bytes for [H,W,C] pixels: grey, grey + alpha, RGB or RGBA."""
        if pixels.itemsize == 2:
            return encode_png(pixels, self._metadata.png_chunks(), out)
        arguments: dict[str, Any] = {} if kind == "PNG" else self._metadata.save_arguments(kind)
        if kind == "JPEG":
            arguments |= {"quality": quality, **self._jpeg}
        elif kind == "WEBP":
            arguments |= {"quality": quality, "lossless": self._lossless, "exact": self._lossless}
        data = encode_image(pixels, kind, arguments, out)
        return with_chunks(data, self._metadata.png_chunks()) if kind == "PNG" else data


def _in_srgb(image: Image.Image, icc: bytes, path: Path) -> Image.Image:
    converted = to_srgb(image, icc)
    if converted is None:
        log.warning("the ICC profile cannot be used, sRGB is assumed: %s", path)
        return image
    return converted


def _is_lossless_webp(data: bytes) -> bool:
    at = 12
    while at + 8 <= len(data):
        name, length = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name in {b"VP8L", b"VP8 "}:
            return name == b"VP8L"
        at += 8 + length + length % 2
    return False


def _verify(partial: Path, size: tuple[int, int], out: Path) -> None:
    """Reads the written image back.

    Raises:
        EncodeError: It cannot be read, or has another size.
    """
    try:
        with reading_image(partial), Image.open(partial) as image:
            image.load()
            what = f"{image.size[0]}x{image.size[1]} instead of {size[0]}x{size[1]}"
            if image.size == size:
                return
    except FfxError as error:
        what = error.message
    raise EncodeError(f"the written image is not sound: {what}", path=out)
