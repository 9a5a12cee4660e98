"""A decision model of LangChain that knows the session."""

from __future__ import annotations

from typing import Any

from langchain_core.decisions import BaseDecisionModel, ClassifierResponse, Question
from langchain_core.decisions import State as DecisionState
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from flide_agent import AsyncClient, Client, SessionInfo, SystemOneResponse
from langchain_flide.errors import as_model_errors
from langchain_flide.sessions import ByConfig, History, Sessions
from langchain_flide.states import read_questions, read_state


class SessionResponse(ClassifierResponse):
    """Answers, and where the session stands.

    Attributes:
        x_session: the history that was judged, how it relates to the one before, and what was
            reused; None for a state without a history or a run without a session.
    """

    x_session: SessionInfo | None = None


class SessionDecisionModel(BaseDecisionModel):
    """Answers typed questions about a conversation at the price of what is new in it.

    It takes the place of any decision model of LangChain's:

        AutoModeMiddleware(tools=["send_email"], classifier=SessionDecisionModel(client=client))

    A state that is a list of messages, or a map with "messages", is the history of the thread that
    the run belongs to; what else the map has is judged after it and never becomes history. Any
    other state, and any run without a thread, is answered without a session. Images, audio and
    files are not read: in a state they are a short digest, in a question they are refused.

    Attributes:
        client: a `Client` or `AsyncClient`; by default one for `model` in this process.
        model: who is asked; by default the client's.
        session_key: reads the session's key from the run's configuration; by default it is
            `configurable["thread_id"]`. None is no session.
        tenant: whose the session is, or what reads it from the configuration; by default the user
            whom a LangGraph server has authenticated. It must not come from what a model reads.
        history: a history whose front is missing, as the stock middleware sends it, is judged as
            the end of the one held ("full") or as it is ("exact").

    Raises:
        ModelInvalidRequestError: when asked, the state or a question breaks a rule.
        ContextOverflowError: the history is longer than the model reads.
        ModelTimeoutError: there was no answer in the client's time.
        ModelConnectionError: the engine cannot answer.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    client: Client | AsyncClient | None = Field(default=None, exclude=True, repr=False)
    session_key: ByConfig | None = Field(default=None, exclude=True)
    tenant: str | ByConfig | None = Field(default=None, exclude=True)
    history: History = "full"

    _sessions: Sessions = PrivateAttr()

    @model_validator(mode="before")
    @classmethod
    def _named_by_client(cls, values: Any) -> Any:
        client = values.get("client") if isinstance(values, dict) else None
        if isinstance(client, (Client, AsyncClient)):
            return {"model": client.model, **values}
        return values

    def model_post_init(self, context: Any, /) -> None:
        """Load the model if no client was given."""
        super().model_post_init(context)
        self._sessions = Sessions(
            Client.local(self.model) if self.client is None else self.client,
            session_key=self.session_key,
            tenant=self.tenant,
            history=self.history,
        )

    @property
    def sessions(self) -> Sessions:
        """Where the sessions of this model are found."""
        return self._sessions

    @property
    def _provider(self) -> str:
        return "flide"

    def _classify(self, state: DecisionState, questions: dict[str, Question]) -> SessionResponse:
        with as_model_errors():
            asked, parts, sessions = read_questions(questions), read_state(state), self._sessions
            place = None if parts.history is None else sessions.place()
            if place is None:
                whole = parts.rest if parts.history is None else parts.text
                return _response(
                    sessions.client.system_one(
                        whole, asked, model=self.model, tenant=sessions.tenant()
                    )
                )
            with sessions.borrow(place) as session:
                return _response(session.ask(asked, messages=parts.history, state=parts.rest))

    async def _aclassify(
        self, state: DecisionState, questions: dict[str, Question]
    ) -> SessionResponse:
        with as_model_errors():
            asked, parts, sessions = read_questions(questions), read_state(state), self._sessions
            place = None if parts.history is None else sessions.place()
            if place is None:
                whole = parts.rest if parts.history is None else parts.text
                return _response(
                    await sessions.async_client.system_one(
                        whole, asked, model=self.model, tenant=sessions.tenant()
                    )
                )
            with sessions.aborrow(place) as session:
                return _response(await session.ask(asked, messages=parts.history, state=parts.rest))


def _response(response: SystemOneResponse) -> SessionResponse:
    reuse = response.x_reuse
    usage: dict[str, Any] = response.usage.model_dump()
    if reuse is not None:
        usage["input_token_details"] = {"cache_read": reuse.reused_tokens}
    return SessionResponse.model_validate(
        {
            "model": response.model,
            "answers": {key: answer.model_dump() for key, answer in response.answers.items()},
            "usage": usage,
            "request_id": response.request_id or None,
            "x_session": getattr(response, "x_session", None),
        }
    )
