"""Which faces get the source: all of them, or one a frame."""

from __future__ import annotations

from dataclasses import replace

import torch

from facefusion_cli.types import Faces

HOLD = 1.5
"""How many times the area a rival must have before --select largest changes its choice."""


class Selector:
    """Chooses faces of one clip, batch by batch, in order.

    Args:
        mode: all or largest.
    """

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._chosen = -1

    def select(self, faces: Faces) -> Faces:
        """The faces with identity set: 0 = gets the source, -1 = stays as it is.

        Args:
            faces: Faces of a batch in frame order, with tracks.
        """
        if self._mode == "all":
            return replace(faces, identity=torch.zeros_like(faces.frame))
        assert faces.track is not None
        identity = torch.full_like(faces.frame, -1)
        area = (faces.box[:, 2:] - faces.box[:, :2]).prod(-1)
        # The face chosen so far weighs more, so that two of a size do not take turns.
        for k in faces.frame.unique().tolist():
            rows = torch.nonzero(faces.frame == k).reshape(-1)
            held = torch.where(faces.track[rows] == self._chosen, HOLD, 1.0)
            best = rows[(area[rows] * held).argmax()]
            self._chosen = int(faces.track[best])
            identity[best] = 0
        return replace(faces, identity=identity)
