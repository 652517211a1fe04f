"""Finding faces: RetinaFace over a batch of frames, letterboxed to one size a clip."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torchvision.ops import batched_nms

from facefusion_cli.config import DetectConfig
from facefusion_cli.device import Device
from facefusion_cli.letterbox import TINY_FRAME, letterbox
from facefusion_cli.nets import retinaface
from facefusion_cli.types import Faces, FrameBatch

NMS_IOU = 0.4
STRIDE = 32
"""The coarsest anchor stride: the network's input is a multiple of it."""


def detector_size(width: int, height: int, longest: int) -> tuple[int, int]:
    """Height and width of the detector's input for a frame: longest side as given, aspect kept.

    Frames smaller than that are not enlarged, but tiny ones doubled, as letterbox() does.
    """
    limit = 2.0 if max(width, height) < TINY_FRAME else 1.0
    scale = min(limit, longest / max(width, height))
    return tuple(  # type: ignore[return-value]
        max(STRIDE, -(-round(side * scale) // STRIDE) * STRIDE) for side in (height, width)
    )


def no_faces(device: torch.device) -> Faces:
    """A Faces of none."""
    return Faces(
        frame=torch.zeros(0, dtype=torch.int64, device=device),
        box=torch.zeros(0, 4, device=device),
        score=torch.zeros(0, device=device),
        points5=torch.zeros(0, 5, 2, device=device),
    )


@torch.inference_mode()
def detect(
    frames: FrameBatch,
    wanted: Sequence[int],
    network: retinaface.RetinaFace,
    config: DetectConfig,
    device: Device,
) -> Faces:
    """Faces in some frames of a batch, best first within a frame.

    Args:
        frames: The batch.
        wanted: Indices in the batch of the frames to look at.
        network: RetinaFace on the frames' device.
        config: Size, threshold and smallest face.
        device: Decides on mixed precision.

    Returns:
        Faces with frame, box, score and points5, in frame pixels.
    """
    if not wanted:
        return no_faces(frames.planes[0].device)
    index = torch.tensor(wanted, device=frames.planes[0].device)
    y, u, v = (plane[index] for plane in frames.planes)
    looked = FrameBatch(
        (y, u, v), frames.color, frames.layout, tuple(frames.pts[i] for i in wanted), 0
    )
    height, width = detector_size(frames.width, frames.height, config.size)
    rgb, scale = letterbox(looked, height, width)
    bgr = rgb.flip(1) * 255 - torch.tensor(retinaface.MEAN_BGR, device=rgb.device).view(1, 3, 1, 1)
    # No cuDNN benchmark: searching took 7 s on an H200, for a network of 1 ms a frame.
    with device.autocast():
        loc, conf, points = network(bgr)
    which, anchor = torch.nonzero(conf >= config.threshold, as_tuple=True)
    priors = _anchors(height, width, rgb.device)[anchor]
    box, landmarks = retinaface.decode(
        loc[which, anchor].float(), points[which, anchor].float(), priors
    )
    # The network counts from the corner of the letterbox, which scaled about the frame's.
    box, landmarks = box / scale - 0.5, landmarks / scale - 0.5
    score = conf[which, anchor].float()
    large = (box[:, 2:] - box[:, :2]).amin(-1) >= config.min_face
    centre = (box[:, :2] + box[:, 2:]) / 2
    edge = torch.tensor([frames.width, frames.height], device=box.device)
    inside = ((centre > 0) & (centre < edge)).all(-1)
    box, landmarks, score, which = (t[large & inside] for t in (box, landmarks, score, which))
    kept = batched_nms(box, score, which, NMS_IOU)
    # By frame, best score first within a frame (batched_nms sorts by score).
    kept = kept[torch.argsort(which[kept], stable=True)]
    return Faces(
        frame=index[which[kept]], box=box[kept], score=score[kept], points5=landmarks[kept]
    )


@lru_cache(maxsize=8)
def _anchors(height: int, width: int, device: torch.device) -> Tensor:
    return retinaface.anchors(height, width, device)
