"""ffx swap: one clip or image."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from facefusion_cli.cli import options
from facefusion_cli.cli.console import Session, emit
from facefusion_cli.cli.environment import versions
from facefusion_cli.cli.progress import ProgressBar
from facefusion_cli.cli.report_file import reporting_to
from facefusion_cli.report import Report
from facefusion_cli.video.atomic import check_output

log = logging.getLogger("ffx")


def swap(
    context: typer.Context,
    source: Annotated[
        Path, typer.Argument(help="Photo with the face to put in.", metavar="SOURCE")
    ],
    target: Annotated[
        Path, typer.Argument(help="Video or image whose faces are replaced.", metavar="TARGET")
    ],
    out: Annotated[
        str,
        typer.Option(
            "-o",
            "--out",
            help="The result: .mp4, .mov, .mkv, .webm or .gif for a video; a folder (with a slash "
            "at its end) or a pattern such as f_%04d.png for its frames as images; the target's "
            "kind for an image.",
            metavar="OUT",
            rich_help_panel="Output",
        ),
    ],
    overwrite: options.Overwrite = None,
    encoder: options.Encoder = None,
    crf: options.Crf = None,
    preset: options.Preset = None,
    pix_fmt: options.PixFmt = None,
    encoder_options: options.EncoderOptions = None,
    image_quality: options.ImageQuality = None,
    audio: options.AudioFile = None,
    target_audio: options.Audio = None,
    start: options.Start = None,
    end: options.End = None,
    fps: options.Fps = None,
    scale: options.Scale = None,
    tonemap: options.Tonemap = None,
    writer: options.Writer = None,
    resume: options.Resume = None,
    segment: options.Segment = None,
    lenient: options.Lenient = None,
    select: options.Select = None,
    require_face: options.RequireFace = None,
    max_yaw: options.MaxYaw = None,
    min_face: options.MinFace = None,
    threshold: options.Threshold = None,
    detector_size: options.DetectorSize = None,
    generator: options.Generator = None,
    colour: options.Colour = None,
    blend: options.Blend = None,
    device: options.Device = None,
    precision: options.Precision = None,
    batch: options.Batch = None,
    decoder: options.Decoder = None,
    threads: options.Threads = None,
    stall: options.Stall = None,
    quiet: options.Quiet = False,
    report: options.ReportPath = None,
    debug: options.Debug = False,
    config: options.ConfigPath = None,
    profile: options.Profile = "default",
) -> None:
    """Put the face of SOURCE on the faces in TARGET and write OUT.

    Sound, timing and the picture outside the faces stay as they are.
    """
    session = context.ensure_object(Session)
    place = Path(out)
    options.require_names(SOURCE=source, TARGET=target, OUT=place)
    settings = options.config_from(context.params)
    run = Report(settings=settings.as_dict(), versions=versions())
    run.facts.update(source=str(source), target=str(target), output=str(out))
    with reporting_to(report, run, protected=(source, target, place, config)):
        # The pipeline checks the output too; here it does not wait for torch to load.
        if place.suffix and "%" not in place.name and not out.endswith("/") and not place.is_dir():
            check_output(place, [source, target], overwrite=settings.output.overwrite)
        from facefusion_cli import pipeline

        with ProgressBar(session) as progress:
            pipeline.swap(source, target, out, settings, run, progress)
        session.interrupts.ignore()  # the output is there: the rest is a matter of milliseconds
        log.info(_summary(run))
    emit(out)


def _summary(run: Report) -> str:
    figures = run.as_dict()
    frames = figures["counts"].get("frames_out", 0)
    faces = figures["counts"].get("faces_swapped", 0)
    return (
        f"{_plural(frames, 'frame')}, {_plural(faces, 'face')} swapped, "
        f"{figures['fps']:.1f} fps, {figures['seconds']:.1f} s"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
