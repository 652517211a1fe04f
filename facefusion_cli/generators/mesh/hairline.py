"""How high the bare forehead reaches: one height a column, the same rule for both faces.

A mask of skin pixels leaves islands of hair between strands; a height for each column cannot.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from facefusion_cli.generators.mesh.model import HAIR_COLUMNS, HAIR_ROWS, FaceModel
from facefusion_cli.generators.mesh.plane import sample_small
from facefusion_cli.generators.mesh.skin import Skin

HIGHEST = 1.8
"""Highest t a mask may reach."""
_DARK = 3.0
_LOWEST_BAD = 0.3
_MARGIN = 0.2
_REACH = 3
_SIGMA = 2.5


def measure_hairline(lab: Tensor, mesh: Tensor, skin: Skin, model: FaceModel) -> Tensor:
    """Height of the bare forehead.

    Args:
        lab: [F,3,N,N] small grid.
        mesh: [F,468,2] small pixels.
        skin: Of these faces.
        model: The constants.

    Returns:
        [F,41] for columns from the image's left to its right: 0 at the brows, 1 at the middle row,
        2 at the top row of the mesh.
    """
    points = model.forehead @ mesh
    grid = sample_small(lab, points).view(len(lab), 3, HAIR_COLUMNS, HAIR_ROWS)
    x = points[..., 0].view(-1, 1, HAIR_COLUMNS, HAIR_ROWS)
    typical = skin.expected(x)
    paler = torch.hypot(grid[:, 1:2], grid[:, 2:]) < torch.hypot(typical[:, 1:2], typical[:, 2:])
    shine = (grid[:, :1] > typical[:, :1]) & paler
    bad = ((skin.likelihood(grid, x, _DARK) < 0.5) & ~shine).float()
    bad = F.avg_pool2d(F.pad(bad, (1, 1, 1, 1), mode="replicate"), 3, 1)[:, 0] > 0.5
    t = torch.linspace(0, 2, HAIR_ROWS, device=lab.device)
    first = torch.where(bad & (t >= _LOWEST_BAD), t, 2 + _MARGIN).amin(-1)
    height = (first - _MARGIN).clamp(0, 2)
    window = 2 * _REACH + 1
    padded = F.pad(height[:, None], (_REACH, _REACH), mode="replicate")
    lowest = -F.max_pool1d(-padded, window, 1)
    taps = torch.arange(-8, 9, device=lab.device, dtype=lab.dtype)
    kernel = torch.exp(-0.5 * (taps / _SIGMA) ** 2)
    smooth = F.conv1d(F.pad(lowest, (8, 8), mode="replicate"), (kernel / kernel.sum())[None, None])
    return smooth[:, 0]


def forehead_row(mesh: Tensor, height: Tensor, model: FaceModel) -> Tensor:
    """The points of the forehead at the given heights.

    Args:
        mesh: [F,468,2].
        height: [F,41].
        model: The constants.

    Returns:
        [F,41,2], from the image's left to its right.
    """
    grid = (model.forehead @ mesh).view(len(mesh), HAIR_COLUMNS, HAIR_ROWS, 2)
    place = height.clamp(0, HIGHEST) * (HAIR_ROWS - 1) / 2
    low = place.floor().clamp_max(HAIR_ROWS - 2)
    index = low.long()[:, :, None, None].expand(-1, -1, 1, 2)
    below, above = grid.gather(2, index)[:, :, 0], grid.gather(2, index + 1)[:, :, 0]
    return torch.lerp(below, above, (place - low)[..., None])
