"""What happens to histories between steps, and what a session says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from flide_agent import Client, Noul, SessionNotFound

if TYPE_CHECKING:
    from flide_agent import SessionInfo
    from flide_agent.client import Session
    from tests.agent.sessions.conftest import Stage

ASKED = {"done": Noul(instructions="Is it done?")}
CALLS = [
    {"id": "a1", "type": "function", "function": {"name": "read", "arguments": '{"file": "x"}'}},
    {"id": "b2", "type": "function", "function": {"name": "grep", "arguments": '{"word": "y"}'}},
]


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def agent(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def result(call: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": text}


def steps(count: int) -> list[Any]:
    return [user("Fix it.")] + [
        agent(f"Step {n} of many, with words enough.") for n in range(count)
    ]


@pytest.fixture
def session(stage: Stage) -> Session:
    """A session that has seen six turns."""
    session = stage.client.session("thread")
    session.sync(steps(5))
    return session


def sync(session: Session, messages: list[Any]) -> SessionInfo:
    """Sync, and see that the text is exactly what was given."""
    info = session.sync(messages)
    with_nothing_else = session.text
    assert with_nothing_else.count("\n") == len(messages)
    return info


def test_the_first_history_is_new(stage: Stage) -> None:
    """Nothing was held before."""
    info = stage.client.session().sync(steps(2))

    assert (info.reason, info.diverged_at) == ("new", None)


def test_going_on_is_appended(session: Session) -> None:
    """The whole history again, and more of it."""
    info = sync(session, steps(7))

    assert (info.reason, info.diverged_at) == ("appended", None)


def test_the_same_again_is_appended(session: Session) -> None:
    """Nothing new is no change."""
    before = session.head

    assert sync(session, steps(5)).reason == "appended"
    assert session.head == before


def test_other_ids_change_nothing(session: Session) -> None:
    """A caller that sends its history again gives its messages new ids."""
    before = session.head
    session.sync([{**message, "id": f"run-{n}"} for n, message in enumerate(steps(5))])

    assert session.head == before


def test_new_content_in_place_is_edited(session: Session) -> None:
    """Redaction, or a person's correction: the same id with another text."""
    messages = steps(5)
    messages[3] = agent("[redacted]")
    info = sync(session, messages)

    assert (info.reason, info.diverged_at) == ("edited", 3)


@pytest.mark.parametrize("place", [1, 3, 5])
def test_a_deleted_message_is_edited(session: Session, place: int) -> None:
    """From the middle, or the last one."""
    messages = steps(5)
    del messages[place]

    assert (sync(session, messages).reason, session.head) == ("edited", session.head)


def test_an_inserted_message_is_edited(session: Session) -> None:
    """A missing tool result is put in afterwards."""
    messages = steps(5)
    messages.insert(3, result("none", "cancelled"))
    info = sync(session, messages)

    assert (info.reason, info.diverged_at) == ("edited", 3)


def test_a_summary_is_summarised(session: Session) -> None:
    """Old messages give way to one about them; the newest stay."""
    summary = {
        "type": "human",
        "content": "So far: steps 0 to 2.",
        "additional_kwargs": {"lc_source": "summarization"},
    }
    old = session.head
    info = sync(session, [summary, *steps(5)[-2:]])

    assert (info.reason, info.diverged_at) == ("summarised", 0)
    session.rewind(old)
    assert session.text.count("\n") == 6


@pytest.mark.parametrize("system", [None, "You fix things."])
def test_a_sliding_window_is_windowed(stage: Stage, system: str | None) -> None:
    """Each step the front is gone a little further, behind a system prompt or not."""
    session = stage.client.session(system=system)
    history = steps(12)
    session.sync(history[:8])
    kept = 0 if system is None else 1
    for first in (2, 4):
        info = session.sync(history[first : first + 8])

        assert (info.reason, info.diverged_at) == ("windowed", kept)
        assert session.text.count("\n") == 8 + kept


def test_full_history_goes_on_behind_a_window(stage: Stage) -> None:
    """With history="full" the window is the end of what is held."""
    session = stage.client.session(history="full")
    history = steps(12)
    session.sync(history[:8])
    for first in (2, 4):
        info = session.sync(history[first : first + 8])

        assert info.reason == "windowed"
        assert session.text.count("\n") == first + 8


def test_a_window_with_a_gap_begins_anew(stage: Stage) -> None:
    """What nobody saw between cannot be made up: no stale prefix is used."""
    session = stage.client.session(history="full")
    history = steps(20)
    session.sync(history[:6])
    info = session.sync(history[10:16])

    assert info.reason == "edited"
    assert session.text.count("\n") == 6


def test_results_in_another_order_are_the_same(stage: Stage) -> None:
    """Tools that ran side by side end in any order."""
    asked = [user("Look."), agent("", tool_calls=CALLS)]
    one, other = [result("a1", "found"), result("b2", "nothing")], [result("b2", "nothing")]
    session = stage.client.session()
    session.sync([*asked, *one])
    before = session.head

    assert session.sync([*asked, *other, one[0]]).reason == "appended"
    assert session.head == before


def test_agents_take_turns_in_one_thread(stage: Stage) -> None:
    """Each finds its own branch by what its history holds."""
    first, second = stage.client.session("shared"), stage.client.session("shared")
    one, two = [user("You plan.")], [user("You test.")]
    first.sync(one)
    assert second.sync(two).reason == "edited"
    for number in range(3):
        one.append(agent(f"plan {number}"))
        two.append(agent(f"test {number}"))
        assert first.sync(one).reason == "appended"
        assert second.sync(two).reason == "appended"


def test_time_travel_finds_the_longest_prefix(session: Session) -> None:
    """An earlier checkpoint with another future."""
    info = sync(session, [*steps(2), agent("Another way.")])

    assert (info.reason, info.diverged_at) == ("edited", 3)


def test_a_changed_system_prompt_forks(stage: Stage) -> None:
    """It is the first turn, so nothing after it can be taken for the old one."""
    stage.client.session("thread", system="Be brief.").sync(steps(3))
    info = stage.client.session("thread", system="Be kind.").sync(steps(3))

    assert (info.reason, info.diverged_at) == ("edited", 0)


def test_a_lost_session_is_expired(session: Session, stage: Stage) -> None:
    """The other side dropped it; the client sends all of it again, and says so."""
    head = session.head
    forget(stage, "thread")
    info = session.append(agent("And on."))

    assert info.reason == "expired"
    assert session.head != head
    assert session.text.count("\n") == 7


def test_after_a_rewind_what_follows_is_appended(session: Session) -> None:
    """Going back was said; the branch left behind stays."""
    heads = [session.head]
    session.append(agent("one"))
    heads.append(session.head)
    session.rewind(heads[0])

    assert session.append(agent("two")).reason == "appended"
    session.rewind(heads[1])
    assert session.text.endswith('"one"}\n')


def test_a_fork_is_a_session_of_its_own(session: Session) -> None:
    """What happens to one does not happen to the other."""
    fork = session.fork()
    fork.append(agent("only here"))

    assert fork.id != session.id
    assert "only here" not in session.text
    assert session.append(agent("only there")).reason == "appended"


def test_two_writers_by_append(stage: Stage) -> None:
    """An append without a parent follows what the other one appended in the meantime."""
    one, other = stage.client.session("pair"), stage.client.session("pair")
    one.append("a")
    other.append("b")
    one.append("c")

    assert (one.text, other.text) == ("abc", "ab")


def test_an_old_parent_makes_a_branch(stage: Stage) -> None:
    """Whoever names a parent means it."""
    session = stage.client.session()
    parent = session.append("a").head
    session.append("b")
    session.append("c", parent=parent)

    assert session.text == "ac"


def test_tenants_share_nothing(stage: Stage) -> None:
    """The same key and the same text are two sessions, and two histories to compute."""
    text = "a long enough text, " * 20
    # Where nothing is read ahead, what a first question reuses is somebody else's.
    with Client.local(stage.engine, eager=False) as client:
        for tenant in ("one", "two"):
            session = client.session("same", tenant=tenant)
            session.append(text)
            assert session.ask(ASKED).session.reused_tokens == 0
    with pytest.raises(SessionNotFound):
        stage.client.session("same", tenant="three").rewind("nowhere")


def test_joined_names_are_not_taken_for_each_other(stage: Stage) -> None:
    """A tenant and a key that read the same side by side are still apart."""
    stage.client.session("b", tenant="a/").append("secret")
    other = stage.client.session("/b", tenant="a")
    other.append("mine")

    assert other.text == "mine"


def forget(stage: Stage, key: str) -> None:
    """Let the serving side lose a session."""
    stage.client._transport.runtime.drop("", key)  # type: ignore[attr-defined]
