"""What every input must be before anything opens it: a regular file with something in it."""

from __future__ import annotations

import stat
from pathlib import Path

from facefusion_cli.errors import EmptyVideo, InputError, InputNotFound, NotAVideo


def check_input(path: Path, wanted: str) -> None:
    """Refuses what is no regular file; symbolic links are followed.

    Opening a named pipe waits for a writer, and devices can be read without end.

    Args:
        path: A source or a target.
        wanted: What it should be, for the message: "a video" or "an image".

    Raises:
        InputNotFound: No such file, or an empty name.
        InputError: Its folder may not be searched, its links go in circles, ...
        NotAVideo: A folder, pipe, socket or device.
        EmptyVideo: A file of zero bytes.
    """
    if path == Path():
        # Path("") and Path(".") are one, so the message has to fit both.
        raise InputNotFound("no file was named", path=path)
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputNotFound("no such file", path=path) from error
    except OSError as error:
        raise InputError(f"the file cannot be read ({error.strerror})", path=path) from error
    if stat.S_ISDIR(status.st_mode):
        raise NotAVideo(f"this is a folder, not {wanted}", path=path)
    if not stat.S_ISREG(status.st_mode):
        raise NotAVideo(f"this is not a regular file, so not {wanted}", path=path)
    if status.st_size == 0:
        raise EmptyVideo("the file is empty (zero bytes)", path=path)
