"""Memory for batches that is used again once a batch is gone."""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_Key = tuple[tuple[int, ...], torch.dtype]


class BufferPool:
    """Hands out uninitialised tensors; memory returns when the last view of a tensor is gone.

    Fresh memory for each batch would be handed out by the system page by page, which at 1080p costs
    as much as decoding. How many buffers there are follows from how many batches are alive at once.
    Page-locked memory is left to torch's own caching allocator, which waits for copies in flight.

    Args:
        pin_memory: Tensors are page-locked (needs CUDA).
    """

    def __init__(self, *, pin_memory: bool = False) -> None:
        self._pin_memory = pin_memory
        self._free: dict[_Key, list[npt.NDArray[Any]]] = defaultdict(list)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor on the CPU.

        Args:
            shape: Any.
            dtype: torch.uint8 or torch.uint16.
        """
        if self._pin_memory:
            return torch.empty(shape, dtype=dtype, pin_memory=True)
        free = self._free[shape, dtype]
        try:
            memory = free.pop()
        except IndexError:
            memory = np.empty(shape, np.uint8 if dtype == torch.uint8 else np.uint16)
        # The tensor's storage holds on to this view, and so do all tensors that share it.
        view = memory.view()
        weakref.finalize(view, free.append, memory).atexit = False
        return torch.from_numpy(view)
