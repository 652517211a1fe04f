"""The source's shape on the target's pose and expression."""

from __future__ import annotations

import torch
from torch import Tensor

from facefusion_cli.generators.mesh.model import FaceModel
from facefusion_cli.generators.mesh.vertices import (
    CARRY_CONTROLS,
    LIPS_INNER,
    LIPS_OUTER,
    NOSE_TIP,
    RIGID,
)

STRENGTH = 0.6
"""Share of the difference in shape that is carried: identity gains nothing beyond 0.7, and the
target's expression suffers with every tenth."""
_ITERATIONS = 12
"""Newton's iteration halves what is small and then doubles its digits: nine reach fp32."""
_LIPS = tuple(sorted(set(LIPS_OUTER + LIPS_INNER)))


def fit_onto(moving: Tensor, fixed: Tensor) -> Tensor:
    """Meshes brought onto others by the similarity that fits their rigid vertices best.

    The rotation is the orthogonal factor of the covariance (Umeyama, PAMI 1991), found by Newton's
    iteration for the polar decomposition (Higham 1986), which needs no singular values and so no
    look at the device's memory. Faces turned by less than a right angle to each other are assumed.

    Args:
        moving: [F,468,3].
        fixed: [F,468,3].

    Returns:
        [F,468,3] the moving meshes in the fixed ones' coordinates.
    """
    rigid = list(RIGID)
    mean_m, mean_f = moving[:, rigid].mean(1, keepdim=True), fixed[:, rigid].mean(1, keepdim=True)
    a, b = moving[:, rigid] - mean_m, fixed[:, rigid] - mean_f
    covariance = b.transpose(1, 2) @ a
    rotation = covariance / torch.linalg.matrix_norm(covariance)[:, None, None].clamp_min(1e-9)
    for _ in range(_ITERATIONS):
        rotation = 0.5 * (rotation + _inverse_transposed(rotation))
    spread = a.square().sum((1, 2)).clamp_min(1e-9)
    scale = (rotation * covariance).sum((1, 2)) / spread
    turned: Tensor = (moving - mean_m) @ rotation.transpose(1, 2)
    brought: Tensor = turned * scale[:, None, None] + mean_f
    return brought


def _inverse_transposed(matrix: Tensor) -> Tensor:
    """Inverse transpose of [F,3,3], from cross products."""
    cofactors = torch.linalg.cross(matrix.roll(-1, 1), matrix.roll(-2, 1))
    determinant: Tensor = (matrix[:, 0] * cofactors[:, 0]).sum(-1)
    inverse: Tensor = cofactors / determinant.clamp_min(1e-9)[:, None, None]
    return inverse


def carry_shape(source: Tensor, target: Tensor, model: FaceModel) -> Tensor:
    """The target's mesh, moved towards the source's shape, still on the target's outline.

    Lips move as one block and lids only through the corners of the eyes, so expressions stay.

    Args:
        source: [F,468,3] pixels of any frame.
        target: [F,468,3] pixels.
        model: The constants.

    Returns:
        [F,468,3] in the target's pixels.
    """
    difference = fit_onto(source, target) - target
    controls = difference[:, list(CARRY_CONTROLS)]
    mouth = difference[:, list(_LIPS)].mean(1, keepdim=True)
    return target + STRENGTH * (model.carry @ torch.cat([controls, mouth], 1))


def facing(mesh: Tensor, model: FaceModel) -> Tensor:
    """How far each vertex's normal points at the viewer: 1 straight at, 0 edge-on, below 0 away.

    Args:
        mesh: [F,468,3] pixels.
        model: The constants.

    Returns:
        [F,468].
    """
    a, b, c = (mesh[:, model.triangles[:, k]] for k in range(3))
    # The cross product's length is twice the area, which is the weight wanted.
    normals = model.incidence @ torch.linalg.cross(b - a, c - a)
    z: Tensor = normals[..., 2] / torch.linalg.vector_norm(normals, dim=-1).clamp_min(1e-9)
    return z * torch.where(z[:, list(NOSE_TIP)].mean(1, keepdim=True) < 0, -1.0, 1.0)
