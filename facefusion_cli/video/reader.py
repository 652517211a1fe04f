"""Reading a clip: the protocol both decoders follow, and which of them a clip gets."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from facefusion_cli.errors import FfxError, UnsupportedVideo
from facefusion_cli.report import Report
from facefusion_cli.types import WHOLE, BgrBatch, FrameBatch, VideoInfo, Window
from facefusion_cli.video.opencv_reader import OpencvReader
from facefusion_cli.video.pyav_reader import PyavReader

_OPENCV_GETS_WRONG = {
    "interlaced": "it is interlaced",
    "hdr": "it is HDR",
    "changing": "its size, format or colours change midway",
    "alpha": "it has an alpha channel",
    "deep": "it has more than 8 bits a sample",
    "unstated_start": "FFmpeg guesses where it starts",
    "mirrored": "its display matrix mirrors it",
    "not_first": "a cover picture comes before the video",
}
_FAR = 5
"""Seconds into the clip from which on only PyAV, which can seek, is quick to reach a window."""


class Reader(Protocol):
    """One pass over a clip or a part of it, upright, in order of display.

    A context manager; batches() is called once, and may be consumed on another thread.
    """

    info: VideoInfo

    @property
    def frames_decoded(self) -> int:
        """Frames handed out so far."""
        ...

    @property
    def progress(self) -> int:
        """Grows with everything that is decoded, even where no batch comes of it."""
        ...

    @property
    def decode_failures(self) -> int:
        """Packets or reads that failed with more frames after them."""
        ...

    @property
    def frames_lost(self) -> int:
        """Frames missing by the header; known after check_complete()."""
        ...

    def batches(self, n: int) -> Iterator[FrameBatch | BgrBatch]:
        """The window's frames in batches of n; the last may be shorter.

        Tensors own their memory and lie in the host's.
        """
        ...

    def check_complete(self) -> FfxError | None:
        """After the last batch: what is missing, where there is evidence of it.

        The caller raises it or, where the user accepts losses, warns.
        """
        ...

    def __enter__(self) -> Self:
        """Itself."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the file."""
        ...


def open_reader(
    info: VideoInfo,
    decoder: str,
    report: Report,
    *,
    pin_memory: bool = False,
    window: Window = WHOLE,
) -> Reader:
    """Opens a clip with the decoder that gets it right.

    Args:
        info: The probe's result.
        decoder: auto (OpenCV, unless the clip is one that it gets wrong), opencv or pyav.
        report: Told which decoder was chosen and why; timed under "read".
        pin_memory: Batches lie in page-locked memory (needs CUDA).
        window: Only frames with start <= pts < end are read, with their own pts.

    Raises:
        UnsupportedVideo: opencv was asked for where it would ruin the picture or cannot read it.
        InputError, DecodeError: The file cannot be opened.
    """
    if "alpha_unread" in info.hazards:
        report.warn(f"the alpha channel of this {info.codec} video is dropped: {info.path}")
    reasons = [why for hazard, why in _OPENCV_GETS_WRONG.items() if hazard in info.hazards]
    if decoder == "opencv" and reasons:
        raise UnsupportedVideo(
            f"OpenCV would get this video wrong: {', '.join(reasons)}",
            path=info.path,
            hint="use --decoder auto or pyav",
        )
    if decoder == "pyav":
        return _pyav(info, report, pin_memory, window, "as asked")
    if reasons:
        why = f"because OpenCV gets this video wrong: {', '.join(reasons)}"
        return _pyav(info, report, pin_memory, window, why)
    if decoder == "auto" and window.start is not None and window.start > info.start + _FAR:
        return _pyav(info, report, pin_memory, window, "because it starts late in the clip")
    try:
        reader = OpencvReader(info, report, pin_memory=pin_memory, window=window)
    except UnsupportedVideo as error:
        if decoder == "opencv":
            raise
        return _pyav(info, report, pin_memory, window, f"because {error.message}")
    report.note("decoder opencv" + (", as asked" if decoder == "opencv" else ""))
    report.facts["decoder"] = "opencv"
    return reader


def _pyav(
    info: VideoInfo, report: Report, pin_memory: bool, window: Window, why: str
) -> PyavReader:
    report.note(f"decoder pyav, {why}")
    report.facts["decoder"] = "pyav"
    return PyavReader(info, report, pin_memory=pin_memory, window=window)
