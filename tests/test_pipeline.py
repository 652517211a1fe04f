"""The whole path on clips of AI-generated people: what must change, and all that must not."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from facefusion_cli.config import Config, load_config
from facefusion_cli.errors import NoFaceInTarget
from facefusion_cli.pipeline import Engine, swap
from facefusion_cli.planes import upload
from facefusion_cli.report import Report
from facefusion_cli.video.probe import probe
from facefusion_cli.video.reader import open_reader
from tests.people import portrait, side_by_side, write_clip, write_picture

FRAMES = 10


def run(source: Path, target: Path, out: Path, **tables: dict[str, object]) -> Report:
    tables.setdefault("runtime", {}).setdefault("device", "cpu")
    report = Report()
    swap(source, target, out, load_config(flags=tables), report)
    return report


def decoded(path: Path) -> tuple[list[list[np.ndarray]], list[Fraction]]:
    """Planes of every frame, as the decoder gives them, and the times from the start."""
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    planes = []
    for frame in frames:
        full = frame.to_ndarray()
        h, w = frame.height, frame.width
        luma, chroma = full[:h], full[h:].reshape(2, h // 2, w // 2)
        planes.append([luma, chroma[0], chroma[1]])
    times = [Fraction(f.pts) * f.time_base for f in frames]
    return planes, [t - times[0] for t in times]


def packets(path: Path) -> list[bytes]:
    with av.open(str(path)) as container:
        stream = container.streams.audio[0]
        return [bytes(p) for p in container.demux(stream) if p.size]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten frames, 320 x 240, with two people, the left one larger, and a tone."""
    canvas = np.full((240, 320, 3), 110, np.uint8)
    canvas[:, :] = side_by_side(("P002", "P005"), (240, 80))[:, :320]
    return write_clip(tmp_path_factory.mktemp("clip") / "two.mp4", canvas, FRAMES, sway=3)


@pytest.fixture(scope="module")
def solo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten frames, 256 x 256, with one person."""
    path = tmp_path_factory.mktemp("clip") / "one.mp4"
    return write_clip(path, portrait("P002", 256), FRAMES, sway=3)


def face_region(clip: Path) -> np.ndarray:
    """[N,4] the boxes of the face in a clip, found by our own detector on every frame."""
    engine = Engine(load_config(flags={"runtime": {"device": "cpu"}}), Report())

    boxes = []
    with open_reader(probe(clip), "pyav", Report()) as reader:
        for batch in reader.batches(8):
            frames = upload(batch, "cpu")
            boxes.append(engine.detect(frames, range(len(frames))).box)
    return torch.cat(boxes).numpy()


@pytest.mark.parametrize("decoder", ["pyav", "opencv"])
def test_outside_the_faces_the_picture_is_the_decoders_own(
    decoder: str, solo: Path, source_photo: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.mkv"
    run(source_photo, solo, out, output={"encoder": "ffv1"}, runtime={"decoder": decoder})
    before, times = decoded(solo)
    after, new_times = decoded(out)
    assert len(after) == FRAMES
    assert max(abs(a - b) for a, b in zip(times, new_times, strict=True)) <= Fraction(1, 1000)
    boxes = face_region(solo)
    assert len(boxes) == FRAMES
    close = total = inside_changed = 0
    for old, new, (x0, y0, x1, y1) in zip(before, after, boxes, strict=True):
        for number, (a, b) in enumerate(zip(old, new, strict=True)):
            step = 1 if number == 0 else 2
            outside = np.ones(a.shape, bool)
            # The mesh's box with a twentieth of its side round it.
            margin = 0.05 * (y1 - y0)
            rows = slice(int((y0 - margin) // step), int((y1 + margin) // step) + 1)
            columns = slice(int((x0 - margin) // step), int((x1 + margin) // step) + 1)
            outside[rows, columns] = False
            difference = np.abs(a.astype(int) - b.astype(int))
            inside_changed += int((difference[~outside] > 4).sum())
            close += int((difference[outside] <= (0 if decoder == "pyav" else 2)).sum())
            total += int(outside.sum())
    assert inside_changed > 500 * FRAMES, "the face was not swapped"
    if decoder == "pyav":
        assert close == total
    else:
        assert close >= 0.998 * total


def test_sound_and_timing_are_the_sources_own(
    solo: Path, source_photo: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.mp4"
    report = run(source_photo, solo, out)
    assert packets(out) == packets(solo)
    _, times = decoded(solo)
    planes, new_times = decoded(out)
    assert len(planes) == report.counts["frames_in"] == report.counts["frames_out"] == FRAMES
    assert max(abs(a - b) for a, b in zip(times, new_times, strict=True)) <= Fraction(1, 1000)


def test_the_report_holds_what_was_done(solo: Path, source_photo: Path, tmp_path: Path) -> None:
    told = []
    report = Report()
    config = load_config(flags={"runtime": {"device": "cpu", "batch": 4}})
    swap(source_photo, solo, tmp_path / "out.mp4", config, report, lambda *step: told.append(step))
    facts = report.as_dict()
    assert facts["counts"]["faces_found"] == facts["counts"]["faces_swapped"] == FRAMES
    assert set(facts["models"]) == {"retinaface", "face_mesh", "iris"}
    assert facts["device"] == "cpu"
    assert facts["precision"] == "fp32"
    for stage in ("read", "detect", "mesh", "swap", "blend", "write"):
        assert facts["stages"][stage]["ms"] > 0, stage
        assert facts["stages"][stage]["calls"] > 0, stage
    assert told == [(4, FRAMES), (8, FRAMES), (10, FRAMES)]
    # The photo, the whole first batch, then the last frame of each batch.
    assert facts["counts"]["detector_frames"] == 1 + 4 + 1 + 1


@pytest.mark.parametrize(("select", "swapped"), [("all", 2), ("largest", 1)])
def test_selection(
    select: str, swapped: int, clip: Path, source_photo: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.mkv"
    report = run(
        source_photo,
        clip,
        out,
        faces={"select": select},
        output={"encoder": "ffv1"},
        runtime={"decoder": "pyav"},
    )
    assert report.counts["faces_found"] == 2 * FRAMES
    assert report.counts["faces_swapped"] == swapped * FRAMES
    before, _ = decoded(clip)
    after, _ = decoded(out)
    changed = np.abs(before[0][0].astype(int) - after[0][0].astype(int)) > 4
    assert changed[:, :240].sum() > 500
    assert (changed[:, 240:].sum() > 50) == (select == "all")


def test_a_batch_size_does_not_change_the_result(
    solo: Path, source_photo: Path, tmp_path: Path
) -> None:
    """The detector looks at other frames then; the faces must be the same to a fraction."""
    results = []
    for batch in (1, 8):
        out = tmp_path / f"{batch}.mkv"
        run(
            source_photo,
            solo,
            out,
            output={"encoder": "ffv1"},
            runtime={"decoder": "pyav", "batch": batch},
        )
        results.append(np.stack([p[0] for p in decoded(out)[0]]).astype(float))
    assert np.abs(results[0] - results[1]).mean() < 0.5


def test_generator_none_is_the_identity(solo: Path, source_photo: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.mkv"
    report = run(
        source_photo,
        solo,
        out,
        generator={"name": "none"},
        output={"encoder": "ffv1"},
        runtime={"decoder": "pyav"},
    )
    assert report.models == {}
    for old, new in zip(decoded(solo)[0], decoded(out)[0], strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(old, new, strict=True))


def test_one_engine_serves_many_clips(solo: Path, clip: Path, source_photo: Path) -> None:
    config: Config = load_config(flags={"runtime": {"device": "cpu"}})
    engine = Engine(config, Report())
    first, second = engine.clip(source_photo), engine.clip(source_photo)

    for swapper, path, faces in ((first, solo, 1), (second, clip, 2)):
        found = engine.report.counts.get("faces_found", 0)
        with open_reader(probe(path), "pyav", Report()) as reader:
            swapper.swap(upload(next(reader.batches(4)), "cpu"))
        assert engine.report.counts["faces_found"] - found == 4 * faces


def test_a_small_source_face_is_said(solo: Path, tmp_path: Path) -> None:
    tiny = write_picture(tmp_path / "tiny.png", portrait("P001", 128))
    report = run(tiny, solo, tmp_path / "out.mp4")
    assert len(report.warnings) == 1
    assert "pixels wide" in report.warnings[0]
    assert str(tiny) in report.warnings[0]


def test_a_target_without_faces_names_itself(source_photo: Path, tmp_path: Path) -> None:
    empty = write_clip(tmp_path / "empty.mp4", np.full((96, 128, 3), 90, np.uint8), 3)
    with pytest.raises(NoFaceInTarget) as caught:
        run(source_photo, empty, tmp_path / "out.mp4", faces={"require_face": True})
    assert caught.value.path == str(empty)
    assert [p.name for p in tmp_path.iterdir()] == ["empty.mp4"]
