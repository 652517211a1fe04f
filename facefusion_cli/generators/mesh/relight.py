"""Light and shade of the target on the source's skin, on the small grid.

The quotient of two faces under the same light (Shashua and Riklin-Raviv, "The quotient image",
PAMI 2001), kept to its low frequencies so that the source's features survive.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from facefusion_cli.generators.mesh.gauss import normalised
from facefusion_cli.generators.mesh.plane import SMALL_L
from facefusion_cli.stages.colour import ToneMap, smoothstep, srgb_to_linear, statistics

_LUMINANCE_SIGMA, _CHROMA_SIGMA = 0.20 * SMALL_L, 0.30 * SMALL_L
_LOWEST, _HIGHEST = math.log(0.6), math.log(2.2)
_DISPLAY_GAMMA = 2.2
_SHINE_SIGMA, _SHINE_BASE_SIGMA = 0.025 * SMALL_L, 0.15 * SMALL_L


def light_gain(pixels: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Factors for sRGB values that give one face the other's light.

    Args:
        pixels: [F,3,80,80] the source, colours matched.
        target: [F,3,80,80].
        weight: [F,1,80,80] bare skin.

    Returns:
        [F,3,80,80].
    """
    ratio = torch.log(srgb_to_linear(target) + 0.01) - torch.log(srgb_to_linear(pixels) + 0.01)
    luma = torch.tensor([0.2126, 0.7152, 0.0722], device=pixels.device).view(1, 3, 1, 1)
    brightness = (ratio * luma).sum(1, keepdim=True)
    lightness = normalised(brightness, weight, _LUMINANCE_SIGMA)
    tint = normalised(ratio - brightness, weight, _CHROMA_SIGMA)
    return torch.exp((lightness + tint).clamp(_LOWEST, _HIGHEST) / _DISPLAY_GAMMA)


def borrowed_shine(lightness: Tensor, weight: Tensor, tone: ToneMap) -> Tensor:
    """Highlights of a darker target, to be added to L; 0 where the target is not darker.

    Args:
        lightness: [F,1,80,80] L of the target.
        weight: [F,1,80,80] bare skin.
        tone: The map between the faces.

    Returns:
        [F,1,80,80] L.
    """
    darker = 0.6 * smoothstep(tone.source[:, :1] - tone.target[:, :1], 8, 25)
    fine = normalised(lightness, weight, _SHINE_SIGMA)
    base = normalised(lightness, weight, _SHINE_BASE_SIGMA)
    return darker * (fine - base - 1).clamp(0, 18)


def lip_shift(lab: Tensor, target: Tensor, lips: Tensor) -> Tensor:
    """How far the lips' colour moves towards the target's lips.

    Args:
        lab: [F,3,80,80] the source, colours matched and relit.
        target: [F,3,80,80] Lab.
        lips: [F,1,80,80] the ring of the lips.

    Returns:
        [F,3,1,1] Lab.
    """
    own, _ = statistics(lab, lips)
    other, _ = statistics(target, lips)
    share = torch.tensor([0.15, 0.5, 0.5], device=lab.device).view(1, 3, 1, 1)
    return share * (other - own).clamp(-25, 25)
