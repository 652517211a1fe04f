"""Every clip of the matrix comes through whole with both readers, or is refused as it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from facefusion_cli import errors
from tests.video.matrix import DECODERS, MS, Row, run_row
from tests.video.matrix_rows import ROWS


def _cases() -> list[object]:
    return [
        pytest.param(row, decoder, id=f"{row.name}-{decoder}", marks=[pytest.mark.long] * row.long)
        for row in ROWS
        for decoder in DECODERS
    ]


@pytest.mark.parametrize(("row", "decoder"), _cases())
def test_row(row: Row, decoder: str, tmp_path: Path) -> None:
    result = run_row(row, decoder, tmp_path)
    if decoder == "opencv" and not row.opencv:
        refused = (result.error, result.code) == ("UnsupportedVideo", 3)
        assert refused or row.opencv is None
        if refused:
            return
    if row.refused:
        kind = getattr(errors, row.refused)
        assert (result.error, result.code) == (row.refused, kind.exit_code)
        assert result.frames == (0, 0), "nothing is written"
        return
    if row.lost:
        assert result.code == 4
    else:
        assert result.error is None
    assert result.faults == ()
    if row.same_times:
        assert result.frames[0] == result.frames[1] > 0
        assert result.times <= MS
    assert result.picture <= row.picture
    assert result.worst <= max(2.5 * row.picture, 2.5)
    if result.sound is not None:
        assert result.sound <= MS


def test_the_matrix_is_large_enough() -> None:
    assert len(ROWS) >= 60
    assert len({row.name for row in ROWS}) == len(ROWS)
