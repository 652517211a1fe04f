"""One contract for both readers: true timestamps, every frame, the right picture, upright.

A new backend is one line in BACKENDS; a new kind of clip is one line in CLIPS.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
import torch

from facefusion_cli.errors import CorruptInput, FfxError, TruncatedInput, UnsupportedVideo
from facefusion_cli.report import Report
from facefusion_cli.types import BgrBatch, FrameBatch
from facefusion_cli.video import frame_decoder
from facefusion_cli.video.buffers import BufferPool
from facefusion_cli.video.probe import probe
from facefusion_cli.video.reader import Reader, open_reader
from tests.clips import Clip, damage, frame_of, make_clip, packet_pts, planes, truncate
from tests.video.test_probe import mixed_clip

BACKENDS = ("opencv", "pyav")

LOSSLESS = {"options": {"qp": "0"}}
CLIPS: dict[str, dict[str, Any]] = {
    "cfr with sound.mp4": {"audio": True},
    "ntsc.mp4": {"fps": Fraction(30_000, 1001), "audio": True},
    "vfr.mp4": {"pts": [0, 0.1, 0.15, 0.5, 0.53, 1, 1.04, 2, 2.01, 2.3]},
    "vfr.mkv": {"pts": [0, 0.1, 0.15, 0.5, 0.53, 1, 1.04, 2, 2.01, 2.3], "audio": True},
    "rot90.mp4": {"rotation": 90},
    "rot180.mp4": {"rotation": 180},
    "rot270.mp4": {"rotation": 270, "audio": True},
    "odd444.mp4": {"size": (65, 49), "pix_fmt": "yuv444p"},
    "odd420.mkv": {"size": (65, 49), "codec": "ffv1"},
    "late.mp4": {"start": 0.5, "audio": True},
    "late.mkv": {"start": 0.5, "audio": True},
    "late_sound.mp4": {"audio": True, "audio_start": 0.5},
    "sound.mkv": {"audio": True},
    "stream.ts": {"audio": True, "start": 1.4},
    "422.mp4": {"pix_fmt": "yuv422p"},
    "sar.mp4": {"sar": Fraction(4, 3)},
    "full.mp4": {"pix_fmt": "yuvj420p", "color": (1, 1, 1, 2)},
    "709.mp4": {"color": (1, 1, 1, 1)},
    "rgb.avi": {"codec": "utvideo", "pix_fmt": "gbrp"},
    "rgb.mkv": {"codec": "ffv1", "pix_fmt": "bgr0"},
    "one.mp4": {"frames": 1},
    "vp9.webm": {"codec": "libvpx-vp9", "audio": True, "audio_codec": "libopus"},
    "mpeg4.avi": {"codec": "mpeg4", "options": {"qscale": "2", "b": "4000000"}},
    "hevc.mp4": {"codec": "libx265"},
    "über 50%d: 顔.mp4": {"audio": True},
    "10bit.mkv": {"codec": "ffv1", "pix_fmt": "yuv420p10le"},
    "alpha.mkv": {"codec": "ffv1", "pix_fmt": "yuva420p"},
    "mirrored.mp4": {"rotation": 90, "mirrored": True},
    "interlaced.mp4": {"interlaced": True},
}
ONLY_PYAV = {"10bit.mkv", "alpha.mkv", "mirrored.mp4", "interlaced.mp4"}


@pytest.fixture(scope="module")
def clip_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Clip]:
    """Makes each clip of CLIPS once."""
    folder = tmp_path_factory.mktemp("clips")
    made: dict[str, Clip] = {}

    def get(name: str) -> Clip:
        if name not in made:
            made[name] = make_clip(folder / name, **CLIPS[name])
        return made[name]

    return get


class Read:
    """Everything a reader gave."""

    def __init__(self, path: Path, decoder: str, n: int = 5) -> None:
        self.info = probe(path)
        self.report = Report()
        with open_reader(self.info, decoder, self.report) as reader:
            self.reader: Reader = reader
            self.batches = list(reader.batches(n))
        self.loss = reader.check_complete()
        self.pts = [t for b in self.batches for t in b.pts]

    def frames(self) -> list[list[np.ndarray]]:
        """Planes, or the one BGR picture, of every frame."""
        out = []
        for batch in self.batches:
            if isinstance(batch, BgrBatch):
                parts = [batch.bgr]
            else:
                parts = [*batch.planes, *([batch.alpha] if batch.alpha is not None else [])]
            out += [[p[i].numpy() for p in parts] for i in range(len(batch))]
        return out

    def values(self) -> list[float]:
        """The value at the centre of every frame that Clip.value encodes the index with."""
        color = self.info.color
        found = []
        for frame in self.frames():
            centre = [p[p.shape[0] // 2, p.shape[1] // 2].astype(float) for p in frame]
            if len(frame) > 1:
                value = centre[2 if color.matrix == "rgb" else 0]
                found.append(float(value) / 2 ** (self.info.layout.bits - 8))
                continue
            b, g, r = centre[0]
            kr, kb = {"bt709": (0.2126, 0.0722)}.get(color.matrix, (0.299, 0.114))
            luma = kr * r + (1 - kr - kb) * g + kb * b
            luma = luma if color.range == "full" else 16 + luma * 219 / 255
            found.append(float(r if color.matrix == "rgb" else luma))
        return found


@pytest.mark.parametrize("decoder", BACKENDS)
@pytest.mark.parametrize("name", CLIPS)
def test_contract(clip_of: Callable[[str], Clip], name: str, decoder: str) -> None:
    if decoder == "opencv" and name in ONLY_PYAV:
        with pytest.raises(UnsupportedVideo, match="OpenCV would get this video wrong"):
            Read(clip_of(name).path, "opencv")
        return
    clip = clip_of(name)
    read = Read(clip.path, decoder)
    assert read.loss is None
    assert read.report.warnings == []
    assert read.reader.frames_decoded == clip.frames
    assert (read.reader.decode_failures, read.reader.frames_lost) == (0, 0)
    assert read.pts == packet_pts(clip.path)
    shift = read.pts[0] - clip.pts[0]
    for given, put in zip(read.pts, clip.pts, strict=True):
        assert abs(given - put - shift) <= Fraction(1, 1000)
    for index, value in enumerate(read.values()):
        assert abs(value - clip.value(index)) <= 6, index
    assert (read.info.width, read.info.height) == clip.upright
    assert [b.first_index for b in read.batches] == list(range(0, clip.frames, 5))
    assert all(len(b) == 5 for b in read.batches[:-1])
    for frame in read.frames():
        assert frame[0].shape[:2] == clip.upright[::-1]
    assert read.report.stages["read"].calls >= len(read.batches)
    assert read.report.facts["decoder"] == decoder


@pytest.mark.parametrize("name", sorted(set(CLIPS) - ONLY_PYAV))
def test_both_readers_agree(clip_of: Callable[[str], Clip], name: str) -> None:
    first, second = (Read(clip_of(name).path, d) for d in BACKENDS)
    assert first.pts == second.pts


@pytest.mark.parametrize("name", sorted(CLIPS))
def test_auto_takes_opencv_unless_it_is_wrong(clip_of: Callable[[str], Clip], name: str) -> None:
    report = Report()
    with open_reader(probe(clip_of(name).path), "auto", report):
        assert report.facts["decoder"] == ("pyav" if name in ONLY_PYAV else "opencv")


def test_hdr_is_not_for_opencv(tmp_path: Path) -> None:
    clip = make_clip(
        tmp_path / "pq.mp4", codec="libx265", pix_fmt="yuv420p10le", color=(9, 9, 16, 1)
    )
    with pytest.raises(UnsupportedVideo, match="OpenCV would get this video wrong: it is HDR"):
        open_reader(probe(clip.path), "opencv", Report())
    assert Read(clip.path, "auto").reader.frames_decoded == clip.frames


EXACT: list[tuple[str, str, str, dict[str, Any]]] = [
    # suffix, pixel format of the file, format its planes shall have, more
    ("mkv", "yuv420p", "yuv420p", {}),
    ("mkv", "yuv422p", "yuv422p", {}),
    ("mkv", "yuv444p", "yuv444p", {}),
    ("mkv", "yuv420p", "yuv420p", {"size": (67, 45)}),
    ("mkv", "yuv420p10le", "yuv420p10le", {}),
    ("mkv", "yuv422p10le", "yuv422p10le", {"size": (66, 50)}),
    ("mkv", "yuv444p12le", "yuv444p12le", {}),
    ("mkv", "yuv420p16le", "yuv420p16le", {}),
    ("mkv", "yuva420p", "yuva420p", {}),
    ("mkv", "yuva444p10le", "yuva444p10le", {}),
    ("mkv", "gbrp10le", "gbrp10le", {}),
    ("mkv", "bgr0", "gbrp", {}),
    ("mkv", "bgra", "gbrap", {}),
    ("mkv", "gray", "gray", {}),
    ("mkv", "gray10le", "gray10le", {}),
    ("avi", "gbrp", "gbrp", {"codec": "utvideo"}),
    ("nut", "nv12", "yuv420p", {"codec": "rawvideo"}),
    ("nut", "rgb24", "gbrp", {"codec": "rawvideo"}),
    ("mp4", "yuv420p", "yuv420p", {"codec": "libx264", "options": {"qp": "0"}, "frames": 40}),
    ("mp4", "yuv420p", "yuv420p", {"codec": "libx264", "options": {"qp": "0"}, "rotation": 90}),
    ("mp4", "yuv422p", "yuv422p", {"codec": "libx264", "options": {"qp": "0"}, "rotation": 180}),
    ("mp4", "yuv420p", "yuv420p", {"codec": "libx264", "options": {"qp": "0"}, "rotation": 270}),
    ("mp4", "yuv420p", "yuv420p", {"codec": "libx264", "options": {"qp": "0"}, "mirrored": True}),
    (
        "mp4",
        "yuv444p",
        "yuv444p",
        {
            "codec": "libx264",
            "options": {"qp": "0"},
            "rotation": 270,
            "mirrored": True,
            "size": (65, 49),
        },
    ),
]


@pytest.mark.parametrize(("suffix", "stored", "carried", "how"), EXACT)
def test_planes_are_the_files_own_bytes(
    tmp_path: Path, suffix: str, stored: str, carried: str, how: dict[str, Any]
) -> None:
    clip = make_clip(tmp_path / f"clip.{suffix}", **{"codec": "ffv1", "pix_fmt": stored, **how})
    read = Read(clip.path, "pyav")
    frames = read.frames()
    assert len(frames) == clip.frames
    for index, frame in enumerate(frames):
        truth = planes(carried, clip.size, index)
        truth = [np.rot90(p, clip.rotation // 90) for p in truth]
        truth = [p[:, ::-1] if clip.mirrored else p for p in truth]
        if carried.startswith("gray"):
            assert (frame[1] == 1 << (read.info.layout.bits - 1)).all()
            assert (frame[2] == 1 << (read.info.layout.bits - 1)).all()
            frame = frame[:1]
        assert len(frame) == len(truth)
        for got, put in zip(frame, truth, strict=True):
            assert got.dtype == put.dtype
            np.testing.assert_array_equal(got, put)


@pytest.mark.parametrize(
    ("stored", "how"),
    [
        ("yuv440p", {}),
        ("yuv411p", {}),
        ("yuv410p", {}),
        ("yuv422p", {"codec": "libx264", "options": {"qp": "0"}, "rotation": 90}),
        ("yuv420p", {"codec": "ffv1", "size": (65, 49)}),
        ("yuvj422p", {"codec": "mjpeg", "options": {"qmin": "1", "qmax": "1"}}),
    ],
)
def test_other_chroma_grids_keep_luma_and_range(
    tmp_path: Path, stored: str, how: dict[str, Any]
) -> None:
    suffix = "mp4" if how.get("rotation") else "mkv"
    clip = make_clip(tmp_path / f"clip.{suffix}", **{"codec": "ffv1", "pix_fmt": stored, **how})
    read = Read(clip.path, "pyav")
    grid = read.info.layout.subsampling
    near = 3 if how.get("codec") == "mjpeg" else 0
    for index, frame in enumerate(read.frames()):
        ideal = planes(
            {(1, 1): "yuv444p", (2, 1): "yuv422p"}.get(grid, "yuv420p"), clip.size, index
        )
        ideal = [np.rot90(p, clip.rotation // 90) for p in ideal]
        for plane, (got, put) in enumerate(zip(frame, ideal, strict=True)):
            assert np.abs(got.astype(int) - put).max() <= (near if plane == 0 else 4), plane


def test_rows_stored_from_the_last_to_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some decoders give bottom-up pictures with a negative line size, as FFmpeg's vflip does."""

    def bottom_up() -> Iterator[av.VideoFrame]:
        graph = av.filter.Graph()
        fmt = av.VideoFormat("yuv420p", 64, 48)
        source = graph.add_buffer(width=64, height=48, format=fmt, time_base=Fraction(1, 25))
        graph.link_nodes(source, graph.add("vflip"), graph.add("buffersink")).configure()
        graph.vpush(frame_of("yuv420p", (64, 48), planes("yuv420p", (64, 48), 3)))
        frame = graph.vpull()
        assert frame.planes[0].line_size < 0
        yield frame

    clip = make_clip(tmp_path / "clip.mp4")
    with open_reader(probe(clip.path), "pyav", Report()) as reader:
        monkeypatch.setattr(reader._decoder, "frames", bottom_up)  # type: ignore[attr-defined]
        (batch,) = reader.batches(1)
    assert isinstance(batch, FrameBatch)
    for got, put in zip(batch.planes, planes("yuv420p", (64, 48), 3), strict=True):
        np.testing.assert_array_equal(got[0].numpy(), put[::-1])


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_opencv_pixels(tmp_path: Path, rotation: int) -> None:
    clip = make_clip(
        tmp_path / "clip.mp4", pix_fmt="yuv444p", size=(65, 49), rotation=rotation, **LOSSLESS
    )
    for index, (bgr,) in enumerate(Read(clip.path, "opencv").frames()):
        y, u, v = (p.astype(float) for p in clip.upright_planes(index))
        y, u, v = 255 / 219 * (y - 16), 255 / 224 * (u - 128), 255 / 224 * (v - 128)
        truth = np.stack([y + 1.772 * u, y - 0.344136 * u - 0.714136 * v, y + 1.402 * v], -1)
        assert np.abs(bgr - truth.clip(0, 255)).max() <= 2


def test_opencv_pixels_of_rgb(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.mkv", codec="ffv1", pix_fmt="bgr0")
    for index, (bgr,) in enumerate(Read(clip.path, "opencv").frames()):
        np.testing.assert_array_equal(bgr, clip.planes(index)[0][:, :, :3])


def combing(y: np.ndarray) -> float:
    """How much rows differ from the mean of their neighbours, where the bar moves."""
    rows = y[3 * y.shape[0] // 4 + 2 :].astype(float)
    return float(np.abs(rows[1:-1] - (rows[:-2] + rows[2:]) / 2).mean())


def test_interlaced_frames_are_deinterlaced_one_for_one(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.mp4", size=(128, 96), frames=20, interlaced=True)
    read = Read(clip.path, "auto")
    assert read.pts == packet_pts(clip.path)
    stored = [combing(clip.planes(i)[0]) for i in range(20)]
    clean = [combing(frame[0]) for frame in read.frames()]
    assert sum(stored) / 20 > 8
    assert sum(clean) < sum(stored) / 10
    assert max(clean) < 2


def test_interlacing_that_begins_late(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ffx")
    path = mixed_clip(tmp_path / "mixed.ts", (128, 96))
    read = Read(path, "auto")
    assert len(read.pts) == 100
    assert read.pts == packet_pts(path)
    assert "interlaced from frame 50" in caplog.text
    assert "OpenCV gets this video wrong: it is interlaced" in caplog.text
    frames = read.frames()
    for index in (20, 49):
        value = planes("yuv420p", (128, 96), index)[0][48, 64]
        assert abs(int(frames[index][0][48, 64]) - int(value)) <= 4
    assert max(combing(f[0]) for f in frames) < 2


def sizes_clip(path: Path) -> Path:
    """Ten frames of 64x48, then ten of 96x80, in one stream."""
    with av.open(path, "w") as sink:
        video = sink.add_stream("libx264", rate=25)
        video.width, video.height = 64, 48
        video.codec_context.open()
        count = 0
        for size in ((64, 48), (96, 80)):
            encoder = av.CodecContext.create("libx264", "w")
            encoder.options = {"preset": "veryfast", "crf": "8", "bf": "0"}
            encoder.width, encoder.height = size
            encoder.pix_fmt, encoder.time_base = "yuv420p", Fraction(1, 25)
            packets = []
            for _ in range(10):
                frame = frame_of("yuv420p", size, planes("yuv420p", size, count))
                frame.pts, frame.time_base = count, Fraction(1, 25)
                packets += encoder.encode(frame)
                count += 1
            for packet in [*packets, *encoder.encode(None)]:
                packet.stream = video
                sink.mux(packet)
    return path


def test_a_size_that_changes_midway(tmp_path: Path) -> None:
    clip = sizes_clip(tmp_path / "sizes.ts")
    # OpenCV scales such frames itself and does not tell.
    with pytest.raises(UnsupportedVideo, match="change midway"):
        Read(clip, "opencv")
    read = Read(clip, "auto")
    assert len(read.pts) == 20
    assert ["96x80" in w for w in read.report.warnings] == [True]
    for index, value in enumerate(read.values()):
        truth = planes("yuv420p", (64, 48), index)[0][24, 32]
        assert abs(value - int(truth)) <= 6, index


def test_an_opencv_that_does_not_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Growing:
        def __init__(self, capture: cv2.VideoCapture) -> None:
            self._capture = capture
            self.get, self.release = capture.get, capture.release

        def read(self, into: np.ndarray) -> tuple[bool, np.ndarray]:
            there, image = self._capture.read(into)
            return there, cv2.resize(image, (96, 80)) if there else image

    clip = make_clip(tmp_path / "clip.mp4")
    report = Report()
    with open_reader(probe(clip.path), "opencv", report) as reader:
        monkeypatch.setattr(reader, "_capture", Growing(reader._capture))  # type: ignore[attr-defined]
        (batch,) = reader.batches(20)
    assert len(report.warnings) == 1
    assert "96x80" in report.warnings[0]
    assert isinstance(batch, BgrBatch)
    assert tuple(batch.bgr.shape) == (12, 48, 64, 3)


@pytest.mark.parametrize("decoder", BACKENDS)
@pytest.mark.parametrize("suffix", ["mkv", "mp4", "webm", "avi"])
def test_truncated(tmp_path: Path, suffix: str, decoder: str) -> None:
    how: dict[str, Any] = {
        "mkv": {"audio": True},
        "mp4": {"audio": True, "container_options": {"movflags": "+faststart"}},
        "webm": {"codec": "libvpx-vp9"},
        "avi": {"codec": "mpeg4"},
    }[suffix]
    options = {"g": "10", **({"b": "4000000"} if suffix == "avi" else {})}
    clip = make_clip(tmp_path / f"whole.{suffix}", frames=100, options=options, **how)
    assert Read(clip.path, decoder).loss is None
    cut = truncate(clip.path, tmp_path / f"cut.{suffix}", 0.6)
    read = Read(cut, decoder)
    assert isinstance(read.loss, TruncatedInput)
    assert read.loss.exit_code == 4
    assert "cut." in str(read.loss)
    assert 30 < len(read.pts) < 80
    assert read.pts == list(clip.pts[: len(read.pts)])
    assert abs(read.reader.frames_lost - (100 - len(read.pts))) <= 1
    for index, value in enumerate(read.values()[:-1]):
        assert abs(value - clip.value(index)) <= 8, index


@pytest.mark.parametrize("decoder", BACKENDS)
def test_garbage_in_the_middle(tmp_path: Path, decoder: str) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=100, audio=True, options={"g": "10", "bf": "0"})
    broken = damage(clip.path, tmp_path / "broken.mp4", range(42, 48))
    read = Read(broken, decoder)
    assert isinstance(read.loss, CorruptInput)
    assert 90 <= len(read.pts) < 99
    assert read.reader.decode_failures > 0
    assert read.reader.frames_lost == 100 - len(read.pts)
    for when, value in zip(read.pts, read.values(), strict=True):
        index = clip.pts.index(when)
        if not 40 <= index < 50:
            assert abs(value - clip.value(index)) <= 6, index


@pytest.mark.parametrize("decoder", BACKENDS)
def test_one_bad_frame_is_an_error(tmp_path: Path, decoder: str) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=60, options={"g": "1", "bf": "0"})
    read = Read(damage(clip.path, tmp_path / "broken.mp4", [25]), decoder)
    assert read.pts == [t for i, t in enumerate(clip.pts) if i != 25]
    assert isinstance(read.loss, CorruptInput)
    assert "1 frame could not be decoded" in str(read.loss)
    assert read.reader.frames_lost == 1


@pytest.mark.parametrize("decoder", BACKENDS)
def test_patience_has_an_end(tmp_path: Path, decoder: str) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=100, options={"g": "1", "bf": "0"})
    read = Read(damage(clip.path, tmp_path / "broken.mp4", range(40, 90)), decoder)
    assert isinstance(read.loss, CorruptInput)
    assert read.pts == list(clip.pts[:40])
    assert read.reader.frames_lost == 60


@pytest.mark.parametrize("decoder", BACKENDS)
def test_many_bad_frames_far_apart_do_not_end_it(tmp_path: Path, decoder: str) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=100, options={"g": "1", "bf": "0"})
    read = Read(damage(clip.path, tmp_path / "broken.mp4", range(2, 100, 7)), decoder)
    assert isinstance(read.loss, CorruptInput)
    assert read.pts == [t for i, t in enumerate(clip.pts) if i % 7 != 2]
    assert read.reader.frames_lost == 14
    # Decoders of many threads keep some of their errors to themselves.
    assert 0 < read.reader.decode_failures <= 14


def test_bad_frames_in_the_last_threads_hide_no_good_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines with many cores hold many frames when the file ends."""
    monkeypatch.setattr(frame_decoder, "THREADS", 16)
    clip = make_clip(tmp_path / "clip.mp4", frames=100, options={"g": "1", "bf": "0"})
    read = Read(damage(clip.path, tmp_path / "broken.mp4", (50, 90, 93, 96)), "pyav")
    assert read.pts == [t for i, t in enumerate(clip.pts) if i not in (50, 90, 93, 96)]
    assert read.reader.decode_failures == read.reader.frames_lost == 4


@pytest.mark.parametrize("decoder", BACKENDS)
def test_a_truncated_variable_rate(tmp_path: Path, decoder: str) -> None:
    times = [Fraction(i, 25) + Fraction(i % 3, 100) for i in range(100)]
    clip = make_clip(tmp_path / "clip.mkv", pts=times)
    whole = Read(clip.path, decoder)
    assert whole.info.hazards == {"vfr"}
    assert whole.loss is None
    cut = Read(truncate(clip.path, tmp_path / "cut.mkv", 0.6), decoder)
    assert isinstance(cut.loss, TruncatedInput)


def test_a_hole_in_a_stream_is_told(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.ts", frames=100, audio=True)
    data = bytearray(clip.path.read_bytes())
    begin = len(data) // 3
    data[begin : begin + 3000] = np.random.default_rng(1).bytes(3000)
    clip.path.write_bytes(data)
    read = Read(clip.path, "pyav")
    assert 90 < len(read.pts) < 100
    assert isinstance(read.loss, CorruptInput)
    assert read.reader.frames_lost == 100 - len(read.pts)


@pytest.mark.parametrize("decoder", BACKENDS)
def test_longer_sound_is_no_truncation(tmp_path: Path, decoder: str) -> None:
    """FLV announces one duration only, that of the longest stream."""
    clip = make_clip(
        tmp_path / "clip.flv", frames=30, audio=True, audio_seconds=4, options={"bf": "0"}
    )
    read = Read(clip.path, decoder)
    assert read.info.duration_from_header is not None
    assert read.info.duration_from_header > 3
    assert read.loss is None
    cut = Read(truncate(clip.path, tmp_path / "cut.flv", 0.3), decoder)
    assert cut.loss is not None


@pytest.mark.parametrize("decoder", BACKENDS)
def test_a_live_recording_without_a_duration(tmp_path: Path, decoder: str) -> None:
    clip = make_clip(
        tmp_path / "live.webm",
        codec="libvpx-vp9",
        frames=30,
        container_options={"live": "1"},
    )
    read = Read(clip.path, decoder)
    assert read.info.duration_from_header is None
    assert read.loss is None
    assert read.pts == list(clip.pts)


@pytest.mark.parametrize("decoder", BACKENDS)
def test_batches_own_their_memory(tmp_path: Path, decoder: str) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=20)
    with open_reader(probe(clip.path), decoder, Report()) as reader:
        kept = []
        for batch in reader.batches(4):
            first = batch.bgr if isinstance(batch, BgrBatch) else batch.planes[0]
            kept.append((first, first.clone()))
            if isinstance(batch, FrameBatch):
                batch.planes[1].zero_()  # writable
            del batch
    assert all(torch.equal(now, then) for now, then in kept)


def test_buffers_come_back_only_when_every_view_is_gone() -> None:
    pool = BufferPool()
    first = pool.empty((2, 3, 4), torch.uint16)
    where = first.data_ptr()
    view = first[1].reshape(-1)
    del first
    assert pool.empty((2, 3, 4), torch.uint16).data_ptr() != where
    del view
    assert where in {t.data_ptr() for t in [pool.empty((2, 3, 4), torch.uint16) for _ in range(2)]}


@pytest.mark.parametrize("name", [b"latin \xfc.mp4", b"\xff/utf8.mp4"])
def test_names_that_are_not_utf8(
    tmp_path: Path, name: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    clip = make_clip(tmp_path / "clip.mp4")
    clip.path.rename(path)
    with caplog.at_level("INFO"):
        read = Read(path, "auto")
    assert read.report.facts["decoder"] == "pyav"
    assert "is not UTF-8" in caplog.text
    assert read.pts == list(clip.pts)
    with pytest.raises(UnsupportedVideo, match=r"is not UTF-8.*--decoder auto or pyav"):
        Read(path, "opencv")


def test_a_codec_that_opencv_opens_but_cannot_decode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clip = make_clip(tmp_path / "clip.mp4")

    class Undecoding:
        """As cv2.VideoCapture of a build without a decoder."""

        released = 0

        def __init__(self, *_: object) -> None:
            pass

        def isOpened(self) -> bool:
            return True

        def set(self, *_: object) -> bool:
            return True

        def read(self, *_: object) -> tuple[bool, None]:
            return False, None

        def release(self) -> None:
            Undecoding.released += 1

    monkeypatch.setattr(cv2, "VideoCapture", Undecoding)
    with caplog.at_level("INFO"):
        read = Read(clip.path, "auto")
    assert read.report.facts["decoder"] == "pyav"
    assert "OpenCV cannot decode this video (h264)" in caplog.text
    assert read.pts == list(clip.pts)
    with pytest.raises(UnsupportedVideo, match=r"cannot decode.*--decoder auto or pyav"):
        Read(clip.path, "opencv")
    assert Undecoding.released == 2


def test_av1_is_read_whatever_opencv_can_do(tmp_path: Path) -> None:
    options = {"preset": "10", "crf": "5"}
    clip = make_clip(tmp_path / "av1.mp4", codec="libsvtav1", size=(64, 64), options=options)
    read = Read(clip.path, "auto")
    assert read.loss is None
    assert read.pts == list(clip.pts)
    for index, value in enumerate(read.values()):
        assert abs(value - clip.value(index)) <= 6, index


@pytest.mark.parametrize("codec", ["libvpx", "libvpx-vp9"])
def test_alpha_of_vp8_and_vp9(tmp_path: Path, codec: str) -> None:
    """FFmpeg's own decoders of the two drop it."""
    options = {"auto-alt-ref": "0", "crf": "4", "b": "8000000", "cpu-used": "2"}
    clip = make_clip(
        tmp_path / "clip.webm", codec=codec, pix_fmt="yuva420p", frames=60, options=options
    )
    read = Read(clip.path, "auto")
    assert read.info.hazards == {"alpha"}
    assert read.report.facts["decoder"] == "pyav"
    assert (read.loss, read.report.warnings) == (None, [])
    assert read.pts == list(clip.pts)
    for index, frame in enumerate(read.frames()):
        for got, put in zip(frame, clip.planes(index), strict=True):
            assert np.abs(got.astype(int) - put).max() <= 6, index
    with pytest.raises(UnsupportedVideo, match="alpha"):
        Read(clip.path, "opencv")


@pytest.mark.parametrize("decoder", ["auto", *BACKENDS])
def test_alpha_that_no_decoder_gives_is_told(
    tmp_path: Path, decoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An FFmpeg without libvpx."""
    monkeypatch.setattr(av, "codecs_available", av.codecs_available - {"libvpx-vp9"})
    clip = make_clip(tmp_path / "clip.webm", codec="libvpx-vp9", pix_fmt="yuva420p", frames=3)
    read = Read(clip.path, decoder)
    assert read.info.hazards == {"alpha_unread"}
    (warning,) = read.report.warnings
    assert "alpha channel" in warning
    assert "dropped: " in warning
    assert len(read.pts) == 3


@pytest.mark.parametrize("decoder", BACKENDS)
def test_a_file_that_vanishes(tmp_path: Path, decoder: str) -> None:
    clip = make_clip(tmp_path / "clip.mp4")
    info = probe(clip.path)
    clip.path.unlink()
    with pytest.raises(FfxError) as caught:
        open_reader(info, decoder, Report())
    assert caught.value.exit_code == 3


def test_opencv_still_knows_nothing_of_mirroring(tmp_path: Path) -> None:
    """The reason for one row of the reader's rule: when this fails, the row may go."""
    clip = make_clip(tmp_path / "mirrored.mp4", mirrored=True, **LOSSLESS)
    capture = cv2.VideoCapture(str(clip.path), cv2.CAP_FFMPEG)
    there, image = capture.read()
    assert there
    right, wrong = image[2:10, 40:].mean(), image[2:10, :24].mean()
    assert not right > wrong + 30
