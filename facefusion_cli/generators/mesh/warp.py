"""The two warps: the source's texture and the target's own crop, both onto the carried shape."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from facefusion_cli.generators.mesh.gauss import smooth_large
from facefusion_cli.generators.mesh.model import FaceModel
from facefusion_cli.generators.mesh.plane import WINDOW_SPAN, shrink
from facefusion_cli.generators.mesh.raster import interpolate, rasterise

_SMOOTH = 0.004
"""Sigma of the maps' smoothing in L: hides the creases between triangles."""


@dataclass(frozen=True, slots=True, repr=False)
class Maps:
    """Where the window's pixels come from and what they show. W is the window's side."""

    source: Tensor
    """[F,W,W,2] pixels of the source's texture."""
    shift: Tensor
    """[F,W,W,2] pixels from here to where the target's crop is read."""
    labels: Tensor
    """[F,4,W,W] 0 or 1, channel by LABELS."""
    small_labels: Tensor
    """[F,4,80,80] their shares on the small grid."""
    covered: Tensor
    """[F,1,80,80] share of each small pixel under the mesh."""
    shown: Tensor
    """[F,1,80,80] the visibility given at the vertices; 0 outside the mesh."""


def make_maps(
    shape: Tensor, target: Tensor, sampled: Tensor, shown: Tensor, size: int, model: FaceModel
) -> Maps:
    """All maps from one rasterisation.

    The source's map is smoothed as a difference from a similarity, so that smoothing neither pulls
    it inwards at the outline nor changes it at all where the two shapes are alike.

    Args:
        shape: [F,468,3] the carried shape, window pixels.
        target: [F,468,2 or 3] the target's mesh, window pixels.
        sampled: [F,468,2] where each vertex is read in the source's texture.
        shown: [F,468] visibility, 0..1.
        size: The window's side W.
        model: The constants.
    """
    flat = shape[..., :2]
    linear, offset = _similarity(flat, sampled)
    residual = sampled - (flat @ linear.transpose(1, 2) + offset)
    owner = rasterise(shape, model.triangles, size)
    values = torch.cat([shown[..., None], residual, target[..., :2] - flat], -1)
    flags = F.pad(model.labels, (1, 0), value=1.0)
    dense = interpolate(owner, flat, values, flags, model.triangles, size)
    labels = dense[:, 6:]
    small = shrink(torch.cat([dense[:, :1], dense[:, 5:]], 1).contiguous())

    # The two maps and, beside them, the coverage.
    smooth = smooth_large(dense[:, 1:6], _SMOOTH * size / WINDOW_SPAN)
    rest = (smooth[:, :2] / smooth[:, 4:].clamp_min(1e-3)).permute(0, 2, 3, 1)
    shift = smooth[:, 2:4].permute(0, 2, 3, 1)
    pixels = _pixels(size, shape.device).view(1, -1, 2)
    base = (pixels @ linear.transpose(1, 2) + offset).view(-1, size, size, 2)
    return Maps(base + rest, shift, labels, small[:, 2:], small[:, 1:2], small[:, :1])


def _pixels(size: int, device: torch.device) -> Tensor:
    """[size,size,2] x and y of every pixel."""
    steps = torch.arange(size, device=device, dtype=torch.float32)
    return torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1)


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
        texture: [C,T,T].
        where: [F,W,W,2] pixels of the texture.

    Returns:
        [F,C,W,W].
    """
    f, h, w, _ = where.shape
    side = texture.shape[-1]
    grid = (where * (2 / side) + (1 / side - 1)).reshape(1, f * h, w, 2)
    out = F.grid_sample(
        texture[None], grid, mode="bilinear", padding_mode="border", align_corners=False
    )
    return out.view(-1, f, h, w).transpose(0, 1)


def shift_target(window: Tensor, shift: Tensor) -> Tensor:
    """The target's window [F,3,W,W] read at each pixel plus its shift [F,W,W,2]."""
    size = window.shape[-1]
    grid = (_pixels(size, window.device) + shift) * (2 / size) + (1 / size - 1)
    return F.grid_sample(window, grid, mode="bilinear", padding_mode="border", align_corners=False)
