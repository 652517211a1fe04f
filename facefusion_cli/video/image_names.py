"""Names of many pictures: patterns such as frames/f_%04d.png, and folders in natural order."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from facefusion_cli.errors import InputError, InputNotFound, NotAVideo
from facefusion_cli.video.image_kinds import image_kind
from facefusion_cli.video.suffixes import PICTURES

_NUMBER = re.compile(r"%(?:0([1-9]\d?))?d")
_DIGITS = re.compile(r"(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class ImagePattern:
    """A name with one number in it, as printf writes it."""

    folder: Path
    before: str
    after: str
    width: int = 0
    """Least number of digits, filled with zeros; 0 where none was given."""

    @classmethod
    def parse(cls, path: Path) -> ImagePattern | None:
        """The pattern a path is by its last part: one %d or %04d, with %% for a percent sign.

        Returns:
            None where it is no pattern, be there such a file or not.
        """
        # An escaped percent sign begins no number: split there before looking for one.
        parts = [_NUMBER.split(part) for part in path.name.split("%%")]
        whole = [number for number, part in enumerate(parts) if len(part) == 3]
        if len(whole) != 1 or any(len(part) > 3 for part in parts):
            return None
        at = whole[0]
        before, width, after = parts[at]
        before = "%".join([*(p[0] for p in parts[:at]), before])
        after = "%".join([after, *(p[0] for p in parts[at + 1 :])])
        return cls(path.parent, before, after, int(width or 0))

    def path(self, number: int) -> Path:
        """The file of a number."""
        return self.folder / f"{self.before}{number:0{self.width}d}{self.after}"

    def number(self, name: str) -> int | None:
        """The number of a file's name, or None where the name is not of this pattern."""
        if not (name.startswith(self.before) and name.endswith(self.after)):
            return None
        digits = name[len(self.before) : len(name) - len(self.after)]
        if not (digits.isascii() and digits.isdecimal()):
            return None
        number = int(digits)
        return number if f"{number:0{self.width}d}" == digits else None


def pattern_of(path: Path) -> ImagePattern | None:
    """The pattern of pictures a target is; None for a file that is there, whatever its name."""
    return None if os.path.lexists(path) else ImagePattern.parse(path)


def natural_key(path: Path) -> tuple[object, ...]:
    """Sorts f2 before f10; capitals count only where all else is alike."""
    parts: list[object] = list(_DIGITS.split(path.name.casefold()))
    parts[1::2] = [int(str(digits)) for digits in parts[1::2]]
    return tuple(parts), path.name


def list_pictures(path: Path) -> tuple[Path, ...]:
    """The pictures of a folder or a pattern, in order.

    Of a folder: every file that is an image by its name or by its content, in natural order;
    hidden files and all others are passed over. Of a pattern: from the smallest number there is.

    Raises:
        InputNotFound: There is no such folder, no file of the pattern, or a number is missing.
        NotAVideo: The folder holds no picture.
        InputError: The folder may not be read.
    """
    pattern = pattern_of(path)
    if pattern is None:
        return _of_folder(path)
    return _of_pattern(pattern, path)


def _of_folder(path: Path) -> tuple[Path, ...]:
    files = _files(path, path)
    pictures = [file for file in files if _is_picture(file)]
    if pictures:
        return tuple(sorted(pictures, key=natural_key))
    found = f"; the first of its {len(files)} files is {files[0].name}" if files else ""
    raise NotAVideo(
        f"there are no images in this folder{found}",
        path=path,
        hint="name a folder of JPEG, PNG, WebP, TIFF or BMP images",
    )


def _of_pattern(pattern: ImagePattern, path: Path) -> tuple[Path, ...]:
    numbers = {pattern.number(file.name) for file in _files(pattern.folder, path)} - {None}
    there = sorted(number for number in numbers if number is not None)
    if not there:
        hint = "%04d stands for a number of four digits, %d for any"
        raise InputNotFound("no file is of this pattern", path=path, hint=hint)
    for expected, number in enumerate(there, there[0]):
        if number != expected:
            raise InputNotFound(
                f"picture {expected} is missing, the next is {number}",
                path=pattern.path(expected),
                hint=f"name the folder to take all that are there: {pattern.folder}",
            )
    return tuple(pattern.path(number) for number in there)


def _files(folder: Path, path: Path) -> list[Path]:
    """What is in a folder and is no folder and not hidden."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                folder / entry.name
                for entry in entries
                if not entry.name.startswith(".") and not entry.is_dir()
            )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputNotFound("no such folder", path=folder) from error
    except OSError as error:
        raise InputError(f"the folder cannot be read ({error.strerror})", path=path) from error


def _is_picture(file: Path) -> bool:
    """An image by its name, broken or not, or by what is in it."""
    return file.suffix.lower() in PICTURES or image_kind(file) is not None


def with_suffix(files: Iterable[Path], suffix: str) -> list[str]:
    """The names of files with another suffix, as far as their own is one of an image."""
    return [
        f"{f.stem}{suffix}" if f.suffix.lower() in PICTURES else f"{f.name}{suffix}" for f in files
    ]
