from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from facefusion_cli.stages import poisson
from facefusion_cli.stages.blend import DOMAIN_THRESHOLD, METHODS, blend, poisson_domain
from tests.stages.poisson_cases import KINDS, SIZES, domain, exact, pictures

LEVEL = 1 / 255
CASES = [
    (KINDS[i % len(KINDS)], SIZES[(i * 4 + i // len(SIZES)) % len(SIZES)], i) for i in range(50)
]
QUICK = [case for case in CASES if case[1] <= 64] + [("holes", 128, 50), ("blobs", 128, 51)]


def crop(kind: str, size: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (*pictures(size, rng), domain(kind, size, rng))


def tensors(*arrays: np.ndarray, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """Arrays as a batch of one; a mask gets its channel."""
    return tuple(
        torch.from_numpy(np.atleast_3d(a) if a.ndim == 3 else a[None]).to(dtype)[None]
        for a in arrays
    )


def soft_ellipse(size: int) -> Tensor:
    """[1,1,size,size] 1 inside, falling to 0 over a few pixels, off centre."""
    y, x = torch.meshgrid(*[torch.arange(size, dtype=torch.float32)] * 2, indexing="ij")
    radius = ((x - size * 0.55) / (size * 0.25)) ** 2 + ((y - size * 0.45) / (size * 0.35)) ** 2
    return ((1.2 - radius) * 3).clamp(0, 1)[None, None]


def solve_as_gpus_do(difference: Tensor, mask: Tensor) -> Tensor:
    """All faces together, a fixed number of iterations."""
    return poisson._solve_box(difference, poisson_domain(mask.float()), watch=False)


@pytest.mark.parametrize(
    "case",
    [*QUICK, *[pytest.param(case, marks=pytest.mark.long) for case in CASES if case not in QUICK]],
    ids=lambda case: "-".join(map(str, case)),
)
def test_poisson_is_the_direct_solution(case: tuple[str, int, int]) -> None:
    backdrop, source, mask = crop(*case)
    reference = exact(backdrop, source, mask)
    for dtype, levels in ((torch.float32, 0.25), (torch.float64, 1e-3)):
        b, s, m = tensors(backdrop, source, mask, dtype=dtype)
        for solve in (poisson.solve, solve_as_gpus_do):
            result = b + solve(s - b, m > 0)
            assert float(np.abs(result[0].numpy() - reference).max()) < levels * LEVEL


def test_blend_gives_the_solution_where_the_mask_is_one() -> None:
    backdrop, source, mask = crop("holes", 64, 3)
    result = blend(*tensors(backdrop, source, mask), "poisson")
    np.testing.assert_allclose(
        result[0].numpy(), exact(backdrop, source, mask), atol=1e-3 * LEVEL, rtol=0
    )


def test_a_soft_mask_mixes_the_solution_in() -> None:
    backdrop, source, _ = crop("ellipse", 64, 4)
    mask = soft_ellipse(64).double()
    hard = (mask > DOMAIN_THRESHOLD)[0, 0].numpy()
    weight = mask[0].numpy()
    expected = backdrop + weight * (exact(backdrop, source, hard) - backdrop)
    result = blend(*tensors(backdrop, source), mask, "poisson")
    np.testing.assert_allclose(result[0].numpy(), expected, atol=1e-3 * LEVEL, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_outside_the_mask_changes_by_a_bit(method: str) -> None:
    backdrop, source, _ = crop("ellipse", 96, 5)
    b, s = tensors(backdrop, source, dtype=torch.float32)
    mask = soft_ellipse(96)
    kept = mask.clone()
    result = blend(b, s, mask, method)
    outside = (mask == 0).expand_as(b)
    assert torch.equal(result[outside], b[outside])
    assert not torch.equal(result, b)
    assert torch.equal(mask, kept)
    assert result.dtype == b.dtype


@pytest.mark.parametrize("tone", [0.0, 0.2, -0.35])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_gradients_give_the_backdrop_back(kind: str, tone: float) -> None:
    backdrop, _, mask = crop(kind, 80, 6)
    b, m = tensors(backdrop, mask, dtype=torch.float32)
    result = blend(b, b + tone, m, "poisson")
    assert float((result - b).abs().max()) < 1e-4  # rounding of the difference, not of the solver


def test_a_harmonic_difference_gives_the_backdrop_back() -> None:
    backdrop, _, mask = crop("holes", 80, 7)
    b, m = tensors(backdrop, mask)
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, 80, dtype=torch.float64)] * 2, indexing="ij")
    result = blend(b, b + 0.3 * x - 0.2 * y + 0.1 * (x * x - y * y), m, "poisson")
    assert float((result - b).abs().max()) < 1e-5


def test_the_brightness_of_the_backdrop_is_kept_and_the_detail_of_the_source() -> None:
    backdrop = torch.full((1, 3, 64, 64), 0.3)
    detail = torch.zeros(64, 64)
    detail[28:36, 28:36] = 0.1
    pixels = (0.7 + detail).expand(1, 3, 64, 64)
    result = blend(backdrop, pixels, (soft_ellipse(64) > 0).float(), "poisson")
    torch.testing.assert_close(result, (0.3 + detail).expand_as(result), atol=3e-3, rtol=0)


def test_single_pixels_and_pairs_have_closed_solutions() -> None:
    backdrop, source, _ = crop("ellipse", 16, 8)
    mask = np.zeros((16, 16), bool)
    mask[5, 5] = mask[10, 3] = mask[10, 4] = True
    result = blend(*tensors(backdrop, source, mask), "poisson")[0].numpy()
    d = source - backdrop

    def laplacian(y: int, x: int) -> np.ndarray:
        return 4 * d[:, y, x] - d[:, y - 1, x] - d[:, y + 1, x] - d[:, y, x - 1] - d[:, y, x + 1]

    np.testing.assert_allclose(result[:, 5, 5], backdrop[:, 5, 5] + laplacian(5, 5) / 4, atol=1e-7)
    left, right = laplacian(10, 3), laplacian(10, 4)
    np.testing.assert_allclose(
        result[:, 10, 3], backdrop[:, 10, 3] + (4 * left + right) / 15, atol=1e-7
    )


@pytest.mark.parametrize("method", METHODS)
def test_an_empty_mask_and_no_faces_are_nothing_to_do(method: str) -> None:
    b, s = torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32)
    assert torch.equal(blend(b, s, torch.zeros(2, 1, 32, 32), method), b)
    assert blend(b[:0], s[:0], torch.zeros(0, 1, 32, 32), method).shape == (0, 3, 32, 32)


@pytest.mark.parametrize("watch", [True, False])
def test_faces_and_channels_of_a_batch_do_not_touch_each_other(watch: bool) -> None:
    cases = [crop(kind, 48, seed) for seed, kind in enumerate(("ellipse", "dust", "border"))]
    difference = torch.cat([tensors(s - b)[0] for b, s, _ in cases])
    masks = torch.stack([torch.from_numpy(m)[None] for *_, m in cases])
    masks = torch.cat([poisson_domain(masks.float()), torch.zeros(1, 1, 48, 48, dtype=torch.bool)])
    difference = torch.cat([difference, difference[:1]])

    solve = poisson.solve if watch else solve_as_gpus_do

    together = solve(difference, masks)
    for i in range(4):
        alone = solve(difference[i : i + 1, 1:2], masks[i : i + 1])
        torch.testing.assert_close(together[i : i + 1, 1:2], alone, atol=1e-6, rtol=0)
    assert not together[3].any()


@pytest.mark.parametrize("size", [(3, 3), (4, 9), (33, 70), (5, 200)])
def test_crops_of_any_size_are_solved(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(9)
    backdrop, source = rng.random((3, *size)), rng.random((3, *size))
    mask = np.ones(size, bool)
    result = blend(*tensors(backdrop, source, mask), "poisson")
    np.testing.assert_allclose(
        result[0].numpy(), exact(backdrop, source, mask), atol=1e-3 * LEVEL, rtol=0
    )


def test_half_precision_is_solved_in_single() -> None:
    backdrop, source, mask = crop("ellipse", 64, 10)
    b, s, m = tensors(backdrop, source, mask, dtype=torch.float16)
    result = blend(b, s, m, "poisson")
    assert result.dtype == torch.float16
    single = blend(b.float(), s.float(), m.float(), "poisson")
    assert float((result.float() - single).abs().max()) < 2e-3


def test_alpha_and_paste_are_what_they_say() -> None:
    b, s = torch.zeros(1, 3, 8, 8), torch.ones(1, 3, 8, 8)
    mask = torch.linspace(0, 1, 64).reshape(1, 1, 8, 8)
    torch.testing.assert_close(blend(b, s, mask, "alpha"), mask.expand_as(b))
    assert torch.equal(blend(b, s, mask, "none"), (mask > 0.5).float().expand_as(b))


@pytest.mark.parametrize(("width", "height"), [(40, 52), (41, 52), (40, 53), (41, 53), (126, 126)])
def test_opencv_clones_in_place(width: int, height: int) -> None:
    y, x = torch.meshgrid(torch.arange(128.0), torch.arange(128.0), indexing="ij")
    stripes = torch.stack([(x * 5 % 256), (y * 7 % 256), ((x + y) * 3 % 256)])[None] / 255
    mask = torch.zeros(1, 1, 128, 128)
    mask[..., 1 : 1 + height, 1 : 1 + width] = 1
    result = blend(stripes, stripes, mask, "opencv")
    assert float((result - stripes).abs().max()) <= 1.01 * LEVEL


def test_opencv_looks_like_poisson() -> None:
    backdrop, source, _ = crop("ellipse", 128, 11)
    b, s = tensors(backdrop * 0.5 + 0.25, source * 0.5 + 0.25, dtype=torch.float32)
    mask = (soft_ellipse(128) > 0).float()
    ours, theirs = blend(b, s, mask, "poisson"), blend(b, s, mask, "opencv")
    inside = mask.bool().expand_as(b)
    # It solves on the rectangle with the gradients switched, not on the mask: near, not equal.
    assert float((ours - theirs)[inside].abs().mean()) < 8 * LEVEL
    assert float((s - theirs)[inside].abs().mean()) > 16 * LEVEL


def test_opencv_passes_by_masks_too_small_for_it() -> None:
    b, s = torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32)
    mask = torch.zeros(2, 1, 32, 32)
    mask[0, 0, 8, 8] = 1
    mask[1, 0, 8, 3:20] = 1
    assert torch.equal(blend(b, s, mask, "opencv"), b)


def test_an_unknown_method_is_an_error() -> None:
    b = torch.rand(1, 3, 8, 8)
    with pytest.raises(ValueError, match="magic"):
        blend(b, b, b[:, :1], "magic")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("faces", [1, 3, 8, 21])
@pytest.mark.parametrize("size", [128, 256])
def test_a_gpu_solves_the_same(size: int, faces: int) -> None:
    for seed in (0, 100):
        cases = [crop(KINDS[i % len(KINDS)], size, seed + i) for i in range(faces)]
        b = torch.cat([tensors(c[0], dtype=torch.float32)[0] for c in cases])
        s = torch.cat([tensors(c[1], dtype=torch.float32)[0] for c in cases])
        m = torch.stack([torch.from_numpy(c[2])[None] for c in cases]).float()
        here = blend(b, s, m, "poisson")
        with torch.inference_mode():
            there = blend(b.cuda(), s.cuda(), m.cuda(), "poisson").cpu()
        assert float((here - there).abs().max()) < 0.25 * LEVEL
        outside = (m == 0).expand_as(b)
        assert torch.equal(there[outside], b[outside])
