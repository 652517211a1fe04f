"""Scan conversion against a brute-force reference."""

from __future__ import annotations

import torch
from torch import Tensor

from facefusion_cli.generators.mesh.raster import interpolate, rasterise
from facefusion_cli.zoo.topology import load_topology
from tests.generators.scenes import Person

SIZE = 96


def meshes() -> tuple[Tensor, Tensor]:
    """Three poses, one of them turned so far that the face covers itself, and the triangles."""
    people = (
        Person(centre=(47.3, 51.8), scale=4.9, roll=0.3),
        Person(centre=(44.0, 40.0), scale=4.0, yaw=1.1),
        Person(centre=(90.0, 10.0), scale=5.0),
    )
    return torch.stack([p.mesh() for p in people]), load_topology().triangles


def barycentric(mesh: Tensor, triangles: Tensor) -> Tensor:
    """[T,SIZE*SIZE,3] in double precision."""
    corners = mesh[triangles].double()
    a, b, c = corners[:, 0, :2], corners[:, 1, :2], corners[:, 2, :2]
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    p = torch.stack([x, y], -1).reshape(1, -1, 2).double()

    def area(u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return (v[..., 0] - u[..., 0]) * (w[..., 1] - u[..., 1]) - (v[..., 1] - u[..., 1]) * (
            w[..., 0] - u[..., 0]
        )

    whole = area(a, b, c)[:, None]
    a, b, c = a[:, None], b[:, None], c[:, None]
    return torch.stack([area(p, b, c), area(a, p, c), area(a, b, p)], -1) / whole[..., None]


def test_the_nearest_triangle_owns_each_pixel() -> None:
    mesh, triangles = meshes()
    owner = rasterise(mesh, triangles, SIZE)
    for row in range(len(mesh)):
        lowest = barycentric(mesh[row], triangles).amin(-1)
        depth = mesh[row, triangles, 2].mean(1)[:, None].expand_as(lowest)
        # Pixels within a millionth of an edge may go to either side.
        inside = lowest > 1e-6
        reference = torch.where(inside, depth, torch.inf).argmin(0)
        covered = inside.any(0)
        doubtful = (lowest.abs() <= 1e-6).any(0)
        expected = torch.where(covered, reference, len(triangles))
        assert torch.equal(owner[row][~doubtful], expected[~doubtful])
        assert covered.sum() > 500


def test_neighbours_leave_no_gap_and_share_no_pixel() -> None:
    """A square cut into triangles round a middle point: each pixel has one owner."""
    corners = torch.tensor([[10.0, 10.0], [50.0, 10.0], [50.0, 50.0], [10.0, 50.0]])
    fan = torch.tensor([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]])
    middles = torch.rand(40, 1, 2, generator=torch.Generator().manual_seed(1)) * 30 + 15
    flat = torch.cat([corners.expand(40, -1, -1), middles], 1)
    mesh = torch.cat([flat, torch.zeros(40, 5, 1)], -1)
    alone = torch.stack([rasterise(mesh, fan[k : k + 1], 64) == 0 for k in range(4)]).sum(0)
    # Half-open: the left and top edges belong to the square, the right and bottom ones do not.
    expected = torch.zeros(64, 64, dtype=torch.long)
    expected[10:50, 10:50] = 1
    assert torch.equal(alone, expected.view(1, -1).expand(40, -1))


def test_linear_values_stay_linear_and_flags_are_the_triangle_s() -> None:
    mesh, triangles = meshes()
    values = torch.stack([0.3 * mesh[..., 0] - 2 * mesh[..., 1] + 5, mesh[..., 0]], -1)
    flags = torch.arange(len(triangles)).float()[:, None]
    owner = rasterise(mesh, triangles, SIZE)
    dense = interpolate(owner, mesh, values, flags, triangles, SIZE)
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    covered = (owner < len(triangles)).view(-1, SIZE, SIZE)
    for row in range(len(mesh)):
        here = covered[row]
        torch.testing.assert_close(
            dense[row, 0][here], (0.3 * x - 2 * y + 5)[here].float(), atol=2e-3, rtol=0
        )
        torch.testing.assert_close(dense[row, 1][here], x[here].float(), atol=2e-3, rtol=0)
        assert torch.equal(dense[row, 2][here], owner[row].view(SIZE, SIZE)[here].float())
        assert (dense[row][:, ~here] == 0).all()


def test_a_mesh_outside_the_raster_covers_nothing() -> None:
    mesh, triangles = meshes()
    owner = rasterise(mesh + torch.tensor([500.0, 0.0, 0.0]), triangles, SIZE)
    assert (owner == len(triangles)).all()


def test_degenerate_triangles_cover_nothing() -> None:
    mesh = torch.tensor([[[3.0, 3.0, 0.0], [20.0, 20.0, 0.0], [9.0, 9.0, 0.0]]])
    triangles = torch.tensor([[0, 1, 2], [0, 0, 1]])
    assert (rasterise(mesh, triangles, 32) == 2).all()
