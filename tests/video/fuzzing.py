"""Damaged files by the hundred, and what must never come of one.

A case is a small clip with one byte changed or its end cut off. It goes through the library's entry
with the generator "none", all cases one after another in one process, which a parent watches: a
process that dies or gives no answer in time is a finding of its own, and the rest goes on in a new
one.

What must hold for every case (`faults`):

- It ends within the watchdog's time, with success or an FfxError; no other exception, no crash.
- No thread, file or open descriptor is left behind.
- No success with lost frames: a run without an error, whose report says `frames_lost` 0, wrote at
  least as many frames as the undamaged clip has. (A frame that is decoded from damaged bytes is no
  lost frame; how it looks is not judged.)
- What can be decoded comes out or is told: the frames written, and those told to be lost, are at
  least as many as a plain decoder (one thread, failing packets left out) gets from the damaged
  file. An input is refused as a whole only where such a decoder gets nothing.

Some damage leaves no evidence, because the damaged file is a sound file of something else. Those
kinds stand in NO_EVIDENCE with the reason; a case is excused only if its place in the file shows
that it is of such a kind, and is counted.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import av
from av.error import FFmpegError

from facefusion_cli.config import load_config
from facefusion_cli.errors import FfxError
from facefusion_cli.pipeline import swap
from facefusion_cli.report import Report
from tests.clips import make_clip
from tests.video.fuzz_places import box_at

DECODERS = ("auto", "pyav")
FRAMES = 24
WATCHDOG = 10.0
"""Seconds a case may take."""
_START = 200.0
"""Seconds a new process may take until its first case."""

_BROKEN_SPOTS = 100
"""Failures of the container that the plain decoder steps over."""

_KINDS: dict[str, dict[str, Any]] = {
    "mp4": {"codec": "libx264", "audio_codec": "aac", "options": {"g": "8"}},
    "mkv": {"codec": "ffv1", "audio_codec": "flac", "options": {"g": "8"}},
    "webm": {"codec": "libvpx-vp9", "audio_codec": "libopus", "options": {"g": "8"}},
    "avi": {"codec": "mpeg4", "audio_codec": "libmp3lame", "options": {"g": "8"}},
    "ts": {"codec": "libx264", "audio_codec": "aac", "options": {"g": "8"}},
}
CONTAINERS = tuple(_KINDS)


@dataclass(frozen=True, slots=True)
class Case:
    """One damaged file, and how it is read."""

    container: str
    decoder: str
    offset: int
    """The byte that is changed, or the length that is kept."""
    flip: int = 0
    """What the byte is XORed with; 0 = the file is cut."""

    def __str__(self) -> str:
        what = f"byte {self.offset} ^ {self.flip:#04x}" if self.flip else f"cut at {self.offset}"
        return f"{self.container} {self.decoder} {what}"

    def apply(self, data: bytes) -> bytes:
        """The damaged file's bytes."""
        if not self.flip:
            return data[: self.offset]
        changed = bytearray(data)
        changed[self.offset] ^= self.flip
        return bytes(changed)


def _cut_between_ts_packets(case: Case, _: bytes) -> bool:
    return case.container == "ts" and not case.flip and case.offset % 188 == 0


def _mp4_shows_less(case: Case, data: bytes) -> bool:
    return case.container == "mp4" and bool(case.flip) and box_at(data, case.offset) in _SHOWN


_SHOWN = {"mvhd", "elst", "mdhd", "stts", "ctts"}

NO_EVIDENCE: tuple[tuple[str, Callable[[Case, bytes], bool]], ...] = (
    (
        "an MPEG-TS cut between two packets is a shorter MPEG-TS: it says nowhere how long it is",
        _cut_between_ts_packets,
    ),
    (
        "an MP4 whose header gives other times, or an edit list that shows less, is that clip",
        _mp4_shows_less,
    ),
)
"""Reason, and whether a case is of the kind (by its place in the undamaged file)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case."""

    error: str | None = None
    """Class of the FfxError; None for success."""
    said: str = ""
    lost: int = 0
    """frames_lost of the report."""
    written: int = 0
    """Frames in the output; 0 where there is none."""
    decodable: int = 0
    """Frames that a plain decoder gets from the damaged file."""
    seconds: float = 0.0
    broken: str = ""
    """Traceback of any other exception, "hang ..." or "crash ..."."""
    left: tuple[str, ...] = ()
    """What was left behind."""


@dataclass(slots=True)
class Findings:
    """All cases of a run."""

    outcomes: list[tuple[Case, Outcome]] = field(default_factory=list)
    faults: list[tuple[Case, str]] = field(default_factory=list)
    excused: dict[str, list[Case]] = field(default_factory=dict)
    """Reason of NO_EVIDENCE to its cases."""

    @property
    def alarms(self) -> list[Case]:
        """Cases that end with an error although every frame came out: allowed, but counted."""
        return [c for c, o in self.outcomes if o.error is not None and o.written >= FRAMES]


def make_clips(folder: Path) -> dict[str, Path]:
    """The undamaged clips, one a container, with sound: FRAMES frames of 64 x 48."""
    clips = {}
    for container, kind in _KINDS.items():
        clips[container] = folder / f"clip.{container}"
        make_clip(clips[container], frames=FRAMES, audio=True, **kind)
    return clips


def cases(clips: Mapping[str, Path], *, flips: int, cuts: int, seed: int) -> list[Case]:
    """Random damage, spread evenly over containers and decoders; the same for the same seed."""
    draw = random.Random(seed)
    sizes = {name: path.stat().st_size for name, path in clips.items()}
    found = []
    for number in range(flips + cuts):
        container = CONTAINERS[number % len(CONTAINERS)]
        decoder = DECODERS[number // len(CONTAINERS) % len(DECODERS)]
        if number < flips:
            offset, flip = draw.randrange(sizes[container]), draw.randrange(1, 256)
            found.append(Case(container, decoder, offset, flip))
        else:
            found.append(Case(container, decoder, draw.randrange(1, sizes[container])))
    return found


def examine(
    clips: Mapping[str, Path],
    wanted: Iterable[Case],
    *,
    watchdog: float = WATCHDOG,
    told: Callable[[Case, Outcome], None] | None = None,
) -> Findings:
    """Runs cases and judges them.

    Args:
        clips: The undamaged clips.
        wanted: Cases.
        watchdog: Seconds a case may take.
        told: Called after each case.
    """
    findings = Findings()
    contents = {name: path.read_bytes() for name, path in clips.items()}
    for case, outcome in _watched(contents, wanted, watchdog):
        findings.outcomes.append((case, outcome))
        if told is not None:
            told(case, outcome)
        for fault, excusable in faults(outcome):
            reasons = [
                reason
                for reason, applies in NO_EVIDENCE
                if excusable and applies(case, contents[case.container])
            ]
            if reasons:
                findings.excused.setdefault(reasons[0], []).append(case)
            else:
                findings.faults.append((case, fault))
    return findings


def faults(outcome: Outcome) -> Iterator[tuple[str, bool]]:
    """What is wrong with an outcome, and whether damage without evidence may excuse it."""
    if outcome.broken:
        yield outcome.broken, False
        return
    if outcome.left:
        yield f"left behind: {', '.join(outcome.left)}", False
    if outcome.error is None and not outcome.lost and outcome.written < FRAMES:
        yield f"success with {outcome.written} of {FRAMES} frames", True
    if outcome.written + outcome.lost < min(outcome.decodable, FRAMES):
        told = f"{outcome.written} written and {outcome.lost} told to be lost"
        yield f"{outcome.error or 'success'}: {outcome.decodable} decodable frames, {told}", False


def _watched(
    contents: Mapping[str, bytes], wanted: Iterable[Case], watchdog: float
) -> Iterator[tuple[Case, Outcome]]:
    """Cases with their outcomes, run in a process that is replaced when it hangs or dies."""
    worker: _Worker | None = None
    try:
        for case in wanted:
            worker = worker or _Worker(contents)
            outcome = worker.run(case, watchdog)
            yield case, outcome
            if outcome.broken.startswith(("hang", "crash")):
                worker.end()
                worker = None
    finally:
        if worker is not None:
            worker.end()


class _Worker:
    """A process that runs cases; not forked, for torch's threads do not survive that."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, contents), daemon=True)
        self._process.start()
        theirs.close()
        if not self._pipe.poll(_START):
            self.end()
            raise RuntimeError("the process that runs the cases does not start")
        self._pipe.recv()

    def run(self, case: Case, watchdog: float) -> Outcome:
        """A case's outcome."""
        try:
            self._pipe.send(case)
            if not self._pipe.poll(watchdog):
                return Outcome(broken=f"hang: no answer in {watchdog:g} s")
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(_START)
            return Outcome(broken=f"crash, exit code {self._process.exitcode}")
        assert isinstance(answer, Outcome)
        return answer

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _work(pipe: Connection, contents: Mapping[str, bytes]) -> None:
    logging.disable()
    with TemporaryDirectory() as name:
        folder = Path(name)
        for container, data in contents.items():  # loads all that is loaded once
            for decoder in DECODERS:
                _run(Case(container, decoder, len(data)), data, folder)
        pipe.send("ready")
        while True:
            case = pipe.recv()
            pipe.send(_run(case, case.apply(contents[case.container]), folder))


def _run(case: Case, data: bytes, folder: Path) -> Outcome:
    """One case, from damaged bytes to outcome."""
    target, out = folder / f"in.{case.container}", folder / "out.mkv"
    target.write_bytes(data)
    config = load_config(
        flags={
            "generator": {"name": "none"},
            "runtime": {"device": "cpu", "decoder": case.decoder},
            "output": {"preset": "ultrafast"},
        }
    )
    report = Report()
    error, said, broken = None, "", ""
    files, begun = _open_files(), time.perf_counter()
    try:
        swap(folder / "unused.jpg", target, out, config, report)
    except FfxError as failure:
        error, said = type(failure).__name__, str(failure)
    except BaseException:  # whatever it is: it is a finding
        broken = traceback.format_exc()
    seconds, more = time.perf_counter() - begun, _open_files() - files
    left = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
    left += [f"{more} open files"] if more > 0 else []
    written, decodable = _decodable(out) if out.exists() else 0, _decodable(target)
    out.unlink(missing_ok=True)
    target.unlink()
    for path in folder.iterdir():
        left.append(path.name)
        path.unlink()
    return Outcome(
        error=error,
        said=said,
        lost=report.counts.get("frames_lost", 0),
        written=written,
        decodable=decodable,
        seconds=seconds,
        broken=broken,
        left=tuple(left),
    )


def _open_files() -> int:
    return len(os.listdir("/dev/fd"))


def _decodable(path: Path) -> int:
    """Frames by a plain decoder."""
    count = 0
    try:
        with av.open(path, metadata_errors="replace") as file:
            stream = file.streams.video[0]
            stream.codec_context.thread_type = "NONE"
            for _ in range(_BROKEN_SPOTS):
                try:
                    for packet in file.demux(stream):
                        count += _frames(packet)
                except FFmpegError:
                    continue
                break
    except (FFmpegError, IndexError, AttributeError):  # no video, or no decoder for it
        pass
    return count


def _frames(packet: av.Packet[Any]) -> int:
    try:
        return len(packet.decode())
    except FFmpegError:
        return 0
