"""The program: commands, and what its ending looks like. Imports nothing heavy."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn, cast

import typer

from facefusion_cli import __version__
from facefusion_cli.cli.console import (
    BUG,
    Session,
    emit,
    logging_to_stderr,
    show_bug,
    show_error,
)
from facefusion_cli.cli.doctor import doctor
from facefusion_cli.cli.interrupts import interruptible
from facefusion_cli.cli.probe import probe
from facefusion_cli.cli.swap import swap
from facefusion_cli.errors import FfxError, OutOfMemory, UsageError

app = typer.Typer(
    name="ffx",
    help="Put the face of one photo on the faces in a video or image.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(swap)
app.command()(probe)
app.command()(doctor)

# The base of what the argument parser raises; it stands in a private module of typer.
_ClickError = cast("type[Exception]", typer.BadParameter.__mro__[2])


def _show_version(value: bool) -> None:
    if value:
        emit(f"ffx {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Options of the program itself; the commands have their own."""


def entry() -> NoReturn:
    """The console script: main() as the whole of a process."""
    # Read when torch loads. Decoder, encoder and other programs share the cores, and torch's
    # threads that spin while they wait for one another take those cores from them: with the machine
    # otherwise busy a clip took 64 to 136 s instead of 17 to 27 s (2 cores, 100 frames).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(main(ends_process=True))


def main(argv: Sequence[str] | None = None, *, ends_process: bool = False) -> int:
    """Runs the command line and returns the exit code.

    Args:
        argv: The arguments after the program's name; None takes the process's own.
        ends_process: Nothing of the caller's comes after; signal handlers are not put back.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    with interruptible(restore=not ends_process) as interrupts:
        session = Session(interrupts)
        with logging_to_stderr(session):
            try:
                try:
                    return _run(arguments, session)
                finally:
                    interrupts.ignore()
            except FfxError as error:
                return _fail(error, session)
            except MemoryError:
                hint = "--batch 1 needs the least"
                return _fail(OutOfMemory("out of memory", hint=hint), session)
            except Exception as error:  # the last resort: a traceback is no message for a user
                show_bug(error, session)
                return BUG


def _fail(error: FfxError, session: Session) -> int:
    show_error(error, session)
    return error.exit_code


def _run(argv: list[str], session: Session) -> int:
    command = typer.main.get_command(app)
    try:
        code = command.main(
            args=argv or ["--help"], prog_name="ffx", standalone_mode=False, obj=session
        )
    except _ClickError as error:
        raise _usage_error(error) from error
    if not argv:
        return UsageError.exit_code
    return code if isinstance(code, int) else 0


def _usage_error(error: Any) -> UsageError:
    """The error tree's form of what the argument parser refused."""
    context = getattr(error, "ctx", None)
    name = context.command_path if context is not None else "ffx"
    return UsageError(error.format_message().rstrip("."), hint=f"see '{name} --help'")
