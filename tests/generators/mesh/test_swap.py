"""The mesh generator as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from facefusion_cli.generators.mesh import MeshGenerator
from facefusion_cli.generators.mesh.vertices import EYE_LEFT, EYE_RIGHT, LIPS_INNER
from facefusion_cli.types import FaceCrops, SwappedCrops
from facefusion_cli.zoo.topology import load_topology
from tests.generators.scenes import Person, crops

SOURCE = Person(centre=(300.0, 290.0), scale=17.0, width=1.2, phase=1.5)
TARGET = Person(roll=0.15, skin=(0.62, 0.47, 0.4))


def make(colour: str = "tone") -> MeshGenerator:
    return MeshGenerator(torch.device("cpu"), load_topology(), colour)


@pytest.fixture(scope="module")
def generator() -> MeshGenerator:
    return make()


def swap(generator: MeshGenerator, source: Person, target: Person, size: int = 256) -> SwappedCrops:
    return generator.swap(crops(generator, size, target), [generator.prepare(source.identity())])


def composed(out: SwappedCrops) -> Tensor:
    return out.backdrop + (out.pixels - out.backdrop) * out.mask


def middle_of(given: FaceCrops, vertices: tuple[int, ...]) -> tuple[int, int]:
    """Row and column of the mean of some vertices in the first crop."""
    assert given.faces.mesh is not None
    point = given.faces.mesh[0, list(vertices), :2].mean(0)
    x, y = (given.to_crop[0, :, :2] @ point + given.to_crop[0, :, 2]).round().long().tolist()
    return y, x


def test_a_face_on_itself_changes_almost_nothing(generator: MeshGenerator) -> None:
    """Same photo as source and target: what is left is resampling, less than a level on average."""
    given = crops(generator, 256, TARGET)
    out = swap(generator, TARGET, TARGET)
    difference = (composed(out) - given.pixels).abs()
    assert out.mask.mean() > 0.1
    assert difference.mean() < 0.4 / 255
    assert difference.max() < 12 / 255


def test_the_pattern_is_the_source_s_and_the_colour_the_target_s(
    generator: MeshGenerator,
) -> None:
    source, target = replace(SOURCE, stripes=0.1), replace(TARGET, stripes=0.1)
    out = swap(generator, source, target)
    plain = swap(make("none"), source, target)
    inside = out.mask > 0.95
    count = inside.sum()
    means = [(p * inside).sum((0, 2, 3)) / count for p in (out.pixels, out.backdrop, plain.pixels)]
    # Colours: much nearer to the target than they were.
    torch.testing.assert_close(means[0], means[1], atol=0.012, rtol=0)
    assert (means[2] - means[1]).abs().max() > 0.05
    # Pattern: the source's, not the target's.
    detail = [_detail(p)[inside.expand_as(p)] for p in (out.pixels, plain.pixels, out.backdrop)]
    assert _correlation(detail[0], detail[1]) > 0.9
    assert _correlation(detail[0], detail[2]) < 0.8


def _detail(image: Tensor) -> Tensor:
    return image - torch.nn.functional.avg_pool2d(image, 31, 1, 15, count_include_pad=False)


def _correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


@pytest.mark.parametrize("size", [128, 256, 512])
def test_eyes_and_an_open_mouth_stay_the_target_s(generator: MeshGenerator, size: int) -> None:
    open_mouth = replace(TARGET, mouth_cm=1.5)
    given = crops(generator, size, open_mouth)
    out = swap(generator, SOURCE, open_mouth, size)
    for part in (EYE_LEFT, EYE_RIGHT, LIPS_INNER):
        row, column = middle_of(given, part)
        assert out.mask[0, 0, row, column] < 0.08
    row, column = middle_of(given, (50,))
    assert out.mask[0, 0, row, column] > 0.95


def test_closed_lips_are_the_source_s(generator: MeshGenerator) -> None:
    # The canonical lips are half a centimetre apart.
    closed = replace(TARGET, mouth_cm=-0.5)
    given = crops(generator, 256, closed)
    out = swap(generator, SOURCE, closed)
    row, column = middle_of(given, (13, 14))
    assert out.mask[0, 0, row, column] > 0.95


def test_the_mask_stays_inside_the_outline(generator: MeshGenerator) -> None:
    given = crops(generator, 256, TARGET)
    out = swap(generator, SOURCE, TARGET)
    for vertex in (454, 234, 152, 10, 397, 172):
        row, column = middle_of(given, (vertex,))
        assert out.mask[0, 0, row, column] < 0.3
        assert out.touched[0, 0, row, column] > 0.6


def test_the_lower_fringe_of_the_two_bounds_the_mask(generator: MeshGenerator) -> None:
    bare = swap(generator, SOURCE, TARGET).mask.sum()
    on_target = swap(generator, SOURCE, replace(TARGET, fringe_cm=6.0)).mask.sum()
    on_source = swap(generator, replace(SOURCE, fringe_cm=6.0), TARGET).mask.sum()
    assert on_target < 0.93 * bare
    assert on_source < 0.93 * bare


def test_a_turned_head_shows_less_of_its_far_side(generator: MeshGenerator) -> None:
    turned = replace(TARGET, roll=0.0, yaw=0.7)
    given = crops(generator, 256, turned)
    out = swap(generator, replace(SOURCE, yaw=-0.5), turned)
    shown = []
    for vertex in (116, 345):
        row, column = middle_of(given, (vertex,))
        shown.append(float(out.mask[0, 0, row, column]))
    assert max(shown) > 2 * min(shown)


def test_every_colour_method_gives_another_picture() -> None:
    pictures = [composed(swap(make(c), SOURCE, TARGET)) for c in ("tone", "lab", "hist", "none")]
    for i, a in enumerate(pictures):
        for b in pictures[i + 1 :]:
            assert (a - b).abs().max() > 2 / 255


def test_light_from_the_side_is_carried_over(generator: MeshGenerator) -> None:
    flat, lit = replace(TARGET, roll=0.0), replace(TARGET, roll=0.0, shade=0.5)

    def slope(target: Person) -> Tensor:
        out = swap(generator, replace(SOURCE, stripes=0.0), target)
        columns = (out.pixels * out.mask).sum((1, 2)) / out.mask.sum((1, 2)).clamp_min(1e-6)
        return columns[0, 170] - columns[0, 85]

    assert slope(lit) > slope(flat) + 0.05


def test_the_source_s_highest_resolution_is_not_aliased(generator: MeshGenerator) -> None:
    """A large photo on a small face: fine stripes average out and do not turn coarse."""
    size = 1400
    fine = replace(SOURCE, centre=(700.0, 700.0), scale=40.0, stripes=0.0)
    identity = fine.identity(size, size)
    x = torch.arange(size).float()
    striped = (identity.photos[0].pixels * (1 + 0.2 * torch.sin(x * 2.2))).clamp(0, 1)
    photo = replace(identity.photos[0], pixels=striped)
    target = crops(generator, 128, replace(TARGET, stripes=0.0))
    plain = generator.swap(target, [generator.prepare(identity)])
    out = generator.swap(target, [generator.prepare(replace(identity, photos=(photo,)))])
    ripple = ((out.pixels - plain.pixels) * (out.mask > 0.95)).abs()
    assert ripple.max() < 0.03


def test_crops_of_other_sizes_are_refused(generator: MeshGenerator) -> None:
    with pytest.raises(ValueError, match="multiples of 128"):
        swap(generator, SOURCE, TARGET, 200)


def test_what_another_generator_prepared_is_refused(generator: MeshGenerator) -> None:
    with pytest.raises(TypeError, match="did not prepare"):
        generator.swap(crops(generator, 128, TARGET), ["a latent"])


def test_an_unknown_colour_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown colour method 'sepia'"):
        make("sepia")
