"""How far answers move with the company they are computed in: the promise, measured on one model.

The same questions are answered in every form the engine knows, and each answer is compared with the
one its question gets alone: its whole prompt as one sequence, in an empty pool, so that nothing is
forked, batched or resumed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from flide_engine.core import GRID, Branch, Request, Tokens
from flide_engine.errors import InvalidRequest
from flide_engine.marks import MARGIN
from flide_engine.plain import PlainModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from flide_engine.core import Outcome
    from flide_engine.engine import Ask, Engine, Progress

Probabilities: TypeAlias = npt.NDArray[np.float64]

_Answer: TypeAlias = tuple[tuple[int, int], Probabilities]
"""Of which request and which of its questions, and what it is."""

BOUNDS = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 0.05}
"""The largest difference of a probability that rounding may make, by the dtype of products.

Rounding made up to 2e-14, 5e-6 and 3e-2 on the models tried, and an error of one percent, planted
in attention between siblings or in a resumed state, 2e-4 and more (docs/exactness.md). So float32
tells a fault from rounding, and bfloat16 only a gross one.
"""

MOST_PLACES = 4
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
        model, dtype, device: whose answers.
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
        engine: nobody else may use it meanwhile, for its pool is emptied before every pass.
        asks: states and their questions.
        directory: the engine's model, for transformers to load in the same dtype.
        bound: on the difference of a probability, instead of the dtype's in `BOUNDS`.
        progress: called as (form, done, total), in answers.

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
        self.device = engine.model.embedding.device
        self.progress = progress
        self.faults: list[str] = []
        self.requests = [
            engine.plan(ask.state, ask.questions, tenant=ask.tenant, durable=ask.durable)
            for ask in asks
        ]
        self.prompts = list(self._prompts(asks))
        self.resumptions = [
            (index, request, place)
            for index, request in enumerate(self.requests)
            for place in _places(len(request.trunk))
        ]

    def report(self, directory: Path, bound: float | None) -> Report:
        """Measure everything."""
        dtype, count = self.engine.model.dtype, len(self.prompts)
        limit = BOUNDS[dtype] if bound is None else bound
        # Its code computes norms, angles and recurrences in float32 even in a float64 model.
        theirs = None if dtype == torch.float64 else limit
        resumed = sum(len(request.branches) for _, request, _ in self.resumptions)
        alone = dict(self._watched("alone", count, self._alone()))
        forked = list(self._watched("forked", count, self._forked()))
        batched = self._watched("batched", count, self._batched())
        shared = self._watched("shared", 2 * count, self._shared())
        again = self._watched("resumed", resumed, self._resumed())
        truth = dict(self._watched("transformers", count, self._transformers(directory)))
        forms = (
            _form("forked", "alone", forked, alone, limit),
            _form("batched", "alone", batched, alone, limit),
            _form("shared", "alone", shared, alone, limit),
            _form("resumed", "alone", again, alone, limit),
            _form("forked", "transformers", forked, truth, theirs),
        )
        return Report(
            model=self.engine.model_name,
            dtype=str(dtype).removeprefix("torch."),
            device=str(self.device),
            requests=len(self.requests),
            questions=count,
            places=tuple(sorted({place for *_, place in self.resumptions})),
            forms=forms,
            faults=tuple(self.faults),
        )

    def _prompts(self, asks: Sequence[Ask]) -> Iterator[tuple[tuple[int, int], Tokens, Tokens]]:
        """The prompt and the labels of each question, planned as if there were no other."""
        for index, (ask, request) in enumerate(zip(asks, self.requests, strict=True)):
            for place, (name, question) in enumerate(ask.questions.items()):
                single = self.engine.plan(ask.state, {name: question})
                prompt = np.concatenate([single.trunk, single.branches[0].token_ids])
                forked = np.concatenate([request.trunk, request.branches[place].token_ids])
                if not np.array_equal(prompt, forked):
                    self.faults.append(
                        f"request {index + 1}: beside other questions {name!r} has another prompt."
                    )
                yield (index, place), prompt, single.branches[0].label_ids

    def _fresh(self, *requests: Request) -> list[Outcome]:
        self.engine.pool.clear()
        return self.engine.run(requests)

    def _alone(self) -> Iterator[_Answer]:
        for key, prompt, labels in self.prompts:
            last = Branch(prompt[-1:], labels)
            yield key, self._fresh(Request(prompt[:-1], (last,)))[0].probabilities[0]

    def _forked(self) -> Iterator[_Answer]:
        for index, request in enumerate(self.requests):
            yield from _answers(index, self._fresh(request)[0].probabilities)

    def _batched(self) -> Iterator[_Answer]:
        for index, outcome in enumerate(self._fresh(*self.requests)):
            yield from _answers(index, outcome.probabilities)

    def _shared(self) -> Iterator[_Answer]:
        for index, request in enumerate(self.requests):
            backwards = replace(request, branches=request.branches[::-1])
            first, second = self._fresh(request, backwards)
            if second.reuse.source != "round":
                self.faults.append(f"request {index + 1}: asked twice, its state was read twice.")
            yield from _answers(index, first.probabilities)
            yield from _answers(index, second.probabilities[::-1])

    def _resumed(self) -> Iterator[_Answer]:
        for index, request, place in self.resumptions:
            self._fresh(_opening(request, place))
            outcome = self.engine.run([request])[0]
            if (reused := outcome.reuse.reused_tokens) != place:
                self.faults.append(
                    f"request {index + 1}: of {place} tokens in a checkpoint {reused} were reused."
                )
            yield from _answers(index, outcome.probabilities)

    def _transformers(self, directory: Path) -> Iterator[_Answer]:
        plain = PlainModel(directory, self.engine.model.dtype, self.device)
        for key, prompt, labels in self.prompts:
            yield key, plain.probabilities(prompt, labels)

    def _watched(self, form: str, total: int, answers: Iterator[_Answer]) -> Iterator[_Answer]:
        for done, answer in enumerate(answers, 1):
            if self.progress is not None:
                self.progress(form, done, total)
            yield answer


def _answers(index: int, probabilities: Sequence[Probabilities]) -> Iterator[_Answer]:
    return (((index, place), answer) for place, answer in enumerate(probabilities))


def _form(
    name: str,
    against: str,
    answers: Iterable[_Answer],
    wanted: Mapping[tuple[int, int], Probabilities],
    bound: float | None,
) -> Form:
    pairs = [(answer, wanted[key]) for key, answer in answers]
    gaps = [np.abs(answer - other) for answer, other in pairs]
    difference = max((float(gap.max()) for gap in gaps), default=0.0)
    variation = max((float(gap.sum()) / 2 for gap in gaps), default=0.0)
    changed = sum(bool(answer.argmax() != other.argmax()) for answer, other in pairs)
    return Form(name, against, len(pairs), difference, variation, changed, bound)


def _places(length: int) -> list[int]:
    """Grid points below the end of a state, at most `MOST_PLACES`, evenly spread."""
    every = range(GRID, length, GRID)
    if len(every) <= MOST_PLACES:
        return list(every)
    return [every[i] for i in np.linspace(0, len(every) - 1, MOST_PLACES).round().astype(int)]


def _opening(request: Request, place: int) -> Request:
    """Leaves a checkpoint at `place` on a history that then goes on with other tokens."""
    trunk = np.concatenate([request.trunk[:place], request.trunk[:MARGIN]])
    return Request(trunk, (), request.tenant)
