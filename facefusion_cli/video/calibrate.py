"""How far OpenCV's picture of a clip is from the truth, learned from the clip's first frame.

swscale, inside OpenCV, converts 4:2:0 and 4:2:2 with a quick routine that cuts each product's
fraction off: half a level for luma (limited range only) and for each chroma term. Green has two of
those, so a picture comes out about 1.2 levels darker. Which routine runs depends on size, format
and processor, so the loss is measured rather than assumed, and added back where planes are made.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from facefusion_cli.letterbox import letterbox
from facefusion_cli.planes import KR_KB, planes_from_bgr
from facefusion_cli.types import BgrBatch, ColorSpec, FrameBatch

_SHRINK, _LARGEST = 8, 64
"""Pictures are compared this many times smaller, so neither noise nor how chroma is interpolated
matters, and no larger than this."""
_ENOUGH = 256
"""Samples whose mean error is known to a few hundredths of a level."""
_ROWS = 128
"""Rows of chroma that are looked at, about."""
_UNCLIPPED = (3, 252)
_LOST = 0.5
"""Levels that cutting a fraction off costs on average."""
_TRUNCATED = 0.3
"""Levels of luma from which on a bias is truncation."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What one frame told."""

    difference: float
    """Mean difference of the pictures, in levels of RGB (0..255), of the worst channel."""
    bias: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """As in BgrBatch."""
    gray_bias: float = 0.0
    """As in BgrBatch."""


def calibrate(exact: FrameBatch, bgr: BgrBatch) -> Calibration:
    """Compares a frame as OpenCV gives it with the same frame's planes.

    Args:
        exact: One frame, 8 bits, on the CPU, as PyAV decodes it.
        bgr: The same frame from OpenCV, upright, of the same size.
    """
    planes = planes_from_bgr(bgr)
    height, width = (max(1, min(_LARGEST, side // _SHRINK)) for side in (exact.height, exact.width))
    small, _ = letterbox(exact, height, width)
    other, _ = letterbox(planes, height, width)
    difference = float((small - other).abs().mean((0, 2, 3)).max()) * 255
    if exact.color.matrix == "rgb":
        return Calibration(difference)
    bias = _measured(exact, planes, bgr.bgr) or _expected(bgr)
    lost_by_luma = _LOST * _scale(bgr.color) if bgr.color.range == "limited" else 0.0
    return Calibration(difference, bias, lost_by_luma if bias[0] > _TRUNCATED else 0.0)


def _measured(
    exact: FrameBatch, planes: FrameBatch, bgr: Tensor
) -> tuple[float, float, float] | None:
    """Mean error of each plane where no channel is clipped and a pixel is coloured.

    Of large frames some rows do.
    """
    low, high = _UNCLIPPED
    sx, sy = exact.layout.subsampling
    whole = exact.height // sy
    cells_down = torch.arange(0, whole, max(1, whole // _ROWS))
    rows = (cells_down[:, None] * sy + torch.arange(sy)).flatten()
    bgr = bgr[:, rows]
    coloured = bgr.amax(-1) > bgr.amin(-1)
    usable = ((bgr >= low) & (bgr <= high)).all(-1) & coloured
    padded = F.pad(usable[:, None].float(), (0, -usable.shape[2] % sx))
    cells = F.avg_pool2d(padded, (sy, sx))[:, 0] == 1
    if int(cells.sum()) < _ENOUGH:
        return None
    picks = (rows, usable), (cells_down, cells), (cells_down, cells)
    means = [
        float((a[:, r].int() - b[:, r].int())[mask].float().mean())
        for a, b, (r, mask) in zip(exact.planes, planes.planes, picks, strict=True)
    ]
    return means[0], means[1], means[2]


def _expected(bgr: BgrBatch) -> tuple[float, float, float]:
    """The quick routine's bias, for a frame that shows none of it: a black one, say.

    Odd widths and 4:4:4 go other ways, which round.
    """
    if bgr.bgr.shape[2] % 2 or bgr.layout.subsampling == (1, 1):
        return 0.0, 0.0, 0.0
    kr, kb = KR_KB[bgr.color.matrix]
    luma = _LOST if bgr.color.range == "limited" else 0.0
    return (luma + _LOST * (1 + (1 - kr - kb))) * _scale(bgr.color), 0.0, 0.0


def _scale(color: ColorSpec) -> float:
    """Luma codes a level of RGB."""
    return 219 / 255 if color.range == "limited" else 1.0
