"""Runs the input matrix of the tests and prints docs/video.md's table of it.

    python scripts/video_matrix.py                all rows, both readers, as markdown
    python scripts/video_matrix.py --only timing  one group

Each row is a kind of clip, made on the spot, that goes through the whole pipeline with the
generator "none"; what is compared, and how, stands in tests/video/matrix.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.video.matrix import DECODERS, MS, Result, Row, run_row
from tests.video.matrix_clips import unlock
from tests.video.matrix_rows import ROWS


def told(row: Row, decoder: str, result: Result) -> str:
    """What came of a row, in a cell."""
    if decoder == "opencv" and not row.opencv:
        if result.error == "UnsupportedVideo":
            return "refused, PyAV reads it"
        if row.opencv is False:
            return "WRONG: not refused"
    if result.error and result.frames == (0, 0):
        right = row.refused == result.error
        return f"{result.error}, exit {result.code}" if right else f"WRONG: {result.error}"
    parts = [f"{result.frames[1]} of {result.frames[0]} frames"]
    if row.same_times:
        parts.append(f"times {float(result.times / MS):.2g} ms")
    if result.sound is not None:
        parts.append(f"sound {float(result.sound / MS):.2g} ms")
    if row.same_frames:
        parts.append(f"picture {result.picture:.2f}")
    if result.code:
        parts.append(f"exit {result.code}")
    parts += [f"WRONG: {fault}" for fault in result.faults]
    return ", ".join(parts)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    groups = list(dict.fromkeys(row.group for row in ROWS))
    parser.add_argument("--only", choices=groups, help="one group of rows")
    chosen = parser.parse_args().only
    wrong = count = 0
    for group in groups if chosen is None else [chosen]:
        print(f"\n### {group.capitalize()}\n")
        print("| clip | output | OpenCV | PyAV |\n|---|---|---|---|")
        for row in (r for r in ROWS if r.group == group):
            cells = []
            for decoder in DECODERS:
                with tempfile.TemporaryDirectory() as folder:
                    cells.append(told(row, decoder, run_row(row, decoder, Path(folder))))
                    unlock(Path(folder))
            wrong += sum("WRONG" in cell for cell in cells)
            count += len(cells)
            given = row.settings.get("output", {}).get("encoder", "")
            print(f"| {row.name} | {given} {row.out.removeprefix('out')} | {' | '.join(cells)} |")
    print(f"\n{count} runs, {wrong} wrong.")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
