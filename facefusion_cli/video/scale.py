"""Whole frames to another size, plane by plane: no conversion, so no colour moves.

Down by area averages, up by a cubic (Keys 1981, a = -0.75 as OpenCV has it), each axis for itself.
Every plane is stretched over the same rectangle of the picture, samples sitting in the centres of
their cells. The last chroma cell of an odd side reaches over the picture's edge: its excess is left
out of account, or chroma would drift by a pixel from one side of the picture to the other.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import cv2
import numpy as np
import torch
from torch import Tensor

from facefusion_cli.types import FrameBatch

_KEYS = -0.75
"""The cubic's slope at one sample's distance."""


def scale_frames(frames: FrameBatch, size: tuple[int, int]) -> FrameBatch:
    """Frames of another size, on the device they are on; times, colours and layout stay.

    Overshoot is cut to the codes that the clip's range allows.

    Args:
        frames: 8 to 16 bits, any subsampling, with or without alpha.
        size: New width and height.
    """
    if (frames.width, frames.height) == size:
        return frames
    bits, (sx, sy) = frames.layout.bits, frames.layout.subsampling
    steps = Fraction(frames.height, size[1]), Fraction(frames.width, size[0])
    full = 0, (1 << bits) - 1
    legal = (1 << (bits - 8), (255 << (bits - 8)) - 1) if frames.color.range == "limited" else full
    rows, columns = -(-size[1] // sy), -(-size[0] // sx)
    u, v = (_scaled(p, (rows, columns), steps, legal) for p in frames.planes[1:])
    y = _scaled(frames.planes[0], size[::-1], steps, legal)
    alpha = frames.alpha
    if alpha is not None:
        alpha = _scaled(alpha, size[::-1], steps, full)
    return replace(frames, planes=(y, u, v), alpha=alpha)


def _scaled(
    plane: Tensor, to: tuple[int, int], steps: tuple[Fraction, Fraction], legal: tuple[int, int]
) -> Tensor:
    """[N,h,w] to [N,*to]; steps are old samples a new one, along rows' axis and columns'."""
    old = int(plane.shape[1]), int(plane.shape[2])
    if plane.device.type == "cpu" and _is_plain(old, to, steps):
        return _scaled_cpu(plane, to, legal)
    down = _weights(old[0], to[0], steps[0], plane.device)
    across = _weights(old[1], to[1], steps[1], plane.device)
    out = torch.empty((len(plane), *to), dtype=plane.dtype, device=plane.device)
    for into, picture in zip(out, plane, strict=True):
        values = down @ picture.to(torch.float32) @ across.T
        into.copy_(values.round_().clamp_(*legal))
    return out


def _is_plain(old: tuple[int, int], to: tuple[int, int], steps: tuple[Fraction, Fraction]) -> bool:
    """Whether the planes' sides alone give the right steps, as OpenCV takes them."""
    return all(Fraction(a, b) == step for a, b, step in zip(old, to, steps, strict=True))


def _scaled_cpu(plane: Tensor, to: tuple[int, int], legal: tuple[int, int]) -> Tensor:
    """The same by OpenCV's kernels."""
    height, width = plane.shape[1:]
    smaller = min(height, to[0]), min(width, to[1])
    out = torch.empty((len(plane), *to), dtype=plane.dtype)
    for into, picture in zip(out.numpy(), plane.numpy(), strict=True):
        if smaller != (height, width):
            picture = cv2.resize(picture, smaller[::-1], interpolation=cv2.INTER_AREA)
        if to != smaller:
            picture = cv2.resize(picture, to[::-1], interpolation=cv2.INTER_CUBIC)
            picture = picture.clip(*legal)
        into[...] = picture
    return out


@lru_cache(maxsize=32)
def _weights(old: int, new: int, step: Fraction, device: torch.device) -> Tensor:
    """[new,old] float32: what each old sample gives to each new one; rows sum to 1."""
    if step == 1 and old == new:
        return torch.eye(old, device=device)
    weights = _area(old, new, float(step)) if step > 1 else _cubic(old, new, float(step))
    weights /= weights.sum(1, keepdims=True)
    return torch.from_numpy(weights).to(device=device, dtype=torch.float32)


def _area(old: int, new: int, step: float) -> np.ndarray:
    """The share of every old sample's cell in every new one's; cells beyond the last repeat it."""
    begin = np.arange(new)[:, None] * step
    cells = np.arange(old + 2)[None]
    overlap = np.minimum(begin + step, cells + 1) - np.maximum(begin, cells)
    return _within(overlap.clip(0), old)


def _cubic(old: int, new: int, step: float) -> np.ndarray:
    """Keys' kernel at every new sample's place; samples beyond the ends repeat the last ones."""
    place = (np.arange(new)[:, None] + 0.5) * step - 0.5
    far = np.abs(place - np.arange(-4, old + 4)[None])
    near = ((_KEYS + 2) * far - (_KEYS + 3)) * far**2 + 1
    tail = ((far - 5) * far + 8) * far * _KEYS - 4 * _KEYS
    weights = np.where(far <= 1, near, np.where(far < 2, tail, 0))
    inner = _within(weights[:, 4:], old)
    inner[:, 0] += weights[:, :4].sum(1)
    return inner


def _within(weights: np.ndarray, old: int) -> np.ndarray:
    """Columns beyond the last sample added to it."""
    inner = weights[:, :old].copy()
    inner[:, -1] += weights[:, old:].sum(1)
    return inner
