"""What the probe says of clips whose truth is known."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import pytest
from PIL import Image

from facefusion_cli.errors import (
    CorruptInput,
    EmptyVideo,
    FfxError,
    InputError,
    InputNotFound,
    NotAVideo,
    NoVideoStream,
    TruncatedInput,
)
from facefusion_cli.types import ColorSpec, PlaneLayout
from facefusion_cli.video.image_file import ImageTarget, is_image, load_photo
from facefusion_cli.video.pixel_formats import carried_format
from facefusion_cli.video.probe import probe
from tests.clips import damage, frame_of, make_clip, planes

CLUSTER = b"\x1f\x43\xb6\x75"
"""What begins the frames of a Matroska file."""


def test_a_plain_clip(tmp_path: Path) -> None:
    clip = make_clip(
        tmp_path / "clip.mp4", frames=50, audio=True, metadata={"title": "A title"}, fps=25
    )
    info = probe(clip.path)
    assert (info.width, info.height, info.coded_size, info.rotation) == (64, 48, (64, 48), 0)
    assert info.frame_rate == 25
    assert info.start == 0
    assert info.duration_from_header == 2
    assert info.frame_count_from_header == 50
    assert (info.pixel_format, info.layout) == ("yuv420p", PlaneLayout((2, 2), 8))
    assert info.color == ColorSpec("bt601", "limited", (2, 2, 2, 0))
    assert (info.codec, info.sample_aspect) == ("h264", 1)
    assert "mp4" in info.container
    assert info.hazards == frozenset()
    assert [(a.codec, a.sample_rate, a.channels, a.start) for a in info.audio] == [
        ("aac", 48_000, 2, 0)
    ]
    assert info.tags["title"] == "A title"


@pytest.mark.parametrize(
    ("tags", "matrix", "sample_range"),
    [
        ((1, 1, 1, 1), "bt709", "limited"),
        ((5, 5, 6, 1), "bt601", "limited"),
        ((6, 6, 6, 2), "bt601", "full"),
        ((9, 9, 14, 1), "bt2020", "limited"),
        ((2, 2, 2, 0), "bt601", "limited"),
    ],
)
def test_colour_tags_are_kept(
    tmp_path: Path, tags: tuple[int, int, int, int], matrix: str, sample_range: str
) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=3, color=tags)
    assert probe(clip.path).color == ColorSpec(matrix, sample_range, tags)  # type: ignore[arg-type]


def test_colours_of_rgb_and_gray(tmp_path: Path) -> None:
    rgb = probe(make_clip(tmp_path / "rgb.mkv", frames=3, codec="ffv1", pix_fmt="bgr0").path)
    assert (rgb.color.matrix, rgb.color.range, rgb.layout.subsampling) == ("rgb", "full", (1, 1))
    gray = probe(make_clip(tmp_path / "gray.mkv", frames=3, codec="ffv1", pix_fmt="gray").path)
    # Gray is full range by its format; the output's format will not say so, hence the tag must.
    assert gray.color == ColorSpec("bt601", "full", (2, 2, 2, 2))


def test_unknown_matrices_are_refused(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "ycgco.mp4", frames=3, color=(8, 1, 1, 1), pix_fmt="yuv444p")
    with pytest.raises(FfxError, match="matrix 8") as caught:
        probe(clip.path)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("mirrored", [False, True])
def test_display_matrix(tmp_path: Path, rotation: int, mirrored: bool) -> None:
    clip = make_clip(
        tmp_path / "clip.mp4",
        frames=3,
        rotation=rotation,
        mirrored=mirrored,
        sar=Fraction(4, 3),
    )
    info = probe(clip.path)
    assert info.rotation == rotation
    assert (info.width, info.height) == clip.upright
    assert ("mirrored" in info.hazards) == mirrored
    assert ("rotated" in info.hazards) == (rotation != 0)
    assert info.sample_aspect == (Fraction(4, 3) if rotation in {0, 180} else Fraction(3, 4))


def test_hazards(tmp_path: Path) -> None:
    def hazards(name: str, **how: object) -> frozenset[str]:
        return probe(make_clip(tmp_path / name, **how).path).hazards  # type: ignore[arg-type]

    assert hazards("i.mp4", interlaced=True) == {"interlaced"}
    assert hazards("pq.mp4", codec="libx265", pix_fmt="yuv420p10le", color=(9, 9, 16, 1)) == {
        "hdr",
        "deep",
    }
    assert "hdr" in hazards("hlg.mp4", color=(9, 9, 18, 1))
    assert hazards("deep.mkv", codec="ffv1", pix_fmt="yuv422p10le") == {"deep"}
    assert hazards("alpha.mkv", codec="ffv1", pix_fmt="yuva420p") == {"alpha"}
    assert hazards("bgra.mkv", codec="ffv1", pix_fmt="bgra") == {"alpha"}
    assert hazards("odd.mp4", pix_fmt="yuv444p", size=(65, 48)) == {"odd_size"}
    assert hazards("late.mp4", start=0.5, audio=True) == {"late_start"}
    assert hazards("late_sound.mp4", audio_start=0.5, audio=True) == frozenset()
    assert hazards("vfr.mp4", pts=[0, 0.04, 0.08, 0.3, 0.34, 0.5]) == {"vfr"}
    assert hazards("ntsc.mkv", fps=Fraction(30_000, 1001), frames=100) == frozenset()
    assert hazards("film.webm", fps=Fraction(24_000, 1001), codec="libvpx-vp9") == frozenset()


def test_a_rate_that_changes_late_is_seen(tmp_path: Path) -> None:
    times = [Fraction(i, 30) for i in range(100)]
    times += [times[-1] + Fraction(i, 5) for i in range(1, 20)]
    assert "vfr" in probe(make_clip(tmp_path / "late.mp4", pts=times).path).hazards


def test_interlacing_that_begins_late_is_seen(tmp_path: Path) -> None:
    assert "interlaced" in probe(mixed_clip(tmp_path / "mixed.ts")).hazards


def mixed_clip(path: Path, size: tuple[int, int] = (64, 48)) -> Path:
    """50 progressive frames, then 50 interlaced ones, in one stream."""
    with av.open(path, "w") as sink:
        video = sink.add_stream("libx264", rate=25)
        video.width, video.height = size
        video.codec_context.open()
        count = 0
        for interlaced in (False, True):
            flags = {"flags": "+ildct+ilme"} if interlaced else {}
            encoder = av.CodecContext.create("libx264", "w")
            encoder.options = {"preset": "veryfast", "crf": "12", "g": "10", "bf": "0", **flags}
            encoder.width, encoder.height = size
            encoder.pix_fmt, encoder.time_base = "yuv420p", Fraction(1, 25)
            packets = []
            for _ in range(50):
                arrays = planes("yuv420p", size, count, interlaced=interlaced)
                frame = frame_of("yuv420p", size, arrays)
                frame.pts, frame.time_base = count, Fraction(1, 25)
                packets += encoder.encode(frame)
                count += 1
            for packet in [*packets, *encoder.encode(None)]:
                packet.stream = video
                sink.mux(packet)
    return path


def test_frame_rate_and_count_with_an_edit_list(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "whole.mp4", frames=100, audio=True)
    cut = tmp_path / "cut.mp4"
    with (
        av.open(clip.path) as source,
        av.open(cut, "w", options={"avoid_negative_ts": "disabled"}) as sink,
    ):
        streams = {s.index: sink.add_stream_from_template(s) for s in source.streams}
        for packet in source.demux():
            if packet.dts is None or packet.pts is None:
                continue
            packet.pts -= int(1 / packet.time_base)
            packet.dts -= int(1 / packet.time_base)
            if packet.stream.type == "audio" and packet.pts < 0:
                continue
            packet.stream = streams[packet.stream.index]
            sink.mux(packet)
    info = probe(cut)
    assert info.frame_count_from_header == 75
    assert info.duration_from_header == 3
    assert info.frame_rate == 25
    assert "vfr" not in info.hazards


@pytest.mark.parametrize("name", ["a b.mp4", "über 100%.mp4", "12:30:00.mp4", "%03d.mp4", "顔.mkv"])
def test_names(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_clip(tmp_path / name, frames=3)
    monkeypatch.chdir(tmp_path)
    assert probe(Path(name)).width == 64


def test_streams_beside_the_video(tmp_path: Path) -> None:
    cover, clip = tmp_path / "cover.jpg", tmp_path / "song.mp4"
    Image.new("RGB", (32, 32), (200, 10, 10)).save(cover)
    with av.open(clip, "w") as sink:
        art = sink.add_stream("mjpeg", rate=1)
        art.width, art.height, art.pix_fmt = 32, 32, "yuvj420p"
        art.disposition = av.stream.Disposition.attached_pic
        sound = sink.add_stream("aac", rate=48_000, layout="stereo")
        picture = av.Packet(cover.read_bytes())
        picture.stream, picture.pts, picture.dts = art, 0, 0
        picture.time_base = Fraction(1)
        silence = av.AudioFrame(format="fltp", layout="stereo", samples=1024)
        silence.sample_rate, silence.pts = 48_000, 0
        for plane in silence.planes:
            plane.update(bytes(plane.buffer_size))
        packets = [*sound.encode(silence), *sound.encode(None)]
        sink.mux(packets[0])
        sink.mux(picture)
        for packet in packets[1:]:
            sink.mux(packet)
    with pytest.raises(NoVideoStream):
        probe(clip)


def without_key_frame(given: Path, out: Path) -> None:
    """No packet fails to decode, and none gives a frame."""
    with av.open(given) as source, av.open(out, "w") as sink:
        stream = sink.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size and not packet.is_keyframe:
                packet.stream = stream
                sink.mux(packet)


def bad_files(folder: Path) -> dict[str, type[FfxError]]:
    good = make_clip(folder / "good.mp4", frames=30, audio=True)
    (folder / "zero.mp4").write_bytes(b"")
    (folder / "text.mp4").write_text("This is no video.\n" * 200)
    (folder / "notes.txt").write_text("Neither is this.\n" * 200)
    (folder / "noise.mkv").write_bytes(bytes(range(256)) * 300)
    (folder / "folder.mp4").mkdir()
    make_clip(folder / "sound.m4a", frames=0, audio=True, container="mp4")
    data = good.path.read_bytes()
    (folder / "no_moov.mp4").write_bytes(data[: data.find(b"moov") - 4])
    damage(good.path, folder / "garbage.mp4", range(30))
    for name, frames, kept in (("header_only.mkv", 30, 30), ("small.mkv", 8, 600)):
        whole = make_clip(folder / f"whole_{name}", frames=frames).path.read_bytes()
        (folder / name).write_bytes(whole[: whole.find(CLUSTER) + kept])
    (folder / "half_header.mkv").write_bytes(whole[: whole.find(CLUSTER) // 2])
    without_key_frame(good.path, folder / "no_key.mp4")
    return {
        "missing.mp4": InputNotFound,
        "zero.mp4": EmptyVideo,
        "text.mp4": NotAVideo,
        "notes.txt": NotAVideo,
        "noise.mkv": NotAVideo,
        "folder.mp4": NotAVideo,
        "sound.m4a": NoVideoStream,
        "no_moov.mp4": TruncatedInput,
        "garbage.mp4": CorruptInput,
        "header_only.mkv": TruncatedInput,
        "small.mkv": TruncatedInput,
        "half_header.mkv": CorruptInput,
        "no_key.mp4": CorruptInput,
    }


@pytest.mark.parametrize("read", [probe, load_photo, ImageTarget])
def test_what_is_no_regular_file(
    tmp_path: Path, read: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("opened")

    pipe = tmp_path / "pipe.mp4"
    os.mkfifo(pipe)
    (tmp_path / "link.mp4").symlink_to(pipe)
    (tmp_path / "circle.mp4").symlink_to(tmp_path / "circle.mp4")
    (tmp_path / "file").write_bytes(b"x")
    # The pipe's reader would wait for ever: that nothing opens it is what is checked.
    monkeypatch.setattr(Path, "open", never)
    monkeypatch.setattr(Path, "read_bytes", never)
    monkeypatch.setattr(av, "open", never)
    for path in (pipe, tmp_path / "link.mp4", Path(os.devnull)):
        assert not is_image(path)
        with pytest.raises(NotAVideo, match="not a regular file"):
            read(path)
    with pytest.raises(NotAVideo, match="folder"):
        read(tmp_path)
    for path in (Path(""), tmp_path / "file" / "below"):
        assert not is_image(path)
        with pytest.raises(InputNotFound):
            read(path)
    for path in (tmp_path / "circle.mp4", tmp_path / ("x" * 300)):
        with pytest.raises(InputError, match="cannot be read"):
            read(path)


def test_bad_files(tmp_path: Path) -> None:
    for name, kind in bad_files(tmp_path).items():
        with pytest.raises(FfxError) as caught:
            probe(tmp_path / name)
        assert type(caught.value) is kind, name
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "carried", "subsampling", "bits"),
    [
        ("yuv420p", "yuv420p", (2, 2), 8),
        ("yuvj422p", "yuvj422p", (2, 1), 8),
        ("yuv444p12le", "yuv444p12le", (1, 1), 12),
        ("nv12", "yuv420p", (2, 2), 8),
        ("p010le", "yuv420p10le", (2, 2), 10),
        ("yuyv422", "yuv422p", (2, 1), 8),
        ("yuv440p", "yuv444p", (1, 1), 8),
        ("yuv411p", "yuv422p", (2, 1), 8),
        ("yuv410p", "yuv420p", (2, 2), 8),
        ("yuv420p10be", "yuv420p10le", (2, 2), 10),
        ("rgb24", "gbrp", (1, 1), 8),
        ("bgra", "gbrap", (1, 1), 8),
        ("pal8", "gbrp", (1, 1), 8),
        ("rgb48le", "gbrp16le", (1, 1), 16),
        ("gbrp10le", "gbrp10le", (1, 1), 10),
        ("gray", "gray", (2, 2), 8),
        ("gray12le", "gray12le", (2, 2), 12),
        ("monow", "gray", (2, 2), 8),
        ("ya8", "gbrap", (1, 1), 8),
        ("yuva444p10le", "yuva444p10le", (1, 1), 10),
    ],
)
def test_carried_formats(given: str, carried: str, subsampling: tuple[int, int], bits: int) -> None:
    found = carried_format(given, size=(64, 48))
    assert (found.name, found.layout) == (carried, PlaneLayout(subsampling, bits))


def test_turning_what_cannot_be_turned() -> None:
    assert carried_format("yuv422p", size=(64, 48), turned=180).name == "yuv422p"
    assert carried_format("yuv422p", size=(64, 48), turned=90).name == "yuv444p"
    assert carried_format("yuv420p", size=(64, 48), turned=90).name == "yuv420p"
    assert carried_format("yuv420p", size=(65, 48), turned=90).name == "yuv444p"
    assert carried_format("yuv420p", size=(65, 48)).name == "yuv420p"
