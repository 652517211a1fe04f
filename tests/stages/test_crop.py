"""Crops out of frames and back, against cv2 and against what must not change."""

from fractions import Fraction

import cv2
import numpy as np
import pytest
import torch

from facefusion_cli.planes import frames_from_rgb, rgb_frames
from facefusion_cli.stages.crop import cut, invert, paste, square_matrices, transform
from facefusion_cli.types import ColorSpec, FrameBatch, PlaneLayout

RGB = ColorSpec(matrix="rgb", range="full")


def smooth_picture(height: int, width: int) -> torch.Tensor:
    """[3,H,W] a picture without detail finer than about 20 px, so that resampling is exact."""
    rng = np.random.default_rng(7)
    small = rng.random((height // 40 + 2, width // 40 + 2, 3), dtype=np.float32)
    picture = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC).clip(0, 1)
    return torch.from_numpy(picture).permute(2, 0, 1).contiguous()


def frame_of(rgb: torch.Tensor) -> FrameBatch:
    return frames_from_rgb(rgb.unsqueeze(0), RGB, PlaneLayout((1, 1), 8))


def one(*values: float) -> torch.Tensor:
    return torch.tensor([list(values)] if len(values) > 1 else list(values))


def test_the_square_becomes_the_upright_crop() -> None:
    matrix = square_matrices(one(100.0, 60.0), one(50.0), one(np.pi / 2), 101)
    # The square's centre is the crop's; a square turned clockwise by 90 degrees has its top
    # (the crop's) on the frame's right.
    assert torch.allclose(
        transform(one(100.0, 60.0)[None], matrix), one(50.0, 50.0)[None], atol=1e-3
    )
    right = transform(torch.tensor([[[125.0, 60.0]]]), matrix)[0, 0]
    assert right[0].item() == pytest.approx(50, abs=1e-3)
    assert right[1].item() == pytest.approx(50 - 50.5, abs=1e-3)


def test_invert_undoes() -> None:
    matrix = square_matrices(one(321.5, 77.25), one(83.0), one(0.7), 256)
    points = torch.rand(1, 20, 3) * 300
    assert torch.allclose(transform(transform(points, matrix), invert(matrix)), points, atol=1e-3)


@pytest.mark.parametrize("angle", [0.0, 0.4, -1.2])
def test_cut_agrees_with_opencv(angle: float) -> None:
    picture = smooth_picture(240, 320)
    matrix = square_matrices(one(170.3, 111.8), one(96.0), one(angle), 128)
    crop = cut(frame_of(picture), torch.tensor([0]), matrix, 128)
    stored = rgb_frames(frame_of(picture))[0].permute(1, 2, 0).numpy()
    oracle = cv2.warpAffine(
        stored, matrix[0].numpy().astype(np.float64), (128, 128), flags=cv2.INTER_LINEAR
    )
    assert np.abs(crop[0].permute(1, 2, 0).numpy() - oracle).max() < 2 / 255


def test_cut_beyond_the_frame_repeats_its_border() -> None:
    picture = torch.full((3, 64, 64), 0.2)
    picture[:, :, 32:] = 0.8
    matrix = square_matrices(one(63.0, 32.0), one(60.0), one(0.0), 60)
    crop = cut(frame_of(picture), torch.tensor([0]), matrix, 60)
    assert torch.allclose(crop[0, :, :, 40:], torch.tensor(0.8), atol=1 / 255)


def test_cut_wholly_outside_the_frame_repeats_the_nearest_edge() -> None:
    picture = torch.full((3, 64, 64), 0.2)
    picture[:, :, 62:] = 0.8
    matrix = square_matrices(one(200.0, 32.0), one(60.0), one(0.0), 60)
    crop = cut(frame_of(picture), torch.tensor([0]), matrix, 60)
    assert torch.allclose(crop, torch.tensor(0.8), atol=1 / 255)


def test_shrinking_averages_instead_of_aliasing() -> None:
    picture = torch.zeros(3, 512, 512)
    picture[:, :, ::2] = 1.0
    matrix = square_matrices(one(255.5, 255.5), one(512.0), one(0.0), 128)
    crop = cut(frame_of(picture), torch.tensor([0]), matrix, 128)
    assert torch.allclose(crop, torch.tensor(0.5), atol=0.02)


@pytest.mark.parametrize("angle", [0.0, 0.3])
@pytest.mark.parametrize("size", [96, 128, 384])
def test_a_pasted_crop_lies_where_it_was_cut(angle: float, size: int) -> None:
    picture = smooth_picture(240, 320)
    frames = frame_of(picture)
    before = frames.planes[0].clone()
    matrix = square_matrices(one(150.0, 120.0), one(110.0), one(angle), size)
    crop = cut(frames, torch.tensor([0]), matrix, size)
    weight = torch.zeros(1, 1, size, size)
    weight[..., size // 8 : -size // 8, size // 8 : -size // 8] = 1
    paste(frames, torch.tensor([0]), matrix, crop, weight)
    change = (frames.planes[0].int() - before.int()).abs()
    assert change.max() <= 2


def test_paste_changes_what_is_under_the_weight_and_nothing_else() -> None:
    layout = PlaneLayout((2, 2), 8)
    rng = torch.Generator().manual_seed(1)
    y = torch.randint(16, 236, (2, 120, 160), generator=rng, dtype=torch.uint8)
    u, v = (torch.randint(16, 241, (2, 60, 80), generator=rng, dtype=torch.uint8) for _ in "uv")
    frames = FrameBatch((y, u, v), ColorSpec(), layout, (Fraction(0), Fraction(1, 25)), 0)
    before = [p.clone() for p in frames.planes]
    matrix = square_matrices(one(80.0, 60.0), one(64.0), one(0.2), 64)
    weight = torch.zeros(1, 1, 64, 64)
    weight[..., 16:48, 16:48] = 1
    paste(frames, torch.tensor([1]), matrix, torch.full((1, 3, 64, 64), 0.6), weight)
    for plane, old in zip(frames.planes, before, strict=True):
        assert torch.equal(plane[0], old[0])
        changed = torch.nonzero(plane[1] != old[1])
        assert len(changed) > 0.5 * 32 * 32 * plane.shape[1] ** 2 / 120**2
        reach = (16 + 2) * 2**0.5 * plane.shape[1] / 120
        centre = torch.tensor([plane.shape[1] / 2, plane.shape[2] / 2])
        assert (changed - centre).abs().max() <= reach + 1
    # Grey 0.6 in limited range is 147.4: the middle is flat.
    assert frames.planes[0][1, 55:65, 75:85].unique().tolist() == [147]


def test_no_faces_change_nothing() -> None:
    frames = frame_of(smooth_picture(64, 64))
    before = frames.planes[0].clone()
    empty = torch.zeros(0, dtype=torch.int64)
    assert cut(frames, empty, torch.zeros(0, 2, 3), 128).shape == (0, 3, 128, 128)
    paste(frames, empty, torch.zeros(0, 2, 3), torch.zeros(0, 3, 8, 8), torch.zeros(0, 1, 8, 8))
    assert torch.equal(frames.planes[0], before)
