"""What a run measured and what it had to say: timers, counters, warnings, the JSON report."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

log = logging.getLogger("ffx")

STAGES = (
    "read",
    "detect",
    "mesh",
    "crop",
    "swap",
    "colour",
    "blend",
    "write",
    "wait_read",
    "wait_write",
)
"""Stages of the report, in order of the pipeline. wait_read: the device thread waits for frames;
wait_write: it waits for room in the writer's queue."""


@dataclass(slots=True)
class StageTime:
    """Time spent in one stage."""

    seconds: float = 0.0
    calls: int = 0


@dataclass(slots=True)
class Report:
    """Facts of one run, filled while it goes; safe to use from the three threads of a clip."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    """Name to sha256 of each weights file this run loaded."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Single values: device, precision, decoder, encoder, source, target, output, ..."""
    counts: dict[str, int] = field(default_factory=dict)
    """frames_in frames_out faces_found faces_swapped frames_lost detector_frames ..."""
    stages: dict[str, StageTime] = field(default_factory=lambda: {s: StageTime() for s in STAGES})
    warnings: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @contextmanager
    def timer(self, stage: str) -> Iterator[None]:
        """Adds the block's wall time and one call to a stage."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - begin
            with self._lock:
                entry = self.stages.setdefault(stage, StageTime())
                entry.seconds += spent
                entry.calls += 1

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter."""
        with self._lock:
            self.counts[name] = self.counts.get(name, 0) + by

    def warn(self, message: str) -> None:
        """Records a warning once and logs it; the same text again is not repeated."""
        with self._lock:
            if message in self.warnings:
                return
            self.warnings.append(message)
        log.warning(message)

    def note(self, message: str) -> None:
        """Logs what was chosen (device, decoder, ...), at info level."""
        log.info(message)

    def as_dict(self) -> dict[str, Any]:
        """The whole report as JSON types; milliseconds to three decimals."""
        seconds = time.perf_counter() - self.started
        frames = self.counts.get("frames_out", 0)
        return {
            "versions": dict(self.versions),
            "models": dict(self.models),
            "settings": dict(self.settings),
            **self.facts,
            "counts": dict(self.counts),
            "stages": {
                name: {"ms": round(t.seconds * 1000, 3), "calls": t.calls}
                for name, t in self.stages.items()
            },
            "seconds": round(seconds, 3),
            "fps": round(frames / seconds, 3) if seconds > 0 else 0.0,
            "warnings": list(self.warnings),
        }

    def as_json(self) -> str:
        """The report as indented JSON text."""
        return json.dumps(self.as_dict(), indent=2, default=_plain) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    return str(value)
