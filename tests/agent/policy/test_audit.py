"""The audit: a line for every decision, no text in it, and no trouble for the caller."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import re
import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

from flide_agent.exceptions import InvalidInput
from flide_agent.policy import (
    AuditRecord,
    AuditSink,
    JsonLines,
    MemorySink,
    Policy,
    Rule,
    decided,
    failed,
    judge,
)
from flide_agent.policy.audit import CountingSink
from flide_agent.types import Answer, Choice, Noul, Score
from tests.agent.policy.strategies import GUARD, JSON, choice, decision, noul, score

if TYPE_CHECKING:
    from flide_agent.policy import Decision

SECRET = "hunter2"
KEYS = [
    "time",
    "id",
    "action",
    "would",
    "rule",
    "p",
    "reason",
    "degraded",
    "shadow",
    "replayed",
    "policy",
    "model",
    "tenant",
    "session",
    "head",
    "tool",
    "probabilities",
    "new_tokens",
    "reused_tokens",
    "ms",
]
FULL = Path("/dev/full")


def lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file."""
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


@pytest.mark.parametrize(("p", "action"), [(0.1, "allow"), (0.7, "review"), (0.95, "block")])
def test_every_decision_is_recorded(tmp_path: Path, p: float, action: str) -> None:
    """Allow, review and block alike, with all that is known about them."""
    path = tmp_path / "audit.jsonl"
    made = decision(p, model="jev-2026", session="s", head="h", tool="refund")

    JsonLines(path).write(
        AuditRecord(decision=made, tenant="t", new_tokens=7, reused_tokens=900, ms=3.5)
    )
    (line,) = lines(path)
    assert list(line) == KEYS
    now = datetime.now(UTC)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert now - timedelta(minutes=1) < datetime.fromisoformat(line.pop("time")) <= now
    assert line == {
        "id": made.id,
        "action": action,
        "would": action,
        "rule": "injection",
        "p": p,
        "reason": made.reason,
        "degraded": False,
        "shadow": False,
        "replayed": False,
        "policy": GUARD.digest,
        "model": "jev-2026",
        "tenant": "t",
        "session": "s",
        "head": "h",
        "tool": "refund",
        "probabilities": {"injection": p},
        "new_tokens": 7,
        "reused_tokens": 900,
        "ms": 3.5,
    }


def test_what_is_not_known_is_null(tmp_path: Path) -> None:
    """Every line has the same fields; shadow, replays and failures can be told apart."""
    sink = JsonLines(tmp_path / "audit.jsonl")
    shadow = decision(0.95, Policy(rules=GUARD.rules, mode="shadow"))
    for made in (shadow, dataclasses.replace(shadow, replayed=True), failed(GUARD, OSError())):
        sink.write(AuditRecord(decision=made))

    first, again, down = lines(tmp_path / "audit.jsonl")
    assert list(first) == list(again) == list(down) == KEYS
    assert (first["action"], first["would"], first["shadow"]) == ("allow", "block", True)
    assert (again["id"], again["replayed"]) == (first["id"], True)
    assert (down["action"], down["degraded"], down["probabilities"]) == ("block", True, {})
    assert {down[key] for key in ("rule", "p", "model", "tenant", "head", "tool", "ms")} == {None}


def test_the_numbers_of_all_rules_are_recorded() -> None:
    """Not only of the one that decided: the probability of yes, of options, and a score."""
    policy = Policy(
        [
            Rule("a", Noul(instructions="?"), block=0.5),
            Rule("b", Choice(criteria={"x": None, "y": None}), block={"x": 0.5}),
            Rule("c", Score(criteria=["low", "high"]), block=1),
        ]
    )
    answers: dict[str, Answer] = {"a": noul(0.25), "b": choice(x=0.375, y=0.625), "c": score(0.5)}
    fields = AuditRecord(decision=decided(policy, judge(policy, answers))).fields()

    assert fields["probabilities"] == {"a": 0.25, "b": {"x": 0.375, "y": 0.625}, "c": 0.5}


def telling() -> AuditRecord:
    """A record that could give away a secret in every place where text passes by."""
    policy = Policy([Rule("leak", Noul(instructions=f"Is {SECRET} in it?"), block=0.5)])
    made = failed(policy, ValueError(f'the text "{SECRET}" was given'))
    state = {"tool": "send", "arguments": {"body": SECRET, SECRET: 1}}
    return AuditRecord(decision=made, state=state, questions=policy.questions())


def test_no_text_is_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither states nor arguments, instructions nor an error's words; nor in the log."""
    path = tmp_path / "audit.jsonl"
    JsonLines(path).write(telling())
    stream = io.StringIO()
    stream.close()
    JsonLines(stream).write(telling())

    assert SECRET not in path.read_text()
    assert lines(path)[0]["reason"] == "The engine could not be asked (ValueError)."
    assert len(caplog.records) == 1
    assert SECRET not in caplog.text


def test_reasons_of_verdicts_hold_no_text() -> None:
    """They are made of the policy's own names and of numbers, whatever was asked about what."""
    policy = Policy([Rule("leak", Noul(instructions=f"Is {SECRET} in it?"), block=0.5)])
    answers: list[Any] = [noul(0.1), noul(0.9), {"noul": SECRET}, None]

    for answer in answers:
        verdict = judge(policy, {"leak": answer}, tool=f"send_{SECRET}")
        assert SECRET not in verdict.reason


def test_text_is_recorded_where_it_is_asked_for(tmp_path: Path) -> None:
    """Then the state, the questions and the error's words are there."""
    path = tmp_path / "audit.jsonl"
    record = telling()
    JsonLines(path, text=True).write(record)

    (line,) = lines(path)
    assert list(line) == [*KEYS, "state", "questions"]
    assert line["state"] == record.state
    assert line["questions"]["leak"]["instructions"] == f"Is {SECRET} in it?"
    assert line["reason"] == (
        f'The engine could not be asked (ValueError): the text "{SECRET}" was given'
    )


@given(JSON)
def test_any_state_is_one_line(state: Any) -> None:
    """Line breaks of all kinds, and halves of characters, stay inside the line."""
    stream = io.StringIO()
    JsonLines(stream, text=True).write(
        AuditRecord(decision=decision(), state=[state, "\n\r\u2028\x85\ud83d"])
    )

    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["state"] == [state, "\n\r\u2028\x85\ud83d"]


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """It is made with mode 0600, and added to afterwards."""
    path = tmp_path / "audit.jsonl"
    for _ in range(2):
        JsonLines(str(path)).write(AuditRecord(decision=decision()))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(lines(path)) == 2


def test_a_file_may_be_rotated(tmp_path: Path) -> None:
    """After it was moved away, a new one is begun."""
    path = tmp_path / "audit.jsonl"
    sink = JsonLines(path)
    sink.write(AuditRecord(decision=decision()))
    path.rename(tmp_path / "old.jsonl")
    sink.write(AuditRecord(decision=decision()))

    assert len(lines(path)) == len(lines(tmp_path / "old.jsonl")) == 1


def test_a_file_that_cannot_be_opened_is_refused_at_once(tmp_path: Path) -> None:
    """A guard without its record should not even start."""
    path = tmp_path / "missing" / "audit.jsonl"

    with pytest.raises(InvalidInput) as refused:
        JsonLines(path)
    assert str(refused.value) == (
        f"the audit file {str(path)!r} cannot be opened (No such file or directory); "
        "name a file in a folder that exists and may be written to."
    )


def test_threads_and_sinks_may_share_a_file(tmp_path: Path) -> None:
    """Every line is whole and none is lost."""
    path = tmp_path / "audit.jsonl"
    sinks = [JsonLines(path, text=True), JsonLines(path, text=True)]
    made: list[Decision] = [decision() for _ in range(8)]

    def write(number: int) -> None:
        for count in range(50):
            state = {"count": count, "padding": "x" * 300 * number}
            sinks[number % 2].write(AuditRecord(decision=made[number], state=state))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = [(line["id"], line["state"]["count"]) for line in lines(path)]
    assert sorted(found) == sorted((one.id, count) for one in made for count in range(50))
    assert [sink.failures for sink in sinks] == [0, 0]


@pytest.mark.skipif(not FULL.exists(), reason="no disk that is always full")
def test_a_full_disk_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is nobody's business but the operator's."""
    sink = JsonLines(FULL)
    for _ in range(3):
        sink.write(AuditRecord(decision=decision()))

    assert sink.failures == 3
    assert [(record.levelno, record.name) for record in caplog.records] == [
        (logging.WARNING, "flide_agent.policy.audit")
    ]
    assert caplog.messages == [
        "The record of a decision was lost (OSError: No space left on device); further ones are "
        "only counted, in the sink's `failures`."
    ]


SHORT_OF_ROOM = """
import json, resource, sys
from flide_agent.policy import AuditRecord, JsonLines
from tests.agent.policy.strategies import decision

sink = JsonLines(sys.argv[1])
sink.write(AuditRecord(decision=decision(0.1)))
used = len(open(sys.argv[1]).read())
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (used + 10, most))
sink.write(AuditRecord(decision=decision(0.2)))
sink.write(AuditRecord(decision=decision(0.3)))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
sink.write(AuditRecord(decision=decision(0.4)))
print(sink.failures)
"""


def test_a_torn_line_spoils_no_other(tmp_path: Path) -> None:
    """Where only a part of a line found room, the next record begins on a line of its own."""
    path = tmp_path / "audit.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_ROOM, str(path)], capture_output=True, text=True, check=True
    )

    first, torn, last = path.read_text().splitlines()
    assert done.stdout == "2\n"
    assert json.loads(first)["p"] == 0.1
    assert torn == '{"time":"2'
    assert json.loads(last)["p"] == 0.4


def test_streams(caplog: pytest.LogCaptureFixture) -> None:
    """A stream is written to and flushed; closing it loses records and nothing else."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written)
    sink = JsonLines(stream)
    sink.write(AuditRecord(decision=decision(0.7)))
    assert json.loads(written.getvalue())["action"] == "review"

    stream.close()
    sink.write(AuditRecord(decision=decision()))
    assert sink.failures == 1
    assert "(ValueError)" in caplog.messages[0]


def test_a_state_that_is_no_json_is_shown(tmp_path: Path) -> None:
    """What JSON cannot hold is shown by its repr; a state inside itself is a lost record."""
    endless: list[Any] = []
    endless.append(endless)
    sink = JsonLines(tmp_path / "audit.jsonl", text=True)
    for state in ({"at": datetime(2026, 1, 1)}, endless):
        sink.write(AuditRecord(decision=decision(), state=state))

    (line,) = lines(tmp_path / "audit.jsonl")
    assert line["state"] == {"at": "datetime.datetime(2026, 1, 1, 0, 0)"}
    assert sink.failures == 1


def test_memory_keeps_records() -> None:
    """For tests: the records themselves, oldest first."""
    sink: AuditSink = MemorySink()
    made = [AuditRecord(decision=decision()) for _ in range(3)]
    for record in made:
        sink.write(record)

    assert isinstance(sink, MemorySink)
    assert sink.records == made


class Broken(CountingSink):
    """A sink of somebody else."""

    def _emit(self, record: AuditRecord) -> None:
        raise RuntimeError(record.decision.id)


def test_sinks_of_other_makes_do_not_raise_either(caplog: pytest.LogCaptureFixture) -> None:
    """Deriving from the base is enough to count instead of raising."""
    sink = Broken()
    for _ in range(2):
        sink.write(AuditRecord(decision=decision()))

    assert sink.failures == 2
    assert len(caplog.records) == 1
