"""`flide-agent serve`: an engine behind the System One API."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flide_agent import FlideError, InvalidInput, MissingExtra
from flide_agent.cli import ask, show

if TYPE_CHECKING:
    from flide_agent.runtime.tiers import OpenTiers
    from flide_agent.server.settings import ServeSettings
    from flide_engine.engine import Engine

_EPILOG = """\
example:
  flide-agent serve --model smollm2

Every option may also be given as a variable, such as FLIDE_PORT; FLIDE_LIMITS__QUESTIONS and the
like set what a tenant may do. SIGTERM answers what is in hand and stops. docs/server.md tells more.
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command's arguments."""
    parser = commands.add_parser(
        "serve",
        help="answer questions over HTTP",
        description="Serve System One and sessions over HTTP.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--model", metavar="M", help="a model directory, or a name such as smollm2")
    parser.add_argument("--host", help="where to listen; default: 127.0.0.1")
    parser.add_argument("--port", type=int, help="default: 8000; 0 takes any that is free")
    parser.add_argument("--device", help="cpu or cuda; default: cpu")
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64", "bfloat16"),
        help="of products; default: float32 on a CPU, bfloat16 on a GPU",
    )
    parser.add_argument(
        "--redis", metavar="URL", help="share checkpoints through it; needs FLIDE_SECRET"
    )
    parser.add_argument("--keys", metavar="FILE", help="API keys, hashed: JSON or TOML")
    parser.add_argument(
        "--no-auth", action="store_true", help="let everybody in, from other machines too"
    )
    parser.add_argument(
        "--timeout", type=float, metavar="S", help="seconds to answer in; default: 9.5"
    )


def run(args: argparse.Namespace, load_engine: ask.LoadEngine | None = None) -> int:
    """Serve until told to stop.

    Args:
        args: as `add_parser` describes them.
        load_engine: stands in for `Engine.from_pretrained`.

    Raises:
        FlideError: a setting is wrong, or the model cannot be loaded.
    """
    load = load_engine or ask.installed_engine()
    try:
        from flide_agent.server import create_app
        from flide_agent.server.run import bind, run
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"a server needs more than the engine, and {error.name} is not installed: "
            "run pip install 'flide-agent[server]'."
        ) from error
    from flide_agent.runtime import Runtime

    settings = _settings(args)
    with contextlib.ExitStack() as closing:
        bound = closing.enter_context(bind(settings))
        tiers = _tiers(settings)
        if tiers is not None:
            closing.enter_context(tiers)
        engine = closing.enter_context(_engine(load, settings, tiers))
        runtime = Runtime(engine, memory=_memory(tiers))
        closing.callback(runtime.close)
        run(create_app(runtime, settings), settings, bound, engine.model_name)
    return 0


def _settings(args: argparse.Namespace) -> ServeSettings:
    from pydantic import ValidationError

    from flide_agent.server.settings import ServeSettings

    given = {name: value for name, value in vars(args).items() if name != "command"}
    try:
        return ServeSettings(**given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = "__".join(map(str, first["loc"]))
        raise InvalidInput(
            f"--{name.replace('_', '-')} or FLIDE_{name.upper()}: {first['msg']}."
        ) from None


def _tiers(settings: ServeSettings) -> OpenTiers | None:
    from flide_agent.runtime.tiers import open_tiers

    return open_tiers(
        host_bytes=settings.host_cache,
        redis_url=settings.redis,
        secret=settings.secret.get_secret_value().encode() if settings.secret else None,
        device=settings.device or "cpu",
    )


def _memory(tiers: OpenTiers | None) -> Any:
    from flide_agent.runtime.memory import SessionMemory

    return None if tiers is None else SessionMemory(tiers.records)


def _engine(load: ask.LoadEngine, settings: ServeSettings, tiers: OpenTiers | None) -> Engine:
    from flide_engine.errors import EngineError

    print(f"loading {settings.model}", file=sys.stderr)
    # Libraries may print while a model loads, and stdout belongs to the ready line.
    with contextlib.redirect_stdout(sys.stderr), show.progress() as report:
        try:
            engine = load(
                settings.model,
                device=settings.device,
                dtype=settings.dtype,
                tiers=tiers and tiers.tiers,
                progress=report,
            )
        except EngineError as error:
            raise FlideError(str(error)) from error
    if Path(settings.model).is_dir():
        # Where a model lies on this machine is nobody else's business.
        engine.model_name = Path(settings.model).resolve().name
    return engine
