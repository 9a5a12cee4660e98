"""Typed questions: what may be asked, and the System One form they arrive in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as brief
from typing import Any, Literal, TypeAlias, get_args

from flide_engine.errors import InvalidRequest
from flide_engine.formats.text import Text, render

Kind: TypeAlias = Literal["choice", "noul", "score"]

MOST_OPTIONS = 255
MOST_LEVELS = 10

_MOST = {"choice": (MOST_OPTIONS, "options"), "score": (MOST_LEVELS, "levels")}
_OUTCOMES = ("true", "false")


@dataclass(frozen=True, slots=True)
class Option:
    """One possible answer.

    Attributes:
        name: the caller's name for it, given back byte for byte; "true" and "false" for a noul, the
            level's number for a score.
        description: what it stands for, or None.
    """

    name: str
    description: Text = None


@dataclass(frozen=True, slots=True)
class Question:
    """One question about a state. A rule that is broken raises `InvalidRequest`.

    Attributes:
        kind: "noul" is a yes-or-no question, "choice" picks one option, "score" a level.
        instructions: what is asked; a choice and a score may leave it to their options.
        options: the answers, in the order of their probabilities: 1 to 255 options with distinct
            names, 1 to 10 levels from the lowest, or "true" and "false".
    """

    kind: Kind
    instructions: Text
    options: tuple[Option, ...]

    def __post_init__(self) -> None:
        _check_kind(self.kind)
        if self.kind == "noul":
            self._check_noul()
        else:
            self._check_options()
        render(self.instructions, "instructions")
        for option in self.options:
            render(option.name, "an option's name")
            render(option.description, f"the description of {brief(option.name)}")

    def _check_noul(self) -> None:
        names = tuple(option.name for option in self.options)
        if names != _OUTCOMES:
            raise InvalidRequest(
                f"a noul's options are true and false, not {brief(names)}: rename them"
            )
        if not any((self.instructions, *(option.description for option in self.options))):
            raise InvalidRequest(
                "a noul asks nothing: give it instructions, or describe its true or false outcome"
            )

    def _check_options(self) -> None:
        most, noun = _MOST[self.kind]
        if not 1 <= len(self.options) <= most:
            raise InvalidRequest(
                f"a {self.kind} has 1 to {most} {noun}, not {len(self.options)}: "
                + ("split the question" if self.options else f"describe its {noun} in criteria")
            )
        names = [option.name for option in self.options]
        for name in names:
            if not isinstance(name, str):
                raise InvalidRequest(
                    f"an option's name is {brief(name)}, but must be a string: quote it"
                )
        if len(set(names)) < len(names):
            raise InvalidRequest(f"options share a name in {brief(names)}: names must differ")
        if self.kind == "score" and any(option.description is None for option in self.options):
            raise InvalidRequest("a score level is null: describe every level")


def parse_questions(questions: object) -> dict[str, Question]:
    """Questions by id, at least one, from their System One form.

    Raises:
        InvalidRequest: a rule is broken.
    """
    if not isinstance(questions, Mapping) or not questions:
        raise InvalidRequest(
            f"questions: {questions!r} was given, but at least one question is needed, "
            'such as {"done": {"type": "noul", "instructions": "Is the task done?"}}.'
        )
    return {name: parse_question(value, f"questions.{name}") for name, value in questions.items()}


def parse_question(value: object, where: str = "question") -> Question:
    """A question from its System One form.

    Args:
        value: a mapping with "type", "instructions" and "criteria", an object with these
            attributes, or a `Question`, which comes back as it is.
        where: the question's place, which begins the error message.

    Raises:
        InvalidRequest: a rule is broken.
    """
    if isinstance(value, Question):
        return value
    try:
        return _parse(value)
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {error}") from error


def _parse(value: object) -> Question:
    kind, criteria = _field(value, "type"), _field(value, "criteria")
    if kind is None:
        raise InvalidRequest(f"{brief(value)} has no type: add the type noul, choice or score")
    _check_kind(kind)
    options = {"noul": _outcomes, "choice": _choices, "score": _levels}[kind](criteria)
    return Question(kind, _field(value, "instructions"), options)


def _check_kind(kind: object) -> None:
    if kind not in get_args(Kind):
        raise InvalidRequest(
            f"the type {brief(kind)} cannot be answered here: use noul, choice or score"
        )


def _field(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _outcomes(criteria: object) -> tuple[Option, ...]:
    if isinstance(criteria, Mapping):
        unknown = [key for key in criteria if key not in _OUTCOMES]
        if unknown:
            raise InvalidRequest(
                f"a noul's criteria hold {brief(unknown)}, but only true and false are described: "
                "remove the rest"
            )
    elif criteria is not None and not any(hasattr(criteria, name) for name in _OUTCOMES):
        raise InvalidRequest(
            f"a noul's criteria are {brief(criteria)}, but describe true and false: use an object"
        )
    return tuple(Option(name, _field(criteria, name)) for name in _OUTCOMES)


def _choices(criteria: object) -> tuple[Option, ...]:
    if not isinstance(criteria, Mapping):
        raise InvalidRequest(
            f"a choice's criteria are {brief(criteria)}, but must map every option to its "
            "description or null: use an object"
        )
    return tuple(Option(name, description) for name, description in criteria.items())


def _levels(criteria: object) -> tuple[Option, ...]:
    if not isinstance(criteria, (list, tuple)):
        raise InvalidRequest(
            f"a score's criteria are {brief(criteria)}, but must list the levels from the lowest: "
            "use an array"
        )
    return tuple(Option(str(number), level) for number, level in enumerate(criteria))
