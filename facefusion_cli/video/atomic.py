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
    errno.ELOOP,
}
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""What file systems say that have no hard links; EACCES is Android's."""


def as_output_error(error: OSError, out: Path, what: str = "output") -> FfxError:
    """What an operating system error while writing means to the user.

    PyAV's errors with an errno are OSErrors too, so this serves them as well.

    Args:
        error: What the system said.
        out: The file that was asked for.
        what: What the file is to the user, for the message.
    """
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    if error.errno in _NO_SPACE:
        hint = "free some space or choose another folder; nothing was left behind"
        return DiskFull(f"no space left for the {what} ({reason})", path=out, hint=hint)
    if error.errno in {errno.ENOENT, errno.ESTALE}:
        return OutputNotWritable(f"the {what}'s folder does not exist any more", path=out)
    if error.errno in _NOT_ALLOWED:
        return OutputNotWritable(f"the {what} cannot be written ({reason})", path=out)
    return EncodeError(f"writing the {what} failed ({reason})", path=out)


@contextmanager
def output_errors(out: Path, what: str = "output") -> Iterator[None]:
    """Translates operating system errors of the block into the tree's, naming the output.

    Raises:
        DiskFull: No space or quota left.
        OutputNotWritable: Permission, read-only file system, name too long, links in a circle, or
            the folder is gone: a run checks that it is there before it begins.
        EncodeError: Any other failed write.
    """
    try:
        yield
    except OSError as error:
        raise as_output_error(error, out, what) from error


def check_output(out: Path, inputs: Iterable[Path], overwrite: bool, what: str = "output") -> None:
    """Refuses an output that cannot or must not be written; to be called before any work.

    Args:
        out: Where the result shall go.
        inputs: Every file the run reads; the output must be none of them, not even by a symbolic
            or hard link.
        overwrite: Whether an existing output may be replaced.
        what: What the file is to the user, for the messages.

    Raises:
        OutputFolderMissing: The folder does not exist, or is a file.
        OutputNotWritable: The output is a folder, a device or write-protected, its symbolic links
            go in circles, or its folder does not let files be made.
        SameFile: The output is one of the inputs.
        OutputExists: The output is there and overwrite is false.
    """
    with output_errors(out, what):
        _check_output(out, inputs, overwrite, what)


def _check_output(out: Path, inputs: Iterable[Path], overwrite: bool, what: str) -> None:
    target = final_path(out)
    folder = target.parent
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist"
        hint = f"make it first: mkdir -p {folder}" if not folder.exists() else None
        raise OutputFolderMissing(f"the {what}'s folder {problem}", path=folder, hint=hint)
    if target.is_dir():
        hint = "give the name of a file in it"
        raise OutputNotWritable(f"the {what} is a folder", path=out, hint=hint)
    if target.exists():
        for source in inputs:
            if _is_same(source, target):
                hint = f"choose another name for the {what}"
                raise SameFile(f"{what} and input are the same file", path=out, hint=hint)
        _refuse_special(target, out, what)
        if not overwrite:
            hint = "use --overwrite to replace it"
            raise OutputExists(f"the {what} exists already", path=out, hint=hint)
        if not os.access(target, os.W_OK):
            raise OutputNotWritable(f"the {what} exists and is write-protected", path=out)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputNotWritable(f"the {what}'s folder is not writable", path=folder)


def _is_same(source: Path, target: Path) -> bool:
    try:
        return source.samefile(target)
    except OSError:  # whoever opens the source says what is wrong with it
        return False


def _refuse_special(target: Path, out: Path, what: str) -> None:
    # Renaming over a device such as /dev/null would replace it for the whole machine.
    if target.exists() and not target.is_file():
        raise OutputNotWritable(f"the {what} is there and is not a regular file", path=out)


def final_path(out: Path) -> Path:
    """Where an output really goes: absolute, every symbolic link followed.

    Raises:
        OSError: ELOOP where the links go in circles, or another reason why nothing can be there.
    """
    try:
        target = out.resolve()
    except RuntimeError as error:  # what Python up to 3.12 says of a circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(out)) from error
    # Later ones leave a circle as it is; looking at it says so.
    with suppress(FileNotFoundError, NotADirectoryError):
        target.stat()
    return target


@contextmanager
def atomic_output(out: Path, *, overwrite: bool, what: str = "output") -> Iterator[Path]:
    """A temporary path beside the output; becomes the output when the block ends well.

    The temporary is an empty file when the block begins, so that a folder that takes no files is
    found out at once. Stale temporaries of the same output are swept first. When out is a symbolic
    link, the file it points to is replaced and the link stays.

    Args:
        out: Where the result shall go.
        overwrite: Whether a file that is there when the block ends is replaced.
        what: What the file is to the user, for the messages.

    Yields:
        The path to write to, in the same folder and with the same suffix.

    Raises:
        DiskFull: No space left. Errors of the block itself pass through as they are: what writes
            in it uses output_errors.
        OutputNotWritable: The folder takes no files or is gone, or another run of this process is
            writing this output.
        OutputExists: Another run wrote the output while the block ran, and overwrite is false.
    """
    with output_errors(out, what):
        target = final_path(out)
        partial = partial_path(target, os.getpid())
        sweep_partials(target)
        handle = os.open(partial, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        # The lock tells a sweeping process of another container or host, where the process id
        # means nothing, that this partial is alive.
        if not lock_file(handle):
            raise OutputNotWritable(f"another run is writing the same {what}", path=out)
        try:
            with output_errors(out, what):
                os.ftruncate(handle, 0)
            yield partial
            with output_errors(out, what):
                sync_file(partial)
                _refuse_special(target, out, what)
                if overwrite:
                    partial.replace(target)
                else:
                    _publish_new(partial, target, out, what)
                sync_folder(target.parent)
        except BaseException:
            with suppress(FileNotFoundError, NotADirectoryError):
                partial.unlink()
            raise
    finally:
        os.close(handle)


def _publish_new(partial: Path, target: Path, out: Path, what: str) -> None:
    """Gives the partial its final name unless that is taken, in one step where there are links."""
    taken = OutputExists(
        f"another run wrote the {what} in the meantime", path=out, hint="--overwrite replaces it"
    )
    try:
        os.link(partial, target)
    except FileExistsError as error:
        raise taken from error
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if target.exists():
            raise taken from error
        partial.replace(target)
        return
    partial.unlink()


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
        if match is None or process_lives(int(match[1])):
            continue
        path = Path(entry.path)
        with suppress(OSError):
            handle = os.open(path, os.O_RDWR)
            try:
                if lock_file(handle):
                    path.unlink()
                    removed.append(path)
            finally:
                os.close(handle)
    return removed


def process_lives(pid: int) -> bool:
    """Whether a process of this machine (or container) has this id."""
    if pid == os.getpid():
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def lock_file(handle: int) -> bool:
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


def sync_file(path: Path) -> None:
    """Returns when a file's bytes are on the disk."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Returns when a folder's entries are on the disk, where that can be asked for."""
    # Some file systems cannot sync a folder; the rename itself has happened by then.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
