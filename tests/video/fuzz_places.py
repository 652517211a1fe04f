"""Where in a file a byte lies, for what damage to it may mean."""

from __future__ import annotations

import struct

_CONTAINERS = {"moov", "trak", "mdia", "minf", "stbl", "edts", "udta", "dinf"}


def box_at(data: bytes, offset: int) -> str:
    """The kind of the innermost MP4 box that holds a byte."""
    kind, begin, end = "", 0, len(data)
    while begin + 8 <= end:
        size, name = struct.unpack(">I4s", data[begin : begin + 8])
        inside = begin + 8 <= offset < begin + size
        if inside:
            kind = name.decode("latin-1")
            if kind not in _CONTAINERS:
                return kind
            begin, end = begin + 8, begin + size
        elif begin <= offset < begin + 8:
            return name.decode("latin-1")
        else:
            begin += max(size, 8)
    return kind
