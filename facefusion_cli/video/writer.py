"""Clips out: an encoder in its own thread, fed by a bounded queue of batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self

import av
from av.container import OutputContainer
from av.error import FFmpegError

from facefusion_cli.config import Config
from facefusion_cli.errors import DiskFull, EmptyVideo, EncodeError, FfxError
from facefusion_cli.report import Report
from facefusion_cli.types import NO_EDIT, Edit, FrameBatch, VideoInfo
from facefusion_cli.video.atomic import as_output_error, atomic_output
from facefusion_cli.video.encode_thread import ClipEncoder
from facefusion_cli.video.encoder_trial import try_encoder
from facefusion_cli.video.encoders import EncodingPlan, plan_encoding
from facefusion_cli.video.frames import HostBatch, download
from facefusion_cli.video.remux import StreamCopier
from facefusion_cli.video.segment_encoder import SegmentEncoder
from facefusion_cli.video.segments import Checkpoint, SegmentStore
from facefusion_cli.video.writer_thread import WriterThread

_MUXER_OPTIONS = {
    # The index first, so that players may start before they have the whole file; and ticks fine
    # enough that a late start of sound or picture is not rounded to milliseconds.
    "mp4": {"movflags": "+faststart", "movie_timescale": "90000"},
    "mov": {"movflags": "+faststart", "movie_timescale": "90000"},
    "matroska": {},
    "webm": {},
    "gif": {"loop": "0"},
}
_SLACK = Fraction(1, 100)

_Item = tuple[HostBatch, Checkpoint | None]
"""A batch, and where a part ends with it, what is kept beside the part."""


class ClipWriter:
    """Writes a clip's frames, with its sound and the rest of its streams, as one atomic output.

    Use as a context manager: leaving the block normally finishes, verifies and renames the output;
    leaving it by an exception discards everything. After either no thread and no partial is left.

    Args:
        out: The output; its suffix picks the container.
        info: The clip the frames are from.
        config: Encoder settings and the queue's depth.
        report: Gets the time of the stages write and wait_write, the count frames_out, the encoder
            as a fact, and every conversion and loss.
        edit: The window the sound is cut to, and the constant rate of the output, if any.
        store: Where the parts are kept that the clip is encoded in; None encodes it in one.

    Raises:
        IncompatibleContainer: The container cannot hold what the encoder makes.
        UnsupportedVideo: No pixel format holds the planes.
        EncoderUnavailable: The encoder is not in this FFmpeg.
        EncoderRejected: It refuses size, format or options.
    """

    def __init__(
        self,
        out: Path,
        info: VideoInfo,
        config: Config,
        report: Report,
        edit: Edit = NO_EDIT,
        store: SegmentStore | None = None,
    ) -> None:
        self._store = store
        self._part_begins: Fraction | None = None
        self._out, self._info, self._config, self._report = out, info, config, report
        self._edit = edit
        plan = self._plan("alpha" in info.hazards)
        self._container = plan.container
        try_encoder(plan, out)
        self._thread: WriterThread[_Item] = WriterThread(
            lambda item: self._encoder.encode(*item),
            lambda: self._encoder.finish(),
            config.runtime.queue,
            report,
            self._translated,
        )
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        """Opens the output and starts the encoder's thread.

        Raises:
            OutputNotWritable: The folder takes no file.
            DiskFull: There is no space at all.
        """
        with ExitStack() as cleanup:
            output = self._config.output
            self._partial = cleanup.enter_context(
                atomic_output(self._out, overwrite=output.overwrite)
            )
            copier = self._copier()
            if copier is not None:
                cleanup.callback(copier.close)
            sink = self._open()
            cleanup.callback(self._drop, sink)
            self._encoder = self._make_encoder(sink, copier)
            cleanup.callback(self._thread.halt)
            self._thread.start()
            self._cleanup = cleanup.pop_all()
        return self

    def write(self, batch: FrameBatch, checkpoint: Callable[[], Checkpoint] | None = None) -> None:
        """Queues a batch; blocks while the queue is full.

        The batch belongs to the writer from here on: its planes must not be written to any more.

        Args:
            batch: Frames of the clip's size and layout, on a CPU or a GPU, in order.
            checkpoint: Asked, where a part ends with this batch, for what must be known behind it.

        Raises:
            DiskFull: And the encoder's other errors, as soon as its thread has met them.
        """
        size, clip = (batch.width, batch.height), (self._info.width, self._info.height)
        if size != clip or batch.layout != self._info.layout:
            raise ValueError(f"{batch} does not fit a clip of {clip} and {self._info.layout}")
        behind = checkpoint() if checkpoint is not None and self._ends_part(batch) else None
        self._thread.put((download(batch), behind))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finishes and renames, or discards when an exception is on its way.

        Raises:
            EncodeError: The written file does not hold what was sent.
            EmptyVideo: No frame was written.
        """
        try:
            if error is None:
                self._finish()
        except BaseException as failure:
            self._cleanup.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._cleanup.__exit__(kind, error, trace)
        if error is None and self._store is not None:
            self._store.remove()

    def _ends_part(self, batch: FrameBatch) -> bool:
        """Whether the part is long enough with this batch; the same in every run of a clip."""
        if self._store is None:
            return False
        if self._part_begins is None:
            self._part_begins = batch.pts[0]
        if batch.pts[-1] - self._part_begins < self._config.output.segment:
            return False
        self._part_begins = None
        return True

    def _make_encoder(self, sink: OutputContainer, copier: StreamCopier | None) -> ClipEncoder:
        if self._store is None:
            return ClipEncoder(
                sink, self._plan, self._report, self._thread.stop, copier=copier, edit=self._edit
            )
        return SegmentEncoder(
            sink,
            self._plan,
            self._report,
            self._thread.stop,
            copier=copier,
            edit=self._edit,
            store=self._store,
        )

    def _plan(self, alpha: bool) -> EncodingPlan:
        output, rate = self._config.output, self._edit.rate
        return plan_encoding(self._out, self._info, output, alpha=alpha, rate=rate)

    def _copier(self) -> StreamCopier | None:
        """What carries the clip's other streams; a clip made of images has none."""
        output, source = self._config.output, None if self._info.images else self._info.path
        if source is None and not output.audio_file:
            return None
        return StreamCopier(
            source,
            self._container,
            self._report,
            audio=output.audio,
            audio_file=Path(output.audio_file) if output.audio_file else None,
            window=self._edit.window,
        )

    def _open(self) -> OutputContainer:
        options = dict(_MUXER_OPTIONS[self._container])
        if self._container == "gif" and self._info.tags.get("loop", "").isdecimal():
            options["loop"] = self._info.tags["loop"]
        try:
            # Absolute: FFmpeg would take what stands before a colon for a protocol.
            path = str(self._partial.absolute())
            return av.open(path, "w", self._container, container_options=options)
        except FFmpegError as error:
            raise _as_write_error(error, self._out) from error

    def _translated(self, error: BaseException) -> BaseException:
        told = error
        if isinstance(error, FFmpegError):
            told = _as_write_error(error, self._out)
        elif isinstance(error, OSError):  # of the parts on the disk
            told = as_output_error(error, self._out)
        if isinstance(told, DiskFull) and self._store is not None and self._store.segments:
            told.hint = "free some space and run it again; the finished segments are kept"
        return told

    def _finish(self) -> None:
        self._thread.finish()
        if self._encoder.frames == 0:
            raise EmptyVideo("no frame was written", path=self._info.path)
        with self._report.timer("verify"):
            self._verify()

    def _drop(self, sink: OutputContainer) -> None:
        """Closes an output that shall not be kept."""
        if self._encoder.finished:
            return
        self._encoder.drop()
        # Closing writes the index, and moves all data to put it first: not of a file that is gone.
        self._partial.unlink(missing_ok=True)
        with suppress(FFmpegError):
            sink.close()

    def _verify(self) -> None:
        """Reads the finished file's packets back.

        Raises:
            EncodeError: Frames or sound are missing, or the times are not those that were sent.
        """
        encoder = self._encoder
        try:
            with av.open(str(self._partial.absolute())) as file:
                video, sound = file.streams.video[0], len(file.streams.audio)
                times = [p.pts for p in file.demux(video) if p.size and p.pts is not None]
                assert video.time_base is not None
                span = (max(times) - min(times)) * video.time_base if times else Fraction(0)
                kept = {name.lower() for name in file.metadata}
        except FileNotFoundError as error:
            raise as_output_error(error, self._out) from error
        except (FFmpegError, IndexError) as error:
            raise self._unsound(f"it cannot be read back ({error})") from error
        if len(times) != encoder.frames:
            raise self._unsound(f"{len(times)} frames instead of {encoder.frames}")
        if abs(span - encoder.span) > _SLACK:
            raise self._unsound(f"{float(span):.3f} s instead of {float(encoder.span):.3f} s")
        silent = encoder.audio_streams - encoder.audio_streams_heard
        if not encoder.audio_streams_heard <= sound <= encoder.audio_streams:
            raise self._unsound(f"{sound} audio streams instead of {encoder.audio_streams}")
        if silent:
            what = "1 audio stream has" if silent == 1 else f"{silent} audio streams have"
            self._report.warn(f"{what} no sound in this part of the clip: {self._info.path}")
        lost = sorted(name for name in encoder.tags if name.lower() not in kept)
        if lost:
            self._report.warn(f"dropped: tags {', '.join(lost)}; {self._container} has no such")

    def _unsound(self, what: str) -> EncodeError:
        hint = "nothing was kept; the disk or the encoder is at fault"
        return EncodeError(f"the written file is not sound: {what}", path=self._out, hint=hint)


def _as_write_error(error: FFmpegError, out: Path) -> FfxError:
    """What FFmpeg's error while writing means: the system's, or the muxer's."""
    if isinstance(error, OSError):
        return as_output_error(error, out)
    return EncodeError(f"the output cannot be written ({error.strerror})", path=out)
