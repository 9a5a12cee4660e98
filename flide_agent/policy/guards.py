"""Functions that run only if a policy allows the call."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

from flide_agent._json import json_fault, load_json
from flide_agent.exceptions import ActionBlocked, ActionNeedsReview, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from flide_agent.policy.decisions import Decision
    from flide_agent.policy.rules import Policy

P = ParamSpec("P")
R = TypeVar("R")


@runtime_checkable
class Decides(Protocol):
    """Decides by a policy, as sessions do."""

    def decide(
        self, policy: Policy, *, state: Any, tool: str | None
    ) -> Decision | Awaitable[Decision]:
        """Judge what is about to happen, and say what to do."""


def guarded(
    policy: Policy,
    *,
    session: Decides | Callable[[], Decides],
    on_block: Callable[[Decision], Any] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function run only if the policy allows the call.

    What is judged is `{"tool": name, "arguments": {...}}`, with defaults filled in and without a
    leading `self` or `cls`. What is not JSON in an argument is shown by its `repr`. Nobody should
    change arguments while they are judged. For a function that is `async def`, a session without
    `await` decides in a thread.

        @guarded(policy, session=session)
        def refund(order: str, amount: float) -> None: ...

    Args:
        policy: the rules; those with `tools` go by the function's name.
        session: what decides, or a function that returns what decides now.
        on_block: gets the decision when the function may not run, and returns (or, for `async def`,
            may await) what the caller gets instead of an error.

    Raises:
        ActionBlocked: by the guarded function, when the policy blocks the call.
        ActionNeedsReview: by the guarded function, when a person should look at it first.
        InvalidInput: by a plain guarded function, when the session must be awaited.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        name = function.__name__

        def call(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
            return {"tool": name, "arguments": _arguments(signature.bind(*args, **kwargs))}

        @functools.wraps(function)
        def plain(*args: P.args, **kwargs: P.kwargs) -> R:
            decision = _session(session).decide(policy, state=call(*args, **kwargs), tool=name)
            if inspect.isawaitable(decision):
                if inspect.iscoroutine(decision):
                    decision.close()
                raise InvalidInput(
                    f"{name} is a plain function, but its session must be awaited; "
                    f"make it `async def {name}`, or give it a session without await."
                )
            if decision.action == "allow":
                return function(*args, **kwargs)
            return cast("R", _refuse(decision, on_block))

        @functools.wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            decision = await _ask(_session(session), policy, call(*args, **kwargs))
            if decision.action == "allow":
                return await cast("Awaitable[Any]", function(*args, **kwargs))
            result = _refuse(decision, on_block)
            return await result if inspect.isawaitable(result) else result

        return cast("Callable[P, R]", awaited) if inspect.iscoroutinefunction(function) else plain

    return decorate


def _session(session: Decides | Callable[[], Decides]) -> Decides:
    return session if isinstance(session, Decides) else session()


async def _ask(session: Decides, policy: Policy, call: dict[str, Any]) -> Decision:
    if inspect.iscoroutinefunction(session.decide):
        return cast("Decision", await session.decide(policy, state=call, tool=call["tool"]))
    # A session that blocks must not block the event loop.
    decision = await asyncio.to_thread(session.decide, policy, state=call, tool=call["tool"])
    return await decision if inspect.isawaitable(decision) else decision


def _refuse(decision: Decision, on_block: Callable[[Decision], Any] | None) -> Any:
    if on_block is not None:
        return on_block(decision)
    raise (ActionBlocked if decision.action == "block" else ActionNeedsReview)(decision)


def _arguments(bound: inspect.BoundArguments) -> dict[str, Any]:
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    if (first := next(iter(arguments), None)) in ("self", "cls"):
        del arguments[first]
    return {name: _plain(value) for name, value in arguments.items()}


def _plain(value: Any) -> Any:
    """A copy of a value as JSON, in which everything else is its `repr`."""
    try:
        plain = load_json(json.dumps(value, default=repr), "the argument")
    except (TypeError, ValueError, RecursionError):
        # Keys that are no text or, as text, the same; or a value that contains itself.
        return repr(value)
    return repr(value) if json_fault(plain) else plain
