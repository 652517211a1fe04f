"""Where the generator's crops lie: upright, levelled by the eyes, 1.8 times the face's box."""

from __future__ import annotations

import torch
from torch import Tensor

from facefusion_cli.generators.mesh.plane import SPAN
from facefusion_cli.generators.mesh.vertices import EYE_OUTER_LEFT, EYE_OUTER_RIGHT


def level_square(mesh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The square round each mesh in the frame that its eye line levels.

    Args:
        mesh: [F,468,2 or 3] pixels.

    Returns:
        Centre [F,2], longest side L of the bounding box [F], and the unit vector [F,2] along the
        eye line, from the image's left to its right.
    """
    xy = mesh[..., :2]
    across = xy[:, EYE_OUTER_LEFT] - xy[:, EYE_OUTER_RIGHT]
    along = across / torch.linalg.vector_norm(across, dim=-1, keepdim=True).clamp_min(1e-6)
    turn = turning(along)
    level = xy @ turn.transpose(1, 2)
    low, high = level.amin(1), level.amax(1)
    centre = ((low + high) / 2).unsqueeze(1) @ turn
    return centre[:, 0], (high - low).amax(-1).clamp_min(1e-3), along


def turning(along: Tensor) -> Tensor:
    """[F,2,2] rotations that make the unit vectors [F,2] horizontal."""
    cos, sin = along[:, 0], along[:, 1]
    return torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)


def crop_matrices(mesh: Tensor, size: int) -> Tensor:
    """[F,2,3] float32 matrices, pixels -> pixels of an upright crop of side 1.8 L.

    Args:
        mesh: [F,468,2 or 3].
        size: Side of the crop in pixels.
    """
    centre, longest, along = level_square(mesh)
    linear = turning(along) * (size / (SPAN * longest))[:, None, None]
    offset = (size - 1) / 2 - linear @ centre.unsqueeze(-1)
    return torch.cat([linear, offset], -1).float()


def into_crop(points: Tensor, matrices: Tensor) -> Tensor:
    """[F,K,2 or 3] points through [F,2,3] matrices; a third coordinate is scaled alike."""
    linear = matrices[:, :, :2]
    flat = points[..., :2] @ linear.transpose(1, 2) + matrices[:, None, :, 2]
    if points.shape[-1] == 2:
        return flat
    scale = torch.linalg.vector_norm(linear[:, 0], dim=-1)
    return torch.cat([flat, points[..., 2:] * scale[:, None, None]], -1)
