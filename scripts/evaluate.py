#!/usr/bin/env python3
"""Measures the swap: who the results are, and how much of pose and expression they keep.

Every ordered pair of different people: one's neutral photo into the other's smiling photo. DIR
holds `<set>_<id>_neutral.jpg` and `<set>_<id>_smiling.jpg` for each person. A result counts as the
source (rank1) if of all people the source is nearest to it by the shipped identity network; the
gallery holds everybody's smiling photo, and the target's neutral one, since the result was made of
the smiling one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from contact_sheet import Image, rows_sheet, write_jpeg

Array = npt.NDArray[np.float64]

EYE_CORNERS = (33, 263)
"""Mesh vertices of the outer eye corners: their distance is the unit of all errors."""
LIPS = (13, 14)
LIDS = ((159, 145), (386, 374))


def similarity_fit(points: Array, goal: Array) -> Array:
    """Points [K,2] brought onto goal [K,2] by the similarity that is best in the least squares."""
    here, there = points @ [1, 1j], goal @ [1, 1j]
    spread = here - here.mean()
    factor = np.vdot(spread, there - there.mean()) / np.vdot(spread, spread)
    fitted = factor * spread + there.mean()
    return np.stack([fitted.real, fitted.imag], -1)


def eye_distance(mesh: Array) -> float:
    """Pixels between the outer eye corners."""
    return float(np.linalg.norm(mesh[EYE_CORNERS[0], :2] - mesh[EYE_CORNERS[1], :2]))


@dataclass(frozen=True)
class Errors:
    """How a result's mesh differs from its target's, in % of the target's eye distance."""

    mesh: float
    """Mean distance of the 468 points."""
    lips: float
    """Difference of the gap between the inner lips."""
    lids: float
    """Difference of the gap between the lids, mean of both eyes."""


def mesh_errors(result: Array, target: Array) -> Errors:
    """Compares two meshes [468,2 or 3] in the picture's plane, after a similarity fit."""
    unit = eye_distance(target) / 100
    goal = target[:, :2]
    fitted = similarity_fit(result[:, :2], goal)

    def gap(mesh: Array, pair: tuple[int, int]) -> float:
        return float(np.linalg.norm(mesh[pair[0]] - mesh[pair[1]]))

    def differ(pair: tuple[int, int]) -> float:
        return abs(gap(fitted, pair) - gap(goal, pair)) / unit

    return Errors(
        mesh=float(np.linalg.norm(fitted - goal, axis=1).mean()) / unit,
        lips=differ(LIPS),
        lids=sum(differ(pair) for pair in LIDS) / len(LIDS),
    )


def around_face(picture: Image, mesh: Array) -> Image:
    """The part of a picture around a face: twice the mesh's longest side, within the picture."""
    low, high = mesh[:, :2].min(axis=0), mesh[:, :2].max(axis=0)
    centre, half = (low + high) / 2, float((high - low).max())
    size = np.array(picture.shape[1::-1])
    x0, y0 = np.clip(np.floor(centre - half), 0, size - 1).astype(int)
    x1, y1 = np.clip(np.ceil(centre + half), [x0 + 1, y0 + 1], size).astype(int)
    return picture[y0:y1, x0:x1]


def gallery_for(target: str, people: Mapping[str, tuple[Array, Array]]) -> dict[str, Array]:
    """One vector a person, of photos that went into no result: smiling, the target's neutral.

    Args:
        target: Whose smiling photo the result was made of.
        people: Person -> vectors of the neutral and the smiling photo.
    """
    return {p: neutral if p == target else smiling for p, (neutral, smiling) in people.items()}


def nearest(vector: Array, gallery: Mapping[str, Array]) -> str:
    """The name of the gallery's vector that is nearest by L2 distance."""
    return min(gallery, key=lambda name: float(np.linalg.norm(vector - gallery[name])))


def find_people(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Person -> neutral and smiling photo, of those who have both.

    Raises:
        FileNotFoundError: Fewer than two people have both.
    """
    people = {}
    for neutral in sorted(folder.glob("*_neutral.jpg")):
        person = neutral.name.removesuffix("_neutral.jpg")
        smiling = neutral.with_name(f"{person}_smiling.jpg")
        if smiling.is_file():
            people[person] = (neutral, smiling)
    if len(people) < 2:
        raise FileNotFoundError(f"{folder}: fewer than two people with *_neutral and *_smiling.jpg")
    return people


@dataclass(frozen=True)
class Pair:
    """What was measured of one swap; None where no face was found in the result."""

    source: str
    target: str
    seconds: float
    """Swap alone, with detection and landmarks; decoding and measuring aside."""
    detected: bool
    nearest: str | None = None
    to_source: float | None = None
    """L2 distance of the identity vectors: to the source's smiling photo."""
    to_target: float | None = None
    """To the target's neutral photo."""
    errors: Errors | None = None


def summary(pairs: Sequence[Pair], genuine: float) -> dict[str, float]:
    """The figures of all pairs together; rank1 counts undetected results as failures.

    Args:
        pairs: At least one.
        genuine: Mean L2 distance between two real photos of one person, to compare with.
    """
    found = [p for p in pairs if p.errors is not None]

    def mean(values: Iterator[float | None]) -> float:
        known = [v for v in values if v is not None]
        return float(np.mean(known)) if known else float("nan")

    return {
        "pairs": len(pairs),
        "detected_percent": 100 * sum(p.detected for p in pairs) / len(pairs),
        "rank1_percent": 100 * sum(p.nearest == p.source for p in pairs) / len(pairs),
        "l2_to_source": mean(p.to_source for p in found),
        "l2_to_target": mean(p.to_target for p in found),
        "l2_genuine": genuine,
        "mesh_error_percent": mean(p.errors.mesh for p in found if p.errors),
        "lip_gap_error_percent": mean(p.errors.lips for p in found if p.errors),
        "lid_gap_error_percent": mean(p.errors.lids for p in found if p.errors),
        "seconds_a_swap": mean(p.seconds for p in pairs),
    }


class Bench:
    """The library in one process: photos in, results and measurements out."""

    def __init__(self, device: str, colour: str, blend: str) -> None:
        from facefusion_cli.config import Config, GeneratorConfig, RuntimeConfig
        from facefusion_cli.pipeline import Engine
        from facefusion_cli.report import Report
        from facefusion_cli.zoo.shipped import load_dlib_resnet

        config = Config(
            generator=GeneratorConfig(colour=colour, blend=blend),  # type: ignore[arg-type]
            runtime=RuntimeConfig(device=device),  # type: ignore[arg-type]
        )
        self.engine = Engine(config, Report())
        self.network = load_dlib_resnet(self.engine.device.torch)

    def frames(self, rgb: Image) -> Any:
        """A photo as a batch of one frame."""
        import torch

        from facefusion_cli.pipeline import PHOTO_COLOR, PHOTO_LAYOUT
        from facefusion_cli.planes import frames_from_rgb

        pixels = torch.from_numpy(rgb).permute(2, 0, 1).unsqueeze(0).float() / 255
        return frames_from_rgb(pixels.to(self.engine.device.torch), PHOTO_COLOR, PHOTO_LAYOUT)

    def look(self, frames: Any) -> tuple[Array, Array] | None:
        """Identity vector [128] and mesh [468,3] of the largest face, or None."""
        from facefusion_cli.stages.embed import embed

        faces = self.engine.detect(frames, [0])
        if len(faces) == 0:
            return None
        areas = (faces.box[:, 2:] - faces.box[:, :2]).prod(-1)
        largest = faces[areas.argmax().reshape(1)]
        assert largest.mesh is not None
        vector = embed(self.network, frames, largest)[0]
        return vector.double().cpu().numpy(), largest.mesh[0].double().cpu().numpy()

    def swap(self, identity: Any, rgb: Image) -> tuple[Any, float]:
        """The photo with the identity's face, as a batch of one frame, and the seconds it took."""
        import torch

        from facefusion_cli.pipeline import CERTAIN_STILL, ClipSwapper

        frames = self.frames(rgb)
        clip = ClipSwapper(self.engine, [identity], CERTAIN_STILL)
        begun = time.perf_counter()
        clip.swap(frames)
        if self.engine.device.is_cuda:
            torch.cuda.synchronize()
        return frames, time.perf_counter() - begun


def evaluate(
    bench: Bench, people: Mapping[str, tuple[Path, Path]], limit: int | None
) -> tuple[list[Pair], float, list[tuple[str, list[Image]]]]:
    """All ordered pairs, or limit of them spread over all: measurements, genuine L2, sheet rows."""
    from tqdm import tqdm

    from facefusion_cli.planes import rgb_frames
    from facefusion_cli.video.image_file import load_photo

    photos = {p: tuple(load_photo(f) for f in files) for p, files in people.items()}
    known = {}
    for person, (neutral, smiling) in photos.items():
        looks = [bench.look(bench.frames(photo)) for photo in (neutral, smiling)]
        if looks[0] is None or looks[1] is None:
            raise ValueError(f"no face was found in a photo of {person}")
        known[person] = (looks[0], looks[1])
    genuine = float(np.mean([np.linalg.norm(a[0] - b[0]) for a, b in known.values()]))
    identities = {person: bench.engine.identity(files[0]) for person, files in people.items()}

    todo = list(permutations(people, 2))
    if limit is not None and limit < len(todo):
        todo = [todo[i * len(todo) // limit] for i in range(limit)]
    pairs, rows = [], []
    for source, target in tqdm(todo, "pairs", unit="pair", disable=None):
        frames, seconds = bench.swap(identities[source], photos[target][1])
        found = bench.look(frames)
        pair = Pair(source, target, round(seconds, 4), found is not None)
        if found is not None:
            vector, mesh = found
            vectors = {p: (looks[0][0], looks[1][0]) for p, looks in known.items()}
            gallery = gallery_for(target, vectors)
            pair = Pair(
                source,
                target,
                round(seconds, 4),
                detected=True,
                nearest=nearest(vector, gallery),
                to_source=float(np.linalg.norm(vector - gallery[source])),
                to_target=float(np.linalg.norm(vector - gallery[target])),
                errors=mesh_errors(mesh, known[target][1][1]),
            )
        pairs.append(pair)
        pixels = rgb_frames(frames)[0].clamp(0, 1).mul(255).round().byte()
        picture = pixels.permute(1, 2, 0).cpu().numpy()
        shown = (
            around_face(photos[source][0], known[source][0][1]),
            around_face(photos[target][1], known[target][1][1]),
            around_face(picture, known[target][1][1]),
        )
        rows.append((_label(pair), list(shown)))
    return pairs, genuine, rows


def _label(pair: Pair) -> str:
    who = f"{pair.source} > {pair.target}"
    if pair.errors is None:
        return f"{who}  NO FACE"
    verdict = "" if pair.nearest == pair.source else f"  IS {pair.nearest}"
    return f"{who}  L2 {pair.to_source:.2f}  mesh {pair.errors.mesh:.1f}%{verdict}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=Path, required=True, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--sheet", type=Path, metavar="FILE.jpg", help="source | target | result")
    parser.add_argument("--limit", type=int, metavar="N", help="only N pairs, spread over all")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--colour", default="tone", choices=("tone", "lab", "hist", "none"))
    parser.add_argument(
        "--blend", default="auto", choices=("auto", "poisson", "alpha", "opencv", "none")
    )
    args = parser.parse_args(argv)
    if args.limit is not None and args.limit < 1:
        parser.error("--limit is at least 1")
    people = find_people(args.pairs)
    bench = Bench(args.device, args.colour, args.blend)
    pairs, genuine, rows = evaluate(bench, people, args.limit)
    figures = summary(pairs, genuine)
    for name, value in figures.items():
        print(f"{name:24}{value:10.3f}" if name != "pairs" else f"{name:24}{value:10}")
    for pair in pairs:
        if pair.nearest != pair.source:
            print(f"not the source: {_label(pair)}")
    if args.json:
        settings = {"device": bench.engine.device.why, "colour": args.colour, "blend": args.blend}
        everything = {
            "people": len(people),
            "settings": settings,
            "summary": figures,
            "pairs": [asdict(pair) for pair in pairs],
        }
        args.json.write_text(json.dumps(everything, indent=2) + "\n")
    if args.sheet:
        write_jpeg(args.sheet, rows_sheet(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
