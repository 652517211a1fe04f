"""What the writer's thread does: frames in, packets of all streams out, in order of time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from fractions import Fraction

import av
from av.container import OutputContainer
from av.error import FFmpegError
from av.packet import Packet
from av.stream import Disposition
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream
from torch import Tensor

from facefusion_cli.errors import EncoderRejected
from facefusion_cli.report import Report
from facefusion_cli.types import NO_EDIT, Edit
from facefusion_cli.video.encoders import EncodingPlan, configure
from facefusion_cli.video.frames import FrameMaker, HostBatch
from facefusion_cli.video.pacing import Pacer, Shown
from facefusion_cli.video.remux import StreamCopier
from facefusion_cli.video.segments import Checkpoint

_Planes = tuple[Tensor, ...]
_X265_DELAY = 2
"""Frames that x265 knows decoding times of only when more have come."""


class ClipEncoder:
    """Encodes one clip into an open container; used by one thread.

    Args:
        sink: The output, without any stream yet.
        plan: Says how frames without or with alpha are encoded.
        report: See ClipWriter.
        stop: Set when the output is not wanted any more.
        copier: The clip's other streams; None where it has none or something else carries them.
        start: The clip's time that becomes 0 in the output; None: where the first picture or sound
            begins, whichever is earlier.
        edit: The rate frames are repeated for, and the window they end with.
    """

    def __init__(
        self,
        sink: OutputContainer,
        plan: Callable[[bool], EncodingPlan],
        report: Report,
        stop: threading.Event,
        *,
        copier: StreamCopier | None = None,
        start: Fraction | None = None,
        edit: Edit = NO_EDIT,
    ) -> None:
        self._sink, self._plan_for, self._copier = sink, plan, copier
        self._report, self._stop = report, stop
        self._start, self._edit = start, edit
        self.frames = 0
        """Frames sent to the encoder."""
        self.finished = False
        """The file is complete and closed."""
        self._sent = 0
        self._coder: VideoStream | VideoCodecContext
        self._pacer: Pacer[_Planes] | None = None
        self._latest: tuple[_Planes, av.VideoFrame] | None = None
        self._end = Fraction(0)

    @property
    def span(self) -> Fraction:
        """Seconds from the first frame's time to the last's."""
        return Fraction(0) if self._pacer is None else self._pacer.span

    @property
    def tags(self) -> dict[str, str]:
        """The tags the file should have."""
        return {} if self._copier is None else self._copier.tags

    @property
    def audio_streams(self) -> int:
        """How many audio streams the file has."""
        return 0 if self._copier is None else self._copier.audio_streams

    @property
    def audio_streams_heard(self) -> int:
        """How many of them got any sound."""
        return 0 if self._copier is None else self._copier.audio_streams_heard

    def encode(self, batch: HostBatch, behind: Checkpoint | None = None) -> None:
        """Encodes a batch, and writes the sound up to where the video has come.

        Args:
            batch: Frames.
            behind: Nothing here; see SegmentEncoder.

        Raises:
            EncoderRejected: The encoder gave up.
            av.error.FFmpegError: The file cannot be written.
        """
        batch.wait()
        with self._report.timer("write"):
            pacer = self._pacer or self._begin(batch)
            for i, time in enumerate(batch.pts):
                for shown in pacer.push(tuple(p[i] for p in batch.planes), time):
                    if self._stop.is_set():
                        return
                    self._show(shown)

    def finish(self) -> None:
        """Writes all that is left and closes the file.

        Raises:
            EncoderRejected: The encoder gave up.
            av.error.FFmpegError: The file cannot be written.
        """
        with self._report.timer("write"):
            if self._pacer is not None:
                for shown in self._pacer.finish():
                    if self._stop.is_set():
                        return
                    self._show(shown)
                self._latest = None
                self._encode(None)
                self._complete()
                self._pacer.report(self._report)
            if self._copier is not None:
                self._copier.copy_until(None, end=self._end)
            self._sink.close()
        self.finished = True

    def drop(self) -> None:
        """Lets go of what will not be finished: nothing here."""

    def _begin(self, batch: HostBatch) -> Pacer[_Planes]:
        """Sets all streams up: the first frame's time is known only now."""
        plan = self._plan_for(len(batch.planes) == 4)
        for line in plan.notes:
            self._report.note(line)
        for line in plan.warnings:
            self._report.warn(line)
        self._maker = FrameMaker(plan)
        self._plan, self._codec, self._time_base = plan, plan.codec, plan.time_base
        stream = self._sink.add_stream(plan.codec, rate=plan.rate)
        assert isinstance(stream, VideoStream)
        configure(stream.codec_context, plan)
        stream.disposition = Disposition.default
        self._video = self._coder = stream
        start = self._start
        if start is None:
            sound = None if self._copier is None else self._copier.start
            start = batch.pts[0] if sound is None else min(batch.pts[0], sound)
        if self._copier is not None:
            stream.metadata.update(self._copier.video_tags)
            self._copier.add_to(self._sink, start)
        options = " ".join(f"{key} {value}" for key, value in plan.options.items())
        chosen = " ".join(part for part in (plan.codec, options, plan.pixel_format) if part)
        self._report.facts["encoder"] = chosen
        self._report.note(f"encoder {chosen}")
        self._pacer = Pacer(
            start,
            plan.time_base,
            1 / plan.rate,
            rate=self._edit.rate,
            least=plan.least_ticks,
            end=self._edit.stop,
        )
        return self._pacer

    def _show(self, shown: Shown[_Planes]) -> None:
        """Encodes a frame with its place in the output."""
        # A frame that is shown again is not made again.
        if self._latest is None or self._latest[0] is not shown.frame:
            self._latest = shown.frame, self._maker.frame(shown.frame)
        frame = self._latest[1]
        frame.pts, frame.time_base = shown.tick, self._time_base
        frame.duration = shown.duration
        self._end = (shown.tick + shown.duration) * self._time_base
        self.frames += 1
        self._sent += 1
        self._encode(frame)
        self._report.count("frames_out")

    def _encode(self, frame: av.VideoFrame | None) -> None:
        try:
            packets = self._coder.encode(frame)
        except FFmpegError as error:
            raise EncoderRejected(f"{self._codec} gave up: {error.strerror}") from error
        for packet in packets:
            if frame is None and self._codec == "libx265" and self._sent <= _X265_DELAY:
                # They come in the order of display, with decoding times from uninitialised memory.
                packet.dts = packet.pts
            self._write(packet)

    def _complete(self) -> None:
        """What is still to be done for the picture when all frames are encoded: nothing here."""

    def _write(self, packet: Packet[VideoStream]) -> None:
        """Writes a packet, and the sound as far as it is decoded."""
        # Packets come out in decoding order.
        assert packet.dts is not None
        if self._copier is not None:
            self._copier.copy_until(packet.dts * self._time_base)
        self._sink.mux(packet)
