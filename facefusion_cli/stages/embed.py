"""Who a face is: identity vectors from faces aligned as the identity network was trained.

The alignment is dlib's five-point face chip with padding 0.25 (King 2009, "Dlib-ml"): the four eye
corners and the base of the nose are brought onto fixed places by a least-squares similarity
(Umeyama 1991). Its scale and place are about those of ArcFace's 112 px template, times 1.494.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from facefusion_cli.nets.dlib_resnet import CROP, DlibResNet
from facefusion_cli.stages.crop import cut
from facefusion_cli.types import Faces, FrameBatch

ANCHORS = (33, 133, 362, 263, 2)
"""Mesh vertices: outer and inner corner of the eye at the image's left, inner and outer corner of
the other, base of the nose."""
PLACES = ((36.56, 45.87), (57.91, 47.41), (89.11, 47.40), (110.46, 45.85), (73.51, 87.28))
"""Where they go in the chip, x, y; the eyes' midpoint is (73.5, 46.6). dlib's mean shape says half
a pixel more, which dlib takes off again because it rounds its chip's centre up."""
OVERSAMPLING = 2
"""The chip is cut finer by this and averaged, so that shrinking does not alias."""


def chip_matrices(mesh: Tensor) -> Tensor:
    """Similarities that bring each face's anchors onto the chip's places, in the least squares.

    Args:
        mesh: [F,468,2 or 3] frame pixels.

    Returns:
        [F,2,3] float32, frame -> chip of 150 pixels.
    """
    points = mesh[:, list(ANCHORS), :2].double()
    places = torch.tensor(PLACES, dtype=torch.float64, device=mesh.device)
    # Turning and scaling is one complex factor: the plane's similarities are z -> factor z + shift.
    here = torch.view_as_complex(points.contiguous())
    there = torch.view_as_complex(places)
    here_mean, there_mean = here.mean(1), there.mean()
    spread = here - here_mean[:, None]
    factor = (spread.conj() * (there - there_mean)).sum(1) / (spread.abs() ** 2).sum(1)
    shift = there_mean - factor * here_mean
    rows = (
        torch.stack([factor.real, -factor.imag, shift.real], -1),
        torch.stack([factor.imag, factor.real, shift.imag], -1),
    )
    return torch.stack(rows, 1).float()


def chips(frames: FrameBatch, faces: Faces) -> Tensor:
    """Aligned faces [F,3,150,150], RGB 0..1; see embed()."""
    if faces.mesh is None:
        raise ValueError("faces without a mesh cannot be aligned")
    fine = OVERSAMPLING * chip_matrices(faces.mesh)
    fine[:, :, 2] += (OVERSAMPLING - 1) / 2
    return F.avg_pool2d(cut(frames, faces.frame, fine, OVERSAMPLING * CROP), OVERSAMPLING)


@torch.inference_mode()
def embed(network: DlibResNet, frames: FrameBatch, faces: Faces) -> Tensor:
    """Identity vectors of all faces of a batch in one call.

    Args:
        network: The identity network on the frames' device, full precision.
        frames: The frames that the faces were found in; a photo is a batch of one.
        faces: F faces with mesh.

    Returns:
        [F,128], not normalised: compare them by L2 distance, nets.dlib_resnet.SAME_PERSON.

    Raises:
        ValueError: The faces have no mesh.
    """
    pixels = chips(frames, faces)
    if len(faces) == 0:
        return torch.zeros(0, network.embed.out_features, device=pixels.device)
    vectors: Tensor = network(pixels)
    return vectors.float()
