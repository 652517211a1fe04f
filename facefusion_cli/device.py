"""Which device and precision a run uses, and why."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from facefusion_cli.config import RuntimeConfig
from facefusion_cli.errors import NoCuda

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Device:
    """A device with the precision of the networks on it."""

    torch: torch.device
    precision: str
    """fp32, fp16 or bf16."""
    why: str
    """One line for the log."""

    @property
    def is_cuda(self) -> bool:
        """Whether this is a GPU."""
        return self.torch.type == "cuda"

    def autocast(self) -> AbstractContextManager[None]:
        """Mixed precision for networks; does nothing at fp32."""
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.torch.type, dtype=_DTYPES[self.precision])  # type: ignore[return-value]


def choose_device(config: RuntimeConfig) -> Device:
    """The device and precision a run uses.

    Raises:
        NoCuda: CUDA was asked for by name and is not there.
    """
    cuda = torch.cuda.is_available()
    if config.device == "cuda" and not cuda:
        built = torch.version.cuda
        reason = "no GPU or driver was found" if built else "this torch is built without CUDA"
        raise NoCuda(
            f"--device cuda: CUDA is not available, {reason}",
            hint="use --device cpu, or run 'ffx doctor' to see what is missing",
        )
    if config.device == "cpu" or not cuda:
        # fp16 has no fast path on CPUs, and bf16 only on some: auto stays with fp32 there.
        precision = "fp32" if config.precision == "auto" else config.precision
        asked = "asked for" if config.device == "cpu" else "no CUDA here"
        return Device(torch.device("cpu"), precision, f"device cpu ({asked}), {precision}")
    name = torch.cuda.get_device_name()
    precision = "fp16" if config.precision == "auto" else config.precision
    return Device(torch.device("cuda"), precision, f"device cuda ({name}), {precision}")


def batch_size(config: RuntimeConfig, device: Device) -> int:
    """Frames a batch: as configured, or 8 on CUDA and 4 on a CPU."""
    return config.batch or (8 if device.is_cuda else 4)


def use_threads(config: RuntimeConfig) -> None:
    """Sets torch's CPU threads as configured; 0 leaves its default, all cores."""
    if config.threads:
        torch.set_num_threads(config.threads)
