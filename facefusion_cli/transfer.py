"""What networks and generators see of HDR clips: one invertible curve between PQ or HLG and SDR.

Photos are sRGB, and the networks were trained on such. A PQ or HLG signal looks flat and grey when
taken for sRGB, so a face's region is shown as an SDR picture of the same scene would show it, and
what comes back goes through the exact inverse. Four steps, all of them one to one on all numbers,
in units of the diffuse white of ITU-R BT.2408, 203 cd/m2:

1. Light. PQ: the EOTF of SMPTE ST 2084 = ITU-R BT.2100. HLG: the inverse OETF and the OOTF of
   BT.2100 for a display of 1000 cd/m2, on which a signal of 75 % is diffuse white. Up to 0.1 cd/m2
   the curve is a straight line, as sRGB has one, and the rest is moved up to meet it without a kink
   (PQ by 0.14 cd/m2, HLG by less than 0.6). Without that, the inverse would be infinitely steep at
   black: neither float32 nor 10-bit codes could take a change there and its undoing. (HLG's OOTF
   multiplies by a power of luminance; up to 0.1 cd/m2 that factor is constant, a bend of a fifth in
   slope.) Beyond the signal's 1 the curve goes on as a line (PQ: 10 000 cd/m2 more for each 1, HLG:
   its tangent), below 0 as its own mirror image.
2. Shoulder: light as it is up to 0.5, so skin has the values it has in SDR; beyond that
   k + m ln(1 + (x - k) / m), without a kink, with m such that 1000 cd/m2 is 1. White lands at 0.87
   of sRGB. Brighter light, up to 1.14 at 10 000 cd/m2, is kept above 1. That 1 means 1000 and not
   10 000 cd/m2 is for the way back: a glint that is 1 in an SDR photo shall not blind. x is the
   brightest channel, and all three are multiplied alike: a channel at a time, bright skin would
   turn yellow, and the new face's colours would be torn apart on the way back.
3. Primaries: BT.2020 or P3 to BT.709 by a matrix. Coming after the shoulder it mixes values of at
   most 1.7, so that float32 keeps a dark channel beside a bright one: there and back is good for
   0.05 codes of 10 bits up to 1000 cd/m2, and for 0.7 on all codes. Up to 0.5 it is the conversion
   in linear light. Wider colours are negative or over 1.
4. The curve of sRGB (IEC 61966-2-1), mirrored below 0.

The curve is ffx's own. BT.2390's EETF, which converts whole clips (see tonemap.py), has a flat top
and so no inverse.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from facefusion_cli.types import ColorSpec

PQ, HLG = 16, 18
"""H.273 transfer characteristics."""
WHITE = 203.0
"""Diffuse white of HDR pictures in cd/m2 (BT.2408-7, section 2.1)."""
PQ_PEAK = 10_000.0
"""cd/m2 at a PQ signal of 1."""
HLG_PEAK = 1000.0
"""cd/m2 of the display that HLG is shown on."""
HLG_GAMMA = 1.2
"""Exponent of the OOTF for such a display."""

# BT.2100 table 4.
_M1, _M2 = 2610 / 16384, 2523 / 4096 * 128
_C2, _C3 = 2413 / 4096 * 32, 2392 / 4096 * 32
_C23 = _C2 - _C3
# BT.2100 table 5.
_A, _B, _C = 0.17883277, 0.28466892, 0.55991073
LUMINANCE_2020 = (0.2627, 0.6780, 0.0593)
"""Shares of red, green and blue in the luminance of BT.2020."""

_DARK = 0.1
"""cd/m2 up to which the curves are straight."""
_KNEE = 0.5
_PHOTO_PEAK = 1000.0
"""cd/m2 shown as 1."""

_SRGB_BEND = 0.0031308

_CHROMATICITIES = {
    1: ((0.640, 0.330), (0.300, 0.600), (0.150, 0.060)),
    9: ((0.708, 0.292), (0.170, 0.797), (0.131, 0.046)),
    12: ((0.680, 0.320), (0.265, 0.690), (0.150, 0.060)),
}
"""Red, green and blue of H.273 colour_primaries with the white D65: BT.709, BT.2020, P3."""
_D65 = (0.3127, 0.3290)


def is_hdr(color: ColorSpec) -> bool:
    """Whether the signal is PQ or HLG."""
    return color.tags[2] in (PQ, HLG)


def to_sdr(signal: Tensor, color: ColorSpec) -> Tensor:
    """An HDR signal as SDR shows it; see the module's docstring.

    Args:
        signal: [N,3,h,w] float32 R'G'B' of the clip, 0..1 and what lies beyond.
        color: Names the transfer and the primaries.

    Returns:
        [N,3,h,w] float32, sRGB and BT.709; values outside 0..1 are brighter than 1000 cd/m2 or
        outside BT.709's gamut.
    """
    signal = signal.contiguous()
    light = _pq_light(signal) if color.tags[2] == PQ else _hlg_light(signal)
    return _srgb(_gamut(_shoulder(light), color, inverse=False))


def from_sdr(rgb: Tensor, color: ColorSpec) -> Tensor:
    """The inverse of to_sdr().

    Args:
        rgb: [N,3,h,w] float32.
        color: Names the transfer and the primaries.
    """
    light = _shoulder_inverse(_gamut(_linear(rgb.contiguous()), color, inverse=True))
    return _pq_signal(light) if color.tags[2] == PQ else _hlg_signal(light)


def pq_eotf(signal: Tensor) -> Tensor:
    """Light of PQ signals, 1 = 10 000 cd/m2 (BT.2100 table 4); signals from 1e-6 to 1.

    With q = N^(1/m2) - 1 the EOTF is ((q + c2 - c3) / (c2 - c3 - c3 q))^(1/m1): expm1 gives q
    without the cancellation that c2 - c3 N^(1/m2) suffers in float32.
    """
    q = torch.expm1(torch.log(signal).mul_(1 / _M2))
    return _power_((q + _C23).div_(_C23 - _C3 * q), 1 / _M1)


def pq_inverse(light: Tensor) -> Tensor:
    """PQ signals of light, 1 = 10 000 cd/m2 (BT.2100 table 4); light from 1e-9 to 1."""
    y = _power_(light.clone(), _M1)
    return torch.log1p((y - 1).mul_(_C23).div_(1 + _C3 * y)).mul_(_M2).exp_()


def hlg_inverse_oetf(signal: Tensor) -> Tensor:
    """Scene light 0..1 of HLG signals 0..1 (BT.2100 table 5)."""
    low, high = signal.clamp_max(0.5), signal.clamp_min(0.5)
    return low.square_().div_(3).add_(high.sub_(_C).div_(_A).exp_().add_(_B - 1).div_(12))


@lru_cache
def primaries_matrix(color: ColorSpec) -> np.ndarray:
    """[3,3] float64 from linear RGB of a clip to that of BT.709, white to white.

    Unspecified primaries are BT.2020's, the only ones that BT.2100 has for PQ and HLG.
    """
    number = {2: 9, 11: 12}.get(color.tags[1], color.tags[1])
    own = _CHROMATICITIES.get(number, _CHROMATICITIES[1])
    matrix: np.ndarray = np.linalg.inv(_to_xyz(_CHROMATICITIES[1])) @ _to_xyz(own)
    return matrix


def luminance_2020(rgb: Tensor) -> Tensor:
    """Luminance [N,1,h,w] of linear RGB [N,3,h,w]."""
    red, green, blue = (rgb[:, k : k + 1] for k in range(3))
    return (
        (red * LUMINANCE_2020[0])
        .add_(green, alpha=LUMINANCE_2020[1])
        .add_(blue, alpha=LUMINANCE_2020[2])
    )


def affine(values: Tensor, matrix: np.ndarray, out: Tensor | None = None) -> Tensor:
    """A map over the channels of [N,3,h,w]; no matmul, which may run in TF32 on a GPU.

    Args:
        values: Float.
        matrix: [3,3], or [3,4] with a constant.
        out: Receives the result where given.
    """
    out = torch.empty_like(values) if out is None else out
    for number, row in enumerate(matrix.tolist()):
        terms = [(k, factor) for k, factor in enumerate(row[:3]) if factor]
        first, factor = terms[0]
        channel = torch.mul(values[:, first], factor)
        for k, factor in terms[1:]:
            channel.add_(values[:, k], alpha=factor)
        torch.add(channel, row[3] if len(row) > 3 else 0.0, out=out[:, number])
    return out


def _pq_exact(signal: float) -> float:
    q = math.expm1(math.log(signal) / _M2)
    return float(((q + _C23) / (_C23 - _C3 * q)) ** (1 / _M1))


def _pq_exact_inverse(light: float) -> float:
    y = light**_M1
    return float((1 + _C23 * (y - 1) / (1 + _C3 * y)) ** _M2)


def _slope(signal: float) -> float:
    """Of the PQ EOTF, by its formula's derivative."""
    q = math.expm1(math.log(signal) / _M2)
    per_q = 1 / (q + _C23) + _C3 / (_C23 - _C3 * q)
    return _pq_exact(signal) / _M1 * per_q * (q + 1) / (_M2 * signal)


_PQ_UNIT = PQ_PEAK / WHITE
_PQ_DARK = _pq_exact_inverse(_DARK / PQ_PEAK)
_PQ_STEP = _slope(_PQ_DARK) * _PQ_UNIT
_PQ_LIFT = _PQ_STEP * _PQ_DARK - _DARK / WHITE
_PQ_TOP_STEP = _PQ_UNIT
_PQ_ENDS = (_PQ_STEP * _PQ_DARK, _PQ_UNIT + _PQ_LIFT)


def _pq_light(signal: Tensor) -> Tensor:
    """Light over white, mirrored at 0: the sum of a line, the curve, and another line."""
    size = signal.abs()
    light = pq_eotf(size.clamp(_PQ_DARK, 1)).mul_(_PQ_UNIT)
    light.add_(size.clamp_max(_PQ_DARK).sub_(_PQ_DARK), alpha=_PQ_STEP).add_(_PQ_LIFT)
    light.add_(size.clamp_min_(1).sub_(1), alpha=_PQ_TOP_STEP)
    return light.copysign_(signal)


def _pq_signal(light: Tensor) -> Tensor:
    size = light.abs()
    low, high = _PQ_ENDS
    signal = pq_inverse(size.clamp(low, high).sub_(_PQ_LIFT).div_(_PQ_UNIT))
    signal.add_(size.clamp_max(low).sub_(low), alpha=1 / _PQ_STEP)
    signal.add_(size.clamp_min_(high).sub_(high), alpha=1 / _PQ_TOP_STEP)
    return signal.copysign_(light)


_HLG_UNIT = HLG_PEAK / WHITE
_HLG_LEAST = (_DARK / HLG_PEAK) ** (1 / HLG_GAMMA)
"""Scene light of 0.1 cd/m2."""
_HLG_DARK = math.sqrt(3 * _HLG_LEAST)
_HLG_STEP = 2 * _HLG_DARK / 3
_HLG_TOP_STEP = (12 - _B) / (12 * _A)
_HLG_ENDS = (2 * _HLG_LEAST, 1 / 12 + _HLG_LEAST, 1 + _HLG_LEAST)


def _hlg_light(signal: Tensor) -> Tensor:
    size = signal.abs()
    scene = hlg_inverse_oetf(size.clamp(_HLG_DARK, 1)).add_(_HLG_LEAST)
    scene.add_(size.clamp_max(_HLG_DARK).sub_(_HLG_DARK), alpha=_HLG_STEP)
    scene.add_(size.clamp_min_(1).sub_(1), alpha=_HLG_TOP_STEP).copysign_(signal)
    gain = _power_(luminance_2020(scene).clamp_min_(_HLG_LEAST), HLG_GAMMA - 1)
    return scene.mul_(gain.mul_(_HLG_UNIT))


def _hlg_signal(light: Tensor) -> Tensor:
    display = light / _HLG_UNIT
    # The factor's luminance is that of the scene: Y_display = Y_scene^gamma.
    least = _HLG_LEAST**HLG_GAMMA
    gain = _power_(luminance_2020(display).clamp_min_(least), (HLG_GAMMA - 1) / HLG_GAMMA)
    scene = display.div_(gain)
    size = scene.abs()
    low, middle, high = _HLG_ENDS
    signal = size.clamp(low, middle).sub_(_HLG_LEAST).mul_(3).sqrt_()
    curved = size.clamp(middle, high).sub_(_HLG_LEAST).mul_(12).sub_(_B).log_()
    signal.add_(curved, alpha=_A).add_(_C - 0.5)
    signal.add_(size.clamp_max(low).sub_(low), alpha=1 / _HLG_STEP)
    signal.add_(size.clamp_min_(high).sub_(high), alpha=1 / _HLG_TOP_STEP)
    return signal.copysign_(scene)


def _solve_shoulder() -> float:
    """M of knee + m ln(1 + (peak - knee) / m) = 1, by bisection."""
    reach, low, high = _PHOTO_PEAK / WHITE - _KNEE, 1e-3, 1.0
    for _ in range(80):
        m = (low + high) / 2
        low, high = (m, high) if _KNEE + m * math.log1p(reach / m) < 1 else (low, m)
    return low


_BEND = _solve_shoulder()


def _shoulder(light: Tensor) -> Tensor:
    brightest = light.abs().amax(1, keepdim=True).clamp_min_(_KNEE)
    over = (brightest - _KNEE).div_(_BEND).log1p_().mul_(_BEND).add_(_KNEE)
    return light * over.div_(brightest)


def _shoulder_inverse(shown: Tensor) -> Tensor:
    # No signal is shown as more than 1.7; what a generator makes up must not overflow.
    brightest = shown.abs().amax(1, keepdim=True).clamp_(_KNEE, 3)
    over = (brightest - _KNEE).div_(_BEND).expm1_().mul_(_BEND).add_(_KNEE)
    return shown * over.div_(brightest)


def _gamut(linear: Tensor, color: ColorSpec, *, inverse: bool) -> Tensor:
    matrix = _gamut_matrix(color, inverse)
    return linear if matrix is None else affine(linear, matrix)


@lru_cache
def _gamut_matrix(color: ColorSpec, inverse: bool) -> np.ndarray | None:
    matrix = primaries_matrix(color)
    if np.allclose(matrix, np.eye(3)):
        return None
    return np.linalg.inv(matrix) if inverse else matrix


def _to_xyz(chromaticities: tuple[tuple[float, float], ...]) -> np.ndarray:
    """[3,3] linear RGB to XYZ with Y of D65 = 1 (SMPTE RP 177)."""
    x, y = np.array([*chromaticities, _D65]).T
    columns = np.stack([x / y, np.ones(4), (1 - x - y) / y])
    scale = np.linalg.solve(columns[:, :3], columns[:, 3])
    scaled: np.ndarray = columns[:, :3] * scale
    return scaled


_SRGB_LINE = 12.92 * _SRGB_BEND
_SRGB_CURVE = 1.055 * _SRGB_BEND ** (1 / 2.4)
# Where the line ends the curve begins, less this much (the standard's numbers are rounded).


def _srgb(linear: Tensor) -> Tensor:
    size = linear.abs()
    curve = _power_(size.clamp_min(_SRGB_BEND), 1 / 2.4).mul_(1.055).sub_(_SRGB_CURVE)
    return curve.add_(size.clamp_max_(_SRGB_BEND), alpha=12.92).copysign_(linear)


def _linear(srgb: Tensor) -> Tensor:
    size = srgb.abs()
    curve = size.clamp_min(_SRGB_LINE).add_(_SRGB_CURVE - _SRGB_LINE).div_(1.055)
    light = _power_(curve, 2.4).sub_(_SRGB_BEND)
    return light.add_(size.clamp_max_(_SRGB_LINE), alpha=1 / 12.92).copysign_(srgb)


def _power_(x: Tensor, exponent: float) -> Tensor:
    """X ** exponent in place, x > 0: through the logarithm it takes a quarter of pow's time."""
    return x.log_().mul_(exponent).exp_()
