"""An output appears whole or not at all."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from facefusion_cli.errors import (
    DiskFull,
    EncodeError,
    FfxError,
    Interrupted,
    OutputExists,
    OutputFolderMissing,
    OutputNotWritable,
    SameFile,
)
from facefusion_cli.video.atomic import (
    as_output_error,
    atomic_output,
    check_output,
    partial_path,
    sweep_partials,
)


@contextmanager
def mounted(where: Path, options: str) -> Iterator[None]:
    """A small file system, or a skip where none can be mounted."""
    where.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(where)], check=True)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def fail(out: Path, error: BaseException) -> None:
    with atomic_output(out, overwrite=True) as partial:
        partial.write_bytes(b"half")
        raise error


def spoil(out: Path, deed: Callable[[Path], object], overwrite: bool = False) -> None:
    """An output to which something happens while it is written."""
    with atomic_output(out, overwrite=overwrite) as partial:
        partial.write_bytes(b"ours")
        deed(partial)


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_it_appears_at_the_end_and_whole(tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    with atomic_output(out, overwrite=True) as partial:
        assert partial.parent == tmp_path
        assert partial.name == f".out.{os.getpid()}.partial.mp4"
        partial.write_bytes(b"whole")
        assert not out.exists()
    assert out.read_bytes() == b"whole"
    assert names(tmp_path) == ["out.mp4"]


def test_it_replaces_what_was_there_only_on_success(tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    out.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        fail(out, ZeroDivisionError())
    assert out.read_bytes() == b"old"
    with atomic_output(out, overwrite=True) as partial:
        partial.write_bytes(b"new")
    assert out.read_bytes() == b"new"
    assert names(tmp_path) == ["out.mp4"]


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), KeyboardInterrupt(), SystemExit(1), Interrupted(signal.SIGTERM), OSError(5)],
)
def test_no_exception_leaves_anything(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        fail(tmp_path / "out.mp4", error)
    assert caught.value is error, "errors of the block are not the output's"
    assert names(tmp_path) == []


def test_the_mode_is_that_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with atomic_output(tmp_path / "out.mp4", overwrite=True) as partial:
        partial.write_bytes(b"whole")
    assert (tmp_path / "out.mp4").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link.mp4"
    link.symlink_to(real / "out.mp4")
    with atomic_output(link, overwrite=True) as partial:
        assert partial.parent == real
        partial.write_bytes(b"whole")
    assert link.is_symlink()
    assert link.read_bytes() == b"whole"


def test_stale_partials_are_swept(tmp_path: Path) -> None:
    out = tmp_path / "o[u]t.mp4"
    stale = partial_path(out, dead_pid())
    others = [
        partial_path(out, os.getppid()),
        partial_path(tmp_path / "other.mp4", dead_pid()),
        partial_path(tmp_path / "o[u]t.mkv", dead_pid()),
        tmp_path / ".out.12.partial.mp4",
        tmp_path / ".o[u]t.word.partial.mp4",
    ]
    for path in [stale, *others]:
        path.touch()
    with atomic_output(out, overwrite=True):
        pass
    assert not stale.exists()
    assert all(p.exists() for p in others), "another output's, or a living process's"


def _hold(out: Path, ready: str, done: str) -> None:
    with atomic_output(out, overwrite=True) as partial:
        Path(ready).touch()
        while not Path(done).exists():
            time.sleep(0.01)
        partial.write_bytes(b"theirs")


def test_a_partial_at_work_is_safe_even_where_its_process_id_means_nothing(tmp_path: Path) -> None:
    out, ready, done = tmp_path / "out.mp4", tmp_path / "ready", tmp_path / "done"
    process = multiprocessing.get_context("spawn").Process(
        target=_hold, args=(out, str(ready), str(done))
    )
    process.start()
    try:
        while not ready.exists():
            assert process.is_alive()
            time.sleep(0.01)
        # As seen from another container, the id is that of no process here.
        held = next(tmp_path.glob(".out.*"))
        disguised = partial_path(out, dead_pid())
        disguised.hardlink_to(held)
        assert sweep_partials(out) == []
        assert disguised.exists()
    finally:
        done.touch()
        process.join()
    assert process.exitcode == 0
    assert out.read_bytes() == b"theirs"
    assert sweep_partials(out) == [disguised]


def test_a_second_run_for_the_same_output_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    with atomic_output(out, overwrite=True) as partial:
        partial.write_bytes(b"first")
        with (
            pytest.raises(OutputNotWritable, match="another run"),
            atomic_output(out, overwrite=True),
        ):
            pass
        assert partial.read_bytes() == b"first"
    assert out.read_bytes() == b"first"


@pytest.mark.parametrize("links", [True, False])
def test_an_output_that_another_run_wrote_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    out = tmp_path / "out.mp4"
    with atomic_output(out, overwrite=False) as partial:
        partial.write_bytes(b"first")
    assert out.read_bytes() == b"first"
    out.unlink()
    with pytest.raises(OutputExists, match="in the meantime") as caught:
        spoil(out, lambda partial: out.write_bytes(b"theirs"))
    assert caught.value.exit_code == 2
    assert out.read_bytes() == b"theirs"
    assert names(tmp_path) == ["out.mp4"]


def test_the_folder_is_removed_meanwhile(tmp_path: Path) -> None:
    out = tmp_path / "folder" / "out.mp4"
    out.parent.mkdir()
    with pytest.raises(OutputNotWritable, match="any more") as caught:
        spoil(out, lambda partial: shutil.rmtree(partial.parent))
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_is_no_file_appears_meanwhile(tmp_path: Path, overwrite: bool) -> None:
    out = tmp_path / "out.mp4"
    with pytest.raises(OutputNotWritable, match="not a regular file"):
        spoil(out, lambda partial: os.mkfifo(out), overwrite)
    assert out.is_fifo()
    assert names(tmp_path) == ["out.mp4"]


def test_links_that_go_in_circles(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for out in (loop, loop / "out.mp4"):
        with pytest.raises(OutputNotWritable, match=os.strerror(errno.ELOOP)):
            check_output(out, [], overwrite=True)
        with (
            pytest.raises(OutputNotWritable, match=os.strerror(errno.ELOOP)),
            atomic_output(out, overwrite=True),
        ):
            pytest.fail("the block must not begin")
    check_output(tmp_path / "out.mp4", [loop], overwrite=True)


def test_check_passes_a_good_output(tmp_path: Path) -> None:
    source = tmp_path / "in.mp4"
    source.touch()
    check_output(tmp_path / "out.mp4", [source, tmp_path / "missing.jpg"], overwrite=False)
    assert names(tmp_path) == ["in.mp4"]


def test_check_finds_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputFolderMissing, match=r"does not exist.*mkdir -p") as caught:
        check_output(tmp_path / "no" / "out.mp4", [], overwrite=False)
    assert caught.value.exit_code == 2
    (tmp_path / "file").touch()
    with pytest.raises(OutputFolderMissing, match="is not a folder"):
        check_output(tmp_path / "file" / "out.mp4", [], overwrite=False)


def test_check_finds_an_existing_output(tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    out.write_bytes(b"old")
    with pytest.raises(OutputExists, match="--overwrite") as caught:
        check_output(out, [], overwrite=False)
    assert caught.value.exit_code == 2
    check_output(out, [], overwrite=True)
    assert out.read_bytes() == b"old"


@pytest.mark.parametrize("how", ["name", "symlink", "hardlink", "detour"])
def test_check_finds_output_and_input_to_be_one(tmp_path: Path, how: str) -> None:
    source, out = tmp_path / "in.mp4", tmp_path / "out.mp4"
    source.touch()
    if how == "symlink":
        out.symlink_to(source)
    elif how == "hardlink":
        out.hardlink_to(source)
    elif how == "detour":
        (tmp_path / "folder").mkdir()
        out = tmp_path / "folder" / ".." / "in.mp4"
    else:
        out = source
    with pytest.raises(SameFile) as caught:
        check_output(out, [tmp_path / "photo.jpg", source], overwrite=True)
    assert caught.value.exit_code == 2


def test_check_finds_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.mp4").mkdir()
    with pytest.raises(OutputNotWritable, match="is a folder") as caught:
        check_output(tmp_path / "folder.mp4", [], overwrite=True)
    assert caught.value.exit_code == 5
    os.mkfifo(tmp_path / "pipe.mp4")
    with pytest.raises(OutputNotWritable, match="not a regular file"):
        check_output(tmp_path / "pipe.mp4", [], overwrite=True)
    with pytest.raises(OutputNotWritable, match="not a regular file"):
        check_output(Path(os.devnull), [], overwrite=True)


def test_check_finds_a_name_too_long(tmp_path: Path) -> None:
    with pytest.raises(OutputNotWritable, match="too long"):
        check_output(tmp_path / ("x" * 300 + ".mp4"), [], overwrite=False)


def test_a_read_only_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    if os.geteuid() == 0:
        # Permissions do not bind root; a read-only file system does.
        context = mounted(folder, "size=64k,ro")
    else:
        folder.mkdir(mode=0o555)
        context = contextmanager(lambda: iter([None]))()
    with context:
        with pytest.raises(OutputNotWritable, match="folder is not writable") as caught:
            check_output(folder / "out.mp4", [], overwrite=False)
        assert caught.value.exit_code == 5
        with pytest.raises(OutputNotWritable), atomic_output(folder / "out.mp4", overwrite=True):
            pytest.fail("the block must not begin")


def test_a_full_disk(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with mounted(folder, "size=64k"):
        with (
            pytest.raises(OSError, match="No space left") as caught,
            atomic_output(folder / "out.mp4", overwrite=True) as partial,
        ):
            partial.write_bytes(bytes(1_000_000))
        assert names(folder) == []
    error = as_output_error(caught.value, folder / "out.mp4")
    assert isinstance(error, DiskFull)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EACCES, OutputNotWritable),
        (errno.EROFS, OutputNotWritable),
        (errno.ENOENT, OutputNotWritable),
        (errno.ELOOP, OutputNotWritable),
        (errno.EIO, EncodeError),
    ],
)
def test_what_the_system_says_is_translated(number: int, kind: type[FfxError]) -> None:
    error = as_output_error(OSError(number, "x"), Path("out.mp4"))
    assert type(error) is kind
    assert "out.mp4" in str(error)
    assert os.strerror(number) in str(error) or number == errno.ENOENT
