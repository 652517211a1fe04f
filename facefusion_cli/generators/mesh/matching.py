"""The warped source made to look as if photographed with the target: colour, light, lips."""

from __future__ import annotations

import torch
from torch import Tensor

from facefusion_cli.generators.mesh.gauss import smooth_small
from facefusion_cli.generators.mesh.model import LABELS
from facefusion_cli.generators.mesh.plane import SMALL_L, enlarge, shrink
from facefusion_cli.generators.mesh.relight import borrowed_shine, light_gain, lip_shift
from facefusion_cli.generators.mesh.skin import Skin, columns
from facefusion_cli.generators.mesh.warp import Maps
from facefusion_cli.stages.colour import (
    colourfulness,
    fit_histogram,
    fit_spread,
    fit_tone,
    lab_to_srgb,
    mute,
    srgb_to_lab,
)

_LEAST_WEIGHT = 0.15
"""Share of the face that must look like skin; with less, what looks like skin is not trusted."""
_SHADE_WEIGHT = 0.4
_EYES_WIDER, _OTHERS_WIDER = 0.022 * SMALL_L, 0.010 * SMALL_L
_WIDENING = 6.0
"""A Gaussian times 6 is still 1 where an edge is one sigma away: it widens by about as much."""
_LIPS = slice(LABELS.index("lips"), LABELS.index("lips") + 1)


def skin_weight(area: Tensor, covered: Tensor, features: Tensor, likely: Tensor) -> Tensor:
    """Where colours are compared: bare skin of both faces inside the mask.

    Args:
        area: [F,2,80,80] signed distances inside the face's area.
        covered: [F,1,80,80] coverage of the mesh.
        features: [F,1,80,80] eyes, lips and brows.
        likely: [F,1,80,80] how likely both faces show skin.

    Returns:
        [F,1,80,80].
    """
    inside = (area.amin(1, keepdim=True) + 0.5).clamp(0, 1)
    weight = inside * covered * (1 - features)
    bare = weight * likely
    total = weight.sum((2, 3), keepdim=True)
    enough = bare.sum((2, 3), keepdim=True) >= _LEAST_WEIGHT * total
    return torch.where(enough, bare, weight)


def feature_area(labels: Tensor) -> Tensor:
    """Eyes, lips and brows on the small grid, softly widened: no lash or lip counts as skin.

    Args:
        labels: [F,4,80,80] shares, channel by LABELS.

    Returns:
        [F,1,80,80] 0..1.
    """
    eyes, mouth, lips, brows = torch.split(labels, 1, 1)
    wide = smooth_small(eyes, _EYES_WIDER)
    others = smooth_small(mouth + lips + brows, _OTHERS_WIDER)
    return (_WIDENING * torch.maximum(wide, others)).clamp(0, 1)


def match_to_target(
    method: str,
    face: Tensor,
    backdrop: Tensor,
    skin: Skin,
    area: Tensor,
    maps: Maps,
    soft_lips: Tensor,
) -> Tensor:
    """Colour, light and lips of the target for the warped source.

    Args:
        method: "tone", "lab", "hist" or "none".
        face: [F,4,W,W] the warped source, Lab and how likely it is skin.
        backdrop: [F,3,W,W] the warped target, sRGB.
        skin: The target's.
        area: [F,2,80,80] signed distances inside the face's area.
        maps: Of the warp.
        soft_lips: [F,1,W,W] the ring of the lips.

    Returns:
        [F,3,W,W] sRGB.
    """
    if method == "none":
        return lab_to_srgb(face[:, :3])
    size = face.shape[-1] * 8 // 5
    small_face, small_target = shrink(face), shrink(backdrop)
    face, own, own_likely = face[:, :3], small_face[:, :3], small_face[:, 3:]
    target = srgb_to_lab(small_target)
    features = feature_area(maps.small_labels)
    likely = skin.likelihood(target, columns(target.device))
    weight = skin_weight(area, maps.covered, features, own_likely * likely)
    # Light is also compared, at less weight, where the source's skin lies in deep shade.
    shaded = _SHADE_WEIGHT + (1 - _SHADE_WEIGHT) * own_likely
    lit = skin_weight(area, maps.covered, features, shaded * likely)

    tone = fit_tone(own, target, weight)
    if method == "tone":
        matched = tone.lab(own, features)
        whole = tone.lab(face, enlarge(features, size))
    elif method == "lab":
        spread = fit_spread(own, target, weight)
        matched, whole = spread.lab(own), spread.lab(face)
    else:
        curves = fit_histogram(lab_to_srgb(own), small_target, weight)
        matched, whole = curves.lab(own), curves.lab(face)

    colourful = colourfulness(target, weight)
    matched, whole = (mute(x, tone.target, colourful) for x in (matched, whole))
    small = lab_to_srgb(matched)
    gain = light_gain(small, small_target, lit)
    shift = lip_shift(srgb_to_lab(small * gain), target, maps.small_labels[:, _LIPS])
    shine = borrowed_shine(target[:, :1], weight, tone) * (1 - features)
    whole = whole + shift * soft_lips
    whole[:, :1] += enlarge(shine, size)
    return (lab_to_srgb(whole) * enlarge(gain, size)).clamp_max(1)
