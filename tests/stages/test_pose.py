"""Head pose from a turned canonical model, where the truth is the turn itself."""

import math

import pytest
import torch

from facefusion_cli.stages.pose import head_pose, rigid_fit
from facefusion_cli.zoo.topology import load_topology


def turned(yaw: float, pitch: float, roll: float) -> torch.Tensor:
    """[1,468,3] the model as a mesh in the picture (y down, z away), turned by degrees."""
    model = load_topology().vertices_cm * torch.tensor([1.0, -1.0, -1.0])
    a, b, c = (math.radians(v) for v in (yaw, pitch, roll))
    # Facing the viewer is -z. Looking right moves the nose to +x, looking up to -y.
    ry = torch.tensor([[math.cos(a), 0, -math.sin(a)], [0, 1, 0], [math.sin(a), 0, math.cos(a)]])
    rx = torch.tensor([[1, 0, 0], [0, math.cos(b), math.sin(b)], [0, -math.sin(b), math.cos(b)]])
    rz = torch.tensor([[math.cos(c), -math.sin(c), 0], [math.sin(c), math.cos(c), 0], [0, 0, 1]])
    return (model @ (rz @ ry @ rx).T * 17 + torch.tensor([300.0, 200.0, 0.0])).unsqueeze(0)


@pytest.mark.parametrize(
    ("yaw", "pitch", "roll"),
    [(0, 0, 0), (30, 0, 0), (-42, 0, 0), (0, 20, 0), (0, -15, 0), (0, 0, 25)],
)
def test_single_turns_are_read_back(yaw: float, pitch: float, roll: float) -> None:
    pose = head_pose(turned(yaw, pitch, roll), load_topology().vertices_cm)
    assert pose[0].tolist() == pytest.approx([yaw, pitch, roll], abs=0.05)


def test_looking_right_means_the_nose_tip_is_on_the_right() -> None:
    mesh = turned(30, 0, 0)
    eyes = (mesh[0, 33, 0] + mesh[0, 263, 0]) / 2
    assert mesh[0, 1, 0] > eyes


def test_rigid_fit_finds_the_similarity_it_was_given() -> None:
    rng = torch.Generator().manual_seed(3)
    points = torch.randn(4, 12, 3, generator=rng)
    rotation = torch.linalg.qr(torch.randn(4, 3, 3, generator=rng))[0]
    rotation[torch.linalg.det(rotation) < 0, :, 0] *= -1
    moved = 2.5 * points @ rotation.transpose(1, 2) + torch.tensor([3.0, -2.0, 9.0])
    scale, found, offset = rigid_fit(points, moved)
    assert torch.allclose(scale, torch.full((4,), 2.5), atol=1e-4)
    assert torch.allclose(found, rotation, atol=1e-4)
    assert torch.allclose(offset, torch.tensor([3.0, -2.0, 9.0]).expand(4, 3), atol=1e-3)
