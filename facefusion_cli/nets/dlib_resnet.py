"""dlib's face recognition ResNet: a 128-dimensional identity vector from an aligned face.

He, Zhang, Ren, Sun 2016, "Deep Residual Learning for Image Recognition", reduced to 29 convolutions
and trained with a metric loss by Davis King (dlib 19.3, dlib_face_recognition_resnet_model_v1).
Two photos show the same person when the L2 distance of their vectors is below SAME_PERSON. It is
not an ArcFace network: its vectors choose, re-identify and check, they drive no generator.

Input: an aligned face of CROP x CROP pixels, RGB 0..1, the eyes' midpoint at EYES (dlib's
five-point chip with padding 0.25). Normalisation is part of forward(); the affine layers are folded
into the convolutions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CROP = 150
"""Side of the input in pixels."""
EYES = (74.0, 47.1)
"""Where the midpoint of the eyes lies in the crop, x, y."""
SAME_PERSON = 0.6
"""L2 distance below which two vectors belong to one person."""
MEAN_RGB = (122.782, 117.001, 104.298)
"""Subtracted from red, green and blue, 0..255; the result is divided by 256."""


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a skip; dlib pads neither a halving convolution nor its pool."""

    def __init__(self, inputs: int, outputs: int, *, halve: bool = False) -> None:
        super().__init__()
        stride, padding = (2, 0) if halve else (1, 1)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.halve = halve

    def forward(self, x: Tensor) -> Tensor:
        """[N,inputs,H,W] to [N,outputs,...], halved where the block halves."""
        y = self.conv2(F.relu_(self.conv1(x)))
        if self.halve:
            x = F.avg_pool2d(x, 2)
        # dlib adds tensors of unequal shapes as if zeros followed the smaller one's channels, rows
        # and columns.
        return F.relu_(_grow(y, x) + _grow(x, y))


def _grow(small: Tensor, large: Tensor) -> Tensor:
    grow = [max(0, large.shape[d] - small.shape[d]) for d in (1, 2, 3)]
    if not any(grow):
        return small
    return F.pad(small, (0, grow[2], 0, grow[1], 0, grow[0]))


class DlibResNet(nn.Module):
    """The network. Weights come from models/dlib_resnet.safetensors."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 7, stride=2)
        self.blocks = nn.Sequential(  # side after it
            *(ResidualBlock(32, 32) for _ in range(3)),  # 35
            ResidualBlock(32, 64, halve=True),  # 17
            *(ResidualBlock(64, 64) for _ in range(3)),
            ResidualBlock(64, 128, halve=True),  # 8
            *(ResidualBlock(128, 128) for _ in range(2)),
            ResidualBlock(128, 256, halve=True),  # 4
            *(ResidualBlock(256, 256) for _ in range(2)),
            ResidualBlock(256, 256, halve=True),  # 2
        )
        self.embed = nn.Linear(256, 128, bias=False)
        # On the CPU even while the module is made on meta, where constants would be lost.
        mean = torch.tensor(MEAN_RGB, device="cpu").view(3, 1, 1) / 256
        self.register_buffer("mean", mean, persistent=False)
        self.mean: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Identity vectors, not normalised; compare them by L2 distance.

        Args:
            x: [N,3,150,150] RGB 0..1.

        Returns:
            [N,128].
        """
        x = x * (255 / 256) - self.mean
        x = F.max_pool2d(F.relu_(self.stem(x)), 3, stride=2)
        embedding: Tensor = self.embed(self.blocks(x).mean(dim=(2, 3)))
        return embedding
