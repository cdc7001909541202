"""The direction of the flow: config -> task -> arrays -> model -> step -> rows -> table.

Read from the sources, so that an import inside a function counts as well.
"""

import ast
import functools
import graphlib
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ("configs", "models", "lra", "benchmarks")
COMMANDS = ("train", "eval")

# What each part may import of ours.
MAY_IMPORT = {
    "configs": {"configs"},
    "models": {"models"},
    "lra": {"lra", "models", "configs"},
    "benchmarks": {"benchmarks", "lra", "models", "configs"},
    "train": {"lra"},
    "eval": {"lra"},
}

# What computes; whatever renders, prepares or plans must start without it.
JAX = {"jax", "jaxlib", "flax", "optax", "orbax", "chex"}
WITHOUT_JAX = (
    "lra.records",
    "lra.row",
    "lra.efficiency",
    "lra.published",
    "lra.report",
    "lra.sweep",
    "lra.data",
    "lra.settings",
    "lra.protocol",
    "lra.tasks",
    "lra.errors",
    "lra.command_line",
    "lra.stopping",
)
MODELS_MAY_IMPORT = {"jax", "flax", "numpy", "jaxtyping", "models"} | sys.stdlib_module_names


@functools.cache
def modules() -> dict[str, pathlib.Path]:
    """All modules of the project, by name; a package is its `__init__`."""
    found = {name: ROOT / f"{name}.py" for name in COMMANDS}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: path for name, path in found.items() if path.exists()}


@functools.cache
def imports(module: str) -> frozenset[str]:
    """What a module imports: names of modules, ours as far as they are modules."""
    found = set()
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules() else node.module)
    return frozenset(found - {module})


def reached(module: str) -> dict[str, str]:
    """Everything a module needs, with one module that imports it."""
    found: dict[str, str] = {}
    left = [module]
    while left:
        here = left.pop()
        for name in imports(here):
            # Importing a.b runs a as well.
            names = [name] + ([name.partition(".")[0]] if name in modules() else [])
            for each in names:
                if each not in found:
                    found[each] = here
                    left += [each] if each in modules() else []
    return found


def top(name: str) -> str:
    return name.partition(".")[0]


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_nothing_imports_backwards(part):
    members = [name for name in modules() if top(name) == part]
    assert members, f"no modules in {part}"
    for member in members:
        ours = {top(name) for name in imports(member)} & set(MAY_IMPORT)
        assert ours <= MAY_IMPORT[part], f"{member} imports {sorted(ours - MAY_IMPORT[part])}"


def test_no_module_imports_itself_through_others():
    graph = {name: imports(name) & modules().keys() for name in modules()}
    assert list(graphlib.TopologicalSorter(graph).static_order())


def test_models_import_nothing_else():
    for module in modules():
        if top(module) == "models":
            others = {top(name) for name in imports(module)} - MODELS_MAY_IMPORT
            assert not others, f"{module} imports {sorted(others)}"


@pytest.mark.parametrize("part", WITHOUT_JAX)
def test_these_never_import_jax(part):
    members = [name for name in modules() if name == part or name.startswith(f"{part}.")]
    assert members, f"no module {part}"
    for member in members:
        for name, importer in reached(member).items():
            assert top(name) not in JAX, f"{member} reaches {name} through {importer}"


def test_reading_imports_finds_those_inside_functions():
    assert "matplotlib" in map(top, imports("lra.report.drawing"))
    assert "jax" in reached("lra.loop")
    assert "jax" in reached("train")


def test_report_and_sweep_start_without_jax_and_matplotlib():
    commands = [name for name in modules() if f"{name}.".startswith(("lra.report.", "lra.sweep."))]
    code = (
        f"import sys, {', '.join(commands)}\n"
        f"print([name for name in sys.modules if name in {sorted(JAX | {'matplotlib'})}])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert shown.stdout.strip() == "[]"
