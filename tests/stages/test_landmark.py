"""Detection and landmarks on pictures of AI-generated people."""

import math
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
import openpeople
import pytest
import torch

from facefusion_cli.config import DetectConfig, RuntimeConfig
from facefusion_cli.device import choose_device
from facefusion_cli.planes import frames_from_rgb
from facefusion_cli.stages.detect import detect, detector_size
from facefusion_cli.stages.landmark import landmark, regions_of_boxes
from facefusion_cli.types import ColorSpec, Faces, FrameBatch, PlaneLayout
from facefusion_cli.zoo.shipped import load_face_mesh, load_iris, load_retinaface
from facefusion_cli.zoo.topology import load_topology

CPU = choose_device(RuntimeConfig(device="cpu"))


@lru_cache
def picture(person: str, name: str, height: int) -> np.ndarray:
    """[H,W,3] RGB uint8."""
    folder = Path(openpeople.__file__).parent / "data" / "curated" / person / "assets"
    bgr = cv2.imread(str(folder / f"{name}.jpg"))
    width = round(bgr.shape[1] * height / bgr.shape[0])
    return cv2.resize(bgr, (width, height), interpolation=cv2.INTER_AREA)[..., ::-1].copy()


def frames_of(*pictures: np.ndarray) -> FrameBatch:
    rgb = torch.stack([torch.from_numpy(p).permute(2, 0, 1).float() / 255 for p in pictures])
    return frames_from_rgb(rgb, ColorSpec(matrix="rgb", range="full"), PlaneLayout((1, 1), 8))


@lru_cache
def networks() -> tuple:
    return load_retinaface(), load_face_mesh(), load_iris(), load_topology().vertices_cm


def look(frames: FrameBatch, config: DetectConfig | None = None) -> tuple[Faces, torch.Tensor]:
    detector, mesh, iris, model = networks()
    found = detect(frames, range(len(frames)), detector, config or DetectConfig(), CPU)
    return landmark(frames, regions_of_boxes(found), mesh, iris, model)


def eye_distance(faces: Faces) -> float:
    return float(torch.linalg.vector_norm(faces.mesh[0, 33, :2] - faces.mesh[0, 263, :2]))


def turned(image: np.ndarray, degrees: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    h, w = image.shape[:2]
    matrix = cv2.getRotationMatrix2D((w / 2, h / 2), -degrees, scale)
    edge = tuple(int(v) for v in image[2, 2])
    return cv2.warpAffine(image, matrix, (w, h), borderValue=edge), matrix


def test_a_portrait_has_one_frontal_face_with_everything_where_it_belongs() -> None:
    faces, presence = look(frames_of(picture("P001", "studio_portrait", 720)))
    assert len(faces) == 1
    assert presence[0] > 0.9
    assert faces.score[0] > 0.9
    assert faces.pose.abs().max() < 8
    left, right, nose, mouth_left, mouth_right = faces.points5[0]
    assert left[0] < nose[0] < right[0]
    assert mouth_left[0] < nose[0] < mouth_right[0]
    assert left[1] < nose[1] < mouth_left[1]
    # The irises lie between the corners of their eyes.
    assert faces.mesh[0, 33, 0] < faces.iris[0, 0, 0, 0] < faces.mesh[0, 133, 0]
    assert faces.mesh[0, 362, 0] < faces.iris[0, 1, 0, 0] < faces.mesh[0, 263, 0]


@pytest.mark.parametrize(("degrees", "scale"), [(20, 1.0), (-35, 0.8), (0, 0.5)])
def test_the_mesh_turns_and_shrinks_with_the_picture(degrees: float, scale: float) -> None:
    image = picture("P002", "studio_portrait", 720)
    straight, _ = look(frames_of(image))
    moved, matrix = turned(image, degrees, scale)
    faces, _ = look(frames_of(moved))
    assert len(faces) == 1
    expected = straight.mesh[0, :, :2].numpy() @ matrix[:, :2].T + matrix[:, 2]
    error = np.linalg.norm(faces.mesh[0, :, :2].numpy() - expected, axis=-1).mean()
    assert error < 0.025 * eye_distance(faces)
    assert faces.pose[0, 2].item() == pytest.approx(straight.pose[0, 2].item() + degrees, abs=2)


def test_a_mirrored_picture_mirrors_yaw_and_roll() -> None:
    image = picture("P007", "amateur_selfie", 900)
    pose = look(frames_of(image))[0].pose[0]
    mirrored = look(frames_of(image[:, ::-1].copy()))[0].pose[0]
    assert mirrored.tolist() == pytest.approx(
        [-pose[0].item(), pose[1].item(), -pose[2].item()], abs=4
    )


def test_all_sixteen_faces_of_a_sheet_are_found_in_a_batch_with_others() -> None:
    sheet = picture("P002", "emotions_sheet", 1344)
    empty = np.full_like(sheet, 90)
    faces, presence = look(frames_of(empty, sheet))
    assert faces.frame.tolist() == [1] * 16
    assert presence.min() > 0.5
    rows = (faces.box[:, 1] // (1344 / 4)).int().bincount().tolist()
    assert rows == [4, 4, 4, 4]


def test_the_smallest_face_is_a_setting() -> None:
    sheet = frames_of(picture("P002", "emotions_sheet", 672))
    assert len(look(sheet)[0]) == 16
    assert len(look(sheet, DetectConfig(min_face=200))[0]) == 0


def test_a_face_in_the_corner_of_a_picture_is_cut_off_but_found() -> None:
    image = picture("P001", "studio_portrait", 720)
    faces, _ = look(frames_of(image))
    x0, y0 = (int(v) for v in faces.mesh[0, :, :2].amin(0) - 4)
    cropped, _ = look(frames_of(image[y0:, x0:].copy()))
    shift = faces.mesh[0, :, :2] - torch.tensor([x0, y0]) - cropped.mesh[0, :, :2]
    assert shift.norm(dim=-1).mean() < 0.04 * eye_distance(faces)


def test_no_regions_give_no_faces() -> None:
    faces, presence = look(frames_of(np.full((240, 320, 3), 128, np.uint8)))
    assert len(faces) == len(presence) == 0
    assert faces.mesh.shape == (0, 468, 3)


def test_detector_sizes_keep_the_aspect_and_never_enlarge() -> None:
    assert detector_size(1920, 1080, 640) == (384, 640)
    assert detector_size(1080, 1920, 640) == (640, 384)
    assert detector_size(500, 500, 640) == (512, 512)
    assert detector_size(176, 144, 640) == (288, 352)
    assert math.prod(detector_size(2, 2, 640)) == 32 * 32
