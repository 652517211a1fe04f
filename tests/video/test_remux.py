"""Sound, subtitles, chapters and tags: the same in the output, at the same place in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.stream import Disposition

from facefusion_cli.report import Report
from facefusion_cli.types import VideoInfo
from facefusion_cli.video import remux, stream_choice
from facefusion_cli.video.stream_table import AUDIO_COPY
from facefusion_cli.video.writer import ClipWriter
from tests.clips import Clip, make_clip, packet_pts
from tests.video.writing import (
    batches,
    config,
    distance,
    evenly,
    info_of,
    onset,
    packets,
    read_file,
    starts,
)

MS = Fraction(1, 1000)
RATE = 48_000


def info_for(clip: Clip | Path, **changes: object) -> VideoInfo:
    """What the probe would say that matters here."""
    path = clip if isinstance(clip, Path) else clip.path
    with av.open(path) as file:
        stream = file.streams.video[0]
        base = stream.time_base
    return replace(info_of(path, time_base=base), **changes)  # type: ignore[arg-type]


def carry(source: Clip | Path, out: Path, times: Sequence[Fraction] | None = None) -> Report:
    """Writes the clip again with frames at the times of its own packets."""
    info, report = info_for(source), Report()
    with ClipWriter(out, info, config(), report) as writer:
        for batch in batches(info, times or packet_pts(info.path)):
            writer.write(batch)
    return report


def tone(seconds: float, layout: str = "stereo") -> list[av.AudioFrame]:
    channels = {"mono": 1, "stereo": 2, "5.1": 6}[layout]
    frames = []
    for begin in range(0, round(seconds * RATE), 1024):
        wave = 8000 * np.sin(2 * np.pi * 440 * np.arange(begin, begin + 1024) / RATE)
        data = np.repeat(wave.astype(np.int16), channels)[None]
        frame = av.AudioFrame.from_ndarray(data, format="s16", layout=layout)
        frame.sample_rate, frame.pts, frame.time_base = RATE, begin, Fraction(1, RATE)
        frames.append(frame)
    return frames


def make_rich(
    path: Path,
    codecs: Sequence[str] = ("aac",),
    *,
    layout: str = "stereo",
    subtitles: str | None = None,
    chapters: bool = False,
    cover: bool = False,
    seconds: float = 1.0,
) -> Path:
    """A clip of 25 frames with any number of sounds, the second one not the default, in German."""
    with av.open(path, "w", options={"strict": "-2"}) as sink:
        sink.metadata["title"] = "A clip"
        video = sink.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        video.width, video.height = 64, 48
        sounds = [sink.add_stream(c, rate=RATE, layout=layout) for c in codecs]
        for i, sound in enumerate(sounds):
            sound.metadata["language"] = "eng" if i == 0 else "deu"
            if i == 1:
                sound.metadata["title"] = "Kommentar"
                sound.disposition = Disposition.comment
        text = None
        if subtitles:
            text = sink.add_stream(subtitles)
            text.metadata["language"] = "fra"
        if cover:
            picture = sink.add_stream("png", rate=25)
            picture.width, picture.height, picture.pix_fmt = 8, 8, "rgb24"
            picture.disposition = Disposition.attached_pic
        if chapters:
            sink.set_chapters(
                [
                    {
                        "id": i + 1,
                        "start": 500 * i,
                        "end": 500 * i + 500,
                        "time_base": MS,
                        "metadata": {"title": f"Part {i + 1}"},
                    }
                    for i in range(2)
                ]
            )
        sent: list[av.Packet] = []
        for i in range(25):
            frame = av.VideoFrame(64, 48, "yuv420p")
            frame.pts, frame.time_base = i, Fraction(1, 25)
            sent += video.encode(frame)
        sent += video.encode(None)
        for sound in sounds:
            for frame in tone(seconds, layout):
                sent += sound.encode(frame)
            sent += sound.encode(None)
        if cover:
            frame = av.VideoFrame(8, 8, "rgb24")
            frame.pts, frame.time_base = 0, Fraction(1, 25)
            sent += picture.encode(frame)
        if text is not None:
            text.codec_context.subtitle_header = b"[Script Info]\n"
            for i in range(2):
                packet = av.Packet(b"\0\x05hello" if subtitles == "mov_text" else b"hello")
                packet.stream, packet.time_base = text, MS
                packet.pts = packet.dts = 200 + 300 * i
                packet.duration = 200
                sent.append(packet)
        for packet in sorted(sent, key=lambda p: p.dts * p.time_base):
            sink.mux(packet)
    return path


@pytest.mark.parametrize("out", ["out.mp4", "out.mov", "out.mkv"])
@pytest.mark.parametrize("source", ["in.mp4", "in.mov", "in.mkv"])
def test_the_sound_is_the_same_packets(tmp_path: Path, source: str, out: str) -> None:
    clip = make_clip(tmp_path / source, frames=30, audio=True)
    report = carry(clip, tmp_path / out)
    # Matroska cannot hide the encoder's first packet, so it is left out there.
    hides = not out.endswith("mkv") or source.endswith("mkv")
    assert packets(tmp_path / out) == packets(clip.path, heard=not hides)
    assert len(packets(tmp_path / out)[0]) > 50
    assert report.warnings == []


SHIFTED: list[tuple[str, dict[str, object]]] = [
    ("in.mp4", {}),
    ("in.mp4", {"start": 0.5}),
    ("in.mp4", {"audio_start": 0.678}),
    ("in.mp4", {"audio_start": 0.3, "fps": Fraction(30000, 1001)}),
    ("in.mp4", {"start": 3, "audio_start": 2.7}),
    ("in.mkv", {}),
    ("in.mkv", {"start": 0.5}),
    ("in.mkv", {"audio_start": 0.678}),
    ("in.mkv", {"audio_codec": "libopus"}),
    ("in.mkv", {"audio_codec": "flac", "start": 0.25}),
    ("in.ts", {"container": "mpegts"}),
    ("in.ts", {"container": "mpegts", "start": 2.8, "audio_start": 2.9}),
    ("in.avi", {"codec": "mpeg4", "audio_codec": "libmp3lame"}),
    ("in.mov", {"audio_codec": "pcm_s16le", "start": 0.2}),
]


@pytest.mark.parametrize("out", ["out.mp4", "out.mov", "out.mkv"])
@pytest.mark.parametrize(("name", "how"), SHIFTED)
def test_sound_and_picture_keep_their_distance(
    tmp_path: Path, name: str, how: dict[str, object], out: str
) -> None:
    clip = make_clip(tmp_path / name, frames=30, audio=True, **how)  # type: ignore[arg-type]
    report = carry(clip, tmp_path / out)
    if report.warnings:
        # Transcoded: other packets, so the sound itself must tell.
        before = onset(clip.path) - starts(clip.path)[0]
        assert abs(onset(tmp_path / out) - starts(tmp_path / out)[0] - before) <= MS
    else:
        assert abs(distance(tmp_path / out) - distance(clip.path)) <= MS
    shown_after, heard_after = starts(tmp_path / out)
    assert 0 <= min(shown_after, heard_after) <= 2 * MS, "the common start is subtracted"
    assert len(read_file(tmp_path / out).frames) == 30
    expected = packet_pts(clip.path)
    for got, put in zip(packet_pts(tmp_path / out), expected, strict=True):
        assert abs((got - shown_after) - (put - expected[0])) <= MS


@pytest.mark.parametrize("out", ["out.mp4", "out.mov"])
def test_a_late_sound_is_not_rounded_to_milliseconds(tmp_path: Path, out: str) -> None:
    late = Fraction(30037, 90000)
    clip = make_clip(
        tmp_path / "in.ts", container="mpegts", frames=30, audio=True, audio_start=late
    )
    carry(clip, tmp_path / out)
    assert abs(distance(tmp_path / out) - distance(clip.path)) <= Fraction(1, 10_000)


def make_cut(path: Path, source: Path, seconds: Fraction) -> Path:
    """A stream copy that begins before the cut: an edit list hides what lies before it."""
    with av.open(source) as file, av.open(path, "w") as sink:
        streams = {s.index: sink.add_stream_from_template(s) for s in file.streams}
        for packet in file.demux():
            if packet.size:
                shift = round(seconds / packet.time_base)
                packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
                packet.stream = streams[packet.stream_index]
                sink.mux(packet)
    return path


@pytest.mark.parametrize("out", ["out.mp4", "out.mov", "out.mkv"])
def test_what_an_edit_list_cuts_is_not_heard_again(tmp_path: Path, out: str) -> None:
    options = {"g": "1", "bf": "0"}
    clip = make_clip(tmp_path / "in.mp4", frames=75, audio=True, options=options)
    cut = make_cut(tmp_path / "cut.mp4", clip.path, Fraction(1))
    hidden = len(packets(cut)[0]) - len(packets(cut, heard=True)[0])
    assert hidden > 40
    carry(cut, tmp_path / out)
    (heard,) = packets(cut, heard=True)
    # The first of them begins before the cut, which Matroska cannot hide.
    assert packets(tmp_path / out, heard=True) == [heard[1:] if out.endswith("mkv") else heard]
    kept = len(packets(tmp_path / out)[0]) - len(packets(tmp_path / out, heard=True)[0])
    assert kept == 0 if out.endswith("mkv") else 0 < kept <= 6, "just what a decoder needs"
    assert abs(distance(tmp_path / out) - distance(cut)) <= MS
    if not out.endswith("mkv"):
        assert starts(tmp_path / out) == starts(cut) == (0, 0)
    assert len(read_file(tmp_path / out).frames) == len(packet_pts(cut)) == 50


def test_a_longer_sound_adds_no_frames_and_loses_nothing(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "in.mp4", frames=30, audio=True, audio_seconds=2.2)
    carry(clip, tmp_path / "out.mp4")
    assert packets(tmp_path / "out.mp4") == packets(clip.path)
    assert len(read_file(tmp_path / "out.mp4").frames) == 30


def test_no_audio_means_none_and_no_word(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "in.mp4", frames=8, audio=True, audio_start=0.5)
    info, report = info_for(clip), Report()
    with ClipWriter(tmp_path / "out.mp4", info, config(audio=False), report) as writer:
        for batch in batches(info, evenly(8)):
            writer.write(batch)
    assert packets(tmp_path / "out.mp4") == []
    assert report.warnings == []
    assert read_file(tmp_path / "out.mp4").pts[0] == 0


@pytest.mark.parametrize("out", ["out.mp4", "out.mkv"])
def test_all_tracks_with_language_title_and_disposition(tmp_path: Path, out: str) -> None:
    source = make_rich(tmp_path / "in.mkv", ["aac", "ac3", "libopus"])
    report = carry(source, tmp_path / out)
    assert report.warnings == []
    assert packets(tmp_path / out) == packets(source)
    with av.open(tmp_path / out) as file:
        first, second, third = file.streams.audio
        assert [s.codec_context.name for s in (first, second, third)] == ["aac", "ac3", "opus"]
        assert [s.language for s in (first, second)] == ["eng", "deu"]
        assert Disposition.comment in Disposition(second.disposition)
        if out.endswith("mkv"):
            assert second.metadata["title"] == "Kommentar"
        assert file.metadata["title"] == "A clip"


@pytest.mark.parametrize("container", ["mp4", "mov", "matroska"])
def test_every_codec_of_the_table_is_really_taken(tmp_path: Path, container: str) -> None:
    """Those that FFmpeg can encode; it would refuse only when the first packet is written."""
    encoders = {"mp3": "libmp3lame", "opus": "libopus"}
    tried = 0
    for codec in sorted(AUDIO_COPY[container]):
        encoder = encoders.get(codec, codec)
        if codec in {"dts", "truehd", "vorbis"}:
            continue
        home = "mkv" if codec in AUDIO_COPY["matroska"] - {"alac", "pcm_s16be"} else "mov"
        source = make_rich(tmp_path / f"{codec}.{home}", [encoder])
        suffix = {"matroska": "mkv"}.get(container, container)
        out = tmp_path / f"{codec}.out.{suffix}"
        report = carry(source, out)
        assert report.warnings == [], codec
        assert b"".join(packets(out)[0]) == b"".join(packets(source)[0]), codec
        tried += 1
    assert tried >= 8


@pytest.mark.parametrize(
    ("codec", "out", "hint"),
    [
        ("pcm_s16le", "out.mp4", "; .mkv and .mov keep it"),
        ("libopus", "out.mov", ""),
        ("flac", "out.mov", ""),
        ("wavpack", "out.mp4", ""),
    ],
)
@pytest.mark.parametrize("layout", ["mono", "stereo", "5.1"])
def test_what_does_not_fit_is_transcoded_and_said(
    tmp_path: Path, codec: str, out: str, hint: str, layout: str
) -> None:
    source = make_rich(tmp_path / "in.mkv", [codec], layout=layout)
    report = carry(source, tmp_path / out)
    (warning,) = report.warnings
    name = codec.removeprefix("lib")
    assert f"audio stream 1 ({name}) becomes aac: {out[4:]} cannot hold it{hint}" in warning
    assert abs(onset(tmp_path / out) - onset(source)) <= 2 * MS
    with av.open(tmp_path / out) as file:
        stream = file.streams.audio[0]
        assert stream.codec_context.name == "aac"
        assert stream.codec_context.layout.name == layout
        assert stream.language == "eng"
        samples = [f.to_ndarray()[0] for f in file.decode(stream)]
    sound = np.concatenate(samples)
    assert abs(len(sound) - RATE) <= 2048
    middle = sound[RATE // 4 : RATE // 4 + 8192] * np.hanning(8192)
    peak = np.abs(np.fft.rfft(middle)).argmax() * RATE / 8192
    assert abs(peak - 440) < 10


def test_a_transcoded_late_sound_stays_late(tmp_path: Path) -> None:
    clip = make_clip(
        tmp_path / "in.mkv", frames=30, audio=True, audio_codec="flac", audio_start=0.7
    )
    carry(clip, tmp_path / "out.mov")
    assert starts(tmp_path / "out.mov")[0] == 0
    assert abs(onset(tmp_path / "out.mov") - onset(clip.path)) <= 2 * MS
    assert onset(clip.path) >= Fraction(7, 10)


def test_damaged_sound_is_left_out_and_said(tmp_path: Path) -> None:
    source = make_rich(tmp_path / "in.mkv", ["flac"])
    data = bytearray(source.read_bytes())
    victim = packets(source)[0][5]
    at = data.find(victim)
    data[at : at + 40] = bytes(40)
    source.write_bytes(bytes(data))
    report = carry(source, tmp_path / "out.mov")
    assert any("damaged sound was left out" in w for w in report.warnings)
    with av.open(tmp_path / "out.mov") as file:
        last = list(file.decode(audio=0))[-1]
        assert last.pts * last.time_base > Fraction(9, 10)


@pytest.mark.parametrize(
    ("codec", "source", "out"),
    [
        ("mov_text", "in.mp4", "out.mp4"),
        ("mov_text", "in.mp4", "out.mov"),
        ("srt", "in.mkv", "out.mkv"),
        ("ass", "in.mkv", "out.mkv"),
    ],
)
def test_text_subtitles_are_copied(tmp_path: Path, codec: str, source: str, out: str) -> None:
    path = make_rich(tmp_path / source, subtitles=codec)
    report = carry(path, tmp_path / out)
    assert report.warnings == []
    texts = [[p for p in s if len(p) > 2] for s in packets(tmp_path / out, "subtitle")]
    assert texts == [[p for p in s if len(p) > 2] for s in packets(path, "subtitle")]
    assert len(texts[0]) == 2
    assert packet_pts(tmp_path / out, "subtitle")[-1] == packet_pts(path, "subtitle")[-1]
    with av.open(tmp_path / out) as file:
        assert file.streams.subtitles[0].language == "fra"


@pytest.mark.parametrize("source", ["in.mp4", "in.mkv"])
@pytest.mark.parametrize("out", ["out.mp4", "out.mov", "out.mkv"])
def test_chapters(tmp_path: Path, source: str, out: str) -> None:
    path = make_rich(tmp_path / source, chapters=True)
    report = carry(path, tmp_path / out)
    with av.open(tmp_path / out) as file:
        found = [
            (c["metadata"]["title"], c["start"] * c["time_base"], c["end"] * c["time_base"])
            for c in file.chapters()
        ]
    assert found == [("Part 1", 0, Fraction(1, 2)), ("Part 2", Fraction(1, 2), 1)]
    assert report.warnings == []


def test_chapters_move_with_the_start(tmp_path: Path) -> None:
    path = make_rich(tmp_path / "in.mkv", chapters=True)
    info, report = info_for(path), Report()
    with ClipWriter(tmp_path / "out.mkv", info, config(audio=False), report) as writer:
        for batch in batches(info, evenly(20, start=Fraction(3, 10))):
            writer.write(batch)
    with av.open(tmp_path / "out.mkv") as file:
        times = [(c["start"] * c["time_base"], c["end"] * c["time_base"]) for c in file.chapters()]
    assert times == [(0, Fraction(1, 5)), (Fraction(1, 5), Fraction(7, 10))]


def test_a_cover_picture_is_dropped_and_said(tmp_path: Path) -> None:
    path = make_rich(tmp_path / "in.mp4", cover=True)
    report = carry(path, tmp_path / "out.mp4", evenly(25))
    assert len(report.warnings) == 1
    assert "dropped: cover picture" in report.warnings[0]
    with av.open(tmp_path / "out.mp4") as file:
        assert len(file.streams.video) == 1


def test_tags_of_the_file_itself_are_not_copied(tmp_path: Path) -> None:
    clip = make_clip(
        tmp_path / "in.mp4", frames=4, metadata={"comment": "by hand", "title": "Ein Titel ü"}
    )
    carry(clip, tmp_path / "out.mkv")
    with av.open(tmp_path / "out.mkv") as file:
        tags = {k.lower(): v for k, v in file.metadata.items()}
    assert tags["title"] == "Ein Titel ü"
    assert tags["comment"] == "by hand"
    assert not {"major_brand", "compatible_brands"} & set(tags)


def test_tags_that_do_not_fit_are_said(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "in.mkv", frames=4, metadata={"TITLE": "A clip", "MOOD": "calm"})
    report = carry(clip, tmp_path / "out.mp4")
    assert report.warnings == ["dropped: tags MOOD; mp4 has no such"]
    assert carry(clip, tmp_path / "out.mkv").warnings == []
    with av.open(tmp_path / "out.mp4") as file:
        assert file.metadata["title"] == "A clip"
        assert file.streams.video[0].disposition == Disposition.default


def test_the_pictures_language_is_kept_and_statistics_are_not(tmp_path: Path) -> None:
    with av.open(tmp_path / "in.mkv", "w") as sink:
        stream = sink.add_stream("libx264", rate=25)
        stream.width, stream.height = 64, 48
        stream.metadata.update({"language": "swe", "title": "Bild", "BPS-eng": "1234"})
        for i in range(3):
            frame = av.VideoFrame(64, 48, "yuv420p")
            frame.pts, frame.time_base = i, Fraction(1, 25)
            sink.mux(stream.encode(frame))
        sink.mux(stream.encode(None))
    carry(tmp_path / "in.mkv", tmp_path / "out.mkv")
    with av.open(tmp_path / "out.mkv") as file:
        tags = file.streams.video[0].metadata
    assert (tags["language"], tags["title"]) == ("swe", "Bild")
    assert "BPS-eng" not in tags


@pytest.mark.parametrize("out", ["out.mp4", "out.mkv"])
def test_sound_and_picture_are_interleaved(tmp_path: Path, out: str) -> None:
    """A player that reads on never has to look far for the other stream."""
    clip = make_clip(tmp_path / "in.mp4", frames=250, audio=True)
    carry(clip, tmp_path / out)
    with av.open(tmp_path / out) as file:
        order = sorted((p.pos, p.stream.type, p.pts * p.time_base) for p in file.demux() if p.size)
    latest = {"video": Fraction(0), "audio": Fraction(0)}
    for _, kind, time in order:
        latest[kind] = time
        if time < 9:
            assert abs(latest["video"] - latest["audio"]) < Fraction(3, 2)


def test_sound_is_read_only_as_far_as_the_picture_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a long clip's whole sound would wait in memory for its pictures."""
    clip = make_clip(tmp_path / "in.mp4", frames=100, audio=True)
    carried: list[Fraction] = []
    monkeypatch.setattr(
        remux.StreamCopier, "_carry", lambda self, feed, item: carried.append(item.time)
    )
    copier = remux.StreamCopier(clip.path, "mp4", Report())
    try:
        for time in (Fraction(0), Fraction(1), Fraction(5, 2)):
            copier.copy_until(time)
            assert time - Fraction(1, 40) < carried[-1] <= time
        copier.copy_until(None)
        assert len(carried) == len(packets(clip.path)[0])
    finally:
        copier.close()


@pytest.mark.parametrize("codec", ["aac", "libopus"])
def test_an_encoders_delay_does_not_move_the_picture(tmp_path: Path, codec: str) -> None:
    clip = make_clip(tmp_path / "in.mkv", frames=10, audio=True, audio_codec=codec)
    for out in ("out.mp4", "out.mkv"):
        carry(clip, tmp_path / out)
        assert read_file(tmp_path / out).pts[0] == 0


def test_unknown_sound_is_dropped_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clip = make_clip(tmp_path / "in.mp4", frames=8, audio=True)
    monkeypatch.setattr(stream_choice, "_codec_name", lambda stream: None)
    report = carry(clip, tmp_path / "out.mp4")
    assert packets(tmp_path / "out.mp4") == []
    assert "cannot be copied or decoded" in report.warnings[0]
