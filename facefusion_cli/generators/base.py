"""The one protocol every generator follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from torch import Tensor

from facefusion_cli.types import FaceCrops, Faces, Identity, SwappedCrops


class Generator(Protocol):
    """Makes new faces. One instance serves one run; prepare is called once for each identity."""

    name: ClassVar[str]
    does_colour: ClassVar[bool]
    """True when swap() has matched colours itself and the colour stage must pass it by."""
    best_blend: ClassVar[str]
    """What --blend auto means: "poisson" or "alpha", whichever measured better."""

    def crop_matrices(self, faces: Faces, size: int) -> Tensor:
        """[F,2,3] float32 matrices frame -> crop of the given side, as this generator aligns."""
        ...

    def natural_size(self, faces: Faces) -> Tensor:
        """[F] float32 side, in frame pixels, that crop_matrices covers: picks the bucket."""
        ...

    def prepare(self, identity: Identity) -> object:
        """What swap() needs of an identity, made once (textures, masks, embeddings)."""
        ...

    def swap(self, crops: FaceCrops, prepared: Sequence[object]) -> SwappedCrops:
        """New faces for all crops in one call.

        Args:
            crops: F crops of one size with their faces.
            prepared: F results of prepare(), one a crop (the same object many times is usual).
        """
        ...
