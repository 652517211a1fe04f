"""The input matrix as data: every kind of clip that must come through whole, or be refused.

A row makes its clip (with ground truth known or decoded plainly), names the output it goes to, and
says what must come of it. `run_row` sends it through the whole pipeline with the generator "none"
and measures; test_matrix.py asserts the figures, scripts/video_matrix.py prints them as the table
of docs/video.md. A new kind of clip is one more row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt

from facefusion_cli.config import load_config
from facefusion_cli.errors import FfxError
from facefusion_cli.pipeline import swap
from facefusion_cli.report import Report
from tests.clips import make_clip

DECODERS = ("opencv", "pyav")
MS = Fraction(1, 1000)
LEAD = Fraction(2)
"""Seconds before the first frame that heard() begins."""
SEAM = Fraction(5, 1000)
"""Seconds between two pieces of sound that are no gap."""

Make = Callable[[Path], Path]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One kind of clip."""

    name: str
    """The input's file name."""
    make: Make
    """Writes it at a path (in a folder of its own) and returns what is given to ffx."""
    group: str
    out: str = "out.mp4"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    refused: str | None = None
    """The error's class where it does not come through."""
    opencv: bool | None = True
    """False: OpenCV would get it wrong and forcing it is refused; None: its version decides."""
    lost: int = 0
    """Frames that the damage cost (they make the run fail, the rest is written)."""
    picture: float = 1.0
    """Mean difference of luma allowed, in 8-bit levels; the identity run's figure."""
    same_times: bool = True
    same_tags: bool = True
    """False: the clip is turned into another colour space."""
    same_frames: bool = True
    """Frames are the same in number and look; false where they are deinterlaced or resampled."""
    deep: int = 8
    """Bits a sample of the output."""
    long: bool = False
    check: Callable[[Path, Path], str | None] | None = None
    """More to look at: (input, output) to what is wrong, or None."""


@dataclass(frozen=True)
class Result:
    """What came of a row."""

    error: str | None
    """Class of the error, None for success."""
    code: int
    frames: tuple[int, int] = (0, 0)
    """In the input, in the output."""
    times: Fraction = Fraction(0)
    """Largest difference of a frame's time, both counted from the first frame, in seconds."""
    sound: Fraction | None = None
    """Change of the distance from picture to sound, in seconds; None without sound."""
    picture: float = 0.0
    """Mean difference of luma over all frames, 8-bit levels."""
    worst: float = 0.0
    """The same of the worst frame: a duplicated or lost one would show here."""
    faults: tuple[str, ...] = ()
    """Anything else that is not as it was: size, aspect, colour tags, depth."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shown:
    """A clip as a plain decoder shows it, upright."""

    pts: list[Fraction]
    luma: list[Floats]
    """[h,w], 8-bit levels."""
    size: tuple[int, int]
    aspect: Fraction
    """Display aspect ratio."""
    tags: tuple[int, int, int, int]
    bits: int
    yuv: bool
    """Not RGB, not a palette."""


def run_row(row: Row, decoder: str, folder: Path) -> Result:
    """Makes the clip, sends it through, measures what came out."""
    place = folder / "in"
    place.mkdir(exist_ok=True)
    given = place / row.name
    target = row.make(given)
    out = folder / row.out
    report = Report()
    tables = {name: dict(table) for name, table in row.settings.items()}
    tables.setdefault("output", {}).setdefault("crf", 12)
    tables.setdefault("generator", {})["name"] = "none"
    tables.setdefault("runtime", {}).update(decoder=decoder, device="cpu")
    error, code = None, 0
    try:
        swap(place / "unused.jpg", target, out, load_config(flags=tables), report)
    except FfxError as failure:
        error, code = type(failure).__name__, failure.exit_code
    if not out.exists():
        return Result(error, code, warnings=tuple(report.warnings))
    return measure(row, target, out, error, code, tuple(report.warnings))


def measure(
    row: Row, target: Path, out: Path, error: str | None, code: int, warnings: tuple[str, ...]
) -> Result:
    """Compares an output with its input."""
    before, after = shown(target), shown(out)
    faults = []
    times, picture, worst = Fraction(0), 0.0, 0.0
    if len(before.pts) == len(after.pts) and row.same_times:
        pairs = zip(before.pts, after.pts, strict=True)
        times = max(abs((b - after.pts[0]) - (a - before.pts[0])) for a, b in pairs)
    if len(before.luma) == len(after.luma) and row.same_frames:
        apart = [difference(a, b) for a, b in zip(before.luma, after.luma, strict=True)]
        picture, worst = float(np.mean(apart)), max(apart)
    padded = (before.size[0] + before.size[0] % 2, before.size[1] + before.size[1] % 2)
    if after.size not in {before.size, padded}:
        faults.append(f"size {before.size} -> {after.size}")
    if abs(after.aspect / before.aspect - 1) > Fraction(1, 50):
        faults.append(f"aspect {before.aspect} -> {after.aspect}")
    if row.same_tags and before.yuv and after.yuv and not kept(before.tags, after.tags):
        faults.append(f"tags {before.tags} -> {after.tags}")
    if after.bits != row.deep:
        faults.append(f"{after.bits} bits instead of {row.deep}")
    if row.check is not None and (fault := row.check(target, out)):
        faults.append(fault)
    sound = None
    if has_sound(target):
        sound = abs(sound_moved(target, out)) if has_sound(out) else Fraction(10**6)
    frames = (len(before.pts), len(after.pts))
    return Result(error, code, frames, times, sound, picture, worst, tuple(faults), warnings)


def kept(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether colour tags are the same; left open and limited are one range."""
    return before[:3] == after[:3] and (before[3] == 2) == (after[3] == 2)


def difference(a: Floats, b: Floats) -> float:
    """Mean difference of two pictures; a padded last column or row is left out."""
    h, w = min(a.shape[0], b.shape[0]), min(a.shape[1], b.shape[1])
    return float(np.abs(a[:h, :w] - b[:h, :w]).mean())


def shown(path: Path) -> Shown:
    """Decodes a clip plainly, in order of time; frames that cannot be decoded are left out.

    A folder of images is one of f1.png, f2.png, ... at 25 a second.
    """
    if path.is_dir():
        return _shown_images(path)
    pts: list[Fraction] = []
    luma: list[Floats] = []
    with av.open(path.resolve()) as file:
        stream = next(s for s in file.streams.video if not int(s.disposition) & 0x400)
        stream.thread_type = "NONE"
        first = None
        for packet in file.demux(stream):
            try:
                frames = stream.decode(packet)
            except av.error.FFmpegError:
                continue
            for frame in frames:
                first = first or frame
                assert frame.pts is not None
                pts.append(frame.pts * frame.time_base)
                luma.append(_luma(frame))
        assert first is not None
        sample = stream.sample_aspect_ratio or Fraction(1)
        if abs(first.rotation) % 180 == 90:
            sample = 1 / sample
        h, w = luma[0].shape
        span = int(first.color_range)
        if first.format.name.startswith(("yuvj", "gray")):
            span = 2  # by its format
        tags = (int(first.colorspace), int(first.color_primaries), int(first.color_trc), span)
        yuv = not (first.format.is_rgb or first.format.has_palette)
        bits = max(c.bits for c in first.format.components)
        return Shown(
            pts,
            luma,
            (w, h),
            Fraction(w, h) * sample,
            tags,
            max(bits, 8),
            yuv,
        )


def _shown_images(folder: Path) -> Shown:
    files = sorted(folder.glob("f*.png"), key=lambda p: int(p.stem[1:]))
    weights = np.array([0.0722, 0.7152, 0.2126])
    luma = [16 + cv2.imread(str(p)).astype(float) @ weights * 219 / 255 for p in files]
    h, w = luma[0].shape
    pts = [Fraction(i, 25) for i in range(len(files))]
    return Shown(pts, luma, (w, h), Fraction(w, h), (0, 2, 2, 2), 8, False)


def _luma(frame: av.VideoFrame) -> Floats:
    """[h,w] luma of an upright frame in 8-bit limited levels."""
    fmt = frame.format
    if fmt.is_rgb or fmt.has_palette:
        rgb = frame.to_ndarray(format="rgb24").astype(float)
        weights = np.array([0.2126, 0.7152, 0.0722])
        luma = 16 + rgb @ weights * 219 / 255
    else:
        plane = frame.planes[0]
        first = fmt.components[0]
        kind = np.uint16 if first.bits > 8 else np.uint8
        rows = np.frombuffer(plane, kind).reshape(plane.height, -1)[:, : frame.width]
        luma = rows.astype(float) / 2 ** (first.bits - 8)
    return np.ascontiguousarray(upright(luma, frame))


def upright(picture: npt.NDArray[Any], frame: av.VideoFrame) -> npt.NDArray[Any]:
    """A stored picture as the frame's display matrix shows it (ISO 14496-12, 6.2.2)."""
    try:
        matrix = frame.side_data.get("DISPLAYMATRIX")
    except ValueError:
        matrix = None
    if matrix is None:
        return picture
    a, b, _, c, d, *_ = np.sign(np.frombuffer(matrix, np.int32)[:9]).tolist()
    # (x, y) is shown at (a x + c y, b x + d y).
    if a == 0:
        picture = picture.swapaxes(0, 1)
        a, d = c, b
    if a < 0:
        picture = picture[:, ::-1]
    return picture[::-1] if d < 0 else picture


def has_sound(path: Path) -> bool:
    """Whether a file has an audio stream."""
    if path.is_dir():
        return False
    with av.open(path.resolve()) as file:
        return bool(file.streams.audio)


def heard(path: Path) -> tuple[Floats, int]:
    """The first sound of a clip on the clock of its picture.

    Returns:
        Samples of the first channel, the first of them at (or, where the sound begins earlier,
        before) the first frame's time less LEAD seconds; and their rate.
    """
    with av.open(path.resolve()) as file:
        video = next(s for s in file.streams.video if not int(s.disposition) & 0x400)
        stream = file.streams.audio[0]
        first = None
        pieces: list[tuple[Fraction, Floats]] = []
        for packet in file.demux(video, stream):
            try:
                frames = packet.decode()
            except av.error.FFmpegError:
                continue
            for frame in frames:
                assert frame.pts is not None
                time = frame.pts * frame.time_base
                if isinstance(frame, av.VideoFrame):
                    first = time if first is None else min(first, time)
                    continue
                data = frame.to_ndarray().astype(float)
                channels = 1 if frame.format.is_planar else len(frame.layout.channels)
                pieces.append((time, data[0][::channels]))
        rate = stream.codec_context.sample_rate
    assert first is not None
    samples = np.zeros(round((pieces[-1][0] - first + LEAD) * rate) + len(pieces[-1][1]) + rate)
    following = None
    for time, data in pieces:
        begin = round((time - first + LEAD) * rate)
        # Coarse clocks (Matroska: 1 ms) put neighbours apart that are one wave.
        if following is not None and abs(begin - following) < rate * SEAM:
            begin = following
        if begin >= 0:
            samples[begin : begin + len(data)] = data
        following = begin + len(data)
    return samples, rate


def sound_moved(before: Path, after: Path) -> Fraction:
    """Seconds by which the sound of a clip lies otherwise to its picture than that of another.

    The lag at which the two correlate best; the tests' tone rises, so there is one.
    """
    (a, rate), (b, other) = heard(before), heard(after)
    assert rate == other
    n = 1 << (len(a) + len(b)).bit_length()
    both = np.fft.irfft(np.fft.rfft(b, n) * np.conj(np.fft.rfft(a, n)), n)
    lag = int(np.argmax(both))
    return Fraction(lag if lag < n // 2 else lag - n, rate)


def clip(**how: Any) -> Make:
    """A row's clip by tests.clips.make_clip."""

    def make(path: Path) -> Path:
        return make_clip(path, **how).path

    return make
