"""Clips whose picture and sound can be compared: a bright frame, and a chirp at the same moment.

The distance between the two is measured on what is decoded, not on packet times: a container or a
decoder that takes an encoder's delay for sound, or drops a packet too many, shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from scipy.signal import correlate

BRIGHT = 150
_CHIRP_SECONDS = 0.1
_NEIGHBOURS = 10


@dataclass(frozen=True)
class Sound:
    """One track of sound."""

    codec: str = "aac"
    rate: int = 48_000
    start: Fraction = Fraction(0)
    """Seconds of its first sample."""
    seconds: Fraction = Fraction(3)
    marks: Sequence[Fraction] = (Fraction(8, 5),)
    """Seconds of its chirps."""
    layout: str = "stereo"


def make_marked(
    path: Path,
    *sounds: Sound,
    bright: Sequence[Fraction] = (Fraction(8, 5),),
    times: Sequence[Fraction] | None = None,
    container: str | None = None,
    codec: str = "libx264",
) -> Path:
    """A clip of dark frames, 25 a second for 3 s unless times are given, and a bright one."""
    times = times or [Fraction(i, 25) for i in range(75)]
    sounds = sounds or (Sound(),)
    with av.open(path, "w", format=container) as sink:
        options = {"preset": "ultrafast", "g": "25", "bf": "0"} if codec == "libx264" else {}
        video = sink.add_stream(codec, rate=25, options=options)
        video.width, video.height = 64, 48
        tick = Fraction(1, 25) if codec == "mpeg4" else Fraction(1, 90_000)
        video.codec_context.time_base = tick
        streams = [sink.add_stream(s.codec, rate=s.rate, layout=s.layout) for s in sounds]
        sent = []
        for when in times:
            frame = av.VideoFrame(64, 48, "yuv420p")
            value = 235 if when in bright else 40
            for plane, level in zip(frame.planes, (value, 128, 128), strict=True):
                plane.update(bytes([level]) * plane.buffer_size)
            frame.pts, frame.time_base = round(when / tick), tick
            sent += video.encode(frame)
        sent += video.encode(None)
        for sound, stream in zip(sounds, streams, strict=True):
            for frame in sound_frames(sound):
                sent += stream.encode(frame)
            sent += stream.encode(None)
        for packet in sorted(sent, key=lambda p: p.dts * p.time_base):
            sink.mux(packet)
    return path


def make_sound(path: Path, sound: Sound) -> Path:
    """A file of sound alone."""
    with av.open(path, "w") as sink:
        stream = sink.add_stream(sound.codec, rate=sound.rate, layout=sound.layout)
        for frame in sound_frames(sound):
            sink.mux(stream.encode(frame))
        sink.mux(stream.encode(None))
    return path


def sound_frames(sound: Sound) -> list[av.AudioFrame]:
    """Noise too quiet to hear, and the chirps."""
    rate, first = sound.rate, round(sound.start * sound.rate)
    total = round(sound.seconds * rate)
    samples = np.random.default_rng(1).normal(0, 20, total)
    wave = chirp(rate)
    for mark in sound.marks:
        at = round(mark * rate) - first
        samples[at : at + len(wave)] += 12_000 * wave[: max(total - at, 0)]
    channels = av.AudioLayout(sound.layout).nb_channels
    frames = []
    for begin in range(0, total, 1024):
        data = np.repeat(samples[begin : begin + 1024].astype(np.int16), channels)[None]
        frame = av.AudioFrame.from_ndarray(data, format="s16", layout=sound.layout)
        frame.sample_rate, frame.pts, frame.time_base = rate, first + begin, Fraction(1, rate)
        frames.append(frame)
    return frames


def chirp(rate: int) -> np.ndarray:
    """A tenth of a second from 600 to 3000 Hz: its place shows to a fraction of a millisecond."""
    t = np.arange(round(_CHIRP_SECONDS * rate)) / rate
    return np.sin(2 * np.pi * (600 * t + 12_000 * t**2)) * np.hanning(len(t))


def seen(path: Path) -> list[Fraction]:
    """Seconds of the bright frames."""
    with av.open(path) as file:
        return [
            f.pts * f.time_base
            for f in file.decode(video=0)
            if np.frombuffer(f.reformat(format="gray").planes[0], np.uint8).mean() > BRIGHT
        ]


def first_seen(path: Path) -> Fraction:
    """Seconds of the first frame."""
    with av.open(path) as file:
        frame = next(file.decode(video=0))
        return frame.pts * frame.time_base


def heard(path: Path, track: int = 0) -> list[Fraction]:
    """Seconds of the chirps of a track."""
    samples, places, rate = listen(path, track)
    wave = chirp(rate)
    found = np.abs(correlate(samples, wave, "valid", method="fft"))
    marks = []
    while len(found) and found.max() > 3000 * (wave**2).sum():
        at = int(found.argmax())
        marks.append(_place(places, at, rate))
        found[max(at - len(wave), 0) : at + len(wave)] = 0
    return sorted(marks)


def listen(path: Path, track: int = 0) -> tuple[np.ndarray, list[tuple[int, Fraction]], int]:
    """The first channel of a track in 16-bit units; where its frames begin in it and in time."""
    parts, places, count, rate = [], [], 0, 48_000
    with av.open(path) as file:
        stream = file.streams.audio[track]
        # Packed samples: PyAV's planar frames end at eight pointers, one too few for 7.1.
        packed = av.AudioResampler("flt", stream.codec_context.layout, stream.rate)
        for frame in file.decode(stream):
            for piece in packed.resample(frame):
                mono = piece.to_ndarray()[0][:: len(piece.layout.channels)].astype(float)
                parts.append(mono * 32768)
                places.append((count, piece.pts * piece.time_base))
                count += len(mono)
                rate = piece.sample_rate
    return np.concatenate(parts) if parts else np.zeros(0), places, rate


def _place(places: list[tuple[int, Fraction]], at: int, rate: int) -> Fraction:
    """Seconds of a sample: by the frames around it, whose times some containers round."""
    index = int(np.searchsorted([p[0] for p in places], at, "right")) - 1
    near = places[max(index - _NEIGHBOURS, 0) : index + _NEIGHBOURS + 1]
    offsets = sorted(time - Fraction(count, rate) for count, time in near)
    return offsets[len(offsets) // 2] + Fraction(at, rate)
