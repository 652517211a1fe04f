"""Lids and irises: the iris network on both eyes, written over the mesh.

Without it the lids of narrow eyes, and of eyes behind glasses, are off by enough to make a swap
look cross-eyed. The vertex mapping is the published one of MediaPipe's attention mesh refinement.
"""

from __future__ import annotations

import torch
from torch import Tensor

from facefusion_cli.nets.iris import CROP, SIDE_PER_EYE, Iris
from facefusion_cli.stages.crop import cut, invert, square_matrices, transform
from facefusion_cli.types import FrameBatch

_LEFT_CORNERS = (33, 133)
_RIGHT_CORNERS = (362, 263)
LEFT_REFINED = (
    33, 7, 163, 144, 145, 153, 154, 155, 133, 246, 161, 160, 159, 158, 157, 173, 130, 25, 110, 24,
    23, 22, 26, 112, 243, 247, 30, 29, 27, 28, 56, 190, 226, 31, 228, 229, 230, 231, 232, 233, 244,
    113, 225, 224, 223, 222, 221, 189, 35, 124, 46, 53, 52, 65, 143, 111, 117, 118, 119, 120, 121,
    128, 245, 156, 70, 63, 105, 66, 107, 55, 193,
)  # fmt: skip
"""Mesh vertices of the network's 71 points, for the image-left eye."""
RIGHT_REFINED = (
    263, 249, 390, 373, 374, 380, 381, 382, 362, 466, 388, 387, 386, 385, 384, 398, 359, 255, 339,
    254, 253, 252, 256, 341, 463, 467, 260, 259, 257, 258, 286, 414, 446, 261, 448, 449, 450, 451,
    452, 453, 464, 342, 445, 444, 443, 442, 441, 413, 265, 353, 276, 283, 282, 295, 372, 340, 346,
    347, 348, 349, 350, 357, 465, 383, 300, 293, 334, 296, 336, 285, 417,
)  # fmt: skip
"""The same for the image-right eye, whose crop is mirrored."""


def _eye_matrices(mesh: Tensor, corners: tuple[int, int], *, mirrored: bool) -> Tensor:
    a, b = mesh[:, corners[0], :2], mesh[:, corners[1], :2]
    across = b - a
    side = SIDE_PER_EYE * torch.linalg.vector_norm(across, dim=-1).clamp_min(1.0)
    angle = torch.atan2(across[:, 1], across[:, 0])
    matrices = square_matrices((a + b) / 2, side, angle, CROP)
    if mirrored:
        matrices = matrices.clone()
        matrices[:, 0] = -matrices[:, 0]
        matrices[:, 0, 2] += CROP - 1
    return matrices


def refine_eyes(
    frames: FrameBatch, frame: Tensor, mesh: Tensor, network: Iris
) -> tuple[Tensor, Tensor]:
    """Moves 142 mesh vertices to where the iris network sees them and finds both irises.

    Args:
        frames: The batch.
        frame: [F] frame of each face.
        mesh: [F,468,3] pixels.
        network: The iris network on the frames' device.

    Returns:
        The refined mesh [F,468,3] (z unchanged) and irises [F,2,5,2], image-left eye first.
    """
    left = _eye_matrices(mesh, _LEFT_CORNERS, mirrored=False)
    right = _eye_matrices(mesh, _RIGHT_CORNERS, mirrored=True)
    matrices = torch.cat([left, right])
    crops = cut(frames, torch.cat([frame, frame]), matrices, CROP)
    contour, iris = network(crops)
    # The network counts from the crop's edge; pixel centres are half a pixel further in.
    back = invert(matrices)
    lids = transform(contour[..., :2].float() - 0.5, back)
    irises = transform(iris[..., :2].float() - 0.5, back)
    count = len(frame)
    refined = mesh.clone()
    refined[:, list(LEFT_REFINED), :2] = lids[:count]
    refined[:, list(RIGHT_REFINED), :2] = lids[count:]
    return refined, torch.stack([irises[:count], irises[count:]], 1)
