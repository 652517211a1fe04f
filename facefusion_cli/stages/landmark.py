"""Dense landmarks: the face mesh in a region, eyes refined, 106 points and head pose."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from facefusion_cli.nets.face_mesh import CROP, FaceMesh
from facefusion_cli.nets.iris import Iris
from facefusion_cli.stages.crop import cut, invert, square_matrices, transform
from facefusion_cli.stages.detect import no_faces
from facefusion_cli.stages.eyes import refine_eyes
from facefusion_cli.stages.points106 import points106, template5
from facefusion_cli.stages.pose import head_pose
from facefusion_cli.types import Faces, FrameBatch

BOX_SIDE = 1.3
"""Side of the region in sides of a detector's box."""
MESH_SIDE = 1.5
"""Side of the region in sides of a mesh's box."""
PASSES = 3
"""Most looks at one face; more than one only where the region proved wrong."""
SHIFT, GROWTH, TURN = 0.08, math.log(1.12), math.radians(8)
"""A region further off than this (in sides, log of the side, radians) is looked at again."""


@dataclass(frozen=True, slots=True)
class Regions:
    """Where the mesh network looks: rotated squares in frame pixels."""

    frame: Tensor
    """[R] int64, index of the frame in the batch."""
    centre: Tensor
    """[R,2]."""
    side: Tensor
    """[R]."""
    angle: Tensor
    """[R] radians, clockwise in the picture."""
    score: Tensor
    """[R] the detector's score, or that of the face the region was carried over from."""

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, index: Tensor) -> Regions:
        """The regions picked by an index or boolean tensor."""
        return Regions(
            self.frame[index],
            self.centre[index],
            self.side[index],
            self.angle[index],
            self.score[index],
        )


def cat_regions(parts: list[Regions]) -> Regions:
    """Regions of several parts in one."""
    return Regions(
        torch.cat([p.frame for p in parts]),
        torch.cat([p.centre for p in parts]),
        torch.cat([p.side for p in parts]),
        torch.cat([p.angle for p in parts]),
        torch.cat([p.score for p in parts]),
    )


def regions_of_boxes(faces: Faces) -> Regions:
    """Regions from the detector's boxes, levelled by its eyes."""
    box = faces.box
    across = faces.points5[:, 1] - faces.points5[:, 0]
    return Regions(
        faces.frame,
        (box[:, :2] + box[:, 2:]) / 2,
        BOX_SIDE * (box[:, 2:] - box[:, :2]).amax(-1),
        torch.atan2(across[:, 1], across[:, 0]),
        faces.score,
    )


def level_box(mesh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The bounding square of each mesh in its eye-levelled frame.

    Args:
        mesh: [F,468,2 or 3] pixels.

    Returns:
        Centre [F,2] in frame pixels, longest side [F], angle of the eye line [F] in radians.
    """
    xy = mesh[..., :2]
    across = xy[:, 263] - xy[:, 33]
    angle = torch.atan2(across[:, 1], across[:, 0])
    cos, sin = torch.cos(angle), torch.sin(angle)
    turn = torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)
    level = xy @ turn.transpose(1, 2)
    low, high = level.amin(1), level.amax(1)
    centre = (((low + high) / 2).unsqueeze(1) @ turn).squeeze(1)
    return centre, (high - low).amax(-1), angle


def regions_of_meshes(mesh: Tensor, frame: Tensor, score: Tensor) -> Regions:
    """Regions from meshes [F,468,3]: what the next look should see."""
    centre, side, angle = level_box(mesh)
    return Regions(frame, centre, MESH_SIDE * side, angle, score)


def _moved(old: Regions, new: Regions) -> Tensor:
    """[R] bool: the second region is too far from the first for its mesh to be trusted."""
    shift = torch.linalg.vector_norm(new.centre - old.centre, dim=-1) / old.side
    growth = torch.log(new.side / old.side).abs()
    turn = torch.remainder(new.angle - old.angle + math.pi, 2 * math.pi) - math.pi
    moved: Tensor = (shift > SHIFT) | (growth > GROWTH) | (turn.abs() > TURN)
    return moved


def _look(frames: FrameBatch, regions: Regions, network: FaceMesh) -> tuple[Tensor, Tensor]:
    """One look: meshes [R,468,3] in frame pixels and presence [R] 0..1."""
    matrices = square_matrices(regions.centre, regions.side, regions.angle, CROP)
    points, logit = network(cut(frames, regions.frame, matrices, CROP))
    # The network counts from the centre of the crop's first pixel: over 128 crops, a point and its
    # mirror image add up to 190.5 of 192 (191 is centres, 192 would be edges).
    return transform(points.float(), invert(matrices)), torch.sigmoid(logit.float()).reshape(-1)


@torch.inference_mode()
def landmark(
    frames: FrameBatch, regions: Regions, mesh_network: FaceMesh, iris_network: Iris, model: Tensor
) -> tuple[Faces, Tensor]:
    """Meshes and all that follows from them, for all regions at once.

    A region that its own mesh shows to be off is looked at again, so a detector's box costs two
    looks and a region carried over from the frame before usually one.

    Args:
        frames: The batch.
        regions: R regions.
        mesh_network: The face mesh, full precision (half precision costs up to 0.1 px).
        iris_network: The iris network.
        model: [468,3] the canonical face model.

    Returns:
        Faces with mesh, iris, points106 and pose, row for row with the regions; box is the mesh's,
        score the region's times presence.
        And presence [R], 0..1: how sure the mesh network is that there is a face at all.
    """
    if len(regions) == 0:
        return _no_meshes(no_faces(model.device)), torch.zeros(0, device=model.device)
    mesh, presence = _look(frames, regions, mesh_network)
    looked, last = regions, regions_of_meshes(mesh, regions.frame, regions.score)
    for _ in range(PASSES - 1):
        again = torch.nonzero(_moved(looked, last)).reshape(-1)
        if len(again) == 0:
            break
        mesh[again], presence[again] = _look(frames, last[again], mesh_network)
        looked, last = last, regions_of_meshes(mesh, regions.frame, regions.score)
    mesh, iris = refine_eyes(frames, regions.frame, mesh, iris_network)
    points = points106(mesh, iris)
    faces = Faces(
        frame=regions.frame,
        box=torch.cat([mesh[..., :2].amin(1), mesh[..., :2].amax(1)], -1),
        score=regions.score * presence,
        points5=template5(points),
        mesh=mesh,
        iris=iris,
        points106=points,
        pose=head_pose(mesh, model),
    )
    return faces, presence


def _no_meshes(none: Faces) -> Faces:
    def empty(*shape: int) -> Tensor:
        return torch.zeros(0, *shape, device=none.box.device)

    return replace(
        none,
        mesh=empty(468, 3),
        iris=empty(2, 5, 2),
        points106=empty(106, 2),
        pose=empty(3),
    )
