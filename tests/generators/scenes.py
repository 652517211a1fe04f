"""Synthetic people for generator tests: the canonical face model, posed, under a painted picture.

A picture is a formula of the place on the face, so it can be drawn at any size without resampling,
and two people with one formula look alike wherever they stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from facefusion_cli.generators.base import Generator
from facefusion_cli.types import FaceCrops, Faces, Identity, SourcePhoto
from facefusion_cli.zoo.topology import load_topology

LIPS_UPPER = [13, 82, 312, 81, 311, 80, 310, 191, 415, 0, 37, 267, 39, 269]
LIPS_LOWER = [14, 87, 317, 178, 402, 88, 318, 95, 324, 17, 84, 314, 181, 405]


@dataclass(frozen=True)
class Person:
    """Where a face stands and what it looks like."""

    centre: tuple[float, float] = (320.0, 300.0)
    scale: float = 16.0
    """Pixels a centimetre."""
    roll: float = 0.0
    """Radians, clockwise as seen."""
    yaw: float = 0.0
    mouth_cm: float = 0.0
    """How far the lips are apart."""
    width: float = 1.0
    """Nose and mouth are this much wider than the canonical model's."""
    skin: tuple[float, float, float] = (0.75, 0.55, 0.45)
    shade: float = 0.0
    """Light from the image's right: brightness changes by this share over a face's width."""
    fringe_cm: float = 99.0
    """Dark hair begins this far above the middle of the face."""
    stripes: float = 0.03
    """Contrast of a fine pattern, by which faces are told apart."""
    phase: float = 0.0

    def mesh(self) -> Tensor:
        """[468,3] pixels."""
        v = load_topology().vertices_cm.clone()
        inner = (v[:, 0].abs() < 4.5) & (v[:, 1] < 2.0) & (v[:, 1] > -6.0) & (v[:, 2] > 2.5)
        v[inner, 0] *= self.width
        v[LIPS_UPPER, 1] += self.mouth_cm / 2
        v[LIPS_LOWER, 1] -= self.mouth_cm / 2
        cos, sin = torch.cos(torch.tensor(self.yaw)), torch.sin(torch.tensor(self.yaw))
        x, y, z = v[:, 0] * cos + v[:, 2] * sin, -v[:, 1], -(v[:, 2] * cos - v[:, 0] * sin)
        cos, sin = torch.cos(torch.tensor(self.roll)), torch.sin(torch.tensor(self.roll))
        turned = torch.stack([x * cos - y * sin, x * sin + y * cos, z], -1)
        return turned * self.scale + torch.tensor([*self.centre, 0.0])

    def paint(self, x: Tensor, y: Tensor) -> Tensor:
        """RGB 0..1 at frame pixels, [3,...]."""
        cos, sin = torch.cos(torch.tensor(self.roll)), torch.sin(torch.tensor(self.roll))
        dx, dy = (x - self.centre[0]) / self.scale, (y - self.centre[1]) / self.scale
        u, v = dx * cos + dy * sin, -(dy * cos - dx * sin)
        pattern = torch.sin(2.1 * u + self.phase) * torch.sin(1.7 * v + 2 * self.phase)
        light = 1 + self.stripes * pattern + self.shade * u / 15
        rgb = torch.stack([c * light for c in self.skin])
        lips = torch.exp(-((u / 2.2) ** 2) - ((v + 4.5) / 0.9) ** 2) * 0.25
        rgb = rgb * (1 - torch.stack([0.1 * lips, lips, lips]))
        for side in (-1, 1):
            eye = torch.exp(-(((u - 3.2 * side) / 1.0) ** 2) - ((v - 2.6) / 0.4) ** 2)
            brow = torch.exp(-(((u - 3.2 * side) / 1.8) ** 2) - ((v - 4.3) / 0.35) ** 2)
            rgb = rgb * (1 - 0.6 * torch.maximum(eye, brow))
        hair = torch.sigmoid((v - self.fringe_cm) * 8)
        return (rgb * (1 - hair) + 0.08 * hair).clamp(0, 1)

    def picture(self, height: int = 640, width: int = 640) -> Tensor:
        """[3,height,width] RGB 0..1."""
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        return self.paint(x.float(), y.float())

    def identity(self, height: int = 640, width: int = 640) -> Identity:
        """The person as a source."""
        photo = SourcePhoto(Path("person.png"), self.picture(height, width), faces(self))
        return Identity("person", (photo,))


def faces(*people: Person) -> Faces:
    """What the landmark stage would have found."""
    mesh = torch.stack([p.mesh() for p in people])
    xy = mesh[..., :2]
    # Nobody looks at these places: the generators take the eyes from the mesh.
    iris = xy[:, [[467] * 5, [467] * 5]]
    return Faces(
        frame=torch.zeros(len(people), dtype=torch.int64),
        box=torch.cat([xy.amin(1), xy.amax(1)], -1),
        score=torch.ones(len(people)),
        points5=xy[:, [33, 263, 1, 61, 291]],
        mesh=mesh,
        iris=iris,
        pose=torch.zeros(len(people), 3),
    )


def crops(generator: Generator, size: int, *people: Person) -> FaceCrops:
    """Crops as the generator aligns them, painted without resampling."""
    found = faces(*people)
    to_crop = generator.crop_matrices(found, size)
    linear = torch.linalg.inv(to_crop[:, :, :2].double())
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    pixel = torch.stack([x, y], -1).double()
    painted = []
    for person, matrix, back in zip(people, to_crop, linear, strict=True):
        at = (pixel - matrix[:, 2].double()) @ back.T
        painted.append(person.paint(at[..., 0].float(), at[..., 1].float()))
    return FaceCrops(torch.stack(painted), to_crop, found)
