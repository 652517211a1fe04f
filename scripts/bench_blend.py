"""Milliseconds a face of Poisson blending: ours in torch beside cv2.seamlessClone.

    python scripts/bench_blend.py [--sizes 128 256 512] [--threads 1 N] [--device cpu] [--repeat 9]

Synthetic crops with a face-shaped mask (62 % by 80 % of the crop) and a tone step between the two
pictures; medians of wall time. The last columns say how far the float32 result is from the float64
one, in levels of 255, and how far OpenCV's is. On CUDA rows for 1, 8 and 16 faces a call are shown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from facefusion_cli.stages.blend import blend

WARM_UP = 3


def crops(size: int, faces: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Backdrop, new face and mask: [faces,3,S,S] twice and [faces,1,S,S]."""
    generator = torch.Generator().manual_seed(size)

    def picture(low: float, high: float) -> torch.Tensor:
        shape = (faces, 3, size, size)
        coarse = torch.rand((faces, 3, 6, 6), generator=generator)
        smooth = F.interpolate(coarse, size=shape[2:], mode="bicubic").clamp(0, 1)
        grain = torch.randn(shape, generator=generator) * 0.02
        return (low + (high - low) * smooth + grain).clamp(0, 1)

    y, x = torch.meshgrid(*[torch.linspace(-1, 1, size)] * 2, indexing="ij")
    radius = ((x / 0.62).abs() ** 2.2 + ((y - 0.05) / 0.8).abs() ** 2.2) ** (1 / 2.2)
    mask = ((1 - radius) * size / 12).clamp(0, 1).expand(faces, 1, size, size).contiguous()
    return picture(0.2, 0.8), picture(0.3, 1.0), mask


def milliseconds(call: Callable[[], object], repeat: int, device: torch.device) -> float:
    times = []
    for i in range(WARM_UP + repeat):
        if device.type == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if i >= WARM_UP:
            times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 256, 512])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, cores or 1}))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeat", type=int, default=9)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    where = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{where}; torch {torch.__version__}, OpenCV {cv2.__version__}")
    print(f"{'size':>5} {'threads':>7} {'faces':>5} {'torch ms/face':>13} ", end="")
    print(f"{'cv2 ms/face':>11} {'fp32-fp64':>9} {'cv2-fp64':>8}")
    for size in arguments.sizes:
        for threads in arguments.threads:
            torch.set_num_threads(threads)
            cv2.setNumThreads(threads)
            for faces in (1, 8, 16) if device.type == "cuda" else (1,):
                backdrop, pixels, mask = (t.to(device) for t in crops(size, faces))
                ours = milliseconds(
                    lambda b=backdrop, p=pixels, m=mask: blend(b, p, m, "poisson"),
                    arguments.repeat,
                    device,
                )
                opencv = milliseconds(
                    lambda b=backdrop, p=pixels, m=mask: blend(b, p, m, "opencv"),
                    arguments.repeat,
                    device,
                )
                exact = blend(backdrop.double(), pixels.double(), mask, "poisson")
                single = blend(backdrop, pixels, mask, "poisson")
                cloned = blend(backdrop, pixels, mask, "opencv")
                error, other = (
                    float(np.abs((t.double() - exact).cpu().numpy()).max() * 255)
                    for t in (single, cloned)
                )
                print(f"{size:5} {threads:7} {faces:5} {ours / faces:13.2f} ", end="")
                print(f"{opencv / faces:11.2f} {error:9.3f} {other:8.1f}")


if __name__ == "__main__":
    main()
