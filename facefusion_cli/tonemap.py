"""HDR clips turned to SDR as a whole, by the method of Report ITU-R BT.2390.

In this order:

1. Display light. PQ: the EOTF of BT.2100. HLG: its inverse OETF and its OOTF for a display of 1000
   cd/m2.
2. The EETF of BT.2390-10, section 5.4.1: on PQ's scale light stays as it is up to a knee, and a
   Hermite spline takes what is brighter to the target's peak. It acts on each of R, G and B, so
   greys stay grey, and bright saturated colours go to white rather than to a clipped hue. Black is
   0 on both displays.
3. BT.2020 or P3 to BT.709 in linear light; what BT.709 cannot show is cut at 0 and at the peak.
4. The inverse of BT.1886's EOTF: light to the power of 1/2.4.

The target's peak is 203 cd/m2 and becomes the SDR signal 1: ITU-R BT.2408 puts HDR's diffuse white
there, and what SDR calls white is diffuse white. With the 100 cd/m2 of a studio's SDR display,
faces would be twice as bright, beside their own white, as in a picture made for SDR. The source's
peak is the clip's MaxCLL, else that of its mastering display, else 1000 cd/m2; at 1000 diffuse
white lands at 0.90.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from facefusion_cli.planes import frames_from_rgb, planes_matrix, rgb_matrix
from facefusion_cli.transfer import (
    HLG,
    HLG_GAMMA,
    HLG_PEAK,
    LUMINANCE_2020,
    PQ_PEAK,
    WHITE,
    affine,
    hlg_inverse_oetf,
    is_hdr,
    luminance_2020,
    pq_eotf,
    pq_inverse,
    primaries_matrix,
)
from facefusion_cli.types import ColorSpec, FrameBatch, Light, PlaneLayout, VideoInfo

_Picture = npt.NDArray[Any]
"""float32."""

OPERATORS = ("bt2390",)
SDR_COLOR = ColorSpec("bt709", "limited", (1, 1, 1, 1))
SDR_LAYOUT = PlaneLayout((2, 2), 8)

_USUAL_PEAK = 1000.0
_SDR_GAMMA = 2.4
_TABLE = 32_766
"""Entries of a curve, as many as OpenCV's pictures may be wide. The nearest is off by less than
0.02 SDR levels."""
_STRIP = 64
"""Rows a CPU works on at a time: they stay in its cache."""


@dataclass(frozen=True, slots=True, repr=False)
class _Curves:
    """Curves of one clip, each [3,T] over 0..1, three times the same row.

    By the square root of light all are flat enough at black.
    """

    signal: _Picture
    """R'G'B' of the clip to light, 1 = the display's peak: SDR's (PQ), or HLG's for the scene."""
    gain: _Picture
    """HLG: the OOTF's Y^0.2, by the square root of Y."""
    display: _Picture | None
    """HLG: light on its display to light on SDR's, by its square root. None for PQ, where signal
    has done that."""
    coded: _Picture
    """Light to the SDR signal, by its square root."""


class ToneMap:
    """Frames of one HDR clip as SDR: BT.709, limited range, 4:2:0, 8 bits.

    Args:
        info: The clip. One that is not PQ or HLG is left as it is.
        operator: "bt2390".

    Raises:
        ValueError: The operator is none of OPERATORS.
    """

    def __init__(self, info: VideoInfo, operator: str) -> None:
        if operator not in OPERATORS:
            raise ValueError(f"unknown operator {operator!r}; known: {', '.join(OPERATORS)}")
        self.info = info
        """The clip as it is afterwards."""
        self.peak = 0.0
        """cd/m2 of the clip's light that becomes SDR white; 0 where nothing is done."""
        self._hdr = is_hdr(info.color)
        if not self._hdr:
            return
        hlg = info.color.tags[2] == HLG
        self.peak = HLG_PEAK if hlg else _peak(info.light)
        self.info = replace(
            info,
            color=SDR_COLOR,
            layout=SDR_LAYOUT,
            pixel_format="yuva420p" if "alpha" in info.hazards else "yuv420p",
            hazards=info.hazards - {"hdr", "deep"},
            light=None,
        )
        self._curves = _curves(self.peak, hlg=hlg)

    def __call__(self, frames: FrameBatch) -> FrameBatch:
        """Frames of the clip as SDR, on the device they are on; times and alpha are kept."""
        if not self._hdr:
            return frames
        on_cpu = frames.planes[0].device.type == "cpu"
        parts = [(self._on_cpu if on_cpu else self._on_gpu)(frames, i) for i in range(len(frames))]
        alpha = frames.alpha
        if alpha is not None and frames.layout.bits > 8:
            scale = 255 / (2**frames.layout.bits - 1)
            alpha = alpha.to(torch.float32).mul_(scale).round_().to(torch.uint8)
        y, u, v = (torch.cat(planes) for planes in zip(*parts, strict=True))
        return replace(frames, planes=(y, u, v), color=SDR_COLOR, layout=SDR_LAYOUT, alpha=alpha)

    def _on_gpu(self, frames: FrameBatch, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """Planes [1,h,w] of one frame."""
        color = frames.color
        chroma = torch.stack([p[index].to(torch.float32) for p in frames.planes[1:]])[None]
        sx, sy = frames.layout.subsampling
        if (sx, sy) != (1, 1):
            chroma = F.interpolate(chroma, scale_factor=(sy, sx), mode="bilinear")
        luma = frames.planes[0][index].to(torch.float32)[None, None]
        codes = torch.cat([luma, chroma[..., : frames.height, : frames.width]], 1)
        signal = affine(codes, rgb_matrix(color, frames.layout.bits))
        curves = self._curves
        light = _nearest(curves.signal, signal)
        if curves.display is not None:
            gain = _nearest(curves.gain, luminance_2020(light).sqrt_())
            light = _nearest(curves.display, light.mul_(gain).sqrt_())
        linear = affine(light, primaries_matrix(color)).clamp_(0, 1)
        rgb = _nearest(curves.coded, linear.sqrt_())
        return frames_from_rgb(rgb, SDR_COLOR, SDR_LAYOUT).planes

    def _on_cpu(self, frames: FrameBatch, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """The same by OpenCV, which looks things up several times as fast as torch."""
        height, width = frames.height, frames.width
        sx, sy = frames.layout.subsampling
        luma, *chroma = (p[index].numpy() for p in frames.planes)
        chroma = [c.astype(np.float32) for c in chroma]
        if (sx, sy) != (1, 1):
            size = chroma[0].shape[1] * sx, chroma[0].shape[0] * sy
            chroma = [cv2.resize(c, size, interpolation=cv2.INTER_LINEAR) for c in chroma]
        shape = -(-height // 2), -(-width // 2)
        y = torch.empty((1, height, width), dtype=torch.uint8)
        u, v = (torch.empty((1, *shape), dtype=torch.uint8) for _ in range(2))
        for top in range(0, height, _STRIP):
            rows = slice(top, min(top + _STRIP, height))
            first = luma[rows].astype(np.float32)
            codes = cv2.merge([first, *(c[rows, :width] for c in chroma)])
            rgb = self._strip(codes, frames.color, frames.layout.bits)
            _store(rgb, y[0].numpy()[rows], [p[0].numpy()[top // 2 :] for p in (u, v)])
        return y, u, v

    def _strip(self, codes: _Picture, color: ColorSpec, bits: int) -> _Picture:
        """[h,w,3] codes to R'G'B' of BT.709, 0..1."""
        curves, top = self._curves, _TABLE - 1
        light = _nearest_cpu(curves.signal, cv2.transform(codes, rgb_matrix(color, bits) * top))
        if curves.display is not None:
            luminance = cv2.transform(light, np.array([LUMINANCE_2020]) * top**2)
            gain = _nearest_cpu(curves.gain, cv2.sqrt(luminance))
            light = cv2.multiply(light, cv2.merge([gain] * 3), scale=top**2)
            light = _nearest_cpu(curves.display, cv2.sqrt(light))
        linear = cv2.transform(light, primaries_matrix(color) * top**2)
        return _nearest_cpu(curves.coded, cv2.sqrt(np.maximum(linear, 0, out=linear)))


def _store(rgb: _Picture, y: npt.NDArray[np.uint8], chroma: list[npt.NDArray[np.uint8]]) -> None:
    """[h,w,3] R'G'B' into planes of SDR_LAYOUT; h is even unless it ends the picture."""
    height, width = rgb.shape[:2]
    matrix = planes_matrix(SDR_COLOR, 8)
    cv2.convertScaleAbs(cv2.transform(rgb, matrix[:1]), y)
    if height % 2 or width % 2:
        rgb = cv2.copyMakeBorder(rgb, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE)
    half = cv2.resize(rgb, (-(-width // 2), -(-height // 2)), interpolation=cv2.INTER_AREA)
    codes = cv2.convertScaleAbs(cv2.transform(half, matrix[1:]))
    for number, plane in enumerate(chroma):
        cv2.extractChannel(codes, number, plane[: len(half)])


def pq_light(signal: Tensor) -> Tensor:
    """PQ's EOTF with 0 for a signal of 0, 1 = 10 000 cd/m2."""
    return torch.where(signal > 0, pq_eotf(signal.clamp_min(1e-6)), 0.0)


def eetf(signal: Tensor, peak: float, target: float = WHITE) -> Tensor:
    """BT.2390-10, section 5.4.1, with black at 0 on both displays.

    Args:
        signal: PQ, 0..1; what is above the source's peak is taken for it.
        peak: cd/m2 of the source.
        target: cd/m2 of the display; nothing is changed where it is not darker than the source.

    Returns:
        PQ of the target.
    """
    if target >= peak:
        return signal.clone()
    ends = pq_inverse(torch.tensor([peak, target], dtype=torch.float64) / PQ_PEAK)
    brightest = float(ends[0])
    most = float(ends[1]) / brightest
    knee = 1.5 * most - 0.5
    source = (signal / brightest).clamp_max(1)
    t = ((source - knee) / (1 - knee)).clamp_min(0)
    t2, t3 = t * t, t * t * t
    spline = (
        (2 * t3 - 3 * t2 + 1) * knee + (t3 - 2 * t2 + t) * (1 - knee) + (3 * t2 - 2 * t3) * most
    )
    return torch.where(source < knee, source, spline) * brightest


def _peak(light: Light | None) -> float:
    if light is not None and light.max_cll:
        return min(float(light.max_cll), PQ_PEAK)
    if light is not None and light.mastering is not None and light.mastering[9] > 0:
        return min(float(light.mastering[9]), PQ_PEAK)
    return _USUAL_PEAK


def _compressed(light: Tensor, peak: float) -> Tensor:
    """[T] light, 1 = 10 000 cd/m2, as the SDR display shows it, 1 = its peak."""
    signal = torch.where(light > 0, pq_inverse(light.clamp_min(1e-12)), 0.0)
    return pq_light(eetf(signal, peak)) * (PQ_PEAK / WHITE)


def _curves(peak: float, *, hlg: bool) -> _Curves:
    steps = torch.linspace(0, 1, _TABLE, dtype=torch.float64)
    signal = hlg_inverse_oetf(steps) if hlg else _compressed(pq_light(steps), peak)
    display = _compressed(steps.square() * (HLG_PEAK / PQ_PEAK), peak)
    return _Curves(
        signal=_picture(signal),
        gain=_picture(steps.pow(2 * (HLG_GAMMA - 1))),
        display=_picture(display) if hlg else None,
        coded=_picture(steps.pow(2 / _SDR_GAMMA)),
    )


def _picture(values: Tensor) -> _Picture:
    """[3,T]: OpenCV is slow at a picture's borders, so a row of one's own has neighbours."""
    return np.repeat(values.numpy()[None].astype(np.float32), 3, 0)


def _nearest(curve: _Picture, where: Tensor) -> Tensor:
    """The nearest of a curve's values.

    Args:
        curve: [3,T] at 0, ... 1.
        where: [...] float32, overwritten; what is outside 0..1 is cut.

    Returns:
        [...] float32.
    """
    values = torch.from_numpy(curve[0]).to(where.device)
    place = where.mul_(_TABLE - 1).round_().clamp_(0, _TABLE - 1)
    return values[place.long()]


def _nearest_cpu(curve: _Picture, where: _Picture) -> _Picture:
    """The same at [h,w,...] places counted in entries: to OpenCV, the warp of a picture."""
    flat = where.reshape(-1, where.shape[1])
    middle = np.ones_like(flat)
    found: _Picture = cv2.remap(
        curve, flat, middle, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REPLICATE
    )
    return found.reshape(where.shape)
