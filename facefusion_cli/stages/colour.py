"""Colour: sRGB and CIE Lab, statistics, and the matching of one face to another.

Images are [F,3,H,W] RGB, sRGB-encoded, 0..1, weights [F,1,H,W]. A match is fitted once, usually on
a small copy, and the fitted map is then applied to pixels of any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

_XYZ = (
    (0.412453, 0.357580, 0.180423),
    (0.212671, 0.715160, 0.072169),
    (0.019334, 0.119193, 0.950227),
)
"""Linear sRGB to CIE XYZ, ITU-R BT.709 primaries, white D65."""
_WHITE = (0.950456, 1.0, 1.088754)
_EPSILON, _KAPPA = 216 / 24389, 24389 / 27
"""CIE 15: where the cube root of Lab turns into a straight line, and that line's slope."""

HISTOGRAM_BINS = 128
_TAIL = 0.01
"""Share of the weight at either end of a histogram that matching ignores: glints and stray hair."""

# Each curve is a straight line up to a knee. min(line) + max(curve) - knee joins them without a
# branch, which costs more than the curve itself.
_LINEAR_KNEE = ((0.04045 + 0.055) / 1.055) ** 2.4
_SRGB_KNEE = 1.055 * 0.0031308 ** (1 / 2.4)
_ROOT_KNEE = 6 / 29

METHODS = ("tone", "lab", "hist", "none")


def _power(x: Tensor, exponent: float) -> Tensor:
    """X ** exponent for x > 0: through the logarithm it takes a quarter of pow's time on CPUs."""
    return torch.exp(torch.log(x) * exponent)


def srgb_to_linear(srgb: Tensor) -> Tensor:
    """Linear light of sRGB values, both 0..1 (IEC 61966-2-1)."""
    curved = _power((srgb.clamp_min(0.04045) + 0.055) / 1.055, 2.4)
    return srgb.clamp_max(0.04045) / 12.92 + (curved - _LINEAR_KNEE)


def linear_to_srgb(linear: Tensor) -> Tensor:
    """SRGB values of linear light, both 0..1 (IEC 61966-2-1)."""
    curved = 1.055 * _power(linear.clamp_min(0.0031308), 1 / 2.4)
    return linear.clamp_max(0.0031308) * 12.92 + (curved - _SRGB_KNEE)


@cache
def _matrices(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """[3,3] linear RGB to XYZ over white, and back."""
    to_xyz = torch.tensor(_XYZ, dtype=torch.float64)
    to_xyz = to_xyz / torch.tensor(_WHITE, dtype=torch.float64)[:, None]
    back = torch.linalg.inv(to_xyz)
    return to_xyz.to(device=device, dtype=dtype), back.to(device=device, dtype=dtype)


def _mix(matrix: Tensor, image: Tensor) -> Tensor:
    return (matrix @ image.flatten(2)).view_as(image)


def srgb_to_lab(srgb: Tensor) -> Tensor:
    """CIE Lab of sRGB pixels, white D65.

    Args:
        srgb: [F,3,H,W] 0..1.

    Returns:
        [F,3,H,W]; L 0..100, a and b about -128..127.
    """
    to_xyz, _ = _matrices(srgb.device, srgb.dtype)
    t = _mix(to_xyz, srgb_to_linear(srgb))
    line = (_KAPPA * t.clamp_max(_EPSILON) + 16) / 116
    root = line + (_power(t.clamp_min(_EPSILON), 1 / 3) - _ROOT_KNEE)
    x, y, z = root.unbind(1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], 1)


def lab_to_srgb(lab: Tensor) -> Tensor:
    """SRGB pixels of CIE Lab, clamped to 0..1; the inverse of srgb_to_lab()."""
    _, to_rgb = _matrices(lab.device, lab.dtype)
    lightness, a, b = lab.unbind(1)
    y = (lightness + 16) / 116
    root = torch.stack([y + a / 500, y, y - b / 200], 1)
    bent = root.clamp_min(_ROOT_KNEE)
    line = (116 * root.clamp_max(_ROOT_KNEE) - 16) / _KAPPA
    t = line + (bent * bent * bent - _EPSILON)
    return linear_to_srgb(_mix(to_rgb, t)).clamp(0, 1)


def smoothstep(x: Tensor, low: float, high: float) -> Tensor:
    """0 below low, 1 above high, a cubic without kinks between."""
    t = ((x - low) / (high - low)).clamp(0, 1)
    return t * t * (3 - 2 * t)


def statistics(image: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean and standard deviation of each channel, both [F,C,1,1]."""
    total = weight.sum((2, 3), keepdim=True).clamp_min(1e-6)
    mean = (image * weight).sum((2, 3), keepdim=True) / total
    variance = ((image - mean).square() * weight).sum((2, 3), keepdim=True) / total
    return mean, variance.sqrt()


def robust_weight(lab: Tensor, weight: Tensor) -> Tensor:
    """The weight without the pixels whose colour is far from the rest: hair, glints, beards.

    Args:
        lab: [F,3,H,W].
        weight: [F,1,H,W].

    Returns:
        [F,1,H,W], at most the weight.
    """
    kept = weight
    for limit in (2.0, 1.7, 2.0, 2.0):
        mean, std = statistics(lab, kept)
        far = ((lab - mean) / (limit * (std + 1.0))).abs().amax(1, keepdim=True)
        kept = weight * (2 - far).clamp(0, 1)
    return kept


def _away_from_zero(x: Tensor) -> Tensor:
    return torch.where(x < 0, x.clamp_max(-1.0), x.clamp_min(1.0))


@dataclass(frozen=True, slots=True, repr=False)
class ToneMap:
    """Carries one face's tones to another's mean without flattening or burning them.

    Lightness is scaled about the mean by a power of the two means' ratio: a darker face has less
    contrast in Lab than a lighter one under the same light. Skin is never given much more contrast
    than the other's skin shows, so that hard light in one photo does not become blotches in
    another; eyes, lips and brows keep theirs. Highlights are bent softly, and so are shadows that
    a lighter face would not show. Chroma gets the other's mean and, within limits, its spread.
    """

    source: Tensor
    """[F,3,1,1] mean Lab of the pixels to be changed."""
    target: Tensor
    """[F,3,1,1] mean Lab to be reached."""
    slope: Tensor
    """[F,1,1,1] of lightness on features."""
    skin_slope: Tensor
    """[F,1,1,1] of lightness on skin, at most slope."""
    gain: Tensor
    """[F,2,1,1] of a and b."""

    def lab(self, lab: Tensor, features: Tensor | None = None) -> Tensor:
        """Changes Lab pixels; features [F,1,H,W] 0..1 are eyes, lips and brows."""
        lightness, chroma = lab[:, :1] - self.source[:, :1], lab[:, 1:] - self.source[:, 1:]
        skin = torch.ones_like(lightness) if features is None else 1 - features
        raised = lightness * self.slope
        lift = raised + lightness * (self.skin_slope - self.slope) * skin
        lighter = smoothstep(self.target[:, :1] - self.source[:, :1], 5, 25)
        shadow = (-8 - lift).clamp_min(0) * skin
        bent = lift - 0.6 * (lift - 10).clamp_min(0) + 0.5 * lighter * shadow
        # Highlights that the bend compressed would otherwise keep their paleness and look grey.
        pull = 0.8 * smoothstep(raised, 7, 13) * skin
        moved = chroma * self.gain * (1 - pull) + self.target[:, 1:]
        # The darker a pixel, the less chroma it has: a shift that suits lit skin can push brows,
        # lashes and shadows past grey, to blue. They go no further than scaling would take them.
        share = (self.target[:, 1:] / _away_from_zero(self.source[:, 1:])).clamp(0.3, 1.6)
        side = torch.where(self.target[:, 1:] < 0, -1.0, 1.0)
        held = torch.maximum(moved * side, lab[:, 1:] * share * side) * side
        chroma = torch.lerp(moved, held, smoothstep(-lightness, 2, 14))
        return torch.cat([bent + self.target[:, :1], chroma], 1)

    def __call__(self, pixels: Tensor) -> Tensor:
        """Changes sRGB pixels."""
        return lab_to_srgb(self.lab(srgb_to_lab(pixels)))


def fit_tone(lab: Tensor, reference: Tensor, weight: Tensor) -> ToneMap:
    """The tone map between two Lab images under one weight."""
    source, source_std = statistics(lab, weight)
    target, target_std = statistics(reference, weight)
    ratio = (target[:, :1] + 16) / (source[:, :1] + 16)
    slope = torch.where(ratio >= 1, ratio**0.5, ratio**0.75).clamp(0.45, 1.5)
    spread = target_std / source_std.clamp_min(0.1)
    skin_slope = torch.minimum(slope, (1.2 * spread[:, :1]).clamp_min(0.55))
    return ToneMap(source, target, slope, skin_slope, spread[:, 1:].clamp(0.7, 1.3))


@dataclass(frozen=True, slots=True, repr=False)
class SpreadMap:
    """Mean and spread of each Lab channel, gains clamped.

    Reinhard, Ashikhmin, Gooch, Shirley, "Color transfer between images", CG&A 2001, in CIE Lab.
    """

    source: Tensor
    """[F,3,1,1] mean Lab of the pixels to be changed."""
    target: Tensor
    """[F,3,1,1] mean Lab to be reached."""
    gain: Tensor
    """[F,3,1,1]."""

    def lab(self, lab: Tensor) -> Tensor:
        """Changes Lab pixels."""
        return (lab - self.source) * self.gain + self.target

    def __call__(self, pixels: Tensor) -> Tensor:
        """Changes sRGB pixels."""
        return lab_to_srgb(self.lab(srgb_to_lab(pixels)))


def fit_spread(lab: Tensor, reference: Tensor, weight: Tensor) -> SpreadMap:
    """The mean and spread map between two Lab images under one weight."""
    source, source_std = statistics(lab, weight)
    target, target_std = statistics(reference, weight)
    gain = (target_std / source_std.clamp_min(0.1)).clamp(0.6, 1.6)
    return SpreadMap(source, target, gain)


@dataclass(frozen=True, slots=True, repr=False)
class HistogramMap:
    """A monotone curve for each RGB channel."""

    curve: Tensor
    """[F,3,bins+1] new value at 0, 1/bins, ... 1."""

    def lab(self, lab: Tensor) -> Tensor:
        """Changes Lab pixels."""
        return srgb_to_lab(self(lab_to_srgb(lab)))

    def __call__(self, pixels: Tensor) -> Tensor:
        """Changes sRGB pixels."""
        f, c, h, w = pixels.shape
        bins = self.curve.shape[-1] - 1
        place = pixels.clamp(0, 1).reshape(f, c, h * w) * bins
        left = place.floor().clamp_max(bins - 1)
        index = left.long()
        low, high = self.curve.gather(2, index), self.curve.gather(2, index + 1)
        return torch.lerp(low, high, place - left).reshape(f, c, h, w).clamp(0, 1)


def fit_histogram(pixels: Tensor, reference: Tensor, weight: Tensor) -> HistogramMap:
    """Curves that give the weighted pixels the reference's histogram, channel by channel.

    Quantiles of the middle 98 % of the weight are matched; beyond them the curve keeps its offset,
    so that a few glints or hairs decide nothing.
    """
    f, c = pixels.shape[:2]
    edges = torch.linspace(0, 1, HISTOGRAM_BINS + 1, device=pixels.device, dtype=pixels.dtype)
    share = torch.linspace(_TAIL, 1 - _TAIL, 65, device=pixels.device, dtype=pixels.dtype)
    share = share.expand(f, c, -1).contiguous()
    own = _quantiles(pixels, weight, share, edges)
    other = _quantiles(reference, weight, share, edges)
    # A step of the curve needs width: equal quantiles (flat areas) are moved apart a little.
    own = own + torch.arange(65, device=own.device, dtype=own.dtype) * 1e-5
    grid = edges.expand(f, c, -1).contiguous()
    curve = _interpolate(grid, own, other)
    below, above = other[..., :1] - own[..., :1], other[..., -1:] - own[..., -1:]
    curve = torch.where(grid < own[..., :1], grid + below, curve)
    curve = torch.where(grid > own[..., -1:], grid + above, curve)
    return HistogramMap(curve.clamp(0, 1))


def _quantiles(image: Tensor, weight: Tensor, share: Tensor, edges: Tensor) -> Tensor:
    """Values below which the given shares of the weight lie, [F,C,Q]."""
    f, c = image.shape[:2]
    bins = len(edges) - 1
    index = (image.flatten(2) * bins).long().clamp(0, bins - 1)
    # Whole numbers add up in any order, so that the sums are the same on every run and device.
    counts = (weight.flatten(2) * 65535).long().expand(f, c, -1)
    histogram = torch.zeros(f, c, bins, dtype=torch.long, device=image.device)
    histogram.scatter_add_(2, index, counts)
    total = histogram.sum(-1, keepdim=True)
    # Without any weight both histograms are uniform and the curve is the identity.
    histogram = torch.where(total > 0, histogram, torch.ones_like(histogram))
    cumulative = histogram.double().cumsum(-1)
    cumulative = torch.nn.functional.pad(cumulative / cumulative[..., -1:], (1, 0))
    flat = cumulative.to(image.dtype).contiguous()
    steps = torch.arange(bins + 1, device=image.device, dtype=image.dtype)
    flat = flat + steps * 1e-7
    return _interpolate(share, flat, edges.expand(f, c, -1))


def _interpolate(x: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
    """Piecewise linear interpolation along the last dimension; xs ascending, constant outside."""
    right = torch.searchsorted(xs.contiguous(), x).clamp(1, xs.shape[-1] - 1)
    x0, x1 = xs.gather(-1, right - 1), xs.gather(-1, right)
    y0, y1 = ys.gather(-1, right - 1), ys.gather(-1, right)
    t = ((x - x0) / (x1 - x0).clamp_min(1e-9)).clamp(0, 1)
    return torch.lerp(y0, y1, t)


def colourfulness(lab: Tensor, weight: Tensor) -> Tensor:
    """How far a face is from black and white, [F,1,1,1] 0..1.

    Judged by the chroma under the weight: coding noise on a grey clip stays below 1, skin in colour
    is above 8.

    Args:
        lab: [F,3,H,W].
        weight: [F,1,H,W].
    """
    chroma, _ = statistics(torch.linalg.vector_norm(lab[:, 1:], dim=1, keepdim=True), weight)
    return smoothstep(chroma, 1.5, 6)


def mute(lab: Tensor, mean: Tensor, colourful: Tensor) -> Tensor:
    """A face for a picture without colour: its chroma drawn to the picture's one.

    Args:
        lab: [F,3,H,W].
        mean: [F,3,1,1] mean Lab of the picture.
        colourful: [F,1,1,1] from colourfulness(); 1 changes nothing.
    """
    return torch.cat([lab[:, :1], torch.lerp(mean[:, 1:], lab[:, 1:], colourful)], 1)


def match_colour(method: str, pixels: Tensor, reference: Tensor, weight: Tensor) -> Tensor:
    """One face's colours brought to another's, judged where the weight lies.

    Args:
        method: "tone" (the default of ffx), "lab" (mean and spread), "hist" (histograms) or "none".
        pixels: [F,3,H,W] the face to be changed.
        reference: [F,3,H,W] the face that stands in the same place, whose colours are wanted.
        weight: [F,1,H,W] 0..1; pixels that are unlike the rest count less on their own.

    Returns:
        [F,3,H,W] 0..1.

    Raises:
        ValueError: The method is none of these.
    """
    if method not in METHODS:
        raise ValueError(f"unknown colour method {method!r}; known: {', '.join(METHODS)}")
    if method == "none":
        return pixels
    lab, wanted = srgb_to_lab(pixels), srgb_to_lab(reference)
    kept = robust_weight(lab, weight) * robust_weight(wanted, weight)
    if method == "hist":
        matched = fit_histogram(pixels, reference, kept).lab(lab)
    elif method == "lab":
        matched = fit_spread(lab, wanted, kept).lab(lab)
    else:
        matched = fit_tone(lab, wanted, kept).lab(lab)
    mean, _ = statistics(wanted, kept)
    return lab_to_srgb(mute(matched, mean, colourfulness(wanted, kept)))
