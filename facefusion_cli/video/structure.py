"""Whether a file is all there, by what its container says of itself, without decoding.

FFmpeg opens files that are cut off, full of zeros or broken in the middle, and steps over what it
cannot read. The evidence lies in the bytes: sizes in headers, chains of elements, counters.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from facefusion_cli.video.matroska import segment_end, walk_chain

Bytes = npt.NDArray[np.uint8]

_HEAD = 4096
_FEW_ZEROS = 64
"""Zeros at the end of a file that no compressed picture ends with."""
_CHUNK = 1 << 20
_SYNC = 0x47
_TS_PACKETS = {188: 0, 192: 4, 204: 0}
"""Sizes of MPEG-TS packets, and where the sync byte stands in them."""
_TS_ROWS = 1 << 18
TS_CLOCK = 1 << 33
"""Ticks after which the clock of an MPEG-TS begins anew."""
_FLV_VIDEO, _FLV_TAGS = 9, b"\x08\x09\x12"
_FLV_TAG = re.compile(rb"[\x08\x09\x12].{7}\0\0\0", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Structure:
    """What a file's bytes say of its completeness."""

    size: int
    missing: int = 0
    """Bytes that it lacks by its own account, at least."""
    zeros: int = 0
    """Zeros that it ends with, where there are suspiciously many."""
    whole: bool = False
    """It says how long it is, and is that long."""
    unsaid: bool = False
    """It does not say how long it is; walk() tells whether it ends between two elements."""
    cut: str = ""
    """What the end falls into, known after walk(): "video", "other" or "behind" (after all
    pictures); "" where it lies between two elements or that is not known."""
    breaks: tuple[tuple[int, int], ...] = ()
    """Broken places, known after walk(): from byte, to byte."""
    starts: tuple[int, ...] = ()
    """Times of pictures that the container itself announces, known after walk() of an MPEG-TS: in
    ticks, modulo TS_CLOCK."""

    @property
    def end(self) -> int:
        """Where the data end."""
        return self.size - self.zeros

    @property
    def cut_off(self) -> bool:
        """Whether something is certainly lacking at the end."""
        at_end = bool(self.breaks) and self.breaks[-1][1] >= self.size
        return bool(self.missing or self.zeros or at_end or self.cut)


def glance(path: Path, container: str) -> Structure:
    """What a few bytes of a file tell.

    Args:
        path: The file.
        container: FFmpeg's name of its format.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        found = Structure(size, zeros=_zeros_at_end(file, size))
        names = container.split(",")
        if "mov" in names:
            return _mov(file, found)
        if "matroska" in names:
            return _told(found, segment_end(_at(file, 0, _HEAD)))
        if "avi" in names:
            return _avi(file, found)
        if "mpegts" in names:
            return _ts_end(file, found)
        if "flv" in names:
            return _flv_end(file, found)
    return found


def walk(path: Path, container: str, found: Structure, stream_id: int) -> Structure:
    """Follows a file's chain of elements to its end and notes where it is broken.

    Args:
        path: The file.
        container: FFmpeg's name of its format.
        found: What glance() told of it.
        stream_id: The video's number in the container (MPEG-TS: its PID).
    """
    names = container.split(",")
    if found.size == 0 or not {"matroska", "flv", "mpegts"} & set(names):
        return found
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        if "matroska" in names:
            chain = walk_chain(data)
            return replace(found, breaks=tuple(chain.breaks), cut=chain.cut)
        if "flv" in names:
            breaks, cut = _walk_flv(data)
            return replace(found, breaks=tuple(breaks), cut=cut)
        cut = _ts_cut(data, found, stream_id)
        starts: list[int] = []
        gone = tuple(_ts_breaks(data, stream_id, starts))
        return replace(found, breaks=gone, cut=cut, starts=tuple(starts))


def _told(found: Structure, end: int | None) -> Structure:
    """With the end that the file announces."""
    if end is None:
        return replace(found, unsaid=True)
    missing = max(0, end - found.size)
    return replace(found, missing=missing, whole=not missing and not found.zeros)


def _at(file: BinaryIO, position: int, length: int) -> bytes:
    file.seek(position)
    return file.read(length)


def _zeros_at_end(file: BinaryIO, size: int) -> int:
    """Length of the run of zeros at the end, if it is at least _FEW_ZEROS."""
    if any(_at(file, max(0, size - _FEW_ZEROS), _FEW_ZEROS)):
        return 0
    end = size
    while end > 0:
        begin = max(0, end - _CHUNK)
        kept = _at(file, begin, end - begin).rstrip(b"\0")
        if kept:
            return size - begin - len(kept)
        end = begin
    return size


def _mov(file: BinaryIO, found: Structure) -> Structure:
    """An MP4 or MOV is a chain of boxes."""
    end, fragmented = _boxes_end(file, found.size)
    if fragmented and end not in {None, found.size}:
        # No index says how many fragments follow the broken or unfinished one.
        return replace(found, missing=max(1, (end or 0) - found.size), cut="video")
    return _told(found, end)


def _boxes_end(file: BinaryIO, size: int) -> tuple[int | None, bool]:
    """Where the last top-level box ends, and whether the file is in fragments.

    The end is None where the last box reaches to the end of the file whatever that is, and lies
    inside the file where something follows that is no box.
    """
    pos, fragmented = 0, False
    while pos + 8 <= size:
        head = _at(file, pos, 16)
        length, kind = struct.unpack(">I4s", head[:8])
        if length == 1 and len(head) == 16:
            (length,) = struct.unpack(">Q", head[8:])
        if length < 8 or not kind.isascii() or not kind.strip().isalnum():
            return (None if length == 0 and kind.isalpha() else pos), fragmented
        fragmented |= kind == b"moof"
        pos += length
    # A few bytes that are no box are the beginning of one.
    return (pos if pos >= size else pos + 8), fragmented


def _avi(file: BinaryIO, found: Structure) -> Structure:
    """An AVI is one RIFF chunk, or (OpenDML) several; the pictures lie in the lists "movi"."""
    pos, behind = 0, False
    while pos + 12 <= found.size:
        kind, length, form = struct.unpack("<4sI4s", _at(file, pos, 12))
        if kind != b"RIFF" or form not in {b"AVI ", b"AVIX"}:
            break
        if length == 0:  # never finished
            return replace(found, unsaid=True)
        end = pos + 8 + length
        if end > found.size:
            behind = any(
                kind == b"movi" and stop <= found.size
                for kind, stop in _riff_lists(file, pos + 12, found.size)
            )
            return replace(found, missing=end - found.size, cut="behind" if behind else "")
        pos = end + length % 2
    return replace(found, whole=not found.zeros)


def _riff_lists(file: BinaryIO, pos: int, size: int) -> Iterator[tuple[bytes, int]]:
    """Kinds and ends of the lists and chunks from a position on."""
    while pos + 12 <= size:
        kind, length, form = struct.unpack("<4sI4s", _at(file, pos, 12))
        pos += 8 + length + length % 2
        yield (form if kind == b"LIST" else kind), pos


def _ts_grid(head: bytes) -> tuple[int, int] | None:
    """Size of an MPEG-TS's packets and the position of its first sync byte."""
    for first in range(min(204, len(head))):
        for step in _TS_PACKETS:
            marks = head[first : first + 5 * step : step]
            if len(marks) > 1 and not marks.strip(bytes([_SYNC])):
                return step, first
    return None


def _ts_end(file: BinaryIO, found: Structure) -> Structure:
    grid = _ts_grid(_at(file, 0, _HEAD))
    if grid is None:
        return found
    step, first = grid
    left = (found.size - first + _TS_PACKETS[step]) % step
    # Packets that only fill may end with zeros; a whole one of zeros is none.
    zeros = found.zeros if found.zeros >= step else 0
    return replace(found, missing=step - left if left else 0, zeros=zeros, unsaid=bool(zeros))


def _ts_cut(data: mmap, found: Structure, pid: int) -> str:
    grid = _ts_grid(data[:_HEAD])
    if not found.missing or grid is None:
        return ""
    step, _ = grid
    head = data[found.size - (step - found.missing) + _TS_PACKETS[step] :][:3]
    if len(head) < 3 or head[0] != _SYNC:
        return "other"
    return "video" if int.from_bytes(head[1:], "big") & 0x1FFF == pid else "other"


def _ts_breaks(data: mmap, pid: int, starts: list[int]) -> Iterator[tuple[int, int]]:
    """Where packets of a stream are missing (ISO 13818-1, 2.4.3.3) or there are none at all.

    Args:
        data: The file.
        pid: The stream.
        starts: Gets the times at which the stream's pictures are announced.
    """
    pos, size = 0, len(data)
    last: tuple[int, int, bytes] | None = None
    while pos < size:
        grid = _ts_grid(data[pos : pos + _HEAD])
        if grid is None:
            found = _next_sync(data, pos + 1)
            if size - pos >= 204:
                yield pos, found
            pos, last = found, None
            continue
        step, first = grid
        if first >= step:
            yield pos, pos + first
        pos += first
        count = min((size - pos) // step, _TS_ROWS)
        if count == 0:
            return
        rows = np.frombuffer(data[pos : pos + count * step], np.uint8).reshape(count, step)
        good = rows[:, 0] == _SYNC
        lost = np.flatnonzero(~good)
        kept = count if len(lost) == 0 else int(lost[0])
        for place, this in _counted(rows[:kept], pid):
            here = pos + place * step
            if last is not None and not (_follows(last, this) and _begins(this[1])):
                yield last[0], here
            last = (here, *this[:2])
            starts.extend(_announced(this[1]))
        pos += kept * step
        if kept < count:
            again = _next_sync(data, pos + 1)
            yield pos, again
            pos = again


def _counted(rows: Bytes, pid: int) -> Iterator[tuple[int, tuple[int, bytes, bool]]]:
    """Packets of a stream that carry something: place, counter, bytes, whether it may jump."""
    pids = (rows[:, 1].astype(np.uint16) & 0x1F) << 8 | rows[:, 2]
    for place in np.flatnonzero((pids == pid) & (rows[:, 3] & 0x10 > 0)):
        row = rows[place]
        jumps = bool(row[3] & 0x20 and row[4] and row[5] & 0x80)
        yield int(place), (int(row[3] & 15), row[:188].tobytes(), jumps)


def _follows(last: tuple[int, int, bytes], this: tuple[int, bytes, bool]) -> bool:
    counter, packet, jumps = this
    if jumps or counter == (last[1] + 1) % 16:
        return True
    return counter == last[1] and packet[4:] == last[2][4:]  # sent twice, which is allowed


def _begins(packet: bytes) -> bool:
    """Whether the start of a picture is one, where a packet says that it holds one."""
    begin = _payload(packet)
    return not packet[1] & 0x40 or packet[begin : begin + 3] == b"\0\0\1"


def _payload(packet: bytes) -> int:
    return 4 + (1 + packet[4] if packet[3] & 0x20 else 0)


def _announced(packet: bytes) -> list[int]:
    """The presentation time of the picture that begins in a packet (ISO 13818-1, 2.4.3.7)."""
    begin = _payload(packet)
    head = packet[begin : begin + 14]
    if not packet[1] & 0x40 or len(head) < 14 or not head[7] & 0x80:
        return []
    high, middle, low = (
        head[9] >> 1 & 7,
        head[10] << 7 | head[11] >> 1,
        head[12] << 7 | head[13] >> 1,
    )
    return [high << 30 | middle << 15 | low]


def _next_sync(data: mmap, pos: int) -> int:
    """The next place where packets follow one another; the end if there is none."""
    while (pos := data.find(bytes([_SYNC]), pos)) >= 0:
        for step in _TS_PACKETS:
            marks = data[pos : pos + 4 * step : step]
            if len(marks) > 1 and not marks.strip(bytes([_SYNC])):
                return pos
        pos += 1
    return len(data)


def _flv_end(file: BinaryIO, found: Structure) -> Structure:
    """An FLV ends with the size of its last tag; many say in the first one how long they are."""
    head = _at(file, 0, _HEAD)
    mark = head.find(b"filesize\0")
    length = 0
    if mark >= 0 and len(head) >= mark + 17:
        stated = struct.unpack(">d", head[mark + 9 : mark + 17])[0]
        length = int(stated) if 0 < stated < 1 << 60 else 0
    if length > found.size:
        return replace(found, missing=length - found.size)
    (last,) = struct.unpack(">I", _at(file, found.size - 4, 4).rjust(4, b"\0"))
    begin = found.size - 4 - last
    ends = last == 0 and found.size == struct.unpack(">I", head[5:9].rjust(4, b"\0"))[0] + 4
    if begin > 0 and last >= 11:
        tag = _at(file, begin, 4)
        ends = tag[0] in _FLV_TAGS and int.from_bytes(tag[1:], "big") + 11 == last
    return replace(found, missing=int(not ends), whole=ends and length == found.size)


def _walk_flv(data: mmap) -> tuple[list[tuple[int, int]], str]:
    breaks: list[tuple[int, int]] = []
    size = len(data)
    pos = int.from_bytes(data[5:9], "big") + 4
    while pos < size:
        if pos + 11 > size:
            return breaks, "other"
        end = pos + 11 + int.from_bytes(data[pos + 1 : pos + 4], "big")
        if data[pos] in _FLV_TAGS and not any(data[pos + 8 : pos + 11]):
            if end + 4 <= size and _flv_closes(data, pos, end):
                pos = end + 4
                continue
            if end + 4 > size and next(_flv_tags(data, pos + 1), None) is None:
                return breaks, "video" if data[pos] == _FLV_VIDEO and end > size else "other"
        again = next(_flv_tags(data, pos + 1), size)
        breaks.append((pos, again))
        pos = again
    return breaks, ""


def _flv_closes(data: mmap, begin: int, end: int) -> bool:
    return int.from_bytes(data[end : end + 4], "big") == end - begin


def _flv_tags(data: mmap, pos: int) -> Iterator[int]:
    for match in _FLV_TAG.finditer(data, pos):
        end = match.start() + 11 + int.from_bytes(match[0][1:4], "big")
        if end + 4 <= len(data) and _flv_closes(data, match.start(), end):
            yield match.start()
