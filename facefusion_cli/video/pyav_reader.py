"""Reading with PyAV: the decoder's own planes, upright, nothing converted that need not be."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from types import TracebackType
from typing import Any, Self

import cv2
import numpy as np
import numpy.typing as npt
import torch
from av.video.frame import VideoFrame
from torch import Tensor

from facefusion_cli.errors import FfxError
from facefusion_cli.report import Report
from facefusion_cli.types import WHOLE, FrameBatch, VideoInfo, Window
from facefusion_cli.video.av_errors import reading
from facefusion_cli.video.buffers import BufferPool
from facefusion_cli.video.completeness import CountedReader
from facefusion_cli.video.conform import Conformer
from facefusion_cli.video.deinterlace import Deinterlacer
from facefusion_cli.video.frame_decoder import FrameDecoder
from facefusion_cli.video.frame_times import frame_time
from facefusion_cli.video.pixel_formats import CarriedFormat, carried_format

Samples = npt.NDArray[Any]

_TURNS = {
    90: cv2.ROTATE_90_COUNTERCLOCKWISE,
    180: cv2.ROTATE_180,
    270: cv2.ROTATE_90_CLOCKWISE,
}


class PyavReader(CountedReader):
    """A clip through PyAV, as planes.

    Broken packets are skipped and counted. Interlaced frames are deinterlaced, wherever in the clip
    they begin. Frames that change size, format or colours in the middle are made like the first.

    Args:
        info: The probe's result.
        report: Told of conversions and losses; timed under "read".
        pin_memory: Batches lie in page-locked memory.
        window: The part that is read.

    Raises:
        InputError, DecodeError: The file cannot be opened.
    """

    def __init__(
        self,
        info: VideoInfo,
        report: Report,
        *,
        pin_memory: bool = False,
        window: Window = WHOLE,
    ) -> None:
        super().__init__(info, report, window)
        self._buffers = BufferPool(pin_memory=pin_memory)
        self._mirrored = "mirrored" in info.hazards
        self._carried = carried_format(
            info.pixel_format,
            size=info.coded_size,
            turned=info.rotation,
            mirrored=self._mirrored,
        )
        self._conformer = Conformer(info, self._carried, report)
        self._deinterlacer: Deinterlacer | None = None
        self._damaged = 0
        self._decoder = FrameDecoder(info, self._tally, window)
        if self._carried.name != info.pixel_format:
            report.note(f"{info.pixel_format} is carried as {self._carried.name}")

    def batches(self, n: int) -> Iterator[FrameBatch]:
        """The clip in batches of n frames; see Reader."""
        frames = self._frames()
        more = True
        while more:
            with self._report.timer("read"):
                batch = self._batch(frames, n)
            more = len(batch) == n
            if len(batch):
                yield batch

    def check_complete(self) -> FfxError | None:
        """What is missing; see Reader."""
        error = super().check_complete()
        damaged = self._damaged + self._decoder.damaged
        if damaged:
            what = "packet or frame was" if damaged == 1 else "packets or frames were"
            self._report.warn(
                f"{damaged} damaged {what} used as far as could be decoded: {self.info.path}"
            )
        return error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._decoder.close()

    def _batch(self, frames: Iterator[tuple[Fraction, VideoFrame]], n: int) -> FrameBatch:
        planes = _Planes(n, self.info, self._carried, self._buffers)
        first = self._tally.frames
        pts: list[Fraction] = []
        for when, frame in islice(frames, n):
            planes.put(len(pts), frame, self.info.rotation, self._mirrored)
            pts.append(when)
            self._tally.add(when)
            self._damaged += frame.is_corrupt
        return planes.batch(tuple(pts), first, self.info)

    def _frames(self) -> Iterator[tuple[Fraction, VideoFrame]]:
        """The window's frames, with their times: progressive, of the carried format and size."""
        start, end = self._window.start, self._window.end
        with reading(self.info.path):
            for when, frame in self._timed():
                if end is not None and when >= end:
                    self._tally.reached_end = True
                    return
                if start is None or when >= start:
                    yield when, self._conformer.conform(frame, self._tally.frames)
                else:
                    self._tally.skipped += 1

    def _timed(self) -> Iterator[tuple[Fraction, VideoFrame]]:
        """Frames with their times.

        AVI has none of its own, and packed B-frames come in order with the times of the order of
        decoding: of two that are swapped, each gets the other's.
        """
        last: Fraction | None = None
        held: tuple[Fraction, VideoFrame] | None = None
        for frame in self._progressive():
            last = when = frame_time(frame, last, self.info)
            if self.info.container != "avi":
                yield when, frame
                continue
            if held is not None:
                earlier, before = held
                if when < earlier:
                    earlier, when = when, earlier
                yield earlier, before
            held = when, frame
        if held is not None:
            yield held

    def _progressive(self) -> Iterator[VideoFrame]:
        for frame in self._decoder.frames():
            if frame.interlaced_frame and self._deinterlacer is None:
                self._report.note(
                    f"interlaced from frame {self._tally.frames}: deinterlaced with bwdif"
                )
                self._deinterlacer = Deinterlacer()
            if self._deinterlacer is None:
                yield frame
            else:
                yield from self._deinterlacer.push(frame, self.info.time_base)
        if self._deinterlacer is not None:
            yield from self._deinterlacer.flush()


class _Planes:
    """Room for a batch of frames."""

    def __init__(
        self, n: int, info: VideoInfo, carried: CarriedFormat, buffers: BufferPool
    ) -> None:
        sx, sy = carried.layout.subsampling
        luma = (n, info.height, info.width)
        chroma = (n, -(-info.height // sy), -(-info.width // sx))
        dtype = torch.uint8 if carried.layout.bits == 8 else torch.uint16
        self._tensors: list[Tensor] = [
            buffers.empty(shape, dtype)
            for shape in ([luma, chroma, chroma] + ([luma] if carried.alpha else []))
        ]
        self._arrays: list[Samples] = [t.numpy() for t in self._tensors]
        self._carried = carried
        if carried.gray:
            for chroma_plane in self._arrays[1:3]:
                chroma_plane.fill(1 << (carried.layout.bits - 1))

    def put(self, index: int, frame: VideoFrame, turned: int, mirrored: bool) -> None:
        """Copies a stored frame in, upright."""
        for plane, array in zip(frame.planes, self._arrays, strict=False):
            size = plane.line_size // array.itemsize
            rows = np.frombuffer(memoryview(plane), array.dtype).reshape(plane.height, abs(size))
            # A negative line size means that the rows lie in memory from the last to the first.
            samples = rows[:: -1 if size < 0 else 1, : plane.width]
            _upright(samples, array[index], turned, mirrored)

    def batch(self, pts: tuple[Fraction, ...], first: int, info: VideoInfo) -> FrameBatch:
        """The frames put in so far."""
        y, u, v, *alpha = (t[: len(pts)] for t in self._tensors)
        return FrameBatch(
            planes=(y, u, v),
            color=info.color,
            layout=self._carried.layout,
            pts=pts,
            first_index=first,
            alpha=alpha[0] if alpha else None,
        )


def _upright(samples: Samples, into: Samples, turned: int, mirrored: bool) -> None:
    if turned == 0 and not mirrored:
        np.copyto(into, samples)
        return
    if turned:
        samples = cv2.rotate(samples, _TURNS[turned])
    np.copyto(into, samples[:, ::-1] if mirrored else samples)
