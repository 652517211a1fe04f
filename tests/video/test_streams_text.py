"""Subtitles from one format to another: the same words, at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import pytest
from av.stream import Disposition

from facefusion_cli.types import Edit, Window
from facefusion_cli.video.subtitles import Cue, Overlay, clean_text, escape_markup
from tests.video.test_av_offset import carry

MS = Fraction(1, 1000)
HEADER = (
    b"[Script Info]\r\nScriptType: v4.00+\r\n\r\n[V4+ Styles]\r\n"
    b"Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, "
    b"Bold, Italic, Underline, StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, "
    b"Shadow, Alignment, MarginL, MarginR, MarginV, Encoding\r\n"
    b"Style: Default,Arial,16,&Hffffff,&Hffffff,&H0,&H0,0,0,0,0,100,100,0,0,1,1,0,2,10,10,10,0\r\n"
    b"\r\n[Events]\r\nFormat: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, "
    b"Text\r\n"
)
Line = tuple[int, int, str]
LINES: list[Line] = [(200, 700, "Grüße, 世界"), (1000, 1600, "two\nlines"), (2000, 2500, "last")]


def make_texts(
    path: Path,
    codec: str,
    lines: Sequence[Line],
    *,
    raw: Sequence[bytes] | None = None,
    first: Fraction = Fraction(0),
    seconds: int = 3,
) -> Path:
    """A clip of 25 frames a second with a stream of texts: (from ms, to ms, text)."""
    with av.open(path, "w") as sink:
        vp8 = path.suffix == ".webm"
        video = sink.add_stream("libvpx" if vp8 else "libx264", rate=25)
        video.width, video.height = 64, 48
        stream = sink.add_stream(codec)
        stream.codec_context.subtitle_header = HEADER
        stream.metadata.update({"language": "fra", "title": "Untertitel"})
        stream.disposition = Disposition.default | Disposition.forced
        sent = []
        for i in range(25 * seconds):
            frame = av.VideoFrame(64, 48, "yuv420p")
            frame.pts, frame.time_base = i, Fraction(1, 25)
            sent += video.encode(frame)
        sent += video.encode(None)
        for packet in sent:
            packet.pts += round(first / packet.time_base)
            packet.dts += round(first / packet.time_base)
        for i, (start, end, text) in enumerate(lines):
            data = raw[i] if raw else payload(codec, text, i)
            packet = av.Packet(data)
            packet.stream, packet.time_base = stream, MS
            packet.pts = packet.dts = start
            packet.duration = end - start
            sent.append(packet)
        for packet in sorted(sent, key=lambda p: p.dts * p.time_base):
            sink.mux(packet)
    return path


def payload(codec: str, text: str, order: int) -> bytes:
    data = text.encode()
    if codec == "mov_text":
        return len(data).to_bytes(2, "big") + data
    if codec in {"ass", "ssa"}:
        return f"{order},0,Default,,0,0,0,,".encode() + data.replace(b"\n", b"\\N")
    return data


def texts(path: Path) -> list[tuple[Fraction, Fraction, str]]:
    """What a file shows, as it would be drawn: (from s, to s, text)."""
    found = []
    with av.open(path) as file:
        stream = file.streams.subtitles[0]
        for packet in file.demux(stream):
            if not packet.size:
                continue
            shown = stream.codec_context.decode2(packet)
            words = [r.ass.decode().split(",", 8)[-1] for r in shown or ()]
            if any(words):
                start = packet.pts * packet.time_base
                text = "\n".join(words).replace("\\N", "\n")
                found.append((start, start + packet.duration * packet.time_base, text))
    return found


def seconds(lines: Sequence[Line]) -> list[tuple[Fraction, Fraction, str]]:
    return [(start * MS, end * MS, text) for start, end, text in lines]


HOMES = {
    "mov_text": "mp4",
    "subrip": "mkv",
    "ass": "mkv",
    "ssa": "mkv",
    "text": "mkv",
    "webvtt": "webm",
}
BECOMES = {"mp4": "mov_text", "mov": "mov_text", "mkv": "srt", "webm": "webvtt"}
KEPT = {("mov_text", "mp4"), ("mov_text", "mov"), ("webvtt", "webm")} | {
    (codec, "mkv") for codec in HOMES if codec != "mov_text"
}


@pytest.mark.parametrize("out", sorted(BECOMES))
@pytest.mark.parametrize("codec", sorted(HOMES))
def test_every_text_comes_through(tmp_path: Path, codec: str, out: str) -> None:
    clip = make_texts(tmp_path / f"in.{HOMES[codec]}", codec, LINES)
    target = tmp_path / f"out.{out}"
    report = carry(clip, target)
    assert texts(target) == texts(clip) == seconds(LINES)
    with av.open(target) as file:
        (stream,) = file.streams.subtitles
        assert stream.language == "fra"
        assert stream.metadata.get("title", stream.metadata.get("name")) == "Untertitel"
        forced = Disposition.forced in Disposition(stream.disposition)
        assert forced == (out != "mov" and not (codec == "mov_text" and HOMES[codec] == "mov"))
        if (codec, out) not in KEPT:
            assert (
                stream.codec_context.codec.canonical_name.replace("subrip", "srt") == BECOMES[out]
            )
    said = [w for w in report.warnings if "becomes" in w]
    assert len(said) == ((codec, out) not in KEPT)
    if out == "mov":
        assert any("mov cannot say that it is forced" in w for w in report.warnings)


STYLED = r"{\an8\b1}Bold{\b0} & <plain>{\c&H0000FF&}, red{\p1}m 0 0 l 100 0 100 100{\p0}"


@pytest.mark.parametrize(
    ("out", "data"),
    [
        ("mp4", "Bold & <plain>, red"),
        ("mkv", None),
        ("webm", "<b>Bold</b> &amp; &lt;plain>, red"),
    ],
)
def test_tags_are_kept_as_far_as_the_format_has_them(
    tmp_path: Path, out: str, data: str | None
) -> None:
    clip = make_texts(tmp_path / "in.mkv", "ass", [(200, 700, STYLED)])
    carry(clip, tmp_path / f"out.{out}")
    with av.open(tmp_path / f"out.{out}") as file:
        payloads = [bytes(p) for p in file.demux(subtitles=0) if p.size > 2]
    if data is None:
        assert STYLED.encode() in payloads[0], "ASS is copied as it is"
        return
    assert len(payloads) == 1
    assert data.encode() in payloads[0]
    if out == "mp4":
        assert b"styl" in payloads[0], "the bold part"


def test_texts_that_overlap_are_shown_together(tmp_path: Path) -> None:
    lines = [(200, 1000, "one"), (500, 1500, "two"), (500, 800, "three"), (1500, 1700, "four")]
    clip = make_texts(tmp_path / "in.mkv", "ass", lines)
    carry(clip, tmp_path / "out.mp4")
    assert texts(tmp_path / "out.mp4") == seconds(
        [
            (200, 500, "one"),
            (500, 800, "one\ntwo\nthree"),
            (800, 1000, "one\ntwo"),
            (1000, 1500, "two"),
            (1500, 1700, "four"),
        ]
    )
    carry(clip, tmp_path / "out.mkv")
    assert texts(tmp_path / "out.mkv") == seconds(lines), "Matroska keeps them as they are"


@pytest.mark.parametrize("out", ["mp4", "mkv", "webm"])
@pytest.mark.parametrize(("codec", "home"), [("subrip", "mkv"), ("mov_text", "mp4")])
def test_a_window_cuts_texts(tmp_path: Path, codec: str, home: str, out: str) -> None:
    clip = make_texts(tmp_path / f"in.{home}", codec, LINES)
    window = Window(Fraction(6, 5), Fraction(11, 5))
    carry(clip, tmp_path / f"out.{out}", Edit(window=window))
    assert texts(tmp_path / f"out.{out}") == seconds([(0, 400, "two\nlines"), (800, 1000, "last")])


@pytest.mark.parametrize("out", ["mp4", "mkv", "webm"])
def test_texts_before_a_late_picture_do_not_move_it(tmp_path: Path, out: str) -> None:
    clip = make_texts(tmp_path / "in.mkv", "subrip", LINES, first=Fraction(2, 5))
    carry(clip, tmp_path / f"out.{out}")
    expected = [(0, 300, LINES[0][2]), (600, 1200, LINES[1][2]), (1600, 2100, LINES[2][2])]
    assert texts(tmp_path / f"out.{out}") == seconds(expected)
    with av.open(tmp_path / f"out.{out}") as file:
        assert next(file.decode(video=0)).pts == 0


@pytest.mark.parametrize(
    ("codec", "out", "kept"),
    [
        ("dvd_subtitle", "mkv", True),
        ("dvd_subtitle", "mp4", True),
        ("dvd_subtitle", "mov", False),
        ("dvd_subtitle", "webm", False),
        ("hdmv_pgs_subtitle", "mkv", True),
        ("hdmv_pgs_subtitle", "mp4", False),
        ("dvb_subtitle", "mkv", True),
        ("dvb_subtitle", "mov", False),
    ],
)
def test_pictures_of_text_are_copied_or_dropped(
    tmp_path: Path, codec: str, out: str, kept: bool
) -> None:
    blob = b"\x16\x00\x00" + bytes(range(60)) if codec.startswith("hdmv") else bytes(range(1, 61))
    clip = tmp_path / "in.mkv"
    with (
        av.open(make_texts(tmp_path / "t.mkv", "subrip", LINES)) as file,
        av.open(clip, "w") as sink,
    ):
        video = sink.add_stream_from_template(file.streams.video[0])
        picture = sink.add_mux_stream(codec)
        picture.time_base = MS
        for packet in file.demux():
            if packet.size:
                if packet.stream.type == "subtitle":
                    made = av.Packet(blob)
                    made.pts, made.dts, made.time_base = packet.pts, packet.dts, packet.time_base
                    made.duration = packet.duration
                    packet = made
                packet.stream = picture if packet.size == len(blob) else video
                sink.mux(packet)
    report = carry(clip, tmp_path / f"out.{out}")
    with av.open(tmp_path / f"out.{out}") as file:
        streams = file.streams.subtitles
        assert len(streams) == kept
        if kept:
            assert streams[0].codec_context.codec.canonical_name == codec
            with av.open(clip) as before:
                expected = [bytes(p) for p in before.demux(subtitles=0) if p.size]
            assert [bytes(p) for p in file.demux(subtitles=0) if p.size] == expected
    dropped = [w for w in report.warnings if w.startswith(f"dropped: subtitle stream 1 ({codec})")]
    assert len(dropped) == (not kept)


def test_damaged_texts_are_left_out_and_counted(tmp_path: Path) -> None:
    raw = [b"hello", b"caf\xe9 \xff", b"end"]
    lines = [(0, 400, ""), (500, 900, ""), (1000, 1400, "")]
    clip = make_texts(tmp_path / "in.mkv", "subrip", lines, raw=raw)
    report = carry(clip, tmp_path / "out.mp4")
    assert [t[2] for t in texts(tmp_path / "out.mp4")] == ["hello", "end"]
    assert any("1 damaged texts of subtitles" in w for w in report.warnings)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (r"a{\p1}m 0 0{\p0}b", "ab"),
        (r"{\p1}m 0 0 l 1 1", ""),
        (r"a\hb", "a\u00a0b"),
        (r"{\i1}{\i0}\N", ""),
        (r"{\an8}up", r"{\an8}up"),
        (r"{\pos(1,2)}here", r"{\pos(1,2)}here"),
    ],
)
def test_drawings_are_no_text(text: str, clean: str) -> None:
    assert clean_text(text) == clean


def test_markup_is_escaped_outside_tags() -> None:
    assert escape_markup(r"{\c&HFF&}a & b <c>") == r"{\c&HFF&}a &amp; b &lt;c>"


def test_an_open_end_is_the_next_start() -> None:
    overlay = Overlay()
    assert overlay.push(Cue(Fraction(1), None, "a")) == []
    assert overlay.push(Cue(Fraction(3), None, "b")) == [Cue(Fraction(1), Fraction(3), "a")]
    assert overlay.flush() == [Cue(Fraction(3), Fraction(8), "b")]
