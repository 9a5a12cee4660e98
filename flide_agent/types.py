"""The System One wire format: typed questions about a state, and their answers.

The classes check a value as they are built. To read a request that somebody else wrote, use
`parse_request`, whose errors are sentences rather than reports.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from flide_agent._json import describe, json_fault

_MAX_OPTIONS = 255
_MAX_LEVELS = 10

_TYPES = '"noul" (yes or no), "choice" (one of several options) or "score" (ordered levels)'


def _refuse(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("system_one", "{sentence}", {"sentence": sentence})


def _content(value: object) -> object:
    if not isinstance(value, (str, dict, list, tuple)):
        raise _refuse(f"{describe(value)} was given, but it must be text, a map or an array.")
    if fault := json_fault(value):
        raise _refuse(f"{fault}.")
    return value


def _name(value: object) -> object:
    if not isinstance(value, str) or not value:
        raise _refuse(f"{describe(value)} was given, but it must be a name.")
    if fault := json_fault(value):
        raise _refuse(f"{fault}.")
    return value


def _options(value: object) -> object:
    if not isinstance(value, dict):
        raise _refuse(
            f"{describe(value)} was given, but options must be a map from option to description "
            '(null for none), such as {"low": null, "high": "above 100"}.'
        )
    if not 1 <= len(value) <= _MAX_OPTIONS:
        raise _refuse(f"{len(value)} options were given, but a choice has 1 to {_MAX_OPTIONS}.")
    if fault := json_fault(dict.fromkeys(value)):
        raise _refuse(f"{fault}.")
    return value


def _levels(value: object) -> object:
    if not isinstance(value, (list, tuple)):
        raise _refuse(
            f"{describe(value)} was given, but levels must be an ordered array "
            'such as ["low", "high"].'
        )
    if not 1 <= len(value) <= _MAX_LEVELS:
        raise _refuse(f"{len(value)} levels were given, but a score has 1 to {_MAX_LEVELS}.")
    return value


def _outcomes(value: object) -> object:
    if value is None or isinstance(value, NoulCriteria):
        return value
    if not isinstance(value, dict):
        raise _refuse(
            f"{describe(value)} was given, but the outcomes must be a map "
            'with "true", "false" or both.'
        )
    for key in value:
        if key not in ("true", "false"):
            raise _refuse(f'{describe(key)} is no outcome; describe "true", "false" or both.')
    return value


def _known_type(value: object) -> object:
    if isinstance(value, _Question):
        return value
    if not isinstance(value, dict):
        raise _refuse(f'{describe(value)} was given, but a question is a map with a "type".')
    if "type" not in value:
        raise _refuse(f'"type" is missing; it is {_TYPES}.')
    if value["type"] == "box":
        raise _refuse('the type "box" locates things in images, which this engine does not read.')
    if value["type"] not in ("noul", "choice", "score"):
        raise _refuse(f"{describe(value['type'])} is not a question type; use {_TYPES}.")
    return value


def _asked(value: object) -> object:
    if not isinstance(value, dict):
        raise _refuse(f"{describe(value)} was given, but questions are a map from id to question.")
    if not value:
        raise _refuse("the map is empty, but at least one question must be asked.")
    if "" in value:
        raise _refuse('the id "" is empty; give that question a name.')
    if fault := json_fault(dict.fromkeys(value)):
        raise _refuse(f"{fault}.")
    return value


def _no_assets(value: object) -> object:
    if value:
        raise _refuse("images are not read by this engine; describe them in the state instead.")
    return None


Content = Annotated[str | dict[str, Any] | list[Any], BeforeValidator(_content)]
"""Text, or a JSON map or array."""


class _Wire(BaseModel):
    # Unknown fields are ignored, so that a newer client can talk to an older server.
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Question(_Wire):
    instructions: Content | None = None


class NoulCriteria(_Wire):
    """What counts as yes and what counts as no; one side is enough."""

    true: Content | None = None
    false: Content | None = None


class Noul(_Question):
    """A yes or no question.

    Attributes:
        instructions: what is asked.
        criteria: what the two outcomes mean. May be left out when there are instructions.
    """

    type: Literal["noul"] = "noul"
    criteria: Annotated[NoulCriteria | None, BeforeValidator(_outcomes)] = None

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        outcomes = (self.criteria.true, self.criteria.false) if self.criteria else ()
        if not any((self.instructions, *outcomes)):
            raise _refuse("it asks nothing; give instructions, or describe an outcome in criteria.")
        return self


class Choice(_Question):
    """A question with one of several options as its answer.

    Attributes:
        instructions: what is asked.
        criteria: a description of every option, or None where its name says it all.
    """

    type: Literal["choice"] = "choice"
    criteria: Annotated[dict[str, Content | None], BeforeValidator(_options)]


class Score(_Question):
    """A question answered on a scale.

    Attributes:
        instructions: what is rated.
        criteria: a description of every level, lowest first.
    """

    type: Literal["score"] = "score"
    criteria: Annotated[list[Content], BeforeValidator(_levels)]


Question = Annotated[
    Noul | Choice | Score, Field(discriminator="type"), BeforeValidator(_known_type)
]
"""A question of any type."""

Questions = Annotated[dict[str, Question], BeforeValidator(_asked)]
"""Questions by id. The ids name the answers and are never shown to the model."""


class SystemOneRequest(_Wire):
    """A state and the questions about it.

    Attributes:
        model: who is asked.
        state: what the questions are about.
        questions: at least one, by id.
        assets: images; refused when there are any.
    """

    model: Annotated[str, BeforeValidator(_name)]
    state: Content
    questions: Questions
    assets: Annotated[None, BeforeValidator(_no_assets)] = None


_Probability = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=0)]


class NoulAnswer(_Wire):
    """The probability of yes."""

    type: Literal["noul"]
    noul: _Probability


class ChoiceAnswer(_Wire):
    """The most probable option, and the probability of each."""

    type: Literal["choice"]
    choice: str
    probabilities: dict[str, _Probability]
    confidence: _Probability


class ScoreAnswer(_Wire):
    """The expected level, and the description and probability of each, keyed "0", "1" and so on."""

    type: Literal["score"]
    score: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    legend: dict[str, str | dict[str, Any] | list[Any]]
    probabilities: dict[str, _Probability]
    confidence: _Probability


Answer = Annotated[NoulAnswer | ChoiceAnswer | ScoreAnswer, Field(discriminator="type")]
"""The answer to a question of the same type."""


class Usage(_Wire):
    """Tokens read and written, as System One counts them."""

    input_tokens: _Count
    output_tokens: _Count


class Reuse(_Wire):
    """What was computed for a request and what was not.

    Attributes:
        new_tokens: computed in this pass.
        reused_tokens: taken from a checkpoint or from an equal state in the same pass.
        source: where the reused ones came from.
        choice: whether a checkpoint was brought up from a lower tier, and why.
    """

    new_tokens: _Count
    reused_tokens: _Count
    source: str
    choice: str = ""


class Timing(_Wire):
    """Where the time of a request went, in milliseconds."""

    plan_ms: float
    run_ms: float
    total_ms: float


class SystemOneResponse(_Wire):
    """An answer to every question. What System One does not define is named `x_`.

    Attributes:
        request_id: what a server calls the request; it travels in a header, not in the body.
    """

    model: str
    answers: dict[str, Answer]
    usage: Usage
    x_reuse: Reuse | None = None
    x_timing: Timing | None = None
    request_id: Annotated[str, Field(exclude=True)] = ""

    @property
    def nouls(self) -> dict[str, NoulAnswer]:
        """The answers to yes or no questions."""
        return {key: a for key, a in self.answers.items() if isinstance(a, NoulAnswer)}

    @property
    def choices(self) -> dict[str, ChoiceAnswer]:
        """The answers to choices."""
        return {key: a for key, a in self.answers.items() if isinstance(a, ChoiceAnswer)}

    @property
    def scores(self) -> dict[str, ScoreAnswer]:
        """The answers on a scale."""
        return {key: a for key, a in self.answers.items() if isinstance(a, ScoreAnswer)}

    def __getitem__(self, question: str) -> Answer:
        """The answer to one question."""
        return self.answers[question]
