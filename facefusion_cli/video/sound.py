"""Sound transcoded for a container that does not take its codec, cut to the sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import av
from av.audio.stream import AudioStream
from av.container import OutputContainer
from av.error import FFmpegError
from av.stream import Stream

from facefusion_cli.types import Window

_ENCODERS = {"aac": "aac", "opus": "libopus"}
_RATES = {
    "aac": (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000),
    "opus": (48000,),
}
_LAYOUTS = {
    "aac": {1: "mono", 2: "stereo", 3: "3.0", 4: "4.0", 5: "5.0", 6: "5.1", 7: "7.1", 8: "7.1"},
    # Opus has Vorbis's layouts.
    "opus": {1: "mono", 2: "stereo", 3: "3.0", 4: "quad", 5: "5.0", 6: "5.1", 7: "6.1", 8: "7.1"},
}
_MOST_CHANNELS = 8
_BITS_PER_CHANNEL = {"aac": 96_000, "opus": 80_000}
_SEAM = Fraction(1, 50)
"""Seconds by which a packet's time may differ from the end of the one before without a break:
containers round times to as much as this."""
_SETTLING = 9
"""Frames by which the place of a sound is found that is taken up in its midst."""


class SoundEncoder:
    """Transcodes one stream of sound into an output whose header is not yet written.

    Args:
        source: The stream, whose packets are given to push().
        codec: What it becomes: aac or opus.
        sink: The output; it gets a stream.
        amid: The sound is taken up in its midst. Its place is then found by several frames, whose
            times some containers round to milliseconds.
    """

    def __init__(
        self, source: AudioStream, codec: str, sink: OutputContainer, *, amid: bool = False
    ) -> None:
        self._source, self._sink = source, sink
        context = source.codec_context
        rate = _nearest(_RATES[codec], context.sample_rate)
        self.layout = layout_of(source, codec)
        stream = sink.add_stream(_ENCODERS[codec], rate=rate, layout=self.layout)
        assert isinstance(stream, AudioStream)
        stream.bit_rate = _BITS_PER_CHANNEL[codec] * stream.codec_context.channels
        self.stream: AudioStream = stream
        self.damaged = 0
        """Packets that could not be decoded."""
        self.late = 0
        """Frames, or parts of one, that came when their time was over already."""
        self.end: Fraction | None = None
        """Seconds in the output reached by the last sample."""
        self._rate = rate
        self._resampler: av.AudioResampler | None = None
        self._format: tuple[str, str, int] | None = None
        self._settle = _SETTLING if amid else 1
        self._held: list[av.AudioFrame] = []
        self._next: int | None = None
        self._written: int | None = None

    def push(self, packet: av.Packet[Stream] | None, shift: Fraction, window: Window) -> None:
        """Decodes a packet and writes what the encoder makes of it; None flushes.

        Args:
            packet: Of the source.
            shift: Seconds subtracted from its times.
            window: The part of the output, in its seconds, that gets sound.

        Raises:
            av.error.FFmpegError: The output cannot be written.
        """
        try:
            frames = self._source.decode(packet)
        except FFmpegError:
            # Decoders of sound have more words for damage than "invalid data".
            self.damaged += packet is not None
            frames = []
        self._held += frames
        if self._next is None and packet is not None and len(self._held) < self._settle:
            return
        if self._next is None:
            self._next = _phase(self._held, shift)
        for frame in self._held:
            self._date(frame, shift)
            self._encode(self._resample(frame), window)
        self._held = []
        if packet is None:
            self._encode(self._resample(None), window)
            self._sink.mux(self.stream.encode(None))

    def _date(self, frame: av.AudioFrame, shift: Fraction) -> None:
        """Gives a decoded frame its time in the output, in samples.

        Frames follow one another without seams; only a jump of more than a coarse container's
        rounding is one.
        """
        rate = frame.sample_rate
        if self._next is not None and self._format is not None and self._format[2] != rate:
            self._next = round(Fraction(self._next * rate, self._format[2]))
        if frame.pts is not None and frame.time_base is not None:
            own = round((frame.pts * frame.time_base - shift) * rate)
            if self._next is None or abs(own - self._next) > rate * _SEAM:
                self._next = own
        frame.pts = self._next or 0
        frame.time_base = Fraction(1, rate)
        self._next = frame.pts + frame.samples

    def _resample(self, frame: av.AudioFrame | None) -> list[av.AudioFrame]:
        """A frame as the encoder's samples, with what was held back of a format that has ended.

        Broadcasts change channels and rate in their midst.
        """
        if frame is None:
            return [] if self._resampler is None else self._resampler.resample(None)
        pieces: list[av.AudioFrame] = []
        key = (frame.format.name, frame.layout.name, frame.sample_rate)
        if self._resampler is None or key != self._format:
            pieces += self._resample(None)
            # Packed samples: PyAV's planar frames end at eight pointers, one too few for 7.1.
            self._resampler = av.AudioResampler("flt", self.layout, self._rate)
            self._format = key
        return pieces + self._resampler.resample(frame)

    def _encode(self, frames: list[av.AudioFrame], window: Window) -> None:
        for frame in frames:
            for piece in self._cut(frame, window):
                assert piece.pts is not None
                self._written = piece.pts + piece.samples
                self.end = Fraction(self._written, self._rate)
                self._sink.mux(self.stream.encode(piece))

    def _cut(self, frame: av.AudioFrame, window: Window) -> Iterator[av.AudioFrame]:
        """The part of a frame that is in the window and not behind what was written."""
        assert frame.pts is not None
        first, last = 0, frame.samples
        if window.start is not None:
            first = max(first, round(window.start * self._rate) - frame.pts)
        if window.end is not None:
            last = min(last, round(window.end * self._rate) - frame.pts)
        if self._written is not None and self._written - frame.pts > first:
            # The clock went back; an encoder's cannot.
            first = self._written - frame.pts
            self.late += 1
        if first >= last:
            return
        if (first, last) == (0, frame.samples):
            yield frame
            return
        channels = len(frame.layout.channels)
        samples = frame.to_ndarray()[:, first * channels : last * channels]
        piece = av.AudioFrame.from_ndarray(samples.copy(), format="flt", layout=self.layout)
        piece.sample_rate, piece.time_base = self._rate, Fraction(1, self._rate)
        piece.pts = frame.pts + first
        yield piece


def _phase(frames: Sequence[av.AudioFrame], shift: Fraction) -> int | None:
    """Sample of the output at which the first of some frames begins; None if none has a time."""
    starts, samples = [], 0
    for frame in frames:
        if frame.pts is not None and frame.time_base is not None:
            own = round((frame.pts * frame.time_base - shift) * frame.sample_rate)
            starts.append(own - samples)
        samples += frame.samples
        if frame.sample_rate != frames[0].sample_rate:
            break
    if not starts or abs(starts[-1] - starts[0]) > frames[0].sample_rate * _SEAM:
        return starts[0] if starts else None
    return sorted(starts)[len(starts) // 2]


def layout_of(source: AudioStream, codec: str) -> str:
    """The channel layout a stream has once it is transcoded."""
    channels = min(max(source.codec_context.channels, 1), _MOST_CHANNELS)
    return _LAYOUTS[codec][channels]


def _nearest(rates: Sequence[int], rate: int) -> int:
    """The lowest of some rates that is not below this one, or the highest."""
    return min(rates, key=lambda r: (r < rate, abs(r - rate)))
