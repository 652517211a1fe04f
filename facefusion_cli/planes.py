"""Planes to RGB and back, on whatever device the planes are: regions and whole frames.

Matrices, ranges and code values follow ITU-T H.273 (section 8.3, equations for matrix_coefficients
1, 6 and 9) for every depth. "RGB" is gamma-coded R'G'B' with 0 = black and 1 = nominal white;
values outside 0..1 (whiter than white, colours outside the gamut) are carried, not cut. Of PQ and
HLG clips it is the SDR picture that transfer.py makes of the signal, one to one; read_signal gives
the signal itself.

Chroma. Going to planes, a chroma sample is the mean of its cell (2x2 pixels in 4:2:0). Coming from
planes, chroma is linear within a cell: the sample plus or minus an eighth of the difference of its
two neighbours, along each subsampled axis. That is linear interpolation with samples sited in the
centres of their cells, made such that a cell's mean is the sample itself. Ordinary bilinear weights
(3/4, 1/4) lack this: read and written back once, they blur chroma by (1/8, 3/4, 1/8) although
nothing was to change. Clips whose chroma is sited to the left (most 4:2:0) are treated the same;
reading and writing agree, so nothing shifts in what is kept, and the new face's chroma is half a
pixel off, as in every tool that converts by 2x2 means.

Writing never leaves legal storage: limited range keeps the codes reserved for synchronisation free
(1..254 at 8 bits, 4..1019 at 10), full range uses all. Head- and footroom is legal and is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from facefusion_cli.transfer import affine, from_sdr, is_hdr, to_sdr
from facefusion_cli.types import BgrBatch, ColorSpec, FrameBatch, PlaneLayout

Box = tuple[int, int, int, int]

KR_KB = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020": (0.2627, 0.0593)}
"""Luma weights of red and blue (H.273 table 4); green has the rest."""

_STRIP = 32
"""Rows."""


@lru_cache
def planes_matrix(color: ColorSpec, bits: int) -> np.ndarray:
    """The affine map from RGB to code values of the three planes.

    Args:
        color: Matrix and range; matrix "rgb" gives planes in the order G, B, R.
        bits: Bits a sample.

    Returns:
        [3,4] float64; codes = M[:, :3] @ (r, g, b) + M[:, 3], before rounding.
    """
    limited = color.range == "limited"
    top = float(2**bits - 1)
    step = float(2 ** (bits - 8))
    luma_scale, luma_offset = (219 * step, 16 * step) if limited else (top, 0.0)
    if color.matrix == "rgb":
        weights = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], np.float64)
        return np.hstack([weights * luma_scale, np.full((3, 1), luma_offset)])
    kr, kb = KR_KB[color.matrix]
    luma = np.array([kr, 1 - kr - kb, kb])
    cb = (np.array([0, 0, 1]) - luma) / (2 * (1 - kb))
    cr = (np.array([1, 0, 0]) - luma) / (2 * (1 - kr))
    chroma_scale = 224 * step if limited else top
    rows = np.stack([luma * luma_scale, cb * chroma_scale, cr * chroma_scale])
    middle = 128 * step
    return np.hstack([rows, [[luma_offset], [middle], [middle]]])


@lru_cache
def rgb_matrix(color: ColorSpec, bits: int) -> np.ndarray:
    """The inverse of planes_matrix: [3,4] float64, rgb = M[:, :3] @ codes + M[:, 3]."""
    forward = planes_matrix(color, bits)
    inverse = np.linalg.inv(forward[:, :3])
    return np.hstack([inverse, -inverse @ forward[:, 3:]])


def rgb_from_codes(codes: Tensor, color: ColorSpec, bits: int) -> Tensor:
    """RGB, as read_region gives it, of code values.

    Args:
        codes: [N,3,h,w] float32, the three planes at one resolution, not rounded.
        color: Matrix and range of the planes, and the transfer, where that is an HDR one.
        bits: Bits a sample.

    Returns:
        [N,3,h,w] float32, not clamped.
    """
    rgb = affine(codes, rgb_matrix(color, bits))
    return to_sdr(rgb, color) if is_hdr(color) else rgb


def region_box(box_xyxy: Sequence[float], frames: FrameBatch | BgrBatch) -> Box:
    """The smallest region a face can be read from and written to.

    Args:
        box_xyxy: x0, y0, x1, y1 in pixels, pixel centres at whole numbers, both ends included.
        frames: Gives the frame's size and subsampling.

    Returns:
        x0, y0, x1, y1, end exclusive, on whole chroma cells and inside the frame (the last cell of
        an odd frame is cut by its edge); 0, 0, 0, 0 when the box misses the frame.
    """
    sx, sy = frames.layout.subsampling
    if isinstance(frames, FrameBatch):
        height, width = frames.height, frames.width
    else:
        height, width = int(frames.bgr.shape[1]), int(frames.bgr.shape[2])

    def span(low: float, high: float, cell: int, size: int) -> tuple[int, int]:
        start = max(0, math.floor(low)) // cell * cell
        stop = -(-(min(size - 1, math.ceil(high)) + 1) // cell) * cell
        return start, min(stop, size)

    x0, x1 = span(box_xyxy[0], box_xyxy[2], sx, width)
    y0, y1 = span(box_xyxy[1], box_xyxy[3], sy, height)
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else (0, 0, 0, 0)


def read_region(frames: FrameBatch, index: int, box: Box) -> Tensor:
    """A region of one frame as RGB; the same pixels whatever the region's extent.

    Args:
        frames: The batch.
        index: Frame in the batch.
        box: A region as region_box gives it.

    Returns:
        [3,h,w] float32 RGB on the batch's device, not clamped.
    """
    return rgb_from_codes(
        _region_codes(frames, index, box)[None], frames.color, frames.layout.bits
    )[0]


def read_signal(frames: FrameBatch, index: int, box: Box) -> Tensor:
    """A region of one frame as R'G'B' in the clip's own transfer and primaries, HDR or not.

    Args:
        frames: The batch.
        index: Frame in the batch.
        box: A region as region_box gives it.

    Returns:
        [3,h,w] float32 on the batch's device, not clamped.
    """
    codes = _region_codes(frames, index, box)
    return affine(codes[None], rgb_matrix(frames.color, frames.layout.bits))[0]


def write_region(frames: FrameBatch, index: int, box: Box, rgb: Tensor, weight: Tensor) -> None:
    """Mixes RGB into a region of one frame, in place.

    A luma sample becomes round(old + weight * (new - old)). A chroma sample moves by the mean of
    weight * (new - old) over its cell, old being what read_region gives: so a region written back
    as it was read leaves every sample as it was, whatever the weight. The differences are of the
    clip's own codes, in HDR too. Samples whose weight is 0
    (chroma: in the whole cell) keep their bytes. Alpha is left alone.

    Args:
        frames: The batch written into.
        index: Frame in the batch.
        box: A region as region_box gives it.
        rgb: [3,h,w] float, finite everywhere.
        weight: [1,h,w] float 0..1.
    """
    x0, y0, x1, y1 = box
    if x0 >= x1 or y0 >= y1:
        return
    bits = frames.layout.bits
    sx, sy = frames.layout.subsampling
    old, new = _region_codes(frames, index, box)[None], rgb.to(torch.float32)[None]
    if is_hdr(frames.color):
        # The same way there and back as the new pixels, so that rounding errors are the same too.
        both = torch.cat([rgb_from_codes(old, frames.color, bits), new])
        old, new = _codes(both, frames.color, bits).split(1)
    else:
        new = _codes(new, frames.color, bits)
    weight = weight.to(torch.float32)
    change = (new - old)[0].mul_(weight)
    cell_weight = _cell_means(weight, (sx, sy))
    low, high = _legal(frames.color, bits)
    for number, plane in enumerate(frames.planes):
        step, touched = change[number], weight[0]
        target = plane[index, y0:y1, x0:x1]
        if number and (sx, sy) != (1, 1):
            step, touched = _cell_means(step[None], (sx, sy))[0], cell_weight[0]
            target = plane[index, y0 // sy : -(-y1 // sy), x0 // sx : -(-x1 // sx)]
        before = target.to(torch.float32)
        after = (before + step).round_().clamp_(low, high)
        target.copy_(torch.where(touched > 0, after, before))


def rgb_frames(frames: FrameBatch) -> Tensor:
    """Whole frames as RGB: for images and tests, not for the frames of a clip.

    Returns:
        [N,3,H,W] float32 RGB on the batch's device, not clamped.
    """
    box = (0, 0, frames.width, frames.height)
    return torch.stack([read_region(frames, i, box) for i in range(len(frames))])


def frames_from_rgb(
    rgb: Tensor,
    color: ColorSpec,
    layout: PlaneLayout,
    *,
    pts: Sequence[Fraction] | None = None,
    first_index: int = 0,
    bias: tuple[float, float, float] = (0.0, 0.0, 0.0),
    gray_bias: float = 0.0,
) -> FrameBatch:
    """Whole RGB frames as planes.

    Args:
        rgb: [N,3,H,W] float RGB, as read_region gives it.
        color: Matrix and range of the planes, and the transfer, where that is an HDR one.
        layout: Subsampling and depth of the planes; matrix "rgb" needs (1, 1).
        pts: Seconds, one a frame; 0, 1/25, 2/25, ... when not given.
        first_index: Index of the first frame in its clip.
        bias: Code values added to each plane before rounding.
        gray_bias: The same for the first plane where R = G = B.
    """
    if color.matrix == "rgb" and layout.subsampling != (1, 1):
        raise ValueError(f"matrix rgb with subsampling {layout.subsampling}")
    codes = _codes(rgb.to(torch.float32), color, layout.bits)
    if any(bias):
        codes += _bias_of(rgb, bias, gray_bias)
    if pts is None:
        pts = [Fraction(first_index + i, 25) for i in range(len(rgb))]
    return _stored(codes, color, layout, tuple(pts), first_index)


def planes_from_bgr(batch: BgrBatch) -> FrameBatch:
    """OpenCV's frames as planes of the clip's own matrix, range and layout, on their device.

    CPUs convert with OpenCV's integer kernels where those do (8 bits), everything else with torch;
    the two agree within one level.
    """
    if batch.color.matrix == "rgb" and batch.layout.subsampling != (1, 1):
        raise ValueError(f"matrix rgb with subsampling {batch.layout.subsampling}")
    if batch.bgr.device.type == "cpu" and batch.layout.bits == 8:
        return _planes_from_bgr_cpu(batch)
    rgb = batch.bgr.permute(0, 3, 1, 2).flip(1).to(torch.float32).mul_(1 / 255)
    # HDR or not, the bytes are the clip's own signal.
    codes = affine(rgb, planes_matrix(batch.color, batch.layout.bits))
    if any(batch.bias):
        codes += _bias_of(rgb, batch.bias, batch.gray_bias)
    return _stored(codes, batch.color, batch.layout, batch.pts, batch.first_index)


def upload(batch: FrameBatch | BgrBatch, device: torch.device | str) -> FrameBatch:
    """A reader's batch as planes on the device; copies from pinned memory do not wait."""
    if isinstance(batch, FrameBatch):
        return batch.to(device, non_blocking=batch.planes[0].is_pinned())
    bgr = batch.bgr.to(device, non_blocking=batch.bgr.is_pinned())
    return planes_from_bgr(replace(batch, bgr=bgr))


def _bias_of(rgb: Tensor, bias: tuple[float, float, float], gray_bias: float) -> Tensor:
    """What is added to the codes [N,3,H,W] of RGB; see BgrBatch."""
    gray = (rgb[:, 0] == rgb[:, 1]) & (rgb[:, 1] == rgb[:, 2])
    added = torch.tensor(bias, device=rgb.device)[:, None, None].expand(rgb.shape).clone()
    added[:, 0] += gray * (gray_bias - bias[0])
    return added


def _stored(
    codes: Tensor, color: ColorSpec, layout: PlaneLayout, pts: tuple[Fraction, ...], first: int
) -> FrameBatch:
    """Code values [N,3,H,W] as planes: chroma averaged over its cells, everything rounded."""
    low, high = _legal(color, layout.bits)
    store = torch.uint8 if layout.bits == 8 else torch.uint16

    def plane(number: int) -> Tensor:
        values = codes[:, number]
        if number and layout.subsampling != (1, 1):
            values = _cell_means(values, layout.subsampling)
        return values.round().clamp_(low, high).to(store)

    return FrameBatch((plane(0), plane(1), plane(2)), color, layout, pts, first)


def _legal(color: ColorSpec, bits: int) -> tuple[int, int]:
    if color.range == "full":
        return 0, 2**bits - 1
    return 1 << (bits - 8), (255 << (bits - 8)) - 1


def _codes(rgb: Tensor, color: ColorSpec, bits: int) -> Tensor:
    """The inverse of rgb_from_codes(), not rounded."""
    signal = from_sdr(rgb, color) if is_hdr(color) else rgb
    return affine(signal, planes_matrix(color, bits))


def _region_codes(frames: FrameBatch, index: int, box: Box) -> Tensor:
    """[3,h,w] float32 code values of a region, chroma brought to full resolution."""
    x0, y0, x1, y1 = box
    sx, sy = frames.layout.subsampling
    inside = 0 <= x0 <= x1 <= frames.width and 0 <= y0 <= y1 <= frames.height
    whole = (x1 % sx == 0 or x1 == frames.width) and (y1 % sy == 0 or y1 == frames.height)
    if not inside or x0 % sx or y0 % sy or not whole:
        raise ValueError(f"region {box} is not on chroma cells of {frames!r}")
    y, u, v = frames.planes
    codes = torch.empty((3, y1 - y0, x1 - x0), dtype=torch.float32, device=y.device)
    if codes.numel() == 0:
        return codes
    codes[0] = y[index, y0:y1, x0:x1]
    if (sx, sy) == (1, 1):
        codes[1] = u[index, y0:y1, x0:x1]
        codes[2] = v[index, y0:y1, x0:x1]
        return codes
    chroma_height, chroma_width = int(u.shape[1]), int(u.shape[2])
    # One more sample on every side where the plane has one, so that a region's edge looks the same
    # as it does within a larger region.
    left, top = max(x0 // sx - 1, 0), max(y0 // sy - 1, 0)
    right, bottom = min(-(-x1 // sx) + 1, chroma_width), min(-(-y1 // sy) + 1, chroma_height)
    window = torch.stack([p[index, top:bottom, left:right].to(torch.float32) for p in (u, v)])
    if sx == 2:
        window = _double(window, 2)
    if sy == 2:
        window = _double(window, 1)
    dx, dy = x0 - left * sx, y0 - top * sy
    codes[1:] = window[:, dy : dy + y1 - y0, dx : dx + x1 - x0]
    return codes


def _double(values: Tensor, axis: int) -> Tensor:
    """Twice as many samples along an axis, linear in each cell, the cell's mean unchanged."""
    n = values.shape[axis]
    slope = torch.zeros_like(values)
    if n > 1:
        torch.sub(
            values.narrow(axis, 2, n - 2),
            values.narrow(axis, 0, n - 2),
            out=slope.narrow(axis, 1, n - 2),
        )
        for end, inward in ((0, 0), (n - 1, n - 2)):
            slope.select(axis, end).copy_(
                values.select(axis, inward + 1) - values.select(axis, inward)
            )
    slope *= 0.125
    shape = list(values.shape)
    shape[axis : axis + 1] = [n, 2]
    out = values.new_empty(shape)
    torch.sub(values, slope, out=out.select(axis + 1, 0))
    torch.add(values, slope, out=out.select(axis + 1, 1))
    return out.flatten(axis, axis + 1)


def _cell_means(values: Tensor, cell: tuple[int, int]) -> Tensor:
    """Means of [N,h,w] over chroma cells; cells cut by an odd edge average what they have."""
    sx, sy = cell
    h, w = values.shape[-2:]
    if w % sx or h % sy:
        values = F.pad(values[None], (0, -w % sx, 0, -h % sy), mode="replicate")[0]
    # Sums of slices: on CPUs several times as fast as avg_pool2d.
    if sy == 2:
        values = values[:, 0::2] + values[:, 1::2]
    if sx == 2:
        values = values[:, :, 0::2] + values[:, :, 1::2]
    return values / (sx * sy)


def _planes_from_bgr_cpu(batch: BgrBatch) -> FrameBatch:
    forward = planes_matrix(batch.color, 8)
    # On bytes 0..255, with columns in OpenCV's order: blue, green, red, constant.
    offsets = forward[:, 3:] + np.array(batch.bias)[:, None]
    matrix = np.hstack([forward[:, 2::-1] / 255, offsets])
    n, height, width, _ = batch.bgr.shape
    sx, sy = batch.layout.subsampling
    chroma = (n, -(-height // sy), -(-width // sx))
    y = torch.empty((n, height, width), dtype=torch.uint8)
    u = torch.empty(chroma, dtype=torch.uint8)
    v = torch.empty(chroma, dtype=torch.uint8)
    full = np.empty((height, width, 3), np.uint8)
    for i in range(n):
        picture = batch.bgr[i].numpy()
        codes = cv2.transform(picture, matrix, full)
        cv2.extractChannel(codes, 0, y[i].numpy())
        if any(batch.bias):
            _mend_gray(picture, y[i].numpy(), forward[0], batch.gray_bias)
        if (sx, sy) != (1, 1):
            # Averaging pixels before the matrix instead of codes after it costs the same and spares
            # a pass over full-size chroma.
            odd = (0, -height % sy, 0, -width % sx)
            if any(odd):
                picture = cv2.copyMakeBorder(picture, *odd, cv2.BORDER_REPLICATE)
            picture = cv2.resize(picture, (chroma[2], chroma[1]), interpolation=cv2.INTER_AREA)
            codes = cv2.transform(picture, matrix)
        cv2.extractChannel(codes, 1, u[i].numpy())
        cv2.extractChannel(codes, 2, v[i].numpy())
    return FrameBatch((y, u, v), batch.color, batch.layout, batch.pts, batch.first_index)


def _mend_gray(bgr: np.ndarray, y: np.ndarray, row: np.ndarray, bias: float) -> None:
    """Luma of neutral pixels, which have a bias of their own, in place.

    In strips that stay in the cache: fresh memory for whole frames would cost four times as much.
    """
    levels = np.arange(256) / 255 * row[:3].sum() + row[3] + bias
    table = levels.round().clip(0, 255).astype(np.uint8)
    room = np.empty((5, min(_STRIP, len(y)), y.shape[1]), np.uint8)
    for top in range(0, len(y), _STRIP):
        part = bgr[top : top + _STRIP]
        blue, green, red, gray, other = room[:, : len(part)]
        cv2.split(part, [blue, green, red])
        cv2.compare(blue, green, cv2.CMP_EQ, gray)
        cv2.bitwise_and(gray, cv2.compare(green, red, cv2.CMP_EQ, other), gray)
        if cv2.countNonZero(gray):
            cv2.copyTo(cv2.LUT(green, table, other), gray, y[top : top + _STRIP])
