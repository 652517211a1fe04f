"""Every encoder: what goes in comes out, what cannot be kept is said, what cannot be is refused."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch

from facefusion_cli.errors import (
    ConfigError,
    EncoderRejected,
    EncoderUnavailable,
    IncompatibleContainer,
)
from facefusion_cli.report import Report
from facefusion_cli.types import ColorSpec, Edit, FrameBatch, Light, VideoInfo
from facefusion_cli.video import encode_thread, encoder_trial
from facefusion_cli.video.encode_thread import ClipEncoder
from facefusion_cli.video.encoder_options import parse_options
from facefusion_cli.video.encoder_table import ENCODERS, pixel_formats
from facefusion_cli.video.encoder_trial import try_encoder
from facefusion_cli.video.encoders import plan_encoding
from facefusion_cli.video.frames import download
from facefusion_cli.video.probe import probe
from facefusion_cli.video.writer import ClipWriter
from tests.clips import frame_of, make_clip, planes
from tests.video.writing import batches, config, evenly, format_of, info_of, read_file, write_clip

SOFTWARE = [
    (name, suffix)
    for name, spec in ENCODERS.items()
    for suffix in spec.containers
    if not spec.hardware
]
YUV = [(name, suffix) for name, suffix in SOFTWARE if name != "gif"]
RGB = ColorSpec("rgb", "full", (2, 2, 2, 0))
FULL_709 = ColorSpec("bt709", "full", (1, 1, 1, 2))
DISPLAY_P3 = tuple(
    Fraction(n, 50_000) for n in (34_000, 16_000, 13_250, 34_500, 7_500, 3_000, 15_635, 16_450)
)
LIGHT = Light((*DISPLAY_P3, Fraction(1, 10_000), Fraction(1000)), 1000, 400)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A clip whose only use is to be the one that the frames are said to be from."""
    folder = tmp_path / "source"
    folder.mkdir()
    return make_clip(folder / "in.mkv", frames=2, codec="ffv1").path


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) == before


def good(encoder: str) -> dict[str, object]:
    """Settings with which the encoder is quick and its losses are small."""
    crf = {"h264": 4, "hevc": 4, "av1": 4, "vp9": 4}.get(encoder, -1)
    return {"crf": crf, "preset": "ultrafast"}


def difference(got: np.ndarray, put: np.ndarray, bits: int, put_bits: int) -> float:
    """Mean difference of samples in levels of 8 bits."""
    return float(np.abs(got / 2.0 ** (bits - 8) - put / 2.0 ** (put_bits - 8)).mean())


def codec_of(path: Path) -> tuple[str, str, str | None]:
    with av.open(path) as file:
        context = file.streams.video[0].codec_context
        return context.codec.canonical_name, context.codec_tag, context.profile


@pytest.mark.parametrize(("encoder", "suffix"), YUV)
@pytest.mark.parametrize("bits", [8, 10])
def test_frames_and_depth_come_through(
    tmp_path: Path, source: Path, encoder: str, suffix: str, bits: int
) -> None:
    info = info_of(source, bits=bits)
    out = tmp_path / f"out{suffix}"
    report = write_clip(out, info, evenly(8), config(encoder, **good(encoder)))
    written = read_file(out)
    assert len(written.frames) == 8
    assert written.size == (64, 48)
    for got, put in zip(written.pts, evenly(8), strict=True):
        assert abs(got - put) <= Fraction(1, 1000)
    depth = av.VideoFormat(written.pix_fmt).components[0].bits
    deep = pixel_formats("libvpx-vp9")
    if encoder == "vp9" and bits == 10 and "yuv420p10le" not in deep:
        assert depth == 8
        assert report.warnings == ["10-bit becomes 8-bit: vp9 has no more"]
    else:
        assert depth == (10 if encoder == "prores" else bits)
        assert report.warnings == []
    for i, frame in enumerate(written.frames):
        assert difference(frame[0], planes(format_of(info), (64, 48), i)[0], depth, bits) <= 1.5


@pytest.mark.parametrize(("encoder", "suffix"), YUV)
@pytest.mark.parametrize(
    "color",
    [
        ColorSpec("bt709", "limited", (1, 1, 1, 1)),
        FULL_709,
        ColorSpec("bt2020", "limited", (9, 9, 16, 1)),
        ColorSpec("bt601", "limited", (5, 5, 6, 1)),
        ColorSpec("bt601", "limited", (2, 2, 2, 0)),
    ],
    ids=lambda color: "-".join(map(str, color.tags)),
)
def test_colours_and_tags_come_through(
    tmp_path: Path, source: Path, encoder: str, suffix: str, color: ColorSpec
) -> None:
    info = info_of(source, color=color)
    values = [(60, 90, 200), (180, 128, 60), (120, 200, 128)]
    y, u, v = (torch.tensor(c, dtype=torch.uint8)[:, None, None] for c in zip(*values, strict=True))
    flat = (y.repeat(1, 48, 64), u.repeat(1, 24, 32), v.repeat(1, 24, 32))
    out = tmp_path / f"out{suffix}"
    report = Report()
    with ClipWriter(out, info, config(encoder, **good(encoder)), report) as writer:
        writer.write(FrameBatch(flat, color, info.layout, tuple(evenly(3)), 0))
    written = read_file(out)
    assert written.tags[:3] == color.tags[:3]
    span = written.tags[3]
    if encoder == "prores":
        assert span == 1
    else:
        # Some streams always say their range, and say limited where the clip did not.
        assert span == color.tags[3] or (span, color.tags[3]) == (1, 0)
    depth = av.VideoFormat(written.pix_fmt).components[0].bits
    for frame, value in zip(written.frames, values, strict=True):
        for n, (plane, code) in enumerate(zip(frame, value, strict=True)):
            wanted = float(code)
            if color.range == "full" and encoder == "prores":
                wanted = 128 + (code - 128) * 224 / 255 if n else 16 + code * 219 / 255
            assert abs(plane.mean() / 2 ** (depth - 8) - wanted) <= 2
    assert report.warnings == []


@pytest.mark.parametrize(("encoder", "suffix"), YUV)
@pytest.mark.parametrize("size", [(65, 47), (34, 33), (33, 34)])
def test_odd_sizes_are_kept_or_padded(
    tmp_path: Path, source: Path, encoder: str, suffix: str, size: tuple[int, int]
) -> None:
    info = info_of(source, size)
    out = tmp_path / f"out{suffix}"
    report = write_clip(out, info, evenly(4), config(encoder, **good(encoder)))
    written = read_file(out)
    w, h = size
    needs = {"h264": (2, 2), "hevc": (2, 2), "prores": (2, 1)}.get(encoder, (1, 1))
    assert written.size == (w + -w % needs[0], h + -h % needs[1])
    assert len(report.warnings) == (written.size != size)
    depth = av.VideoFormat(written.pix_fmt).components[0].bits
    for i, frame in enumerate(written.frames):
        for n, plane in enumerate(planes("yuv420p", size, i)):
            if n and encoder == "prores":
                plane = plane.repeat(2, 0)[:h]
            got = frame[n][: plane.shape[0], : plane.shape[1]]
            assert difference(got, plane, depth, 8) <= 2.5


@pytest.mark.parametrize(
    ("encoder", "pix_fmt", "suffix"),
    [("h264", "yuv444p", ".mp4"), ("hevc", "yuv444p", ".mp4"), ("vp9", "yuv444p", ".webm")],
)
def test_full_chroma_keeps_the_size(
    tmp_path: Path, source: Path, encoder: str, pix_fmt: str, suffix: str
) -> None:
    info = info_of(source, (65, 47), grid=(1, 1))
    out = tmp_path / f"out{suffix}"
    report = write_clip(out, info, evenly(3), config(encoder, pix_fmt=pix_fmt, **good(encoder)))
    written = read_file(out)
    assert (written.size, written.pix_fmt) == ((65, 47), pix_fmt)
    for i, frame in enumerate(written.frames):
        for got, put in zip(frame, planes(pix_fmt, (65, 47), i), strict=True):
            assert difference(got, put, 8, 8) <= 2
    assert report.warnings == []


@pytest.mark.parametrize(("encoder", "suffix"), YUV)
def test_chroma_of_a_444_clip(
    tmp_path: Path,
    source: Path,
    encoder: str,
    suffix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "ffx")
    info = info_of(source, grid=(1, 1))
    write_clip(tmp_path / f"out{suffix}", info, evenly(2), config(encoder, **good(encoder)))
    fmt = av.VideoFormat(read_file(tmp_path / f"out{suffix}").pix_fmt, 64, 48)
    if encoder in {"ffv1", "prores"}:
        assert fmt.chroma_width() == 64
        assert "outputs are" not in caplog.text
    else:
        assert (fmt.chroma_width(), fmt.chroma_height()) == (32, 24)
        assert f"yuv444p becomes yuv420p: {encoder} outputs are 4:2:0" in caplog.text


def test_prores_of_420_has_its_chroma_in_place(tmp_path: Path, source: Path) -> None:
    """4:2:0 becomes 4:2:2: every second row is new, and the gradient down goes on in even steps."""
    info = info_of(source)
    write_clip(tmp_path / "out.mov", info, evenly(2), config("prores"))
    chroma = read_file(tmp_path / "out.mov").frames[0][1].astype(float).mean(1) / 4
    rows = planes("yuv420p", (64, 48), 0)[1].astype(float).mean(1)
    wanted = np.interp(np.arange(48), 2 * np.arange(24) + 0.5, rows)
    assert np.abs(chroma - wanted)[2:-2].max() <= 1


@pytest.mark.parametrize("suffix", [".mp4", ".mov"])
@pytest.mark.parametrize("bits", [8, 10])
def test_hevc_is_tagged_for_apple(tmp_path: Path, source: Path, suffix: str, bits: int) -> None:
    out = tmp_path / f"out{suffix}"
    write_clip(out, info_of(source, bits=bits), evenly(2), config("hevc"))
    assert codec_of(out) == ("hevc", "hvc1", "Main" if bits == 8 else "Main 10")


@pytest.mark.parametrize(
    ("grid", "alpha", "profile"),
    [((2, 2), False, "HQ"), ((2, 1), False, "HQ"), ((1, 1), False, "4444"), ((2, 2), True, "4444")],
)
def test_profiles_of_prores(
    tmp_path: Path, source: Path, grid: tuple[int, int], alpha: bool, profile: str
) -> None:
    info = info_of(source, grid=grid, bits=10, alpha=alpha)
    write_clip(tmp_path / "out.mov", info, evenly(2), config("prores"), alpha=alpha)
    assert codec_of(tmp_path / "out.mov")[::2] == ("prores", profile)


@pytest.mark.parametrize(
    ("name", "codec"),
    [("o.mp4", "h264"), ("o.mov", "h264"), ("o.mkv", "h264"), ("o.webm", "vp9"), ("o.gif", "gif")],
)
def test_the_usual_encoder_of_a_suffix(tmp_path: Path, source: Path, name: str, codec: str) -> None:
    write_clip(tmp_path / name, info_of(source), evenly(2), config("auto"))
    assert codec_of(tmp_path / name)[0] == codec


@pytest.mark.parametrize(
    ("encoder", "size", "least"),
    [
        ("hevc", (2, 2), "32x32"),
        ("hevc", (30, 400), "32x32"),
        ("av1", (2, 2), "32x32"),
        ("av1", (400, 31), "32x32"),
        ("av1", (20000, 64), "16384x8704"),
    ],
)
def test_sizes_an_encoder_cannot(
    tmp_path: Path, source: Path, encoder: str, size: tuple[int, int], least: str
) -> None:
    with pytest.raises(EncoderRejected, match=rf"{size[0]}x{size[1]} pixels.*{least}"):
        ClipWriter(tmp_path / "out.mkv", info_of(source, size), config(encoder), Report())


@pytest.mark.parametrize("frames", [1, 2, 3])
@pytest.mark.parametrize(("encoder", "suffix"), SOFTWARE)
def test_short_clips(tmp_path: Path, source: Path, encoder: str, suffix: str, frames: int) -> None:
    """Several times: x265 has decoding times of chance for the only frame or two of a clip."""
    out = tmp_path / f"out{suffix}"
    for _ in range(6 if encoder == "hevc" else 1):
        settings = config(encoder, overwrite=True)
        write_clip(out, info_of(source), evenly(frames), settings)
        assert read_file(out).pts == evenly(frames)


@pytest.mark.parametrize(
    ("encoder", "suffix"), [s for s in SOFTWARE if s[0] not in {"hevc", "av1"}]
)
@pytest.mark.parametrize("size", [(2, 2), (1, 1)])
def test_tiny_clips(
    tmp_path: Path, source: Path, encoder: str, suffix: str, size: tuple[int, int]
) -> None:
    write_clip(tmp_path / f"out{suffix}", info_of(source, size), evenly(3), config(encoder))
    assert len(read_file(tmp_path / f"out{suffix}").frames) == 3


@pytest.mark.parametrize(
    ("encoder", "size"),
    [("hevc", (32, 32)), ("hevc", (34, 40)), ("hevc", (64, 64)), ("av1", (32, 32))],
)
def test_the_smallest_sizes(
    tmp_path: Path, source: Path, encoder: str, size: tuple[int, int]
) -> None:
    """Several times: what x265 gets wrong in narrow pictures is not the same each time."""
    info, out = info_of(source, size), tmp_path / "out.mp4"
    for _ in range(4):
        write_clip(out, info, evenly(40), config(encoder, overwrite=True, **good(encoder)))
        for i, frame in enumerate(read_file(out).frames):
            assert difference(frame[0], planes("yuv420p", size, i)[0], 8, 8) <= 2


@pytest.mark.parametrize("encoder", [n for n, spec in ENCODERS.items() if spec.hardware])
def test_hardware_encoders_work_or_say_that_they_are_not_there(
    tmp_path: Path, source: Path, encoder: str
) -> None:
    refused = ""
    try:
        write_clip(tmp_path / "out.mp4", info_of(source, (320, 240)), evenly(4), config(encoder))
    except EncoderUnavailable as error:
        refused = str(error)
    if refused:
        assert re.search(r"does not open: .*--encoder h264", refused)
        assert not (tmp_path / "out.mp4").exists()
    else:
        assert len(read_file(tmp_path / "out.mp4").frames) == 4


def test_a_hardware_encoder_that_opens_and_encodes_nothing(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_encoding(Path("o.mp4"), info_of(source), config("h264").output)
    try_encoder(replace(plan, hardware=True))

    def fail(*_: object) -> None:
        raise av.error.ExternalError(542398533, "Generic error in an external library")

    monkeypatch.setattr(encoder_trial, "_encode_one", fail)
    with pytest.raises(EncoderUnavailable, match="libx264 does not open: Generic error"):
        try_encoder(replace(plan, hardware=True))
    assert av.logging.get_level() is None


@pytest.mark.parametrize(
    ("encoder", "suffix"),
    [
        (name, suffix)
        for name, spec in ENCODERS.items()
        for suffix in (".mp4", ".mov", ".mkv", ".webm", ".gif")
        if suffix not in spec.containers
    ],
)
def test_containers_that_do_not_fit(source: Path, encoder: str, suffix: str) -> None:
    with pytest.raises(IncompatibleContainer) as caught:
        plan_encoding(Path(f"o{suffix}"), info_of(source), config(encoder).output)
    message = str(caught.value)
    assert f"{suffix} cannot hold {encoder}" in message
    assert ENCODERS[encoder].containers[0] in message, "where it can go"
    fitting = [n for n, s in ENCODERS.items() if suffix in s.containers and not s.hardware]
    assert fitting[0] in message, "what can go there"


@pytest.mark.parametrize("encoder", ["mp4v", "mjpg"])
def test_encoders_of_the_other_writer(source: Path, encoder: str) -> None:
    with pytest.raises(ConfigError, match=r"--writer opencv, or --encoder h264"):
        plan_encoding(Path("o.mp4"), info_of(source), config(encoder).output)


@pytest.mark.parametrize("suffix", [".webm", ".mkv"])
@pytest.mark.parametrize("size", [(64, 48), (33, 17)])
def test_vp9_keeps_alpha(tmp_path: Path, source: Path, suffix: str, size: tuple[int, int]) -> None:
    info = info_of(source, size, alpha=True)
    out = tmp_path / f"out{suffix}"
    report = write_clip(out, info, evenly(5), config("vp9", crf=4), alpha=True)
    assert report.warnings == []
    decoder = av.CodecContext.create("libvpx-vp9", "r")
    with av.open(out) as file:
        assert file.streams.video[0].metadata["alpha_mode"] == "1"
        frames = [f for packet in file.demux(video=0) for f in decoder.decode(packet)]
    assert len(frames) == 5
    for i, frame in enumerate(frames):
        assert frame.format.name == "yuva420p"
        for plane, put in zip(frame.planes, planes("yuva420p", size, i), strict=True):
            rows = np.frombuffer(plane, np.uint8).reshape(plane.height, -1)[:, : plane.width]
            assert difference(rows, put, 8, 8) <= 3
    assert {"alpha", "alpha_unread"} & probe(out).hazards


@pytest.mark.parametrize("suffix", [".mov", ".mkv"])
def test_prores_keeps_alpha(tmp_path: Path, source: Path, suffix: str) -> None:
    info = info_of(source, bits=10, alpha=True)
    out = tmp_path / f"out{suffix}"
    report = write_clip(out, info, evenly(3), config("prores"), alpha=True)
    assert report.warnings == []
    with av.open(out) as file:
        for i, frame in enumerate(file.decode(video=0)):
            plane = frame.planes[3]
            depth = frame.format.components[0].bits
            rows = np.frombuffer(plane, np.uint16).reshape(plane.height, -1)[:, : plane.width]
            assert difference(rows, planes("yuva420p10le", (64, 48), i)[3], depth, 10) <= 1
    assert "alpha" in probe(out).hazards


@pytest.mark.parametrize(
    ("encoder", "suffix", "says"),
    [
        ("vp9", ".mp4", "alpha is dropped: mp4 cannot hold it from vp9 (it can in .webm, .mkv)"),
        ("hevc", ".mp4", "alpha is dropped: hevc cannot hold it"),
        ("av1", ".webm", "alpha is dropped: av1 cannot hold it"),
    ],
)
def test_alpha_that_is_dropped(
    tmp_path: Path, source: Path, encoder: str, suffix: str, says: str
) -> None:
    info = info_of(source, alpha=True)
    report = write_clip(tmp_path / f"o{suffix}", info, evenly(2), config(encoder), alpha=True)
    assert report.warnings == [says]
    report = write_clip(
        tmp_path / "o.mkv", info, evenly(2), config("ffv1", pix_fmt="yuv420p"), alpha=True
    )
    assert report.warnings == ["alpha is dropped: yuv420p has none"]


def test_other_pixel_formats(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out.mkv"
    info = info_of(source, grid=(2, 1), bits=12)
    report = write_clip(out, info, evenly(2), config("hevc", crf=1, pix_fmt="yuv422p12le"))
    assert read_file(out).pix_fmt == "yuv422p12le"
    assert report.warnings == []
    report = write_clip(out, info, evenly(2), config("hevc", overwrite=True))
    assert report.warnings == ["12-bit becomes 10-bit: --pix-fmt yuv420p12le keeps more"]
    report = write_clip(
        out, info_of(source), evenly(2), config("h264", pix_fmt="gray", overwrite=True)
    )
    assert report.warnings == ["colours are dropped: gray has none"]


@pytest.mark.parametrize("encoder", ["hevc", "ffv1"])
def test_yuv_to_rgb_by_the_clips_matrix(tmp_path: Path, source: Path, encoder: str) -> None:
    pix_fmt = {"hevc": "gbrp", "ffv1": "bgr0"}[encoder]
    info = info_of(source, color=ColorSpec("bt709", "limited", (1, 1, 1, 1)))
    y, u, v = (
        torch.full((1, h, w), c, dtype=torch.uint8)
        for c, h, w in ((63, 48, 64), (102, 24, 32), (240, 24, 32))
    )
    out = tmp_path / "out.mkv"
    with ClipWriter(out, info, config(encoder, pix_fmt=pix_fmt, **good(encoder)), Report()) as w:
        w.write(FrameBatch((y, u, v), info.color, info.layout, (Fraction(0),), 0))
    written = read_file(out)
    assert written.tags == (0, 1, 1, 2)
    for plane, value in zip(written.frames[0], (0, 0, 255), strict=True):
        assert np.abs(plane.astype(int) - value).max() <= 2, "BT.709's red"


@pytest.mark.parametrize(
    ("encoder", "pix_fmt", "known"),
    [
        ("h264", "yuva420p", "yuv444p10le"),
        ("gif", "rgb8", "pal8"),
        ("av1", "yuv444p", "yuv420p10le"),
    ],
)
def test_pixel_formats_an_encoder_does_not_take(
    source: Path, encoder: str, pix_fmt: str, known: str
) -> None:
    suffix = ENCODERS[encoder].containers[0]
    output = config(encoder, pix_fmt=pix_fmt).output
    with pytest.raises(ConfigError, match=rf"{encoder} does not take '{pix_fmt}'.*{known}"):
        plan_encoding(Path(f"o{suffix}"), info_of(source), output)


@pytest.mark.parametrize(
    ("encoder", "crf", "low", "high"),
    [("h264", 52, 0, 51), ("hevc", 60, 0, 51), ("av1", 0, 1, 63), ("h264_nvenc", 0, 1, 51)],
)
def test_crf_outside_the_scale(source: Path, encoder: str, crf: int, low: int, high: int) -> None:
    with pytest.raises(ConfigError, match=rf"crf = {crf} is outside {low} to {high}.*{encoder}"):
        plan_encoding(Path("o.mp4"), info_of(source), config(encoder, crf=crf).output)


@pytest.mark.parametrize(
    ("encoder", "options"),
    [
        ("h264", {"crf": "18", "preset": "veryfast"}),
        ("hevc", {"crf": "20", "preset": "veryfast"}),
        ("av1", {"crf": "24", "preset": "8"}),
        ("vp9", {"crf": "24", "b": "0", "deadline": "realtime", "cpu-used": "6"}),
        ("h264_nvenc", {"cq": "20", "preset": "p3", "rc": "vbr"}),
        ("hevc_qsv", {"global_quality": "20", "preset": "veryfast"}),
    ],
)
def test_default_qualities(source: Path, encoder: str, options: dict[str, str]) -> None:
    suffix = ENCODERS[encoder].containers[0]
    plan = plan_encoding(Path(f"o{suffix}"), info_of(source), config(encoder).output)
    assert options.items() <= plan.options.items()


def test_presets_and_options_reach_their_encoders(tmp_path: Path, source: Path) -> None:
    info = info_of(source, (128, 96))
    sizes = {}
    for encoder, suffix in (("hevc", ".mkv"), ("av1", ".mkv"), ("vp9", ".webm")):
        for crf in (10, 45):
            out = tmp_path / f"{encoder}{crf}{suffix}"
            write_clip(out, info, evenly(6), config(encoder, crf=crf, preset="ultrafast"))
            sizes[encoder, crf] = out.stat().st_size
        assert sizes[encoder, 10] > 1.1 * sizes[encoder, 45]
    chosen = config("hevc", encoder_options=r"x265-params=keyint=2\:scenecut=0:g=50")
    write_clip(tmp_path / "o.mkv", info, evenly(6), chosen)
    with av.open(tmp_path / "o.mkv") as file:
        keys = [p.is_keyframe for p in file.demux(video=0) if p.size]
    assert sum(keys) == 3


def test_options_are_checked(source: Path) -> None:
    assert parse_options(r"x264-params=a=1\:b=\\2:g=5", "libx264") == {
        "x264-params": "a=1:b=\\2",
        "g": "5",
    }
    for text, reason in (
        ("presett=fast", r"libx264 has no option 'presett' \(did you mean 'preset'\?\)"),
        ("crf", "'crf' is no name=value"),
        ("=1", "is no name=value"),
        ("pixel_format=gray", "set by ffx itself .use --pix-fmt."),
        ("colorspace=1", "it follows from the clip"),
        ("flags=global_header", r"flags=\+global_header"),
        ("alpha_bits=8", "has no option"),
    ):
        with pytest.raises(ConfigError, match=reason):
            parse_options(text, "libx264")
    assert parse_options("flags=+cgop", "libx264") == {"flags": "+cgop"}


def test_another_rate_control_takes_the_place_of_crf(source: Path) -> None:
    def options(**settings: object) -> dict[str, str]:
        output = config("h264", **settings).output
        return dict(plan_encoding(Path("o.mp4"), info_of(source), output).options)

    assert "crf" not in options(encoder_options="b=2000000")
    assert options(encoder_options="b=2000000", crf=20)["crf"] == "20"
    assert options(encoder_options="crf=33")["crf"] == "33"


@pytest.mark.parametrize(
    ("encoder", "options", "reason"),
    [
        ("h264", "g=abc", "Error setting option g to value abc"),
        ("h264", "tune=nonsense", "tune"),
        ("h264", "x264-params=nosuch=1", "'nosuch = 1'"),
        ("h264", "x264-params=aq-mode=seventeen", "aq-mode"),
        ("hevc", "x265-params=nosuch=1", "Unknown option: nosuch"),
        ("av1", "svtav1-params=nosuch=1", "nosuch"),
        ("vp9", "cpu-used=99", "cpu-used|out of range"),
    ],
)
def test_values_an_encoder_refuses(
    tmp_path: Path, source: Path, encoder: str, options: str, reason: str
) -> None:
    out = tmp_path / f"o{ENCODERS[encoder].containers[0]}"
    with pytest.raises(EncoderRejected, match=reason):
        ClipWriter(out, info_of(source), config(encoder, encoder_options=options), Report())
    assert av.logging.get_level() is None


def test_crf_and_preset_are_said_to_mean_nothing(
    tmp_path: Path, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ffx")
    write_clip(tmp_path / "o.mkv", info_of(source), evenly(2), config("ffv1", crf=10))
    assert "crf means nothing to ffv1" in caplog.text


def hdr_clip(path: Path, parameters: str) -> VideoInfo:
    """An HDR10 clip as cameras and studios make them, probed."""
    options = {"preset": "ultrafast", "x265-params": f"log-level=none:{parameters}"}
    make_clip(
        path, codec="libx265", pix_fmt="yuv420p10le", color=(9, 9, 16, 1), options=options, frames=3
    )
    return probe(path)


@pytest.mark.parametrize(
    ("parameters", "light"),
    [
        (
            "hdr10=1:master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)"
            "L(10000000,1):max-cll=1000,400",
            LIGHT,
        ),
        ("max-cll=600,0", Light(None, 600, None)),
        ("hdr10=0", None),
    ],
)
def test_the_probe_reads_light(tmp_path: Path, parameters: str, light: Light | None) -> None:
    assert hdr_clip(tmp_path / "in.mp4", parameters).light == light


@pytest.mark.parametrize(
    ("encoder", "suffix"),
    [(e, s) for e, s in SOFTWARE if ENCODERS[e].light is not None],
)
@pytest.mark.parametrize(
    "light", [LIGHT, Light(None, 600, 100), replace(LIGHT, max_cll=None, max_fall=None)]
)
def test_light_comes_through(
    tmp_path: Path, source: Path, encoder: str, suffix: str, light: Light
) -> None:
    hdr = ColorSpec("bt2020", "limited", (9, 9, 16, 1))
    info = replace(info_of(source, bits=10, color=hdr), light=light)
    out = tmp_path / f"out{suffix}"
    report = write_clip(out, info, evenly(3), config(encoder))
    assert report.warnings == []
    again = probe(out)
    assert again.color.tags == hdr.tags
    assert again.layout.bits == 10
    assert again.light is not None
    assert (again.light.max_cll, again.light.max_fall) == (light.max_cll, light.max_fall)
    if light.mastering is None:
        assert again.light.mastering is None
        return
    assert again.light.mastering is not None
    # AV1 has units of its own: 2^-16 of a chromaticity, 2^-14 and 2^-8 cd/m2.
    slack = [Fraction(1, 65536)] * 8 + [Fraction(1, 16384), Fraction(1, 256)]
    for got, put, most in zip(again.light.mastering, light.mastering, slack, strict=True):
        assert abs(got - put) <= (most if encoder == "av1" else 0)


def test_light_that_is_dropped(tmp_path: Path, source: Path) -> None:
    info = replace(info_of(source, bits=10), light=LIGHT)
    report = write_clip(tmp_path / "o.mov", info, evenly(2), config("prores"))
    assert report.warnings == ["the brightness HDR was graded to is dropped: prores cannot hold it"]


@pytest.mark.parametrize("encoder", ["h264", "hevc", "av1", "vp9"])
def test_encoders_do_not_chat(
    tmp_path: Path, source: Path, encoder: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write_clip(tmp_path / "out.mkv", info_of(source), evenly(3), config(encoder))
    assert capfd.readouterr() == ("", "")


def gif_frames(path: Path) -> list[np.ndarray]:
    """[H,W,4] R, G, B, A as a viewer shows them."""
    with av.open(path) as file:
        return [f.to_ndarray(format="rgba") for f in file.decode(video=0)]


@pytest.mark.parametrize(
    ("color", "grid", "bits"),
    [
        (ColorSpec("bt709", "limited", (1, 1, 1, 1)), (2, 2), 8),
        (FULL_709, (1, 1), 8),
        (ColorSpec(), (2, 2), 10),
        (ColorSpec("bt2020", "limited", (9, 9, 14, 1)), (1, 1), 8),
        (RGB, (1, 1), 8),
    ],
    ids=["709", "full", "10-bit", "2020", "rgb"],
)
@pytest.mark.parametrize("size", [(64, 48), (65, 47)])
def test_gif_colours(
    tmp_path: Path, source: Path, color: ColorSpec, grid, bits: int, size: tuple[int, int]
) -> None:
    from facefusion_cli.planes import rgb_frames

    info = info_of(source, size, grid=grid, bits=bits, color=color)
    out = tmp_path / "out.gif"
    report = write_clip(out, info, evenly(6), config("gif"))
    assert report.warnings == []
    shown = gif_frames(out)
    assert len(shown) == 6
    for got, batch in zip(shown, batches(info, evenly(6), size=1), strict=True):
        wanted = rgb_frames(batch)[0].mul(255).clamp(0, 255).permute(1, 2, 0).numpy()
        assert got.shape[:2] == (size[1], size[0])
        assert (got[..., 3] == 255).all()
        error = got[..., :3].astype(float) - wanted
        assert np.abs(error).mean() <= 3
        assert np.abs(error.mean((0, 1))).max() <= 1.5, "no colour cast"


def test_gif_alpha(tmp_path: Path, source: Path) -> None:
    """Alpha goes up down the rows and on with time; a pixel is clear below one half."""
    info = info_of(source, alpha=True)
    write_clip(tmp_path / "out.gif", info, evenly(8), config("gif"), alpha=True)
    shown = gif_frames(tmp_path / "out.gif")
    assert len(shown) == 8
    for i, got in enumerate(shown):
        alpha = planes("yuva420p", (64, 48), i)[3].astype(int)
        assert (got[..., 3][alpha < 120] == 0).all()
        assert (got[..., 3][alpha > 136] == 255).all()
    assert "alpha" in probe(tmp_path / "out.gif").hazards


def test_gif_loops_for_ever(tmp_path: Path, source: Path) -> None:
    write_clip(tmp_path / "out.gif", info_of(source), evenly(3), config("gif"))
    assert b"NETSCAPE2.0\x03\x01\x00\x00\x00" in (tmp_path / "out.gif").read_bytes()


def gif_length(path: Path) -> Fraction:
    with av.open(path) as file:
        return sum((p.duration * p.time_base for p in file.demux(video=0) if p.size), Fraction(0))


@pytest.mark.parametrize("rate", [10, 25, 30, 50])
def test_gif_timing(tmp_path: Path, source: Path, rate: int) -> None:
    times = evenly(12, rate, start=Fraction(7, 3))
    report = write_clip(tmp_path / "out.gif", info_of(source, rate=rate), times, config("gif"))
    pts = read_file(tmp_path / "out.gif").pts
    assert len(pts) == 12
    for got, put in zip(pts, evenly(12, rate), strict=True):
        assert abs(got - put) <= Fraction(1, 200)
    assert abs(gif_length(tmp_path / "out.gif") - Fraction(12, rate)) <= Fraction(1, 50)
    assert report.warnings == []


@pytest.mark.parametrize("rate", [60, 120])
def test_gif_leaves_out_what_it_cannot_show(tmp_path: Path, source: Path, rate: int) -> None:
    info, times = info_of(source, rate=rate), evenly(rate, rate)
    report = write_clip(tmp_path / "out.gif", info, times, config("gif"))
    pts = read_file(tmp_path / "out.gif").pts
    assert min(b - a for a, b in pairwise(pts)) >= Fraction(2, 100)
    assert 40 <= len(pts) <= 50
    assert abs(gif_length(tmp_path / "out.gif") - 1) <= Fraction(1, 25)
    assert report.counts["frames_out"] == len(pts)
    assert report.warnings == [
        f"{rate - len(pts)} frames left out: the output's format shows a frame for 0.02 s at least"
    ]


def test_gif_of_hdr(tmp_path: Path, source: Path) -> None:
    info = info_of(source, bits=10, color=ColorSpec("bt2020", "limited", (9, 9, 18, 1)))
    report = write_clip(tmp_path / "out.gif", info, evenly(2), config("gif"))
    assert report.warnings == ["HLG colours will look dull: a GIF is SDR (use --tonemap bt2390)"]


@pytest.mark.parametrize(
    ("encoder", "suffix"), [("h264", ".mp4"), ("ffv1", ".mkv"), ("gif", ".gif")]
)
@pytest.mark.parametrize(("rate", "wanted"), [(50, 2), (Fraction(25, 2), Fraction(1, 2))])
def test_a_constant_rate_keeps_the_length(
    tmp_path: Path, source: Path, encoder: str, suffix: str, rate: Fraction, wanted: Fraction
) -> None:
    info, report = info_of(source), Report()
    edit = Edit(rate=Fraction(rate))
    out = tmp_path / f"out{suffix}"
    settings = config(encoder, **good(encoder))
    with ClipWriter(out, info, settings, report, edit) as writer:
        for batch in batches(info, evenly(10, start=Fraction(5))):
            writer.write(batch)
    written = read_file(out)
    assert len(written.frames) == 10 * wanted == report.counts["frames_out"]
    for got, put in zip(written.pts, evenly(len(written.pts), rate), strict=True):
        assert abs(got - put) <= Fraction(1, 1000 if suffix != ".gif" else 200)
    if encoder == "gif":
        return
    for i, frame in enumerate(written.frames):
        shown = int(i / wanted)
        assert difference(frame[0], planes("yuv420p", (64, 48), shown)[0], 8, 8) <= 1.5
    with av.open(out) as file:
        assert file.streams.video[0].average_rate == rate


def test_a_clip_of_images_has_no_other_streams(tmp_path: Path, source: Path) -> None:
    info = replace(info_of(tmp_path / "no such folder"), images=(tmp_path / "a.png",))
    write_clip(tmp_path / "out.mp4", info, evenly(3))
    assert len(read_file(tmp_path / "out.mp4").frames) == 3


def test_an_encoder_without_other_streams(tmp_path: Path, source: Path) -> None:
    """As a part of a clip is written: on the clip's own clock, from a start given from outside."""
    info, report = info_of(source), Report()
    plan = plan_encoding(Path("o.mkv"), info, config("ffv1").output)
    with av.open(tmp_path / "part.mkv", "w", "matroska") as sink:
        encoder = ClipEncoder(sink, lambda _: plan, report, threading.Event(), start=Fraction(2))
        for batch in batches(info, evenly(5, start=Fraction(3))):
            encoder.encode(download(batch))
        encoder.finish()
    assert (encoder.frames, encoder.audio_streams, encoder.tags) == (5, 0, {})
    assert read_file(tmp_path / "part.mkv").pts == evenly(5, start=Fraction(1))


def test_names_with_colons(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_clip(Path("a:b 100%.mp4"), info_of(source), evenly(2))
    assert len(read_file(tmp_path / "a:b 100%.mp4").frames) == 2


@pytest.mark.parametrize("rate", [None, Fraction(50)])
def test_memory_is_bounded_while_the_encoder_is_slow(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, rate: Fraction | None
) -> None:
    """Of 75 batches no more live at once than wait, are at work, or hold the frame that stands."""
    gate = threading.Semaphore(0)
    real = encode_thread.ClipEncoder.encode

    def slow(self: ClipEncoder, *batch: Any) -> None:
        gate.acquire(timeout=10)
        real(self, *batch)

    monkeypatch.setattr(encode_thread.ClipEncoder, "encode", slow)
    info, alive, most = info_of(source), [], 0
    settings = config("ffv1", queue=2)
    with ClipWriter(tmp_path / "out.mkv", info, settings, Report(), Edit(rate=rate)) as writer:
        for batch in batches(info, evenly(300)):
            alive = [*(ref for ref in alive if ref() is not None), weakref.ref(batch.planes[0])]
            most = max(most, len(alive))
            gate.release()
            writer.write(batch)
            del batch
            gc.collect(0)
    assert most <= 7


def test_frames_of_a_made_clip_have_their_planes() -> None:
    """frame_of, on which the pictures here rest, keeps every sample."""
    put = planes("yuva420p", (33, 17), 3)
    for plane, array in zip(frame_of("yuva420p", (33, 17), put).planes, put, strict=True):
        rows = np.frombuffer(plane, np.uint8).reshape(plane.height, -1)[:, : plane.width]
        assert np.array_equal(rows, array)


@pytest.mark.parametrize(("encoder", "suffix"), SOFTWARE)
def test_an_exception_leaves_nothing(
    tmp_path: Path, source: Path, encoder: str, suffix: str
) -> None:
    info = info_of(source, (128, 96))

    def run() -> None:
        with ClipWriter(tmp_path / f"o{suffix}", info, config(encoder), Report()) as writer:
            for batch in batches(info, evenly(24)):
                writer.write(batch)
            raise ValueError("a stage")

    with pytest.raises(ValueError, match="a stage"):
        run()
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("suffix", "sound", "warnings"),
    [(".webm", 1, 1), (".gif", 0, 1), (".mkv", 1, 0)],
)
def test_sound_beside_the_usual_encoders(
    tmp_path: Path, suffix: str, sound: int, warnings: int
) -> None:
    """WebM gets Opus, a GIF none; either is said once."""
    clip = make_clip(tmp_path / "in.mp4", frames=12, audio=True)
    report = write_clip(tmp_path / f"out{suffix}", info_of(clip.path), evenly(12), config("auto"))
    with av.open(tmp_path / f"out{suffix}") as file:
        assert len(file.streams.audio) == sound
    assert len(report.warnings) == warnings


@pytest.mark.parametrize(("width", "small"), [(32, True), (64, True), (66, False)])
def test_x265_is_given_small_units_for_narrow_pictures(
    source: Path, width: int, small: bool
) -> None:
    """What it gets wrong otherwise depends on its memory, so no decoded picture shows it surely."""
    plan = plan_encoding(Path("o.mp4"), info_of(source, (width, 48)), config("hevc").output)
    assert ("ctu=16:cutree=0" in plan.options["x265-params"]) == small
