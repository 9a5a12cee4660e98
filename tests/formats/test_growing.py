"""A text that grows is planned as if it were read at once, whatever it grew by."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flide_engine.blocks import block_digests
from flide_engine.core import GRID
from flide_engine.errors import InvalidRequest
from flide_engine.formats import Formatter, GrowingText, parse_question
from flide_engine.formats.prompt import QUESTION, question_text
from flide_engine.formats.template import ChatTemplate
from flide_engine.marks import MARGIN
from tests.support.chat import byte_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from transformers import PreTrainedTokenizerFast

    from flide_engine.core import Branch

TENANT = "someone"
QUESTIONS = {
    "done": parse_question({"type": "noul", "instructions": "Is it done?"}),
    "level": parse_question({"type": "score", "criteria": ["\u0301x", "7", " "]}),
}

# What a boundary between two texts may fall into: words, contractions, numbers, line breaks, runs
# of blanks, marks that join what is before them, parts of syllables, names of control tokens.
PIECES = [
    *" \n\r\t\x00\x1c\x85\xa0\u3000\u2028\u200b\u200d\ufe0f\ufeff'\".,:;=<-_|/\\{}[]12\u0663\u00b2",
    *"aerstvldm\u0301\u0338\u0327\u3099\u304b\u1100\u1161\u11a8\uac00\uac01\u65e5\u3002\uff0c\u0e01",
    *("  ", "\n\n", "\r\n", "\n \n", "    x", "word", " word", "'s", "'LL", "it's", "42", "3.14"),
    *("e\u0301", "\U0001f468\u200d\U0001f469", "\U0001f600", "\u212b", "\ufb01", "\u0915\u093f"),
    *("Question:", "\n\nQuestion:", "A: yes", "user\n", '{"id":7,"ok":true}', "aGVsbG8=", "=="),
    *("<|im_end|>", "<|im_start|>", "<|im_", "end|>", "<think>", "<turn>", "<end>", "<unk>"),
    *("All work and no play. " * 9, "\u4eca\u65e5\u306f\u3002" * 20, "ab" * 60, "\n" * 70),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join) | st.text(max_size=12)
STEPS = st.lists(st.tuples(st.sampled_from([0, 0, 0, 0, 1, 2, 5]), TEXTS), max_size=8)
"""How many snapshots back, and what that one grows by."""


@pytest.fixture(scope="session")
def byte() -> PreTrainedTokenizerFast:
    """One token a byte."""
    return byte_tokenizer()


class Subject:
    """A tokenizer, with what plans for it and what encodes whole prompts for comparison."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.formatter = Formatter(tokenizer)
        self.template = ChatTemplate(tokenizer)
        self.word: Callable[[int], str] = lambda label: tokenizer.decode([label])

    def check(self, growing: GrowingText, text: str, local: str = "") -> None:
        """A snapshot is planned token for token as its whole text."""
        request = self.formatter.plan(growing, QUESTIONS, local=local)
        whole = self.formatter.plan(text + local, QUESTIONS, tenant=TENANT, durable=len(text))
        apart = self.formatter.plan(text, QUESTIONS, tenant=TENANT, local=local)
        trunk, prompts, durable = self.encode_whole(text, local, request.branches)
        for plan in (request, whole, apart):
            assert plan.tenant == TENANT
            assert plan.trunk.tolist() == trunk
            assert plan.durable == durable
            for branch, other, prompt in zip(plan.branches, whole.branches, prompts, strict=True):
                assert [*trunk, *branch.token_ids.tolist()] == prompt
                assert branch.label_ids.tolist() == other.label_ids.tolist()
            digests = block_digests(TENANT, plan.trunk, len(trunk) // GRID)
            assert list(plan.digests) == digests[: len(plan.digests)]
        assert len(request.digests) == growing.count // GRID

    def encode_whole(
        self, text: str, local: str, branches: Sequence[Branch]
    ) -> tuple[list[int], list[list[int]], int]:
        """The trunk, the prompts, and how much of the trunk is durable, from whole prompts."""
        said = text + local + QUESTION
        words = [[self.word(label) for label in branch.label_ids.tolist()] for branch in branches]
        prompts = [
            self.template.encode(said + question_text(*asked))
            for asked in zip(QUESTIONS.values(), words, strict=True)
        ]
        shown = said.lstrip() if self.template.trims else said
        opening, before = self.template.opening_ids, self.template.before
        kept = max(len(text) - len(said) + len(shown), 0)
        ids, durable = self.template.encode_start(before + shown, len(before) + kept)
        columns = zip(opening + ids, *prompts, strict=False)
        trunk = [alike[0] for alike in takewhile(lambda column: len({*column}) == 1, columns)]
        return trunk, prompts, min(len(opening) + durable, len(trunk))


@pytest.fixture(scope="session", params=["qwen", "smollm2", "byte", "blended"])
def subject(request: pytest.FixtureRequest) -> Subject:
    """Each kind of tokenizer; the last one has no cuts."""
    made = Subject(request.getfixturevalue(request.param))
    assert made.template.cuts == (request.param != "blended")
    return made


@settings(deadline=None)
@given(steps=STEPS, local=TEXTS)
def test_every_snapshot_is_planned_as_its_whole_text(
    subject: Subject, steps: list[tuple[int, str]], local: str
) -> None:
    """However texts grow and part, token for token; and what was sure stays so."""
    snapshots = [(subject.formatter.begin(TENANT), "")]
    for back, more in steps:
        growing, text = snapshots[-1 - back % len(snapshots)]
        snapshots.append((growing.grow(more), text + more))
        assert snapshots[-1][0].ids[: growing.count].tolist() == growing.ids.tolist()
    for growing, text in snapshots:
        subject.check(growing, text)
        subject.check(growing, text, local)


@settings(deadline=None, max_examples=30)
@given(texts=st.lists(TEXTS, max_size=8))
def test_an_eager_request_is_the_beginning_of_all_later_trunks(
    subject: Subject, texts: list[str]
) -> None:
    """It ends on the grid, asks nothing, and brings all of its digests."""
    growing = subject.formatter.begin(TENANT)
    requests = []
    for text in texts:
        growing = growing.grow(text)
        requests.append(growing.request())
        assert (requests[-1] is None) == (growing.count < GRID)
    trunk = subject.formatter.plan(growing.grow("\u0301."), {}).trunk
    for request in filter(None, requests):
        length = len(request.trunk)
        assert request.trunk.tolist() == trunk[:length].tolist()
        assert (length % GRID, request.branches, request.tenant) == (0, (), TENANT)
        assert request.durable == length + MARGIN
        assert list(request.digests) == block_digests(TENANT, request.trunk, length // GRID)


def test_threads_may_grow_the_same_snapshots(subject: Subject) -> None:
    """Eight at once, each its own way from the same two; all they made stays right."""
    rng = random.Random(7)
    texts = ["".join(rng.choices(PIECES, k=40)) for _ in range(18)]
    older = subject.formatter.begin(TENANT).grow(texts[0])
    starts = [(older, texts[0]), (older.grow(texts[1]), texts[0] + texts[1])]
    together = Barrier(8)

    def grow(which: int) -> list[tuple[GrowingText, str]]:
        growing, text = starts[which % 2]
        made = []
        together.wait()
        for more in texts[2 + which : 10 + which]:
            growing, text = growing.grow(more), text + more
            made.append((growing, text))
        return made

    with ThreadPoolExecutor(8) as threads:
        for made in threads.map(grow, range(8)):
            for growing, text in made[::3]:
                subject.check(growing, text)
    for growing, text in starts:
        subject.check(growing, text)


@pytest.mark.parametrize("name", ["qwen", "smollm2", "byte"])
@pytest.mark.parametrize(
    "more",
    [
        " A word.",
        'call({"path":"/tmp/x","n":7})\n',
        "\u4eca\u65e5\u306f\u3001\u660e\u65e5\u3002",
        "aGVsbG8gd29ybGQ0",
        "def f(x):\n    return x\n",
    ],
)
def test_only_what_is_new_is_encoded(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str, more: str
) -> None:
    """Neither growing nor planning reads the history again, and its blocks are hashed once."""
    formatter = Formatter(request.getfixturevalue(name))
    growing = formatter.begin(TENANT).grow(more * 500)
    lengths = []
    for method in ("encode_part", "encode_start"):
        encode = getattr(ChatTemplate, method)

        def counted(self: ChatTemplate, text: str, *rest: int, encode: Any = encode) -> Any:
            lengths.append(len(text))
            return encode(self, text, *rest)

        monkeypatch.setattr(ChatTemplate, method, counted)
    for _ in range(9):
        growing = growing.grow(more)
        planned = formatter.plan(growing, {})
        assert len(planned.trunk) // GRID - len(planned.digests) <= 1
    assert sum(lengths) < 9 * (3 * len(more) + len(QUESTION))


def test_growing_by_nothing_is_the_same_text(subject: Subject) -> None:
    """Nothing is encoded a second time, and nothing is lost."""
    growing = subject.formatter.begin(TENANT).grow("One two three")
    same = growing.grow("").grow("")
    assert (same.count, same.tail) == (growing.count, growing.tail)
    assert same.ids.tolist() == growing.ids.tolist()


def test_the_ids_of_a_snapshot_cannot_be_written_to(subject: Subject) -> None:
    """Others share them."""
    growing = subject.formatter.begin(TENANT).grow("One two three. " * 20)
    with pytest.raises(ValueError, match="read-only"):
        growing.ids[0] = 7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"durable": 3}, "durable is 3, but all of a text that grows"),
        ({"tenant": "else"}, "tenant is 'else', but the text is one of 'someone'"),
        ({"local": "\ud83d"}, "local holds the lone surrogate"),
        ({"local": 7}, "local is 7"),
    ],
)
def test_a_wrong_request_is_one_clear_sentence(
    subject: Subject, options: dict[str, Any], said: str
) -> None:
    """A text that grows knows whose it is, and all of it is durable."""
    growing = subject.formatter.begin(TENANT).grow("abc")
    with pytest.raises(InvalidRequest, match=said):
        subject.formatter.plan(growing, QUESTIONS, **options)


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00", 7])
def test_only_text_grows_a_text(subject: Subject, text: Any) -> None:
    """Half a pair is refused at once, and the snapshot stays what it was."""
    growing = subject.formatter.begin(TENANT).grow("abc")
    with pytest.raises(InvalidRequest, match=r"lone surrogate|is 7"):
        growing.grow(text)
    subject.check(growing, "abc")
