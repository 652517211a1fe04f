"""What `pip install .` puts on a machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from facefusion_cli import __version__
from tests.people import portrait, write_clip, write_picture

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_folder_is_listed() -> None:
    folders = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for init in (ROOT / "facefusion_cli").rglob("__init__.py")
    }
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    assert folders == {name for name in listed if ".data." not in name}
    assert {name for name in listed if ".data." in name} == {
        "facefusion_cli.data.configs",
        "facefusion_cli.data.models",
    }


def test_every_python_file_lies_in_a_package() -> None:
    strays = [
        path
        for path in (ROOT / "facefusion_cli").rglob("*.py")
        if not (path.parent / "__init__.py").exists()
    ]
    assert strays == []


def test_one_onnxruntime_and_one_opencv_are_asked_for() -> None:
    names = [re.split(r"[<>=; ]", line)[0] for line in PROJECT["project"]["dependencies"]]
    assert [n for n in names if n.startswith("opencv")] == ["opencv-python-headless"]
    rows = [d for d in PROJECT["project"]["dependencies"] if d.startswith("onnxruntime")]
    markers = [row.split(";")[1].strip() for row in rows]
    assert len(rows) == 2
    for platform in ("linux", "win32", "darwin"):
        for machine in ("x86_64", "AMD64", "aarch64", "arm64"):
            chosen = [
                row
                for row, marker in zip(rows, markers, strict=True)
                if eval(marker, {"sys_platform": platform, "platform_machine": machine})
            ]
            assert len(chosen) == 1, (platform, machine)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # From a copy, or an old build/ folder of the checkout would find its way into the wheel.
    tree, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in ("facefusion_cli", "models", "configs"):
        shutil.copytree(
            ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "data")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    pip(["wheel", "--no-deps", "--wheel-dir", folder, tree])
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel alone in an empty folder outside the tree."""
    folder = tmp_path_factory.mktemp("installed")
    pip(["install", "--no-deps", "--target", folder, wheel])
    return folder


def pip(arguments: list[str | Path]) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def run(program: list[str], folder: Path, where: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program with the installed copy and nothing of the checkout."""
    environment = {k: v for k, v in os.environ.items() if k not in {"FFX_MODELS", "PYTHONPATH"}}
    environment["PYTHONPATH"] = str(folder)
    return subprocess.run(program, cwd=where, env=environment, capture_output=True, text=True)


@pytest.mark.long
def test_the_wheel_holds_weights_settings_and_licences(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    data = "facefusion_cli/data"
    for path in [*(ROOT / "models").rglob("*"), *(ROOT / "configs").glob("*.toml")]:
        if path.is_file():
            assert f"{data}/{path.relative_to(ROOT).as_posix()}" in names
    for module in (ROOT / "facefusion_cli").rglob("*.py"):
        assert module.relative_to(ROOT).as_posix() in names
    assert any(re.fullmatch(r"ffx-.*\.dist-info/licenses/LICENSE", name) for name in names)
    for licence in (ROOT / "models" / "licenses").iterdir():
        assert any(name.endswith(f"licenses/{licence.name}") for name in names)
    assert not [name for name in names if name.startswith(("tests", "scripts", "docs"))]


@pytest.mark.long
def test_the_installed_wheel_swaps(installed: Path, tmp_path: Path) -> None:
    source = write_picture(tmp_path / "source.jpg", portrait("P001", 384))
    target = write_clip(tmp_path / "target.mp4", portrait("P002", 256), 6)
    where = run(
        [sys.executable, "-c", "import facefusion_cli as f; print(f.__file__)"],
        installed,
        tmp_path,
    )
    assert where.stdout.startswith(str(installed))
    module = [sys.executable, "-m", "facefusion_cli"]
    done = run([*module, "swap", str(source), str(target), "-o", "out.mp4"], installed, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "out.mp4\n"
    assert "6 faces swapped" in done.stderr
    assert (tmp_path / "out.mp4").stat().st_size > 0
    doctor = run([*module, "doctor"], installed, tmp_path)
    assert str(installed / "facefusion_cli" / "data" / "models") in doctor.stdout


@pytest.mark.long
def test_the_script_of_the_wheel_runs(installed: Path, tmp_path: Path) -> None:
    done = run([str(installed / "bin" / "ffx"), "--version"], installed, tmp_path)
    assert done.stdout == f"ffx {__version__}\n"
    assert done.returncode == 0
    program = [sys.executable, "-m", "facefusion_cli"]
    arguments = ["swap", "a.jpg", "b.mp4", "-o", "c.mp4", "--profile", "fast"]
    fast = run([*program, *arguments], installed, tmp_path)
    assert fast.returncode == 3, fast.stderr  # the profile was found; the source was not
