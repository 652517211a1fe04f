"""Pictures and clips of AI-generated people (the openpeople package), for tests that need faces."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from importlib import resources
from pathlib import Path

import av
import cv2
import numpy as np
import numpy.typing as npt

Rgb = npt.NDArray[np.uint8]


@cache
def portrait(person: str, side: int) -> Rgb:
    """The frontal studio portrait, [side, side, 3]: one face, a little above the centre."""
    folder = resources.files("openpeople") / "data" / "curated" / person / "assets"
    data = (folder / "studio_portrait.jpg").read_bytes()
    bgr = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    rgb = cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)
    small: Rgb = cv2.resize(rgb, (side, side), interpolation=cv2.INTER_AREA).astype(np.uint8)
    small.flags.writeable = False
    return small


def side_by_side(people: Sequence[str], sides: Sequence[int]) -> Rgb:
    """Portraits beside each other, each of its own size, standing on one line."""
    canvas: Rgb = np.full((max(sides), sum(sides), 3), 128, np.uint8)
    x = 0
    for person, side in zip(people, sides, strict=True):
        canvas[-side:, x : x + side] = portrait(person, side)
        x += side
    return canvas


def write_picture(path: Path, rgb: Rgb) -> Path:
    """Writes a picture in the format that its suffix names."""
    assert cv2.imwrite(str(path), cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))
    return path


def write_clip(
    path: Path, picture: Rgb, frames: int, *, fps: int = 25, sway: int = 4, sound: bool = True
) -> Path:
    """An H.264 clip of a picture that sways from side to side, with an AAC tone.

    Args:
        path: Where; the suffix names the container.
        picture: [H, W, 3] with even sides.
        frames: How many.
        fps: Frames a second.
        sway: Pixels it moves to either side.
        sound: Whether there is a tone as long as the picture.
    """
    height, width = picture.shape[:2]
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=fps)
        video.width, video.height, video.pix_fmt = width, height, "yuv420p"
        video.options = {"preset": "ultrafast", "crf": "18"}
        audio = container.add_stream("aac", rate=48_000, layout="mono") if sound else None
        for index in range(frames):
            shift = round(sway * np.sin(index / 5))
            frame = av.VideoFrame.from_ndarray(np.roll(picture, shift, axis=1), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, fps)
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        if audio is not None:
            _write_tone(container, audio, frames / fps)
    return path


def _write_tone(
    container: av.container.OutputContainer, stream: av.AudioStream, seconds: float
) -> None:
    count = round(48_000 * seconds)
    wave = 0.2 * np.sin(2 * np.pi * 440 * np.arange(count) / 48_000)
    frame = av.AudioFrame.from_ndarray(wave[None].astype(np.float32), format="fltp", layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = 48_000, 0, Fraction(1, 48_000)
    container.mux(stream.encode(frame))
    container.mux(stream.encode(None))
