"""A chat template is taken apart exactly, or refused."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers, pre_tokenizers

from flide_engine.errors import ModelLoadError
from flide_engine.formats.template import ChatTemplate

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedTokenizerFast

LOOK_ALIKES = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>"]


@pytest.fixture(scope="session")
def template(tokenizer: PreTrainedTokenizerFast) -> ChatTemplate:
    """The template of the tokenizer in turn."""
    return ChatTemplate(tokenizer)


@pytest.fixture
def changed(smollm2: PreTrainedTokenizerFast) -> Callable[[str], PreTrainedTokenizerFast]:
    """SmolLM2's tokenizer with another chat template."""

    def change(chat_template: str) -> PreTrainedTokenizerFast:
        tokenizer = copy.deepcopy(smollm2)
        tokenizer.chat_template = chat_template
        return tokenizer

    return change


def applied(tokenizer: PreTrainedTokenizerFast, content: str, **options: Any) -> Any:
    """What transformers makes of one user turn."""
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        enable_thinking=False,
        return_dict=False,
        **options,
    )


@settings(deadline=None)
@given(text=st.text(max_size=40))
def test_the_parts_make_the_prompt(
    tokenizer: PreTrainedTokenizerFast, template: ChatTemplate, text: str
) -> None:
    """For any text the ids are those of transformers."""
    assert template.encode(text) == applied(tokenizer, text)


@settings(deadline=None)
@given(pieces=st.lists(st.sampled_from([*LOOK_ALIKES, " ", "\n", "a", "user\n"]), max_size=8))
def test_a_look_alike_of_a_control_token_stays_text(
    tokenizer: PreTrainedTokenizerFast, template: ChatTemplate, pieces: list[str]
) -> None:
    """Text that names control tokens brings none into the prompt, and is all there."""
    text = "".join(pieces)
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    ids = template.encode(text)
    assert [i for i in ids if i in added] == [i for i in template.encode("") if i in added]
    assert tokenizer.decode(ids) == applied(tokenizer, text, tokenize=False)


def test_every_added_token_stays_text(
    tokenizer: PreTrainedTokenizerFast, template: ChatTemplate
) -> None:
    """No added token, special or not, can be written, alone or among others."""
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    names = [token.content for token in added.values()]
    for text in [*names, "".join(names), " ".join(names)]:
        assert sum(i in added for i in template.encode(text)) == sum(
            i in added for i in template.encode("")
        )


def test_published_tokenizers_can_be_cut(template: ChatTemplate) -> None:
    """Where their patterns end a pre-token is known."""
    assert template.cuts


@settings(deadline=None)
@given(state=st.text(max_size=30), rest=st.text(max_size=30))
def test_a_cut_before_the_blank_changes_nothing(
    template: ChatTemplate, state: str, rest: str
) -> None:
    """The two sides of a cut are the whole, whatever they say."""
    start, _ = template.encode_start(f"{template.before}x{state}:", 0)
    whole = template.encode(f"x{state}: {rest}.")
    assert template.opening_ids + start + template.encode_rest(f" {rest}.") == whole


@pytest.mark.parametrize(
    ("chat_template", "said"),
    [
        ("{{ messages[0]['content'] | upper }}", "exactly once"),
        ("{{ messages[0]['content'] * 2 }}", "exactly once"),
        ("a prompt without it", "exactly once"),
        ("<|im_start|>{{ messages[0]['content'].lstrip() }}<|im_end|>", "more than trimming"),
        ("{{ messages[0]['content'].replace('\\n\\n', '\\n') }}", "more than trimming"),
        ("{{ messages[0]['content'] | e }}", "more than trimming"),
        ("{% if messages[0]['content'] | length < 5 %}short{% endif %}"
         "{{ messages[0]['content'] }}", "more than trimming"),
        ("{{ raise_exception('system turn missing') }}", "system turn missing"),
        ("{{ messages[0]['content'] ", "chat template fails"),
        ("", "no chat template"),
    ],
)  # fmt: skip
def test_a_template_that_does_something_else_is_refused(
    changed: Callable[[str], PreTrainedTokenizerFast], chat_template: str, said: str
) -> None:
    """What cannot be replayed is refused when the model is loaded."""
    with pytest.raises(ModelLoadError, match=said):
        ChatTemplate(changed(chat_template))


@pytest.mark.parametrize(
    "chat_template",
    [
        "User: {{ messages[0]['content'] }}\n\nAssistant:",
        "{{ messages[0]['content'] | trim }}",
        "<|im_start|>{{ messages[0]['content'] }}<|im_end|>",
        "<|im_start|> a\n {{ messages[0]['content'] }}\t b<|im_end|>\n<|im_start|>",
    ],
)
def test_a_template_needs_no_control_tokens(
    changed: Callable[[str], PreTrainedTokenizerFast], chat_template: str
) -> None:
    """Words of the template may touch the text; they are encoded with it."""
    tokenizer = changed(chat_template)
    template = ChatTemplate(tokenizer)
    for text in ("", " 7 \n", "x", "\n\n\u65e5\u672c"):
        assert template.encode(text) == applied(tokenizer, text)


def test_a_tokenizer_without_a_backend_is_refused() -> None:
    """A tokenizer written in Python does not tell how it splits."""

    class Slow:
        is_fast = False

    with pytest.raises(ModelLoadError, match="Slow has no tokenizers backend"):
        ChatTemplate(Slow())


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
def test_a_control_token_that_eats_its_neighbours_is_refused(
    smollm2: PreTrainedTokenizerFast, flag: str
) -> None:
    """Beside the text, such a token would change with it."""
    tokenizer = copy.deepcopy(smollm2)
    tokenizer.backend_tokenizer.add_tokens([AddedToken("<turn>", normalized=False, **{flag: True})])
    tokenizer.chat_template = "<turn>{{ messages[0]['content'] }}<turn>"
    with pytest.raises(ModelLoadError, match=r"'<turn>' beside the user's text"):
        ChatTemplate(tokenizer)


def test_a_blank_put_before_the_prompt_is_refused(blended: PreTrainedTokenizerFast) -> None:
    """A tokenizer that treats the first piece differently cannot be put together from parts."""
    tokenizer = copy.deepcopy(blended)
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    with pytest.raises(ModelLoadError, match="not those of the prompt's parts"):
        ChatTemplate(tokenizer)
