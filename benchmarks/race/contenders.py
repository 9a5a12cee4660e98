"""The two servers, and how each is started for which cells."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.race.cells import CELLS, CLIENTS, HISTORIES, Cell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
PORT = 8011

_OURS = "from flide_agent.cli import main; raise SystemExit(main())"


@dataclass(frozen=True, slots=True)
class Setting:
    """A server as it is started for some of the cells.

    Attributes:
        contender: "ours" or "peer".
        name: of the setting.
        url: where it answers.
        cells: that it is best at.
        command: starts it; None where it runs already.
        environment: of its process.
        fields: what its requests hold besides state and questions.
    """

    contender: str
    name: str
    url: str
    cells: Sequence[Cell]
    command: Sequence[str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the servers run.

    Attributes:
        device: "cuda" or "cpu".
        work: a directory for checkpoints, kernels and unpacked wheels.
    """

    device: str
    work: Path


def ours(machine: Machine, model: Path, wheels: Path | None) -> list[Setting]:
    """Our server, which has one setting for everything."""
    paths = [ROOT, *(ROOT / name for name in ("engine", "cache", "integrations"))]
    if wheels is not None:
        paths.append(unpacked(wheels, machine.work / "ours"))
    command = [
        *(sys.executable, "-c", _OURS, "serve", "--model", str(model)),
        *("--port", str(PORT), "--device", machine.device),
    ]
    environment = _environment(machine, "ours", paths) | {
        "FLIDE_ACCESS_LOG": "false",
        "FLIDE_TIMEOUT": "600",
    }
    return [
        Setting(
            "ours", "serve", f"http://127.0.0.1:{PORT}", CELLS, command, environment,
            {"model": "jev-latest"},
        )
    ]  # fmt: skip


def peer(machine: Machine, model: Path, wheels: Path) -> list[Setting]:
    """flide 0.1.4: one process answers soonest, several front ends most; sessions cost the rest."""
    site = unpacked(wheels, machine.work / "peer")
    environment = _environment(machine, "peer", [site]) | {"HF_HUB_OFFLINE": "1"}
    start = [
        *(sys.executable, "-m", "flide.cli", "serve", "--model", str(model)),
        *("--host", "127.0.0.1", "--port", str(PORT)),
    ]
    alone = [cell for cell in CLIENTS if cell.count == 1]
    many = [cell for cell in CLIENTS if cell.count > 1]
    return [
        Setting("peer", name, f"http://127.0.0.1:{PORT}", cells, [*start, *more], environment)
        for name, cells, more in (
            ("one process", alone, []),
            ("4 front ends", many, ["--frontends", "4"]),
            ("session cache", HISTORIES, ["--session-cache-gb", "30"]),
        )
    ]


def elsewhere(url: str, model: str | None) -> list[Setting]:
    """Any System One server that runs already, in the peer's place."""
    fields = {} if model is None else {"model": model}
    return [Setting("peer", url, url, [*CLIENTS, *HISTORIES], fields=fields)]


def unpacked(wheels: Path, site: Path) -> Path:
    """A directory with the packages of wheels, made once."""
    if not site.is_dir():
        found = sorted(str(path) for path in wheels.glob("*.whl"))
        if not found:
            raise SystemExit(f"{wheels} holds no wheels: run python -m benchmarks.race.pack first.")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"),
                *("--no-compile", "--no-cache-dir", "--target", str(site), *found),
            ],
            check=True,
        )
    return site


def _environment(machine: Machine, name: str, paths: Sequence[Path]) -> dict[str, str]:
    kernels = machine.work / "kernels" / name
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONUNBUFFERED": "1",
        "TRITON_CACHE_DIR": str(kernels / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(kernels / "inductor"),
    }
