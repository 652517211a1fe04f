"""A folder or a pattern of images, read as a clip."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import cv2
import numpy as np
import torch
from PIL import Image

from facefusion_cli.errors import CorruptInput, FfxError, NotAVideo
from facefusion_cli.report import Report
from facefusion_cli.types import WHOLE, FrameBatch, PlaneLayout, VideoInfo, Window
from facefusion_cli.video.buffers import BufferPool
from facefusion_cli.video.completeness import CountedReader, Loss
from facefusion_cli.video.image_kinds import image_kind
from facefusion_cli.video.image_names import list_pictures
from facefusion_cli.video.image_pixels import (
    IMAGE_COLOR,
    ImageHeader,
    Pixels,
    decode_image,
    profile_name,
    read_header,
    to_srgb,
)

USUAL_RATE = Fraction(25)
"""Pictures a second where nobody says."""


def probe_images(path: Path, rate: Fraction | None = None) -> VideoInfo:
    """What a folder or a pattern of images is as a clip.

    Picture k stands at k / rate, from 0 on; a start number of the pattern does not count. The first
    readable picture's size is the clip's; the clip has alpha, and 16 bits, where any picture has.

    Args:
        path: A folder, or a pattern such as frames/f_%04d.png; see list_pictures.
        rate: Pictures a second; None = 25.

    Raises:
        InputNotFound: Nothing is there, or a number of the pattern is missing.
        NotAVideo: There is no image, or none of a kind ffx reads.
        UnsupportedVideo: All of them are animations, CMYK, ...
        CorruptInput: None of them can be read.
        InputError: The folder or all of its images may not be read.
    """
    pictures = list_pictures(path)
    headers = list(_headers(pictures, path))
    first_file, first = headers[0]
    bits = max(header.bits for _, header in headers)
    alpha = any(header.alpha for _, header in headers)
    hazards = {
        "alpha": alpha,
        "deep": bits > 8,
        "changing": any(_size(header) != _size(first) for _, header in headers),
        "odd_size": bool(first.width % 2 or first.height % 2),
    }
    rate = rate or USUAL_RATE
    return VideoInfo(
        path=path,
        width=first.width,
        height=first.height,
        coded_size=_size(first),
        rotation=0,
        frame_rate=rate,
        time_base=1 / rate,
        start=Fraction(0),
        duration_from_header=len(pictures) / rate,
        frame_count_from_header=len(pictures),
        pixel_format=f"gbr{'a' if alpha else ''}p{'16le' if bits > 8 else ''}",
        layout=PlaneLayout((1, 1), bits),
        color=IMAGE_COLOR,
        sample_aspect=first.pixel_aspect,
        codec=(image_kind(first_file) or "unknown").lower(),
        container="images",
        hazards=frozenset(name for name, there in hazards.items() if there),
        images=pictures,
    )


def _headers(pictures: tuple[Path, ...], path: Path) -> Iterator[tuple[Path, ImageHeader]]:
    """The headers that can be read; one at least.

    Raises:
        FfxError: As the first picture's, when there is none.
    """
    why: FfxError | None = None
    found = False
    for picture in pictures:
        try:
            # The first one's size is the clip's.
            header = read_header(picture, quick=found)
        except FfxError as error:
            why = why or error
            continue
        found = True
        yield picture, header
    if not found:
        assert why is not None
        count = f"none of its {len(pictures)} images can be read" if len(pictures) > 1 else ""
        message = f"{count}; the first: {why.message}" if count else why.message
        raise type(why)(message, path=path if count else why.path, hint=why.hint) from why


def _size(header: ImageHeader) -> tuple[int, int]:
    return header.width, header.height


class ImageSequenceReader(CountedReader):
    """Pictures as the frames of a clip; see Reader.

    Planes are G, B, R of the files' own numbers. A picture that cannot be read is left out, and its
    time stays empty; one of another size is scaled to the clip's.

    Args:
        info: As probe_images gives it.
        report: Told of losses, scaling and colour profiles; timed under "read".
        pin_memory: Batches lie in page-locked memory.
        window: The part that is read.
        srgb: Pictures with another colour profile are converted to sRGB, for an output that has no
            place for profiles; those of 16 bits keep their numbers.
    """

    def __init__(
        self,
        info: VideoInfo,
        report: Report,
        *,
        pin_memory: bool = False,
        window: Window = WHOLE,
        srgb: bool = False,
    ) -> None:
        if not info.images:
            raise NotAVideo("this is no folder of images", path=info.path)
        super().__init__(info, report, window)
        self._buffers = BufferPool(pin_memory=pin_memory)
        self._srgb = srgb
        self._alpha = "alpha" in info.hazards
        self._wanted = range(
            _first_at(window.start, info.frame_rate, 0),
            min(len(info.images), _first_at(window.end, info.frame_rate, len(info.images))),
        )
        self._broken: list[FfxError] = []
        self._said: set[str] = set()
        report.facts["decoder"] = "images"

    def batches(self, n: int) -> Iterator[FrameBatch]:
        """The window's pictures in batches of n; see Reader."""
        pictures = self._pictures()
        more = True
        while more:
            with self._report.timer("read"):
                batch = self._batch(pictures, n)
            more = len(batch) == n
            if len(batch):
                yield batch

    def check_complete(self) -> FfxError | None:
        """What is missing: every picture that could not be read; see Reader."""
        lost, total = len(self._broken), len(self._wanted)
        if not lost:
            self._loss = Loss(0, 0, None)
            return None
        first = self._broken[0]
        message = f"{lost} of {total} images cannot be read; the first: {first.message}"
        hint = "--lenient leaves them out" if lost < total else None
        error = CorruptInput(message, path=first.path, hint=hint)
        self._loss = Loss(0, lost, error)
        return error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is open between two pictures."""

    def _pictures(self) -> Iterator[tuple[Fraction, Pixels]]:
        """The pictures that can be read, with their times, of the clip's size."""
        for number in self._wanted:
            path = self.info.images[number]
            try:
                pixels, icc = decode_image(path)
            except FfxError as error:
                self._broken.append(error)
                self._tally.failures += 1
                continue
            if icc is not None:
                pixels = self._with_profile(pixels, icc, path)
            yield number / self.info.frame_rate, self._sized(pixels, path)

    def _batch(self, pictures: Iterator[tuple[Fraction, Pixels]], n: int) -> FrameBatch:
        info = self.info
        shape = (n, info.height, info.width)
        dtype = torch.uint8 if info.layout.bits == 8 else torch.uint16
        tensors = [self._buffers.empty(shape, dtype) for _ in range(4 if self._alpha else 3)]
        arrays = [tensor.numpy() for tensor in tensors]
        first = self._tally.frames
        pts: list[Fraction] = []
        for when, pixels in islice(pictures, n):
            for array, channel in zip(arrays, self._channels(pixels), strict=True):
                np.copyto(array[len(pts)], channel)
            pts.append(when)
            self._tally.add(when)
        g, b, r, *alpha = (tensor[: len(pts)] for tensor in tensors)
        return FrameBatch(
            planes=(g, b, r),
            color=info.color,
            layout=info.layout,
            pts=tuple(pts),
            first_index=first,
            alpha=alpha[0] if alpha else None,
        )

    def _channels(self, pixels: Pixels) -> list[Pixels]:
        """G, B, R and, where the clip has it, alpha of the clip's depth."""
        if self.info.layout.bits == 16 and pixels.dtype == np.uint8:
            pixels = pixels.astype(np.uint16) * 257
        elif self.info.layout.bits == 8 and pixels.dtype == np.uint16:
            pixels = (pixels >> 8).astype(np.uint8)
        channels = pixels.shape[2]
        colours = [0, 0, 0] if channels <= 2 else [1, 2, 0]
        planes: list[Pixels] = [pixels[:, :, c] for c in colours]
        if self._alpha:
            opaque = np.full(pixels.shape[:2], np.iinfo(pixels.dtype).max, pixels.dtype)
            planes.append(pixels[:, :, channels - 1] if channels in {2, 4} else opaque)
        return planes

    def _sized(self, pixels: Pixels, path: Path) -> Pixels:
        height, width = pixels.shape[:2]
        wanted = (self.info.width, self.info.height)
        if (width, height) == wanted:
            return pixels
        self._warn_once(
            "size",
            f"not all images have the size of the first, {wanted[0]}x{wanted[1]}; they are scaled "
            f"to it, the first of them {width}x{height}: {path}",
        )
        shrinks = width * height > wanted[0] * wanted[1]
        method = cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC
        resized: Any = cv2.resize(pixels, wanted, interpolation=method)
        scaled: Pixels = resized.reshape(wanted[1], wanted[0], -1)
        return scaled

    def _with_profile(self, pixels: Pixels, icc: bytes, path: Path) -> Pixels:
        """The pixels in sRGB where that is wanted and can be; says what becomes of the profile."""
        name = profile_name(icc)
        if name is None:
            return pixels
        colours = pixels.shape[2] - (pixels.shape[2] in {2, 4})
        converted = None
        if self._srgb and pixels.dtype == np.uint8:
            image = Image.fromarray(pixels[:, :, 0] if colours == 1 else pixels[:, :, :3])
            converted = to_srgb(image, icc)
        if converted is not None:
            self._note_once("profile", f"images are converted from {name} to sRGB: {path}")
            return np.dstack([np.asarray(converted), pixels[:, :, colours:]])
        what = "it is not converted" if self._srgb else "only a folder of images as output keeps it"
        self._warn_once("profile", f"images have the colour profile {name}; {what}: {path}")
        return pixels

    def _warn_once(self, kind: str, message: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            self._report.warn(message)

    def _note_once(self, kind: str, message: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            self._report.note(message)


def _first_at(when: Fraction | None, rate: Fraction, otherwise: int) -> int:
    """The number of the first picture at a time or behind it."""
    return otherwise if when is None else max(0, math.ceil(when * rate))
