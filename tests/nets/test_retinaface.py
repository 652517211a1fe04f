"""Anchors and decoding: small cases worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from facefusion_cli.nets.retinaface import RetinaFace, anchors, decode


def test_anchors_run_by_stride_then_row_then_column_then_size() -> None:
    a = anchors(32, 64)
    # Strides 8, 16, 32: 4x8, 2x4 and 1x2 cells of two anchors.
    assert a.shape == (2 * (32 + 8 + 2), 4)
    assert a[:4].tolist() == [[4, 4, 16, 16], [4, 4, 32, 32], [12, 4, 16, 16], [12, 4, 32, 32]]
    assert a[2 * 8].tolist() == [4, 12, 16, 16]
    assert a[2 * 32].tolist() == [8, 8, 64, 64]
    assert a[-1].tolist() == [48, 16, 512, 512]


@pytest.mark.parametrize("size", [(32, 32), (64, 96), (33, 50), (170, 101)])
def test_anchors_are_as_many_as_predictions(size: tuple[int, int]) -> None:
    with torch.inference_mode():
        loc, conf, landmarks = RetinaFace().eval()(torch.zeros(2, 3, *size))
    count = len(anchors(*size))
    assert loc.shape == (2, count, 4)
    assert conf.shape == (2, count)
    assert landmarks.shape == (2, count, 10)


def test_decode_moves_and_scales_the_anchor() -> None:
    prior = torch.tensor([[100.0, 200.0, 64.0, 64.0]])
    loc = torch.tensor([[1.0, -2.0, math.log(2) / 0.2, 0.0]])
    landmarks = torch.tensor([[0.0, 0.0, 10.0, 0.0, 0.0, 10.0, -10.0, 0.0, 0.0, -10.0]])
    boxes, points = decode(loc, landmarks, prior)
    # Centre moves by 0.1 x 64 x (1, -2); width doubles, height stays.
    centre_x, centre_y = 100 + 6.4, 200 - 12.8
    expected = [centre_x - 64, centre_y - 32, centre_x + 64, centre_y + 32]
    assert boxes[0].tolist() == pytest.approx(expected, abs=1e-3)
    places = [[100, 200], [164, 200], [100, 264], [36, 200], [100, 136]]
    assert points[0].tolist() == [pytest.approx(p, abs=1e-3) for p in places]


def test_decode_takes_whole_predictions_and_picked_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    priors = anchors(64, 64)
    loc = torch.rand(2, len(priors), 4, generator=generator)
    landmarks = torch.rand(2, len(priors), 10, generator=generator)
    boxes, points = decode(loc, landmarks, priors)
    rows = torch.tensor([3, 70, 11])
    some_boxes, some_points = decode(loc[1, rows], landmarks[1, rows], priors[rows])
    assert torch.equal(boxes[1, rows], some_boxes)
    assert torch.equal(points[1, rows], some_points)
