"""Constants of the 468-point mesh: triangles, labels, samples of bare skin, the carry's spline."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from facefusion_cli.generators.mesh.vertices import (
    BROW_LEFT,
    BROW_RIGHT,
    CARRY_CONTROLS,
    CHEEK_LEFT,
    CHEEK_RIGHT,
    EYE_LEFT,
    EYE_RIGHT,
    FOREHEAD_BROW,
    FOREHEAD_MID,
    FOREHEAD_TOP,
    LIPS_INNER,
    LIPS_OUTER,
    NOSE,
    OVAL,
)
from facefusion_cli.zoo.topology import Topology

LABELS = ("eyes", "mouth", "lips", "brows")
"""Columns of FaceModel.labels."""
HAIR_COLUMNS, HAIR_ROWS = 41, 25
"""Grid over the forehead on which hair is looked for."""
_SKIN_SPACING_CM = 0.3
_SPLINE_REGULARISER = 1e-3


@dataclass(frozen=True, slots=True)
class FaceModel:
    """What never changes from face to face, on the device."""

    triangles: Tensor
    """[898,3] int64."""
    incidence: Tensor
    """[468,898] 1 where the vertex belongs to the triangle: adds up normals in a fixed order."""
    aside: Tensor
    """[468] 0 in the middle of the face, 1 at its sides."""
    labels: Tensor
    """[898,4] 0 or 1, triangle by LABELS."""
    skin: Tensor
    """[K,468] weights that take vertices to points of bare skin on cheeks and nose, ordered from
    the subject's right to the left."""
    forehead: Tensor
    """[41*25,468] weights that take vertices to the forehead grid, column by column, brow first."""
    carry: Tensor
    """[468,22] how each vertex follows the controls' displacements (the mouth is the last)."""


def build_model(topology: Topology, device: torch.device) -> FaceModel:
    """The constants, from the canonical model."""
    vertices = topology.vertices_cm.double().cpu()
    triangles = topology.triangles.long().cpu()
    flat = vertices[:, :2]
    incidence = torch.zeros(len(vertices), len(triangles))
    incidence[triangles.T, torch.arange(len(triangles))] = 1
    aside = ((vertices[:, 0].abs() - 3.5) / 1.5).clamp(0, 1)
    return FaceModel(
        triangles=triangles.to(device),
        incidence=incidence.to(device),
        aside=(aside * aside * (3 - 2 * aside)).float().to(device),
        labels=_labels(flat, triangles).to(device),
        skin=_skin_samples(flat, triangles).to(device),
        forehead=_forehead_grid(len(vertices)).to(device),
        carry=_carry_matrix(flat).to(device),
    )


def _inside(points: Tensor, polygon: Tensor) -> Tensor:
    """[K] bool: points [K,2] inside a closed polygon [N,2], by the parity of crossings."""
    a, b = polygon, polygon.roll(-1, 0)
    px, py = points[:, :1], points[:, 1:]
    straddles = (a[:, 1] > py) != (b[:, 1] > py)
    rise = torch.where(a[:, 1] == b[:, 1], torch.ones_like(a[:, 1]), b[:, 1] - a[:, 1])
    crossing = a[:, 0] + (py - a[:, 1]) * (b[:, 0] - a[:, 0]) / rise
    return ((straddles & (px < crossing)).sum(1) % 2) == 1


def _labels(flat: Tensor, triangles: Tensor) -> Tensor:
    centres = flat[triangles].mean(1)

    def inside(*loops: tuple[int, ...]) -> Tensor:
        return torch.stack([_inside(centres, flat[list(loop)]) for loop in loops]).any(0)

    mouth = inside(LIPS_INNER)
    columns = (
        inside(EYE_LEFT, EYE_RIGHT),
        mouth,
        inside(LIPS_OUTER) & ~mouth,
        inside(BROW_LEFT, BROW_RIGHT),
    )
    return torch.stack(columns, 1).float()


def _hull(points: Tensor) -> Tensor:
    """The convex hull of [N,2] points, counter-clockwise (monotone chain)."""
    ordered = sorted((float(x), float(y)) for x, y in points)

    def chain(source: list[tuple[float, float]]) -> list[tuple[float, float]]:
        out: list[tuple[float, float]] = []
        for p in source:
            while (
                len(out) >= 2
                and (
                    (out[-1][0] - out[-2][0]) * (p[1] - out[-2][1])
                    - (out[-1][1] - out[-2][1]) * (p[0] - out[-2][0])
                )
                <= 0
            ):
                out.pop()
            out.append(p)
        return out[:-1]

    return torch.tensor(chain(ordered) + chain(ordered[::-1]), dtype=points.dtype)


def _skin_samples(flat: Tensor, triangles: Tensor) -> Tensor:
    """Barycentric weights of a regular grid of points in the hulls of cheeks and nose."""
    low, high = flat.amin(0), flat.amax(0)
    xs = torch.arange(float(low[0]), float(high[0]), _SKIN_SPACING_CM, dtype=flat.dtype)
    ys = torch.arange(float(low[1]), float(high[1]), _SKIN_SPACING_CM, dtype=flat.dtype)
    grid = torch.stack(torch.meshgrid(xs, ys, indexing="ij"), -1).reshape(-1, 2)
    hulls = [_hull(flat[list(part)]) for part in (CHEEK_LEFT, CHEEK_RIGHT, NOSE)]
    points = grid[torch.stack([_inside(grid, hull) for hull in hulls]).any(0)]
    corners = flat[triangles]
    a, ab, ac = corners[:, 0], corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = ab[:, 0] * ac[:, 1] - ab[:, 1] * ac[:, 0]
    ap = points[:, None] - a
    v = (ap[..., 0] * ac[:, 1] - ap[..., 1] * ac[:, 0]) / area
    w = (ab[:, 0] * ap[..., 1] - ab[:, 1] * ap[..., 0]) / area
    bary = torch.stack([1 - v - w, v, w], -1)
    inside, best = bary.amin(-1).max(1)
    kept = torch.nonzero(inside >= 0)[:, 0]
    weights = torch.zeros(len(kept), len(flat), dtype=flat.dtype)
    weights.scatter_(1, triangles[best[kept]], bary[kept, best[kept]])
    return weights.float()


def _forehead_grid(vertices: int) -> Tensor:
    """Weights of the grid: linear between the brow, middle and top rows, and along each row."""
    column = torch.linspace(0, len(FOREHEAD_BROW) - 1, HAIR_COLUMNS)
    left = column.floor().clamp_max(len(FOREHEAD_BROW) - 2).long()
    along = column - left
    rows = torch.zeros(3, HAIR_COLUMNS, vertices)
    for row, numbers in enumerate((FOREHEAD_BROW, FOREHEAD_MID, FOREHEAD_TOP)):
        index = torch.tensor(numbers)
        place = torch.arange(HAIR_COLUMNS)
        rows[row, place, index[left]] += 1 - along
        rows[row, place, index[left + 1]] += along
    t = torch.linspace(0, 2, HAIR_ROWS)
    lower = t.floor().clamp_max(1).long()
    up = (t - lower)[:, None, None]
    grid = rows[lower] * (1 - up) + rows[lower + 1] * up
    return grid.transpose(0, 1).reshape(HAIR_COLUMNS * HAIR_ROWS, vertices)


def _carry_matrix(flat: Tensor) -> Tensor:
    """Thin-plate spline from the controls' displacements to every vertex; 0 on the outline.

    Bookstein, "Principal warps: thin-plate splines and the decomposition of deformations", PAMI
    1989; regularised. All lip vertices share one displacement, and the outline has none.
    """
    lips = sorted(set(LIPS_OUTER + LIPS_INNER))
    controls = [*CARRY_CONTROLS, *lips, *OVAL]
    mouth = len(CARRY_CONTROLS)
    values = torch.zeros(len(controls), mouth + 1, dtype=flat.dtype)
    values[torch.arange(mouth), torch.arange(mouth)] = 1
    values[mouth : mouth + len(lips), mouth] = 1

    def kernel(points: Tensor) -> Tensor:
        squared = (points[:, None] - flat[controls]).square().sum(-1)
        return 0.5 * squared * squared.clamp_min(1e-12).log()

    def affine(points: Tensor) -> Tensor:
        return torch.cat([torch.ones(len(points), 1, dtype=flat.dtype), points], 1)

    n = len(controls)
    system = torch.zeros(n + 3, n + 3, dtype=flat.dtype)
    system[:n, :n] = kernel(flat[controls]) + _SPLINE_REGULARISER * torch.eye(n, dtype=flat.dtype)
    system[:n, n:] = affine(flat[controls])
    system[n:, :n] = system[:n, n:].T
    weights = torch.linalg.solve(system, torch.cat([values, values.new_zeros(3, mouth + 1)]))
    matrix: Tensor = torch.cat([kernel(flat), affine(flat)], 1) @ weights
    matrix[list(OVAL)] = 0
    return matrix.float()
