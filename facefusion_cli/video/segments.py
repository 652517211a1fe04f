"""Finished parts of a long run, kept beside the output so that a killed run can go on.

``.{output's name}.segments/`` holds, for each part, the encoder's packets one after another
(``000000.packets``), the state of the stages behind its last frame (``000000.state``), and, written
last and so the sign that the part is complete, what there is to know of both (``000000.json``).
``key.json`` says which run the parts belong to. Packets are kept bare, not in a container: every
time stays exact, and joining the parts is writing them into the output one after another.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import av
from av.packet import Packet
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from facefusion_cli.errors import EncodeError, OutputNotWritable
from facefusion_cli.report import Report
from facefusion_cli.video.atomic import final_path, output_errors

if sys.platform != "win32":
    import fcntl

State = Mapping[str, Tensor]
"""What the stages remember from frame to frame, as tensors by name."""

_FORMAT = 1
_KEY, _LOCK = "key.json", "lock"
_OURS = re.compile(r"\d{6}\.(packets|state|json)(\.partial)?|key\.json(\.partial)?|lock")


@dataclass(frozen=True, slots=True)
class PacketNote:
    """One packet of a part, without its bytes. Times count in the part's time base."""

    size: int
    pts: int
    dts: int
    duration: int
    key: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What must be known behind a batch to go on with the next one in another process."""

    state: State
    counts: Mapping[str, int]
    """The report's counters."""
    lost: int
    """Frames the reader has lost so far."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A finished part."""

    number: int
    frames: int
    """Frames encoded in it."""
    first: int
    """Tick of its first frame in the output."""
    last: int
    """Tick of its last frame."""
    following: str
    """The clip's time, in seconds as a fraction, of the frame behind it."""
    time_base: str
    start: str
    """The clip's time, in seconds as a fraction, that is 0 in the output."""
    origin: str | None
    """The clip's time of the first tick of a constant rate, where there is one."""
    head: str
    """sha256 of the encoder's extradata: parts of one output share it."""
    counts: Mapping[str, int]
    """The report's counters when it was finished, of this and all parts before."""
    lost: int
    """Frames the reader had lost by then."""
    packets: tuple[PacketNote, ...]


def segments_folder(out: Path) -> Path:
    """Where the parts of an output are kept."""
    target = final_path(out)
    return target.with_name(f".{target.name}.segments")


def run_key(target: Path, sources: Sequence[Path], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What makes two runs the same: their parts may be mixed.

    Args:
        target: The clip: its path, size and time of change count, not its bytes.
        sources: Photos; their bytes count.
        settings: Everything else the result depends on.
    """
    status = target.stat()
    return {
        "format": _FORMAT,
        "target": [str(target.resolve()), status.st_size, status.st_mtime_ns],
        "sources": [hashlib.sha256(p.read_bytes()).hexdigest() for p in sources],
        "settings": settings,
    }


class SegmentStore:
    """The parts of one output; use as a context manager, one run at a time.

    Args:
        out: The output.
        key: See run_key(). Parts of another key are removed, with a warning.
        report: Told of what is found.
    """

    def __init__(self, out: Path, key: Mapping[str, Any], report: Report) -> None:
        self.out, self._key, self._report = out, json.loads(json.dumps(key)), report
        self.folder = segments_folder(out)
        self.segments: list[Segment] = []
        """Complete parts, in order."""
        self._lock: int | None = None

    def __enter__(self) -> Self:
        """Opens the folder, makes it where it is not there.

        Raises:
            OutputNotWritable: The folder cannot be made, holds foreign files, or another run uses
                it.
        """
        with output_errors(self.out, "segments folder"):
            self.folder.mkdir(exist_ok=True)
            self._take()
            try:
                self._open()
            except BaseException:
                self._release()
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Lets go of the folder; the parts stay. An empty one is removed."""
        self._release()
        if not self.segments:
            self.remove()

    def begin(self, time_base: Fraction) -> SegmentFile:
        """Starts the next part; an unfinished one of that number is overwritten.

        Args:
            time_base: Seconds a tick of its packets' times.

        Raises:
            OSError: Its file cannot be made.
        """
        return SegmentFile(self, len(self.segments), time_base)

    def state(self) -> dict[str, Tensor]:
        """The stages' state behind the last complete part; empty when there is none."""
        if not self.segments:
            return {}
        return load_tensors(self._file(self.segments[-1].number, "state").read_bytes())

    def packets(self, last: SegmentFile | None = None) -> Iterator[Packet[Any]]:
        """All packets of all complete parts, in order, with their times.

        Args:
            last: A part that will not be finished; its packets come at the end.

        Raises:
            OSError: They cannot be read.
        """
        for segment in self.segments:
            path = self._file(segment.number, "packets")
            yield from _packets(path, segment.packets, Fraction(segment.time_base))
        if last is not None:
            yield from last.packets()

    def times(self) -> list[Fraction]:
        """When the frames of all complete parts are shown, in seconds of the clip, in order."""
        found = []
        for segment in self.segments:
            start, base = Fraction(segment.start), Fraction(segment.time_base)
            found += [start + note.pts * base for note in segment.packets]
        return sorted(found)

    def remove(self) -> None:
        """Removes the folder with all parts, once they are not needed any more."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _open(self) -> None:
        foreign = [p.name for p in self.folder.iterdir() if not _OURS.fullmatch(p.name)]
        if foreign:
            hint = "move it away"
            what = f"the folder for segments holds another file, {foreign[0]}"
            raise OutputNotWritable(what, path=self.folder, hint=hint)
        earlier = _read_json(self.folder / _KEY)
        if earlier is not None and earlier != self._key:
            self._report.warn(
                f"segments of an earlier run are discarded: {_difference(earlier, self._key)}"
            )
        if earlier != self._key:
            for path in self.folder.iterdir():
                if path.name != _LOCK:
                    path.unlink()
            _write(self.folder / _KEY, json.dumps(self._key).encode())
        while (segment := self._read(len(self.segments))) is not None:
            self.segments.append(segment)
        # What lies behind a gap would seem complete once the gap is filled.
        kept = {f"{segment.number:06d}" for segment in self.segments}
        for path in self.folder.glob("[0-9]*"):
            if path.name[:6] not in kept:
                path.unlink()

    def _read(self, number: int) -> Segment | None:
        """A part, if it is complete and whole."""
        facts = _read_json(self._file(number, "json"))
        if facts is None:
            return None
        notes = tuple(PacketNote(*note) for note in facts.pop("packets"))
        segment = Segment(**facts, packets=notes)
        expected = sum(note.size for note in notes)
        with suppress(OSError, SafetensorError):
            state = self._file(number, "state").read_bytes()
            load_tensors(state)
            if self._file(number, "packets").stat().st_size == expected:
                return segment
        self._report.warn(f"segment {number} of the earlier run is damaged and made anew")
        return None

    def _file(self, number: int, kind: str) -> Path:
        return self.folder / f"{number:06d}.{kind}"

    def _take(self) -> None:
        """Locks the folder for this process; the system lets go of it when the process ends."""
        if sys.platform == "win32":
            return
        self._lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._release()
            raise OutputNotWritable(
                "another run is writing the same output in segments", path=self.out
            ) from error

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class SegmentFile:
    """A part while it is written: packets go to the disk as they come."""

    def __init__(self, store: SegmentStore, number: int, time_base: Fraction) -> None:
        self._time_base = time_base
        self._store, self._number, self._out = store, number, store.out
        self._notes: list[PacketNote] = []
        self._path = store.folder / f"{number:06d}.packets"
        self._file: BinaryIO = self._path.open("wb")

    def add(self, packet: Packet[Any]) -> None:
        """Appends a packet.

        Raises:
            OSError: It cannot be written.
            EncodeError: It carries what cannot be kept (VP9's alpha).
        """
        if packet.has_sidedata("matroska_block_additional"):
            raise EncodeError("alpha of this encoder cannot be kept in segments", path=self._out)
        assert packet.pts is not None
        assert packet.dts is not None
        self._file.write(packet)
        duration = packet.duration or 0
        self._notes.append(
            PacketNote(packet.size, packet.pts, packet.dts, duration, packet.is_keyframe)
        )

    def finish(
        self,
        behind: Checkpoint,
        *,
        frames: int,
        first: int,
        last: int,
        following: Fraction,
        start: Fraction,
        origin: Fraction | None,
        head: bytes,
    ) -> Segment:
        """Makes the part complete: from here on a later run begins behind it; see Segment.

        Raises:
            OSError: It cannot be written.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        segment = Segment(
            number=self._number,
            frames=frames,
            first=first,
            last=last,
            following=str(following),
            time_base=str(self._time_base),
            start=str(start),
            origin=None if origin is None else str(origin),
            head=hashlib.sha256(head).hexdigest(),
            counts=dict(behind.counts),
            lost=behind.lost,
            packets=tuple(self._notes),
        )
        folder = self._store.folder
        # Clones: tensors that share memory are refused.
        tensors = {name: t.detach().cpu().clone().contiguous() for name, t in behind.state.items()}
        _write(folder / f"{self._number:06d}.state", save_tensors(tensors))
        facts = asdict(segment) | {"packets": [list(asdict(n).values()) for n in self._notes]}
        _write(folder / f"{self._number:06d}.json", json.dumps(facts).encode())
        self._store.segments.append(segment)
        return segment

    def packets(self) -> Iterator[Packet[Any]]:
        """What was added so far."""
        self._file.flush()
        yield from _packets(self._path, self._notes, self._time_base)

    def drop(self) -> None:
        """Closes and removes an unfinished part."""
        self._file.close()
        self._path.unlink(missing_ok=True)


def _packets(path: Path, notes: Sequence[PacketNote], time_base: Fraction) -> Iterator[Packet[Any]]:
    with path.open("rb") as file:
        for note in notes:
            packet: Packet[Any] = av.Packet(file.read(note.size))
            packet.pts, packet.dts = note.pts, note.dts
            packet.duration, packet.time_base = note.duration, time_base
            packet.is_keyframe = note.key
            yield packet


def _read_json(path: Path) -> Any:
    """What a file holds; None where it is not there or no JSON."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _write(path: Path, data: bytes) -> None:
    """Writes a file in one step."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _difference(earlier: Any, key: Mapping[str, Any]) -> str:
    """In a few words, what is not as it was."""
    if not isinstance(earlier, dict) or earlier.get("format") != _FORMAT:
        return "they are of another version of ffx"
    if earlier.get("target") != key["target"]:
        return "they are of another target, or it has changed"
    if earlier.get("sources") != key["sources"]:
        return "they are of another source photo"
    return "they were made with other settings"
