"""Runs whose parts fail: the right error soon, no thread, no temporary, nothing of the old output
touched; and memory that does not grow with the clip."""

from __future__ import annotations

import errno
import json
import math
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from av.error import OSError as AvOSError

from facefusion_cli.config import Config, load_config
from facefusion_cli.errors import (
    CorruptInput,
    DecodeError,
    DiskFull,
    EncodeError,
    EncoderRejected,
    Interrupted,
    OutputNotWritable,
)
from facefusion_cli.pipeline import ClipSwapper, swap
from facefusion_cli.report import Report
from facefusion_cli.video import encode_thread
from facefusion_cli.video.buffers import BufferPool
from facefusion_cli.video.frame_decoder import FrameDecoder
from facefusion_cli.video.image_encoder import ImageEncoder
from facefusion_cli.video.opencv_reader import OpencvReader
from facefusion_cli.video.opencv_writer import OpencvWriter
from facefusion_cli.video.segments import segments_folder
from tests.clips import frame_of, make_clip
from tests.video.test_atomic import mounted

FRAMES = 60
SIZE = (160, 120)
BATCH = 4
LIMIT = 10.0
"""Seconds that a failing run may take, on a machine however busy; they take less than 2."""
BEFORE = b"what was there before"
CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Kind:
    """A kind of output."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    def put(self, folder: Path) -> Path | str:
        """An output of this kind that is there already."""
        out = folder / self.name
        if self.name.endswith("/"):
            out.mkdir()
            (out / "old.png").write_bytes(BEFORE)
            return f"{out}/"
        out.write_bytes(BEFORE)
        return out


KINDS = {
    "mp4": Kind("out.mp4"),
    "mkv": Kind("out.mkv", {"encoder": "ffv1"}),
    "gif": Kind("out.gif"),
    "folder": Kind("frames/"),
    "opencv": Kind("out.avi", {"writer": "opencv", "encoder": "mjpg"}),
}


def config(decoder: str = "pyav", stall: float = 60.0, **output: Any) -> Config:
    if output.get("encoder") != "ffv1" and output.get("writer") != "opencv":
        output.setdefault("preset", "ultrafast")
    return load_config(
        flags={
            "output": {"overwrite": True, **output},
            "generator": {"name": "none"},
            "runtime": {"device": "cpu", "batch": BATCH, "decoder": decoder, "stall": stall},
        }
    )


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FRAMES frames of noise with a tone: every encoder needs about 20 kB for a frame."""
    return noise_clip(tmp_path_factory.mktemp("resources") / "noise.mp4")


def noise_clip(path: Path) -> Path:
    random = np.random.default_rng(0)
    w, h = SIZE
    with av.open(path, "w") as sink:
        stream = sink.add_stream("libx264", rate=25, options={"preset": "ultrafast", "crf": "5"})
        stream.width, stream.height, stream.pix_fmt = w, h, "yuv420p"
        grey = np.full((h // 2, w // 2), 128, np.uint8)
        for i in range(FRAMES):
            noise = random.integers(16, 236, (h, w), np.uint8)
            frame = frame_of("yuv420p", SIZE, [noise, grey, grey])
            frame.pts = i
            sink.mux(stream.encode(frame))
        sink.mux(stream.encode(None))
    return path


def everything(folder: Path) -> dict[str, bytes]:
    """All files of a folder with their contents."""
    files = (p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def fails(
    error: type[BaseException],
    target: Path,
    folder: Path,
    kind: Kind,
    *,
    match: str | None = None,
    **settings: Any,
) -> BaseException:
    """Runs, and checks what holds for every failure."""
    out = kind.put(folder)
    before, threads = everything(folder), set(threading.enumerate())
    begin = time.perf_counter()
    with pytest.raises(error, match=match) as caught:
        swap(Path("none.jpg"), target, out, config(**kind.settings, **settings), Report())
    seconds = time.perf_counter() - begin
    print(f"{seconds:.2f} s")
    assert seconds < LIMIT
    assert set(threading.enumerate()) <= threads
    assert type(caught.value) is error
    if folder.exists():
        assert everything(folder) == before
    return caught.value


def at_batch(monkeypatch: pytest.MonkeyPatch, number: int, do: Callable[[], None]) -> None:
    """Does something in the consumer's thread where a batch is swapped."""
    done = 0

    def swap_batch(self: ClipSwapper, frames: Any) -> None:
        nonlocal done
        done += 1
        if done == number:
            do()

    monkeypatch.setattr(ClipSwapper, "swap", swap_batch)


def raising(error: BaseException) -> Callable[[], None]:
    def do() -> None:
        raise error

    return do


class Failing:
    """An encoder that gives up at a frame."""

    def __init__(self, coder: Any, error: BaseException) -> None:
        self._coder, self._error, self._frames = coder, error, 0

    def encode(self, frame: Any) -> Any:
        self._frames += 1
        if self._frames == FRAMES // 2:
            raise self._error
        return self._coder.encode(frame)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coder, name)


def break_encoders(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    begin, encode, show = (
        encode_thread.ClipEncoder._begin,
        ImageEncoder.encode,
        OpencvWriter._show,
    )
    images = 0

    def begin_failing(self: Any, batch: Any) -> Any:
        pacer = begin(self, batch)
        self._coder = Failing(self._coder, error)
        return pacer

    def encode_failing(self: Any, frames: Any, source: Any) -> bytes:
        nonlocal images
        images += 1
        if images == FRAMES // 2:
            raise error
        return encode(self, frames, source)

    def show_failing(self: Any, shown: Any) -> None:
        # OpenCV says nothing when it cannot write a frame.
        if self._frames < FRAMES // 2:
            show(self, shown)
        else:
            self._frames += 1

    monkeypatch.setattr(encode_thread.ClipEncoder, "_begin", begin_failing)
    monkeypatch.setattr(ImageEncoder, "encode", encode_failing)
    monkeypatch.setattr(OpencvWriter, "_show", show_failing)


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_that_gives_up(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    expected: type[EncodeError] = EncodeError if kind == "opencv" else EncoderRejected
    raised = EncoderRejected("no") if kind == "folder" else av.error.ExternalError(1, "broken")
    break_encoders(monkeypatch, raised)
    error = fails(expected, target, tmp_path, KINDS[kind])
    assert isinstance(error, EncodeError)
    assert error.exit_code == 5


@pytest.mark.parametrize("kind", ["mp4", "folder"])
def test_an_encoder_without_memory(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    break_encoders(monkeypatch, MemoryError("in the encoder"))
    fails(MemoryError, target, tmp_path, KINDS[kind], match="in the encoder")


@pytest.mark.parametrize("batch", [1, 7, FRAMES // BATCH])
@pytest.mark.parametrize(
    "make",
    [RuntimeError, MemoryError, KeyboardInterrupt, lambda: Interrupted(15)],
    ids=["RuntimeError", "MemoryError", "KeyboardInterrupt", "Interrupted"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_that_raises(
    tmp_path: Path,
    target: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    make: Callable[[], BaseException],
    batch: int,
) -> None:
    error = make()
    at_batch(monkeypatch, batch, raising(error))
    assert fails(type(error), target, tmp_path, KINDS[kind]) is error


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_cannot_be_read_on(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """An error of the disk, from the middle on."""
    packets = FrameDecoder._packets

    def failing(self: FrameDecoder) -> Iterator[Any]:
        for number, packet in enumerate(packets(self)):
            if number == FRAMES // 2:
                raise AvOSError(errno.EIO, "Input/output error")
            yield packet

    monkeypatch.setattr(FrameDecoder, "_packets", failing)
    error = fails(CorruptInput, target, tmp_path, KINDS[kind], match="noise.mp4")
    assert isinstance(error, CorruptInput)
    assert error.exit_code == 4


@pytest.mark.parametrize("error", [RuntimeError("reader"), MemoryError("reader")])
def test_a_reader_that_raises(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    reads = OpencvReader._read

    def read(self: OpencvReader, into: Any) -> bool:
        if self._tally.frames == FRAMES // 2:
            raise error
        return reads(self, into)

    monkeypatch.setattr(OpencvReader, "_read", read)
    assert fails(type(error), target, tmp_path, KINDS["mp4"], decoder="opencv") is error


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_folder_that_vanishes(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    at_batch(monkeypatch, 7, lambda: shutil.rmtree(folder))
    error = fails(OutputNotWritable, target, folder, KINDS[kind], match="does not exist any more")
    assert isinstance(error, OutputNotWritable)
    assert error.exit_code == 5
    assert not folder.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk(tmp_path: Path, target: Path, kind: str) -> None:
    folder = tmp_path / "small"
    with mounted(folder, "size=200k"):
        error = fails(DiskFull, target, folder, KINDS[kind], match="small")
        assert isinstance(error, DiskFull)
        assert error.exit_code == 5
        assert "nothing was left behind" in str(error)


def test_a_full_disk_keeps_the_segments(tmp_path: Path, target: Path) -> None:
    """A part takes 11 frames; the disk holds one, and not two."""
    folder = tmp_path / "small"
    with mounted(folder, "size=500k"):
        out = folder / "out.mp4"
        settings = config(resume=True, segment=0.4)
        for _ in range(2):
            with pytest.raises(DiskFull, match="small") as caught:
                swap(Path("none.jpg"), target, out, settings, Report())
            assert "segments" in str(caught.value)
            assert "nothing was left behind" not in str(caught.value)
            assert [p.name for p in folder.iterdir()] == [segments_folder(out).name]
            assert list(segments_folder(out).glob("*.json"))
        assert not [t for t in threading.enumerate() if t.name.startswith("ffx")]


LIMITED = """
    import json, resource, sys, threading
    from pathlib import Path
    from facefusion_cli.errors import FfxError
    from facefusion_cli.pipeline import swap
    from facefusion_cli.report import Report
    from tests.video.test_resources import KINDS, config, everything

    target, base = Path(sys.argv[1]), Path(sys.argv[2])

    def run(folder, kind, limit, **more):
        folder.mkdir()
        out = kind.put(folder) if not more else folder / kind.name
        before, threads = everything(folder), set(threading.enumerate())
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        told = ["", "", 0]
        try:
            swap(Path("none.jpg"), target, out, config(**kind.settings, **more), Report())
        except FfxError as error:
            told = [type(error).__name__, str(error), error.exit_code]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        left = sorted(t.name for t in set(threading.enumerate()) - threads)
        return [*told, left, everything(folder) == before]

    found = {name: run(base / name, kind, 20_000) for name, kind in KINDS.items()}
    found["resume"] = run(base / "resume", KINDS["mp4"], 600_000, resume=True, segment=0.4)
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def limited(target: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What came of runs whose files may not grow beyond 20 kB (600 kB with --resume)."""
    base = tmp_path_factory.mktemp("limited")
    code = textwrap.dedent(LIMITED)
    done = subprocess.run(
        [sys.executable, "-c", code, str(target), str(base)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return base, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits for files there")
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_may_not_grow(limited: tuple[Path, dict[str, Any]], kind: str) -> None:
    """What a full disk is for a user who may mount none."""
    name, said, code, threads, untouched = limited[1][kind]
    # OpenCV does not say why it wrote nothing, and the disk is not full.
    assert name == ("EncodeError" if kind == "opencv" else "DiskFull")
    assert (code, threads, untouched) == (5, [], True)
    assert KINDS[kind].name.rstrip("/") in said


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits for files there")
def test_segments_are_kept_where_the_joined_file_may_not_grow(
    limited: tuple[Path, dict[str, Any]],
) -> None:
    base, found = limited
    name, said, code, threads, _ = found["resume"]
    assert (name, code, threads) == ("DiskFull", 5, [])
    assert "segments" in said
    kept = segments_folder(base / "resume" / "out.mp4")
    assert [p.name for p in (base / "resume").iterdir()] == [kept.name]
    assert len(list(kept.glob("*.json"))) >= 3


def hung(event: threading.Event, real: Callable[..., Any], after: int) -> Callable[..., Any]:
    """A function that hangs from some call on."""
    calls = 0

    def call(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            event.wait(120)
        return real(*arguments)

    return call


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decoder", ["opencv", "pyav"])
def test_a_decoder_that_stalls(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch, decoder: str, kind: str
) -> None:
    """The run ends while the thread still hangs; once it goes on, it goes away by itself."""
    event = threading.Event()
    if decoder == "opencv":
        monkeypatch.setattr(
            OpencvReader, "_decoded", hung(event, OpencvReader._decoded, FRAMES // 2)
        )
    else:
        packets = FrameDecoder._packets

        def hanging(self: FrameDecoder) -> Iterator[Any]:
            for number, packet in enumerate(packets(self)):
                if number == FRAMES // 2:
                    event.wait(120)
                yield packet

        monkeypatch.setattr(FrameDecoder, "_packets", hanging)
    out = KINDS[kind].put(tmp_path)
    before, threads = everything(tmp_path), set(threading.enumerate())
    begin = time.perf_counter()
    settings = config(decoder=decoder, stall=0.5, **KINDS[kind].settings)
    with pytest.raises(DecodeError, match=r"gave nothing for 0\.5 s") as caught:
        swap(Path("none.jpg"), target, out, settings, Report())
    print(f"{time.perf_counter() - begin:.2f} s")
    assert time.perf_counter() - begin < LIMIT
    assert (caught.value.exit_code, caught.value.path) == (4, str(target))
    left = set(threading.enumerate()) - threads
    assert [(t.name, t.daemon) for t in left] == [("ffx-prefetch", True)]
    assert everything(tmp_path) == before
    event.set()
    for thread in left:
        thread.join(30)
        assert not thread.is_alive()


HANGING = """
    import io, sys, threading
    import av
    from facefusion_cli.cli.main import entry
    from facefusion_cli.video import frame_decoder

    opened = []

    class Hanging(io.FileIO):
        def read(self, size=-1):
            if opened and self.tell() > 400_000:
                threading.Event().wait()
            return super().read(size)

    def open_hanging(path):
        opened.append(av.open(Hanging(path)))
        return opened[-1]

    frame_decoder.open_container = open_hanging
    entry()
"""


def test_the_process_ends_though_a_thread_hangs_in_ffmpeg(tmp_path: Path, target: Path) -> None:
    out = tmp_path / "out.mp4"
    options = "--generator none --decoder pyav --stall 0.5 --device cpu --preset ultrafast"
    done = subprocess.run(
        [
            *(sys.executable, "-c", textwrap.dedent(HANGING)),
            *("swap", "none.jpg", str(target), "-o", str(out), *options.split()),
        ],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "ffx: error: the decoder gave nothing for 0.5 s" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Fatal" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("decoder", ["opencv", "pyav"])
def test_memory_is_bounded_by_the_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoder: str
) -> None:
    """300 frames and a slow encoder: as many buffers as queues and hands can hold, and no more."""
    clip = make_clip(tmp_path / "in.mp4", frames=300)
    pools: list[BufferPool] = []
    real_empty, real_encode = BufferPool.empty, encode_thread.ClipEncoder._encode

    def empty(self: BufferPool, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if self not in pools:
            pools.append(self)
        return real_empty(self, shape, dtype)

    def encode(self: encode_thread.ClipEncoder, frame: av.VideoFrame | None) -> None:
        time.sleep(0.004)
        real_encode(self, frame)

    monkeypatch.setattr(BufferPool, "empty", empty)
    monkeypatch.setattr(encode_thread.ClipEncoder, "_encode", encode)
    settings = config(decoder=decoder)
    report = Report()
    swap(Path("none.jpg"), clip.path, tmp_path / "out.mp4", settings, report)
    assert report.counts["frames_out"] == 300
    # All that was ever made lies free now: its number is that of the batches alive at once.
    made = {key: len(free) for pool in pools for key, free in pool._free.items()}
    largest = max(made, key=lambda key: math.prod(key[0]))
    batches, queue = made[largest], settings.runtime.queue
    # Two queues, and a batch in the hands of each of the three threads and of each queue's end.
    assert queue < batches <= 2 * queue + 5
    assert batches < 300 // BATCH / 4


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("decoder", ["opencv", "pyav"])
def test_memory_does_not_grow_with_the_clip(decoder: str) -> None:
    options = ["--frames", "2500", "--after", "500", "--decoder", decoder]
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "scripts" / "soak.py"), *options],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    print(figures)
    assert figures["frames_out"] == 2500
    assert figures["growth_mb"] < 40
