"""The canonical 106 points on the canonical face."""

import torch

from facefusion_cli.stages.points106 import (
    CONTOUR,
    INDEX,
    LEFT_BROW,
    LEFT_EYE,
    MOUTH,
    NAMES,
    NOSE,
    PUPILS,
    RIGHT_BROW,
    RIGHT_EYE,
    points106,
    template5,
)
from facefusion_cli.zoo.topology import load_topology


def face() -> torch.Tensor:
    """[1,106,2] of the canonical model, y down, about 360 px high; irises at the lids' middle."""
    mesh = load_topology().vertices_cm * torch.tensor([20.0, -20.0, -20.0])
    eyes = torch.stack([mesh[[33, 133], :2].mean(0), mesh[[263, 362], :2].mean(0)])
    return points106(mesh.unsqueeze(0), eyes[None, :, None].expand(1, 2, 5, 2))


def test_every_point_has_its_own_name_and_group() -> None:
    assert len(NAMES) == len(set(NAMES)) == 106
    groups = (CONTOUR, LEFT_BROW, RIGHT_BROW, NOSE, LEFT_EYE, RIGHT_EYE, MOUTH, PUPILS)
    sizes = [len(NAMES[g]) for g in groups]
    assert sizes == [33, 9, 9, 15, 9, 9, 20, 2]
    for group, word in zip(
        groups,
        ("contour", "left_brow", "right_brow", "nose", "left_eye", "right_eye", "mouth", "pupil"),
        strict=True,
    ):
        assert all(word in name for name in NAMES[group])


def test_a_symmetric_face_gives_symmetric_points() -> None:
    points = face()[0]
    mirror = points * torch.tensor([-1.0, 1.0])
    distance = torch.cdist(points, mirror)
    assert distance.amin(1).max() < 1.0
    assert torch.equal(distance.argmin(1)[:33], torch.arange(32, -1, -1))


def test_left_is_the_images_left_and_the_contour_runs_over_the_chin() -> None:
    points = face()[0]
    x, y = points[:, 0], points[:, 1]
    assert x[LEFT_EYE].max() < 0 < x[RIGHT_EYE].min()
    assert x[LEFT_BROW].max() < 0 < x[RIGHT_BROW].min()
    assert x[INDEX["contour_0"]] < 0 < x[INDEX["contour_32"]]
    assert int(y.argmax()) == INDEX["contour_16"]
    steps = torch.linalg.vector_norm(points[1:33] - points[:32], dim=-1)
    assert steps.max() / steps.min() < 1.35
    assert y[INDEX["left_eye_upper_1"]] < y[INDEX["left_eye_lower_1"]]
    assert y[INDEX["mouth_upper_2"]] < y[INDEX["mouth_lower_2"]]


def test_template_points_stand_in_the_order_of_the_templates() -> None:
    left, right, nose, mouth_left, mouth_right = template5(face())[0]
    assert left[0] < nose[0] < right[0]
    assert mouth_left[0] < mouth_right[0]
    assert left[1] < nose[1] < mouth_left[1]
