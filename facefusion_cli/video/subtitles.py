"""Text subtitles from one format to another: MP4's timed text, SubRip, WebVTT, ASS."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import av
from av.container import OutputContainer
from av.stream import Stream
from av.subtitles.stream import SubtitleStream
from av.subtitles.subtitle import AssSubtitle, SubtitleSet

from facefusion_cli.video.av_errors import PACKET_ERRORS

_TICK = Fraction(1, 1000)
_FIELDS = 9
"""Fields of an event as FFmpeg decodes it: ReadOrder, Layer, Style, Name, three margins, Effect and
the text, which may hold commas."""
_EVENT = "0,0,Default,,0,0,0,,"
_OVERRIDES = re.compile(r"(\{[^}]*\})")
_DRAWING = re.compile(r"\\p(\d+)")
_HARD_SPACE = "\u00a0"
_OPEN_END = Fraction(5)
"""Seconds a text stands whose end is not stated, unless another comes before."""
_ONE_AT_A_TIME = {"mov_text"}
"""Codecs whose texts must not overlap: each ends where the next one begins."""
_ESCAPED = {"webvtt"}
_HEADER = b"""[Script Info]
ScriptType: v4.00+
PlayResX: 384
PlayResY: 288

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, \
Bold, Italic, Underline, StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, \
Alignment, MarginL, MarginR, MarginV, Encoding
Style: Default,Arial,16,&Hffffff,&Hffffff,&H0,&H0,0,0,0,0,100,100,0,0,1,1,0,2,10,10,10,0

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
""".replace(b"\n", b"\r\n")
"""Styles for a source that has none; the encoders look theirs up in it."""


@dataclass(frozen=True, slots=True)
class Cue:
    """A text and when it is shown, in seconds of the output."""

    start: Fraction
    end: Fraction | None
    text: str
    """As in an ASS event: ``\\N`` breaks the line, tags stand in braces."""


class TextConverter:
    """Re-encodes one stream of text into an output whose header is not yet written.

    Args:
        source: The stream, whose packets are given to push().
        codec: What it becomes: mov_text, subrip or webvtt.
        sink: The output; it gets a stream.
    """

    def __init__(self, source: SubtitleStream, codec: str, sink: OutputContainer) -> None:
        self._source, self._sink, self._codec = source, sink, codec
        source.codec_context.open(strict=False)
        stream = sink.add_stream(codec)
        assert isinstance(stream, SubtitleStream)
        stream.codec_context.subtitle_header = source.codec_context.subtitle_header or _HEADER
        stream.time_base = _TICK
        self.stream: SubtitleStream = stream
        self.damaged = 0
        """Packets that could not be decoded."""
        self._overlay = Overlay() if codec in _ONE_AT_A_TIME else None

    def push(self, packet: av.Packet[Stream] | None, start: Fraction, end: Fraction | None) -> None:
        """Writes a packet's text; None writes what was held back.

        Args:
            packet: Of the source.
            start: Seconds in the output at which its text is to appear.
            end: And to vanish; None when nobody knows.

        Raises:
            av.error.FFmpegError: The output cannot be written.
        """
        cue = None
        if packet is not None:
            text = self._decode(packet)
            if not text:
                return
            cue = Cue(start, end, text)
        if self._overlay is not None:
            cues = self._overlay.flush() if cue is None else self._overlay.push(cue)
        else:
            cues = [] if cue is None else [cue]
        for ready in cues:
            self._write(ready)

    def _decode(self, packet: av.Packet[Stream]) -> str:
        try:
            found = self._source.codec_context.decode2(packet)
        except PACKET_ERRORS:
            self.damaged += 1
            return ""
        texts = []
        for rect in found or ():
            if isinstance(rect, AssSubtitle):
                fields = rect.ass.decode("utf-8", "replace").split(",", _FIELDS - 1)
                texts.append(clean_text(fields[-1]))
        return "\\N".join(t for t in texts if t)

    def _write(self, cue: Cue) -> None:
        text = escape_markup(cue.text) if self._codec in _ESCAPED else cue.text
        start = round(cue.start / _TICK)
        length = max(round(_end(cue) / _TICK) - start, 1)
        event = SubtitleSet.create((_EVENT + text).encode(), 0, length, start)
        data = bytes(self.stream.codec_context.encode_subtitle(event))
        packet: av.Packet[Stream] = av.Packet(data)
        packet.pts = packet.dts = start
        packet.duration, packet.time_base = length, _TICK
        packet.stream = self.stream
        self._sink.mux(packet)


class Overlay:
    """Makes of texts that overlap ones that follow one another, each with all that is shown.

    Texts come in order of their start; they leave as soon as the next one shows that they are over.
    """

    def __init__(self) -> None:
        self._shown: list[Cue] = []
        self._from = Fraction(0)

    def push(self, cue: Cue) -> list[Cue]:
        """Adds a text; returns what is certain before its start."""
        ready = list(self._until(cue.start))
        self._from = max(self._from, cue.start)
        # A text without an end is over when another one comes.
        self._shown = [c for c in self._shown if c.end is not None]
        self._shown.append(cue)
        return ready

    def flush(self) -> list[Cue]:
        """All that is left."""
        return list(self._until(None))

    def _until(self, time: Fraction | None) -> Iterator[Cue]:
        while self._shown:
            ends = [_end(c) for c in self._shown] + ([] if time is None else [time])
            until = min(ends)
            if until > self._from:
                yield Cue(self._from, until, "\\N".join(c.text for c in self._shown))
                self._from = until
            if time is not None and until >= time:
                return
            self._shown = [c for c in self._shown if _end(c) > until]


def _end(cue: Cue) -> Fraction:
    return cue.start + _OPEN_END if cue.end is None else cue.end


def clean_text(text: str) -> str:
    """An ASS event's text without its drawings; other tags are left to the encoders."""
    kept, drawing = [], False
    for part in _OVERRIDES.split(text):
        if part.startswith("{") and part.endswith("}"):
            modes = _DRAWING.findall(part)
            drawing = int(modes[-1]) > 0 if modes else drawing
            if not modes:
                kept.append(part)
        elif not drawing:
            kept.append(part)
    joined = "".join(kept).replace("\\h", _HARD_SPACE)
    bare = _OVERRIDES.sub("", joined).replace("\\N", "").replace("\\n", "")
    return joined if bare.strip() else ""


def escape_markup(text: str) -> str:
    """An event's text with the characters that are markup in WebVTT as entities."""
    parts = _OVERRIDES.split(text)
    for i in range(0, len(parts), 2):
        parts[i] = parts[i].replace("&", "&amp;").replace("<", "&lt;")
    return "".join(parts)
