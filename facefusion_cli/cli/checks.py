"""What ffx doctor looks at. Each check returns findings and prints nothing."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from facefusion_cli.cli.environment import ONNXRUNTIMES, OPENCVS, clash, installed, versions
from facefusion_cli.errors import DecodeError, DeviceError, EncoderUnavailable, FfxError, ModelError
from facefusion_cli.zoo.manifest import REINSTALL, models_folder, verify_all

ENCODERS = (
    "libx264",
    "ffv1",
    "libx265",
    "libsvtav1",
    "libvpx-vp9",
    "prores_ks",
    "h264_nvenc",
    "hevc_nvenc",
    "av1_nvenc",
)
NEEDED_ENCODERS = frozenset({"libx264", "ffv1"})
"""What --encoder h264 and ffv1 open; without them there is no output."""

_SILENT = {"libx265": {"x265-params": "log-level=none"}}
"""Options that keep a library from writing to stderr by itself."""

_PROBE_SIZE = 256
"""Side of the picture an encoder is tried with; hardware encoders refuse much less."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    level: Literal["ok", "warning", "error"]
    text: str
    mend: str | None = None
    """What to do about it."""
    exit_code: int = 0
    """Of the error class that a swap would meet; 0 unless level is error."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The same for machines (--json)."""


def examine() -> list[Finding]:
    """Every check, in the order they are shown."""
    here = installed()
    return [
        check_versions(),
        *check_distributions(here),
        *check_devices(),
        check_providers(),
        *check_models(),
        *check_encoders(),
    ]


def _error(name: str, text: str, kind: type[FfxError], mend: str) -> Finding:
    return Finding(name, "error", text, mend, kind.exit_code)


def check_versions() -> Finding:
    """What is installed."""
    found = versions()
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    return Finding("versions", "ok", text, facts=found)


def check_distributions(here: Collection[str]) -> Iterator[Finding]:
    """Distributions that overwrite one another's files.

    Args:
        here: Names of the installed distributions, normalised.
    """
    for library, family, keep, kind in (
        ("onnxruntime", ONNXRUNTIMES, "onnxruntime-gpu", DeviceError),
        ("opencv", OPENCVS, "opencv-python-headless", DecodeError),
    ):
        both = clash(here, family)
        if both:
            keep = keep if keep in both else both[0]
            yield _error(
                f"{library} packages",
                f"{' and '.join(both)} are both installed; they overwrite each other's files",
                kind,
                f"pip uninstall -y {' '.join(both)} && pip install {keep}",
            )


def check_devices() -> Iterator[Finding]:
    """Processors, memory and GPUs, as torch sees them."""
    memory = _memory_gib()
    size = f", {memory:.1f} GiB memory" if memory else ""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding(
        "cpu",
        "ok",
        f"{platform.machine()}, {cores} cores{size}",
        facts={"machine": platform.machine(), "cores": cores, "memory_gib": memory},
    )
    try:
        import torch
        import torchvision
    except (ImportError, OSError) as error:
        yield _error("torch", _first_line(error), DeviceError, "reinstall torch and torchvision")
        return
    del torchvision  # imported to see that it fits this torch
    built = torch.version.cuda
    if not torch.cuda.is_available():
        why = f"no GPU or driver found (torch is built for CUDA {built})" if built else ""
        text = f"not available: {why or 'this torch is built without CUDA'}; ffx runs on the CPU"
        yield Finding("cuda", "ok", text, facts={"devices": [], "built_for": built})
        return
    devices = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices.append(
            {
                "name": properties.name,
                "memory_gib": round(properties.total_memory / 2**30, 1),
                "capability": f"{properties.major}.{properties.minor}",
            }
        )
    names = "; ".join(
        f"{i} {d['name']}, {d['memory_gib']} GiB, capability {d['capability']}"
        for i, d in enumerate(devices)
    )
    facts = {"devices": devices, "built_for": built}
    yield Finding("cuda", "ok", f"{names} (torch is built for CUDA {built})", facts=facts)


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None


def check_providers() -> Finding:
    """What onnxruntime was built to run on; only models that users add need it."""
    try:
        import onnxruntime
    except (ImportError, OSError) as error:
        mend = "reinstall onnxruntime-gpu (or onnxruntime, never both)"
        return Finding("onnxruntime", "warning", _first_line(error), mend)
    providers = onnxruntime.get_available_providers()
    return Finding(
        "onnxruntime", "ok", "built for " + ", ".join(providers), facts={"providers": providers}
    )


def check_models() -> Iterator[Finding]:
    """Size and checksum of every file in the models folder."""
    try:
        verified = verify_all()
    except ModelError as error:
        yield _error("models", error.message, type(error), error.hint or "")
        return
    for one in verified:
        if one.state != "ok":
            yield _error(one.file.name, one.problem, ModelError, REINSTALL)
    good = [one.file for one in verified if one.state == "ok"]
    text = f"{len(good)} of {len(verified)} files match their checksums in {models_folder()}"
    yield Finding("models", "ok", text, facts={file.name: file.sha256 for file in good})


def check_encoders() -> Iterator[Finding]:
    """Encoders that really open here: each is given one frame."""
    try:
        import av
        import cv2
    except (ImportError, OSError) as error:
        mend = "reinstall av and opencv-python-headless"
        yield _error("video libraries", _first_line(error), DecodeError, mend)
        return
    libraries = {k: ".".join(map(str, v)) for k, v in av.library_versions.items()}
    text = ", ".join(f"{name} {version}" for name, version in libraries.items())
    yield Finding("ffmpeg", "ok", text, facts=libraries)
    yield Finding("opencv", "ok", cv2.__version__)
    opened = {name: try_encoder(name) for name in ENCODERS}
    works = [name for name, reason in opened.items() if reason is None]
    missing = NEEDED_ENCODERS - set(works)
    facts = {name: reason or "opens" for name, reason in opened.items()}
    others = ", ".join(name for name in ENCODERS if name not in works)
    text = f"{', '.join(works) or 'none'} open" + (f"; not here: {others}" if others else "")
    yield Finding("encoders", "ok", text, facts=facts)
    for name in sorted(missing):
        mend = "reinstall av from its wheel: pip install --force-reinstall av"
        yield _error(name, f"does not open: {opened[name]}", EncoderUnavailable, mend)


def try_encoder(name: str) -> str | None:
    """None when an encoder takes a frame here, else why not."""
    import av

    os.environ.setdefault("SVT_LOG", "0")  # SVT-AV1 writes to stderr by itself, otherwise
    try:
        codec = av.CodecContext.create(name, "w")
        if not isinstance(codec, av.VideoCodecContext):
            return "not a video encoder"
        formats = [f.name for f in codec.codec.video_formats or ()]
        codec.width = codec.height = _PROBE_SIZE
        codec.pix_fmt = "yuv420p" if "yuv420p" in formats or not formats else formats[0]
        codec.time_base = Fraction(1, 25)
        codec.framerate = Fraction(25)
        codec.options = _SILENT.get(name, {})
        frame = av.VideoFrame(_PROBE_SIZE, _PROBE_SIZE, codec.pix_fmt)
        frame.pts = 0
        packets = [*codec.encode(frame), *codec.encode(None)]
    # UnknownCodecError is a ValueError; the others are errors of FFmpeg's own.
    except (av.FFmpegError, ValueError) as error:
        return _first_line(error)
    return None if packets else "gave no packet"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
