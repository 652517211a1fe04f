"""The file of --report: claimed before the work, written whole when it ends, also by an error."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from facefusion_cli.cli.console import BUG
from facefusion_cli.errors import (
    FfxError,
    OutputFolderMissing,
    OutputNotWritable,
    SameFile,
    UsageError,
)
from facefusion_cli.report import Report

log = logging.getLogger("ffx")


@contextmanager
def reporting_to(
    path: Path | None, report: Report, protected: Sequence[Path | None]
) -> Iterator[None]:
    """Writes the report to path when the block ends; with path None, does nothing.

    A run that fails is reported too, with `error`, `error_class` and `exit_code` of what ended it.
    Wrong arguments are not: nothing ran.

    Args:
        path: Where the JSON goes; an old report there is replaced.
        report: Filled by the block.
        protected: Files of this run that the report must not replace.

    Raises:
        SameFile: path is one of the protected files.
        OutputFolderMissing: path's folder does not exist.
        OutputNotWritable: path cannot be written, found before the block runs.
    """
    if path is None:
        yield
        return
    _check(path, protected)
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # whatever ended the run, its report says so
        code = error.exit_code if isinstance(error, FfxError) else BUG
        report.facts.update(error=str(error), error_class=type(error).__name__, exit_code=code)
        try:
            _write(path, report)
        except OutputNotWritable as second:
            log.warning("%s", second)  # the first error decides how the run ended
        raise
    report.facts["exit_code"] = 0
    _write(path, report)


def _check(path: Path, protected: Sequence[Path | None]) -> None:
    for other in protected:
        if other is not None and _same(path, other):
            raise SameFile("--report would replace a file of this run", path=path)
    if path.is_dir():
        raise UsageError("--report is a folder", path=path, hint="name a file")
    if not path.parent.is_dir():
        raise OutputFolderMissing("the folder of --report does not exist", path=path.parent)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _not_writable(path, error) from error


def _same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()


def _write(path: Path, report: Report) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            with temporary.open("w", encoding="utf-8") as stream:
                stream.write(report.as_json())
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _not_writable(path, error) from error


def _not_writable(path: Path, error: OSError) -> OutputNotWritable:
    return OutputNotWritable(f"the report cannot be written ({error.strerror})", path=path)
