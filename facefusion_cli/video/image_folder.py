"""Clips out as images: one file a frame, in a folder that appears when all of them are written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self

from facefusion_cli.config import Config
from facefusion_cli.errors import EmptyVideo, EncodeError, IncompatibleContainer
from facefusion_cli.report import Report
from facefusion_cli.types import NO_EDIT, Edit, FrameBatch, VideoInfo
from facefusion_cli.video.atomic import output_errors
from facefusion_cli.video.atomic_folder import atomic_folder, check_folder
from facefusion_cli.video.frames import HostBatch, download
from facefusion_cli.video.image_encoder import ImageEncoder, rgb_batch
from facefusion_cli.video.image_names import ImagePattern, pattern_of, with_suffix
from facefusion_cli.video.pacing import Pacer
from facefusion_cli.video.suffixes import IMAGES
from facefusion_cli.video.writer_thread import WriterThread

_NUMBERED = "%06d"


def is_image_folder(out: Path | str) -> bool:
    """Whether an output is a folder of images.

    It is where the name is a pattern of images (frames/%05d.png), where it ends in a slash, or
    where a folder of that name exists. A Path has lost its slash: pass the text as the user gave
    it. Asked only of clips: an image's output is a file, whatever its name.
    """
    text = os.fspath(out)
    pattern = ImagePattern.parse(Path(text)) is not None
    if pattern and Path(text).suffix.lower() in IMAGES:
        return True
    separators = tuple(filter(None, (os.sep, os.altsep)))
    return text.endswith(separators) or os.path.isdir(text)


def check_image_folder(out: Path, inputs: Iterable[Path], overwrite: bool) -> None:
    """What check_output is for files, for a folder or a pattern of images.

    Args:
        out: See ImageFolderWriter.
        inputs: Every file, folder and pattern the run reads.
        overwrite: Whether images that are there may be replaced.

    Raises:
        IncompatibleContainer: The pattern's suffix is no image's.
        OutputFolderMissing, OutputNotWritable, SameFile, OutputExists: See check_folder.
    """
    folder, _, _ = _place(out)
    read = []
    for path in inputs:
        pattern = pattern_of(path)
        read.append(path if pattern is None else pattern.folder)
    check_folder(folder, read, overwrite)


def _place(out: Path) -> tuple[Path, ImagePattern | None, str]:
    """The folder, the pattern if there is one, and the suffix of the images."""
    pattern = ImagePattern.parse(out)
    if pattern is None or out.is_dir():
        return out, None, ".png"
    suffix = out.suffix.lower()
    if suffix not in IMAGES:
        hint = f"use {', '.join(IMAGES)}"
        what = f"unknown image format {suffix}" if suffix else "the images have no suffix"
        raise IncompatibleContainer(what, path=out, hint=hint)
    return pattern.folder, pattern, out.suffix


class ImageFolderWriter:
    """Writes a clip's frames as images into one atomic folder.

    Shaped as ClipWriter is: a context manager whose end publishes the folder, or discards it after
    an exception.

    PNG unless a pattern's suffix says JPEG or WebP. RGB of the full range, by the clip's own
    matrix; PNG holds deep clips with 16 bits a sample and both PNG and WebP keep alpha. Names are
    the pattern's, from 1; without one, those of the images the clip is made of, or 000001.png,
    000002.png, ... An image made from an image keeps its metadata and colour profile.

    Args:
        out: A folder (made here, empty, or with images in it that may be overwritten), or a pattern
            such as frames/%05d.jpg.
        info: The clip the frames are from.
        config: Its output table: overwrite, image_quality.
        report: Gets the time of the stages write and wait_write, the count frames_out, the kind of
            image as the fact "encoder", and all that images cannot hold.
        edit: A constant rate: frames are written again, or left out, for every tick of it.

    Raises:
        IncompatibleContainer: Not the suffix of an image, or a sound file was given.
        EncoderRejected: The images are too large for their format.
    """

    def __init__(
        self, out: Path, info: VideoInfo, config: Config, report: Report, edit: Edit = NO_EDIT
    ) -> None:
        self._out, self._info, self._config, self._report = out, info, config, report
        self._edit = edit
        self._folder, pattern, suffix = _place(out)
        self._encoder = ImageEncoder(IMAGES[suffix.lower()], info, config.output.image_quality, out)
        self._names = _Names(pattern, suffix, info, repeats=edit.rate not in {None, _rate(info)})
        if config.output.audio_file:
            hint = "leave --audio out"
            raise IncompatibleContainer("a folder of images holds no sound", path=out, hint=hint)
        self._thread: WriterThread[_Queued] = WriterThread(
            self._write, self._end, config.runtime.queue, report
        )
        self._pacer: Pacer[FrameBatch] | None = None
        self._written: dict[str, int] = {}
        self._latest: tuple[FrameBatch, bytes] | None = None
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        """Makes the folder beside its place and starts the thread.

        Raises:
            OutputNotWritable: The folder cannot be made.
            DiskFull: There is no space at all.
        """
        with ExitStack() as cleanup:
            self._partial = cleanup.enter_context(
                atomic_folder(self._folder, overwrite=self._config.output.overwrite)
            )
            for line in self._losses():
                self._report.warn(line)
            self._report.facts["encoder"] = self._encoder.name
            self._report.note(f"encoder {self._encoder.name}")
            cleanup.callback(self._thread.halt)
            self._thread.start()
            self._cleanup = cleanup.pop_all()
        return self

    def write(self, batch: FrameBatch) -> None:
        """Queues a batch; blocks while the queue is full.

        The batch belongs to the writer from here on: its planes must not be written to any more.

        Args:
            batch: Frames of the clip's size and layout, on a CPU or a GPU, in order.

        Raises:
            DiskFull: And other errors of writing, as soon as the thread has met them.
        """
        size, clip = (batch.width, batch.height), (self._info.width, self._info.height)
        if size != clip or batch.layout != self._info.layout:
            raise ValueError(f"{batch} does not fit a clip of {clip} and {self._info.layout}")
        if batch.planes[0].device.type != "cpu":
            batch = rgb_batch(batch, self._encoder.bits)
        self._thread.put(_Queued.of(batch))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finishes and renames, or discards when an exception is on its way.

        Raises:
            EncodeError: The written files are not as they were sent.
            EmptyVideo: No frame was written.
        """
        try:
            if error is None:
                self._finish()
        except BaseException as failure:
            self._cleanup.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._cleanup.__exit__(kind, error, trace)

    def _losses(self) -> list[str]:
        """What of this clip images cannot hold, a warning each."""
        info, path = self._info, self._info.path
        beside = ["sound"] if info.audio and self._config.output.audio else []
        beside += ["subtitles"] if info.subtitles else []
        beside += ["chapters"] if info.chapters else []
        lines = []
        if beside:
            lines.append(f"dropped: {', '.join(beside)}; images hold none: {path}")
        if "vfr" in info.hazards and self._edit.rate is None:
            lines.append(
                f"the frames' times are lost: images have none, and this clip's frame rate varies "
                f"(--fps {float(info.frame_rate):g} makes it constant): {path}"
            )
        return lines + self._encoder.losses()

    def _write(self, item: _Queued) -> None:
        """A batch, on the thread."""
        with self._report.timer("write"):
            for frame in item.frames():
                if self._thread.stop.is_set():
                    return
                self._push(frame)

    def _end(self) -> None:
        if self._pacer is not None:
            with self._report.timer("write"):
                for shown in self._pacer.finish():
                    self._show(shown.frame)
                self._pacer.report(self._report)

    def _push(self, frame: FrameBatch) -> None:
        """Writes a frame or, at a constant rate, those that are certain by now."""
        rate = self._edit.rate
        if rate is None:
            self._show(frame)
            return
        if self._pacer is None:
            usual, end = 1 / self._info.frame_rate, self._edit.stop
            self._pacer = Pacer(frame.pts[0], 1 / rate, usual, rate=rate, end=end)
        for shown in self._pacer.push(frame, frame.pts[0]):
            self._show(shown.frame)

    def _show(self, frame: FrameBatch) -> None:
        if self._latest is None or self._latest[0] is not frame:
            source = _source(self._info, frame.pts[0])
            self._latest = frame, self._encoder.encode(frame, source)
        name, data = self._names.next(frame.pts[0]), self._latest[1]
        with output_errors(self._out):
            (self._partial / name).write_bytes(data)
        self._written[name] = len(data)
        self._report.count("frames_out")

    def _finish(self) -> None:
        self._thread.finish()
        if not self._written:
            raise EmptyVideo("no frame was written", path=self._info.path)
        with self._report.timer("verify"), output_errors(self._out):
            for name, size in self._written.items():
                if (self._partial / name).stat().st_size != size:
                    hint = "nothing was kept; the disk is at fault"
                    what = f"the written image is not sound: {name}"
                    raise EncodeError(what, path=self._out, hint=hint)


@dataclass(frozen=True, slots=True)
class _Queued:
    """A batch in the host's memory, or on its way there."""

    host: HostBatch
    batch: FrameBatch
    """Its planes are the host's."""

    @classmethod
    def of(cls, batch: FrameBatch) -> _Queued:
        """Begins the way of a batch from its device."""
        host = download(batch)
        y, u, v, *alpha = host.planes
        return cls(host, replace(batch, planes=(y, u, v), alpha=alpha[0] if alpha else None))

    def frames(self) -> Iterator[FrameBatch]:
        """Batches of one frame each, once they are there."""
        self.host.wait()
        batch = self.batch
        for i, pts in enumerate(batch.pts):
            y, u, v = (plane[i : i + 1] for plane in batch.planes)
            alpha = None if batch.alpha is None else batch.alpha[i : i + 1]
            first = batch.first_index + i
            yield replace(batch, planes=(y, u, v), alpha=alpha, pts=(pts,), first_index=first)


class _Names:
    """The names of the images, in order."""

    def __init__(
        self, pattern: ImagePattern | None, suffix: str, info: VideoInfo, *, repeats: bool
    ) -> None:
        self._info, self._count = info, 0
        numbered = ImagePattern.parse(Path(f"{_NUMBERED}{suffix}"))
        assert numbered is not None
        self._pattern = pattern or numbered
        self._own: list[str] = []
        if pattern is None and not repeats:
            own = with_suffix(info.images, suffix)
            # Two images may differ by their suffix only, or on some disks by capitals.
            if len({name.casefold() for name in own}) == len(own):
                self._own = own

    def next(self, pts: Fraction) -> str:
        """The name of the next image; pts is its frame's time."""
        self._count += 1
        number = _number(self._info, pts)
        if self._own and number is not None:
            return self._own[number]
        return self._pattern.path(self._count).name


def _rate(info: VideoInfo) -> Fraction | None:
    """The rate at which images stand that the clip is made of."""
    return info.frame_rate if info.images else None


def _number(info: VideoInfo, pts: Fraction) -> int | None:
    """Which of the images a clip is made of stands at a time."""
    number = pts * info.frame_rate
    there = number.denominator == 1 and 0 <= number < len(info.images)
    return int(number) if there else None


def _source(info: VideoInfo, pts: Fraction) -> Path | None:
    number = _number(info, pts)
    return None if number is None else info.images[number]
