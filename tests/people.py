"""Pictures and clips of AI-generated people (the openpeople package), for tests that need faces.

`portrait`, `expression` and `no_face` are pictures; `write_clip` lets a picture sway, which is
enough where a face must only be there; `talking_clip` is a person who talks and blinks, for tests
of motion and expression.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import resources
from pathlib import Path

import av
import cv2
import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

import actors
import make_demo_media

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


@cache
def expression(person: str, name: str) -> Rgb:
    """One of the sixteen photos of actors.EXPRESSIONS, about 330 rows and 520 columns.

    In some of them a hand is at the face, or the head is turned: look before use.
    """
    rgb = actors.expression(person, name)
    rgb.flags.writeable = False
    return rgb


def no_face(height: int, width: int) -> Rgb:
    """A photo without a face: the studio's backdrop over a white shirt."""
    studio = portrait("P010", 1024)
    parts = [studio[:330, :180], studio[-180:, 360:680]]
    return np.vstack([cv2.resize(p, (width, height // 2)) for p in parts]).astype(np.uint8)


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


@dataclass(frozen=True)
class TalkingClip:
    """What talking_clip wrote."""

    path: Path
    size: tuple[int, int]
    """Width and height."""
    pts: tuple[Fraction, ...]
    """Seconds of every frame."""
    seconds: Fraction
    """Length of picture and of sound, if there is any."""


def talking_clip(
    path: Path,
    *,
    people: Sequence[str] = ("P007",),
    side: int = 256,
    frames: int = 25,
    fps: int = 25,
    start: float = 0.4,
    sound: bool = True,
) -> TalkingClip:
    """People who talk and blink while head and camera move: H.264, BT.709 tagged, AAC.

    Takes one to two seconds a person at the default size and length; a fixture of wider scope
    keeps it.

    Args:
        path: Where; the suffix names the container.
        people: Of actors.ACTORS, side by side, at most one of each.
        side: Of one person's square in pixels, even.
        frames: How many.
        fps: Frames a second.
        start: Seconds into the performance; from 0.4 there are three syllables and a blink (lids
            down at 0.33 s of the clip) within a second.
        sound: Whether a tone as long as the picture goes with it.
    """
    pictures = make_demo_media.talking(people, side, frames, fps, start=start)
    seconds = Fraction(frames, fps)
    wave = make_demo_media.tone(seconds, start=start) if sound else None
    count = make_demo_media.write_clip(path, pictures, fps, wave)
    assert count == frames
    pts = tuple(Fraction(i, fps) for i in range(frames))
    return TalkingClip(path, (side * len(people), side), pts, seconds)


def _write_tone(
    container: av.container.OutputContainer, stream: av.AudioStream, seconds: float
) -> None:
    count = round(48_000 * seconds)
    wave = 0.2 * np.sin(2 * np.pi * 440 * np.arange(count) / 48_000)
    frame = av.AudioFrame.from_ndarray(wave[None].astype(np.float32), format="fltp", layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = 48_000, 0, Fraction(1, 48_000)
    container.mux(stream.encode(frame))
    container.mux(stream.encode(None))
