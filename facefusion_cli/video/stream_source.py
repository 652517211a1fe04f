"""Packets of some streams of a file, in order, from any moment on, with the damage counted."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
from av.audio.codeccontext import AudioCodecContext
from av.container import InputContainer
from av.error import FFmpegError
from av.stream import Discard, Disposition, Stream

from facefusion_cli.types import WHOLE, Window
from facefusion_cli.video.av_errors import reading
from facefusion_cli.video.completeness import MAX_FAILURES_IN_A_ROW
from facefusion_cli.video.container import demux
from facefusion_cli.video.stream_table import Fate

PREROLL = Fraction(1, 10)
"""Seconds of packets before a cut that are kept where they can be hidden or are decoded anyway:
decoders need one or two of them for their first samples, Opus 80 ms."""

HIDES_PREROLL = {"mp4", "mov"}
"""Containers whose edit lists hide what lies before the start."""
_HIDES_DELAY = {"matroska", "webm"}
_MAX_PEEK = 2000
"""Packets read ahead at most to find where every sound begins."""
_NEAR = 2
"""Seconds into the file up to which reading from its beginning is as quick as seeking."""
_STEPS_BACK = (1, 10)
"""Seconds before the wanted moment at which a seek aims."""
_LONGEST_TEXT = 60
"""Seconds a text that is on when the cut comes may have been there and still be found."""
_LOOSE = 10
"""Seconds by which packets of different streams may lie apart in a file."""
_LEAST_STEP = Fraction(1, 8000)
"""Seconds between packets whose times did not grow: a tick of the coarsest clock for sound."""
_PRIMING_PACKETS = 3
"""An encoder's own delay at the head of a stream is no longer than this."""


@dataclass(slots=True)
class Track:
    """A stream of the file that goes into the output."""

    source: Stream
    kind: str
    """audio or subtitle; kept because a closed file's streams may not be asked."""
    fate: Fate
    start: Fraction | None = None
    """Seconds of the first sample heard or text shown, not before the window."""
    done: bool = False
    """Its part of the window is over."""
    waiting: deque[Item] | None = field(default_factory=deque)
    """Hidden packets that wait for the first one heard; None once that has come."""
    hidden: int = 0
    last_dts: int | None = None
    next_dts: int = 0

    @property
    def delay(self) -> Fraction:
        """Seconds of the encoder's delay that the output's header will state."""
        context = self.source.codec_context
        if not isinstance(context, AudioCodecContext) or not context.sample_rate:
            return Fraction(0)
        return Fraction(context.delay, context.sample_rate)


@dataclass(slots=True)
class Item:
    """A packet to carry."""

    packet: av.Packet[Stream]
    track: Track
    hidden: bool
    """It lies before the track's start: the decoder wants it, nobody shall hear it."""
    priming: bool = False
    """It is hidden and of the encoder's delay: silence."""

    @property
    def time(self) -> Fraction:
        """Seconds at which it is decoded."""
        assert self.packet.dts is not None
        return self.packet.dts * self.packet.time_base


class StreamSource:
    """Reads what keep() was told to keep of a file.

    Args:
        path: The file.
        container: FFmpeg's name of the output's container.
        window: The part that is read, on the file's clock.

    Raises:
        InputError, DecodeError: The file cannot be opened.
    """

    def __init__(self, path: Path, container: str, window: Window = WHOLE) -> None:
        self.path = path
        self.tracks: dict[int, Track] = {}
        self.damaged = 0
        """Spots of the container that were stepped over."""
        self.gave_up = False
        """So many in a row that the rest was not read."""
        self.window = window
        self._container = container
        self._open()

    def close(self) -> None:
        """Closes the file."""
        self._packets.close()
        self.file.close()

    def keep(self, tracks: Iterable[Track]) -> None:
        """Chooses the streams, goes to the window's start and finds where sounds begin.

        Raises:
            InputError, DecodeError: The file cannot be opened again.
        """
        self.tracks = {t.source.index: t for t in tracks}
        self._discard_others()
        self._seek()
        sound = [t for t in self.tracks.values() if t.kind == "audio"]
        while any(t.start is None and not t.done for t in sound) and len(self._ahead) < _MAX_PEEK:
            if not self._more():
                break

    @property
    def start(self) -> Fraction | None:
        """Seconds at which the earliest sound begins, in the window; None without sound."""
        starts = [t.start for t in self.tracks.values() if t.kind == "audio"]
        return min((s for s in starts if s is not None), default=None)

    def peek(self) -> Item | None:
        """The next packet, which stays; None at the end."""
        if not self._ahead and not self._more():
            return None
        return self._ahead[0]

    def take(self) -> Item:
        """The next packet, after peek() has found one."""
        return self._ahead.popleft()

    def _open(self) -> None:
        with reading(self.path):
            self.file: InputContainer = av.open(self.path.resolve(), metadata_errors="replace")
        self._ahead: deque[Item] = deque()
        self._packets = self._read()

    def _discard_others(self) -> None:
        for stream in self.file.streams:
            if stream.index not in self.tracks:
                stream.discard = Discard.all

    def _read(self) -> Generator[av.Packet[Stream], None, None]:
        """All packets of the tracks; a broken spot in the container is stepped over."""
        if not self.tracks:
            return
        in_a_row = 0
        while in_a_row <= MAX_FAILURES_IN_A_ROW:
            # A generator that raised is finished, but a new one goes on where the file stands.
            packets = self.file.demux([t.source for t in self.tracks.values()])
            try:
                for packet in packets:
                    in_a_row = 0
                    if packet.size:
                        yield packet
            except FFmpegError:
                self.damaged += 1
                in_a_row += 1
            except IndexError:
                # PyAV ends like this where damage in an MPEG-TS looked like one more stream.
                return
            else:
                return
        self.gave_up = True

    def _more(self) -> bool:
        """Reads one packet to be carried, and what must go before it; False at the end."""
        for packet in self._packets:
            track = self.tracks[packet.stream_index]
            # Texts may begin together, in a container that allows it.
            strict = track.fate.action == "copy" and self._container in HIDES_PREROLL
            _complete(packet, track, repeats=track.kind == "subtitle" and not strict)
            if self._is_over(packet, track):
                return False
            if track.done:
                continue
            if self._take_in(packet, track):
                return True
        return False

    def _is_over(self, packet: av.Packet[Stream], track: Track) -> bool:
        """Notes that a track has left the window; whether all have."""
        end = self.window.end
        if end is None:
            return False
        when = _seconds(packet)
        track.done = track.done or when >= end
        others = (t.done for t in self.tracks.values())
        return track.done and (all(others) or when >= end + _LOOSE)

    def _take_in(self, packet: av.Packet[Stream], track: Track) -> bool:
        """Queues a packet unless it has to wait or is not wanted."""
        when, start = _seconds(packet), self.window.start
        if track.kind == "subtitle":
            if start is not None and when < start and when + _length(packet) <= start:
                return False
            self._ahead.append(Item(packet, track, hidden=False))
            return True
        early = start is not None and when < start
        if track.fate.action == "transcode":
            # The decoder drops what an edit list cuts, and needs it for what follows.
            if start is not None and when + _length(packet) < start - PREROLL:
                return False
            if track.start is None and not packet.is_discard:
                track.start = self._heard(packet)
            self._ahead.append(Item(packet, track, hidden=early))
            return True
        track.hidden += early or packet.is_discard
        if early or packet.is_discard:
            priming = not early and track.hidden <= _PRIMING_PACKETS
            self._wait(Item(packet, track, hidden=True, priming=priming))
            return False
        if track.start is None:
            track.start = self._heard(packet)
            if start is not None and track.waiting:
                # The cut is exact, or as exact as the delay that the header states lets it be.
                first = _seconds(track.waiting[0].packet) + track.delay
                hides = self._container in HIDES_PREROLL
                track.start = start if hides else max(first, start)
        self._ahead.extend(track.waiting or ())
        track.waiting = None
        self._ahead.append(Item(packet, track, hidden=False))
        return True

    def _wait(self, item: Item) -> None:
        """Keeps a hidden packet as long as the one that is heard next may want it."""
        waiting = item.track.waiting
        if waiting is None:
            return
        hides = self._container in HIDES_PREROLL
        if hides or (self._container in _HIDES_DELAY and not item.packet.is_discard):
            waiting.append(item)
        cut = self.window.start
        if cut is None or item.packet.is_discard:
            cut = _seconds(item.packet) + _length(item.packet)
        if hides:
            while len(waiting) > 1 and _seconds(waiting[1].packet) <= cut - PREROLL:
                waiting.popleft()
        while waiting and not hides and _seconds(waiting[0].packet) < cut - item.track.delay:
            waiting.popleft()

    def _heard(self, packet: av.Packet[Stream]) -> Fraction:
        """Seconds of the first sample heard of a stream's first packet.

        The encoder's delay is not heard, nor is what an edit list cuts of the packet: FFmpeg's
        start of a stream is after both, where it knows it.
        """
        stream, when = packet.stream, _seconds(packet)
        if stream.start_time is not None and stream.time_base is not None:
            when = max(when, stream.start_time * stream.time_base)
        return when if self.window.start is None else max(when, self.window.start)

    def _seek(self) -> None:
        """Goes to where everything of the window can be read, as near to its start as can be."""
        start = self.window.start
        if start is None or not self.tracks:
            return
        anchor = next((s for s in self.file.streams.video if not is_cover(s)), None)
        stream = anchor or next(iter(self.tracks.values())).source
        texts = any(t.kind == "subtitle" for t in self.tracks.values())
        begin = Fraction(self.file.start_time or 0, av.time_base)
        for back in _STEPS_BACK:
            target = start - PREROLL - (max(back, _LONGEST_TEXT) if texts else back)
            if target <= begin + _NEAR:
                break
            with suppress(FFmpegError):
                self._aim(stream, target)
                if self._lands_before(start - PREROLL):
                    self._aim(stream, target)
                    return
        self._packets.close()
        self.file.close()
        self._open()
        for index, track in self.tracks.items():
            track.source = self.file.streams[index]
        self._discard_others()

    def _aim(self, stream: Stream, when: Fraction) -> None:
        base = stream.time_base or Fraction(1, av.time_base)
        # Formats without an index look for packets of the stream, which must not be discarded then.
        stream.discard = Discard.default
        self.file.seek(math.floor(when / base), stream=stream)
        self._discard_others()

    def _lands_before(self, when: Fraction) -> bool:
        """Whether every sound that has begun by a moment is read from there or earlier.

        Leaves the file somewhere else.
        """
        wanted = {i for i, t in self.tracks.items() if t.kind == "audio" and _begins(t, when)}
        if not wanted:
            return True
        sources = [t.source for t in self.tracks.values()]
        for count, packet in enumerate(demux(self.file, *sources)):
            if packet.stream_index in wanted and packet.pts is not None:
                if _seconds(packet) > when:
                    return False
                wanted.discard(packet.stream_index)
            if not wanted or count > _MAX_PEEK:
                break
        return not wanted


def is_cover(stream: Stream) -> bool:
    """Whether a video stream is a picture for the file's icon."""
    return Disposition.attached_pic in Disposition(stream.disposition)


def _begins(track: Track, when: Fraction) -> bool:
    """Whether a sound has begun by a moment, as far as the header knows."""
    stream = track.source
    if stream.start_time is None or stream.time_base is None:
        return True
    return stream.start_time * stream.time_base <= when


def _seconds(packet: av.Packet[Stream]) -> Fraction:
    assert packet.pts is not None
    return packet.pts * packet.time_base


def _length(packet: av.Packet[Stream]) -> Fraction:
    return (packet.duration or 0) * packet.time_base


def _complete(packet: av.Packet[Stream], track: Track, *, repeats: bool) -> None:
    """Gives a packet the timestamps its container left out, and makes them grow.

    Args:
        packet: As it was read.
        track: Its stream.
        repeats: Two packets may have one time.
    """
    if packet.dts is None:
        packet.dts = packet.pts if packet.pts is not None else track.next_dts
    last = track.last_dts
    if last is not None and packet.dts <= last and not (repeats and packet.dts == last):
        # A tick may be too fine for the output's clock.
        packet.dts = last + (0 if repeats else math.ceil(_LEAST_STEP / packet.time_base))
    if packet.pts is None or packet.pts < packet.dts:
        packet.pts = packet.dts
    track.last_dts = packet.dts
    track.next_dts = packet.dts + (packet.duration or 0)
