"""SIGINT and SIGTERM in the middle of a real run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.people import portrait, write_clip

PROGRAM = (
    "import signal\n"
    # A background job of a script ignores SIGINT, and so would its children.
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from facefusion_cli.cli.main import entry\n"
    "entry()\n"
)
PARTIALS = ".*.partial*"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of Unix")


@pytest.fixture(scope="module")
def long_clip(media: Path) -> Path:
    """Far more work than a test waits for."""
    return write_clip(media / "long.mp4", portrait("P002", 128), 2000)


@contextmanager
def running(folder: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """The program, from the moment on in which its temporary output has begun to grow."""
    command = [sys.executable, "-c", PROGRAM, "swap", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not any(path.stat().st_size for path in folder.glob(PARTIALS)):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal(
    source_photo: Path, long_clip: Path, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    report = tmp_path / "run.json"
    arguments = [source_photo, long_clip, "-o", folder / "out.mp4", "--report", report]
    with running(folder, *arguments) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert out == ""
    errors = [line for line in err.splitlines() if not line.startswith("ffx: device")]
    assert errors[-1] == f"ffx: error: interrupted by {number.name}; nothing was written"
    assert "Traceback" not in err
    assert list(folder.iterdir()) == []
    assert json.loads(report.read_text())["exit_code"] == 128 + number


def test_an_impatient_user(source_photo: Path, long_clip: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    out.write_bytes(b"the result of yesterday")
    with running(tmp_path, source_photo, long_clip, "-o", out, "--overwrite") as process:
        for _ in range(5):
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.count("ffx: error: ") == 1
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == [out]
    assert out.read_bytes() == b"the result of yesterday"
