"""The canonical 106 landmarks: the one place that knows their order and names.

The set is derived from the 468-point mesh, not read off a 106-point network: every point is a mesh
vertex, a mean of lid vertices, an iris centre, or a place on the jaw between vertices. left and
right are the image's. The grouping is the field's usual one for 106 points.
"""

from __future__ import annotations

import torch
from torch import Tensor

CONTOUR = slice(0, 33)
LEFT_BROW = slice(33, 42)
RIGHT_BROW = slice(42, 51)
NOSE = slice(51, 66)
LEFT_EYE = slice(66, 75)
RIGHT_EYE = slice(75, 84)
MOUTH = slice(84, 104)
PUPILS = slice(104, 106)

_JAW_LEFT = (127, 234, 93, 132, 58, 172, 136, 150, 149, 176, 148, 152)
_JAW_RIGHT = (152, 377, 400, 378, 379, 365, 397, 288, 361, 323, 454, 356)

_VERTICES: dict[str, int] = {
    # Brows: the upper edge, then the lower edge, both from image left to right.
    **{f"left_brow_upper_{i}": v for i, v in enumerate((70, 63, 105, 66, 107))},
    **{f"left_brow_lower_{i}": v for i, v in enumerate((53, 52, 65, 55))},
    **{f"right_brow_upper_{i}": v for i, v in enumerate((336, 296, 334, 293, 300))},
    **{f"right_brow_lower_{i}": v for i, v in enumerate((285, 295, 282, 283))},
    "nose_bridge_0": 168,
    "nose_bridge_1": 197,
    "nose_bridge_2": 195,
    "nose_tip": 4,
    "nose_left_side": 193,
    "nose_left_wing_top": 198,
    "nose_left_wing": 129,
    "nose_left_wing_base": 98,
    "nose_left_nostril": 97,
    "nose_base": 2,
    "nose_right_nostril": 326,
    "nose_right_wing_base": 327,
    "nose_right_wing": 358,
    "nose_right_wing_top": 420,
    "nose_right_side": 417,
    # Eyes: from the image-left corner along the upper lid, back along the lower lid.
    "left_eye_outer": 33,
    **{f"left_eye_upper_{i}": v for i, v in enumerate((160, 159, 158))},
    "left_eye_inner": 133,
    **{f"left_eye_lower_{i}": v for i, v in enumerate((153, 145, 144))},
    "left_eye_centre": -1,
    "right_eye_inner": 362,
    **{f"right_eye_upper_{i}": v for i, v in enumerate((385, 386, 387))},
    "right_eye_outer": 263,
    **{f"right_eye_lower_{i}": v for i, v in enumerate((373, 374, 380))},
    "right_eye_centre": -2,
    # Mouth: outer edge from the left corner over the top and back, then the inner edge likewise.
    "mouth_left": 61,
    **{f"mouth_upper_{i}": v for i, v in enumerate((40, 37, 0, 267, 270))},
    "mouth_right": 291,
    **{f"mouth_lower_{i}": v for i, v in enumerate((321, 314, 17, 84, 91))},
    "mouth_inner_left": 78,
    **{f"mouth_inner_upper_{i}": v for i, v in enumerate((81, 13, 311))},
    "mouth_inner_right": 308,
    **{f"mouth_inner_lower_{i}": v for i, v in enumerate((402, 14, 178))},
}

NAMES: tuple[str, ...] = (
    *(f"contour_{i}" for i in range(33)),
    *_VERTICES,
    "left_pupil",
    "right_pupil",
)
"""A name for every point, in order; contour_16 is the chin."""

INDEX = {name: i for i, name in enumerate(NAMES)}

LEFT_LIDS = (33, 7, 163, 144, 145, 153, 154, 155, 133, 173, 157, 158, 159, 160, 161, 246)
"""Mesh vertices round the image-left eye's opening."""
RIGHT_LIDS = (263, 249, 390, 373, 374, 380, 381, 382, 362, 398, 384, 385, 386, 387, 388, 466)


def _resampled(path: Tensor, count: int) -> Tensor:
    """Places points at equal arc length along polylines [F,K,2], ends included."""
    steps = torch.linalg.vector_norm(path[:, 1:] - path[:, :-1], dim=-1)
    along = torch.cat([torch.zeros_like(steps[:, :1]), steps.cumsum(1)], 1)
    share = torch.linspace(0, 1, count, device=path.device, dtype=path.dtype)
    wanted = (along[:, -1:] * share).contiguous()
    segment = torch.searchsorted(along.contiguous(), wanted, right=True).clamp(1, len(path[0]) - 1)
    begin, end = along.gather(1, segment - 1), along.gather(1, segment)
    t = ((wanted - begin) / (end - begin).clamp_min(1e-6)).unsqueeze(-1)
    pick = segment.unsqueeze(-1).expand(-1, -1, 2)
    return path.gather(1, pick - 1) * (1 - t) + path.gather(1, pick) * t


def points106(mesh: Tensor, iris: Tensor) -> Tensor:
    """The canonical 106 points.

    Args:
        mesh: [F,468,2 or 3] pixels.
        iris: [F,2,5,2] pixels, image-left eye first; the first of the five is the centre.

    Returns:
        [F,106,2] pixels.
    """
    xy = mesh[..., :2]
    left, right = (_resampled(xy[:, list(jaw)], 17) for jaw in (_JAW_LEFT, _JAW_RIGHT))
    centres = {-1: xy[:, list(LEFT_LIDS)].mean(1), -2: xy[:, list(RIGHT_LIDS)].mean(1)}
    inner = [centres[v] if v < 0 else xy[:, v] for v in _VERTICES.values()]
    return torch.cat([left, right[:, 1:], torch.stack(inner, 1), iris[:, :, 0]], 1)


def template5(points: Tensor) -> Tensor:
    """The five points of the alignment templates, from [F,106,2]: [F,5,2].

    Left eye, right eye (the lids' centres), nose tip, left and right mouth corner.
    """
    wanted = ("left_eye_centre", "right_eye_centre", "nose_tip", "mouth_left", "mouth_right")
    return points[:, [INDEX[n] for n in wanted]]
