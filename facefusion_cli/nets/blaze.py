"""Building blocks of MediaPipe's mobile landmark networks (face mesh, iris).

Source: Bazarevsky et al. 2019, "BlazeFace", and Kartynnik et al. 2019, "Real-time Facial Surface
Geometry from Monocular Video on Mobile GPUs"; layer shapes as in the published TFLite graphs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PReLU(nn.Module):
    """max(x, 0) + slope * min(x, 0), one slope a channel; slopes may be negative or above 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.full((channels,), 0.25))

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x [N,C,H,W]."""
        return F.prelu(x, self.slope)


class SameConv2d(nn.Conv2d):
    """Convolution with TensorFlow's SAME padding for even inputs at stride 2.

    There the one row and column of padding go below and to the right; torch's symmetric padding
    would shift the result by half an output pixel. At stride 1 both are the same.
    """

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, 3, stride, padding=1 if stride == 1 else 0, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        """[N,inputs,H,W] to [N,outputs,H/stride,W/stride]."""
        if self.stride[0] == 2:
            x = F.pad(x, (0, 1, 0, 1))
        return super().forward(x)


def add_shortcut(y: Tensor, x: Tensor, stride: int) -> Tensor:
    """Adds the skip path to y, in place: x, 2x2 max-pooled where the block halves.

    Where the block widens, the channels that x lacks get nothing, as if x had zeros there.
    """
    if stride == 2:
        x = F.max_pool2d(x, 2)
    y[:, : x.shape[1]] += x
    return y


class BlazeBlock(nn.Module):
    """Depthwise 3x3, pointwise, skip, PReLU."""

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1) -> None:
        super().__init__()
        self.depthwise = SameConv2d(inputs, inputs, stride=stride, groups=inputs)
        self.pointwise = nn.Conv2d(inputs, outputs, 1)
        self.act = PReLU(outputs)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """[N,inputs,H,W] to [N,outputs,H/stride,W/stride]."""
        y = self.pointwise(self.depthwise(x))
        activated: Tensor = self.act(add_shortcut(y, x, self.stride))
        return activated


class Bottleneck(nn.Module):
    """Pointwise (or, halving, 2x2) to fewer channels, PReLU, depthwise, pointwise, skip, PReLU."""

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1) -> None:
        super().__init__()
        middle = inputs // 2 if stride == 1 else 64
        self.squeeze = nn.Conv2d(inputs, middle, stride, stride)
        self.squeeze_act = PReLU(middle)
        self.depthwise = SameConv2d(middle, middle, groups=middle)
        self.expand = nn.Conv2d(middle, outputs, 1)
        self.act = PReLU(outputs)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """[N,inputs,H,W] to [N,outputs,H/stride,W/stride]."""
        y = self.squeeze_act(self.squeeze(x))
        y = self.expand(self.depthwise(y))
        activated: Tensor = self.act(add_shortcut(y, x, self.stride))
        return activated
