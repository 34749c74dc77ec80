"""`min_tokens` of vLLM's second model runner, on states that count as vLLM 0.23 does, and right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from workings.rollout.vllm_min_tokens import bans_one_too_many, correct_min_tokens

CPU = torch.device("cpu")
EOS, VOCABULARY = 5, 9


class LogitBiasState:
    """The part of vLLM's state that keeps EOS away, in plain torch.

    Args:
        last_banned: how far the last position that is read under the ban lies before
            prompt + min_tokens: 1 in vLLM 0.23, which bans one token too many, 2 where it is right.
    """

    def __init__(self, places: int, *, last_banned: int) -> None:
        self.last_banned = last_banned
        self.lengths = [0] * places
        self.ends: list[set[int]] = [set() for _ in range(places)]
        self.staged: dict[int, set[int]] = {}

    def add_request(self, req_idx: int, prompt_len: int, sampling_params: Any) -> None:
        self.lengths[req_idx] = prompt_len + sampling_params.min_tokens
        self.staged[req_idx] = (
            sampling_params.all_stop_token_ids if self.asked(sampling_params) else set()
        )

    @staticmethod
    def asked(sampling_params: Any) -> bool:
        assert sampling_params.allowed_token_ids is None
        assert sampling_params.logit_bias is None
        return bool(sampling_params.min_tokens > 0)

    def apply_staged_writes(self) -> None:
        for place, ends in self.staged.items():
            self.ends[place] = ends
        self.staged = {}

    def apply_logit_bias(
        self,
        logits: torch.Tensor,
        expanded_idx_mapping: torch.Tensor,
        idx_mapping_np: np.ndarray,
        pos: torch.Tensor,
    ) -> None:
        for row, place in enumerate(expanded_idx_mapping.tolist()):
            if int(pos[row]) <= self.lengths[place] - self.last_banned:
                logits[row, list(self.ends[place])] = -torch.inf


def banned_tokens(state: LogitBiasState, *, prompt: int, min_tokens: int) -> list[int]:
    """Which of the first ten tokens of a completion cannot be EOS."""
    asked = SimpleNamespace(
        allowed_token_ids=None, logit_bias=None, min_tokens=min_tokens, all_stop_token_ids={EOS}
    )
    state.add_request(2, prompt, asked)
    state.apply_staged_writes()
    banned = []
    for token in range(10):
        logits = torch.zeros(1, VOCABULARY)
        last_read = torch.tensor([prompt + token - 1])
        state.apply_logit_bias(logits, torch.tensor([2]), np.array([2]), last_read)
        assert not logits[0, :EOS].isinf().any()
        if logits[0, EOS].isneginf():
            banned.append(token)
    return banned


@pytest.mark.parametrize("min_tokens", [0, 1, 2, 7])
@pytest.mark.parametrize("last_banned", [1, 2])
def test_as_many_tokens_are_kept_from_ending_as_asked(min_tokens: int, last_banned: int) -> None:
    state = LogitBiasState(4, last_banned=last_banned)
    too_many = last_banned == 1
    if too_many and min_tokens:
        assert len(banned_tokens(state, prompt=6, min_tokens=min_tokens)) == min_tokens + 1
    assert correct_min_tokens(SimpleNamespace(logit_bias_state=state), CPU) == too_many
    for prompt in (1, 6):
        found = banned_tokens(state, prompt=prompt, min_tokens=min_tokens)
        assert found == list(range(min_tokens))


def test_asking_leaves_nothing_behind_and_a_second_time_finds_nothing_to_do() -> None:
    state = LogitBiasState(4, last_banned=1)
    sampler = SimpleNamespace(logit_bias_state=state)
    assert bans_one_too_many(state, CPU)
    assert (state.lengths, state.ends, state.staged) == ([0] * 4, [set()] * 4, {})
    assert correct_min_tokens(sampler, CPU)
    assert not correct_min_tokens(sampler, CPU)


def test_the_first_model_runner_has_no_such_state() -> None:
    assert not correct_min_tokens(SimpleNamespace(), CPU)
