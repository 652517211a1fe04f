"""Clips out through OpenCV: for its own encoders, where FFmpeg's are not wanted.

OpenCV writes 8-bit BGR at a constant rate, without colour tags, sound or anything else, and says
little of what goes wrong; so all that is lost is said here, and the file is read back.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self

import av
import cv2
import numpy as np
import numpy.typing as npt
import torch
from av.error import FFmpegError

from facefusion_cli.config import Config, OutputConfig
from facefusion_cli.errors import (
    ConfigError,
    EmptyVideo,
    EncodeError,
    EncoderUnavailable,
    IncompatibleContainer,
)
from facefusion_cli.planes import read_region
from facefusion_cli.report import Report
from facefusion_cli.types import NO_EDIT, Edit, FrameBatch, VideoInfo
from facefusion_cli.video.atomic import as_output_error, atomic_output
from facefusion_cli.video.pacing import Pacer, Shown

_Picture = npt.NDArray[np.uint8]
_TICK = Fraction(1, 90_000)
_PQ, _HLG = 16, 18
_BT2020 = 9
_FULL_DISK = 1 << 16
"""Bytes of free space below which a file that came out short is blamed on the disk."""


OPENCV_ENCODERS: Mapping[str, Mapping[str, str]] = {
    "mp4v": dict.fromkeys((".mp4", ".mov", ".mkv", ".avi"), "mp4v"),
    "mjpg": dict.fromkeys((".avi", ".mkv", ".mov"), "MJPG"),
    "ffv1": dict.fromkeys((".mkv", ".avi"), "FFV1"),
    "vp9": {".webm": "VP90", ".mkv": "VP90", ".mp4": "vp09"},
}
"""Name in the configuration to four-letter codes by output suffix, the usual suffix first."""
_USUAL = {".webm": "vp9", ".avi": "mjpg"}


def opencv_encoder(out: Path, output: OutputConfig) -> tuple[str, str]:
    """The encoder and its four-letter code for an output.

    Raises:
        ConfigError: The encoder, a pixel format or an option is only the PyAV writer's.
        IncompatibleContainer: The suffix does not take the encoder.
    """
    suffix = out.suffix.lower()
    name = output.encoder if output.encoder != "auto" else _USUAL.get(suffix, "mp4v")
    if name not in OPENCV_ENCODERS:
        hint = f"use --writer pyav, or --encoder {', '.join(OPENCV_ENCODERS)}"
        raise ConfigError(f"the OpenCV writer has no encoder {name}", hint=hint)
    for setting, given in (
        ("output.pix_fmt", output.pix_fmt != "auto"),
        ("output.encoder_options", bool(output.encoder_options)),
    ):
        if given:
            hint = "use --writer pyav"
            raise ConfigError(f"the OpenCV writer does not take {setting}", hint=hint)
    codes = OPENCV_ENCODERS[name]
    if suffix in codes:
        return name, codes[suffix]
    fitting = [n for n, others in OPENCV_ENCODERS.items() if suffix in others]
    hint = f"with OpenCV's {name}: {', '.join(codes)}"
    hint += f"; {suffix} takes encoder {', '.join(fitting)}" if fitting else ""
    what = f"{suffix} cannot hold" if suffix else "the output has no suffix for"
    raise IncompatibleContainer(f"{what} OpenCV's {name}", path=out, hint=hint)


class OpencvWriter:
    """Writes a clip's frames with OpenCV, as one atomic output; used like ClipWriter.

    Frames are converted by the clip's own matrix and encoded in the caller's thread. A clip of a
    variable rate is laid on a constant one.

    Args:
        out: The output; its suffix picks the container.
        info: The clip the frames are from.
        config: The encoder.
        report: Gets the time of the stage write, the count frames_out, the encoder as a fact, and
            everything that OpenCV cannot hold.
        edit: The window the last frame ends with, and the constant rate of the output, if any.

    Raises:
        ConfigError: A setting is only the PyAV writer's.
        IncompatibleContainer: The container cannot hold what the encoder makes, or the clip is HDR,
            which nothing would say in the file.
    """

    def __init__(
        self, out: Path, info: VideoInfo, config: Config, report: Report, edit: Edit = NO_EDIT
    ) -> None:
        self._out, self._info, self._config, self._report = out, info, config, report
        self._name, self._code = opencv_encoder(out, config.output)
        if info.color.tags[2] in {_PQ, _HLG}:
            raise IncompatibleContainer(
                "OpenCV's files do not say that they are HDR, and would look wrong",
                path=out,
                hint="use --writer pyav or --tonemap bt2390",
            )
        rate = edit.rate or info.frame_rate
        self._rate = rate if rate > 0 else Fraction(25)
        self._edit = edit
        self._size = (info.width + info.width % 2, info.height + info.height % 2)
        self._pacer: Pacer[_Picture] | None = None
        self._frames = 0
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        """Opens the output.

        Raises:
            OutputNotWritable: The folder takes no file.
            DiskFull: There is no space at all.
            EncoderUnavailable: OpenCV does not open the encoder.
        """
        with ExitStack() as cleanup:
            overwrite = self._config.output.overwrite
            self._partial = cleanup.enter_context(atomic_output(self._out, overwrite=overwrite))
            self._writer = cv2.VideoWriter(
                str(self._partial.absolute()),
                cv2.CAP_FFMPEG,
                cv2.VideoWriter.fourcc(*self._code),
                float(self._rate),
                self._size,
            )
            cleanup.callback(self._writer.release)
            if not self._writer.isOpened():
                raise EncoderUnavailable(
                    f"OpenCV does not open {self._name}", path=self._out, hint="use --writer pyav"
                )
            self._say()
            self._cleanup = cleanup.pop_all()
        return self

    def write(self, batch: FrameBatch) -> None:
        """Encodes a batch.

        Args:
            batch: Frames of the clip's size and layout, on a CPU or a GPU, in order.
        """
        size, clip = (batch.width, batch.height), (self._info.width, self._info.height)
        if size != clip or batch.layout != self._info.layout:
            raise ValueError(f"{batch} does not fit a clip of {clip} and {self._info.layout}")
        with self._report.timer("write"):
            if batch.alpha is not None:
                self._report.warn("alpha is dropped: OpenCV cannot write it")
            if self._pacer is None:
                self._pacer = Pacer(
                    batch.pts[0],
                    _TICK,
                    1 / self._rate,
                    rate=self._rate,
                    end=self._edit.stop,
                )
            for i, time in enumerate(batch.pts):
                for shown in self._pacer.push(self._picture(batch, i), time):
                    self._show(shown)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finishes and renames, or discards when an exception is on its way.

        Raises:
            EncodeError: The written file does not hold what was sent.
            DiskFull: And the disk has no space left.
            EmptyVideo: No frame was written.
        """
        try:
            if error is None:
                self._finish()
        except BaseException as failure:
            self._cleanup.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._cleanup.__exit__(kind, error, trace)

    def _say(self) -> None:
        """Says what is chosen and what gets lost."""
        info, output, warn = self._info, self._config.output, self._report.warn
        self._report.facts["encoder"] = f"opencv {self._code}"
        self._report.note(
            f"encoder opencv {self._code}: OpenCV writes 8-bit BT.601 without colour tags"
        )
        if output.crf >= 0:
            self._report.note("crf means nothing to the OpenCV writer and is ignored")
        sound = (info.audio and output.audio) or output.audio_file
        streams = {
            "sound": bool(sound),
            "subtitles": bool(info.subtitles),
            "chapters": info.chapters > 0,
        }
        if lost := [name for name, there in streams.items() if there]:
            warn(f"dropped: {', '.join(lost)}; OpenCV writes pictures only (--writer pyav)")
        if info.layout.bits > 8:
            warn(f"{info.layout.bits}-bit becomes 8-bit: OpenCV writes no more")
        if info.color.tags[1] == _BT2020:
            warn("BT.2020 colours will look dull: OpenCV's files do not name their primaries")
        if info.sample_aspect != 1:
            warn(f"the pixel aspect {info.sample_aspect} is dropped: OpenCV cannot write it")
        if "vfr" in info.hazards and self._edit.rate is None:
            warn(
                f"the variable rate becomes {float(self._rate):.6g} frames a second: OpenCV "
                f"writes constant rates only"
            )
        if self._size != (info.width, info.height):
            warn(
                f"odd size {info.width}x{info.height} is padded to {self._size[0]}x{self._size[1]} "
                f"by repeating the last column or row: OpenCV writes even sizes"
            )

    def _picture(self, batch: FrameBatch, index: int) -> _Picture:
        """One frame as [H,W,3] bytes in OpenCV's order, of even sides."""
        rgb = read_region(batch, index, (0, 0, batch.width, batch.height))
        bgr = rgb.flip(0).mul_(255).round_().clamp_(0, 255).to(torch.uint8).permute(1, 2, 0)
        picture: _Picture = bgr.contiguous().cpu().numpy()
        below, beside = self._size[1] - batch.height, self._size[0] - batch.width
        if below or beside:
            picture = np.pad(picture, ((0, below), (0, beside), (0, 0)), mode="edge")
        return picture

    def _show(self, shown: Shown[_Picture]) -> None:
        self._writer.write(shown.frame)
        self._frames += 1
        self._report.count("frames_out")

    def _finish(self) -> None:
        with self._report.timer("write"):
            if self._pacer is not None:
                for shown in self._pacer.finish():
                    self._show(shown)
                self._pacer.report(self._report)
            self._writer.release()
        if self._frames == 0:
            raise EmptyVideo("no frame was written", path=self._info.path)
        with self._report.timer("verify"):
            self._verify()

    def _verify(self) -> None:
        """Reads the finished file's packets back.

        Raises:
            DiskFull: They are not all there, and the disk is full.
            EncodeError: They are not all there.
        """
        try:
            with av.open(str(self._partial.absolute())) as file:
                found = sum(bool(packet.size) for packet in file.demux(video=0))
        except FileNotFoundError as error:
            raise as_output_error(error, self._out) from error
        except (FFmpegError, IndexError):
            found = 0
        if found == self._frames:
            return
        if shutil.disk_usage(self._partial.parent).free < _FULL_DISK:
            raise as_output_error(OSError(errno.ENOSPC, ""), self._out)
        raise EncodeError(
            f"the written file is not sound: {found} frames instead of {self._frames}",
            path=self._out,
            hint="nothing was kept; the disk or OpenCV is at fault",
        )
