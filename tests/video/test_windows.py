"""Parts of clips: the same frames, bit for bit, that a whole reading gives for them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

from facefusion_cli.errors import CorruptInput, TruncatedInput
from facefusion_cli.report import Report
from facefusion_cli.types import WHOLE, BgrBatch, FrameBatch, Window
from facefusion_cli.video import frame_decoder
from facefusion_cli.video.probe import probe
from facefusion_cli.video.reader import Reader, open_reader
from tests.clips import Clip, damage, make_clip, truncate

X264 = {"preset": "veryfast", "crf": "20"}
CLIPS: dict[str, dict[str, Any]] = {
    "bframes.mp4": {"options": {**X264, "g": "12", "bf": "3"}, "audio": True},
    "open_gop.mp4": {"options": {**X264, "x264-params": "open-gop=1:keyint=12:bframes=3"}},
    "open_gop.mkv": {"options": {**X264, "x264-params": "open-gop=1:keyint=12:bframes=3"}},
    "open_gop.ts": {"options": {**X264, "x264-params": "open-gop=1:keyint=12:bframes=3"}},
    "refresh.mp4": {"options": {**X264, "x264-params": "intra-refresh=1:keyint=12"}},
    "hevc.mp4": {
        "codec": "libx265",
        "options": {"x265-params": "log-level=none:open-gop=1:keyint=12"},
    },
    "one_key.mp4": {"options": {**X264, "g": "500"}},
    "late.mkv": {"options": {**X264, "g": "12"}, "start": 0.5, "audio": True},
    "stream.ts": {"options": {**X264, "g": "12", "bf": "2"}, "audio": True, "start": 2.8},
    "mpeg2.ts": {"codec": "mpeg2video", "options": {"g": "12", "bf": "2", "b": "2000000"}},
    "mpeg4.avi": {"codec": "mpeg4", "options": {"g": "12", "b": "2000000"}},
    "mpeg4b.avi": {"codec": "mpeg4", "options": {"g": "12", "bf": "2", "b": "2000000"}},
    "mpeg4b.mkv": {"codec": "mpeg4", "options": {"g": "12", "bf": "2", "b": "2000000"}},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"g": "12", "deadline": "realtime"}},
    "live.webm": {
        "codec": "libvpx-vp9",
        "options": {"g": "12", "deadline": "realtime"},
        "container_options": {"live": "1"},
    },
    "ffv1.mkv": {"codec": "ffv1"},
    "raw.h264": {"options": {**X264, "g": "12", "bf": "2"}},
    "interlaced.mp4": {"interlaced": True, "options": {**X264, "g": "12"}},
    "alpha.webm": {"codec": "libvpx-vp9", "pix_fmt": "yuva420p", "options": {"g": "12"}},
    "vfr.mkv": {
        "pts": [Fraction(i, 25) + Fraction(i % 3, 100) for i in range(100)],
        "options": {**X264, "g": "12"},
    },
}
ONLY_PYAV = {"interlaced.mp4", "alpha.webm"}
SPANS = [(1, 100), (23, 25), (24, 48), (25, 30), (36, 37), (49, 60), (70, 72), (97, 100)]


@pytest.fixture(scope="module")
def clip_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Clip]:
    """Makes each clip of CLIPS once: 100 frames."""
    folder = tmp_path_factory.mktemp("windows")
    made: dict[str, Clip] = {}

    def get(name: str) -> Clip:
        if name not in made:
            how = {"frames": 100, **CLIPS[name]}
            made[name] = make_clip(folder / name, **how)
        return made[name]

    return get


class Read:
    """Everything a reader gave of a part of a clip."""

    def __init__(self, path: Path, decoder: str, window: Window = WHOLE) -> None:
        self.info = probe(path)
        self.report = Report()
        with open_reader(self.info, decoder, self.report, window=window) as reader:
            self.reader: Reader = reader
            batches = list(reader.batches(7))
        self.loss = reader.check_complete()
        self.first = [b.first_index for b in batches]
        self.pts = [t for b in batches for t in b.pts]
        self.pixels = [p for b in batches for p in zip(*map(list, _tensors(b)), strict=True)]


def _tensors(batch: FrameBatch | BgrBatch) -> list[torch.Tensor]:
    if isinstance(batch, BgrBatch):
        return [batch.bgr]
    return [*batch.planes, *([batch.alpha] if batch.alpha is not None else [])]


@pytest.mark.parametrize("decoder", ["opencv", "pyav"])
@pytest.mark.parametrize("name", CLIPS)
def test_a_window_is_exact(clip_of: Callable[[str], Clip], name: str, decoder: str) -> None:
    if decoder == "opencv" and name in ONLY_PYAV:
        pytest.skip("refused")
    path = clip_of(name).path
    whole = Read(path, decoder)
    times = whole.pts
    assert len(times) == 100
    for begin, end in SPANS:
        # Times between two frames, too: the window is a matter of time, not of frames.
        start = times[begin] if begin % 2 else (times[begin - 1] + times[begin]) / 2
        window = Window(start, None if end == 100 else times[end])
        read = Read(path, decoder, window)
        assert read.pts == times[begin:end], (begin, end)
        for got, put in zip(read.pixels, whole.pixels[begin:end], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(got, put, strict=True)), (begin, end)
        assert read.loss is None
        assert read.report.warnings == []
        assert (read.reader.frames_lost, read.reader.decode_failures) == (0, 0)
        assert read.first == list(range(0, end - begin, 7))


def test_the_start_is_reached_by_seeking(
    clip_of: Callable[[str], Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the key frame before: of 100 frames with a key in 12, few are decoded."""
    clip = clip_of("bframes.mp4")
    decoded = 0
    plain = frame_decoder.FrameDecoder.frames

    def counting(self: frame_decoder.FrameDecoder) -> Any:
        nonlocal decoded
        for frame in plain(self):
            decoded += 1
            yield frame

    monkeypatch.setattr(frame_decoder.FrameDecoder, "frames", counting)
    read = Read(clip.path, "pyav", Window(clip.pts[80], clip.pts[84]))
    assert read.pts == list(clip.pts[80:84])
    assert decoded < 30


def test_late_starts_are_for_pyav(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ffx")
    clip = make_clip(tmp_path / "clip.mp4", fps=5, frames=60)
    assert Read(clip.path, "auto", Window(Fraction(4))).report.facts["decoder"] == "opencv"
    assert Read(clip.path, "auto", Window(Fraction(6))).report.facts["decoder"] == "pyav"
    assert "decoder pyav, because it starts late in the clip" in caplog.text
    read = Read(clip.path, "opencv", Window(Fraction(6)))
    assert read.report.facts["decoder"] == "opencv"
    assert read.pts == list(clip.pts[30:])


@pytest.mark.parametrize("decoder", ["opencv", "pyav"])
def test_loss_is_that_of_the_window(tmp_path: Path, decoder: str) -> None:
    options = {**X264, "g": "10", "bf": "0"}
    clip = make_clip(tmp_path / "clip.mkv", frames=100, options=options, audio=True)
    cut = truncate(clip.path, tmp_path / "cut.mkv", 0.6)
    there = len(Read(cut, decoder).pts)
    assert 40 < there < 80
    before = Read(cut, decoder, Window(clip.pts[5], clip.pts[there - 10]))
    assert (before.loss, before.reader.frames_lost) == (None, 0)
    across = Read(cut, decoder, Window(clip.pts[there - 10], clip.pts[there + 8]))
    assert isinstance(across.loss, TruncatedInput)
    assert abs(across.reader.frames_lost - 8) <= 1


@pytest.mark.parametrize("decoder", ["opencv", "pyav"])
def test_damage_outside_the_window_is_no_loss(tmp_path: Path, decoder: str) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=100, options={**X264, "g": "10", "bf": "0"})
    broken = damage(clip.path, tmp_path / "broken.mp4", range(42, 48))
    clean = Read(broken, decoder, Window(clip.pts[55], clip.pts[90]))
    assert clean.loss is None
    assert clean.pts == list(clip.pts[55:90])
    assert (clean.reader.frames_lost, clean.reader.decode_failures) == (0, 0)
    # What is broken before the window, if only just, is no loss of the window's.
    whole = Read(broken, decoder).pts
    late = next(i for i in range(49, 60) if clip.pts[i] in whole)
    behind = Read(broken, decoder, Window(clip.pts[late], clip.pts[70]))
    assert behind.pts == list(clip.pts[late:70])
    assert (behind.loss, behind.reader.decode_failures, behind.report.warnings) == (None, 0, [])
    # What is missing at its beginning is.
    cut = Read(broken, decoder, Window(clip.pts[45], clip.pts[70]))
    assert cut.pts == [t for t in whole if clip.pts[45] <= t < clip.pts[70]]
    assert 25 - len(cut.pts) > 2
    # Whether the start meant the first of them is not certain to a frame, and a packet's failure
    # may come out a few packets later, where many threads decode.
    assert -1 <= cut.reader.frames_lost - (25 - len(cut.pts)) <= 3
    assert isinstance(cut.loss, CorruptInput)


@pytest.mark.parametrize("decoder", ["opencv", "pyav"])
def test_the_end_of_a_window_in_a_long_gap_is_no_loss(tmp_path: Path, decoder: str) -> None:
    times = [0, 0.04, 0.08, 0.12, 9, 9.04, 9.08]
    clip = make_clip(tmp_path / "clip.mkv", pts=times)
    read = Read(clip.path, decoder, Window(None, Fraction(8)))
    assert read.pts == list(clip.pts[:4])
    assert (read.loss, read.reader.frames_lost) == (None, 0)
