"""Whether a Matroska or WebM file's chain of elements is whole (RFC 8794, RFC 9559).

FFmpeg steps over a broken chain to the next cluster and says nothing of what it left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from mmap import mmap

_EBML, _SEGMENT, _CLUSTER = 0x1A45DFA3, 0x18538067, 0x1F43B675
_TRACKS, _TRACK_ENTRY, _TRACK_NUMBER, _TRACK_TYPE = 0x1654AE6B, 0xAE, 0xD7, 0x83
_VIDEO = 1
_SIMPLE_BLOCK, _BLOCK_GROUP, _BLOCK, _ENCRYPTED = 0xA3, 0xA0, 0xA1, 0xAF
_CUES, _TAGS = 0x1C53BB6B, 0x1254C367
_VOID, _CRC = 0xEC, 0xBF
_TOP = {
    *(_CLUSTER, _TRACKS, _CUES, _TAGS, _VOID, _CRC),
    *(0x114D9B74, 0x1549A966, 0x1941A469, 0x1043A770),  # SeekHead Info Attachments Chapters
}
_ABOVE = _TOP - {_VOID, _CRC} | {_SEGMENT, _EBML}
_IN_CLUSTER = {
    *(_SIMPLE_BLOCK, _BLOCK_GROUP, _ENCRYPTED, _VOID, _CRC),
    *(0xE7, 0xA7, 0xAB, 0x5854),  # Timestamp Position PrevSize SilentTracks
}
_LACING, _XIPH, _FIXED_SIZE = 0x06, 0x02, 0x04
_RESUMES = tuple(i.to_bytes(4, "big") for i in (_CLUSTER, _CUES, _TAGS))


@dataclass(slots=True)
class Chain:
    """What a walk along the elements found."""

    breaks: list[tuple[int, int]] = field(default_factory=list)
    """First byte that is no element, and the first after it that is one."""
    cut: str = ""
    """What the file's end falls into: "video", "other", "behind" (after all pictures); "" where it
    is between two elements."""


def segment_end(head: bytes) -> int | None:
    """Where the segment should end, by a file's first bytes; None where it does not say."""
    pos = 0
    while pos < len(head):
        element = _element(head, pos)
        if element is None:
            return None
        kind, begin, size = element
        if kind == _SEGMENT:
            return None if size is None else begin + size
        if kind not in {_EBML, _VOID} or size is None:
            return None
        pos = begin + size
    return None


def walk_chain(data: mmap) -> Chain:
    """Follows the elements of a whole file down to its blocks."""
    return _Walk(data).run()


class _Walk:
    def __init__(self, data: mmap) -> None:
        self._data, self._size = data, len(data)
        self._chain = Chain()
        self._tracks: dict[int, int] = {}
        """Type of each track, by its number."""
        self._pictures = False

    def run(self) -> Chain:
        """Along the top level."""
        pos = 0
        while pos < self._size:
            element = _element(self._data, pos)
            if element is None and self._size - pos < 12:
                self._chain.cut = self._chain.cut or "other"
                break
            if element is None:
                pos = self._broken(pos)
                continue
            kind, begin, size = element
            if kind == _SEGMENT:
                pos = begin
            elif kind == _CLUSTER:
                self._pictures = True
                pos = self._cluster(begin, None if size is None else begin + size)
            elif size is None or kind not in _TOP | {_EBML}:
                pos = self._broken(pos)
            else:
                if kind == _TRACKS:
                    self._read_tracks(begin, min(begin + size, self._size))
                pos = begin + size
                if pos > self._size:
                    self._chain.cut = "behind" if self._pictures else "other"
        return self._chain

    def _cluster(self, pos: int, end: int | None) -> int:
        """Along the children of a cluster; where it ends."""
        stop = self._size if end is None else min(end, self._size)
        while pos < stop:
            element = _element(self._data, pos)
            if element is None and self._size - pos < 12:
                self._chain.cut = "other"
                return self._size
            if element is not None and element[0] in _ABOVE:
                if end is not None:  # its size is wrong
                    self._chain.breaks.append((pos, pos))
                return pos
            if element is None or element[2] is None or element[0] not in _IN_CLUSTER:
                return self._broken(pos)
            kind, begin, size = element
            assert size is not None
            if end is not None and begin + size > end:
                return self._broken(pos)
            track = self._track_of(kind, begin, begin + size)
            if track is None:
                return self._broken(pos)
            if begin + size > self._size:
                if self._resumed(pos) < self._size:
                    return self._broken(pos)
                self._chain.cut = "video" if track == _VIDEO else "other"
            pos = begin + size
        return stop

    def _track_of(self, kind: int, begin: int, end: int) -> int | None:
        """The type of the track that a block belongs to (0: no block); None if it is broken."""
        if kind == _SIMPLE_BLOCK:
            return self._block_type(begin, end)
        if kind != _BLOCK_GROUP:
            return 0
        for child, start, stop in _children(self._data, begin, min(end, self._size)):
            if child == _BLOCK:
                return self._block_type(start, stop)
        # Its block may lie behind the file's end.
        return 0 if end > self._size else None

    def _block_type(self, begin: int, end: int) -> int | None:
        track = _vint(self._data, begin)
        if track is None or track[1] + 2 >= self._size:
            return 0 if begin + 12 > self._size else None
        kind = self._tracks.get(track[0]) if self._tracks else 0
        lacing = self._data[track[1] + 2] & _LACING
        # Pictures are not laced: a whole frame is one block.
        fits = not lacing or (kind != _VIDEO and self._laced(track[1] + 3, end, lacing))
        return kind if fits else None

    def _laced(self, pos: int, end: int, lacing: int) -> bool:
        """Whether the sizes of a block's frames fit into it (RFC 9559, 10.3)."""
        data = self._data
        if end > self._size:
            return True
        if pos >= end:
            return False
        sizes, pos = data[pos], pos + 1  # the last frame's is what is left
        if lacing == _FIXED_SIZE:
            return (end - pos) % (sizes + 1) == 0
        total = size = 0
        for number in range(sizes):
            found = _xiph_size(data, pos, end) if lacing == _XIPH else _vint(data, pos)
            if found is None:
                return False
            value, after = found
            if lacing == _XIPH or number == 0:
                size = value
            else:  # the difference to the one before, with half the range subtracted
                size += value - ((1 << 7 * (after - pos) - 1) - 1)
            if size < 0:
                return False
            total, pos = total + size, after
        return pos + total <= end

    def _read_tracks(self, begin: int, end: int) -> None:
        for kind, start, stop in _children(self._data, begin, end):
            if kind == _TRACK_ENTRY:
                values = {
                    child: int.from_bytes(self._data[first:last], "big")
                    for child, first, last in _children(self._data, start, stop)
                    if child in {_TRACK_NUMBER, _TRACK_TYPE}
                }
                self._tracks[values.get(_TRACK_NUMBER, 0)] = values.get(_TRACK_TYPE, 0)

    def _broken(self, pos: int) -> int:
        """Notes a broken place; where the chain goes on."""
        resumed = self._resumed(pos)
        self._chain.breaks.append((pos, resumed))
        return resumed

    def _resumed(self, pos: int) -> int:
        found = [self._data.find(mark, pos + 1) for mark in _RESUMES]
        return min((p for p in found if p > 0), default=self._size)


def _children(data: mmap, pos: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Elements one after another: id, begin and end of the content."""
    while pos < end:
        element = _element(data, pos)
        if element is None or element[2] is None:
            return
        kind, begin, size = element[0], element[1], element[2]
        pos = begin + size
        yield kind, begin, min(pos, end)


def _element(data: mmap | bytes, pos: int) -> tuple[int, int, int | None] | None:
    """Id, begin of the content, its size (None: unknown); None where there is no element."""
    if pos >= len(data):
        return None
    length = 9 - data[pos].bit_length()
    if length > 4 or pos + length > len(data):
        return None
    size = _vint(data, pos + length)
    if size is None:
        return None
    value, begin = size
    unknown = value == (1 << 7 * (begin - pos - length)) - 1
    return int.from_bytes(data[pos : pos + length], "big"), begin, None if unknown else value


def _vint(data: mmap | bytes, pos: int) -> tuple[int, int] | None:
    """A number of variable length (RFC 8794, 4) and the position after it."""
    if pos >= len(data):
        return None
    length = 9 - data[pos].bit_length()
    if length > 8 or pos + length > len(data):
        return None
    value = int.from_bytes(data[pos : pos + length], "big") & ((1 << 7 * length) - 1)
    return value, pos + length


def _xiph_size(data: mmap | bytes, pos: int, end: int) -> tuple[int, int] | None:
    """A number coded as bytes that are summed up to the first that is not 255, and what follows."""
    value = 0
    while pos < end:
        value, pos = value + data[pos], pos + 1
        if data[pos - 1] != 255:
            return value, pos
    return None
