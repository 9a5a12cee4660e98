"""What becomes of a history between two steps of an agent, and what is found of it again."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    trim_messages,
)

from flide_agent.history import (
    ROOT,
    Comparison,
    compare,
    digest,
    extend,
    messages_to_history,
    system_turn,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

numbers = count()


def step(results: int = 2) -> list[BaseMessage]:
    """An assistant's message with parallel calls, and their results; no two steps are equal."""
    ids = [str(uuid4()) for _ in range(results)]
    number = next(numbers)
    calls = [{"id": key, "name": "look", "args": {"order": number}} for key in ids]
    return [
        AIMessage(f"Step {number}.", tool_calls=calls, id=f"lc_run--{uuid4()}"),
        *(ToolMessage(f"{number}: {place}", tool_call_id=key) for place, key in enumerate(ids)),
    ]


def thread(steps: int) -> list[BaseMessage]:
    """A user's message and what an agent did about it."""
    opening = HumanMessage("Refund order 7.", id=str(uuid4()))
    return [opening, *(message for _ in range(steps) for message in step())]


def digests(messages: Sequence[object]) -> list[str]:
    return [digest(turn.text) for turn in messages_to_history(messages)]


def difference(held: Sequence[object], given: Sequence[object]) -> Comparison:
    return compare(digests(held), digests(given))


def resent(messages: list[BaseMessage]) -> list[BaseMessage]:
    """The same messages with other ids, calls' ids among them."""
    keys: dict[str, str] = {}
    copies = []
    for message in messages:
        update: dict[str, Any] = {"id": str(uuid4())}
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                keys[call["id"] or ""] = str(uuid4())
            update["tool_calls"] = [
                {**call, "id": keys[call["id"] or ""]} for call in message.tool_calls
            ]
        if isinstance(message, ToolMessage):
            update["tool_call_id"] = keys[message.tool_call_id]
        copies.append(message.model_copy(update=update))
    return copies


def test_a_step_is_appended() -> None:
    """Everything held is found, and what follows is new."""
    held = thread(3)

    assert difference(held, [*held, *step()]) == Comparison(len(held), 0)


def test_a_history_sent_again_is_known() -> None:
    """A caller without a checkpointer sends all of it with ids of its own."""
    held = thread(3)
    again = resent(held)
    heads = [extend(ROOT, [t.text for t in messages_to_history(m)]) for m in (held, again)]

    assert [message.id for message in held] != [message.id for message in again]
    assert heads[0] == heads[1]


def test_ids_given_later_do_not_matter() -> None:
    """A result has no id while its tool is being called."""
    held = thread(1)
    later = [message.model_copy(update={"id": str(uuid4())}) for message in held]

    assert difference(held, later) == Comparison(len(held), 0)


@pytest.mark.parametrize("place", [0, 3, 5])
def test_new_content_under_an_old_id_parts(place: int) -> None:
    """A redaction keeps the id, so the id proves nothing."""
    held = thread(3)
    redacted = [*held]
    redacted[place] = held[place].model_copy(update={"content": "[redacted]"})

    assert difference(held, redacted) == Comparison(place, 0)


def test_a_cleared_result_parts() -> None:
    """As when old results are cleared to save context."""
    held = thread(4)
    cleared = [*held]
    cleared[2] = held[2].model_copy(update={"content": "[cleared]"})

    assert difference(held, [*cleared, *step()]) == Comparison(2, 0)


def test_a_summary_begins_anew() -> None:
    """All messages are removed, a summary takes their place, and the last ones are kept."""
    held = thread(5)
    kwargs = {"lc_source": "summarization"}
    summary = HumanMessage("Summary: a refund.", additional_kwargs=kwargs)
    given = [summary, *held[-6:], *step()]
    found = difference(held, given)

    assert found == Comparison(0, 0)
    assert messages_to_history(given)[found.common].summary


@pytest.mark.parametrize("size", [5, 6, 30])
@pytest.mark.parametrize("system", [False, True])
def test_a_window_is_found_behind_its_history(size: int, system: bool) -> None:
    """Trimmed to the last messages, with or without the system prompt, wherever it begins."""
    held = [*([SystemMessage("Be kind.")] if system else []), *thread(20)]
    now = held
    for _ in range(4):
        now = [*now, *step(results=1)]
        window = trim_messages(
            now, max_tokens=size, token_counter=len, strategy="last", include_system=system
        )
        found = difference(held, window)

        assert len(window) == size
        assert window[found.common + found.overlap :] == now[len(held) :]
        held = now


def test_a_window_may_begin_with_a_result_alone() -> None:
    """Its call has slid out of the window, and it is still the result that is held."""
    held = thread(20)
    window = trim_messages([*held, *step()], max_tokens=30, token_counter=len, strategy="last")

    assert isinstance(window[0], AIMessage)
    for start in (1, 2):
        assert isinstance(window[start], ToolMessage)
        assert difference(held, window[start:]) == Comparison(0, 27 - start)


def test_a_window_with_a_gap_is_not_found() -> None:
    """Where more has happened than the window shows, nothing connects it to what is held."""
    held = thread(20)
    now = [*held, *(message for _ in range(10) for message in step())]

    assert difference(held, now[-30:]) == Comparison(0, 0)


def test_a_deleted_message_parts() -> None:
    """What was said before it is common; the last turn alone proves no window."""
    held = thread(3)

    assert difference(held, [*held[:-2], *held[-1:]]) == Comparison(len(held) - 2, 0)


def test_a_deletion_looks_like_a_window() -> None:
    """Behind the common turns, what is gone has slid out or was deleted: digests do not say."""
    held = thread(3)

    assert difference(held, [*held[:1], *held[4:]]) == Comparison(1, 6)


def test_a_result_put_in_later_parts() -> None:
    """A result is put behind a call that never got one, in the middle of the history."""
    begun = [*thread(1), step()[0]]
    held = [*begun, HumanMessage("Are you there?"), *step()]
    key = begun[-1].tool_calls[0]["id"]  # type: ignore[attr-defined]
    repaired = [*begun, ToolMessage("Cancelled.", tool_call_id=key), *held[len(begun) :]]

    assert difference(held, repaired) == Comparison(len(begun), 0)


def test_parallel_results_in_another_order_are_the_same() -> None:
    """They come in as they complete in one run and as they were called in the next."""
    call, *results = step(results=4)
    held = [*thread(1), call, *results]

    assert difference(held, [*held[:-4], *reversed(results)]) == Comparison(len(held), 0)


def test_calls_that_wait_are_open() -> None:
    """While a tool is about to be called, the history ends with its call."""
    call = step()[0]

    assert isinstance(call, AIMessage)
    assert list(messages_to_history([*thread(1), call])[-1].calls) == [
        part["id"] for part in call.tool_calls
    ]


def test_another_system_prompt_parts_at_once() -> None:
    """The prompt is the first turn, so what follows it is another history."""
    turns = messages_to_history(thread(2))

    def heads(prompt: str) -> list[str]:
        texts = [turn.text for turn in (system_turn(prompt), *turns)]
        return extend(ROOT, texts)

    assert not set(heads("Be kind.")) & set(heads("Be firm."))
