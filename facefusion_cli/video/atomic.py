"""The life of an output file: checked before any work, written beside its place, moved in whole.

Everything is written to ``.{stem}.{pid}.partial{suffix}`` in the output's own folder and renamed
over the output only after it was finished, verified and synced. Whatever goes wrong, the partial
is removed; a partial left by a killed process is swept by the next run for the same output.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from facefusion_cli.errors import (
    DiskFull,
    EncodeError,
    FfxError,
    OutputExists,
    OutputFolderMissing,
    OutputNotWritable,
    SameFile,
)

if sys.platform != "win32":
    import fcntl

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
}


def as_output_error(error: OSError, out: Path) -> FfxError:
    """What an operating system error while writing means to the user.

    PyAV's errors with an errno are OSErrors too, so this serves them as well.
    """
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    if error.errno in _NO_SPACE:
        hint = "free some space or choose another folder; nothing was left behind"
        return DiskFull(f"no space left for the output ({reason})", path=out, hint=hint)
    if error.errno == errno.ENOENT:
        return OutputFolderMissing("the output's folder does not exist (any more)", path=out)
    if error.errno in _NOT_ALLOWED:
        return OutputNotWritable(f"the output cannot be written ({reason})", path=out)
    return EncodeError(f"writing the output failed ({reason})", path=out)


@contextmanager
def output_errors(out: Path) -> Iterator[None]:
    """Translates operating system errors of the block into the tree's, naming the output.

    Raises:
        DiskFull: No space or quota left.
        OutputNotWritable: Permission, read-only file system, name too long.
        OutputFolderMissing: The folder is gone.
        EncodeError: Any other failed write.
    """
    try:
        yield
    except OSError as error:
        raise as_output_error(error, out) from error


def check_output(out: Path, inputs: Iterable[Path], overwrite: bool) -> None:
    """Refuses an output that cannot or must not be written; to be called before any work.

    Args:
        out: Where the result shall go.
        inputs: Every file the run reads; the output must be none of them, not even by a symbolic
            or hard link.
        overwrite: Whether an existing output may be replaced.

    Raises:
        OutputFolderMissing: The folder does not exist, or is a file.
        OutputNotWritable: The output is a folder, a device or write-protected, or its folder does
            not let files be made.
        SameFile: The output is one of the inputs.
        OutputExists: The output is there and overwrite is false.
    """
    with output_errors(out):
        _check_output(out, inputs, overwrite)


def _check_output(out: Path, inputs: Iterable[Path], overwrite: bool) -> None:
    target = out.resolve()
    folder = target.parent
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        hint = f"make it first: mkdir -p {folder}" if not folder.exists() else None
        raise OutputFolderMissing(f"the output's folder {what}", path=folder, hint=hint)
    if target.is_dir():
        hint = "give the name of a file in it"
        raise OutputNotWritable("the output is a folder", path=out, hint=hint)
    if target.exists():
        for source in inputs:
            if source.exists() and source.samefile(target):
                hint = "choose another name for -o"
                raise SameFile("output and input are the same file", path=out, hint=hint)
        # Renaming over a device such as /dev/null would replace it for the whole machine.
        if not target.is_file():
            raise OutputNotWritable("the output is there and is not a regular file", path=out)
        if not overwrite:
            hint = "use --overwrite to replace it"
            raise OutputExists("the output exists already", path=out, hint=hint)
        if not os.access(target, os.W_OK):
            raise OutputNotWritable("the output exists and is write-protected", path=out)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputNotWritable("the output's folder is not writable", path=folder)


@contextmanager
def atomic_output(out: Path) -> Iterator[Path]:
    """A temporary path beside the output; becomes the output when the block ends well.

    The temporary is an empty file when the block begins, so that a folder that takes no files is
    found out at once. Stale temporaries of the same output are swept first. When out is a symbolic
    link, the file it points to is replaced and the link stays.

    Args:
        out: Where the result shall go; an existing file is replaced.

    Yields:
        The path to write to, in the same folder and with the same suffix.

    Raises:
        DiskFull: No space left. Errors of the block itself pass through as they are: what writes
            in it uses output_errors.
        OutputNotWritable: The folder takes no files, or another run is writing this output.
        OutputFolderMissing: The folder is gone.
    """
    target = out.resolve()
    partial = partial_path(target, os.getpid())
    with output_errors(out):
        sweep_partials(target)
        handle = os.open(partial, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        # The lock tells a sweeping process of another container or host, where the process id
        # means nothing, that this partial is alive.
        if not _lock(handle):
            raise OutputNotWritable("another run is writing the same output", path=out)
        try:
            with output_errors(out):
                os.ftruncate(handle, 0)
            yield partial
            with output_errors(out):
                _sync(partial)
                partial.replace(target)
                _sync_folder(target.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    finally:
        os.close(handle)


def partial_path(out: Path, pid: int) -> Path:
    """The temporary that process pid writes for an output."""
    return out.with_name(f".{out.stem}.{pid}.partial{out.suffix}")


def sweep_partials(out: Path) -> list[Path]:
    """Removes temporaries of this output whose process is dead.

    Returns:
        What was removed. A partial is left alone when its process lives, when somebody holds its
        lock, or when it cannot be removed.
    """
    if sys.platform == "win32":
        # Signal 0 is no harmless question there, so nothing can be known about a process id.
        return []
    pattern = re.compile(rf"\.{re.escape(out.stem)}\.(\d+)\.partial{re.escape(out.suffix)}")
    removed = []
    for entry in os.scandir(out.parent):
        match = pattern.fullmatch(entry.name)
        if match is None or _lives(int(match[1])):
            continue
        path = Path(entry.path)
        with suppress(OSError):
            handle = os.open(path, os.O_RDWR)
            try:
                if _lock(handle):
                    path.unlink()
                    removed.append(path)
            finally:
                os.close(handle)
    return removed


def _lives(pid: int) -> bool:
    if pid == os.getpid():
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _lock(handle: int) -> bool:
    """Whether the file is now locked by us; true as well where locks do not exist."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    # Some file systems cannot sync a folder; the rename itself has happened by then.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
