"""Frames of one stream that are not all alike, made like the first."""

from __future__ import annotations

from typing import Any

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter

from facefusion_cli.report import Report
from facefusion_cli.types import Matrix, Range, VideoInfo
from facefusion_cli.video.pixel_formats import (
    GIF_FORMAT,
    GIF_OPAQUE,
    MATRICES,
    CarriedFormat,
)

_SWSCALE_MATRIX = {"bt709": 1, "bt601": 5, "bt2020": 9}
_LIMITED, _FULL = 1, 2
_EXACT = Interpolation.BICUBIC | Interpolation.ACCURATE_RND


class Conformer:
    """Brings frames to the carried format and, where they change midway, to the clip's first.

    Size, pixel format, matrix and range may change in the middle of a stream. Frames without tags
    mean what the clip means.

    Args:
        info: The probe's result.
        carried: The format frames shall have.
        report: Warned once of a change.
    """

    def __init__(self, info: VideoInfo, carried: CarriedFormat, report: Report) -> None:
        self._info, self._carried, self._report = info, carried, report
        self._reformatter = VideoReformatter()
        self._changed = False

    def conform(self, frame: VideoFrame, index: int) -> VideoFrame:
        """The frame itself where it is like the first and needs no conversion.

        Args:
            frame: As stored.
            index: Its number, for the warning.
        """
        info = self._info
        meaning = self._meaning(frame)
        same_size = (frame.width, frame.height) == info.coded_size
        same_colour = meaning == (info.color.matrix, info.color.range)
        if same_size and same_colour and frame.format.name == self._carried.name:
            return frame
        if not (same_size and same_colour and self._is_usual(frame.format.name)):
            self._warn_of_change(frame, meaning, index)
        stored = frame
        if meaning[1] == "limited" and frame.format.name.startswith("yuvj"):
            stored = _without_j(frame)
        converted = self._reformatter.reformat(
            stored,
            *info.coded_size,
            self._carried.name,
            interpolation=_EXACT,
            threads=1,
            **({} if same_colour else self._colours(meaning)),
        )
        converted.pts, converted.time_base = frame.pts, frame.time_base
        return converted

    def _is_usual(self, name: str) -> bool:
        usual = self._info.pixel_format
        return name == usual or (name, usual) == (GIF_FORMAT, GIF_OPAQUE)

    def _meaning(self, frame: VideoFrame) -> tuple[Matrix, Range]:
        color, name = self._info.color, frame.format.name
        as_rgb = self._carried.rgb and name == self._info.pixel_format
        if as_rgb or frame.format.is_rgb or frame.format.has_palette:
            return "rgb", "full"
        matrix: Matrix = color.matrix if color.matrix != "rgb" else "bt601"
        tagged = int(frame.colorspace)
        if tagged > 2:
            matrix = MATRICES.get(tagged, matrix)
        elif tagged == 1:
            matrix = "bt709"
        span = int(frame.color_range)
        if span == _LIMITED:
            return matrix, "limited"
        if span == _FULL or name.startswith("yuvj"):
            return matrix, "full"
        return matrix, "limited" if self._carried.rgb else color.range

    def _colours(self, meaning: tuple[Matrix, Range]) -> dict[str, Any]:
        color = self._info.color
        given = {"src": meaning, "dst": (color.matrix, color.range)}
        named: dict[str, Any] = {}
        for side, (matrix, span) in given.items():
            if matrix != "rgb":
                named[f"{side}_colorspace"] = _SWSCALE_MATRIX[matrix]
            named[f"{side}_color_range"] = _FULL if span == "full" else _LIMITED
        return named

    def _warn_of_change(self, frame: VideoFrame, meaning: tuple[Matrix, Range], index: int) -> None:
        if self._changed:
            return
        self._changed = True
        self._report.warn(
            f"the picture changes to {frame.width}x{frame.height} {frame.format.name} "
            f"({meaning[0]}, {meaning[1]} range) at frame {index}; frames unlike the first are "
            f"converted: {self._info.path}"
        )


def _without_j(frame: VideoFrame) -> VideoFrame:
    """The same samples as a format that is not full range by its name.

    H.264's decoder keeps that name when the range changes midway, and swscale believes it.
    """
    plain = VideoFrame(frame.width, frame.height, frame.format.name.replace("yuvj", "yuv"))
    for source, target in zip(frame.planes, plain.planes, strict=True):
        rows = np.frombuffer(memoryview(source), np.uint8).reshape(-1, source.line_size)
        into = np.frombuffer(memoryview(target), np.uint8).reshape(-1, target.line_size)
        into[: source.height, : source.width] = rows[: source.height, : source.width]
    return plain
