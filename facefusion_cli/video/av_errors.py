"""PyAV's exceptions, translated once for everything that reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import av.error as av_error

from facefusion_cli.errors import (
    CorruptInput,
    EmptyVideo,
    InputError,
    InputNotFound,
    NotAVideo,
    TruncatedInput,
    UnsupportedVideo,
)

# What a broken packet can raise; anything else while decoding is no matter of one packet.
PACKET_ERRORS = (
    av_error.InvalidDataError,
    av_error.UnknownError,
    av_error.ExternalError,
    av_error.BlockingIOError,  # an MPEG-TS without packets for a long stretch
    av_error.PatchWelcomeError,
)

_MP4_BRAND = b"ftyp"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns PyAV's errors inside the block into ffx's.

    PyAV's classes inherit from the builtins (its PermissionError is a PermissionError), so they are
    caught here before anything catches those.

    Raises:
        InputNotFound: No such file.
        NotAVideo: A folder, or data of no format FFmpeg knows.
        TruncatedInput: An MP4/MOV without its index, as an interrupted recording leaves it.
        EmptyVideo: The data ends before the first packet.
        UnsupportedVideo: FFmpeg here has no decoder for it.
        InputError: The file may not be read.
        CorruptInput: Any other failure inside the file.
    """
    try:
        yield
    except av_error.FileNotFoundError as error:
        raise InputNotFound("no such file", path=path) from error
    except av_error.IsADirectoryError as error:
        raise NotAVideo("this is a folder, not a video", path=path) from error
    except av_error.PermissionError as error:
        raise InputError("no permission to read the file", path=path) from error
    except av_error.EOFError as error:
        raise EmptyVideo("the file ends before its first frame", path=path) from error
    except (av_error.DecoderNotFoundError, av_error.PatchWelcomeError) as error:
        raise UnsupportedVideo(
            "FFmpeg has no decoder for this video", path=path, hint="convert it to H.264 first"
        ) from error
    except (av_error.InvalidDataError, av_error.DemuxerNotFoundError) as error:
        if _is_mp4(path):
            raise TruncatedInput(
                "the MP4's index (moov) is missing or broken: the file is incomplete",
                path=path,
                hint="copy or download it again, or mend it with an MP4 recovery tool",
            ) from error
        raise NotAVideo("not a video, or of a format FFmpeg does not know", path=path) from error
    except av_error.FFmpegError as error:
        raise CorruptInput(f"cannot be read: {error.strerror}", path=path) from error


def _is_mp4(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8)[4:] == _MP4_BRAND
