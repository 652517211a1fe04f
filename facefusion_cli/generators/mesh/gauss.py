"""Gaussian smoothing: as matrix products on the small plane, as short filters on the large one."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor


@lru_cache(maxsize=64)
def _matrix(size: int, sigma: float, device: torch.device) -> Tensor:
    """[size,size]: row i holds the weights of every sample for output i; zeros beyond the ends."""
    steps = torch.arange(size, dtype=torch.float64)
    weights = torch.exp(-0.5 * ((steps[:, None] - steps[None, :]) / sigma) ** 2)
    reach = torch.arange(-math.ceil(6 * sigma), math.ceil(6 * sigma) + 1, dtype=torch.float64)
    weights = weights / torch.exp(-0.5 * (reach / sigma) ** 2).sum()
    return weights.float().to(device)


def smooth_small(image: Tensor, sigma: float) -> Tensor:
    """Gaussian of any width on a small square image, exact, in two matrix products.

    Args:
        image: [F,C,N,N]; zero beyond its border.
        sigma: Pixels.
    """
    matrix = _matrix(image.shape[-1], sigma, image.device)
    return matrix @ image @ matrix.T


@lru_cache(maxsize=64)
def _taps(sigma: float) -> tuple[float, ...]:
    reach = max(1, math.ceil(3 * sigma))
    weights = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(-reach, reach + 1)]
    total = sum(weights)
    return tuple(w / total for w in weights)


def smooth_large(image: Tensor, sigma: float) -> Tensor:
    """Gaussian of a few pixels, cut at three sigma.

    Args:
        image: [F,C,H,W]; its border repeats.
        sigma: Pixels; below 0.2 nothing is done.
    """
    if sigma < 0.2:
        return image
    c = image.shape[1]
    kernel = torch.tensor(_taps(sigma), device=image.device, dtype=image.dtype)
    reach = len(kernel) // 2
    # Channels last: depthwise filters run an order of magnitude faster there on CPUs.
    image = image.contiguous(memory_format=torch.channels_last)
    image = F.pad(image, (reach, reach, reach, reach), mode="replicate")
    image = F.conv2d(image, kernel.expand(c, 1, 1, -1), groups=c)
    return F.conv2d(image, kernel[:, None].expand(c, 1, -1, 1), groups=c)


def normalised(image: Tensor, weight: Tensor, sigma: float) -> Tensor:
    """Normalised convolution on the small plane with a far fallback.

    Where the weight is scarce within sigma, the mean within three sigma takes over.

    Args:
        image: [F,C,N,N].
        weight: [F,1,N,N] 0..1.
        sigma: Pixels.
    """
    both = torch.cat([image * weight, weight], 1)
    near, far = smooth_small(both, sigma), smooth_small(both, 3 * sigma)
    fallback = far[:, :-1] / (far[:, -1:] + 1e-4)
    return (near[:, :-1] + 0.03 * fallback) / (near[:, -1:] + 0.03)
