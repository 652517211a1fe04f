"""Streams whose frames are not all alike, and pixel formats that are rarely met."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest

from facefusion_cli.errors import UnsupportedVideo
from facefusion_cli.planes import planes_matrix, rgb_matrix
from facefusion_cli.report import Report
from facefusion_cli.types import ColorSpec, FrameBatch
from facefusion_cli.video import probe as probing
from facefusion_cli.video.probe import probe
from facefusion_cli.video.reader import open_reader
from tests.clips import frame_of, make_clip, planes

SIZE = (64, 48)
TAGS = {"bt709": 1, "bt601": 6, "bt2020": 9}
Part = tuple[str, tuple[int, int], ColorSpec]


def joined(path: Path, parts: Sequence[Part], codec: str = "libx264", each: int = 30) -> Path:
    """A stream of several parts, each by an encoder of its own: as broadcasts are spliced."""
    options = {"preset": "veryfast", "qp": "0", "bf": "0", "g": "10"}
    options = {"qmin": "1", "qmax": "1"} if codec == "mjpeg" else options
    with av.open(path, "w") as sink:
        video = sink.add_stream(codec, rate=25)
        video.width, video.height = parts[0][1]
        video.pix_fmt = parts[0][0]
        video.codec_context.open()
        count = 0
        for fmt, size, color in parts:
            encoder = av.CodecContext.create(codec, "w")
            encoder.options = options
            encoder.width, encoder.height = size
            encoder.pix_fmt, encoder.time_base = fmt, Fraction(1, 25)
            tags = TAGS[color.matrix], 2 if color.range == "full" else 1
            encoder.colorspace, encoder.color_range = tags
            packets = []
            for _ in range(each):
                frame = frame_of(fmt, size, planes(fmt, size, count))
                frame.colorspace, frame.color_range = tags
                frame.pts, frame.time_base = count, Fraction(1, 25)
                packets += encoder.encode(frame)
                count += 1
            for packet in [*packets, *encoder.encode(None)]:
                packet.stream = video
                sink.mux(packet)
    return path


def read(path: Path, decoder: str = "auto") -> tuple[FrameBatch, Report]:
    """All frames as one batch of planes."""
    report = Report()
    with open_reader(probe(path), decoder, report) as reader:
        (batch,) = reader.batches(200)
    assert reader.check_complete() is None
    assert isinstance(batch, FrameBatch)
    return batch, report


def meant(color: ColorSpec, shown: ColorSpec, index: int, bits: int = 8) -> npt.NDArray[Any]:
    """What the plain areas of a frame are once its colours are told in another way: [3,h,w]."""
    y, u, v = planes("yuv444p", SIZE, index)
    flat = np.stack([p.astype(float).ravel() for p in (y, u, v)])
    matrix = rgb_matrix(color, bits)
    rgb = matrix[:, :3] @ flat + matrix[:, 3:]
    back = planes_matrix(shown, bits)
    return (back[:, :3] @ rgb + back[:, 3:]).reshape(3, SIZE[1], SIZE[0])


BT709, BT601 = ColorSpec("bt709"), ColorSpec("bt601")
FULL709 = ColorSpec("bt709", "full")


@pytest.mark.parametrize(
    ("first", "second"), [(BT709, BT601), (BT601, BT709), (BT709, FULL709), (FULL709, BT709)]
)
def test_colours_that_change_midway(tmp_path: Path, first: ColorSpec, second: ColorSpec) -> None:
    fmt = "yuv420p"
    path = joined(tmp_path / "clip.ts", [(fmt, SIZE, first), (fmt, SIZE, second)])
    info = probe(path)
    assert "changing" in info.hazards
    batch, report = read(path)
    assert len(batch) == 60
    (warning,) = report.warnings
    assert f"({second.matrix}, {second.range} range) at frame 30; frames unlike" in warning
    for index in (0, 29):
        for got, put in zip(batch.planes, planes(fmt, SIZE, index), strict=True):
            np.testing.assert_array_equal(got[index].numpy(), put)
    for index in (30, 45, 59):
        truth = meant(second, first, index)
        # Away from the bright block, whose colours lie outside RGB and whose edges chroma blurs.
        rows, columns = slice(16, 46), slice(2, 62)
        found = batch.planes[0][index].numpy().astype(float)
        assert np.abs(found - truth[0])[rows, columns].max() <= 2.5
        for plane, ideal in zip(batch.planes[1:], truth[1:], strict=True):
            halves = ideal.reshape(24, 2, 32, 2).mean((1, 3))
            off = np.abs(plane[index].numpy().astype(float) - halves)
            assert off[8:23, 1:31].max() <= 2.5


def test_a_pixel_format_that_changes_midway_loses_no_frame(tmp_path: Path) -> None:
    full = ColorSpec("bt601", "full")
    parts = [("yuvj422p", SIZE, full), ("yuvj420p", SIZE, full), ("yuvj444p", SIZE, full)]
    path = joined(tmp_path / "clip.mkv", parts, "mjpeg")
    assert "changing" in probe(path).hazards
    batch, report = read(path)
    assert len(batch) == 90
    assert [b - a for a, b in zip(batch.pts, batch.pts[1:], strict=False)] == [Fraction(1, 25)] * 89
    (warning,) = report.warnings
    assert "yuvj420p" in warning
    assert "at frame 30" in warning
    for index in range(90):
        for plane, (got, put) in enumerate(
            zip(batch.planes, planes("yuvj422p", SIZE, index), strict=True)
        ):
            off = np.abs(got[index].numpy().astype(int) - put)
            assert off.max() <= (8 if plane == 0 else 10), index
            assert off.mean() <= 1, index


@pytest.mark.parametrize("decoder", ["auto", "opencv"])
def test_a_size_that_changes_midway_is_no_matter_for_opencv(tmp_path: Path, decoder: str) -> None:
    """It would scale such frames without a word."""
    path = joined(tmp_path / "clip.ts", [("yuv420p", SIZE, BT709), ("yuv420p", (96, 80), BT709)])
    if decoder == "opencv":
        with pytest.raises(UnsupportedVideo, match="its size, format or colours change midway"):
            read(path, decoder)
        return
    batch, report = read(path)
    assert report.facts["decoder"] == "pyav"
    assert len(batch) == 60
    assert "96x80" in report.warnings[0]
    for index in (10, 50):
        centre = int(planes("yuv420p", SIZE, index)[0][24, 32])
        assert abs(int(batch.planes[0][index][24, 32]) - centre) <= 3


RAW = ["nv12", "nv21", "nv16", "nv24", "p010le", "p210le", "yuyv422", "uyvy422", "yvyu422"]
RAW += ["gbrp", "gbrp10le", "gbrp12le", "rgb24", "bgr24", "rgb48le", "rgb565le", "bgr0", "rgba"]
RAW += ["gray", "gray10le", "gray12le", "ya8", "yuv410p", "yuv411p", "yuv440p", "yuv420p10be"]
"""Formats that a raw stream can hold."""
COARSE = {"yuv410p", "yuv411p", "yuv440p"}
"""Formats whose chroma is interpolated to a grid that ffx has."""


@pytest.mark.parametrize("fmt", RAW)
def test_planes_of_rare_formats_are_ffmpegs_own(
    tmp_path: Path, fmt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip = make_clip(tmp_path / "clip.mkv", codec="ffv1", size=SIZE, frames=3)
    frames = smooth_frames(fmt)
    monkeypatch.setattr(probing, "_first_frames", lambda *_, **__: iter(frames))
    info = probe(clip.path)
    assert info.pixel_format == fmt
    with open_reader(info, "pyav", report := Report()) as reader:
        monkeypatch.setattr(reader._decoder, "frames", lambda: iter(frames))  # type: ignore[attr-defined]
        (batch,) = reader.batches(5)
    assert isinstance(batch, FrameBatch)
    assert report.warnings == []
    assert len(batch) == 3
    for index, frame in enumerate(frames):
        target = carried_name(batch, fmt)
        ideal = frame.reformat(format=target, threads=1, interpolation="BICUBIC")
        ours = [p[index].numpy() for p in batch.planes]
        ours += [] if batch.alpha is None else [batch.alpha[index].numpy()]
        limit = 2 if fmt in COARSE else 1
        for got, plane in zip(ours, ideal.planes, strict=False):
            row = plane.line_size // got.dtype.itemsize
            put = np.frombuffer(plane, got.dtype).reshape(plane.height, row)[:, : plane.width]
            assert np.abs(got.astype(int) - put).max() <= limit << (info.layout.bits - 8)


def carried_name(batch: FrameBatch, fmt: str) -> str:
    """FFmpeg's name of a batch's layout."""
    bits, alpha = batch.layout.bits, batch.alpha is not None
    depth = "" if bits == 8 else f"{bits}le"
    if batch.color.matrix == "rgb":
        return ("gbrap" if alpha else "gbrp") + depth
    if fmt.startswith("gray"):
        return "gray" + depth
    grid = {(1, 1): "444", (2, 1): "422", (2, 2): "420"}[batch.layout.subsampling]
    return f"{'yuvj' if fmt.startswith('yuvj') else 'yuv'}{grid}p{depth}"


def smooth_frames(fmt: str) -> list[av.VideoFrame]:
    """Frames as a decoder gives them; smooth, so that all ways to interpolate chroma agree."""
    frames = []
    for index in range(3):
        slopes = ((1, 2), (2, 1), (3, 0.5))
        ramps = [np.add.outer(np.arange(48) * a, np.arange(64) * b) for a, b in slopes]
        rgb = (np.stack(ramps, -1) + 30 + index * 7).clip(0, 255).astype(np.uint8)
        frame = av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format=fmt)
        frame.pts, frame.time_base = index, Fraction(1, 25)
        frames.append(frame)
    return frames


@pytest.mark.parametrize("fmt", ["bayer_bggr8", "bayer_rggb16le"])
def test_bayer_patterns_are_refused(
    tmp_path: Path, fmt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip = make_clip(tmp_path / "clip.mkv", codec="ffv1", size=SIZE, frames=3)
    frames = [av.VideoFrame(*SIZE, fmt)]
    monkeypatch.setattr(probing, "_first_frames", lambda *_, **__: iter(frames))
    with pytest.raises(UnsupportedVideo, match=r"raw sensor data"):
        probe(clip.path)


def test_v210(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.mov", codec="v210", pix_fmt="yuv422p10le", size=(96, 48))
    batch, report = read(clip.path)
    assert report.facts["decoder"] == "pyav"
    for index in range(clip.frames):
        for got, put in zip(batch.planes, clip.planes(index), strict=True):
            np.testing.assert_array_equal(got[index].numpy(), put)


def test_a_palette(tmp_path: Path) -> None:
    path = tmp_path / "clip.gif"
    rgb = np.zeros((48, 64, 3), np.uint8)
    rgb[:, :32] = 200, 30, 60
    rgb[:, 32:] = 10, 220, 90
    with av.open(path, "w") as sink:
        video = sink.add_stream("gif", rate=10)
        video.width, video.height = SIZE
        video.pix_fmt = "rgb8"
        for index in range(3):
            frame = av.VideoFrame.from_ndarray(np.roll(rgb, 8 * index, 1), format="rgb24")
            frame = frame.reformat(format="rgb8")
            frame.pts, frame.time_base = index, Fraction(1, 10)
            sink.mux(video.encode(frame))
        sink.mux(video.encode(None))
    batch, _ = read(path, "pyav")
    assert batch.color.matrix == "rgb"
    green, blue, red = (p[0, 24, 8].item() for p in batch.planes)
    assert (abs(red - 200), abs(green - 30), abs(blue - 60)) <= (40, 40, 40)
