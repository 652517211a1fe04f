"""HDR clips to SDR. The reference is BT.2390-10 section 5.4.1 and its neighbours, number by number.

That is the way tests/test_hdr.py has the curves of BT.2100.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from facefusion_cli.planes import frames_from_rgb, rgb_frames
from facefusion_cli.tonemap import SDR_COLOR, SDR_LAYOUT, ToneMap, eetf
from facefusion_cli.types import ColorSpec, FrameBatch, Light, PlaneLayout, VideoInfo
from tests.test_hdr import HLG, PQ, TO_709, TRANSFERS, hdr, hlg_code, hlg_scene, pq_code, pq_nits
from tests.test_planes import h273_codes

P3_D65 = tuple(Fraction(n, 1000) for n in (680, 320, 265, 690, 150, 60))


def clip(color: ColorSpec, light: Light | None = None, bits: int = 10) -> VideoInfo:
    return VideoInfo(
        path=Path("clip.mp4"),
        width=64,
        height=48,
        coded_size=(64, 48),
        rotation=0,
        frame_rate=Fraction(25),
        time_base=Fraction(1, 90_000),
        start=Fraction(0),
        duration_from_header=None,
        frame_count_from_header=None,
        pixel_format="yuv420p10le",
        layout=PlaneLayout((2, 2), bits),
        color=color,
        sample_aspect=Fraction(1),
        codec="hevc",
        container="mp4",
        hazards=frozenset({"hdr", "deep", "vfr"}),
        light=light,
    )


def mastered(nits: int) -> tuple[Fraction, ...]:
    white = (Fraction(3127, 10_000), Fraction(3290, 10_000))
    return (*P3_D65, *white, Fraction(1, 10_000), Fraction(nits))


def spline(signal: float, peak: float, target: float = 203) -> float:
    """BT.2390-10 section 5.4.1: PQ in, PQ out."""
    brightest = pq_code(peak)
    most = pq_code(target) / brightest
    e1 = min(signal / brightest, 1)
    start = 1.5 * most - 0.5
    if e1 < start:
        return e1 * brightest
    t = (e1 - start) / (1 - start)
    hermite = (
        (2 * t**3 - 3 * t**2 + 1) * start
        + (t**3 - 2 * t**2 + t) * (1 - start)
        + (-2 * t**3 + 3 * t**2) * most
    )
    return hermite * brightest


def expected(signal: tuple[float, ...], transfer: int, peak: float) -> list[float]:
    """R'G'B' of BT.709 for one R'G'B' of the clip."""
    if transfer == PQ:
        nits = [pq_nits(max(s, 0)) for s in signal]
    else:
        scene = [hlg_scene(max(s, 0)) for s in signal]
        luminance = sum(k * s for k, s in zip((0.2627, 0.6780, 0.0593), scene, strict=True))
        nits = [1000 * s * luminance**0.2 for s in scene]
    light = [pq_nits(spline(pq_code(n), peak)) / 203 for n in nits]
    mixed = [sum(k * x for k, x in zip(row, light, strict=True)) for row in TO_709]
    return [min(max(x, 0), 1) ** (1 / 2.4) for x in mixed]


def patches(signals: np.ndarray, color: ColorSpec, sampling: tuple[int, int]) -> FrameBatch:
    """[K,3] signals as 10-bit frames of one colour each, 4 x 6 pixels; codes are rounded."""
    matrix_only = replace(color, tags=(color.tags[0], 9, 14, 1))
    rgb = torch.from_numpy(signals).float()[:, :, None, None].expand(-1, 3, 4, 6)
    frames = frames_from_rgb(rgb, matrix_only, PlaneLayout(sampling, 10))
    return replace(frames, color=color)


def signals_of(frames: FrameBatch) -> np.ndarray:
    """[K,3] what the rounded codes mean."""
    plain = replace(frames.color, tags=(9, 9, 14, 1))
    return rgb_frames(replace(frames, color=plain))[:, :, 0, 0].double().numpy()


@pytest.mark.parametrize(("nits", "target"), [(1000, 203), (4000, 203), (10_000, 100), (150, 203)])
def test_the_eetf_is_that_of_bt2390(nits: float, target: float) -> None:
    signals = np.linspace(0, 1, 301)
    ours = eetf(torch.from_numpy(signals), nits, target).numpy()
    if target >= nits:
        np.testing.assert_array_equal(ours, signals)
        return
    truth = [spline(s, nits, target) for s in signals]
    np.testing.assert_allclose(ours, truth, atol=1e-12)
    assert ours.max() == pytest.approx(pq_code(target))
    assert (np.diff(ours) >= -1e-15).all()


@pytest.mark.parametrize("sampling", [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize("span", ["limited", "full"])
@pytest.mark.parametrize("transfer", TRANSFERS)
def test_colours_are_those_of_the_formulas(transfer: int, span: str, sampling) -> None:
    color = hdr(transfer, span)  # type: ignore[arg-type]
    signals = np.random.default_rng(3).uniform(0, 1, (400, 3))
    frames = patches(signals, color, sampling)
    made = ToneMap(clip(color), "bt2390")(frames)
    assert (made.color, made.layout, made.pts) == (SDR_COLOR, SDR_LAYOUT, frames.pts)
    truth = np.array([expected(tuple(s), transfer, 1000) for s in signals_of(frames)])
    codes = h273_codes(truth.T, SDR_COLOR, 8)
    got = np.stack([p[:, 0, 0].numpy() for p in made.planes]).astype(float)
    assert np.abs(got - codes).max() < 0.6
    for plane in made.planes:
        assert (plane == plane[:, :1, :1]).all()


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_landmarks_of_brightness(transfer: int) -> None:
    def shown(nits: float, light: Light | None = None) -> list[int]:
        signal = pq_code(nits) if transfer == PQ else hlg_code((nits / 1000) ** (1 / 1.2))
        color = hdr(transfer)
        made = ToneMap(clip(color, light), "bt2390")(
            patches(np.full((1, 3), signal), color, (2, 2))
        )
        return [int(p[0, 0, 0]) for p in made.planes]

    assert shown(0) == [16, 128, 128]
    assert shown(1000) == [235, 128, 128]
    # White is compressed a little, and what is darker than 87 cd/m2 not at all.
    assert shown(203)[0] == pytest.approx(16 + 219 * 0.901, abs=1)
    for nits in (5, 20, 60, 85):
        assert shown(nits)[0] == pytest.approx(16 + 219 * (nits / 203) ** (1 / 2.4), abs=1)
    if transfer == PQ:
        assert shown(4000) == shown(1000)
        assert shown(203, Light(max_cll=203))[0] == 235


def test_greys_stay_grey_and_in_order() -> None:
    for transfer in TRANSFERS:
        color = hdr(transfer)
        y = torch.arange(4, 1020).to(torch.uint16).repeat_interleave(4).view(-1, 2, 2)
        middle = torch.full((len(y), 1, 1), 512, dtype=torch.int32).to(torch.uint16)
        times = tuple(Fraction(i) for i in range(len(y)))
        frames = FrameBatch((y, middle, middle.clone()), color, PlaneLayout((2, 2), 10), times, 7)
        made = ToneMap(clip(color), "bt2390")(frames)
        assert made.first_index == 7
        luma, u, v = (p[:, 0, 0].int() for p in made.planes)
        assert (u == 128).all()
        assert (v == 128).all()
        assert (luma.diff() >= 0).all()
        assert luma[:61].unique().tolist() == [16]
        assert luma[936:].unique().tolist() == [235]


@pytest.mark.parametrize(
    ("light", "peak"),
    [
        (None, 1000),
        (Light(), 1000),
        (Light(mastered(4000)), 4000),
        (Light(mastered(4000), max_cll=1500, max_fall=300), 1500),
        (Light(mastered(1000), max_cll=20_000), 10_000),
    ],
)
def test_the_peak_is_the_clips(light: Light | None, peak: float) -> None:
    color = hdr(PQ)
    tonemap = ToneMap(clip(color, light), "bt2390")
    assert tonemap.peak == peak
    signals = np.linspace(0, 1, 40)[:, None].repeat(3, 1)
    frames = patches(signals, color, (1, 1))
    got = tonemap(frames).planes[0][:, 0, 0].numpy()
    truth = [16 + 219 * expected(tuple(s), PQ, peak)[0] for s in signals_of(frames)]
    assert np.abs(got - truth).max() < 0.6
    assert ToneMap(clip(hdr(HLG), light), "bt2390").peak == 1000


def test_the_clip_is_described_as_what_it_becomes() -> None:
    light = Light(mastered(1000), 900, 200)
    info = clip(hdr(PQ), light)
    made = ToneMap(info, "bt2390").info
    assert made == replace(
        info,
        color=ColorSpec("bt709", "limited", (1, 1, 1, 1)),
        layout=PlaneLayout((2, 2), 8),
        pixel_format="yuv420p",
        hazards=frozenset({"vfr"}),
        light=None,
    )
    with_alpha = replace(info, hazards=info.hazards | {"alpha"})
    assert ToneMap(with_alpha, "bt2390").info.pixel_format == "yuva420p"


def test_sdr_clips_are_left_alone() -> None:
    info = clip(ColorSpec("bt2020", "limited", (9, 9, 14, 1)))
    tonemap = ToneMap(info, "bt2390")
    assert tonemap.info is info
    frames = frames_from_rgb(torch.rand(1, 3, 4, 4), info.color, info.layout)
    assert tonemap(frames) is frames
    with pytest.raises(ValueError, match="'reinhard'; known: bt2390"):
        ToneMap(info, "reinhard")


def test_alpha_is_kept() -> None:
    color = hdr(PQ)
    alpha = torch.tensor([[0, 1, 341, 682, 1022, 1023]]).expand(4, 6)[None].to(torch.uint16)
    frames = replace(patches(np.full((1, 3), 0.5), color, (1, 1)), alpha=alpha)
    made = ToneMap(clip(color), "bt2390")(frames)
    assert made.alpha is not None
    assert made.alpha.dtype == torch.uint8
    assert made.alpha[0, 0].tolist() == [0, 0, 85, 170, 255, 255]


@pytest.mark.parametrize("size", [(70, 66), (71, 67), (1, 1), (33, 2)])
@pytest.mark.parametrize("case", [*product(TRANSFERS, [(1, 1), (2, 1), (2, 2)])])
def test_opencv_and_torch_agree(case: tuple[int, tuple[int, int]], size: tuple[int, int]) -> None:
    """The torch way, which GPUs take, run on a CPU."""
    transfer, sampling = case
    color = hdr(transfer)
    height, width = size
    rng = torch.Generator().manual_seed(5)
    rgb = torch.rand(2, 3, -(-height // 6), -(-width // 6), generator=rng)
    rgb = torch.nn.functional.interpolate(rgb, size, mode="bilinear")
    frames = frames_from_rgb(rgb, color, PlaneLayout(sampling, 10))
    tonemap = ToneMap(clip(color), "bt2390")
    made = tonemap(frames)
    assert (made.height, made.width) == size
    other = [tonemap._on_gpu(frames, i) for i in range(2)]
    for plane, parts in zip(made.planes, zip(*other, strict=True), strict=True):
        assert int((plane.int() - torch.cat(parts).int()).abs().max()) <= 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("transfer", TRANSFERS)
def test_a_gpu_does_the_same(transfer: int) -> None:
    color = hdr(transfer)
    rgb = torch.rand(2, 3, 11, 13, generator=torch.Generator().manual_seed(6))
    rgb = torch.nn.functional.interpolate(rgb, (67, 71), mode="bilinear")
    frames = frames_from_rgb(rgb, color, PlaneLayout((2, 2), 10))
    tonemap = ToneMap(clip(color), "bt2390")
    here, there = tonemap(frames), tonemap(frames.to("cuda"))
    assert there.planes[0].device.type == "cuda"
    for a, b in zip(here.planes, there.to("cpu").planes, strict=True):
        assert int((a.int() - b.int()).abs().max()) <= 1
