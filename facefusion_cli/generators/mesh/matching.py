"""The warped source made to look as if photographed with the target: colour, light, lips."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from facefusion_cli.generators.mesh.gauss import smooth_large, smooth_small
from facefusion_cli.generators.mesh.model import LABELS
from facefusion_cli.generators.mesh.plane import enlarge, shrink
from facefusion_cli.generators.mesh.relight import borrowed_shine, light_gain, lip_shift
from facefusion_cli.generators.mesh.skin import Skin
from facefusion_cli.stages.colour import (
    fit_colour,
    fit_tone,
    lab_to_srgb,
    srgb_to_lab,
)

_LIP_SIGMA = 0.008
_LEAST_WEIGHT = 0.15
"""Share of the face that must look like skin; with less, what looks like skin is not trusted."""


def skin_weight(area: Tensor, covered: Tensor, features: Tensor, likely: Tensor) -> Tensor:
    """Where colours are compared: bare skin of both faces inside the mask.

    Args:
        area: [F,1,80,80] signed distance inside the face's area.
        covered: [F,1,80,80] coverage of the mesh.
        features: [F,1,80,80] eyes, lips and brows.
        likely: [F,1,80,80] how likely both faces show skin.

    Returns:
        [F,1,80,80].
    """
    weight = (area + 0.5).clamp(0, 1) * covered * (1 - features)
    bare = weight * likely
    total = weight.sum((2, 3), keepdim=True)
    enough = bare.sum((2, 3), keepdim=True) >= _LEAST_WEIGHT * total
    return torch.where(enough, bare, weight)


def feature_area(labels: Tensor) -> Tensor:
    """Eyes, lips and brows on the small grid, widened so that no lash or lip counts as skin.

    Args:
        labels: [F,4,80,80] shares, channel by LABELS.

    Returns:
        [F,1,80,80] 0..1.
    """
    column = {name: labels[:, i : i + 1] for i, name in enumerate(LABELS)}
    eyes = F.max_pool2d(column["eyes"], 5, 1, 2)
    others = F.max_pool2d(
        torch.maximum(torch.maximum(column["lips"], column["mouth"]), column["brows"]), 3, 1, 1
    )
    return torch.maximum(eyes, others)


def match_to_target(
    method: str,
    face: Tensor,
    backdrop: Tensor,
    own_skin: Skin,
    target_skin: Skin,
    area: Tensor,
    covered: Tensor,
    labels: Tensor,
) -> Tensor:
    """Colour, light and lips of the target for the warped source.

    Args:
        method: "tone", "lab" or "hist".
        face: [F,3,W,W] the warped source.
        backdrop: [F,3,W,W] the warped target.
        own_skin: The source's.
        target_skin: The target's.
        area: [F,1,80,80] signed distance inside the face's area.
        covered: [F,1,80,80] coverage of the mesh.
        labels: [F,4,W,W] by LABELS.

    Returns:
        [F,3,W,W].
    """
    size = face.shape[-1] * 8 // 5
    small_face, small_target = shrink(face), shrink(backdrop)
    own, target = srgb_to_lab(small_face), srgb_to_lab(small_target)
    small_labels = shrink(labels)
    features = feature_area(small_labels)
    likely = own_skin.likelihood(own) * target_skin.likelihood(target)
    weight = skin_weight(area, covered, features, likely)

    soft_features = smooth_small(features, 1.0)
    tone = fit_tone(own, target, weight)
    if method == "tone":
        matched = tone.lab(own, soft_features)
        whole = tone.lab(srgb_to_lab(face), enlarge(soft_features, size))
    else:
        colour = fit_colour(method, small_face, small_target, weight)
        matched, whole = srgb_to_lab(colour(small_face)), srgb_to_lab(colour(face))

    gain = light_gain(lab_to_srgb(matched), small_target, weight)
    shine = borrowed_shine(target[:, :1], weight, tone) * (1 - soft_features)
    lips = labels[:, LABELS.index("lips")][:, None]
    relit = srgb_to_lab((lab_to_srgb(matched) * gain).clamp(0, 1))
    shift = lip_shift(relit, target, shrink(lips))
    soft_lips = smooth_large(lips, _LIP_SIGMA * size / 1.8)
    whole = whole + shift * soft_lips
    whole[:, :1] += enlarge(shine, size)
    return (lab_to_srgb(whole) * enlarge(gain, size)).clamp(0, 1)
