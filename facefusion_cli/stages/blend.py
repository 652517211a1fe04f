"""The new face into the target's crop: Poisson, alpha, OpenCV's seamless cloning, or plain paste.

All methods leave every value where the mask is 0 as it was, bit for bit. Poisson and OpenCV first
make a picture that joins the backdrop without a step, on the domain of `poisson_domain`; then it is
mixed in with the soft mask as alpha does it: backdrop + mask * (picture - backdrop). So a mask that
is 1 inside gives the solution itself, a feathered rim feathers it once more (where the solution is
near the backdrop anyway), and a mask that was faded as a whole fades it.
"""

from __future__ import annotations

import cv2
import numpy as np
import torch
from torch import Tensor

from facefusion_cli.stages import poisson

METHODS = ("poisson", "alpha", "opencv", "none")
DOMAIN_THRESHOLD = 0.02
"""Mask values up to this count as outside for Poisson and OpenCV: what shows there is under a level
or two, and the solution's rim stays within the soft mask, where the new face is defined."""


def blend(backdrop: Tensor, pixels: Tensor, mask: Tensor, method: str) -> Tensor:
    """Joins new faces to what they are put onto.

    Args:
        backdrop: [F,3,S,S] float RGB 0..1, the target.
        pixels: [F,3,S,S] RGB 0..1, the new face. Poisson and OpenCV take differences between
            neighbours, so they also use the pixels next to their domain.
        mask: [F,1,S,S] 0..1, how much of the new face shows.
        method: poisson, alpha (the mask as weight), opencv (cv2.seamlessClone, on the CPU and in 8
            bits, for comparison) or none (hard paste where the mask exceeds 0.5).

    Returns:
        [F,3,S,S] like backdrop; not clamped: a gradient carried over can leave 0..1.
    """
    if method == "none":
        return torch.where(mask > 0.5, pixels.to(backdrop.dtype), backdrop)
    if method == "alpha":
        change = (pixels - backdrop).to(backdrop.dtype)
    elif method == "poisson":
        exact = torch.promote_types(backdrop.dtype, torch.float32)
        difference = pixels.to(exact) - backdrop.to(exact)
        change = poisson.solve(difference, poisson_domain(mask)).to(backdrop.dtype)
    elif method == "opencv":
        change = _seamless_clone(backdrop, pixels, poisson_domain(mask))
    else:
        raise ValueError(f"blend method {method!r}, expected one of {', '.join(METHODS)}")
    return torch.where(mask > 0, torch.addcmul(backdrop, mask.to(backdrop.dtype), change), backdrop)


def poisson_domain(mask: Tensor) -> Tensor:
    """Where the Poisson equation is solved: [F,1,S,S] bool, mask above DOMAIN_THRESHOLD.

    The crop's outermost pixels are never part of it: they have no backdrop beyond them.
    """
    domain = torch.zeros_like(mask, dtype=torch.bool)
    domain[..., 1:-1, 1:-1] = mask[..., 1:-1, 1:-1] > DOMAIN_THRESHOLD
    return domain


def _seamless_clone(backdrop: Tensor, pixels: Tensor, domain: Tensor) -> Tensor:
    """[F,3,S,S] the change cv2.seamlessClone makes, in the domain's bounding box."""

    def to_bytes(pictures: Tensor) -> np.ndarray:
        rounded = (pictures.to(torch.float32) * 255).round().clamp(0, 255).to(torch.uint8)
        return rounded.permute(0, 2, 3, 1).contiguous().cpu().numpy()

    sources, targets = to_bytes(pixels), to_bytes(backdrop)
    masks = domain[:, 0].to(torch.uint8).mul(255).cpu().numpy()
    change = np.zeros(sources.shape, np.float32)
    for i in range(len(masks)):
        x, y, width, height = cv2.boundingRect(masks[i])
        if min(width, height) < 3:
            continue  # seamlessClone fails on these; Poisson hardly changes so few pixels either
        # It puts the centre of the mask's bounding box at the point given, so this is in place. It
        # also writes to the mask it is given.
        centre = (x + width // 2, y + height // 2)
        cloned = cv2.seamlessClone(
            sources[i], targets[i], masks[i].copy(), centre, cv2.NORMAL_CLONE
        )
        change[i] = (cloned.astype(np.float32) - targets[i]) / 255
    return torch.from_numpy(change).permute(0, 3, 1, 2).to(backdrop)
