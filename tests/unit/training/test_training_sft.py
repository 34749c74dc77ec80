"""SFT rows and steps: which tokens are trained, and that a step does not depend on its cutting."""

from __future__ import annotations

import pytest
import torch

from tiny import tiny_model, tiny_tokenizer
from workings.data.encoding import encode_demonstration
from workings.data.templates import PromptTemplate, load_template
from workings.errors import TemplateError
from workings.training.distributed import Ranks
from workings.training.optim import build_adamw
from workings.training.packing import pack, step_totals
from workings.training.sft import demonstration_row
from workings.training.step import policy_step
from workings.training.supervised_loss import supervised_loss
from workings.types import Demonstration, Message

TOKENIZER = tiny_tokenizer()
OWN = load_template("own")
EOS = TOKENIZER.eos_token_id
# Drops what stands before </think> in every turn but the last, as some reasoning models do.
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{{ m['content'].split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def conversation(*contents, response="the end", system=None):
    """A row of alternating turns, the first by the user; the last is the question."""
    roles = ["user", "assistant"] * len(contents)
    turns = [Message(role=role, content=text) for role, text in zip(roles, contents, strict=False)]
    if system is not None:
        turns.insert(0, Message(role="system", content=system))
    return Demonstration(
        id="set/3", question=contents[-1], response=response, messages=tuple(turns)
    )


def encoded(row, template=OWN, tokenizer=TOKENIZER, **options):
    return encode_demonstration(row, template, tokenizer, find_assistant_turns=True, **options)


def trained_text(example, trained):
    """What is trained, with a bar between stretches."""
    text, was = "", False
    for token, on in zip(example.ids, example.trained_mask(trained), strict=True):
        if on:
            text += ("" if was or not text else "|") + TOKENIZER.decode([token])
        was = on
    return text


# ------------------------------------------------------------------------------ trained tokens


def test_sft_trains_the_last_turn_every_assistant_turn_or_all():
    example = encoded(conversation("1+1?", "2", "and 2+2?", "hello 4", "3+3?", response="6"))
    assert trained_text(example, "completion") == "6<|im_end|>"
    assert trained_text(example, "assistant") == "2<|im_end|>|hello 4<|im_end|>|6<|im_end|>"
    whole = TOKENIZER.decode(example.ids[1:])
    assert trained_text(example, "all") == whole


def test_sft_assistant_is_completion_where_there_is_one_turn():
    for row in (conversation("1+1?"), Demonstration(id="a", question="1+1?", response="2")):
        example = encoded(row)
        assert (
            example.trained_mask("assistant") == example.mask == example.trained_mask("completion")
        )


def test_sft_assistant_turns_under_a_system_message_and_a_wrapped_question():
    template = PromptTemplate(name="t", mode="chat", before="Q: ", after=" Be brief.")
    example = encoded(conversation("1", "2", "3", system="S"), template)
    assert trained_text(example, "assistant") == "2<|im_end|>|the end<|im_end|>"


def test_sft_an_assistant_turn_that_types_a_control_token_is_trained_as_plain_text():
    example = encoded(conversation("1", "say <|im_end|> twice", "3"))
    assert trained_text(example, "assistant") == (
        "say <|im_end|> twice<|im_end|>|the end<|im_end|>"
    )
    trained = [
        i for i, on in zip(example.ids, example.trained_mask("assistant"), strict=True) if on
    ]
    assert trained.count(EOS) == 2


def test_sft_a_template_without_eos_in_its_history_ends_a_turn_with_its_text():
    tokenizer = tiny_tokenizer(
        chat_template="{% for m in messages %}[{{ m['role'] }}]{{ m['content'] | trim }}\n"
        "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    example = encoded(conversation("1", "two ", "3"), tokenizer=tokenizer)
    assert trained_text(example, "assistant") == "two|the end<|im_end|>"


def test_sft_a_template_that_drops_thoughts_is_refused_by_the_name_of_the_row():
    tokenizer = tiny_tokenizer(chat_template=FORGETFUL)
    row = conversation("1", "so</think>2", "3")
    with pytest.raises(
        TemplateError, match=r"set/3.*turn 1 .assistant. as a continuation"
    ) as caught:
        encoded(row, tokenizer=tokenizer)
    assert "trained_tokens=completion" in caught.value.hint
    assert encode_demonstration(row, OWN, tokenizer).assistant_spans == ()
    kept = encoded(conversation("1", "2", "3"), tokenizer=tokenizer)
    assert trained_text(kept, "assistant") == "2<|im_end|>|the end<|im_end|>"


def test_sft_a_token_that_spans_the_edge_of_a_turn_is_refused():
    """`he` + `llo` is one token, so the turn `llo` after `he` has no first token of its own."""
    tokenizer = tiny_tokenizer(
        chat_template="{% for m in messages %}{{ 'he' if m['role'] == 'assistant' else '' }}"
        "{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}he{% endif %}"
    )
    with pytest.raises(TemplateError, match="set/3"):
        encoded(conversation("1", "llo", "3"), tokenizer=tokenizer)


def test_sft_the_first_id_of_plain_text_is_not_trained():
    row = Demonstration(id="a", question="", response="abc")
    example = encoded(row)
    assert example.trained_mask("all") == (False, True, True, True)
    train_row = demonstration_row(example, 0, trained_tokens="all")
    assert (len(train_row.prompt_ids), train_row.num_trained) == (1, 3)


@pytest.mark.parametrize("trained", ["completion", "assistant", "all"])
def test_sft_a_row_holds_its_ids_once_and_trains_its_mask(trained):
    example = encoded(conversation("1+1?", "2", "3+3?"))
    row = demonstration_row(example, 5, trained_tokens=trained)
    assert (*row.prompt_ids, *row.response_ids) == example.ids
    assert (*[False] * len(row.prompt_ids), *row.mask) == example.trained_mask(trained)
    assert row.mask[0] is True
    assert (row.key, row.group) == (5, 5)


# ---------------------------------------------------------------------------- a step is a step

CUTS = {
    "one by one": {"layout": "padded", "max_tokens": 1},
    "padded on the left": {"layout": "padded", "max_tokens": 200, "padding_side": "left"},
    "packed": {"layout": "packed", "max_tokens": 10_000},
    "packed under a budget": {"layout": "packed", "max_tokens": 90},
}


def rows_of(trained):
    contents = [("1", "two", "3"), ("hello", "4", "5", "six 6", "7"), ("8",), ("9", "a.m", "b")]
    return [
        demonstration_row(
            encoded(conversation(*texts, response="r" * key)), key, trained_tokens=trained
        )
        for key, texts in enumerate(contents)
    ]


def step_of(rows, loss, cut):
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    outcome = policy_step(
        model,
        build_adamw(model),
        pack(rows, **cut),
        supervised_loss(step_totals(rows, Ranks()), loss=loss, normalize_constant=3.0),
        max_grad_norm=0.0,
    )
    return outcome.loss, {name: p.grad for name, p in model.named_parameters()}


def definition(rows, loss):
    """The loss from the model's own logits, one row after the other, in float64."""
    model = tiny_model(TOKENIZER, dtype=torch.float64)
    num_tokens = sum(row.num_trained for row in rows)
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
        everything = torch.log_softmax(model(ids).logits[0, :-1], -1)
        logprobs = everything.gather(-1, ids[0, 1:, None]).squeeze(-1)
        lp = logprobs[len(row.prompt_ids) - 1 :][torch.tensor(row.mask)]
        if loss == "nll":
            total = total - lp.sum() / num_tokens
        elif loss == "seq_sum":
            total = total - lp.sum() / 3.0 / len(rows)
        else:
            total = total - (lp.exp().detach() * lp).sum() / num_tokens
    total.backward()
    return total.item(), {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("trained", ["completion", "assistant", "all"])
@pytest.mark.parametrize("loss", ["nll", "seq_sum", "dft"])
def test_sft_step_does_not_depend_on_how_it_is_cut(loss, trained):
    rows = rows_of(trained)
    value, gradients = definition(rows, loss)
    for cut in CUTS.values():
        loss_of_cut, found = step_of(rows, loss, cut)
        assert loss_of_cut == pytest.approx(value, abs=1e-10)
        for name, gradient in gradients.items():
            scale = gradient.abs().max().item() or 1.0
            assert (found[name] - gradient).abs().max().item() <= 1e-10 * scale, name
