#!/usr/bin/env python3
"""Contact sheets: pictures in labelled rows, and the frames of a clip before and after.

contact_sheet.py BEFORE AFTER -o SHEET.jpg [--source PHOTO] [--every 30] [--width 1200]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import av
import cv2
import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
"""[H,W,3] RGB."""

GAP = 4
"""Pixels between pictures."""
BAND = 20
"""Height of a line of text."""
PAPER = (255, 255, 255)
INK = (30, 30, 30)


def fitted(picture: Image, width: int, height: int) -> Image:
    """A picture scaled into a box and centred on paper."""
    rows, columns = picture.shape[:2]
    scale = min(width / columns, height / rows)
    size = (max(1, round(columns * scale)), max(1, round(rows * scale)))
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    small = cv2.resize(picture, size, interpolation=how)
    page = np.full((height, width, 3), PAPER, np.uint8)
    y, x = (height - size[1]) // 2, (width - size[0]) // 2
    page[y : y + size[1], x : x + size[0]] = small
    return page


def text_line(text: str, width: int) -> Image:
    """One line of text, [BAND, width, 3], made narrower where it is too long."""
    scale = 0.42
    (length, _), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, 1)
    scale = min(scale, scale * (width - 8) / max(length, 1))
    line = np.full((BAND, width, 3), PAPER, np.uint8)
    where = (4, BAND - 6)
    cv2.putText(line, text, where, cv2.FONT_HERSHEY_SIMPLEX, scale, INK, 1, cv2.LINE_AA)
    return line


def stack(pictures: Sequence[Image], *, across: bool) -> Image:
    """Pictures of one height (or width) beside (or below) each other, with gaps."""
    gap = (pictures[0].shape[0], GAP, 3) if across else (GAP, pictures[0].shape[1], 3)
    spaced: list[Image] = []
    for picture in pictures:
        spaced += [picture, np.full(gap, PAPER, np.uint8)]
    return np.concatenate(spaced[:-1], axis=1 if across else 0)


def rows_sheet(
    rows: Sequence[tuple[str, Sequence[Image]]], *, cell: int = 160, columns: int = 4
) -> Image:
    """Labelled rows of pictures, in several columns of rows.

    Args:
        rows: A label and the pictures it stands above; as many in each row.
        cell: Side of the square that a picture is fitted into.
        columns: How many rows stand beside each other.
    """
    blocks = []
    for label, pictures in rows:
        strip = stack([fitted(p, cell, cell) for p in pictures], across=True)
        blocks.append(np.concatenate([text_line(label, strip.shape[1]), strip]))
    columns = min(columns, len(blocks))
    while len(blocks) % columns:
        blocks.append(np.full_like(blocks[0], 255))
    lines = [blocks[i : i + columns] for i in range(0, len(blocks), columns)]
    return stack([stack(line, across=True) for line in lines], across=False)


def frames_at(path: Path, every: int) -> Iterator[tuple[int, Image]]:
    """Frames 0, every, 2 every, ... of a clip with their numbers."""
    with av.open(str(path)) as clip:
        for number, frame in enumerate(clip.decode(video=0)):
            if number % every == 0:
                yield number, frame.to_ndarray(format="rgb24")


def clip_sheet(
    before: Path, after: Path, *, every: int, width: int, source: Image | None = None
) -> Image:
    """Two clips above each other, every so many frames, the source photo at the left.

    Raises:
        ValueError: The clips differ in length or size at those frames.
    """
    upper, lower = list(frames_at(before, every)), list(frames_at(after, every))
    shapes = [picture.shape for _, picture in upper + lower]
    if len(upper) != len(lower) or len(set(shapes)) != 1:
        raise ValueError(f"{before} and {after} are not frames of one size and number")
    columns = len(upper) + (source is not None)
    cell = (width - GAP * (columns - 1)) // columns
    height = round(cell * shapes[0][0] / shapes[0][1])
    blocks = []
    if source is not None:
        photo = fitted(source, cell, height)
        blank = np.full_like(photo, 255)
        label, none = text_line("source", cell), text_line("", cell)
        blocks.append(np.concatenate([label, photo, none, blank]))
    for (number, one), (_, other) in zip(upper, lower, strict=True):
        labels = [text_line(f"{what}, frame {number}", cell) for what in ("target", "result")]
        pictures = [fitted(p, cell, height) for p in (one, other)]
        blocks.append(np.concatenate([labels[0], pictures[0], labels[1], pictures[1]]))
    return stack(blocks, across=True)


def write_jpeg(path: Path, picture: Image, quality: int = 90) -> None:
    """Writes an RGB picture as JPEG."""
    done, data = cv2.imencode(
        ".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality]
    )
    assert done
    path.write_bytes(data.tobytes())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A sheet of a clip's frames, before and after.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--source", type=Path, help="photo to show beside them")
    parser.add_argument("--every", type=int, default=30)
    parser.add_argument("--width", type=int, default=1200)
    args = parser.parse_args(argv)
    source = None
    if args.source is not None:
        photo = cv2.imread(str(args.source), cv2.IMREAD_COLOR)
        if photo is None:
            parser.error(f"cannot read {args.source}")
        source = np.asarray(cv2.cvtColor(photo, cv2.COLOR_BGR2RGB), np.uint8)
    sheet = clip_sheet(args.before, args.after, every=args.every, width=args.width, source=source)
    write_jpeg(args.out, sheet)
    print(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
