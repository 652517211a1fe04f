"""Scaling planes: constants stay, nothing shifts, both ways of doing it agree."""

from __future__ import annotations

from fractions import Fraction

import cv2
import numpy as np
import pytest
import torch

from facefusion_cli.planes import frames_from_rgb, rgb_frames
from facefusion_cli.types import ColorSpec, FrameBatch, PlaneLayout
from facefusion_cli.video import scale
from facefusion_cli.video.scale import scale_frames

LIMITED, FULL, RGB = ColorSpec("bt709"), ColorSpec("bt709", "full"), ColorSpec("rgb", "full")
GRIDS = [(2, 2), (2, 1), (1, 1)]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def batch(
    size: tuple[int, int],
    layout: PlaneLayout,
    color: ColorSpec = LIMITED,
    *,
    value: int | None = None,
    alpha: bool = False,
    n: int = 2,
) -> FrameBatch:
    """Frames of one value, or of random smooth content."""
    w, h = size
    sx, sy = layout.subsampling
    dtype = torch.uint8 if layout.bits == 8 else torch.uint16
    rng = np.random.default_rng(w * h + layout.bits)

    def plane(width: int, height: int) -> torch.Tensor:
        if value is not None:
            return torch.full((n, height, width), value, dtype=torch.int32).to(dtype)
        coarse = rng.uniform(20, 230, (n, 5, 6)).astype(np.float32)
        smooth = np.stack([cv2.resize(c, (width, height)) for c in coarse])
        codes = np.round(smooth * 2 ** (layout.bits - 8))
        return torch.from_numpy(codes.astype(np.uint8 if layout.bits == 8 else np.uint16))

    cw, ch = -(-w // sx), -(-h // sy)
    planes = plane(w, h), plane(cw, ch), plane(cw, ch)
    times = tuple(Fraction(i, 25) for i in range(n))
    return FrameBatch(planes, color, layout, times, 7, plane(w, h) if alpha else None)


SIZES = [
    ((64, 48), (32, 24)),
    ((64, 48), (128, 96)),
    ((64, 48), (50, 30)),
    ((64, 48), (100, 20)),
    ((64, 48), (33, 97)),
    ((65, 49), (32, 24)),
    ((65, 49), (130, 98)),
    ((65, 49), (35, 101)),
    ((7, 5), (2, 2)),
    ((2, 2), (9, 6)),
    ((64, 48), (1, 1)),
    ((1, 1), (16, 16)),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bits", [8, 10, 16])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("old", "new"), SIZES)
def test_constant_planes_stay(
    old: tuple[int, int], new: tuple[int, int], grid: tuple[int, int], bits: int, device: str
) -> None:
    layout = PlaneLayout(grid, bits)
    for value in (1, 16, 77, 128, 235, 254):
        code = value << (bits - 8)
        frames = batch(old, layout, value=code, alpha=True).to(device)
        out = scale_frames(frames, new)
        assert (out.width, out.height) == new
        assert out.alpha is not None
        for plane in (*out.planes, out.alpha):
            assert plane.device.type == device
            assert (plane.cpu().int() == code).all(), value
        assert (out.pts, out.first_index, out.color, out.layout) == (
            frames.pts,
            7,
            LIMITED,
            layout,
        )


@pytest.mark.parametrize("bits", [8, 12])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("old", "new"), SIZES[:8])
def test_opencv_and_the_weights_agree(
    old: tuple[int, int],
    new: tuple[int, int],
    grid: tuple[int, int],
    bits: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames = batch(old, PlaneLayout(grid, bits), FULL)
    quick = scale_frames(frames, new)
    monkeypatch.setattr(scale, "_is_plain", lambda *_: False)
    exact = scale_frames(frames, new)
    for a, b in zip(quick.planes, exact.planes, strict=True):
        assert int((a.int() - b.int()).abs().max()) <= 1 << (bits - 8)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("old", "new"), SIZES[:8])
def test_both_devices_agree(old: tuple[int, int], new: tuple[int, int]) -> None:
    frames = batch(old, PlaneLayout((2, 2), 10))
    here, there = scale_frames(frames, new), scale_frames(frames.to("cuda"), new)
    for a, b in zip(here.planes, there.planes, strict=True):
        assert int((a.int() - b.cpu().int()).abs().max()) <= 4


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("old", [(64, 48), (65, 49), (65, 48)])
@pytest.mark.parametrize("new", [(32, 24), (130, 98), (97, 71), (33, 25), (32, 98)])
def test_nothing_shifts(old: tuple[int, int], new: tuple[int, int], grid: tuple[int, int]) -> None:
    """Ramps across the whole picture land where they were, chroma no further off than luma."""
    layout = PlaneLayout(grid, 16)
    color = ColorSpec("bt709", "full")
    w, h = old
    sx, sy = grid

    def ramps(width: int, height: int, size: tuple[int, int]) -> list[np.ndarray]:
        """Columns' and rows' places in the picture, 0 to 1, at the samples of a plane."""
        step = sx if width != size[0] or sx == 1 else 1, sy if height != size[1] or sy == 1 else 1
        x = (np.arange(width) + 0.5) * step[0] / size[0]
        y = (np.arange(height) + 0.5) * step[1] / size[1]
        return [np.broadcast_to(x, (height, width)), np.broadcast_to(y[:, None], (height, width))]

    for axis in (0, 1):
        shapes = [(w, h)] + [(-(-w // sx), -(-h // sy))] * 2
        planes = [
            torch.from_numpy((ramps(*s, old)[axis] * 60000).astype(np.uint16)) for s in shapes
        ]
        frames = FrameBatch(
            (planes[0][None], planes[1][None], planes[2][None]), color, layout, (Fraction(0),), 0
        )
        out = scale_frames(frames, new)
        for plane in out.planes:
            rows, columns = plane.shape[1:]
            ideal = ramps(columns, rows, new)[axis] * 60000
            off = (plane[0].numpy().astype(float) - ideal) / 60000 * new[axis]
            # The outermost samples cannot know how the ramp goes on.
            margin = 4 * -(-new[axis] // old[axis]) + 1
            inner = off[:, margin:-margin] if axis == 0 else off[margin:-margin]
            assert np.abs(inner).max() < 0.25


def test_overshoot_stays_legal() -> None:
    for bits, color, low, high in [
        (8, LIMITED, 1, 254),
        (10, LIMITED, 4, 1019),
        (8, FULL, 0, 255),
        (10, FULL, 0, 1023),
    ]:
        layout = PlaneLayout((1, 1), bits)
        dtype = torch.uint8 if bits == 8 else torch.uint16
        edge = torch.full((1, 16, 16), low, dtype=torch.int32)
        edge[:, :, 8:] = high
        plane = edge.to(dtype)
        frames = FrameBatch((plane, plane, plane), color, layout, (Fraction(0),), 0, plane)
        out = scale_frames(frames, (48, 48))
        assert out.alpha is not None
        for found in out.planes:
            assert (int(found.int().min()), int(found.int().max())) == (low, high)
        assert int(out.alpha.int().max()) <= (1 << bits) - 1


def test_halves_are_means_of_four() -> None:
    frames = batch((64, 48), PlaneLayout((1, 1), 8))
    out = scale_frames(frames, (32, 24))
    for old, new in zip(frames.planes, out.planes, strict=True):
        mean = old.float().reshape(2, 24, 2, 32, 2).mean((2, 4))
        assert float((new.float() - mean).abs().max()) <= 0.5


def test_its_own_size_is_itself() -> None:
    frames = batch((64, 48), PlaneLayout((2, 2), 8))
    assert scale_frames(frames, (64, 48)) is frames


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("new", [(48, 36), (160, 120)])
def test_colours_do_not_move(grid: tuple[int, int], new: tuple[int, int]) -> None:
    """As RGB, a scaled picture is the scaled RGB picture."""
    rng = np.random.default_rng(3)
    coarse = rng.uniform(0.2, 0.8, (4, 5, 3)).astype(np.float32)
    picture = cv2.resize(coarse, (96, 72), interpolation=cv2.INTER_CUBIC)
    rgb = torch.from_numpy(picture).permute(2, 0, 1)[None]
    frames = frames_from_rgb(rgb, LIMITED, PlaneLayout(grid, 8))
    found = rgb_frames(scale_frames(frames, new))[0].permute(1, 2, 0).numpy()
    way = cv2.INTER_AREA if new[0] < 96 else cv2.INTER_CUBIC
    ideal = cv2.resize(picture, new, interpolation=way)
    off = found - ideal
    assert np.abs(off.mean((0, 1))).max() < 0.003
    assert np.abs(off).max() < 0.04
