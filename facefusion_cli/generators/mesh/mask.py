"""Which part of the face the source gives, and which stays the target's."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from facefusion_cli.generators.mesh.gauss import smooth_small
from facefusion_cli.generators.mesh.hairline import forehead_row
from facefusion_cli.generators.mesh.model import FaceModel
from facefusion_cli.generators.mesh.plane import SMALL, SMALL_L, edge_ramp
from facefusion_cli.generators.mesh.vertices import LIP_BOTTOM, LIP_TOP, OVAL_LOW
from facefusion_cli.stages.colour import smoothstep

_ERODE, _FEATHER = 0.02 * SMALL_L, 0.02 * SMALL_L
_FOREHEAD_ERODE, _FOREHEAD_FEATHER = 0.03 * SMALL_L, 0.035 * SMALL_L
"""Across the forehead two skins meet on open ground, not at a cheek's edge: softer."""
_EDGE_ERODE, _EDGE_FEATHER = 0.015 * SMALL_L, 0.015 * SMALL_L
"""The same for the mesh's own silhouette, which on turned heads cuts into the outline."""
_FADE = 0.012 * SMALL_L
_COARSE = 2
"""The distance to the outline is computed on every other small pixel: it has no detail."""


def distances_inside(polygon: Tensor, points: Tensor, split: int) -> tuple[Tensor, Tensor]:
    """Signed distances to two parts of closed polygons, positive inside the whole polygon.

    Args:
        polygon: [F,N,2].
        points: [K,2].
        split: Edges before this number are the first part.

    Returns:
        [F,K] to the first and to the second part.
    """
    step = polygon.roll(-1, 1) - polygon
    ax, ay = polygon[:, None, :, 0], polygon[:, None, :, 1]
    ex, ey = step[:, None, :, 0], step[:, None, :, 1]
    rx, ry = points[None, :, :1] - ax, points[None, :, 1:] - ay
    inverse = 1 / (ex * ex + ey * ey).clamp_min(1e-9)
    along = ((rx * ex + ry * ey) * inverse).clamp(0, 1)
    squared = (rx - along * ex).square() + (ry - along * ey).square()
    # A ray to the right crosses the edge if its ends lie on either side and the point on its left.
    above, turn = ry >= 0, ex * ry - ey * rx > 0
    crossed = (above != (ry >= ey)) & (above == turn)
    sign = 2.0 * (crossed.sum(-1) % 2) - 1
    return (
        squared[..., :split].amin(-1).sqrt() * sign,
        squared[..., split:].amin(-1).sqrt() * sign,
    )


def face_area(shape: Tensor, hairline: Tensor, model: FaceModel) -> Tensor:
    """The area that is swapped, by its distance to the outline.

    Args:
        shape: [F,468,2] small pixels.
        hairline: [F,41] heights, the lower of both faces'.
        model: The constants.

    Returns:
        [F,2,80,80] small pixels, positive inside: to the outline from temple round the chin to
        temple, and to the line across the forehead.
    """
    row = forehead_row(shape, hairline, model)[:, ::2]
    # The outline runs from the image's right temple round the chin to the left one; the forehead
    # goes back from left to right.
    polygon = torch.cat([shape[:, list(OVAL_LOW)], row], 1)
    n = SMALL // _COARSE
    steps = torch.arange(n, device=shape.device, dtype=shape.dtype) * _COARSE + (_COARSE - 1) / 2
    points = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1).reshape(-1, 2)
    coarse = torch.stack(distances_inside(polygon, points, len(OVAL_LOW)), 1).view(-1, 2, n, n)
    return F.interpolate(coarse, scale_factor=_COARSE, mode="bilinear", align_corners=False)


def face_mask(area: Tensor, covered: Tensor, shown: Tensor) -> Tensor:
    """How much of the source shows, eyes and mouth not yet cut out.

    A straight edge, eroded and smoothed by a Gaussian, is the normal distribution of the distance
    to it; the distance is known, so no pixels need to be eroded.

    Args:
        area: [F,2,80,80] signed distances of face_area().
        covered: [F,1,80,80] coverage of the mesh, 0..1.
        shown: [F,1,80,80] 0..1, what the source's photo shows of each place.

    Returns:
        [F,1,80,80].
    """
    outline = torch.special.ndtr((area[:, :1] - _ERODE) / _FEATHER)
    forehead = torch.special.ndtr((area[:, 1:] - _FOREHEAD_ERODE) / _FOREHEAD_FEATHER)
    soft = smooth_small(covered, _EDGE_FEATHER).clamp(1e-6, 1 - 1e-6)
    silhouette = torch.special.ndtr(torch.special.ndtri(soft) - _EDGE_ERODE / _EDGE_FEATHER)
    # Smoothed under the coverage, so that the outside does not count as hidden.
    fade = smooth_small(torch.cat([shown * covered, covered], 1), _FADE)
    fade = fade[:, :1] / fade[:, 1:].clamp_min(1e-3)
    edge = torch.minimum(torch.minimum(outline, forehead), silhouette)
    return edge * fade * edge_ramp(area.device)


def touched_area(covered: Tensor) -> Tensor:
    """Where the crop replaces the frame: 1 under the mesh, 0 from about 3 % of L outside it.

    Args:
        covered: [F,1,80,80] coverage of the mesh, 0..1.
    """
    soft = smooth_small(covered, _EDGE_FEATHER)
    return smoothstep(soft, 0.03, 0.5) * edge_ramp(covered.device)


def visibility(facing: Tensor, source_facing: Tensor, model: FaceModel) -> Tensor:
    """How much of each vertex can be taken from the source's photo.

    Two things fade at the sides of the face: what the target shows edge-on, and what the photo
    shows so obliquely that it would have to be stretched.

    Args:
        facing: [F,468] of the carried shape.
        source_facing: [F,468] of the source's photo.
        model: The constants.

    Returns:
        [F,468] 0..1.
    """
    edge_on = 1 - smoothstep(facing, 0.05, 0.35)
    stretch = smoothstep(facing.clamp_min(0) / source_facing.clamp_min(0.05), 1.5, 2.6)
    return (1 - edge_on * model.aside) * (1 - stretch * model.aside)


def mouth_opening(mesh: Tensor, longest: float) -> Tensor:
    """[F,1,1,1] 0 with closed lips, 1 from 2.5 % of L between them.

    Args:
        mesh: [F,468,2 or 3] pixels.
        longest: L in the same pixels.
    """
    gap = torch.linalg.vector_norm(mesh[:, LIP_TOP, :2] - mesh[:, LIP_BOTTOM, :2], dim=-1)
    return smoothstep(gap / longest, 0.008, 0.025)[:, None, None, None]
