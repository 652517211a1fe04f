"""The canonical mesh: facts that any user of the indices relies on."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import torch

from facefusion_cli.errors import ModelCorrupt
from facefusion_cli.zoo.topology import load_topology, parse_topology


def edges(triangle: list[int]) -> list[frozenset[int]]:
    return [frozenset(pair) for pair in pairwise([*triangle, triangle[0]])]


def test_the_triangles_form_a_disc_whose_rim_is_the_face_oval() -> None:
    topology = load_topology()
    uses = Counter(e for t in topology.triangles.tolist() for e in edges(t))
    assert max(uses.values()) == 2
    oval = topology.loops["face_oval"]
    rim = {e for e, n in uses.items() if n == 1}
    assert rim == {frozenset(pair) for pair in pairwise([*oval, oval[0]])}
    # Euler's formula for a disc: vertices - edges + faces = 1.
    assert 468 - len(uses) + len(topology.triangles) == 1


def test_the_face_looks_at_the_viewer_and_is_mirror_symmetric() -> None:
    v = load_topology().vertices_cm
    assert v.shape == (468, 3)
    nose, forehead, chin = v[1], v[10], v[152]
    assert nose[2] > forehead[2] > v[234, 2]
    assert forehead[1] > nose[1] > chin[1]
    assert v[33, 0] < 0 < v[263, 0]  # the subject's right eye is on the image's left
    mirrored = v * torch.tensor([-1.0, 1.0, 1.0])
    assert torch.cdist(mirrored, v).min(dim=1).values.max() < 0.3


def test_triangles_wind_alike() -> None:
    """Seen from the front every triangle near the nose turns the same way."""
    topology = load_topology()
    a, b, c = topology.vertices_cm[topology.triangles].unbind(1)
    normal = torch.linalg.cross(b - a, c - a)
    assert (normal[:, 2] > 0).float().mean() > 0.9


def test_texture_coordinates() -> None:
    uv = load_topology().uv
    assert uv.shape == (468, 2)
    assert uv.min() >= 0
    assert uv.max() <= 1


@pytest.mark.parametrize("data", [b"{}", b"not json", b'{"vertices_cm": [[1, 2]]}'])
def test_other_content_is_corrupt(data: bytes) -> None:
    with pytest.raises(ModelCorrupt, match="topology cannot be read"):
        parse_topology(data, "mesh.json")


def test_the_file_is_read_once_per_content() -> None:
    assert load_topology() is load_topology()
