"""Requests as people and programs write them, read with errors that say what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from flide_agent._json import describe, load_json, where
from flide_agent.exceptions import InvalidInput
from flide_agent.types import Question, Questions, SystemOneRequest

_MISSING = {
    "model": 'name one, such as "jev-latest"',
    "state": "give the text, map or array that the questions are about",
    "questions": "give a map from id to question",
    "choice": 'give a map from option to description, such as {"low": null, "high": null}',
    "score": 'give an ordered array of levels, such as ["low", "high"]',
}

_QUESTIONS: TypeAdapter[dict[str, Question]] = TypeAdapter(Questions)


def parse_request(request: str | bytes | Mapping[str, Any]) -> SystemOneRequest:
    """Read a System One request.

    Args:
        request: JSON, or what it parses to; questions may be `Noul`, `Choice` and `Score` objects.

    Raises:
        InvalidInput: it breaks a rule of the format. When the rule is one of `SystemOneRequest`,
            the pydantic error is the cause and holds every fault, not only the first.
    """
    content = _load(request, "the request")
    try:
        return SystemOneRequest.model_validate(content)
    except ValidationError as error:
        raise InvalidInput(_sentence(error)) from error


def parse_questions(questions: str | bytes | Mapping[str, Any]) -> dict[str, Question]:
    """Read questions by id, or the questions of a whole request.

    Args:
        questions: JSON, or what it parses to; values may be `Noul`, `Choice` and `Score` objects.

    Raises:
        InvalidInput: they break a rule of the format.
    """
    content = _load(questions, "the document")
    try:
        return _QUESTIONS.validate_python(_of_request(content))
    except ValidationError as error:
        raise InvalidInput(_sentence(error, "questions")) from error


def _load(source: str | bytes | Mapping[str, Any], name: str) -> dict[str, Any]:
    content = load_json(source, name) if isinstance(source, (str, bytes)) else source
    if not isinstance(content, Mapping):
        raise InvalidInput(f"{name}: {describe(content)} was given, but it must be a map.")
    return dict(content)


def _of_request(content: dict[str, Any]) -> Any:
    """Unwrap a request's questions, unless "questions" is the id of one question."""
    inner = content.get("questions", content)
    has_type = isinstance(inner, Mapping) and isinstance(inner.get("type"), str)
    return content if has_type or isinstance(inner, BaseModel) else inner


def _sentence(error: ValidationError, *prefix: str) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    path = (*prefix, *fault["loc"])
    if fault["type"] == "missing":
        key = path[-2] if path[-1] == "criteria" else path[-1]
        return f"{where(path)}: it is missing; {_MISSING[str(key)]}."
    return f"{where(path)}: {fault['msg']}"
