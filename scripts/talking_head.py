"""A talking head made of stills: one AI-generated person's expressions, joined into motion.

The portrait is the picture; the expressions of the sheet are registered to it and give the face.
Between two expressions both pictures are bent to one shape before they are mixed, along dense
optical flow and, about the lips, along their edges; so a mouth opens instead of fading. An eyelid
is drawn down as an edge. Mouth, brows and lids move apart from one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import numpy as np
from actors import ACTORS, Array, Image, Mouth, Point, expression, portrait
from warping import (
    flow,
    grid,
    inverse,
    move,
    register,
    sample,
    similarity,
    smoothstep,
    thin_plate,
)

SURPLUS = 0.06
"""How far the portrait is continued upwards, as a fraction of its side, so that a moving camera
finds background there."""


@dataclass(frozen=True)
class Pose:
    """Head and camera; angles in radians."""

    roll: float = 0.0
    yaw: float = 0.0
    pitch: float = 0.0
    head: Point = (0.0, 0.0)
    """Shift of the head in eye spans."""
    camera: Point = (0.0, 0.0)
    """Shift of the camera in picture widths."""
    camera_roll: float = 0.0
    zoom: float = 1.06


def _lips(mouth: Mouth, *, shut: bool = False) -> Array:
    """[16,2] a mouth's points; shut lips meet in one line, half a pixel apart."""
    inner = np.asarray(mouth.inner, np.float32)
    if shut:
        upper, lower = inner[1:4].copy(), inner[[7, 6, 5]].copy()
        # The line between the lips lies nearer to the upper lip's edge as measured.
        gap = np.array([0, 0.25], np.float32)
        line = 0.65 * upper + 0.35 * lower
        inner[1:4] = line - gap
        inner[[7, 6, 5]] = line + gap
    return np.vstack([np.asarray(mouth.outer, np.float32), inner])


@dataclass(frozen=True)
class _Bend:
    """Where to read the pictures of one layer, as displacements [H,W,2], and its share [H,W]."""

    name: str
    neutral: Array
    other: Array
    share: Array


class TalkingHead:
    """A person of ACTORS who can be posed; all work is done at one size.

    Args:
        actor: Key of ACTORS.
        side: Side of the portrait in pixels that everything is scaled to.
        mouths: Expressions whose mouths are wanted.
        whole: Expressions wanted of the whole face.
    """

    BROWS = "surprised"

    def __init__(
        self, actor: str, side: int, *, mouths: tuple[str, ...], whole: tuple[str, ...] = ()
    ) -> None:
        self.actor = ACTORS[actor]
        self.side = side
        self.eyes = np.asarray(self.actor.portrait_eyes, np.float32) * side - 0.5
        self.centre = self.eyes.mean(axis=0)
        self.span = float(np.linalg.norm(self.eyes[1] - self.eyes[0]))
        top = round(SURPLUS * side)
        self.picture = self._extended(portrait(actor, side), top)
        self.eyes[:, 1] += top
        self.centre[1] += top
        self._lay_neutral()
        self._lay_expressions({*mouths, *whole, self.BROWS})
        self._lay_lids()
        y = (self.place[..., 1] - self.local[1]) / self.span
        self.regions = {
            "mouth": smoothstep(y, 0.28, 0.5),
            "brows": smoothstep(y, 0.35, 0.15),
            "whole": np.ones_like(y, np.float32),
        }

    @staticmethod
    def _extended(picture: Image, top: int) -> Image:
        """The backdrop continued upwards, without the streaks that copied grain would make."""
        out = cv2.copyMakeBorder(picture, top, 0, 0, 0, cv2.BORDER_REPLICATE)
        out[:top] = cv2.blur(out[:top], (2 * top + 1, 1))
        return np.asarray(out, np.uint8)

    def _lay_neutral(self) -> None:
        """Registers the neutral photo to the portrait and chooses the window of the face."""
        span, (cx, cy) = self.span, self.centre
        height, width = self.picture.shape[:2]
        self.x0, self.y0 = max(0, round(cx - 1.15 * span)), max(0, round(cy - 1.05 * span))
        x1, y1 = min(width, round(cx + 1.15 * span)), min(height, round(cy + 1.65 * span))
        window = np.ascontiguousarray(self.picture[self.y0 : y1, self.x0 : x1])
        self.window = window
        self.local = self.centre - np.array((self.x0, self.y0), np.float32)
        self.place = grid(*window.shape[:2])
        offset = (self.place - self.local) / span
        face = np.hypot(offset[..., 0], offset[..., 1] - 0.15) < 1.0
        photo = expression(self.actor.person, "neutral")
        start = similarity(self.actor.neutral_eyes, self.eyes - (self.x0, self.y0))
        self.matrices = {"neutral": register(photo, start, window, face)}
        self.faces = {"neutral": self._laid("neutral")}
        self._mask(photo)

    def _laid(self, name: str) -> Image:
        height, width = self.window.shape[:2]
        return np.asarray(
            cv2.warpAffine(
                expression(self.actor.person, name),
                self.matrices[name],
                (width, height),
                flags=cv2.INTER_CUBIC,
                borderMode=cv2.BORDER_REPLICATE,
            ),
            np.uint8,
        )

    def _mask(self, photo: Image) -> None:
        """Where the photo replaces the portrait, and the slow light difference of the two."""
        corners = move([(0, 0), (photo.shape[1], photo.shape[0])], self.matrices["neutral"])
        x, y = self.place[..., 0], self.place[..., 1]
        edge = np.minimum.reduce(
            [x - corners[0, 0], y - corners[0, 1], corners[1, 0] - x, corners[1, 1] - y]
        )
        offset = (self.place - self.local) / self.span
        round_ = np.hypot(offset[..., 0] / 0.86, (offset[..., 1] - 0.25) / 1.25)
        mask = smoothstep(edge, 0, 0.12 * self.span) * smoothstep(round_, 1.0, 0.86)
        self.mask = mask[..., None]
        sigma = 0.12 * self.span
        difference = (self.window.astype(np.float32) - self.faces["neutral"]) * self.mask
        weight = cv2.GaussianBlur(mask, (0, 0), sigma)[..., None]
        self.light = cv2.GaussianBlur(difference, (0, 0), sigma) / np.maximum(weight, 0.05)

    def _lay_expressions(self, names: set[str]) -> None:
        """Registers expressions to the neutral face by what holds still, and finds their flow."""
        offset = (self.place - self.local) / self.span
        still = (offset[..., 1] < 0.55) & (np.abs(offset[..., 0]) < 1.2)
        neutral = self.faces["neutral"]
        soften = 2.0 * self.side / 720
        lips = _lips(self.actor.mouths["neutral"], shut=True)
        self.mouths = {"neutral": move(lips, self.matrices["neutral"])}
        self.forth: dict[str, Array] = {}
        self.back: dict[str, Array] = {}
        for name in sorted({*names, self.actor.closed}):
            photo = expression(self.actor.person, name)
            self.matrices[name] = register(photo, self.matrices["neutral"], neutral, still)
            self.faces[name] = self._laid(name)
            if name == self.actor.closed and name not in names:
                continue
            face = self.faces[name]
            self.forth[name] = cv2.GaussianBlur(flow(neutral, face), (0, 0), soften)
            lips = _lips(self.actor.mouths[name])
            self.mouths[name] = move(lips, self.matrices[name])
            self.back[name] = cv2.GaussianBlur(flow(face, neutral), (0, 0), soften)

    def _lay_lids(self) -> None:
        """Per eye: the closed lid's picture brought onto the open eye, and both lid edges."""
        closed = self.actor.closed
        self.lids: list[tuple[Array, Array, Array, Array]] = []
        x = self.place[0, :, 0]
        for lid in self.actor.lids:
            opened = move(lid.open, self.matrices["neutral"])
            shut = move(lid.closed, self.matrices[closed])
            fit = similarity(shut[[0, 2]], opened[[0, 2]])
            onto = np.vstack([fit, [0, 0, 1]]) @ np.vstack([self.matrices[closed], [0, 0, 1]])
            height, width = self.window.shape[:2]
            picture = cv2.warpAffine(
                expression(self.actor.person, closed),
                onto[:2],
                (width, height),
                flags=cv2.INTER_CUBIC,
                borderMode=cv2.BORDER_REPLICATE,
            )
            curves = [
                np.polyval(np.polyfit(p[:, 0], p[:, 1], 2), x) for p in (opened, move(shut, fit))
            ]
            middle = (opened[0] + opened[2]) / 2
            half = abs(float(opened[2, 0] - opened[0, 0])) / 2
            away = (self.place - middle) / half
            round_ = np.hypot(away[..., 0] / 1.45, (away[..., 1] - 0.05) / 0.85)
            weight = smoothstep(round_, 1.0, 0.72)
            self.lids.append(
                (
                    np.asarray(picture, np.float32),
                    curves[0].astype("f4"),
                    curves[1].astype("f4"),
                    weight,
                )
            )

    def _blink(self, face: Array, amount: float) -> Array:
        """The neutral face with both lids drawn down by amount, 0 to 1."""
        if amount <= 0:
            return face
        y = self.place[..., 1]
        unit = self.span / 167
        for picture, opened, shut, weight in self.lids:
            # Outside the corners the curves run away; there is no lid to move.
            travel = np.clip(shut - opened, 0, 0.12 * self.span)
            edge = opened + amount * travel
            # The whole lid hangs from the edge; near the brow nothing moves.
            hang = smoothstep(opened[None, :] - y, 0.16 * self.span, 0.02 * self.span)
            at = self.place + np.stack(
                [np.zeros_like(y), ((1 - amount) * travel)[None, :] * hang], -1
            )
            lashes = 7 * unit * amount + 60 * unit * float(smoothstep(amount, 0.8, 1.0))
            alpha = smoothstep(edge[None, :] + lashes - y, -1.2 * unit, 1.2 * unit)
            alpha = (alpha * weight * float(smoothstep(amount, 0.0, 0.25)))[..., None]
            face = face + (sample(picture, at, fine=True) - face) * alpha
        return face

    def face(
        self,
        mouth: Mapping[str, float] = {},
        whole: Mapping[str, float] = {},
        brows: float = 0.0,
        blink: float = 0.0,
    ) -> Image:
        """The picture, camera and head still, with the face in some state.

        Args:
            mouth: Expression -> 0..1, of the lower face; one at a time looks right.
            whole: Expression -> 0..1, of the whole face.
            brows: How far the brows are raised.
            blink: How far the lids are down.
        """
        layers = [
            *((name, "whole", w) for name, w in whole.items()),
            *((name, "mouth", w) for name, w in mouth.items()),
            (self.BROWS, "brows", brows),
        ]
        bends = [self._bend(*layer) for layer in layers if layer[2] > 0.01]
        home = self.place + sum(bend.neutral for bend in bends)
        neutral = self._blink(self.faces["neutral"].astype(np.float32), blink)
        out = sample(neutral, home, fine=True) if bends else neutral
        for bend in bends:
            other = sample(self.faces[bend.name], self.place + bend.other, fine=True)
            out += (other - out) * bend.share[..., None]
        picture = self.picture.copy()
        mixed = self.window + (out + self.light - self.window) * self.mask
        y1, x1 = self.y0 + self.window.shape[0], self.x0 + self.window.shape[1]
        picture[self.y0 : y1, self.x0 : x1] = np.clip(np.rint(mixed), 0, 255)
        return picture

    def _bend(self, name: str, region: str, amount: float) -> _Bend:
        """How the neutral face and an expression are bent to the shape between them."""
        local = self.regions[region] * amount
        neutral = inverse(self.forth[name] * local[..., None])
        other = inverse(self.back[name] * (1 - local)[..., None])
        share = self.regions[region] * float(smoothstep(amount, 0.1, 0.6))
        if region == "brows":
            return _Bend(name, neutral, other, share)
        # A mouth that opens tears the flow: there the lips' edges lead. Around them the spline
        # joins the flow at a ring of points.
        shut, goal = self.mouths["neutral"], self.mouths[name]
        ring = self._ring(shut)
        drift = sample(self.forth[name], ring[None])[0]
        start, end = np.vstack([shut, ring]), np.vstack([goal, ring + drift])
        now = start + amount * (end - start)
        (x0, y0), (x1, y1) = np.floor(ring.min(0)).astype(int), np.ceil(ring.max(0)).astype(int)
        box = (slice(max(y0, 0), y1), slice(max(x0, 0), x1))
        at = self.place[box]
        offset = (at - ring.mean(0)) / ((ring.max(0) - ring.min(0)) / 2)
        near = smoothstep(np.hypot(offset[..., 0], offset[..., 1]), 0.95, 0.65)[..., None]
        for field, points in ((neutral, start), (other, end)):
            lips = thin_plate(now, points - now, at)
            field[box] += (lips - field[box]) * near
        sooner = float(smoothstep(amount, 0.03, 0.3))
        share[box] += (sooner - share[box]) * near[..., 0]
        return _Bend(name, neutral, other, share)

    def _ring(self, mouth: Array) -> Array:
        """[16,2] points on an ellipse around the lips."""
        angle = np.linspace(0, 2 * np.pi, 16, endpoint=False)
        radii = np.array([0.5, 0.42]) * self.span
        # The jaw moves down and the nose stays, so the ellipse hangs a little low.
        middle = mouth.mean(axis=0) + np.array([0, 0.06 * self.span])
        ring = middle + np.stack([np.cos(angle), np.sin(angle)], -1) * radii
        return np.asarray(ring, np.float32)

    def shot(self, picture: Image, size: int, pose: Pose) -> Image:
        """A square camera picture of a face() result with the head turned a little.

        Args:
            picture: What face() gave.
            size: Side of the camera picture.
            pose: Of head and camera.
        """
        span, (cx, cy) = self.span, self.centre
        height, width = picture.shape[:2]
        fit = width / size / pose.zoom
        cos, sin = np.cos(pose.camera_roll) * fit, np.sin(pose.camera_roll) * fit
        out = grid(size, size) - (size - 1) / 2
        # A little above the portrait's own middle: hair keeps some room.
        middle = np.array([(width - 1) / 2, height - (width + 1) / 2 - 0.018 * width], np.float32)
        at = out @ np.array([[cos, sin], [-sin, cos]], np.float32) + middle
        at = at + np.array(pose.camera, np.float32) * width
        # The head: turned about the neck, moved, and with the middle of the face ahead of its
        # rim, which is what a small turn looks like. It fades out in backdrop and shoulders.
        offset = (at - (cx, cy)) / span
        held = smoothstep(offset[..., 1], 1.75, 0.95)
        held *= smoothstep(np.hypot(offset[..., 0], offset[..., 1] * 0.9), 2.1, 1.3)
        pivot = at - (cx, cy + 1.6 * span)
        turn = pose.roll * np.stack([-pivot[..., 1], pivot[..., 0]], -1)
        depth = np.sqrt(
            np.clip(1 - (offset[..., 0] / 0.95) ** 2 - ((offset[..., 1] - 0.2) / 1.25) ** 2, 0, 1)
        )
        ahead = depth[..., None] * np.array([pose.yaw, pose.pitch], np.float32) * 0.5 * span
        moved = turn + np.array(pose.head, np.float32) * span + ahead
        at = at - held[..., None] * moved
        x, y = (np.asarray(at[..., i], np.float32) for i in (0, 1))
        read = cv2.remap(picture, x, y, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT_101)
        return np.asarray(read, np.uint8)
