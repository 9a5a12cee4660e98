"""Questions about where a session stands, from the request to the reply."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flide_agent.history import state_text
from flide_agent.policy import decided, judge
from flide_agent.runtime.futures import kept, then, translate
from flide_agent.runtime.receipts import asked, fingerprint
from flide_agent.runtime.responses import to_response
from flide_agent.runtime.tree import text_between
from flide_agent.session_types import Answers, SessionInfo
from flide_agent.since import judge_new
from flide_agent.types import Usage
from flide_engine.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from flide_agent.runtime.placing import Placed
    from flide_agent.runtime.sessions import Session
    from flide_agent.runtime.tree import Node
    from flide_agent.session_types import AskRequest
    from flide_agent.types import Question
    from flide_engine.engine import Engine, Result

LAST = "last"


class Asker:
    """Asks the engine about sessions. A session's lock is held by whoever calls.

    Attributes:
        max_tokens: that a request of a tenant may have; None for what the model can read.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.max_tokens: Callable[[str], int | None] = lambda tenant: None

    def tokens(self, node: Node) -> int:
        """Tokens of a history, as a question about it counts them."""
        return len(self._engine.plan_trunk(node.text_so_far).trunk)

    def info(self, session: Session, placed: Placed) -> SessionInfo:
        """What an append did."""
        tokens = self.tokens(placed.node)
        return SessionInfo(
            id=session.tree.key.id,
            head=placed.node.head,
            tokens=tokens,
            new_tokens=max(tokens - self.tokens(placed.before), 0),
            diverged_at=placed.diverged_at,
            reason=placed.reason,
        )

    def ask(
        self, session: Session, placed: Placed, request: AskRequest, deadline: float | None
    ) -> Future[Answers]:
        """The reply to a request whose messages are in the tree.

        Raises:
            KeyConflict: its key was used for something else.
        """
        local = local_text(request)
        exactly = fingerprint(placed.node.head, request, local)
        if request.key is not None and (reply := session.receipts.find(request.key, exactly)):
            return then(reply, _replayed, shield=True)
        reply = self._looked_up(session, placed, request, local)
        if reply is None:
            # What may be asked for again is not given up because its first asker had no time.
            limit = None if request.key is not None else deadline
            reply = self._ask(session, placed, request, local, limit)
        reply = then(reply, lambda answers: _judged(session, request, answers))
        if request.key is None:
            return reply
        session.receipts.store(request.key, exactly, reply)
        return then(reply, lambda answers: answers, shield=True)

    def check(self, session: Session, request: AskRequest) -> None:
        """Refuse questions that cannot be asked about any history.

        Raises:
            InvalidInput: one of them.
        """
        if questions := _questions(request):
            try:
                self._engine.plan(session.tree.root.text_so_far, questions)
            except EngineError as error:
                raise translate(error) from error

    def ask_standing(
        self, session: Session, placed: Placed, request: AskRequest
    ) -> Future[Answers]:
        """The reply to a standing question, kept for whoever asks it."""
        reply = self._ask(session, placed, request, "", None)
        session.keep_standing((placed.node.head, asked(request)), reply)
        return reply

    def _looked_up(
        self, session: Session, placed: Placed, request: AskRequest, local: str
    ) -> Future[Answers] | None:
        if local or request.since is not None:
            return None
        reply = session.standing.get((placed.node.head, asked(request)))
        if reply is None or (reply.done() and (reply.cancelled() or reply.exception())):
            return None
        # Judged again: bands may have moved since the answer was there.
        return then(
            reply,
            lambda answers: self._decided(session, request, _relabelled(answers, placed)),
            shield=True,
        )

    def _ask(
        self,
        session: Session,
        placed: Placed,
        request: AskRequest,
        local: str,
        deadline: float | None,
    ) -> Future[Answers]:
        questions = _questions(request)
        if request.since is not None:
            questions = _since(session, placed.node, request, questions, local)
        if not questions:
            return kept(self._nothing_asked(session, placed, request))
        try:
            promise = self._engine.ask(
                placed.node.text_so_far,
                questions,
                tenant=session.tree.key.tenant,
                local=local,
                deadline=deadline,
                max_tokens=self.max_tokens(session.tree.key.tenant),
            )
        except EngineError as error:
            raise translate(error) from error
        return then(promise, lambda result: self._reply(session, placed, request, result))

    def _reply(
        self, session: Session, placed: Placed, request: AskRequest, result: Result
    ) -> Answers:
        info = SessionInfo(
            id=session.tree.key.id,
            head=placed.node.head,
            tokens=result.state_tokens,
            new_tokens=result.reuse.new_tokens,
            reused_tokens=result.reuse.reused_tokens,
            source=result.reuse.source,
            choice=result.reuse.choice,
            diverged_at=placed.diverged_at,
            reason=placed.reason,
        )
        response = to_response(result, self._engine.model_name)
        answers = Answers(**dict(response), x_session=info)
        return self._decided(session, request, answers)

    def _decided(self, session: Session, request: AskRequest, answers: Answers) -> Answers:
        """The answers with the decision that a policy makes of them."""
        policy = request.policy
        if policy is None:
            return answers
        place = (request.agent, policy.digest)
        with session.bands_lock:
            verdict = judge(
                policy, answers.answers, bands=session.bands.get(place, {}), tool=request.tool
            )
            session.bands[place] = verdict.bands
        decision = decided(
            policy,
            verdict,
            tool=request.tool,
            model=answers.model,
            session=answers.session.id,
            head=answers.session.head,
        )
        return answers.model_copy(update={"x_decision": decision})

    def _nothing_asked(self, session: Session, placed: Placed, request: AskRequest) -> Answers:
        answers = Answers(
            model=self._engine.model_name,
            answers={},
            usage=Usage(input_tokens=0, output_tokens=0),
            x_session=self.info(session, placed).model_copy(update={"new_tokens": 0}),
        )
        return self._decided(session, request, answers)


def local_text(request: AskRequest) -> str:
    """The step-local state as the model reads it, after the history.

    Raises:
        InvalidInput: it cannot be read.
    """
    return "" if request.state is None else state_text(request.state)


def _questions(request: AskRequest) -> Mapping[str, Question]:
    if request.policy is not None:
        return request.policy.questions(request.tool)
    assert request.questions is not None
    return request.questions


def _since(
    session: Session,
    node: Node,
    request: AskRequest,
    questions: Mapping[str, Question],
    local: str,
) -> Mapping[str, Question]:
    """The questions about what is new; unchanged where nothing was judged before."""
    head = session.last.get(request.agent) if request.since == LAST else request.since
    before = session.tree.find(head) if request.since == LAST else session.tree.node(head or "")
    if before is None:
        return questions
    new = text_between(before, node) + local
    return {name: judge_new(question, new) for name, question in questions.items()}


def _judged(session: Session, request: AskRequest, answers: Answers) -> Answers:
    """Remember up to where an agent has judged, now that it has."""
    session.last[request.agent] = answers.session.head
    return answers


def _replayed(answers: Answers) -> Answers:
    """A stored reply: its decision says that it was made before."""
    if answers.x_decision is None:
        return answers
    decision = dataclasses.replace(answers.x_decision, replayed=True)
    return answers.model_copy(update={"x_decision": decision})


def _relabelled(answers: Answers, placed: Placed) -> Answers:
    """A standing answer: nothing was computed to give it."""
    info = answers.x_session
    session = info.model_copy(
        update={
            "new_tokens": 0,
            "reused_tokens": info.tokens,
            "source": "standing",
            "reason": placed.reason,
            "diverged_at": placed.diverged_at,
        }
    )
    return answers.model_copy(update={"x_session": session})
