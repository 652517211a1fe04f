"""The default generator: the source's photo on the face mesh, no weights.

The photo's texture is warped onto the target's mesh, which has first been moved towards the
source's shape; colours and light are the target's. In this order: align (the crop), source (the
photo, once), carry (shape), raster and warp, skin and hairline, mask, relight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from facefusion_cli.generators.mesh.align import crop_matrices, into_crop, level_square
from facefusion_cli.generators.mesh.carry import carry_shape, facing
from facefusion_cli.generators.mesh.gauss import smooth_large
from facefusion_cli.generators.mesh.hairline import measure_hairline
from facefusion_cli.generators.mesh.mask import (
    face_area,
    face_mask,
    mouth_opening,
    touched_area,
    visibility,
)
from facefusion_cli.generators.mesh.matching import match_to_target
from facefusion_cli.generators.mesh.model import build_model
from facefusion_cli.generators.mesh.plane import (
    SPAN,
    enlarge,
    origin,
    shrink,
    to_small,
    window,
)
from facefusion_cli.generators.mesh.skin import measure_skin
from facefusion_cli.generators.mesh.source import PreparedSource
from facefusion_cli.generators.mesh.warp import make_maps, read_source, shift_target
from facefusion_cli.stages.colour import METHODS, srgb_to_lab
from facefusion_cli.types import FaceCrops, Faces, Identity, SwappedCrops
from facefusion_cli.zoo.topology import Topology

_EDGE_SIGMA = 0.006
"""Softness of the lids' and lips' edges, in L."""


class MeshGenerator:
    """Makes new faces by warping the source's photo; see the package's docstring.

    Args:
        device: Where crops and photos lie.
        topology: The mesh's triangles and canonical shape.
        colour: "tone", "lab", "hist" or "none"; with "none" the light is left alone too.

    Raises:
        ValueError: The colour method is none of these.
    """

    name: ClassVar[str] = "mesh"
    does_colour: ClassVar[bool] = True
    best_blend: ClassVar[str] = "alpha"

    def __init__(self, device: torch.device, topology: Topology, colour: str = "tone") -> None:
        if colour not in METHODS:
            raise ValueError(f"unknown colour method {colour!r}; known: {', '.join(METHODS)}")
        self._model = build_model(topology, device)
        self._colour = colour

    def crop_matrices(self, faces: Faces, size: int) -> Tensor:
        """[F,2,3] float32 matrices frame -> upright crop of 1.8 times the face's box."""
        return crop_matrices(_mesh(faces), size)

    def natural_size(self, faces: Faces) -> Tensor:
        """[F] float32 side, in frame pixels, that crop_matrices() covers."""
        _, longest, _ = level_square(_mesh(faces))
        return (SPAN * longest).float()

    @torch.inference_mode()
    def prepare(self, identity: Identity) -> PreparedSource:
        """Texture, skin, hairline and outline of the identity's first photo."""
        return PreparedSource(identity.photos[0], self._model)

    @torch.inference_mode()
    def swap(self, crops: FaceCrops, prepared: Sequence[object]) -> SwappedCrops:
        """New faces for all crops in one call.

        Args:
            crops: F crops of one size, a multiple of 128, with meshes.
            prepared: F results of prepare().

        Raises:
            TypeError: Something in prepared comes from another generator.
        """
        sources = [_own(p) for p in prepared]
        size, model = crops.size, self._model
        longest = size / SPAN
        target = into_crop(_mesh(crops.faces).float(), crops.to_crop)
        source = torch.stack([s.mesh for s in sources])
        shape = carry_shape(source, target, model)

        # The two warps, at the window's full resolution.
        view = window(crops.pixels)
        corner = torch.tensor([origin(size), origin(size), 0], device=view.device)
        shown = visibility(facing(shape, model), torch.stack([s.facing for s in sources]), model)
        sampled = torch.stack([s.sampled for s in sources])
        maps = make_maps(shape - corner, target - corner, sampled, shown, view.shape[-1], model)
        face = _read_all(sources, maps.source, size)
        touched = enlarge(touched_area(maps.covered), size).clamp(0, 1)
        backdrop = torch.where(touched > 0, shift_target(view, maps.shift), view)
        soft = smooth_large(maps.labels[:, :3], _EDGE_SIGMA * longest)
        eyes, mouth, lips = torch.split(soft, 1, 1)

        # Everything smooth, on the small grid.
        on_small = to_small(target[..., :2], size)
        lab = srgb_to_lab(shrink(view))
        skin = measure_skin(lab, on_small, model)
        hairline = torch.minimum(
            measure_hairline(lab, on_small, skin, model),
            torch.stack([s.hairline for s in sources]),
        )
        area = face_area(to_small(shape[..., :2], size), hairline, model)
        mask = face_mask(area, maps.covered, maps.shown)
        face = match_to_target(self._colour, face, backdrop, skin, area, maps, lips)

        # The target's eyes, and its mouth where that is open.
        mask = enlarge(mask, size) * (1 - eyes) * (1 - mouth * mouth_opening(target, longest))
        return _whole(crops.pixels, face, backdrop, mask.clamp(0, 1), touched)


def _mesh(faces: Faces) -> Tensor:
    if faces.mesh is None:
        raise ValueError("the mesh generator needs faces with meshes")
    return faces.mesh


def _own(prepared: object) -> PreparedSource:
    if not isinstance(prepared, PreparedSource):
        raise TypeError(f"the mesh generator did not prepare this {type(prepared).__name__}")
    return prepared


def _read_all(sources: Sequence[PreparedSource], where: Tensor, size: int) -> Tensor:
    """The sources' textures at [F,W,W,2]; a call for each different source."""
    distinct = {id(s): s for s in sources}
    if len(distinct) == 1:
        return read_source(sources[0].texture(size), where)
    out = torch.empty(len(where), 4, *where.shape[1:3], device=where.device)
    for key, source in distinct.items():
        rows = [i for i, s in enumerate(sources) if id(s) == key]
        out[rows] = read_source(source.texture(size), where[rows])
    return out


def _whole(
    pixels: Tensor, face: Tensor, backdrop: Tensor, mask: Tensor, touched: Tensor
) -> SwappedCrops:
    """The window's results set into whole crops."""
    whole_backdrop = pixels.clone()
    window(whole_backdrop).copy_(backdrop)
    whole_face = pixels.clone()
    window(whole_face).copy_(face)
    whole_mask = torch.zeros_like(pixels[:, :1])
    window(whole_mask).copy_(mask)
    whole_touched = torch.zeros_like(pixels[:, :1])
    window(whole_touched).copy_(torch.maximum(touched, mask))
    return SwappedCrops(whole_face, whole_backdrop, whole_mask, whole_touched)
