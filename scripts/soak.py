"""Sends a long clip through the whole pipeline and prints how the memory grew, as JSON.

    python scripts/soak.py                      30,000 frames of 640x360
    python scripts/soak.py --decoder pyav --frames 5000 --size 320x180

The generator is "none": reader, writer and the threads between them are what is measured. The clip
is made on the spot, of one group of pictures that is repeated, with a tone. Resident memory is read
from /proc, so this needs Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import av
from av.audio.stream import AudioStream
from av.video.stream import VideoStream

from facefusion_cli.config import load_config
from facefusion_cli.pipeline import swap
from facefusion_cli.report import Report
from tests.clips import make_clip

GROUP = 250
"""Frames that are encoded; the clip repeats them."""
FPS = 25


def repeated(group: Path, path: Path, frames: int) -> Path:
    """Writes a clip of so many frames by copying the packets of a short one again and again."""
    length = Fraction(GROUP, FPS)
    with av.open(path, "w") as sink:
        with av.open(group) as source:
            picture, tone = source.streams.video[0], source.streams.audio[0]
            copies: dict[int, VideoStream | AudioStream] = {
                picture.index: sink.add_stream_from_template(picture),
                tone.index: sink.add_stream_from_template(tone),
            }
        left = frames
        for round_ in range(-(-frames // GROUP)):
            with av.open(group) as source:
                for packet in source.demux():
                    if packet.dts is None or packet.pts is None:
                        continue
                    if packet.stream.type == "video":
                        if not left:
                            continue
                        left -= 1
                    # A packet of sound stands across the seam, and its time must not go back.
                    elif not 0 <= packet.pts * packet.time_base < length - Fraction(1024, 48_000):
                        continue
                    shift = round(round_ * length / packet.time_base)
                    packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                    packet.stream = copies[packet.stream.index]
                    sink.mux(packet)
    return path


def resident() -> float:
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def soak(
    folder: Path, frames: int, size: tuple[int, int], decoder: str, after: int
) -> dict[str, object]:
    """One run.

    Args:
        folder: Takes the clip and the output.
        frames: Length of the clip.
        size: Width and height.
        decoder: opencv or pyav.
        after: Frames after which memory is measured first.
    """
    options = {"preset": "ultrafast", "crf": "23", "g": str(GROUP), "bf": "0"}
    group = make_clip(
        folder / "group.mp4", frames=GROUP, size=size, fps=FPS, options=options, audio=True
    )
    target = repeated(group.path, folder / "target.mp4", frames)
    config = load_config(
        flags={
            "generator": {"name": "none"},
            "runtime": {"device": "cpu", "decoder": decoder},
            "output": {"preset": "ultrafast"},
        }
    )
    report = Report()
    first: list[float] = []
    highest = 0.0

    def progress(done: int, total: int | None) -> None:
        nonlocal highest
        if done >= after:
            now = resident()
            highest = max(highest, now)
            if not first:
                first.append(now)

    begin = time.perf_counter()
    swap(folder / "unused.jpg", target, folder / "out.mp4", config, report, progress)
    end = resident()
    return {
        "frames": frames,
        "frames_out": report.counts["frames_out"],
        "size": f"{size[0]}x{size[1]}",
        "decoder": decoder,
        "first_mb": round(first[0], 1),
        "highest_mb": round(max(highest, end), 1),
        "end_mb": round(end, 1),
        "growth_mb": round(max(highest, end) - first[0], 1),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=30_000, help="length of the clip")
    parser.add_argument("--size", default="640x360", help="its width and height")
    parser.add_argument("--decoder", choices=("opencv", "pyav"), default="opencv")
    parser.add_argument("--after", type=int, default=2_000, help="frames before the first look")
    given = parser.parse_args()
    if given.frames <= given.after:
        parser.error(f"--frames must be more than --after {given.after}")
    width, height = (int(side) for side in given.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        figures = soak(Path(folder), given.frames, (width, height), given.decoder, given.after)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
