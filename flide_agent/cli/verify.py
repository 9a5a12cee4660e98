"""`flide-agent verify`: is every answer the one its question gets alone?"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flide_agent import FlideError, InvalidInput, parse_request
from flide_agent._json import decode, describe, load_json
from flide_agent.cli import ask, show
from flide_agent.cli.samples import SAMPLES

if TYPE_CHECKING:
    from flide_agent import SystemOneRequest
    from flide_engine.verify import Form, Report

_EPILOG = """\
example:
  flide-agent verify --model smollm2 --dtype float64

The exit status is 0 when every form keeps the bound, 1 when one does not, 2 for faulty input.
"""

_ALONE = (
    "alone: the question's whole prompt as one sequence, in an empty pool; nothing forked, batched "
    "or resumed"
)
_TRANSFORMERS = (
    "transformers: the same weights in the same dtype through AutoModelForCausalLM, one prompt at "
    "a time"
)
_NOT_FLOAT64 = (
    "for information only: transformers computes norms, angles and recurrences in float32 even in "
    "a float64 model"
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command's arguments."""
    parser = commands.add_parser(
        "verify",
        help="measure how far answers move with the form they are computed in",
        description="Answer the same questions forked, batched, from a shared state and resumed "
        "from checkpoints, and compare with each question alone and with transformers.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", required=True, metavar="M", help="a model directory, or a name such as smollm2"
    )
    parser.add_argument(
        "--requests",
        metavar="FILE",
        help="System One requests, one a line or as a JSON array; default: a few built-in ones",
    )
    parser.add_argument("--device", help="cpu or cuda; default: cpu")
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64", "bfloat16"),
        help="of products; default: float32 on a CPU, bfloat16 on a GPU",
    )
    parser.add_argument(
        "--bound",
        type=_bound,
        metavar="X",
        help="how far a probability may move, such as 1e-4 (default: by dtype)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")


def run(args: argparse.Namespace, load_engine: ask.LoadEngine | None = None) -> int:
    """Measure and print.

    Args:
        args: as `add_parser` describes them.
        load_engine: stands in for `Engine.from_pretrained`.

    Returns:
        0 within the bound, 1 over it.

    Raises:
        FlideError: the input is at fault, or the engine refuses it.
    """
    # The input is read first: a typing error should not cost the time that a model takes to load.
    requests = _requests(args.requests, args.model)
    report = _verify(requests, args, load_engine or ask.installed_engine())
    if args.json:
        forms = [{**asdict(form), "ok": form.ok} for form in report.forms]
        print(json.dumps({**asdict(report), "forms": forms, "ok": report.ok}, indent=2))
    else:
        _show(report)
    return 0 if report.ok else 1


def _bound(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (bound := float(text)) < math.inf:
            return bound
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0, such as 1e-4")


def _requests(path: str | None, model: str) -> list[SystemOneRequest]:
    if path is None:
        return [parse_request({"model": model, **sample}) for sample in SAMPLES]
    try:
        text = decode(Path(path).read_bytes(), path)
    except OSError as error:
        raise InvalidInput(f"{path}: it cannot be read ({error.strerror}).") from None
    documents = _documents(text, path)
    if not documents:
        raise InvalidInput(f"{path} holds no request; write one a line, or a JSON array of them.")
    return [_request(document, where, model) for where, document in documents.items()]


def _documents(text: str, path: str) -> dict[str, Any]:
    """The requests of a file, by what to call each in an error."""
    if text.lstrip().startswith("["):
        return {f"{path}[{i}]": document for i, document in enumerate(load_json(text, path))}
    # Not splitlines: JSON text may hold other line breaks as they are.
    lines = {f"{path}, line {i}": line for i, line in enumerate(text.split("\n"), 1)}
    return {where: load_json(line, where) for where, line in lines.items() if line.strip()}


def _request(document: Any, where: str, model: str) -> SystemOneRequest:
    if not isinstance(document, dict):
        raise InvalidInput(f"{where}: {describe(document)} was given, but a request must be a map.")
    try:
        return parse_request({**document, "model": model})
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from error


def _verify(
    requests: list[SystemOneRequest], args: argparse.Namespace, load_engine: ask.LoadEngine
) -> Report:
    from flide_engine.engine import Ask
    from flide_engine.errors import EngineError
    from flide_engine.hub import resolve
    from flide_engine.verify import verify

    asks = [Ask(request.state, request.questions) for request in requests]
    # Libraries may print while a model loads, and stdout belongs to the report.
    with contextlib.redirect_stdout(sys.stderr), show.progress() as progress:
        try:
            engine = load_engine(
                args.model, device=args.device, dtype=args.dtype, progress=progress
            )
            return verify(
                engine, asks, directory=resolve(args.model), bound=args.bound, progress=progress
            )
        except EngineError as error:
            raise FlideError(str(error)) from error


def _show(report: Report) -> None:
    table = Table(
        "form", "against", "answers", "largest difference", "total variation", "top answers changed"
    )
    for form in report.forms:
        table.add_row(*_row(form))
    console = Console(highlight=False)
    console.print(table)
    for line in _lines(report):
        console.print(Text(line))


def _row(form: Form) -> list[Text]:
    measured = (f"{form.largest_difference:.1e}", f"{form.largest_variation:.1e}")
    cells = (form.name, form.against, str(form.answers), *measured, str(form.changed))
    style = "" if form.ok else "bold red"
    return [Text(cell, style=style) for cell in cells]


def _lines(report: Report) -> list[str]:
    places = ", ".join(map(str, report.places)) or "none: no state is longer than 64 tokens"
    lines = [
        f"{report.model} in {report.dtype} on {report.device}: {report.requests} requests, "
        f"{report.questions} questions; resumed at tokens {places}",
        _ALONE,
        _TRANSFORMERS,
        *([_NOT_FLOAT64] if any(form.bound is None for form in report.forms) else []),
        *(f"fault: {fault}" for fault in report.faults),
    ]
    over = [f"{form.name} against {form.against}" for form in report.forms if not form.ok]
    place = f"over it: {', '.join(over)}" if over else "every form keeps it"
    bound = f"the bound on a difference is {report.forms[0].bound:.0e}, and {place}"
    return [*lines, f"{'ok' if report.ok else 'failed'}: {bound}"]
