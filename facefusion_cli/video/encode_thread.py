"""What the writer's thread does: frames in, packets of all streams out, in order of time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from fractions import Fraction

import av
from av.container import OutputContainer
from av.error import FFmpegError
from av.stream import Disposition
from av.video.stream import VideoStream

from facefusion_cli.errors import EncoderRejected
from facefusion_cli.report import Report
from facefusion_cli.video.encoders import EncodingPlan, configure
from facefusion_cli.video.frames import FrameMaker, HostBatch
from facefusion_cli.video.remux import StreamCopier


class ClipEncoder:
    """Encodes one clip into an open container; used by one thread.

    Args:
        sink: The output, without any stream yet.
        copier: The clip's other streams.
        plan: Says how frames without or with alpha are encoded.
        report: See ClipWriter.
        stop: Set when the output is not wanted any more.
    """

    def __init__(
        self,
        sink: OutputContainer,
        copier: StreamCopier,
        plan: Callable[[bool], EncodingPlan],
        report: Report,
        stop: threading.Event,
    ) -> None:
        self._sink, self._copier, self._plan_for = sink, copier, plan
        self._report, self._stop = report, stop
        self.frames = 0
        """Frames sent to the encoder."""
        self.finished = False
        """The file is complete and closed."""
        self._first: int | None = None
        self._last = 0
        self._pending: av.VideoFrame | None = None
        self._bumped = 0

    @property
    def span(self) -> Fraction:
        """Seconds from the first frame's time to the last's."""
        return (self._last - (self._first or 0)) * self._time_base

    @property
    def tags(self) -> dict[str, str]:
        """The tags the file should have."""
        return self._copier.tags

    @property
    def audio_streams(self) -> int:
        """How many audio streams the file has."""
        return self._copier.audio_streams

    def encode(self, batch: HostBatch) -> None:
        """Encodes a batch, and writes the sound up to where the video has come.

        Raises:
            EncoderRejected: The encoder gave up.
            av.error.FFmpegError: The file cannot be written.
        """
        batch.wait()
        with self._report.timer("write"):
            if self._first is None:
                self._begin(batch)
            for i, time in enumerate(batch.pts):
                if self._stop.is_set():
                    return
                self._send(self._maker.frame(tuple(p[i] for p in batch.planes)), time)
        self._report.count("frames_out", len(batch.pts))

    def finish(self) -> None:
        """Writes all that is left and closes the file.

        Raises:
            EncoderRejected: The encoder gave up.
            av.error.FFmpegError: The file cannot be written.
        """
        with self._report.timer("write"):
            if self._pending is not None:
                self._encode(self._pending)
                self._pending = None
                self._encode(None)
            self._copier.copy_until(None)
            self._sink.close()
        self.finished = True
        if self._bumped:
            self._report.warn(
                f"{self._bumped} timestamps did not grow and were moved behind the one before"
            )

    def _begin(self, batch: HostBatch) -> None:
        """Sets all streams up: the first frame's time is known only now."""
        plan = self._plan_for(len(batch.planes) == 4)
        for line in plan.notes:
            self._report.note(line)
        for line in plan.warnings:
            self._report.warn(line)
        self._maker = FrameMaker(plan)
        self._codec, self._time_base = plan.codec, plan.time_base
        stream = self._sink.add_stream(plan.codec, rate=plan.rate)
        assert isinstance(stream, VideoStream)
        configure(stream.codec_context, plan)
        stream.metadata.update(self._copier.video_tags)
        stream.disposition = Disposition.default
        self._video = stream
        sound = self._copier.start
        self._start = batch.pts[0] if sound is None else min(batch.pts[0], sound)
        self._copier.add_to(self._sink, self._start)
        self._step = max(round(1 / plan.rate / plan.time_base), 1)
        options = " ".join(f"{key} {value}" for key, value in plan.options.items())
        chosen = f"{plan.codec} {options} {plan.pixel_format}"
        self._report.facts["encoder"] = chosen
        self._report.note(f"encoder {chosen}")

    def _send(self, frame: av.VideoFrame, time: Fraction) -> None:
        tick = round((time - self._start) / self._time_base)
        if self._first is None:
            self._first = tick
        elif tick <= self._last:
            tick = self._last + 1
            self._bumped += 1
        frame.pts, frame.time_base = tick, self._time_base
        # A frame's duration is known when the next one comes; the last one has the last but one's.
        if self._pending is not None:
            self._step = tick - self._last
            self._pending.duration = self._step
            self._encode(self._pending)
        frame.duration = self._step
        self._pending, self._last = frame, tick
        self.frames += 1

    def _encode(self, frame: av.VideoFrame | None) -> None:
        try:
            packets = self._video.encode(frame)
        except FFmpegError as error:
            raise EncoderRejected(f"{self._codec} gave up: {error.strerror}") from error
        for packet in packets:
            # Packets come out in decoding order: the sound goes as far as this one is decoded.
            assert packet.dts is not None
            self._copier.copy_until(packet.dts * self._time_base)
            self._sink.mux(packet)
