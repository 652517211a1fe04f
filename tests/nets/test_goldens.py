"""Our torch modules against what the original runtimes answered (scripts/build_goldens.py)."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

from facefusion_cli.nets.retinaface import MEAN_BGR, anchors, decode
from facefusion_cli.zoo.shipped import (
    load_dlib_resnet,
    load_face_mesh,
    load_iris,
    load_retinaface,
)

GOLDENS = Path(__file__).parent / "goldens"
BATCHES = [1, 3]


def bgr(name: str) -> Tensor:
    """[1,3,H,W] float32, 0..255."""
    image = cv2.imread(str(GOLDENS / f"{name}.png"))
    assert image is not None
    return torch.from_numpy(image).permute(2, 0, 1)[None].float()


def rgb(name: str) -> Tensor:
    """[1,3,H,W] float32, 0..1."""
    return bgr(name).flip(1) / 255


def golden(name: str) -> dict[str, Tensor]:
    with np.load(GOLDENS / f"{name}.npz") as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays.files}


def in_batch(x: Tensor, size: int) -> Tensor:
    """x as the last of a batch whose other rows are noise: a row must not see its neighbours."""
    noise = torch.rand(size - 1, *x.shape[1:], generator=torch.Generator().manual_seed(size))
    return torch.cat((noise * float(x.max()), x))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ["detect_four", "detect_odd"])
def test_detection_matches_onnxruntime_at_every_anchor(name: str, batch: int) -> None:
    want = golden(name)
    x = in_batch(bgr(name) - torch.tensor(MEAN_BGR).view(3, 1, 1), batch)
    with torch.inference_mode():
        loc, conf, landmarks = (t[-1] for t in load_retinaface()(x))
    priors = anchors(*x.shape[2:])
    assert len(priors) == len(conf) == len(want["conf"])
    assert (conf - want["conf"]).abs().max() < 1e-4
    rows = want["rows"]
    boxes, points = decode(loc[rows], landmarks[rows], priors[rows])
    want_boxes, want_points = decode(want["loc"], want["landmarks"], priors[rows])
    assert (boxes - want_boxes).abs().max() < 0.05
    assert (points - want_points).abs().max() < 0.05


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ["mesh_frontal", "mesh_tilted"])
def test_face_mesh_matches_tflite(name: str, batch: int) -> None:
    want = golden(name)
    with torch.inference_mode():
        points, score = load_face_mesh()(in_batch(rgb(name), batch))
    assert points.shape == (batch, 468, 3)
    assert score.shape == (batch,)
    assert (points[-1] - want["points"]).abs().max() < 0.01
    assert (score[-1:] - want["score"]).abs().max() < 1e-3


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ["iris_left", "iris_right"])
def test_iris_matches_tflite(name: str, batch: int) -> None:
    want = golden(name)
    with torch.inference_mode():
        contour, iris = load_iris()(in_batch(rgb(name), batch))
    assert (contour[-1] - want["contour"]).abs().max() < 0.01
    assert (iris[-1] - want["iris"]).abs().max() < 0.01


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ["embed_frontal", "embed_selfie"])
def test_embedding_matches_dlib(name: str, batch: int) -> None:
    want = golden(name)["embedding"]
    with torch.inference_mode():
        embedding = load_dlib_resnet()(in_batch(rgb(name), batch))
    assert embedding.shape == (batch, 128)
    assert (embedding[-1] - want).abs().max() < 1e-4


def test_the_networks_take_either_memory_order() -> None:
    """The loader lays weights out channels-last; a plain contiguous crop must do as well."""
    x = rgb("mesh_frontal")
    net = load_face_mesh()
    with torch.inference_mode():
        plain, _ = net(x.contiguous())
        last, _ = net(x.contiguous(memory_format=torch.channels_last))
    assert (plain - last).abs().max() < 1e-3
