"""--start, --end, --fps, --scale and --audio through the whole pipeline, picture and sound."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest

from facefusion_cli.config import load_config
from facefusion_cli.errors import FfxError, InputError
from facefusion_cli.pipeline import swap
from facefusion_cli.report import Report
from tests.clips import Clip, make_clip
from tests.video.matrix import MS, has_sound, heard, shown, sound_moved

OUTPUTS = ("out.mp4", "out.mov", "out.mkv", "out.webm")
DECODERS = ("opencv", "pyav")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Clip:
    """Three seconds at 25 fps, a key frame every ten frames, with sound."""
    path = tmp_path_factory.mktemp("cuts") / "in.mp4"
    return make_clip(path, frames=75, size=(128, 96), audio=True, options={"g": "10"})


def run(target: Path | Clip, out: Path, *, decoder: str = "auto", **output: object) -> Report:
    path = target if isinstance(target, Path) else target.path
    flags = {
        "output": {"crf": 12, **output},
        "generator": {"name": "none"},
        "runtime": {"device": "cpu", "decoder": decoder},
    }
    report = Report()
    swap(Path("none.jpg"), path, out, load_config(flags=flags), report)
    return report


def shows(clip: Clip, out: Path, expected: list[int]) -> bool:
    """Whether the output's frames are these of the clip, by their brightness.

    Frames up to eight apart differ by 14 levels at least.
    """
    centres = [luma[luma.shape[0] // 2, luma.shape[1] // 2] for luma in shown(out).luma]
    pairs = zip(centres, expected, strict=True)
    return all(abs(centre - clip.value(i)) < 5 for centre, i in pairs)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize(
    ("start", "end", "first", "last"),
    [("0.5", "2", 13, 49), ("7f", "33f", 7, 32), ("0:01.04", "", 26, 74), ("", "1.2", 0, 29)],
)
def test_a_part_with_its_sound(
    clip: Clip, tmp_path: Path, name: str, decoder: str, start: str, end: str, first: int, last: int
) -> None:
    out = tmp_path / name
    run(clip, out, decoder=decoder, start=start, end=end)
    assert shows(clip, out, list(range(first, last + 1)))
    pts = shown(out).pts
    assert pts[0] <= Fraction(40, 1000), "the part begins at once"
    steps = {round((b - a) * 1000) for a, b in pairwise(pts)}
    assert steps == {40}
    # The first frame's time in the clip is subtracted from the sound as well.
    begin = Fraction(first, 25)
    assert abs(sound_moved(clip.path, out) + begin) <= MS
    samples, rate = heard(out)
    length = Fraction(int(np.flatnonzero(samples)[-1]), rate) - 2
    assert abs(length - (Fraction(last + 1, 25) - begin)) < Fraction(60, 1000)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("rate", ["10", "30", "50", "29.97", "12.5"])
def test_another_rate_keeps_the_duration(
    clip: Clip, tmp_path: Path, rate: str, decoder: str
) -> None:
    out = tmp_path / "out.mp4"
    run(clip, out, decoder=decoder, fps=rate)
    exact = Fraction(30_000, 1001) if rate == "29.97" else Fraction(rate)
    pts = shown(out).pts
    assert len(pts) == round(3 * exact)
    assert abs(pts[-1] - pts[0] + 1 / exact - 3) <= 1 / exact
    ticks = [int(i / exact * 25 + Fraction(1, 40)) for i in range(len(pts))]
    assert shows(clip, out, ticks)
    assert abs(sound_moved(clip.path, out)) <= MS


def test_a_variable_rate_becomes_constant(tmp_path: Path) -> None:
    times = [0, 0.04, 0.08, 0.5, 0.54, 1.3]
    clip = make_clip(tmp_path / "in.mkv", pts=times, audio=True)
    run(clip, tmp_path / "out.mp4", fps="25")
    count = len(shown(tmp_path / "out.mp4").pts)
    expected = [max(k for k, t in enumerate(times) if t <= i / 25 + 0.001) for i in range(count)]
    assert shows(clip, tmp_path / "out.mp4", expected)
    assert 33 <= count <= 34


@pytest.mark.parametrize(
    ("scale", "size"), [("0.5", (64, 48)), ("x72", (96, 72)), ("200x", (200, 150)), ("96x96", None)]
)
def test_another_size(clip: Clip, tmp_path: Path, scale: str, size: tuple[int, int] | None) -> None:
    out = tmp_path / "out.mp4"
    run(clip, out, scale=scale, end="10f")
    after = shown(out)
    assert after.size == (size or (96, 96))
    assert abs(after.aspect - Fraction(4, 3)) < Fraction(1, 50)
    assert shows(clip, out, list(range(10)))


def test_everything_at_once(clip: Clip, tmp_path: Path) -> None:
    out = tmp_path / "out.mkv"
    run(clip, out, start="1", end="2", fps="50", scale="0.5")
    assert len(shown(out).pts) == 50
    assert shows(clip, out, [25 + i // 2 for i in range(50)])
    assert abs(sound_moved(clip.path, out) + 1) <= MS


def test_another_files_sound(clip: Clip, tmp_path: Path) -> None:
    other = make_clip(tmp_path / "other.mp4", frames=50, audio=True, audio_start=0.2)
    out = tmp_path / "out.mp4"
    run(clip, out, audio_file=str(other.path), start="1")
    assert len(shown(out).pts) == 50
    samples, rate = heard(out)
    assert abs(Fraction(int(np.flatnonzero(np.abs(samples) > 0.05)[0]), rate) - 2) < 30 * MS
    run(clip, tmp_path / "silent.mp4", audio=False)
    assert not has_sound(tmp_path / "silent.mp4")


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_part_without_its_sound(tmp_path: Path, name: str) -> None:
    clip = make_clip(tmp_path / "in.mp4", frames=75, audio=True, audio_seconds=1)
    report = run(clip, tmp_path / name, start="2")
    assert shows(clip, tmp_path / name, list(range(50, 75)))
    assert len([w for w in report.warnings if "1 audio stream has no sound" in w]) == 1


@pytest.mark.parametrize("what", ["missing.wav", "text.txt", "silent.mp4"])
def test_a_sound_file_that_is_none(clip: Clip, tmp_path: Path, what: str) -> None:
    (tmp_path / "text.txt").write_text("no sound\n" * 50)
    make_clip(tmp_path / "silent.mp4")
    with pytest.raises(InputError):
        run(clip, tmp_path / "out.mp4", audio_file=str(tmp_path / what))
    assert not (tmp_path / "out.mp4").exists()


@pytest.mark.parametrize(
    "how",
    [
        {"start": "2", "end": "1"},
        {"start": "9"},
        {"start": "99f"},
        {"end": "0"},
        {"start": "soon"},
        {"fps": "0"},
        {"fps": "fast"},
        {"scale": "0x0"},
        {"scale": "big"},
    ],
)
def test_what_means_nothing(clip: Clip, tmp_path: Path, how: dict[str, str]) -> None:
    with pytest.raises(FfxError) as caught:
        run(clip, tmp_path / "out.mp4", **how)
    assert caught.value.exit_code == 2
    flag, value = next(iter(reversed(how.items())))
    assert f"--{flag}" in str(caught.value)
    assert value in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_images_at_their_own_rate(tmp_path: Path, clip: Clip) -> None:
    run(clip, tmp_path / "f_%03d.png", end="12f")
    run(tmp_path / "f_%03d.png", tmp_path / "out.mp4", fps="12")
    with av.open(tmp_path / "out.mp4") as file:
        assert file.streams.video[0].average_rate == 12
    assert shows(clip, tmp_path / "out.mp4", list(range(12)))
