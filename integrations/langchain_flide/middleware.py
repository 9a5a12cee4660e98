"""A guard for agents: every input, tool call and last word is judged by a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from langchain.agents.middleware.types import (
    AgentMiddleware,
    hook_config,
)
from langgraph.types import TracePolicy, omit_payload

from flide_agent import InvalidInput
from langchain_flide.deciding import Desk, On, adrive, drive
from langchain_flide.guard import Guard
from langchain_flide.prompts import Prompts
from langchain_flide.receipts import GuardState
from langchain_flide.sessions import sessions_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain.agents.middleware.types import (
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
        ToolCallRequest,
    )

    from flide_agent import AsyncClient, Client, Policy
    from langchain_flide.model import SessionDecisionModel

_ON: tuple[On, ...] = ("input", "tool", "output")


class DecisionMiddleware(AgentMiddleware[Any, Any, Any]):
    """Lets a policy decide about an agent's inputs, tool calls and last words.

        create_agent(..., middleware=[..., DecisionMiddleware(policy, decisions=client)])

    Put it last in the list: then it judges the call that really runs. A blocked call gets an error
    as its result, and calls beside it go on; a blocked input ends the run before the model is
    called; a blocked last word is replaced. What should be reviewed interrupts the run as
    LangChain's human-in-the-loop middleware does. Decisions are put into the agent's state first,
    so that a run that is resumed, anywhere, does not ask again.

    Without a thread id every decision stands by itself: nothing is remembered.

    Args:
        policy: the rules. Those with `tools` are asked about calls of these tools only.
        decisions: who is asked: a client, or a `SessionDecisionModel` for its settings.
        on: where to judge: the "input" that a run begins with, every "tool" call, the "output" that
            it ends with.
        once_per_turn: judge the input once a run; otherwise before every call of the model, with
            the tool results that came meanwhile.
        review: "interrupt" asks a person, which needs a checkpointer; "block" treats what should be
            reviewed as blocked.
        name: of this guard in the graph; several guards of one agent need several names.
        system: the system prompt, if it should not be taken from the calls of the model.
        since: "last" judges only what is new since the agent was last judged, with the rest as
            context.

    Raises:
        InvalidInput: a setting is unknown.
    """

    state_schema = GuardState
    trace_policy = TracePolicy(process_inputs=omit_payload, process_outputs=omit_payload)

    def __new__(cls, *args: Any, once_per_turn: bool = True, **kwargs: Any) -> Self:
        """Choose the hooks, of which each becomes a node of the graph and costs a step."""
        made = cls if once_per_turn else type(cls.__name__, (_EveryStep, cls), {})
        return object.__new__(made)

    def __init__(
        self,
        policy: Policy,
        *,
        decisions: SessionDecisionModel | Client | AsyncClient,
        on: Sequence[On] = _ON,
        once_per_turn: bool = True,
        review: Literal["interrupt", "block"] = "interrupt",
        name: str = "decision_guard",
        system: str | None = None,
        since: Literal["last"] | None = None,
    ) -> None:
        super().__init__()
        if unknown := set(on) - set(_ON):
            raise InvalidInput(f"on has {sorted(unknown)}, but it may have {', '.join(_ON)} only.")
        if review not in ("interrupt", "block"):
            raise InvalidInput(f'review is {review!r}, but it must be "interrupt" or "block".')
        self._name = name
        self._desk = Desk(policy, sessions_of(decisions), since)
        self._guard = Guard(name, self._desk, Prompts(system), frozenset(on), review)

    @property
    def name(self) -> str:
        """Of this guard in the graph."""
        return self._name

    @hook_config(can_jump_to=["end"])
    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Judge the input."""
        return drive(self._guard.input(state, runtime), self._desk)

    @hook_config(can_jump_to=["end"])
    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Judge the input."""
        return await adrive(self._guard.input(state, runtime), self._desk)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Judge the calls that the model makes, or its last word."""
        return drive(self._guard.model_call(request), self._desk, handler)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Judge the calls that the model makes, or its last word."""
        return await adrive(self._guard.model_call(request), self._desk, handler)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """Let a call run as it was decided."""
        return drive(self._guard.tool_call(request), self._desk, handler)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Let a call run as it was decided."""
        return await adrive(self._guard.tool_call(request), self._desk, handler)

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Let a person look at the last word, if that was decided."""
        return self._guard.last_word(state, runtime)

    async def aafter_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Let a person look at the last word, if that was decided."""
        return self._guard.last_word(state, runtime)


class _EveryStep(AgentMiddleware[Any, Any, Any]):
    """The input is judged before every call of the model, not once a run."""

    _desk: Desk
    _guard: Guard

    before_agent = AgentMiddleware.before_agent
    abefore_agent = AgentMiddleware.abefore_agent

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Judge the input."""
        return drive(self._guard.input(state, runtime), self._desk)

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Judge the input."""
        return await adrive(self._guard.input(state, runtime), self._desk)
