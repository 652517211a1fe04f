"""Square crops out of frames and back: the only place where faces are resampled.

A crop is named by its affine matrix frame -> crop ([F,2,3]); pixel centres lie on whole numbers on
both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from facefusion_cli.planes import read_region, region_box, write_region
from facefusion_cli.types import FrameBatch

SUPERSAMPLE_FROM = 1.25
"""Crop pixels a frame pixel from which paste() supersamples, so that shrinking does not alias."""


def square_matrices(centre: Tensor, side: Tensor, angle: Tensor, size: int) -> Tensor:
    """Matrices that turn a rotated square of the frame into an upright crop.

    Args:
        centre: [F,2] pixels.
        side: [F] pixels of the frame that the crop spans.
        angle: [F] radians, clockwise as seen in the picture, that the square is turned by.
        size: Side of the crop in pixels.

    Returns:
        [F,2,3] float32, frame -> crop.
    """
    scale = size / side
    cos, sin = torch.cos(angle) * scale, torch.sin(angle) * scale
    linear = torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)
    middle = (size - 1) / 2
    offset = middle - (linear @ centre.unsqueeze(-1))
    return torch.cat([linear, offset], -1).float()


def invert(matrices: Tensor) -> Tensor:
    """The inverse of affine matrices [F,2,3]."""
    linear = torch.linalg.inv(matrices[:, :, :2].double())
    offset = -linear @ matrices[:, :, 2:].double()
    return torch.cat([linear, offset], -1).float()


def transform(points: Tensor, matrices: Tensor) -> Tensor:
    """Applies [F,2,3] matrices to the first two coordinates of [F,K,2 or 3] points.

    A third coordinate is multiplied by the matrix's scale.
    """
    linear, offset = matrices[:, :, :2], matrices[:, :, 2]
    flat = points[..., :2] @ linear.transpose(1, 2) + offset.unsqueeze(1)
    if points.shape[-1] == 2:
        return flat
    scale = torch.linalg.det(linear).abs().sqrt()
    return torch.cat([flat, points[..., 2:] * scale[:, None, None]], -1)


def _grid(matrix: Tensor, height: int, width: int, sampled: tuple[int, int]) -> Tensor:
    """grid_sample's grid: where each pixel of a height x width output lies in the sampled image.

    Args:
        matrix: [2,3] output pixel -> sampled pixel.
        height: Rows of the output.
        width: Columns of the output.
        sampled: Height and width of the sampled image.

    Returns:
        [1,height,width,2] in grid_sample's -1..1.
    """
    y = torch.arange(height, device=matrix.device, dtype=matrix.dtype)
    x = torch.arange(width, device=matrix.device, dtype=matrix.dtype)
    xs = matrix[0, 0] * x[None, :] + matrix[0, 1] * y[:, None] + matrix[0, 2]
    ys = matrix[1, 0] * x[None, :] + matrix[1, 1] * y[:, None] + matrix[1, 2]
    h, w = sampled
    return torch.stack([(2 * xs + 1) / w - 1, (2 * ys + 1) / h - 1], -1).unsqueeze(0)


def _scaled(matrix: Tensor, factor: float) -> Tensor:
    """A matrix whose input pixels are factor times finer: for super- and subsampled grids."""
    out = matrix.clone()
    out[:, :2] = matrix[:, :2] / factor
    shift = (1 / factor - 1) / 2
    out[:, 2] = matrix[:, 2] + shift * (matrix[:, 0] + matrix[:, 1])
    return out


def cut(frames: FrameBatch, frame: Tensor, matrices: Tensor, size: int) -> Tensor:
    """Resamples one square crop a row.

    What lies outside the frame repeats its border. Where the crop shrinks the frame by two or more,
    whole pixels are averaged first.

    Args:
        frames: The batch.
        frame: [F] index of the frame in the batch.
        matrices: [F,2,3] frame -> crop.
        size: Side of the crops.

    Returns:
        [F,3,size,size] float32 RGB, 0..1.
    """
    if len(frame) == 0:
        return torch.zeros(0, 3, size, size, device=frames.planes[0].device)
    device = frames.planes[0].device
    inverse = invert(matrices)
    footprint, shrinks = _footprints(inverse.cpu(), size)
    crops = []
    for row, index in enumerate(frame.tolist()):
        x0, y0, x1, y1 = region_box(_inside(footprint[row].tolist(), frames), frames)
        region = read_region(frames, index, (x0, y0, x1, y1)).unsqueeze(0)
        matrix = inverse[row].to(device)
        matrix = matrix - torch.tensor([[0, 0, x0], [0, 0, y0]], device=device)
        shrink = min(int(shrinks[row]), *region.shape[2:])
        if shrink >= 2:
            region = F.avg_pool2d(region, shrink, ceil_mode=True, count_include_pad=False)
            matrix = matrix / shrink
            matrix[:, 2] += (1 / shrink - 1) / 2
        h, w = int(region.shape[2]), int(region.shape[3])
        grid = _grid(matrix, size, size, (h, w))
        crops.append(
            F.grid_sample(region, grid, mode="bilinear", padding_mode="border", align_corners=False)
        )
    return torch.cat(crops).clamp_(0, 1)


def paste(
    frames: FrameBatch, frame: Tensor, matrices: Tensor, pixels: Tensor, weight: Tensor
) -> None:
    """Warps crops back into their frames, in place, touching only pixels under the weight.

    Args:
        frames: The batch; its planes are written.
        frame: [F] index of the frame in the batch.
        matrices: [F,2,3] frame -> crop.
        pixels: [F,3,S,S] RGB 0..1.
        weight: [F,1,S,S] 0..1; 0 leaves the frame's own bytes.
    """
    if len(frame) == 0:
        return
    size = int(pixels.shape[-1])
    device = frames.planes[0].device
    used = _weight_boxes(weight)
    corners = _corners(used.cpu())
    footprints = transform(corners, invert(matrices).cpu())
    boxes = torch.cat([footprints.amin(1) - 1, footprints.amax(1) + 1], -1)
    scales = torch.linalg.det(matrices[:, :, :2].double()).abs().sqrt().cpu()
    for row, index in enumerate(frame.tolist()):
        if used[row, 2] <= used[row, 0]:
            continue
        x0, y0, x1, y1 = region_box(boxes[row].tolist(), frames)
        if x1 <= x0 or y1 <= y0:
            continue
        matrix = matrices[row].to(device).clone()
        matrix[:, 2] += matrix[:, 0] * x0 + matrix[:, 1] * y0
        fine = math.ceil(float(scales[row])) if float(scales[row]) > SUPERSAMPLE_FROM else 1
        grid = _grid(_scaled(matrix, fine), (y1 - y0) * fine, (x1 - x0) * fine, (size, size))
        both = torch.cat([pixels[row], weight[row]]).unsqueeze(0)
        # Outside the crop everything is zero, and the weight is zero on the crop's border.
        warped = F.grid_sample(
            both, grid, mode="bilinear", padding_mode="zeros", align_corners=False
        )
        if fine > 1:
            warped = F.avg_pool2d(warped, fine)
        write_region(frames, index, (x0, y0, x1, y1), warped[0, :3], warped[0, 3:])


def _inside(box: Sequence[float], frames: FrameBatch) -> list[float]:
    """A box clamped into the frame, so that one beside it becomes the nearest edge."""
    right, bottom = frames.width - 1, frames.height - 1
    return [min(max(v, 0), limit) for v, limit in zip(box, (right, bottom) * 2, strict=True)]


def _corners(box: Tensor) -> Tensor:
    """[F,4] boxes as [F,4,2] corner points."""
    x0, y0, x1, y1 = box.unbind(-1)
    return torch.stack(
        [torch.stack(p, -1) for p in ((x0, y0), (x1, y0), (x0, y1), (x1, y1))], 1
    ).float()


def _footprints(inverse: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The frame boxes [F,4] that crops cover, with a pixel of margin, and how much they shrink."""
    edge = torch.tensor([-1.0, -1.0, size, size]).expand(len(inverse), 4)
    spots = transform(_corners(edge), inverse)
    boxes = torch.cat([spots.amin(1) - 1, spots.amax(1) + 1], -1)
    shrink = torch.linalg.det(inverse[:, :, :2].double()).abs().sqrt().floor()
    return boxes, shrink


def _weight_boxes(weight: Tensor) -> Tensor:
    """[F,4] x0 y0 x1 y1 (last included) of the crop pixels with weight; x1 < x0 where none."""
    size = weight.shape[-1]
    on = weight[:, 0] > 0
    steps = torch.arange(size, device=weight.device)
    columns, rows = on.any(1), on.any(2)
    big = torch.full_like(steps, size)
    low = [torch.where(m, steps, big).amin(1) for m in (columns, rows)]
    high = [torch.where(m, steps, -torch.ones_like(steps)).amax(1) for m in (columns, rows)]
    return torch.stack([low[0], low[1], high[0], high[1]], -1)
