"""`min_tokens` of vLLM's second model runner, which in 0.23 keeps EOS away for a token too long.

Its kernel bans the ids that end a completion while the position of the token it has just read lies
before prompt + min_tokens, so the token after the last banned one is banned as well. Whether a
vLLM does so is found out by asking its own state, not by its version.

Imports no vLLM.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

PROMPT_TOKENS, END = 4, 0
VOCABULARY = 8


def correct_min_tokens(sampler: Any, device: torch.device) -> bool:
    """True where the sampler banned one token too many and no longer does.

    To be called while the engine has no requests: the first place of the sampler's state is used.
    The first model runner's sampler has no such state and counts right.
    """
    state = getattr(sampler, "logit_bias_state", None)
    if state is None or not bans_one_too_many(state, device):
        return False
    add_request = state.add_request

    def with_the_position_to_come(req_idx: int, prompt_len: int, sampling_params: Any) -> None:
        # The length of the prompt serves this sum only: prompt + min_tokens.
        add_request(req_idx, prompt_len - 1, sampling_params)

    state.add_request = with_the_position_to_come
    return True


@torch.no_grad()
def bans_one_too_many(state: Any, device: torch.device) -> bool:
    """Whether a completion with `min_tokens` of 1 cannot end at its second token."""
    state.add_request(0, PROMPT_TOKENS, _asked(min_tokens=1, ends={END}))
    state.apply_staged_writes()
    logits = torch.zeros(1, VOCABULARY, dtype=torch.float32, device=device)
    rows = torch.zeros(1, dtype=torch.int32, device=device)
    last_read = torch.full((1,), PROMPT_TOKENS, dtype=torch.int64, device=device)
    state.apply_logit_bias(logits, rows, np.zeros(1, dtype=np.int64), last_read)
    banned = bool(torch.isneginf(logits[0, END]))
    state.add_request(0, 0, _asked(min_tokens=0, ends=set()))
    state.apply_staged_writes()
    return banned


def _asked(*, min_tokens: int, ends: set[int]) -> Any:
    """What the state reads of vLLM's sampling parameters."""
    return SimpleNamespace(
        allowed_token_ids=None, logit_bias=None, min_tokens=min_tokens, all_stop_token_ids=ends
    )
