"""ffx probe: what ffx sees in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from facefusion_cli.cli import options
from facefusion_cli.cli.console import emit


def probe(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            help="A video, an image, a folder of images or a pattern of them.", metavar="FILE"
        ),
    ],
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show what ffx sees in FILE: size, timing, colour, streams and what needs care."""
    options.require_names(FILE=file)
    from facefusion_cli.video.image_kinds import is_image
    from facefusion_cli.video.target import probe_target

    facts = _image_facts(file) if is_image(file) else plain(probe_target(file))
    emit(json.dumps(facts, indent=2) if as_json else as_text(facts))


def _image_facts(file: Path) -> dict[str, Any]:
    from facefusion_cli.video.image_file import ImageTarget

    image = ImageTarget(file)
    frame = image.read()
    return {
        "path": str(file),
        "format": image.kind,
        "width": frame.width,
        "height": frame.height,
        "bits": image.bits,
        "alpha": image.has_alpha,
    }


def plain(value: object) -> Any:
    """A value of the central types as JSON types.

    A Fraction becomes a string such as "30000/1001" (a decimal would not be exact), a set a sorted
    list, a dataclass an object of its fields.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(plain(item) for item in value)
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Fraction | Path):
        return str(value)
    return value


def as_text(facts: Mapping[str, Any]) -> str:
    """The facts one a line, names aligned; nested ones on one line as `key value, ...`."""
    width = max(len(name) for name in facts)
    return "\n".join(f"{name:{width}}  {_line(value)}" for name, value in facts.items())


def _line(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_line(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ("; " if value and isinstance(value[0], Mapping) else " ").join(
            _line(item) for item in value
        ) or "none"
    return str(value)
