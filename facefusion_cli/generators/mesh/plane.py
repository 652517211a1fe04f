"""The two grids the generator works on, both cut from the middle of a crop.

A crop of side S spans 1.8 L, L being the longest side of the face's box; the face itself lies in
the middle, S / 1.8. Everything happens in the *window*, the middle 5/8 of the crop, which leaves
6 % of L round the face. What is smooth by nature (masks, statistics, light) happens on the *small*
grid: the window averaged down to 80 x 80, where L is 71 pixels whatever S is.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

SPAN = 1.8
"""Side of a crop in L."""
WINDOW_SPAN = SPAN * 5 / 8
"""Side of the window in L."""
SMALL = 80
"""Side of the small grid."""
SMALL_L = 128 / SPAN
"""L in pixels of the small grid."""


def factor(size: int) -> int:
    """How many window pixels of a crop a small pixel is wide.

    Raises:
        ValueError: The crop's side is no multiple of 128.
    """
    if size % 128 or size <= 0:
        raise ValueError(f"crop of {size} pixels; the mesh generator takes multiples of 128")
    return size // 128


def origin(size: int) -> int:
    """First crop pixel of the window, the same in x and y."""
    return factor(size) * 24


def window(crop: Tensor) -> Tensor:
    """The window of [...,S,S] crops, a view."""
    size = int(crop.shape[-1])
    start, side = origin(size), factor(size) * SMALL
    return crop[..., start : start + side, start : start + side]


def shrink(image: Tensor) -> Tensor:
    """Window -> small grid, by averaging."""
    k = int(image.shape[-1]) // SMALL
    if k == 1:
        return image
    matrix = _averaging(k, image.device)
    return matrix @ image @ matrix.T


def enlarge(image: Tensor, size: int) -> Tensor:
    """Small grid -> window of a crop of the given side, bilinear."""
    k = factor(size)
    if k == 1:
        return image
    matrix = _enlarging(k, image.device)
    return matrix @ image @ matrix.T


@lru_cache(maxsize=16)
def _averaging(k: int, device: torch.device) -> Tensor:
    """[SMALL,SMALL*k]. As matrix products, shrinking and enlarging take half of pooling's time."""
    return torch.kron(torch.eye(SMALL), torch.full((1, k), 1 / k)).to(device)


@lru_cache(maxsize=16)
def _enlarging(k: int, device: torch.device) -> Tensor:
    """[SMALL*k,SMALL] bilinear weights."""
    unit = torch.eye(SMALL)[None]
    rows = F.interpolate(unit, scale_factor=k, mode="linear", align_corners=False)
    return rows[0].T.contiguous().to(device)


def to_small(points: Tensor, size: int) -> Tensor:
    """Crop pixels -> small pixels, for [...,2] points."""
    k = factor(size)
    return (points - (origin(size) + (k - 1) / 2)) / k


@lru_cache(maxsize=8)
def edge_ramp(device: torch.device) -> Tensor:
    """[1,1,SMALL,SMALL]: 0 on the border of the small grid, 1 from three pixels inwards."""
    steps = torch.arange(SMALL, device=device, dtype=torch.float32)
    ramp = (torch.minimum(steps, SMALL - 1 - steps) / 3).clamp_max(1)
    return torch.minimum(ramp[:, None], ramp[None, :])[None, None]


def sample_small(image: Tensor, points: Tensor) -> Tensor:
    """Bilinear samples of small images [F,C,N,N] at [F,K,2] small pixels: [F,C,K]."""
    grid = (2 * points + 1) / image.shape[-1] - 1
    sampled = F.grid_sample(
        image, grid.unsqueeze(1), mode="bilinear", padding_mode="border", align_corners=False
    )
    return sampled[:, :, 0]
