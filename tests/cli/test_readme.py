"""README and docs say what the program says."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from facefusion_cli import errors
from facefusion_cli.cli.console import BUG
from facefusion_cli.cli.main import app
from facefusion_cli.cli.options import SETTINGS
from facefusion_cli.config import Config
from facefusion_cli.video.stream_table import as_markdown

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def options_table() -> str:
    """The rows that README has between its option marks."""
    command = typer.main.get_command(app).commands["swap"]  # type: ignore[attr-defined]
    values = Config().as_dict()
    rows = ["| option | default | what |", "|---|---|---|"]
    for parameter in command.params:
        if parameter.name not in SETTINGS:
            continue
        table, key = SETTINGS[parameter.name].split(".")
        default = values[table][key]
        if isinstance(default, bool):
            flag, text = " ".join(parameter.opts), parameter.help
            names = f"`{flag}`, `{parameter.secondary_opts[0]}`"
            default = "yes" if default else "no"
        else:
            names = f"`{parameter.opts[0]} {parameter.metavar}`".replace("|", "\\|")
            text = parameter.help.rsplit(" (default", 1)[0]
        rows.append(f"| {names} | {default} | {text} |")
    return "\n".join(rows)


def test_the_option_table_is_the_program_s() -> None:
    match = re.search(r"<!-- options.*?-->\n(.*?)\n<!-- /options -->", README, re.DOTALL)
    assert match is not None
    expected = options_table()
    assert match[1] == expected, f"README's table should be:\n{expected}"


def test_the_table_of_streams_is_the_program_s() -> None:
    page = (ROOT / "docs" / "video.md").read_text(encoding="utf-8")
    match = re.search(r"<!-- streams -->\n(.*?)<!-- /streams -->", page, re.DOTALL)
    assert match is not None
    expected = as_markdown()
    assert match[1] == expected, f"docs/video.md's table should be:\n{expected}"


def test_every_exit_code_is_in_the_table() -> None:
    kinds = [getattr(errors, name) for name in dir(errors)]
    codes = {k.exit_code for k in kinds if isinstance(k, type) and issubclass(k, errors.FfxError)}
    codes = {code for code in codes if isinstance(code, int)} - {
        errors.FfxError.exit_code,
        errors.PolicyError.exit_code,  # nothing refuses content yet
    }
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert listed == codes | {0, BUG}


def test_commands_of_the_examples_exist() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", README, re.DOTALL | re.MULTILINE))
    used = set(re.findall(r"^ *ffx (\w+)", blocks, re.MULTILINE))
    assert used <= set(commands)
    assert set(commands) <= used


def test_options_of_the_examples_exist() -> None:
    command = typer.main.get_command(app).commands["swap"]  # type: ignore[attr-defined]
    known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help"}
    of_others = {"--json", "--pairs"}
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README))
    assert used <= known | of_others


def test_files_that_the_documents_name_exist() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/design.md", "docs/video.md"):
        page = ROOT / name
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / link).exists(), f"{name} links to {link}"
        for script in re.findall(r"`(scripts/\w+(?:\.\w+)?)`", text):
            assert (ROOT / script).exists(), f"{name} names {script}"
