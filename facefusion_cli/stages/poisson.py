"""The discrete Poisson equation of seamless cloning, on domains of any shape.

P. Perez, M. Gangnet, A. Blake, "Poisson Image Editing", SIGGRAPH 2003, equation 7: inside the
domain the result has the source's differences between 4-neighbours, on its rim it is the backdrop.
With v = result - backdrop, which is 0 outside the domain, this is 4 v - (sum of v over the
neighbours) = 4 d - (sum of d over the neighbours), d = source - backdrop, at every pixel of the
domain. The right side vanishes where the two pictures differ by a constant, and then so does v.

Solved by conjugate gradients, preconditioned with one multigrid V-cycle (O. Tatebe 1993; for
irregular domains A. McAdams, E. Sifakis, J. Teran 2010). A coarse cell belongs to the domain if any
of its four cells does. Its couplings to neighbours are 1 again, as those of the plain Laplacian;
its coupling to the fixed values outside is the sum of its cells' couplings, times a factor. So thin
parts, holes and single pixels, which a coarse grid cannot show, are still felt by it as stiffness.
The error falls to about an eighth in each iteration whatever the domain's shape and size.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_WALL = 0.85
"""Factor on the summed coupling to the outside. 1 is right for scattered cells, less for straight
walls (a wall two cells long and half a cell nearer the centre counts 4/3, not 2); 0.7 to 1 measure
much alike."""
_RELAXATION = (0.6, 1.6)
"""Two damped Jacobi steps that together flatten the upper three quarters of the spectrum."""
_COARSEST = 4
_COARSEST_STEPS = 3
_STOP = {torch.float32: 1.5e-3, torch.float64: 2e-6}
"""A correction (of values 0..1) below which the iteration that made it is the last."""
_MOST_ITERATIONS = {torch.float32: 12, torch.float64: 24}
_FIXED_ITERATIONS = {torch.float32: 6, torch.float64: 11}
"""On a GPU, where looking at the correction would make the host wait for the device."""
_MOST_FACES = 16
"""Faces in one call on a GPU; more go in turns."""


@torch.no_grad()
def solve(difference: Tensor, domain: Tensor) -> Tensor:
    """What must be added to the backdrop.

    Args:
        difference: [F,C,H,W] float32 or float64, source minus backdrop, values of the order of 1;
            used in the domain and on the pixels next to it.
        domain: [F,1,H,W] bool. Pixels on the picture's border are taken as outside.

    Returns:
        [F,C,H,W] v of the module's equation; exactly 0 outside the domain. Error below 0.0002
        (float32) or 1e-7 (float64) of the direct solution.
    """
    inner = torch.zeros_like(domain)
    inner[..., 1:-1, 1:-1] = domain[..., 1:-1, 1:-1]
    if difference.is_cuda:
        starts = range(0, len(difference), _MOST_FACES)
        parts = [slice(i, i + _MOST_FACES) for i in starts]
        return torch.cat([_GRAPHS.solve(difference[p], inner[p]) for p in parts] or [difference])
    # One face at a time, and of it the domain's bounding box: the work stays in a core's cache.
    out = torch.zeros_like(difference)
    for i in range(len(difference)):
        rows = inner[i, 0].any(1).nonzero()
        if len(rows) == 0:
            continue
        columns = inner[i, 0].any(0).nonzero()
        box = (
            slice(i, i + 1),
            slice(None),
            slice(int(rows[0]) - 1, int(rows[-1]) + 2),
            slice(int(columns[0]) - 1, int(columns[-1]) + 2),
        )
        out[box] = _solve_box(difference[box], inner[box], watch=True)
    return out


def _solve_box(difference: Tensor, domain: Tensor, *, watch: bool) -> Tensor:
    """Solves where the outermost ring of [F,C,H,W] is outside the domain, all faces together."""
    height, width = difference.shape[2:]
    right = 4 * difference[..., 1:-1, 1:-1]
    right -= difference[..., :-2, 1:-1]
    right -= difference[..., 2:, 1:-1]
    right -= difference[..., 1:-1, :-2]
    right -= difference[..., 1:-1, 2:]
    mask = domain[..., 1:-1, 1:-1].to(difference.dtype)
    right *= mask

    halvings = 0
    while min(height, width) - 2 > _COARSEST << halvings:
        halvings += 1
    cell = 1 << halvings
    # Whole coarsest cells, and a ring of zeros.
    ring = (1, 1 - (width - 2) % -cell, 1, 1 - (height - 2) % -cell)
    mask = F.pad(mask, ring)
    channels = difference.shape[1]
    levels = [_Level(mask, mask * (4 - _neighbours(mask)), channels)]
    for _ in range(halvings):
        levels.append(levels[-1].coarser(channels))
    solution = _conjugate_gradients(levels, F.pad(right, ring).flatten(2), watch=watch)
    out = torch.zeros_like(difference)
    out[..., 1:-1, 1:-1] = solution.view(*solution.shape[:2], *mask.shape[2:])[
        ..., 1 : height - 1, 1 : width - 1
    ]
    return out


def _conjugate_gradients(levels: list[_Level], residual: Tensor, *, watch: bool) -> Tensor:
    """Solves the finest level's system.

    Args:
        levels: All grids, finest first.
        residual: [F,C,n] the right side; overwritten.
        watch: Stop when the correction is small; else make a fixed number of iterations.
    """
    finest = levels[0]
    count = (_MOST_ITERATIONS if watch else _FIXED_ITERATIONS)[residual.dtype]
    solution = torch.zeros_like(residual)
    direction = torch.zeros_like(residual)
    around = finest.shifts(direction)
    before = None
    for _ in range(count):
        correction = _v_cycle(levels, 0, residual)
        now = finest.dot(residual, correction)
        if before is None:
            direction.copy_(correction)
        else:
            # Zero over zero is a face without a domain, or one that is solved exactly.
            direction.mul_(torch.where(before > 0, now / before, 0)).add_(correction)
        before = now
        image = finest.apply(around)
        # Not by dot(), whose buffer holds the image.
        energy = (direction * image).sum(2, keepdim=True)
        step = torch.where(energy > 0, now / energy, 0)
        solution.addcmul_(direction, step)
        # The correction is what the preconditioner takes the error for: a bound in pixel values.
        if watch and max(map(abs, map(float, correction.aminmax()))) < _STOP[residual.dtype]:
            break
        residual.addcmul_(image, step, value=-1)
    return solution


def _v_cycle(levels: list[_Level], number: int, right: Tensor) -> Tensor:
    """An approximate solution of a level's system; symmetric and positive, as CG requires.

    Args:
        levels: All grids, finest first.
        number: The level.
        right: [F,C,n] right side.

    Returns:
        [F,C,n], a buffer of the level that the next call overwrites.
    """
    level = levels[number]
    first, second = _RELAXATION
    level.start(right)
    if number + 1 == len(levels):
        for _ in range(_COARSEST_STEPS):
            level.relax(first)
            level.relax(second)
        return level.x
    coarse = levels[number + 1]
    level.restrict_residual(coarse)
    _v_cycle(levels, number + 1, coarse.right)
    level.add_prolonged(coarse)
    level.relax(second)
    level.relax(first)
    return level.x


_Shifts = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


class _Level:
    """One grid of the multigrid hierarchy with its buffers.

    Arrays are [F,C,n] (masks and coefficients [F,1,n]), the grid flattened row by row with its ring
    of zeros, so that a neighbour is a shift: long contiguous loops, no copies. What a shift wraps
    around lands on the ring, where the coefficients are 0. Views are made once, since at the size
    of the coarse grids making them costs as much as the arithmetic.

    Args:
        mask: [F,1,h+2,w+2] 1 in the domain, 0 elsewhere and on the ring.
        wall: [F,1,h+2,w+2] coupling to the fixed values outside.
        channels: C of the unknowns.
    """

    def __init__(self, mask: Tensor, wall: Tensor, channels: int) -> None:
        faces, _, height, width = mask.shape
        size = (faces, channels, height * width)
        self.width = width
        self.wall = wall
        diagonal = mask * (_neighbours(mask) + wall)
        self.inverse = (mask / diagonal.clamp(min=1e-6)).flatten(2)
        self.diagonal = diagonal.flatten(2)
        self.mask = mask.flatten(2)
        self.grid_mask = mask
        self.x = mask.new_empty(size)
        self.scaled = mask.new_empty(size)
        self.right = mask.new_zeros(size)
        self.work = mask.new_zeros(size)

        self.inner = slice(width + 1, height * width - width - 1)
        self._around = self.shifts(self.x)
        self._scaled_around = self.shifts(self.scaled)
        self._inner_inverse = self.inverse[..., self.inner]
        self._inner_diagonal = self.diagonal[..., self.inner]
        self._inner_work = self.work[..., self.inner]
        shape = (faces, channels, height, width)
        work = self.work.view(shape)
        self._work_rows = [work[:, :, k : height - 3 + k : 2] for k in range(4)]
        self._work_cells = work[:, :, 1:-1:2, 1:-1], work[:, :, 2::2, 1:-1]
        x = self.x.view(shape)
        self._x_columns = x[..., :-2], x[..., 1:-1], x[..., 2:]
        columns = mask.new_empty((faces, channels, height // 2 + 1, width - 2))
        self._columns = columns[..., 0::2], columns[..., 1::2]
        self._column_rows = columns[:, :, :-2], columns[:, :, 1:-1], columns[:, :, 2:]
        self._grid_right = self.right.view(shape)[..., 1:-1, 1:-1]

    def coarser(self, channels: int) -> _Level:
        """The grid of half the size."""
        ring = (1, 1, 1, 1)
        mask = F.max_pool2d(self.grid_mask[..., 1:-1, 1:-1], 2)
        wall = F.avg_pool2d(self.wall[..., 1:-1, 1:-1], 2) * (4 * _WALL)
        return _Level(F.pad(mask, ring), F.pad(wall, ring), channels)

    def shifts(self, x: Tensor) -> _Shifts:
        """Views of [F,C,n]: the inner part, and it moved to the left, right, upper, lower."""
        a, b, w = self.inner.start, self.inner.stop, self.width
        return tuple(x[..., a + k : b + k] for k in (0, -1, 1, -w, w))  # type: ignore[return-value]

    def dot(self, x: Tensor, y: Tensor) -> Tensor:
        """[F,C,1] inner products of two arrays with zero rings; overwrites the work buffer."""
        return torch.mul(x, y, out=self.work).sum(2, keepdim=True)

    def start(self, right: Tensor) -> None:
        """Sets the right side and makes x both damped Jacobi steps from 0, in one."""
        first, second = _RELAXATION
        torch.mul(right, self.inverse, out=self.scaled)
        torch.mul(self.scaled, first + second - first * second, out=self.x)
        out = self._sum(self._scaled_around)
        self._around[0].addcmul_(self._inner_inverse, out, value=first * second)

    def relax(self, weight: float) -> None:
        """One damped Jacobi step on x."""
        self._around[0].lerp_(self._jacobi(), weight)

    def apply(self, around: _Shifts) -> Tensor:
        """The operator on an array given by its shifts; in the work buffer, 0 off the domain."""
        out = self._sum(around)
        torch.addcmul(around[0], self._inner_inverse, out, value=-1, out=out)
        out.mul_(self._inner_diagonal)
        return self.work

    def restrict_residual(self, coarse: _Level) -> None:
        """Sums x's residual into the coarser grid's right side, the transpose of prolonging."""
        self._jacobi().sub_(self._around[0]).mul_(self._inner_diagonal)
        first, second, third, fourth = self._work_rows
        rows = torch.add(first + fourth, second + third, alpha=3)
        end = rows.shape[3] - 3
        first, second, third, fourth = (rows[..., k : end + k : 2] for k in range(4))
        torch.add(first + fourth, second + third, alpha=3, out=coarse._grid_right).mul_(1 / 16)

    def add_prolonged(self, coarse: _Level) -> None:
        """Adds the coarser grid's x to this: bilinear between cell centres, 0 off the domain."""
        left, centre, right = coarse._x_columns
        odd, even = self._columns
        torch.add(left, centre, alpha=3, out=odd)
        torch.add(right, centre, alpha=3, out=even)
        upper, centre, lower = self._column_rows
        odd, even = self._work_cells
        torch.add(upper, centre, alpha=3, out=odd)
        torch.add(lower, centre, alpha=3, out=even)
        self.x.addcmul_(self.work, self.mask, value=1 / 16)

    def _jacobi(self) -> Tensor:
        """(right side + neighbours of x) / diagonal, the inner part of the work buffer."""
        out = self._sum(self._around)
        return torch.addcmul(self._scaled_around[0], self._inner_inverse, out, out=out)

    def _sum(self, around: _Shifts) -> Tensor:
        """The sum of the four neighbours, the inner part of the work buffer."""
        _, left, right, upper, lower = around
        return torch.add(left, right, out=self._inner_work).add_(upper).add_(lower)


def _neighbours(mask: Tensor) -> Tensor:
    """How many of the four neighbours are set; [F,1,h,w] with a ring of zeros."""
    count = torch.zeros_like(mask)
    count[..., 1:-1, 1:-1] = (
        mask[..., :-2, 1:-1] + mask[..., 2:, 1:-1] + mask[..., 1:-1, :-2] + mask[..., 1:-1, 2:]
    )
    return count


class _Graphs:
    """The solver on GPUs: one recorded CUDA graph for each shape, replayed.

    A solution takes over a thousand small kernels; launching them one by one costs the host about
    20 ms, whatever the number of faces. Calls are rounded up to 1, 2, 4, 8 or 16 faces, so there
    are few graphs; those of one stream share their scratch memory.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[tuple[int, int], Any] = {}
        self._recorded: dict[
            tuple[object, ...], tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]
        ] = {}

    def solve(self, difference: Tensor, domain: Tensor) -> Tensor:
        """As _solve_box, for at most 16 faces on one GPU."""
        if torch.cuda.is_current_stream_capturing():
            return _solve_box(difference, domain, watch=False)
        faces = len(difference)
        room = 1 << (faces - 1).bit_length()
        stream = torch.cuda.current_stream(difference.device)
        place = (stream.device_index, stream.cuda_stream)
        key = (*place, room, *difference.shape[1:], difference.dtype)
        # Held until everything is queued: two threads may be on one stream.
        with self._lock, torch.inference_mode(False), torch.cuda.device(difference.device):
            if key not in self._recorded:
                if place not in self._pools:
                    self._pools[place] = torch.cuda.graph_pool_handle()
                self._recorded[key] = self._record(difference, room, self._pools[place])
            graph, static_difference, static_domain, result = self._recorded[key]
            static_difference[:faces].copy_(difference)
            static_domain[:faces].copy_(domain)
            static_domain[faces:].zero_()
            graph.replay()
            return result[:faces].clone()

    def _record(
        self, like: Tensor, room: int, pool: Any
    ) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]:
        shape = (room, *like.shape[1:])
        difference = torch.zeros(shape, dtype=like.dtype, device=like.device)
        domain = torch.zeros((room, 1, *shape[2:]), dtype=torch.bool, device=like.device)
        # Once outside the recording, which must not load kernels.
        _solve_box(difference, domain, watch=False)
        graph = torch.cuda.CUDAGraph()
        # thread_local: the reader's and writer's threads go on using CUDA meanwhile.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            result = _solve_box(difference, domain, watch=False)
        return graph, difference, domain, result


_GRAPHS = _Graphs()
