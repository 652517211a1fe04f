"""Damages small clips at random and looks at what becomes of them.

    python scripts/fuzz_video.py                        500 changed bytes, 100 cuts, as the tests
    python scripts/fuzz_video.py --flips 5000 --seed 7  more, and others

Five containers, both readers, the whole pipeline with the generator "none". What must hold, and
which damage leaves no evidence, stands in tests/video/fuzzing.py. Exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.video.fuzzing import WATCHDOG, Case, Findings, Outcome, cases, examine, make_clips


def summary(findings: Findings) -> dict[str, object]:
    """The figures of a run, as JSON types."""
    outcomes = [outcome for _, outcome in findings.outcomes]
    return {
        "cases": len(outcomes),
        "ended": dict(Counter(o.error or "success" for o in outcomes if not o.broken)),
        "slowest_seconds": round(max((o.seconds for o in outcomes), default=0.0), 2),
        "errors_without_loss": [str(case) for case in findings.alarms],
        "without_evidence": {
            reason: [str(case) for case in excused] for reason, excused in findings.excused.items()
        },
        "faults": [f"{case}: {fault}" for case, fault in findings.faults],
    }


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=500, help="files with one byte changed")
    parser.add_argument("--cuts", type=int, default=100, help="files with the end cut off")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--watchdog", type=float, default=WATCHDOG, help="seconds a case may take")
    parser.add_argument("--all", action="store_true", help="every case on stderr")
    given = parser.parse_args()

    def told(case: Case, outcome: Outcome) -> None:
        if given.all:
            how = f"{outcome.written} written, {outcome.lost} lost, {outcome.decodable} decodable"
            print(f"{case}: {outcome.error or 'success'}, {how} {outcome.said}", file=sys.stderr)

    with tempfile.TemporaryDirectory() as folder:
        clips = make_clips(Path(folder))
        chosen = cases(clips, flips=given.flips, cuts=given.cuts, seed=given.seed)
        findings = examine(clips, chosen, watchdog=given.watchdog, told=told)
    print(json.dumps(summary(findings), indent=2))
    sys.exit(bool(findings.faults))


if __name__ == "__main__":
    main()
