"""The error tree: every failure a user can cause or meet. The class decides the exit code.

FfxError(message, path=, hint=)
├── UsageError 2      ConfigError OutputExists OutputFolderMissing SameFile IncompatibleContainer
├── InputError 3      InputNotFound NotAVideo NoVideoStream EmptyVideo UnsupportedVideo
├── DecodeError 4     CorruptInput TruncatedInput
├── EncodeError 5     EncoderUnavailable EncoderRejected DiskFull OutputNotWritable
├── ModelError 6      ModelMissing ModelCorrupt ModelUnsupported
├── DeviceError 7     NoCuda OutOfMemory
├── FaceError 8       NoFaceInSource NoFaceInTarget
├── PolicyError 9     ContentRefused
└── Interrupted 130 or 143
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import ClassVar


class FfxError(Exception):
    """Base of every expected failure: one line saying what, which file and what to do.

    Args:
        message: What went wrong, in plain words, without a trailing full stop.
        path: The file concerned, shown after the message.
        hint: What the user can do about it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self, message: str, *, path: Path | str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = None if path is None else str(path)
        self.hint = hint

    def __str__(self) -> str:
        where = f": {self.path}" if self.path else ""
        what_to_do = f" ({self.hint})" if self.hint else ""
        return f"{self.message}{where}{what_to_do}".replace("\n", " ")


class UsageError(FfxError):
    """The command line or the configuration asks for something that cannot be."""

    exit_code = 2


class ConfigError(UsageError):
    """An unknown key, or a value outside its range."""


class OutputExists(UsageError):
    """The output is there already and --overwrite was not given."""


class OutputFolderMissing(UsageError):
    """The folder the output should go to does not exist."""


class SameFile(UsageError):
    """Output and input are one file."""


class IncompatibleContainer(UsageError):
    """The output's container cannot hold what was asked for."""


class InputError(FfxError):
    """The source or target cannot be used."""

    exit_code = 3


class InputNotFound(InputError):
    """No such file."""


class NotAVideo(InputError):
    """The file is neither a video nor an image that can be opened."""


class NoVideoStream(InputError):
    """A media file without pictures (audio only)."""


class EmptyVideo(InputError):
    """A video stream without a single decodable frame, or a file of zero bytes."""


class UnsupportedVideo(InputError):
    """A video that ffx would get wrong, refused rather than ruined."""


class DecodeError(FfxError):
    """Decoding failed or lost frames."""

    exit_code = 4


class CorruptInput(DecodeError):
    """Frames in the middle could not be decoded."""


class TruncatedInput(DecodeError):
    """The file ends before its header says it should."""


class EncodeError(FfxError):
    """The output could not be written."""

    exit_code = 5


class EncoderUnavailable(EncodeError):
    """The encoder is not in this build, or its hardware or driver is missing."""


class EncoderRejected(EncodeError):
    """The encoder refused the size, the pixel format or an option."""


class DiskFull(EncodeError):
    """No space left where the output goes."""


class OutputNotWritable(EncodeError):
    """The output's folder or file cannot be written."""


class ModelError(FfxError):
    """A network's weights cannot be used."""

    exit_code = 6


class ModelMissing(ModelError):
    """The file is not where the manifest says."""


class ModelCorrupt(ModelError):
    """The file's checksum or its tensors differ from the manifest."""


class ModelUnsupported(ModelError):
    """The file is a network ffx does not know."""


class DeviceError(FfxError):
    """The device asked for cannot do the work."""

    exit_code = 7


class NoCuda(DeviceError):
    """CUDA was asked for and is not there."""


class OutOfMemory(DeviceError):
    """The device ran out of memory at the smallest batch."""


class FaceError(FfxError):
    """A face that must be there is not."""

    exit_code = 8


class NoFaceInSource(FaceError):
    """No face was found in the source photo."""


class NoFaceInTarget(FaceError):
    """No face was found in the target and --require-face was given."""


class PolicyError(FfxError):
    """Refused by policy."""

    exit_code = 9


class ContentRefused(PolicyError):
    """The content gate refused source or target."""


class Interrupted(FfxError):
    """SIGINT or SIGTERM arrived; nothing was left behind.

    Args:
        signum: The signal's number; the exit code is 128 + signum, as shells expect.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}; nothing was written")
        self.signum = signum

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """128 + the signal's number: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + self.signum
