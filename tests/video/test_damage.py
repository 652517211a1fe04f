"""No success with lost frames: every kind of damage ends with its error, after all was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import pytest

from facefusion_cli import errors
from facefusion_cli.config import load_config
from facefusion_cli.errors import FfxError
from facefusion_cli.pipeline import ClipSwapper, swap
from facefusion_cli.report import Report
from facefusion_cli.types import FrameBatch
from tests.clips import damage, make_clip
from tests.video.matrix import DECODERS

FRAMES = 40
HOW: dict[str, dict[str, Any]] = {
    "mp4": {"container_options": {"movflags": "+faststart"}, "options": {"g": "5", "bf": "0"}},
    "mkv": {"options": {"g": "5", "bf": "0"}},
    "webm": {"codec": "libvpx-vp9", "options": {"g": "5"}},
    "avi": {"codec": "mpeg4", "options": {"g": "5", "b": "800000"}},
    "ts": {"options": {"g": "5", "bf": "0", "sc_threshold": "0"}, "size": (128, 96)},
    "flv": {"options": {"g": "5", "bf": "0"}},
}
SOUND = {"avi": "libmp3lame", "webm": "libopus"}


@dataclass(frozen=True)
class Clip:
    """A whole clip to be broken."""

    path: Path
    data: bytes
    places: list[tuple[int, int]]
    """Place and size of each video packet."""


Break = Callable[[Clip, Path], bytes]


def whole(path: Path, *, audio: bool = False) -> Clip:
    suffix = path.suffix[1:]
    sound = {"audio_codec": SOUND.get(suffix, "aac"), "audio": audio}
    clip = make_clip(path, frames=FRAMES, **HOW[suffix], **sound)
    with av.open(str(path)) as file:
        places = [(p.pos, p.size) for p in file.demux(video=0) if p.size and p.pos is not None]
    return Clip(clip.path, path.read_bytes(), places)


def by_one(clip: Clip, _: Path) -> bytes:
    """Up to the middle of the last packet."""
    place, size = clip.places[-1]
    return clip.data[: place + size // 2]


def by_half(clip: Clip, _: Path) -> bytes:
    return clip.data[: clip.places[FRAMES // 2][0] + clip.places[FRAMES // 2][1] // 2]


def zeroed(clip: Clip, _: Path) -> bytes:
    begin = clip.places[FRAMES // 2][0] + 9
    return clip.data[:begin] + bytes(len(clip.data) - begin)


def last_zeroed(clip: Clip, _: Path) -> bytes:
    begin = clip.places[-1][0] + 9
    return clip.data[:begin] + bytes(len(clip.data) - begin)


def garbage(clip: Clip, out: Path) -> bytes:
    return damage(clip.path, out, range(16, 22)).read_bytes()


def one_packet(clip: Clip, out: Path) -> bytes:
    return damage(clip.path, out, [17]).read_bytes()


LOST = [
    *((s, by_one, "TruncatedInput") for s in HOW),
    *((s, by_half, "TruncatedInput") for s in HOW),
    *((s, zeroed, None) for s in HOW),
    *((s, last_zeroed, None) for s in HOW),
    *((s, garbage, "CorruptInput") for s in HOW),
    *((s, one_packet, "CorruptInput") for s in HOW),
]


def run(target: Path, decoder: str, **output: Any) -> tuple[FfxError | None, int, Report]:
    """The error, the frames in the output (0: there is none) and the report."""
    out = target.with_name("out.mkv")
    out.unlink(missing_ok=True)
    report = Report()
    tables: dict[str, dict[str, Any]] = {
        "generator": {"name": "none"},
        "runtime": {"decoder": decoder, "device": "cpu"},
        "output": {"preset": "ultrafast", **output},
    }
    error = None
    try:
        swap(target.with_name("unused.jpg"), target, out, load_config(flags=tables), report)
    except FfxError as failure:
        error = failure
    frames = 0
    if out.exists():
        with av.open(str(out)) as file:
            frames = sum(1 for p in file.demux(video=0) if p.size)
    return error, frames, report


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(
    ("suffix", "broken", "kind"), LOST, ids=[f"{s}-{b.__name__}" for s, b, _ in LOST]
)
def test_lost_frames_are_an_error(
    tmp_path: Path, suffix: str, broken: Break, kind: str | None, decoder: str
) -> None:
    target = tmp_path / f"broken.{suffix}"
    target.write_bytes(broken(whole(tmp_path / f"whole.{suffix}"), target))
    error, frames, report = run(target, decoder)
    assert error is not None
    assert error.exit_code == 4
    assert type(error).__name__ in ({kind} if kind else {"TruncatedInput", "CorruptInput"})
    assert error.path == str(target)
    assert error.hint is not None
    assert "--lenient" in error.hint
    # All there is was written. A cut frame may come out as far as it can be decoded.
    lost = report.counts["frames_lost"]
    assert 0 < frames == report.counts["frames_out"]
    assert lost > 0
    knows_its_end = suffix != "ts" or broken in {garbage, one_packet}
    if knows_its_end:
        assert abs(frames + lost - FRAMES) <= 1


def chunk_name(clip: Clip, data: bytearray) -> None:
    """AVI: a chunk that is none; the index at the end lists it."""
    data[clip.places[17][0] - 7] ^= 0x40


def sound_before_the_last(clip: Clip, data: bytearray) -> None:
    """AVI: cut in the last sound before the last picture; the index is gone with the end."""
    place, size = clip.places[-2]
    last = clip.places[-1][0] - 8
    assert data[place + size :].find(b"01wb") < last - place - size
    del data[last - 20 :]


def flags_of_sound(clip: Clip, data: bytearray) -> None:
    """Matroska: sound in one block after another becomes laced, and is no such."""
    place, size = clip.places[17]
    begin = data.index(b"\x82", place + size, place + size + 12)
    data[begin + 3] ^= 0x02


def code_of_a_picture(clip: Clip, data: bytearray) -> None:
    """MPEG-TS: the slice's start code is gone, and the parser glues it to the picture before."""
    code = data.index(b"\0\0\0\1\x41", clip.places[17][0])
    data[code + 3] ^= 0xAC


def size_in_the_last_cluster(clip: Clip, data: bytearray) -> None:
    """Matroska: the block is longer than the file, and the chain never goes on."""
    place, size = clip.places[-3]
    begin = data.rindex(b"\xa3", 0, place)
    assert place - begin <= 8
    assert size
    data[begin] = 0xA2


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(
    ("suffix", "broken"),
    [
        ("avi", chunk_name),
        ("avi", sound_before_the_last),
        ("webm", flags_of_sound),
        ("ts", code_of_a_picture),
        ("mkv", size_in_the_last_cluster),
    ],
)
def test_losses_that_only_the_file_tells(
    tmp_path: Path, suffix: str, broken: Callable[[Clip, bytearray], None], decoder: str
) -> None:
    """FFmpeg steps over all of these without a word; all were found by random damage."""
    clip = whole(tmp_path / f"whole.{suffix}", audio=True)
    data = bytearray(clip.data)
    broken(clip, data)
    target = tmp_path / f"broken.{suffix}"
    target.write_bytes(data)
    error, frames, report = run(target, decoder)
    assert 0 < frames < FRAMES
    assert isinstance(error, errors.DecodeError)
    assert report.counts["frames_lost"] == FRAMES - frames


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("suffix", HOW)
def test_whole_clips_lose_nothing(tmp_path: Path, suffix: str, decoder: str) -> None:
    error, frames, report = run(whole(tmp_path / f"whole.{suffix}").path, decoder)
    assert error is None
    assert (frames, report.counts["frames_lost"]) == (FRAMES, 0)
    assert report.warnings == []


@pytest.mark.parametrize("decoder", DECODERS)
def test_lenient_makes_it_a_warning(tmp_path: Path, decoder: str) -> None:
    target = tmp_path / "broken.mkv"
    target.write_bytes(by_one(whole(tmp_path / "whole.mkv"), target))
    error, frames, report = run(target, decoder, lenient=True)
    assert error is None
    assert frames == FRAMES - 1
    assert report.counts["frames_lost"] == 1
    assert any("last frame is missing" in w for w in report.warnings)


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_gap_without_a_broken_place_is_honest(tmp_path: Path, decoder: str) -> None:
    times = [i / 25 for i in range(FRAMES) if i not in range(16, 22)]
    clip = make_clip(tmp_path / "clip.mkv", pts=times, options={"bf": "0"})
    error, frames, report = run(clip.path, decoder)
    assert (error, frames, report.counts["frames_lost"]) == (None, len(times), 0)


@pytest.mark.parametrize("decoder", DECODERS)
def test_bytes_that_lack_behind_all_pictures_are_a_warning(tmp_path: Path, decoder: str) -> None:
    clip = whole(tmp_path / "whole.mkv")
    target = tmp_path / "broken.mkv"
    target.write_bytes(clip.data[:-8])
    error, frames, report = run(target, decoder)
    assert (error, frames, report.counts["frames_lost"]) == (None, FRAMES, 0)
    assert any("no frame is known to be missing" in w for w in report.warnings)


def _moov_missing(clip: Clip) -> bytes:
    data = clip.data
    begin = data.index(b"moov") - 4
    size = int.from_bytes(data[begin : begin + 4], "big")
    return data[:begin] + data[begin + size :]


REFUSED: list[tuple[str, Callable[[Clip], bytes], str, str]] = [
    ("mp4", _moov_missing, "TruncatedInput", "index"),
    ("mkv", lambda clip: clip.data[:200], "", ""),
    ("mp4", lambda _: b"", "EmptyVideo", "zero bytes"),
    ("mp4", lambda _: b"<!DOCTYPE html><html><body>404</body></html>\n" * 20, "NotAVideo", ""),
]


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(
    ("suffix", "broken", "kind", "words"), REFUSED, ids=["moov", "header", "empty", "html"]
)
def test_what_holds_no_frame_is_refused(
    tmp_path: Path,
    suffix: str,
    broken: Callable[[Clip], bytes],
    kind: str,
    words: str,
    decoder: str,
) -> None:
    target = tmp_path / f"broken.{suffix}"
    target.write_bytes(broken(whole(tmp_path / f"whole.{suffix}")))
    error, frames, _ = run(target, decoder)
    assert error is not None
    assert frames == 0
    assert isinstance(error, errors.InputError | errors.DecodeError)
    assert not kind or type(error).__name__ == kind
    assert words in str(error)


@pytest.mark.parametrize("ending", ["part", "crdownload"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_unfinished_downloads(tmp_path: Path, ending: str, decoder: str) -> None:
    """Browsers add an ending to what is not all there yet; the content counts, not the name."""
    target = tmp_path / f"clip.mp4.{ending}"
    target.write_bytes(by_half(whole(tmp_path / "whole.mp4"), target))
    error, frames, _ = run(target, decoder)
    assert isinstance(error, errors.TruncatedInput)
    assert frames > 0


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_fragmented_mp4_that_is_cut_or_broken(tmp_path: Path, decoder: str) -> None:
    options = {"movflags": "frag_keyframe+empty_moov"}
    made = make_clip(
        tmp_path / "whole.mp4",
        frames=FRAMES,
        options={"g": "5", "bf": "0"},
        container_options=options,
    )
    data = made.path.read_bytes()
    fragments = [i for i in range(len(data)) if data[i : i + 4] == b"moof"]
    middle = fragments[len(fragments) // 2] - 4
    for name, broken in (
        ("cut.mp4", data[: data.index(b"mdat", middle) + 20]),
        ("broken.mp4", data[:middle] + b"\xff" * 64 + data[middle + 64 :]),
    ):
        target = tmp_path / name
        target.write_bytes(broken)
        with pytest.raises(errors.DecodeError):
            _swap(target, tmp_path / f"out {name}", decoder)
        with av.open(tmp_path / f"out {name}") as file:
            assert sum(1 for _ in file.decode(video=0)) >= FRAMES // 2 - 1


@pytest.mark.parametrize("decoder", DECODERS)
def test_recordings_that_were_joined_byte_by_byte(tmp_path: Path, decoder: str) -> None:
    part = make_clip(tmp_path / "part.ts", frames=FRAMES, audio=True, start=1).path.read_bytes()
    target = tmp_path / "joined.ts"
    target.write_bytes(part + part)
    with pytest.raises(errors.CorruptInput, match="clock starts again"):
        _swap(target, tmp_path / "out.mp4", decoder)
    with av.open(tmp_path / "out.mp4") as file:
        assert sum(1 for _ in file.decode(video=0)) >= 2 * FRAMES - 1


def test_a_target_that_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = make_clip(tmp_path / "in.mp4", frames=FRAMES).path
    swap_batch = ClipSwapper.swap

    def delete(self: ClipSwapper, frames: FrameBatch) -> None:
        target.unlink(missing_ok=True)
        swap_batch(self, frames)

    monkeypatch.setattr(ClipSwapper, "swap", delete)
    with pytest.raises(errors.CorruptInput, match="the file is gone"):
        _swap(target, tmp_path / "out.mp4", "pyav")


def _swap(target: Path, out: Path, decoder: str) -> Report:
    report = Report()
    flags = {"generator": {"name": "none"}, "runtime": {"device": "cpu", "decoder": decoder}}
    swap(Path("none.jpg"), target, out, load_config(flags=flags), report)
    return report
