"""Padding and skip paths as TensorFlow defines them."""

from __future__ import annotations

import torch

from facefusion_cli.nets.blaze import SameConv2d, add_shortcut


def test_stride_two_pads_below_and_to_the_right() -> None:
    """An even side at stride 2: output 0 sees rows 0 to 2, the last one sees a row of padding."""
    conv = SameConv2d(1, 1, stride=2)
    with torch.no_grad():
        conv.weight.zero_()
        conv.weight[0, 0, 0, 0] = 1  # the window's first cell
        conv.bias.zero_()  # type: ignore[union-attr]
        x = torch.arange(16.0).view(1, 1, 4, 4)
        assert conv(x).flatten().tolist() == [0, 2, 8, 10]
        conv.weight.zero_()
        conv.weight[0, 0, 2, 2] = 1  # the window's last cell
        assert conv(x).flatten().tolist() == [10, 0, 0, 0]


def test_stride_one_keeps_the_size() -> None:
    assert SameConv2d(2, 3)(torch.zeros(1, 2, 5, 7)).shape == (1, 3, 5, 7)


def test_the_skip_path_pools_and_widens() -> None:
    y = torch.ones(1, 3, 1, 1)
    x = torch.tensor([[1.0, 5.0], [2.0, 3.0]]).view(1, 1, 2, 2)
    assert add_shortcut(y, x, 2).flatten().tolist() == [6, 1, 1]
