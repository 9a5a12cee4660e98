"""The door: a model, its tokenizer and its pool; text and typed questions in, answers out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from flide_engine.backend import choose_device
from flide_engine.errors import RequestTooLarge
from flide_engine.formats import Formatter, Question, answer, parse_questions
from flide_engine.futures import then
from flide_engine.hub import fingerprint as hub_fingerprint
from flide_engine.hub import load_tokenizer, read_config, resolve
from flide_engine.models import Decoder, load_model
from flide_engine.results import Ask, Result, Timing, Usage
from flide_engine.serving import Serving
from flide_engine.weights import WeightReader

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from transformers import PreTrainedTokenizerBase

    from flide_engine.core import Outcome, Request
    from flide_engine.formats import GrowingText, Text
    from flide_engine.lower import Tiers
    from flide_engine.scheduler import Health

__all__ = ["Ask", "Engine", "Result", "Timing", "Usage"]

Progress = Callable[[str, int, int], None]

DEFAULT_ROUND_TOKENS = 8192


class Engine:
    """Answers typed questions about a state, every one as if it were asked alone.

        engine = Engine.from_pretrained("smollm2")
        questions = {"ok": {"type": "noul", "instructions": "Is it green?"}}
        result = engine.decide("The build is red.", questions)
        result.answers["ok"].noul

    A question is a System One mapping, or any object with its fields.

    Safe to call from several threads: what they ask shares rounds. Also a context manager, which
    closes it.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: PreTrainedTokenizerBase,
        *,
        model_name: str,
        pool_bytes: int | None = None,
        max_round_tokens: int = DEFAULT_ROUND_TOKENS,
        tiers: Tiers | None = None,
        fingerprint: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.model_name = model_name
        self.model = model
        self.tokenizer = tokenizer
        self._formatter = Formatter(tokenizer)
        self._serving = Serving(
            model,
            pool_bytes=pool_bytes,
            max_round_tokens=max_round_tokens,
            tiers=tiers,
            fingerprint=fingerprint or {},
            progress=_stage(progress, "kernels and graphs"),
        )
        self.storage, self.pool = self._serving.storage, self._serving.pool

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        *,
        device: str | None = None,
        dtype: str | None = None,
        pool_bytes: int | None = None,
        max_round_tokens: int = DEFAULT_ROUND_TOKENS,
        tiers: Tiers | None = None,
        progress: Progress | None = None,
    ) -> Engine:
        """Load a model.

        Args:
            model: a local directory, "smollm2" (the embedded one), or a hub id.
            device: "cpu" or "cuda"; by default the CPU.
            dtype: of products: "float32", "float64" (CPU only) or "bfloat16"; by default float32 on
                a CPU and bfloat16 on a GPU. Files of half precision are widened.
            pool_bytes: what checkpoints may weigh; by default 2 GiB on a CPU, and most of the free
                memory of a GPU.
            max_round_tokens: rows computed together at most; a larger request runs alone.
            tiers: where checkpoints go besides the device; the caller closes the store.
            progress: called as (stage, done, total).

        Raises:
            ModelLoadError: one sentence on what is wrong and what to do.
        """
        where, products = choose_device(device, dtype)
        directory = resolve(model, progress=_stage(progress, "converting, once"))
        config = read_config(directory)
        tokenizer = load_tokenizer(directory)
        with WeightReader(
            directory,
            device=where,
            dtype=products,
            progress=_stage(progress, "weights"),
        ) as weights:
            decoder = load_model(config, weights)
        return cls(
            decoder,
            tokenizer,
            model_name=str(model),
            pool_bytes=pool_bytes,
            max_round_tokens=max_round_tokens,
            tiers=tiers,
            fingerprint=hub_fingerprint(directory) if tiers else None,
            progress=progress,
        )

    def begin(self, tenant: str = "") -> GrowingText:
        """The empty text of a tenant, to be grown and asked about again and again."""
        return self._formatter.begin(tenant)

    def plan(
        self,
        state: Text | GrowingText,
        questions: Mapping[str, Any],
        *,
        tenant: str = "",
        durable: int | None = None,
        local: str = "",
    ) -> Request:
        """The tokens of a request: `trunk`, and `token_ids` and `label_ids` of each branch.

        The trunk followed by a branch is the prompt of that question alone, token for token.

        Args:
            state: text, any JSON object or array, or what `begin` began.
            questions: id to question, as a System One mapping or an object with its fields.
            tenant: checkpoints are never shared between tenants.
            durable: leading characters of the state's text that the next request will begin with
                again; by default all of a text or object, and all but the last element of an array.
            local: text after the state that the next request will not begin with.

        Raises:
            InvalidRequest: one sentence that names the field, the rule and the way out.
        """
        return self._plan(Ask(state, questions, tenant, durable, local), parse_questions(questions))

    def plan_trunk(self, state: Text | GrowingText, *, tenant: str = "") -> Request:
        """The tokens of a request that asks nothing, and only leaves checkpoints."""
        return self._plan(Ask(state, {}, tenant), {})

    def decide(
        self,
        state: Text | GrowingText,
        questions: Mapping[str, Any],
        *,
        tenant: str = "",
        durable: int | None = None,
        local: str = "",
    ) -> Result:
        """Answer questions about a state; arguments and errors as `plan`.

        Raises:
            InvalidRequest: the request breaks a rule, or is too large (RequestTooLarge).
            NonFiniteError: the model gave no finite answer.
            EngineFault: the engine was closed, or broke.
        """
        return self.decide_many([Ask(state, questions, tenant, durable, local)])[0]

    def decide_many(self, asks: Sequence[Ask]) -> list[Result]:
        """Answer several requests together; equal states are computed once. See `decide`."""
        began = time.perf_counter()
        asked = [parse_questions(ask.questions) for ask in asks]
        plans = [self._plan(*both) for both in zip(asks, asked, strict=True)]
        planned = time.perf_counter()
        outcomes = self.run(plans)
        timing = Timing.until_now(began, planned)
        return [
            self.read(questions, plan, outcome, timing)
            for questions, plan, outcome in zip(asked, plans, outcomes, strict=True)
        ]

    def ask(
        self,
        state: Text | GrowingText,
        questions: Mapping[str, Any],
        *,
        tenant: str = "",
        durable: int | None = None,
        local: str = "",
        deadline: float | None = None,
        max_tokens: int | None = None,
    ) -> Future[Result]:
        """Promise what `decide` gives; returns as soon as text is tokens.

        Args:
            state, questions, tenant, durable, local: as in `plan`.
            deadline: a `time.monotonic()`, as in `submit`.
            max_tokens: that the state and all questions may have.

        Raises:
            InvalidRequest: as `plan`, or it is too large (RequestTooLarge); other errors are the
                promise's.
        """
        began = time.perf_counter()
        asked = parse_questions(questions)
        plan = self._plan(Ask(state, questions, tenant, durable, local), asked)
        if max_tokens is not None and plan.size > max_tokens:
            raise RequestTooLarge(
                f"the request has {plan.size:,} tokens, but may have {max_tokens:,}: shorten the "
                "state or ask fewer questions."
            )
        self._serving.check(plan)
        planned = time.perf_counter()
        promise = self.submit(plan, deadline=deadline)
        return then(
            promise,
            lambda outcome: self.read(asked, plan, outcome, Timing.until_now(began, planned)),
        )

    def read(
        self,
        questions: Mapping[str, Question],
        request: Request,
        outcome: Outcome,
        timing: Timing,
    ) -> Result:
        """The answers that an outcome gives to the questions of a request, in their order."""
        answers = zip(questions.items(), outcome.probabilities, strict=True)
        state_tokens = len(request.trunk)
        return Result(
            answers={name: answer(question, read) for (name, question), read in answers},
            usage=Usage(request.size),
            reuse=outcome.reuse,
            timing=timing,
            state_tokens=state_tokens,
        )

    def run(self, requests: Sequence[Request]) -> list[Outcome]:
        """Tokens in, probabilities out: what `decide` does between text and answers."""
        return self._serving.run(requests)

    def submit(
        self, request: Request, *, deadline: float | None = None, eager: bool = False
    ) -> Future[Outcome]:
        """Promise what `run` gives, of one request. See `Scheduler.submit`."""
        return self._serving.submit(request, deadline=deadline, eager=eager)

    def forget(self) -> None:
        """Drop all checkpoints on the device that nobody is using."""
        self._serving.forget()

    @property
    def health(self) -> Health:
        """Whether it answers, and how much waits."""
        return self._serving.scheduler.health

    def close(self, *, drain: bool = True) -> None:
        """Answer what waits if `drain`, and nothing any more."""
        self._serving.close(drain=drain)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(drain=error is None)

    def _plan(self, ask: Ask, questions: Mapping[str, Question]) -> Request:
        return self._formatter.plan(
            ask.state, questions, tenant=ask.tenant, durable=ask.durable, local=ask.local
        )


def _stage(progress: Progress | None, name: str) -> Callable[[int, int], None]:
    return partial(progress, name) if progress else lambda done, total: None
