"""The models folder: where it is found, what the manifest must hold, damaged and missing files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from facefusion_cli.errors import ModelCorrupt, ModelMissing
from facefusion_cli.report import Report
from facefusion_cli.zoo.manifest import (
    FOLDER_VARIABLE,
    load_manifest,
    models_folder,
    read_verified,
    verify_all,
)

NAMES = ["retinaface", "face_mesh", "iris", "dlib_resnet", "face_mesh_topology"]
SMALLEST = "face_mesh_topology"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the models folder that a test may damage, named by FFX_MODELS."""
    copy = tmp_path / "models"
    shutil.copytree(models_folder(), copy)
    monkeypatch.setenv(FOLDER_VARIABLE, str(copy))
    return copy


def flip_a_byte(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_what_ships_is_what_the_manifest_says() -> None:
    assert [(v.file.name, v.state) for v in verify_all()] == [(n, "ok") for n in NAMES]


def test_every_entry_has_its_card_and_licence() -> None:
    for file in load_manifest().files.values():
        assert file.title in file.card.read_text(encoding="utf-8") or not file.task
        assert len(file.license_file.read_text(encoding="utf-8")) > 500
        assert file.license in {"MIT", "Apache-2.0", "CC0-1.0"}


def test_the_environment_names_another_folder(models: Path) -> None:
    assert models_folder() == models
    assert load_manifest()["iris"].path == models / "iris.safetensors"


def test_the_checksum_goes_into_the_report(models: Path) -> None:
    report = Report()
    file = load_manifest()[SMALLEST]
    assert len(read_verified(file, report)) == file.size
    assert report.models == {SMALLEST: file.sha256}


@pytest.mark.parametrize("at", [0, 1000, -1])
def test_one_flipped_bit_is_found(models: Path, at: int) -> None:
    file = load_manifest()[SMALLEST]
    flip_a_byte(file.path, at)
    report = Report()
    with pytest.raises(ModelCorrupt) as caught:
        read_verified(file, report)
    assert caught.value.exit_code == 6
    assert str(file.path) in str(caught.value)
    assert "sha256" in str(caught.value)
    assert "reinstall" in str(caught.value)
    assert report.models == {}


def test_a_truncated_file_says_how_much_is_there(models: Path) -> None:
    file = load_manifest()[SMALLEST]
    file.path.write_bytes(file.path.read_bytes()[:1000])
    with pytest.raises(ModelCorrupt, match=f"1000 bytes instead of {file.size}"):
        read_verified(file)


def test_a_missing_file_is_named(models: Path) -> None:
    file = load_manifest()["face_mesh"]
    file.path.unlink()
    with pytest.raises(ModelMissing, match=r"face_mesh\.safetensors") as caught:
        read_verified(file)
    assert caught.value.exit_code == 6


def test_a_folder_in_the_place_of_a_file_is_an_error_of_ours(models: Path) -> None:
    file = load_manifest()[SMALLEST]
    file.path.unlink()
    file.path.mkdir()
    with pytest.raises(ModelCorrupt, match="cannot be read"):
        read_verified(file)


def test_verify_all_tells_the_three_states_apart(models: Path) -> None:
    flip_a_byte(models / "iris.safetensors", 5000)
    (models / "dlib_resnet.safetensors").unlink()
    states = {v.file.name: v for v in verify_all()}
    assert [states[n].state for n in NAMES] == ["ok", "ok", "corrupt", "missing", "ok"]
    assert "iris.safetensors" in states["iris"].problem
    assert states["face_mesh"].problem == ""


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"manifest\.toml"):
        load_manifest(tmp_path)


def test_no_manifest_where_the_environment_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(ModelMissing, match=f"{FOLDER_VARIABLE} names that folder"):
        load_manifest()


@pytest.mark.parametrize("kind", ["file", "circle", "folder in its place"])
def test_a_folder_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    folder = tmp_path / "models"
    if kind == "file":
        folder.touch()
    elif kind == "circle":
        folder.symlink_to(folder)
    else:
        (folder / "manifest.toml").mkdir(parents=True)
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    with pytest.raises(ModelMissing, match=f"cannot be read.*{FOLDER_VARIABLE}") as caught:
        verify_all()
    assert caught.value.exit_code == 6


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir(mode=0o000)
    with pytest.raises(ModelMissing, match="cannot be read"):
        load_manifest(folder)


@pytest.mark.parametrize(
    "text",
    [
        "[[model]\n",
        '[[model]]\nname = "x"\n',
        "model = 3\n",
        "model = [1]\n",
        b"\xff\xfe",
    ],
)
def test_a_damaged_manifest(tmp_path: Path, text: str | bytes) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "manifest.toml").write_bytes(data)
    with pytest.raises(ModelCorrupt, match="manifest cannot be read"):
        load_manifest(tmp_path)


def test_an_unknown_name() -> None:
    with pytest.raises(ModelMissing, match="no model named 'retina'"):
        load_manifest()["retina"]
