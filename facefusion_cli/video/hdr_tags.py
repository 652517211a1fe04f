"""Static HDR metadata in the words of the encoders that write it into their bitstreams."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from facefusion_cli.types import Light

_SEI_UNITS = (50_000, 10_000)
"""Units a chromaticity and a cd/m2 in H.264's and HEVC's messages (H.265, D.3.28)."""


def x264_light(light: Light) -> dict[str, str]:
    """x264's parameters for it."""
    return _parameters(light, "mastering-display", "cll", _sei_units)


def x265_light(light: Light) -> dict[str, str]:
    """x265's parameters for it; without hdr10 it would write none."""
    return {"hdr10": "1", **_parameters(light, "master-display", "max-cll", _sei_units)}


def svtav1_light(light: Light) -> dict[str, str]:
    """SVT-AV1's parameters for it."""
    return _parameters(light, "mastering-display", "content-light", _decimals)


def _parameters(
    light: Light, display: str, content: str, write: Callable[[Fraction, bool], str]
) -> dict[str, str]:
    parameters = {}
    if light.mastering is not None:
        colours = [write(value, False) for value in light.mastering[:8]]
        least, greatest = (write(value, True) for value in light.mastering[8:])
        red, green, blue, white = (f"({x},{y})" for x, y in zip(*[iter(colours)] * 2, strict=True))
        parameters[display] = f"G{green}B{blue}R{red}WP{white}L({greatest},{least})"
    if light.max_cll is not None or light.max_fall is not None:
        parameters[content] = f"{light.max_cll or 0},{light.max_fall or 0}"
    return parameters


def _sei_units(value: Fraction, luminance: bool) -> str:
    return str(round(value * _SEI_UNITS[luminance]))


def _decimals(value: Fraction, luminance: bool) -> str:
    return f"{float(value):.{4 if luminance else 5}f}"
