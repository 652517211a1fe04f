"""Reading with PyAV: the decoder's own planes, upright, nothing converted that need not be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import islice
from types import TracebackType
from typing import Any, Self

import cv2
import numpy as np
import numpy.typing as npt
import torch
from av.error import FFmpegError
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter
from av.video.stream import VideoStream
from torch import Tensor

from facefusion_cli.errors import FfxError
from facefusion_cli.report import Report
from facefusion_cli.types import FrameBatch, VideoInfo
from facefusion_cli.video.av_errors import PACKET_ERRORS, reading
from facefusion_cli.video.buffers import BufferPool
from facefusion_cli.video.completeness import MAX_FAILURES_IN_A_ROW, CountedReader
from facefusion_cli.video.container import open_container, video_stream
from facefusion_cli.video.deinterlace import Deinterlacer
from facefusion_cli.video.pixel_formats import CarriedFormat, carried_format

Samples = npt.NDArray[Any]

THREADS = 0
"""Threads of the decoder; 0 = one a core."""
_TURNS = {
    90: cv2.ROTATE_90_COUNTERCLOCKWISE,
    180: cv2.ROTATE_180,
    270: cv2.ROTATE_90_CLOCKWISE,
}


class PyavReader(CountedReader):
    """A clip through PyAV, as planes.

    Broken packets are skipped and counted. Interlaced frames are deinterlaced, wherever in the clip
    they begin. Frames that change size or format in the middle are made like the first.

    Args:
        info: The probe's result.
        report: Told of conversions and losses; timed under "read".
        pin_memory: Batches lie in page-locked memory.

    Raises:
        InputError, DecodeError: The file cannot be opened.
    """

    def __init__(self, info: VideoInfo, report: Report, *, pin_memory: bool = False) -> None:
        super().__init__(info, report)
        self._buffers = BufferPool(pin_memory=pin_memory)
        self._changed = False
        self._mirrored = "mirrored" in info.hazards
        self._carried = carried_format(
            info.pixel_format,
            size=info.coded_size,
            turned=info.rotation,
            mirrored=self._mirrored,
        )
        self._reformatter = VideoReformatter()
        self._deinterlacer: Deinterlacer | None = None
        self._damaged = 0
        self._container = open_container(info.path)
        self._stream = video_stream(self._container, info.path)
        self._stream.thread_type = "AUTO"
        self._stream.codec_context.thread_count = THREADS
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
        if self._damaged:
            what = "packet or frame was" if self._damaged == 1 else "packets or frames were"
            self._report.warn(
                f"{self._damaged} damaged {what} used as far as could be decoded: {self.info.path}"
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
        self._container.close()

    def _batch(self, frames: Iterator[VideoFrame], n: int) -> FrameBatch:
        planes = _Planes(n, self.info, self._carried, self._buffers)
        first = self._tally.frames
        pts: list[Fraction] = []
        for frame in islice(frames, n):
            planes.put(len(pts), frame, self.info.rotation, self._mirrored)
            pts.append(self._time(frame))
            self._tally.add(pts[-1])
            self._damaged += frame.is_corrupt
        return planes.batch(tuple(pts), first, self.info)

    def _time(self, frame: VideoFrame) -> Fraction:
        if frame.pts is not None and frame.time_base is not None:
            return frame.pts * frame.time_base
        if self._tally.last is None:
            return self.info.start
        return self._tally.last + 1 / self.info.frame_rate

    def _frames(self) -> Iterator[VideoFrame]:
        """Progressive frames of the carried format and the first size, as stored."""
        with reading(self.info.path):
            for frame in self._decoded():
                if frame.interlaced_frame and self._deinterlacer is None:
                    self._report.note(
                        f"interlaced from frame {self._tally.frames}: deinterlaced with bwdif"
                    )
                    self._deinterlacer = Deinterlacer()
                if self._deinterlacer is None:
                    yield self._conform(frame)
                    continue
                for progressive in self._deinterlacer.push(frame, self.info.time_base):
                    yield self._conform(progressive)
            if self._deinterlacer is not None:
                for progressive in self._deinterlacer.flush():
                    yield self._conform(progressive)

    def _decoded(self) -> Iterator[VideoFrame]:
        in_a_row = 0
        last = newest = -math.inf
        failed: list[int] = []
        for packet in self._packets():
            self._damaged += packet.is_corrupt
            if packet.pts is not None and not packet.is_discard:
                newest = max(newest, packet.pts)
            try:
                frames = self._stream.decode(packet)
            except PACKET_ERRORS:
                frames = []
                if packet.size:
                    self._tally.failures += 1
                    in_a_row += 1
                    failed.append(packet.pts or 0)
                if in_a_row > MAX_FAILURES_IN_A_ROW:
                    self._tally.gave_up = True
                    return
            for frame in frames:
                in_a_row = 0
                last = max(last, -math.inf if frame.pts is None else frame.pts)
                yield frame
        # A decoder with many threads holds many frames when the file ends, and one bad frame among
        # them hides those after it.
        if -math.inf < last < newest:
            yield from self._tail(int(last), sum(pts > last for pts in failed))

    def _tail(self, last: int, counted: int) -> Iterator[VideoFrame]:
        """Frames after a pts (in the stream's ticks), decoded anew by one thread.

        Args:
            last: The pts of the last frame there was.
            counted: Failures after it that are counted already.
        """
        failures = 0
        with open_container(self.info.path) as container:
            stream = video_stream(container, self.info.path)
            stream.thread_type = "NONE"
            with suppress(FFmpegError):  # what cannot seek is read from its start
                container.seek(last, stream=stream)
            for packet in container.demux(stream):
                try:
                    frames = stream.decode(packet)
                except PACKET_ERRORS:
                    failures += packet.pts is not None and packet.pts > last
                    continue
                yield from (f for f in frames if f.pts is not None and f.pts > last)
        self._tally.failures += max(0, failures - counted)

    def _packets(self) -> Iterator[Packet[VideoStream]]:
        """All packets, and the empty one that flushes the decoder.

        A broken spot in the container is stepped over.
        """
        in_a_row = 0
        while in_a_row <= MAX_FAILURES_IN_A_ROW:
            # A generator that raised is finished, but a new one goes on where the file stands.
            packets = self._container.demux(self._stream)
            try:
                for packet in packets:
                    in_a_row = 0
                    yield packet
            except PACKET_ERRORS:
                self._tally.failures += 1
                in_a_row += 1
            else:
                return
        self._tally.gave_up = True

    def _conform(self, frame: VideoFrame) -> VideoFrame:
        width, height = self.info.coded_size
        same_size = (frame.width, frame.height) == (width, height)
        if same_size and frame.format.name == self._carried.name:
            return frame
        if not same_size or frame.format.name != self.info.pixel_format:
            self._warn_of_change(frame)
        converted = self._reformatter.reformat(
            frame,
            width,
            height,
            self._carried.name,
            interpolation=Interpolation.BICUBIC | Interpolation.ACCURATE_RND,
            threads=1,
        )
        converted.pts, converted.time_base = frame.pts, frame.time_base
        return converted

    def _warn_of_change(self, frame: VideoFrame) -> None:
        if self._changed:
            return
        self._changed = True
        self._report.warn(
            f"the picture changes to {frame.width}x{frame.height} {frame.format.name} at frame "
            f"{self._tally.frames}; frames unlike the first are converted: {self.info.path}"
        )


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
