"""Synthetic clips with their ground truth, made with PyAV where a test needs one.

`make_clip(path, ...)` writes a clip and returns a `Clip` that says what is in it: the timestamps
handed to the encoder, the size, and every sample of every frame. A frame cannot be mistaken for
another (its brightness encodes its index) nor for its mirrored or turned self (a bright block lies
in its top left corner), and columns and rows are gradients, so a shift shows too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]

AUDIO_RATE = 48_000
_PACKED = {  # byte offset of (R, G, B, A) in a pixel, bytes a pixel
    "rgb24": ((0, 1, 2, None), 3),
    "bgr24": ((2, 1, 0, None), 3),
    "bgr0": ((2, 1, 0, None), 4),
    "bgra": ((2, 1, 0, 3), 4),
    "rgba": ((0, 1, 2, 3), 4),
}
_LOSSLESS = {"ffv1", "libx264rgb", "png", "qtrle", "huffyuv", "utvideo"}


@dataclass(frozen=True)
class Clip:
    """What make_clip wrote."""

    path: Path
    frames: int
    size: tuple[int, int]
    """Width and height as stored."""
    upright: tuple[int, int]
    """Width and height when shown."""
    fps: Fraction
    pts: tuple[Fraction, ...]
    """Seconds, as handed to the encoder; a container may move all of them by one constant."""
    pix_fmt: str
    rotation: int
    """Degrees counter-clockwise that turn the stored picture upright."""
    mirrored: bool
    lossless: bool
    interlaced: bool
    audio: bool
    audio_start: Fraction

    def value(self, index: int) -> int:
        """The 8-bit brightness (Y, or R in RGB formats) at the centre of a frame."""
        w, h = self.size
        return int(pattern(index, w, h)[0][h // 2, w // 2])

    def planes(self, index: int) -> list[Array]:
        """Every sample of a stored frame: one array a plane in the format's own plane order, the
        alpha plane last; packed formats are one [H, W, bytes] array."""
        return planes(self.pix_fmt, self.size, index, interlaced=self.interlaced)

    def upright_planes(self, index: int) -> list[Array]:
        """planes() as they are shown: turned and mirrored."""
        turned = [np.rot90(p, self.rotation // 90) for p in self.planes(index)]
        return [np.ascontiguousarray(p[:, ::-1] if self.mirrored else p) for p in turned]


def pattern(index: int, w: int, h: int, *, bar: int | None = None) -> tuple[Array, ...]:
    """Four 8-bit [h, w] channels of a frame, inside the limited range: Y U V A, or R G B A.

    Args:
        index: The frame's index; brightness repeats after 130 frames, neighbours differ by 29.
        w: Columns.
        h: Rows.
        bar: First column of a bright bar of w / 8 columns in the lowest quarter, or None.
    """
    x = np.arange(w)[None, :] / max(w - 1, 1)
    y = np.arange(h)[:, None] / max(h - 1, 1)
    ones = np.ones((h, w))
    # All of it lies inside the RGB cube, so what passes through RGB loses nothing but rounding.
    first = 40 + (index * 29) % 130 + 40 * x * ones
    first[: max(h // 4, 1), : max(w // 2, 1)] = 215
    if bar is not None:
        first[3 * h // 4 :, bar : bar + w // 8] = 215
    second = (120 + 12 * y + 2 * (index % 3)) * ones
    third = (136 - 12 * x - 2 * (index % 4)) * ones
    alpha = (60 + 120 * y + (index * 7) % 50) * ones
    return tuple(np.round(c).astype(np.uint8) for c in (first, second, third, alpha))


def planes(
    pix_fmt: str, size: tuple[int, int], index: int, *, interlaced: bool = False
) -> list[Array]:
    """The samples of a frame in a pixel format; see Clip.planes."""
    w, h = size
    channels = _channels(index, w, h, interlaced)
    if pix_fmt in _PACKED:
        offsets, step = _PACKED[pix_fmt]
        pixels = np.full((h, w, step), 255, np.uint8)
        for channel, offset in zip(channels, offsets, strict=True):
            if offset is not None:
                pixels[:, :, offset] = channel
        return [pixels]
    fmt = av.VideoFormat(pix_fmt, w, h)
    by_plane: dict[int, list[Array]] = {}
    for n, component in enumerate(fmt.components):
        if component.is_alpha:
            source = channels[3]
        elif component.is_chroma:
            cw, ch = component.width, component.height
            source = pattern(index, cw, ch)[n]
        else:
            source = channels[n]
        extra = component.bits - 8
        if extra > 0:
            columns = np.arange(source.shape[1], dtype=np.uint16) + index
            source = (source.astype(np.uint16) << extra) + (columns & ((1 << extra) - 1))
        by_plane.setdefault(component.plane, []).append(source)
    out = []
    for plane in sorted(by_plane):
        parts = by_plane[plane]
        out.append(parts[0] if len(parts) == 1 else np.stack(parts, 2))
    return out


def _channels(index: int, w: int, h: int, interlaced: bool) -> tuple[Array, ...]:
    if not interlaced:
        return pattern(index, w, h)
    step = max(w // 16, 2)
    top = pattern(index, w, h, bar=(2 * index * step) % w)
    bottom = pattern(index, w, h, bar=((2 * index + 1) * step) % w)
    rows = np.arange(h)[:, None] % 2 == 0
    return tuple(np.where(rows, a, b) for a, b in zip(top, bottom, strict=True))


def frame_of(pix_fmt: str, size: tuple[int, int], arrays: Sequence[Array]) -> av.VideoFrame:
    """A VideoFrame that holds these planes."""
    w, h = size
    frame = av.VideoFrame(w, h, pix_fmt)
    for plane, array in zip(frame.planes, arrays, strict=False):
        flat = np.ascontiguousarray(array).reshape(array.shape[0], -1).view(np.uint8)
        row = np.zeros((plane.buffer_size // plane.line_size, plane.line_size), np.uint8)
        row[: flat.shape[0], : flat.shape[1]] = flat
        plane.update(row.tobytes() + bytes(plane.buffer_size - row.size))
    return frame


def make_clip(
    path: Path | str,
    *,
    frames: int = 12,
    size: tuple[int, int] = (64, 48),
    fps: Fraction | int = 25,
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    color: tuple[int, int, int, int] | None = None,
    pts: Sequence[Fraction | float] | None = None,
    start: Fraction | int | float = 0,
    rotation: int = 0,
    mirrored: bool = False,
    sar: Fraction | None = None,
    audio: bool = False,
    audio_codec: str = "aac",
    audio_start: Fraction | int | float = 0,
    audio_seconds: float | None = None,
    interlaced: bool = False,
    container: str | None = None,
    options: Mapping[str, str] | None = None,
    container_options: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Clip:
    """Writes a clip.

    Args:
        path: Where; the suffix picks the container unless `container` names it.
        frames: How many frames (0 writes an audio-only file, which needs audio=True).
        size: Stored width and height.
        fps: Frame rate of a clip without `pts`.
        codec: An encoder of PyAV's FFmpeg.
        pix_fmt: A planar, packed RGB or nv12 format the encoder takes as it is.
        color: (matrix, primaries, transfer, range) numbers of H.273 / FFmpeg; None = untagged.
            The samples are the same either way.
        pts: Seconds of every frame, for a variable rate.
        start: Seconds added to all video timestamps.
        rotation: 0, 90, 180 or 270 degrees counter-clockwise, written as display matrix.
        mirrored: The display matrix also mirrors the turned picture left to right.
        sar: Pixel aspect ratio.
        audio: Adds a tone that rises from 440 Hz, stereo, 48 kHz.
        audio_codec: Its encoder.
        audio_start: Seconds of its first sample.
        audio_seconds: Its length; None = the video's.
        interlaced: Two fields a frame with a bar that moves between fields (libx264 only).
        container: FFmpeg's name of the container.
        options: Encoder options over the defaults.
        container_options: Muxer options.
        metadata: Container tags.
    """
    path = Path(path)
    fps = Fraction(fps)
    shift = _exact(start)
    if pts is None:
        times = tuple(shift + Fraction(i) / fps for i in range(frames))
    else:
        times = tuple(shift + _exact(t) for t in pts)
        frames = len(times)
    clip = Clip(
        path=path,
        frames=frames,
        size=size,
        upright=size if rotation % 180 == 0 else (size[1], size[0]),
        fps=fps,
        pts=times,
        pix_fmt=pix_fmt,
        rotation=rotation,
        mirrored=mirrored,
        lossless=codec in _LOSSLESS or (options or {}).get("qp") == "0",
        interlaced=interlaced,
        audio=audio,
        audio_start=_exact(audio_start),
    )
    plain = pts is None and shift == 0
    with av.open(
        path.resolve(), "w", format=container, options=dict(container_options or {})
    ) as sink:
        sink.metadata.update(metadata or {})
        video = None
        if frames:
            video = sink.add_stream(codec, rate=fps, options=_options(codec, interlaced, options))
            video.width, video.height = size
            video.pix_fmt = pix_fmt
            context = video.codec_context
            context.thread_count = 1
            context.time_base = 1 / fps if plain else Fraction(1, 90_000)
            if sar is not None:
                context.sample_aspect_ratio = sar
            if color is not None:
                context.colorspace, context.color_primaries = color[0], color[1]
                context.color_trc, context.color_range = color[2], color[3]
            if rotation or mirrored:
                video.set_display_rotation(rotation, hflip=mirrored)
        sound = sink.add_stream(audio_codec, rate=AUDIO_RATE, layout="stereo") if audio else None
        if sound is not None:
            length = audio_seconds
            if length is None:
                length = float(times[-1] - times[0] + 1 / fps) if frames else 1.0
            for packet in _tone(sound, clip.audio_start, length):
                sink.mux(packet)
        if video is not None:
            for i, when in enumerate(times):
                frame = frame_of(pix_fmt, size, clip.planes(i))
                if color is not None:
                    frame.colorspace, frame.color_primaries = color[0], color[1]
                    frame.color_trc, frame.color_range = color[2], color[3]
                frame.time_base = video.codec_context.time_base
                frame.pts = round(when / frame.time_base)
                sink.mux(video.encode(frame))
            sink.mux(video.encode(None))
    return clip


def _exact(seconds: Fraction | int | float) -> Fraction:
    return Fraction(seconds).limit_denominator(90_000)


def _options(codec: str, interlaced: bool, over: Mapping[str, str] | None) -> dict[str, str]:
    defaults: dict[str, dict[str, str]] = {
        "libx264": {"preset": "veryfast", "crf": "12"},
        "libx265": {"preset": "ultrafast", "crf": "12", "x265-params": "log-level=none"},
        "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8", "crf": "10", "b": "0"},
        "libsvtav1": {"preset": "12", "crf": "20"},
    }
    options = dict(defaults.get(codec, {}))
    if interlaced:
        options["flags"] = "+ildct+ilme"
    if over and "qp" in over:
        options.pop("crf", None)
    return options | dict(over or {})


def _tone(stream: av.AudioStream, start: Fraction, seconds: float) -> list[av.Packet]:
    context = stream.codec_context
    total = math.ceil(seconds * AUDIO_RATE)
    step = context.frame_size or 1024
    first = round(start * AUDIO_RATE)
    layout = "fltp" if context.name in {"aac", "libmp3lame"} else context.format.name
    packets: list[av.Packet] = []
    for begin in range(0, total, step):
        t = np.arange(begin, min(begin + step, total)) / AUDIO_RATE
        # It rises, so that no part of it looks like another.
        wave = (0.25 * np.sin(2 * np.pi * (440 + 150 * t) * t)).astype(np.float32)
        if layout == "fltp":
            data: Array = np.stack([wave, wave])
        elif layout == "flt":
            data = np.repeat(wave, 2)[None, :]
        else:
            data = np.repeat(np.round(wave * 32767).astype(np.int16), 2)[None, :]
            layout = "s16"
        frame = av.AudioFrame.from_ndarray(data, format=layout, layout="stereo")
        frame.sample_rate = AUDIO_RATE
        frame.time_base = Fraction(1, AUDIO_RATE)
        frame.pts = first + begin
        packets += stream.encode(frame)
    return packets + list(stream.encode(None))


def packet_pts(path: Path | str, kind: str = "video") -> list[Fraction]:
    """Presentation times of a stream's packets in seconds, sorted, without those an edit list
    cuts off: what a reader must report, learned without decoding."""
    with av.open(Path(path).resolve()) as source:
        stream = next(s for s in source.streams if s.type == kind)
        times = [
            p.pts * p.time_base
            for p in source.demux(stream)
            if p.pts is not None and p.size and not p.is_discard
        ]
    return sorted(times)


def truncate(source: Path | str, target: Path | str, keep: float) -> Path:
    """Copies the first part of a file's bytes, as a broken download leaves it."""
    data = Path(source).read_bytes()
    Path(target).write_bytes(data[: int(len(data) * keep)])
    return Path(target)


def damage(source: Path | str, target: Path | str, packets: Sequence[int]) -> Path:
    """Copies a file with the payload of some video packets (by position in the file) overwritten
    by noise; the container stays whole."""
    data = bytearray(Path(source).read_bytes())
    noise = np.random.default_rng(0)
    with av.open(Path(source).resolve()) as container:
        found = [p for p in container.demux(video=0) if p.size and p.pos is not None]
        for i in packets:
            begin = found[i].pos
            data[begin : begin + found[i].size] = noise.bytes(found[i].size)
    Path(target).write_bytes(bytes(data))
    return Path(target)
