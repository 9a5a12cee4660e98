"""Every label is one token where the reply begins."""

from __future__ import annotations

from string import ascii_uppercase, digits
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models
from transformers import PreTrainedTokenizerFast

from flide_engine.errors import ModelLoadError
from flide_engine.formats import Formatter, Question, parse_question
from flide_engine.formats.labels import Labels
from flide_engine.formats.template import ChatTemplate

NOUL = parse_question({"type": "noul", "instructions": "Safe?"})


def choice(count: int) -> Question:
    """A choice with so many options."""
    return parse_question({"type": "choice", "criteria": {str(i): None for i in range(count)}})


@pytest.fixture(scope="session")
def labels(tokenizer: PreTrainedTokenizerFast) -> Labels:
    """The labels of the tokenizer in turn."""
    return Labels(ChatTemplate(tokenizer))


def test_labels_are_letters_then_pairs_of_letters(labels: Labels) -> None:
    """Up to 26 options are lettered; the pairs that follow are in order."""
    words = [label.word for label in labels.of(choice(255))]
    assert "".join(words[:26]) == ascii_uppercase
    assert words[26:29] == ["AA", "AB", "AC"]
    assert words[26:] == sorted(words[26:], key=lambda word: (len(word), word))


def test_nouls_and_scores_have_their_words(labels: Labels) -> None:
    """Yes comes before no, as true before false."""
    score = parse_question({"type": "score", "criteria": ["level"] * 10})
    assert [label.word for label in labels.of(NOUL)] == ["yes", "no"]
    assert "".join(label.word for label in labels.of(score)) == digits


@pytest.mark.parametrize("question", [choice(255), NOUL])
def test_a_label_is_the_first_token_of_such_a_reply(
    tokenizer: PreTrainedTokenizerFast, labels: Labels, question: Question
) -> None:
    """A reply that says a label begins with that token, after exactly the prompt."""
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "x"}],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    chosen = labels.of(question)
    for label in chosen:
        replied = tokenizer(prompt + label.word, add_special_tokens=False)["input_ids"]
        assert replied == [*ids, label.token_id]
    assert len({label.token_id for label in chosen}) == len(chosen)


def tiny(words: list[str]) -> Any:
    """A tokenizer whose only merges build these two-letter words."""
    characters = sorted({chr(i) for i in range(32, 127)} | {"\n"})
    vocab = {token: index for index, token in enumerate([*characters, *words])}
    merges = [(word[:-1], word[-1]) for word in words]
    backend = Tokenizer(models.BPE(vocab, merges))
    backend.add_special_tokens([AddedToken("<turn>", normalized=False)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template="{{ messages[0]['content'] }}<turn>"
    )


def test_labels_fall_back_to_a_capital_yes_and_no() -> None:
    """Where yes is no token but Yes is, label and prompt say Yes."""
    tokenizer = tiny(["Ye", "Yes", "No", "ye", "no"])
    (branch,) = Formatter(tokenizer).plan("state", {"q": NOUL}).branches
    assert tokenizer.convert_ids_to_tokens(branch.label_ids) == ["Yes", "No"]
    prompt = "".join(tokenizer.convert_ids_to_tokens(branch.token_ids))
    assert prompt.endswith("\nYes\nNo\nAnswer with Yes or No only.<turn>")


def test_a_tokenizer_without_yes_and_no_is_refused() -> None:
    """The model could not be read at its first token."""
    with pytest.raises(ModelLoadError, match="yes and no"):
        Formatter(tiny([]))


def test_too_few_labels_are_an_error_when_they_are_needed() -> None:
    """A tokenizer with few labels still answers questions with few options."""
    formatter = Formatter(tiny(["ye", "yes", "no", "AA"]))
    assert formatter.plan("state", {"q": choice(27)}).branches[0].label_ids.size == 27
    with pytest.raises(ModelLoadError, match="27 labels for the 28 options"):
        formatter.plan("state", {"q": choice(28)})
