"""The face mesh's canonical shape: vertices, texture coordinates, triangles and contours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from facefusion_cli.errors import ModelCorrupt
from facefusion_cli.report import Report
from facefusion_cli.zoo.manifest import REINSTALL, load_manifest, read_verified


@dataclass(frozen=True, slots=True)
class Topology:
    """Constants of the 468-point mesh, on the CPU. Do not write into the tensors."""

    vertices_cm: Tensor
    """[468,3] float32, canonical face in centimetres: x to the viewer's right, y up, z towards the
    viewer."""
    uv: Tensor
    """[468,2] float32, texture coordinates 0..1."""
    triangles: Tensor
    """[898,3] int64 vertex numbers; eyes and mouth are closed, the only rim is the face oval."""
    loops: Mapping[str, tuple[int, ...]]
    """Vertex numbers of each contour by name; left and right are the subject's."""


def load_topology(report: Report | None = None) -> Topology:
    """The mesh's constants.

    Raises:
        ModelMissing: The file is absent.
        ModelCorrupt: It differs from the manifest.
    """
    file = load_manifest()["face_mesh_topology"]
    return parse_topology(read_verified(file, report), str(file.path))


@cache
def parse_topology(data: bytes, path: str) -> Topology:
    """The mesh's constants from the file's content; the same object for the same content.

    Raises:
        ModelCorrupt: The content is not JSON, or lacks a part of the right size; names the path.
    """
    try:
        content = json.loads(data)
        return Topology(
            vertices_cm=torch.tensor(content["vertices_cm"], dtype=torch.float32).view(468, 3),
            uv=torch.tensor(content["uv"], dtype=torch.float32).view(468, 2),
            triangles=torch.tensor(content["triangles"], dtype=torch.int64).view(-1, 3),
            loops={name: tuple(loop) for name, loop in content["loops"].items()},
        )
    except (ValueError, KeyError, RuntimeError) as error:
        raise ModelCorrupt(
            f"the face mesh topology cannot be read ({error})", path=path, hint=REINSTALL
        ) from error
