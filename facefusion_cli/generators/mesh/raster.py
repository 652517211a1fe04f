"""Which triangle covers each pixel: exact scan conversion of whole batches, on any device.

The same code runs on a CPU and on a GPU: rows of all triangles are listed, then pixels of all rows,
and the nearest triangle wins each pixel by an integer maximum, whose result does not depend on the
order of the work.
"""

from __future__ import annotations

import torch
from torch import Tensor

_DEPTH_STEPS = 1 << 20


def _expand(counts: Tensor) -> tuple[Tensor, Tensor]:
    """For each unit of each count: the row it belongs to and its number within the row."""
    rows = torch.repeat_interleave(counts)
    first = counts.cumsum(0) - counts
    return rows, torch.arange(len(rows), device=counts.device) - first[rows]


def rasterise(mesh: Tensor, triangles: Tensor, size: int) -> Tensor:
    """The nearest triangle at every pixel centre.

    Triangles that share an edge share no pixel and leave none out: an edge's crossings are computed
    from its upper end in both, and spans are half open.

    Args:
        mesh: [F,V,3] pixels, x and y with pixel centres at whole numbers, z smaller = nearer.
        triangles: [T,3].
        size: Side of the square raster.

    Returns:
        [F,size*size] int64 triangle numbers, T where there is none.
    """
    f, t = len(mesh), len(triangles)
    corners = mesh[:, triangles].reshape(f * t, 3, 3)
    depth = corners[..., 2].mean(-1).view(f, t)
    near, far = depth.amin(1, keepdim=True), depth.amax(1, keepdim=True)
    rank = ((far - depth) / (far - near).clamp_min(1e-9) * _DEPTH_STEPS).long()
    key = (rank * t + torch.arange(t, device=mesh.device)).view(-1)

    y = corners[..., 1]
    top = y.amin(1).ceil().clamp(0, size).long()
    bottom = y.amax(1).ceil().clamp(0, size).long()
    triangle, step = _expand((bottom - top).clamp_min(0))
    row = top[triangle] + step
    left, right = _spans(corners[triangle], row)
    start, stop = left.ceil().clamp(0, size).long(), right.ceil().clamp(0, size).long()
    line, step = _expand((stop - start).clamp_min(0))
    owner = triangle[line]
    face = torch.div(owner, t, rounding_mode="floor")
    pixel = (face * size + row[line]) * size + start[line] + step
    best = torch.full((f * size * size,), -1, dtype=torch.long, device=mesh.device)
    best.scatter_reduce_(0, pixel, key[owner], "amax")
    return torch.where(best < 0, t, best % t).view(f, size * size)


def _spans(corners: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    """Where each triangle [R,3,3] meets its row [R]: left and right x."""
    height = row.to(corners.dtype)[:, None]
    a, b = corners, corners.roll(-1, 1)
    upper = torch.where((a[..., 1] <= b[..., 1])[..., None], a, b)[..., :2]
    lower = torch.where((a[..., 1] <= b[..., 1])[..., None], b, a)[..., :2]
    crossed = (upper[..., 1] <= height) & (height < lower[..., 1])
    rise = torch.where(crossed, lower[..., 1] - upper[..., 1], 1.0)
    x = upper[..., 0] + (height - upper[..., 1]) * (lower[..., 0] - upper[..., 0]) / rise
    left = torch.where(crossed, x, torch.inf).amin(1)
    right = torch.where(crossed, x, -torch.inf).amax(1)
    return left.nan_to_num(posinf=0), right.nan_to_num(neginf=0)


def interpolate(
    owner: Tensor, mesh: Tensor, values: Tensor, flags: Tensor, triangles: Tensor, size: int
) -> Tensor:
    """Values given at vertices, linear over each triangle, and flags of the triangles themselves.

    Args:
        owner: [F,size*size] of rasterise().
        mesh: [F,V,2 or 3] the pixels it was made from.
        values: [F,V,C].
        flags: [T,D] constants of the triangles.
        triangles: [T,3].
        size: Side of the raster.

    Returns:
        [F,C+D,size,size] in channels-last memory, 0 where there is no triangle.
    """
    f, t, c = len(mesh), len(triangles), values.shape[-1]
    corners, at = mesh[:, triangles, :2], values[:, triangles]
    origin = corners[:, :, 0]
    e1, e2 = corners[:, :, 1] - origin, corners[:, :, 2] - origin
    area = e1[..., 0] * e2[..., 1] - e1[..., 1] * e2[..., 0]
    inverse = torch.where(area.abs() < 1e-6, 0.0, 1 / torch.where(area == 0, 1.0, area))
    d1, d2 = at[:, :, 1] - at[:, :, 0], at[:, :, 2] - at[:, :, 0]
    along_x = (d1 * e2[..., 1:] - d2 * e1[..., 1:]) * inverse[..., None]
    along_y = (d2 * e1[..., :1] - d1 * e2[..., :1]) * inverse[..., None]
    # One row a triangle and a row of zeros for none, so that one gather serves every channel.
    constants = flags.expand(f, -1, -1)
    table = torch.cat([origin, at[:, :, 0], constants, along_x, along_y], -1)
    table = torch.nn.functional.pad(table, (0, 0, 0, 1)).view(f * (t + 1), -1)
    offset = torch.arange(f, device=mesh.device)[:, None] * (t + 1)
    rows = table.index_select(0, (owner + offset).view(-1)).view(f, size, size, -1)
    steps = torch.arange(size, device=mesh.device, dtype=mesh.dtype)
    dx = steps[None, :, None] - rows[..., :1]
    dy = steps[:, None, None] - rows[..., 1:2]
    dense = rows[..., 2 : 2 + c + flags.shape[1]].clone()
    gx, gy = torch.split(rows[..., -2 * c :], c, -1)
    dense[..., :c].addcmul_(gx, dx).addcmul_(gy, dy)
    return dense.permute(0, 3, 1, 2)
