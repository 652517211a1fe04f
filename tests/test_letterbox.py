from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from facefusion_cli.letterbox import letterbox
from facefusion_cli.planes import frames_from_rgb
from facefusion_cli.types import ColorSpec, PlaneLayout
from tests.test_planes import natural


@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("size", [(240, 320), (271, 483), (480, 300)])
def test_letterbox_shrinks_before_it_converts(size: tuple[int, int], bits: int) -> None:
    rgb = natural(*size)
    frames = frames_from_rgb(
        rgb.expand(2, -1, -1, -1), ColorSpec("bt709"), PlaneLayout((2, 2), bits)
    )
    small, scale = letterbox(frames, 128, 160)
    assert scale == pytest.approx(min(128 / size[0], 160 / size[1]))
    h, w = round(size[0] * scale), round(size[1] * scale)
    picture = rgb[0].permute(1, 2, 0).contiguous().numpy()
    expected = cv2.resize(picture, (w, h), interpolation=cv2.INTER_AREA)
    assert small.shape == (2, 3, 128, 160)
    error = (small[1, :, :h, :w].permute(1, 2, 0).numpy() - expected) * 255
    assert np.abs(error).mean() < 2
    assert np.abs(error.mean((0, 1))).max() < 0.6
    assert float(small.min()) >= 0
    assert float(small.max()) <= 1
    outside = torch.ones(128, 160, dtype=torch.bool)
    outside[:h, :w] = False
    assert not small[:, :, outside].any()


def test_letterbox_puts_things_where_the_scale_says() -> None:
    rgb = torch.zeros(1, 3, 480, 640)
    rgb[:, :, 300:324, 400:424] = 1  # centre at x 411.5, y 311.5
    small, scale = letterbox(frames_from_rgb(rgb, ColorSpec(), PlaneLayout()), 160, 160)
    light = small[0].mean(0)
    y = float((light.sum(1) * torch.arange(160)).sum() / light.sum())
    x = float((light.sum(0) * torch.arange(160)).sum() / light.sum())
    assert (x + 0.5) / scale - 0.5 == pytest.approx(411.5, abs=0.5)
    assert (y + 0.5) / scale - 0.5 == pytest.approx(311.5, abs=0.5)


def test_letterbox_enlarges_tiny_frames_only() -> None:
    for size, scale in (((90, 120), 2.0), ((300, 400), 1.0)):
        frames = frames_from_rgb(natural(*size), ColorSpec(), PlaneLayout())
        small, got = letterbox(frames, 640, 640)
        assert got == scale
        h, w = (int(s * scale) for s in size)
        assert small[0, :, h - 1, w - 1].any()
        assert not small[0, :, h:].any()
        assert not small[0, :, :, w:].any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("transfer", [1, 16, 18])
def test_a_gpu_makes_the_same_picture(transfer: int) -> None:
    color = ColorSpec("bt2020", "limited", (9, 9, transfer, 1))
    frames = frames_from_rgb(natural(127, 191), color, PlaneLayout((2, 2), 10))
    small, other = letterbox(frames, 64, 96)[0], letterbox(frames.to("cuda"), 64, 96)[0]
    assert float((small - other.cpu()).abs().mean()) < 0.02
