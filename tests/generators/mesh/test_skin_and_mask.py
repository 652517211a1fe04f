"""Skin, hairline, outline, mask and the source's preparation."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

from facefusion_cli.generators.mesh.align import crop_matrices, into_crop
from facefusion_cli.generators.mesh.gauss import normalised, smooth_large, smooth_small
from facefusion_cli.generators.mesh.hairline import forehead_row, measure_hairline
from facefusion_cli.generators.mesh.mask import distances_inside, face_mask, mouth_opening
from facefusion_cli.generators.mesh.model import build_model
from facefusion_cli.generators.mesh.plane import (
    SMALL_L,
    enlarge,
    origin,
    shrink,
    to_small,
    window,
)
from facefusion_cli.generators.mesh.skin import Skin, columns, measure_skin
from facefusion_cli.generators.mesh.source import contour_inset, cut_photo, pull_in
from facefusion_cli.generators.mesh.vertices import OVAL
from facefusion_cli.stages.colour import srgb_to_lab
from facefusion_cli.zoo.topology import load_topology
from tests.generators.scenes import Person

MODEL = build_model(load_topology(), torch.device("cpu"))


def small_view(person: Person, size: int = 256) -> tuple[Tensor, Tensor]:
    """Lab on the small grid and the mesh in its pixels."""
    mesh = person.mesh()[None]
    matrix = crop_matrices(mesh, size)
    crop = cut_photo(person.picture(), matrix[0], size)[None]
    lab = srgb_to_lab(shrink(window(crop)))
    return lab, to_small(into_crop(mesh, matrix)[..., :2], size)


def hairline(person: Person) -> tuple[Tensor, Skin]:
    lab, mesh = small_view(person)
    skin = measure_skin(lab, mesh, MODEL)
    return measure_hairline(lab, mesh, skin, MODEL)[0], skin


def test_skin_is_the_colour_of_the_cheeks() -> None:
    person = Person(stripes=0.01)
    _, skin = hairline(person)
    painted = srgb_to_lab(torch.tensor(person.skin).view(1, 3, 1, 1))
    torch.testing.assert_close(skin.expected(torch.tensor(40.0)), painted, atol=2.0, rtol=0)


def test_side_light_is_no_spread() -> None:
    _, even = hairline(Person())
    _, lit = hairline(Person(shade=0.8))
    assert lit.across[0, 0] > 0.1
    assert even.across[0, 0].abs() < 0.05
    assert lit.spread[0, 0] < 2 * even.spread[0, 0]


@pytest.mark.parametrize("shade", [0.0, 0.7])
def test_hair_is_no_skin_and_ends_the_forehead(shade: float) -> None:
    bare, skin = hairline(Person(shade=shade))
    low, _ = hairline(Person(shade=shade, fringe_cm=6.2))
    assert bare.min() > 1.8
    assert 0.1 <= low[20] < 1.0
    dark = srgb_to_lab(torch.full((1, 3, 1, 80), 0.08))
    assert skin.likelihood(dark, columns(dark.device)).max() < 0.1


def test_hair_on_one_side_lowers_that_side_alone() -> None:
    person = Person()
    lab, mesh = small_view(person)
    skin = measure_skin(lab, mesh, MODEL)
    covered = lab.clone()
    covered[:, :, :30, :24] = torch.tensor([10.0, 2.0, 2.0]).view(1, 3, 1, 1)
    height = measure_hairline(covered, mesh, skin, MODEL)[0]
    assert height[:4].max() < 1.0
    assert height[25:].min() > 1.8


def test_the_forehead_row_climbs_from_the_brows_to_the_top() -> None:
    mesh = Person().mesh()[None, :, :2]
    rows = [forehead_row(mesh, torch.full((1, 41), t), MODEL)[0] for t in (0.0, 1.0, 1.8)]
    torch.testing.assert_close(rows[0][20], mesh[0, 9])
    torch.testing.assert_close(rows[1][20], mesh[0, 151])
    torch.testing.assert_close(rows[1][0], mesh[0, 71])
    assert rows[2][20, 1] < rows[1][20, 1] < rows[0][20, 1]


def test_distances_are_opencv_s() -> None:
    generator = torch.Generator().manual_seed(5)
    angle = torch.linspace(0, 2 * torch.pi, 24)[:-1]
    radius = 20 + 12 * torch.rand(23, generator=generator)
    polygon = torch.stack([40 + radius * angle.cos(), 40 + radius * angle.sin()], -1)
    y, x = torch.meshgrid(torch.arange(0, 80, 3), torch.arange(0, 80, 3), indexing="ij")
    points = torch.stack([x, y], -1).reshape(-1, 2).float()
    first, second = distances_inside(polygon[None], points, 9)
    nearest = torch.where(first.abs() < second.abs(), first, second)[0]
    outline = polygon.numpy()[:, None].astype(np.float32)
    expected = [cv2.pointPolygonTest(outline, (float(p[0]), float(p[1])), True) for p in points]
    torch.testing.assert_close(nearest, torch.tensor(expected).float(), atol=1e-3, rtol=0)
    # The split: an open line of the first nine edges.
    part = polygon[:10].numpy()
    for k in range(0, len(points), 17):
        a, b, p = part[:-1], part[1:], points[k].numpy()
        t = np.clip(((p - a) * (b - a)).sum(1) / ((b - a) ** 2).sum(1), 0, 1)
        distance = np.linalg.norm(a + t[:, None] * (b - a) - p, axis=1).min()
        assert abs(float(first[0, k].abs()) - distance) < 1e-3


def test_a_straight_edge_becomes_an_eroded_gaussian() -> None:
    """Against eroding and blurring an image of the edge, twenty times finer."""
    x = torch.arange(80.0)
    area = torch.stack([x - 30, torch.full_like(x, 40.0)])[None, :, None].expand(-1, -1, 80, -1)
    full = torch.ones(1, 1, 80, 80)
    mask = face_mask(area, full, full)[0, 0, 40]
    sigma = 0.02 * SMALL_L
    fine = (torch.arange(1600) / 20 - 0.475 >= 30 + sigma).float().numpy()[None]
    blurred = cv2.GaussianBlur(fine, (0, 0), sigma * 20).reshape(80, 20).mean(1)
    torch.testing.assert_close(mask[10:60], torch.from_numpy(blurred)[10:60], atol=0.02, rtol=0)


def test_the_opening_of_the_mouth() -> None:
    mesh = Person().mesh()[None]
    longest = 18.0 * 16
    closed = replace(Person(), mouth_cm=-0.5).mesh()[None]
    wide = replace(Person(), mouth_cm=1.0).mesh()[None]
    assert mouth_opening(closed, longest) == 0
    assert mouth_opening(mesh, longest) > 0
    assert mouth_opening(wide, longest) == 1


def test_background_inside_the_outline_is_not_read() -> None:
    person = Person(stripes=0.01)
    lab, mesh = small_view(person)
    skin = measure_skin(lab, mesh, MODEL)
    assert (contour_inset(lab, mesh, skin) == 0).all()
    # The image's left edge of the face lies over something blue, 4 % of L deep.
    edge = float(mesh[0, 234, 0]) + 0.04 * SMALL_L
    over = lab.clone()
    over[..., : int(edge)] = torch.tensor([40.0, 10.0, -50.0]).view(1, 3, 1, 1)
    inset = contour_inset(over, mesh, skin)[0]
    assert 0.035 < inset[OVAL.index(234)] < 0.08
    assert inset[OVAL.index(454)] == 0


def test_a_beard_is_no_background() -> None:
    lab, mesh = small_view(Person(stripes=0.01))
    skin = measure_skin(lab, mesh, MODEL)
    bearded = lab.clone()
    bearded[:, :, int(mesh[0, 17, 1]) :] = torch.tensor([15.0, 3.0, 3.0]).view(1, 3, 1, 1)
    assert contour_inset(bearded, mesh, skin)[0, OVAL.index(152)] == 0


def test_vertices_are_pulled_in_at_the_outline_without_folding() -> None:
    points = Person().mesh()[:, :2]
    inset = torch.full((36,), 12.0)
    pulled = pull_in(points, inset)
    move = torch.linalg.vector_norm(points - pulled, dim=-1)
    torch.testing.assert_close(move[list(OVAL)], inset, atol=0.2, rtol=0)
    assert move[[1, 4, 5, 6, 13, 33, 263]].max() < 1.0
    triangles = load_topology().triangles

    def area(p: Tensor) -> Tensor:
        a, b, c = p[triangles].unbind(1)
        u, v = b - a, c - a
        return u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]

    before, after = area(points), area(pulled)
    big = before.abs() > 4
    assert (torch.sign(before[big]) == torch.sign(after[big])).all()
    assert torch.equal(pull_in(points, torch.zeros(36)), points)


def test_photos_are_cut_as_opencv_warps_them() -> None:
    photo = Person(stripes=0.1).picture(480, 500)
    matrix = crop_matrices(Person(roll=0.4, centre=(240.0, 230.0), scale=11.0).mesh()[None], 384)
    expected = cv2.warpAffine(
        photo.permute(1, 2, 0).numpy(),
        matrix[0].double().numpy(),
        (384, 384),
        flags=cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )
    ours = cut_photo(photo, matrix[0], 384).permute(1, 2, 0)
    # OpenCV rounds places to 1/32 pixel.
    torch.testing.assert_close(ours, torch.from_numpy(expected), atol=0.02, rtol=0)


def test_shrinking_a_photo_averages_it() -> None:
    photo = Person(stripes=0.0).picture()
    checks = ((torch.arange(640)[:, None] + torch.arange(640)) % 2) * 0.2 - 0.1
    matrix = crop_matrices(Person().mesh()[None], 128)
    plain, checked = (cut_photo(p, matrix[0], 128) for p in (photo, photo + checks))
    inner = slice(20, 108)
    assert (plain - checked)[:, inner, inner].abs().max() < 0.01


@pytest.mark.parametrize("sigma", [0.6, 2.0, 9.0])
def test_gaussians_are_opencv_s(sigma: float) -> None:
    image = torch.rand(2, 2, 80, 80, generator=torch.Generator().manual_seed(2))
    for ours, border in ((smooth_small, cv2.BORDER_CONSTANT), (smooth_large, cv2.BORDER_REPLICATE)):
        result = ours(image, sigma)
        reach = 2 * round((6 if border == cv2.BORDER_CONSTANT else 4) * sigma) + 1
        expected = cv2.GaussianBlur(image[1, 0].numpy(), (reach, reach), sigma, borderType=border)
        # The large one is cut at three sigma.
        torch.testing.assert_close(result[1, 0], torch.from_numpy(expected), atol=4e-3, rtol=0)


def test_normalised_convolution_keeps_constants_and_fills_holes() -> None:
    weight = torch.zeros(1, 1, 80, 80)
    weight[..., 20:60, 20:60] = 1
    image = torch.full((1, 1, 80, 80), 7.0)
    image[weight == 0] = -100
    filled = normalised(image, weight, 4.0)
    torch.testing.assert_close(
        filled[..., 16:64, 16:64], torch.full((1, 1, 48, 48), 7.0), atol=0.02, rtol=0
    )


@pytest.mark.parametrize("size", [128, 256, 384, 768])
def test_the_two_grids_agree(size: int) -> None:
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    crop = (0.5 * x + 0.25 * y)[None, None].float()
    small = shrink(window(crop))
    assert small.shape == (1, 1, 80, 80)
    point = torch.tensor([[origin(size) + 40.0, origin(size) + 33.0]])
    place = to_small(point, size)
    sampled = torch.nn.functional.grid_sample(
        small, ((2 * place + 1) / 80 - 1).view(1, 1, 1, 2), align_corners=False
    )
    expected = 0.5 * point[0, 0] + 0.25 * point[0, 1]
    torch.testing.assert_close(sampled.view(()), expected, atol=1e-2, rtol=0)
    inner = slice(10, -10)
    torch.testing.assert_close(
        enlarge(small, size)[..., inner, inner], window(crop)[..., inner, inner], atol=1e-2, rtol=0
    )
