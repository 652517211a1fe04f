from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import pytest

from facefusion_cli.report import STAGES, Report


def test_a_new_report_has_every_stage_at_zero() -> None:
    figures = Report().as_dict()
    assert list(figures["stages"]) == list(STAGES)
    assert all(stage == {"ms": 0.0, "calls": 0} for stage in figures["stages"].values())


def test_timers_add_time_and_calls_also_when_the_block_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter([10.0, 10.25, 20.0, 20.5])
    report = Report()
    monkeypatch.setattr("facefusion_cli.report.time.perf_counter", lambda: next(ticks))
    with report.timer("detect"):
        pass
    with pytest.raises(KeyError), report.timer("detect"):
        raise KeyError
    assert report.stages["detect"].seconds == pytest.approx(0.75)
    assert report.stages["detect"].calls == 2


def test_a_stage_of_another_name_is_added() -> None:
    report = Report()
    with report.timer("crop"):
        pass
    assert report.as_dict()["stages"]["crop"]["calls"] == 1


def test_counting_from_threads_loses_nothing() -> None:
    report = Report()

    def work() -> None:
        for _ in range(2000):
            report.count("frames_out")
            with report.timer("write"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert report.counts["frames_out"] == 8000
    assert report.stages["write"].calls == 8000


def test_a_warning_is_logged_and_kept_once(caplog: pytest.LogCaptureFixture) -> None:
    report = Report()
    with caplog.at_level(logging.INFO, "ffx"):
        report.warn("one frame was lost")
        report.warn("one frame was lost")
        report.note("device cpu")
    assert report.warnings == ["one frame was lost"]
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "one frame was lost"),
        ("INFO", "device cpu"),
    ]


def test_frames_a_second_over_the_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report(started=100.0)
    report.count("frames_out", 60)
    monkeypatch.setattr("facefusion_cli.report.time.perf_counter", lambda: 104.0)
    assert report.as_dict()["fps"] == 15.0
    assert report.as_dict()["seconds"] == 4.0


def test_json_takes_paths_sets_and_facts() -> None:
    report = Report(settings={"output": {"crf": 18}}, versions={"ffx": "0.1.0"})
    report.models["iris"] = "ab" * 32
    report.facts.update(source=Path("a.jpg"), hazards=frozenset({"vfr", "deep"}), device="cpu")
    figures = json.loads(report.as_json())
    assert figures["source"] == "a.jpg"
    assert figures["hazards"] == ["deep", "vfr"]
    assert figures["device"] == "cpu"
    assert figures["settings"] == {"output": {"crf": 18}}
    assert figures["versions"] == {"ffx": "0.1.0"}
    assert figures["models"] == {"iris": "ab" * 32}
    assert report.as_json().endswith("}\n")
