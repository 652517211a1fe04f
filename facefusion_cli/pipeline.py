"""READ THIS FIRST: one clip or image, from source photo to finished output.

read -> detect -> landmark -> track -> select -> swap -> colour -> blend -> write

Three threads: a reader decodes, this one drives the device, a writer encodes. Frames travel between
them as the decoder's own planes; only the pixels under a face are ever converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from facefusion_cli.config import Config
from facefusion_cli.device import choose_device, use_threads
from facefusion_cli.errors import NoFaceInSource, NoFaceInTarget
from facefusion_cli.generators.base import Generator
from facefusion_cli.generators.mesh import MeshGenerator
from facefusion_cli.planes import frames_from_rgb, upload
from facefusion_cli.report import Report
from facefusion_cli.stages.blend import blend
from facefusion_cli.stages.colour import match_colour
from facefusion_cli.stages.crop import paste
from facefusion_cli.stages.detect import detect
from facefusion_cli.stages.landmark import landmark, regions_of_boxes
from facefusion_cli.stages.select import Selector
from facefusion_cli.stages.swap import crop_faces, source_yaw, yaw_fade
from facefusion_cli.stages.track import CERTAIN, CERTAIN_STILL, PRESENT, Tracker, doubtful
from facefusion_cli.types import (
    ColorSpec,
    Faces,
    FrameBatch,
    Identity,
    PlaneLayout,
    SourcePhoto,
    cat_faces,
)
from facefusion_cli.video.atomic import check_output
from facefusion_cli.video.clip_run import ClipRun, check_clip_output
from facefusion_cli.video.image_file import ImageTarget, is_image, load_photo
from facefusion_cli.zoo.shipped import load_face_mesh, load_iris, load_retinaface
from facefusion_cli.zoo.topology import load_topology

PHOTO_COLOR = ColorSpec(matrix="rgb", range="full")
PHOTO_LAYOUT = PlaneLayout((1, 1), 8)
SMALL_SOURCE = 100
"""Width in pixels of a source's face below which a warning is given."""
Progress = Callable[[int, int | None], None]
"""Called with the frames done and, where known, the frames in all."""


def swap(
    source: Path,
    target: Path,
    out: Path | str,
    config: Config,
    report: Report,
    progress: Progress | None = None,
) -> None:
    """Puts the source photo's face on the target's faces and writes the result.

    Args:
        source: A photo of one person.
        target: A clip (a file, a folder of images, a pattern of them) or an image.
        out: The output; its suffix decides the container. A pattern of images, an existing folder,
            or text that ends in a slash: a folder of images.
        config: Every setting.
        report: Filled while it goes.
        progress: Told after each batch.

    Raises:
        FfxError: Of the class that says what went wrong; nothing is left behind, except that a
            DecodeError for lost frames comes after the output was written and kept.
    """
    if is_image(target):
        check_output(Path(out), [source, target], overwrite=config.output.overwrite)
        swap_image(Engine(config, report), source, target, Path(out))
        return
    check_clip_output(out, [source, target], config.output)
    swap_clip(Engine(config, report), source, target, out, progress)


def swap_image(engine: Engine, source: Path, target: Path, out: Path) -> None:
    """One image through an engine; see swap()."""
    report = engine.report
    image = ImageTarget(target)
    image.check_output(out)
    clip = engine.clip(source, certain=CERTAIN_STILL)
    with report.timer("read"):
        frames = image.read()
    report.count("frames_in")
    frames = upload(frames, engine.device.torch)
    clip.swap(frames)
    clip.finish(target)
    with report.timer("write"):
        image.write(frames, out, engine.config.output)
    report.count("frames_out")


def swap_clip(
    engine: Engine,
    source: Path,
    target: Path,
    out: Path | str,
    progress: Progress | None = None,
) -> None:
    """One clip through an engine that may serve many; see swap()."""
    sources = [] if engine.idle else [source]
    with ClipRun(target, out, sources, engine.config, engine.report, engine.device) as run:
        clip = engine.clip(source)
        clip.restore(run.state)
        for frames in run.frames():
            clip.swap(frames)
            run.write(frames, clip.state)
            if progress:
                progress(engine.report.counts["frames_in"], run.total)
        clip.finish(target)
    run.settle()


class Engine:
    """Device, networks and generator: loaded once, shared by any number of clips."""

    def __init__(self, config: Config, report: Report) -> None:
        self.config, self.report = config, report
        self.device = choose_device(config.runtime)
        use_threads(config.runtime)
        report.note(self.device.why)
        report.facts.update(device=str(self.device.torch), precision=self.device.precision)
        self.idle = config.generator.name == "none"
        if self.idle:
            return
        where = self.device.torch
        self.detector = load_retinaface(where, report)
        self.mesh = load_face_mesh(where, report)
        self.iris = load_iris(where, report)
        topology = load_topology()
        self.model = topology.vertices_cm.to(where)
        self.generator: Generator = MeshGenerator(where, topology, colour=config.generator.colour)

    def detect(self, frames: FrameBatch, wanted: Sequence[int]) -> Faces:
        """Faces with landmarks in some frames of a batch, found from nothing."""
        with self.report.timer("detect"):
            found = detect(frames, wanted, self.detector, self.config.detect, self.device)
            self.report.count("detector_frames", len(wanted))
        with self.report.timer("mesh"):
            regions = regions_of_boxes(found)
            faces, presence = landmark(frames, regions, self.mesh, self.iris, self.model)
        return faces[presence >= PRESENT]

    def identity(self, photo: Path) -> Identity:
        """The person in a photo; of several faces the largest, with a warning.

        Raises:
            InputError: The photo is missing or cannot be read.
            NoFaceInSource: There is no face in it.
        """
        rgb = torch.from_numpy(load_photo(photo)).permute(2, 0, 1).float().div_(255)
        rgb = rgb.to(self.device.torch)
        faces = self.detect(frames_from_rgb(rgb.unsqueeze(0), PHOTO_COLOR, PHOTO_LAYOUT), [0])
        faces = faces[faces.score >= CERTAIN_STILL]
        if len(faces) == 0:
            raise NoFaceInSource(
                "no face was found in the source photo",
                path=photo,
                hint="use a clear, frontal photo with some room round the face",
            )
        sides = faces.box[:, 2:] - faces.box[:, :2]
        best = sides.prod(-1).argmax().reshape(1)
        left, top, right, bottom = (round(v) for v in faces.box[best][0].tolist())
        if len(faces) > 1:
            self.report.warn(
                f"{len(faces)} faces in the source photo; the largest is used, "
                f"{right - left}x{bottom - top} pixels at {left},{top}: {photo}"
            )
        if right - left < SMALL_SOURCE:
            self.report.warn(
                f"the face in the source photo is only {right - left} pixels wide; "
                f"the result will be blurred: {photo}"
            )
        return Identity(photo.stem, (SourcePhoto(photo, rgb, faces[best]),))

    def clip(self, source: Path, certain: float = CERTAIN) -> ClipSwapper:
        """What one clip or image needs, made anew for each; certain: see Tracker."""
        return ClipSwapper(self, [] if self.idle else [self.identity(source)], certain)


class ClipSwapper:
    """Swaps the faces of one clip, batch by batch, in order, in place."""

    def __init__(self, engine: Engine, identities: Sequence[Identity], certain: float) -> None:
        self._engine = engine
        self._tracker = Tracker(certain)
        self._found = 0
        self._selector = Selector(engine.config.faces.select)
        self._yaws = [source_yaw(identity) for identity in identities]
        self._prepared = [engine.generator.prepare(identity) for identity in identities]

    @torch.inference_mode()
    def swap(self, frames: FrameBatch) -> None:
        """Detect, landmark, track, select, swap, colour, blend: one batch."""
        engine, report = self._engine, self._engine.report
        if engine.idle:
            return
        faces = self._selector.select(self._find(frames))
        self._found += len(faces)
        report.count("faces_found", len(faces))
        generator, settings = engine.generator, engine.config.generator
        with report.timer("crop"):
            buckets = list(crop_faces(frames, faces, generator))
        for crops in buckets:
            assert crops.faces.identity is not None
            sources = crops.faces.identity.tolist()
            with report.timer("swap"):
                new = generator.swap(crops, [self._prepared[i] for i in sources])
            pixels = new.pixels
            if not generator.does_colour:
                with report.timer("colour"):
                    pixels = match_colour(settings.colour, pixels, new.backdrop, new.mask)
            method = generator.best_blend if settings.blend == "auto" else settings.blend
            with report.timer("blend"):
                pixels = blend(new.backdrop, pixels, new.mask, method)
                fade = yaw_fade(crops.faces, self._yaws, engine.config.faces.max_yaw)
                weight = new.touched * fade[:, None, None, None]
                paste(frames, crops.faces.frame, crops.to_crop, pixels, weight)
            report.count("faces_swapped", int((fade > 0).sum()))

    def _find(self, frames: FrameBatch) -> Faces:
        """Detect, landmark, track: the detector only where the frames before do not suffice."""
        engine, tracker = self._engine, self._tracker
        keys = tracker.keyframes(frames)
        faces = engine.detect(frames, keys)
        others = [k for k in range(len(frames)) if k not in keys]
        if others:
            regions = tracker.carry(frames, faces)
            if regions is not None:
                with engine.report.timer("mesh"):
                    carried, presence = landmark(
                        frames, regions, engine.mesh, engine.iris, engine.model
                    )
                others = doubtful(presence, regions)
                sure = ~torch.isin(carried.frame, torch.tensor(others, device=carried.frame.device))
                faces = cat_faces([faces, carried[sure]])
            if others:
                faces = cat_faces([faces, engine.detect(frames, others)])
        return tracker.track(frames, faces)

    def state(self) -> dict[str, Tensor]:
        """What must be known to go on with the next batch in another process."""
        return {"found": torch.tensor(self._found), **self._tracker.state()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Goes on behind the batch that a state is of; an empty one is the clip's beginning."""
        if state:
            self._found = int(state["found"])
            self._tracker.restore(state, self._engine.device.torch)

    def finish(self, target: Path) -> None:
        """Says what must be said of the whole clip.

        Args:
            target: The clip's file, for the message.

        Raises:
            NoFaceInTarget: No face was found and one is required.
        """
        engine = self._engine
        if engine.idle or self._found:
            return
        message = "no face was found in the target"
        if engine.config.faces.require_face:
            raise NoFaceInTarget(message, path=target, hint="nothing was written")
        engine.report.warn(f"{message}; it was only re-encoded: {target}")
