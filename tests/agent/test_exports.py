"""What the package shows, and what it costs to import."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import flide_agent
from flide_agent import exceptions, parsing, types

if TYPE_CHECKING:
    from types import ModuleType


def defined_in(module: ModuleType) -> set[str]:
    """The public names that a module defines rather than imports."""
    assert module.__file__
    body = ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
    names = {node.name for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    for node in body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("module", [exceptions, parsing, types])
def test_every_public_name_is_exported(module: ModuleType) -> None:
    """What a module of the client side defines in public is there at the top."""
    assert defined_in(module) <= set(flide_agent.__all__)


def test_the_list_is_in_order() -> None:
    """The export list is sorted, free of repeats, and holds nothing that is not defined."""
    assert flide_agent.__all__ == sorted(set(flide_agent.__all__))
    assert all(hasattr(flide_agent, name) for name in flide_agent.__all__)


def test_version_is_that_of_the_distribution() -> None:
    """There is one version, in pyproject.toml."""
    assert flide_agent.__version__ == version("flide-agent")


@pytest.mark.parametrize("module", ["flide_agent", "flide_agent.cli"])
def test_importing_loads_no_engine(module: str) -> None:
    """The client side and the command line start without the engine and what it needs."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert not {"flide_engine", "numpy", "torch", "transformers"} & set(done.stdout.split())
