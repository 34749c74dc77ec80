"""The log-probabilities that training needs, out of vLLM's sampler.

vLLM offers either `raw_logprobs` (temperature 1, full vocabulary) or `processed_logprobs` (at the
temperature, of what truncation left). We need a third: at the temperature over the full vocabulary,
and beside it the mass that truncation and a ban on EOS left. So its sampler runs as it is, in the
processed mode, and this wrapper computes the other number from the logits it was given.

The wrapper imports no vLLM. It fits both samplers of vLLM 0.23: that of the first model runner,
called with (logits, sampling_metadata), and that of the second, with (logits, input_batch).
"""

from __future__ import annotations

from typing import Any

import torch

GREEDY_BELOW = 1e-5
"""Temperatures that vLLM takes for greedy."""
CHUNK_ELEMENTS = 1 << 25
NO_LOGPROBS = -1


def exact_columns(
    logits: torch.Tensor,
    temperatures: torch.Tensor | None,
    ids: torch.Tensor,
    processed: torch.Tensor,
) -> torch.Tensor:
    """Float32 [rows, 2]: log-probability over the full vocabulary, and log of the kept mass.

    Args:
        logits: floating [rows, vocabulary], as the model gave them.
        temperatures: float32 [rows]; None where all rows are greedy.
        ids: int64 [rows], the sampled tokens.
        processed: float32 [rows], log-probability of those tokens among the ones that could have
            been drawn.

    The first is at the temperature (greedy: 1). The kept mass is p / p_processed, so that
    logprob - log(kept) is what was sampled from; greedy rows report a kept mass of 1.
    """
    rows, vocabulary = logits.shape
    if temperatures is None:
        greedy = torch.ones(rows, dtype=torch.bool, device=logits.device)
        scale = torch.ones(rows, dtype=torch.float32, device=logits.device)
    else:
        greedy = temperatures < GREEDY_BELOW
        scale = torch.where(greedy, 1.0, temperatures.float())
    columns = torch.empty(rows, 2, dtype=torch.float32, device=logits.device)
    step = max(1, CHUNK_ELEMENTS // vocabulary)
    for start in range(0, rows, step):
        span = slice(start, start + step)
        scaled = logits[span].float() / scale[span, None]
        chosen = scaled.gather(-1, ids[span, None])[:, 0]
        columns[span, 0] = chosen - torch.logsumexp(scaled, dim=-1)
    kept = (columns[:, 0] - processed).clamp_(max=0.0)
    columns[:, 1] = torch.where(greedy, 0.0, kept)
    return columns


class ExactSampler:
    """A vLLM sampler that reports `exact_columns` in place of its first two logprob columns."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def __call__(self, logits: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        """What the sampler returns, with the columns exchanged."""
        details = arguments[0] if arguments else next(iter(options.values()))
        if not self._reports(details):
            return self._sampler(logits, *arguments, **options)
        # Float32 logits are worked on in place by the first model runner's sampler.
        given = logits.clone() if logits.dtype == torch.float32 else logits
        output = self._sampler(logits, *arguments, **options)
        tensors = output.logprobs_tensors
        columns = exact_columns(
            given,
            self._temperatures(details),
            output.sampled_token_ids[:, 0].long(),
            tensors.logprobs[:, 0],
        )
        output.logprobs_tensors = tensors._replace(
            logprobs=torch.cat([columns, tensors.logprobs[:, 2:]], dim=1)
        )
        return output

    def _reports(self, details: Any) -> bool:
        """True where some row of this step asked for log-probabilities."""
        if self._is_first(details):
            return details.max_num_logprobs is not None
        states = self._sampler.sampling_states
        return bool(states.max_num_logprobs(details.idx_mapping_np) != NO_LOGPROBS)

    def _temperatures(self, details: Any) -> torch.Tensor | None:
        if self._is_first(details):
            temperatures: torch.Tensor | None = details.temperature
            return temperatures
        states = self._sampler.sampling_states
        of_rows: torch.Tensor = states.temperature.gpu[details.expanded_idx_mapping]
        return of_rows

    @staticmethod
    def _is_first(details: Any) -> bool:
        return hasattr(details, "max_num_logprobs")
