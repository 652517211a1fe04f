"""--start, --end, --fps and --scale: what they mean, and what is said where they mean nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

from facefusion_cli.config import OutputConfig
from facefusion_cli.errors import ConfigError, UsageError
from facefusion_cli.report import Report
from facefusion_cli.types import NO_EDIT, WHOLE, Edit, VideoInfo, Window
from facefusion_cli.video.edit import at_own_rate, parse_rate, plan_edit
from facefusion_cli.video.frame_times import frame_times
from facefusion_cli.video.probe import probe
from facefusion_cli.video.reader import open_reader
from tests.clips import make_clip
from tests.video.test_windows import CLIPS

SEC = Fraction(1)


def plan(info: VideoInfo, **how: str) -> tuple[Edit, VideoInfo]:
    """plan_edit with these flags."""
    return plan_edit(info, OutputConfig(**how), Report())  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> VideoInfo:
    """100 frames at 25 a second, the first at 0.5 s; anamorphic 64x48."""
    path = tmp_path_factory.mktemp("edit") / "clip.mp4"
    make_clip(path, frames=100, start=0.5, audio=True, sar=Fraction(4, 3), options={"g": "12"})
    return probe(path)


def test_nothing_asked_is_no_edit(late: VideoInfo) -> None:
    assert plan(late) == (NO_EDIT, late)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1", SEC),
        ("1.", SEC),
        ("1.25", SEC * 5 / 4),
        (".5", SEC / 2),
        ("0:02.5", SEC * 5 / 2),
        ("00:00:03.250", SEC * 13 / 4),
        ("0:00:1", SEC),
        ("40f", SEC * 40 / 25),
        ("99f", SEC * 99 / 25),
    ],
)
def test_moments_count_from_the_first_frame(late: VideoInfo, text: str, seconds: Fraction) -> None:
    half = SEC / 2
    edit, shown = plan(late, start=text)
    assert edit == Edit(Window(half + seconds, None))
    assert shown.start == half + seconds
    assert shown.duration_from_header == 4 - seconds
    assert shown.frame_count_from_header == 100 - math.ceil(seconds * 25)
    edit, shown = plan(late, end=text)
    assert edit == Edit(Window(None, half + seconds))
    assert (shown.start, shown.duration_from_header) == (half, seconds)


def test_hours_and_minutes(late: VideoInfo) -> None:
    day = replace(late, duration_from_header=SEC * 100_000)
    edit, _ = plan(day, start="1:02.5", end="12:34:56.789")
    assert edit.window == Window(SEC * 63, SEC / 2 + SEC * 45_296_789 / 1000)


def test_the_whole_clip_by_other_words(late: VideoInfo) -> None:
    for how in ({"start": "0"}, {"start": "0f", "end": "100f"}, {"end": "4"}, {"end": "1:00"}):
        assert plan(late, **how)[0].window == WHOLE
    messages = Log()
    plan_edit(late, OutputConfig(end="99"), messages)
    assert messages.notes == [f"--end 99 is after the clip's end: {late.path}"]


class Log(Report):
    """A report that keeps its notes."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


WRONG: list[tuple[dict[str, str], type[UsageError], str]] = [
    ({"start": "abc"}, ConfigError, r"--start 'abc' is no moment of a clip \(write seconds"),
    ({"start": "-1"}, ConfigError, "--start '-1' is no moment"),
    ({"start": "1:2:3:4"}, ConfigError, "is no moment"),
    ({"start": "1:75"}, ConfigError, "60 or more seconds"),
    ({"end": "1:75:00"}, ConfigError, "60 or more seconds"),
    ({"end": "12F"}, ConfigError, "--end '12F' is no moment"),
    ({"end": "."}, ConfigError, "is no moment"),
    ({"end": "1e3"}, ConfigError, "is no moment"),
    ({"end": "nan"}, ConfigError, "is no moment"),
    ({"end": "٣"}, ConfigError, "is no moment"),
    ({"start": "4"}, UsageError, r"--start 4 is not within the clip: it lasts 4 s: .*clip\.mp4"),
    ({"start": "100f"}, UsageError, "--start 100f is not within the clip: it has 100 frames, 0f"),
    (
        {"end": "101f"},
        UsageError,
        "--end 101f is not within the clip: it has 100 frames, 0f to 99f",
    ),
    ({"start": "2", "end": "1"}, UsageError, r"--end 1 is not after --start 2: .*clip\.mp4"),
    ({"start": "2", "end": "2"}, UsageError, "--end 2 is not after --start 2"),
    ({"start": "2", "end": "50f"}, UsageError, "--end 50f is not after --start 2"),
    ({"end": "0"}, UsageError, "--end 0 leaves nothing of the clip"),
    ({"end": "0f"}, UsageError, "--end 0f leaves nothing of the clip"),
    ({"fps": "fast"}, ConfigError, r"--fps 'fast' is no frame rate \(write frames a second"),
    ({"fps": "25/0"}, ConfigError, "no frame rate"),
    ({"fps": "-25"}, ConfigError, "no frame rate"),
    ({"fps": "."}, ConfigError, "no frame rate"),
    ({"fps": "0"}, ConfigError, "--fps 0 is outside 0.1 to 1000"),
    ({"fps": "1001"}, ConfigError, "outside"),
    ({"fps": "1/11"}, ConfigError, "outside"),
    ({"scale": "big"}, ConfigError, r"--scale 'big' is no size \(write 1280x720"),
    ({"scale": "x"}, ConfigError, "no size"),
    ({"scale": "1280x720x3"}, ConfigError, "no size"),
    ({"scale": "0x720"}, ConfigError, "--scale 0x720 makes 0x720: sides are 1 to 16384"),
    ({"scale": "0x"}, ConfigError, "sides are 1 to"),
    ({"scale": "20000x"}, ConfigError, "makes 20000x15000"),
    ({"scale": "1000"}, ConfigError, "makes 64000x48000"),
]


@pytest.mark.parametrize(("how", "kind", "text"), WRONG)
def test_what_cannot_be(
    late: VideoInfo, how: dict[str, str], kind: type[UsageError], text: str
) -> None:
    with pytest.raises(kind, match=text) as caught:
        plan(late, **how)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_a_start_in_the_last_frame(late: VideoInfo) -> None:
    """It is within the clip, although no later frame begins."""
    _, shown = plan(late, start="99f")
    assert shown.frame_count_from_header == 1


def test_headers_that_end_too_early_are_not_believed(late: VideoInfo) -> None:
    short = replace(late, duration_from_header=SEC)
    assert plan(short, start="2")[0].window.start == SEC * 5 / 2
    with pytest.raises(UsageError, match="it lasts 4 s"):
        plan(short, start="4")


@pytest.mark.parametrize("name", CLIPS)
def test_frames_by_number_in_any_container(tmp_path: Path, name: str) -> None:
    clip = make_clip(tmp_path / name, **{"frames": 100, **CLIPS[name]})
    info = probe(clip.path)
    with open_reader(info, "pyav", Report()) as reader:
        times = [t for batch in reader.batches(9) for t in batch.pts]
    assert frame_times(info) == times
    assert frame_times(info, 30) == times[:31]
    assert frame_times(info, 500) == times
    edit, shown = plan(info, start="33f", end="70f")
    assert edit.window == Window(times[33], times[70])
    if "vfr" not in info.hazards:
        assert shown.frame_count_from_header == 37
    with open_reader(info, "pyav", Report(), window=edit.window) as reader:
        assert [t for batch in reader.batches(9) for t in batch.pts] == times[33:70]


def test_hidden_packets_are_no_frames(tmp_path: Path) -> None:
    """VP8's alternate references lie in packets of their own, which show nothing."""
    clip = make_clip(tmp_path / "clip.webm", codec="libvpx", frames=30)
    hidden = tmp_path / "hidden.webm"
    with av.open(clip.path) as source, av.open(hidden, "w") as sink:
        stream = sink.add_stream_from_template(source.streams.video[0])
        for index, packet in enumerate(source.demux(video=0)):
            if not packet.size:
                continue
            data = bytearray(bytes(packet))
            data[0] &= 0xEF if index == 10 else 0xFF  # show_frame, RFC 6386, section 9.1
            copy = av.Packet(bytes(data))
            copy.pts, copy.dts, copy.time_base = packet.pts, packet.dts, packet.time_base
            copy.is_keyframe = packet.is_keyframe
            copy.stream = stream
            sink.mux(copy)
    info = probe(hidden)
    with open_reader(info, "pyav", Report()) as reader:
        times = [t for batch in reader.batches(9) for t in batch.pts]
    assert len(times) == 29
    assert frame_times(info) == times


def test_frames_are_counted_without_decoding(
    late: VideoInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr("facefusion_cli.video.frame_times.FrameDecoder", refuse)
    assert len(frame_times(late)) == 100


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("", None),
        ("25", Fraction(25)),
        ("25.0", Fraction(25)),
        ("12.5", Fraction(25, 2)),
        ("29.97", Fraction(30_000, 1001)),
        ("29.970", Fraction(30_000, 1001)),
        ("30000/1001", Fraction(30_000, 1001)),
        ("23.976", Fraction(24_000, 1001)),
        ("23.98", Fraction(24_000, 1001)),
        ("59.94", Fraction(60_000, 1001)),
        ("59.9", Fraction(599, 10)),
        ("29.98", Fraction(2998, 100)),
        ("9.99", Fraction(999, 100)),
        ("0.1", Fraction(1, 10)),
        ("1000", Fraction(1000)),
    ],
)
def test_rates(text: str, rate: Fraction | None) -> None:
    assert parse_rate(text) == rate


def test_a_rate_changes_count_but_not_duration(late: VideoInfo) -> None:
    edit, shown = plan(replace(late, hazards=frozenset({"vfr"})), fps="59.94")
    assert edit == Edit(rate=Fraction(60_000, 1001))
    assert shown.frame_rate == Fraction(60_000, 1001)
    assert shown.duration_from_header == 4
    assert shown.frame_count_from_header == 240
    assert "vfr" not in shown.hazards
    edit, shown = plan(late, fps="10", start="1", end="2.5")
    assert edit == Edit(Window(SEC * 3 / 2, SEC * 3), Fraction(10))
    assert shown.frame_count_from_header == 15


def test_the_rate_of_images_is_their_own(late: VideoInfo) -> None:
    images = replace(late, images=tuple(Path(f"{i}.png") for i in range(10)), start=Fraction(0))
    played = at_own_rate(images, OutputConfig(fps="5"))
    assert (played.frame_rate, played.duration_from_header) == (5, 2)
    edit, shown = plan(played, fps="5", start="4f", end="1.6")
    assert edit == Edit(Window(SEC * 4 / 5, SEC * 8 / 5))
    assert (shown.frame_rate, shown.frame_count_from_header) == (5, 4)
    assert at_own_rate(late, OutputConfig(fps="5")) is late
    with pytest.raises(UsageError, match="it has 10 frames"):
        plan(played, fps="5", start="10f")


SIZES: list[tuple[tuple[int, int], str, tuple[int, int]]] = [
    ((1920, 1080), "1280x720", (1280, 720)),
    ((1920, 1080), "1280x", (1280, 720)),
    ((1920, 1080), "x720", (1280, 720)),
    ((1920, 1080), "0.5", (960, 540)),
    ((1920, 1080), "2", (3840, 2160)),
    ((1920, 1080), "854x", (854, 480)),
    ((1920, 1080), "x481", (856, 481)),
    ((1080, 1920), "x1000", (562, 1000)),
    ((641, 361), "0.5", (320, 180)),
    ((16, 16), "0.01", (2, 2)),
    ((1920, 1080), "854X480", (854, 480)),
]


@pytest.mark.parametrize(("old", "text", "new"), SIZES)
def test_sizes_keep_the_shape_of_pixels(
    late: VideoInfo, old: tuple[int, int], text: str, new: tuple[int, int]
) -> None:
    edit, shown = plan(replace(late, width=old[0], height=old[1]), scale=text)
    assert edit == Edit(size=new)
    assert (shown.width, shown.height) == new
    assert shown.sample_aspect == Fraction(4, 3)


def test_another_shape_keeps_the_picture_s(late: VideoInfo) -> None:
    log = Log()
    wide = replace(late, width=1920, height=1080, sample_aspect=Fraction(1))
    edit, shown = plan_edit(wide, OutputConfig(scale="640x640"), log)
    assert edit.size == (640, 640)
    assert shown.sample_aspect == Fraction(16, 9)
    assert "pixels become 16:9" in log.notes[0]
    # What is shown has the same shape, whatever shape the pixels had.
    for aspect in (Fraction(1), Fraction(4, 3), Fraction(64, 45)):
        _, shown = plan(replace(wide, sample_aspect=aspect), scale="720x576")
        assert shown.sample_aspect * 720 / 576 == aspect * 1920 / 1080


def test_its_own_size_is_no_scaling(late: VideoInfo) -> None:
    assert plan(late, scale="64x48") == (NO_EDIT, late)
    assert plan(late, scale="1") == (NO_EDIT, late)


def test_odd_sizes_are_told(late: VideoInfo) -> None:
    _, shown = plan(late, scale="33x25")
    assert "odd_size" in shown.hazards
    _, shown = plan(replace(late, hazards=late.hazards | {"odd_size"}), scale="32x")
    assert "odd_size" not in shown.hazards


def test_all_at_once(late: VideoInfo, tmp_path: Path) -> None:
    edit, shown = plan(late, start="10f", end="60f", fps="50", scale="32x24")
    assert edit == Edit(
        Window(SEC / 2 + SEC * 10 / 25, SEC / 2 + SEC * 60 / 25), SEC * 50, (32, 24)
    )
    assert (shown.width, shown.height, shown.frame_count_from_header) == (32, 24, 100)
