"""What every generator must do. A new generator is one more line in GENERATORS."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from facefusion_cli.generators.base import Generator
from facefusion_cli.generators.mesh import MeshGenerator
from facefusion_cli.types import SwappedCrops
from facefusion_cli.zoo.topology import load_topology
from tests.generators.scenes import Person, crops, faces

CPU = torch.device("cpu")
GENERATORS: dict[str, Callable[[], Generator]] = {
    "mesh": lambda: MeshGenerator(CPU, load_topology()),
    "mesh without colour": lambda: MeshGenerator(CPU, load_topology(), "none"),
}
SOURCE = Person(centre=(300.0, 280.0), scale=17.0, width=1.15, phase=1.0)
OTHER = Person(centre=(340.0, 330.0), scale=15.0, skin=(0.5, 0.35, 0.28), phase=2.0)
TARGETS = (
    Person(roll=0.2, skin=(0.6, 0.45, 0.4)),
    Person(centre=(200.0, 250.0), scale=9.0, roll=-0.4, mouth_cm=1.6),
    Person(yaw=0.4, shade=0.4),
)


@pytest.fixture(params=GENERATORS, scope="module")
def generator(request: pytest.FixtureRequest) -> Generator:
    return GENERATORS[request.param]()


@pytest.fixture(scope="module")
def prepared(generator: Generator) -> object:
    return generator.prepare(SOURCE.identity())


def parts(swapped: SwappedCrops) -> dict[str, Tensor]:
    return {name: getattr(swapped, name) for name in ("pixels", "backdrop", "mask", "touched")}


def border(image: Tensor) -> Tensor:
    """The outermost ring of pixels."""
    return torch.cat([image[..., 0, :], image[..., -1, :], image[..., :, 0], image[..., :, -1]], -1)


def test_says_who_it_is(generator: Generator) -> None:
    assert generator.name
    assert isinstance(generator.does_colour, bool)
    assert generator.best_blend in {"alpha", "poisson"}


@pytest.mark.parametrize("size", [128, 256, 384])
def test_crops_are_upright_and_hold_the_whole_face(generator: Generator, size: int) -> None:
    found = faces(*TARGETS)
    matrices = generator.crop_matrices(found, size)
    assert matrices.dtype == torch.float32
    assert matrices.shape == (3, 2, 3)
    assert found.mesh is not None
    inside = found.mesh[..., :2] @ matrices[:, :, :2].transpose(1, 2) + matrices[:, None, :, 2]
    assert inside.min() > 0
    assert inside.max() < size - 1
    eyes = inside[:, 263] - inside[:, 33]
    torch.testing.assert_close(eyes[:, 1], torch.zeros(3), atol=1e-3, rtol=0)
    assert (eyes[:, 0] > 0).all()
    scale = torch.linalg.det(matrices[:, :, :2]).sqrt()
    torch.testing.assert_close(size / scale, generator.natural_size(found), rtol=1e-4, atol=0)


@pytest.mark.parametrize("size", [128, 256, 384])
def test_returns_what_the_protocol_says(generator: Generator, prepared: object, size: int) -> None:
    given = crops(generator, size, *TARGETS)
    before = given.pixels.clone()
    out = generator.swap(given, [prepared] * 3)
    assert torch.equal(given.pixels, before)
    for part in parts(out).values():
        assert part.dtype == torch.float32
        assert part.isfinite().all()
        assert part.min() >= 0
        assert part.max() <= 1
    assert (border(out.mask) == 0).all()
    assert (border(out.touched) == 0).all()
    assert (out.touched >= out.mask).all()
    untouched = (out.touched == 0).expand_as(out.backdrop)
    assert torch.equal(out.backdrop[untouched], given.pixels[untouched])
    # Something is swapped: a good part of the crop, and visibly.
    assert (out.mask > 0.9).float().mean((1, 2, 3)).min() > 0.04
    change = ((out.pixels - out.backdrop) * out.mask).abs().mean((1, 2, 3))
    assert change.min() > 1e-3


def test_a_batch_is_its_faces_one_by_one(generator: Generator, prepared: object) -> None:
    other = generator.prepare(OTHER.identity())
    given = crops(generator, 256, *TARGETS)
    who = [prepared, other, prepared]
    together = parts(generator.swap(given, who))
    for row, person in enumerate(TARGETS):
        alone = parts(generator.swap(crops(generator, 256, person), [who[row]]))
        for name, value in alone.items():
            torch.testing.assert_close(together[name][row : row + 1], value, atol=2e-4, rtol=0)
    # The two sources differ, or the row above would prove nothing.
    swapped = generator.swap(given, [other] * 3)
    assert (swapped.pixels - together["pixels"])[0].abs().max() > 0.02


def test_the_same_run_twice_gives_the_same_bits(generator: Generator) -> None:
    given = crops(generator, 256, *TARGETS)
    first, second = (
        parts(generator.swap(given, [generator.prepare(SOURCE.identity())] * 3)) for _ in range(2)
    )
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_the_photo_may_cut_the_face(generator: Generator) -> None:
    close = Person(centre=(150.0, 120.0), scale=20.0)
    out = generator.swap(
        crops(generator, 128, TARGETS[0]), [generator.prepare(close.identity(250, 290))]
    )
    assert out.pixels.isfinite().all()
