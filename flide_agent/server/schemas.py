"""Bodies of requests as the OpenAPI document has them.

Written out, because what the models check in code (that a question asks something, say) does not
show in the schemas that could be derived from them.
"""

from __future__ import annotations

from typing import Any

from flide_agent.policy import Policy
from flide_agent.server.replies import ALIAS, ID_LENGTH

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """A schema of `components`, by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def one_of(*schemas: Schema) -> Schema:
    """Any of some schemas."""
    return {"anyOf": list(schemas)}


def bodies(model: str) -> Schema:
    """The schemas of all bodies, by name.

    Args:
        model: the name of the one that is served.
    """
    policy = Policy.model_json_schema(ref_template="#/components/schemas/{model}")
    # The questions of a policy are the questions of any request.
    shared = {"Noul", "Choice", "Score", "NoulCriteria"}
    rest = {name: s for name, s in policy.pop("$defs").items() if name not in shared}
    return {**_questions(), **rest, "Policy": policy, **_requests(model)}


_STRING = {"type": "string"}
_NULL = {"type": "null"}
_ID = {"type": "string", "minLength": 1, "maxLength": ID_LENGTH}
_CONTENT = one_of(_STRING, {"type": "object"}, {"type": "array"})
_SOMETHING = one_of(
    {"type": "string", "minLength": 1},
    {"type": "object", "minProperties": 1},
    {"type": "array", "minItems": 1},
)
_SECONDS = {"type": "number", "exclusiveMinimum": 0}


def _object(properties: Schema, *required: str, **more: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required), **more}


def _optional(schema: Schema, description: str = "") -> Schema:
    return {**one_of(schema, _NULL), **({"description": description} if description else {})}


def _questions() -> Schema:
    text = _optional(ref("Content"))

    def question(kind: str, criteria: Schema, *required: str, **more: Any) -> Schema:
        properties = {
            "type": {"type": "string", "const": kind},
            "instructions": {**text, "description": "What is asked."},
            "criteria": criteria,
        }
        return _object(properties, "type", *required, **more)

    says = [_object({side: _SOMETHING}, side) for side in ("true", "false")]
    return {
        "Content": {**_CONTENT, "description": "Text, or a JSON map or array."},
        "NoulCriteria": _object({"true": text, "false": text}, additionalProperties=False),
        "Noul": question(
            "noul",
            _optional(ref("NoulCriteria"), "What counts as yes, and what as no."),
            anyOf=[
                _object({"instructions": _SOMETHING}, "instructions"),
                _object({"criteria": {"type": "object", "anyOf": says}}, "criteria"),
            ],
        ),
        "Choice": question(
            "choice",
            {
                "type": "object",
                "additionalProperties": text,
                "minProperties": 1,
                "maxProperties": 255,
                "description": "The options, each with what it means or null.",
            },
            "criteria",
        ),
        "Score": question(
            "score",
            {
                "type": "array",
                "items": ref("Content"),
                "minItems": 1,
                "maxItems": 10,
                "description": "The levels, lowest first.",
            },
            "criteria",
        ),
        "Questions": {
            "type": "object",
            "propertyNames": {"minLength": 1},
            "minProperties": 1,
            "additionalProperties": {"oneOf": [ref("Noul"), ref("Choice"), ref("Score")]},
            "description": "By id, which the model never sees.",
        },
    }


def _requests(model: str) -> Schema:
    messages = {
        "type": "array",
        "items": {},
        "description": "Texts, role/content messages or any JSON, oldest first.",
    }
    append = {
        "parent": _optional(_STRING, "The head that the messages follow; by default the newest."),
        "expected": _optional(_STRING, "Refuse with 409 unless this is the newest head."),
        "held": _optional(_STRING, "The head that the caller had before."),
        "messages": messages,
        "whole": {"type": "boolean", "description": "This is all, even if a longer one is held."},
        "summary": {"type": "boolean", "description": "One message summarises what is gone."},
        "history": {"type": "string", "enum": ["exact", "full"]},
        "ttl": _optional(_SECONDS, "Seconds without use after which the session may go."),
    }
    ask = {
        **append,
        "state": {"description": "What is only true of this step, such as a pending call."},
        "tool": _optional(_STRING, "The tool of that call."),
        "since": _optional(_STRING, 'Judge what came after this head, or since the "last" step.'),
        "key": _optional(_STRING, "The exact repeat under a key gets the stored reply."),
        "agent": {"type": "string", "description": "Whose last step and bands these are."},
    }
    asked = {"questions": ref("Questions")}
    decided = {"policy": ref("Policy")}
    return {
        "SystemOneRequest": _object(
            {
                "model": {"type": "string", "enum": [ALIAS, model]},
                "state": {**ref("Content"), "description": "What the questions are about."},
                "questions": ref("Questions"),
                "session_id": _optional(_ID, "Read the state into this session."),
            },
            *("model", "state", "questions"),
        ),
        "CreateRequest": _object(
            {"id": _optional(_ID), "messages": messages, "ttl": append["ttl"]},
        ),
        "AppendRequest": _object(append),
        "AskRequest": {
            "oneOf": [
                _object({**ask, **asked, "policy": _NULL}, "questions"),
                _object({**ask, **decided, "questions": _NULL}, "policy"),
            ]
        },
        "WatchRequest": {
            "oneOf": [
                _object({**asked, "policy": _NULL, "agent": ask["agent"]}, "questions"),
                _object({**decided, "questions": _NULL, "agent": ask["agent"]}, "policy"),
            ]
        },
        "ForkRequest": _object({"at": _optional(_STRING, "A head; by default the newest.")}),
        "RewindRequest": _object({"to": {**_STRING, "description": "A head."}}, "to"),
    }
