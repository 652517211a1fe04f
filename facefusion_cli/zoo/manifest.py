"""What is in the models folder: where it is, what the manifest says, whether the bytes match."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from facefusion_cli.errors import ModelCorrupt, ModelMissing
from facefusion_cli.report import Report

FOLDER_VARIABLE = "FFX_MODELS"
"""Environment variable that names another models folder."""
REINSTALL = "reinstall ffx, or restore the file from its release"

State = Literal["ok", "corrupt", "missing"]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of the manifest."""

    name: str
    title: str
    path: Path
    sha256: str
    size: int
    """Bytes."""
    license: str
    """SPDX identifier."""
    license_file: Path
    card: Path
    source: str
    """Package and version it was made of."""
    task: str = ""
    """detection, landmarks, eyes or identity; empty for plain data."""
    architecture: str = ""
    """Which network of facefusion_cli.nets it fits; empty for plain data."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The models folder."""

    folder: Path
    files: Mapping[str, ModelFile]
    """By name, in the manifest's order."""

    def __getitem__(self, name: str) -> ModelFile:
        """The entry of that name.

        Raises:
            ModelMissing: The manifest has none.
        """
        try:
            return self.files[name]
        except KeyError:
            raise ModelMissing(
                f"no model named {name!r} in the manifest",
                path=self.folder / "manifest.toml",
                hint=REINSTALL,
            ) from None


def models_folder() -> Path:
    """FFX_MODELS if set, else the folder inside the installed package, else the checkout's."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    package = Path(__file__).resolve().parent.parent
    installed = package / "data" / "models"
    return installed if installed.is_dir() else package.parent / "models"


def load_manifest(folder: Path | None = None) -> Manifest:
    """Reads manifest.toml.

    Args:
        folder: The models folder; models_folder() where absent.

    Raises:
        ModelMissing: There is no manifest, or its folder is none or may not be read.
        ModelCorrupt: It is no TOML, or an entry lacks a field.
    """
    folder = folder or models_folder()
    path = folder / "manifest.toml"
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
        entries = [*tables.get("model", []), *tables.get("data", [])]
        files = [_entry(folder, entry) for entry in entries]
    except OSError as error:
        hint = REINSTALL
        if os.environ.get(FOLDER_VARIABLE):
            hint = f"{FOLDER_VARIABLE} names that folder: unset it, or put the models there"
        problem = "is missing"
        if not isinstance(error, FileNotFoundError):
            problem = f"cannot be read ({error.strerror})"
        raise ModelMissing(f"the models manifest {problem}", path=path, hint=hint) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ModelCorrupt(
            f"the models manifest cannot be read ({error})", path=path, hint=REINSTALL
        ) from error
    return Manifest(folder, {file.name: file for file in files})


def _entry(folder: Path, entry: Mapping[str, Any]) -> ModelFile:
    return ModelFile(
        name=entry["name"],
        title=entry["title"],
        path=folder / entry["file"],
        sha256=entry["sha256"],
        size=entry["size"],
        license=entry["license"],
        license_file=folder / entry["license_file"],
        card=folder / entry["card"],
        source=entry["source"],
        task=entry.get("task", ""),
        architecture=entry.get("architecture", ""),
    )


def read_verified(file: ModelFile, report: Report | None = None) -> bytes:
    """The file's content, once its size and sha256 are those of the manifest.

    Args:
        file: What to read.
        report: Where the checksum is recorded.

    Raises:
        ModelMissing: The file is not there.
        ModelCorrupt: It has another size or checksum, or cannot be read.
    """
    try:
        data = file.path.read_bytes()
    except FileNotFoundError as error:
        raise ModelMissing(
            f"the weights of {file.title} are missing", path=file.path, hint=REINSTALL
        ) from error
    except OSError as error:
        raise ModelCorrupt(
            f"the weights of {file.title} cannot be read ({error.strerror})",
            path=file.path,
            hint=REINSTALL,
        ) from error
    if len(data) != file.size:
        problem = f"{len(data)} bytes instead of {file.size}"
    elif (digest := hashlib.sha256(data).hexdigest()) != file.sha256:
        problem = f"sha256 {digest[:12]}... instead of {file.sha256[:12]}..."
    else:
        if report is not None:
            report.models[file.name] = file.sha256
        return data
    raise ModelCorrupt(
        f"the weights of {file.title} are damaged, {problem}", path=file.path, hint=REINSTALL
    )


@dataclass(frozen=True, slots=True)
class Verified:
    """The state of one file of the manifest."""

    file: ModelFile
    state: State
    problem: str = ""
    """The error's line where it is not ok."""


def verify_all(folder: Path | None = None) -> list[Verified]:
    """Checks every file of the manifest; never raises for a single file.

    Raises:
        ModelError: The manifest itself is missing or damaged.
    """
    results = []
    for file in load_manifest(folder).files.values():
        try:
            read_verified(file)
        except ModelMissing as error:
            results.append(Verified(file, "missing", str(error)))
        except ModelCorrupt as error:
            results.append(Verified(file, "corrupt", str(error)))
        else:
            results.append(Verified(file, "ok"))
    return results
