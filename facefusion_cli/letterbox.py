"""Small RGB pictures of whole frames, for networks that look at all of it."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
import torch
from torch import Tensor

from facefusion_cli.planes import rgb_from_codes, rgb_matrix
from facefusion_cli.transfer import is_hdr
from facefusion_cli.types import FrameBatch

TINY_FRAME = 320


def letterbox(frames: FrameBatch, height: int, width: int) -> tuple[Tensor, float]:
    """Small RGB pictures of whole frames for a network: scaled first, converted afterwards.

    The picture stands at the top left, the rest is 0. It is never enlarged, except that frames
    whose longer side is below 320 pixels may be doubled. Shrinking averages areas.

    Args:
        frames: The batch.
        height: Rows of the result.
        width: Columns of the result.

    Returns:
        [N,3,height,width] float32 RGB 0..1 on the batch's device, HDR as its SDR picture (see
        transfer.py), and the scale: frame x =
        (x + 0.5) / scale - 0.5, y alike, to half a pixel of the result at the far edges.
    """
    limit = 2.0 if max(frames.height, frames.width) < TINY_FRAME else 1.0
    scale = min(height / frames.height, width / frames.width, limit)
    rows = min(height, max(1, round(frames.height * scale)))
    columns = min(width, max(1, round(frames.width * scale)))
    device = frames.planes[0].device
    out = torch.zeros((len(frames), 3, height, width), dtype=torch.float32, device=device)
    content = out[:, :, :rows, :columns]
    if device.type == "cpu" and not is_hdr(frames.color):
        _thumbnails_cpu(frames, content)
    else:
        shrink = _shrink_float_cpu if device.type == "cpu" else _shrink
        codes = torch.stack([shrink(plane, rows, columns) for plane in frames.planes], 1)
        content.copy_(rgb_from_codes(codes, frames.color, frames.layout.bits)).clamp_(0, 1)
    return out, scale


def _thumbnails_cpu(frames: FrameBatch, out: Tensor) -> None:
    """Fills out [N,3,rows,columns] with OpenCV's integer kernels, several times torch's speed."""
    rows, columns = int(out.shape[2]), int(out.shape[3])
    bits = frames.layout.bits
    # On codes brought to 8 bits, giving RGB as bytes.
    matrix = rgb_matrix(frames.color, bits) * 255
    matrix[:, :3] *= 2 ** (bits - 8)
    packed = np.empty((rows, columns, 3), np.uint8)
    channel = torch.empty((rows, columns), dtype=torch.uint8)
    for i in range(len(frames)):
        small = [_shrink_cpu(plane[i].numpy(), rows, columns) for plane in frames.planes]
        if bits > 8:
            small = [cv2.convertScaleAbs(plane, alpha=2.0 ** (8 - bits)) for plane in small]
        cv2.merge(small, packed)
        cv2.transform(packed, matrix, packed)
        for k in range(3):
            cv2.extractChannel(packed, k, channel.numpy())
            out[i, k].copy_(channel).mul_(1 / 255)


def _shrink_float_cpu(planes: Tensor, rows: int, columns: int) -> Tensor:
    """[N,h,w] to [N,rows,columns] float32: what HDR's dark codes mean does not fit 8 bits."""
    small = [_shrink_cpu(plane.numpy(), rows, columns) for plane in planes]
    return torch.from_numpy(np.stack(small).astype(np.float32))


def _shrink_cpu(plane: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Halves while it can, then interpolates: an area average at a quarter of INTER_AREA's time."""
    while plane.shape[0] >= 2 * rows and plane.shape[1] >= 2 * columns:
        half = ((plane.shape[1] + 1) // 2, (plane.shape[0] + 1) // 2)
        plane = cv2.resize(plane, half, interpolation=cv2.INTER_AREA)
    return cv2.resize(plane, (columns, rows), interpolation=cv2.INTER_LINEAR)


def _shrink(plane: Tensor, rows: int, columns: int) -> Tensor:
    """[N,h,w] to [N,rows,columns] float32 by two matrix products, exact area weights."""
    vertical = _resize_weights(int(plane.shape[1]), rows, plane.device)
    horizontal = _resize_weights(int(plane.shape[2]), columns, plane.device)
    return vertical @ (plane.to(torch.float32) @ horizontal.T)


@lru_cache(maxsize=32)
def _resize_weights(source: int, target: int, device: torch.device) -> Tensor:
    """[target,source] weights of an area average, or of linear interpolation when enlarging."""
    ratio = source / target
    if ratio >= 1:
        edges = torch.arange(target + 1, dtype=torch.float64) * ratio
        cells = torch.arange(source, dtype=torch.float64)
        overlap = torch.minimum(edges[1:, None], cells + 1) - torch.maximum(edges[:-1, None], cells)
        return (overlap.clamp_(min=0) / ratio).to(device=device, dtype=torch.float32)
    centres = ((torch.arange(target, dtype=torch.float64) + 0.5) * ratio - 0.5).clamp_(
        0, source - 1
    )
    distance = (centres[:, None] - torch.arange(source, dtype=torch.float64)).abs()
    return (1 - distance).clamp_(min=0).to(device=device, dtype=torch.float32)
