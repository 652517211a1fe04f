"""Identity vectors: the alignment's documented layout, and who is who among AI-generated people."""

from __future__ import annotations

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

from facefusion_cli.config import load_config
from facefusion_cli.nets.dlib_resnet import CROP, SAME_PERSON, DlibResNet
from facefusion_cli.pipeline import PHOTO_COLOR, PHOTO_LAYOUT, Engine
from facefusion_cli.planes import frames_from_rgb
from facefusion_cli.report import Report
from facefusion_cli.stages.crop import invert, transform
from facefusion_cli.stages.detect import no_faces
from facefusion_cli.stages.embed import ANCHORS, PLACES, chip_matrices, chips, embed
from facefusion_cli.types import Faces, FrameBatch
from facefusion_cli.zoo.shipped import load_dlib_resnet
from tests.people import Rgb, expression, portrait

ARCFACE = ((38.2946, 51.6963), (73.5318, 51.5014))
"""The eyes of ArcFace's 112 px template."""


@pytest.fixture(scope="module")
def network() -> DlibResNet:
    return load_dlib_resnet()


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(load_config(flags={"runtime": {"device": "cpu"}}), Report())


def batch(*pictures: Rgb) -> FrameBatch:
    rgb = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255
    return frames_from_rgb(rgb, PHOTO_COLOR, PHOTO_LAYOUT)


def with_mesh(mesh: Tensor) -> Faces:
    count = len(mesh)
    return Faces(
        frame=torch.zeros(count, dtype=torch.int64),
        box=torch.zeros(count, 4),
        score=torch.ones(count),
        points5=torch.zeros(count, 5, 2),
        mesh=mesh,
    )


def mesh_of(anchors: Tensor) -> Tensor:
    """A mesh [F,468,3] that has nothing but the anchors [F,5,2]."""
    mesh = torch.zeros(len(anchors), 468, 3)
    mesh[:, list(ANCHORS), :2] = anchors
    return mesh


def test_a_turned_and_scaled_face_lands_on_the_chips_places() -> None:
    places = torch.tensor(PLACES).unsqueeze(0)
    angle, scale = math.radians(31), 2.7
    cos, sin = math.cos(angle) * scale, math.sin(angle) * scale
    to_frame = torch.tensor([[[cos, -sin, 420.0], [sin, cos, -35.0]]])
    mesh = mesh_of(transform(places, to_frame))
    matrices = chip_matrices(mesh)
    torch.testing.assert_close(invert(matrices), to_frame, atol=1e-3, rtol=1e-4)
    landed = transform(mesh[:, list(ANCHORS), :2], matrices)
    torch.testing.assert_close(landed, places, atol=1e-3, rtol=0)


def test_the_places_are_about_arcfaces_template_enlarged() -> None:
    places = np.asarray(PLACES)
    eyes = np.stack([places[:2].mean(0), places[2:4].mean(0)])
    assert np.allclose(eyes.mean(0), (73.5, 46.6), atol=0.05)
    span, arcface = np.diff(eyes[:, 0]), np.diff(np.asarray(ARCFACE)[:, 0])
    assert np.allclose(span, 1.494 * arcface, rtol=0.002)


def test_a_face_that_does_not_fit_gets_the_least_squares_similarity() -> None:
    generator = torch.Generator().manual_seed(5)
    anchors = 3 * torch.tensor(PLACES) + 9 * torch.randn(4, 5, 2, generator=generator)
    found = chip_matrices(mesh_of(anchors)).double().numpy()
    for points, matrix in zip(anchors.double().numpy(), found, strict=True):
        # x' = a x - b y + c, y' = b x + a y + d in the unknowns a, b, c, d.
        x, y = points.T
        one, zero = np.ones(5), np.zeros(5)
        system = np.vstack([np.stack([x, -y, one, zero], 1), np.stack([y, x, zero, one], 1)])
        a, b, c, d = np.linalg.lstsq(system, np.asarray(PLACES).T.reshape(-1), rcond=None)[0]
        assert np.allclose(matrix, [[a, -b, c], [b, a, d]], atol=2e-3)


def test_chips_show_the_frame_where_the_matrix_says_and_do_not_alias() -> None:
    size, scale, shift = 256, 1.6, 9.0
    y, x = np.mgrid[0:size, 0:size]
    ramps = np.stack([x, y, 127 + 100 * (-1) ** (x + y)], -1).astype(np.uint8)
    mesh = mesh_of(torch.tensor(PLACES).unsqueeze(0) * scale + shift)
    shown = chips(batch(ramps), with_mesh(mesh))[0] * 255
    at = torch.arange(CROP) * scale + shift
    assert (shown[0, 40] - at).abs().max() < 0.05
    assert (shown[1, :, 40] - at).abs().max() < 0.05
    # A chequerboard of single pixels, shrunk: plain grey within a tenth, not stripes.
    assert shown[2].std() < 10
    assert abs(shown[2].mean() - 127) < 1


def test_the_same_person_is_near_and_others_are_far(engine: Engine, network: DlibResNet) -> None:
    people = ("P002", "P006", "P007", "P009")
    vectors = {}
    for name in ("neutral", "happy"):
        found = []
        for person in people:
            frames = batch(expression(person, name))
            faces = engine.detect(frames, [0])
            assert len(faces) == 1
            found.append(embed(network, frames, faces))
        vectors[name] = torch.cat(found)
    distance = torch.cdist(vectors["neutral"], vectors["happy"])
    same = distance.diagonal()
    assert same.max() < 0.7 * SAME_PERSON
    assert (distance.argmin(1) == torch.arange(len(people))).all()
    others = distance[~torch.eye(len(people), dtype=torch.bool)]
    assert others.min() > same.max() + 0.1


def test_size_and_turn_do_not_change_who_it_is(engine: Engine, network: DlibResNet) -> None:
    upright = portrait("P006", 640)
    turn = cv2.getRotationMatrix2D((320, 320), 25, 0.55)
    turned = cv2.warpAffine(upright, turn, (640, 640), borderMode=cv2.BORDER_REPLICATE)
    frames = batch(upright, turned.astype(np.uint8))
    faces = engine.detect(frames, [0, 1])
    assert faces.frame.tolist() == [0, 1]
    both = embed(network, frames, faces)
    assert torch.linalg.vector_norm(both[0] - both[1]) < 0.2
    for row in range(2):
        one = embed(network, frames, faces[torch.tensor([row])])
        torch.testing.assert_close(one[0], both[row], atol=1e-4, rtol=0)


def test_no_faces_give_no_vectors_and_no_mesh_is_an_error(network: DlibResNet) -> None:
    frames = batch(np.zeros((32, 32, 3), np.uint8))
    none = no_faces(torch.device("cpu"))
    with pytest.raises(ValueError, match="mesh"):
        embed(network, frames, none)
    assert embed(network, frames, replace(none, mesh=torch.zeros(0, 468, 3))).shape == (0, 128)
