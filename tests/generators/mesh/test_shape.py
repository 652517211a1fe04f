"""Alignment, the carried shape, normals, and the maps that follow from them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from facefusion_cli.generators.mesh.align import crop_matrices, into_crop
from facefusion_cli.generators.mesh.carry import STRENGTH, carry_shape, facing, fit_onto
from facefusion_cli.generators.mesh.model import build_model
from facefusion_cli.generators.mesh.vertices import EYE_LEFT, LIPS_INNER, OVAL
from facefusion_cli.generators.mesh.warp import make_maps, read_source, shift_target
from facefusion_cli.zoo.topology import load_topology
from tests.generators.scenes import Person

MODEL = build_model(load_topology(), torch.device("cpu"))


def test_a_similarity_is_found_again() -> None:
    mesh = Person(yaw=0.3).mesh()[None]
    angle = 0.9
    cos, sin = math.cos(angle), math.sin(angle)
    turn = torch.tensor([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]])
    moved = mesh @ turn.T * 0.37 + torch.tensor([40.0, -7.0, 12.0])
    torch.testing.assert_close(fit_onto(moved, mesh), mesh, atol=2e-2, rtol=0)


def test_the_fit_is_the_least_squares_one() -> None:
    """Umeyama's solution by singular values is the oracle."""
    generator = torch.Generator().manual_seed(3)
    moving = Person(width=1.3, mouth_cm=1.0).mesh()[None]
    fixed = Person(yaw=-0.5, roll=0.4).mesh()[None]
    fixed = fixed + torch.randn(fixed.shape, generator=generator) * 4
    from facefusion_cli.stages.pose import RIGID, rigid_fit

    rigid = list(RIGID)
    scale, rotation, offset = rigid_fit(moving[:, rigid], fixed[:, rigid])
    expected = scale[:, None, None] * moving @ rotation.transpose(1, 2) + offset[:, None]
    torch.testing.assert_close(fit_onto(moving, fixed), expected, atol=0.01, rtol=0)


def test_the_same_shape_carries_nothing() -> None:
    target = Person(roll=0.4, yaw=0.2).mesh()[None]
    source = Person(scale=9.0, centre=(90.0, 100.0)).mesh()[None]
    torch.testing.assert_close(carry_shape(source, target, MODEL), target, atol=0.05, rtol=0)


def test_shape_is_carried_inside_and_fades_to_nothing_at_the_outline() -> None:
    target, source = Person().mesh()[None], Person(width=1.25).mesh()[None]
    shape = carry_shape(source, target, MODEL)
    assert torch.equal(shape[:, list(OVAL)], target[:, list(OVAL)])
    difference = (fit_onto(source, target) - target)[0]
    moved = (shape - target)[0]
    for vertex in (48, 278):
        torch.testing.assert_close(
            moved[vertex, 0], STRENGTH * difference[vertex, 0], atol=0.4, rtol=0.1
        )
        assert moved[vertex, 0].abs() > 1


def test_lips_move_as_one_block_and_lids_keep_their_opening() -> None:
    target, source = Person(mouth_cm=1.5).mesh()[None], Person(width=1.2).mesh()[None]
    shape = carry_shape(source, target, MODEL)
    moved = (shape - target)[0, list(LIPS_INNER)]
    assert (moved - moved.mean(0)).abs().max() < 0.25
    before, after = (m[0, 386] - m[0, 374] for m in (target, shape))
    torch.testing.assert_close(before[1], after[1], atol=0.2, rtol=0)


def test_the_nose_faces_the_viewer_and_the_side_turns_away() -> None:
    frontal = facing(Person().mesh()[None], MODEL)[0]
    assert frontal[[1, 4, 5]].min() > 0.7
    assert frontal[[454, 234]].max() < 0.5
    turned = facing(Person(yaw=0.8).mesh()[None], MODEL)[0]
    left, right = turned[[345, 352]].mean(), turned[[116, 123]].mean()
    assert (left - right).abs() > 0.5


@pytest.mark.parametrize("shift", [0.0, 3.25])
def test_equal_meshes_read_the_source_where_the_target_lies(shift: float) -> None:
    size = 160
    mesh = Person(centre=(80.0, 84.0), scale=7.0).mesh()[None]
    sampled = mesh[..., :2] * 1.5 + shift
    maps = make_maps(mesh, mesh, sampled, torch.ones(1, 468), size, MODEL)
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    expected = torch.stack([x, y], -1) * 1.5 + shift
    torch.testing.assert_close(maps.source[0], expected, atol=1e-3, rtol=0)
    assert (maps.shift == 0).all()


def test_equal_meshes_return_the_pictures() -> None:
    size = 160
    person = Person(centre=(80.0, 84.0), scale=7.0)
    mesh, picture = person.mesh()[None], person.picture(size, size)
    maps = make_maps(mesh, mesh, mesh[..., :2], torch.ones(1, 468), size, MODEL)
    torch.testing.assert_close(read_source(picture, maps.source)[0], picture, atol=1e-3, rtol=0)
    torch.testing.assert_close(
        shift_target(picture[None], maps.shift)[0], picture, atol=1e-3, rtol=0
    )


def test_the_maps_follow_the_carried_shape() -> None:
    size = 160
    person = Person(centre=(80.0, 84.0), scale=7.0)
    target = person.mesh()[None]
    shape = carry_shape(replace(person, width=1.25).mesh()[None], target, MODEL)
    sampled = person.mesh()[None, :, :2]
    maps = make_maps(shape, target, sampled, torch.ones(1, 468), size, MODEL)
    for vertex in (1, 48, 278, 50, 205, 425):
        x, y = shape[0, vertex, :2].round().long().tolist()
        there = torch.tensor([x, y]) + maps.shift[0, y, x]
        expected = target[0, vertex, :2] + torch.tensor([x, y]) - shape[0, vertex, :2]
        torch.testing.assert_close(there, expected, atol=0.35, rtol=0)
        torch.testing.assert_close(maps.source[0, y, x], expected, atol=0.35, rtol=0)
    assert maps.shift.abs().max() > 1
    assert (maps.shift[0, :6] == 0).all()


def test_labels_lie_where_the_features_are() -> None:
    size = 160
    mesh = Person(centre=(80.0, 84.0), scale=7.0, mouth_cm=1.0).mesh()[None]
    maps = make_maps(mesh, mesh, mesh[..., :2], torch.ones(1, 468), size, MODEL)
    spots = {0: EYE_LEFT, 1: LIPS_INNER, 2: (13, 0), 3: (52, 105)}
    for channel, vertices in spots.items():
        x, y = mesh[0, list(vertices), :2].mean(0).round().long().tolist()
        flags = maps.labels[0, :, y, x]
        assert flags.tolist() == [float(k == channel) for k in range(4)]


def test_crops_turn_the_eyes_level() -> None:
    mesh = Person(roll=0.7, centre=(100.0, 400.0)).mesh()[None]
    inside = into_crop(mesh, crop_matrices(mesh, 256))
    torch.testing.assert_close(inside[0, 33, 1], inside[0, 263, 1], atol=1e-2, rtol=0)
    extent = (inside[..., :2].amax(1) - inside[..., :2].amin(1)).amax()
    torch.testing.assert_close(extent, torch.tensor(256 / 1.8), atol=0.1, rtol=0)
    # Depth shrinks with the rest.
    ratio = torch.linalg.vector_norm(inside[0, 33] - inside[0, 263]) / torch.linalg.vector_norm(
        mesh[0, 33] - mesh[0, 263]
    )
    depth = (inside[0, 1, 2] - inside[0, 10, 2]) / (mesh[0, 1, 2] - mesh[0, 10, 2])
    torch.testing.assert_close(depth, ratio, atol=1e-3, rtol=0)
