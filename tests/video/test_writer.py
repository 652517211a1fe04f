"""Frames in, the same frames out of the file; and nothing at all where something fails."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from facefusion_cli.errors import (
    DiskFull,
    EmptyVideo,
    EncodeError,
    EncoderRejected,
    EncoderUnavailable,
    IncompatibleContainer,
    Interrupted,
    OutputNotWritable,
    UnsupportedVideo,
)
from facefusion_cli.report import Report
from facefusion_cli.types import ColorSpec, FrameBatch, VideoInfo
from facefusion_cli.video import encode_thread, encoder_table
from facefusion_cli.video.encoder_table import EncoderSpec, planar_format
from facefusion_cli.video.encoders import output_time_base, plan_encoding
from facefusion_cli.video.writer import ClipWriter
from tests.clips import make_clip, planes
from tests.video.test_atomic import mounted
from tests.video.writing import batches, config, evenly, format_of, info_of, read_file, write_clip

RGB = ColorSpec("rgb", "full", (0, 1, 13, 2))
LAYOUTS = [
    (grid, bits, None) for grid in [(2, 2), (2, 1), (1, 1)] for bits in (8, 9, 10, 12, 14, 16)
] + [((1, 1), bits, RGB) for bits in (8, 9, 10, 12, 14, 16)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A clip whose only use is to be the one that the frames are said to be from."""
    folder = tmp_path / "source"
    folder.mkdir()
    return make_clip(folder / "in.mp4", frames=2).path


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) == before


def left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name != "source")


@pytest.mark.parametrize(("grid", "bits", "color"), LAYOUTS)
@pytest.mark.parametrize("size", [(64, 48), (33, 17)])
def test_ffv1_keeps_every_sample(
    tmp_path: Path, source: Path, grid, bits: int, color: ColorSpec | None, size
) -> None:
    info = info_of(source, size, grid=grid, bits=bits, color=color)
    out = tmp_path / "out.mkv"
    write_clip(out, info, evenly(5), config("ffv1"))
    written = read_file(out)
    assert written.size == size
    assert written.pix_fmt == {"gbrp": "bgr0"}.get(format_of(info), format_of(info))
    assert len(written.frames) == 5
    for i, frame in enumerate(written.frames):
        for got, expected in zip(frame, planes(format_of(info), size, i), strict=True):
            assert np.array_equal(got, expected)


@pytest.mark.parametrize(
    ("grid", "bits", "color"),
    [((2, 2), 8, None), ((1, 1), 10, None), ((1, 1), 8, RGB), ((1, 1), 16, RGB)],
)
def test_ffv1_keeps_alpha(tmp_path: Path, source: Path, grid, bits: int, color) -> None:
    info = info_of(source, grid=grid, bits=bits, color=color, alpha=True)
    out = tmp_path / "out.mkv"
    report = write_clip(out, info, evenly(3), config("ffv1"), alpha=True)
    for i, frame in enumerate(read_file(out).frames):
        for got, expected in zip(frame, planes(format_of(info, True), (64, 48), i), strict=True):
            assert np.array_equal(got, expected)
    assert report.warnings == []


def test_h264_drops_alpha_and_says_so(tmp_path: Path, source: Path) -> None:
    info = info_of(source, alpha=True)
    report = write_clip(tmp_path / "out.mp4", info, evenly(3), alpha=True)
    assert report.warnings == ["alpha is dropped: h264 cannot hold it"]


def test_alpha_follows_the_frames_not_the_header(tmp_path: Path, source: Path) -> None:
    """Some decoders drop the alpha that the header promises."""
    info = info_of(source, alpha=True)
    report = write_clip(tmp_path / "out.mkv", info, evenly(3), config("ffv1"), alpha=False)
    assert read_file(tmp_path / "out.mkv").pix_fmt == "yuv420p"
    assert report.warnings == []


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv"])
@pytest.mark.parametrize(
    "tags",
    [(1, 1, 1, 1), (6, 6, 6, 1), (5, 5, 6, 1), (1, 1, 1, 2), (9, 9, 14, 1), (2, 2, 2, 0)],
)
def test_h264_keeps_values_and_colour_tags(
    tmp_path: Path, source: Path, tags: tuple[int, int, int, int], suffix: str
) -> None:
    span = "full" if tags[3] == 2 else "limited"
    matrix = {1: "bt709", 9: "bt2020"}.get(tags[0], "bt601")
    info = info_of(source, color=ColorSpec(matrix, span, tags))  # type: ignore[arg-type]
    out = tmp_path / f"out{suffix}"
    values = [(16, 128, 128), (235, 128, 128), (81, 90, 240), (145, 54, 34), (41, 240, 110)]
    report = Report()
    with ClipWriter(out, info, config(), report) as writer:
        writer.write(patches(info, values))
    written = read_file(out)
    assert written.tags == tags
    assert written.pix_fmt == ("yuvj420p" if span == "full" else "yuv420p")
    for frame, value in zip(written.frames, values, strict=True):
        for plane, expected in zip(frame, value, strict=True):
            assert np.abs(plane.astype(int) - expected).max() <= 4
    assert report.warnings == []


def patches(info: VideoInfo, values: list[tuple[int, ...]]) -> FrameBatch:
    """One flat frame a value."""
    sx, sy = info.layout.subsampling
    kind = torch.uint8 if info.layout.bits == 8 else torch.int32
    sides = [(info.height, info.width), *[(-(-info.height // sy), -(-info.width // sx))] * 2]
    flat = tuple(
        torch.tensor([v[i] for v in values], dtype=kind)[:, None, None].repeat(1, *side)
        for i, side in enumerate(sides)
    )
    if info.layout.bits > 8:
        flat = tuple(p.to(torch.uint16) for p in flat)
    y, u, v = flat
    return FrameBatch((y, u, v), info.color, info.layout, tuple(evenly(len(values))), 0)


def test_a_full_range_that_is_not_tagged_becomes_tagged(tmp_path: Path, source: Path) -> None:
    info = info_of(source, color=ColorSpec("bt601", "full", (2, 2, 2, 0)))
    write_clip(tmp_path / "out.mp4", info, evenly(2))
    assert read_file(tmp_path / "out.mp4").tags == (2, 2, 2, 2)


@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("grid", [(2, 1), (1, 1)])
@pytest.mark.parametrize("span", [1, 2])
def test_h264_is_420_with_the_same_colours(
    tmp_path: Path, source: Path, grid, bits: int, span: int
) -> None:
    color = ColorSpec("bt709", "full" if span == 2 else "limited", (1, 1, 1, span))
    info = info_of(source, grid=grid, bits=bits, color=color)
    scale = 2 ** (bits - 8)
    values = [(16 * scale, 128 * scale, 128 * scale), (81 * scale, 90 * scale, 240 * scale)]
    report = Report()
    with ClipWriter(tmp_path / "out.mp4", info, config(), report) as writer:
        writer.write(patches(info, values))
    written = read_file(tmp_path / "out.mp4")
    assert written.frames[0][1].shape == (24, 32)
    assert written.tags == (1, 1, 1, span)
    for frame, value in zip(written.frames, values, strict=True):
        for plane, expected in zip(frame, value, strict=True):
            assert np.abs(plane.astype(int) - expected).max() <= 4 * scale
    assert report.warnings == []


@pytest.mark.parametrize("bits", [8, 10, 16])
def test_rgb_becomes_bt709_and_comes_back_as_the_same_rgb(
    tmp_path: Path, source: Path, bits: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ffx")
    info = info_of(source, grid=(1, 1), bits=bits, color=ColorSpec("rgb", "full", (2, 2, 2, 0)))
    top = 2**bits - 1
    colours = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.5, 0.5, 0.5), (1.0, 1.0, 1.0)]
    values = [tuple(round(c * top) for c in (g, b, r)) for r, g, b in colours]
    report = Report()
    with ClipWriter(tmp_path / "out.mp4", info, config(), report) as writer:
        writer.write(patches(info, values))
    written = read_file(tmp_path / "out.mp4")
    assert written.tags == (1, 1, 1, 1)
    assert "BT.709 limited" in caplog.text
    for (y, u, v), (r, g, b) in zip(written.frames, colours, strict=True):
        scale = 255 * (4 if bits > 8 else 1)
        step = 4 if bits > 8 else 1
        luma = 0.2126 * r + 0.7152 * g + 0.0722 * b
        expected = (
            (16 + 219 * luma) * step,
            (128 + 224 * (b - luma) / 1.8556) * step,
            (128 + 224 * (r - luma) / 1.5748) * step,
        )
        for plane, value in zip((y, u, v), expected, strict=True):
            assert np.abs(plane.astype(float) - value).max() <= 4 * scale / 255
    assert report.warnings == (["16-bit becomes 10-bit: h264 has no more"] if bits == 16 else [])


@pytest.mark.parametrize("bits", [9, 10, 12])
def test_deep_clips_become_high_10(tmp_path: Path, source: Path, bits: int) -> None:
    info = info_of(source, bits=bits)
    report = write_clip(tmp_path / "out.mp4", info, evenly(4), config(crf=4))
    written = read_file(tmp_path / "out.mp4")
    assert written.pix_fmt == "yuv420p10le"
    for i, frame in enumerate(written.frames):
        for got, put in zip(frame, planes(format_of(info), (64, 48), i), strict=True):
            assert np.abs(got - put * 2.0 ** (10 - bits)).mean() <= 3
    assert report.warnings == (["12-bit becomes 10-bit: h264 has no more"] if bits == 12 else [])


@pytest.mark.parametrize("size", [(63, 48), (64, 47), (63, 47), (1, 1), (2, 2)])
@pytest.mark.parametrize("grid", [(2, 2), (2, 1), (1, 1)])
def test_odd_sizes_are_padded_and_said(tmp_path: Path, source: Path, size, grid) -> None:
    info = info_of(source, size, grid=grid)
    report = write_clip(tmp_path / "out.mp4", info, evenly(2), config(crf=1))
    written = read_file(tmp_path / "out.mp4")
    w, h = size
    even = (w + w % 2, h + h % 2)
    assert written.size == even
    luma, ideal = written.frames[0][0].astype(int), planes(format_of(info), size, 0)[0]
    padded = np.pad(ideal, ((0, h % 2), (0, w % 2)), mode="edge").astype(int)
    assert np.abs(luma - padded).mean() <= 2
    if size == even:
        assert report.warnings == []
    else:
        assert [w for w in report.warnings if f"padded to {even[0]}x{even[1]}" in w]
        assert len(report.warnings) == 1


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".mov"])
def test_variable_rates_keep_their_times(tmp_path: Path, source: Path, suffix: str) -> None:
    steps = [33, 33, 34, 133, 133, 134, 5, 2500, 40, 40, 1, 7000, 40]
    times = [Fraction(sum(steps[:i]), 1000) for i in range(len(steps) + 1)]
    info = info_of(source, rate=Fraction(320000, 23031), time_base=Fraction(1, 1000))
    write_clip(tmp_path / f"out{suffix}", info, times)
    written = read_file(tmp_path / f"out{suffix}")
    assert len(written.pts) == len(times)
    for got, expected in zip(written.pts, times, strict=True):
        assert abs(got - expected) <= Fraction(1, 1000)
    end = times[-1] + Fraction(steps[-1], 1000)
    assert abs(shown_for(tmp_path / f"out{suffix}") - end) <= Fraction(1, 1000)


def shown_for(path: Path) -> Fraction:
    """How long a player shows the file: what its header says.

    FFmpeg recomputes an MP4's from decoding times, which with long gaps are not those of showing.
    """
    if path.suffix == ".mkv":
        with av.open(path) as file:
            return Fraction(file.duration, 1_000_000)
    data = path.read_bytes()
    at = data.index(b"mvhd")
    ticks, duration = (int.from_bytes(data[at + n : at + n + 4], "big") for n in (16, 20))
    return Fraction(duration, ticks)


@pytest.mark.parametrize("start", [Fraction(-1, 2), Fraction(28, 10), Fraction(95443)])
def test_a_silent_clip_starts_at_zero(tmp_path: Path, source: Path, start: Fraction) -> None:
    info = info_of(source, time_base=Fraction(1, 90000))
    write_clip(tmp_path / "out.mp4", info, evenly(5, start=start))
    assert read_file(tmp_path / "out.mp4").pts == evenly(5)


@pytest.mark.parametrize(
    "rate", [Fraction(24000, 1001), Fraction(30000, 1001), 24, 50, 120, 1, Fraction(1, 5)]
)
def test_constant_rates_are_exact(tmp_path: Path, source: Path, rate) -> None:
    for time_base in (1 / Fraction(rate), Fraction(1, 1_200_000)):
        info = info_of(source, rate=rate, time_base=time_base)
        out = tmp_path / f"{time_base.denominator}.mp4"
        write_clip(out, info, evenly(10, rate))
        for got, expected in zip(read_file(out).pts, evenly(10, rate), strict=True):
            assert abs(got - expected) <= Fraction(1, 90000)
        assert abs(shown_for(out) - 10 / Fraction(rate)) <= Fraction(1, 10000)


def test_times_that_do_not_grow_are_moved_and_said(tmp_path: Path, source: Path) -> None:
    times = [Fraction(i, 25) for i in (0, 1, 1, 1, 2, 1, 3)]
    report = write_clip(tmp_path / "out.mp4", info_of(source), times)
    pts = read_file(tmp_path / "out.mp4").pts
    assert len(pts) == 7
    assert all(a < b for a, b in pairwise(pts))
    assert abs(pts[-1] - Fraction(3, 25)) < Fraction(1, 1000)
    assert report.warnings == ["3 timestamps did not grow and were moved behind the one before"]


def test_time_bases() -> None:
    for fraction in ((1, 25), (1001, 30000), (1, 1000), (1, 12800), (1, 90000), (1, 1000000)):
        base = output_time_base(Fraction(*fraction))
        assert Fraction(1, 90000) <= base <= Fraction(1, 10000)
        if fraction[1] <= 90000:
            assert (Fraction(*fraction) / base).denominator == 1


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".mov"])
def test_the_pixel_aspect_is_kept(tmp_path: Path, source: Path, suffix: str) -> None:
    info = info_of(source, sample_aspect=Fraction(64, 45))
    write_clip(tmp_path / f"out{suffix}", info, evenly(2))
    assert read_file(tmp_path / f"out{suffix}").sample_aspect == Fraction(64, 45)


def test_the_index_comes_first(tmp_path: Path, source: Path) -> None:
    write_clip(tmp_path / "out.mp4", info_of(source), evenly(5))
    data = (tmp_path / "out.mp4").read_bytes()
    assert 0 < data.find(b"moov") < data.find(b"mdat")


def test_preset_and_crf_reach_the_encoder(tmp_path: Path, source: Path) -> None:
    info = info_of(source, (320, 240))
    for crf in (10, 40):
        write_clip(tmp_path / f"{crf}.mp4", info, evenly(10), config(crf=crf, preset="ultrafast"))
    good, poor = ((tmp_path / f"{crf}.mp4").read_bytes() for crf in (10, 40))
    assert len(good) > 1.5 * len(poor)
    assert b"crf=40" in poor
    assert b"subme=0" in poor, "ultrafast"


def test_the_report(tmp_path: Path, source: Path) -> None:
    report = write_clip(tmp_path / "out.mp4", info_of(source), evenly(10))
    assert report.counts["frames_out"] == 10
    assert report.facts["encoder"] == "libx264 preset veryfast crf 18 yuv420p"
    assert report.stages["write"].seconds > 0
    assert report.stages["wait_write"].calls >= 3


@pytest.mark.parametrize(
    ("name", "encoder", "reason"),
    [
        ("out.avi", "h264", r"unknown container \.avi.*\.mp4, \.mov, \.mkv"),
        ("out", "h264", "no suffix"),
        ("out.png", "h264", "a video cannot be written to an image"),
        ("out.mp4", "ffv1", r"\.mp4 cannot hold ffv1.*\.mkv.*\.mp4 takes encoder h264"),
    ],
)
def test_containers_that_do_not_fit(
    tmp_path: Path, source: Path, name: str, encoder: str, reason: str
) -> None:
    with pytest.raises(IncompatibleContainer, match=reason) as caught:
        ClipWriter(tmp_path / name, info_of(source), config(encoder), Report())
    assert caught.value.exit_code == 2
    assert left(tmp_path) == []


def test_an_encoder_says_why_it_refuses(tmp_path: Path, source: Path) -> None:
    info = info_of(source, (17000, 16))
    with pytest.raises(EncoderRejected, match=r"invalid width x height \(17000x16\)"):
        ClipWriter(tmp_path / "out.mp4", info, config(), Report())
    assert av.logging.get_level() is None


def test_a_missing_encoder(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = encoder_table.ENCODERS["h264"]
    for codec, reason in (("nosuch", "no encoder nosuch"), ("h264_nvenc", "does not open")):
        hardware = codec.endswith("_nvenc")
        absent = EncoderSpec(codec, spec.containers, spec.pixel_format, hardware=hardware)
        monkeypatch.setitem(encoder_table.ENCODERS, "h264", absent)
        with pytest.raises(EncoderUnavailable, match=reason):
            ClipWriter(tmp_path / "out.mp4", info_of(source), config(), Report())


def test_there_is_no_format_for_every_depth(source: Path) -> None:
    with pytest.raises(UnsupportedVideo, match="yuv420p11le"):
        planar_format(info_of(source, bits=11).layout, False, False)
    plan = plan_encoding(Path("o.mkv"), info_of(source, bits=10), config("ffv1").output)
    assert plan.pixel_format == "yuv420p10le"


def test_frames_of_another_size_are_a_mistake(tmp_path: Path, source: Path) -> None:
    other = next(batches(info_of(source, (32, 48)), evenly(2)))
    with (
        pytest.raises(ValueError, match="does not fit"),
        ClipWriter(tmp_path / "out.mp4", info_of(source), config(), Report()) as writer,
    ):
        writer.write(other)
    assert left(tmp_path) == []


def test_no_frame_no_file(tmp_path: Path, source: Path) -> None:
    with (
        pytest.raises(EmptyVideo),
        ClipWriter(tmp_path / "out.mp4", info_of(source), config(), Report()),
    ):
        pass
    assert left(tmp_path) == []


def run_until(
    out: Path, info: VideoInfo, frames: int, then: Callable[[], None], size: int = 4
) -> None:
    with ClipWriter(out, info, config(queue=16), Report()) as writer:
        for batch in batches(info, evenly(frames), size=size):
            writer.write(batch)
        then()


@pytest.mark.parametrize("frames", [0, 4, 80])
@pytest.mark.parametrize(
    "error", [ValueError("a stage"), KeyboardInterrupt(), Interrupted(15), EncodeError("x")]
)
def test_an_exception_in_the_block_leaves_nothing(
    tmp_path: Path, source: Path, error: BaseException, frames: int
) -> None:
    def fail() -> None:
        raise error

    begin = time.perf_counter()
    with pytest.raises(type(error)) as caught:
        run_until(tmp_path / "out.mp4", info_of(source), frames, fail)
    assert caught.value is error
    assert left(tmp_path) == []
    assert time.perf_counter() - begin < 5


@pytest.mark.parametrize("encoder", ["h264", "ffv1"])
def test_the_folder_is_removed_meanwhile(tmp_path: Path, source: Path, encoder: str) -> None:
    info = info_of(source)
    out = tmp_path / "folder" / ("out.mp4" if encoder == "h264" else "out.mkv")
    out.parent.mkdir()

    def run() -> None:
        with ClipWriter(out, info, config(encoder), Report()) as writer:
            for batch in batches(info, evenly(4)):
                writer.write(batch)
            while out.parent.exists():  # the writer may be creating its file just now
                shutil.rmtree(out.parent, ignore_errors=True)

    with pytest.raises(OutputNotWritable, match="does not exist any more") as caught:
        run()
    assert caught.value.exit_code == 5


def test_an_existing_output_survives_a_failure(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out.mp4"
    out.write_bytes(b"old")

    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        run_until(out, info_of(source), 8, fail)
    assert out.read_bytes() == b"old"
    write_clip(out, info_of(source), evenly(4), config(overwrite=True))
    assert len(read_file(out).frames) == 4


def break_after(monkeypatch: pytest.MonkeyPatch, frames: int, error: Exception) -> None:
    """Makes the encoder give up at a frame."""
    real = encode_thread.ClipEncoder._encode

    def encode(self: encode_thread.ClipEncoder, frame: av.VideoFrame | None) -> None:
        if self.frames > frames:
            raise error
        real(self, frame)

    monkeypatch.setattr(encode_thread.ClipEncoder, "_encode", encode)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EncoderRejected("libx264 gave up"), EncoderRejected),
        (av.error.OSError(28, "No space left on device"), DiskFull),
        (av.error.ArgumentError(22, "Invalid argument"), EncodeError),
        (MemoryError(), MemoryError),
    ],
)
def test_an_encoder_that_fails_in_mid_clip(
    tmp_path: Path,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    kind: type[Exception],
) -> None:
    break_after(monkeypatch, 10, error)
    written: list[FrameBatch] = []
    with pytest.raises(kind):
        feed(tmp_path / "out.mp4", info_of(source), 400, written)
    assert len(written) < 10, "the error comes while frames are still written, not at the end"
    assert left(tmp_path) == []


def feed(out: Path, info: VideoInfo, frames: int, written: list[FrameBatch]) -> None:
    with ClipWriter(out, info, config(queue=1), Report()) as writer:
        for batch in batches(info, evenly(frames)):
            writer.write(batch)
            written.append(batch)


def test_an_encoder_that_fails_at_the_end(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(self: encode_thread.ClipEncoder) -> None:
        raise EncoderRejected("libx264 gave up")

    monkeypatch.setattr(encode_thread.ClipEncoder, "finish", finish)
    with pytest.raises(EncoderRejected):
        write_clip(tmp_path / "out.mp4", info_of(source), evenly(8))
    assert left(tmp_path) == []


def test_a_real_encoder_error_is_an_encoder_error(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libx264 is handed a frame of another format after the first ones."""
    real = encode_thread.ClipEncoder._encode

    def encode(self: encode_thread.ClipEncoder, frame: av.VideoFrame | None) -> None:
        if frame is not None and self.frames > 3:
            self._video.codec_context.encode(None)
        real(self, frame)

    monkeypatch.setattr(encode_thread.ClipEncoder, "_encode", encode)
    with pytest.raises((EncoderRejected, EncodeError), match=r"gave up|cannot be written"):
        write_clip(tmp_path / "out.mp4", info_of(source), evenly(40))
    assert left(tmp_path) == []


def test_the_caller_waits_while_the_queue_is_full(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    real = encode_thread.ClipEncoder.encode

    def encode(self: encode_thread.ClipEncoder, batch, behind) -> None:
        gate.wait(10)
        real(self, batch, behind)

    monkeypatch.setattr(encode_thread.ClipEncoder, "encode", encode)
    info, put = info_of(source), []
    with ClipWriter(tmp_path / "out.mp4", info, config(queue=2), Report()) as writer:

        def feed() -> None:
            for batch in batches(info, evenly(40)):
                writer.write(batch)
                put.append(batch)

        feeder = threading.Thread(target=feed)
        feeder.start()
        deadline = time.monotonic() + 10
        while len(put) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        assert len(put) == 3, "one at work and two in the queue"
        gate.set()
        feeder.join()
    assert len(read_file(tmp_path / "out.mp4").frames) == 40


@pytest.mark.parametrize("size", [4, 64])
def test_a_stop_does_not_wait_for_frames_that_wait(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Each frame takes long; those in the queue or left in a batch are not encoded any more."""
    encoded = []
    real = encode_thread.ClipEncoder._encode

    def encode(self: encode_thread.ClipEncoder, frame: av.VideoFrame | None) -> None:
        encoded.append(frame)
        time.sleep(0.05)
        real(self, frame)

    monkeypatch.setattr(encode_thread.ClipEncoder, "_encode", encode)

    def stop() -> None:
        deadline = time.monotonic() + 10
        while not encoded and time.monotonic() < deadline:
            time.sleep(0.01)
        raise Interrupted(15)

    with pytest.raises(Interrupted):
        run_until(tmp_path / "out.mp4", info_of(source), 64, stop, size)
    assert len(encoded) < 20
    assert left(tmp_path) == []


def test_a_full_disk(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "small"
    with mounted(folder, "size=1m"):
        with pytest.raises(DiskFull, match="small") as caught:
            write_noise(folder / "out.mp4", info_of(source, (640, 480)))
        assert caught.value.exit_code == 5
        assert left(folder) == []


def write_noise(out: Path, info: VideoInfo) -> None:
    noise = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 480, 640), np.uint8))
    grey = torch.full((4, 240, 320), 128, dtype=torch.uint8)
    with ClipWriter(out, info, config(preset="ultrafast"), Report()) as writer:
        for i in range(50):
            pts = tuple(evenly(4, start=Fraction(4 * i, 25)))
            fresh = (noise.clone(), grey.clone(), grey.clone())
            writer.write(FrameBatch(fresh, info.color, info.layout, pts, 4 * i))


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_a_file_that_is_not_sound_is_not_kept(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    real = encode_thread.ClipEncoder.finish

    def finish(self: encode_thread.ClipEncoder) -> None:
        real(self)
        self.frames += 1

    monkeypatch.setattr(encode_thread.ClipEncoder, "finish", finish)
    with pytest.raises(EncodeError, match="8 frames instead of 9"):
        write_clip(tmp_path / f"out{suffix}", info_of(source), evenly(8))

    def cut(self: encode_thread.ClipEncoder) -> None:
        real(self)
        path = Path(self._sink.name)
        path.write_bytes(path.read_bytes()[:300])

    monkeypatch.setattr(encode_thread.ClipEncoder, "finish", cut)
    with pytest.raises(EncodeError, match="not sound"):
        write_clip(tmp_path / f"out{suffix}", info_of(source), evenly(8))
    assert left(tmp_path) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_frames_on_a_gpu(tmp_path: Path, source: Path) -> None:
    info = info_of(source)
    with ClipWriter(tmp_path / "out.mkv", info, config("ffv1"), Report()) as writer:
        for batch in batches(info, evenly(40)):
            writer.write(batch.to("cuda"))
    for i, frame in enumerate(read_file(tmp_path / "out.mkv").frames):
        for got, expected in zip(frame, planes("yuv420p", (64, 48), i), strict=True):
            assert np.array_equal(got, expected)


def test_planes_are_not_copied_on_the_way(source: Path) -> None:
    from facefusion_cli.video.frames import FrameMaker, download

    for encoder, info in (("h264", info_of(source)), ("ffv1", info_of(source, bits=10))):
        batch = next(batches(info, evenly(2)))
        host = download(batch)
        plan = plan_encoding(Path("o.mkv"), info, config(encoder).output)
        frame = FrameMaker(plan).frame(tuple(p[1] for p in host.planes))
        for plane, tensor in zip(frame.planes, batch.planes, strict=True):
            shared = torch.frombuffer(plane, dtype=tensor.dtype)
            assert shared.data_ptr() == tensor[1].data_ptr()
