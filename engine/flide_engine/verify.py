"""How far answers move with the company they are computed in: the promise, measured on one model.

The same questions are answered in every form the engine knows, and each answer is compared with the
one its question gets alone: its whole prompt as one sequence, in an empty pool, so that nothing is
forked, batched or resumed.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from flide_engine.core import GRID, Branch, Request, Tokens
from flide_engine.errors import InvalidRequest, ModelLoadError, NonFiniteError
from flide_engine.marks import MARGIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from flide_engine.core import Outcome
    from flide_engine.engine import Ask, Engine, Progress

Probabilities: TypeAlias = npt.NDArray[np.float64]

_Answers: TypeAlias = "tuple[int, Sequence[Probabilities]]"
"""A request's index, and the probabilities of its questions in their order."""

BOUNDS = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 0.05}
"""The largest difference of a probability that rounding may make, by the dtype of products.

A fork in the wrong place moves probabilities by hundredths and more. docs/exactness.md has what was
measured: some 1e-15, 1e-6 and 2e-2 on the models tried.
"""

MOST_PLACES = 5
"""Grid points a state is resumed at: the first, the last, and some between."""


@dataclass(frozen=True, slots=True)
class Form:
    """One way to compute answers, and how far they lie from those they should equal.

    Attributes:
        name: the form.
        against: what its answers were compared with.
        answers: how many were.
        largest_difference: of one option's probability.
        largest_variation: total variation, half the sum of a question's differences.
        changed: answers whose most probable option is another one.
        bound: on `largest_difference`; None where nothing is promised.
    """

    name: str
    against: str
    answers: int
    largest_difference: float
    largest_variation: float
    changed: int
    bound: float | None

    @property
    def ok(self) -> bool:
        """Whether the bound holds."""
        return self.bound is None or self.largest_difference <= self.bound


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured.

    Attributes:
        model, dtype, device: of whom.
        requests, questions: how many were given.
        places: grid points at which states were resumed, ascending.
        forms: each way to compute the answers.
        faults: sentences on passes that were not what they were meant to be.
    """

    model: str
    dtype: str
    device: str
    requests: int
    questions: int
    places: tuple[int, ...]
    forms: tuple[Form, ...]
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every form keeps its bound and every pass was what it was meant to be."""
        return not self.faults and all(form.ok for form in self.forms)


def verify(
    engine: Engine,
    asks: Sequence[Ask],
    *,
    directory: Path,
    bound: float | None = None,
    progress: Progress | None = None,
) -> Report:
    """Compare the answers of every form with those of each question alone.

    Args:
        engine: which nobody else uses meanwhile: its pool is emptied again and again.
        asks: states and their questions.
        directory: the engine's model, for transformers to load in the same dtype.
        bound: on the difference of a probability, instead of the dtype's in `BOUNDS`.
        progress: called as (form, done, total), in passes.

    Raises:
        InvalidRequest: there is nothing to ask, or the engine refuses a request.
        ModelLoadError: transformers cannot load the model.
        NonFiniteError: there is no finite answer to compare.
    """
    if not asks:
        raise InvalidRequest("no request was given, but at least one is needed to compare answers.")
    return _Verification(engine, asks, progress).report(directory, bound)


class _Verification:
    """Answers the same requests in every form, each pass beginning with an empty pool."""

    def __init__(self, engine: Engine, asks: Sequence[Ask], progress: Progress | None) -> None:
        self.engine = engine
        self.progress = progress
        self.faults: list[str] = []
        self.requests = [
            engine.plan(ask.state, ask.questions, tenant=ask.tenant, durable=ask.durable)
            for ask in asks
        ]
        self.prompts = [
            self._prompts(number, ask, request)
            for number, (ask, request) in enumerate(zip(asks, self.requests, strict=True), 1)
        ]
        self.places = [_places(len(request.trunk)) for request in self.requests]
        self.total = sum(len(prompts) for prompts in self.prompts)

    def report(self, directory: Path, bound: float | None) -> Report:
        """Measure everything."""
        dtype, device = self.engine.model.dtype, self.engine.model.embedding.device
        limit = BOUNDS[dtype] if bound is None else bound
        count, places = len(self.requests), sum(map(len, self.places))
        alone = self._collect("alone", self.total, self._alone())
        forked = self._collect("forked", count, self._forked())
        tallies = {"forked": _compared(enumerate(forked), alone)}
        for name, total, passes in (
            ("batched", count, self._batched()),
            ("resumed", places, self._resumed()),
            ("shared", 2 * count, self._shared()),
        ):
            tallies[name] = _compared(self._watched(name, total, passes), alone)
        forms = [tally.form(name, "alone", limit) for name, tally in tallies.items()]
        truth = self._collect("transformers", self.total, self._transformers(directory))
        # Its code casts norms, angles and recurrences to float32 even in a float64 model.
        theirs = None if dtype == torch.float64 else limit
        forms.append(_compared(enumerate(forked), truth).form("forked", "transformers", theirs))
        return Report(
            model=self.engine.model_name,
            dtype=str(dtype).removeprefix("torch."),
            device=str(device),
            requests=count,
            questions=self.total,
            places=tuple(sorted({place for places in self.places for place in places})),
            forms=tuple(forms),
            faults=tuple(self.faults),
        )

    def _prompts(self, number: int, ask: Ask, request: Request) -> list[tuple[Tokens, Tokens]]:
        """The prompt and the labels of each question, planned as if there were no other."""
        prompts = []
        for (name, question), branch in zip(ask.questions.items(), request.branches, strict=True):
            single = self.engine.plan(ask.state, {name: question})
            prompt = np.concatenate([single.trunk, single.branches[0].token_ids])
            forked = np.concatenate([request.trunk, branch.token_ids])
            if not np.array_equal(prompt, forked):
                self.faults.append(
                    f"request {number}: the prompt of {name!r} has other tokens beside its siblings."
                )
            prompts.append((prompt, single.branches[0].label_ids))
        return prompts

    def _fresh(self, requests: Sequence[Request]) -> list[Outcome]:
        self.engine.pool.clear()
        return self.engine.run(requests)

    def _alone(self) -> Iterator[_Answers]:
        for index, prompts in enumerate(self.prompts):
            for prompt, labels in prompts:
                last = Branch(prompt[-1:], labels)
                yield index, self._fresh([Request(prompt[:-1], (last,))])[0].probabilities

    def _forked(self) -> Iterator[_Answers]:
        for index, request in enumerate(self.requests):
            yield index, self._fresh([request])[0].probabilities

    def _batched(self) -> Iterator[_Answers]:
        for index, outcome in enumerate(self._fresh(self.requests)):
            yield index, outcome.probabilities

    def _resumed(self) -> Iterator[_Answers]:
        for index, (request, places) in enumerate(zip(self.requests, self.places, strict=True)):
            for place in places:
                self._fresh([_opening(request, place)])
                outcome = self.engine.run([request])[0]
                if outcome.reuse.reused_tokens != place:
                    self.faults.append(
                        f"request {index + 1} was to resume at token {place}, but resumed at "
                        f"{outcome.reuse.reused_tokens}: the pool kept no checkpoint there."
                    )
                yield index, outcome.probabilities

    def _shared(self) -> Iterator[_Answers]:
        for index, request in enumerate(self.requests):
            backwards = replace(request, branches=request.branches[::-1])
            first, second = self._fresh([request, backwards])
            if second.reuse.source != "round":
                self.faults.append(
                    f"request {index + 1}, asked twice in one call, had its state computed twice."
                )
            yield index, first.probabilities
            yield index, second.probabilities[::-1]

    def _transformers(self, directory: Path) -> Iterator[_Answers]:
        model = _load(directory, self.engine.model.dtype, self.engine.model.embedding.device)
        for index, prompts in enumerate(self.prompts):
            for prompt, labels in prompts:
                yield index, [_ask(model, prompt, labels)]

    def _watched(self, name: str, total: int, passes: Iterator[_Answers]) -> Iterator[_Answers]:
        for done, answers in enumerate(passes, 1):
            if self.progress is not None:
                self.progress(name, done, total)
            yield answers

    def _collect(
        self, name: str, total: int, passes: Iterator[_Answers]
    ) -> list[list[Probabilities]]:
        """What the passes of a form say about each request."""
        answers: list[list[Probabilities]] = [[] for _ in self.requests]
        for index, probabilities in self._watched(name, total, passes):
            answers[index] += probabilities
        return answers
