"""What this face's bare skin looks like, and how likely a pixel is skin."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from facefusion_cli.generators.mesh.model import FaceModel
from facefusion_cli.generators.mesh.plane import sample_small

_DARK, _LIGHT, _CHROMA = 3.5, 7.0, 4.5
"""Deviations at which a pixel has left the skin: shadow is rarer than shine."""


@dataclass(frozen=True, slots=True, repr=False)
class Skin:
    """Lab median and spread of cheeks and nose."""

    median: Tensor
    """[F,3,1,1]."""
    spread: Tensor
    """[F,3,1,1], 1.4826 times the median absolute deviation plus a floor."""

    def likelihood(self, lab: Tensor, dark: float = _DARK) -> Tensor:
        """How likely each Lab pixel [F,3,H,W] is skin: [F,1,H,W], 0..1.

        Args:
            lab: The pixels.
            dark: Deviations at which darkness stops being skin.
        """
        d = (lab - self.median) / self.spread
        light = torch.maximum(-d[:, :1] / dark, d[:, :1] / _LIGHT)
        chroma = torch.hypot(d[:, 1:2], d[:, 2:]) / _CHROMA
        return (1.5 - torch.maximum(light, chroma)).clamp(0, 1)


def measure_skin(lab: Tensor, mesh: Tensor, model: FaceModel) -> Skin:
    """The skin of each face, from points spread over both cheeks and the nose.

    Args:
        lab: [F,3,N,N] small grid.
        mesh: [F,468,2] small pixels.
        model: The constants.
    """
    samples = sample_small(lab, model.skin @ mesh)
    median = samples.median(-1, keepdim=True).values
    deviation = (samples - median).abs().median(-1, keepdim=True).values
    floor = torch.tensor([2.5, 1.2, 1.2], device=lab.device)[:, None]
    return Skin(median[..., None], (1.4826 * deviation + floor)[..., None])
