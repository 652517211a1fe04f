"""From frame to frame: which frames need the detector, and which face is which.

The detector looks at the last frame of each batch. Where the same faces stand at both ends, the
frames between get their mesh regions from the meshes at the ends; everywhere else (the clip's
start, a cut, a face come or gone, a mesh network in doubt) the detector looks at every frame. A
face that shows for less than a batch between two faceless ends is the one thing this can miss.

Association is by overlap with the frame before. The delay line, motion model, gap filling and
smoothing of a full tracker belong here, behind the same three calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.ops import batched_nms, box_iou

from facefusion_cli.stages.landmark import Regions, cat_regions, regions_of_meshes
from facefusion_cli.types import Faces, FrameBatch

SAME_FACE_IOU = 0.35
"""Overlap of mesh boxes, a batch apart or less, that makes two faces one."""
DUPLICATE_IOU = 0.5
"""Overlap at which two meshes of one frame sit on the same face."""
SURE = 0.5
"""Presence below which a carried region's mesh is not believed without the detector."""
PRESENT = 0.1
"""Presence below which even a detected face is dropped: there is no face for a mesh to fit."""
CERTAIN = 0.9
"""Score that a track must reach once in a clip before its faces count. Patterns in foliage have
been seen to reach 0.86 and to keep it for a second; faces up to 35 degrees of yaw stayed above 0.9
on everything looked at, and stronger profiles are turned too far to be swapped."""
CERTAIN_STILL = 0.4
"""The same for a single picture, where there is no second look."""
CUT = 0.10
"""Mean change of the luma thumbnail, as a share of the full range, taken for a cut."""
_THUMBNAIL = (18, 32)


def _match(a: Tensor, b: Tensor) -> list[tuple[int, int]]:
    """Greedy one-to-one matches of boxes [A,4] and [B,4] by overlap, best first."""
    if len(a) == 0 or len(b) == 0:
        return []
    iou = box_iou(a, b).cpu()
    pairs = []
    while float(iou.max()) >= SAME_FACE_IOU:
        row, column = divmod(int(iou.argmax()), iou.shape[1])
        pairs.append((row, column))
        iou[row], iou[:, column] = 0, 0
    return pairs


class Tracker:
    """Follows faces through one clip, batch by batch, in order.

    Args:
        certain: Score that makes a track a face's, see CERTAIN.
    """

    def __init__(self, certain: float = CERTAIN) -> None:
        self._certain = certain
        self._faces: set[int] = set()
        self._last: Faces | None = None
        self._thumbnail: Tensor | None = None
        self._next_id = 0

    def keyframes(self, frames: FrameBatch) -> list[int]:
        """Indices in the batch that the detector must see first."""
        y = frames.planes[0]
        scale = float(2**frames.layout.bits - 1)
        # Rows and columns are skipped down to a few hundred before averaging: cheap at any size.
        sy, sx = max(1, frames.height // 144), max(1, frames.width // 256)
        small = y[:, ::sy, ::sx].unsqueeze(1).float() / scale
        thumbnails = F.adaptive_avg_pool2d(small, _THUMBNAIL)
        before = self._thumbnail if self._thumbnail is not None else thumbnails[:1]
        self._thumbnail = thumbnails[-1:]
        change = (thumbnails - torch.cat([before, thumbnails[:-1]])).abs().mean((1, 2, 3))
        if self._last is None or bool((change > CUT).any()):
            return list(range(len(frames)))
        return [len(frames) - 1]

    def carry(self, frames: FrameBatch, found: Faces) -> Regions | None:
        """Mesh regions for the frames before the batch's last, between known faces at both ends.

        Args:
            frames: The batch.
            found: Faces, with meshes, of the batch's last frame.

        Returns:
            The regions, frame by frame, or None where the two ends do not show the same faces.
        """
        last = self._last
        assert last is not None
        assert last.mesh is not None
        assert found.mesh is not None
        pairs = _match(last.box, found.box)
        if not len(pairs) == len(last) == len(found):
            return None
        steps = len(frames)
        begin = last.mesh[[i for i, _ in pairs]]
        end = found.mesh[[j for _, j in pairs]]
        score = found.score[[j for _, j in pairs]]
        parts = []
        for k in range(steps - 1):
            t = (k + 1) / steps
            frame = torch.full((len(pairs),), k, dtype=torch.int64, device=found.frame.device)
            parts.append(regions_of_meshes(begin + (end - begin) * t, frame, score))
        return cat_regions(parts) if parts else None

    def track(self, frames: FrameBatch, faces: Faces) -> Faces:
        """The batch's faces in frame order, each with its track's id; without doubtful tracks.

        Args:
            frames: The batch.
            faces: All faces of the batch, with meshes, in any order.
        """
        kept = batched_nms(faces.box, faces.score, faces.frame, DUPLICATE_IOU)
        kept = kept[torch.argsort(faces.frame[kept], stable=True)]
        faces = faces[kept]
        ids = torch.full((len(faces),), -1, dtype=torch.int64)
        before = self._last
        for k in range(len(frames)):
            rows = torch.nonzero(faces.frame == k).reshape(-1)
            here = faces[rows]
            if before is not None and before.track is not None:
                for i, j in _match(before.box, here.box):
                    ids[rows[j]] = int(before.track[i])
            for row in rows.tolist():
                if ids[row] < 0:
                    ids[row] = self._next_id
                    self._next_id += 1
            before = replace(here, track=ids[rows.cpu()])
        self._last = before
        self._faces.update(ids[faces.score.cpu() >= self._certain].tolist())
        known = torch.isin(ids, torch.tensor(sorted(self._faces), dtype=torch.int64))
        return replace(faces, track=ids.to(faces.frame.device))[known.to(faces.frame.device)]

    def state(self) -> dict[str, Tensor]:
        """All that is remembered of the frames so far, by name; see restore()."""
        state = {
            "next": torch.tensor(self._next_id),
            "known": torch.tensor(sorted(self._faces), dtype=torch.int64),
        }
        if self._thumbnail is not None:
            state["thumbnail"] = self._thumbnail
        if self._last is not None:
            columns = ((name, getattr(self._last, name)) for name in Faces.__slots__)
            state |= {f"last.{name}": value for name, value in columns if value is not None}
        return state

    def restore(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Goes on behind the frames that a state is of.

        Args:
            state: As state() gave it.
            device: Where the frames to come are.
        """
        self._next_id = int(state["next"])
        self._faces = set(state["known"].tolist())
        thumbnail = state.get("thumbnail")
        self._thumbnail = None if thumbnail is None else thumbnail.to(device)
        prefix = "last."
        columns = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        if columns:
            track = columns.pop("track")  # stays on the CPU, as track() leaves it
            moved = {name: value.to(device) for name, value in columns.items()}
            self._last = Faces(**moved, track=track)


def doubtful(presence: Tensor, regions: Regions) -> list[int]:
    """Frames in which a carried region's mesh is not to be believed."""
    return sorted({int(k) for k in regions.frame[presence < SURE].tolist()})
