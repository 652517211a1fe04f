"""The source's side, made once: texture, skin, hairline, and where the texture may be read."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from facefusion_cli.generators.mesh.align import crop_matrices, into_crop, level_square
from facefusion_cli.generators.mesh.carry import facing
from facefusion_cli.generators.mesh.gauss import smooth_large
from facefusion_cli.generators.mesh.hairline import measure_hairline
from facefusion_cli.generators.mesh.model import FaceModel
from facefusion_cli.generators.mesh.plane import (
    SMALL_L,
    SPAN,
    factor,
    origin,
    sample_small,
    shrink,
    to_small,
    window,
)
from facefusion_cli.generators.mesh.skin import Skin, columns, measure_skin
from facefusion_cli.generators.mesh.vertices import FACE_CENTRE, OVAL
from facefusion_cli.stages.colour import srgb_to_lab
from facefusion_cli.types import SourcePhoto

_SMALLEST, _LARGEST = 256, 1024
"""Sides a texture may have."""
_MINIFY_FROM = 1.3
_MINIFY_BLUR = 0.35
_STEP, _REACH = 0.005, 0.16
"""The march from the outline inwards, in L."""
_INSET_MARGIN, _INSET_LIMIT = 0.012, 0.09


class PreparedSource:
    """What swap() needs of one photo."""

    def __init__(self, photo: SourcePhoto, model: FaceModel) -> None:
        assert photo.face.mesh is not None
        mesh = photo.face.mesh.float()
        _, longest, _ = level_square(mesh)
        natural = SPAN * float(longest)
        size = min(max(math.ceil(natural / 128) * 128, _SMALLEST), _LARGEST)
        matrix = crop_matrices(mesh, size)
        texture = cut_photo(photo.pixels, matrix[0], size)
        self.size = size
        self.mesh = into_crop(mesh, matrix)[0]
        """[468,3] pixels of the texture."""
        self.facing = facing(self.mesh[None], model)[0]
        """[468] how far each vertex faces the camera."""
        texture_lab = srgb_to_lab(texture[None])
        lab = shrink(window(texture_lab))
        small = to_small(self.mesh[None, :, :2], size)
        skin = measure_skin(lab, small, model)
        self.hairline = measure_hairline(lab, small, skin, model)[0]
        """[41]."""
        inset = contour_inset(lab, small, skin)[0]
        self.sampled = pull_in(self.mesh[:, :2], inset * size / SPAN)
        """[468,2] pixels of the texture that each vertex is read at."""
        place = torch.arange(size, device=lab.device).float() - origin(size)
        x = ((place + 0.5) / factor(size) - 0.5).view(1, 1, 1, -1)
        self._texture = torch.cat([texture_lab, skin.likelihood(texture_lab, x)], 1)
        self._blurred: dict[int, Tensor] = {}

    def texture(self, size: int) -> Tensor:
        """What a crop of the given side reads: blurred so that shrinking it is clean.

        Args:
            size: Side of the crop.

        Returns:
            [4,T,T] Lab and how likely it is skin.
        """
        if size not in self._blurred:
            ratio = self.size / size
            sigma = _MINIFY_BLUR * math.sqrt(ratio * ratio - 1) if ratio > _MINIFY_FROM else 0.0
            self._blurred[size] = smooth_large(self._texture, sigma).contiguous()[0]
        return self._blurred[size]


def cut_photo(pixels: Tensor, matrix: Tensor, size: int) -> Tensor:
    """Resamples the square crop of a photo; what lies outside repeats the photo's border.

    Args:
        pixels: [3,H,W] 0..1.
        matrix: [2,3] photo -> crop.
        size: Side of the crop.

    Returns:
        [3,size,size].
    """
    inverse = torch.linalg.inv(matrix[:, :2].double())
    centre = inverse @ ((size - 1) / 2 - matrix[:, 2].double())
    scale = float(torch.linalg.vector_norm(inverse[:, 0]))
    # Half the diagonal of the square, whichever way it is turned.
    reach = scale * size * 0.71 + 2
    x0, x1 = _span(float(centre[0]), reach, int(pixels.shape[2]))
    y0, y1 = _span(float(centre[1]), reach, int(pixels.shape[1]))
    region = pixels[None, :, y0:y1, x0:x1]
    h, w = region.shape[2:]
    if scale > 1:
        # grid_sample reads four pixels whatever the scale: shrink with averaging first.
        small = (max(1, round(h / scale)), max(1, round(w / scale)))
        region = F.interpolate(
            region, size=small, mode="bilinear", align_corners=False, antialias=True
        )
    steps = torch.arange(size, device=pixels.device, dtype=torch.float64)
    crop = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1)
    where = (crop - matrix[:, 2].double()) @ inverse.T
    corner = torch.tensor([x0, y0], device=pixels.device)
    extent = torch.tensor([w, h], device=pixels.device)
    grid = (2 * (where - corner) + 1) / extent - 1
    return F.grid_sample(
        region, grid[None].float(), mode="bilinear", padding_mode="border", align_corners=False
    )[0].clamp(0, 1)


def _span(middle: float, reach: float, length: int) -> tuple[int, int]:
    """First and last + 1 of the samples within reach of the middle; one at least."""
    first = min(max(math.floor(middle - reach), 0), length - 1)
    return first, max(min(math.ceil(middle + reach) + 1, length), first + 1)


def contour_inset(lab: Tensor, mesh: Tensor, skin: Skin) -> Tensor:
    """How far inside the outline the source's skin begins, where background or hair covers it.

    Args:
        lab: [F,3,80,80] small grid.
        mesh: [F,468,2] small pixels.
        skin: Of these faces.

    Returns:
        [F,36] in L, along OVAL. A gap of more than 9 % is a beard or a shadow, not a wrong outline,
        and counts as none.
    """
    rim = mesh[:, list(OVAL)]
    inwards = mesh[:, list(FACE_CENTRE)].mean(1, keepdim=True) - rim
    inwards = inwards / torch.linalg.vector_norm(inwards, dim=-1, keepdim=True).clamp_min(1e-6)
    depth = torch.arange(0, _REACH + _STEP / 2, _STEP, device=lab.device)
    points = rim[:, :, None] + inwards[:, :, None] * (depth * SMALL_L)[:, None]
    f, n, k = points.shape[:3]
    likely = sample_small(
        skin.likelihood(lab, columns(lab.device)), points.reshape(f, n * k, 2)
    ).view(f, n, k)
    bad = (likely < 0.4).any(-1)
    good = likely >= 0.4
    run = good[..., :-2] & good[..., 1:-1] & good[..., 2:]
    start = torch.where(run, depth[:-2], 1.0).amin(-1) + _INSET_MARGIN
    inset = torch.where(bad & (start <= _INSET_LIMIT), start, 0.0)
    inset = torch.stack([inset.roll(1, 1), inset, inset.roll(-1, 1)]).amax(0)
    return (inset.roll(1, 1) + 2 * inset + inset.roll(-1, 1)) / 4


def pull_in(points: Tensor, inset: Tensor) -> Tensor:
    """Vertices moved towards the face's centre, most at the outline.

    The move grows with the sixth power of the place between centre and outline: moving the outline
    alone would fold the triangles inside it.

    Args:
        points: [468,2].
        inset: [36] along OVAL, in the same pixels.

    Returns:
        [468,2].
    """
    centre = points[list(FACE_CENTRE)].mean(0)
    offset = points - centre
    radius = torch.linalg.vector_norm(offset, dim=-1).clamp_min(1e-6)
    angle = torch.atan2(offset[:, 1], offset[:, 0])
    rim = list(OVAL)
    order = torch.argsort(angle[rim])
    angles = angle[rim][order]
    turn = 2 * math.pi
    angles = torch.cat([angles[-1:] - turn, angles, angles[:1] + turn])

    def around(values: Tensor) -> Tensor:
        """Values along the outline, read at every vertex's angle."""
        ring = values[order]
        ring = torch.cat([ring[-1:], ring, ring[:1]])
        right = torch.searchsorted(angles, angle.contiguous()).clamp(1, len(angles) - 1)
        low, high = angles[right - 1], angles[right]
        t = ((angle - low) / (high - low).clamp_min(1e-6)).clamp(0, 1)
        return torch.lerp(ring[right - 1], ring[right], t)

    rho = (radius / around(radius[rim])).clamp(0, 1)
    move = around(inset) * rho**6
    pulled: Tensor = centre + offset * ((radius - move) / radius)[:, None]
    return pulled
