"""The life of a folder of images: checked before work, filled beside its place, moved in whole.

Files go to ``.{name}.{pid}.partial/`` beside the folder, which is renamed to it only after all of
them were written and synced. A folder that is replaced is first set aside as
``.{name}.{pid}.replaced/``. What a killed process leaves is swept by the next run for the same
output: a partial goes; a folder that was set aside goes, or comes back where nothing took its
place.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from facefusion_cli.errors import OutputExists, OutputFolderMissing, OutputNotWritable, SameFile
from facefusion_cli.video.atomic import (
    final_path,
    lock_file,
    output_errors,
    process_lives,
    sync_file,
    sync_folder,
)
from facefusion_cli.video.image_kinds import is_image
from facefusion_cli.video.suffixes import PICTURES

_LITTER = {"thumbs.db", "desktop.ini", ".ds_store"}
"""What file managers leave wherever there are pictures."""
_TAKEN = {errno.ENOTEMPTY, errno.EEXIST}


def check_folder(folder: Path, inputs: Iterable[Path], overwrite: bool) -> None:
    """Refuses a folder of images that cannot or must not be written; before any work.

    Args:
        folder: Where the images shall go. It is made; the folder it lies in must be there.
        inputs: Every file and folder the run reads. The output must be none of them, nor lie in an
            input folder, nor hold an input.
        overwrite: Whether images that are in the folder may be replaced, all of them.

    Raises:
        OutputFolderMissing: The folder's own folder does not exist, or is a file.
        OutputNotWritable: It is a file, the current folder, a mount point, write-protected, or,
            where it would be replaced, it holds something else than images.
        SameFile: It is an input, lies in one or holds one.
        OutputExists: It holds files, and overwrite is false.
    """
    with output_errors(folder):
        _check_folder(folder, inputs, overwrite)


def _check_folder(folder: Path, inputs: Iterable[Path], overwrite: bool) -> None:
    target = final_path(folder)
    parent = target.parent
    if not parent.is_dir():
        problem = "is not a folder" if parent.exists() else "does not exist"
        hint = f"make it first: mkdir -p {parent}" if not parent.exists() else None
        raise OutputFolderMissing(f"the output's folder {problem}", path=parent, hint=hint)
    if target.exists() and not target.is_dir():
        raise OutputNotWritable("the output is there and is not a folder", path=folder)
    if target == Path.cwd() or target in Path.cwd().parents or target.is_mount():
        what = "the images would replace the current folder or a whole disk"
        hint = "name a folder of their own, such as frames/%06d.png"
        raise OutputNotWritable(what, path=folder, hint=hint)
    for source in inputs:
        _refuse_overlap(source.resolve(), target, folder)
    names = sorted(os.listdir(target)) if target.exists() else []
    if names and not overwrite:
        hint = "use --overwrite to replace the images in it, all of them"
        raise OutputExists("the output's folder is there and is not empty", path=folder, hint=hint)
    _refuse_foreign(target, names, folder)
    if names and not os.access(target, os.W_OK | os.X_OK):
        raise OutputNotWritable("the output's folder is write-protected", path=folder)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputNotWritable("the output's folder is not writable", path=parent)


def _refuse_overlap(source: Path, target: Path, folder: Path) -> None:
    hint = "choose another folder for the output"
    if source == target:
        raise SameFile("output and input are the same folder", path=folder, hint=hint)
    if target in source.parents:
        raise SameFile("an input lies in the output's folder", path=folder, hint=hint)
    if source in target.parents and source.is_dir():
        raise SameFile("the output lies in the input's folder", path=folder, hint=hint)


def _refuse_foreign(target: Path, names: Iterable[str], folder: Path) -> None:
    """A folder that would be removed holds images, and nothing that somebody might miss."""
    for name in names:
        path = target / name
        own = path.suffix.lower() in PICTURES or name.lower() in _LITTER
        if not path.is_file() or not (own or is_image(path)):
            what = f"the output's folder holds something else than images, {name}"
            hint = "choose another folder, or move that away"
            raise OutputNotWritable(what, path=folder, hint=hint)


@contextmanager
def atomic_folder(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """A temporary folder beside the output; becomes the output when the block ends well.

    Args:
        folder: Where the result shall go; an empty folder may be there. Of a symbolic link, what it
            points to is replaced.
        overwrite: Whether images that are there when the block ends are replaced.

    Yields:
        The folder to write to; files only, no folders in it.

    Raises:
        DiskFull: No space left. Errors of the block itself pass through as they are: what writes
            in it uses output_errors.
        OutputNotWritable: The folder cannot be made; another run is writing this output; or it
            holds something else than images by now.
        OutputExists: Another run wrote the output while the block ran, and overwrite is false.
    """
    with output_errors(folder):
        target = final_path(folder)
        partial = _beside(target, os.getpid(), "partial")
        _sweep(target)
        with suppress(FileExistsError):
            partial.mkdir()
        handle = os.open(partial, os.O_RDONLY)
    try:
        # The lock tells a sweeping process of another container or host, where the process id
        # means nothing, that this partial is alive.
        if not lock_file(handle):
            raise OutputNotWritable("another run is writing the same output", path=folder)
        try:
            with output_errors(folder):
                for name in os.listdir(partial):
                    (partial / name).unlink()
            yield partial
            with output_errors(folder):
                for name in os.listdir(partial):
                    sync_file(partial / name)
                sync_folder(partial)
                _publish(partial, target, folder, overwrite)
                sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    finally:
        os.close(handle)


def _publish(partial: Path, target: Path, folder: Path, overwrite: bool) -> None:
    """Gives the partial its final name; what is there goes only after that."""
    try:
        partial.rename(target)  # over an empty folder, too
        return
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        if not overwrite:
            what = "another run wrote the output in the meantime"
            hint = "--overwrite replaces it"
            raise OutputExists(what, path=folder, hint=hint) from error
    _refuse_foreign(target, os.listdir(target), folder)
    aside = _beside(target, os.getpid(), "replaced")
    target.rename(aside)
    try:
        partial.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _beside(target: Path, pid: int, what: str) -> Path:
    return target.with_name(f".{target.name}.{pid}.{what}")


def _sweep(target: Path) -> None:
    """Removes, or puts back, what dead processes left of this output."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.(\d+)\.(partial|replaced)")
    for entry in sorted(os.scandir(target.parent), key=lambda entry: entry.name):
        match = pattern.fullmatch(entry.name)
        if match is None or not entry.is_dir(follow_symlinks=False):
            continue
        if process_lives(int(match[1])):
            continue
        with suppress(OSError):
            handle = os.open(entry.path, os.O_RDONLY)
            try:
                if not lock_file(handle):
                    continue
                if match[2] == "replaced" and not target.exists():
                    Path(entry.path).rename(target)
                else:
                    shutil.rmtree(entry.path)
            finally:
                os.close(handle)
