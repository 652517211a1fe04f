from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from facefusion_cli.config import PROFILES, Config, load_config
from facefusion_cli.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_need_no_file() -> None:
    assert load_config() == Config()


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_loads(profile: str) -> None:
    assert isinstance(load_config(profile), Config)


def test_profiles_differ_from_the_defaults_where_they_say() -> None:
    assert load_config("fast").output.preset == "ultrafast"
    assert load_config("exact").output.encoder == "ffv1"
    assert load_config("exact").runtime.decoder == "pyav"
    assert load_config("quality").output.crf < load_config("fast").output.crf


def test_flags_override_the_file_and_the_file_overrides_the_profile(tmp_path: Path) -> None:
    file = write(tmp_path, "[output]\ncrf = 30\npreset = 'slow'\n")
    config = load_config("fast", file, {"output": {"crf": 10}})
    assert config.output.crf == 10  # the flag
    assert config.output.preset == "slow"  # the file
    assert config.runtime.decoder == "pyav"  # the profile
    assert config.faces.max_yaw == 45.0  # the default


def test_an_int_is_a_good_float(tmp_path: Path) -> None:
    value = load_config(file=write(tmp_path, "[faces]\nmax_yaw = 30\n")).faces.max_yaw
    assert isinstance(value, float)
    assert value == 30.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[output]\ncfr = 18\n", "unknown setting output.cfr.*did you mean 'output.crf'"),
        ("[ouput]\ncrf = 18\n", r"unknown settings table \[ouput\].*did you mean 'output'"),
        ("crf = 18\n", r"unknown settings table \[crf\]"),
        ("output = 18\n", r"'output' must be a table: .*mine\.toml \(write \[output\] and"),
        ("[output]\ncrf = '18'\n", "output.crf = '18' is not of type int"),
        ("[output]\noverwrite = 1\n", "output.overwrite = 1 is not of type bool"),
        ("[output]\ncrf = true\n", "output.crf = True is not of type int"),
        ("[output]\ncrf = 99\n", "output.crf = 99 is outside -1 to 63"),
        ("[detect]\nthreshold = 0.0\n", "detect.threshold = 0 is outside"),
        (
            "[output]\ncrf = 1000000000000\n",
            "output.crf = 1000000000000 is outside -1 to 63: .*mine",
        ),
        ("[faces]\nmax_yaw = 1e12\n", "faces.max_yaw = 1000000000000 is outside 0 to 90"),
        ("[detect]\nsize = 5000\n", "detect.size = 5000 is outside 64 to 4096"),
        (f"[output]\ncrf = 0x{'f' * 9000}\n", "output.crf = a huge number is outside"),
        (f"[output]\ncrf = {'9' * 9000}\n", "not valid TOML"),
        (f"[faces]\nmax_yaw = 1{'0' * 400}\n", "faces.max_yaw = a huge number is too large"),
        ("[output]\npreset = 'medum'\n", "preset = 'medum' is not one of.*did you mean 'medium'"),
        ("[generator]\nname = 'zzz'\n", "is not one of mesh, none"),
        ("[output\n", "not valid TOML"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(file=write(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        "[output]\ncfr = 18\n",
        "[output\n",
        "[output]\ncrf = '18'\n",
        "[output]\ncrf = 99\n",
        "[faces]\nmax_yaw = -1\n",
    ],
)
def test_the_error_names_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"mine\.toml"):
        load_config(file=write(tmp_path, text))


def test_a_flag_out_of_range_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(file=write(tmp_path, "[output]\ncrf = 20\n"), flags={"output": {"crf": 99}})
    assert caught.value.path is None


def test_a_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such config file: .*none\.toml"):
        load_config(file=tmp_path / "none.toml")
    binary = tmp_path / "mine.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(file=binary)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(file=tmp_path)


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown profile 'fst'.*did you mean 'fast'"):
        load_config("fst")


def test_settings_are_frozen_and_shown_table_by_table() -> None:
    config = Config()
    with pytest.raises(FrozenInstanceError):
        config.output.crf = 3  # type: ignore[misc]
    assert set(config.as_dict()) == {table.name for table in fields(Config)}
    assert config.as_dict()["output"]["crf"] == -1
