"""Parts of a run on the disk: complete or not there, of this run or discarded, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest
import torch

from facefusion_cli.errors import OutputNotWritable
from facefusion_cli.report import Report
from facefusion_cli.video.segments import Checkpoint, SegmentStore, run_key, segments_folder

KEY: Mapping[str, Any] = {
    "format": 1,
    "target": ["a", 1, 2],
    "sources": ["b"],
    "settings": {"x": 1.5, "y": (1, 2)},
}
STATE = {"found": torch.tensor(3), "mesh": torch.arange(6.0).reshape(2, 3)[:, :2]}


def packet(data: bytes, pts: int, dts: int, *, key: bool = False) -> av.Packet:
    made = av.Packet(data)
    made.pts, made.dts, made.duration, made.is_keyframe = pts, dts, 40, key
    made.time_base = Fraction(1, 12_800)
    return made


def put(store: SegmentStore, *packets: av.Packet, following: Fraction = Fraction(9)) -> None:
    """A finished part."""
    part = store.begin(Fraction(1, 12_800))
    for one in packets:
        part.add(one)
    part.finish(
        Checkpoint(STATE, {"faces_found": 2}, 1),
        frames=len(packets),
        first=0,
        last=9,
        following=following,
        start=Fraction(-1, 3),
        origin=None,
        head=b"head",
    )


def test_what_was_put_in_comes_out_in_another_process_s_store(tmp_path: Path) -> None:
    out = tmp_path / "a b.mp4"
    with SegmentStore(out, KEY, Report()) as store:
        put(store, packet(b"one", 0, -80, key=True), packet(b"two!", 80, -40))
        put(store, packet(b"", 120, 0), packet(b"\0\xff", 160, 40), following=Fraction(1, 3))
    report = Report()
    with SegmentStore(out, KEY, report) as store:
        found = [(bytes(p), p.pts, p.dts, p.duration, p.is_keyframe) for p in store.packets()]
        assert found == [
            (b"one", 0, -80, 40, True),
            (b"two!", 80, -40, 40, False),
            (b"", 120, 0, 40, False),
            (b"\0\xff", 160, 40, 40, False),
        ]
        assert {p.time_base for p in store.packets()} == {Fraction(1, 12_800)}
        last = store.segments[-1]
        assert (last.number, last.frames, last.following) == (1, 2, "1/3")
        assert (last.start, last.origin) == ("-1/3", None)
        assert (last.counts, last.lost) == ({"faces_found": 2}, 1)
        state = store.state()
        assert state.keys() == STATE.keys()
        assert all(torch.equal(state[name], STATE[name]) for name in STATE)
    assert report.warnings == []
    assert segments_folder(out) == tmp_path / ".a b.mp4.segments"
    store.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    with SegmentStore(tmp_path / "a.mp4", KEY, Report()) as store:
        put(store, packet(b"one", 0, 0, key=True))
        (store.folder / "000001.packets").write_bytes(b"half")
    with SegmentStore(tmp_path / "a.mp4", KEY, Report()) as store:
        assert len(store.segments) == 1
        put(store, packet(b"2", 80, 80))
        assert [bytes(p) for p in store.packets()] == [b"one", b"2"]


@pytest.mark.parametrize("kind", ["packets", "state"])
def test_a_damaged_part_is_made_anew_and_so_is_all_behind_it(tmp_path: Path, kind: str) -> None:
    with SegmentStore(tmp_path / "a.mp4", KEY, Report()) as store:
        for text in (b"one", b"two", b"three"):
            put(store, packet(text, 0, 0))
    path = store.folder / f"000001.{kind}"
    path.write_bytes(path.read_bytes()[:-1])
    report = Report()
    with SegmentStore(tmp_path / "a.mp4", KEY, report) as store:
        assert [bytes(p) for p in store.packets()] == [b"one"]
        put(store, packet(b"2", 0, 0))
    assert report.warnings == ["segment 1 of the earlier run is damaged and made anew"]
    with SegmentStore(tmp_path / "a.mp4", KEY, Report()) as store:
        assert [bytes(p) for p in store.packets()] == [b"one", b"2"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": 0}, "another version"),
        ({"target": ["a", 1, 3]}, "another target, or it has changed"),
        ({"sources": ["c"]}, "another source photo"),
        ({"settings": {}}, "other settings"),
    ],
)
def test_parts_of_another_run_are_discarded(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    with SegmentStore(tmp_path / "a.mp4", {**KEY, **change}, Report()) as store:
        put(store, packet(b"one", 0, 0))
    report = Report()
    with SegmentStore(tmp_path / "a.mp4", KEY, report) as store:
        assert store.segments == []
        assert store.state() == {}
        assert sorted(p.name for p in store.folder.iterdir()) == ["key.json", "lock"]
    assert len(report.warnings) == 1
    assert why in report.warnings[0]
    assert not store.folder.exists()  # nothing worth keeping


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        SegmentStore(tmp_path / "a.mp4", KEY, Report()),
        pytest.raises(OutputNotWritable, match="another run is writing"),
        SegmentStore(tmp_path / "a.mp4", KEY, Report()),
    ):
        pass


def test_foreign_files_are_not_touched(tmp_path: Path) -> None:
    folder = segments_folder(tmp_path / "a.mp4")
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    store = SegmentStore(tmp_path / "a.mp4", KEY, Report())
    with pytest.raises(OutputNotWritable, match=r"holds another file, notes\.txt"):
        store.__enter__()
    assert (folder / "notes.txt").read_text() == "mine"


def test_the_key_knows_a_changed_target_and_photo(tmp_path: Path) -> None:
    target, photo = tmp_path / "t.mp4", tmp_path / "p.jpg"
    target.write_bytes(b"1")
    photo.write_bytes(b"1")
    key = run_key(target, [photo], {"crf": 1})
    assert json.loads(json.dumps(key)) == key
    assert run_key(target, [photo], {"crf": 1}) == key
    assert run_key(target, [photo], {"crf": 2}) != key
    photo.write_bytes(b"2")
    assert run_key(target, [photo], {"crf": 1})["sources"] != key["sources"]
    target.write_bytes(b"22")
    assert run_key(target, [photo], {"crf": 1})["target"] != key["target"]
