"""Settings: one frozen dataclass a stage, built from defaults < profile < --config file < flags.

A TOML file has one table a dataclass (``[output]``, ``[detect]``, ...) and its keys are the fields.
An unknown table or key, or a value of the wrong type or outside its range, is a ConfigError that
names the nearest right one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from facefusion_cli.errors import ConfigError

PROFILES = ("default", "fast", "quality", "exact")


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{name} = {_plain(value)} is outside {_plain(low)} to {_plain(high)}")


def _plain(value: float) -> str:
    """A number without an exponent where that is readable; a huge int would take pages."""
    if isinstance(value, int):
        return str(value) if value.bit_length() < 100 else "a huge number"
    return f"{value:.15g}"


@dataclass(frozen=True, slots=True)
class DetectConfig:
    """Finding faces."""

    size: int = 640
    """Longest side the detector sees, in pixels."""
    threshold: float = 0.6
    """Lowest score that counts as a face."""
    min_face: int = 24
    """Smallest side of a face, in pixels of the original."""

    def __post_init__(self) -> None:
        _between("detect.size", self.size, 64, 4096)
        _between("detect.threshold", self.threshold, 0.01, 1.0)
        _between("detect.min_face", self.min_face, 1, 10000)


@dataclass(frozen=True, slots=True)
class FacesConfig:
    """Which faces are swapped."""

    select: Literal["all", "largest"] = "all"
    require_face: bool = False
    """A target without any face is an error (exit 8) instead of a warning."""
    max_yaw: float = 45.0
    """Degrees between target's and source's yaw at which the swap has faded out."""

    def __post_init__(self) -> None:
        _between("faces.max_yaw", self.max_yaw, 0, 90)


@dataclass(frozen=True, slots=True)
class GeneratorConfig:
    """What makes the new face."""

    name: Literal["mesh", "none"] = "mesh"
    """none leaves every face as it is: the clip goes through the whole pipeline untouched."""
    colour: Literal["tone", "lab", "hist", "none"] = "tone"
    blend: Literal["auto", "poisson", "alpha", "opencv", "none"] = "auto"


@dataclass(frozen=True, slots=True)
class OutputConfig:
    """How the result is encoded."""

    encoder: Literal[
        "auto",
        "h264",
        "hevc",
        "av1",
        "vp9",
        "ffv1",
        "prores",
        "gif",
        "mp4v",
        "mjpg",
        "h264_nvenc",
        "hevc_nvenc",
        "av1_nvenc",
        "h264_qsv",
        "hevc_qsv",
        "av1_qsv",
    ] = "auto"
    """auto: the usual one of the output's suffix. mp4v and mjpg are the OpenCV writer's."""
    crf: int = -1
    """Quality on the encoder's own scale; -1 is the encoder's default here."""
    preset: Literal[
        "ultrafast",
        "superfast",
        "veryfast",
        "faster",
        "fast",
        "medium",
        "slow",
        "slower",
        "veryslow",
    ] = "veryfast"
    pix_fmt: str = "auto"
    """FFmpeg's name of the encoded pixel format; auto follows the clip as far as players do."""
    encoder_options: str = ""
    """More options of the encoder, "name=value:name=value"; unknown names are an error."""
    image_quality: int = 95
    """Quality of JPEG and lossy WebP outputs."""
    audio: bool = True
    """Copy the target's sound."""
    audio_file: str = ""
    """A file whose sound takes the place of the target's."""
    start: str = ""
    """Where the output begins in the clip: seconds, [hh:]mm:ss, or a frame's number as 120f."""
    end: str = ""
    """Where it ends (that moment or frame excluded)."""
    fps: str = ""
    """Constant frame rate of the output; of a folder of images, its own. Empty keeps the times."""
    scale: str = ""
    """Output size: 1280x720, 1280x, x720, or a factor such as 0.5. Empty keeps it."""
    tonemap: Literal["none", "bt2390"] = "none"
    """Operator that turns an HDR clip to SDR; none keeps it HDR."""
    writer: Literal["pyav", "opencv"] = "pyav"
    resume: bool = False
    """Work in segments that are kept beside the output until it is complete."""
    segment: float = 20.0
    """Seconds of the clip in a segment."""
    overwrite: bool = False
    lenient: bool = False
    """Lost frames are a warning instead of an error."""

    def __post_init__(self) -> None:
        _between("output.crf", self.crf, -1, 63)
        _between("output.segment", self.segment, 0.1, 36_000)
        _between("output.image_quality", self.image_quality, 1, 100)


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """Where and how it runs."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "fp16", "bf16"] = "auto"
    batch: int = 0
    """Frames a batch; 0 = 8 on CUDA, 4 on a CPU."""
    decoder: Literal["auto", "opencv", "pyav"] = "auto"
    queue: int = 4
    """Batches that may wait between two threads."""
    threads: int = 0
    """CPU threads for the networks; 0 = all."""
    stall: float = 60.0
    """Seconds without a frame after which the decoder is given up."""

    def __post_init__(self) -> None:
        _between("runtime.batch", self.batch, 0, 256)
        _between("runtime.queue", self.queue, 1, 64)
        _between("runtime.threads", self.threads, 0, 1024)
        _between("runtime.stall", self.stall, 0.1, 86_400)


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting of a run."""

    detect: DetectConfig = field(default_factory=DetectConfig)
    faces: FacesConfig = field(default_factory=FacesConfig)
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Every setting, table by table, as plain values."""
        return asdict(self)


def _nearest(word: str, known: list[str]) -> str:
    close = get_close_matches(word, known, n=1, cutoff=0.4)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"


def _all_keys() -> list[str]:
    return [f"{table.name}.{key.name}" for table, cls in _tables() for key in fields(cls)]


def _tables() -> Iterator[tuple[Any, Any]]:
    hints = get_type_hints(Config)
    for table in fields(Config):
        yield table, hints[table.name]


def _checked(name: str, value: object, kind: Any, path: Path | str | None) -> object:
    """The value if it is of the field's type (an int is a good float), else a ConfigError."""
    if get_origin(kind) is Literal:
        choices = [str(c) for c in get_args(kind)]
        if value in choices:
            return value
        raise ConfigError(
            f"{name} = {value!r} is not one of {', '.join(choices)}",
            path=path,
            hint=_nearest(str(value), choices),
        )
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise ConfigError(f"{name} = {_plain(value)} is too large", path=path) from error
    if type(value) is not kind:
        raise ConfigError(f"{name} = {value!r} is not of type {kind.__name__}", path=path)
    return value


def _merge(
    base: dict[str, dict[str, Any]], over: Mapping[str, Any], path: Path | str | None
) -> None:
    tables = {table.name: cls for table, cls in _tables()}
    for table, keys in over.items():
        if table not in tables:
            hint = _nearest(table, list(tables))
            raise ConfigError(f"unknown settings table [{table}]", path=path, hint=hint)
        if not isinstance(keys, Mapping):
            hint = f"write [{table}] and below it its settings, one a line"
            raise ConfigError(f"{table!r} must be a table", path=path, hint=hint)
        hints = get_type_hints(tables[table])
        for key, value in keys.items():
            if key not in hints:
                near = _nearest(f"{table}.{key}", _all_keys())
                raise ConfigError(f"unknown setting {table}.{key}", path=path, hint=near)
            base[table][key] = _checked(f"{table}.{key}", value, hints[key], path)


def _build(merged: Mapping[str, Mapping[str, Any]], path: Path | str | None) -> Config:
    """The settings; a value out of range is blamed on path."""
    try:
        return Config(**{table.name: cls(**merged[table.name]) for table, cls in _tables()})
    except ConfigError as error:
        raise ConfigError(error.message, path=path, hint=error.hint) from error


def _read_toml(text: str, path: Path | str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or an int of thousands of digits
        raise ConfigError(f"not valid TOML: {error}", path=path) from error


def _profile_text(name: str) -> str:
    installed = resources.files("facefusion_cli") / "data" / "configs" / f"{name}.toml"
    if installed.is_file():
        return installed.read_text(encoding="utf-8")
    checkout = Path(__file__).resolve().parent.parent / "configs" / f"{name}.toml"
    return checkout.read_text(encoding="utf-8")


def load_config(
    profile: str = "default",
    file: Path | None = None,
    flags: Mapping[str, Mapping[str, Any]] | None = None,
) -> Config:
    """Settings from defaults < profile < file < flags.

    Args:
        profile: One of PROFILES.
        file: A TOML file of the user's.
        flags: {table: {key: value}} as given on the command line; only what was given.

    Raises:
        ConfigError: An unknown profile, table or key (the message names the nearest), a wrong type,
            a value out of range, or a file that cannot be read.
    """
    if profile not in PROFILES:
        raise ConfigError(f"unknown profile {profile!r}", hint=_nearest(profile, list(PROFILES)))
    merged = Config().as_dict()
    _merge(merged, _read_toml(_profile_text(profile), f"{profile}.toml"), f"{profile}.toml")
    _build(merged, f"{profile}.toml")
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise ConfigError("no such config file", path=file) from error
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"config file cannot be read ({error})", path=file) from error
        _merge(merged, _read_toml(text, file), file)
        _build(merged, file)
    _merge(merged, flags or {}, None)
    return _build(merged, None)
