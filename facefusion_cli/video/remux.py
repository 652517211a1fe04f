"""What the output takes over from the clip unseen: sound, subtitles, chapters, tags, fonts.

A table decides for every stream whether it is copied, transcoded or dropped; each drop and each
transcode is a warning. Packets are read from a second opening of the clip, only as far as the
video has come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
from av.audio.stream import AudioStream
from av.container import OutputContainer
from av.error import InvalidDataError, PatchWelcomeError
from av.stream import Disposition, Stream
from av.subtitles.stream import SubtitleStream

from facefusion_cli.errors import InputError
from facefusion_cli.report import Report
from facefusion_cli.types import WHOLE, Window
from facefusion_cli.video.input_file import check_input
from facefusion_cli.video.sound import SoundEncoder
from facefusion_cli.video.stream_choice import StreamChoice
from facefusion_cli.video.stream_source import HIDES_PREROLL, Item, StreamSource, Track, is_cover
from facefusion_cli.video.stream_table import CHAPTERS, DISPOSITIONS
from facefusion_cli.video.stream_tags import (
    TIMECODE,
    moved_chapters,
    own_tags,
    stream_tags,
)
from facefusion_cli.video.subtitles import TextConverter

_FLICKS = Fraction(1, 705_600_000)
"""A tick in which all usual sample and frame rates are whole."""
_SHORTER = Fraction(1, 20)
"""Seconds by which a sound may end before the picture without a word."""
_BEFORE = Fraction(1, 200)
"""Seconds of a packet that may lie before the start of an output that cannot hide it."""


@dataclass(slots=True)
class _Carried:
    """A track in the output."""

    track: Track
    stream: Stream
    encoder: SoundEncoder | None = None
    converter: TextConverter | None = None
    last_text: int | None = None
    """Time, in ticks, of a text that was cut to begin with the output."""
    heard: bool = False
    """Sound of it was copied."""


@dataclass(slots=True)
class _Feed:
    """A file that packets come from, and where it lies in the output."""

    source: StreamSource
    shift: Fraction = Fraction(0)
    """Seconds subtracted from its times."""
    carried: dict[int, _Carried] = field(default_factory=dict)
    end: Fraction = Fraction(0)
    """Seconds in the output at which its sound ends so far."""
    damaged: int = 0


class StreamCopier:
    """Carries a clip's other streams, or another file's sound, into an output.

    The order of calls is: make it, look at start, add_to() the output before its header is
    written, then copy_until() with growing times and at last without one. close() always.

    A window is exact for what is transcoded, for texts and chapters, and in MP4 and MOV, whose edit
    lists hide what a packet holds before the cut. Matroska and WebM can only begin with a whole
    packet: what is heard may begin up to one packet (21 ms of AAC) after the cut, in its right
    place. Copied sound ends with the packet that holds the window's end.

    Args:
        source: The clip; None when there is none (a folder of images).
        container: FFmpeg's name of the output's container.
        report: Told what is transcoded or dropped.
        audio: Whether sound is wanted at all.
        audio_file: A file whose sound takes the place of the clip's; it begins with the output.
        window: The part of the clip that the output shows.

    Raises:
        InputError, DecodeError: A file cannot be read, or audio_file has no sound.
    """

    def __init__(
        self,
        source: Path | None,
        container: str,
        report: Report,
        *,
        audio: bool = True,
        audio_file: Path | None = None,
        window: Window = WHOLE,
    ) -> None:
        self._container, self._report, self._window = container, report, window
        self._sink: OutputContainer | None = None
        self._choice = StreamChoice(container, report, window)
        self._clip = self._sound = None
        self._audio_file = audio_file if audio else None
        try:
            if source is not None:
                self._clip = _Feed(StreamSource(source, container, window))
                wanted = audio and audio_file is None
                self._clip.source.keep(self._choice.of_clip(self._clip.source, audio=wanted))
            if self._audio_file is not None:
                self._sound = self._open_sound(self._audio_file)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the files."""
        for feed in self._feeds:
            feed.source.close()

    @property
    def start(self) -> Fraction | None:
        """Seconds on the clip's clock at which its earliest sound begins, not before the window.

        None without sound, and where another file's takes its place.
        """
        return None if self._clip is None else self._clip.source.start

    @property
    def audio_streams(self) -> int:
        """How many audio streams the output gets."""
        tracks = (t for feed in self._feeds for t in feed.source.tracks.values())
        return sum(t.kind == "audio" for t in tracks)

    @property
    def audio_streams_heard(self) -> int:
        """How many of them got any sound so far; MP4 and MOV leave the others out."""
        carried = (c for feed in self._feeds for c in feed.carried.values())
        return sum(c.encoder.end is not None if c.encoder else c.heard for c in carried)

    @property
    def tags(self) -> dict[str, str]:
        """The clip's own tags, without those that describe the file they stand in."""
        if self._clip is None or self._container == "gif":
            return {}
        return own_tags(self._clip.source.file.metadata)

    @property
    def video_tags(self) -> dict[str, str]:
        """The tags of the clip's video stream: its language, title and start timecode."""
        if self._clip is None or self._container == "gif":
            return {}
        videos = self._clip.source.file.streams.video
        stream = next((s for s in videos if not is_cover(s)), None)
        tags = {} if stream is None else stream_tags(stream.metadata, self._container)[0]
        timecode = self._choice.timecode
        return tags if timecode is None else tags | {TIMECODE: timecode}

    def add_to(self, sink: OutputContainer, shift: Fraction) -> None:
        """Adds streams, chapters and tags to an output whose header is not yet written.

        Args:
            sink: The output, its video stream added already.
            shift: Seconds on the clip's clock at which the output begins.
        """
        self._sink = sink
        if self._clip is not None:
            self._clip.shift = shift
        if self._sound is not None:
            self._sound.shift = self._sound.source.start or Fraction(0)
            if self._window.end is not None:
                self._end_sound(self._window.end - shift)
        for feed in self._feeds:
            for index, track in feed.source.tracks.items():
                feed.carried[index] = self._add_stream(sink, feed, track)
        for stream in self._choice.attachments:
            sink.add_stream_from_template(stream)
        sink.metadata.update(self.tags)
        if self._clip is not None and self._container in CHAPTERS:
            chapters = self._clip.source.file.chapters()
            if moved := moved_chapters(chapters, shift, self._window):
                sink.set_chapters(moved)  # type: ignore[arg-type]

    def copy_until(self, time: Fraction | None, *, end: Fraction | None = None) -> None:
        """Writes the packets up to a time of the output in seconds, or all that are left.

        Args:
            time: Seconds of the output; None finishes.
            end: With None: seconds at which the picture ends. Another file's sound is cut there.

        Raises:
            av.error.FFmpegError: The output cannot be written.
        """
        if time is None and end is not None:
            self._end_sound(end)
        for feed in self._feeds:
            while (item := feed.source.peek()) is not None:
                if time is not None and item.time - feed.shift > time:
                    break
                self._carry(feed, feed.source.take())
        if time is None:
            self._finish(end)

    @property
    def _feeds(self) -> list[_Feed]:
        return [feed for feed in (self._clip, self._sound) if feed is not None]

    def _open_sound(self, path: Path) -> _Feed:
        """Another file's sound.

        Raises:
            InputError, DecodeError: The file cannot be read, or has none.
        """
        check_input(path, "a file with sound")
        feed = _Feed(StreamSource(path, self._container))
        try:
            if not feed.source.file.streams.audio:
                raise InputError("there is no sound in this file", path=path)
            feed.source.keep(self._choice.of_sound(feed.source))
        except BaseException:
            feed.source.close()
            raise
        return feed

    def _add_stream(self, sink: OutputContainer, feed: _Feed, track: Track) -> _Carried:
        source, codec = track.source, track.fate.codec
        carried: _Carried
        if track.fate.action == "copy":
            carried = _Carried(track, sink.add_stream_from_template(source))
        elif isinstance(source, AudioStream):
            assert codec is not None
            amid = feed.source.window.start is not None
            encoder = SoundEncoder(source, codec, sink, amid=amid)
            carried = _Carried(track, encoder.stream, encoder=encoder)
        else:
            assert isinstance(source, SubtitleStream)
            assert codec is not None
            converter = TextConverter(source, codec, sink)
            carried = _Carried(track, converter.stream, converter=converter)
        carried.stream.metadata.update(stream_tags(source.metadata, self._container)[0])
        held = DISPOSITIONS[self._container][track.kind]
        carried.stream.disposition = Disposition(source.disposition) & held
        return carried

    def _carry(self, feed: _Feed, item: Item) -> None:
        packet, track = item.packet, item.track
        assert packet.pts is not None
        start = packet.pts * packet.time_base
        end = start + (packet.duration or 0) * packet.time_base
        over = feed.source.window.end
        if over is not None and start >= over:
            return
        carried = feed.carried[track.source.index]
        if track.kind == "subtitle":
            self._carry_text(feed, carried, packet, (start, end))
        elif carried.encoder is not None:
            part = Window(Fraction(0), None if over is None else over - feed.shift)
            carried.encoder.push(packet, feed.shift, part)
            feed.end = max(feed.end, carried.encoder.end or feed.end)
        else:
            if self._is_heard_wrongly(feed, item, start):
                return
            if over is not None and end > over:
                packet.duration = max(round((over - start) / packet.time_base), 1)
                end = over
            self._mux(feed, carried.stream, packet)
            carried.heard = True
            feed.end = max(feed.end, end - feed.shift)

    def _is_heard_wrongly(self, feed: _Feed, item: Item, start: Fraction) -> bool:
        """Whether a packet that lies before the sound's start would be heard nevertheless."""
        track = item.track
        if self._container in HIDES_PREROLL:
            # An edit list hides what lies before the output's start, not what lies before a late
            # sound; an encoder's delay is silence anyway.
            late = track.start is not None and track.start > feed.shift
            return item.hidden and late and not item.priming
        # Matroska would move all streams so that this one does not begin before 0.
        return start + track.delay - feed.shift < -_BEFORE

    def _carry_text(
        self,
        feed: _Feed,
        carried: _Carried,
        packet: av.Packet[Stream],
        times: tuple[Fraction, Fraction],
    ) -> None:
        """A text, cut to the output's part of the clip."""
        window, base = feed.source.window, packet.time_base
        known = bool(packet.duration)
        first = feed.shift if window.start is None else max(feed.shift, window.start)
        start, end = max(times[0], first), times[1]
        if end < first or (known and end <= start):
            return
        if window.end is not None and known:
            end = min(end, window.end)
        if carried.converter is not None:
            until = end - feed.shift if known else None
            carried.converter.push(packet, start - feed.shift, until)
            return
        if start != times[0]:
            ticks = round(start / base)
            if carried.last_text is not None and ticks <= carried.last_text:
                ticks = carried.last_text + 1
            packet.pts = packet.dts = carried.last_text = ticks
        if known:
            packet.duration = max(round(end / base) - (packet.pts or 0), 1)
        self._mux(feed, carried.stream, packet)

    def _mux(self, feed: _Feed, stream: Stream, packet: av.Packet[Stream]) -> None:
        """Writes a packet as it is, moved."""
        assert self._sink is not None
        assert packet.pts is not None
        assert packet.dts is not None
        base = packet.time_base
        if (feed.shift / base).denominator != 1:
            ratio, base = base / _FLICKS, _FLICKS
            packet.pts, packet.dts = round(packet.pts * ratio), round(packet.dts * ratio)
            packet.duration = round((packet.duration or 0) * ratio)
            packet.time_base = base
        moved = round(feed.shift / base)
        packet.dts -= moved
        packet.pts -= moved
        packet.stream = stream
        try:
            self._sink.mux(packet)
        except (InvalidDataError, PatchWelcomeError):
            # A header that cannot be read, where the container wants the packet without it.
            feed.damaged += 1

    def _end_sound(self, end: Fraction) -> None:
        """Ends another file's sound at a time of the output."""
        if self._sound is not None:
            self._sound.source.window = Window(None, self._sound.shift + end)

    def _finish(self, end: Fraction | None) -> None:
        """Writes what encoders hold back; says what was damaged or is missing."""
        for feed in self._feeds:
            over = feed.source.window.end
            part = Window(Fraction(0), None if over is None else over - feed.shift)
            for carried in feed.carried.values():
                if carried.encoder is not None:
                    carried.encoder.push(None, feed.shift, part)
                    feed.end = max(feed.end, carried.encoder.end or feed.end)
                if carried.converter is not None:
                    carried.converter.push(None, Fraction(0), None)
            self._say_damage(feed)
        if self._sound is not None and end is not None and self._sound.end < end - _SHORTER:
            missing = float(end - self._sound.end)
            self._report.warn(
                f"the sound ends {missing:.2f} s before the picture: {self._audio_file}"
            )

    def _say_damage(self, feed: _Feed) -> None:
        path, source, carried = feed.source.path, feed.source, feed.carried.values()
        sounds = feed.damaged + sum(c.encoder.damaged for c in carried if c.encoder is not None)
        texts = sum(c.converter.damaged for c in carried if c.converter is not None)
        if sounds:
            packets = "1 packet" if sounds == 1 else f"{sounds} packets"
            self._report.warn(f"damaged sound was left out ({packets}): {path}")
        if texts:
            self._report.warn(f"{texts} damaged texts of subtitles were left out: {path}")
        if late := sum(c.encoder.late for c in carried if c.encoder is not None):
            self._report.warn(f"sound whose clock goes back was left out ({late} frames): {path}")
        if source.damaged and not source.gave_up:
            spots = "1 broken spot" if source.damaged == 1 else f"{source.damaged} broken spots"
            self._report.warn(f"{spots} were stepped over while copying sound: {path}")
        if source.gave_up:
            self._report.warn(f"sound of the clip ends early, the rest cannot be read: {path}")
