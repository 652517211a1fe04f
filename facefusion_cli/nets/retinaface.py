"""RetinaFace with a MobileNet 0.25 backbone: boxes and five points of every face in a picture.

Deng, Guo, Zhou, Yu, Kotsia, Zafeiriou 2020, "RetinaFace: Single-shot Multi-level Face Localisation
in the Wild"; context modules from Najibi et al. 2017, "SSH". The weights are those of
biubug6/Pytorch_Retinaface, trained on WIDER FACE.

Input: BGR 0..255 minus MEAN_BGR, not scaled. Batch norm is folded into the convolutions, and
convolutions that read the same tensor are one, so that a picture costs few, large operators.
"""

from __future__ import annotations

from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MEAN_BGR = (104.0, 117.0, 123.0)
"""Subtracted from blue, green and red, 0..255."""
STRIDES = (8, 16, 32)
SIZES = ((16, 32), (64, 128), (256, 512))
"""Sides in pixels of the two square anchors a cell, one pair a stride."""
CENTRE_VARIANCE = 0.1
SIZE_VARIANCE = 0.2
ANCHORS_PER_CELL = 2


def _leaky(x: Tensor) -> Tensor:
    return F.leaky_relu_(x, 0.1)


class ConvLeaky(nn.Conv2d):
    """Convolution that keeps the size (or halves it, rounding up), then LeakyReLU 0.1."""

    def __init__(
        self, inputs: int, outputs: int, size: int, *, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(inputs, outputs, size, stride, padding=size // 2, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        """[N,inputs,H,W] to [N,outputs,ceil(H/stride),ceil(W/stride)]."""
        return _leaky(super().forward(x))


class SeparableBlock(nn.Sequential):
    """MobileNet's unit: depthwise 3x3, then pointwise, each with LeakyReLU."""

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1) -> None:
        super().__init__(
            ConvLeaky(inputs, inputs, 3, stride=stride, groups=inputs),
            ConvLeaky(inputs, outputs, 1),
        )


class ContextModule(nn.Module):
    """SSH's context: the same cell seen through 3x3, 5x5 and 7x7 windows made of 3x3 steps."""

    def __init__(self) -> None:
        super().__init__()
        self.view3_and_step = nn.Conv2d(64, 32 + 16, 3, padding=1)
        self.view5_and_step = nn.Conv2d(16, 16 + 16, 3, padding=1)
        self.view7 = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """[N,64,H,W] to the same shape."""
        view3, step = self.view3_and_step(x).split((32, 16), dim=1)
        view5, step = self.view5_and_step(_leaky(step)).split((16, 16), dim=1)
        view7 = self.view7(_leaky(step))
        return F.relu_(torch.cat((view3, view5, view7), dim=1))


class RetinaFace(nn.Module):
    """The network. Weights come from models/retinaface.safetensors."""

    def __init__(self) -> None:
        super().__init__()
        self.stage1 = nn.Sequential(  # to stride 8
            ConvLeaky(3, 8, 3, stride=2),
            SeparableBlock(8, 16),
            SeparableBlock(16, 32, stride=2),
            SeparableBlock(32, 32),
            SeparableBlock(32, 64, stride=2),
            SeparableBlock(64, 64),
        )
        self.stage2 = nn.Sequential(  # to stride 16
            SeparableBlock(64, 128, stride=2), *(SeparableBlock(128, 128) for _ in range(5))
        )
        self.stage3 = nn.Sequential(  # to stride 32
            SeparableBlock(128, 256, stride=2), SeparableBlock(256, 256)
        )
        self.lateral = nn.ModuleList(ConvLeaky(c, 64, 1) for c in (64, 128, 256))
        self.merge = nn.ModuleList(ConvLeaky(64, 64, 3) for _ in range(2))
        self.context = nn.ModuleList(ContextModule() for _ in STRIDES)
        # Per anchor: 2 class logits, 4 box offsets, 10 point offsets.
        self.head = nn.ModuleList(nn.Conv2d(64, ANCHORS_PER_CELL * 16, 1) for _ in STRIDES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Raw predictions at every anchor, in the order of anchors().

        Args:
            x: [N,3,H,W] BGR 0..255 minus MEAN_BGR, any size of at least 32.

        Returns:
            loc: [N,A,4] offsets of the box (see decode).
            conf: [N,A] probability of a face, 0..1.
            landmarks: [N,A,10] offsets of five points.
        """
        c1 = self.stage1(x)
        c2 = self.stage2(c1)
        c3 = self.stage3(c2)

        p3 = self.lateral[2](c3)
        p2 = self.merge[1](_add_upsampled(self.lateral[1](c2), p3))
        p1 = self.merge[0](_add_upsampled(self.lateral[0](c1), p2))

        raw = [
            head(context(p)).permute(0, 2, 3, 1).flatten(1)
            for p, context, head in zip((p1, p2, p3), self.context, self.head, strict=True)
        ]
        cells = torch.cat(raw, dim=1).reshape(len(x), -1, ANCHORS_PER_CELL * 16)
        logits, loc, landmarks = (
            part.reshape(len(x), -1, part.shape[-1] // ANCHORS_PER_CELL)
            for part in cells.split((4, 8, 20), dim=-1)
        )
        return loc, torch.sigmoid(logits[..., 1] - logits[..., 0]), landmarks


def _add_upsampled(fine: Tensor, coarse: Tensor) -> Tensor:
    return fine + F.interpolate(coarse, size=fine.shape[-2:], mode="nearest")


def anchors(height: int, width: int, device: torch.device | str = "cpu") -> Tensor:
    """The anchors of an input size: [A,4] centre x, y, width, height in input pixels.

    Cells run row by row within a stride, strides from fine to coarse, the smaller anchor of a cell
    first; centres lie at (i + 0.5) * stride.
    """
    rows = []
    for stride, sizes in zip(STRIDES, SIZES, strict=True):
        ys = (torch.arange(ceil(height / stride)) + 0.5) * stride
        xs = (torch.arange(ceil(width / stride)) + 0.5) * stride
        centres = torch.cartesian_prod(ys, xs).flip(1)
        for_size = [torch.cat((centres, torch.full_like(centres, s)), dim=1) for s in sizes]
        rows.append(torch.stack(for_size, dim=1).reshape(-1, 4))
    return torch.cat(rows).to(device)


def decode(loc: Tensor, landmarks: Tensor, priors: Tensor) -> tuple[Tensor, Tensor]:
    """Boxes and points from offsets, in input pixels.

    Works on whole predictions or on picked rows: the leading shape is free, as long as priors
    broadcasts to it. Decode only what passed the threshold.

    Args:
        loc: [...,4] as forward() gives.
        landmarks: [...,10] as forward() gives.
        priors: [...,4] the anchors of those rows.

    Returns:
        boxes: [...,4] x0, y0, x1, y1.
        points: [...,5,2] left eye, right eye, nose, left and right mouth corner; left is the
            image's left.

        Measured by mirroring pictures, boxes count from the pixel's edge (pixel 0 spans 0..1) and
        points from its centre, both within half a pixel.
    """
    centre, size = priors[..., :2], priors[..., 2:]
    middle = centre + loc[..., :2] * CENTRE_VARIANCE * size
    half = size * torch.exp(loc[..., 2:] * SIZE_VARIANCE) / 2
    boxes = torch.cat((middle - half, middle + half), dim=-1)
    offsets = landmarks.unflatten(-1, (5, 2)) * CENTRE_VARIANCE
    return boxes, centre[..., None, :] + offsets * size[..., None, :]
