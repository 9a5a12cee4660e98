"""Fresh rules, policies and answers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from flide_agent.policy import Decision, Policy, Rule, decided, judge
from flide_agent.types import (
    Answer,
    Choice,
    ChoiceAnswer,
    Noul,
    NoulAnswer,
    Question,
    Score,
    ScoreAnswer,
)

ACTIONS = ["allow", "review", "block"]
IDS = st.text("abc-. é🎯", min_size=1, max_size=4)
PROBABILITIES = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
TOOLS = [None, "refund_order", "read_mail", "Refund_all"]
PATTERNS = st.lists(st.sampled_from(["*", "refund_*", "read_????", "[Rr]efund*"]), min_size=1)

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(-2, 2)
    | st.text("xyz\n é", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("uvw"), inner, max_size=3),
    max_leaves=4,
)
TEXT = st.one_of(
    st.text("xyz\n é", min_size=1, max_size=8),
    st.dictionaries(st.text("uvw", min_size=1), JSON, min_size=1, max_size=3),
)


def noul(p: float) -> NoulAnswer:
    """An answer to a yes or no question."""
    return NoulAnswer(type="noul", noul=p)


def choice(**probabilities: float) -> ChoiceAnswer:
    """An answer to a choice."""
    best = max(probabilities, key=probabilities.__getitem__)
    return ChoiceAnswer(type="choice", choice=best, probabilities=probabilities, confidence=0.5)


def score(expectation: float) -> ScoreAnswer:
    """An answer on a scale, as far as rules look at it."""
    return ScoreAnswer(
        type="score", score=expectation, legend={"0": "low"}, probabilities={"0": 1}, confidence=0.5
    )


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """A question of any type."""
    instructions = draw(TEXT)
    kind = draw(st.sampled_from(["noul", "choice", "score"]))
    if kind == "noul":
        return Noul(instructions=instructions)
    if kind == "choice":
        options = draw(st.lists(IDS, min_size=1, max_size=4, unique=True))
        described = {option: draw(st.none() | TEXT) for option in options}
        return Choice(instructions=instructions, criteria=described)
    return Score(instructions=instructions, criteria=draw(st.lists(TEXT, min_size=1, max_size=5)))


@st.composite
def thresholds(draw: st.DrawFn, top: float) -> dict[str, float]:
    """Block, review or both, up to a number."""
    low, high = sorted(draw(st.tuples(PROBABILITIES, PROBABILITIES)))
    both = {"review": low * top, "block": high * top}
    keep = draw(st.sampled_from([["review"], ["block"], ["review", "block"]]))
    return {name: both[name] for name in keep}


@st.composite
def rules(draw: st.DrawFn, key: str = "rule", sticky: bool | None = None) -> Rule:
    """A rule of any type, with or without hysteresis."""
    question = draw(questions())
    release = draw(st.booleans()) if sticky is None else sticky
    tools = draw(st.none() | PATTERNS)
    if not isinstance(question, Choice):
        top = len(question.criteria) - 1.0 if isinstance(question, Score) else 1.0
        given: dict[str, Any] = draw(thresholds(top))
        if release:
            given["release"] = min(given.values()) * draw(PROBABILITIES)
        return Rule(key, question, tools=tools, **given)
    watched = draw(st.lists(st.sampled_from(list(question.criteria)), min_size=1, unique=True))
    maps: dict[str, dict[str, float]] = {}
    for option in watched:
        limits = draw(thresholds(1.0))
        if release:
            limits["release"] = min(limits.values()) * draw(PROBABILITIES)
        for name, limit in limits.items():
            maps.setdefault(name, {})[option] = limit
    return Rule(
        key,
        question,
        block=maps.get("block"),
        review=maps.get("review"),
        release=maps.get("release"),
        tools=tools,
    )


@st.composite
def policies(draw: st.DrawFn, sticky: bool | None = None) -> Policy:
    """A policy of one to four rules."""
    ids = draw(st.lists(IDS, min_size=1, max_size=4, unique=True))
    return Policy(
        rules=[draw(rules(key, sticky)) for key in ids],
        on_error=draw(st.sampled_from(["allow", "review", "block"])),
        mode=draw(st.sampled_from(["enforce", "shadow"])),
        timeout=draw(st.floats(0.001, 100)),
    )


@st.composite
def answers_to(draw: st.DrawFn, asked: dict[str, Question]) -> dict[str, Answer]:
    """A good answer to every question."""
    answers: dict[str, Answer] = {}
    for key, question in asked.items():
        if isinstance(question, Noul):
            answers[key] = noul(draw(PROBABILITIES))
        elif isinstance(question, Score):
            answers[key] = score(draw(PROBABILITIES) * (len(question.criteria) - 1))
        else:
            weights = {option: draw(st.floats(0.01, 1)) for option in question.criteria}
            total = sum(weights.values())
            answers[key] = choice(**{option: w / total for option, w in weights.items()})
    return answers


GUARD = Policy(
    rules=[Rule("injection", Noul(instructions="Is it an attack?"), block=0.9, review=0.6)]
)


def decision(p: float = 0.1, policy: Policy = GUARD, **about: Any) -> Decision:
    """The decision of a policy about one probability."""
    answers: dict[str, Answer] = {rule.id: noul(p) for rule in policy.rules}
    return decided(policy, judge(policy, answers, tool=about.get("tool")), **about)
