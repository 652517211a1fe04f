"""Which planar format a decoder's pixel format is carried in, without loss, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import av

from facefusion_cli.types import Matrix, PlaneLayout

MATRICES: dict[int, Matrix] = {
    1: "bt709",
    2: "bt601",
    3: "bt601",
    4: "bt601",
    5: "bt601",
    6: "bt601",
    7: "bt709",
    9: "bt2020",
    10: "bt2020",
}
"""H.273 matrix_coefficients to the nearest matrix ffx converts with. 4 (FCC) differs from BT.601
and 7 (SMPTE 240M) from BT.709 by less than 0.012 in every weight."""

GIF_FORMAT, GIF_OPAQUE = "bgra", "bgr0"
"""What FFmpeg decodes every GIF to, and what the probe calls that where nothing is transparent."""

_NAMES = {(2, 2): "420", (2, 1): "422", (1, 1): "444"}
# Formats with other chroma grids go to the nearest finer or equal one ffx has.
_NEAREST = {(1, 2): (1, 1), (4, 1): (2, 1), (4, 2): (2, 1), (4, 4): (2, 2)}


@dataclass(frozen=True, slots=True)
class CarriedFormat:
    """How frames of a clip are carried."""

    name: str
    """FFmpeg's name of the format the frames have when their planes are copied out."""
    layout: PlaneLayout
    alpha: bool
    """A fourth plane holds alpha."""
    rgb: bool
    """Planes are G, B, R."""
    gray: bool
    """Only the first plane exists; both chroma planes are the neutral value."""


@lru_cache(maxsize=64)
def carried_format(
    pixel_format: str, *, size: tuple[int, int], turned: int = 0, mirrored: bool = False
) -> CarriedFormat:
    """The format a clip's frames are carried in: the decoder's own wherever that is planar.

    Args:
        pixel_format: FFmpeg's name of what the decoder gives.
        size: Stored width and height.
        turned: Degrees counter-clockwise the frames will be turned.
        mirrored: Whether they will be mirrored too.

    4:2:2 turned by 90 degrees would be 4:4:0, and chroma of an odd-sized picture that is turned or
    mirrored would begin with its half sample; both are carried as 4:4:4.
    """
    fmt = av.VideoFormat(pixel_format, 16, 16)
    components = fmt.components
    alpha = any(c.is_alpha for c in components)
    bits = max(8, max(c.bits for c in components))
    colours = [c for c in components if not c.is_alpha]
    if fmt.has_palette or fmt.is_rgb or pixel_format.startswith("xyz"):
        name = _rgb_name(bits, alpha and not fmt.has_palette)
        return CarriedFormat(name, PlaneLayout((1, 1), _bits(name)), _alpha(name), True, False)
    if len(colours) == 1 and not alpha:
        name = _first_known([f"gray{depth}" for depth in _depths(bits)])
        return CarriedFormat(name, PlaneLayout((2, 2), _bits(name)), False, False, True)
    if len(colours) == 1:
        name = _rgb_name(bits, True)
        return CarriedFormat(name, PlaneLayout((1, 1), _bits(name)), True, True, False)
    divisors = (16 // fmt.chroma_width(16), 16 // fmt.chroma_height(16))
    grid = _turnable(_NEAREST.get(divisors, divisors), size, turned, mirrored)
    one_each = len({c.plane for c in components}) == len(components)
    plain = not (fmt.is_big_endian or "msb" in pixel_format or bits > 16)
    if one_each and plain and grid == divisors:
        name = pixel_format
    else:
        prefix = "yuvj" if pixel_format.startswith("yuvj") else "yuva" if alpha else "yuv"
        name = _first_known([f"{prefix}{_NAMES[grid]}p{depth}" for depth in _depths(bits)])
    return CarriedFormat(name, PlaneLayout(grid, _bits(name)), _alpha(name), False, False)


def _turnable(
    grid: tuple[int, int], size: tuple[int, int], turned: int, mirrored: bool
) -> tuple[int, int]:
    if turned % 360 == 0 and not mirrored:
        return grid
    sideways = turned % 180 != 0
    half_samples = any(side % step for side, step in zip(size, grid, strict=True))
    if half_samples or (sideways and grid[0] != grid[1]):
        return (1, 1)
    return grid


def _depths(bits: int) -> list[str]:
    if bits <= 8:
        return [""]
    return [f"{n}le" for n in (9, 10, 12, 14, 16) if n >= bits] or ["16le"]


def _rgb_name(bits: int, alpha: bool) -> str:
    prefix = "gbrap" if alpha else "gbrp"
    return _first_known([f"{prefix}{depth}" for depth in _depths(bits)])


def _first_known(names: list[str]) -> str:
    for name in names:
        try:
            av.VideoFormat(name, 16, 16)
        except ValueError:
            continue
        return name
    raise ValueError(f"FFmpeg knows none of {names}")


def _bits(name: str) -> int:
    return max(c.bits for c in av.VideoFormat(name, 16, 16).components)


def _alpha(name: str) -> bool:
    return any(c.is_alpha for c in av.VideoFormat(name, 16, 16).components)
