"""ffx swap, whole runs: what it leaves, what it says, and what it answers to bad input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from facefusion_cli.zoo.manifest import models_folder
from tests.conftest import Ffx, Outcome
from tests.people import Rgb, portrait, side_by_side, write_clip, write_picture


def landscape(side: int = 256) -> Rgb:
    """A picture without a face."""
    ramp = np.linspace(0, 255, side).astype(np.uint8)
    return np.stack(
        [
            np.tile(ramp, (side, 1)),
            np.tile(ramp[:, None], side),
            ramp[None] // 2 + np.zeros((side, 1), np.uint8),
        ],
        axis=-1,
    )


def frames(path: Path) -> list[Rgb]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The output, alone in a folder of its own."""
    folder = tmp_path / "results"
    folder.mkdir()
    return folder / "out.mp4"


def refused(done: Outcome, code: int, *words: object, left: Path | None = None) -> None:
    """Checks exit code, the one line that names what is wrong, and that nothing is left behind."""
    assert done.code == code, done.err
    for word in words:
        assert str(word) in done.error
    assert done.out == ""
    if left is not None:
        assert names(left) == set()


# What a good run leaves


def test_a_clip(ffx: Ffx, source_photo: Path, face_clip: Path, out: Path) -> None:
    report = out.parent / "run.json"
    done = ffx("swap", source_photo, face_clip, "-o", out, "--report", report)
    assert done.code == 0, done.err
    assert done.out == f"{out}\n"
    assert names(out.parent) == {"out.mp4", "run.json"}
    assert done.err.splitlines()[-1].startswith("ffx: 6 frames, 6 faces swapped, ")
    before, after = frames(face_clip), frames(out)
    assert len(after) == len(before) == 6
    difference = np.abs(before[0].astype(int) - after[0]).mean(axis=-1)
    assert difference[60:180, 80:176].mean() > 4  # the face is another
    assert difference[:16].mean() < 2  # the wall behind is not
    with av.open(str(out)) as container:
        assert [s.type for s in container.streams] == ["video", "audio"]
    figures = json.loads(report.read_text())
    assert figures["exit_code"] == 0
    assert figures["counts"]["frames_in"] == figures["counts"]["frames_out"] == 6
    assert figures["counts"]["faces_swapped"] == 6
    assert figures["source"] == str(source_photo)
    assert figures["target"] == str(face_clip)
    assert figures["output"] == str(out)
    assert figures["device"]
    assert figures["settings"]["output"]["crf"] == -1
    assert figures["versions"]["torch"] == torch.__version__.split("+")[0]
    assert {"retinaface", "face_mesh", "iris"} <= figures["models"].keys()
    for stage in ("read", "detect", "mesh", "swap", "blend", "write"):
        assert figures["stages"][stage]["calls"] > 0, stage
        assert figures["stages"][stage]["ms"] > 0, stage


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_a_picture(ffx: Ffx, source_photo: Path, tmp_path: Path, suffix: str) -> None:
    target = write_picture(tmp_path / f"target{suffix}", portrait("P002", 256))
    done = ffx("swap", source_photo, target, "-o", tmp_path / f"out{suffix}")
    assert done.code == 0, done.err
    assert "1 frame, 1 face swapped" in done.err
    assert np.abs(frames(target)[0].astype(int) - frames(tmp_path / f"out{suffix}")[0]).max() > 30


def test_quiet_says_nothing(ffx: Ffx, source_photo: Path, face_clip: Path, out: Path) -> None:
    done = ffx("swap", source_photo, face_clip, "-o", out, "--quiet")
    assert (done.code, done.out, done.err) == (0, f"{out}\n", "")


def test_overwrite(ffx: Ffx, source_photo: Path, face_clip: Path, out: Path) -> None:
    out.write_bytes(b"old")
    assert ffx("swap", source_photo, face_clip, "-o", out, "--overwrite").code == 0
    assert len(frames(out)) == 6


def test_no_audio(ffx: Ffx, source_photo: Path, face_clip: Path, out: Path) -> None:
    assert ffx("swap", source_photo, face_clip, "-o", out, "--no-audio").code == 0
    with av.open(str(out)) as container:
        assert [s.type for s in container.streams] == ["video"]


# Bad input: source


def test_no_face_in_the_source(ffx: Ffx, face_clip: Path, out: Path, tmp_path: Path) -> None:
    photo = write_picture(tmp_path / "hills.png", landscape())
    done = ffx("swap", photo, face_clip, "-o", out)
    refused(done, 8, "no face was found in the source photo", photo, left=out.parent)


def test_several_faces_in_the_source(
    ffx: Ffx, source_photo: Path, face_clip: Path, out: Path, tmp_path: Path
) -> None:
    photo = write_picture(tmp_path / "group.png", side_by_side(["P004", "P001"], [192, 384]))
    done = ffx("swap", photo, face_clip, "-o", out)
    assert done.code == 0, done.err
    (warning,) = done.warnings
    assert warning.startswith("2 faces in the source photo; the largest is used")
    assert str(photo) in warning
    alone = out.with_name("alone.mp4")
    assert ffx("swap", source_photo, face_clip, "-o", alone).code == 0
    group, single = frames(out)[0].astype(int), frames(alone)[0].astype(int)
    assert np.abs(group - single).mean() < 1.5  # the largest face was P001's


@pytest.mark.parametrize("kind", ["missing", "text", "empty", "folder"])
def test_a_source_that_is_no_photo(
    ffx: Ffx, face_clip: Path, out: Path, tmp_path: Path, kind: str
) -> None:
    photo = tmp_path / "source.jpg"
    if kind == "folder":
        photo.mkdir()
    elif kind != "missing":
        photo.write_text("not a photo" if kind == "text" else "")
    refused(ffx("swap", photo, face_clip, "-o", out), 3, photo, left=out.parent)


# Bad input: target


def test_target_missing(ffx: Ffx, source_photo: Path, out: Path, tmp_path: Path) -> None:
    target = tmp_path / "none.mp4"
    refused(ffx("swap", source_photo, target, "-o", out), 3, target, left=out.parent)


@pytest.mark.parametrize("suffix", [".mp4", ".txt", ".jpg"])
def test_target_is_a_text_file(
    ffx: Ffx, source_photo: Path, out: Path, tmp_path: Path, suffix: str
) -> None:
    target = tmp_path / f"notes{suffix}"
    target.write_text("What I wrote about the clip, and no clip.\n" * 20)
    out = out.with_suffix(".jpg") if suffix == ".jpg" else out
    refused(ffx("swap", source_photo, target, "-o", out), 3, target, left=out.parent)


@pytest.mark.parametrize("suffix", [".mp4", ".png"])
def test_target_of_zero_bytes(
    ffx: Ffx, source_photo: Path, out: Path, tmp_path: Path, suffix: str
) -> None:
    target = tmp_path / f"empty{suffix}"
    target.touch()
    done = ffx("swap", source_photo, target, "-o", out.with_suffix(suffix))
    refused(done, 3, target, left=out.parent)


def test_target_with_sound_only(ffx: Ffx, source_photo: Path, out: Path, tmp_path: Path) -> None:
    target = tmp_path / "song.m4a"
    with av.open(str(target), "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=48_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4096), np.float32), "fltp", "mono")
        frame.sample_rate, frame.pts = 48_000, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    done = ffx("swap", source_photo, target, "-o", out)
    refused(done, 3, "no video", target, left=out.parent)


# Bad input: output


def test_output_exists(ffx: Ffx, source_photo: Path, face_clip: Path, out: Path) -> None:
    out.write_bytes(b"precious")
    done = ffx("swap", source_photo, face_clip, "-o", out)
    refused(done, 2, "exists already", out, "--overwrite")
    assert out.read_bytes() == b"precious"
    assert names(out.parent) == {"out.mp4"}


@pytest.mark.parametrize("which", ["SOURCE", "TARGET", "OUT"])
def test_an_empty_name(
    ffx: Ffx, source_photo: Path, face_clip: Path, out: Path, which: str
) -> None:
    names_given = {"SOURCE": source_photo, "TARGET": face_clip, "OUT": out, which: ""}
    given = [str(name) for name in names_given.values()]
    done = ffx("swap", given[0], given[1], "-o", given[2])
    refused(done, 2, f"{which} does not name a file", left=out.parent)


def test_names_that_lead_in_circles(
    ffx: Ffx, source_photo: Path, face_clip: Path, out: Path, tmp_path: Path
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    report = tmp_path / "run.json"
    done = ffx("swap", source_photo, face_clip, "-o", loop, "--report", report)
    refused(done, 5, loop)
    done = ffx("swap", source_photo, face_clip, "-o", out, "--report", loop)
    refused(done, 5, loop, left=out.parent)
    refused(ffx("swap", loop, face_clip, "-o", out, "--report", report), 3, loop)
    assert json.loads(report.read_text())["exit_code"] == 3


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
@pytest.mark.parametrize("link", [False, True])
def test_output_is_the_target(
    ffx: Ffx, source_photo: Path, face_clip: Path, tmp_path: Path, link: bool, overwrite: list[str]
) -> None:
    target = tmp_path / "target.mp4"
    shutil.copy(face_clip, target)
    out = target
    if link:
        out = tmp_path / "link.mp4"
        out.symlink_to(target)
    before = target.read_bytes()
    done = ffx("swap", source_photo, target, "-o", out, *overwrite)
    refused(done, 2, "same file", out)
    assert target.read_bytes() == before


def test_output_is_the_source(ffx: Ffx, source_photo: Path, tmp_path: Path) -> None:
    photo = tmp_path / "source.jpg"
    shutil.copy(source_photo, photo)
    target = write_picture(tmp_path / "target.jpg", portrait("P002", 256))
    done = ffx("swap", photo, target, "-o", photo, "--overwrite")
    refused(done, 2, "same file", photo)


def test_output_folder_missing(
    ffx: Ffx, source_photo: Path, face_clip: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "nowhere"
    done = ffx("swap", source_photo, face_clip, "-o", folder / "out.mp4")
    refused(done, 2, "does not exist", folder)
    assert not folder.exists()


def test_output_not_writable(
    ffx: Ffx, source_photo: Path, face_clip: Path, unwritable_folder: Path
) -> None:
    done = ffx("swap", source_photo, face_clip, "-o", unwritable_folder / "out.mp4")
    refused(done, 5, "not writable" if "sealed" in str(unwritable_folder) else "cannot be written")


def test_output_of_another_kind(ffx: Ffx, source_photo: Path, face_clip: Path, out: Path) -> None:
    done = ffx("swap", source_photo, face_clip, "-o", out.with_suffix(".avi"))
    refused(done, 2, "out.avi", left=out.parent)


# Bad input: machine, models, settings


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is here")
def test_cuda_without_cuda(ffx: Ffx, source_photo: Path, face_clip: Path, out: Path) -> None:
    done = ffx("swap", source_photo, face_clip, "-o", out, "--device", "cuda")
    refused(done, 7, "CUDA is not available", "--device cpu", left=out.parent)


@pytest.mark.parametrize("name", ["retinaface", "face_mesh", "iris"])
def test_a_flipped_byte_in_a_model(
    ffx: Ffx,
    source_photo: Path,
    face_clip: Path,
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    folder = tmp_path / "models"
    shutil.copytree(models_folder(), folder)
    weights = folder / f"{name}.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    monkeypatch.setenv("FFX_MODELS", str(folder))
    refused(ffx("swap", source_photo, face_clip, "-o", out), 6, weights, left=out.parent)


def test_an_unknown_setting(
    ffx: Ffx, source_photo: Path, face_clip: Path, out: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[output]\ncfr = 18\n")
    done = ffx("swap", source_photo, face_clip, "-o", out, "--config", file)
    refused(done, 2, "output.cfr", "did you mean 'output.crf'?", file, left=out.parent)


# A target without a face


def test_no_face_in_the_target(ffx: Ffx, source_photo: Path, out: Path, tmp_path: Path) -> None:
    target = write_clip(tmp_path / "hills.mp4", landscape(), 6)
    plain = out.with_name("plain.mp4")
    done = ffx("swap", source_photo, target, "-o", out)
    assert done.code == 0, done.err
    (warning,) = done.warnings
    assert warning.startswith("no face was found in the target")
    # --generator none re-encodes and does nothing else.
    assert ffx("swap", source_photo, target, "-o", plain, "--generator", "none").code == 0
    for swapped, encoded in zip(frames(out), frames(plain), strict=True):
        np.testing.assert_array_equal(swapped, encoded)


@pytest.mark.parametrize("kind", ["clip", "picture"])
def test_a_required_face_that_is_not_there(
    ffx: Ffx, source_photo: Path, out: Path, tmp_path: Path, kind: str
) -> None:
    if kind == "clip":
        target = write_clip(tmp_path / "hills.mp4", landscape(), 6)
    else:
        target = write_picture(tmp_path / "hills.png", landscape())
        out = out.with_suffix(".png")
    report = tmp_path / "run.json"
    done = ffx("swap", source_photo, target, "-o", out, "--require-face", "--report", report)
    refused(done, 8, "no face was found in the target", left=out.parent)
    figures = json.loads(report.read_text())
    assert figures["exit_code"] == 8
    assert figures["error_class"] == "NoFaceInTarget"


def test_a_report_that_would_replace_the_target(
    ffx: Ffx, source_photo: Path, face_clip: Path, out: Path
) -> None:
    before = face_clip.read_bytes()
    done = ffx("swap", source_photo, face_clip, "-o", out, "--report", face_clip)
    refused(done, 2, "--report", face_clip, left=out.parent)
    assert face_clip.read_bytes() == before
