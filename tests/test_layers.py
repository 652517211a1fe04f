"""The order in which the package may import itself, and who may print or exit."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "facefusion_cli"

TIERS: tuple[frozenset[str], ...] = (
    frozenset({"__main__"}),
    frozenset({"cli"}),
    frozenset({"batch", "cluster"}),
    frozenset({"pipeline"}),
    frozenset({"stages", "generators", "video", "provenance"}),
    frozenset({"zoo"}),
    frozenset({"nets"}),
    frozenset({"letterbox", "tonemap", "planes", "transfer"}),
    frozenset({"device", "report"}),
    frozenset({"types", "config", "errors"}),
    frozenset({"__init__"}),
)
"""From the top down: a module imports modules of lower tiers and of its own name only."""

SIDEWAYS = {
    ("facefusion_cli.generators", "facefusion_cli.stages.colour"),
    # The protocol that the swap stage drives; it holds signatures and no code.
    ("facefusion_cli.stages.swap", "facefusion_cli.generators.base"),
    # Planes become RGB with the transfer's curves, and pictures are made of planes.
    ("facefusion_cli.planes", "facefusion_cli.transfer"),
    ("facefusion_cli.letterbox", "facefusion_cli.planes"),
    ("facefusion_cli.letterbox", "facefusion_cli.transfer"),
    ("facefusion_cli.tonemap", "facefusion_cli.planes"),
    ("facefusion_cli.tonemap", "facefusion_cli.transfer"),
    # Settings raise errors.
    ("facefusion_cli.config", "facefusion_cli.errors"),
}
"""Exceptions on one tier: (prefix of the importer, module imported)."""

HEAVY = {"torch", "torchvision", "cv2", "av", "onnxruntime", "safetensors", "PIL"}

MAY_PRINT = "facefusion_cli.cli"
PRINTERS = {"print", "input", "exit", "quit", "breakpoint"}
STREAMS = {("sys", "exit"), ("sys", "stdout"), ("sys", "stderr"), ("os", "_exit"), ("os", "abort")}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def unit(module: str) -> str:
    """The folder or file right under the package: "stages" of facefusion_cli.stages.blend."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def tier(module: str) -> int:
    for number, names in enumerate(TIERS):
        if unit(module) in names:
            return number
    raise AssertionError(f"{module} belongs to no tier: add it to TIERS and to docs/design.md")


def imports(tree: ast.AST, module: str) -> Iterator[str]:
    """Every module that a file imports, at its top or in a function, names made absolute."""
    is_package = SOURCES.get(module, Path()).name == "__init__.py"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")
                above = above[: len(above) - node.level + is_package]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield submodule if submodule in SOURCES else base


def wrong_imports(module: str, tree: ast.AST) -> list[str]:
    """Imports of the package's own modules that go up or sideways."""
    wrong = []
    for other in imports(tree, module):
        if other.split(".")[0] != PACKAGE.name or unit(other) == unit(module):
            continue
        allowed = any(module.startswith(prefix) and other == name for prefix, name in SIDEWAYS)
        if tier(other) <= tier(module) and not allowed:
            wrong.append(f"{module} imports {other}")
    return wrong


def prints(tree: ast.AST) -> list[str]:
    """Calls and names that write to the terminal or end the process."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [node.func.id] if node.func.id in PRINTERS else []
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += [f"{node.value.id}.{node.attr}"] * ((node.value.id, node.attr) in STREAMS)
        elif isinstance(node, ast.Raise) and "SystemExit" in ast.dump(node):
            found.append("SystemExit")
    return found


def parse(module: str) -> ast.Module:
    return ast.parse(SOURCES[module].read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", SOURCES)
def test_imports_run_down_only(module: str) -> None:
    assert wrong_imports(module, parse(module)) == []


@pytest.mark.parametrize("module", [m for m in SOURCES if not m.startswith(MAY_PRINT)])
def test_only_the_command_line_prints_or_exits(module: str) -> None:
    assert prints(parse(module)) == []


@pytest.mark.parametrize("module", [m for m in SOURCES if unit(m) == "nets"])
def test_nets_import_torch_alone(module: str) -> None:
    own = {m for m in imports(parse(module), module) if m.startswith("facefusion_cli")}
    assert {m for m in own if unit(m) != "nets"} == set()
    assert set(imports(parse(module), module)) & (HEAVY - {"torch"}) == set()


def test_the_rules_catch_what_they_are_for() -> None:
    up = ast.parse("def f():\n    from facefusion_cli import pipeline\n")
    assert wrong_imports("facefusion_cli.stages.blend", up) == [
        "facefusion_cli.stages.blend imports facefusion_cli.pipeline"
    ]
    sideways = ast.parse("from facefusion_cli.video.probe import probe")
    assert wrong_imports("facefusion_cli.stages.blend", sideways)
    relative = ast.parse("from ..cli import main")
    assert wrong_imports("facefusion_cli.video.probe", relative)
    down = ast.parse("from facefusion_cli.stages.colour import match_colour\nimport torch")
    assert wrong_imports("facefusion_cli.generators.mesh.swap", down) == []
    loud = ast.parse("print(1)\nsys.exit(2)\nraise SystemExit")
    assert sorted(prints(loud)) == ["SystemExit", "print", "sys.exit"]
    assert prints(ast.parse("log.info('x')\nreport.warn('y')")) == []
