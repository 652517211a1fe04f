"""Tests of what lies in scripts/, which is no package: its files are loaded by path."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"


def load(name: str) -> ModuleType:
    """A script as a module, with its neighbours importable as they are when it runs."""
    if str(SCRIPTS) not in sys.path:
        sys.path.insert(0, str(SCRIPTS))
    return importlib.import_module(name)
