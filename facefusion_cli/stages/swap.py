"""Target faces through the generator, a bucket of crop sizes at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from facefusion_cli.generators.base import Generator
from facefusion_cli.stages.crop import cut
from facefusion_cli.types import FaceCrops, Faces, FrameBatch, Identity

BUCKETS = (128, 256, 384, 512, 768)
"""Crop sizes. Few, so that graphs and cuDNN's choices are reused."""
SLACK = 1.1
"""How far a face may exceed a bucket before the next larger one is taken."""
YAW_FADE = 10.0
"""Degrees over which the swap fades out before --max-yaw is reached."""


def crop_faces(frames: FrameBatch, faces: Faces, generator: Generator) -> Iterator[FaceCrops]:
    """Aligned crops of the faces that have a source (identity >= 0), one bucket at a time."""
    assert faces.identity is not None
    chosen = faces[faces.identity >= 0]
    if len(chosen) == 0:
        return
    sizes = torch.tensor(BUCKETS, device=chosen.box.device)
    bucket = torch.bucketize(generator.natural_size(chosen) / SLACK, sizes).clamp_max(
        len(BUCKETS) - 1
    )
    for b in bucket.unique().tolist():
        group = chosen[bucket == b]
        matrices = generator.crop_matrices(group, BUCKETS[b])
        yield FaceCrops(cut(frames, group.frame, matrices, BUCKETS[b]), matrices, group)


def source_yaw(identity: Identity) -> float:
    """Degrees that the person is turned by in the first photo."""
    pose = identity.photos[0].face.pose
    assert pose is not None
    return float(pose[0, 0])


def yaw_fade(faces: Faces, source_yaw: Sequence[float], max_yaw: float) -> Tensor:
    """How much of the swap shows, 0..1, by how differently target and source are turned.

    Args:
        faces: F faces with pose and identity.
        source_yaw: Degrees, one an identity.
        max_yaw: Degrees of difference from which the target stays as it is.

    Returns:
        [F].
    """
    assert faces.pose is not None
    assert faces.identity is not None
    source = torch.tensor(list(source_yaw), device=faces.pose.device)[faces.identity]
    turned = (faces.pose[:, 0] - source).abs()
    return ((max_yaw - turned) / YAW_FADE).clamp(0, 1)
