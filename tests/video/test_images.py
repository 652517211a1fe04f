"""Photos in, images in and out. Every test image is made here."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps, JpegImagePlugin, PngImagePlugin
from PIL.ExifTags import IFD

from facefusion_cli.config import OutputConfig
from facefusion_cli.errors import (
    CorruptInput,
    EmptyVideo,
    IncompatibleContainer,
    InputNotFound,
    NotAVideo,
    UnsupportedVideo,
)
from facefusion_cli.types import FrameBatch
from facefusion_cli.video.image_file import ImageTarget, is_image, load_photo
from facefusion_cli.video.image_kinds import image_kind

OUTPUT = OutputConfig()
XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-'
    b'syntax-ns#"><rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" '
    b'tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>'
)


def picture(w: int = 40, h: int = 24, channels: int = 3) -> np.ndarray:
    """Smooth, with a bright corner, so that JPEG keeps it and no turn looks like another."""
    y, x = np.mgrid[:h, :w]
    pixels = np.stack([40 + 3 * x, 60 + 4 * y, 200 - 2 * x, 100 + x + 2 * y], 2)
    pixels[: h // 3, : w // 3, :3] = 240
    return np.ascontiguousarray(pixels[:, :, :channels].astype(np.uint8))


def same(pixels: np.ndarray, expected: np.ndarray, suffix: str) -> bool:
    """Equal, or through JPEG once more: a level on average, where other pictures differ by 60."""
    assert pixels.shape == expected.shape
    off = np.abs(pixels.astype(int) - expected)
    return bool(off.mean() < 1.5 if suffix == ".jpg" else off.max() == 0)


def opened(path: Path) -> Image.Image:
    return Image.open(io.BytesIO(path.read_bytes()))


@cache
def profile(name: str = "sRGB") -> bytes:
    """A profile; made once, for the moment it was made at stands in it."""
    return ImageCms.ImageCmsProfile(ImageCms.createProfile(name)).tobytes()


def wide_gamut_profile() -> bytes:
    """An RGB matrix profile whose red and green are exchanged: nobody can mistake its effect."""
    data = bytearray(profile())
    tags = {bytes(data[132 + 12 * i : 136 + 12 * i]): 132 + 12 * i for i in range(data[131])}
    red, green = tags[b"rXYZ"] + 4, tags[b"gXYZ"] + 4
    data[red : red + 8], data[green : green + 8] = data[green : green + 8], data[red : red + 8]
    return bytes(data)


def stack(frames: FrameBatch) -> np.ndarray:
    green, blue, red = (p[0].numpy() for p in frames.planes)
    return np.stack([red, green, blue], 2)


def through(source: Path, out: Path, output: OutputConfig = OUTPUT) -> np.ndarray:
    target = ImageTarget(source)
    target.check_output(out)
    target.write(target.read(), out, output)
    return np.asarray(opened(out))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_exif_orientation_is_applied_and_reset(
    tmp_path: Path, suffix: str, orientation: int
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010F] = "ACME"
    exif.get_ifd(0x8769)[0xA002], exif.get_ifd(0x8769)[0xA003] = 40, 24
    path, out = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    Image.fromarray(picture()).save(path, exif=exif, lossless=True, quality=98)
    upright = ImageOps.exif_transpose(opened(path))
    expected = np.asarray(upright.convert("RGB"))

    assert np.array_equal(stack(ImageTarget(path).read()), expected)
    assert np.array_equal(load_photo(path), expected)
    result = through(path, out)

    assert same(result, expected, suffix)
    kept = opened(out).getexif()
    assert kept[0x0112] == 1
    assert kept[0x010F] == "ACME"
    details = kept.get_ifd(0x8769)
    assert (details[0xA002], details[0xA003]) == (expected.shape[1], expected.shape[0])


def test_the_exif_thumbnail_does_not_keep_the_old_face(tmp_path: Path) -> None:
    path, out = tmp_path / "in.jpg", tmp_path / "out.jpg"
    thumbnail = io.BytesIO()
    Image.fromarray(picture()).save(thumbnail, "JPEG")
    exif = Image.Exif()
    exif[0x010F] = "ACME"
    head = exif.tobytes()
    # IFD1 by hand: compression 6, offset and length of the JPEG that follows.
    tiff = bytearray(head.removeprefix(b"Exif\0\0"))
    little = tiff[:2] == b"II"
    order = "little" if little else "big"
    count = int.from_bytes(tiff[8:10], order)
    link, at = 10 + 12 * count, len(tiff)
    tiff[link : link + 4] = at.to_bytes(4, order)
    ifd = (3).to_bytes(2, order)
    for tag, kind, value in (
        (0x103, 3, 6),
        (0x201, 4, at + 42),
        (0x202, 4, len(thumbnail.getvalue())),
    ):
        cell = value.to_bytes(2, order) + b"\0\0" if kind == 3 else value.to_bytes(4, order)
        ifd += tag.to_bytes(2, order) + kind.to_bytes(2, order) + (1).to_bytes(4, order) + cell
    tiff += ifd + bytes(4) + thumbnail.getvalue()
    Image.fromarray(picture()).save(path, exif=b"Exif\0\0" + bytes(tiff))
    assert opened(path).getexif().get_ifd(IFD.IFD1)[0x202] == len(thumbnail.getvalue())

    through(path, out)

    assert opened(out).getexif().get_ifd(IFD.IFD1) == {}
    assert out.read_bytes().count(b"\xff\xd8\xff") == 1


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_profile_xmp_and_resolution_are_kept(tmp_path: Path, suffix: str) -> None:
    path, out = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    arguments: dict[str, object] = {"xmp": XMP, "icc_profile": wide_gamut_profile()}
    if suffix == ".png":
        info = PngImagePlugin.PngInfo()
        info.add_itxt("XML:com.adobe.xmp", XMP.decode())
        info.add_text("Title", "a picture")
        arguments = {"pnginfo": info, "icc_profile": wide_gamut_profile()}
    if suffix != ".webp":
        arguments["dpi"] = (300, 150)
    Image.fromarray(picture()).save(path, lossless=True, quality=95, **arguments)
    before = stack(ImageTarget(path).read())

    through(path, out)

    kept = opened(out)
    kept.load()
    assert kept.info["icc_profile"] == wide_gamut_profile()
    assert kept.info["xmp"] == XMP.replace(b'Orientation="6"', b'Orientation="1"')
    if suffix != ".webp":
        # The picture was turned by 90 degrees, the XMP orientation says so.
        assert kept.info["dpi"] == pytest.approx((150, 300), rel=0.01)
    if suffix == ".png":
        assert kept.text["Title"] == "a picture"
    # A target keeps its own numbers; only a source photo is converted.
    assert same(np.asarray(kept), before, suffix)


def test_a_photo_is_converted_to_srgb(tmp_path: Path) -> None:
    plain, tagged = tmp_path / "plain.png", tmp_path / "tagged.png"
    Image.fromarray(picture()).save(plain)
    Image.fromarray(picture()).save(tagged, icc_profile=wide_gamut_profile())
    swapped = picture()[:, :, [1, 0, 2]].astype(int)
    assert np.array_equal(load_photo(plain), picture())
    assert np.abs(load_photo(tagged).astype(int) - swapped).mean() < 12
    assert np.abs(load_photo(tagged).astype(int) - picture()).mean() > 20


def test_a_broken_profile_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "in.png"
    Image.fromarray(picture()).save(path, icc_profile=b"no profile at all")
    assert np.array_equal(load_photo(path), picture())
    assert "ICC profile cannot be used" in caplog.text


@pytest.mark.parametrize("suffix", [".png", ".webp"])
def test_alpha_is_carried_beside_and_comes_back(tmp_path: Path, suffix: str) -> None:
    pixels = picture(channels=4)
    pixels[5:9, 5:9, 3] = 0
    path = tmp_path / f"in{suffix}"
    Image.fromarray(pixels).save(path, lossless=True, exact=True)
    frames = ImageTarget(path).read()
    assert frames.alpha is not None
    assert np.array_equal(frames.alpha[0].numpy(), pixels[:, :, 3])
    assert np.array_equal(through(path, tmp_path / f"out{suffix}"), pixels)


def test_a_photo_with_alpha_lies_on_white(tmp_path: Path) -> None:
    pixels = picture(channels=4)
    pixels[:, :, 3] = 255
    pixels[10:, :, 3] = 0
    path = tmp_path / "in.png"
    Image.fromarray(pixels).save(path)
    photo = load_photo(path)
    assert np.array_equal(photo[:10], pixels[:10, :, :3])
    assert (photo[10:] == 255).all()


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_sixteen_bits_stay(tmp_path: Path, channels: int) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 65536, (10, 14, channels)).astype(np.uint16)
    path, out = tmp_path / "in.png", tmp_path / "out.png"
    assert cv2.imwrite(str(path), pixels)
    frames = ImageTarget(path).read()
    assert frames.layout.bits == 16
    through(path, out)
    again = cv2.imread(str(out), cv2.IMREAD_UNCHANGED)
    assert again.dtype == np.uint16
    assert np.array_equal(again.reshape(pixels.shape), pixels)
    assert load_photo(path).shape == (10, 14, 3)


def test_sixteen_bit_files_keep_their_metadata(tmp_path: Path) -> None:
    path, out = tmp_path / "in.png", tmp_path / "out.png"
    assert cv2.imwrite(str(path), np.zeros((10, 14, 3), np.uint16))
    from facefusion_cli.video.image_metadata import with_chunks

    exif = Image.Exif()
    exif[0x0112] = 6
    path.write_bytes(with_chunks(path.read_bytes(), [(b"eXIf", exif.tobytes()[6:])]))
    through(path, out)
    kept = opened(out)
    assert kept.size == (10, 14)
    assert kept.getexif()[0x0112] == 1


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [("L", ".jpg"), ("L", ".png"), ("LA", ".png"), ("P", ".png"), ("1", ".png"), ("L", ".webp")],
)
def test_other_modes(tmp_path: Path, mode: str, suffix: str) -> None:
    source = Image.fromarray(picture()).convert("L" if mode == "LA" else mode)
    if mode == "LA":
        source.putalpha(Image.fromarray(picture()[:, :, 0]))
    path, out = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    source.save(path, lossless=True, quality=95)
    before = opened(path)
    result = through(path, out)
    expected = np.asarray(before.convert({"1": "L", "P": "RGB"}.get(mode, before.mode)))
    assert opened(out).mode == {"1": "L", "P": "RGB"}.get(mode, before.mode)
    assert same(result, expected, suffix)


def test_jpeg_quality_and_subsampling(tmp_path: Path) -> None:
    for subsampling in (0, 1, 2):
        path, out = tmp_path / f"{subsampling}.jpg", tmp_path / f"out{subsampling}.jpg"
        Image.fromarray(picture()).save(path, subsampling=subsampling, progressive=True)
        through(path, out)
        assert JpegImagePlugin.get_sampling(opened(out)) == subsampling
        assert opened(out).info["progressive"]
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "n.jpg", quality=95)
    sizes = []
    for quality in (40, 90):
        through(
            tmp_path / "n.jpg", tmp_path / f"n{quality}.jpg", OutputConfig(image_quality=quality)
        )
        sizes.append((tmp_path / f"n{quality}.jpg").stat().st_size)
    assert sizes[0] < sizes[1] / 1.5


def test_webp_stays_lossless_or_lossy(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (32, 32, 3)).astype(np.uint8)
    for lossless in (True, False):
        path, out = tmp_path / f"{lossless}.webp", tmp_path / f"out{lossless}.webp"
        Image.fromarray(noise).save(path, lossless=lossless, quality=80)
        result = through(path, out)
        same = np.array_equal(result, np.asarray(opened(path)))
        assert same == lossless
        assert (b"VP8L" in out.read_bytes()) == lossless


def test_changed_planes_are_written(tmp_path: Path) -> None:
    path, out = tmp_path / "in.png", tmp_path / "out.png"
    Image.fromarray(picture()).save(path)
    target = ImageTarget(path)
    frames = target.read()
    frames.planes[2][0, 2:5, 3:6] = 7
    target.write(frames, out, OUTPUT)
    expected = picture()
    expected[2:5, 3:6, 0] = 7
    assert np.array_equal(np.asarray(opened(out)), expected)
    assert np.array_equal(stack(target.read()), picture()), "the planes are the target's own memory"


def test_kinds_go_by_content(tmp_path: Path) -> None:
    path = tmp_path / "photo.dat"
    Image.fromarray(picture()).save(path, "PNG")
    assert is_image(path)
    assert ImageTarget(path).kind == "PNG"
    text = tmp_path / "text.png"
    text.write_text("no picture")
    assert not is_image(text)
    assert not is_image(tmp_path / "missing.png")
    assert not is_image(tmp_path)


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("out.mp4", "an image cannot be written to a video"),
        ("out.tga", "unknown image format .tga"),
        ("out", "the output has no suffix"),
        ("out.jpg", "JPEG cannot hold alpha"),
    ],
)
def test_outputs_that_do_not_fit(tmp_path: Path, out: str, reason: str) -> None:
    path = tmp_path / "in.png"
    Image.fromarray(picture(channels=4)).save(path)
    with pytest.raises(IncompatibleContainer, match=reason):
        ImageTarget(path).check_output(tmp_path / out)


def test_sixteen_bits_only_go_into_png(tmp_path: Path) -> None:
    path = tmp_path / "in.png"
    cv2.imwrite(str(path), np.zeros((10, 14, 3), np.uint16))
    with pytest.raises(IncompatibleContainer, match="JPEG cannot hold 16 bits"):
        ImageTarget(path).check_output(tmp_path / "out.jpg")


def test_another_kind_of_image(tmp_path: Path) -> None:
    path = tmp_path / "in.png"
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(picture()).save(path, exif=exif, dpi=(300, 300), icc_profile=profile())
    result = through(path, tmp_path / "out.jpg")
    assert same(result, picture()[::-1, ::-1], ".jpg")
    kept = opened(tmp_path / "out.jpg")
    assert kept.getexif()[0x0112] == 1
    assert kept.info["icc_profile"] == profile()
    back = through(tmp_path / "out.jpg", tmp_path / "back.png")
    assert np.array_equal(back, result)
    assert opened(tmp_path / "back.png").info["dpi"] == pytest.approx((300, 300), rel=0.01)
    through(path, tmp_path / "out.webp")
    assert b"VP8L" in (tmp_path / "out.webp").read_bytes()


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF"])
def test_animations_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "in.bin"
    pictures = [Image.fromarray(picture()), Image.fromarray(picture()[::-1])]
    pictures[0].save(path, kind, save_all=True, append_images=pictures[1:])
    assert is_image(path) == (kind == "WEBP"), "the others are read as clips"
    with pytest.raises(UnsupportedVideo, match=f"this {kind} is an animation"):
        ImageTarget(path)
    assert load_photo(path).shape == (24, 40, 3)


def test_heic_tiff_bmp_and_cmyk_are_refused(tmp_path: Path) -> None:
    heic = tmp_path / "photo.heic"
    heic.write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200))
    assert is_image(heic)
    with pytest.raises(UnsupportedVideo, match=r"HEIF images cannot be a target.*to PNG"):
        ImageTarget(heic)
    with pytest.raises(NotAVideo, match=r"HEIF images cannot be read.*convert it to JPEG"):
        load_photo(heic)
    for kind in ("TIFF", "BMP"):
        Image.fromarray(picture()).save(tmp_path / kind, kind)
        assert image_kind(tmp_path / kind) == kind
        with pytest.raises(UnsupportedVideo, match=f"{kind} images cannot be a target"):
            ImageTarget(tmp_path / kind)
        assert np.array_equal(load_photo(tmp_path / kind), picture())
    Image.fromarray(picture()).convert("CMYK").save(tmp_path / "c.jpg")
    with pytest.raises(UnsupportedVideo, match="CMYK"):
        ImageTarget(tmp_path / "c.jpg")
    assert load_photo(tmp_path / "c.jpg").shape == (24, 40, 3)


@pytest.mark.parametrize("read", [load_photo, ImageTarget])
def test_bad_files(tmp_path: Path, read) -> None:
    with pytest.raises(InputNotFound):
        read(tmp_path / "missing.jpg")
    with pytest.raises(NotAVideo, match="folder"):
        read(tmp_path)
    (tmp_path / "empty.jpg").touch()
    with pytest.raises(EmptyVideo):
        read(tmp_path / "empty.jpg")
    (tmp_path / "text.jpg").write_text("this is no picture at all\n" * 20)
    with pytest.raises(NotAVideo, match="not an image"):
        read(tmp_path / "text.jpg")
    for kind in ("jpg", "png", "webp"):
        whole = tmp_path / f"whole.{kind}"
        noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
        Image.fromarray(noise).save(whole)
        cut = tmp_path / f"cut.{kind}"
        cut.write_bytes(whole.read_bytes()[:2000])
        with pytest.raises(CorruptInput):
            read(cut)


def test_a_huge_image_is_refused_and_a_large_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in.png"
    Image.fromarray(picture()).save(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 600)
    assert load_photo(path).shape == (24, 40, 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    with pytest.raises(UnsupportedVideo, match="too large"):
        load_photo(path)
    with pytest.raises(UnsupportedVideo, match="too large"):
        ImageTarget(path)


def test_an_image_too_large_for_webp_leaves_nothing(tmp_path: Path) -> None:
    from facefusion_cli.errors import EncoderRejected

    path = tmp_path / "in.png"
    Image.new("RGB", (16400, 2)).save(path)
    target = ImageTarget(path)
    with pytest.raises(EncoderRejected, match="WEBP encoder refuses"):
        target.write(target.read(), tmp_path / "out.webp", OUTPUT)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.png"]
