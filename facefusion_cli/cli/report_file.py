"""The file of --report: claimed before the work, written whole when it ends, also by an error."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from facefusion_cli.cli.console import BUG
from facefusion_cli.errors import EncodeError, FfxError, SameFile, UsageError
from facefusion_cli.report import Report
from facefusion_cli.video.atomic import (
    as_output_error,
    atomic_output,
    check_output,
    final_path,
    output_errors,
)

log = logging.getLogger("ffx")


@contextmanager
def reporting_to(
    path: Path | None, report: Report, protected: Sequence[Path | None]
) -> Iterator[None]:
    """Writes the report to path when the block ends; with path None, does nothing.

    A run that fails is reported too, with `error`, `error_class` and `exit_code` of what ended it.
    Wrong arguments are not, unless they were found after frames had gone through.

    Args:
        path: Where the JSON goes; an old report there is replaced.
        report: Filled by the block.
        protected: Files of this run that the report must not replace.

    Raises:
        SameFile: path is one of the protected files.
        OutputFolderMissing: path's folder does not exist.
        OutputNotWritable: path cannot be written or is there and no regular file, found before the
            block runs.
    """
    if path is None:
        yield
        return
    _check(path, protected)
    try:
        yield
    except Exception as error:  # whatever ended the run, its report says so
        if isinstance(error, UsageError) and not report.counts:
            raise
        code = error.exit_code if isinstance(error, FfxError) else BUG
        report.facts.update(error=str(error), error_class=type(error).__name__, exit_code=code)
        try:
            _write(path, report)
        except EncodeError as second:
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
    check_output(path, (), overwrite=True, what="report")
    try:
        with tempfile.TemporaryFile(dir=final_path(path).parent):
            pass
    except OSError as error:
        raise as_output_error(error, path, "report") from error


def _same(one: Path, other: Path) -> bool:
    try:
        if one.exists() and other.exists():
            return one.samefile(other)
        return final_path(one) == final_path(other)
    except OSError:  # whoever opens them says what is wrong with them
        return False


def _write(path: Path, report: Report) -> None:
    with (
        atomic_output(path, overwrite=True, what="report") as partial,
        output_errors(path, "report"),
    ):
        partial.write_text(report.as_json(), encoding="utf-8")
