from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
import torch
from av.video.reformatter import Interpolation
from torch import Tensor

from facefusion_cli.planes import (
    frames_from_rgb,
    planes_from_bgr,
    planes_matrix,
    read_region,
    region_box,
    rgb_frames,
    rgb_matrix,
    upload,
    write_region,
)
from facefusion_cli.types import BgrBatch, ColorSpec, FrameBatch, Matrix, PlaneLayout, Range
from tests.people import portrait

LAYOUTS = [(2, 2), (2, 1), (1, 1)]
MATRICES: tuple[Matrix, ...] = ("bt601", "bt709", "bt2020")
RANGES: tuple[Range, ...] = ("limited", "full")
# H.273 / FFmpeg numbers of the tags.
MATRIX_TAG = {"bt601": 6, "bt709": 1}
RANGE_TAG = {"limited": 1, "full": 2}
# Hand-made from BT.601, BT.709 and BT.2020: limited-range codes of saturated colours.
KNOWN_CODES = [
    ("bt601", 8, (1, 0, 0), (81, 90, 240)),
    ("bt601", 8, (0, 0, 1), (41, 240, 110)),
    ("bt709", 8, (1, 0, 0), (63, 102, 240)),
    ("bt709", 8, (0, 1, 0), (173, 42, 26)),
    ("bt709", 8, (1, 1, 1), (235, 128, 128)),
    ("bt709", 10, (1, 1, 1), (940, 512, 512)),
    ("bt2020", 10, (0, 0, 1), (116, 960, 476)),
]


def natural(height: int, width: int) -> Tensor:
    """[1,3,height,width] a portrait, RGB 0..1."""
    picture = portrait("P001", max(height, width))[:height, :width]
    return torch.from_numpy(picture.copy()).permute(2, 0, 1)[None].float() / 255


def random_frames(
    color: ColorSpec, layout: PlaneLayout, size: tuple[int, int] = (22, 36), count: int = 2
) -> FrameBatch:
    """Frames of noise over all codes, legal or not."""
    rng = np.random.default_rng(0)
    sx, sy = layout.subsampling
    store = np.uint8 if layout.bits == 8 else np.uint16
    h, w = size

    def plane(rows: int, columns: int) -> Tensor:
        return torch.from_numpy(
            rng.integers(0, 2**layout.bits, (count, rows, columns)).astype(store)
        )

    chroma = (-(-h // sy), -(-w // sx))
    pts = tuple(Fraction(i, 25) for i in range(count))
    return FrameBatch((plane(h, w), plane(*chroma), plane(*chroma)), color, layout, pts, 0)


def copied(frames: FrameBatch) -> list[Tensor]:
    return [p.clone() for p in frames.planes]


def furthest(a: FrameBatch | list[Tensor], b: FrameBatch | list[Tensor]) -> list[int]:
    """Largest difference of each plane, in codes."""
    first = a.planes if isinstance(a, FrameBatch) else a
    second = b.planes if isinstance(b, FrameBatch) else b
    pairs = zip(first, second, strict=True)
    return [int((x.to(torch.int32) - y.to(torch.int32)).abs().max()) for x, y in pairs]


def h273_codes(rgb: np.ndarray, color: ColorSpec, bits: int) -> np.ndarray:
    """Equations 8-25 to 8-35 of H.273, one by one, float64, unrounded; [3, ...]."""
    red, green, blue = rgb
    if color.matrix == "rgb":
        primary = [green, blue, red]
        chroma = []
    else:
        kr, kb = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020": (0.2627, 0.0593)}[
            color.matrix
        ]
        luma = kr * red + (1 - kr - kb) * green + kb * blue
        primary = [luma]
        chroma = [0.5 * (blue - luma) / (1 - kb), 0.5 * (red - luma) / (1 - kr)]
    if color.range == "full":
        top = 2**bits - 1
        return np.stack([top * p for p in primary] + [top * c + 2 ** (bits - 1) for c in chroma])
    step = 2 ** (bits - 8)
    return np.stack(
        [step * (219 * p + 16) for p in primary] + [step * (224 * c + 128) for c in chroma]
    )


@pytest.mark.parametrize(("matrix", "bits", "rgb", "codes"), KNOWN_CODES)
def test_known_colours_have_their_codes(
    matrix: Matrix, bits: int, rgb: tuple[int, ...], codes: tuple[int, ...]
) -> None:
    forward = planes_matrix(ColorSpec(matrix), bits)
    assert tuple(np.rint(forward[:, :3] @ rgb + forward[:, 3])) == codes


@pytest.mark.parametrize("color", [ColorSpec(m, r) for m in (*MATRICES, "rgb") for r in RANGES])
@pytest.mark.parametrize("bits", [8, 10, 16])
def test_frames_equal_the_equations_of_h273(color: ColorSpec, bits: int) -> None:
    rgb = np.random.default_rng(1).random((3, 9, 7))
    frames = frames_from_rgb(torch.from_numpy(rgb)[None], color, PlaneLayout((1, 1), bits))
    exact = h273_codes(rgb, color, bits)
    made = np.stack([p[0].numpy() for p in frames.planes]).astype(np.float64)
    # float32 arithmetic may round the other way where the exact value lies half-way.
    assert np.abs(made - exact.clip(0, 2**bits - 1)).max() < 0.5 + 2.0 ** (bits - 20)
    back = rgb_frames(frames)[0].numpy()
    rows = np.abs(rgb_matrix(color, bits)[:, :3]).sum(1).max()
    assert np.abs(back - rgb).max() < 0.51 * rows


@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("subsampling", LAYOUTS)
def test_smooth_pictures_survive_subsampling(subsampling: tuple[int, int], bits: int) -> None:
    ramp = torch.linspace(0.2, 0.8, 40).expand(30, 40)
    rgb = torch.stack([ramp, ramp.flip(1), ramp * 0.5])[None]
    frames = frames_from_rgb(rgb, ColorSpec("bt709"), PlaneLayout(subsampling, bits))
    error = (rgb_frames(frames) - rgb).abs()
    # Linear within cells: exact but for rounding and the outermost cells, whose slope is halved.
    assert float(error[..., 2:-2, 2:-2].max()) < 2.0 / (2**bits - 1)


@pytest.mark.parametrize("size", [(22, 36), (21, 35)])
@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("color", [ColorSpec("bt709"), ColorSpec("bt601", "full")])
@pytest.mark.parametrize("subsampling", LAYOUTS)
def test_weight_zero_changes_no_byte(
    subsampling: tuple[int, int], color: ColorSpec, bits: int, size: tuple[int, int]
) -> None:
    frames = random_frames(color, PlaneLayout(subsampling, bits), size)
    before = copied(frames)
    box = region_box((5.2, 3.1, 60, 60), frames)
    region = torch.full_like(read_region(frames, 1, box), 7.0)
    write_region(frames, 1, box, region, torch.zeros_like(region[:1]))
    assert furthest(frames, before) == [0, 0, 0]


@pytest.mark.parametrize("size", [(22, 36), (21, 35)])
@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("color", [ColorSpec("bt709"), ColorSpec("bt601", "full")])
@pytest.mark.parametrize("subsampling", LAYOUTS)
def test_a_region_written_as_it_was_read_changes_nothing(
    subsampling: tuple[int, int], color: ColorSpec, bits: int, size: tuple[int, int]
) -> None:
    frames = random_frames(color, PlaneLayout(subsampling, bits), size)
    # Noise has codes that limited range reserves; writing moves those, and only those.
    low, high = (1 << (bits - 8), (255 << (bits - 8)) - 1) if color.range == "limited" else (0, 0)
    if high:
        for plane in frames.planes:
            plane.copy_(plane.to(torch.int32).clamp(low, high))
    before = copied(frames)
    box = region_box((4, 2, 31, 15), frames)
    region = read_region(frames, 0, box)
    for weight in (torch.ones_like(region[:1]), torch.rand_like(region[:1])):
        write_region(frames, 0, box, region, weight)
        assert furthest(frames, before) == [0, 0, 0]


@pytest.mark.parametrize("subsampling", LAYOUTS)
def test_only_the_weighted_samples_of_the_region_change(subsampling: tuple[int, int]) -> None:
    frames = random_frames(ColorSpec(), PlaneLayout(subsampling))
    before = copied(frames)
    box = (8, 4, 20, 14)
    weight = torch.zeros(1, 10, 12)
    weight[0, 3:6, 4:8] = 1  # rows 7..9 and columns 12..15 of the frame
    write_region(frames, 1, box, torch.zeros(3, 10, 12), weight)
    sx, sy = subsampling
    for number, (plane, old) in enumerate(zip(frames.planes, before, strict=True)):
        dx, dy = (sx, sy) if number else (1, 1)
        changed = plane != old
        assert not changed[0].any()
        rows, columns = changed[1].any(1).nonzero()[:, 0], changed[1].any(0).nonzero()[:, 0]
        assert rows.min() >= 7 // dy
        assert rows.max() <= 9 // dy
        assert columns.min() >= 12 // dx
        assert columns.max() <= 15 // dx


@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("subsampling", LAYOUTS)
def test_full_weight_writes_the_colours_given(subsampling: tuple[int, int], bits: int) -> None:
    color = ColorSpec("bt709")
    frames = random_frames(color, PlaneLayout(subsampling, bits))
    new = torch.rand(3, 14, 20, generator=torch.Generator().manual_seed(3)) * 0.6 + 0.2
    write_region(frames, 0, (2, 4, 22, 18), new, torch.ones(1, 14, 20))
    expected = frames_from_rgb(new[None], color, frames.layout)
    sx, sy = subsampling
    written = [
        p[0:1, 4 // dy : 18 // dy, 2 // dx : 22 // dx]
        for p, (dx, dy) in zip(frames.planes, [(1, 1), (sx, sy), (sx, sy)], strict=True)
    ]
    # Rounding to a code is of old + change here and of the new value there: a tie may differ.
    assert max(furthest(list(expected.planes), written)) <= 1


def test_half_weight_stands_half_way() -> None:
    frames = frames_from_rgb(torch.full((1, 3, 8, 8), 0.2), ColorSpec(), PlaneLayout())
    red = torch.tensor([1.0, 0, 0])[:, None, None].expand(3, 8, 8)
    weight = torch.zeros(1, 8, 8)
    weight[0, :, ::2] = 0.5
    write_region(frames, 0, (0, 0, 8, 8), red, weight)
    y, u, v = (p[0, 0] for p in frames.planes)
    # Codes: grey 0.2 is 60 128 128, red is 81.5 90.2 240; chroma cells have a mean weight of 1/4.
    assert y[:4].tolist() == [71, 60, 71, 60]
    assert u[:2].tolist() == [119, 119]
    assert v[:2].tolist() == [156, 156]


@pytest.mark.parametrize(
    ("color", "bits", "low", "high"),
    [
        (ColorSpec("bt709", "limited"), 8, 1, 254),
        (ColorSpec("bt709", "limited"), 10, 4, 1019),
        (ColorSpec("bt709", "full"), 8, 0, 255),
        (ColorSpec("bt709", "full"), 10, 0, 1023),
    ],
)
def test_writing_stays_in_legal_codes(color: ColorSpec, bits: int, low: int, high: int) -> None:
    layout = PlaneLayout((1, 1), bits)
    for value, code in ((9.0, high), (-9.0, low)):
        frames = frames_from_rgb(torch.full((1, 3, 4, 4), 0.5), color, layout)
        write_region(frames, 0, (0, 0, 4, 4), torch.full((3, 4, 4), value), torch.ones(1, 4, 4))
        assert set(frames.planes[0].flatten().tolist()) == {code}


@pytest.mark.parametrize("size", [(22, 36), (21, 35)])
@pytest.mark.parametrize("subsampling", LAYOUTS)
def test_a_region_reads_the_same_whatever_its_extent(
    subsampling: tuple[int, int], size: tuple[int, int]
) -> None:
    frames = random_frames(ColorSpec("bt709"), PlaneLayout(subsampling), size)
    whole = rgb_frames(frames)[1]
    for box_xyxy in ((0, 0, 9, 9), (10, 6, 13, 7), (30, 18, 50, 50)):
        x0, y0, x1, y1 = box = region_box(box_xyxy, frames)
        region = read_region(frames, 1, box)
        assert region.shape == (3, y1 - y0, x1 - x0)
        assert torch.equal(region, whole[:, y0:y1, x0:x1])


@pytest.mark.parametrize(
    ("box", "subsampling", "expected"),
    [
        ((4, 2, 9, 7), (2, 2), (4, 2, 10, 8)),
        ((4.9, 2.1, 9.1, 7.9), (2, 2), (4, 2, 12, 10)),
        ((5, 3, 8, 6), (2, 1), (4, 3, 10, 7)),
        ((5, 3, 8, 6), (1, 1), (5, 3, 9, 7)),
        ((-7, -3, 500, 500), (2, 2), (0, 0, 35, 21)),
        ((34, 20, 34, 20), (2, 2), (34, 20, 35, 21)),
        ((-9, 0, -2, 9), (2, 2), (0, 0, 0, 0)),
        ((36, 0, 50, 9), (2, 2), (0, 0, 0, 0)),
    ],
)
def test_region_boxes_cover_their_pixels_in_whole_cells(
    box: tuple[float, ...], subsampling: tuple[int, int], expected: tuple[int, ...]
) -> None:
    frames = random_frames(ColorSpec(), PlaneLayout(subsampling), (21, 35), 1)
    assert region_box(box, frames) == expected


def test_an_empty_region_is_read_and_written_as_nothing() -> None:
    frames = random_frames(ColorSpec(), PlaneLayout())
    before = copied(frames)
    region = read_region(frames, 0, (0, 0, 0, 0))
    assert region.shape == (3, 0, 0)
    write_region(frames, 0, (0, 0, 0, 0), region, region[:1])
    assert furthest(frames, before) == [0, 0, 0]


@pytest.mark.parametrize("box", [(1, 0, 8, 8), (0, 0, 9, 8), (0, 0, 8, 40), (4, 4, 2, 2)])
def test_regions_off_the_cells_are_refused(box: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="chroma cells"):
        read_region(random_frames(ColorSpec(), PlaneLayout()), 0, box)


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("matrix", ["bt601", "bt709"])
@pytest.mark.parametrize("subsampling", LAYOUTS)
def test_reading_agrees_with_swscale(
    subsampling: tuple[int, int], matrix: Matrix, name: Range
) -> None:
    frames = frames_from_rgb(natural(768, 1024), ColorSpec(matrix, name), PlaneLayout(subsampling))
    chroma = {(2, 2): "420", (2, 1): "422", (1, 1): "444"}[subsampling]
    rgb = (
        video_frame(frames, f"yuv{chroma}p")
        .reformat(
            format="rgb24",
            src_colorspace=MATRIX_TAG[matrix],
            src_color_range=RANGE_TAG[name],
            dst_color_range=RANGE_TAG["full"],
            interpolation=Interpolation.BILINEAR
            | Interpolation.ACCURATE_RND
            | Interpolation.FULL_CHR_H_INT
            | Interpolation.FULL_CHR_H_INP,
        )
        .to_ndarray()
    )
    ours = rgb_frames(frames)[0].permute(1, 2, 0).clamp(0, 1).numpy() * 255
    error = np.abs(ours - rgb)
    assert error.mean() < 0.6
    # Its chroma is plain bilinear: at sharp edges of colour the two differ by design.
    assert np.quantile(error, 1 if subsampling == (1, 1) else 0.999) <= 2


@pytest.mark.parametrize("size", [(36, 64), (35, 63)])
@pytest.mark.parametrize("subsampling", LAYOUTS)
@pytest.mark.parametrize(
    "color", [ColorSpec(m, r) for m, r in product(("bt601", "bt709", "bt2020"), RANGES)]
)
def test_bgr_on_a_cpu_agrees_with_torch_within_one_code(
    color: ColorSpec, subsampling: tuple[int, int], size: tuple[int, int]
) -> None:
    rgb = natural(*size)
    noise = torch.rand(rgb.shape, generator=torch.Generator().manual_seed(1))
    bgr = (torch.cat([rgb, noise]) * 255).round().to(torch.uint8).flip(1).permute(0, 2, 3, 1)
    batch = BgrBatch(
        bgr.contiguous(), color, PlaneLayout(subsampling), (Fraction(3), Fraction(4)), 70
    )
    ours = planes_from_bgr(batch)
    assert (ours.color, ours.layout, ours.pts, ours.first_index) == (
        color,
        batch.layout,
        batch.pts,
        70,
    )
    exact = frames_from_rgb(bgr.permute(0, 3, 1, 2).flip(1).float() / 255, color, batch.layout)
    assert max(furthest(ours, exact)) <= 1


@pytest.mark.parametrize("name", RANGES)
def test_bgr_as_rgb_planes_is_the_pixels_themselves(name: Range) -> None:
    bgr = torch.randint(0, 256, (1, 6, 8, 3), dtype=torch.uint8)
    batch = BgrBatch(bgr, ColorSpec("rgb", name), PlaneLayout((1, 1)), (Fraction(0),), 0)
    back = rgb_frames(planes_from_bgr(batch)).mul(255)
    assert float((back - bgr.permute(0, 3, 1, 2).flip(1)).abs().max()) < (
        1e-3 if name == "full" else 1.01
    )
    with pytest.raises(ValueError, match="matrix rgb"):
        planes_from_bgr(replace(batch, layout=PlaneLayout((2, 2))))


def test_bgr_can_become_deep_planes() -> None:
    bgr = torch.full((1, 4, 4, 3), 255, dtype=torch.uint8)
    batch = BgrBatch(bgr, ColorSpec("bt709"), PlaneLayout((2, 2), 10), (Fraction(0),), 0)
    frames = upload(batch, "cpu")
    assert frames.planes[0].dtype == torch.uint16
    assert [int(p.to(torch.int32).max()) for p in frames.planes] == [940, 512, 512]


def video_frame(frames: FrameBatch, pixel_format: str) -> av.VideoFrame:
    """The first frame as PyAV's, tagged with matrix and range."""
    frame = av.VideoFrame(frames.width, frames.height, pixel_format)
    for plane, values in zip(frame.planes, frames.planes, strict=True):
        rows = np.zeros((plane.height, plane.line_size), np.uint8)
        rows[:, : plane.width] = values[0].numpy()
        plane.update(rows)
    frame.colorspace = MATRIX_TAG[frames.color.matrix]
    frame.color_range = RANGE_TAG[frames.color.range]
    return frame


def write_lossless(path: Path, frames: FrameBatch, pixel_format: str) -> None:
    """One frame as FFV1 in Matroska, tagged."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = frames.width, frames.height, pixel_format
        stream.codec_context.colorspace = MATRIX_TAG[frames.color.matrix]
        stream.codec_context.color_range = RANGE_TAG[frames.color.range]
        container.mux(stream.encode(video_frame(frames, pixel_format)))
        container.mux(stream.encode(None))


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("matrix", ["bt601", "bt709"])
@pytest.mark.parametrize("subsampling", LAYOUTS)
def test_opencv_and_back_keeps_the_decoders_planes(
    tmp_path: Path, subsampling: tuple[int, int], matrix: Matrix, name: Range
) -> None:
    color, layout = ColorSpec(matrix, name), PlaneLayout(subsampling)
    pixel_format = {(2, 2): "yuv420p", (2, 1): "yuv422p", (1, 1): "yuv444p"}[subsampling]
    path = tmp_path / "picture.mkv"
    written = frames_from_rgb(natural(512, 512), color, layout)
    write_lossless(path, written, pixel_format)

    with av.open(str(path)) as container:
        decoded = next(container.decode(video=0))
        planes = [
            torch.from_numpy(
                np.frombuffer(p, np.uint8).reshape(p.height, p.line_size)[:, : p.width].copy()
            )[None]
            for p in decoded.planes
        ]
    assert furthest(planes, written) == [0, 0, 0]
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    ok, bgr = capture.read()
    capture.release()
    assert ok
    ours = planes_from_bgr(BgrBatch(torch.from_numpy(bgr)[None], color, layout, (Fraction(0),), 0))
    near = [
        (a.to(torch.int32) - b.to(torch.int32)).abs() <= 2
        for a, b in zip(ours.planes, planes, strict=True)
    ]
    assert float(torch.cat([n.flatten() for n in near]).float().mean()) >= 0.998


PATCHES = {
    "red": (1, 0, 0),
    "green": (0, 1, 0),
    "blue": (0, 0, 1),
    "yellow": (1, 1, 0),
    "cyan": (0, 1, 1),
    "magenta": (1, 0, 1),
    "grey": (0.5, 0.5, 0.5),
    "skin": (0.784, 0.616, 0.525),
}
UNTAGGED = ColorSpec()
COLOUR_ROWS = [
    *product(MATRICES, RANGES, LAYOUTS, (8, 10, 12)),
    *product(("rgb",), RANGES, [(1, 1)], (8, 10, 12)),
    ("untagged", "limited", (2, 2), 8),
]


def row_color(matrix: str, name: Range) -> ColorSpec:
    """The colours of a row, with the tags that a clip of such has."""
    if matrix == "untagged":
        return UNTAGGED
    tag = {"rgb": 0, "bt601": 6, "bt709": 1, "bt2020": 9}[matrix]
    primaries, transfer = {0: (1, 13), 6: (6, 6), 1: (1, 1), 9: (9, 14)}[tag]
    return ColorSpec(matrix, name, (tag, primaries, transfer, RANGE_TAG[name]))  # type: ignore[arg-type]


@pytest.mark.parametrize(("matrix", "name", "subsampling", "bits"), COLOUR_ROWS)
def test_colour_patches(matrix: str, name: Range, subsampling: tuple[int, int], bits: int) -> None:
    """Untagged is BT.601, limited, as every decoder here takes it."""
    color, layout = row_color(matrix, name), PlaneLayout(subsampling, bits)
    rgb = np.array(list(PATCHES.values()))
    codes = h273_codes(rgb.T, color, bits).clip(0, 2**bits - 1)
    flat = torch.from_numpy(rgb).float()[:, :, None, None].expand(-1, -1, 8, 12)
    # A rounded code is off by half, in RGB by half the sum of the inverse's row; chroma that
    # full range cuts (H.273's 256 of 8 bits) by half a code more.
    off = 0.51 * np.abs(rgb_matrix(color, bits)[:, :3]).sum(1) * (2 if name == "full" else 1)

    whole = frames_from_rgb(flat, color, layout)
    assert np.abs(flat_codes(whole) - codes).max() <= 0.5 + 1e-3
    shown = rgb_frames(whole).double().numpy()
    assert (np.abs(shown - rgb[:, :, None, None]).max((0, 2, 3)) < off).all()

    # The same patches into the middle of grey frames.
    frames = frames_from_rgb(torch.full((8, 3, 8, 12), 0.5), color, layout)
    for index, patch in enumerate(flat):
        write_region(frames, index, (2, 2, 10, 6), patch[:, :4, :8], torch.ones(1, 4, 8))
        read = read_region(frames, index, (4, 4, 6, 6)).double().numpy()
        if subsampling == (1, 1):
            assert (np.abs(read - rgb[index][:, None, None]).max((1, 2)) < off).all()
    assert np.abs(flat_codes(frames, 4) - codes).max() <= 0.5 + 1e-3


def flat_codes(frames: FrameBatch, at: int = 0) -> np.ndarray:
    """[3,N] the codes of one pixel of every frame."""
    sx, sy = frames.layout.subsampling
    y, u, v = frames.planes
    samples = [y[:, at, at], u[:, at // sy, at // sx], v[:, at // sy, at // sx]]
    return np.stack([s.numpy() for s in samples]).astype(float)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("subsampling", LAYOUTS)
def test_a_gpu_does_the_same(subsampling: tuple[int, int]) -> None:
    bgr = natural(127, 191).mul(255).round().to(torch.uint8).flip(1).permute(0, 2, 3, 1)
    batch = BgrBatch(
        bgr.expand(2, -1, -1, -1).contiguous(),
        ColorSpec("bt709"),
        PlaneLayout(subsampling),
        (Fraction(0), Fraction(1)),
        0,
    )
    here, there = upload(batch, "cpu"), upload(batch, "cuda")
    assert max(furthest(here, there.to("cpu"))) <= 1
    there = here.to("cuda")
    box = region_box((10, 10, 50, 50), here)
    region = read_region(here, 1, box)
    torch.testing.assert_close(read_region(there, 1, box).cpu(), region, atol=1e-5, rtol=0)
    new, weight = torch.rand_like(region), torch.rand_like(region[:1])
    write_region(here, 1, box, new, weight)
    write_region(there, 1, box, new.cuda(), weight.cuda())
    assert max(furthest(here, there.to("cpu"))) <= 1
