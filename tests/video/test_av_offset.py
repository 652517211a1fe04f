"""Sound and picture lie as far apart in the output as in the clip, whatever the containers.

One table: kinds of clips x containers of outputs. To cover another kind of clip, add a row.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import pytest

from facefusion_cli.report import Report
from facefusion_cli.types import NO_EDIT, Edit
from facefusion_cli.video.probe import probe
from facefusion_cli.video.pyav_reader import PyavReader
from facefusion_cli.video.writer import ClipWriter
from tests.video.marked import Sound, first_seen, heard, make_marked, seen
from tests.video.writing import config

MS = Fraction(1, 1000)
MARK = Fraction(8, 5)
LATE = Fraction(678, 1000)
OUTPUTS = ("mp4", "mov", "mkv", "webm")


def carry(source: Path, out: Path, edit: Edit = NO_EDIT, **settings: object) -> Report:
    """A clip through reader and writer, untouched."""
    report = Report()
    info = probe(source)
    with (
        PyavReader(info, report, window=edit.window) as reader,
        ClipWriter(out, info, config("auto", **settings), report, edit) as writer,
    ):
        for batch in reader.batches(8):
            writer.write(batch)
    return report


def cut_by_edit_list(path: Path) -> Path:
    """A stream copy that hides its first half second."""
    whole = make_marked(path.with_name("whole.mp4"), Sound(marks=(Fraction(1, 10), MARK)))
    with av.open(whole) as file, av.open(path, "w") as sink:
        streams = {s.index: sink.add_stream_from_template(s) for s in file.streams}
        for packet in file.demux():
            if packet.size:
                shift = round(Fraction(1, 2) / packet.time_base)
                packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
                packet.stream = streams[packet.stream_index]
                sink.mux(packet)
    return path


def row(suffix: str, *sounds: Sound, **how: object) -> Callable[[Path], Path]:
    return lambda folder: make_marked(folder / f"in.{suffix}", *sounds, **how)  # type: ignore[arg-type]


def late_picture(seconds: Fraction) -> dict[str, object]:
    times = [seconds + Fraction(i, 25) for i in range(75)]
    return {"times": times, "bright": (times[30],)}


DENSE_THEN_SPARSE = [Fraction(i, 30) for i in range(46)] + [
    Fraction(3, 2) + Fraction(2 * i, 15) for i in range(1, 12)
]
IN_TS = Fraction(14, 5)

CLIPS: dict[str, Callable[[Path], Path]] = {
    "mp4": row("mp4"),
    "mp4, late picture": row("mp4", **late_picture(Fraction(1, 2))),
    "mp4, late sound": row("mp4", Sound(start=LATE)),
    "mp4, early sound": row("mp4", Sound(start=Fraction(-3, 10))),
    "mp4, edit list": lambda folder: cut_by_edit_list(folder / "in.mp4"),
    "mp4, opus": row("mp4", Sound("libopus")),
    "mp4, 44.1 kHz": row("mp4", Sound(rate=44_100)),
    "mov, pcm": row("mov", Sound("pcm_s16le")),
    "mov, late pcm": row("mov", Sound("pcm_s16le", start=LATE)),
    "mkv": row("mkv"),
    "mkv, late picture": row("mkv", **late_picture(Fraction(1, 2))),
    "mkv, late sound": row("mkv", Sound(start=LATE)),
    "mkv, negative times": row("mkv", Sound(start=Fraction(-3, 10))),
    "mkv, opus": row("mkv", Sound("libopus")),
    "mkv, flac of 44.1 kHz": row("mkv", Sound("flac", 44_100)),
    "mkv, mp3": row("mkv", Sound("libmp3lame")),
    "webm": row("webm", Sound("libopus"), codec="libvpx"),
    "ts": row("ts", container="mpegts"),
    "ts from 2.8 s": row(
        "ts",
        Sound(start=IN_TS - Fraction(1, 5), marks=(IN_TS + MARK,)),
        container="mpegts",
        **late_picture(IN_TS),
    ),
    "avi": row("avi", Sound("libmp3lame"), codec="mpeg4"),
    "variable rate": row("mp4", times=DENSE_THEN_SPARSE, bright=(DENSE_THEN_SPARSE[48],)),
    "longer sound": row("mp4", Sound(seconds=Fraction(4))),
    "shorter sound": row("mp4", Sound(seconds=Fraction(2))),
    "tracks of other lengths and starts": row(
        "mkv",
        Sound(),
        Sound("libopus", start=LATE, seconds=Fraction(2)),
        Sound("flac", 32_000, seconds=Fraction(5)),
    ),
}
QUICK = {("mp4", out) for out in OUTPUTS} | {
    ("mp4, late picture", "mov"),
    ("mp4, edit list", "mkv"),
    ("mkv, late sound", "mp4"),
    ("mkv, flac of 44.1 kHz", "webm"),
    ("ts from 2.8 s", "mp4"),
    ("tracks of other lengths and starts", "webm"),
}


@pytest.mark.parametrize(
    ("name", "out"),
    [
        pytest.param(name, out, marks=() if (name, out) in QUICK else pytest.mark.long)
        for name in CLIPS
        for out in OUTPUTS
    ],
)
def test_sound_and_picture_keep_their_distance(tmp_path: Path, name: str, out: str) -> None:
    clip = CLIPS[name](tmp_path)
    target = tmp_path / f"out.{out}"
    carry(clip, target)
    with av.open(clip) as file:
        tracks = len(file.streams.audio)
    (flash,), (flash_before,) = seen(target), seen(clip)
    assert abs((flash - first_seen(target)) - (flash_before - first_seen(clip))) <= MS
    for track in range(tracks):
        before, after = heard(clip, track), heard(target, track)
        assert len(before) >= 1
        assert len(after) == len(before), "the same chirps, none twice"
        for chirp_before, chirp in zip(before, after, strict=True):
            moved = (chirp - flash) - (chirp_before - flash_before)
            assert abs(moved) <= MS, f"track {track} moved by {float(moved * 1000):.2f} ms"
