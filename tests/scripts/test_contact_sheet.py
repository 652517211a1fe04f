"""Contact sheets show the pictures they were given, whole and in order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.clips import make_clip
from tests.scripts import load

sheets = load("contact_sheet")


def plain(colour: tuple[int, int, int], height: int, width: int) -> np.ndarray:
    return np.full((height, width, 3), colour, np.uint8)


def test_a_picture_is_fitted_whole_and_centred() -> None:
    page = sheets.fitted(plain((200, 0, 0), 50, 100), 60, 60)
    assert page.shape == (60, 60, 3)
    assert (page[15:45] == (200, 0, 0)).all()
    assert (page[:15] == 255).all()
    assert (page[45:] == 255).all()


def test_rows_stand_in_order_and_the_last_line_is_filled() -> None:
    colours = [(10 * i, 0, 0) for i in range(3)]
    rows = [(f"row {i}", [plain(c, 40, 40)] * 2) for i, c in enumerate(colours)]
    sheet = sheets.rows_sheet(rows, cell=40, columns=2)
    block_width, block_height = 2 * 40 + sheets.GAP, 40 + sheets.BAND
    assert sheet.shape == (2 * block_height + sheets.GAP, 2 * block_width + sheets.GAP, 3)
    middle = sheets.BAND + 20
    assert sheet[middle, 20].tolist() == [0, 0, 0]
    assert sheet[middle, block_width + sheets.GAP + 20].tolist() == [10, 0, 0]
    below = block_height + sheets.GAP + middle
    assert sheet[below, 20].tolist() == [20, 0, 0]
    assert sheet[below, block_width + sheets.GAP + 20].tolist() == [255, 255, 255]


def test_a_clip_sheet_takes_every_so_many_frames(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=12, size=(64, 48))
    found = list(sheets.frames_at(clip.path, 5))
    assert [number for number, _ in found] == [0, 5, 10]
    out = tmp_path / "sheet.jpg"
    assert sheets.main([str(clip.path), str(clip.path), "-o", str(out), "--every", "5"]) == 0
    sheet = sheets.clip_sheet(clip.path, clip.path, every=5, width=208)
    cell = (208 - 2 * sheets.GAP) // 3
    assert sheet.shape == (2 * (sheets.BAND + round(cell * 48 / 64)), 3 * cell + 2 * sheets.GAP, 3)
    half = sheet.shape[0] // 2
    assert (sheet[sheets.BAND : half] == sheet[half + sheets.BAND :]).all()


def test_clips_of_unequal_length_are_refused(tmp_path: Path) -> None:
    one = make_clip(tmp_path / "one.mp4", frames=12).path
    other = make_clip(tmp_path / "other.mp4", frames=4).path
    with pytest.raises(ValueError, match="not frames of one size and number"):
        sheets.clip_sheet(one, other, every=5, width=200)
