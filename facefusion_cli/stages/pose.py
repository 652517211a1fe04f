"""Head pose from the mesh: a rigid fit of the canonical face model."""

from __future__ import annotations

import torch
from torch import Tensor

RIGID = (
    33, 133, 362, 263, 168, 6, 197, 195, 5, 4, 1, 2, 98, 327, 9, 151, 10, 234, 454, 127, 356, 93,
    323, 132, 361, 109, 338, 67, 297, 103, 332,
)  # fmt: skip
"""Vertices that expressions hardly move."""


def rigid_fit(moving: Tensor, fixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The similarity that takes one point set onto another with least squares.

    Umeyama, "Least-squares estimation of transformation parameters between two point patterns",
    PAMI 1991.

    Args:
        moving: [F,K,D] points.
        fixed: [F,K,D] points.

    Returns:
        scale [F], rotation [F,D,D] and offset [F,D]: fixed ~ scale * rotation @ moving + offset.
    """
    moving, fixed = moving.double(), fixed.double()
    mean_m, mean_f = moving.mean(1, keepdim=True), fixed.mean(1, keepdim=True)
    a, b = moving - mean_m, fixed - mean_f
    u, s, vh = torch.linalg.svd(b.transpose(1, 2) @ a)
    sign = torch.ones_like(s)
    sign[:, -1] = torch.where(torch.linalg.det(u @ vh) < 0, -1.0, 1.0)
    rotation = u @ torch.diag_embed(sign) @ vh
    scale = (s * sign).sum(-1) / a.square().sum((1, 2)).clamp_min(1e-12)
    offset = mean_f[:, 0] - scale[:, None] * (rotation @ mean_m[:, 0].unsqueeze(-1)).squeeze(-1)
    return scale.float(), rotation.float(), offset.float()


def head_pose(mesh: Tensor, canonical: Tensor) -> Tensor:
    """Yaw, pitch and roll of each face.

    Args:
        mesh: [F,468,3] pixels, z negative towards the viewer.
        canonical: [468,3] the canonical model (y up, z towards the viewer), any unit.

    Returns:
        [F,3] degrees. Yaw is positive when the face looks to the image's right, pitch when it looks
        up, roll when the head is tilted clockwise as seen in the image.
    """
    model = canonical[list(RIGID)] * torch.tensor([1.0, -1.0, -1.0], device=mesh.device)
    fixed = mesh[:, list(RIGID)]
    _, rotation, _ = rigid_fit(model.expand(len(mesh), -1, -1), fixed)
    forward = -rotation[:, :, 2]
    across = rotation[:, :, 0]
    yaw = torch.atan2(forward[:, 0], -forward[:, 2])
    pitch = torch.atan2(-forward[:, 1], torch.hypot(forward[:, 0], forward[:, 2]))
    roll = torch.atan2(across[:, 1], across[:, 0])
    return torch.rad2deg(torch.stack([yaw, pitch, roll], -1))
