"""HDR regions: what networks see of PQ and HLG clips, and that it goes back to the same codes.

The reference is written here from BT.2100, BT.2087, IEC 61966-2-1 and the docstring of transfer.py,
one number at a time in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

from facefusion_cli.config import load_config
from facefusion_cli.letterbox import letterbox
from facefusion_cli.pipeline import Engine
from facefusion_cli.planes import (
    frames_from_rgb,
    planes_matrix,
    read_region,
    read_signal,
    rgb_frames,
    rgb_matrix,
    write_region,
)
from facefusion_cli.report import Report
from facefusion_cli.stages.track import CERTAIN_STILL
from facefusion_cli.transfer import (
    from_sdr,
    hlg_inverse_oetf,
    is_hdr,
    pq_eotf,
    pq_inverse,
    primaries_matrix,
    to_sdr,
)
from facefusion_cli.types import ColorSpec, FrameBatch, Matrix, PlaneLayout, Range
from facefusion_cli.video.image_encoder import rgb_batch
from tests.people import portrait

PQ, HLG = 16, 18
TRANSFERS = [PQ, HLG]
RANGES: tuple[Range, ...] = ("limited", "full")
BT2407 = ((1.6605, -0.5876, -0.0728), (-0.1246, 1.1329, -0.0083), (-0.0182, -0.1006, 1.1187))
"""Linear BT.2020 to BT.709 as BT.2407 section 2.2 prints it."""
TO_709 = (
    (1.6604910021084345, -0.58764113878854951, -0.072849863319884745),
    (-0.12455047452159074, 1.1328998971259603, -0.0083494226043694768),
    (-0.018150763354905303, -0.10057889800800738, 1.1187296613629125),
)
"""The same to sixteen digits."""


def hdr(transfer: int, span: Range = "limited", matrix: Matrix = "bt2020") -> ColorSpec:
    return ColorSpec(matrix, span, (0 if matrix == "rgb" else 9, 9, transfer, 1))


def pq_nits(signal: float) -> float:
    """BT.2100 table 4."""
    m1, m2 = 2610 / 16384, 2523 / 4096 * 128
    c1, c2, c3 = 3424 / 4096, 2413 / 4096 * 32, 2392 / 4096 * 32
    root = signal ** (1 / m2)
    return float(10_000 * (max(root - c1, 0) / (c2 - c3 * root)) ** (1 / m1))


def pq_code(nits: float) -> float:
    m1, m2 = 2610 / 16384, 2523 / 4096 * 128
    c1, c2, c3 = 3424 / 4096, 2413 / 4096 * 32, 2392 / 4096 * 32
    y = (nits / 10_000) ** m1
    return float(((c1 + c2 * y) / (1 + c3 * y)) ** m2)


def hlg_scene(signal: float) -> float:
    """BT.2100 table 5."""
    a, b, c = 0.17883277, 0.28466892, 0.55991073
    return signal**2 / 3 if signal <= 0.5 else (math.exp((signal - c) / a) + b) / 12


def hlg_code(scene: float) -> float:
    a, b, c = 0.17883277, 0.28466892, 0.55991073
    return math.sqrt(3 * scene) if scene <= 1 / 12 else a * math.log(12 * scene - b) + c


def odd(curve: Callable[[float], float], x: float) -> float:
    return math.copysign(curve(abs(x)), x)


def straight(curve: Callable[[float], float], end: float, top: float, x: float) -> float:
    """A curve over 0..1 whose first piece is its tangent at end; past 1 a line of the slope top."""
    h = 1e-6
    step = (curve(end + h) - curve(end - h)) / (2 * h)
    if x <= end:
        return step * x
    lift = step * end - curve(end)
    if x <= 1:
        return curve(x) + lift
    return curve(1) + lift + top * (x - 1)


def expected(signal: tuple[float, float, float], transfer: int) -> list[float]:
    """SDR of one R'G'B'."""
    if transfer == PQ:
        end = pq_code(0.1)
        light = [odd(lambda x: straight(pq_nits, end, 10_000, x), s) / 203 for s in signal]
    else:
        least = (0.1 / 1000) ** (1 / 1.2)
        end = math.sqrt(3 * least)
        scene = [
            odd(lambda x: straight(hlg_scene, end, (12 - 0.28466892) / (12 * 0.17883277), x), s)
            for s in signal
        ]
        luminance = sum(k * s for k, s in zip((0.2627, 0.6780, 0.0593), scene, strict=True))
        light = [s * max(luminance, least) ** 0.2 * 1000 / 203 for s in scene]
    m = 0.14485392
    brightest = max(abs(x) for x in light)
    if brightest > 0.5:
        factor = (0.5 + m * math.log(1 + (brightest - 0.5) / m)) / brightest
        light = [x * factor for x in light]

    def srgb(x: float) -> float:
        return 12.92 * x if x <= 0.0031308 else 1.055 * x ** (1 / 2.4) - 0.055

    mixed = [sum(k * s for k, s in zip(row, light, strict=True)) for row in TO_709]
    return [odd(srgb, x) for x in mixed]


def picture(values: Tensor | np.ndarray) -> Tensor:
    """[K,3] as [1,3,1,K]."""
    return torch.as_tensor(values, dtype=torch.float32).T[None, :, None].contiguous()


@pytest.mark.parametrize(
    ("nits", "signal"), [(0.1, 0.0623), (100, 0.5081), (203, 0.5807), (1000, 0.7518), (10_000, 1)]
)
def test_pq_at_known_points(nits: float, signal: float) -> None:
    assert float(pq_inverse(torch.tensor(nits / 10_000))) == pytest.approx(signal, abs=5e-5)
    exact = torch.tensor(pq_code(nits), dtype=torch.float64)
    assert float(pq_eotf(exact)) * 10_000 == pytest.approx(nits, rel=1e-9)
    assert float(pq_eotf(exact.float())) * 10_000 == pytest.approx(nits, rel=1e-5)


def test_hlg_at_known_points() -> None:
    scene = hlg_inverse_oetf(torch.tensor([0, 0.5, 0.75, 1], dtype=torch.float64))
    assert scene.tolist() == pytest.approx([0, 1 / 12, 0.26496, 1], abs=1e-5)
    # BT.2408 table 1: on a display of 1000 cd/m2 a signal of 75 % is diffuse white.
    assert 1000 * float(scene[2]) ** 1.2 == pytest.approx(203, abs=0.5)


def test_primaries_are_those_of_bt2407() -> None:
    np.testing.assert_allclose(primaries_matrix(hdr(PQ)), BT2407, atol=6e-5)
    np.testing.assert_allclose(primaries_matrix(hdr(PQ)), TO_709, atol=1e-12)
    unspecified = ColorSpec("bt2020", "limited", (9, 2, PQ, 1))
    np.testing.assert_array_equal(primaries_matrix(unspecified), primaries_matrix(hdr(PQ)))
    for number in (1, 9, 11, 12):
        matrix = primaries_matrix(ColorSpec("bt2020", "limited", (9, number, PQ, 1)))
        np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-12)
    same = primaries_matrix(ColorSpec("bt2020", "limited", (9, 1, PQ, 1)))
    np.testing.assert_allclose(same, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("transfer", TRANSFERS)
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-0.7, 1.7)])
def test_the_curve_is_the_one_described(transfer: int, low: float, high: float) -> None:
    signals = np.random.default_rng(0).uniform(low, high, (500, 3))
    ours = to_sdr(picture(signals), hdr(transfer))[0, :, 0].T.numpy()
    truth = np.array([expected(tuple(s), transfer) for s in signals])
    assert np.abs(ours - truth).max() < 2e-5


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_greys_stay_grey_and_in_order(transfer: int) -> None:
    steps = torch.linspace(-0.1, 1.2, 13_001)
    shown = to_sdr(picture(steps[:, None].expand(-1, 3)), hdr(transfer))[0, :, 0]
    assert float((shown - shown[:1]).abs().max()) < 1e-5
    rise = shown[0].double().diff() / (steps[1] - steps[0])
    assert float(rise[steps[1:] < 1].min()) > 0.1
    assert float(rise.min()) > 0.03
    # Without kinks up to 1: neighbours' slopes are alike, but for HLG's at 0.1 cd/m2.
    bends = (rise[1:] / rise[:-1]).log().abs()[steps[2:] < 1]
    assert float(bends.max()) < (0.03 if transfer == PQ else 0.2)
    if transfer == PQ:
        below = to_sdr(picture(-steps[:, None].expand(-1, 3)), hdr(PQ))[0, :, 0]
        assert torch.equal(below, -shown)


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_brightness_is_that_of_an_sdr_picture(transfer: int) -> None:
    def shown(nits: float) -> float:
        signal = pq_code(nits) if transfer == PQ else hlg_code((nits / 1000) ** (1 / 1.2))
        return float(to_sdr(picture([[signal] * 3]), hdr(transfer))[0, 1])

    assert shown(0) == pytest.approx(0, abs=1e-6)
    assert 0.86 < shown(203) < 0.87
    assert shown(1000) == pytest.approx(1, abs=1e-3)
    for reflectance in (0.1, 0.18, 0.35, 0.5):
        linear = 1.055 * reflectance ** (1 / 2.4) - 0.055
        assert shown(203 * reflectance) == pytest.approx(linear, abs=0.006)
    if transfer == PQ:
        assert shown(10_000) == pytest.approx(1.138, abs=1e-3)


def grid(bits: int, color: ColorSpec) -> Tensor:
    """[3,K] codes: greys one by one, a grid over all three planes, all corners, and noise."""
    step = 2 ** (bits - 10)
    low, high = (64 * step, 940 * step) if color.range == "limited" else (0, 2**bits - 1)
    greys = np.arange(low, high + 1)
    if color.matrix == "rgb":
        greys = np.stack([greys] * 3)
    else:
        greys = np.stack([greys, *[np.full_like(greys, 2 ** (bits - 1))] * 2])
    # Among them colours far outside of RGB, which no camera gives but a codec may.
    line = np.unique(np.linspace(low, high, 23).round().astype(int))
    line = np.concatenate([line, low + np.arange(1, 6), high - np.arange(1, 6)])
    cube = np.array(list(product(line, repeat=3))).T
    noise = np.random.default_rng(1).integers(low, high + 1, (3, 20_000))
    return torch.from_numpy(np.concatenate([greys, cube, noise], 1))


def frames_of(codes: Tensor, color: ColorSpec, bits: int, sampling: tuple[int, int]) -> FrameBatch:
    """One frame in which every code triple fills a chroma cell."""
    side = math.ceil(math.sqrt(codes.shape[1]))
    padded = torch.cat([codes, codes[:, :1].expand(3, side * side - codes.shape[1])], 1)
    y, u, v = padded.view(3, 1, side, side).to(torch.uint16 if bits > 8 else torch.uint8)
    sx, sy = sampling
    y = torch.from_numpy(y.numpy().repeat(sy, 1).repeat(sx, 2))
    return FrameBatch((y, u, v), color, PlaneLayout(sampling, bits), (Fraction(0),), 0)


def whole(frames: FrameBatch) -> tuple[int, int, int, int]:
    return 0, 0, frames.width, frames.height


def codes_off(a: FrameBatch, b: list[Tensor]) -> float:
    """Largest difference, in codes of 10 bits."""
    scale = 2 ** (a.layout.bits - 10)
    pairs = zip(a.planes, b, strict=True)
    return max(float((p.double() - q.double()).abs().max()) for p, q in pairs) / scale


CASES = [
    *product(
        TRANSFERS, RANGES, (10, 12), [("bt2020", (1, 1)), ("bt2020", (2, 2)), ("rgb", (1, 1))]
    ),
    *product(TRANSFERS, RANGES, (16,), [("bt2020", (1, 1))]),
]


@pytest.mark.parametrize(("transfer", "span", "bits", "kind"), CASES)
def test_every_code_comes_back(
    transfer: int, span: Range, bits: int, kind: tuple[Matrix, tuple[int, int]]
) -> None:
    """Within 2 codes of 10 bits is asked for; by the differences that are written, exactly."""
    matrix, sampling = kind
    color = hdr(transfer, span, matrix)
    frames = frames_of(grid(bits, color), color, bits, sampling)
    before = [p.clone() for p in frames.planes]
    region = read_region(frames, 0, whole(frames))
    write_region(frames, 0, whole(frames), region, torch.ones_like(region[:1]))
    assert codes_off(frames, before) == 0
    # The unrounded way there and back, not only the difference of two equal ways.
    signal = read_signal(frames, 0, whole(frames))
    lost = (from_sdr(region[None], color)[0] - signal).abs().max()
    assert float(lost) * 876 < 0.7
    usual = (signal.amax(0) < pq_code(1000)) & (signal.amin(0) > -0.05)
    lost = (from_sdr(region[None], color)[0] - signal)[:, usual].abs().max()
    assert float(lost) * 876 < 0.05
    again = frames_from_rgb(region[None], color, frames.layout)
    # In 4:2:0 chroma is interpolated between cells; a cell's mean is what is stored.
    assert codes_off(again, before) <= (2 if sampling == (2, 2) else 1)


@pytest.mark.parametrize(("transfer", "span", "bits"), [*product(TRANSFERS, RANGES, (10, 12))])
@pytest.mark.parametrize("change", [1 / 255, -1 / 255, 3 / 255, -3 / 255])
def test_a_small_change_is_undone(transfer: int, span: Range, bits: int, change: float) -> None:
    """There and back, rounded to codes in between, where there are codes for it."""
    color = hdr(transfer, span)
    greys = grid(bits, color)[:, : 876 * 2 ** (bits - 10)]
    frames = frames_of(greys, color, bits, (1, 1))
    shown = rgb_frames(frames)[0, 1].flatten()[: greys.shape[1]]
    # Above 10 000 cd/m2 codes soon end, and full range has none below black.
    fits = shown + change <= shown.max()
    if span == "full":
        fits &= shown + change >= 0
    assert fits.float().mean() > 0.8
    frames = frames_of(greys[:, fits], color, bits, (1, 1))
    before = [p.clone() for p in frames.planes]
    ones = torch.ones(1, frames.height, frames.width)
    for step in (change, -change):
        region = read_region(frames, 0, whole(frames))
        write_region(frames, 0, whole(frames), region + step, ones)
    assert codes_off(frames, before) <= 2


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_what_is_written_is_what_is_read(transfer: int) -> None:
    """Colours of an SDR photo, at full and at half weight."""
    color = hdr(transfer)
    photo = torch.rand(3, 24, 24, generator=torch.Generator().manual_seed(2)) * 0.5 + 0.25
    frames = frames_from_rgb(torch.full((1, 3, 24, 24), 0.4), color, PlaneLayout((1, 1), 10))
    write_region(frames, 0, whole(frames), photo, torch.ones(1, 24, 24))
    error = (read_region(frames, 0, whole(frames)) - photo).abs()
    # Half a code of luma and chroma, and BT.2020's codes are further apart than BT.709's.
    assert float(error.max()) < 0.012
    assert float(error.mean()) < 0.002
    frames = frames_from_rgb(torch.full((1, 3, 24, 24), 0.4), color, PlaneLayout((1, 1), 10))
    write_region(frames, 0, whole(frames), photo, torch.full((1, 24, 24), 0.5))
    old = from_sdr(torch.full((1, 3, 24, 24), 0.4), color)
    half = (from_sdr(photo[None], color) + old) / 2
    assert float((read_signal(frames, 0, whole(frames)) - half[0]).abs().max()) < 2 / 876


def test_unweighted_bytes_stay() -> None:
    color = hdr(PQ)
    frames = frames_of(grid(10, color), color, 10, (2, 2))
    before = [p.clone() for p in frames.planes]
    weight = torch.zeros(1, frames.height, frames.width)
    weight[:, 10:20, 10:20] = 1
    region = read_region(frames, 0, whole(frames))
    write_region(frames, 0, whole(frames), region * 0.5 + 0.2, weight)
    for plane, old, step in zip(frames.planes, before, (1, 2, 2), strict=True):
        changed = (plane != old)[0]
        inside = torch.zeros_like(changed)
        inside[10 // step : 20 // step, 10 // step : 20 // step] = True
        assert changed[inside].float().mean() > 0.5
        assert not changed[~inside].any()


def test_the_signal_can_be_read_as_it_is() -> None:
    color = hdr(PQ)
    frames = frames_of(grid(10, color)[:, ::7], color, 10, (1, 1))
    plain = ColorSpec("bt2020", "limited", (9, 9, 14, 1))
    sdr = FrameBatch(frames.planes, plain, frames.layout, frames.pts, 0)
    assert not is_hdr(plain)
    signal = read_signal(frames, 0, whole(frames))
    assert torch.equal(signal, read_region(sdr, 0, whole(sdr)))
    codes = np.stack([p[0].numpy() for p in frames.planes]).astype(float)
    inverse = rgb_matrix(color, 10)
    truth = np.einsum("ij,jhw->ihw", inverse[:, :3], codes) + inverse[:, 3][:, None, None]
    assert np.abs(signal.numpy() - truth).max() < 1e-5


def test_images_hold_the_signal() -> None:
    """A PNG that says it is PQ must be PQ."""
    frames = frames_of(grid(10, hdr(PQ))[:, :1600], hdr(PQ), 10, (1, 1))
    green, blue, red = (p[0].double() / 65535 for p in rgb_batch(frames, 16).planes)
    signal = read_signal(frames, 0, whole(frames)).clamp(0, 1)
    assert float((torch.stack([red, green, blue]) - signal).abs().max()) < 1e-5


@pytest.mark.parametrize("transfer", TRANSFERS)
@pytest.mark.parametrize("sampling", [(1, 1), (2, 2)])
def test_letterboxes_show_the_same_picture(transfer: int, sampling: tuple[int, int]) -> None:
    color = hdr(transfer)
    ramp = torch.linspace(0, 1, 256).expand(3, 192, 256).clone()
    ramp[1] *= 0.8
    ramp[2] *= 0.6
    frames = frames_from_rgb(ramp[None], color, PlaneLayout(sampling, 10))
    small, scale = letterbox(frames, 128, 128)
    assert scale == 0.5
    truth = rgb_frames(frames)[0].unflatten(2, (128, 2)).mean(-1)[:, ::2]
    assert float((small[0, :, :96] - truth.clamp(0, 1)).abs().max()) < 0.02
    assert float((small[0, :, :96] - truth.clamp(0, 1)).abs().mean()) < 0.002
    assert not small[0, :, 96:].any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("transfer", "span", "bits"), [*product(TRANSFERS, RANGES, (10, 12))])
def test_a_gpu_gives_the_codes_back_too(transfer: int, span: Range, bits: int) -> None:
    color = hdr(transfer, span)
    frames = frames_of(grid(bits, color), color, bits, (1, 1))
    before = [p.clone() for p in frames.planes]
    there = frames.to("cuda")
    region = read_region(there, 0, whole(there))
    torch.testing.assert_close(
        region.cpu(), read_region(frames, 0, whole(frames)), atol=2e-5, rtol=0
    )
    write_region(there, 0, whole(there), region, torch.ones_like(region[:1]))
    assert codes_off(there.to("cpu"), before) == 0
    assert codes_off(frames_from_rgb(region[None], color, there.layout).to("cpu"), before) <= 1


def linear(srgb: np.ndarray) -> np.ndarray:
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def graded(rgb: np.ndarray, transfer: int, white: float) -> np.ndarray:
    """An SDR picture [h,w,3] as R'G'B' of an HDR clip, its white at so many cd/m2."""
    nits = white * (linear(rgb) @ np.linalg.inv(TO_709).T)
    if transfer == PQ:
        return np.vectorize(pq_code)(nits)
    luminance = nits @ np.array([0.2627, 0.6780, 0.0593]) / 1000
    scene = nits / 1000 * np.maximum(luminance, 1e-9)[..., None] ** (-1 / 6)
    return np.vectorize(hlg_code)(scene)


def shown_as_sdr(signal: np.ndarray, transfer: int, white: float) -> np.ndarray:
    """The inverse of graded()."""
    if transfer == PQ:
        nits = np.vectorize(pq_nits)(signal.clip(0))
    else:
        scene = np.vectorize(hlg_scene)(signal.clip(0))
        luminance = scene @ np.array([0.2627, 0.6780, 0.0593])
        nits = 1000 * scene * luminance[..., None] ** 0.2
    light = (nits / white @ np.array(TO_709).T).clip(0, 1)
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


SIDE = 256
SDR = ColorSpec("bt709", "limited", (1, 1, 1, 1))


def still(signal: np.ndarray, color: ColorSpec) -> FrameBatch:
    """R'G'B' [h,w,3] of a clip as a frame of 10 bits."""
    plain = ColorSpec(color.matrix, color.range, (color.tags[0], color.tags[1], 1, 1))
    rgb = torch.from_numpy(signal).float().permute(2, 0, 1)[None]
    made = frames_from_rgb(rgb, plain, PlaneLayout((2, 2), 10))
    return FrameBatch(made.planes, color, made.layout, made.pts, 0)


def swapped(engine: Engine, photo: Path, frames: FrameBatch) -> FrameBatch:
    """The frame with the photo's face on it."""
    new = FrameBatch(
        tuple(p.clone() for p in frames.planes),  # type: ignore[arg-type]
        frames.color,
        frames.layout,
        frames.pts,
        0,
    )
    engine.clip(photo, certain=CERTAIN_STILL).swap(new)
    return new


def picture_of(frames: FrameBatch) -> np.ndarray:
    """[h,w,3] the clip's own R'G'B'."""
    return read_signal(frames, 0, whole(frames)).permute(1, 2, 0).double().numpy()


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(load_config(flags={"runtime": {"device": "cpu"}}), Report())


@pytest.mark.parametrize("person", ["P002", "P005"])
def test_a_face_gets_the_colours_it_gets_in_sdr(
    engine: Engine, source_photo: Path, person: str
) -> None:
    """The same portrait as SDR, HDR10 and HLG; white at 203 cd/m2; swapped; compared as SDR."""
    target = portrait(person, SIDE) / 255
    plain = picture_of(swapped(engine, source_photo, still(target, SDR))).clip(0, 1)
    new = np.abs(plain - target).max(-1) > 0.02
    for transfer in TRANSFERS:
        before = still(graded(target, transfer, 203), hdr(transfer))
        frames = swapped(engine, source_photo, before)
        ours = shown_as_sdr(picture_of(frames), transfer, 203)
        changed = np.abs(ours - target).max(-1) > 0.02
        assert changed.sum() > 2000
        assert (changed & new).sum() > 0.9 * (changed | new).sum()
        skin = cv2.erode((changed & new).astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
        difference = 255 * (ours[skin].mean(0) - plain[skin].mean(0))
        assert np.abs(difference).max() < 4, difference
        assert np.abs(255 * (ours - plain))[skin].mean() < 4
        edge = SIDE // 16
        for old, plane in zip(before.planes, frames.planes, strict=True):
            assert torch.equal(old[:, :edge], plane[:, :edge])
            assert torch.equal(old[:, :, :edge], plane[:, :, :edge])


def test_the_planes_of_known_hdr_colours() -> None:
    """BT.2408's diffuse white in PQ is 58 %: 572 of 10 bits; HLG's 75 %: 721."""
    white = to_white(PQ), to_white(HLG)
    assert white == (573, 721)
    assert planes_matrix(hdr(PQ), 10)[0, 3] == 64


def to_white(transfer: int) -> int:
    """Code of 203 cd/m2 grey, by the inverse of the curve."""
    signal = pq_code(203) if transfer == PQ else 0.75
    shown = to_sdr(picture([[signal] * 3]), hdr(transfer)).view(1, 3, 1, 1)
    frames = frames_from_rgb(shown, hdr(transfer), PlaneLayout((1, 1), 10))
    return int(frames.planes[0][0, 0, 0])
