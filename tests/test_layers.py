"""The arrows between the parts of headrace point down only (docs/design, "Layout and arrows").

Every import and cimport below src/headrace is read from the source, so that one inside a function
counts as well.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace

PACKAGE = Path(__file__).parent.parent / "src" / "headrace"

# part -> the parts it may import; a part is a sub-package or a module of the top level
PURE = {"core", "errors", "config", "tls"}
ALLOWED = {
    "core": set(),
    "errors": set(),
    "tls": set(),
    "orphans": set(),
    "config": {"errors", "tls"},
    "endpoints": set(),
    "replica": PURE,
    "request": PURE | {"replica"},
    "lease": PURE | {"replica", "request"},
    "foreign": PURE,
    "router": PURE | {"foreign", "replica", "request", "lease"},
    "snapshot": PURE,
    "observe": PURE | {"endpoints", "snapshot", "replica"},
}
LIBRARY = PURE | {
    "endpoints",
    "foreign",
    "replica",
    "request",
    "lease",
    "router",
    "snapshot",
    "observe",
}
ALLOWED |= {
    "proxy": LIBRARY,
    "control": LIBRARY,
    "process": LIBRARY | {"proxy"},
    "handover": PURE,
    "supervisor": LIBRARY | {"control", "process", "proxy", "handover", "orphans"},
    "serve": LIBRARY | {"supervisor"},
    "check": PURE,
    "top": LIBRARY,
    "mock": LIBRARY | {"sim"},  # whose scenario files describe fleets
    "plan": PURE | {"mock", "sim", "bench"},
    "sim": LIBRARY | {"mock", "bench"},
    "bench": PURE | {"mock", "sim"},
    "cli": {"errors"},
    "__main__": {"cli"},
    "": LIBRARY,  # headrace/__init__.py re-exports the library
}
NO_NETWORK = {
    "core",
    "errors",
    "config",
    "endpoints",
    "foreign",
    "replica",
    "request",
    "lease",
    "router",
}
NETWORK = {"asyncio", "socket", "ssl", "aiohttp", "uvloop", "logging", "time"}

IMPORT = re.compile(
    r"^\s*(?:from\s+([\w.]+)\s+c?import\s+\(?([\w., ]*)|c?import\s+([\w., ]+))", re.MULTILINE
)


def part_of(module):
    """`headrace.core.scan` -> `core`; `headrace.Router` -> `router`, where it lives."""
    words = headrace._HOME.get(module.removeprefix("headrace."), module).split(".")
    return words[1]


def running(tree):
    """Every node that runs; what stands under TYPE_CHECKING names types and is no arrow."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from running(node)


def imports_of(path):
    """Modules named by the imports of a file, as dotted names; for packages also package.name."""
    if path.suffix == ".py":
        for node in running(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative import"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
        return
    for source, names, plain in IMPORT.findall(path.read_text()):
        for name in (names or plain).replace("(", "").split(","):
            word = name.strip().split(" ")[0]
            if word:
                yield f"{source}.{word}" if source else word


def sources():
    found = [p for suffix in ("py", "pyx", "pxd", "pxi") for p in PACKAGE.rglob(f"*.{suffix}")]
    return sorted(path.relative_to(PACKAGE) for path in found)


def part_of_source(path):
    return path.parts[0] if len(path.parts) > 1 else path.stem.replace("__init__", "")


def reached(path):
    """The parts of headrace that a file imports, its own left out."""
    own = part_of_source(path)
    for name in imports_of(PACKAGE / path):
        if name == "headrace" or name.startswith("headrace.__"):
            continue
        if name.startswith("headrace.") and part_of(name) != own:
            yield part_of(name)


@pytest.mark.parametrize("path", sources(), ids=str)
def test_arrows_point_down(path):
    part = part_of_source(path)
    assert part in ALLOWED, f"{part} has no place in the table of layers"
    for found in reached(path):
        assert found in ALLOWED[part], f"{path} imports headrace.{found}: an arrow that points up"


@pytest.mark.parametrize("path", [p for p in sources() if part_of_source(p) in NO_NETWORK], ids=str)
def test_the_library_knows_no_network_clock_or_logger(path):
    roots = {name.split(".")[0] for name in imports_of(PACKAGE / path)}
    assert not roots & NETWORK


def test_the_table_itself_has_no_circle():
    order = list(ALLOWED)
    seen: set[str] = set()

    def visit(part, trail):
        assert part not in trail, f"circle: {' -> '.join([*trail, part])}"
        for below in sorted(ALLOWED.get(part, ())):
            if below not in seen:
                visit(below, [*trail, part])
        seen.add(part)

    for part in order:
        if part not in ("bench", "mock", "sim", "plan"):  # siblings that share models and scenarios
            visit(part, [])


def test_importing_the_library_brings_in_no_network():
    program = (
        "import sys, headrace; "
        "print(sorted(sys.modules.keys() & {'asyncio', 'aiohttp', 'uvloop', 'ssl', 'socket'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
