"""Every frame of a clip that can be decoded, from any moment on, with the failures counted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction

from av.error import FFmpegError
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from facefusion_cli.types import WHOLE, VideoInfo, Window
from facefusion_cli.video.av_errors import PACKET_ERRORS
from facefusion_cli.video.completeness import MAX_FAILURES_IN_A_ROW
from facefusion_cli.video.container import (
    demux,
    open_container,
    stream_decoder,
    video_stream,
)
from facefusion_cli.video.tally import Tally

THREADS = 0
"""Threads of the decoder; 0 = one a core."""

_NEAR = 1
"""Seconds into the clip up to which reading from its beginning is as quick as seeking."""
_STEPS_BACK = (0, 2, 10)
"""Seconds before the wanted moment at which a seek may aim; then the clip is read from its
beginning. Formats without an index (MPEG-TS, AVI of some writers) land late, or between key
frames."""


class FrameDecoder:
    """A clip's decoded frames, in order of display, as stored.

    Broken packets are skipped and counted, and what many threads lose at the end is decoded again.

    Args:
        info: The probe's result.
        tally: Where failures are counted.
        window: Frames before its start are skipped as far as seeking can; some may come still.

    Raises:
        InputError, DecodeError: The file cannot be opened.
    """

    def __init__(self, info: VideoInfo, tally: Tally, window: Window = WHOLE) -> None:
        self._info, self._tally, self._window = info, tally, window
        self.damaged = 0
        """Packets that the container calls corrupt."""
        self._open()

    def close(self) -> None:
        """Closes the file."""
        self._container.close()

    def frames(self) -> Iterator[VideoFrame]:
        """All frames from the window's start on; called once."""
        self._seek()
        in_a_row = 0
        last = newest = -math.inf
        failed: list[int] = []
        for packet in self._packets():
            wanted = self._wanted(packet)
            self.damaged += packet.is_corrupt and wanted
            if packet.pts is not None and not packet.is_discard:
                newest = max(newest, packet.pts)
            try:
                frames = self._decoder.decode(packet)
            except PACKET_ERRORS:
                frames = []
                if packet.size:
                    in_a_row += 1
                    if wanted:
                        self._tally.failures += 1
                        failed.append(packet.pts or 0)
                if in_a_row > MAX_FAILURES_IN_A_ROW:
                    self._tally.gave_up = True
                    return
            for frame in frames:
                in_a_row = 0
                last = max(last, -math.inf if frame.pts is None else frame.pts)
                yield frame
        # A decoder with many threads holds many frames when the file ends, and one bad frame among
        # them hides those after it.
        if -math.inf < last < newest:
            yield from self._tail(int(last), sum(pts > last for pts in failed))

    def _open(self) -> None:
        self._container = open_container(self._info.path)
        self._stream = video_stream(self._container, self._info.path)
        self._decoder = stream_decoder(self._stream)
        self._decoder.thread_type = "AUTO"
        self._decoder.thread_count = THREADS

    def _wanted(self, packet: Packet[VideoStream]) -> bool:
        """Whether a failure of this packet is a loss."""
        if packet.pts is None or packet.time_base is None:
            return self._tally.frames > 0 or self._window.start is None
        return packet.pts * packet.time_base in self._window

    def _seek(self) -> None:
        """Goes to a key frame from which on all frames of the window can be decoded."""
        start = self._window.start
        if start is None or start < self._info.start + _NEAR:
            return
        for back in _STEPS_BACK:
            # A deinterlacer wants the frame before, too.
            target = start - back - (1 / self._info.frame_rate if self._interlaced() else 0)
            if target <= self._info.start:
                break
            with suppress(*PACKET_ERRORS, FFmpegError):
                self._aim(target)
                if self._lands_before(target):
                    self._aim(target)
                    return
        self._container.close()
        self._open()

    def _interlaced(self) -> bool:
        return "interlaced" in self._info.hazards

    def _aim(self, when: Fraction) -> None:
        ticks = math.floor(when / self._info.time_base)
        self._container.seek(ticks, stream=self._stream)
        self._decoder.flush_buffers()

    def _lands_before(self, when: Fraction) -> bool:
        """Whether decoding from here gives a frame no later than a moment, from a key frame on.

        Leaves the container somewhere else.
        """
        first = True
        for packet in demux(self._container, self._stream):
            if first:
                if packet.pts is None or not packet.is_keyframe:
                    return False
                # Frames that follow an open group's key frame but are shown before it are broken.
                if packet.pts * self._info.time_base > when:
                    return False
                first = False
            for frame in self._decoder.decode(packet):
                return frame.pts is not None and frame.pts * self._info.time_base <= when
        return False

    def _tail(self, last: int, counted: int) -> Iterator[VideoFrame]:
        """Frames after a pts (in the stream's ticks), decoded anew by one thread.

        Args:
            last: The pts of the last frame there was.
            counted: Failures after it that are counted already.
        """
        failures = 0
        with open_container(self._info.path) as container:
            stream = video_stream(container, self._info.path)
            decoder = stream_decoder(stream)
            decoder.thread_type = "NONE"
            with suppress(FFmpegError):  # what cannot seek is read from its start
                container.seek(last, stream=stream)
            for packet in demux(container, stream):
                try:
                    frames = decoder.decode(packet)
                except PACKET_ERRORS:
                    failures += packet.pts is not None and packet.pts > last
                    continue
                yield from (f for f in frames if f.pts is not None and f.pts > last)
        self._tally.failures += max(0, failures - counted)

    def _packets(self) -> Iterator[Packet[VideoStream]]:
        """All packets, and the empty one that flushes the decoder.

        A broken spot in the container is stepped over.
        """
        in_a_row = 0
        while in_a_row <= MAX_FAILURES_IN_A_ROW:
            # A generator that raised is finished, but a new one goes on where the file stands.
            packets = demux(self._container, self._stream)
            try:
                for packet in packets:
                    in_a_row = 0
                    yield packet
            except PACKET_ERRORS:
                self._tally.failures += 1
                in_a_row += 1
            else:
                return
        self._tally.gave_up = True
