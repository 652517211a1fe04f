"""What a target is, whatever it is: a file, a folder of images or a pattern of them."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

from facefusion_cli.types import VideoInfo
from facefusion_cli.video.image_names import pattern_of
from facefusion_cli.video.image_sequence import probe_images
from facefusion_cli.video.probe import probe


def is_image_sequence(path: Path) -> bool:
    """Whether a target is a folder, or a pattern such as frames/f_%04d.png.

    A file that is there is never a pattern, whatever percent signs its name has.
    """
    return path != Path() and (os.path.isdir(path) or pattern_of(path) is not None)


def probe_target(path: Path, rate: Fraction | None = None) -> VideoInfo:
    """What a clip is: that of a file, or of many images.

    Args:
        path: A file, a folder of images, or a pattern of them. Single images are no clip: ask
            is_image first.
        rate: Pictures a second of a folder or pattern; None = 25. A file has its own.

    Raises:
        InputError, DecodeError: See probe and probe_images.
    """
    return probe_images(path, rate) if is_image_sequence(path) else probe(path)
