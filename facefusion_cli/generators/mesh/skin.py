"""What this face's bare skin looks like, and how likely a pixel is skin."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from facefusion_cli.generators.mesh.model import FaceModel
from facefusion_cli.generators.mesh.plane import SMALL, sample_small

_DARK, _LIGHT, _CHROMA = 3.5, 7.0, 4.5
"""Deviations at which a pixel has left the skin: shadow is rarer than shine."""
_STEEPEST = 40.0
"""Largest difference of Lab that light from one side may make between the cheeks."""


@dataclass(frozen=True, slots=True, repr=False)
class Skin:
    """Lab of cheeks and nose: the middle, how it changes across the face, and the spread.

    Light from one side would otherwise count as spread, and then hair would count as skin.
    """

    middle: Tensor
    """[F,3,1,1] at x = 0."""
    across: Tensor
    """[F,3,1,1] per small pixel to the right."""
    spread: Tensor
    """[F,3,1,1], 1.4826 times the median absolute deviation plus a floor."""

    def expected(self, x: Tensor) -> Tensor:
        """[F,3,H,W] the skin's Lab at the small pixels' x, [F or 1,1,H,W]."""
        return self.middle + self.across * x

    def likelihood(self, lab: Tensor, x: Tensor, dark: float = _DARK) -> Tensor:
        """How likely each Lab pixel is skin: [F,1,H,W], 0..1.

        Args:
            lab: [F,3,H,W].
            x: [F or 1,1,H,W] where the pixels lie, small pixels.
            dark: Deviations at which darkness stops being skin.
        """
        d = (lab - self.expected(x)) / self.spread
        light = torch.maximum(-d[:, :1] / dark, d[:, :1] / _LIGHT)
        chroma = torch.hypot(d[:, 1:2], d[:, 2:]) / _CHROMA
        return (1.5 - torch.maximum(light, chroma)).clamp(0, 1)


def columns(device: torch.device) -> Tensor:
    """[1,1,1,80] the x of the small grid's columns."""
    return torch.arange(SMALL, device=device, dtype=torch.float32).view(1, 1, 1, -1)


def measure_skin(lab: Tensor, mesh: Tensor, model: FaceModel) -> Skin:
    """The skin of each face, from points spread over both cheeks and the nose.

    Args:
        lab: [F,3,80,80] small grid.
        mesh: [F,468,2] small pixels.
        model: The constants.
    """
    points = model.skin @ mesh
    samples = sample_small(lab, points)
    x = points[..., 0].unsqueeze(1)
    # The model's samples are ordered by side: the first ones lie on the image's left.
    n = samples.shape[-1] // 3
    reach = (x[..., -n:].mean(-1) - x[..., :n].mean(-1)).clamp_min(8)
    left, right = (s.median(-1).values for s in (samples[..., :n], samples[..., -n:]))
    across = ((right - left).clamp(-_STEEPEST, _STEEPEST) / reach)[..., None]
    level = samples - across * x
    middle = level.median(-1, keepdim=True).values
    deviation = (level - middle).abs().median(-1, keepdim=True).values
    floor = torch.tensor([2.5, 1.2, 1.2], device=lab.device)[:, None]
    spread = 1.4826 * deviation + floor
    return Skin(middle[..., None], across[..., None], spread[..., None])
