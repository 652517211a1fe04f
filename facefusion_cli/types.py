"""What the stages hand to one another.

All are frozen dataclasses with slots, checked once when made. Shapes: N frames, F faces, H x W
pixels. Coordinates between stages are pixels of the upright original frame, with pixel centres at
whole numbers (OpenCV's convention); a stage undoes its own scaling. torch is imported for type
checking only, so that the command line can read these types without paying for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

Matrix = Literal["bt601", "bt709", "bt2020", "rgb"]
Range = Literal["limited", "full"]


def _shape(value: object) -> str:
    """A tensor as dtype and shape, anything else as itself: for reprs."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return repr(value)
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    return f"{dtype}{list(shape)}"


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True, slots=True)
class ColorSpec:
    """How sample values mean colours; kept from input to output unchanged."""

    matrix: Matrix = "bt601"
    """The matrix that pixels are converted with. Untagged clips use bt601 as every decoder here
    does; "rgb" means identity: planes are G, B, R in that order (H.273 matrix 0)."""
    range: Range = "limited"
    """limited: 16-235 (at 8 bits); full: 0-255."""
    tags: tuple[int, int, int, int] = (2, 2, 2, 0)
    """The stream's own (matrix, primaries, transfer, range) numbers, H.273 / FFmpeg, written to the
    output as they are; 2, 2, 2, 0 = unspecified, and it stays unspecified."""


@dataclass(frozen=True, slots=True)
class PlaneLayout:
    """How planes are stored: subsampling and depth."""

    subsampling: tuple[int, int] = (2, 2)
    """Horizontal and vertical chroma divisor: (2, 2) = 4:2:0, (2, 1) = 4:2:2, (1, 1) = 4:4:4."""
    bits: int = 8
    """Bits a sample; 8 is stored as uint8, 9 to 16 as uint16 in the low bits."""

    def __post_init__(self) -> None:
        _require(self.subsampling in {(1, 1), (2, 1), (2, 2)}, f"subsampling {self.subsampling}")
        _require(8 <= self.bits <= 16, f"{self.bits} bits")


@dataclass(frozen=True, slots=True)
class AudioStream:
    """One audio stream of the input."""

    index: int
    """Index among all streams of the container."""
    codec: str
    sample_rate: int
    channels: int
    start: Fraction | None
    """Seconds; None when the container does not say."""
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Light:
    """How bright an HDR clip was graded to be: static metadata (SMPTE ST 2086, CTA-861.3)."""

    mastering: tuple[Fraction, ...] | None = None
    """Chromaticities x, y of red, green, blue and white, then the mastering display's least and
    greatest luminance in cd/m2: ten numbers."""
    max_cll: int | None = None
    """Brightest pixel of the clip, cd/m2."""
    max_fall: int | None = None
    """Brightest frame average, cd/m2."""

    def __post_init__(self) -> None:
        _require(self.mastering is None or len(self.mastering) == 10, "mastering is not 10 numbers")


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a clip, on the clip's own clock in seconds; None = open. Start <= pts < end."""

    start: Fraction | None = None
    end: Fraction | None = None

    def __contains__(self, pts: Fraction) -> bool:
        return (self.start is None or pts >= self.start) and (self.end is None or pts < self.end)


WHOLE = Window()


@dataclass(frozen=True, slots=True)
class Edit:
    """What is changed of a clip besides its faces."""

    window: Window = WHOLE
    """Only this part comes out; sound and chapters are cut with it."""
    rate: Fraction | None = None
    """Constant frame rate of the output; None keeps every frame's own time."""
    size: tuple[int, int] | None = None
    """Output width and height; None keeps them."""
    until: Fraction | None = field(default=None, compare=False)
    """The clip's time at which its last frame ends, given with a rate where it is known."""

    @property
    def stop(self) -> Fraction | None:
        """The clip's time behind which nothing is shown."""
        ends = [end for end in (self.window.end, self.until) if end is not None]
        return min(ends, default=None)


NO_EDIT = Edit()


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What the probe learned about a clip. Times in seconds, sizes in pixels."""

    path: Path
    width: int
    """Upright width: after rotation is applied."""
    height: int
    """Upright height."""
    coded_size: tuple[int, int]
    """Width and height as stored, before rotation."""
    rotation: int
    """Degrees counter-clockwise to turn the stored picture upright: 0, 90, 180 or 270."""
    frame_rate: Fraction
    """Average frame rate."""
    time_base: Fraction
    start: Fraction
    """First video pts in seconds (the stream's own start; may be negative)."""
    duration_from_header: Fraction | None
    frame_count_from_header: int | None
    pixel_format: str
    """FFmpeg's name as decoded, e.g. yuv420p."""
    layout: PlaneLayout
    """Layout in which planes are carried for this clip."""
    color: ColorSpec
    sample_aspect: Fraction
    """Pixel aspect ratio of the upright picture; 1 when square or unknown."""
    codec: str
    container: str
    hazards: frozenset[str] = frozenset()
    """Any of: interlaced hdr deep alpha vfr rotated mirrored late_start odd_size not_first (a cover
    picture is the file's first picture stream) changing (size, pixel format or colour tags
    change midway) alpha_unread (no decoder here gives its alpha) unstated_start (FFmpeg guesses
    where it starts)."""
    audio: tuple[AudioStream, ...] = ()
    subtitles: tuple[int, ...] = ()
    """Indices of subtitle streams."""
    chapters: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    light: Light | None = None
    """Static HDR metadata, where the clip has some."""
    images: tuple[Path, ...] = ()
    """The pictures in order, where the clip is a folder or pattern of images."""


@dataclass(frozen=True, slots=True, repr=False)
class FrameBatch:
    """Consecutive frames as the planes the decoder gave. Stages write into the planes in place."""

    planes: tuple[Tensor, Tensor, Tensor]
    """Y [N,H,W], U [N,h,w], V [N,h,w]; uint8 or uint16; h = ceil(H / vertical divisor)."""
    color: ColorSpec
    layout: PlaneLayout
    pts: tuple[Fraction, ...]
    """Seconds, one a frame, on the clip's own clock (the common start is not yet subtracted)."""
    first_index: int
    """Index in the clip of the batch's first frame."""
    alpha: Tensor | None = None
    """[N,H,W] like Y, or None."""

    def __post_init__(self) -> None:
        y, u, v = self.planes
        n, h, w = y.shape
        sx, sy = self.layout.subsampling
        _require(len(self.pts) == n, f"{len(self.pts)} pts for {n} frames")
        chroma = (n, -(-h // sy), -(-w // sx))
        _require(
            tuple(u.shape) == chroma and tuple(v.shape) == chroma,
            f"chroma {tuple(u.shape)} {tuple(v.shape)}, expected {chroma}",
        )
        if self.alpha is not None:
            _require(self.alpha.shape == y.shape, "alpha is not the size of Y")

    def __len__(self) -> int:
        return len(self.pts)

    def __repr__(self) -> str:
        planes = ", ".join(_shape(p) for p in self.planes)
        return f"FrameBatch({planes}, {self.color}, {self.layout}, first={self.first_index})"

    @property
    def height(self) -> int:
        """Rows of the frame."""
        return int(self.planes[0].shape[1])

    @property
    def width(self) -> int:
        """Columns of the frame."""
        return int(self.planes[0].shape[2])

    def to(self, device: object, *, non_blocking: bool = False) -> FrameBatch:
        """The same batch on another device (itself when it is there already)."""

        def move(t: Tensor) -> Tensor:
            return t.to(device=device, non_blocking=non_blocking)  # type: ignore[call-overload, no-any-return]

        y, u, v = self.planes
        alpha = None if self.alpha is None else move(self.alpha)
        return replace(self, planes=(move(y), move(u), move(v)), alpha=alpha)


@dataclass(frozen=True, slots=True, repr=False)
class BgrBatch:
    """Consecutive frames as OpenCV gives them; they become planes once, on the device."""

    bgr: Tensor
    """[N,H,W,3] uint8."""
    color: ColorSpec
    """What the planes made of it shall be (the clip's own)."""
    layout: PlaneLayout
    pts: tuple[Fraction, ...]
    first_index: int
    bias: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Code values to add to Y, U and V of these bytes' conversion before they are rounded."""
    gray_bias: float = 0.0
    """The same for Y where a pixel is neutral (B = G = R): it lost less to truncation."""

    def __post_init__(self) -> None:
        n, _, _, c = self.bgr.shape
        _require(c == 3 and len(self.pts) == n, f"{_shape(self.bgr)} with {len(self.pts)} pts")

    def __len__(self) -> int:
        return len(self.pts)

    def __repr__(self) -> str:
        return f"BgrBatch({_shape(self.bgr)}, first={self.first_index})"


@dataclass(frozen=True, slots=True, repr=False)
class Faces:
    """Faces of a batch, a struct of arrays flat over its frames. Original-frame pixels."""

    frame: Tensor
    """[F] int64, index of the frame in the batch."""
    box: Tensor
    """[F,4] float32, x0 y0 x1 y1."""
    score: Tensor
    """[F] float32 0..1: the detector's; once there is a mesh, times the mesh network's presence."""
    points5: Tensor
    """[F,5,2] left eye, right eye, nose, left and right mouth corner; left is the image's left."""
    mesh: Tensor | None = None
    """[F,468,3] x, y, z in pixels; z relative, towards the viewer is negative."""
    iris: Tensor | None = None
    """[F,2,5,2] centre and four rim points, image-left eye first."""
    points106: Tensor | None = None
    """[F,106,2] in the canonical order of stages/points106.py."""
    pose: Tensor | None = None
    """[F,3] yaw, pitch, roll in degrees."""
    track: Tensor | None = None
    """[F] int64, an id unique in the clip."""
    identity: Tensor | None = None
    """[F] int64, which source goes on this face; -1 = leave it."""
    embedding: Tensor | None = None
    """[F,D] or None."""

    def __post_init__(self) -> None:
        f = len(self.frame)
        shapes: dict[str, tuple[int, ...]] = {
            "box": (f, 4),
            "score": (f,),
            "points5": (f, 5, 2),
            "mesh": (f, 468, 3),
            "iris": (f, 2, 5, 2),
            "points106": (f, 106, 2),
            "pose": (f, 3),
            "track": (f,),
            "identity": (f,),
        }
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value is not None:
                _require(
                    tuple(value.shape) == shape, f"{name} {tuple(value.shape)}, expected {shape}"
                )

    def __len__(self) -> int:
        return len(self.frame)

    def __repr__(self) -> str:
        present = ((n, getattr(self, n)) for n in self.__slots__)
        return f"Faces({', '.join(f'{n}={_shape(v)}' for n, v in present if v is not None)})"

    def __getitem__(self, index: Tensor) -> Faces:
        """The faces picked by an index or boolean tensor, every array alike."""
        values = {n: getattr(self, n) for n in self.__slots__}
        return _faces({n: None if v is None else v[index] for n, v in values.items()})


@dataclass(frozen=True, slots=True, repr=False)
class SourcePhoto:
    """One photo of the person to put in, with what was found in it. RGB, upright."""

    path: Path
    pixels: Tensor
    """[3,H,W] float32, sRGB 0..1, on the device."""
    face: Faces
    """Exactly one face, with mesh, iris and pose, in the photo's pixels."""

    def __post_init__(self) -> None:
        _require(self.pixels.ndim == 3 and self.pixels.shape[0] == 3, "pixels are not [3,H,W]")
        _require(len(self.face) == 1, f"{len(self.face)} faces, expected 1")


@dataclass(frozen=True, slots=True)
class Identity:
    """One person to put in: photos and, by recogniser name, embeddings."""

    name: str
    photos: tuple[SourcePhoto, ...]
    embeddings: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(len(self.photos) > 0, "an identity needs a photo")


@dataclass(frozen=True, slots=True, repr=False)
class FaceCrops:
    """Aligned square crops of target faces, one bucket size."""

    pixels: Tensor
    """[F,3,S,S] float32 RGB, 0..1."""
    to_crop: Tensor
    """[F,2,3] float32: crop pixel = A @ (frame x, frame y, 1)."""
    faces: Faces
    """The faces, in frame pixels, row for row."""

    def __post_init__(self) -> None:
        f, c, s, s2 = self.pixels.shape
        _require(c == 3 and s == s2, f"crops {tuple(self.pixels.shape)}")
        _require(tuple(self.to_crop.shape) == (f, 2, 3), f"to_crop {tuple(self.to_crop.shape)}")
        _require(len(self.faces) == f, f"{len(self.faces)} faces for {f} crops")

    def __len__(self) -> int:
        return int(self.pixels.shape[0])

    def __repr__(self) -> str:
        return f"FaceCrops({_shape(self.pixels)})"

    @property
    def size(self) -> int:
        """Side of a crop in pixels."""
        return int(self.pixels.shape[-1])


@dataclass(frozen=True, slots=True, repr=False)
class SwappedCrops:
    """What a generator returns for a FaceCrops of F faces and side S."""

    pixels: Tensor
    """[F,3,S,S] the new face, RGB 0..1; real wherever mask > 0 and one pixel beyond (Poisson takes
    differences across the rim), finite everywhere."""
    backdrop: Tensor
    """[F,3,S,S] what the new face is blended onto: the target's crop, or the target's crop warped
    to the new shape. Equal to the target's crop where touched is 0."""
    mask: Tensor
    """[F,1,S,S] 0..1, how much of the new face shows."""
    touched: Tensor
    """[F,1,S,S] 0..1, weight with which the blended crop replaces the frame; >= mask, 0 on the
    crop's border."""

    def __post_init__(self) -> None:
        f, _, s, _ = self.pixels.shape
        _require(self.backdrop.shape == self.pixels.shape, "backdrop is not like pixels")
        for name in ("mask", "touched"):
            _require(tuple(getattr(self, name).shape) == (f, 1, s, s), f"{name} shape")

    def __repr__(self) -> str:
        return f"SwappedCrops({_shape(self.pixels)})"


def _faces(columns: Mapping[str, Any]) -> Faces:
    return Faces(**columns)


def cat_faces(parts: Sequence[Faces]) -> Faces:
    """Faces of several parts in one; a field absent in any part is absent in the whole.

    Args:
        parts: At least one Faces; frame indices are taken as they are.
    """
    import torch

    columns = {n: [getattr(p, n) for p in parts] for n in Faces.__slots__}
    return _faces(
        {n: None if any(v is None for v in c) else torch.cat(c) for n, c in columns.items()}
    )
