"""What is installed here: read from the packages' metadata, so that nothing heavy is imported."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from importlib import metadata

from facefusion_cli import __version__

PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "opencv-python-headless",
    "pillow",
    "av",
    "onnxruntime",
    "safetensors",
    "typer",
)

ONNXRUNTIMES = frozenset(
    {"onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino"}
)
OPENCVS = frozenset(
    {
        "opencv-python",
        "opencv-python-headless",
        "opencv-contrib-python",
        "opencv-contrib-python-headless",
    }
)


def installed() -> dict[str, str]:
    """Version of every installed distribution by its normalised name."""
    found = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # a half-removed distribution has none
            found[re.sub(r"[-_.]+", "-", name).lower()] = distribution.version
    return found


def versions() -> dict[str, str]:
    """Versions of ffx, Python and what ffx stands on; a package that is missing is left out.

    OpenCV and onnxruntime come in several distributions of one library: the one that is installed
    is named.
    """
    here = installed()
    found = {"ffx": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        family = next((f for f in (ONNXRUNTIMES, OPENCVS) if package in f), {package})
        found.update({name: here[name] for name in sorted(family & here.keys())})
    return found


def clash(names: Iterable[str], family: frozenset[str]) -> list[str]:
    """The distributions of one library among names, when there are several; else nothing.

    They install the same files over one another, and the last one wins without a word.
    """
    present = sorted(family & set(names))
    return present if len(present) > 1 else []
