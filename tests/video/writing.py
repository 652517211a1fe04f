"""What the tests of writing share: batches of known planes, and what is in a written file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import torch

from facefusion_cli.config import Config, OutputConfig, RuntimeConfig
from facefusion_cli.report import Report
from facefusion_cli.types import ColorSpec, FrameBatch, PlaneLayout, VideoInfo
from facefusion_cli.video.writer import ClipWriter
from tests.clips import planes

GRIDS = {(1, 1): "444", (2, 1): "422", (2, 2): "420"}


LOUD = {"fltp": 0.05, "flt": 0.05, "s16": 1600, "s16p": 1600}


def config(encoder: str = "h264", *, queue: int = 4, **output: object) -> Config:
    settings = OutputConfig(encoder=encoder, **output)  # type: ignore[arg-type]
    return Config(output=settings, runtime=RuntimeConfig(queue=queue))


def info_of(
    path: Path,
    size: tuple[int, int] = (64, 48),
    *,
    grid: tuple[int, int] = (2, 2),
    bits: int = 8,
    color: ColorSpec | None = None,
    rate: Fraction | int = 25,
    time_base: Fraction = Fraction(1, 12800),
    alpha: bool = False,
    sample_aspect: Fraction = Fraction(1),
) -> VideoInfo:
    """A clip's facts as the probe would state them; `path` is where its sound is looked for."""
    return VideoInfo(
        path=path,
        width=size[0],
        height=size[1],
        coded_size=size,
        rotation=0,
        frame_rate=Fraction(rate),
        time_base=time_base,
        start=Fraction(0),
        duration_from_header=None,
        frame_count_from_header=None,
        pixel_format="yuv420p",
        layout=PlaneLayout(grid, bits),
        color=color or ColorSpec(),
        sample_aspect=sample_aspect,
        codec="h264",
        container="mov,mp4,m4a,3gp,3g2,mj2",
        hazards=frozenset({"alpha"} if alpha else ()),
    )


def format_of(info: VideoInfo, alpha: bool = False) -> str:
    """FFmpeg's planar format for a clip."""
    depth = f"{info.layout.bits}le" if info.layout.bits > 8 else ""
    if info.color.matrix == "rgb":
        return ("gbrap" if alpha else "gbrp") + depth
    return f"yuv{'a' if alpha else ''}{GRIDS[info.layout.subsampling]}p{depth}"


def batches(
    info: VideoInfo, times: Sequence[Fraction], *, size: int = 4, alpha: bool = False
) -> Iterator[FrameBatch]:
    """Frames of the synthetic pattern, each batch with memory of its own."""
    name = format_of(info, alpha)
    for first in range(0, len(times), size):
        pts = tuple(times[first : first + size])
        frames = [planes(name, (info.width, info.height), first + i) for i in range(len(pts))]
        y, u, v, *a = (torch.from_numpy(np.stack(p)) for p in zip(*frames, strict=True))
        yield FrameBatch((y, u, v), info.color, info.layout, pts, first, a[0] if alpha else None)


def evenly(frames: int, rate: Fraction | int = 25, start: Fraction | int = 0) -> list[Fraction]:
    return [start + Fraction(i) / rate for i in range(frames)]


def write_clip(
    out: Path,
    info: VideoInfo,
    times: Sequence[Fraction],
    settings: Config | None = None,
    *,
    alpha: bool = False,
) -> Report:
    report = Report()
    with ClipWriter(out, info, settings or config(), report) as writer:
        for batch in batches(info, times, alpha=alpha):
            writer.write(batch)
    return report


@dataclass
class Written:
    """What a file holds."""

    frames: list[list[np.ndarray]]
    """Planes in the order of the format, packed RGB taken apart into G, B, R (and alpha)."""
    pts: list[Fraction]
    pix_fmt: str
    size: tuple[int, int]
    tags: tuple[int, int, int, int]
    sample_aspect: Fraction | None


def read_file(path: Path) -> Written:
    """Decodes all frames of a file."""
    with av.open(path) as file:
        stream = file.streams.video[0]
        decoded = list(file.decode(stream))
        context = stream.codec_context
        return Written(
            [_planes(f) for f in decoded],
            [f.pts * f.time_base for f in decoded],
            context.pix_fmt,
            (context.width, context.height),
            (
                context.colorspace,
                context.color_primaries,
                context.color_trc,
                context.color_range,
            ),
            stream.sample_aspect_ratio,
        )


def _planes(frame: av.VideoFrame) -> list[np.ndarray]:
    kind = np.uint16 if frame.format.components[0].bits > 8 else np.uint8
    arrays = []
    for plane in frame.planes:
        rows = np.frombuffer(plane, kind).reshape(plane.height, -1)
        arrays.append(rows[:, : plane.width * (4 if frame.format.name.startswith("bgr") else 1)])
    if frame.format.name in {"bgr0", "bgra"}:
        pixels = arrays[0].reshape(frame.height, frame.width, 4)
        order = [1, 0, 2, 3][: 3 if frame.format.name == "bgr0" else 4]
        return [pixels[:, :, c].copy() for c in order]
    return [a.copy() for a in arrays]


def packets(path: Path, kind: str = "audio", *, heard: bool = False) -> list[list[bytes]]:
    """The payloads of every stream of a kind; `heard` leaves out what an edit list cuts."""
    with av.open(path) as file:
        streams = [s for s in file.streams if s.type == kind]
        found: dict[int, list[bytes]] = {s.index: [] for s in streams}
        for packet in file.demux(streams) if streams else ():
            if packet.size and not (heard and packet.is_discard):
                found[packet.stream_index].append(bytes(packet))
    return list(found.values())


def distance(path: Path, back: int = 10) -> Fraction:
    """Seconds from the first picture to a packet of the first sound, counted from its end.

    That is the distance of two things one can see and hear. A stream's start would not do: what
    containers call that includes the encoder's delay in some and not in others.
    """
    with av.open(path) as file:
        video, sound = file.streams.video[0], file.streams.audio[0]
        shown, heard = [], []
        for packet in file.demux(video, sound):
            if packet.size and not packet.is_discard:
                times = shown if packet.stream_index == video.index else heard
                times.append(packet.pts * packet.time_base)
    return sorted(heard)[-back] - min(shown)


def starts(path: Path) -> tuple[Fraction, Fraction]:
    """When the first picture is shown and the first sample heard, by decoding."""
    found = []
    for kind in ("video", "audio"):
        with av.open(path) as file:
            frame = next(file.decode(**{kind: 0}))
            found.append(frame.pts * frame.time_base)
    return found[0], found[1]


def onset(path: Path) -> Fraction:
    """When the first sound becomes louder than silence."""
    with av.open(path) as file:
        for frame in file.decode(audio=0):
            loud = np.flatnonzero(
                np.abs(frame.to_ndarray()[0].astype(float)) > LOUD[frame.format.name]
            )
            if len(loud):
                channels = 1 if frame.format.is_planar else len(frame.layout.channels)
                at = int(loud[0]) // channels
                return frame.pts * frame.time_base + Fraction(at, frame.sample_rate)
    raise AssertionError(f"{path} is silent")
