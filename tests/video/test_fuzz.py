"""Random damage: no hang, no crash, no traceback, no success with lost frames (see fuzzing.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ffx
from tests.video.fuzz_places import box_at
from tests.video.fuzzing import (
    FRAMES,
    NO_EVIDENCE,
    Case,
    Findings,
    Outcome,
    cases,
    examine,
    faults,
    make_clips,
)

WATCHDOG = 60.0
"""Seconds; the figure is 10 on a machine that does nothing else (scripts/fuzz_video.py)."""


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_clips(tmp_path_factory.mktemp("fuzz"))


def assert_sound(findings: Findings) -> None:
    assert [f"{case}: {fault}" for case, fault in findings.faults] == []


def one_more_sound(clip: Path) -> list[Case]:
    """Packets of sound with another stream's number: FFmpeg makes a stream without a rate of them,
    or finds it only at the end."""
    data = clip.read_bytes()
    begins = range(0, len(data), 188)
    sound = [b for b in begins if data[b + 1] & 0x5F == 0x41 and data[b + 2] == 0x01]
    return [Case("ts", "pyav", begin + 2, 0x0F) for begin in sound]


def setup_of_sound(clip: Path) -> Case:
    """AAC without its setup data, which no output can hold."""
    return Case("mp4", "auto", clip.read_bytes().index(b"\5\x80\x80\x80\5"), 0x38)


def first_cluster(clip: Path) -> Case:
    """The first eight pictures are skipped, and the clip looks as if it began with the ninth."""
    return Case("webm", "auto", clip.read_bytes().index(b"\x1f\x43\xb6\x75") + 1, 0x19)


def test_damaged_clips_end_in_time_and_tell_their_losses(clips: dict[str, Path]) -> None:
    more = one_more_sound(clips["ts"])
    assert len(more) > 10
    whole = [*more[:: len(more) // 3], setup_of_sound(clips["mp4"])]
    drawn = cases(clips, flips=40, cuts=10, seed=0)
    chosen = [*drawn, first_cluster(clips["webm"]), *whole]
    findings = examine(clips, chosen, watchdog=WATCHDOG)
    assert_sound(findings)
    first, *others = (outcome for _, outcome in findings.outcomes[len(drawn) :])
    assert (first.error, first.written, first.lost) == ("CorruptInput", FRAMES - 8, 8)
    assert all((o.error, o.written) == (None, FRAMES) for o in others)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_damaged_clips(clips: dict[str, Path]) -> None:
    chosen = cases(clips, flips=500, cuts=100, seed=1) + one_more_sound(clips["ts"])
    findings = examine(clips, chosen, watchdog=WATCHDOG)
    assert_sound(findings)
    assert len(findings.outcomes) > 600
    # Most damage is in the pictures and costs none; damage that costs some is an error.
    assert sum(outcome.error is not None for _, outcome in findings.outcomes) > 60


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n < 5 else pytest.mark.long) for n in range(30)]
)
def test_the_command_gives_one_line_and_no_traceback(
    ffx: Ffx, clips: dict[str, Path], tmp_path: Path, number: int
) -> None:
    case = cases(clips, flips=20, cuts=10, seed=2)[-1 - number]
    target = tmp_path / f"in.{case.container}"
    target.write_bytes(case.apply(clips[case.container].read_bytes()))
    out = tmp_path / "out.mkv"
    flags = ("--generator", "none", "--device", "cpu", "--decoder", case.decoder)
    done = ffx("swap", tmp_path / "unused.jpg", target, "-o", out, "--preset", "ultrafast", *flags)
    assert "Traceback" not in done.err
    assert done.code in {0, 3, 4}
    if done.code:
        assert str(target) in done.error
    assert {p.name for p in tmp_path.iterdir()} <= {target.name, out.name}
    assert out.exists() or done.code != 0


def test_cases_are_the_same_for_the_same_seed_and_spread_evenly(clips: dict[str, Path]) -> None:
    drawn = cases(clips, flips=40, cuts=20, seed=3)
    assert drawn == cases(clips, flips=40, cuts=20, seed=3)
    assert drawn != cases(clips, flips=40, cuts=20, seed=4)
    kinds = {(c.container, c.decoder, c.flip == 0) for c in drawn}
    assert len(kinds) == 5 * 2 * 2
    for case in drawn[::7]:
        data = clips[case.container].read_bytes()
        damaged = case.apply(data)
        if case.flip:
            assert [i for i, (a, b) in enumerate(zip(data, damaged, strict=True)) if a != b] == [
                case.offset
            ]
        else:
            assert damaged == data[: case.offset]


WHOLE = {"written": FRAMES, "decodable": FRAMES}


@pytest.mark.parametrize(
    ("outcome", "wrong"),
    [
        (Outcome(**WHOLE), []),
        (Outcome(error="TruncatedInput", written=9, decodable=9, lost=15), []),
        (Outcome(written=9, decodable=9, lost=15), []),  # a warning tells it
        (Outcome(written=23, decodable=23), [("success with 23 of 24 frames", True)]),
        (Outcome(written=0, decodable=0), [("success with 0 of 24 frames", True)]),
        (Outcome(error="CorruptInput", written=20, decodable=23, lost=3), []),
        (
            Outcome(error="CorruptInput", written=20, decodable=23, lost=2),
            [
                (
                    "CorruptInput: 23 decodable frames, 20 written and 2 told to be lost",
                    False,
                )
            ],
        ),
        (
            Outcome(error="NotAVideo", decodable=3),
            [("NotAVideo: 3 decodable frames, 0 written and 0 told to be lost", False)],
        ),
        (Outcome(**WHOLE, left=("ffx-writer",)), [("left behind: ffx-writer", False)]),
        (Outcome(broken="hang: no answer in 10 s"), [("hang: no answer in 10 s", False)]),
    ],
)
def test_what_is_a_fault(outcome: Outcome, wrong: list[tuple[str, bool]]) -> None:
    assert list(faults(outcome)) == wrong


def test_what_leaves_no_evidence_is_told_by_its_place(clips: dict[str, Path]) -> None:
    excuses: dict[str, Callable[[Case, bytes], bool]] = dict(NO_EVIDENCE)
    ts, mp4 = (clips[name].read_bytes() for name in ("ts", "mp4"))

    def excused(case: Case, data: bytes) -> bool:
        return any(applies(case, data) for applies in excuses.values())

    assert excused(Case("ts", "auto", 188 * 20), ts)
    assert not excused(Case("ts", "auto", 188 * 20 + 1), ts)
    assert not excused(Case("ts", "auto", 188 * 20, 0x01), ts)
    assert not excused(Case("mkv", "auto", 188 * 20), ts)
    edits, sizes, samples = mp4.index(b"elst"), mp4.index(b"stsz"), mp4.index(b"mdat")
    assert [box_at(mp4, at + 9) for at in (edits, sizes, samples)] == ["elst", "stsz", "mdat"]
    assert excused(Case("mp4", "auto", edits + 9, 0x01), mp4)
    assert not excused(Case("mp4", "auto", sizes + 9, 0x01), mp4)
    assert not excused(Case("mp4", "auto", samples + 9, 0x01), mp4)
    assert not excused(Case("mp4", "auto", edits + 9), mp4)


@pytest.mark.long
def test_a_process_that_dies_is_a_finding_and_the_rest_goes_on(
    clips: dict[str, Path],
) -> None:
    """Damage that no process survives is played by a case that cannot be applied."""
    impossible = Case("mp4", "pyav", 10**9, 1)
    good = Case("mkv", "pyav", clips["mkv"].stat().st_size)
    findings = examine(clips, [impossible, good], watchdog=WATCHDOG)
    assert [c for c, _ in findings.faults] == [impossible]
    assert findings.faults[0][1].startswith("crash")
    assert findings.outcomes[1][1].written == FRAMES
