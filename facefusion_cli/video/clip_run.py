"""A clip on its way through: opened, cut, converted for the stages, and written again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from torch import Tensor

from facefusion_cli.config import Config, OutputConfig
from facefusion_cli.device import Device, batch_size
from facefusion_cli.errors import CorruptInput, EmptyVideo, FfxError, UsageError
from facefusion_cli.planes import upload
from facefusion_cli.report import Report
from facefusion_cli.tonemap import ToneMap
from facefusion_cli.types import BgrBatch, FrameBatch, Window
from facefusion_cli.video.atomic import check_output
from facefusion_cli.video.completeness import CountedReader
from facefusion_cli.video.edit import at_own_rate, plan_edit
from facefusion_cli.video.image_folder import (
    ImageFolderWriter,
    check_image_folder,
    is_image_folder,
)
from facefusion_cli.video.image_sequence import ImageSequenceReader
from facefusion_cli.video.opencv_writer import OpencvWriter
from facefusion_cli.video.prefetch import prefetch
from facefusion_cli.video.rate import keep_shown
from facefusion_cli.video.reader import Reader, open_reader
from facefusion_cli.video.scale import scale_frames
from facefusion_cli.video.segments import Checkpoint, Segment, SegmentStore, run_key
from facefusion_cli.video.target import probe_target
from facefusion_cli.video.writer import ClipWriter

State = Callable[[], Mapping[str, Tensor]]

_NOT_IN_THE_KEY = {
    "output": {"overwrite", "lenient", "resume", "image_quality"},
    "runtime": {"threads", "queue", "stall"},
}
"""Settings that change nothing of what a part holds."""


def check_clip_output(out: Path | str, inputs: Sequence[Path], output: OutputConfig) -> None:
    """Refuses an output that cannot or must not be written; to be called before any work.

    Args:
        out: A file, or a folder or pattern of images.
        inputs: What the run reads.
        output: Settings.

    Raises:
        UsageError, EncodeError: As check_output and check_image_folder say.
    """
    read = [*inputs, *([Path(output.audio_file)] if output.audio_file else [])]
    if is_image_folder(out):
        check_image_folder(Path(out), read, output.overwrite)
    else:
        check_output(Path(out), read, overwrite=output.overwrite)


class Writer(Protocol):
    """Where frames go; a context manager that publishes the output or discards it."""

    def write(self, batch: FrameBatch) -> None:
        """Takes a batch; see ClipWriter."""
        ...

    def __enter__(self) -> Self:
        """Itself."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finishes the output, or discards it after an exception."""
        ...


class ClipRun:
    """Everything round the frames of one clip; a context manager.

    Leaving the block normally finishes the output; leaving it by an exception discards it.

    Args:
        target: A clip: a file, a folder of images or a pattern of them.
        out: The output; text that ends in a slash is a folder of images.
        sources: The photos, for --resume.
        config: Every setting.
        report: Told of everything.
        device: Where the frames shall be.

    Raises:
        FfxError: The clip, an option or the output cannot be.
    """

    def __init__(
        self,
        target: Path,
        out: Path | str,
        sources: Sequence[Path],
        config: Config,
        report: Report,
        device: Device,
    ) -> None:
        self._out, self._config, self._report = Path(out), config, report
        self._as_images = is_image_folder(out)
        self._sources, self._device = sources, device
        self.info = at_own_rate(probe_target(target), config.output)
        """The clip as it is."""
        self._tone_map = self._tone_mapping()
        graded = self._tone_map.info if self._tone_map else self.info
        self.edit, self.shown = plan_edit(graded, config.output, report)
        self._loss: FfxError | None = None
        self._earlier: Segment | None = None
        self._counted = False
        self._batches: prefetch[FrameBatch | BgrBatch] | None = None
        self._stack = ExitStack()

    @property
    def total(self) -> int | None:
        """Frames to come, where that is known."""
        return self.shown.frame_count_from_header

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._store = self._segments()
            if self._store is not None:
                stack.enter_context(self._store)
                self._earlier = self._store.segments[-1] if self._store.segments else None
            self._reader = self._open_reader().__enter__()
            stack.push(self._leave_reader)
            self._writer = stack.enter_context(self._open_writer())
            self._batches = stack.enter_context(self._read_ahead())
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def state(self) -> Mapping[str, Tensor]:
        """What the stages remembered where an earlier run stopped; empty at the beginning."""
        return {} if self._store is None else self._store.state()

    def frames(self) -> Iterator[FrameBatch]:
        """The clip's frames on the device, of the output's size, read ahead by a thread.

        Raises:
            DecodeError: The decoder stalls, or no frame could be decoded.
        """
        assert self._batches is not None
        for batch in self._batches:
            frames = upload(batch, self._device.torch)
            if self._tone_map is not None:
                frames = self._tone_map(frames)
            if self.edit.size is not None:
                frames = scale_frames(frames, self.edit.size)
            self._report.count("frames_in", len(frames))
            yield frames
        self._count_earlier()
        self._loss = self._reader.check_complete()
        if self._reader.frames_decoded == 0:
            hint = "try --decoder pyav"
            nothing = EmptyVideo("no frame could be decoded", path=self.info.path, hint=hint)
            raise self._loss or nothing

    def write(self, frames: FrameBatch, state: State) -> None:
        """Gives frames to the writer, to whom they belong from here on.

        Args:
            frames: A batch of frames(), swapped.
            state: Asked what the stages remember behind it.
        """

        def behind() -> Checkpoint:
            counts = {k: v for k, v in self._report.counts.items() if not k.startswith("frames_")}
            return Checkpoint(state(), counts, self._lost_before + self._reader.decode_failures)

        if isinstance(self._writer, ClipWriter):
            self._writer.write(frames, behind)
        else:
            self._writer.write(frames)

    def settle(self) -> None:
        """Behind the block: the output is kept, and now what it lacks is said.

        Raises:
            DecodeError: Frames were lost, and that is not accepted.
        """
        earlier = 0 if self._counted else self._lost_before
        self._report.counts["frames_lost"] = self._reader.frames_lost + earlier
        loss = self._loss
        if loss is None and earlier:
            loss = CorruptInput(
                f"the video is damaged: {earlier} frames could not be decoded",
                path=self.info.path,
                hint="--lenient accepts it",
            )
        if loss is None:
            return
        if not self._config.output.lenient:
            raise loss
        self._report.warn(str(loss))

    def _count_earlier(self) -> None:
        """Lets the frames of an earlier run count for what is missing of the whole clip."""
        reader, earlier, store = self._reader, self._earlier, self._store
        if earlier is None or store is None or not isinstance(reader, CountedReader):
            return
        if self.edit.rate is not None or self.info.images:
            return  # what was written are not the frames that were read
        tick = self.info.time_base
        done = store.times()[: sum(s.frames for s in store.segments[: earlier.number + 1])]
        times = [round(time / tick) * tick for time in done]
        reader.count_earlier(times, earlier.lost, self.edit.window)
        self._counted = True

    def _tone_mapping(self) -> ToneMap | None:
        operator = self._config.output.tonemap
        if operator == "none":
            return None
        if "hdr" not in self.info.hazards:
            self._report.note(f"--tonemap changes nothing: this clip is not HDR: {self.info.path}")
            return None
        mapping = ToneMap(self.info, operator)
        self._report.note(f"HDR becomes SDR by {operator}, {mapping.peak:g} cd/m2 at the peak")
        return mapping

    def _open_reader(self) -> Reader:
        window = self.edit.window
        if self._earlier is not None:
            window = Window(Fraction(self._earlier.following), window.end)
            done = sum(segment.frames for segment in self._store.segments) if self._store else 0
            self._report.note(f"{done} frames of an earlier run are kept; going on behind them")
            for name, count in self._earlier.counts.items():
                self._report.count(name, count)
        pin = self._device.is_cuda
        if self.info.images:
            return ImageSequenceReader(
                self.info,
                self._report,
                pin_memory=pin,
                window=window,
                srgb=not self._as_images,
            )
        decoder = self._config.runtime.decoder
        return open_reader(self.info, decoder, self._report, pin_memory=pin, window=window)

    def _open_writer(self) -> Writer:
        output = self._config.output
        if self._as_images:
            return ImageFolderWriter(self._out, self.shown, self._config, self._report, self.edit)
        if output.writer == "opencv":
            return OpencvWriter(self._out, self.shown, self._config, self._report, self.edit)
        return ClipWriter(self._out, self.shown, self._config, self._report, self.edit, self._store)

    def _segments(self) -> SegmentStore | None:
        output = self._config.output
        if not output.resume:
            return None
        gif = self._out.suffix.lower() == ".gif"
        if gif or output.writer == "opencv" or self._as_images:
            what = "a GIF" if gif else "a folder of images" if output.writer == "pyav" else "OpenCV"
            raise UsageError(
                f"--resume does not work with {what}", hint="leave it out, or write a video"
            )
        settings: dict[str, Any] = {
            table: {k: v for k, v in values.items() if k not in _NOT_IN_THE_KEY.get(table, ())}
            for table, values in self._config.as_dict().items()
        }
        settings["device"] = str(self._device.torch)
        settings["versions"] = dict(self._report.versions)
        key = run_key(self.info.path, self._sources, settings)
        return SegmentStore(self._out, key, self._report)

    def _read_ahead(self) -> prefetch[FrameBatch | BgrBatch]:
        runtime = self._config.runtime
        raw: Iterator[FrameBatch | BgrBatch]
        raw = iter(self._reader.batches(batch_size(runtime, self._device)))
        if self.edit.rate is not None:
            origin = self._earlier.origin if self._earlier else None
            raw = keep_shown(raw, self.edit.rate, None if origin is None else Fraction(origin))
        return prefetch(
            raw,
            runtime.queue,
            self._report,
            stall=runtime.stall,
            progress=lambda: self._reader.progress,
            path=self.info.path,
        )

    def _leave_reader(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the file, unless a thread hangs inside its decoder."""
        if self._batches is None or not self._batches.abandoned:
            self._reader.__exit__(kind, error, trace)

    @property
    def _lost_before(self) -> int:
        """Frames that an earlier run lost, of which the output is made too."""
        return self._earlier.lost if self._earlier else 0
