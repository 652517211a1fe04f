from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import av
import pytest

from facefusion_cli.cli import checks, environment
from facefusion_cli.cli.checks import ENCODERS, Finding, check_distributions, try_encoder
from facefusion_cli.zoo.manifest import models_folder
from tests.conftest import Ffx


@pytest.fixture
def damaged_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the models folder with one byte of the mesh network flipped."""
    folder = tmp_path / "models"
    shutil.copytree(models_folder(), folder)
    weights = folder / "face_mesh.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    monkeypatch.setenv("FFX_MODELS", str(folder))
    return weights


def test_a_sound_machine(ffx: Ffx) -> None:
    done = ffx("doctor")
    assert done.code == 0, done.out
    assert done.err == ""
    for name in ("versions", "cpu", "cuda", "onnxruntime", "models", "ffmpeg", "encoders"):
        assert f"ok       {name}: " in done.out
    assert f"av {av.__version__}" in done.out
    assert "libx264" in done.out


def test_json_holds_the_same_for_machines(ffx: Ffx) -> None:
    done = ffx("doctor", "--json")
    found = json.loads(done.out)
    assert found["exit_code"] == done.code == 0
    by_name = {finding["name"]: finding for finding in found["findings"]}
    assert by_name["versions"]["facts"]["python"] == sys.version.split()[0]
    assert len(by_name["models"]["facts"]) >= 4
    assert all(len(sha256) == 64 for sha256 in by_name["models"]["facts"].values())
    assert set(by_name["encoders"]["facts"]) == set(ENCODERS)
    assert by_name["encoders"]["facts"]["libx264"] == "opens"
    assert by_name["cpu"]["facts"]["cores"] >= 1
    assert "CPUExecutionProvider" in by_name["onnxruntime"]["facts"]["providers"]


def test_a_flipped_byte_in_a_model_is_6(ffx: Ffx, damaged_models: Path) -> None:
    done = ffx("doctor")
    assert done.code == 6
    assert "ERROR    face_mesh: the weights of" in done.out
    assert str(damaged_models) in done.out
    assert "mend: reinstall" in done.out


def test_a_models_folder_without_manifest_is_6(
    ffx: Ffx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FFX_MODELS", str(tmp_path))
    done = ffx("doctor", "--json")
    assert done.code == json.loads(done.out)["exit_code"] == 6


@pytest.mark.parametrize(
    ("names", "mend", "code"),
    [
        (["onnxruntime", "onnxruntime-gpu"], "&& pip install onnxruntime-gpu", 7),
        (
            ["opencv-contrib-python", "opencv-python-headless"],
            "&& pip install opencv-python-headless",
            4,
        ),
        (["opencv-contrib-python", "opencv-python"], "&& pip install opencv-contrib-python", 4),
    ],
)
def test_two_distributions_of_one_library(names: list[str], mend: str, code: int) -> None:
    (finding,) = check_distributions([*names, "numpy"])
    assert finding.level == "error"
    assert finding.exit_code == code
    assert all(name in finding.text for name in names)
    assert finding.mend is not None
    assert finding.mend.startswith(f"pip uninstall -y {' '.join(names)} ")
    assert finding.mend.endswith(mend)


def test_one_of_each_is_no_clash() -> None:
    assert list(check_distributions(["onnxruntime-gpu", "opencv-python-headless", "numpy"])) == []


def test_a_clash_decides_the_exit_code(ffx: Ffx, monkeypatch: pytest.MonkeyPatch) -> None:
    here = environment.installed() | {"onnxruntime": "1", "onnxruntime-gpu": "1"}
    monkeypatch.setattr(checks, "installed", lambda: here)
    done = ffx("doctor")
    assert done.code == 7
    assert "onnxruntime and onnxruntime-gpu are both installed" in done.out


def test_an_encoder_that_is_needed_and_does_not_open_is_5(
    ffx: Ffx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "try_encoder", lambda name: "no such codec")
    done = ffx("doctor")
    assert done.code == 5
    assert "ERROR    libx264: does not open: no such codec" in done.out


def test_encoders_are_really_opened() -> None:
    assert try_encoder("libx264") is None
    assert try_encoder("ffv1") is None
    assert try_encoder("no_such_encoder") is not None
    assert try_encoder("aac") is not None  # an encoder, but not of pictures


def test_opening_encoders_writes_nothing_of_its_own() -> None:
    script = (
        "from facefusion_cli.cli.checks import ENCODERS, try_encoder\n"
        "[try_encoder(name) for name in ENCODERS]\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_versions_come_without_importing() -> None:
    found = environment.versions()
    assert found["av"] == av.__version__
    assert {"ffx", "python", "torch", "torchvision", "numpy"} <= found.keys()
    assert [name for name in found if name.startswith("opencv")] == ["opencv-python-headless"]
    assert len([name for name in found if name.startswith("onnxruntime")]) == 1


def test_a_library_that_does_not_load_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    findings = list(checks.check_devices())
    assert findings[-1].name == "torch"
    assert findings[-1].exit_code == 7
    monkeypatch.setitem(sys.modules, "cv2", None)
    (finding,) = checks.check_encoders()
    assert finding.exit_code == 4
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert checks.check_providers().level == "warning"


def test_a_finding_is_ok_or_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    findings: list[Finding] = checks.examine()
    assert [f for f in findings if f.level != "ok" and not f.mend] == []
