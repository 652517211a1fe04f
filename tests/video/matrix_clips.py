"""Clips of the input matrix that need more than tests.clips.make_clip, and what is looked at."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt
from av.stream import Disposition

from facefusion_cli.video.probe import probe
from tests.clips import AUDIO_RATE, damage, frame_of, make_clip, pattern, planes, truncate

Make = Callable[[Path], Path]
Array = npt.NDArray[Any]

PATCHES = np.array(
    [
        (255, 0, 0),
        (0, 255, 0),
        (0, 0, 255),
        (255, 255, 0),
        (0, 255, 255),
        (255, 0, 255),
        (128, 128, 128),
        (224, 172, 148),
    ],
    float,
)
"""R, G, B of the colour patches: two rows of four, 32 pixels each."""
_KR_KB = {1: (0.2126, 0.0722), 9: (0.2627, 0.0593)}
_SIZE = (128, 64)


# Timing


def negative_start(path: Path) -> Path:
    """Picture and sound begin before time zero."""
    return make_clip(
        path, start=-0.4, audio=True, audio_start=-0.4, options={"bf": "2"}, frames=20
    ).path


def cut_with_edit_list(path: Path) -> Path:
    """A stream copy from 1.2 s on, as `ffmpeg -ss -c copy` makes it: an edit list hides packets."""
    whole = make_clip(
        path.with_name("whole.mp4"), frames=60, audio=True, options={"g": "1", "bf": "0"}
    )
    with av.open(whole.path) as file, av.open(path, "w") as sink:
        to = {s.index: sink.add_stream_from_template(s) for s in file.streams}
        for packet in file.demux():
            if packet.size:
                shift = round(Fraction(6, 5) / packet.time_base)
                packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
                packet.stream = to[packet.stream_index]
                sink.mux(packet)
    whole.path.unlink()
    return path


def live(codec: str, container: str) -> Make:
    """A recording whose header has no duration, as browsers and streams leave it."""

    def make(path: Path) -> Path:
        return make_clip(
            path,
            codec=codec,
            frames=30,
            audio=True,
            audio_codec="libopus",
            container=container,
            container_options={"live": "1"},
        ).path

    return make


def repeated(path: Path) -> Path:
    """Every picture stands for three frames."""
    size = (128, 96)
    with av.open(path, "w") as sink:
        video = sink.add_stream("libx264", rate=30, options={"crf": "8"})
        video.width, video.height = size
        for i in range(18):
            frame = frame_of("yuv420p", size, planes("yuv420p", size, i // 3))
            frame.pts, frame.time_base = i, Fraction(1, 30)
            sink.mux(video.encode(frame))
        sink.mux(video.encode(None))
    return path


# Colour


def _yuv_of(rgb: Array, tags: tuple[int, int, int, int] | None, bits: int) -> Array:
    """[...,3] R, G, B 0..255 to code values by H.273, not rounded."""
    matrix, span = (tags[0], tags[3]) if tags else (2, 1)
    kr, kb = _KR_KB.get(matrix, (0.299, 0.114))
    r, g, b = np.moveaxis(rgb / 255, -1, 0)
    y = kr * r + (1 - kr - kb) * g + kb * b
    cb, cr = (b - y) / (2 * (1 - kb)), (r - y) / (2 * (1 - kr))
    step, top = 2 ** (bits - 8), 2**bits - 1
    if span == 2:
        return np.stack([y * top, cb * top + 128 * step, cr * top + 128 * step], -1)
    return np.stack([16 + 219 * y, 128 + 224 * cb, 128 + 224 * cr], -1) * step


def _rgb_of(yuv: Array, tags: tuple[int, int, int, int] | None, bits: int) -> Array:
    """The inverse, clipped to what a screen can show."""
    columns = [_yuv_of(np.eye(3)[i] * 255, tags, bits) for i in range(3)]
    offset = _yuv_of(np.zeros(3), tags, bits)
    forward = np.stack([c - offset for c in columns], -1) / 255
    rgb: Array = np.clip((yuv - offset) @ np.linalg.inv(forward).T, 0, 255)
    return rgb


def _picture() -> Array:
    """[64,128,3] R, G, B."""
    grid = PATCHES.reshape(2, 4, 3)
    return grid.repeat(32, 0).repeat(32, 1)


def colour_patches(codec: str, pix_fmt: str, tags: tuple[int, int, int, int] | None) -> Make:
    """Eight patches in a format, coded by the tags' matrix and range."""

    def make(path: Path) -> Path:
        rgb = _picture()
        full = tags or ((2, 2, 2, 2) if pix_fmt.startswith("yuvj") else None)
        fmt = av.VideoFormat(pix_fmt, *_SIZE)
        if pix_fmt == "gray":
            luma = rgb @ np.array([0.299, 0.587, 0.114])
            arrays = [np.round(luma).astype(np.uint8)]
        elif pix_fmt == "gbrp":
            arrays = [np.ascontiguousarray(rgb[..., c]).astype(np.uint8) for c in (1, 2, 0)]
        elif fmt.is_rgb:
            order = [0, 1, 2] if pix_fmt == "rgb24" else [2, 1, 0]
            packed = rgb[..., order]
            if pix_fmt == "bgr0":
                packed = np.concatenate([packed, np.zeros((*packed.shape[:2], 1))], 2)
            arrays = [packed.astype(np.uint8)]
        else:
            codes = np.clip(np.round(_yuv_of(rgb, full, 8)), 0, 255).astype(np.uint8)
            sx, sy = 16 // fmt.chroma_width(16), 16 // fmt.chroma_height(16)
            arrays = [codes[..., 0], codes[::sy, ::sx, 1], codes[::sy, ::sx, 2]]
        options = {
            "libx264": {"preset": "veryfast", "crf": "4"},
            "libx264rgb": {"crf": "1"},
            "mjpeg": {"qmin": "1", "qmax": "2"},
        }
        with av.open(path, "w") as sink:
            video = sink.add_stream(codec, rate=25, options=options.get(codec, {}))
            video.width, video.height = _SIZE
            video.pix_fmt = pix_fmt
            if tags is not None:
                context = video.codec_context
                context.colorspace, context.color_primaries = tags[0], tags[1]
                context.color_trc, context.color_range = tags[2], tags[3]
            for i in range(6):
                frame = frame_of(pix_fmt, _SIZE, [np.ascontiguousarray(a) for a in arrays])
                frame.pts, frame.time_base = i, Fraction(1, 25)
                sink.mux(video.encode(frame))
            sink.mux(video.encode(None))
        return path

    return make


def patch_colours(path: Path) -> tuple[Array, tuple[int, int, int, int]]:
    """R, G, B of the eight patches of the last frame, by its own tags, and these."""
    with av.open(path) as file:
        *_, frame = file.decode(video=0)
    tags = (
        int(frame.colorspace),
        int(frame.color_primaries),
        int(frame.color_trc),
        int(frame.color_range),
    )
    fmt = frame.format
    if fmt.is_rgb:
        rgb = frame.to_ndarray(format="rgb24").astype(float)
        return np.array([rgb[16 + 32 * r, 16 + 32 * c] for r in (0, 1) for c in range(4)]), tags
    bits = fmt.components[0].bits
    kind = np.uint16 if bits > 8 else np.uint8
    found = []
    for r in (0, 1):
        for c in range(4):
            codes = []
            for number, plane in enumerate(frame.planes):
                rows = np.frombuffer(plane, kind).reshape(plane.height, -1)
                sx = frame.width // plane.width if number else 1
                sy = frame.height // plane.height if number else 1
                codes.append(float(rows[(16 + 32 * r) // sy, (16 + 32 * c) // sx]))
            found.append(codes if len(codes) == 3 else [codes[0], 2 ** (bits - 1), 2 ** (bits - 1)])
    span = 2 if fmt.name.startswith(("yuvj", "gray")) else tags[3]
    return _rgb_of(np.array(found), (tags[0], 2, 2, span), bits), tags


def patches_agree(given: Path, out: Path) -> str | None:
    """Colour patches within 4 levels, tags the same (RGB becomes BT.709 limited)."""
    before, tags = patch_colours(given)
    after, kept = patch_colours(out)
    worst = float(np.abs(before - after).max())
    if worst > 4:
        return f"a patch is {worst:.1f} levels off"
    with av.open(given) as file:
        name = file.streams.video[0].codec_context.pix_fmt
    if av.VideoFormat(name, 16, 16).is_rgb:
        return None if (kept[0], kept[3]) == (1, 1) else f"tags {kept}"
    if name.startswith(("yuvj", "gray")):
        tags = (*tags[:3], 2)
    return None if tags == kept else f"tags {tags} -> {kept}"


def deep_patches(codec: str, pix_fmt: str, *, frames: int = 12) -> Make:
    """The pattern of make_clip with all its low bits."""

    def make(path: Path) -> Path:
        options = {"libx264": {"crf": "4"}, "libx265": {"x265-params": "log-level=none:crf=4"}}
        return make_clip(
            path,
            codec=codec,
            pix_fmt=pix_fmt,
            frames=frames,
            size=(128, 96),
            color=(1, 1, 1, 1),
            options=options.get(codec),
        ).path

    return make


def hdr(transfer: int) -> Make:
    """A 10-bit BT.2020 clip, PQ or HLG, with HDR10 metadata where that is usual."""

    def make(path: Path) -> Path:
        light = (
            ":hdr10=1:master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)"
            "L(10000000,50):max-cll=1000,400"
            if transfer == 16
            else ""
        )
        return make_clip(
            path,
            codec="libx265",
            pix_fmt="yuv420p10le",
            size=(128, 96),
            color=(9, 9, transfer, 1),
            audio=True,
            options={"crf": "4", "x265-params": "log-level=none" + light},
        ).path

    return make


def light_agrees(given: Path, out: Path) -> str | None:
    """Static HDR metadata is the same."""
    before, after = probe(given).light, probe(out).light
    return None if before == after else f"{before} -> {after}"


def transparent(codec: str, pix_fmt: str) -> Make:
    """A clip with alpha, a gradient."""

    def make(path: Path) -> Path:
        options = {"libvpx-vp9": {"crf": "4", "b": "0", "auto-alt-ref": "0"}}
        return make_clip(
            path, codec=codec, pix_fmt=pix_fmt, size=(128, 96), options=options.get(codec)
        ).path

    return make


def _alphas(path: Path) -> list[Array]:
    """Alpha of every frame as 8-bit levels; FFmpeg's own VP9 decoder passes over it."""
    with av.open(path) as file:
        stream = file.streams.video[0]
        name = stream.codec_context.name
        decoder: Any = stream
        if name == "vp9":
            decoder = av.CodecContext.create("libvpx-vp9", "r")
        frames = [frame for packet in file.demux(stream) for frame in decoder.decode(packet)]
    found = []
    for frame in frames:
        components = frame.format.components
        assert any(c.is_alpha for c in components), frame.format.name
        if len(frame.planes) == 1:
            found.append(frame.to_ndarray(format="rgba")[:, :, 3].astype(float))
            continue
        bits = components[-1].bits
        kind = np.uint16 if bits > 8 else np.uint8
        rows = np.frombuffer(frame.planes[3], kind).reshape(frame.planes[3].height, -1)
        found.append(rows[:, : frame.width] * (255 / (2**bits - 1)))
    return found


def alpha_agrees(given: Path, out: Path) -> str | None:
    """Alpha within a level on average, frame by frame."""
    before, after = _alphas(given), _alphas(out)
    if len(before) != len(after):
        return f"alpha of {len(before)} -> {len(after)} frames"
    apart = max(float(np.abs(a - b).mean()) for a, b in zip(before, after, strict=True))
    return None if apart <= 1 else f"alpha is {apart:.1f} levels off"


def is_sdr(_: Path, out: Path) -> str | None:
    """BT.709, limited range, 8 bits."""
    info = probe(out)
    right = info.color.tags == (1, 1, 1, 1) and info.pixel_format == "yuv420p"
    return None if right and info.light is None else f"{info.color} {info.pixel_format}"


# Containers and names


def images(path: Path) -> Path:
    """A folder of PNG pictures, f1.png to f12.png."""
    path.mkdir()
    for i in range(12):
        r, g, b, _ = pattern(i, 64, 48)
        cv2.imwrite(str(path / f"f{i + 1}.png"), np.stack([b, g, r], 2))
    (path / "notes.txt").write_text("not a picture")
    return path


def gif(path: Path) -> Path:
    """Twelve frames, ten a second, in FFmpeg's fixed palette of 256 colours."""
    with av.open(path, "w") as sink:
        video = sink.add_stream("gif", rate=10)
        video.width, video.height, video.pix_fmt = 64, 48, "rgb8"
        for i in range(12):
            r, g, b, _ = pattern(i, 64, 48)
            frame = av.VideoFrame.from_ndarray(np.stack([r, g, b], 2), "rgb24")
            frame = frame.reformat(format="rgb8")
            frame.pts, frame.time_base = i, Fraction(1, 10)
            sink.mux(video.encode(frame))
        sink.mux(video.encode(None))
    return path


def linked(path: Path) -> Path:
    """A symbolic link to a clip in another folder."""
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    make_clip(elsewhere / "real.mp4", frames=4, audio=True)
    path.symlink_to(elsewhere / "real.mp4")
    return path


def in_read_only_folder(path: Path) -> Path:
    """A clip in a folder that takes no files."""
    folder = path.parent / "locked"
    folder.mkdir()
    clip = make_clip(folder / path.name, frames=4, audio=True)
    folder.chmod(0o555)
    return clip.path


# Streams


def streams(path: Path) -> Path:
    """Two sounds in two languages, a subtitle, two chapters, tags."""
    text_codec = "mov_text" if path.suffix in {".mp4", ".mov"} else "srt"
    with av.open(path, "w") as sink:
        sink.metadata["title"] = "A clip"
        video = sink.add_stream("libx264", rate=25, options={"crf": "8"})
        video.width, video.height = 64, 48
        sounds = [sink.add_stream("aac", rate=AUDIO_RATE, layout="stereo") for _ in range(2)]
        for sound, language in zip(sounds, ("eng", "deu"), strict=True):
            sound.metadata["language"] = language
        sounds[1].disposition = Disposition.comment
        text = sink.add_stream(text_codec)
        text.metadata["language"] = "fra"
        text.codec_context.subtitle_header = b"[Script Info]\n"
        chapters = [
            {
                "id": i + 1,
                "start": 500 * i,
                "end": 500 * i + 500,
                "time_base": Fraction(1, 1000),
                "metadata": {"title": f"Part {i + 1}"},
            }
            for i in range(2)
        ]
        sink.set_chapters(chapters)
        sent: list[Any] = []
        for i in range(25):
            frame = frame_of("yuv420p", (64, 48), planes("yuv420p", (64, 48), i))
            frame.pts, frame.time_base = i, Fraction(1, 25)
            sent += video.encode(frame)
        sent += video.encode(None)
        for number, sound in enumerate(sounds):
            sent += _tone(sound, 440 * (number + 1))
        for i in range(2):
            packet: Any = av.Packet(b"\0\x05hello" if text_codec == "mov_text" else b"hello")
            packet.stream, packet.time_base = text, Fraction(1, 1000)
            packet.pts = packet.dts = 200 + 300 * i
            packet.duration = 200
            sent.append(packet)
        for packet in sorted(sent, key=lambda p: p.dts * p.time_base):
            sink.mux(packet)
    return path


def _tone(stream: Any, pitch: int) -> Iterator[Any]:
    for begin in range(0, AUDIO_RATE, 1024):
        t = np.arange(begin, min(begin + 1024, AUDIO_RATE)) / AUDIO_RATE
        wave = (0.25 * np.sin(2 * np.pi * pitch * t)).astype(np.float32)
        frame = av.AudioFrame.from_ndarray(np.stack([wave, wave]), "fltp", "stereo")
        frame.sample_rate, frame.pts = AUDIO_RATE, begin
        frame.time_base = Fraction(1, AUDIO_RATE)
        yield from stream.encode(frame)
    yield from stream.encode(None)


def _streams_of(path: Path) -> dict[str, Any]:
    with av.open(path) as file:
        texts = []
        for packet in file.demux(*file.streams.subtitles) if file.streams.subtitles else ():
            if packet.size and b"hello" in bytes(packet):
                texts.append(round(float(packet.pts * packet.time_base), 2))
        return {
            "sounds": [s.language for s in file.streams.audio],
            "comment": [bool(s.disposition & Disposition.comment) for s in file.streams.audio],
            "texts": [s.language for s in file.streams.subtitles],
            "shown": texts,
            "chapters": [
                (c["metadata"].get("title"), float(c["start"] * c["time_base"]))
                for c in file.chapters()
            ],
            "title": file.metadata.get("title"),
        }


def streams_agree(given: Path, out: Path) -> str | None:
    """All sounds, languages, dispositions, subtitles, chapters and the title are there."""
    before, after = _streams_of(given), _streams_of(out)
    return None if before == after else f"{before} -> {after}"


# Damage


def damaged(*, keep: float, faststart: bool = False) -> Make:
    """The first part of a file's bytes, as a broken download leaves it."""

    def make(path: Path) -> Path:
        suffix = path.suffix
        how: dict[str, Any] = {"frames": 50, "options": {"g": "10", "bf": "0"}}
        if suffix == ".webm":
            how = {"frames": 50, "codec": "libvpx-vp9"}
        if suffix == ".avi":
            how = {"frames": 50, "codec": "mpeg4", "options": {"b": "800000"}}
        if faststart:
            how["container_options"] = {"movflags": "+faststart"}
        whole = make_clip(path.with_name(f"whole{suffix}"), **how)
        truncate(whole.path, path, keep)
        whole.path.unlink()
        return path

    return make


def garbage(path: Path) -> Path:
    """Noise in the place of six packets in the middle."""
    whole = make_clip(
        path.with_name(f"whole{path.suffix}"), frames=50, options={"g": "5", "bf": "0"}
    )
    damage(whole.path, path, list(range(20, 26)))
    whole.path.unlink()
    return path


def tail_zeroed(path: Path) -> Path:
    """The last third is zeros, as a download leaves it that reserved its space first."""
    options = {"g": "5", "bf": "0"}
    make_clip(path, frames=50, options=options, container_options={"movflags": "+faststart"})
    data = path.read_bytes()
    begin = len(data) * 2 // 3
    path.write_bytes(data[:begin] + bytes(len(data) - begin))
    return path


def without_moov(path: Path) -> Path:
    """An MP4 whose index, at its end, was never written."""
    whole = make_clip(path.with_name("whole.mp4"), frames=50)
    data = whole.path.read_bytes()
    path.write_bytes(data[: data.index(b"moov") - 4])
    whole.path.unlink()
    return path


def _parts(path: Path, kinds: list[tuple[str, tuple[int, int], dict[str, str]]]) -> Path:
    """Ten frames of each (pixel format, size, options) in one stream, MJPEG or H.264."""
    codec = "mjpeg" if path.suffix == ".avi" else "libx264"
    with av.open(path, "w") as sink:
        video = sink.add_stream(codec, rate=25)
        video.pix_fmt, (video.width, video.height) = kinds[0][0], kinds[0][1]
        with contextlib.suppress(av.error.FFmpegError):
            video.codec_context.open()
        count = 0
        for fmt, size, options in kinds:
            encoder = av.CodecContext.create(codec, "w")
            encoder.options = options
            encoder.width, encoder.height = size
            encoder.pix_fmt, encoder.time_base = fmt, Fraction(1, 25)
            packets = []
            for _ in range(10):
                frame = frame_of(fmt, size, planes(fmt, size, count))
                frame.pts, frame.time_base = count, Fraction(1, 25)
                packets += encoder.encode(frame)
                count += 1
            for packet in [*packets, *encoder.encode(None)]:
                packet.stream = video
                sink.mux(packet)
    return path


def resized(path: Path) -> Path:
    """The picture's size changes after ten frames."""
    options = {"preset": "veryfast", "crf": "8", "bf": "0"}
    return _parts(path, [("yuv420p", (64, 48), options), ("yuv420p", (96, 72), options)])


def turned_formats(path: Path) -> Path:
    """The pixel format changes after ten frames: 4:2:2, then 4:2:0."""
    options = {"qmin": "1", "qmax": "2"}
    return _parts(path, [("yuvj422p", (64, 48), options), ("yuvj420p", (64, 48), options)])


def interlaced_late(path: Path) -> Path:
    """Progressive frames, then interlaced ones."""
    plain = {"preset": "veryfast", "crf": "8", "bf": "0", "g": "5"}
    return _parts(
        path,
        [
            ("yuv420p", (64, 48), plain),
            ("yuv420p", (64, 48), plain | {"flags": "+ildct+ilme"}),
        ],
    )


def unlock(folder: Path) -> None:
    """Makes read-only folders removable again."""
    for base, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(base).chmod(0o755)
