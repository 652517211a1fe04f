"""Formats that say little or odd things of themselves: what the probe makes of them, and that both
readers then find every frame at its time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

from facefusion_cli.errors import TruncatedInput, UnsupportedVideo
from facefusion_cli.report import Report
from facefusion_cli.types import VideoInfo
from facefusion_cli.video.opencv_reader import OpencvReader
from facefusion_cli.video.probe import probe
from facefusion_cli.video.pyav_reader import PyavReader
from facefusion_cli.video.reader import Reader, open_reader
from facefusion_cli.video.target import probe_target
from tests.clips import Clip, make_clip, packet_pts, truncate

FILM, NTSC = Fraction(24_000, 1001), Fraction(120_000, 1001)


@dataclass(frozen=True)
class Case:
    """A clip and what must be found in it."""

    name: str
    how: dict[str, Any]
    rate: Fraction | int = 25
    count: int | None = None
    """By the header; None where the format does not say."""
    length: Fraction | None = None
    start: Fraction | int = 0
    hazards: set[str] = field(default_factory=set)
    opencv: bool = True
    """Whether OpenCV may read it."""

    def __str__(self) -> str:
        return self.name


S12 = Fraction(12, 25)
CASES = [
    Case("one.mp4", {"frames": 1}, count=1, length=Fraction(1, 25)),
    Case("one.mkv", {"frames": 1}, length=Fraction(1, 25)),
    Case("one.webm", {"frames": 1, "codec": "libvpx-vp9"}, length=Fraction(1, 25)),
    Case("one.avi", {"frames": 1, "codec": "mpeg4"}, count=1, length=Fraction(1, 25)),
    Case("one.mov", {"frames": 1, "codec": "mjpeg", "pix_fmt": "yuvj420p"}, 25, 1, Fraction(1, 25)),
    Case("slow.mp4", {"fps": 1}, 1, 12, Fraction(12)),
    Case("slow.mkv", {"fps": 1}, 1, length=Fraction(12)),
    Case("fast.mp4", {"fps": 120, "frames": 60}, 120, 60, Fraction(1, 2)),
    Case("fast.mkv", {"fps": 120, "frames": 60}, 120, length=Fraction(1, 2)),
    Case("ntsc.mkv", {"fps": NTSC, "frames": 90}, NTSC, length=Fraction(3, 4)),
    Case("film.mp4", {"fps": FILM, "frames": 60}, FILM, 60, 60 / FILM),
    Case("film.mkv", {"fps": FILM, "frames": 60}, FILM, length=Fraction(2503, 1000)),
    Case("film.avi", {"fps": FILM, "frames": 60, "codec": "mpeg4"}, FILM, 60, 60 / FILM),
    Case("tiny.mp4", {"size": (2, 2)}, count=12, length=S12),
    Case(
        "pixel.mkv",
        {"size": (1, 1), "codec": "ffv1", "pix_fmt": "yuv444p"},
        length=S12,
        hazards={"odd_size"},
    ),
    Case(
        "odd.mkv",
        {"size": (33, 17), "codec": "ffv1", "pix_fmt": "yuv422p"},
        length=S12,
        hazards={"odd_size"},
    ),
    Case("mjpeg.avi", {"codec": "mjpeg", "pix_fmt": "yuvj420p"}, count=12, length=S12),
    Case("mpeg4.avi", {"codec": "mpeg4"}, count=12, length=S12),
    Case("b_frames.avi", {"codec": "mpeg4", "options": {"bf": "2"}}, count=12, length=S12),
    Case("raw.avi", {"codec": "rawvideo"}, count=12, length=S12),
    Case("raw_rgb.avi", {"codec": "rawvideo", "pix_fmt": "bgr24"}, count=12, length=S12),
    Case("raw_gray.avi", {"codec": "rawvideo", "pix_fmt": "gray"}, count=12, length=S12),
    Case("yuv4.mov", {"codec": "yuv4"}, count=12, length=S12),
    Case(
        "v210.mov",
        {"codec": "v210", "pix_fmt": "yuv422p10le"},
        count=12,
        length=S12,
        hazards={"deep"},
        opencv=False,
    ),
    Case("gray.mkv", {"codec": "ffv1", "pix_fmt": "gray"}, length=S12),
    Case("png.mov", {"codec": "png", "pix_fmt": "rgb24"}, count=12, length=S12),
    Case("elementary.h264", {"container": "h264"}),
    Case("plain.y4m", {"codec": "rawvideo", "container": "yuv4mpegpipe"}, length=S12),
    Case("windows.wmv", {"codec": "wmv2"}, length=S12),
    Case(
        "fragments.mp4",
        {"container_options": {"movflags": "frag_keyframe+empty_moov"}, "options": {"bf": "0"}},
        length=S12,
    ),
    Case("is_mp4.mkv", {"container": "mp4"}, count=12, length=S12),
    Case("is_mkv.mp4", {"container": "matroska"}, length=S12),
    Case("is_mp4.png", {"container": "mp4"}, count=12, length=S12),
    Case("is_mp4.txt", {"container": "mp4"}, count=12, length=S12),
    Case("is_mkv.gif", {"container": "matroska"}, length=S12),
]


def read(reader: Reader) -> list[Fraction]:
    with reader:
        times = [t for batch in reader.batches(5) for t in batch.pts]
        assert reader.check_complete() is None
        assert reader.frames_lost == 0
    return times


def both(info: VideoInfo, *, opencv: bool = True) -> list[Fraction]:
    """The times of all frames, on which both readers agree."""
    report = Report()
    times = read(PyavReader(info, report))
    if opencv:
        assert read(OpencvReader(info, report)) == times
    assert report.warnings == []
    return times


@pytest.mark.parametrize("case", CASES, ids=str)
def test_formats(tmp_path: Path, case: Case) -> None:
    clip = make_clip(tmp_path / case.name, **case.how)
    info = probe(clip.path)
    assert info.frame_rate == case.rate
    assert info.frame_count_from_header == case.count
    assert info.duration_from_header == case.length
    assert info.start == case.start
    assert info.hazards == case.hazards
    assert (info.width, info.height) == clip.size
    times = both(info, opencv=case.opencv)
    assert len(times) == clip.frames
    if not case.name.endswith(".h264"):  # whose packets have no times
        assert times == packet_pts(clip.path)
    # Containers round to their clock, 1 ms at the coarsest.
    shown = [t - times[0] for t in times]
    meant = [t - clip.pts[0] for t in clip.pts]
    assert max(abs(a - b) for a, b in zip(shown, meant, strict=True)) <= Fraction(1, 1000)


def test_times_that_opencv_gets_wrong(tmp_path: Path) -> None:
    """An AVI has no times; where frames are reordered OpenCV takes that of decoding for one."""
    clip = make_clip(tmp_path / "clip.avi", codec="libx264")
    info = probe(clip.path)
    with pytest.raises(UnsupportedVideo, match="other times"):
        OpencvReader(info, Report())
    report = Report()
    with open_reader(info, "auto", report) as reader:
        times = [t for batch in reader.batches(5) for t in batch.pts]
    assert times == packet_pts(clip.path)
    assert report.facts["decoder"] == "pyav"


class Unseekable:
    """Where a live stream goes: nothing can be written into what has gone."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")

    def write(self, data: bytes) -> int:
        """Appends."""
        return self.file.write(data)


def streamed(clip: Clip, path: Path, container: str) -> Path:
    """A clip written as a live stream is: no length in its header, no index."""
    sink = Unseekable(path)
    with (
        sink.file,
        av.open(clip.path) as source,
        av.open(sink, "w", format=container) as out,
    ):
        streams = {s.index: out.add_stream_from_template(s) for s in source.streams}
        for packet in source.demux():
            if packet.pts is not None:
                packet.stream = streams[packet.stream.index]
                out.mux(packet)
    return path


@pytest.mark.parametrize("sound", [False, True])
@pytest.mark.parametrize("kind", ["webm", "matroska"])
def test_live_recordings(tmp_path: Path, kind: str, sound: bool) -> None:
    codec = {"codec": "libvpx-vp9", "audio_codec": "libopus"} if kind == "webm" else {}
    clip = make_clip(tmp_path / "clip.mkv", frames=40, audio=sound, **codec)  # type: ignore[arg-type]
    info = probe(streamed(clip, tmp_path / "live", kind))
    assert (info.duration_from_header, info.frame_count_from_header) == (None, None)
    assert (info.frame_rate, len(info.audio)) == (25, int(sound))
    assert "vfr" not in info.hazards
    assert both(info) == packet_pts(tmp_path / "live")
    assert len(packet_pts(tmp_path / "live")) == 40


def test_a_live_recording_that_stops_anywhere(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.mkv", frames=40, options={"g": "8", "bf": "0"})
    whole = streamed(clip, tmp_path / "live.mkv", "matroska").read_bytes()
    cut = tmp_path / "cut.mkv"
    cut.write_bytes(whole[: len(whole) * 3 // 4])
    info = probe(cut)
    times = read(PyavReader(info, Report()))
    assert times == packet_pts(clip.path)[: len(times)]
    assert 15 < len(times) < 40


@pytest.mark.parametrize("sound", [False, True])
def test_transport_streams_begin_late(tmp_path: Path, sound: bool) -> None:
    clip = make_clip(tmp_path / "clip.ts", frames=50, start=2.8, audio=sound, audio_start=2.8)
    info = probe(clip.path)
    assert info.start == packet_pts(clip.path)[0] > Fraction(27, 10)
    assert (info.frame_rate, info.duration_from_header) == (25, 2)
    assert both(info) == packet_pts(clip.path)


@pytest.mark.parametrize("suffix", [".mkv", ".mov"])
def test_negative_times(tmp_path: Path, suffix: str) -> None:
    clip = make_clip(
        tmp_path / f"clip{suffix}",
        codec="ffv1" if suffix != ".mov" else "mjpeg",
        pix_fmt="yuv420p" if suffix != ".mov" else "yuvj420p",
        start=Fraction(-1, 5),
        frames=20,
        container_options={"avoid_negative_ts": "disabled"},
    )
    info = probe(clip.path)
    # Matroska cannot hold them; MOV cuts them off with an edit list.
    assert info.start == packet_pts(clip.path)[0]
    assert both(info) == packet_pts(clip.path)
    assert len(packet_pts(clip.path)) in {15, 20}


def with_gaps(
    path: Path, slots: Sequence[int], *, clock: str = ".avi", size: tuple[int, int] = (64, 48)
) -> Path:
    """An AVI whose frames stand in these slots of 1/25 s; those between are empty packets.

    Args:
        path: Where.
        slots: One a frame.
        clock: The container whose clock the AVI gets: 25 ticks a second of an AVI, 1000 of .mkv.
        size: Width and height.
    """
    clip = make_clip(
        path.with_suffix(f".source{clock}"),
        codec="mjpeg",
        pix_fmt="yuvj420p",
        frames=len(slots),
        size=size,
    )
    with av.open(clip.path) as source, av.open(path, "w") as sink:
        stream = sink.add_stream_from_template(source.streams.video[0])
        there = (packet for packet in source.demux(video=0) if packet.pts is not None)
        for packet, slot in zip(there, slots, strict=True):
            packet.pts = packet.dts = slot
            packet.time_base, packet.duration, packet.stream = Fraction(1, 25), 1, stream
            sink.mux(packet)
    return path


def test_an_avi_whose_frames_stand_on(tmp_path: Path) -> None:
    slots = [i * (i + 1) // 2 for i in range(20)]
    info = probe(with_gaps(tmp_path / "clip.avi", slots))
    assert (info.frame_count_from_header, info.duration_from_header) == (20, Fraction(191, 25))
    assert info.hazards == {"vfr"}
    assert both(info) == [Fraction(slot, 25) for slot in slots]


def test_an_avi_of_a_fine_clock(tmp_path: Path) -> None:
    """Matroska copied to AVI by FFmpeg: a tick a millisecond, 39 empty packets a frame."""
    info = probe(with_gaps(tmp_path / "clip.avi", range(20), clock=".mkv"))
    assert info.time_base < Fraction(1, 100)
    assert (info.frame_count_from_header, info.hazards) == (20, frozenset())
    assert both(info) == [Fraction(i, 25) for i in range(20)]


def test_an_avi_that_stands_on_late_in_the_clip(tmp_path: Path) -> None:
    slots = [*range(80), *range(100, 400, 20)]
    info = probe(with_gaps(tmp_path / "clip.avi", slots))
    assert (info.frame_count_from_header, info.hazards) == (95, {"vfr"})
    assert both(info) == [Fraction(slot, 25) for slot in slots]


def test_an_avi_that_is_cut_off(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.avi", codec="mjpeg", pix_fmt="yuvj420p", frames=100)
    info = probe(truncate(clip.path, tmp_path / "cut.avi", 0.5))
    assert info.frame_count_from_header == 100
    for reader in (PyavReader(info, Report()), OpencvReader(info, Report())):
        with reader:
            assert 30 < sum(len(batch) for batch in reader.batches(8)) < 70
            assert isinstance(reader.check_complete(), TruncatedInput)


def test_an_avi_with_gaps_that_is_cut_off(tmp_path: Path) -> None:
    slots = [*range(0, 90, 3), *range(1, 90, 3)]
    path = with_gaps(tmp_path / "clip.avi", sorted(slots), size=(128, 96))
    info = probe(truncate(path, tmp_path / "cut.avi", 0.5))
    assert info.time_base == Fraction(1, 25), "a tick a frame: steps of 1 and 2 are no rounding"
    assert (info.frame_count_from_header, info.hazards) == (None, {"vfr"})
    with PyavReader(info, Report()) as reader:
        times = [t for batch in reader.batches(8) for t in batch.pts]
        assert isinstance(reader.check_complete(), TruncatedInput)
    assert times == [Fraction(slot, 25) for slot in sorted(slots)][: len(times)]


@pytest.mark.parametrize(
    "name", ["a b.mp4", "über 100%.mp4", "12:30:00.mp4", "%03d.mp4", "100%.mp4", "顔.mkv", "-o.mp4"]
)
def test_names(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_clip(tmp_path / name, frames=3)
    monkeypatch.chdir(tmp_path)
    info = probe_target(Path(name))
    assert info.width == 64
    assert len(both(info)) == 3


def test_links_and_folders_that_may_only_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    make_clip(folder / "clip.mp4", frames=3)
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "link.bin").symlink_to(tmp_path / "link" / "clip.mp4")
    (folder / "clip.mp4").chmod(0o400)
    folder.chmod(0o500)
    try:
        for path in (tmp_path / "link" / "clip.mp4", tmp_path / "link.bin"):
            info = probe_target(path)
            assert info.path == path
            assert len(both(info)) == 3
        assert os.listdir(folder) == ["clip.mp4"]
    finally:
        folder.chmod(0o700)


@pytest.mark.long
@pytest.mark.parametrize("size", [(4096, 2160), (2160, 4096), (3839, 2159)])
def test_large_clips(tmp_path: Path, size: tuple[int, int]) -> None:
    clip = make_clip(tmp_path / "large.mkv", frames=3, size=size, codec="mjpeg", pix_fmt="yuvj420p")
    info = probe(clip.path)
    assert (info.width, info.height) == size
    with open_reader(info, "auto", Report()) as reader:
        assert sum(len(batch) for batch in reader.batches(2)) == 3
        assert reader.check_complete() is None
