"""Image files as upright pixels, of any kind and depth ffx reads, and back as a file's bytes."""

from __future__ import annotations

import io
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms, JpegImagePlugin
from PIL.ExifTags import Base
from PIL.TiffImagePlugin import TiffImageFile

from facefusion_cli.errors import EncoderRejected, NotAVideo, UnsupportedVideo
from facefusion_cli.types import ColorSpec
from facefusion_cli.video.image_kinds import image_bytes, image_kind, reading_image
from facefusion_cli.video.image_metadata import (
    PNG_SIGNATURE,
    with_chunks,
)
from facefusion_cli.video.input_file import check_input

Pixels = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]

IMAGE_COLOR = ColorSpec(matrix="rgb", range="full")
"""Planes of an image are G, B, R; what the numbers mean is the file's ICC profile's matter."""

READABLE = frozenset({"JPEG", "PNG", "WEBP", "TIFF", "BMP"})
"""Kinds of image that can be a frame of a clip."""

_LUMA = np.array([0.299, 0.587, 0.114])
GREY = frozenset({"1", "L", "LA", "I;16", "I;16B", "I"})
"""Pillow's modes of grey pictures; 16 bits have three names."""
_SAME_COLOUR = 3
"""Levels by which a profile may differ from sRGB and be taken for it."""
_PROFILE_SPACE = slice(16, 20)
"""Where an ICC profile names its colour space."""
_EXIF_IN_PNG = {"exif", "Raw profile type exif"}
"""Where Pillow has found EXIF in a PNG's header."""
_TIFF_BITS = 258
"""TIFF tag BitsPerSample."""
_PNG_DEPTH_AT = 24
_DEEPEST = 16
_TURNS = {
    2: (0, True),
    3: (2, False),
    4: (2, True),
    5: (3, True),
    6: (3, False),
    7: (1, True),
    8: (1, False),
}
"""EXIF orientation to quarter turns counter-clockwise and whether it is mirrored after them."""


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """What an image file says of itself before its pixels."""

    width: int
    """Upright."""
    height: int
    bits: int
    """8 or 16 a sample."""
    alpha: bool
    grey: bool
    icc: bytes | None
    pixel_aspect: Fraction
    """Of the upright picture; 1 unless a PNG says otherwise."""


def read_header(path: Path, *, quick: bool = False) -> ImageHeader:
    """The header of an image that can be a frame.

    Args:
        path: The file.
        quick: An orientation that a PNG states only behind its pixels is not looked for: that
            would decode them all.

    Raises:
        InputError, CorruptInput: As decode_image says, as far as the header tells.
    """
    check_input(path, "an image")
    with reading_image(path), path.open("rb") as file, Image.open(file) as image:
        refuse_unreadable(image, image_kind(path), path)
        hidden = quick and image.format == "PNG" and not _EXIF_IN_PNG & image.info.keys()
        turned = not hidden and orientation(image) in range(5, 9)
        file.seek(0)
        head = file.read(_PNG_DEPTH_AT + 1)
        # Pillow gives the upright size of a TIFF, and the stored one of all others.
        width, height = image.size if not turned or image.format == "TIFF" else image.size[::-1]
        x, y = image.info.get("aspect", (1, 1))
        # As FFmpeg writes and reads it; by the PNG standard it would be the other way round.
        aspect = Fraction(x, y) if x and y else Fraction(1)
        return ImageHeader(
            width=width,
            height=height,
            bits=16 if _is_deep(image, head) else 8,
            alpha=image.has_transparency_data,
            grey=image.mode in GREY,
            icc=image.info.get("icc_profile"),
            pixel_aspect=1 / aspect if turned else aspect,
        )


def decode_image(path: Path) -> tuple[Pixels, bytes | None]:
    """An image as a frame of a clip.

    Returns:
        [H,W,C] upright, grey, grey + alpha, RGB or RGBA; and its ICC profile.

    Raises:
        InputNotFound: No such file.
        InputError: The file may not be read.
        EmptyVideo: A file of zero bytes.
        NotAVideo: Not an image, or of a kind Pillow does not know.
        UnsupportedVideo: An animation, CMYK, floating point, or beyond Pillow's size limit.
        CorruptInput: Damaged or cut off.
    """
    data = image_bytes(path)
    with reading_image(path):
        image = Image.open(io.BytesIO(data))
        refuse_unreadable(image, image_kind(path), path)
        return pixels_of(image, data, orientation(image)), image.info.get("icc_profile")


def refuse_unreadable(image: Image.Image, kind: str | None, path: Path) -> None:
    """Refuses what opens and yet is no single picture with colours ffx understands.

    Raises:
        UnsupportedVideo: See decode_image.
        NotAVideo: Of a kind that is no frame.
    """
    # A JPEG with further pictures (depth, gain map, preview) is a photo all the same, and a TIFF's
    # further pages are previews as a rule.
    if kind not in {"JPEG", "TIFF"}:
        refuse_animation(image, path)
    if kind not in READABLE:
        hint = "convert it to PNG or JPEG first"
        raise NotAVideo(f"{image.format} images cannot be read here", path=path, hint=hint)
    if image.mode == "CMYK":
        hint = "convert it to RGB first"
        raise UnsupportedVideo("this image is CMYK", path=path, hint=hint)
    deeper = max(_tiff_bits(image)) > _DEEPEST
    if image.mode == "F" or deeper:
        hint = "convert it to 16-bit PNG first"
        raise UnsupportedVideo("this image has more than 16 bits a sample", path=path, hint=hint)


def refuse_animation(image: Image.Image, path: Path) -> None:
    """Refuses an image of several pictures.

    Raises:
        UnsupportedVideo: It is one.
    """
    if getattr(image, "is_animated", False):
        hint = "make it a clip or single images first"
        raise UnsupportedVideo(f"this {image.format} is an animation", path=path, hint=hint)


def pixels_of(image: Image.Image, data: bytes, turn: int) -> Pixels:
    """An opened image's pixels, upright, at the file's own depth.

    Args:
        image: As opened from the data, nothing loaded yet.
        data: The file's bytes.
        turn: Its EXIF orientation.

    Returns:
        [H,W,C]: grey, grey + alpha, RGB or RGBA.
    """
    # Pillow and OpenCV turn a TIFF while they load it, and nothing else.
    turn = 1 if image.format == "TIFF" else turn
    if _is_deep(image, data):
        return upright(_deep_pixels(data), turn)
    image.load()
    grey = image.mode in GREY
    alpha = image.has_transparency_data
    mode = ("LA" if alpha else "L") if grey else ("RGBA" if alpha else "RGB")
    pixels = np.asarray(image.convert(mode))
    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    return upright(pixels, turn)


def orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 where there is none. To be asked before loading."""
    found = image.getexif().get(Base.Orientation, 1)
    return found if found in _TURNS else 1


def upright(pixels: Pixels, turn: int) -> Pixels:
    """[H,W,C] pixels with an EXIF orientation applied."""
    turns, mirrored = _TURNS.get(turn, (0, False))
    turned: Any = np.rot90(pixels, turns)
    result: Pixels = np.ascontiguousarray(turned[:, ::-1] if mirrored else turned)
    return result


def is_grey_profile(icc: bytes) -> bool:
    """Whether an ICC profile is for grey images only."""
    return icc[_PROFILE_SPACE] == b"GRAY"


@lru_cache(maxsize=8)
def profile_name(icc: bytes) -> str | None:
    """What an ICC profile calls itself; None for one that means what sRGB means.

    There are many sRGB profiles, and names lie: some colours are converted to find out.
    """
    grey = is_grey_profile(icc)
    steps = np.linspace(0, 255, 6).round().astype(np.uint8)
    colours = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(1, -1, 3)
    image = Image.fromarray(colours)
    image = image.convert("L") if grey else image
    converted = to_srgb(image, icc)
    if converted is None:
        return "unreadable"
    before = np.asarray(image.convert("RGB")).astype(int)
    if np.abs(np.asarray(converted) - before).max() <= _SAME_COLOUR:
        return None
    profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
    return ImageCms.getProfileDescription(profile).strip() or "unnamed"


def jpeg_arguments(image: Image.Image) -> dict[str, Any]:
    """How the JPEG was made, as far as it can be kept."""
    sampling = JpegImagePlugin.get_sampling(image)
    return {
        "subsampling": sampling if sampling >= 0 else "4:4:4",
        "progressive": "progressive" in image.info,
    }


def luma(colours: Pixels) -> Pixels:
    """[H,W,1] of [H,W,3]."""
    grey: Pixels = np.rint(colours @ _LUMA).astype(colours.dtype)[:, :, None]
    return grey


def encode_png(pixels: Pixels, chunks: list[tuple[bytes, bytes]], out: Path) -> bytes:
    """The bytes of a PNG file, several times as fast as Pillow writes it.

    Args:
        pixels: [H,W,C] grey, RGB or RGBA, 8 or 16 bits.
        chunks: Chunks to put behind its header.
        out: The output, for the message.

    Raises:
        EncoderRejected: The format cannot hold an image of this size.
    """
    try:
        if pixels.shape[2] > 2:
            to_bgr = cv2.COLOR_RGBA2BGRA if pixels.shape[2] == 4 else cv2.COLOR_RGB2BGR
            done, png = cv2.imencode(".png", cv2.cvtColor(pixels, to_bgr))
        else:
            done, png = cv2.imencode(".png", np.ascontiguousarray(pixels[:, :, 0]))
    except cv2.error as error:
        raise EncoderRejected(f"the PNG encoder refuses: {error.err}", path=out) from error
    if not done:
        raise EncoderRejected("the PNG encoder refuses the image", path=out)
    data = png.tobytes()
    return with_chunks(data, chunks) if chunks else data


def encode_image(pixels: Pixels, kind: str, arguments: dict[str, Any], out: Path) -> bytes:
    """The bytes of an image file by Pillow.

    Args:
        pixels: [H,W,C] grey, grey + alpha, RGB or RGBA, 8 bits.
        kind: Pillow's name of the format.
        arguments: Of Image.save.
        out: The output, for the message.

    Raises:
        EncoderRejected: The format cannot hold an image of this size.
    """
    buffer = io.BytesIO()
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    try:
        image.save(buffer, kind, **arguments)
    except (OSError, ValueError) as error:
        raise EncoderRejected(f"the {kind} encoder refuses: {error}", path=out) from error
    return buffer.getvalue()


def _is_deep(image: Image.Image, data: bytes) -> bool:
    """Whether there are 16 bits a sample, of which Pillow would leave 8."""
    png = data.startswith(PNG_SIGNATURE) and len(data) > _PNG_DEPTH_AT
    return (png and data[_PNG_DEPTH_AT] == _DEEPEST) or _DEEPEST in _tiff_bits(image)


def _tiff_bits(image: Image.Image) -> tuple[int, ...]:
    """Bits a sample that a TIFF states; 8 for all else."""
    return image.tag_v2.get(_TIFF_BITS, (1,)) if isinstance(image, TiffImageFile) else (8,)


def _deep_pixels(data: bytes) -> npt.NDArray[np.uint16]:
    """[H,W,C] of an image with 16 bits a sample, as stored.

    Raises:
        ValueError: It cannot be decoded.
    """
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if pixels is None or pixels.dtype != np.uint16:
        raise ValueError("its pixels cannot be decoded")
    deep = pixels.astype(np.uint16, copy=False).reshape(*pixels.shape[:2], -1)
    return deep[:, :, [2, 1, 0, 3][: deep.shape[2]]] if deep.shape[2] > 2 else deep


def to_srgb(image: Image.Image, icc: bytes) -> Image.Image | None:
    """An 8-bit image without alpha as RGB, converted from a profile to sRGB.

    Returns:
        None where the profile cannot be used.
    """
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
        srgb = ImageCms.createProfile("sRGB")
        return ImageCms.profileToProfile(image, profile, srgb, outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        return None
