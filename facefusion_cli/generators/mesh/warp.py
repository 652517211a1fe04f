"""The two warps: the source's texture and the target's own crop, both onto the carried shape."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from facefusion_cli.generators.mesh.gauss import smooth_large
from facefusion_cli.generators.mesh.model import FaceModel
from facefusion_cli.generators.mesh.raster import interpolate, rasterise

_SMOOTH = 0.004
"""Sigma of the maps' smoothing in L: hides the creases between triangles."""


@dataclass(frozen=True, slots=True, repr=False)
class Maps:
    """Where the window's pixels come from. W is the window's side."""

    covered: Tensor
    """[F,1,W,W] 1 under the mesh, else 0."""
    labels: Tensor
    """[F,4,W,W] 0 or 1, channel by model.LABELS."""
    extra: Tensor
    """[F,E,W,W] further values that were given at the vertices; 0 outside the mesh."""
    source: Tensor
    """[F,W,W,2] pixels of the source's texture."""
    shift: Tensor
    """[F,W,W,2] pixels from here to where the target's crop is read."""


def make_maps(
    shape: Tensor, target: Tensor, sampled: Tensor, extra: Tensor, size: int, model: FaceModel
) -> Maps:
    """Both maps from one rasterisation.

    The source's map is smoothed as a difference from a similarity, so that smoothing neither pulls
    it inwards at the outline nor changes it at all where the two shapes are alike.

    Args:
        shape: [F,468,3] the carried shape, window pixels.
        target: [F,468,2 or 3] the target's mesh, window pixels.
        sampled: [F,468,2] where each vertex is read in the source's texture.
        extra: [F,468,E] values to interpolate as they are.
        size: The window's side W.
        model: The constants.
    """
    flat = shape[..., :2]
    linear, offset = _similarity(flat, sampled)
    residual = sampled - (flat @ linear.transpose(1, 2) + offset)
    owner = rasterise(shape, model.triangles, size)
    values = torch.cat([residual, target[..., :2] - flat, extra], -1)
    dense = interpolate(owner, flat, values, model.triangles, size)
    covered = (owner < len(model.triangles)).view(-1, 1, size, size).float()
    labels = model.labels[owner].view(-1, size, size, model.labels.shape[1]).permute(0, 3, 1, 2)

    # 6.25 % of L lie on either side of the face in the window.
    sigma = _SMOOTH * size / 1.125
    smooth = smooth_large(torch.cat([dense[:, :4], covered], 1), sigma)
    rest = (smooth[:, :2] / smooth[:, 4:].clamp_min(1e-3)).permute(0, 2, 3, 1)
    steps = torch.arange(size, device=shape.device, dtype=shape.dtype)
    pixels = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1).view(1, -1, 2)
    base = (pixels @ linear.transpose(1, 2) + offset).view(-1, size, size, 2)
    return Maps(covered, labels, dense[:, 4:], base + rest, smooth[:, 2:4].permute(0, 2, 3, 1))


def _similarity(moving: Tensor, fixed: Tensor) -> tuple[Tensor, Tensor]:
    """Least-squares similarity between [F,K,2] point sets: linear [F,2,2] and offset [F,1,2]."""
    mean_m, mean_f = moving.mean(1, keepdim=True), fixed.mean(1, keepdim=True)
    a, b = moving - mean_m, fixed - mean_f
    total = a.square().sum((1, 2)).clamp_min(1e-9)
    real = (a * b).sum((1, 2)) / total
    imaginary = (a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]).sum(1) / total
    linear = torch.stack(
        [torch.stack([real, -imaginary], -1), torch.stack([imaginary, real], -1)], -2
    )
    return linear, mean_f - mean_m @ linear.transpose(1, 2)


def read_source(texture: Tensor, where: Tensor) -> Tensor:
    """Pixels of one texture for a whole group of faces.

    Args:
        texture: [3,T,T].
        where: [F,W,W,2] pixels of the texture.

    Returns:
        [F,3,W,W].
    """
    f, h, w, _ = where.shape
    grid = ((2 * where + 1) / texture.shape[-1] - 1).reshape(1, f * h, w, 2)
    out = F.grid_sample(
        texture[None], grid, mode="bilinear", padding_mode="border", align_corners=False
    )
    return out.view(3, f, h, w).transpose(0, 1)


def shift_target(window: Tensor, shift: Tensor) -> Tensor:
    """The target's window [F,3,W,W] read at each pixel plus its shift [F,W,W,2]."""
    size = window.shape[-1]
    steps = torch.arange(size, device=window.device, dtype=window.dtype)
    here = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1)
    grid = (2 * (here + shift) + 1) / size - 1
    return F.grid_sample(window, grid, mode="bilinear", padding_mode="border", align_corners=False)
