"""Bending pictures: displacement fields, optical flow, similarities and splines, with OpenCV.

Fields are [H,W,2] float32 displacements x, y in pixels.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
from actors import Array, Image


def smoothstep(x: npt.ArrayLike, low: float, high: float) -> Array:
    """0 below low, 1 above high, smooth between; falls instead when low > high."""
    t = np.clip((np.asarray(x, np.float32) - low) / (high - low), 0, 1)
    return np.asarray(t * t * (3 - 2 * t), np.float32)


def grid(height: int, width: int) -> Array:
    """[H,W,2] pixel coordinates x, y."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    return np.stack([x, y], -1)


def sample(picture: Image | Array, at: Array, *, fine: bool = False) -> Array:
    """A picture or field read at [H,W,2] coordinates; edges are continued."""
    how = cv2.INTER_CUBIC if fine else cv2.INTER_LINEAR
    read = cv2.remap(picture, at[..., 0], at[..., 1], how, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(read, np.float32)


def inverse(field: Array, rounds: int = 8) -> Array:
    """The displacement that undoes p -> p + field(p), by fixed-point iteration."""
    place = grid(*field.shape[:2])
    back = -field
    for _ in range(rounds):
        back = -sample(field, place + back)
    return back


def flow(a: Image, b: Image) -> Array:
    """Dense optical flow [H,W,2]: what lies at p in a lies at p plus the flow there in b."""
    dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    dis.setFinestScale(1)
    # Local contrast, so that brightness differences between two photos do not read as motion.
    level = cv2.createCLAHE(2.0, (8, 8))
    grey = [level.apply(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)) for picture in (a, b)]
    return np.asarray(dis.calc(grey[0], grey[1], None), np.float32)


def register(moving: Image, start: Array, fixed: Image, region: Array) -> Array:
    """Refines a similarity so that moving lies on fixed, by flow where region is set.

    Args:
        moving: The picture to lay.
        start: [2,3] first guess, moving -> fixed.
        fixed: The picture to lay it on.
        region: [H,W] bool over fixed: what keeps its shape.
    """
    matrix = np.vstack([start, [0, 0, 1]])
    place = grid(*fixed.shape[:2])
    inside = np.full(moving.shape[:2], 255, np.uint8)
    size = (fixed.shape[1], fixed.shape[0])
    for _ in range(4):
        laid = cv2.warpAffine(
            moving, matrix[:2], size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
        )
        chosen = (region > 0) & (cv2.warpAffine(inside, matrix[:2], size) > 0)
        goal = np.ascontiguousarray(place[chosen][::5])
        found = goal + flow(fixed, np.asarray(laid, np.uint8))[chosen][::5]
        step, _ = cv2.estimateAffinePartial2D(
            found, goal, method=cv2.RANSAC, ransacReprojThreshold=1.5 * fixed.shape[0] / 720
        )
        matrix = np.vstack([step, [0, 0, 1]]) @ matrix
    return np.asarray(matrix[:2], np.float32)


def similarity(source: npt.ArrayLike, goal: npt.ArrayLike) -> Array:
    """[2,3] similarity that takes two points onto two others exactly."""
    (a, b), (c, d) = (np.asarray(p, np.float64) @ [1, 1j] for p in (source, goal))
    turn = (d - c) / (b - a)
    shift = c - turn * a
    return np.array([[turn.real, -turn.imag, shift.real], [turn.imag, turn.real, shift.imag]], "f4")


def thin_plate(controls: Array, values: Array, at: Array) -> Array:
    """The thin-plate spline through values [K,C] at controls [K,2], read at [H,W,2].

    Duchon 1977; a little stiffness keeps controls that nearly coincide from folding the plane.
    """

    def kernel(square: Array) -> Array:
        return np.asarray(square * np.log(square + 1e-6), np.float32)

    count = len(controls)
    apart = ((controls[:, None] - controls[None]) ** 2).sum(-1)
    affine = np.hstack([np.ones((count, 1)), controls])
    system = np.zeros((count + 3, count + 3))
    system[:count, :count] = kernel(apart) + 1e-3 * apart.mean() * np.eye(count)
    system[:count, count:], system[count:, :count] = affine, affine.T
    weights = np.linalg.solve(system, np.vstack([values, np.zeros((3, values.shape[1]))]))
    flat = at.reshape(-1, 2).astype(np.float32)
    square = (
        (flat**2).sum(1)[:, None] - 2 * flat @ controls.T.astype(np.float32) + (controls**2).sum(1)
    )
    radial = kernel(np.maximum(square, 0)) @ weights[:count].astype(np.float32)
    linear = weights[count] + flat @ weights[count + 1 :].astype(np.float32)
    return np.asarray((radial + linear).reshape(*at.shape[:-1], -1), np.float32)


def move(points: npt.ArrayLike, matrix: Array) -> Array:
    """Points [K,2] through a [2,3] matrix."""
    return np.asarray(np.asarray(points, np.float32) @ matrix[:, :2].T + matrix[:, 2], np.float32)
