"""The demo's media hold what they promise: size, times, sound, tags, and a face that moves."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from facefusion_cli.config import Config, RuntimeConfig
from facefusion_cli.pipeline import PHOTO_COLOR, PHOTO_LAYOUT, Engine
from facefusion_cli.planes import frames_from_rgb
from facefusion_cli.report import Report
from facefusion_cli.types import Faces
from tests.people import TalkingClip, no_face, talking_clip
from tests.scripts import load

actors = load("actors")
demo = load("make_demo_media")
talking_head = load("talking_head")
warping = load("warping")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> TalkingClip:
    return talking_clip(tmp_path_factory.mktemp("talking") / "clip.mp4")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(Config(runtime=RuntimeConfig(device="cpu")), Report())


def look(engine: Engine, *pictures: np.ndarray) -> Faces:
    import torch

    rgb = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255
    frames = frames_from_rgb(rgb, PHOTO_COLOR, PHOTO_LAYOUT)
    return engine.detect(frames, range(len(pictures)))


def opening(mesh: np.ndarray, pairs: tuple[tuple[int, int], ...]) -> float:
    """Mean gap of vertex pairs in % of the eye distance."""
    gaps = [np.linalg.norm(mesh[a, :2] - mesh[b, :2]) for a, b in pairs]
    return float(100 * np.mean(gaps) / np.linalg.norm(mesh[33, :2] - mesh[263, :2]))


def test_the_clip_is_what_it_says(clip: TalkingClip) -> None:
    with av.open(str(clip.path)) as source:
        video, audio = source.streams.video[0], source.streams.audio[0]
        context = video.codec_context
        assert (context.name, context.pix_fmt) == ("h264", "yuv420p")
        tags = (context.colorspace, context.color_primaries, context.color_trc)
        assert (*(int(tag) for tag in tags), int(context.color_range)) == (1, 1, 1, 1)
        assert audio.codec_context.name == "aac"
        assert audio.duration * audio.time_base == clip.seconds == 1
        frames = list(source.decode(video))
    assert tuple(frame.pts * frame.time_base for frame in frames) == clip.pts
    assert clip.pts == tuple(Fraction(i, 25) for i in range(25))
    assert all((f.width, f.height) == clip.size == (256, 256) for f in frames)


def test_the_colours_are_those_of_the_pictures(tmp_path: Path) -> None:
    """Tagged and converted alike: a decoder that heeds the tags gives the pictures back."""
    picture = np.zeros((64, 96, 3), np.uint8)
    patches = [(200, 40, 30), (30, 170, 60), (40, 60, 190)]
    for i, colour in enumerate(patches):
        picture[:, 32 * i : 32 * (i + 1)] = colour
    demo.write_clip(tmp_path / "patches.mp4", [picture] * 3, 25, None, crf=4)
    with av.open(str(tmp_path / "patches.mp4")) as source:
        assert not source.streams.audio
        shown = next(source.decode(video=0)).to_ndarray(format="rgb24")
    for i, colour in enumerate(patches):
        assert np.abs(shown[32, 32 * i + 16].astype(int) - colour).max() <= 4


def test_the_person_talks_blinks_and_moves(engine: Engine) -> None:
    """Clip seconds 0.4 to 1.4 of the performance: lids down at 0.73, mouth open at 0.60."""
    pictures = list(demo.talking(["P007"], 256, 25, 25, start=0.4))
    faces = look(engine, *pictures)
    assert faces.frame.tolist() == list(range(25)), "one face in every frame"
    assert faces.mesh is not None
    meshes = faces.mesh.double().numpy()
    lips = [opening(mesh, ((13, 14),)) for mesh in meshes]
    lids = [opening(mesh, ((159, 145), (386, 374))) for mesh in meshes]
    assert min(lids) < 0.6 * max(lids)
    assert 7 <= int(np.argmin(lids)) <= 10
    assert max(lips) > min(lips) + 6
    box = meshes[:, 152, 1] - meshes[:, 10, 1]
    assert (box > 0.3 * 256).all()
    assert (box < 0.6 * 256).all()
    steps = np.linalg.norm(np.diff(meshes[:, 168, :2], axis=0), axis=1)
    assert 0.05 < steps.mean() < 2
    assert steps.max() < 4, "nothing jumps"


def test_the_pictures_are_the_same_every_time() -> None:
    runs = [list(demo.talking(["P006"], 96, 2, 25, start=0.5)) for _ in range(2)]
    assert all((a == b).all() for a, b in zip(*runs, strict=True))
    assert (runs[0][0] != runs[0][1]).any()


def test_the_tone_is_as_loud_as_the_mouth_is_open() -> None:
    sound = demo.tone(2.0)
    assert sound.shape == (2, 2 * demo.SAMPLE_RATE)
    assert np.abs(sound).max() < 1

    def loudness(at: float) -> float:
        middle = round(at * demo.SAMPLE_RATE)
        return float(np.sqrt((sound[0, middle - 960 : middle + 960] ** 2).mean()))

    spoken, silent = 0.6, 1.6
    assert demo.openness(spoken) > 0.6
    assert demo.openness(silent) == 0
    assert loudness(spoken) > 3 * loudness(silent) > 0


def test_the_performance_never_asks_for_what_does_not_go_together() -> None:
    ends = [start + length for start, length, _, _ in demo.SYLLABLES]
    starts = [start for start, _, _, _ in demo.SYLLABLES[1:]]
    assert all(end <= start + 1e-9 for end, start in zip(ends, starts, strict=False))
    assert ends[-1] <= demo.SMILE[0]
    for blink in demo.BLINKS:
        for start, end, _ in (demo.BROWS, demo.SMILE):
            assert blink + 0.26 <= start + 0.05 or blink >= end
    for actor in actors.ACTORS.values():
        assert {*demo.MOUTHS, "happy"} <= set(actor.mouths)


def test_main_writes_both_files_with_one_face_each(tmp_path: Path, engine: Engine) -> None:
    arguments = [tmp_path / "out", "--size", 192, "--seconds", 0.2]
    assert demo.main([str(a) for a in arguments]) == 0
    photo = cv2.imread(str(tmp_path / "out" / "source.jpg"))
    assert photo.shape == (1024, 1024, 3)
    with av.open(str(tmp_path / "out" / "target.mp4")) as source:
        first, *others = [f.to_ndarray(format="rgb24") for f in source.decode(video=0)]
    assert len(others) == 4
    assert first.shape == (192, 192, 3)
    for picture in (np.ascontiguousarray(photo[..., ::-1]), first):
        faces = look(engine, picture)
        assert len(faces) == 1
        assert faces.pose is not None
        assert faces.pose.abs().max() < 15


def test_two_people_share_a_picture_and_none_is_none(engine: Engine) -> None:
    both = next(iter(demo.talking(["P007", "P006"], 192, 1, 25)))
    assert both.shape == (192, 384, 3)
    faces = look(engine, both)
    centres = (faces.box[:, 0] + faces.box[:, 2]) / 2
    assert sorted(int(c) // 192 for c in centres) == [0, 1]
    assert len(look(engine, no_face(256, 256))) == 0


@pytest.mark.parametrize("person", ["P001", "P002", "P004", "P005", "P008", "P009", "P010"])
def test_sheets_come_apart_into_sixteen_photos(person: str) -> None:
    """Photos without their white frames and without the labels below."""
    for name in ("neutral", "determined"):
        photo = actors.expression(person, name)
        assert 450 < photo.shape[1] < 560
        assert 300 < photo.shape[0] < 380
        # The backdrop at the upper corners is grey; a frame left over would be white.
        for edge in (photo[2:40, 2], photo[2:40, -3]):
            assert edge.max() < 215


def test_what_is_no_sheet_is_refused() -> None:
    with pytest.raises(ValueError, match="not 4 rows of 4"):
        actors.photo_frames(np.full((1792, 2400, 3), 128, np.uint8))
    with pytest.raises(ValueError, match="public figure"):
        actors.person_file(actors.LEFT_OUT, "studio_portrait")


def test_the_inverse_field_undoes_the_field() -> None:
    place = warping.grid(80, 100)
    field = np.stack([4 * np.sin(place[..., 1] / 9), 3 * np.cos(place[..., 0] / 11)], -1).astype(
        np.float32
    )
    back = warping.inverse(field)
    returned = back + warping.sample(field, place + back)
    assert np.abs(returned[8:-8, 8:-8]).max() < 0.05


def test_registration_finds_a_known_similarity() -> None:
    fixed = actors.portrait("P006", 320)
    turn = np.array([[0.995, 0.03, 6.0], [-0.03, 0.995, -4.0]], np.float32)
    moving = cv2.warpAffine(
        fixed, cv2.invertAffineTransform(turn), (320, 320), borderMode=cv2.BORDER_REPLICATE
    )
    start = np.array([[1, 0, 0], [0, 1, 0]], np.float32)
    found = warping.register(moving, start, fixed, np.ones((320, 320), bool))
    corners = np.array([(60, 60), (260, 60), (260, 260), (60, 260)], np.float32)
    apart = warping.move(corners, found) - warping.move(corners, turn)
    assert np.abs(apart).max() < 0.5


def test_the_spline_passes_its_controls_and_keeps_a_similarity() -> None:
    generator = np.random.default_rng(0)
    controls = generator.uniform(0, 100, (12, 2)).astype(np.float32)
    matrix = np.array([[0.9, 0.2, 5], [-0.2, 0.9, 7]], np.float32)
    at = warping.grid(20, 30) * 3
    values = warping.move(controls, matrix) - controls
    read = warping.thin_plate(controls, values, at)
    expected = warping.move(at.reshape(-1, 2), matrix).reshape(at.shape) - at
    assert np.abs(read - expected).max() < 0.05
    bent = values + generator.normal(0, 2, values.shape).astype(np.float32)
    assert np.abs(warping.thin_plate(controls, bent, controls[None])[0] - bent).max() < 0.5
