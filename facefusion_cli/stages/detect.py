"""Finding faces: RetinaFace over a batch of frames, letterboxed to one size a clip."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.ops import batched_nms

from facefusion_cli.config import DetectConfig
from facefusion_cli.device import Device
from facefusion_cli.nets import retinaface
from facefusion_cli.planes import TINY_FRAME, letterbox
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
    with device.autocast(), device.fixed_shapes():
        loc, conf, points = network(retinaface.preprocess(rgb))
    boxes, landmarks = retinaface.decode(loc.float(), points.float(), height, width)
    return _keep(boxes, conf.float(), landmarks, index, scale, config, frames)


def _keep(
    boxes: Tensor,
    conf: Tensor,
    landmarks: Tensor,
    index: Tensor,
    scale: float,
    config: DetectConfig,
    frames: FrameBatch,
) -> Faces:
    """Threshold, size, suppression and the way back to frame pixels."""
    # Detector pixel centres to frame pixel centres: the letterbox scaled about the corner.
    boxes = (boxes + 0.5) / scale - 0.5
    landmarks = (landmarks + 0.5) / scale - 0.5
    side = torch.minimum(boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1])
    centre_x = (boxes[..., 0] + boxes[..., 2]) / 2
    centre_y = (boxes[..., 1] + boxes[..., 3]) / 2
    inside = (
        (centre_x > 0) & (centre_x < frames.width) & (centre_y > 0) & (centre_y < frames.height)
    )
    which, anchor = torch.nonzero(
        (conf >= config.threshold) & (side >= config.min_face) & inside, as_tuple=True
    )
    box, score, points = boxes[which, anchor], conf[which, anchor], landmarks[which, anchor]
    kept = batched_nms(box, score, which, NMS_IOU)
    # By frame, best score first within a frame (batched_nms sorts by score).
    kept = kept[torch.argsort(which[kept], stable=True)]
    return Faces(frame=index[which[kept]], box=box[kept], score=score[kept], points5=points[kept])
