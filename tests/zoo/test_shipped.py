"""Loaders: what they return, and what they say of weights that are not the manifest's."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save
from torch import nn

from facefusion_cli.errors import ModelCorrupt, ModelMissing
from facefusion_cli.report import Report
from facefusion_cli.zoo.manifest import FOLDER_VARIABLE, models_folder
from facefusion_cli.zoo.shipped import (
    load_dlib_resnet,
    load_face_mesh,
    load_iris,
    load_retinaface,
)

LOADERS: dict[str, Callable[..., nn.Module]] = {
    "retinaface": load_retinaface,
    "face_mesh": load_face_mesh,
    "iris": load_iris,
    "dlib_resnet": load_dlib_resnet,
}


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the small models that a test may damage, named by FFX_MODELS."""
    for name in ("manifest.toml", "iris.safetensors"):
        shutil.copy(models_folder() / name, tmp_path)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def replace_weights(models: Path, data: bytes) -> None:
    """Other weights for the iris network, and a manifest that vouches for them."""
    old = (models / "iris.safetensors").read_bytes()
    manifest = (models / "manifest.toml").read_text()
    for before, after in (
        (hashlib.sha256(old).hexdigest(), hashlib.sha256(data).hexdigest()),
        (f"size = {len(old)}", f"size = {len(data)}"),
    ):
        assert before in manifest
        manifest = manifest.replace(before, after)
    (models / "manifest.toml").write_text(manifest)
    (models / "iris.safetensors").write_bytes(data)


@pytest.mark.parametrize("name", LOADERS)
def test_a_loaded_network_is_ready_to_run(name: str) -> None:
    report = Report()
    net = LOADERS[name]("cpu", report)
    weights = load_file(models_folder() / f"{name}.safetensors")
    assert not net.training
    assert not any(p.requires_grad for p in net.parameters())
    assert {p.device.type for p in [*net.parameters(), *net.buffers()]} == {"cpu"}
    assert {n: tuple(p.shape) for n, p in net.named_parameters()} == {
        n: tuple(w.shape) for n, w in weights.items()
    }
    assert all(torch.equal(net.get_parameter(n), w) for n, w in weights.items())
    assert list(report.models) == [name]
    assert len(report.models[name]) == 64


def test_a_flipped_byte_is_refused(models: Path) -> None:
    path = models / "iris.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(ModelCorrupt, match=r"iris\.safetensors") as caught:
        load_iris()
    assert caught.value.exit_code == 6
    assert "\n" not in str(caught.value)


def test_missing_weights_are_named(models: Path) -> None:
    with pytest.raises(ModelMissing, match=r"face_mesh\.safetensors"):
        load_face_mesh()


def test_vouched_for_but_no_safetensors_file(models: Path) -> None:
    replace_weights(models, b"not a safetensors file at all")
    with pytest.raises(ModelCorrupt, match="do not fit the network"):
        load_iris()


def test_vouched_for_but_a_tensor_short(models: Path) -> None:
    weights = load_file(models / "iris.safetensors")
    del weights["stem.0.bias"]
    replace_weights(models, save(weights))
    with pytest.raises(ModelCorrupt, match="do not fit the network") as caught:
        load_iris()
    assert "\n" not in str(caught.value)


def test_vouched_for_but_another_shape(models: Path) -> None:
    weights = load_file(models / "iris.safetensors")
    weights["stem.0.bias"] = weights["stem.0.bias"][:-1].clone()
    replace_weights(models, save(weights))
    with pytest.raises(ModelCorrupt, match="do not fit the network"):
        load_iris()
