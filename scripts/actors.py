"""The AI-generated people of the PyPI package `openpeople`: their pictures, and who can act.

Each has a studio portrait and a sheet of sixteen expressions in white frames. ACTORS holds what had
to be measured of those that scripts/talking_head.py brings to life.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import openpeople
from openpeople.io import get_curated_dir

Image = npt.NDArray[np.uint8]
"""[H,W,3] RGB."""
Array = npt.NDArray[np.float32]
Point = tuple[float, float]

EXPRESSIONS = (
    *("neutral", "happy", "sad", "angry"),
    *("surprised", "disgusted", "scared", "confused"),
    *("smug", "flirty", "thoughtful", "pensive"),
    *("exhausted", "shocked", "playful", "determined"),
)
"""The sheet's photos, row by row."""

LEFT_OUT = "P003"
"""Resembles a public figure: never used."""


@dataclass(frozen=True)
class Lid:
    """One eye's upper lid edge as three points: outer corner, middle, inner corner."""

    open: tuple[Point, Point, Point]
    """In the neutral photo."""
    closed: tuple[Point, Point, Point]
    """In the photo with closed eyes; the edge is the upper rim of the lashes."""


@dataclass(frozen=True)
class Mouth:
    """Eight points each of the lips' outer and inner edge, round from the corner at image left."""

    outer: tuple[Point, ...]
    inner: tuple[Point, ...]


def _mouth(outer: str, inner: str) -> Mouth:
    """A mouth from "x,y x,y ..."."""

    def points(text: str) -> tuple[Point, ...]:
        return tuple((float(x), float(y)) for x, y in (p.split(",") for p in text.split()))

    return Mouth(points(outer), points(inner))


@dataclass(frozen=True)
class Actor:
    """What had to be measured of a person who can act: eyes, lids and mouths.

    Points of the portrait are fractions of its side, points of the sheet are pixels of a photo
    inside its frame.
    """

    person: str
    portrait_eyes: tuple[Point, Point]
    """Outer eye corners, image left first."""
    neutral_eyes: tuple[Point, Point]
    closed: str
    """The expression with shut eyes."""
    mouths: Mapping[str, Mouth]
    """Of every expression that can be used; the neutral lips are shut."""
    lids: tuple[Lid, Lid]


ACTORS = {
    "P007": Actor(
        person="P007",
        portrait_eyes=((0.3881, 0.3964), (0.6207, 0.3949)),
        neutral_eyes=((184.9, 116.6), (327.7, 115.5)),
        closed="exhausted",
        mouths={
            "neutral": _mouth(
                "218,224 247,211 259,213 271,211 299,223 271,242 259,243 247,242",
                "224,223 242,222 259,222 275,221 293,222 277,226 259,228 241,226",
            ),
            "happy": _mouth(
                "205,210 245,205 261,207 277,205 317,208 278,241 262,243 246,242",
                "212,211 236,211 261,214 287,211 310,210 287,225 262,229 236,226",
            ),
            "surprised": _mouth(
                "221,240 251,220 264,222 276,220 303,240 278,275 263,277 249,275",
                "228,239 246,233 263,233 279,233 296,239 282,252 263,255 244,252",
            ),
            "scared": _mouth(
                "220,234 250,219 263,221 275,219 301,234 275,259 262,261 249,260",
                "226,233 245,231 262,232 278,231 296,232 280,237 262,239 243,237",
            ),
            "confused": _mouth(
                "223,231 250,213 262,215 273,213 299,229 274,253 262,255 249,254",
                "229,229 246,225 262,225 277,225 294,228 279,233 262,235 244,234",
            ),
            "shocked": _mouth(
                "225,232 256,212 269,214 281,212 308,232 283,266 268,268 253,266",
                "232,231 251,225 268,225 285,225 302,231 287,244 268,247 248,244",
            ),
        },
        lids=(
            Lid(
                open=((182.0, 116.1), (207.4, 107.3), (233.3, 120.7)),
                closed=((187.5, 112.5), (211.0, 114.8), (238.6, 112.2)),
            ),
            Lid(
                open=((333.4, 117.5), (307.1, 106.6), (282.0, 120.8)),
                closed=((340.8, 112.6), (313.7, 112.8), (287.8, 112.2)),
            ),
        ),
    ),
    "P006": Actor(
        person="P006",
        portrait_eyes=((0.3751, 0.3494), (0.6236, 0.3463)),
        neutral_eyes=((186.7, 148.6), (337.3, 145.7)),
        closed="exhausted",
        mouths={
            "neutral": _mouth(
                "221,255 250,245 263,246 275,244 304,254 275,275 263,276 250,275",
                "227,254 245,255 263,256 280,254 299,253 282,258 263,261 244,259",
            ),
            "happy": _mouth(
                "201,239 244,236 262,238 280,236 323,237 280,275 263,278 245,276",
                "209,241 234,242 262,245 290,241 315,239 290,259 263,265 235,260",
            ),
            "surprised": _mouth(
                "223,257 252,239 265,241 277,239 305,257 279,289 264,291 250,289",
                "229,256 247,252 264,252 281,252 298,256 283,268 264,272 245,268",
            ),
            "scared": _mouth(
                "223,253 253,237 266,238 278,236 306,251 279,280 266,282 252,281",
                "229,252 248,249 266,249 283,248 300,250 285,258 266,261 247,259",
            ),
            "shocked": _mouth(
                "223,246 253,224 267,226 280,224 310,246 284,290 267,293 251,290",
                "230,246 249,238 267,237 284,237 302,245 287,264 267,269 247,265",
            ),
        },
        lids=(
            Lid(
                open=((186.7, 149.0), (210.2, 138.6), (238.0, 153.6)),
                closed=((185.7, 132.8), (211.4, 135.4), (239.7, 131.5)),
            ),
            Lid(
                open=((338.7, 145.5), (313.5, 138.4), (287.2, 153.6)),
                closed=((336.9, 131.1), (312.0, 131.4), (286.6, 130.8)),
            ),
        ),
    ),
}
"""Lips were measured with a face mesh and corrected by eye. Both look straight ahead in all that is
used, and shut their eyes in one photo."""


def person_file(person: str, name: str) -> Path:
    """A picture of the package, such as ("P007", "studio_portrait")."""
    if person == LEFT_OUT:
        raise ValueError(f"{LEFT_OUT} resembles a public figure and is not used")
    openpeople.curated.get(person)
    return Path(get_curated_dir()) / person / "assets" / f"{name}.jpg"


def read_rgb(path: Path) -> Image:
    """A picture file as RGB."""
    bgr = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if bgr is None:
        raise FileNotFoundError(path)
    return np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), np.uint8)


def photo_frames(sheet: Image) -> list[tuple[int, int, int, int]]:
    """The white frames of an expression sheet, row by row: x, y, width, height of the outside.

    Raises:
        ValueError: There are not sixteen of one size in four rows of four.
    """
    white = (sheet.min(axis=2) >= 225).astype(np.uint8)
    _, _, stats, _ = cv2.connectedComponentsWithStats(white, connectivity=8)
    height, width = white.shape
    frames = [
        (int(x), int(y), int(w), int(h))
        for x, y, w, h, _ in stats[1:]
        if 0.18 < w / width < 0.25 and 0.17 < h / height < 0.23
    ]
    frames.sort(key=lambda f: f[1])
    rows = [sorted(frames[i : i + 4]) for i in range(0, len(frames), 4)]
    spread = [max(f[1] for f in row) - min(f[1] for f in row) for row in rows]
    if len(frames) != len(EXPRESSIONS) or max(spread) > 12:
        raise ValueError(f"an expression sheet with {len(frames)} frames, not 4 rows of 4")
    return [frame for row in rows for frame in row]


@cache
def _sheet(person: str) -> tuple[Image, list[tuple[int, int, int, int]]]:
    sheet = read_rgb(person_file(person, "emotions_sheet"))
    return sheet, photo_frames(sheet)


BORDER = 9
"""Pixels of a frame's line and its rounded corner."""


def expression(person: str, name: str) -> Image:
    """One photo of the sheet without its frame, about 520 x 330."""
    sheet, frames = _sheet(person)
    x, y, w, h = frames[EXPRESSIONS.index(name)]
    return sheet[y + BORDER : y + h - BORDER, x + BORDER : x + w - BORDER].copy()


def portrait(person: str, side: int) -> Image:
    """The studio portrait, square."""
    picture = read_rgb(person_file(person, "studio_portrait"))
    return np.asarray(cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA), np.uint8)
