"""`flide-agent ask`: questions about a state, answered once."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING, TypeAlias

from flide_agent import FlideError, MissingExtra, SystemOneRequest, parse_request
from flide_agent.cli import show
from flide_agent.cli.inputs import read_questions, read_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from flide_agent import SystemOneResponse
    from flide_engine.engine import Engine

LoadEngine: TypeAlias = "Callable[..., Engine]"
"""What `Engine.from_pretrained` is: a model's name and keywords to an engine."""

_EXAMPLE = """\
example:
  flide-agent ask --model smollm2 --state "I was charged twice." --questions questions.json

where questions.json holds
  {"refund": {"type": "noul", "instructions": "Does the customer want money back?"},
   "team":   {"type": "choice", "criteria": {"billing": "payments", "technical": null}},
   "anger":  {"type": "score", "criteria": ["calm", "annoyed", "furious"]}}
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command's arguments."""
    parser = commands.add_parser(
        "ask",
        help="answer questions about a state",
        description="Answer typed questions about a state. The exit status is 2 for faulty input.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", required=True, metavar="M", help="a model directory, or a name such as smollm2"
    )
    parser.add_argument(
        "--state",
        required=True,
        metavar="FILE|-|TEXT",
        help="what the questions are about: a file (JSON if it ends in .json), stdin, or the text",
    )
    parser.add_argument(
        "--questions", required=True, metavar="FILE", help="JSON: questions by id, or a request"
    )
    parser.add_argument("--device", help="cpu or cuda; default: cpu")
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64", "bfloat16"),
        help="of products; default: float32 on a CPU, bfloat16 on a GPU",
    )
    parser.add_argument("--json", action="store_true", help="print System One JSON, not a table")


def run(args: argparse.Namespace, load_engine: LoadEngine | None = None) -> int:
    """Answer and print.

    Args:
        args: as `add_parser` describes them.
        load_engine: stands in for `Engine.from_pretrained`.

    Raises:
        FlideError: the input is at fault, or the engine refuses it.
    """
    # The input is read first: a typing error should not cost the time that a model takes to load.
    request = parse_request(
        {
            "model": args.model,
            "state": read_state(args.state),
            "questions": read_questions(args.questions),
        }
    )
    response = _decide(request, args, load_engine or installed_engine())
    if args.json:
        # JSON is UTF-8, whatever the terminal's encoding.
        sys.stdout.buffer.write(response.model_dump_json(indent=2).encode() + b"\n")
    else:
        show.response(response)
    return 0


def installed_engine() -> LoadEngine:
    """What loads a model, if the engine is installed.

    Raises:
        MissingExtra: it is not.
    """
    try:
        from flide_engine.engine import Engine
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"a model needs the engine, and {error.name} is not installed: "
            "run pip install 'flide-agent[engine]'."
        ) from error
    return Engine.from_pretrained


def load(
    load_engine: LoadEngine, args: argparse.Namespace, report: Callable[[str, int, int], None]
) -> Engine:
    """Load the model that the arguments name.

    Raises:
        FlideError: it cannot be loaded.
    """
    from flide_engine.errors import EngineError

    try:
        return load_engine(args.model, device=args.device, dtype=args.dtype, progress=report)
    except EngineError as error:
        raise FlideError(str(error)) from error


def _decide(
    request: SystemOneRequest, args: argparse.Namespace, load_engine: LoadEngine
) -> SystemOneResponse:
    from flide_agent.runtime import to_response
    from flide_engine.errors import EngineError

    # Libraries may print while a model loads, and stdout belongs to the answer.
    with contextlib.redirect_stdout(sys.stderr), show.progress() as report:
        engine = load(load_engine, args, report)
        try:
            result = engine.decide(request.state, request.questions)
        except EngineError as error:
            raise FlideError(str(error)) from error
    return to_response(result, engine.model_name)
