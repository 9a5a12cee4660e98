"""The door: a model, its tokenizer and its pool; text and typed questions in, answers out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from flide_engine.backend import choose_device, make_backend
from flide_engine.errors import InvalidRequest
from flide_engine.formats import Answer, Formatter, Question, Text, answer, parse_question
from flide_engine.hub import load_tokenizer, read_config, resolve
from flide_engine.models import Decoder, load_model
from flide_engine.runner import Runner
from flide_engine.weights import WeightReader

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from flide_engine.core import Outcome, Request, Reuse

Progress = Callable[[str, int, int], None]

DEFAULT_ROUND_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request as the System One API counts them."""

    input_tokens: int
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds: text to tokens, tokens to probabilities, and all of the call."""

    plan_ms: float
    run_ms: float
    total_ms: float


@dataclass(frozen=True, slots=True)
class Result:
    """Answers to one request.

    Attributes:
        answers: one for each question id.
        usage: tokens of the state and of all questions.
        reuse: how many of them were computed, and how many came from a checkpoint.
        timing: of the call; requests answered together share it.
    """

    answers: dict[str, Answer]
    usage: Usage
    reuse: Reuse
    timing: Timing


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of `decide_many`; the fields are those of `Engine.decide`."""

    state: Text
    questions: Mapping[str, Any]
    tenant: str = ""
    durable: int | None = None


class Engine:
    """Answers typed questions about a state, every one as if it were asked alone.

        engine = Engine.from_pretrained("smollm2")
        questions = {"ok": {"type": "noul", "instructions": "Is it green?"}}
        result = engine.decide("The build is red.", questions)
        result.answers["ok"].noul

    A question is a System One mapping, or any object with its fields.

    Safe to call from several threads; one round runs at a time.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: PreTrainedTokenizerBase,
        *,
        model_name: str,
        pool_bytes: int | None = None,
        max_round_tokens: int = DEFAULT_ROUND_TOKENS,
    ) -> None:
        self.model_name = model_name
        self.model = model
        self.tokenizer = tokenizer
        self._formatter = Formatter(tokenizer)
        backend = make_backend(model, pool_bytes, max_round_tokens)
        self.storage, self.pool = backend.storage, backend.pool
        self._runner = Runner(model, self.storage, self.pool, max_round_tokens, backend.execute)
        self._lock = threading.Lock()

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        *,
        device: str | None = None,
        dtype: str | None = None,
        pool_bytes: int | None = None,
        max_round_tokens: int = DEFAULT_ROUND_TOKENS,
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
            progress: called as (stage, done, total).

        Raises:
            ModelLoadError: one sentence on what is wrong and what to do.
        """
        where, products = choose_device(device, dtype)

        def report(stage: str) -> Callable[[int, int], None]:
            return partial(progress, stage) if progress else lambda done, total: None

        directory = resolve(model, progress=report("converting, once"))
        config = read_config(directory)
        tokenizer = load_tokenizer(directory)
        with WeightReader(
            directory,
            device=where,
            dtype=products,
            progress=report("weights"),
        ) as weights:
            decoder = load_model(config, weights)
        return cls(
            decoder,
            tokenizer,
            model_name=str(model),
            pool_bytes=pool_bytes,
            max_round_tokens=max_round_tokens,
        )

    def plan(
        self,
        state: Text,
        questions: Mapping[str, Any],
        *,
        tenant: str = "",
        durable: int | None = None,
    ) -> Request:
        """The tokens of a request: `trunk`, and `token_ids` and `label_ids` of each branch.

        The trunk followed by a branch is the prompt of that question alone, token for token.

        Args:
            state: text, or any JSON object or array.
            questions: id to question, as a System One mapping or an object with its fields.
            tenant: checkpoints are never shared between tenants.
            durable: leading characters of the state's text that the next request will begin with
                again; by default all of a text or object, and all but the last element of an array.

        Raises:
            InvalidRequest: one sentence that names the field, the rule and the way out.
        """
        return self._formatter.plan(state, _parse(questions), tenant=tenant, durable=durable)

    def decide(
        self,
        state: Text,
        questions: Mapping[str, Any],
        *,
        tenant: str = "",
        durable: int | None = None,
    ) -> Result:
        """Answer questions about a state; arguments and errors as `plan`.

        Raises:
            InvalidRequest: the request breaks a rule, or is too large (RequestTooLarge).
            NonFiniteError: the model gave no finite answer.
        """
        return self.decide_many([Ask(state, questions, tenant, durable)])[0]

    def decide_many(self, asks: Sequence[Ask]) -> list[Result]:
        """Answer several requests together; equal states are computed once. See `decide`."""
        began = time.perf_counter()
        questions = [_parse(ask.questions) for ask in asks]
        plans = [
            self._formatter.plan(ask.state, asked, tenant=ask.tenant, durable=ask.durable)
            for ask, asked in zip(asks, questions, strict=True)
        ]
        planned = time.perf_counter()
        outcomes = self.run(plans)
        ended = time.perf_counter()
        timing = Timing(
            plan_ms=1e3 * (planned - began),
            run_ms=1e3 * (ended - planned),
            total_ms=1e3 * (ended - began),
        )
        return [
            Result(
                answers={
                    name: answer(question, probabilities)
                    for (name, question), probabilities in zip(
                        asked.items(), outcome.probabilities, strict=True
                    )
                },
                usage=Usage(len(plan.trunk) + sum(len(b.token_ids) for b in plan.branches)),
                reuse=outcome.reuse,
                timing=timing,
            )
            for asked, plan, outcome in zip(questions, plans, outcomes, strict=True)
        ]

    def run(self, requests: Sequence[Request]) -> list[Outcome]:
        """Tokens in, probabilities out: what `decide` does between text and answers."""
        with self._lock:
            return self._runner.run(requests)


def _parse(questions: Mapping[str, Any]) -> dict[str, Question]:
    if not isinstance(questions, Mapping) or not questions:
        raise InvalidRequest(
            f"questions: {questions!r} was given, but at least one question is needed, "
            'such as {"done": {"type": "noul", "instructions": "Is the task done?"}}.'
        )
    return {name: parse_question(value, f"questions.{name}") for name, value in questions.items()}
