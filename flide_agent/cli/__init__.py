"""The command line: `flide-agent ask`, `replay`, `serve`, `verify` and `doctor`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from flide_agent import FlideError, __version__
from flide_agent.cli import ask, doctor, replay, serve, verify

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None, *, load_engine: ask.LoadEngine | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        argv: the arguments, by default those of the process.
        load_engine: stands in for `Engine.from_pretrained`.

    Returns:
        0 when all went well, 1 when `doctor` found something missing, `verify` found answers apart
        or nobody reads the output, 2 when the input is at fault, 130 after Ctrl-C.
    """
    args = _parser().parse_args(argv)
    try:
        status = _run(args, load_engine)
        sys.stdout.flush()
    except FlideError as error:
        print(f"flide-agent: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Python flushes stdout once more on its way out, and would complain about the pipe then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _run(args: argparse.Namespace, load_engine: ask.LoadEngine | None) -> int:
    if args.command == "doctor":
        return doctor.run(args)
    command = {"ask": ask.run, "replay": replay.run, "serve": serve.run, "verify": verify.run}[
        args.command
    ]
    return command(args, load_engine)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flide-agent",
        description="Ask a decision model typed questions about a state.",
        epilog="example: flide-agent ask --model smollm2 "
        '--state "I was charged twice." --questions questions.json',
    )
    parser.add_argument("--version", action="version", version=f"flide-agent {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    ask.add_parser(commands)
    replay.add_parser(commands)
    serve.add_parser(commands)
    verify.add_parser(commands)
    doctor.add_parser(commands)
    return parser
