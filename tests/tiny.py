"""A tiny model and a toy tokenizer, made on the spot: what the tests train and sample on a CPU.

The tokenizer is a character tokenizer with a few merges on purpose: `hello` is one token although
`he` + `llo` also spell it, and `.m` merges over a sentence boundary, so that re-tokenising text or
tokenising prompt and response together shows up as a difference.
"""

from __future__ import annotations

import string
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_tokenizer(
    *, add_bos: bool = False, pad_is_eos: bool = False, chat_template: str | None = CHAT_TEMPLATE
) -> PreTrainedTokenizerFast:
    """A character BPE of about 110 tokens with `<|bos|>`, `<|im_end|>` (EOS) and `<|pad|>`."""
    specials = ["<|pad|>", "<|bos|>", "<|im_start|>", "<|im_end|>"]
    merges = [("h", "e"), ("l", "l"), ("ll", "o"), ("he", "llo"), (".", "m")]
    tokens = specials + list(string.printable[:95]) + ["\n"] + [a + b for a, b in merges]
    vocab = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in specials]
    )
    if add_bos:
        from tokenizers import processors

        backend.post_processor = processors.TemplateProcessing(
            single="<|bos|> $A", special_tokens=[("<|bos|>", vocab["<|bos|>"])]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|bos|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>" if pad_is_eos else "<|pad|>",
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )


def tiny_model(
    tokenizer: PreTrainedTokenizerFast,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    width: int = 32,
    layers: int = 2,
    tied: bool = True,
) -> LlamaForCausalLM:
    """A Llama of two layers and width 32 with seeded random weights, in evaluation mode."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attention_dropout=0.0,
        initializer_range=0.1,
    )
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).to(dtype)
    torch.random.set_rng_state(state)
    if dtype == torch.float64:
        _norms_in_float64(model)
    model.eval()
    return model


def _norms_in_float64(model: LlamaForCausalLM) -> None:
    """Replace the norms of transformers, which round to float32 whatever the model's dtype is."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__ == "LlamaRMSNorm":
                norm = torch.nn.RMSNorm(child.weight.shape[0], eps=child.variance_epsilon)
                setattr(parent, name, norm.to(torch.float64))


def save_tiny(folder: Path, *, seed: int = 0, pad_is_eos: bool = False) -> Path:
    """`folder` with a tiny model and tokenizer in the Hugging Face layout."""
    tokenizer = tiny_tokenizer(pad_is_eos=pad_is_eos)
    tiny_model(tokenizer, seed=seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
