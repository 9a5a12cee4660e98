"""A decision model of LangChain that knows the session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.decisions import BaseDecisionModel, ClassifierResponse
from pydantic import ConfigDict, Field, PrivateAttr, SecretStr, model_validator

from flide_agent import AsyncClient, Client, Score, SessionInfo
from langchain_flide.errors import as_model_errors
from langchain_flide.sessions import ByConfig, History, Sessions
from langchain_flide.states import read_questions, read_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_core import decisions as theirs

    from flide_agent import Answer, Question, SystemOneResponse


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
        client: a `Client` or `AsyncClient`, such as `Client.local("smollm2")`; by default one for
            the server at `base_url` with `api_key`, or where `Client` finds them by itself.
        model: who is asked, where the other side serves several.
        session_key: reads the session's key from the run's configuration; by default it is
            `configurable["thread_id"]`. None is no session.
        tenant: whose the session is, or what reads it from the configuration, if not the user whom
            a LangGraph server has authenticated. It must not come from what a model reads.
        history: a history whose front is missing, as the stock middleware sends it, is judged as
            the end of the one held ("full") or as it is ("exact").

    Raises:
        ModelInvalidRequestError: when asked, the state or a question breaks a rule.
        ContextOverflowError: the history is longer than the model reads.
        ModelTimeoutError: there was no answer in the client's time.
        ModelConnectionError: the engine cannot answer.
        ValidationError: when made, there is neither a client nor an address, or a field is unknown.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: str = "jev-latest"
    client: Client | AsyncClient | None = Field(default=None, exclude=True, repr=False)
    base_url: str | None = None
    api_key: SecretStr | None = None
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
        """Make the client if none was given."""
        super().model_post_init(context)
        key = None if self.api_key is None else self.api_key.get_secret_value()
        self._sessions = Sessions(
            self.client or Client(self.base_url, api_key=key, model=self.model),
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

    def _classify(
        self, state: theirs.State, questions: dict[str, theirs.Question]
    ) -> SessionResponse:
        with as_model_errors():
            asked, parts, sessions = read_questions(questions), read_state(state), self._sessions
            place = sessions.place()
            if parts.history is None or place.session is None:
                response = sessions.client.system_one(
                    parts.whole, asked, model=self.model, tenant=place.tenant
                )
                return _response(response, asked)
            with sessions.borrow(place) as session:
                answers = session.ask(asked, messages=parts.history, state=parts.rest)
            return _response(answers, asked)

    async def _aclassify(
        self, state: theirs.State, questions: dict[str, theirs.Question]
    ) -> SessionResponse:
        with as_model_errors():
            asked, parts, sessions = read_questions(questions), read_state(state), self._sessions
            place = sessions.place()
            if parts.history is None or place.session is None:
                response = await sessions.async_client.system_one(
                    parts.whole, asked, model=self.model, tenant=place.tenant
                )
                return _response(response, asked)
            with sessions.aborrow(place) as session:
                answers = await session.ask(asked, messages=parts.history, state=parts.rest)
            return _response(answers, asked)


def _response(response: SystemOneResponse, asked: Mapping[str, Question]) -> SessionResponse:
    usage: dict[str, Any] = response.usage.model_dump()
    if response.x_reuse is not None:
        usage["input_token_details"] = {"cache_read": response.x_reuse.reused_tokens}
    return SessionResponse.model_validate(
        {
            "model": response.model,
            "answers": {key: _answer(a, asked[key]) for key, a in response.answers.items()},
            "usage": usage,
            "request_id": response.request_id or None,
            "x_session": getattr(response, "x_session", None),
        }
    )


def _answer(answer: Answer, question: Question) -> dict[str, Any]:
    fields = answer.model_dump()
    if isinstance(question, Score):
        # Engines write a structured level as text; here it is the one that was asked about.
        fields["legend"] = dict(enumerate(question.criteria))
    return fields
