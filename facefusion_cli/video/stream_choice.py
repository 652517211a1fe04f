"""Which of a file's streams an output gets, and what is said of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import av
from av.audio.stream import AudioStream
from av.stream import AttachmentStream, Discard, Disposition, Stream

from facefusion_cli.report import Report
from facefusion_cli.types import Window
from facefusion_cli.video.sound import layout_of
from facefusion_cli.video.stream_source import StreamSource, Track, is_cover
from facefusion_cli.video.stream_table import DISPOSITIONS, Fate, fate
from facefusion_cli.video.stream_tags import TIMECODE, kept_timecode, own_tags, stream_tags

_HOLD_SETUP = {"mov", "matroska", "flv"}
"""Formats that keep a codec's setup data in their header."""


class StreamChoice:
    """Asks the table about every stream of a file.

    Args:
        container: FFmpeg's name of the output's container.
        report: Told of everything that is transcoded or lost.
        window: The part of the clip that the output shows.
    """

    def __init__(self, container: str, report: Report, window: Window) -> None:
        self._container, self._report, self._window = container, report, window
        self._lost: Counter[str] = Counter()
        self.attachments: list[AttachmentStream] = []
        """Attached files that are carried."""
        self.timecode: str | None = None
        """The clip's start timecode, where the output can tell it."""

    def of_clip(self, source: StreamSource, *, audio: bool) -> list[Track]:
        """The streams of the clip that are carried; says what is left behind.

        Args:
            source: The clip.
            audio: Whether its sound is wanted.
        """
        tracks = list(self._choose(source, audio))
        self._say_lost(source)
        return tracks

    def of_sound(self, source: StreamSource) -> list[Track]:
        """The sounds of a file that are carried."""
        streams = source.file.streams.audio
        tracks = [t for s in streams if (t := self._track(s)) is not None]
        if self._container == "gif":
            self._report.warn(f"dropped: the sound of {source.path}; a GIF holds pictures only")
        return tracks

    def _choose(self, source: StreamSource, audio: bool) -> Iterator[Track]:
        video_seen = False
        for stream in source.file.streams:
            if stream.type == "video":
                if video_seen or is_cover(stream):
                    cover = "cover picture, " if is_cover(stream) else ""
                    self._lose(stream, cover=cover)
                video_seen = video_seen or not is_cover(stream)
            elif stream.type == "data":
                self._lose_data(stream)
            elif isinstance(stream, AttachmentStream):
                if fate(stream.type, None, self._container).action == "copy":
                    self.attachments.append(stream)
                else:
                    self._lose(stream)
            elif stream.type != "audio" or audio:
                track = self._track(stream)
                if track is not None:
                    yield track

    def _track(self, stream: Stream) -> Track | None:
        """How a stream is carried; None when it is dropped. Says what it loses."""
        codec = _codec_name(stream)
        what = fate(stream.type, codec, self._container)
        if what.action == "drop" or _is_unreadable(stream):
            self._lose(stream)
            return None
        name = f"{stream.type} stream {stream.index}"
        if what.action == "copy" and _lacks_setup(stream):
            what = Fate("transcode", codec)
            self._report.warn(f"{name} ({codec}) is encoded anew: its setup data are damaged")
        elif what.action == "transcode":
            self._report.warn(f"{name} ({codec}) becomes {_target(stream, what, self._container)}")
        roles = Disposition(stream.disposition) & ~DISPOSITIONS[self._container][stream.type]
        if roles:
            names = ", ".join(r.name for r in Disposition if r & roles and r.name)
            self._report.warn(f"{name}: {self._container} cannot say that it is {names}")
        if lost := stream_tags(stream.metadata, self._container)[1]:
            self._report.warn(f"{name}: dropped its tags {', '.join(lost)}")
        return Track(stream, stream.type, what)

    def _lose(self, stream: Stream, *, cover: str = "") -> None:
        """Notes a stream that is dropped: one warning each, and of a GIF one for all."""
        if self._container == "gif":
            self._lost[stream.type] += 1
            return
        codec = _codec_name(stream)
        why = f"{self._container} outputs do not take it"
        if cover or stream.type == "video":
            why = "outputs have one picture stream"
        elif stream.type == "audio" and (codec is None or _is_unreadable(stream)):
            why = "it cannot be copied or decoded"
        what = f"{cover}{stream.type} stream {stream.index} ({codec or 'unknown'})"
        self._report.warn(f"dropped: {what}; {why}")

    def _lose_data(self, stream: Stream) -> None:
        # MP4 and MOV keep chapter titles in a data stream that the demuxer hides.
        if Discard(stream.discard) == Discard.all:
            return
        timecode = stream.metadata.get(TIMECODE)
        keeps = (
            timecode is not None
            and self.timecode is None
            and self._container != "gif"
            and self._window.start is None
            and kept_timecode(timecode, self._container)
        )
        if not keeps:
            self._lose(stream)
            return
        self.timecode = timecode
        self._report.warn(
            f"timecode stream {stream.index} is kept as a tag of the picture: {timecode}"
        )

    def _say_lost(self, source: StreamSource) -> None:
        """The one warning of a GIF."""
        if self._container != "gif":
            return
        file = source.file
        if chapters := file.chapters():
            self._lost["chapter"] += len(chapters)
        parts = [f"{n} {kind}{'' if n == 1 else 's'}" for kind, n in self._lost.items()]
        if tags := own_tags(file.metadata):
            parts.append(f"tags {', '.join(sorted(tags))}")
        if parts:
            self._report.warn(f"dropped: {'; '.join(parts)}: a GIF holds pictures only")


def _codec_name(stream: Stream) -> str | None:
    """FFmpeg's name of the codec, not of the decoder chosen for it; None when it is unknown."""
    context = stream.codec_context
    return None if context is None else context.codec.canonical_name


def _is_unreadable(stream: Stream) -> bool:
    """Whether nothing of a sound could be read: damage can look like one more stream."""
    return isinstance(stream, AudioStream) and not (
        stream.codec_context and stream.codec_context.sample_rate
    )


def _lacks_setup(stream: Stream) -> bool:
    """Whether AAC came without what decoders and containers must know of it.

    Packets with headers of their own (MPEG-TS) need none.
    """
    named = set(stream.container.format.name.split(","))
    return _codec_name(stream) == "aac" and bool(
        named & _HOLD_SETUP and not stream.codec_context.extradata
    )


def _target(stream: Stream, what: Fate, container: str) -> str:
    """What a stream is transcoded to and why, in words."""
    codec = _codec_name(stream) or ""
    why = f"{container} cannot hold it"
    if not isinstance(stream, AudioStream):
        return f"{what.codec}: {why}"
    hint = "; .mkv and .mov keep it" if codec.startswith("pcm_") else ""
    layout = layout_of(stream, what.codec or "")
    channels = stream.codec_context.channels
    if av.AudioLayout(layout).nb_channels != channels:
        return f"{what.codec} with {layout} instead of {channels} channels: {why}{hint}"
    return f"{what.codec}: {why}{hint}"
