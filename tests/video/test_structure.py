"""What a file's bytes say of its completeness, held against files that were broken on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import pytest

from facefusion_cli.video.structure import Structure, glance, walk
from tests.clips import make_clip

HOW: dict[str, dict[str, Any]] = {
    "mp4": {"container_options": {"movflags": "+faststart"}},
    "mkv": {"audio": True},
    "webm": {"codec": "libvpx-vp9"},
    "avi": {"codec": "mpeg4"},
    "ts": {"audio": True},
    "flv": {"audio": True, "options": {"bf": "0"}},
}
SAYS_ITS_LENGTH = {"mp4", "mkv", "webm", "avi", "flv"}


def make(folder: Path, suffix: str, **more: Any) -> Path:
    return make_clip(folder / f"whole.{suffix}", **{**HOW[suffix], **more}).path


def look(path: Path, data: bytes | None = None) -> Structure:
    """glance() and walk() of a file, after its bytes were replaced; opened as it was before."""
    with av.open(str(path)) as file:
        name, number = file.format.name, file.streams.video[0].id
    if data is not None:
        path.write_bytes(data)
    return walk(path, name, glance(path, name), number)


def packets(path: Path) -> list[tuple[int, int]]:
    """Place and size of the video's packets."""
    with av.open(str(path)) as file:
        return [(p.pos, p.size) for p in file.demux(video=0) if p.size and p.pos is not None]


@pytest.mark.parametrize("suffix", HOW)
def test_whole_files_are_whole(tmp_path: Path, suffix: str) -> None:
    path = make(tmp_path, suffix)
    found = look(path)
    assert found.size == path.stat().st_size
    assert (found.missing, found.zeros, found.cut, found.breaks) == (0, 0, "", ())
    assert not found.cut_off
    assert found.whole == (suffix in SAYS_ITS_LENGTH)


@pytest.mark.parametrize("lacking", [1, 8, 100, 500])
@pytest.mark.parametrize("suffix", HOW)
def test_lacking_bytes_are_counted(tmp_path: Path, suffix: str, lacking: int) -> None:
    path = make(tmp_path, suffix)
    data = path.read_bytes()
    found = look(path, data[:-lacking])
    if suffix == "ts":  # knows of whole packets only
        assert found.missing == lacking % 188
    else:
        assert found.missing == lacking
    assert not found.whole
    assert found.breaks == ()


def test_a_cut_behind_all_pictures(tmp_path: Path) -> None:
    for suffix in ("mkv", "avi"):
        path = make(tmp_path, suffix)
        assert look(path, path.read_bytes()[:-8]).cut == "behind"


@pytest.mark.parametrize("suffix", ["mkv", "webm", "ts", "flv"])
def test_a_cut_in_the_midst_of_a_picture(tmp_path: Path, suffix: str) -> None:
    path = make(tmp_path, suffix, size=(256, 192))
    place, size = packets(path)[5]
    assert look(path, path.read_bytes()[: place + size // 2]).cut == "video"


@pytest.mark.parametrize("zeros", [64, 5000])
@pytest.mark.parametrize("suffix", HOW)
def test_zeros_at_the_end(tmp_path: Path, suffix: str, zeros: int) -> None:
    path = make(tmp_path, suffix, frames=40)
    data = path.read_bytes()
    found = look(path, data[:-zeros].rstrip(b"\0") + bytes(zeros))
    # Packets of an MPEG-TS may be filled with them.
    assert found.zeros >= zeros or (suffix == "ts" and zeros < 188)
    assert not found.whole


@pytest.mark.parametrize("suffix", ["mkv", "webm", "ts", "flv"])
def test_noise_breaks_the_chain(tmp_path: Path, suffix: str) -> None:
    path = make(tmp_path, suffix, frames=40)
    place, _ = packets(path)[20]
    data = bytearray(path.read_bytes())
    data[place : place + 200] = bytes((7 * i * i + 3) % 251 for i in range(200))
    found = look(path, bytes(data))
    assert found.breaks
    begin, end = found.breaks[0]
    assert begin <= place + 200
    assert end >= place


@pytest.mark.parametrize("options", [{"live": "1"}, {"cluster_time_limit": "200"}])
def test_live_and_short_clusters(tmp_path: Path, options: dict[str, str]) -> None:
    path = make(tmp_path, "webm", frames=40, container_options=options)
    found = look(path)
    assert (found.breaks, found.cut, found.missing) == ((), "", 0)
    assert found.unsaid == ("live" in options)
    place, size = packets(path)[30]
    assert look(path, path.read_bytes()[: place + size // 2]).cut == "video"


def test_a_wrong_track_number_is_a_broken_place(tmp_path: Path) -> None:
    path = make(tmp_path, "mkv", frames=40)
    data = bytearray(path.read_bytes())
    place, size = packets(path)[20]
    begin = data.index(b"\x81", place - 4, place + 8)
    data[begin] = 0x9F
    assert size
    assert len(look(path, bytes(data)).breaks) == 1


def test_a_lost_packet_of_a_transport_stream(tmp_path: Path) -> None:
    path = make(tmp_path, "ts", frames=40)
    data = path.read_bytes()
    with av.open(str(path)) as file:
        number = file.streams.video[0].id
    rows = [data[i : i + 188] for i in range(0, len(data), 188)]
    video = [i for i, r in enumerate(rows) if int.from_bytes(r[1:3], "big") & 0x1FFF == number]
    gone = video[len(video) // 2]
    found = look(path, b"".join(r for i, r in enumerate(rows) if i != gone))
    assert len(found.breaks) == 1
    assert found.breaks[0][0] < gone * 188 <= found.breaks[0][1]
    # The same packet twice is allowed.
    assert look(path, b"".join(r + r * (i == gone) for i, r in enumerate(rows))).breaks == ()


def test_a_transport_stream_announces_the_time_of_every_picture(tmp_path: Path) -> None:
    path = make(tmp_path, "ts", frames=40)
    with av.open(str(path)) as file:
        times = [p.pts for p in file.demux(video=0) if p.size]
    assert list(look(path).starts) == times
    # A start whose code is broken is a broken place, and announces its picture still.
    data = bytearray(path.read_bytes())
    begins = [i for i in range(0, len(data), 188) if data[i + 1] & 0x5F == 0x41]
    begins = [i for i in begins if data[i + 2] == 0]
    head = data.index(b"\0\0\1\xe0", begins[20])
    data[head] = 0x80
    found = look(path, bytes(data))
    assert list(found.starts) == times
    assert [end for _, end in found.breaks] == [begins[20]]


def element(kind: str, content: bytes) -> bytes:
    """One EBML element, its size in four bytes."""
    return bytes.fromhex(kind) + (1 << 28 | len(content)).to_bytes(4, "big") + content


def laced(kind: int, content: bytes) -> bytes:
    """A Matroska file with one track of sound and one block of it, laced as flags say."""
    track = element("ae", element("d7", b"\2") + element("83", b"\2"))
    block = element("a3", b"\x82\0\0" + bytes([kind]) + content)
    cluster = element("1f43b675", element("e7", b"\0") + block)
    segment = element("18538067", element("1654ae6b", track) + cluster)
    return element("1a45dfa3", b"") + segment


@pytest.mark.parametrize(
    ("kind", "content", "whole"),
    [
        (0x80, b"any", True),
        (0x82, bytes([2, 3, 4]) + bytes(3 + 4 + 5), True),  # sizes 3, 4 and what is left
        (0x82, bytes([1, 255, 5]) + bytes(260), True),
        (0x82, bytes([2, 3, 4]) + bytes(6), False),
        (0x82, bytes([1, 255]), False),  # the size goes on behind the block
        (0x82, b"", False),
        (0x84, bytes([2]) + bytes(9), True),  # three of the same size
        (0x84, bytes([2]) + bytes(10), False),
        (0x86, bytes([2, 0x83, 0xC0]) + bytes(3 + 4 + 1), True),  # 3, then 1 more
        (0x86, bytes([2, 0x83, 0xC0]) + bytes(6), False),
        (0x86, bytes([2, 0x83, 0x80]) + bytes(9), False),  # 3, then 63 fewer
        (0x86, bytes([1, 0]) + bytes(9), False),
    ],
)
def test_laced_sound(tmp_path: Path, kind: int, content: bytes, whole: bool) -> None:
    path = tmp_path / "laced.mkv"
    path.write_bytes(laced(kind, content))
    found = walk(path, "matroska,webm", glance(path, "matroska,webm"), 1)
    assert found.missing == 0
    assert (found.breaks == ()) is whole
