"""Clips written by OpenCV: what its files hold, and that everything they cannot is said."""

from __future__ import annotations

import threading
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from facefusion_cli.errors import (
    ConfigError,
    DiskFull,
    EmptyVideo,
    EncodeError,
    EncoderUnavailable,
    IncompatibleContainer,
    OutputExists,
)
from facefusion_cli.planes import rgb_frames
from facefusion_cli.report import Report
from facefusion_cli.types import AudioStream, ColorSpec, Edit, FrameBatch, VideoInfo, Window
from facefusion_cli.video.opencv_writer import OPENCV_ENCODERS, OpencvWriter
from tests.video.test_atomic import mounted
from tests.video.writing import batches, config, evenly, info_of, read_file

PAIRS = [(name, suffix) for name, codes in OPENCV_ENCODERS.items() for suffix in codes]
CLIP = Path("clip.mp4")


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) == before


def write(
    out: Path,
    info: VideoInfo,
    times: list[Fraction],
    encoder: str = "auto",
    *,
    edit: Edit | None = None,
    alpha: bool = False,
    **output: object,
) -> Report:
    report = Report()
    with OpencvWriter(out, info, config(encoder, **output), report, edit or Edit()) as writer:
        for batch in batches(info, times, alpha=alpha):
            writer.write(batch)
    return report


def read(path: Path) -> list[np.ndarray]:
    """[H,W,3] B, G, R as OpenCV reads them."""
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    frames = []
    while (got := capture.read())[0]:
        frames.append(got[1])
    capture.release()
    return frames


def left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize(("encoder", "suffix"), PAIRS)
def test_frames_come_through(tmp_path: Path, encoder: str, suffix: str) -> None:
    info = info_of(CLIP, (128, 96))
    report = write(tmp_path / f"out{suffix}", info, evenly(8), encoder)
    shown = read(tmp_path / f"out{suffix}")
    assert len(shown) == 8 == report.counts["frames_out"]
    for got, batch in zip(shown, batches(info, evenly(8), size=1), strict=True):
        wanted = rgb_frames(batch)[0].flip(0).mul(255).clamp(0, 255).permute(1, 2, 0).numpy()
        assert np.abs(got - wanted).mean() <= (0.5 if encoder == "ffv1" else 6)
    assert report.warnings == []
    assert report.facts["encoder"].startswith("opencv ")
    assert left(tmp_path) == [f"out{suffix}"]


@pytest.mark.parametrize(
    ("color", "bits"),
    [
        (ColorSpec("bt709", "limited", (1, 1, 1, 1)), 8),
        (ColorSpec("bt709", "full", (1, 1, 1, 2)), 8),
        (ColorSpec("bt601", "limited", (2, 2, 2, 0)), 10),
        (ColorSpec("rgb", "full", (2, 2, 2, 0)), 8),
    ],
)
def test_colours_are_converted_by_the_clips_matrix(
    tmp_path: Path, color: ColorSpec, bits: int
) -> None:
    """FFV1 is lossless, so nothing but the conversion is measured."""
    grid = (1, 1)
    info = info_of(CLIP, grid=grid, bits=bits, color=color)
    write(tmp_path / "out.mkv", info, evenly(3), "ffv1")
    for got, batch in zip(
        read(tmp_path / "out.mkv"), batches(info, evenly(3), size=1), strict=True
    ):
        wanted = rgb_frames(batch)[0].flip(0).mul(255).clamp(0, 255).permute(1, 2, 0).numpy()
        assert np.abs(got - wanted).max() <= 0.51


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("o.mp4", "mp4v"),
        ("o.mov", "mp4v"),
        ("o.mkv", "mp4v"),
        ("o.avi", "MJPG"),
        ("o.webm", "VP90"),
    ],
)
def test_the_usual_encoder(tmp_path: Path, name: str, code: str) -> None:
    report = write(tmp_path / name, info_of(CLIP), evenly(2))
    assert report.facts["encoder"] == f"opencv {code}"


@pytest.mark.parametrize(
    ("name", "settings", "kind", "reason"),
    [
        ("o.mp4", {"encoder": "h264"}, ConfigError, r"no encoder h264.*--writer pyav.*mp4v"),
        ("o.mp4", {"encoder": "mp4v", "pix_fmt": "yuv444p"}, ConfigError, "pix_fmt.*pyav"),
        ("o.mp4", {"encoder": "mp4v", "encoder_options": "g=1"}, ConfigError, "encoder_options"),
        ("o.mp4", {"encoder": "ffv1"}, IncompatibleContainer, r"\.mkv, \.avi.*mp4 takes.*mp4v"),
        ("o.gif", {"encoder": "auto"}, IncompatibleContainer, r"\.gif cannot hold OpenCV's mp4v"),
        ("o", {"encoder": "auto"}, IncompatibleContainer, "no suffix"),
    ],
)
def test_what_it_does_not_take(
    tmp_path: Path, name: str, settings: dict[str, str], kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind, match=reason):
        OpencvWriter(tmp_path / name, info_of(CLIP), config(**settings), Report())


@pytest.mark.parametrize("transfer", [16, 18])
def test_hdr_is_refused(tmp_path: Path, transfer: int) -> None:
    info = info_of(CLIP, bits=10, color=ColorSpec("bt2020", "limited", (9, 9, transfer, 1)))
    with pytest.raises(IncompatibleContainer, match=r"HDR.*--tonemap bt2390"):
        OpencvWriter(tmp_path / "o.mp4", info, config("mp4v"), Report())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"audio": (AudioStream(1, "aac", 48000, 2, None),), "subtitles": (2,), "chapters": 3},
            "dropped: sound, subtitles, chapters; OpenCV writes pictures only",
        ),
        ({"sample_aspect": Fraction(4, 3)}, "the pixel aspect 4/3 is dropped"),
        (
            {"color": ColorSpec("bt2020", "limited", (9, 9, 14, 1))},
            "BT.2020 colours will look dull",
        ),
        ({"width": 63, "height": 47}, "odd size 63x47 is padded to 64x48"),
        ({"hazards": frozenset({"vfr"})}, "the variable rate becomes 25 frames a second"),
    ],
)
def test_losses_are_said(tmp_path: Path, change: dict[str, object], says: str) -> None:
    info = replace(info_of(CLIP), **change)  # type: ignore[arg-type]
    report = write(tmp_path / "o.mp4", info, evenly(3))
    assert len(report.warnings) == 1
    assert says in report.warnings[0]


def test_depth_and_alpha_are_said(tmp_path: Path) -> None:
    info = info_of(CLIP, bits=10, alpha=True)
    report = write(tmp_path / "o.mp4", info, evenly(3), alpha=True)
    assert report.warnings == [
        "10-bit becomes 8-bit: OpenCV writes no more",
        "alpha is dropped: OpenCV cannot write it",
    ]


def test_odd_sizes_repeat_the_edge(tmp_path: Path) -> None:
    info = info_of(CLIP, (63, 47), grid=(1, 1), color=ColorSpec("rgb", "full", (2, 2, 2, 0)))
    write(tmp_path / "o.mkv", info, evenly(2), "ffv1")
    for frame in read(tmp_path / "o.mkv"):
        assert frame.shape == (48, 64, 3)
        assert np.array_equal(frame[47], frame[46])
        assert np.array_equal(frame[:, 63], frame[:, 62])


@pytest.mark.parametrize(
    "rate", [Fraction(24000, 1001), Fraction(30000, 1001), 1, 120, Fraction(1, 5)]
)
def test_constant_rates(tmp_path: Path, rate: Fraction | int) -> None:
    info = info_of(CLIP, rate=rate)
    # Matroska's clock is coarse; no frame may be lost or shown twice by its rounding.
    times = [Fraction(round(t * 1000), 1000) for t in evenly(30, rate, start=Fraction(7, 3))]
    report = write(tmp_path / "o.mp4", info, times)
    pts = read_file(tmp_path / "o.mp4").pts
    assert len(pts) == 30
    for got, put in zip(pts, evenly(30, rate), strict=True):
        assert abs(got - put) <= Fraction(1, 1000)
    assert report.warnings == []


def test_a_variable_rate_is_laid_on_a_grid(tmp_path: Path) -> None:
    """Ten frames a second, then a gap of half a second: frames stand as long as they did."""
    times = [Fraction(n, 10) for n in (0, 1, 2, 7, 8, 9)]
    info = replace(info_of(CLIP, rate=10), hazards=frozenset({"vfr"}))
    report = write(tmp_path / "o.mkv", info, times, "ffv1")
    shown = [float(f.astype(float).mean()) for f in read(tmp_path / "o.mkv")]
    assert len(shown) == 10 == report.counts["frames_out"]
    order = [0, 1, 2, 2, 2, 2, 2, 3, 4, 5]
    firsts = [shown[order.index(n)] for n in range(6)]
    assert shown == [firsts[n] for n in order]
    assert len(set(firsts)) == 6


def test_another_rate_and_the_window_end(tmp_path: Path) -> None:
    info = info_of(CLIP)
    edit = Edit(window=Window(end=Fraction(39, 100)), rate=Fraction(50))
    write(tmp_path / "o.mp4", info, evenly(10), edit=edit)
    pts = read_file(tmp_path / "o.mp4").pts
    assert len(pts) in {19, 20}, "the last frame ends with the window"
    assert all(abs(p - Fraction(i, 50)) < Fraction(1, 1000) for i, p in enumerate(pts))


def test_colons_and_percent_signs_in_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("a:b %04d.mp4"), info_of(CLIP), evenly(2))
    assert left(tmp_path) == ["a:b %04d.mp4"]


def test_an_existing_output_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "o.mp4"
    out.write_bytes(b"old")
    with pytest.raises(OutputExists):
        write(out, info_of(CLIP), evenly(2))
    assert out.read_bytes() == b"old"
    write(out, info_of(CLIP), evenly(2), overwrite=True)
    assert len(read(out)) == 2


@pytest.mark.parametrize("error", [ValueError("a stage"), KeyboardInterrupt(), EncodeError("x")])
def test_an_exception_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def run() -> None:
        info = info_of(CLIP)
        with OpencvWriter(tmp_path / "o.mp4", info, config("mp4v"), Report()) as writer:
            for batch in batches(info, evenly(8)):
                writer.write(batch)
            raise error

    with pytest.raises(type(error)):
        run()
    assert left(tmp_path) == []


def test_no_frame_no_file(tmp_path: Path) -> None:
    with pytest.raises(EmptyVideo):
        write(tmp_path / "o.mp4", info_of(CLIP), [])
    assert left(tmp_path) == []


def test_an_encoder_that_does_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cv2.VideoWriter, "fourcc", lambda *_: 0x30303030)
    with pytest.raises(EncoderUnavailable, match="OpenCV does not open mp4v"):
        write(tmp_path / "o.mp4", info_of(CLIP), evenly(2))
    assert left(tmp_path) == []


def test_frames_that_did_not_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenCV says nothing of what it could not write."""
    real = OpencvWriter._show

    def show(self: OpencvWriter, shown: object) -> None:
        if self._frames == 3:
            self._frames += 1
            return
        real(self, shown)  # type: ignore[arg-type]

    monkeypatch.setattr(OpencvWriter, "_show", show)
    with pytest.raises(EncodeError, match="7 frames instead of 8"):
        write(tmp_path / "o.mp4", info_of(CLIP), evenly(8))
    assert left(tmp_path) == []


def test_a_full_disk(tmp_path: Path) -> None:
    info = info_of(CLIP, (640, 480))
    noise = np.random.default_rng(0).integers(16, 236, (4, 480, 640), np.uint8)
    grey = torch.full((4, 240, 320), 128, dtype=torch.uint8)

    def run(out: Path) -> None:
        with OpencvWriter(out, info, config("mjpg"), Report()) as writer:
            for i in range(10):
                pts = tuple(evenly(4, start=Fraction(4 * i, 25)))
                planes = (torch.from_numpy(noise), grey, grey)
                writer.write(FrameBatch(planes, info.color, info.layout, pts, 4 * i))

    with mounted(tmp_path / "small", "size=1m"):
        with pytest.raises(DiskFull, match="small"):
            run(tmp_path / "small" / "o.avi")
        assert left(tmp_path / "small") == []


def test_frames_of_another_size_are_a_mistake(tmp_path: Path) -> None:
    other = next(batches(info_of(CLIP, (32, 48)), evenly(2)))
    with (
        pytest.raises(ValueError, match="does not fit"),
        OpencvWriter(tmp_path / "o.mp4", info_of(CLIP), config("mp4v"), Report()) as writer,
    ):
        writer.write(other)
    assert left(tmp_path) == []
