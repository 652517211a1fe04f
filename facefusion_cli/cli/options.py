"""Options that commands share: each names the setting it overrides.

Every default is None: only what the user gave overrides the profile and the --config file. Values
are checked where the settings are made (config.py), so the command line and a TOML file refuse the
same things in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from facefusion_cli import config as settings
from facefusion_cli.cli.console import Session
from facefusion_cli.config import Config, load_config
from facefusion_cli.errors import ConfigError, UsageError


def _setting(name: str, text: str, panel: str, metavar: str | None = None) -> Any:
    """The option that overrides a setting; its help shows the default and, if fixed, the choices.

    Args:
        name: The setting, "table.key".
        text: What it does.
        panel: Heading in the help.
        metavar: What stands for the value; None lists the setting's choices.
    """
    table, key = name.split(".")
    default = Config().as_dict()[table][key]
    kind = get_type_hints(get_type_hints(Config)[table])[key]
    return typer.Option(
        help=f"{text} (default {default})" if default != "" else text,
        metavar=metavar or "|".join(str(choice) for choice in get_args(kind)),
        rich_help_panel=panel,
    )


def _switch(names: str, text: str, panel: str) -> Any:
    """A pair of flags that overrides a yes-or-no setting."""
    return typer.Option(names, help=text, rich_help_panel=panel, show_default=False)


def _set_quiet(context: typer.Context, value: bool) -> bool:
    session = context.find_object(Session)
    if value and session is not None:
        session.be_quiet()
    return value


def _set_debug(context: typer.Context, value: bool) -> bool:
    session = context.find_object(Session)
    if value and session is not None:
        session.show_debug()
    return value


_OUTPUT, _FACES, _GENERATOR = "Output", "Faces", "Generator"
_RUNTIME, _REPORTING, _CONFIGURATION = "Runtime", "Reporting", "Configuration"

Overwrite = Annotated[
    bool | None,
    _switch("--overwrite/--no-overwrite", "Replace an output that exists.", _OUTPUT),
]
Encoder = Annotated[
    str | None,
    _setting(
        "output.encoder",
        "Video encoder; auto is H.264, in .webm VP9, in .gif GIF.",
        _OUTPUT,
    ),
]
Crf = Annotated[
    int | None,
    _setting(
        "output.crf",
        "Quality on the encoder's own scale, lower is better and larger; -1 is H.264 18, HEVC 20, "
        "AV1 and VP9 24.",
        _OUTPUT,
        "N",
    ),
]
Preset = Annotated[
    str | None,
    _setting(
        "output.preset",
        "Speed against size, in x264's words: ultrafast, superfast, veryfast, faster, fast, "
        "medium, slow, slower or veryslow.",
        _OUTPUT,
        "NAME",
    ),
]
PixFmt = Annotated[
    str | None,
    _setting("output.pix_fmt", "Encoded pixel format, by FFmpeg's name.", _OUTPUT, "NAME"),
]
EncoderOptions = Annotated[
    str | None,
    _setting(
        "output.encoder_options",
        "More options of the encoder, as name=value:name=value.",
        _OUTPUT,
        "LIST",
    ),
]
ImageQuality = Annotated[
    int | None,
    _setting("output.image_quality", "Quality of JPEG and WebP outputs, 1 to 100.", _OUTPUT, "N"),
]
Audio = Annotated[
    bool | None,
    _switch(
        "--target-audio/--no-audio",
        "Copy the target's sound (the default) or leave it out.",
        _OUTPUT,
    ),
]
AudioFile = Annotated[
    str | None,
    _setting("output.audio_file", "Take the sound from FILE instead.", _OUTPUT, "FILE"),
]
Start = Annotated[
    str | None,
    _setting(
        "output.start",
        "Begin here: seconds, [hh:]mm:ss, or a frame's number as 120f.",
        _OUTPUT,
        "TIME",
    ),
]
End = Annotated[
    str | None,
    _setting("output.end", "End before this moment or frame.", _OUTPUT, "TIME"),
]
Fps = Annotated[
    str | None,
    _setting(
        "output.fps",
        "Constant frame rate, the duration kept; the rate of a folder of images.",
        _OUTPUT,
        "RATE",
    ),
]
Scale = Annotated[
    str | None,
    _setting("output.scale", "Output size: 1280x720, 1280x, x720 or 0.5.", _OUTPUT, "SIZE"),
]
Tonemap = Annotated[
    str | None,
    _setting("output.tonemap", "Turn an HDR target to SDR by this operator.", _OUTPUT),
]
Writer = Annotated[
    str | None,
    _setting(
        "output.writer",
        "What writes the clip; opencv writes mp4v, mjpg, ffv1 and vp9, without sound.",
        _OUTPUT,
    ),
]
Resume = Annotated[
    bool | None,
    _switch(
        "--resume/--no-resume",
        "Work in segments, and go on after the last one that an earlier run completed.",
        _OUTPUT,
    ),
]
Segment = Annotated[
    float | None,
    _setting("output.segment", "Seconds of the clip in a segment.", _OUTPUT, "X"),
]
Lenient = Annotated[
    bool | None,
    _switch(
        "--lenient/--no-lenient",
        "Frames lost to damage are a warning instead of an error.",
        _OUTPUT,
    ),
]
Select = Annotated[
    str | None, _setting("faces.select", "Which faces of the target are swapped.", _FACES)
]
RequireFace = Annotated[
    bool | None,
    _switch("--require-face/--no-require-face", "A target without any face is an error.", _FACES),
]
MaxYaw = Annotated[
    float | None,
    _setting(
        "faces.max_yaw",
        "Degrees that the target's head may be turned against the source's until the swap has "
        "faded out.",
        _FACES,
        "X",
    ),
]
MinFace = Annotated[
    int | None, _setting("detect.min_face", "Smallest face swapped, in pixels.", _FACES, "N")
]
Threshold = Annotated[
    float | None,
    _setting("detect.threshold", "Lowest detection score of a face, 0 to 1.", _FACES, "X"),
]
DetectorSize = Annotated[
    int | None,
    _setting(
        "detect.size",
        "Longest side, in pixels, of the picture that the detector sees; more finds smaller faces.",
        _FACES,
        "N",
    ),
]
Generator = Annotated[
    str | None,
    _setting(
        "generator.name",
        "What makes the new face; none sends the clip through unchanged.",
        _GENERATOR,
    ),
]
Colour = Annotated[
    str | None,
    _setting("generator.colour", "How the new face takes the target's skin colour.", _GENERATOR),
]
Blend = Annotated[
    str | None,
    _setting("generator.blend", "How the new face is joined to the frame.", _GENERATOR),
]
Device = Annotated[
    str | None,
    _setting("runtime.device", "Where the networks run; cuda without CUDA is an error.", _RUNTIME),
]
Precision = Annotated[
    str | None,
    _setting(
        "runtime.precision",
        "Arithmetic of the networks; auto is fp16 on CUDA and fp32 on CPUs.",
        _RUNTIME,
    ),
]
Batch = Annotated[
    int | None,
    _setting(
        "runtime.batch", "Frames worked on at once; 0 is 8 on CUDA and 4 on CPUs.", _RUNTIME, "N"
    ),
]
Decoder = Annotated[
    str | None,
    _setting(
        "runtime.decoder",
        "What reads the clip; pyav keeps every sample outside the faces as it was.",
        _RUNTIME,
    ),
]
Threads = Annotated[
    int | None,
    _setting("runtime.threads", "CPU threads of the networks; 0 is all.", _RUNTIME, "N"),
]
Stall = Annotated[
    float | None,
    _setting(
        "runtime.stall",
        "Seconds without a frame after which the decoder is given up.",
        _RUNTIME,
        "X",
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Only warnings and errors on stderr.",
        rich_help_panel=_REPORTING,
        callback=_set_quiet,
    ),
]
ReportPath = Annotated[
    Path | None,
    typer.Option(
        "--report",
        help="Write what the run did and how long it took, as JSON.",
        metavar="FILE",
        rich_help_panel=_REPORTING,
    ),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        help="Show the traceback of an error.",
        rich_help_panel=_REPORTING,
        callback=_set_debug,
        is_eager=True,
    ),
]
ConfigPath = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="TOML file of settings; flags override it.",
        metavar="FILE",
        rich_help_panel=_CONFIGURATION,
    ),
]
Profile = Annotated[
    str,
    typer.Option(
        help="Settings to start from.",
        metavar="|".join(settings.PROFILES),
        rich_help_panel=_CONFIGURATION,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

SETTINGS: dict[str, str] = {
    "overwrite": "output.overwrite",
    "encoder": "output.encoder",
    "crf": "output.crf",
    "preset": "output.preset",
    "pix_fmt": "output.pix_fmt",
    "encoder_options": "output.encoder_options",
    "image_quality": "output.image_quality",
    "target_audio": "output.audio",
    "audio": "output.audio_file",
    "start": "output.start",
    "end": "output.end",
    "fps": "output.fps",
    "scale": "output.scale",
    "tonemap": "output.tonemap",
    "writer": "output.writer",
    "resume": "output.resume",
    "segment": "output.segment",
    "lenient": "output.lenient",
    "select": "faces.select",
    "require_face": "faces.require_face",
    "max_yaw": "faces.max_yaw",
    "min_face": "detect.min_face",
    "threshold": "detect.threshold",
    "detector_size": "detect.size",
    "generator": "generator.name",
    "colour": "generator.colour",
    "blend": "generator.blend",
    "device": "runtime.device",
    "precision": "runtime.precision",
    "batch": "runtime.batch",
    "decoder": "runtime.decoder",
    "threads": "runtime.threads",
    "stall": "runtime.stall",
}
"""Parameter of a command to the setting it overrides."""


def config_from(parameters: Mapping[str, Any]) -> Config:
    """The settings of a command: defaults < --profile < --config < the flags that were given.

    Args:
        parameters: The command's parameters by name (its context's params).

    Raises:
        ConfigError: As load_config; a value given as a flag is named by the flag.
    """
    profile, given = parameters["profile"], parameters["config"]
    file = None if given is None else Path(given)  # some versions of typer keep it as text here
    load_config(profile, file)  # an error of the profile or the file keeps their names
    flags: dict[str, dict[str, Any]] = {}
    for parameter, setting in SETTINGS.items():
        value = parameters.get(parameter)
        if value is not None:
            table, key = setting.split(".")
            flags.setdefault(table, {})[key] = value
    try:
        return load_config(profile, file, flags)
    except ConfigError as error:
        raise ConfigError(_as_flags(error.message), hint=error.hint) from error


def require_names(**paths: Path) -> None:
    """Refuses empty file names, which an unset variable of a script gives.

    Args:
        paths: The arguments by their names in the help.

    Raises:
        UsageError: One is empty, or the current folder, which is the same to a Path.
    """
    for name, path in paths.items():
        if path == Path():
            hint = "an empty name or '.' is no file"
            raise UsageError(f"{name} does not name a file", hint=hint)


def _as_flags(message: str) -> str:
    for parameter, setting in SETTINGS.items():
        flag = "--" + parameter.replace("_", "-")
        message = message.replace(f"{setting} = ", f"{flag} ")
    return message
