"""What OpenCV's picture loses is given back, and a picture that is another one is refused."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch

from facefusion_cli.errors import UnsupportedVideo
from facefusion_cli.planes import KR_KB, frames_from_rgb, planes_from_bgr, planes_matrix
from facefusion_cli.report import Report
from facefusion_cli.types import BgrBatch, ColorSpec, FrameBatch, Matrix, PlaneLayout, Range
from facefusion_cli.video.opencv_reader import OpencvReader
from facefusion_cli.video.probe import probe
from facefusion_cli.video.reader import open_reader
from tests.clips import frame_of, make_clip

Codes = npt.NDArray[np.uint8]
TAGS = {"bt709": 1, "bt601": 6, "bt2020": 9}
SIZE = (96, 64)


def codes(kind: str, fmt: str, size: tuple[int, int], index: int, span: Range) -> list[Codes]:
    """Planes of a frame whose colours all lie inside RGB, or of a gray one."""
    rng = np.random.default_rng(index)
    low, high = (16, 235) if span == "limited" else (0, 255)
    planes = []
    for n, part in enumerate(av.VideoFormat(fmt, *size).components):
        shape = (part.height, part.width)
        if kind == "black":
            plane = np.full(shape, low if n == 0 else 128)
        elif kind == "gray" and n:
            plane = np.full(shape, 128)
        elif kind == "gray":
            plane = np.linspace(low, high, shape[0] * shape[1]).reshape(shape)
        elif kind == "noise":
            plane = rng.integers(70 if n == 0 else 110, 180 if n == 0 else 146, shape)
        else:
            coarse = rng.integers(60 if n == 0 else 106, 190 if n == 0 else 150, (4, 5))
            plane = cv2.resize(coarse.astype(np.float32), shape[::-1])
        planes.append(np.round(plane).astype(np.uint8))
    return planes


def clip_of(
    path: Path, kinds: list[str], fmt: str, matrix: Matrix, span: Range, size: tuple[int, int]
) -> Path:
    """A lossless clip, one frame of each kind."""
    with av.open(path, "w") as sink:
        video = sink.add_stream("ffv1", rate=25)
        video.width, video.height = size
        video.pix_fmt = fmt
        context = video.codec_context
        context.colorspace, context.color_range = TAGS[matrix], 2 if span == "full" else 1
        for index, kind in enumerate(kinds):
            frame = frame_of(fmt, size, codes(kind, fmt, size, index, span))
            frame.colorspace, frame.color_range = TAGS[matrix], 2 if span == "full" else 1
            frame.pts, frame.time_base = index, Fraction(1, 25)
            sink.mux(video.encode(frame))
        sink.mux(video.encode(None))
    return path


def through(path: Path, decoder: str) -> FrameBatch:
    """All frames as planes."""
    with open_reader(probe(path), decoder, Report()) as reader:
        (batch,) = reader.batches(50)
    return planes_from_bgr(batch) if isinstance(batch, BgrBatch) else batch


def errors(path: Path, *, skip: int = 0) -> list[tuple[float, int]]:
    """Mean and greatest error of OpenCV's planes."""
    exact, opencv = (through(path, d).planes for d in ("pyav", "opencv"))
    steps = [(b.int() - a.int())[skip:] for a, b in zip(exact, opencv, strict=True)]
    return [(float(s.float().mean()), int(s.abs().max())) for s in steps]


@pytest.mark.parametrize("kind", ["smooth", "noise", "gray"])
@pytest.mark.parametrize("span", ["limited", "full"])
@pytest.mark.parametrize("matrix", KR_KB)
@pytest.mark.parametrize("fmt", ["yuv420p", "yuv422p", "yuv444p"])
def test_planes_from_opencv_are_right_on_average(
    tmp_path: Path, fmt: str, matrix: Matrix, span: Range, kind: str
) -> None:
    path = clip_of(tmp_path / "clip.mkv", [kind] * 3, fmt, matrix, span, SIZE)
    for mean, worst in errors(path):
        assert abs(mean) <= 0.1
        assert worst <= 2


@pytest.mark.parametrize("span", ["limited", "full"])
@pytest.mark.parametrize("first", ["black", "gray"])
def test_a_first_frame_without_colour_tells_nothing_wrong(
    tmp_path: Path, first: str, span: Range
) -> None:
    kinds = [first, "smooth", "noise", "smooth"]
    path = clip_of(tmp_path / "clip.mkv", kinds, "yuv420p", "bt709", span, SIZE)
    for mean, worst in errors(path, skip=1):
        assert abs(mean) <= 0.15
        assert worst <= 2


@pytest.mark.parametrize("span", ["limited", "full"])
def test_black_bars_stay_black(tmp_path: Path, span: Range) -> None:
    path = clip_of(
        tmp_path / "clip.mkv", ["smooth", "black", "gray"], "yuv420p", "bt709", span, SIZE
    )
    exact, opencv = (through(path, d).planes for d in ("pyav", "opencv"))
    for a, b in zip(exact, opencv, strict=True):
        np.testing.assert_array_equal(a[1:].numpy(), b[1:].numpy())


@pytest.mark.parametrize("size", [(97, 65), (96, 65), (97, 64)])
def test_odd_sizes(tmp_path: Path, size: tuple[int, int]) -> None:
    path = clip_of(tmp_path / "clip.mkv", ["smooth"] * 3, "yuv420p", "bt709", "limited", size)
    for mean, _ in errors(path):
        # Chroma beyond the last whole cell is interpolated, each in its own way.
        assert abs(mean) <= 0.2


def test_both_ways_of_conversion_give_the_bias_back() -> None:
    """OpenCV's kernels, for CPUs, and torch's, which GPUs run."""
    color, layout = ColorSpec("bt709", "limited"), PlaneLayout((2, 2), 8)
    bgr = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 16, 24, 3), np.uint8))
    bgr[1] = bgr[1, :, :, :1]
    bias, gray_bias = (1.17, -0.6, 0.7), 0.43
    times = (Fraction(0), Fraction(1, 25))
    quick = planes_from_bgr(BgrBatch(bgr, color, layout, times, 0, bias=bias, gray_bias=gray_bias))
    rgb = bgr.permute(0, 3, 1, 2).flip(1).float() / 255
    plain = frames_from_rgb(rgb, color, layout, bias=bias, gray_bias=gray_bias)
    codes = planes_matrix(color, 8)[0] @ np.concatenate(
        [rgb.double().permute(1, 0, 2, 3).reshape(3, -1).numpy(), np.ones((1, bgr[..., 0].numel()))]
    )
    gray = (bgr.amax(-1) == bgr.amin(-1)).flatten().numpy()
    truth = (codes + np.where(gray, gray_bias, bias[0])).round().reshape(2, 16, 24)
    for found in (quick, plain):
        assert np.abs(found.planes[0].numpy() - truth).max() <= 1
        np.testing.assert_array_equal(found.planes[0][1].numpy(), truth[1])
    for a, b in zip(quick.planes, plain.planes, strict=True):
        assert int((a.int() - b.int()).abs().max()) <= 1
        assert abs(float((a.int() - b.int()).float().mean())) < 0.15


RUINED: dict[str, dict[str, Any]] = {
    "mirrored": {"mirrored": True},
    "upside down and mirrored": {"mirrored": True, "rotation": 180},
    "interlaced": {"interlaced": True},
    "hdr": {"codec": "libx265", "pix_fmt": "yuv420p10le", "color": (9, 9, 16, 1)},
}


@pytest.mark.parametrize("name", RUINED)
def test_ruined_pictures_are_seen_without_a_hazard_to_warn(tmp_path: Path, name: str) -> None:
    """The known ways in which OpenCV ruins a clip stand for those that nobody knows yet."""
    clip = make_clip(tmp_path / "clip.mp4", size=(128, 96), **RUINED[name])
    with pytest.raises(UnsupportedVideo, match=r"first frame is off by \d+ levels"):
        OpencvReader(probe(clip.path), Report())


class Altered:
    """cv2.VideoCapture with something done to every picture."""

    def __init__(self, change: Callable[[Codes], Codes], *how: Any) -> None:
        self._capture = REAL_CAPTURE(*how)
        self._change = change
        for name in ("get", "set", "grab", "isOpened", "release"):
            setattr(self, name, getattr(self._capture, name))

    def read(self, _: Any = None) -> tuple[bool, Codes | None]:
        there, image = self._capture.read()
        return there, self._change(image) if there else None


REAL_CAPTURE = cv2.VideoCapture
CHANGES: dict[str, Callable[[Codes], Codes]] = {
    "black": np.zeros_like,
    "channels in another order": lambda image: image[..., ::-1].copy(),
    "8 levels lighter": lambda image: cv2.add(image, (8, 8, 8, 0)),
    "shifted by a quarter": lambda image: np.roll(image, image.shape[1] // 4, 1),
    "full range shown as limited": lambda image: cv2.convertScaleAbs(image, alpha=0.86, beta=16),
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_picture_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clip = make_clip(tmp_path / "clip.mp4")
    monkeypatch.setattr(cv2, "VideoCapture", partial(Altered, CHANGES[name]))
    with pytest.raises(UnsupportedVideo, match=r"is off by .*--decoder auto or pyav"):
        open_reader(probe(clip.path), "opencv", Report())
    with caplog.at_level("INFO"), open_reader(probe(clip.path), "auto", Report()) as reader:
        (batch,) = reader.batches(20)
    assert isinstance(batch, FrameBatch)
    assert "decoder pyav, because OpenCV's first frame is off by" in caplog.text


def test_another_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clip = make_clip(tmp_path / "clip.mp4")
    half = partial(Altered, lambda image: image[::2, ::2].copy())
    monkeypatch.setattr(cv2, "VideoCapture", half)
    with pytest.raises(UnsupportedVideo, match="OpenCV gives 32x24 pixels"):
        open_reader(probe(clip.path), "opencv", Report())
