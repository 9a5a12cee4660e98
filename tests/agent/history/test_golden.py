"""The form of canonical text, recorded: changing it needs another CANONICAL_VERSION.

A head names a history only as long as the same messages give the same text. When the form changes
on purpose, raise the version and record the new texts under it.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from flide_agent.history import CANONICAL_VERSION, ROOT, digest, extend, messages_to_history

MESSAGES: list[Any] = [
    SystemMessage("You decide about refunds."),
    HumanMessage("Charged twice \u2028 for Nº 7 \U0001f622", name="amara"),
    HumanMessage(
        [
            {"type": "text", "text": "See "},
            {"type": "text", "text": "this:"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
            {"type": "order", "number": 7, "lines": [{"sum": 4.5, "item": "tea"}]},
        ]
    ),
    AIMessage(
        [
            {"type": "thinking", "thinking": "Look first.", "signature": "x"},
            {"type": "text", "text": 'I will "look".\n'},
            {"type": "tool_use", "id": "a", "name": "look", "input": {"order": 7, "by": None}},
        ],
        tool_calls=[
            {"id": "a", "name": "look", "args": {"order": 7, "by": None}},
            {"id": "b", "name": "pay", "args": {}},
            {"id": "c", "name": "mail", "args": {"to": {"name": "Amara", "copy": True}}},
        ],
        invalid_tool_calls=[{"id": "d", "name": "close", "args": '{"order": 7', "error": "cut"}],
    ),
    ToolMessage("no such order", tool_call_id="c", status="error"),
    ToolMessage("paid twice", tool_call_id="a"),
    ToolMessage("lost", tool_call_id="z"),
    {"role": "assistant", "content": None, "refusal": "I cannot do that."},
    "verbatim, as it is",
    {"step": 3, "done": False, "rest": [1.0, None, "é"]},
]

TEXTS = {
    1: [
        '{"role":"system","content":"You decide about refunds."}\n',
        '{"role":"user","name":"amara","content":"Charged twice \\u2028 for Nº 7 \U0001f622"}\n',
        '{"role":"user","content":["See this:",'
        '{"digest":"bb85314411a16a61","type":"image"},'
        '{"digest":"0c4a0ea6e3126fec","type":"file"},'
        '{"lines":[{"item":"tea","sum":4.5}],"number":7,"type":"order"}]}\n',
        '{"role":"assistant","content":"I will \\"look\\".\\n","calls":['
        '{"name":"look","args":{"by":null,"order":7}},'
        '{"name":"pay","args":{}},'
        '{"name":"mail","args":{"to":{"copy":true,"name":"Amara"}}},'
        '{"name":"close","args":"{\\"order\\": 7"}]}\n',
        '{"role":"tool","content":"paid twice"}\n',
        '{"role":"tool","content":"no such order","status":"error","call":2}\n',
        '{"role":"tool","content":"lost","call":null}\n',
        '{"role":"assistant","content":"","refusal":"I cannot do that."}\n',
        "verbatim, as it is",
        '{"step": 3, "done": false, "rest": [1.0, null, "é"]}\n',
    ]
}

DIGESTS = {
    1: {
        "root": "84a0ec8633889bbb2ced5d84a77941c5ceed72d9",
        "head": "9c1180f40a5e81753f98096208accf621711fd49",
        "turn": "5255a8b55502d396bbae90edde1244916c255ccb",
    }
}


def test_texts_are_those_recorded() -> None:
    """The same messages give the same text in every release that has this version."""
    turns = messages_to_history(MESSAGES)

    assert [turn.text for turn in turns] == TEXTS[CANONICAL_VERSION]


def test_digests_are_those_recorded() -> None:
    """A head that was stored is found again."""
    texts = TEXTS[CANONICAL_VERSION]
    digests = {"root": ROOT, "head": extend(ROOT, texts)[-1], "turn": digest(texts[0])}

    assert digests == DIGESTS[CANONICAL_VERSION]
