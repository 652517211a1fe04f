"""What becomes of every stream: the table, other files' sound, windows, damage, what is said."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.stream import Disposition

from facefusion_cli.errors import EmptyVideo, InputError, InputNotFound, NotAVideo
from facefusion_cli.report import Report
from facefusion_cli.types import Edit, Window
from facefusion_cli.video import stream_table
from facefusion_cli.video.remux import StreamCopier
from facefusion_cli.video.sound import SoundEncoder
from facefusion_cli.video.stream_source import StreamSource, Track
from facefusion_cli.video.stream_table import CONTAINERS, as_markdown, fate
from tests.clips import make_clip
from tests.video.marked import (
    Sound,
    first_seen,
    heard,
    listen,
    make_marked,
    make_sound,
    seen,
    sound_frames,
)
from tests.video.test_av_offset import carry
from tests.video.test_remux import make_rich
from tests.video.writing import packets

MS = Fraction(1, 1000)
SUFFIXES = {"mp4": "mp4", "mov": "mov", "matroska": "mkv", "webm": "webm"}
PICTURE = {"webm": "libvpx"}


def test_the_table_never_promises_what_ffmpeg_refuses_at_once(tmp_path: Path) -> None:
    for container, suffix in SUFFIXES.items():
        for table in (stream_table.AUDIO_COPY, stream_table.SUBTITLE_COPY):
            with av.open(tmp_path / f"t.{suffix}", "w", format=container) as sink:
                for codec in table[container]:
                    sink.add_mux_stream(codec)  # raises ValueError for what does not fit
                for becomes in (stream_table.AUDIO_BECOMES, stream_table.SUBTITLE_BECOMES):
                    sink.add_mux_stream(becomes[container])


def test_every_stream_has_a_fate_everywhere() -> None:
    kinds = ("audio", "subtitle", "data", "attachment", "video")
    for container in CONTAINERS:
        for kind in kinds:
            for codec in (None, "aac", "opus", "mov_text", "dvd_subtitle", "bin_data", "nonsense"):
                what = fate(kind, codec, container)
                assert container != "gif" or what.action == "drop"
                assert what.action != "transcode" or what.codec
    for codec, container in (
        ("aac", "mp4"),
        ("pcm_s24le", "mov"),
        ("flac", "matroska"),
        ("dts", "matroska"),
        ("opus", "webm"),
        ("vorbis", "webm"),
    ):
        assert fate("audio", codec, container).action == "copy"
    assert fate("audio", "flac", "webm").codec == "opus"
    assert fate("audio", "wavpack", "mp4").codec == "aac"
    assert fate("subtitle", "ass", "webm").codec == "webvtt"


def test_the_table_as_text_is_the_table() -> None:
    lines = as_markdown().splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["stream", "mp4", "mov", "mkv", "webm", "gif"]
    assert len({len(row) for row in cells}) == 1
    told = {}
    for row in cells[2:]:
        kind, _, names = row[0].partition(": ")
        told |= {(kind, name): row[1:] for name in names.split(", ")}
    for codec in set().union(*stream_table.AUDIO_COPY.values()):
        for container, cell in zip(CONTAINERS, told["audio", codec], strict=True):
            what = fate("audio", codec, container)
            assert cell == (f"-> {what.codec}" if what.action == "transcode" else what.action)
    assert told["subtitle", "mov_text"] == ["copy", "copy", "-> subrip", "-> webvtt", "drop"]


@pytest.mark.parametrize("layout", ["mono", "stereo", "3.0", "5.0", "5.1", "6.1", "7.1"])
@pytest.mark.parametrize(("out", "codec"), [("webm", "opus"), ("mp4", "aac")])
def test_transcoded_sound_has_its_channels_and_its_place(
    tmp_path: Path, layout: str, out: str, codec: str
) -> None:
    home, encoder = ("mkv", "wavpack") if layout not in {"6.1", "7.1"} else ("mkv", "pcm_s16le")
    clip = make_marked(tmp_path / f"in.{home}", Sound(encoder, layout=layout))
    report = carry(clip, tmp_path / f"out.{out}")
    assert f"becomes {codec}" in report.warnings[0]
    (chirp,), (flash,) = heard(tmp_path / f"out.{out}"), seen(tmp_path / f"out.{out}")
    (chirp_before,), (flash_before,) = heard(clip), seen(clip)
    assert abs((chirp - flash) - (chirp_before - flash_before)) <= MS
    with av.open(clip) as before, av.open(tmp_path / f"out.{out}") as after:
        counts = [f.streams.audio[0].codec_context.channels for f in (before, after)]
        assert after.streams.audio[0].codec_context.codec.canonical_name == codec
    assert counts[1] == counts[0] or (counts, codec) == ([7, 8], "aac")


@pytest.mark.parametrize("codec", ["mp3", "opus", "flac", "alac", "ac3", "pcm_u8"])
def test_webm_gets_opus_unless_it_is_open_already(tmp_path: Path, codec: str) -> None:
    encoder = {"mp3": "libmp3lame", "opus": "libopus"}.get(codec, codec)
    clip = make_rich(tmp_path / "in.mkv", [encoder, "aac"])
    report = carry(clip, tmp_path / "out.webm")
    with av.open(tmp_path / "out.webm") as file:
        names = [s.codec_context.codec.canonical_name for s in file.streams.audio]
        rates = [s.codec_context.sample_rate for s in file.streams.audio]
        assert [s.language for s in file.streams.audio] == ["eng", "deu"]
    assert names == ["opus", "opus"]
    assert rates == [48_000, 48_000]
    assert sum("becomes opus: webm cannot hold it" in w for w in report.warnings) == (
        1 if codec == "opus" else 2
    )


def test_a_gif_keeps_the_picture_and_says_so_once(tmp_path: Path) -> None:
    clip = make_rich(tmp_path / "in.mkv", ["aac", "ac3"], subtitles="srt", chapters=True)
    report = Report()
    copier = StreamCopier(clip, "gif", report)
    try:
        with av.open(tmp_path / "out.gif", "w") as sink:
            copier.add_to(sink, Fraction(0))
            copier.copy_until(None)
            assert len(sink.streams) == 0
        assert copier.audio_streams == 0
        assert copier.tags == {}
    finally:
        copier.close()
    (warning,) = report.warnings
    expected = "dropped: 2 audios; 1 subtitle; 2 chapters; tags title: a GIF holds pictures only"
    assert warning == expected


@pytest.mark.parametrize("container", list(SUFFIXES))
def test_the_table_of_dispositions_is_what_can_be_read_back(tmp_path: Path, container: str) -> None:
    """FFmpeg leaves some out without a word."""
    path = tmp_path / f"t.{SUFFIXES[container]}"
    texts = {"audio": "aac" if container != "webm" else "libopus"}
    texts["subtitle"] = stream_table.SUBTITLE_BECOMES[container]
    kept = {kind: Disposition(0) for kind in texts}
    candidates = [d for d in Disposition if d.name not in {"attached_pic", "timed_thumbnails"}]
    for role in candidates:
        with av.open(path, "w", format=container) as sink:
            for kind, codec in texts.items():
                for disposition in (Disposition.default, role):
                    made = sink.add_stream(codec) if kind == "audio" else sink.add_mux_stream(codec)
                    made.disposition = disposition
                    if kind == "subtitle":
                        made.time_base = MS
            sent = []
            for stream in sink.streams:
                if stream.type == "audio":
                    frame = av.AudioFrame.from_ndarray(
                        np.zeros((1, 3840), np.int16), format="s16", layout="stereo"
                    )
                    frame.sample_rate, frame.pts = 48_000, 0
                    sent += stream.encode(frame) + stream.encode(None)
                else:
                    packet = av.Packet(b"\0\2hi" if texts["subtitle"] == "mov_text" else b"hi")
                    packet.pts = packet.dts = 0
                    packet.duration, packet.time_base, packet.stream = 100, MS, stream
                    sent.append(packet)
            for packet in sent:
                sink.mux(packet)
        with av.open(path) as file:
            for kind in kept:
                second = [s for s in file.streams if s.type == kind][1]
                if Disposition(second.disposition) == role:
                    kept[kind] |= role
    table = stream_table.DISPOSITIONS[container]
    assert {kind: table[kind] & ~kept[kind] for kind in kept} == dict.fromkeys(kept, Disposition(0))
    if container != "webm":
        assert kept == dict(table)


def test_lost_dispositions_and_tags_are_said(tmp_path: Path) -> None:
    with av.open(tmp_path / "in.mkv", "w") as sink, av.open(make_marked(tmp_path / "a.mkv")) as a:
        streams = {s.index: sink.add_stream_from_template(s) for s in a.streams}
        streams[1].disposition = Disposition.visual_impaired | Disposition.comment
        streams[1].metadata.update({"language": "deu", "title": "Bild", "MOOD": "calm"})
        for packet in a.demux():
            if packet.size:
                packet.stream = streams[packet.stream_index]
                sink.mux(packet)
    report = carry(tmp_path / "in.mkv", tmp_path / "out.mp4")
    assert any("mp4 cannot say that it is visual_impaired" in w for w in report.warnings)
    assert any("dropped its tags MOOD" in w for w in report.warnings)
    with av.open(tmp_path / "out.mp4") as file:
        sound = file.streams.audio[0]
        assert Disposition.comment in Disposition(sound.disposition)
        assert (sound.language, sound.metadata["name"]) == ("deu", "Bild")
    assert carry(tmp_path / "out.mp4", tmp_path / "back.mkv").warnings == []
    with av.open(tmp_path / "back.mkv") as file:
        assert file.streams.audio[0].metadata["title"] == "Bild"


@pytest.mark.parametrize(("out", "kept"), [("mkv", True), ("mp4", False), ("webm", False)])
def test_attached_fonts(tmp_path: Path, out: str, kept: bool) -> None:
    font = bytes(range(256)) * 4
    with av.open(tmp_path / "in.mkv", "w") as sink, av.open(make_marked(tmp_path / "a.mkv")) as a:
        streams = {s.index: sink.add_stream_from_template(s) for s in a.streams}
        sink.add_attachment("Sans.ttf", "application/x-truetype-font", font)
        for packet in a.demux():
            if packet.size:
                packet.stream = streams[packet.stream_index]
                sink.mux(packet)
    report = carry(tmp_path / "in.mkv", tmp_path / f"out.{out}")
    with av.open(tmp_path / f"out.{out}") as file:
        found = [(s.metadata["filename"], s.data) for s in file.streams if s.type == "attachment"]
    assert found == ([("Sans.ttf", font)] if kept else [])
    assert any("dropped: attachment stream 2" in w for w in report.warnings) == (not kept)


def with_timecode(path: Path, timecode: str) -> Path:
    with av.open(path, "w") as sink:
        video = sink.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        video.width, video.height = 64, 48
        video.metadata["timecode"] = timecode
        for i in range(25):
            frame = av.VideoFrame(64, 48, "yuv420p")
            frame.pts, frame.time_base = i, Fraction(1, 25)
            sink.mux(video.encode(frame))
        sink.mux(video.encode(None))
    with av.open(path) as file:
        assert any(s.type == "data" for s in file.streams)
    return path


@pytest.mark.parametrize("out", ["mp4", "mov", "mkv", "webm"])
def test_a_timecode_is_kept_as_a_tag(tmp_path: Path, out: str) -> None:
    clip = with_timecode(tmp_path / "in.mov", "10:20:30:05")
    report = carry(clip, tmp_path / f"out.{out}")
    assert report.warnings == ["timecode stream 1 is kept as a tag of the picture: 10:20:30:05"]
    with av.open(tmp_path / f"out.{out}") as file:
        tags = {k.lower(): v for k, v in file.streams.video[0].metadata.items()}
    assert tags["timecode"] == "10:20:30:05"


def test_a_timecode_of_another_start_is_dropped(tmp_path: Path) -> None:
    clip = with_timecode(tmp_path / "in.mov", "10:20:30:05")
    report = carry(clip, tmp_path / "out.mov", Edit(window=Window(Fraction(1, 2))))
    assert any(w.startswith("dropped: data stream 1") for w in report.warnings)


@pytest.mark.parametrize("out", ["mp4", "mov", "mkv", "webm"])
def test_chapters_are_cut_with_a_window(tmp_path: Path, out: str) -> None:
    clip = make_rich(tmp_path / "in.mkv", [], chapters=True)
    carry(clip, tmp_path / f"out.{out}", Edit(window=Window(Fraction(2, 5), Fraction(4, 5))))
    with av.open(tmp_path / f"out.{out}") as file:
        found = [
            (c["metadata"]["title"], c["start"] * c["time_base"], c["end"] * c["time_base"])
            for c in file.chapters()
        ]
    tenth = Fraction(1, 10)
    assert found == [("Part 1", 0, tenth), ("Part 2", tenth, 4 * tenth)]
    carry(clip, tmp_path / f"late.{out}", Edit(window=Window(Fraction(3, 5))))
    with av.open(tmp_path / f"late.{out}") as file:
        (only,) = file.chapters()
    assert only["metadata"]["title"] == "Part 2"
    assert (only["start"], only["end"] * only["time_base"]) == (0, 4 * tenth)


# Another file's sound


@pytest.mark.parametrize("out", ["mp4", "mov", "mkv", "webm"])
@pytest.mark.parametrize(
    ("name", "codec"), [("s.wav", "pcm_s16le"), ("s.m4a", "aac"), ("s.mkv", "libopus")]
)
def test_another_files_sound_begins_with_the_picture(
    tmp_path: Path, name: str, codec: str, out: str
) -> None:
    clip = make_marked(tmp_path / "in.mkv", Sound(marks=()))
    sound = make_sound(tmp_path / name, Sound(codec, marks=(Fraction(2, 5), Fraction(1))))
    target = tmp_path / f"out.{out}"
    report = carry(clip, target, audio_file=str(sound))
    assert [w for w in report.warnings if "becomes" not in w] == []
    begin = first_seen(target)
    for chirp, mark in zip(heard(target), (Fraction(2, 5), Fraction(1)), strict=True):
        # The sound file's own times may be rounded, too.
        assert abs(chirp - begin - mark) <= MS
    with av.open(target) as file:
        assert len(file.streams.audio) == 1


def test_another_files_tracks_all_come_and_the_clips_texts_stay(tmp_path: Path) -> None:
    clip = make_rich(tmp_path / "in.mkv", ["aac"], subtitles="srt", chapters=True)
    other = make_rich(tmp_path / "other.mkv", ["ac3", "libmp3lame"])
    carry(clip, tmp_path / "out.mkv", audio_file=str(other))
    with av.open(tmp_path / "out.mkv") as file:
        names = [s.codec_context.codec.canonical_name for s in file.streams.audio]
        assert names == ["ac3", "mp3"]
        assert [s.language for s in file.streams.audio] == ["eng", "deu"]
        assert len(file.streams.subtitles) == 1
        assert len(file.chapters()) == 2


@pytest.mark.parametrize("out", ["mp4", "mkv", "webm"])
def test_another_files_sound_belongs_to_the_windows_start(tmp_path: Path, out: str) -> None:
    clip = make_marked(tmp_path / "in.mp4")
    sound = make_sound(tmp_path / "s.wav", Sound("pcm_s16le", marks=(Fraction(3, 10),)))
    window = Window(Fraction(1), Fraction(2))
    carry(clip, tmp_path / f"out.{out}", Edit(window=window), audio_file=str(sound))
    (chirp,) = heard(tmp_path / f"out.{out}")
    assert abs(chirp - first_seen(tmp_path / f"out.{out}") - Fraction(3, 10)) <= MS
    samples, places, rate = listen(tmp_path / f"out.{out}")
    end = places[-1][1] + Fraction(len(samples) - places[-1][0], rate)
    assert Fraction(19, 20) <= end <= 1 + Fraction(1, 40)


def copy_sound(out: Path, copier: StreamCopier, seconds: int) -> None:
    """Writes a picture of some seconds and what a copier brings."""
    try:
        with av.open(out, "w") as sink:
            video = sink.add_stream("libvpx" if out.suffix == ".webm" else "libx264", rate=25)
            video.width, video.height = 64, 48
            copier.add_to(sink, copier.start or Fraction(0))
            for i in [*range(25 * seconds), None]:
                frame = None
                if i is not None:
                    frame = av.VideoFrame(64, 48, "yuv420p")
                    frame.pts, frame.time_base = i, Fraction(1, 25)
                for packet in video.encode(frame):
                    copier.copy_until(packet.dts * packet.time_base)
                    sink.mux(packet)
            copier.copy_until(None, end=Fraction(seconds))
    finally:
        copier.close()


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("out", ["mp4", "mkv", "webm"])
@pytest.mark.parametrize("codec", ["aac", "flac"])
def test_a_longer_sound_ends_with_the_picture(
    tmp_path: Path, codec: str, out: str, clip: bool
) -> None:
    sound = make_sound(tmp_path / "s.mkv", Sound(codec, seconds=Fraction(6)))
    source = make_marked(tmp_path / "in.mp4") if clip else None
    container = {"mkv": "matroska"}.get(out, out)
    report = Report()
    copier = StreamCopier(source, container, report, audio_file=sound)
    assert copier.audio_streams == 1
    copy_sound(tmp_path / f"out.{out}", copier, 2)
    samples, places, rate = listen(tmp_path / f"out.{out}")
    end = places[-1][1] + Fraction(len(samples) - places[-1][0], rate)
    packet = Fraction(11, 100) if codec == "flac" else Fraction(25, 1000)
    assert 2 - MS <= end <= 2 + packet
    assert not any("before the picture" in w for w in report.warnings)


def test_a_shorter_sound_stays_as_it_is_and_is_said(tmp_path: Path) -> None:
    sound = make_sound(tmp_path / "s.mkv", Sound(seconds=Fraction(1), marks=(Fraction(1, 5),)))
    report = Report()
    copy_sound(tmp_path / "out.mp4", StreamCopier(None, "mp4", report, audio_file=sound), 3)
    (warning,) = report.warnings
    assert warning.startswith("the sound ends 2.00 s before the picture")
    assert packets(tmp_path / "out.mp4") == packets(sound)


def test_files_without_sound_are_errors(tmp_path: Path) -> None:
    silent = make_clip(tmp_path / "silent.mp4", frames=5).path
    text, empty = tmp_path / "text.txt", tmp_path / "empty.wav"
    text.write_text("no sound\n" * 50)
    empty.touch()
    noise = tmp_path / "noise.mp3"
    noise.write_bytes(np.random.default_rng(0).bytes(64))
    for path, error in (
        (silent, InputError),
        (text, InputError),
        (noise, NotAVideo),
        (empty, EmptyVideo),
        (tmp_path, NotAVideo),
        (tmp_path / "missing.wav", InputNotFound),
    ):
        with pytest.raises(error) as caught:
            StreamCopier(None, "mp4", Report(), audio_file=path)
        assert str(path) in str(caught.value)


def test_no_audio_goes_before_another_files_sound(tmp_path: Path) -> None:
    clip = make_marked(tmp_path / "in.mp4")
    copier = StreamCopier(clip, "mp4", Report(), audio=False, audio_file=tmp_path / "none.wav")
    assert copier.audio_streams == 0
    assert copier.start is None
    copier.close()


def test_without_clip_and_file_there_is_nothing_to_do(tmp_path: Path) -> None:
    copier = StreamCopier(None, "mp4", Report())
    assert (copier.start, copier.audio_streams, copier.tags, copier.video_tags) == (None, 0, {}, {})
    copy_sound(tmp_path / "out.mp4", copier, 1)


# Windows


LONG = Fraction(90)
SPOTS = [Fraction(i) for i in range(1, 90)]


@pytest.fixture(scope="module")
def long_clips(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A minute and a half with a chirp and a bright frame every second."""
    folder = tmp_path_factory.mktemp("long")
    times = [Fraction(i, 5) for i in range(5 * 90)]
    kinds = {
        "mp4": (Sound(seconds=LONG, marks=SPOTS), None),
        "mkv": (Sound(seconds=LONG, marks=SPOTS), None),
        "opus.mkv": (Sound("libopus", seconds=LONG, marks=SPOTS), None),
        "flac.mkv": (Sound("flac", 44_100, seconds=LONG, marks=SPOTS), None),
        "ts": (Sound(seconds=LONG, marks=SPOTS), "mpegts"),
        "late.mkv": (
            Sound(start=Fraction(70), seconds=Fraction(20), marks=[s for s in SPOTS if s > 70]),
            None,
        ),
    }
    made = {}
    for name, (sound, container) in kinds.items():
        path = folder / f"in.{name}"
        made[name] = make_marked(path, sound, times=times, bright=SPOTS, container=container)
    return made


QUICK_CUTS = {("mp4", "mp4"), ("mp4", "mkv"), ("mkv", "mov"), ("opus.mkv", "webm"), ("ts", "mp4")}


@pytest.mark.parametrize(
    ("name", "out"),
    [
        pytest.param(name, out, marks=() if (name, out) in QUICK_CUTS else pytest.mark.long)
        for name in ("mp4", "mkv", "opus.mkv", "flac.mkv", "ts", "late.mkv")
        for out in ("mp4", "mov", "mkv", "webm")
    ],
)
def test_a_window_cuts_sound_and_picture_alike(
    tmp_path: Path, long_clips: dict[str, Path], name: str, out: str
) -> None:
    clip, target = long_clips[name], tmp_path / f"out.{out}"
    origin = first_seen(clip)
    start, end = origin + 80 + Fraction(133, 1000), origin + 84 + Fraction(517, 1000)
    report = carry(clip, target, Edit(window=Window(start, end)))
    flashes, chirps = seen(target), heard(target)
    assert len(flashes) == len(chirps) == 4
    for flash, chirp in zip(flashes, chirps, strict=True):
        assert abs(chirp - flash) <= MS, "they are made at the same moment"
    samples, places, rate = listen(target)
    length = places[-1][1] + Fraction(len(samples) - places[-1][0], rate)
    packet = Fraction(110, 1000) if name == "flac.mkv" else Fraction(25, 1000)
    transcoded = any("becomes" in w for w in report.warnings)
    exact = transcoded or out in {"mp4", "mov"}
    late = places[0][1] - (flashes[0] - (origin + 81 - start))
    assert -MS <= late <= (MS if exact else packet)
    assert end - start - packet <= length <= end - start + packet


def read_packets(monkeypatch: pytest.MonkeyPatch) -> list[Fraction]:
    """The times of all packets read from now on."""
    read: list[Fraction] = []
    original = StreamSource._read

    def counted(self: StreamSource) -> Iterator[av.Packet]:
        for packet in original(self):
            read.append(packet.pts * packet.time_base)
            yield packet

    monkeypatch.setattr(StreamSource, "_read", counted)
    return read


@pytest.mark.parametrize("name", ["mp4", "mkv", "opus.mkv", "flac.mkv", "ts"])
def test_a_window_far_in_is_found_without_reading_all(
    long_clips: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = read_packets(monkeypatch)
    copier = StreamCopier(long_clips[name], "mp4", Report(), window=Window(Fraction(80)))
    copier.close()
    assert 60 < min(read) <= 80
    assert len(read) < 1200


def test_behind_a_window_nothing_is_read(
    tmp_path: Path, long_clips: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = read_packets(monkeypatch)
    carry(long_clips["mp4"], tmp_path / "out.mp4", Edit(window=Window(None, Fraction(2))))
    assert 2 <= max(read) < 3


# Damage


class Breaking:
    """An open file whose reading fails some times in a row, and then goes on."""

    def __init__(self, file: av.container.InputContainer, fails: int) -> None:
        self.file, self.fails, self.read = file, fails, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)

    def demux(self, streams: object) -> Iterator[av.Packet]:
        for packet in self.file.demux(streams):
            if self.read >= 20 and self.fails:
                self.fails -= 1
                raise av.error.InvalidDataError(1094995529, "broken")
            self.read += 1
            yield packet


@pytest.mark.parametrize("fails", [1, 8, 9])
def test_a_break_in_the_file_is_stepped_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    clip = make_marked(tmp_path / "in.mkv")
    opened = av.open
    monkeypatch.setattr(
        "facefusion_cli.video.stream_source.av.open",
        lambda *a, **k: Breaking(opened(*a, **k), fails) if "metadata_errors" in k else opened(*a),
    )
    source = StreamSource(clip, "mp4")
    source.keep([Track(source.file.streams.audio[0], "audio", fate("audio", "aac", "mp4"))])
    count = 0
    while source.peek() is not None:
        source.take()
        count += 1
    source.close()
    assert source.damaged == fails
    assert source.gave_up == (fails > 8)
    assert count > 110 if fails <= 8 else count < 30


def test_damaged_packets_are_counted_once(tmp_path: Path) -> None:
    clip = make_marked(tmp_path / "in.mkv", Sound("flac"))
    data = bytearray(clip.read_bytes())
    for i in (4, 9, 14):
        victim = packets(clip)[0][i]
        at = data.find(victim)
        data[at : at + len(victim)] = np.random.default_rng(i).bytes(len(victim))
    (tmp_path / "bad.mkv").write_bytes(bytes(data))
    report = carry(tmp_path / "bad.mkv", tmp_path / "out.webm")
    said = [w for w in report.warnings if w.startswith("damaged sound was left out")]
    assert len(said) == 1
    assert "(3 packets)" in said[0]
    (chirp,), (flash,) = heard(tmp_path / "out.webm"), seen(tmp_path / "out.webm")
    (chirp_before,), (flash_before,) = heard(clip), seen(clip)
    assert abs((chirp - flash) - (chirp_before - flash_before)) <= MS, "what follows is in place"


def test_sound_that_changes_its_channels_and_rate_goes_on(tmp_path: Path) -> None:
    """As broadcasts do between programme and advertisement."""
    stereo = sound_frames(Sound(seconds=Fraction(2), marks=(Fraction(1, 2),)))
    mono = sound_frames(
        Sound(rate=44_100, start=Fraction(2), marks=(Fraction(5, 2),), layout="mono")
    )

    class Changing:
        """A stream whose decoder gives these frames."""

        def __init__(self, stream: av.AudioStream) -> None:
            self.codec_context = stream.codec_context

        def decode(self, packet: object) -> list[av.AudioFrame]:
            return [*stereo, *mono] if packet is not None else []

    clip = make_marked(tmp_path / "in.mkv")
    with av.open(clip) as file, av.open(tmp_path / "out.mp4", "w") as sink:
        encoder = SoundEncoder(Changing(file.streams.audio[0]), "aac", sink)  # type: ignore[arg-type]
        for packet in (av.Packet(b"x"), None):
            encoder.push(packet, Fraction(0), Window(Fraction(0)))
    for chirp, mark in zip(heard(tmp_path / "out.mp4"), (0.5, 2.5), strict=True):
        assert abs(chirp - Fraction(mark)) <= MS
    samples, _, rate = listen(tmp_path / "out.mp4")
    assert 5 <= Fraction(len(samples), rate) <= 5 + Fraction(1, 20)


def test_a_clock_that_goes_back_leaves_sound_out_and_goes_on(tmp_path: Path) -> None:
    clip = make_marked(tmp_path / "in.mkv", Sound("flac"))
    report = Report()
    copier = StreamCopier(clip, "webm", report)
    ahead = copier._clip.source._ahead
    while copier._clip.source._more():
        pass
    for item in list(ahead)[10:]:
        item.packet.pts -= 500
    copy_sound(tmp_path / "out.webm", copier, 3)
    assert any("sound whose clock goes back was left out" in w for w in report.warnings)
    samples, _, rate = listen(tmp_path / "out.webm")
    assert abs(Fraction(len(samples), rate) - Fraction(5, 2)) < Fraction(1, 20)


def test_what_an_edit_list_hides_does_not_pile_up(tmp_path: Path) -> None:
    whole = make_marked(tmp_path / "whole.mp4", Sound(seconds=Fraction(20)))
    with av.open(whole) as file, av.open(tmp_path / "cut.mp4", "w") as sink:
        streams = {s.index: sink.add_stream_from_template(s) for s in file.streams}
        for packet in file.demux(audio=0):
            if packet.size:
                packet.pts -= 18 * 48_000
                packet.dts -= 18 * 48_000
                packet.stream = streams[packet.stream_index]
                sink.mux(packet)
    for container in ("mp4", "matroska"):
        copier = StreamCopier(tmp_path / "cut.mp4", container, Report())
        assert len(copier._clip.source._ahead) <= 8
        copier.close()
