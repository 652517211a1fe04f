from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from facefusion_cli.cli.probe import as_text, plain
from tests.conftest import Ffx
from tests.people import portrait, write_clip


@pytest.fixture(scope="module")
def clip(media: Path) -> Path:
    return write_clip(media / "probed.mp4", portrait("P002", 64)[:48], 12, fps=24)


def test_json(ffx: Ffx, clip: Path) -> None:
    done = ffx("probe", clip, "--json")
    assert (done.code, done.err) == (0, "")
    facts = json.loads(done.out)
    assert (facts["width"], facts["height"]) == (64, 48)
    assert Fraction(facts["frame_rate"]) == 24
    assert facts["frame_count_from_header"] == 12
    assert facts["pixel_format"] == "yuv420p"
    assert facts["codec"] == "h264"
    assert facts["path"] == str(clip)
    assert facts["hazards"] == []
    assert [stream["codec"] for stream in facts["audio"]] == ["aac"]
    assert facts["color"]["range"] == "limited"


def test_text_is_one_fact_a_line(ffx: Ffx, clip: Path) -> None:
    done = ffx("probe", clip)
    rows = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert rows["width"] == "64"
    assert rows["frame_rate"] == "24"
    assert rows["hazards"] == "none"
    assert "codec aac" in rows["audio"]


def test_a_picture(ffx: Ffx, source_photo: Path) -> None:
    done = ffx("probe", source_photo, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {
        "path": str(source_photo),
        "format": "JPEG",
        "width": 384,
        "height": 384,
        "bits": 8,
        "alpha": False,
    }
    assert "alpha   no" in ffx("probe", source_photo).out


def test_what_cannot_be_probed(ffx: Ffx, tmp_path: Path) -> None:
    done = ffx("probe", tmp_path / "none.mp4")
    assert done.code == 3
    assert "none.mp4" in done.error
    assert done.out == ""


def test_values_become_json_types() -> None:
    value = {"a": Fraction(30000, 1001), "b": frozenset({"vfr", "deep"}), "c": (Path("x"), None)}
    assert plain(value) == {"a": "30000/1001", "b": ["deep", "vfr"], "c": ["x", None]}


def test_nested_values_stay_on_one_line() -> None:
    text = as_text({"a": None, "long_name": [{"x": 1, "y": 2}, {"x": 3, "y": 4}], "c": []})
    assert text.splitlines() == [
        "a          unknown",
        "long_name  x 1, y 2; x 3, y 4",
        "c          none",
    ]
