"""What the output takes over from the clip unseen: sound, text subtitles, chapters, tags.

A table decides for every stream whether it is copied, transcoded or dropped; each drop and each
transcode is a warning. Packets are read from a second opening of the clip, only as far as the
video has come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.stream import Discard, Disposition, Stream

from facefusion_cli.report import Report
from facefusion_cli.video.av_errors import PACKET_ERRORS, reading

AUDIO_COPY = {
    "mp4": {"aac", "mp3", "mp2", "ac3", "eac3", "alac", "opus", "vorbis", "flac"},
    "mov": {"aac", "mp3", "mp2", "ac3", "eac3", "alac", "pcm_alaw", "pcm_mulaw", "pcm_u8"}
    | {f"pcm_{kind}{end}" for kind in ("s16", "s24", "s32", "f32", "f64") for end in ("le", "be")},
    "matroska": {"aac", "mp3", "mp2", "ac3", "eac3", "alac", "opus", "vorbis", "flac", "dts"}
    | {"truehd", "tta", "wavpack", "pcm_u8", "pcm_s16be", "pcm_s24be", "pcm_s32be"}
    | {"pcm_s16le", "pcm_s24le", "pcm_s32le", "pcm_f32le", "pcm_f64le"},
}
"""Container to the codecs whose packets it takes as they are. MP4 takes PCM by its standard, yet
FFmpeg refuses most of it when the first packet comes, and few players read it."""

SUBTITLE_COPY = {
    "mp4": {"mov_text"},
    "mov": {"mov_text"},
    "matroska": {"subrip", "ass", "ssa", "webvtt", "text", "dvd_subtitle", "hdmv_pgs_subtitle"},
}
"""Container to the subtitle codecs copied into it."""

PREROLL = Fraction(1, 10)
"""Seconds of packets before an edit list's cut that are kept where the container can hide them:
decoders need one or two of them for their first samples."""

_HIDES_PREROLL = {"mp4", "mov"}
_FLICKS = Fraction(1, 705_600_000)
"""A tick in which all usual sample and frame rates are whole."""
_TECHNICAL_TAGS = {
    "major_brand",
    "minor_version",
    "compatible_brands",
    "encoder",
    "duration",
    "software",
    "handler_name",
    "vendor_id",
    "timecode",
    "bps",
    "number_of_frames",
    "number_of_bytes",
    "_statistics_tags",
    "_statistics_writing_app",
    "_statistics_writing_date_utc",
}
"""Tags that describe the file or its streams as they were; Matroska adds a language to some."""
_AAC_RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000)
_AAC_LAYOUTS = {1: "mono", 2: "stereo", 3: "3.0", 4: "4.0", 5: "5.0", 6: "5.1", 8: "7.1"}
_AAC_BITS_PER_CHANNEL = 96_000
_MAX_PEEK = 2000
_SEAM = Fraction(1, 50)


@dataclass(slots=True)
class _Track:
    """A stream of the clip and what becomes of it."""

    source: Stream
    kind: str
    """audio or subtitle; kept because a closed file's streams may not be asked."""
    start: Fraction | None = None
    """Seconds of the first sample heard or text shown."""
    sink: Stream | None = None
    transcode: bool = False
    preroll: deque[av.Packet[Stream]] | None = field(default_factory=deque)
    """Packets before the cut that wait for the first one behind it; None once that has come."""
    resampler: av.AudioResampler | None = None
    next_sample: int | None = None
    last_dts: int | None = None
    next_dts: int = 0


class StreamCopier:
    """Carries a clip's other streams into an output.

    The order of calls is: make it, look at start, add_to() the output before its header is
    written, then copy_until() with growing times and at last without one. close() always.

    Args:
        source: The clip.
        container: FFmpeg's name of the output's container.
        report: Told what is transcoded or dropped.
        audio: Whether sound is wanted at all.
    """

    def __init__(self, source: Path, container: str, report: Report, *, audio: bool = True) -> None:
        self._path, self._container, self._report = source, container, report
        with reading(source):
            self._input: InputContainer = av.open(source.resolve(), metadata_errors="replace")
        try:
            self._tracks = {t.source.index: t for t in self._choose(audio)}
            for stream in self._input.streams:
                if stream.index not in self._tracks:
                    stream.discard = Discard.all
            self._packets = self._read()
            self._ahead: deque[av.Packet[Stream]] = deque()
            self._find_starts()
        except BaseException:
            self._input.close()
            raise
        self._shift = Fraction(0)
        self._sink: OutputContainer | None = None

    def close(self) -> None:
        """Closes the clip."""
        self._packets.close()
        self._input.close()

    @property
    def start(self) -> Fraction | None:
        """Seconds at which the earliest sound begins on the clip's clock; None without sound."""
        starts = [t.start for t in self._tracks.values() if t.kind == "audio"]
        return min((s for s in starts if s is not None), default=None)

    @property
    def audio_streams(self) -> int:
        """How many audio streams the output gets."""
        return sum(t.kind == "audio" for t in self._tracks.values())

    @property
    def tags(self) -> dict[str, str]:
        """The clip's own tags, without those that describe the file they stand in."""
        return _own_tags(self._input.metadata)

    @property
    def video_tags(self) -> dict[str, str]:
        """The tags of the clip's video stream: its language and title."""
        stream = next((s for s in self._input.streams.video if not _is_cover(s)), None)
        return {} if stream is None else _own_tags(stream.metadata)

    def add_to(self, sink: OutputContainer, shift: Fraction) -> None:
        """Adds streams, chapters and tags to an output whose header is not yet written.

        Args:
            sink: The output, its video stream added already.
            shift: Seconds subtracted from every time.
        """
        self._sink, self._shift = sink, shift
        for track in self._tracks.values():
            track.sink = self._add_stream(sink, track)
            track.sink.metadata.update(_own_tags(track.source.metadata))
            track.sink.disposition = Disposition(track.source.disposition)
        sink.metadata.update(self.tags)
        chapters = self._input.chapters()
        for chapter in chapters:
            base = chapter["time_base"]
            if base is not None:
                moved = max(round(shift / base), 0)
                chapter["start"] = max(chapter["start"] - moved, 0)
                chapter["end"] = max(chapter["end"] - moved, 0)
        if chapters:
            sink.set_chapters(chapters)

    def copy_until(self, time: Fraction | None) -> None:
        """Writes the packets up to a time of the output in seconds, or all that are left."""
        while self._ahead or self._more():
            packet = self._ahead[0]
            assert packet.dts is not None
            if time is not None and packet.dts * packet.time_base - self._shift > time:
                return
            self._ahead.popleft()
            self._carry(packet)
        if time is None:
            for track in self._tracks.values():
                if track.transcode:
                    self._encode(track, None)

    def _choose(self, audio: bool) -> Iterator[_Track]:
        """The streams to carry; says what is left behind."""
        warn = self._report.warn
        video_seen = False
        for stream in self._input.streams:
            codec = _codec_name(stream)
            what = f"{stream.type} stream {stream.index} ({codec or 'unknown'})"
            if stream.type == "video":
                if video_seen:
                    kind = Disposition(stream.disposition)
                    cover = Disposition.attached_pic in kind
                    warn(f"dropped: {'cover picture, ' if cover else ''}{what}")
                video_seen = video_seen or not _is_cover(stream)
            elif stream.type == "audio":
                if not audio:
                    continue
                if codec in AUDIO_COPY[self._container]:
                    yield _Track(stream, stream.type)
                elif codec is None:
                    warn(f"dropped: {what}; it cannot be copied or decoded")
                else:
                    hint = "; .mkv and .mov keep it" if codec.startswith("pcm_") else ""
                    warn(f"{what} becomes aac: {self._container} cannot hold it{hint}")
                    yield _Track(stream, stream.type, transcode=True)
            elif stream.type == "subtitle" and codec in SUBTITLE_COPY[self._container]:
                yield _Track(stream, stream.type)
            elif stream.type == "data" and self._input.chapters():
                # MP4 and MOV keep chapter titles in a data stream; set_chapters carries them.
                continue
            else:
                warn(f"dropped: {what}; {self._container} outputs do not take it")

    def _add_stream(self, sink: OutputContainer, track: _Track) -> Stream:
        if not track.transcode:
            return sink.add_stream_from_template(track.source)
        assert isinstance(track.source, AudioStream)
        source = track.source.codec_context
        rate = min(_AAC_RATES, key=lambda r: (r < source.sample_rate, abs(r - source.sample_rate)))
        layout = _AAC_LAYOUTS.get(source.channels, "stereo")
        stream = sink.add_stream("aac", rate=rate, layout=layout)
        assert isinstance(stream, AudioStream)
        stream.bit_rate = _AAC_BITS_PER_CHANNEL * stream.codec_context.channels
        track.resampler = av.AudioResampler("fltp", layout, rate)
        return stream

    def _read(self) -> Generator[av.Packet[Stream], None, None]:
        if not self._tracks:
            return
        streams = [t.source for t in self._tracks.values()]
        try:
            for packet in self._input.demux(streams):
                if packet.size:
                    yield packet
        except av.error.FFmpegError as error:
            self._report.warn(f"sound of the clip ends early ({error.strerror}): {self._path}")

    def _more(self) -> bool:
        """Reads one packet to be carried, and what must go before it; False at the end."""
        for packet in self._packets:
            track = self._tracks[packet.stream_index]
            _complete(packet, track)
            if track.transcode:
                # The decoder drops what an edit list cuts, and needs it for what follows.
                self._ahead.append(packet)
            elif packet.is_discard:
                if self._container in _HIDES_PREROLL and track.preroll is not None:
                    track.preroll.append(packet)
                continue
            else:
                earliest = _seconds(packet) - PREROLL
                self._ahead.extend(p for p in track.preroll or () if _seconds(p) >= earliest)
                track.preroll = None
                self._ahead.append(packet)
            if track.start is None and not packet.is_discard:
                track.start = _heard(packet)
            return True
        return False

    def _find_starts(self) -> None:
        sound = [t for t in self._tracks.values() if t.kind == "audio"]
        while any(t.start is None for t in sound) and len(self._ahead) < _MAX_PEEK:
            if not self._more():
                break

    def _carry(self, packet: av.Packet[Stream]) -> None:
        track = self._tracks[packet.stream_index]
        if track.transcode:
            self._encode(track, packet)
            return
        assert track.sink is not None
        assert self._sink is not None
        assert packet.pts is not None
        assert packet.dts is not None
        base = packet.time_base
        if (self._shift / base).denominator != 1:
            ratio, base = base / _FLICKS, _FLICKS
            packet.pts, packet.dts = round(packet.pts * ratio), round(packet.dts * ratio)
            packet.duration = round((packet.duration or 0) * ratio)
            packet.time_base = base
        moved = round(self._shift / base)
        packet.dts -= moved
        packet.pts -= moved
        packet.stream = track.sink
        self._sink.mux(packet)

    def _encode(self, track: _Track, packet: av.Packet[Stream] | None) -> None:
        """Decodes a packet and writes what the AAC encoder makes of it; None flushes."""
        assert isinstance(track.source, AudioStream)
        assert isinstance(track.sink, AudioStream)
        assert track.resampler is not None
        assert self._sink is not None
        try:
            frames = track.source.decode(packet)
        except PACKET_ERRORS:
            self._report.warn(f"damaged sound was left out: {self._path}")
            return
        for frame in frames:
            self._date(track, frame)
            for piece in track.resampler.resample(frame):
                self._sink.mux(track.sink.encode(piece))
        if packet is None:
            for piece in track.resampler.resample(None):
                self._sink.mux(track.sink.encode(piece))
            self._sink.mux(track.sink.encode(None))

    def _date(self, track: _Track, frame: av.AudioFrame) -> None:
        """Gives a decoded frame its time in the output, in samples.

        Frames follow one another without seams; only a jump of more than a coarse container's
        rounding is one.
        """
        rate = frame.sample_rate
        if frame.pts is not None and frame.time_base is not None:
            own = round((frame.pts * frame.time_base - self._shift) * rate)
            if track.next_sample is None or abs(own - track.next_sample) > rate * _SEAM:
                track.next_sample = own
        frame.pts = track.next_sample or 0
        frame.time_base = Fraction(1, rate)
        track.next_sample = frame.pts + frame.samples


def _codec_name(stream: Stream) -> str | None:
    """FFmpeg's name of the codec, not of the decoder chosen for it; None when it is unknown."""
    context = stream.codec_context
    return None if context is None else context.codec.canonical_name


def _own_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in tags.items() if k.lower().split("-")[0] not in _TECHNICAL_TAGS}


def _is_cover(stream: Stream) -> bool:
    return Disposition.attached_pic in Disposition(stream.disposition)


def _seconds(packet: av.Packet[Stream]) -> Fraction:
    assert packet.pts is not None
    return packet.pts * packet.time_base


def _complete(packet: av.Packet[Stream], track: _Track) -> None:
    """Gives a packet the timestamps its container left out, and makes them grow."""
    if packet.dts is None:
        packet.dts = packet.pts if packet.pts is not None else track.next_dts
    if track.last_dts is not None and packet.dts <= track.last_dts:
        packet.dts = track.last_dts + 1
    if packet.pts is None or packet.pts < packet.dts:
        packet.pts = packet.dts
    track.last_dts = packet.dts
    track.next_dts = packet.dts + (packet.duration or 0)


def _heard(packet: av.Packet[Stream]) -> Fraction:
    """Seconds of the first sample heard of a stream's first packet.

    The encoder's delay is not heard, nor is what an edit list cuts of the packet: FFmpeg's start
    of a stream is after both, where it knows it.
    """
    stream = packet.stream
    if stream.start_time is None or stream.time_base is None:
        return _seconds(packet)
    return max(_seconds(packet), stream.start_time * stream.time_base)
