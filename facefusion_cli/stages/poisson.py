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
from torch import Tensor

_WALL = 0.85
"""Factor on the summed coupling to the outside. 1 is right for scattered cells, less for straight
walls (a wall two cells long and half a cell nearer the centre counts 4/3, not 2); 0.7 to 1 measure
much alike."""
_RELAXATION = (0.6, 1.6)
"""Two damped Jacobi steps that together flatten the upper three quarters of the spectrum."""
_COARSEST = 6
_COARSEST_STEPS = 2
_STOP = {torch.float32: 2e-3, torch.float64: 2e-6}
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
        [F,C,H,W] v of the module's equation; exactly 0 outside the domain. Within 0.0005
        (float32) or 1e-6 (float64) of the direct solution.
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
    channels = difference.shape[1]
    halvings = 0
    while min(height, width) - 2 > _COARSEST << halvings:
        halvings += 1
    mask = domain[..., 1:-1, 1:-1].to(difference.dtype)
    levels = [_Level(_framed(mask, mask), channels)]
    for _ in range(halvings):
        levels.append(levels[-1].coarser(channels))

    finest = levels[0]
    right = finest.grid(finest.right)[..., 1 : height - 1, 1 : width - 1]
    torch.mul(difference[..., 1:-1, 1:-1], 4, out=right)
    right -= difference[..., :-2, 1:-1]
    right -= difference[..., 2:, 1:-1]
    right -= difference[..., 1:-1, :-2]
    right -= difference[..., 1:-1, 2:]
    right *= mask
    solution = finest.grid(_conjugate_gradients(levels, watch=watch))
    out = torch.zeros_like(difference)
    out[..., 1:-1, 1:-1] = solution[..., 1 : height - 1, 1 : width - 1]
    return out


def _conjugate_gradients(levels: list[_Level], *, watch: bool) -> Tensor:
    """Solves the finest level's system; its right side is overwritten.

    Args:
        levels: All grids, finest first.
        watch: Stop when the correction is small; else make a fixed number of iterations.

    Returns:
        [F,C,n].
    """
    finest = levels[0]
    residual = finest.right
    count = (_MOST_ITERATIONS if watch else _FIXED_ITERATIONS)[residual.dtype]
    solution = torch.zeros_like(residual)
    direction = torch.zeros_like(residual)
    around = finest.shifts(direction)
    before = None
    for _ in range(count):
        correction = _v_cycle(levels, 0)
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


def _v_cycle(levels: list[_Level], number: int) -> Tensor:
    """An approximate solution of a level's system; symmetric and positive, as CG requires.

    Args:
        levels: All grids, finest first.
        number: The level, whose right side is set.

    Returns:
        [F,C,n], the level's x, which the next call overwrites.
    """
    level = levels[number]
    first, second = _RELAXATION
    level.start()
    if number + 1 == len(levels):
        for _ in range(_COARSEST_STEPS):
            level.relax(first)
            level.relax(second)
        return level.x
    level.restrict_residual()
    _v_cycle(levels, number + 1)
    level.add_prolonged()
    level.relax(second)
    level.relax(first)
    return level.x


_Shifts = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _framed(mask: Tensor, wall: Tensor) -> Tensor:
    """[F,2,h,w] of [F,1,..] mask and wall: filled up to even sides, within a ring of zeros."""
    faces, _, height, width = mask.shape
    cells = mask.new_zeros((faces, 2, height + height % 2 + 2, width + width % 2 + 2))
    cells[:, :1, 1 : height + 1, 1 : width + 1] = mask
    cells[:, 1:, 1 : height + 1, 1 : width + 1] = wall
    return cells


class _Level:
    """One grid of the multigrid hierarchy with its buffers.

    Arrays are [F,C,n] (coefficients [F,1,n]), the grid flattened row by row with its ring of zeros,
    so that a neighbour is a shift: long contiguous loops, no copies. What a shift wraps around
    lands on the ring, where the coefficients are 0. Views are made once, since on the coarse grids
    making them costs as much as the arithmetic.

    Args:
        cells: [F,2,h,w] with ring and even sides: 1 in the domain, and the coupling to the fixed
            values outside; overwritten by the finest level, which works the latter out.
        channels: C of the unknowns.
        wall: Whether the coupling is given, as on all coarser levels.
    """

    def __init__(self, cells: Tensor, channels: int, *, wall: bool = False) -> None:
        faces, _, height, width = cells.shape
        self.shape = (faces, channels, height, width)
        self.cells = cells
        mask = cells[:, :1]
        inside = torch.zeros_like(mask)
        inner = inside[..., 1:-1, 1:-1]
        torch.add(mask[..., :-2, 1:-1], mask[..., 2:, 1:-1], out=inner)
        inner += mask[..., 1:-1, :-2]
        inner += mask[..., 1:-1, 2:]
        if not wall:
            torch.addcmul(4 * mask, mask, inside, value=-1, out=cells[:, 1:])
        diagonal = inside.add_(cells[:, 1:]).mul_(mask)
        self.mask = mask.reshape(faces, 1, -1)
        self.diagonal = diagonal.view(faces, 1, -1)
        self.inverse = self.mask / self.diagonal.clamp(min=1e-6)

        size = (faces, channels, height * width)
        self.right = cells.new_zeros(size)
        self.work = cells.new_zeros(size)
        self.x = cells.new_empty(size)
        self.scaled = cells.new_empty(size)
        self.inner = slice(width + 1, height * width - width - 1)
        self._around = self.shifts(self.x)
        self._scaled_around = self.shifts(self.scaled)
        self._inner_inverse = self.inverse[..., self.inner]
        self._inner_diagonal = self.diagonal[..., self.inner]
        self._inner_work = self.work[..., self.inner]

    def coarser(self, channels: int) -> _Level:
        """The grid of half the size; prepares this level's passage to and from it."""
        faces, _, height, width = self.shape
        rows = self.cells[:, :, 1:-1:2, 1:-1] + self.cells[:, :, 2::2, 1:-1]
        sums = rows[..., 0::2] + rows[..., 1::2]
        coarse = _Level(_framed(sums[:, :1].clamp(max=1), sums[:, 1:] * _WALL), channels, wall=True)
        across, down = width // 2 - 1, height // 2 - 1

        work = self.grid(self.work)
        self._work_rows = [work[:, :, k : height - 3 + k : 2] for k in range(4)]
        buffers = self.right.new_empty((3, faces, channels, down * width))
        self._row_near, self._row_far, row_sums = buffers
        shape = (faces, channels, down, width)
        self._near, self._far = self._row_near.view(shape), self._row_far.view(shape)
        self._row_shifts = [self._row_far[..., k : down * width - 3 + k] for k in range(4)]
        self._column_near = self._row_near[..., : down * width - 3]
        self._column_sums = row_sums[..., : down * width - 3]
        self._picked = row_sums.view(shape)[..., 0 : width - 2 : 2]
        self._coarse_right = coarse.grid(coarse.right)[..., 1 : down + 1, 1 : across + 1]

        x = coarse.grid(coarse.x)[:, :, : down + 2]
        self._coarse_x = [x[..., k : across + k] for k in range(3)]
        columns = x.new_empty((faces, channels, down + 2, width - 2))
        self._columns = columns[..., 0::2], columns[..., 1::2]
        self._column_rows = [columns[:, :, k : down + k] for k in range(3)]
        self._work_cells = work[:, :, 1:-1:2, 1:-1], work[:, :, 2::2, 1:-1]
        return coarse

    def grid(self, x: Tensor) -> Tensor:
        """An [F,C,n] array as [F,C,h,w], ring included."""
        return x.view(self.shape)

    def shifts(self, x: Tensor) -> _Shifts:
        """Views of [F,C,n]: the inner part, and it moved to the left, right, upper, lower."""
        a, b, w = self.inner.start, self.inner.stop, self.shape[3]
        return tuple(x[..., a + k : b + k] for k in (0, -1, 1, -w, w))  # type: ignore[return-value]

    def dot(self, x: Tensor, y: Tensor) -> Tensor:
        """[F,C,1] inner products of two arrays with zero rings; overwrites the work buffer."""
        return torch.mul(x, y, out=self.work).sum(2, keepdim=True)

    def start(self) -> None:
        """Makes x both damped Jacobi steps from 0, in one."""
        first, second = _RELAXATION
        torch.mul(self.right, self.inverse, out=self.scaled)
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

    def restrict_residual(self) -> None:
        """Sums x's residual into the coarser grid's right side, the transpose of prolonging."""
        self._jacobi().sub_(self._around[0]).mul_(self._inner_diagonal)
        first, second, third, fourth = self._work_rows
        torch.add(second, third, out=self._near)
        torch.add(first, fourth, out=self._far)
        self._row_far.add_(self._row_near, alpha=3)
        first, second, third, fourth = self._row_shifts
        torch.add(second, third, out=self._column_near)
        torch.add(first, fourth, out=self._column_sums).add_(self._column_near, alpha=3)
        torch.mul(self._picked, 1 / 16, out=self._coarse_right)

    def add_prolonged(self) -> None:
        """Adds the coarser grid's x to this: bilinear between cell centres, 0 off the domain."""
        left, centre, right = self._coarse_x
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
