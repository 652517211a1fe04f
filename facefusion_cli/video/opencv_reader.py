"""Reading with OpenCV: BGR frames, upright, with true timestamps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fractions import Fraction
from types import TracebackType
from typing import Any, Self

import cv2
import torch

from facefusion_cli.errors import UnsupportedVideo
from facefusion_cli.report import Report
from facefusion_cli.types import WHOLE, BgrBatch, VideoInfo, Window
from facefusion_cli.video.buffers import BufferPool
from facefusion_cli.video.calibrate import Calibration, calibrate
from facefusion_cli.video.completeness import MAX_FAILURES_IN_A_ROW, CountedReader
from facefusion_cli.video.pyav_reader import PyavReader

_AV_LOG_QUIET = "-8"
_SAME_PICTURE = 3.0
"""Levels by which OpenCV's first frame may differ on average; its truncation costs up to 1.5."""


class OpencvReader(CountedReader):
    """A clip through cv2.VideoCapture.

    OpenCV stops silently at a corrupt packet, and reading on recovers; it counts time from the
    stream's own start; it turns pictures upright itself; it opens files whose codec it has no
    decoder for; and it hands out ruined pictures without a word. Hence the first frame is read at
    once and compared with PyAV's, which also tells by how much its conversion to BGR is off.

    Args:
        info: The probe's result.
        report: Told of losses; timed under "read".
        pin_memory: Batches lie in page-locked memory.
        window: The part that is read; everything before it is decoded, too.

    Raises:
        UnsupportedVideo: OpenCV cannot open or decode what the probe could, or its picture is
            another one.
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
        self._changed = False
        self._when: Fraction | None = None
        """The last frame's pts."""
        # FFmpeg inside OpenCV writes its complaints to stderr; losses are counted here instead.
        os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", _AV_LOG_QUIET)
        name = str(info.path.resolve())
        if not _is_utf8(name):
            raise _unreadable("OpenCV opens no file whose name is not UTF-8", info)
        self._capture = cv2.VideoCapture(name, cv2.CAP_FFMPEG)
        if not self._capture.isOpened():
            raise _unreadable("OpenCV cannot open this video", info)
        self._capture.set(cv2.CAP_PROP_ORIENTATION_AUTO, 1)
        self._ahead = self._decoded()
        if self._ahead is None:
            self._capture.release()
            raise _unreadable(f"OpenCV cannot decode this video ({info.codec})", info)
        try:
            self._calibration = self._compared(self._ahead)
        except UnsupportedVideo:
            self._capture.release()
            raise

    def batches(self, n: int) -> Iterator[BgrBatch]:
        """The clip in batches of n frames; see Reader."""
        more = True
        while more:
            with self._report.timer("read"):
                batch = self._batch(n)
            more = len(batch) == n
            if len(batch):
                yield batch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._capture.release()

    def _compared(self, image: Any) -> Calibration:
        """What the first frame says of OpenCV's pictures."""
        info = self.info
        if image.shape != (info.height, info.width, 3):
            raise _unreadable(f"OpenCV gives {image.shape[1]}x{image.shape[0]} pixels", info)
        with PyavReader(info, Report()) as reader:
            exact = next(reader.batches(1), None)
        if exact is None:
            return Calibration(0.0)
        if exact.pts[0] != self._when:
            # H.264 in AVI: it takes decoding order for times, so all is late against the sound.
            raise _unreadable("OpenCV gives other times than the clip's", info)
        bgr = torch.from_numpy(image)[None]
        found = calibrate(exact, BgrBatch(bgr, info.color, info.layout, exact.pts, 0))
        if found.difference > _SAME_PICTURE:
            raise _unreadable(
                f"OpenCV's first frame is off by {found.difference:.0f} levels of 255", info
            )
        return found

    def _batch(self, n: int) -> BgrBatch:
        info = self.info
        shape = (n, info.height, info.width, 3)
        frames = self._buffers.empty(shape, torch.uint8)
        rows = frames.numpy()
        first = self._tally.frames
        pts: list[Fraction] = []
        self._skip()
        while len(pts) < n and not self._tally.reached_end and self._read(rows[len(pts)]):
            when = self._when
            assert when is not None
            if self._window.end is not None and when >= self._window.end:
                self._tally.reached_end = True
                break
            pts.append(when)
            self._tally.add(when)
        return BgrBatch(
            frames[: len(pts)],
            info.color,
            info.layout,
            tuple(pts),
            first,
            bias=self._calibration.bias,
            gray_bias=self._calibration.gray_bias,
        )

    def _skip(self) -> None:
        """Goes to the window's first frame, decoding but not converting what lies before."""
        start = self._window.start
        if start is None or self._tally.frames or self._ahead is None:
            return
        if self._when is not None and self._when >= start:
            return
        failed = 0
        while failed <= MAX_FAILURES_IN_A_ROW:
            if not self._capture.grab():
                failed += 1
                continue
            self._when = self._time()
            self._tally.skipped += 1
            if self._when >= start:
                missing = round((self._when - start) * self.info.frame_rate)
                self._tally.failures += min(failed, missing)
                failed = 0
                break
            failed = 0
        there, image = self._capture.retrieve()
        self._ahead = image if there and not failed else None

    def _read(self, into: Any) -> bool:
        """Reads a frame into an [H,W,3] array; False at the end."""
        image = self._decoded(into) if self._ahead is None else self._ahead
        self._ahead = None
        if image is None:
            return False
        if image.shape != into.shape:
            self._warn_of_change(image.shape[1], image.shape[0])
            cv2.resize(image, into.shape[1::-1], dst=into, interpolation=cv2.INTER_AREA)
        elif image is not into:
            into[...] = image
        return True

    def _decoded(self, into: Any = None) -> Any:
        """The next frame, in the array where it fits; None at the end."""
        for failed in range(MAX_FAILURES_IN_A_ROW + 1):
            there, image = self._capture.read(into)
            if there:
                self._when = self._time()
                self._tally.failures += failed
                return image
        return None

    def _warn_of_change(self, width: int, height: int) -> None:
        if self._changed:
            return
        self._changed = True
        self._report.warn(
            f"the picture's size changes to {width}x{height} at frame {self._tally.frames}; frames "
            f"of another size than the first are scaled: {self.info.path}"
        )

    def _time(self) -> Fraction:
        """The pts of the frame that OpenCV stands at; to be asked once a frame.

        OpenCV's milliseconds are exact but count from the stream's start, and as floats they are a
        rounding error off the stream's clock. They are 0 for frames without a pts.
        """
        tick = self.info.time_base
        since_start = Fraction(self._capture.get(cv2.CAP_PROP_POS_MSEC)) / 1000
        if since_start == 0 and self._when is not None:
            return self._when + 1 / self.info.frame_rate
        return self.info.start + round(since_start / tick) * tick


def _is_utf8(name: str) -> bool:
    """Whether OpenCV can be given this name; others crash it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unreadable(what: str, info: VideoInfo) -> UnsupportedVideo:
    return UnsupportedVideo(what, path=info.path, hint="use --decoder auto or pyav")
