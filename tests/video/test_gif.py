"""GIF and animated PNG as clips."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from facefusion_cli.config import load_config
from facefusion_cli.errors import FfxError
from facefusion_cli.planes import upload
from facefusion_cli.report import Report
from facefusion_cli.types import FrameBatch, PlaneLayout, VideoInfo
from facefusion_cli.video import animations
from facefusion_cli.video.animations import Animation, read_animation
from facefusion_cli.video.image_kinds import is_image
from facefusion_cli.video.probe import probe
from facefusion_cli.video.reader import open_reader
from facefusion_cli.video.writer import ClipWriter
from tests.clips import packet_pts

W, H = 40, 24


def pictures(count: int, alpha: int = 255) -> list[np.ndarray]:
    """Flat colours a GIF's palette holds exactly, with a block that moves; RGBA."""
    found = []
    for index in range(count):
        pixels = np.full((H, W, 4), (16 * index, 96, 160, 255), np.uint8)
        pixels[4:10, 3 * index : 3 * index + 6] = (240, 32, 32, 255)
        pixels[16:20, 10:20, 3] = alpha
        found.append(pixels)
    return found


def make(
    path: Path, frames: Sequence[np.ndarray], delays: Sequence[int] | int = 40, **how: Any
) -> Path:
    """Writes an animation.

    Args:
        path: Its suffix decides the kind.
        frames: RGBA; those without any transparency are written as RGB.
        delays: Milliseconds, of all or each.
        how: More of Image.save.
    """
    opaque = all((f[:, :, 3] == 255).all() for f in frames)
    images = [Image.fromarray(f[:, :, :3] if opaque else f) for f in frames]
    images[0].save(path, save_all=True, append_images=images[1:], duration=delays, **how)
    return path


def read(path: Path, decoder: str = "pyav") -> tuple[VideoInfo, list[FrameBatch], Report]:
    info, report = probe(path), Report()
    with open_reader(info, decoder, report) as reader:
        batches = [upload(b, "cpu") for b in reader.batches(4)]
        assert reader.check_complete() is None
        assert reader.frames_lost == 0
    return info, batches, report


def rgb(batches: Sequence[FrameBatch]) -> np.ndarray:
    parts = []
    for batch in batches:
        green, blue, red = (p.numpy() for p in batch.planes)
        parts.append(np.stack([red, green, blue], 3))
    return np.concatenate(parts)


def times(batches: Sequence[FrameBatch]) -> list[Fraction]:
    return [t for b in batches for t in b.pts]


@pytest.mark.parametrize("suffix", [".gif", ".png"])
@pytest.mark.parametrize("decoder", ["opencv", "pyav"])
def test_an_animation_is_a_clip(tmp_path: Path, suffix: str, decoder: str) -> None:
    frames = pictures(6)
    path = make(tmp_path / f"in{suffix}", frames, loop=3)
    assert not is_image(path)
    info, batches, report = read(path, decoder)
    assert (info.width, info.height, info.frame_count_from_header) == (W, H, 6)
    assert (info.color.matrix, info.layout) == ("rgb", PlaneLayout((1, 1), 8))
    assert info.frame_rate == 25
    assert info.hazards == frozenset()
    assert info.tags["loop"] == "3"
    assert times(batches) == [Fraction(i, 25) for i in range(6)] == packet_pts(path)
    assert np.array_equal(rgb(batches), np.stack(frames)[:, :, :, :3])
    assert all(b.alpha is None for b in batches)
    assert report.warnings == []


@pytest.mark.parametrize("decoder", ["opencv", "pyav"])
def test_delays_are_the_frames_times(tmp_path: Path, decoder: str) -> None:
    path = make(tmp_path / "in.gif", pictures(6), [40, 80, 40, 500, 40, 2000])
    info, batches, _ = read(path, decoder)
    assert info.hazards == {"vfr"}
    assert info.duration_from_header == Fraction(27, 10)
    assert times(batches) == [Fraction(t, 1000) for t in (0, 40, 120, 160, 660, 700)]


@pytest.mark.parametrize("decoder", ["opencv", "pyav"])
def test_a_last_picture_that_stands_long_is_no_loss(tmp_path: Path, decoder: str) -> None:
    info, batches, _ = read(make(tmp_path / "in.gif", pictures(6), [40] * 5 + [3000]), decoder)
    assert info.duration_from_header == Fraction(32, 10)
    assert len(times(batches)) == 6


@pytest.mark.parametrize("decoder", ["opencv", "pyav"])
@pytest.mark.parametrize(("delay", "rate"), [(0, 10), (40, 25), (2500, Fraction(2, 5))])
def test_one_picture(tmp_path: Path, decoder: str, delay: int, rate: Fraction) -> None:
    frames = pictures(1)
    path = make(tmp_path / "in.gif", frames, delay)
    assert not is_image(path)
    info, batches, report = read(path, decoder)
    assert info.frame_count_from_header == 1
    assert info.duration_from_header == (Fraction(delay, 1000) if delay else None)
    assert info.frame_rate == rate, "no delay counts as 0.1 s, as browsers have it"
    assert np.array_equal(rgb(batches), np.stack(frames)[:, :, :, :3])
    assert report.warnings == []


def test_transparency_is_alpha(tmp_path: Path) -> None:
    frames = pictures(6, alpha=0)
    path = make(tmp_path / "in.gif", frames, disposal=2)
    info, batches, _ = read(path)
    assert info.hazards == {"alpha"}
    for batch in batches:
        assert batch.alpha is not None
        assert (batch.alpha[:, 16:20, 10:20] == 0).all()
        assert (batch.alpha[:, 10:16] == 255).all()


def test_transparency_that_begins_late(tmp_path: Path) -> None:
    frames = [*pictures(3), *pictures(2, alpha=0)]
    images = [Image.fromarray(f) for f in frames]
    images[0].save(
        tmp_path / "in.gif", save_all=True, append_images=images[1:], duration=40, disposal=2
    )
    info, batches, _ = read(tmp_path / "in.gif")
    assert info.hazards == {"alpha"}
    alpha = np.concatenate([b.alpha.numpy() for b in batches if b.alpha is not None])
    assert [int(a.min()) for a in (*alpha[:3], alpha[-1])] == [255, 255, 255, 0]


def test_what_only_stays_as_it_was_is_not_transparent(tmp_path: Path) -> None:
    # Pillow marks unchanged pixels as transparent in all but the first picture.
    path = make(tmp_path / "in.gif", pictures(6), optimize=True, disposal=1)
    assert b"\x21\xf9\x04\x05" in path.read_bytes(), "no picture uses a transparent index"
    info, batches, report = read(path)
    assert info.hazards == frozenset()
    assert np.array_equal(rgb(batches), np.stack(pictures(6))[:, :, :, :3])
    assert report.warnings == []


def test_only_so_many_pictures_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "in.gif", pictures(6), disposal=2)
    assert read_animation(path).empties
    assert "alpha" not in probe(path).hazards
    monkeypatch.setattr(animations, "_LOOKED_AT", 3)
    assert "alpha" in probe(path).hazards, "what is not known is carried"


def test_a_gif_becomes_a_video(tmp_path: Path) -> None:
    frames = pictures(8)
    path = make(tmp_path / "in.gif", frames, [40, 40, 120, 40, 40, 40, 40, 40])
    for decoder in ("opencv", "pyav"):
        info, batches, report = read(path, decoder)
        out = tmp_path / f"{decoder}.mp4"
        with ClipWriter(out, info, load_config(flags={"output": {"crf": 1}}), report) as writer:
            for batch in batches:
                writer.write(batch)
        made = probe(out)
        assert made.color.tags == (1, 1, 1, 1)
        assert (made.color.matrix, made.color.range) == ("bt709", "limited")
        assert packet_pts(out) == packet_pts(path)
        assert report.warnings == []


@pytest.mark.parametrize("loop", [None, 0, 7])
@pytest.mark.parametrize("suffix", [".gif", ".png"])
def test_how_often_it_plays(tmp_path: Path, loop: int | None, suffix: str) -> None:
    path = make(tmp_path / f"in{suffix}", pictures(3), **({} if loop is None else {"loop": loop}))
    # An animated PNG always says it; Pillow's usual number is 0.
    expected = 0 if loop is None and suffix == ".png" else loop
    assert read_animation(path) == Animation(3, expected)
    assert probe(path).tags.get("loop") == (None if expected is None else str(expected))


def test_a_png_with_one_picture_is_an_image(tmp_path: Path) -> None:
    path = make(tmp_path / "in.png", pictures(1))
    assert is_image(path)
    assert read_animation(path) == Animation()


@pytest.mark.parametrize("suffix", [".gif", ".png"])
def test_cut_off_anywhere(tmp_path: Path, suffix: str) -> None:
    noise = np.random.default_rng(0)
    frames = [*pictures(4)]
    for frame in frames:
        frame[:, :, :3] = noise.integers(0, 255, (H, W, 3))
    data = make(tmp_path / f"in{suffix}", frames).read_bytes()
    path = tmp_path / f"cut{suffix}"
    for keep in [*range(60), *range(60, len(data), 97)]:
        path.write_bytes(data[:keep])
        animation = read_animation(path)
        assert 0 <= (animation.frames or 0) <= 4
        try:
            info = probe(path)
        except FfxError:
            continue
        assert (info.width, info.height) == (W, H)
