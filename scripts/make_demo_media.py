#!/usr/bin/env python3
"""Makes the demo's input: OUTDIR/source.jpg and OUTDIR/target.mp4, of AI-generated people.

The source is a studio portrait; the target a short clip in which another person talks, blinks,
raises the brows and smiles while head and camera move, with a tone in the rhythm of the speech as
sound. The people come from the PyPI package openpeople; nothing is fetched, and the pictures are
the same on every run.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from av.video.reformatter import ColorRange, Colorspace
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parent))

from actors import Array, Image, portrait
from talking_head import Pose, TalkingHead
from warping import smoothstep

SOURCE = "P008"
TARGET = "P007"
"""Both frontal and without beard, glasses or fringe, and plainly two different faces."""

SAMPLE_RATE = 48_000
PERIOD = 4.0
"""Seconds after which the performance repeats."""

SYLLABLES: tuple[tuple[float, float, str, float], ...] = (
    (0.20, 0.26, "scared", 0.80),
    (0.46, 0.28, "surprised", 0.70),
    (0.74, 0.22, "scared", 0.90),
    (0.96, 0.28, "happy", 0.55),
    (1.24, 0.22, "scared", 0.70),
    (1.68, 0.30, "surprised", 0.85),
    (1.98, 0.22, "scared", 0.60),
    (2.20, 0.28, "shocked", 0.65),
    (2.48, 0.24, "scared", 0.85),
    (2.72, 0.22, "surprised", 0.45),
)
"""Start and length in seconds, the mouth, how far."""
BLINKS = (0.60, 1.46, 2.66)
BROWS = (1.70, 2.50, 0.55)
"""Start, end, how far: clear of the blinks, which need the eyes as they are."""
SMILE = (3.02, 3.86, 0.85)
MOUTHS = tuple(sorted({mouth for _, _, mouth, _ in SYLLABLES}))


def _hump(t: float, start: float, end: float, rise: float) -> float:
    """0 outside start..end, 1 between, with smooth flanks."""
    return float(smoothstep(t, start, start + rise) * smoothstep(t, end, end - rise))


def state(t: float) -> dict[str, object]:
    """Arguments of TalkingHead.face at a time in seconds."""
    t = t % PERIOD
    mouth = {
        name: amount * math.sin(math.pi * (t - start) / length) ** 1.5
        for start, length, name, amount in SYLLABLES
        if start < t < start + length
    }
    blink = max(_hump(t, at, at + 0.26, 0.11) for at in BLINKS)
    smile = SMILE[2] * _hump(t, SMILE[0], SMILE[1], 0.32)
    return {
        "mouth": mouth,
        "whole": {"happy": smile},
        "brows": BROWS[2] * _hump(t, BROWS[0], BROWS[1], 0.25),
        "blink": blink,
    }


def openness(t: float) -> float:
    """How far the mouth is open at a time, 0 to 1: the loudness."""
    spoken = state(t)["mouth"]
    assert isinstance(spoken, dict)
    return float(max(spoken.values(), default=0.0))


def pose(t: float) -> Pose:
    """Head and camera at a time in seconds: slow sways of unlike periods, a nod with the speech."""

    def sway(period: float, phase: float) -> float:
        return math.sin(2 * math.pi * (t / period + phase))

    return Pose(
        roll=math.radians(2.4 * sway(3.1, 0.1) + 0.8 * sway(1.3, 0.4)),
        yaw=0.11 * sway(2.7, 0.35) + 0.02 * sway(0.9, 0.2),
        pitch=0.05 * sway(2.2, 0.6) + 0.03 * openness(t),
        head=(0.03 * sway(3.7, 0.0), 0.02 * sway(2.9, 0.2)),
        camera=(0.006 * sway(2.3, 0.0) + 0.0015 * sway(0.61, 0.3), 0.005 * sway(1.9, 0.25)),
        camera_roll=math.radians(0.5 * sway(2.5, 0.15)),
        zoom=1.07 + 0.012 * sway(4.6, 0.0),
    )


def talking(
    people: Sequence[str], size: int, frames: int, fps: Fraction | int, *, start: float = 0.0
) -> Iterator[Image]:
    """Pictures of people who talk, side by side; each a square of the given size.

    Args:
        people: Keys of ACTORS.
        size: Side of a square in pixels.
        frames: How many pictures.
        fps: Frame rate, for the speed of the motion.
        start: Seconds into the performance at which the first picture lies.
    """
    # The portrait a little larger than the picture: the camera's zoom takes the rest.
    side = round(size * 1.07)
    heads = [TalkingHead(p, side, mouths=MOUTHS, whole=("happy",)) for p in people]
    noise = np.random.default_rng(7)
    for index in range(frames):
        t = start + float(index / Fraction(fps))
        shots = []
        for nth, head in enumerate(heads):
            # Another person says the same at another time.
            when = t + 1.3 * nth
            face = head.face(**state(when))  # type: ignore[arg-type]
            shots.append(head.shot(face, size, pose(when)))
        picture = np.hstack(shots).astype(np.float32)
        # A sensor's: the same on all channels, and a trace of colour.
        grain = 1.2 * noise.standard_normal(picture.shape[:2], np.float32)[..., None]
        grain = grain + 0.5 * noise.standard_normal(picture.shape, np.float32)
        yield np.clip(np.rint(picture + grain), 0, 255).astype(np.uint8)


def tone(seconds: Fraction | float, *, start: float = 0.0) -> Array:
    """[2,T] stereo sound at SAMPLE_RATE: a hum as loud as the mouth is open."""
    t = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    coarse = np.arange(0, float(seconds) + 0.04, 0.02)
    loud = np.interp(t, coarse, [openness(start + float(c)) for c in coarse])
    pitch = 2 * np.pi * np.cumsum(170 + 40 * loud) / SAMPLE_RATE
    hum = sum(np.sin(k * pitch) / k**1.3 for k in (1, 2, 3, 4))
    return np.tile((0.18 * (0.15 + loud) * hum).astype(np.float32), (2, 1))


def write_clip(
    path: Path,
    pictures: Iterable[Image],
    fps: Fraction | int = 25,
    sound: Array | None = None,
    crf: int = 16,
) -> int:
    """Writes pictures as H.264, BT.709 limited, with stereo sound as AAC.

    Returns:
        How many frames were written; frame n lies at n / fps seconds.
    """
    fps = Fraction(fps)
    count = 0
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as sink:
        video = sink.add_stream("libx264", rate=fps, options={"crf": str(crf), "preset": "faster"})
        # One thread: the same bytes on every machine.
        video.codec_context.thread_count = 1
        audio = (
            sink.add_stream("aac", rate=SAMPLE_RATE, layout="stereo") if sound is not None else None
        )
        for picture in pictures:
            if count == 0:
                video.height, video.width = picture.shape[:2]
                video.pix_fmt = "yuv420p"
                context = video.codec_context
                context.colorspace = context.color_primaries = context.color_trc = 1
                context.color_range = 1
                if audio is not None and sound is not None:
                    _mux_sound(sink, audio, sound)
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame = frame.reformat(
                format="yuv420p",
                dst_colorspace=Colorspace.ITU709,
                dst_color_range=ColorRange.MPEG,
            )
            frame.time_base, frame.pts = 1 / fps, count
            sink.mux(video.encode(frame))
            count += 1
        sink.mux(video.encode(None))
    return count


def _mux_sound(sink: av.container.OutputContainer, stream: av.AudioStream, sound: Array) -> None:
    step = 1024
    for begin in range(0, sound.shape[1], step):
        part = np.ascontiguousarray(sound[:, begin : begin + step])
        frame = av.AudioFrame.from_ndarray(part, format="fltp", layout="stereo")
        frame.sample_rate, frame.time_base = SAMPLE_RATE, Fraction(1, SAMPLE_RATE)
        frame.pts = begin
        sink.mux(stream.encode(frame))
    sink.mux(stream.encode(None))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--source", default=SOURCE, help="person of the source photo")
    parser.add_argument("--target", default=TARGET, help="person of the clip")
    parser.add_argument("--size", type=int, default=640, help="side of the clip in pixels")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--fps", type=int, default=25)
    args = parser.parse_args(argv)
    args.outdir.mkdir(parents=True, exist_ok=True)
    source, target = args.outdir / "source.jpg", args.outdir / "target.mp4"
    photo = cv2.cvtColor(portrait(args.source, 1024), cv2.COLOR_RGB2BGR)
    if not cv2.imwrite(str(source), photo, [cv2.IMWRITE_JPEG_QUALITY, 93]):
        raise OSError(f"cannot write {source}")
    frames = round(args.seconds * args.fps)
    pictures = talking([args.target], args.size, frames, args.fps)
    pictures = tqdm(pictures, "demo clip", frames, unit="frame", disable=None)
    count = write_clip(target, pictures, args.fps, tone(Fraction(frames, args.fps)))
    print(f"{source}\n{target}: {count} frames of {args.size}x{args.size}, {args.fps} fps, AAC")
    return 0


if __name__ == "__main__":
    sys.exit(main())
