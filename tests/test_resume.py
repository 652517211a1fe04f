"""Runs in segments: what was finished is not done again, and the result is the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from facefusion_cli.config import load_config
from facefusion_cli.errors import CorruptInput, UsageError
from facefusion_cli.pipeline import ClipSwapper, swap
from facefusion_cli.report import Report
from facefusion_cli.video.segments import segments_folder
from tests.clips import damage, make_clip
from tests.people import talking_clip

BATCH = 4
MANY = {"frames": 60, "size": (128, 96), "audio": True}


class Stopped(Exception):
    """What stands for a killed process."""


def run(
    target: Path,
    out: Path,
    source: Path | None = None,
    report: Report | None = None,
    **output: Any,
) -> Report:
    report = report or Report()
    if out.suffix == ".mkv":
        output.setdefault("encoder", "ffv1")
    generator = "none" if source is None else "mesh"
    settings = load_config(
        flags={
            "output": {"resume": True, "segment": 0.4, **output},
            "generator": {"name": generator},
            "runtime": {"device": "cpu", "batch": BATCH, "decoder": "pyav"},
        }
    )
    swap(source or Path("none.jpg"), target, out, settings, report)
    return report


def stop_after(monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """Makes the swap of the batch after so many fail."""
    whole = ClipSwapper.swap
    done = 0

    def swap_some(self: ClipSwapper, frames: Any) -> None:
        nonlocal done
        if done == batches:
            raise Stopped
        done += 1
        whole(self, frames)

    monkeypatch.setattr(ClipSwapper, "swap", swap_some)


def decoded(path: Path) -> tuple[list[np.ndarray], list[Fraction]]:
    with av.open(path) as file:
        frames = list(file.decode(video=0))
    return [f.to_ndarray() for f in frames], [f.pts * f.time_base for f in frames]


def sound(path: Path) -> list[tuple[bytes, Fraction]]:
    with av.open(path) as file:
        return [(bytes(p), p.pts * p.time_base) for p in file.demux(audio=0) if p.size]


def same(a: Path, b: Path) -> None:
    """The same frames, times and sound; x264 itself does not repeat every bit of a B frame."""
    (frames, times), (others, other_times) = decoded(a), decoded(b)
    assert times == other_times
    allowed = 0 if a.suffix == ".mkv" else 8
    for x, y in zip(frames, others, strict=True):
        apart = np.abs(x.astype(int) - y)
        assert apart.max() <= allowed
        assert apart.mean() < 0.05
    assert sound(a) == sound(b)


def interrupted(
    target: Path, out: Path, batches: int, source: Path | None = None, **output: Any
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, batches)
        with pytest.raises(Stopped):
            run(target, out, source, **output)
    assert not out.exists()
    assert segments_folder(out).is_dir()


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"pts": [0.04 * i + 0.01 * (i % 3) + (1.5 if i > 30 else 0) for i in range(60)]},
        {"start": 0.5},
    ],
    ids=["cfr", "vfr", "late"],
)
def test_an_interrupted_run_ends_as_a_whole_one(
    tmp_path: Path, suffix: str, how: dict[str, Any]
) -> None:
    target = make_clip(tmp_path / "in.mp4", **(MANY | how)).path
    run(target, tmp_path / f"whole{suffix}")
    out = tmp_path / f"out{suffix}"
    interrupted(target, out, 8)
    report = run(target, out)
    same(out, tmp_path / f"whole{suffix}")
    assert len(decoded(out)[0]) == 60
    # 8 batches were done, parts have 3; the writer may have been behind by what its queue holds.
    assert 60 - report.counts["frames_in"] in {3 * BATCH, 6 * BATCH}
    assert report.counts["frames_out"] == 60
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["in.mp4", f"whole{suffix}", f"out{suffix}"]
    )


def test_segments_leave_no_seam(tmp_path: Path) -> None:
    target = make_clip(tmp_path / "in.mp4", **MANY).path
    run(target, tmp_path / "parts.mp4")
    run(target, tmp_path / "whole.mp4", resume=False)
    (parts, times), (whole, whole_times) = (
        decoded(tmp_path / "parts.mp4"),
        decoded(tmp_path / "whole.mp4"),
    )
    assert times == whole_times
    apart = [np.abs(a.astype(int) - b).mean() for a, b in zip(parts, whole, strict=True)]
    assert max(apart) < 1.0
    assert sound(tmp_path / "parts.mp4") == sound(tmp_path / "whole.mp4")


def test_interrupted_twice_and_before_the_first_segment(tmp_path: Path) -> None:
    target = make_clip(tmp_path / "in.mp4", **MANY).path
    run(target, tmp_path / "whole.mp4")
    out = tmp_path / "out.mp4"
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(Stopped):
            run(target, out)
    assert not segments_folder(out).exists()
    interrupted(target, out, 5)
    interrupted(target, out, 5)
    report = run(target, out)
    assert report.counts["frames_in"] < 60
    same(out, tmp_path / "whole.mp4")


def test_other_settings_begin_anew(tmp_path: Path) -> None:
    target = make_clip(tmp_path / "in.mp4", **MANY).path
    interrupted(target, tmp_path / "out.mp4", 8)
    report = run(target, tmp_path / "out.mp4", crf=30)
    assert report.counts["frames_in"] == 60
    assert any("other settings" in line for line in report.warnings)


def test_damage_before_the_interruption_is_not_forgotten(tmp_path: Path) -> None:
    how = MANY | {"options": {"g": "5", "bf": "0"}}
    clip = make_clip(tmp_path / "in.mp4", **how)
    target = damage(clip.path, tmp_path / "bad.mp4", range(6, 10))
    interrupted(target, tmp_path / "out.mp4", 8)
    with pytest.raises(CorruptInput):
        run(target, tmp_path / "out.mp4")
    assert (tmp_path / "out.mp4").exists()
    assert not segments_folder(tmp_path / "out.mp4").exists()


def test_silent_damage_before_the_interruption_is_not_forgotten(tmp_path: Path) -> None:
    how = MANY | {"frames": 100, "options": {"g": "5", "bf": "0"}}
    clip = make_clip(tmp_path / "in.mkv", **how)
    # Matroska's demuxer steps over a broken stretch without a word.
    target = damage(clip.path, tmp_path / "bad.mkv", range(12, 17))
    interrupted(target, tmp_path / "out.mp4", 18)
    report = Report()
    with pytest.raises(CorruptInput):
        run(target, tmp_path / "out.mp4", report=report)
    assert report.counts["frames_in"] < 60
    assert report.counts["frames_lost"] >= 5


@pytest.mark.parametrize(
    ("name", "more"),
    [("out.gif", {}), ("out/%03d.png", {}), ("out.mkv", {"writer": "opencv", "encoder": "ffv1"})],
)
def test_what_cannot_be_resumed_is_said(tmp_path: Path, name: str, more: dict[str, Any]) -> None:
    target = make_clip(tmp_path / "in.mp4").path
    with pytest.raises(UsageError, match="--resume"):
        run(target, tmp_path / name, **more)


@pytest.mark.long
def test_faces_are_followed_across_an_interruption(tmp_path: Path, source_photo: Path) -> None:
    target = talking_clip(tmp_path / "in.mp4", frames=28).path
    run(target, tmp_path / "whole.mp4", source_photo)
    interrupted(target, tmp_path / "out.mp4", 5, source_photo)
    report = run(target, tmp_path / "out.mp4", source_photo)
    assert report.counts["frames_in"] < 28
    same(tmp_path / "out.mp4", tmp_path / "whole.mp4")


@pytest.mark.long
def test_a_run_that_is_killed(tmp_path: Path) -> None:
    target = make_clip(tmp_path / "in.mp4", frames=300, size=(320, 240), audio=True).path
    out = tmp_path / "out.mp4"
    words = (
        f"swap none.jpg {target} -o {out} --generator none --resume --segment 1 --decoder pyav "
        "--preset slower --batch 4 --device cpu --quiet --report report.json --overwrite"
    ).split()
    command = [sys.executable, "-m", "facefusion_cli", *words]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    with subprocess.Popen(command, env=environment, cwd=tmp_path) as process:
        deadline = time.monotonic() + 120
        while not (segments_folder(out) / "000001.json").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert not out.exists()
    subprocess.run(command, env=environment, cwd=tmp_path, check=True)
    counts = json.loads((tmp_path / "report.json").read_text())["counts"]
    assert counts["frames_out"] == 300
    assert counts["frames_in"] <= 300 - 2 * 25
    frames, times = decoded(out)
    assert len(frames) == 300
    assert times == [Fraction(i, 25) for i in range(300)]
    run(target, tmp_path / "whole.mp4", segment=1.0, preset="slower")
    same(out, tmp_path / "whole.mp4")
