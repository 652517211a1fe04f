"""Fixtures that several test folders use."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from facefusion_cli.cli.main import main
from tests.people import portrait, write_clip, write_picture

# As the console script does (cli/main.py), before a test loads torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@dataclass(frozen=True)
class Outcome:
    """What a run of the program left: exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The text of the one error line; fails when there is none or more than one."""
        lines = [line for line in self.err.splitlines() if line.startswith("ffx: error: ")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0].removeprefix("ffx: error: ")

    @property
    def warnings(self) -> list[str]:
        """The texts of the warning lines."""
        mark = "ffx: warning: "
        return [line.removeprefix(mark) for line in self.err.splitlines() if line.startswith(mark)]


Ffx = Callable[..., Outcome]


@pytest.fixture
def ffx(capfd: pytest.CaptureFixture[str]) -> Ffx:
    """Runs the program in this process: ffx("swap", source, target, "-o", out)."""

    def run(*arguments: object) -> Outcome:
        capfd.readouterr()
        code = main([os.fspath(a) if isinstance(a, Path) else str(a) for a in arguments])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for media that tests only read."""
    return tmp_path_factory.mktemp("media")


@pytest.fixture(scope="session")
def source_photo(media: Path) -> Path:
    """A photo with one face, 384 x 384."""
    return write_picture(media / "source.jpg", portrait("P001", 384))


@pytest.fixture(scope="session")
def face_clip(media: Path) -> Path:
    """Six frames, 256 x 256, of another person, with a tone."""
    return write_clip(media / "target.mp4", portrait("P002", 256), 6)


@pytest.fixture(scope="session")
def unwritable_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which not even this user can make files."""
    if os.geteuid() != 0:
        folder = tmp_path_factory.mktemp("sealed")
        folder.chmod(0o555)
        return folder
    if sys.platform == "linux":
        return Path("/sys")  # permissions do not bind root, but sysfs takes no files from anyone
    pytest.fail("run the tests as a normal user here: root can write everywhere")
