"""Flags, the settings they override, and what the help says of them."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
import typer

from facefusion_cli import pipeline
from facefusion_cli.cli.main import app
from facefusion_cli.cli.options import SETTINGS, config_from
from facefusion_cli.config import Config
from facefusion_cli.errors import ConfigError
from tests.conftest import Ffx

WITHOUT_A_FLAG = {"runtime.queue"}
"""Settings for a configuration file only."""

NOTHING = {"profile": "default", "config": None}


def test_every_setting_has_a_flag_and_every_flag_a_setting() -> None:
    hints = get_type_hints(Config)
    known = {
        f"{table.name}.{f.name}" for table in fields(Config) for f in fields(hints[table.name])
    }
    assert set(SETTINGS.values()) == known - WITHOUT_A_FLAG
    command = typer.main.get_command(app).commands["swap"]  # type: ignore[attr-defined]
    parameters = {p.name for p in command.params}
    assert set(SETTINGS) <= parameters
    others = {"source", "target", "out", "quiet", "report", "debug", "config", "profile"}
    assert parameters - set(SETTINGS) <= others | {"help"}


def test_no_flag_no_override(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[output]\noverwrite = true\ncrf = 30\naudio = false\n")
    given = NOTHING | dict.fromkeys(SETTINGS) | {"config": file, "crf": 12, "target_audio": True}
    config = config_from(given)
    assert config.output.overwrite is True
    assert config.output.crf == 12
    assert config.output.audio is True
    assert config.output.preset == Config().output.preset


def test_a_false_flag_overrides_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[output]\noverwrite = true\n")
    assert config_from(NOTHING | {"config": file, "overwrite": False}).output.overwrite is False


def test_an_error_names_what_the_user_wrote(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--min-face 0 is outside 1 to 10000$"):
        config_from(NOTHING | {"min_face": 0})
    with pytest.raises(ConfigError, match=r"^--decoder 'pyv' is not one of .*mean 'pyav'\?\)$"):
        config_from(NOTHING | {"decoder": "pyv"})
    file = tmp_path / "mine.toml"
    file.write_text("[detect]\nmin_face = 0\n")
    with pytest.raises(ConfigError, match=r"^detect.min_face = 0 is outside"):
        config_from(NOTHING | {"config": file})


def test_every_flag_reaches_the_pipeline(ffx: Ffx, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Config] = []
    monkeypatch.setattr(pipeline, "swap", lambda *arguments: seen.append(arguments[3]))
    flags = (
        "--overwrite --encoder ffv1 --crf 20 --preset slow --pix-fmt yuv420p --encoder-options a=b "
        "--audio a.wav --start 1 --end 90f --fps 25 --scale x720 --tonemap bt2390 --writer opencv "
        "--resume --segment 5 --image-quality 80 --no-audio --lenient "
        "--select largest --require-face --max-yaw 30 --min-face 40 --threshold 0.5 "
        "--detector-size 320 --generator none --colour lab --blend alpha --device cpu "
        "--precision bf16 --batch 2 --decoder pyav --threads 1 --stall 9"
    )
    done = ffx("swap", "a.jpg", "b.mp4", "-o", "c.mkv", *flags.split())
    assert done.code == 0, done.err
    values = seen[0].as_dict()
    assert values == {
        "detect": {"size": 320, "threshold": 0.5, "min_face": 40},
        "faces": {"select": "largest", "require_face": True, "max_yaw": 30.0},
        "generator": {"name": "none", "colour": "lab", "blend": "alpha"},
        "output": {
            "encoder": "ffv1",
            "crf": 20,
            "preset": "slow",
            "pix_fmt": "yuv420p",
            "encoder_options": "a=b",
            "image_quality": 80,
            "audio": False,
            "audio_file": "a.wav",
            "start": "1",
            "end": "90f",
            "fps": "25",
            "scale": "x720",
            "tonemap": "bt2390",
            "writer": "opencv",
            "resume": True,
            "segment": 5.0,
            "overwrite": True,
            "lenient": True,
        },
        "runtime": {
            "device": "cpu",
            "precision": "bf16",
            "batch": 2,
            "decoder": "pyav",
            "queue": Config().runtime.queue,
            "threads": 1,
            "stall": 9.0,
        },
    }


def test_profile_and_file_reach_the_pipeline(
    ffx: Ffx, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Config] = []
    monkeypatch.setattr(pipeline, "swap", lambda *arguments: seen.append(arguments[3]))
    file = tmp_path / "mine.toml"
    file.write_text("[output]\ncrf = 33\n")
    done = ffx("swap", "a", "b", "-o", "c.mp4", "--profile", "fast", "--config", file)
    assert done.code == 0, done.err
    assert seen[0].output.crf == 33
    assert seen[0].output.preset == "ultrafast"


def test_the_help_shows_groups_defaults_and_choices(
    ffx: Ffx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = re.sub(r"\s+", " ", ffx("swap", "--help").out)
    for panel in ("Output", "Faces", "Generator", "Runtime", "Reporting", "Configuration"):
        assert f"─ {panel} ─" in text
    assert "auto|poisson|alpha|opencv|none" in text
    assert "(default -1)" in text
    assert "(default veryfast)" in text
