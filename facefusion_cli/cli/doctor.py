"""ffx doctor: is everything here that a swap needs?"""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from facefusion_cli.cli import options
from facefusion_cli.cli.checks import Finding, examine
from facefusion_cli.cli.console import emit

_MARKS = {"ok": "ok     ", "warning": "warning", "error": "ERROR  "}


def doctor(
    context: typer.Context, as_json: options.Json = False, debug: options.Debug = False
) -> None:
    """Check versions, devices, providers, model files and encoders.

    The exit code is 0 when ffx can work here, else that of the first error.
    """
    findings = examine()
    code = next((f.exit_code for f in findings if f.level == "error"), 0)
    if as_json:
        emit(json.dumps({"exit_code": code, "findings": [asdict(f) for f in findings]}, indent=2))
    else:
        emit("\n".join(_line(f) for f in findings))
    if code:
        raise typer.Exit(code)


def _line(finding: Finding) -> str:
    mend = f"\n{'':9}mend: {finding.mend}" if finding.mend else ""
    return f"{_MARKS[finding.level]}  {finding.name}: {finding.text}{mend}"
