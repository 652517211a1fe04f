"""Folders and patterns of images as clips, and clips as folders of images."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from facefusion_cli.config import Config, load_config
from facefusion_cli.errors import (
    CorruptInput,
    DiskFull,
    EmptyVideo,
    EncoderRejected,
    FfxError,
    IncompatibleContainer,
    InputError,
    InputNotFound,
    NotAVideo,
    OutputExists,
    OutputFolderMissing,
    OutputNotWritable,
    SameFile,
    UnsupportedVideo,
)
from facefusion_cli.planes import rgb_frames
from facefusion_cli.report import Report
from facefusion_cli.types import Edit, FrameBatch, PlaneLayout, VideoInfo, Window
from facefusion_cli.video.image_folder import (
    ImageFolderWriter,
    check_image_folder,
    is_image_folder,
)
from facefusion_cli.video.image_metadata import with_chunks
from facefusion_cli.video.image_names import ImagePattern, natural_key
from facefusion_cli.video.image_sequence import ImageSequenceReader
from facefusion_cli.video.probe import probe
from facefusion_cli.video.pyav_reader import PyavReader
from facefusion_cli.video.target import is_image_sequence, probe_target
from facefusion_cli.video.writer import ClipWriter
from tests.clips import make_clip
from tests.video.test_images import picture, profile, wide_gamut_profile

Names = Callable[[int], str]


def numbered(index: int, channels: int = 3) -> np.ndarray:
    """A picture that says which it is: no two are alike."""
    pixels = picture(channels=channels)
    pixels[-6:, -6:, 0] = 7 * index + 5
    return pixels


def make_images(
    folder: Path, names: Sequence[str], *, channels: int = 3, **arguments: object
) -> list[np.ndarray]:
    folder.mkdir(exist_ok=True)
    pictures = [numbered(i, channels) for i in range(len(names))]
    for name, pixels in zip(names, pictures, strict=True):
        Image.fromarray(pixels).save(folder / name, **arguments)
    return pictures


def read(
    info: VideoInfo, report: Report | None = None, n: int = 4, **how: object
) -> tuple[list[FrameBatch], ImageSequenceReader]:
    with ImageSequenceReader(info, report or Report(), **how) as reader:  # type: ignore[arg-type]
        return list(reader.batches(n)), reader


def stacked(batches: Sequence[FrameBatch]) -> np.ndarray:
    """[N,H,W,C] RGB or RGBA."""
    parts = []
    for batch in batches:
        green, blue, red = batch.planes
        channels = [red, green, blue] + ([] if batch.alpha is None else [batch.alpha])
        parts.append(torch.stack(channels, 3).numpy())
    return np.concatenate(parts)


def times(batches: Sequence[FrameBatch]) -> list[Fraction]:
    return [t for batch in batches for t in batch.pts]


def settings(**output: object) -> Config:
    return load_config(flags={"output": output})


def write(
    out: Path,
    info: VideoInfo,
    batches: Sequence[FrameBatch],
    report: Report | None = None,
    edit: Edit = Edit(),  # noqa: B008
    **output: object,
) -> None:
    with ImageFolderWriter(out, info, settings(**output), report or Report(), edit) as writer:
        for batch in batches:
            writer.write(batch)


def interrupted(
    out: Path,
    info: VideoInfo,
    batches: Sequence[FrameBatch],
    meanwhile: Callable[[], object],
    **output: object,
) -> None:
    """A run in whose middle something happens."""
    with ImageFolderWriter(out, info, settings(**output), Report()) as writer:
        writer.write(batches[0])
        meanwhile()


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def loaded(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


# Names


@pytest.mark.parametrize(
    ("name", "number", "file"),
    [
        ("f_%04d.png", 7, "f_0007.png"),
        ("f_%04d.png", 12345, "f_12345.png"),
        ("%d.png", 0, "0.png"),
        ("%02d", 3, "03"),
        ("100%% %d.png", 5, "100% 5.png"),
        ("%d 100%%.png", 5, "5 100%.png"),
        ("50%_%03d.png", 5, "50%_005.png"),
    ],
)
def test_patterns(name: str, number: int, file: str) -> None:
    pattern = ImagePattern.parse(Path("a%d") / name)
    assert pattern is not None
    assert pattern.path(number) == Path("a%d") / file
    assert pattern.number(file) == number


@pytest.mark.parametrize(
    "name",
    ["f.png", "100%.mp4", "%%d.png", "%d%d.png", "%s.png", "%4d.png", "%0d.png", "%099999d.png"],
)
def test_what_is_no_pattern(name: str) -> None:
    assert ImagePattern.parse(Path(name)) is None


@pytest.mark.parametrize(
    "name", ["f_7.png", "f_00007.png", "f_-001.png", "f_٠٠٠٧.png", "g_0007.png"]
)
def test_names_that_are_not_of_a_pattern(name: str) -> None:
    pattern = ImagePattern.parse(Path("f_%04d.png"))
    assert pattern is not None
    assert pattern.number(name) is None


def test_natural_order() -> None:
    names = ["f10", "f2", "f1b", "f1", "f", "10", "2", "F3", "f002", "f1.png", "f1.png2"]
    ordered = sorted(map(Path, names), key=natural_key)
    assert [p.name for p in ordered] == [
        *("2", "10", "f", "f1", "f1.png", "f1.png2", "f1b", "f002", "f2", "F3", "f10"),
    ]


def test_a_file_that_is_there_is_no_pattern(tmp_path: Path) -> None:
    for name in ("100%.mp4", "a%d.mp4"):
        make_clip(tmp_path / name, frames=3)
        assert not is_image_sequence(tmp_path / name)
        assert probe_target(tmp_path / name).codec == "h264"
    (tmp_path / "%d.png").symlink_to(tmp_path / "nowhere")
    assert not is_image_sequence(tmp_path / "%d.png"), "a broken link is there as well"
    assert is_image_sequence(tmp_path / "b%d.mp4")
    assert is_image_sequence(tmp_path)
    assert not is_image_sequence(Path(""))
    assert not is_image_sequence(tmp_path / ("x" * 300))


# Probe


def test_a_folder_as_a_clip(tmp_path: Path) -> None:
    names = ["f2.png", "f10.png", "f1.png"]
    make_images(tmp_path / "in", names)
    info = probe_target(tmp_path / "in")
    assert [p.name for p in info.images] == ["f1.png", "f2.png", "f10.png"]
    assert (info.width, info.height, info.rotation) == (40, 24, 0)
    assert (info.frame_rate, info.time_base, info.start) == (25, Fraction(1, 25), 0)
    assert (info.frame_count_from_header, info.duration_from_header) == (3, Fraction(3, 25))
    assert (info.pixel_format, info.layout) == ("gbrp", PlaneLayout((1, 1), 8))
    assert (info.color.matrix, info.color.range, info.color.tags) == ("rgb", "full", (2, 2, 2, 0))
    assert (info.codec, info.container, info.hazards) == ("png", "images", frozenset())
    assert not info.audio
    film = probe_target(tmp_path / "in", Fraction(24000, 1001))
    assert film.frame_rate == Fraction(24000, 1001)
    assert film.duration_from_header == 3 * Fraction(1001, 24000)


@pytest.mark.parametrize("start", [0, 1, 37])
def test_a_pattern_as_a_clip(tmp_path: Path, start: int) -> None:
    names = [f"f_{start + i:03d}.png" for i in range(4)]
    pictures = make_images(tmp_path / "in", [*names, "g_000.png", "f_1.jpg", "f_0000900.png"])
    info = probe_target(tmp_path / "in" / "f_%03d.png")
    assert [p.name for p in info.images] == names
    batches, _ = read(info)
    assert np.array_equal(stacked(batches), pictures[:4])


def test_a_gap_in_a_pattern_is_named(tmp_path: Path) -> None:
    make_images(tmp_path / "in", [f"f_{i:03d}.png" for i in (8, 9, 11, 14)])
    with pytest.raises(InputNotFound, match=r"picture 10 is missing, the next is 11.*f_010\.png"):
        probe_target(tmp_path / "in" / "f_%03d.png")
    assert len(probe_target(tmp_path / "in").images) == 4


def test_what_else_lies_in_a_folder_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    make_images(folder, ["a.png", "b.png"])
    make_images(folder / "below", ["c.png"])
    (folder / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0" + bytes(40))
    (folder / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (folder / "._a.png").write_bytes(b"\0\5\x16\7")
    (folder / "notes.txt").write_text("notes")
    (folder / "empty").touch()
    os.mkfifo(folder / "pipe")
    make_clip(folder / "clip.mp4", frames=3)
    Image.fromarray(numbered(0)).save(folder / "c.dat", "JPEG")
    info = probe_target(folder)
    assert [p.name for p in info.images] == ["a.png", "b.png", "c.dat"]


def test_folders_without_images(tmp_path: Path) -> None:
    with pytest.raises(NotAVideo, match=r"there are no images in this folder: .*PNG"):
        probe_target(tmp_path)
    make_clip(tmp_path / "clip.mp4", frames=3)
    with pytest.raises(NotAVideo, match=r"no images.*clip\.mp4.*name a folder"):
        probe_target(tmp_path)
    with pytest.raises(InputNotFound, match="no file is of this pattern"):
        probe_target(tmp_path / "f_%d.png")
    with pytest.raises(InputNotFound, match="no such folder"):
        probe_target(tmp_path / "nowhere" / "f_%d.png")
    with pytest.raises(InputNotFound):
        probe_target(tmp_path / "nowhere")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    make_images(tmp_path / "in", ["a.png"])
    (tmp_path / "in").chmod(0)
    with pytest.raises(InputError, match="cannot be read"):
        probe_target(tmp_path / "in")
    (tmp_path / "in").chmod(0o700)


def test_folders_of_unreadable_images(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.png").write_text("no picture")
    with pytest.raises(NotAVideo, match=r"not an image.*a\.png"):
        probe_target(folder)
    (folder / "b.png").write_bytes(b"")
    with pytest.raises(NotAVideo, match=r"none of its 2 images can be read; the first: not an"):
        probe_target(folder)
    (folder / "a.png").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200))
    with pytest.raises(NotAVideo, match=r"HEIF images cannot be read.*convert"):
        probe_target(folder)


# Reading


def test_pictures_come_with_their_times(tmp_path: Path) -> None:
    pictures = make_images(tmp_path / "in", [f"{i}.png" for i in range(11)])
    info = probe_target(tmp_path / "in", Fraction(30000, 1001))
    batches, reader = read(info, n=4)
    assert [len(b) for b in batches] == [4, 4, 3]
    assert [b.first_index for b in batches] == [0, 4, 8]
    assert times(batches) == [i * Fraction(1001, 30000) for i in range(11)]
    assert np.array_equal(stacked(batches), pictures)
    assert all(b.alpha is None for b in batches)
    assert reader.check_complete() is None
    assert (reader.frames_decoded, reader.decode_failures, reader.frames_lost) == (11, 0, 0)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Window(Fraction(3, 25), Fraction(7, 25)), range(3, 7)),
        (Window(Fraction(31, 250), None), range(4, 10)),
        (Window(None, Fraction(71, 250)), range(8)),
        (Window(Fraction(-1), Fraction(100)), range(10)),
        (Window(Fraction(5), None), range(0)),
    ],
)
def test_windows(tmp_path: Path, window: Window, expected: range) -> None:
    pictures = make_images(tmp_path / "in", [f"{i}.png" for i in range(10)])
    batches, reader = read(probe_target(tmp_path / "in"), window=window)
    assert times(batches) == [Fraction(i, 25) for i in expected]
    if expected:
        assert np.array_equal(stacked(batches), [pictures[i] for i in expected])
    assert reader.check_complete() is None


def test_mixed_kinds(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    names = ["0.png", "1.bmp", "2.tif", "3.webp", "4.jpg", "5.tiff"]
    pictures = make_images(folder, names, lossless=True, quality=98, subsampling=0)
    Image.fromarray(pictures[0]).quantize(64).save(folder / "6.png")
    Image.fromarray(pictures[0]).convert("L").save(folder / "7.png")
    info = probe_target(folder)
    assert info.codec == "png"
    report = Report()
    frames = stacked(read(info, report)[0])
    assert report.warnings == []
    for index in (0, 1, 2, 3, 5):
        assert np.array_equal(frames[index], pictures[index])
    assert np.abs(frames[4].astype(int) - pictures[4]).mean() < 2
    assert np.array_equal(frames[6], np.asarray(Image.open(folder / "6.png").convert("RGB")))
    assert np.array_equal(frames[7], np.asarray(Image.open(folder / "7.png").convert("RGB")))


def test_orientation_of_every_kind(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    names = ["0.png", "1.webp", "2.tif", "3.jpg"]
    pictures = make_images(tmp_path / "in", names, exif=exif, lossless=True, quality=98)
    deep = Image.fromarray(pictures[0][:, :, 0].astype(np.uint16) * 257)
    deep.save(tmp_path / "in" / "4.tif", exif=exif)
    info = probe_target(tmp_path / "in")
    assert (info.width, info.height) == (24, 40)
    report = Report()
    frames = stacked(read(info, report)[0])
    assert report.warnings == []
    for index, frame in enumerate(frames):
        stored = pictures[index] if index < 4 else pictures[0][:, :, [0, 0, 0]]
        expected = np.rot90(stored, -1) * 257.0
        assert np.abs(frame - expected).mean() < (600 if index == 3 else 0.5), names[index]


def test_orientation_behind_the_pixels(tmp_path: Path) -> None:
    """PNG allows EXIF behind the picture, where no header shows it."""
    folder = tmp_path / "in"
    pictures = make_images(folder, ["0.png", "1.png"])
    exif = Image.Exif()
    exif[0x0112] = 6
    chunk = b"eXIf" + exif.tobytes()[6:]
    added = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    for name in ("0.png", "1.png"):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[:-12] + added + data[-12:])
    info = probe_target(folder)
    assert (info.width, info.height) == (24, 40)
    frames = stacked(read(info)[0])
    assert np.array_equal(frames, [np.rot90(pixels, -1) for pixels in pictures])


def test_headers_are_read_without_the_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_images(tmp_path / "in", [f"{i}.png" for i in range(6)])
    loads = []
    load = ImageFile.ImageFile.load
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: loads.append(1) or load(image))
    assert len(probe_target(tmp_path / "in").images) == 6
    assert len(loads) <= 1


def test_deep_pictures_make_a_deep_clip(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    make_images(folder, ["a.png"])
    rng = np.random.default_rng(0)
    deep = rng.integers(0, 65536, (24, 40, 3)).astype(np.uint16)
    grey = rng.integers(0, 65536, (24, 40)).astype(np.uint16)
    cv2.imwrite(str(folder / "b.png"), deep[:, :, ::-1])
    cv2.imwrite(str(folder / "c.tif"), deep[:, :, ::-1])
    cv2.imwrite(str(folder / "d.png"), grey)
    info = probe_target(folder)
    assert (info.layout.bits, info.pixel_format, info.hazards) == (16, "gbrp16le", {"deep"})
    frames = stacked(read(info)[0])
    assert frames.dtype == np.uint16
    assert np.array_equal(frames[0], numbered(0).astype(np.uint16) * 257)
    assert np.array_equal(frames[1], deep)
    assert np.array_equal(frames[2], deep)
    assert np.array_equal(frames[3], np.dstack([grey] * 3))


def test_alpha_where_any_picture_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    make_images(folder, ["a.png", "b.jpg"])
    pixels = numbered(2, channels=4)
    Image.fromarray(pixels).save(folder / "c.png")
    info = probe_target(folder)
    assert (info.pixel_format, info.hazards) == ("gbrap", {"alpha"})
    frames = stacked(read(info)[0])
    assert (frames[:2, :, :, 3] == 255).all()
    assert np.array_equal(frames[2], pixels)


def test_other_sizes_are_scaled_with_one_warning(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    pictures = make_images(folder, ["0.png", "1.png", "2.png", "3.png"])
    for index, size in ((1, (80, 48)), (3, (20, 12))):
        Image.fromarray(pictures[index]).resize(size, Image.Resampling.NEAREST).save(
            folder / f"{index}.png"
        )
    info = probe_target(folder)
    assert info.hazards == {"changing"}
    report = Report()
    frames = stacked(read(info, report)[0]).astype(int)
    assert np.array_equal(frames[1], pictures[1])
    assert np.abs(frames[3] - pictures[3]).mean() < 6
    assert np.array_equal(frames[2], pictures[2])
    assert len(report.warnings) == 1
    assert "scaled to it, the first of them 80x48" in report.warnings[0]


def test_broken_pictures_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    pictures = make_images(folder, [f"{i:02d}.png" for i in range(12)])
    data = (folder / "03.png").read_bytes()
    (folder / "03.png").write_bytes(data[: len(data) // 2])
    (folder / "07.png").write_bytes(b"")
    info = probe_target(folder)
    assert info.frame_count_from_header == 12
    report = Report()
    batches, reader = read(info, report)
    there = [i for i in range(12) if i not in {3, 7}]
    assert times(batches) == [Fraction(i, 25) for i in there]
    assert np.array_equal(stacked(batches), [pictures[i] for i in there])
    error = reader.check_complete()
    assert isinstance(error, CorruptInput)
    assert (reader.frames_decoded, reader.decode_failures, reader.frames_lost) == (10, 2, 2)
    assert "2 of 12 images cannot be read; the first: the image is damaged" in str(error)
    assert "03.png" in str(error)


def test_many_broken_pictures_are_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    make_images(folder, [f"{i:02d}.png" for i in range(12)])
    # The first too: the clip's size is that of the first that can be read.
    for index in (0, 5, 11):
        (folder / f"{index:02d}.png").write_text("no picture")
    batches, reader = read(probe_target(folder))
    assert len(times(batches)) == 9
    error = reader.check_complete()
    assert isinstance(error, CorruptInput)
    assert "3 of 12 images cannot be read" in str(error)
    assert "--lenient" in str(error)
    assert reader.frames_lost == 3


def test_pictures_that_vanish_or_cannot_be_frames(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    make_images(folder, [f"{i}.png" for i in range(3)])
    Image.fromarray(numbered(0)).convert("CMYK").save(folder / "3.jpg")
    Image.fromarray(numbered(0)[:, :, 0].astype(np.float32)).save(folder / "4.tif")
    moving = [Image.fromarray(numbered(i)) for i in range(2)]
    moving[0].save(folder / "5.webp", save_all=True, append_images=moving[1:])
    moving[0].save(folder / "6.png", save_all=True, append_images=moving[1:])
    info = probe_target(folder)
    (folder / "1.png").unlink()
    batches, reader = read(info)
    assert times(batches) == [Fraction(0), Fraction(2, 25)]
    assert reader.check_complete() is not None
    assert reader.frames_lost == 5
    for name in ("0.png", "2.png"):
        (folder / name).unlink()
    batches, reader = read(info)
    assert batches == []
    error = reader.check_complete()
    assert isinstance(error, CorruptInput)
    assert "7 of 7 images" in str(error)
    with pytest.raises(UnsupportedVideo, match=r"none of its 4 images.*CMYK"):
        probe_target(folder)


def test_colour_profiles(tmp_path: Path) -> None:
    folder, plain = tmp_path / "in", tmp_path / "plain"
    pictures = make_images(folder, ["0.png", "1.png"], icc_profile=wide_gamut_profile())
    make_images(plain, ["0.png"], icc_profile=profile())
    report = Report()
    frames = stacked(read(probe_target(folder), report)[0])
    assert np.array_equal(frames, pictures)
    assert len(report.warnings) == 1
    assert "only a folder of images as output keeps it" in report.warnings[0]

    report = Report()
    converted = stacked(read(probe_target(folder), report, srgb=True)[0]).astype(int)
    assert report.warnings == []
    swapped = np.stack(pictures)[:, :, :, [1, 0, 2]].astype(int)
    assert np.abs(converted - swapped).mean() < 12
    assert np.abs(converted - np.stack(pictures)).mean() > 20

    report = Report()
    assert np.array_equal(stacked(read(probe_target(plain), report, srgb=True)[0])[0], pictures[0])
    assert report.warnings == []


def test_profiles_that_cannot_be_used(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    pictures = make_images(folder, ["0.png"], icc_profile=b"no profile")
    report = Report()
    frames = stacked(read(probe_target(folder), report, srgb=True)[0])
    assert np.array_equal(frames, pictures)
    assert "unreadable; it is not converted" in report.warnings[0]


def test_alpha_beside_a_profile(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    pictures = make_images(folder, ["0.png"], channels=4, icc_profile=wide_gamut_profile())
    frames = stacked(read(probe_target(folder), srgb=True)[0])
    assert np.array_equal(frames[0, :, :, 3], pictures[0][:, :, 3])
    assert np.abs(frames[0, :, :, :3].astype(int) - pictures[0][:, :, [1, 0, 2]]).mean() < 12


def test_non_square_pixels(tmp_path: Path) -> None:
    make_images(tmp_path / "in", ["0.png"])
    file = tmp_path / "in" / "0.png"
    shape = (4).to_bytes(4, "big") + (3).to_bytes(4, "big") + b"\0"
    file.write_bytes(with_chunks(file.read_bytes(), [(b"pHYs", shape)]))
    found = probe_target(tmp_path / "in")
    with av.open(file) as container:
        theirs = container.streams.video[0].sample_aspect_ratio
    assert found.sample_aspect == theirs == Fraction(4, 3), "FFmpeg sees the same"


def test_a_clip_of_images_becomes_a_video(tmp_path: Path) -> None:
    make_images(tmp_path / "in", [f"{i}.png" for i in range(9)])
    info = probe_target(tmp_path / "in", Fraction(12))
    report = Report()
    with ClipWriter(tmp_path / "out.mp4", info, settings(), report) as writer:
        for batch in read(info, report)[0]:
            writer.write(batch)
    made = probe(tmp_path / "out.mp4")
    assert (made.frame_rate, made.frame_count_from_header) == (12, 9)
    assert made.duration_from_header == Fraction(9, 12)
    assert made.color.tags == (1, 1, 1, 1)
    assert report.warnings == []


# Writing


def clip_batches(path: Path, n: int = 5) -> tuple[VideoInfo, list[FrameBatch]]:
    info = probe(path)
    with PyavReader(info, Report()) as reader:
        return info, list(reader.batches(n))


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p", "yuv444p"])
@pytest.mark.parametrize("color", [(1, 1, 1, 1), (5, 5, 6, 2)])
def test_a_clip_becomes_a_folder_of_png(
    tmp_path: Path, pix_fmt: str, color: tuple[int, int, int, int]
) -> None:
    clip = make_clip(tmp_path / "clip.mp4", pix_fmt=pix_fmt, color=color)
    info, batches = clip_batches(clip.path)
    report = Report()
    write(tmp_path / "out", info, batches, report)
    assert written(tmp_path / "out") == [f"{i:06d}.png" for i in range(1, 13)]
    assert report.counts["frames_out"] == 12
    assert report.warnings == []
    expected = [(f.clamp(0, 1) * 255).round() for b in batches for f in rgb_frames(b)]
    for index, frame in enumerate(expected):
        pixels = loaded(tmp_path / "out" / f"{index + 1:06d}.png")
        assert pixels.shape == (48, 64, 3)
        assert np.array_equal(pixels, frame.permute(1, 2, 0).numpy())
    with av.open(clip.path) as container:
        for index, frame in enumerate(container.decode(video=0)):
            ours = loaded(tmp_path / "out" / f"{index + 1:06d}.png").astype(int)
            theirs = frame.to_ndarray(format="rgb24").astype(int)
            assert np.abs(ours - theirs).mean() < 1.5, "swscale's conversion is near"


def test_deep_clips_make_deep_png(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.mkv", codec="ffv1", pix_fmt="gbrp10le", frames=3)
    info, batches = clip_batches(clip.path)
    write(tmp_path / "out", info, batches)
    for index in range(3):
        pixels = cv2.imread(str(tmp_path / "out" / f"{index + 1:06d}.png"), cv2.IMREAD_UNCHANGED)
        assert pixels.dtype == np.uint16
        green, blue, red = (plane.astype(float) for plane in clip.planes(index))
        exact = np.rint(np.dstack([blue, green, red]) / 1023 * 65535)
        assert np.abs(pixels - exact).max() <= 1


def test_a_deep_clip_in_jpeg_is_said(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.mkv", codec="ffv1", pix_fmt="yuva444p10le", frames=3)
    info, batches = clip_batches(clip.path)
    report = Report()
    write(tmp_path / "out" / "f%d.jpg", info, batches, report)
    assert written(tmp_path / "out") == ["f1.jpg", "f2.jpg", "f3.jpg"]
    text = " ".join(report.warnings)
    assert "10 bits a sample become 8" in text
    assert "alpha channel is dropped" in text
    assert len(report.warnings) == 2


@pytest.mark.parametrize("suffix", [".png", ".webp"])
def test_alpha_is_kept(tmp_path: Path, suffix: str) -> None:
    clip = make_clip(tmp_path / "clip.mkv", codec="ffv1", pix_fmt="bgra", frames=3)
    info, batches = clip_batches(clip.path)
    report = Report()
    write(tmp_path / "out" / f"%d{suffix}", info, batches, report)
    assert report.warnings == []
    for index in range(3):
        pixels = loaded(tmp_path / "out" / f"{index + 1}{suffix}")
        alpha = clip.planes(index)[0][:, :, 3]
        assert np.array_equal(pixels[:, :, 3], alpha)
        if suffix == ".png":
            assert np.array_equal(pixels[:, :, :3], clip.planes(index)[0][:, :, 2::-1])


def test_the_quality_is_the_users(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=2)
    info, batches = clip_batches(clip.path)
    sizes = {}
    for suffix in (".jpg", ".webp"):
        for quality in (20, 95):
            out = tmp_path / f"q{quality}{suffix}"
            write(out / f"%d{suffix}", info, batches, image_quality=quality)
            sizes[quality] = (out / f"1{suffix}").stat().st_size
        assert sizes[20] < sizes[95] / 1.3


def test_images_keep_their_names_and_metadata(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    exif = Image.Exif()
    exif[0x010F] = "ACME"
    pictures = make_images(folder, ["shot 9.png", "shot 10.png"])
    Image.fromarray(pictures[1]).save(
        folder / "shot 10.png", exif=exif, icc_profile=wide_gamut_profile(), dpi=(300, 300)
    )
    Image.fromarray(pictures[0][:, :, 0]).save(folder / "shot 11.tif", dpi=(150, 150))
    Image.fromarray(pictures[0]).save(folder / "shot 12.jpg", quality=98, exif=exif)
    info = probe_target(folder)
    write(out, info, read(info)[0])
    assert written(out) == ["shot 10.png", "shot 11.png", "shot 12.png", "shot 9.png"]
    assert np.array_equal(loaded(out / "shot 9.png"), pictures[0])
    assert np.array_equal(loaded(out / "shot 10.png"), pictures[1])
    assert np.array_equal(loaded(out / "shot 11.png"), pictures[0][:, :, 0]), "grey stays grey"
    with Image.open(out / "shot 10.png") as image:
        assert image.info["icc_profile"] == wide_gamut_profile()
        assert image.getexif()[0x010F] == "ACME"
        assert image.info["dpi"] == pytest.approx((300, 300), rel=0.01)
    with Image.open(out / "shot 11.png") as image:
        assert len(image.getexif()) == 0
    with Image.open(out / "shot 12.png") as image:
        assert image.getexif()[0x010F] == "ACME"


def test_a_part_of_the_images_keeps_its_names(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    pictures = make_images(folder, [f"{i}.png" for i in range(8)])
    info = probe_target(folder)
    window = Window(Fraction(3, 25), Fraction(6, 25))
    batches, _ = read(info, window=window)
    # What is written begins later than the images do.
    write(out, replace(info, start=Fraction(3, 25)), batches, edit=Edit(window))
    assert written(out) == ["3.png", "4.png", "5.png"]
    assert np.array_equal(loaded(out / "4.png"), pictures[4])


def test_lost_pictures_leave_their_names_free(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    make_images(folder, [f"{i}.png" for i in range(5)])
    (folder / "2.png").write_text("no picture")
    info = probe_target(folder)
    write(out, info, read(info)[0])
    assert written(out) == ["0.png", "1.png", "3.png", "4.png"]
    write(tmp_path / "numbered" / "%d.png", info, read(info)[0])
    assert written(tmp_path / "numbered") == ["1.png", "2.png", "3.png", "4.png"]


def test_names_that_would_be_the_same_are_numbered(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    make_images(folder, ["a.png", "a.bmp"])
    info = probe_target(folder)
    write(tmp_path / "out", info, read(info)[0])
    assert written(tmp_path / "out") == ["000001.png", "000002.png"]


def test_grey_profiles_go_with_grey_pictures_only(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    grey_profile = bytearray(profile())
    grey_profile[16:20] = b"GRAY"
    grey = Image.fromarray(numbered(0)[:, :, 0])
    grey.save(folder / "0.png", icc_profile=bytes(grey_profile))
    both = grey.convert("LA")
    both.save(folder / "1.png", icc_profile=bytes(grey_profile))
    info = probe_target(folder)
    write(out, info, read(info)[0])
    with Image.open(out / "0.png") as image:
        assert image.mode == "RGBA", "the clip has alpha"
        assert "icc_profile" not in image.info
    (folder / "1.png").unlink()
    info = probe_target(folder)
    write(out, info, read(info)[0], overwrite=True)
    with Image.open(out / "0.png") as image:
        assert (image.mode, image.info["icc_profile"]) == ("L", bytes(grey_profile))


def test_what_images_cannot_hold_is_said(tmp_path: Path) -> None:
    clip = make_clip(
        tmp_path / "clip.mp4", pts=[0, 0.04, 0.08, 0.3, 0.34, 0.5], audio=True, sar=Fraction(4, 3)
    )
    info, batches = clip_batches(clip.path)
    info = replace(info, subtitles=(2,))
    report = Report()
    write(tmp_path / "out", info, batches, report)
    assert len(report.warnings) == 2
    assert "dropped: sound, subtitles; images hold none" in report.warnings[0]
    assert "the frames' times are lost" in report.warnings[1]
    with Image.open(tmp_path / "out" / "000001.png") as image:
        assert image.info["aspect"] == (4, 3)
    assert probe_target(tmp_path / "out").sample_aspect == Fraction(4, 3)
    report = Report()
    quiet = Edit(rate=Fraction(25))
    write(tmp_path / "silent", replace(info, subtitles=()), batches, report, quiet, audio=False)
    assert report.warnings == []
    report = Report()
    write(tmp_path / "jpeg" / "%d.jpg", info, batches, report)
    assert "pixel aspect 4/3 is lost" in report.warnings[-1]


def test_hdr_colours_are_told(tmp_path: Path) -> None:
    clip = make_clip(
        tmp_path / "pq.mkv",
        codec="ffv1",
        pix_fmt="yuv420p10le",
        color=(9, 9, 16, 1),
        frames=2,
    )
    info, batches = clip_batches(clip.path)
    write(tmp_path / "out", info, batches)
    with av.open(tmp_path / "out" / "000001.png") as container:
        frame = next(container.decode(video=0))
    assert (int(frame.color_primaries), int(frame.color_trc)) == (9, 16)
    report = Report()
    write(tmp_path / "webp" / "%d.webp", info, batches, report)
    assert any("cannot say that these colours are wide or HDR" in w for w in report.warnings)


def test_a_constant_rate_writes_frames_again(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.mp4", pts=[0, 0.04, 0.2, 0.24])
    info, batches = clip_batches(clip.path)
    report = Report()
    write(tmp_path / "out", info, batches, report, Edit(rate=Fraction(25)))
    pictures = [loaded(tmp_path / "out" / name) for name in written(tmp_path / "out")]
    expected = [
        (f.clamp(0, 1) * 255).round().permute(1, 2, 0).numpy()
        for b in batches
        for f in rgb_frames(b)
    ]
    shown = [0, 1, 1, 1, 1, 2, 3]
    assert len(pictures) == len(shown)
    for found, index in zip(pictures, shown, strict=True):
        assert np.array_equal(found, expected[index])
    assert report.counts["frames_out"] == 7
    assert not any("times" in warning for warning in report.warnings)


def test_a_constant_rate_of_images(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    make_images(folder, ["a.png", "b.png", "c.png"])
    info = probe_target(folder, Fraction(10))
    write(tmp_path / "double", info, read(info)[0], edit=Edit(rate=Fraction(20)))
    assert written(tmp_path / "double") == [f"{i:06d}.png" for i in range(1, 7)]
    write(tmp_path / "same", info, read(info)[0], edit=Edit(rate=Fraction(10)))
    assert written(tmp_path / "same") == ["a.png", "b.png", "c.png"]


# What is an output, and which are refused


def test_which_outputs_are_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    for out in ("frames/", "there", "f_%05d.png", "a/b/%d.JPG", "frames.v2/"):
        assert is_image_folder(out), out
    for out in ("out.mp4", "out", "a%d.mp4", "out.gif", "a.png", "%d.tga"):
        assert not is_image_folder(out), out


def test_outputs_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames, photo = tmp_path / "frames", tmp_path / "photos" / "me.png"
    make_images(frames, ["0.png", "1.png"])
    make_images(tmp_path / "photos", ["me.png"])
    (tmp_path / "file").write_text("x")
    full = tmp_path / "full"
    make_images(full, ["0.png"])
    mixed = tmp_path / "mixed"
    make_images(mixed, ["0.png"])
    (mixed / "diary.txt").write_text("dear diary")
    deep = tmp_path / "deep"
    make_images(deep, ["0.png"])
    make_images(deep / "below.png", ["1.png"])
    (tmp_path / "link").symlink_to(frames)
    (tmp_path / "inside").mkdir()
    inputs = [photo, frames]

    def check(out: Path, overwrite: bool = False, inputs: Sequence[Path] = inputs) -> None:
        check_image_folder(out, inputs, overwrite)

    check(tmp_path / "new")
    check(tmp_path / "inside")
    check(full, True)
    check(tmp_path / "new" / "%d.png")
    with pytest.raises(OutputExists, match=r"not empty.*--overwrite"):
        check(full)
    with pytest.raises(OutputExists):
        check(full / "%d.png")
    for same in (frames, tmp_path / "link", frames / "%03d.png"):
        with pytest.raises(SameFile, match="same folder"):
            check(same, True)
        with pytest.raises(SameFile, match="same folder"):
            check(same, True, [photo, frames / "%d.png"])
    with pytest.raises(SameFile, match="the output lies in the input's folder"):
        check(frames / "out")
    with pytest.raises(SameFile, match="an input lies in the output's folder"):
        check(tmp_path / "photos", True)
    for folder, name in ((mixed, r"diary\.txt"), (deep, r"below\.png")):
        with pytest.raises(OutputNotWritable, match=f"something else than images, {name}"):
            check(folder, True)
    with pytest.raises(OutputFolderMissing, match="mkdir -p"):
        check(tmp_path / "no" / "where")
    with pytest.raises(OutputFolderMissing, match="is not a folder"):
        check(tmp_path / "file" / "out")
    with pytest.raises(OutputNotWritable, match="not a folder"):
        check(tmp_path / "file")
    with pytest.raises(IncompatibleContainer, match=r"unknown image format \.tga"):
        check(tmp_path / "new" / "%d.tga")
    for root in (Path("/"), Path("/proc")):
        with pytest.raises(OutputNotWritable, match="current folder or a whole disk"):
            check(root, True)
    (tmp_path / "inside" / "here").mkdir()
    monkeypatch.chdir(tmp_path / "inside" / "here")
    for here in (Path("%d.png"), tmp_path / "inside"):
        with pytest.raises(OutputNotWritable, match="current folder"):
            check(here)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folders_that_may_not_be_written(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    make_images(locked, ["0.png"])
    locked.chmod(0o500)
    with pytest.raises(OutputNotWritable, match="write-protected"):
        check_image_folder(locked, [], True)
    with pytest.raises(OutputNotWritable, match="not writable"):
        check_image_folder(locked / "out", [], False)
    locked.chmod(0o700)


def test_sound_cannot_go_into_images(tmp_path: Path) -> None:
    info, _ = clip_batches(make_clip(tmp_path / "clip.mp4", frames=2).path)
    with pytest.raises(IncompatibleContainer, match=r"no sound.*--audio"):
        ImageFolderWriter(tmp_path / "out", info, settings(audio_file="a.wav"), Report())


def test_images_too_large_for_their_format(tmp_path: Path) -> None:
    info, _ = clip_batches(make_clip(tmp_path / "clip.mp4", frames=2).path)
    wide = replace(info, width=20_000)
    with pytest.raises(EncoderRejected, match="WEBP images cannot be larger"):
        ImageFolderWriter(tmp_path / "out" / "%d.webp", wide, settings(), Report())


# Whole or not at all


def test_overwriting_replaces_the_folder(tmp_path: Path) -> None:
    folder, out, link = tmp_path / "in", tmp_path / "out", tmp_path / "link"
    make_images(out, [f"old {i}.png" for i in range(5)])
    (out / "Thumbs.db").write_bytes(b"x")
    link.symlink_to(out)
    make_images(folder, ["new.png"])
    info = probe_target(folder)
    write(link, info, read(info)[0], overwrite=True)
    assert written(out) == ["new.png"]
    assert link.is_symlink()
    assert written(tmp_path) == ["in", "link", "out"]


def test_a_failed_run_leaves_everything_as_it_was(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    make_images(folder, ["new.png"])
    make_images(out, ["old.png"])
    info = probe_target(folder)
    batches, _ = read(info)
    threads = threading.active_count()
    with pytest.raises(FileNotFoundError):
        interrupted(out, info, batches, (tmp_path / "nowhere").stat, overwrite=True)
    with pytest.raises(EmptyVideo):
        write(tmp_path / "none", info, [])
    assert written(out) == ["old.png"]
    assert written(tmp_path) == ["in", "out"]
    assert threading.active_count() == threads


def test_what_appeared_meanwhile_is_kept(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    make_images(folder, ["new.png"])
    info = probe_target(folder)
    batches, _ = read(info)
    with pytest.raises(OutputExists, match="in the meantime"):
        interrupted(out, info, batches, lambda: make_images(out, ["other.png"]))
    assert written(out) == ["other.png"]
    with pytest.raises(OutputNotWritable, match="something else than images"):
        interrupted(out, info, batches, (out / "diary.txt").touch, overwrite=True)
    assert written(out) == ["diary.txt", "other.png"]
    assert written(tmp_path) == ["in", "out"]


def test_two_runs_for_one_output(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    make_images(folder, ["new.png"])
    info = probe_target(folder)
    batches, _ = read(info)
    with ImageFolderWriter(out, info, settings(), Report()) as writer:
        with (
            pytest.raises(OutputNotWritable, match="another run"),
            ImageFolderWriter(out, info, settings(), Report()),
        ):
            pass
        writer.write(batches[0])
    assert written(out) == ["new.png"]


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EACCES, OutputNotWritable)]
)
def test_a_full_disk_is_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[FfxError]
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    make_images(folder, [f"{i}.png" for i in range(8)])
    info = probe_target(folder)
    batches, _ = read(info, n=1)
    whole = Path.write_bytes

    def write_bytes(path: Path, data: bytes) -> int:
        if path.name == "3.png":
            raise OSError(number, os.strerror(number))
        return whole(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    with pytest.raises(kind) as caught:
        write(out, info, batches)
    assert str(out) in str(caught.value)
    assert written(tmp_path) == ["in"]


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_dead_processes_left_is_swept(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    make_images(folder, ["new.png"])
    dead, other = dead_process(), os.getppid()
    make_images(tmp_path / f".out.{dead}.partial", ["half.png"])
    make_images(tmp_path / f".out.{dead}.replaced", ["old.png"])
    make_images(tmp_path / f".out.{other}.partial", ["alive.png"])
    make_images(tmp_path / f".out2.{dead}.partial", ["another's.png"])
    info = probe_target(folder)
    # It was killed between setting the old folder aside and moving the new one in.
    with pytest.raises(OutputExists):
        write(out, info, read(info)[0])
    assert written(out) == ["old.png"]
    write(out, info, read(info)[0], overwrite=True)
    assert written(out) == ["new.png"]
    kept = [f".out.{other}.partial", f".out2.{dead}.partial", "in", "out"]
    assert written(tmp_path) == sorted(kept)


def test_a_batch_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    make_images(tmp_path / "in", ["0.png"])
    info = probe_target(tmp_path / "in")
    batches, _ = read(info)
    with (
        pytest.raises(ValueError, match="does not fit"),
        ImageFolderWriter(tmp_path / "out", replace(info, width=20), settings(), Report()) as sink,
    ):
        sink.write(batches[0])
    assert not (tmp_path / "out").exists()
