"""Random domains with pictures for the Poisson tests, and their exact solution."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import splu

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

KINDS = ("ellipse", "blobs", "holes", "islands", "dust", "stripes", "border")
SIZES = (32, 48, 64, 96, 128, 200, 256, 384, 512)


def domain(kind: str, size: int, rng: np.random.Generator) -> Mask:
    """[size,size]; border reaches the picture's edge, the others mostly do not."""
    y, x = (np.mgrid[:size, :size] + 0.5) / size - 0.5
    face = (x / rng.uniform(0.2, 0.4)) ** 2 + (y / rng.uniform(0.3, 0.45)) ** 2 < 1
    noise = cv2.GaussianBlur(rng.standard_normal((size, size)), (0, 0), size / 16)
    if kind == "ellipse":
        return face
    if kind == "blobs":
        return noise > np.quantile(noise, 0.5)
    if kind == "holes":
        return face & ~(noise > np.quantile(noise, 0.9))
    if kind == "islands":
        return noise > np.quantile(noise, 0.85)
    if kind == "dust":
        return face & (rng.random((size, size)) > 0.02)
    if kind == "stripes":
        return face & ((np.arange(size)[:, None] % 5 < 2) | (np.abs(x) < 0.01))
    assert kind == "border", kind
    return (x + y > -0.4) & (noise < np.quantile(noise, 0.95))


def pictures(size: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Backdrop and source, [3,size,size] 0..1: shading, edges, grain; of different tone."""

    def one(low: float, high: float) -> Floats:
        coarse = rng.random((6, 6, 3))
        shading = cv2.resize(coarse, (size, size), interpolation=cv2.INTER_CUBIC)
        shading[size // 3 : size // 2, size // 4 : size // 2] *= 0.5
        grain = rng.normal(0, 0.03, shading.shape)
        return (low + (high - low) * shading + grain).clip(0, 1).transpose(2, 0, 1)

    return one(0.1, 0.6), one(0.3, 1.0)


def exact(backdrop: Floats, source: Floats, mask: Mask) -> Floats:
    """The equation of Perez et al. (7), assembled pixel by pixel and solved directly.

    Args:
        backdrop: [3,h,w].
        source: [3,h,w].
        mask: [h,w]; pixels of the picture's edge are boundary.
    """
    inside = mask.copy()
    inside[[0, -1]] = False
    inside[:, [0, -1]] = False
    number = np.full(mask.shape, -1)
    number[inside] = np.arange(inside.sum())
    y, x = np.nonzero(inside)
    if len(y) == 0:
        return backdrop.copy()
    right = np.zeros((len(y), 3))
    rows, columns = [], []
    for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        q = (slice(None), y + dy, x + dx)
        right += (source[:, y, x] - source[q]).T
        neighbour = number[q[1:]]
        known = neighbour < 0
        right[known] += backdrop[q].T[known]
        rows.append(number[y, x][~known])
        columns.append(neighbour[~known])
    row, column = np.concatenate(rows), np.concatenate(columns)
    matrix = sparse.csc_array(
        (
            np.concatenate([np.full(len(row), -1.0), np.full(len(y), 4.0)]),
            (np.concatenate([row, np.arange(len(y))]), np.concatenate([column, np.arange(len(y))])),
        ),
        shape=(len(y), len(y)),
    )
    result = backdrop.copy()
    # What spsolve does, with one factorisation for the three channels. The matrix is symmetric and
    # positive definite, so it needs no pivoting, which would fill it in: 0.3 s instead of 89 s for
    # dust of 384.
    factors = splu(
        matrix,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    result[:, y, x] = factors.solve(right).T
    return result
