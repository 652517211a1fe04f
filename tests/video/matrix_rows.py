"""The rows of the input matrix; see matrix.py."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Any

from tests.video.matrix import Make, Row, clip
from tests.video.matrix_clips import (
    alpha_agrees,
    colour_patches,
    cut_with_edit_list,
    damaged,
    deep_patches,
    garbage,
    gif,
    hdr,
    images,
    in_read_only_folder,
    interlaced_late,
    is_sdr,
    light_agrees,
    linked,
    live,
    negative_start,
    patches_agree,
    repeated,
    resized,
    streams,
    streams_agree,
    tail_zeroed,
    transparent,
    turned_formats,
    without_moov,
)

NTSC = Fraction(30_000, 1001)
FILM = Fraction(24_000, 1001)
DENSE = [0, 0.033, 0.05, 0.083, 0.1, 0.133, 0.15, 0.2, 0.216, 0.25]
SPARSE = [0, 0.1, 0.15, 0.5, 0.53, 1, 1.04, 2, 2.01, 2.3]
GAPS = [0, 0.04, 0.08, 5, 5.04, 5.08, 12, 12.04]
PHONE = [i / 30 for i in range(30)] + [1 + i / 7.5 for i in range(8)]


def timing() -> list[Row]:
    def row(name: str, out: str = "out.mp4", **how: Any) -> Row:
        long = how.pop("long", False)
        return Row(name, clip(**how), "timing", out, long=long)

    def made(name: str, make: Make, out: str = "out.mp4", **more: Any) -> Row:
        return Row(name, make, "timing", out, **more)

    return [
        row("25 fps.mp4", audio=True),
        row("29.97 fps.mp4", fps=NTSC, audio=True),
        row("23.976 fps.mkv", "out.mkv", fps=FILM, audio=True),
        row("50 fps.mov", "out.mov", fps=50, audio=True),
        row("59.94 fps.mp4", fps=Fraction(60_000, 1001), frames=30, audio=True),
        row("120 fps.mp4", fps=120, frames=30),
        row("1 fps.mp4", fps=1, frames=5, audio=True),
        made("1 fps without sound.mkv", clip(fps=1, frames=8), opencv=None),
        row("vfr dense.mp4", pts=DENSE, audio=True),
        row("vfr dense.mkv", "out.mkv", pts=DENSE, audio=True),
        row("vfr sparse.mp4", "out.mkv", pts=SPARSE, audio=True),
        row("vfr phone, 30 then 7.5 fps.mp4", pts=PHONE, audio=True),
        row("vfr long gaps.mkv", pts=GAPS, audio=True),
        row("late video.mp4", start=0.5, audio=True),
        row("late video.mkv", "out.mkv", start=0.5, audio=True),
        row("late sound.mp4", audio=True, audio_start=0.678, frames=30),
        row("late sound.mkv", audio=True, audio_start=0.678, frames=30),
        row("sound longer by 1 s.mp4", audio=True, audio_seconds=1.48),
        row("sound shorter.mp4", audio=True, audio_seconds=0.2),
        made("negative start.mkv", negative_start),
        made("negative start.mp4", negative_start, "out.mkv"),
        made("edit list.mp4", cut_with_edit_list),
        made("edit list.mov", cut_with_edit_list, "out.mkv"),
        row("21 ms.mkv", "out.mp4", audio=True, start=0.021),
        row("from 2.8 s.ts", container="mpegts", start=2.8, audio=True, audio_start=2.78),
        row("from 2.8 s, to mkv.ts", "out.mkv", container="mpegts", start=2.8, audio=True),
        made("without duration.webm", live("libvpx-vp9", "webm")),
        made("without duration.mkv", live("libx264", "matroska"), "out.mkv"),
        made("repeated frames.mp4", repeated),
        row("one frame.mp4", frames=1),
        row("one frame.mkv", "out.mkv", frames=1, codec="ffv1"),
        row("two frames.mp4", frames=2, audio=True),
    ]


def geometry() -> list[Row]:
    def row(name: str, out: str = "out.mp4", **how: Any) -> Row:
        more = {k: how.pop(k) for k in ("long", "opencv", "settings", "refused") if k in how}
        return Row(name, clip(**how), "geometry", out, **more)

    turns = [
        row(
            f"turned {turn}{' mirrored' if mirrored else ''}.mp4",
            rotation=turn,
            mirrored=mirrored,
            opencv=not mirrored,
            audio=turn == 90,
        )
        for turn in (90, 180, 270, 0)
        for mirrored in (False, True)
        if turn or mirrored
    ]
    return [
        *turns,
        row("turned 90.mov", "out.mov", rotation=90, size=(128, 72)),
        row(
            "2x2.mkv",
            "out.mkv",
            size=(2, 2),
            codec="ffv1",
            settings={"output": {"encoder": "ffv1"}},
        ),
        row("16x16.mp4", size=(16, 16)),
        row("641x361.mkv", size=(641, 361), codec="ffv1", frames=4),
        row("321x241 4-4-4.mp4", size=(321, 241), pix_fmt="yuv444p", frames=4),
        row("4096x2160.mp4", size=(4096, 2160), frames=3, long=True),
        row("aspect 64 to 45.mp4", size=(90, 72), sar=Fraction(64, 45)),
        row("aspect 4 to 3.mkv", "out.mkv", sar=Fraction(4, 3)),
        row("aspect 4 to 3, turned.mp4", sar=Fraction(4, 3), rotation=90),
    ]


def colour() -> list[Row]:
    rows = []
    for matrix, name in ((6, "601"), (1, "709"), (9, "2020")):
        for span, word in ((1, "limited"), (2, "full")):
            tags = (matrix, matrix if matrix != 6 else 6, 1 if matrix == 9 else matrix, span)
            for kind in ("420", "422", "444"):
                quick = kind == "420" or (matrix, span) == (1, 1)
                rows.append(
                    Row(
                        f"{name} {word} {kind}.mkv",
                        colour_patches("libx264", f"yuv{kind}p", tags),
                        "colour",
                        check=patches_agree,
                        opencv=None if name == "2020" else True,
                        long=not quick,
                    )
                )
    return [
        *rows,
        Row(
            "untagged.mp4",
            colour_patches("libx264", "yuv420p", None),
            "colour",
            check=patches_agree,
        ),
        Row(
            "full by its format, untagged.avi",
            colour_patches("mjpeg", "yuvj420p", None),
            "colour",
            check=patches_agree,
        ),
        *(
            Row(name, colour_patches(codec, fmt, None), "colour", check=patches_agree)
            for name, codec, fmt in (
                ("rgb ffv1.mkv", "ffv1", "bgr0"),
                ("rgb utvideo.avi", "utvideo", "gbrp"),
                ("rgb x264.mp4", "libx264rgb", "rgb24"),
                ("gray.mkv", "ffv1", "gray"),
            )
        ),
        *(
            Row(
                name,
                # SVT-AV1 with 10 bits loses frames this different from their neighbours.
                deep_patches(codec, fmt, frames=3 if "av1" in name else 12),
                "colour",
                out,
                settings,
                opencv=False,
                deep=deep,
            )
            for name, codec, fmt, out, settings, deep in (
                ("10-bit h264.mp4", "libx264", "yuv420p10le", "out.mp4", {}, 10),
                (
                    "10-bit hevc.mp4",
                    "libx265",
                    "yuv420p10le",
                    "out.mp4",
                    {"output": {"encoder": "hevc"}},
                    10,
                ),
                (
                    "10-bit ffv1 422.mkv",
                    "ffv1",
                    "yuv422p10le",
                    "out.mkv",
                    {"output": {"encoder": "ffv1"}},
                    10,
                ),
                (
                    "10-bit to av1.mkv",
                    "ffv1",
                    "yuv420p10le",
                    "out.mkv",
                    {"output": {"encoder": "av1"}},
                    10,
                ),
                (
                    "10-bit to vp9.mkv",
                    "ffv1",
                    "yuv420p10le",
                    "out.webm",
                    {"output": {"encoder": "vp9"}},
                    8,  # the libvpx of PyAV's wheel has no more, which is said
                ),
                (
                    "12-bit ffv1.mkv",
                    "ffv1",
                    "yuv444p12le",
                    "out.mkv",
                    {"output": {"encoder": "ffv1"}},
                    12,
                ),
                (
                    "10-bit prores.mov",
                    "prores_ks",
                    "yuv422p10le",
                    "out.mov",
                    {"output": {"encoder": "prores"}},
                    10,
                ),
            )
        ),
        *alpha_rows(),
        *hdr_rows(),
    ]


def alpha_rows() -> list[Row]:
    return [
        Row(
            f"alpha {word}.{suffix}",
            transparent(codec, fmt),
            "colour",
            out,
            {"output": {"encoder": encoder}},
            opencv=False,
            deep=deep,
            check=alpha_agrees,
        )
        for word, suffix, codec, fmt, out, encoder, deep in (
            ("vp9", "webm", "libvpx-vp9", "yuva420p", "out.webm", "auto", 8),
            ("ffv1", "mkv", "ffv1", "yuva444p", "out.mkv", "ffv1", 8),
            ("png", "mov", "png", "rgba", "out.mov", "prores", 12),
            ("prores", "mov", "prores_ks", "yuva444p10le", "out.mov", "prores", 12),
            ("10-bit to vp9", "mkv", "ffv1", "yuva420p10le", "out.webm", "vp9", 8),
        )
    ]


def hdr_rows() -> list[Row]:
    tone = {"output": {"tonemap": "bt2390"}}
    return [
        *(
            Row(
                f"{name} tone-mapped.mp4",
                hdr(transfer),
                "colour",
                "out.mp4",
                tone,
                opencv=False,
                same_tags=False,
                same_frames=False,
                check=is_sdr,
            )
            for name, transfer in (("hdr10", 16), ("hlg", 18))
        ),
        *(
            Row(
                f"{name} to {encoder}.{suffix}",
                hdr(transfer),
                "colour",
                f"out.{suffix}",
                {"output": {"encoder": encoder}},
                opencv=False,
                deep=10,
                check=light_agrees,
            )
            for encoder in ("hevc", "h264")
            for name, transfer in (("hdr10", 16), ("hlg", 18))
            for suffix in ("mp4", "mkv")
        ),
    ]


def containers() -> list[Row]:
    def row(name: str, out: str = "out.mp4", **how: Any) -> Row:
        more = {k: how.pop(k) for k in ("picture", "settings", "opencv", "deep") if k in how}
        return Row(name, clip(**how), "containers", out, **more)

    avi = {"codec": "mpeg4", "options": {"qscale": "2", "b": "4000000"}}
    encoders = {
        "hevc": "out.mp4",
        "av1": "out.mp4",
        "vp9": "out.webm",
        "ffv1": "out.mkv",
        "prores": "out.mov",
    }
    return [
        row("mov.mov", "out.mov", audio=True),
        row("webm.webm", codec="libvpx-vp9", audio=True, audio_codec="libopus"),
        row("webm to webm.webm", "out.webm", codec="libvpx-vp9", audio=True, audio_codec="libopus"),
        row("vp8.webm", codec="libvpx", audio=True, audio_codec="libopus"),
        row("mpeg4.avi", audio=True, audio_codec="libmp3lame", **avi),
        row("mjpeg.avi", codec="mjpeg", pix_fmt="yuvj420p", options={"qscale": "2"}),
        row("raw.avi", codec="rawvideo", pix_fmt="yuv420p"),
        row("hevc.mp4", codec="libx265", audio=True),
        row("av1.mp4", codec="libsvtav1", audio=True, size=(128, 96), opencv=None),
        row("mpeg2.ts", codec="mpeg2video", options={"qscale": "2"}, audio=True),
        row("flv.flv", audio=True),
        *(
            row(
                f"h264 to {encoder}.mp4",
                out,
                audio=True,
                size=(128, 96),
                settings={"output": {"encoder": encoder}},
                deep=10 if encoder == "prores" else 8,
            )
            for encoder, out in encoders.items()
        ),
        Row("clip.gif", gif, "containers", picture=1.5),
        Row(
            "clip to gif.mp4",
            clip(fps=20),
            "containers",
            "out.gif",
            picture=6.0,
        ),
        Row("frames", images, "containers", same_times=True),
    ]


def names() -> list[Row]:
    def row(name: str, make: Make | None = None) -> Row:
        return Row(name, make or clip(frames=4, audio=True), "names")

    rows = [
        row("über 顔 🙂.mp4"),
        row("two  spaces .mp4"),
        row("100%.mp4"),
        row("f_%04d.mp4"),
        row("12:30 c:d.mp4"),
        row("-dash.mp4"),
        row('it\'s "quoted" & $HOME;.mp4'),
        row("linked.mp4", linked),
        row("read-only folder.mp4", in_read_only_folder),
    ]
    return rows if os.name == "posix" else []


def stream_rows() -> list[Row]:
    return [
        Row(f"streams to {b}.{a}", streams, "streams", f"out.{b}", check=streams_agree)
        for a, b in (("mkv", "mkv"), ("mkv", "mp4"), ("mp4", "mp4"), ("mp4", "mkv"), ("mov", "mov"))
    ]


def damage_rows() -> list[Row]:
    def row(name: str, make: Make, **more: Any) -> Row:
        return Row(name, make, "damage", **more)

    return [
        row("truncated.mp4", damaged(keep=0.6, faststart=True), lost=1),
        row("truncated.mkv", damaged(keep=0.6), lost=1),
        row("truncated.webm", damaged(keep=0.6), lost=1),
        row("truncated.avi", damaged(keep=0.6), lost=1),
        row("garbage.mp4", garbage, lost=1, same_times=False, same_frames=False),
        row("garbage.mkv", garbage, lost=1, same_times=False, same_frames=False),
        row("zero tail.mp4", tail_zeroed, lost=1, same_times=False, same_frames=False),
        row("without moov.mp4", without_moov, refused="TruncatedInput"),
        row("size changes.mkv", resized, same_frames=False, opencv=False),
        row("format changes.avi", turned_formats, opencv=False),
        row("interlaced.mp4", clip(interlaced=True), opencv=False, same_frames=False),
        row("interlaced later.ts", interlaced_late, opencv=False, same_frames=False),
    ]


ROWS: list[Row] = [
    *timing(),
    *geometry(),
    *colour(),
    *containers(),
    *names(),
    *stream_rows(),
    *damage_rows(),
]
