"""Colour conversions against double precision and OpenCV; the matching methods."""

from __future__ import annotations

import cv2
import pytest
import torch
from torch import Tensor

from facefusion_cli.stages.colour import (
    METHODS,
    fit_histogram,
    fit_tone,
    lab_to_srgb,
    linear_to_srgb,
    match_colour,
    robust_weight,
    srgb_to_lab,
    srgb_to_linear,
    statistics,
)


def ramp(dtype: torch.dtype = torch.float32) -> Tensor:
    """[1,3,48,48*48] a grid of all colours, the dark ones included."""
    steps = torch.linspace(0, 1, 48, dtype=dtype) ** 1.5
    return torch.stack(torch.meshgrid(steps, steps, steps, indexing="ij")).reshape(1, 3, 48, -1)


def skin(
    mean: tuple[float, float, float], seed: int = 0, contrast: float = 0.04, size: int = 64
) -> Tensor:
    """[1,3,size,size] a patch of skin with soft, correlated detail."""
    generator = torch.Generator().manual_seed(seed)
    shade = torch.randn(1, 1, size, size, generator=generator) * contrast
    tint = torch.randn(1, 3, size, size, generator=generator) * contrast / 4
    return (torch.tensor(mean).view(1, 3, 1, 1) * (1 + shade) + tint).clamp(0, 1)


DARK, LIGHT = (0.35, 0.23, 0.18), (0.82, 0.66, 0.58)
FULL = torch.ones(1, 1, 64, 64)


def test_linear_light_is_the_standard_s() -> None:
    srgb = torch.linspace(0, 1, 4001, dtype=torch.float64)
    exact = torch.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    # The standard's two pieces miss one another by 1e-8 at the knee; ours meet.
    torch.testing.assert_close(srgb_to_linear(srgb), exact, atol=5e-8, rtol=0)
    torch.testing.assert_close(srgb_to_linear(srgb.float()), exact.float(), atol=1e-6, rtol=0)
    torch.testing.assert_close(linear_to_srgb(srgb_to_linear(srgb)), srgb, atol=2e-7, rtol=0)


def cie_lab(srgb: Tensor) -> Tensor:
    """The definitions of IEC 61966-2-1 and CIE 15, word for word, in double precision."""
    c = srgb.double()
    linear = torch.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    r, g, b = linear.unbind(1)
    x = (0.412453 * r + 0.357580 * g + 0.180423 * b) / 0.950456
    y = 0.212671 * r + 0.715160 * g + 0.072169 * b
    z = (0.019334 * r + 0.119193 * g + 0.950227 * b) / 1.088754

    def f(t: Tensor) -> Tensor:
        return torch.where(t > (6 / 29) ** 3, t ** (1 / 3), t / (3 * (6 / 29) ** 2) + 4 / 29)

    return torch.stack([116 * f(y) - 16, 500 * (f(x) - f(y)), 200 * (f(y) - f(z))], 1)


def test_lab_is_the_cie_s() -> None:
    exact = cie_lab(ramp())
    torch.testing.assert_close(srgb_to_lab(ramp(torch.float64)), exact, atol=1e-4, rtol=0)
    torch.testing.assert_close(srgb_to_lab(ramp()).double(), exact, atol=2e-3, rtol=0)


def test_lab_is_opencv_s() -> None:
    colours = ramp()
    expected = cv2.cvtColor(colours[0].permute(1, 2, 0).numpy(), cv2.COLOR_RGB2Lab)
    difference = (srgb_to_lab(colours)[0].permute(1, 2, 0) - torch.from_numpy(expected)).abs()
    # OpenCV interpolates gamma and root from tables, coarsely in the dark.
    assert difference.mean() < 0.1
    assert difference.max() < 0.7


def test_known_colours() -> None:
    colours = torch.tensor([[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 0, 1]]).float().T.view(1, 3, 1, 4)
    expected = torch.tensor(
        [[0, 0, 0], [100, 0, 0], [53.24, 80.09, 67.20], [32.30, 79.19, -107.86]]
    )
    torch.testing.assert_close(srgb_to_lab(colours)[0, :, 0].T, expected, atol=0.05, rtol=0)


def test_there_and_back() -> None:
    torch.testing.assert_close(lab_to_srgb(srgb_to_lab(ramp())), ramp(), atol=3e-5, rtol=0)


def test_statistics_are_weighted() -> None:
    image, weight = skin(LIGHT), torch.rand(1, 1, 64, 64)
    mean, std = statistics(image, weight)
    w = weight[0, 0].double() / weight.double().sum()
    for c in range(3):
        exact = (image[0, c].double() * w).sum()
        spread = ((image[0, c].double() - exact).square() * w).sum().sqrt()
        assert abs(float(mean[0, c]) - float(exact)) < 1e-6
        assert abs(float(std[0, c]) - float(spread)) < 1e-6


def test_hair_and_glints_lose_their_weight() -> None:
    image = skin(LIGHT)
    image[..., :8, :] = 0.05
    image[..., -2:, :] = 1.0
    kept = robust_weight(srgb_to_lab(image), FULL)
    assert kept[..., :8, :].max() < 0.05
    assert kept[..., 10:-4, :].mean() > 0.9


@pytest.mark.parametrize(("own", "other"), [(DARK, LIGHT), (LIGHT, DARK), (LIGHT, LIGHT)])
@pytest.mark.parametrize("method", ["tone", "lab", "hist"])
def test_matched_skin_has_the_other_s_mean(
    method: str, own: tuple[float, float, float], other: tuple[float, float, float]
) -> None:
    pixels, reference = skin(own, 1), skin(other, 2)
    weight = torch.rand(1, 1, 64, 64)
    matched = match_colour(method, pixels, reference, weight)
    got, wanted = (statistics(srgb_to_lab(p), weight)[0] for p in (matched, reference))
    torch.testing.assert_close(got, wanted, atol=0.6, rtol=0)
    # Detail survives: it is the source's, not the reference's.
    detail = [(p - p.mean((2, 3), keepdim=True)).flatten() for p in (matched, pixels, reference)]
    correlation = torch.corrcoef(torch.stack(detail))
    assert correlation[0, 1] > 0.9
    assert correlation[0, 2].abs() < 0.2


@pytest.mark.parametrize("method", METHODS)
def test_a_face_matched_to_itself_stays(method: str) -> None:
    image = skin(LIGHT)
    torch.testing.assert_close(match_colour(method, image, image, FULL), image, atol=0.02, rtol=0)


def test_the_methods_differ() -> None:
    pixels, reference = skin(DARK, 1), skin(LIGHT, 2, 0.08)
    results = [match_colour(m, pixels, reference, FULL) for m in METHODS]
    for i, a in enumerate(results):
        for b in results[i + 1 :]:
            assert (a - b).abs().max() > 2 / 255


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_its_faces_one_by_one(method: str) -> None:
    pixels = torch.cat([skin(DARK, 1), skin(LIGHT, 2)])
    reference = torch.cat([skin(LIGHT, 3), skin(DARK, 4)])
    weight = torch.rand(2, 1, 64, 64)
    together = match_colour(method, pixels, reference, weight)
    for row in range(2):
        alone = match_colour(
            method, pixels[row : row + 1], reference[row : row + 1], weight[row : row + 1]
        )
        torch.testing.assert_close(together[row : row + 1], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_no_weight_and_flat_pictures_give_finite_colours(method: str) -> None:
    flat = torch.full((1, 3, 64, 64), 0.5)
    for weight in (FULL, torch.zeros_like(FULL)):
        result = match_colour(method, flat, skin(LIGHT), weight)
        assert result.isfinite().all()
        assert result.min() >= 0
        assert result.max() <= 1


def test_what_lies_outside_the_weight_decides_nothing() -> None:
    pixels, reference = skin(DARK, 1), skin(LIGHT, 2)
    weight = FULL.clone()
    weight[..., :20, :] = 0
    strange = reference.clone()
    strange[..., :20, :] = torch.tensor([0.0, 0.0, 1.0]).view(1, 3, 1, 1)
    for method in METHODS:
        a = match_colour(method, pixels, reference, weight)
        b = match_colour(method, pixels, strange, weight)
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


def test_tone_bends_highlights_and_shadows_of_skin_but_not_of_features() -> None:
    lab, reference = srgb_to_lab(skin(DARK, 1)), srgb_to_lab(skin(LIGHT, 2))
    tone = fit_tone(lab, reference, FULL)
    steps = torch.tensor([-30.0, -8.0, 0.0, 8.0, 30.0])
    probe = tone.source.expand(1, 3, 1, 5).clone()
    probe[:, 0, 0] += steps
    on_skin, on_feature = tone.lab(probe), tone.lab(probe, torch.ones(1, 1, 1, 5))
    risen = (on_skin - tone.target)[0, 0, 0] / steps
    assert risen[4] < 0.7 * risen[3]
    assert risen[0] < 0.8 * risen[1]
    feature = (on_feature - tone.target)[0, 0, 0] / steps
    torch.testing.assert_close(feature[0], tone.slope[0, 0, 0, 0], atol=1e-3, rtol=0)


def test_skin_gets_no_more_contrast_than_the_other_shows() -> None:
    hard, soft = srgb_to_lab(skin(DARK, 1, 0.3)), srgb_to_lab(skin(LIGHT, 2, 0.02))
    tone = fit_tone(hard, soft, FULL)
    assert tone.skin_slope < 0.6
    assert tone.slope > 1


def test_histograms_match_by_quantiles() -> None:
    generator = torch.Generator().manual_seed(4)
    pixels = torch.rand(1, 3, 64, 64, generator=generator) * 0.4 + 0.1
    reference = 0.3 + 0.5 * torch.rand(1, 3, 64, 64, generator=generator) ** 2
    matched = fit_histogram(pixels, reference, FULL)(pixels)
    levels = torch.linspace(0.02, 0.98, 25)
    for c in range(3):
        got, wanted = (torch.quantile(p[0, c].flatten(), levels) for p in (matched, reference))
        torch.testing.assert_close(got, wanted, atol=0.01, rtol=0)


def test_histogram_curves_never_fall() -> None:
    curve = fit_histogram(skin(DARK, 1), skin(LIGHT, 2), FULL).curve
    assert (curve.diff(dim=-1) >= 0).all()


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown colour method 'sepia'"):
        match_colour("sepia", skin(DARK), skin(LIGHT), FULL)


@pytest.mark.parametrize("method", ["tone", "lab", "hist"])
def test_a_black_and_white_reference_makes_the_face_black_and_white(method: str) -> None:
    rng = torch.Generator().manual_seed(5)
    coloured = torch.rand(1, 3, 64, 64, generator=rng) * torch.tensor([0.9, 0.6, 0.4]).view(3, 1, 1)
    grey = torch.rand(1, 1, 64, 64, generator=rng).expand(1, 3, 64, 64)
    noisy = grey + torch.randn(1, 3, 64, 64, generator=rng) / 500
    matched = match_colour(method, coloured, noisy, torch.ones(1, 1, 64, 64))
    assert (matched.amax(1) - matched.amin(1)).max() < 2 / 255
    # A reference in colour is not muted.
    matched = match_colour(method, coloured, coloured.flip(3), torch.ones(1, 1, 64, 64))
    assert (matched.amax(1) - matched.amin(1)).mean() > 20 / 255


def test_hair_stays_black_when_skin_loses_its_warmth() -> None:
    """Warm skin with black brows onto cooler skin: the brows must not turn blue."""
    warm, cool = torch.tensor([55.0, 18.0, 26.0]), torch.tensor([60.0, 14.0, 12.0])
    wave = torch.linspace(-4, 4, 64).repeat(64, 1)
    lab = warm.view(1, 3, 1, 1) + wave * torch.tensor([1.0, 0.5, 0.7]).view(1, 3, 1, 1)
    wanted = cool.view(1, 3, 1, 1) + wave.T * torch.tensor([1.0, 0.9, 1.0]).view(1, 3, 1, 1)
    tone = fit_tone(lab, wanted, torch.ones(1, 1, 64, 64))
    brow = tone.lab(torch.tensor([12.0, 1.0, 1.5]).view(1, 3, 1, 1))
    assert brow[0, 1:].min() >= -0.5
    assert brow[0, 1:].max() < 6
