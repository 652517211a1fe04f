"""The evaluation's figures against values made by hand, and one run from photos to JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.people import expression, write_picture
from tests.scripts import load

evaluate = load("evaluate")


def mesh_with_eyes(distance: float) -> np.ndarray:
    """468 points in pairs at one place each, the outer eye corners that far apart."""
    generator = np.random.default_rng(3)
    mesh = generator.uniform(0, 200, (468, 3))
    left, right = evaluate.EYE_CORNERS
    mesh[left, :2], mesh[right, :2] = (50, 80), (50 + distance, 80)
    return mesh


def pair(source: str, target: str, **known: object) -> object:
    return evaluate.Pair(source, target, 0.5, "errors" in known, **known)


def test_a_mesh_equals_itself_wherever_and_however_large_it_is() -> None:
    target = mesh_with_eyes(90)
    turn = np.radians(20)
    matrix = 1.7 * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    moved = target[:, :2] @ matrix.T + (300, -40)
    for result in (target, moved):
        errors = evaluate.mesh_errors(result, target)
        assert max(errors.mesh, errors.lips, errors.lids) == pytest.approx(0, abs=1e-9)


def test_a_known_displacement_is_a_known_percentage() -> None:
    """Points that coincide in the result and part evenly in the target leave the fit as it is."""
    result = mesh_with_eyes(80)
    free = [i for i in range(468) if i not in evaluate.EYE_CORNERS][:200]
    one, other = np.array(free[:100]), np.array(free[100:])
    result[other] = result[one]
    target = result.copy()
    target[one, :2] += (3, 4)
    target[other, :2] -= (3, 4)
    # 200 points of 468 move by 5 px; the eyes are 80 px apart.
    expected = 100 * (200 * 5 / 468) / 80
    assert evaluate.mesh_errors(result, target).mesh == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("upper", "lower", "field", "share"),
    [(13, 14, "lips", 1), (159, 145, "lids", 2), (386, 374, "lids", 2)],
)
def test_an_opening_counts_in_eye_distances(upper: int, lower: int, field: str, share: int) -> None:
    result = mesh_with_eyes(100)
    for above, below in (evaluate.LIPS, *evaluate.LIDS):
        result[above, :2] = result[below, :2]
    target = result.copy()
    target[upper, 1] -= 6
    target[lower, 1] += 6
    errors = evaluate.mesh_errors(result, target)
    # 12 px of 100, in one of the eyes only; the fit is exact, as above.
    assert getattr(errors, field) == pytest.approx(12 / share, rel=1e-9)
    assert {"lips": errors.lids, "lids": errors.lips}[field] == pytest.approx(0, abs=1e-9)


def test_the_summary_counts_what_was_not_found_as_failed() -> None:
    errors = evaluate.Errors(mesh=1.0, lips=2.0, lids=3.0)
    twice = evaluate.Errors(mesh=2.0, lips=4.0, lids=6.0)
    pairs = [
        pair("a", "b", nearest="a", to_source=0.4, to_target=0.8, errors=errors),
        pair("b", "a", nearest="a", to_source=0.6, to_target=0.6, errors=twice),
        pair("c", "a"),
        pair("a", "c", nearest="a", to_source=0.5, to_target=0.7, errors=errors),
    ]
    figures = evaluate.summary(pairs, genuine=0.25)
    assert figures["pairs"] == 4
    assert figures["detected_percent"] == 75
    assert figures["rank1_percent"] == 50
    assert figures["l2_to_source"] == pytest.approx(0.5)
    assert figures["l2_to_target"] == pytest.approx(0.7)
    assert figures["mesh_error_percent"] == pytest.approx(4 / 3)
    assert figures["lid_gap_error_percent"] == pytest.approx(4)
    assert figures["l2_genuine"] == 0.25
    assert figures["seconds_a_swap"] == 0.5


def test_the_nearest_is_the_nearest() -> None:
    gallery = {"a": np.array([0.0, 0.0]), "b": np.array([3.0, 4.0]), "c": np.array([-1.0, 0.0])}
    assert evaluate.nearest(np.array([2.0, 2.0]), gallery) == "b"
    assert evaluate.nearest(np.array([-0.6, 0.0]), gallery) == "c"


def test_the_gallery_holds_no_photo_that_a_result_was_made_of() -> None:
    people = {p: (np.array([i, 0.0]), np.array([i, 1.0])) for i, p in enumerate("abc")}
    gallery = evaluate.gallery_for("b", people)
    assert {p: v.tolist() for p, v in gallery.items()} == {"a": [0, 1], "b": [1, 0], "c": [2, 1]}


def test_people_need_both_photos(tmp_path: Path) -> None:
    for name in ("x_1_neutral", "x_1_smiling", "x_2_neutral", "x_3_smiling"):
        (tmp_path / f"{name}.jpg").touch()
    with pytest.raises(FileNotFoundError, match="fewer than two"):
        evaluate.find_people(tmp_path)
    (tmp_path / "x_2_smiling.jpg").touch()
    people = evaluate.find_people(tmp_path)
    assert list(people) == ["x_1", "x_2"]
    assert people["x_2"] == (tmp_path / "x_2_neutral.jpg", tmp_path / "x_2_smiling.jpg")


def test_photos_become_figures_and_a_sheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for person in ("P006", "P007"):
        for photo, name in (("neutral", "neutral"), ("smiling", "happy")):
            write_picture(tmp_path / f"open_{person}_{photo}.jpg", expression(person, name))
    out, sheet = tmp_path / "figures.json", tmp_path / "sheet.jpg"
    arguments = ["--pairs", tmp_path, "--json", out, "--sheet", sheet, "--device", "cpu"]
    assert evaluate.main([str(a) for a in arguments]) == 0
    written = json.loads(out.read_text())
    assert {(p["source"], p["target"]) for p in written["pairs"]} == {
        ("open_P006", "open_P007"),
        ("open_P007", "open_P006"),
    }
    figures = written["summary"]
    assert figures["detected_percent"] == 100
    assert figures["rank1_percent"] == 100
    assert figures["l2_to_source"] < figures["l2_to_target"]
    assert 0 < figures["mesh_error_percent"] < 4
    assert sheet.read_bytes()[:2] == b"\xff\xd8"
    assert "rank1_percent" in capsys.readouterr().out
