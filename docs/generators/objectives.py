"""The objective's axes, presets and constants, with values that the package itself computes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import torch
from generators.blocks import ROOT, Blocks, code, table
from generators.formulas import (
    ADVANTAGES,
    CORRECTIONS,
    KL,
    PREFERENCES,
    RATIOS,
    REDUCTIONS,
    SHAPINGS,
    SURROGATES,
)

from workings.config.dpo import PREFERENCE_LOSSES
from workings.config.objective import (
    AXES,
    CONSTANTS,
    CORRECTION_BOUNDS,
    PRESETS,
    SURROGATE_CONSTANTS,
    SURROGATE_RATIOS,
    Constant,
)
from workings.config.objective_settings import ObjectiveConfig
from workings.objectives.advantages import group_advantages
from workings.objectives.corrections import correction_weights
from workings.objectives.kl import KL_ESTIMATORS, kl_penalty
from workings.objectives.preference import preference_loss
from workings.objectives.ratios import level_log_ratio
from workings.objectives.reductions import StepTotals, token_weights
from workings.objectives.shaping import shaped
from workings.objectives.surrogates import COVARIANCE_SURROGATES, surrogate_loss

PAGE = ROOT / "docs" / "reference" / "objectives.md"

# A row of three tokens, d = lp - old, at the level `sequence` and so on.
DIFFERENCES = (0.2, -0.1, 0.05)


def blocks() -> Blocks:
    """The blocks of the objectives page."""
    return {
        PAGE: {
            "ratio-levels": _ratios(),
            "surrogates": _surrogates(),
            "reductions": _reductions(),
            "advantages": _advantages(),
            "corrections": _corrections(),
            "kl-estimators": _kl(),
            "shapings": _shapings(),
            "objective-presets": _presets(),
            "preset-defaults": _preset_defaults(),
            "objective-constants": _constants(),
            "preference-losses": _preferences(),
        }
    }


# ------------------------------------------------------------------------------------- axes


def _ratios() -> str:
    d = torch.tensor([DIFFERENCES], dtype=torch.float64)
    mask = torch.ones_like(d, dtype=torch.bool)

    def value(level: str) -> str:
        if level == "none":
            return ""
        ratio = level_log_ratio(
            d,
            torch.zeros_like(d),
            mask,
            level=level,  # type: ignore[arg-type]
            advantages=torch.ones_like(d),
            log_range=0.08,
        ).exp()
        values = ratio[0] if level == "token" else ratio[0, :1]
        return ", ".join(_number(v.item()) for v in values)

    rows = [
        [code(level), code(formula), value(level), _source(source)]
        for level, (formula, source) in _each("ratio", RATIOS)
    ]
    return table(["`objective.ratio`", "r", "at d = 0.2, -0.1, 0.05", "source"], rows)


def _surrogates() -> str:
    headers = ["`objective.surrogate`", "loss of a token", "at r = 1.5, A = +1", "A = -1"]
    rows = [
        [
            code(name),
            code(formula),
            _surrogate_value(name, 1.0),
            _surrogate_value(name, -1.0),
            ", ".join(map(code, SURROGATE_RATIOS[name])),
            ", ".join(map(code, SURROGATE_CONSTANTS[name])),
            _source(source),
        ]
        for name, (formula, source) in _each("surrogate", SURROGATES)
    ]
    return table([*headers, "goes with ratio", "reads", "source"], rows)


def _surrogate_value(name: str, advantage: float) -> str:
    """(loss, its derivative in lp) of one token with p = 0.6 that had 0.4."""
    old = torch.tensor([[math.log(0.4)]], dtype=torch.float64)
    lp = torch.tensor([[math.log(0.6)]], dtype=torch.float64, requires_grad=True)
    ratio = SURROGATE_RATIOS[name][0]
    advantages = torch.tensor([[advantage]], dtype=torch.float64)
    level = "token" if ratio == "none" else ratio
    mask = torch.ones_like(old, dtype=torch.bool)
    log_ratios = level_log_ratio(
        lp,
        old,
        mask,
        level=level,  # type: ignore[arg-type]
        advantages=advantages,
        log_range=0.4,
    )
    values = {name: constant.default for name, constant in CONSTANTS.items()} | {"epsilon": 0.2}
    loss = surrogate_loss(
        lp,
        old,
        log_ratios,
        advantages,
        surrogate=name,  # type: ignore[arg-type]
        chosen=torch.zeros_like(mask) if name in COVARIANCE_SURROGATES else None,
        **{constant: values[constant] for constant in SURROGATE_CONSTANTS[name]},
    ).sum()
    (slope,) = torch.autograd.grad(loss, lp)
    return f"{_number(loss.item())}, slope {_number(slope.item())}"


def _reductions() -> str:
    mask = torch.arange(6)[None] < torch.tensor([[2], [6]])
    losses = torch.where(mask, torch.tensor([[-1.0], [1.0]]), 0.0)
    totals = StepTotals(num_rows=2, num_tokens=8, num_prompts=1)
    rows = []
    for name, (formula, source) in _each("reduction", REDUCTIONS):
        weights = token_weights(
            mask,
            totals,
            reduction=name,  # type: ignore[arg-type]
            max_length=8,
            prompt_tokens=torch.tensor([8, 8]),
        )
        first, second = weights[0, 0].item(), weights[1, 0].item()
        loss = _number((weights * losses).sum().item())
        per_token = f"{_number(first)}, {_number(second)}"
        rows.append([code(name), code(formula), per_token, loss, _source(source)])
    headers = ["`objective.reduction`", "weight of a token", "weights of the example", "its loss"]
    return table([*headers, "source"], rows)


def _advantages() -> str:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    lengths = torch.tensor([[2, 6, 4, 4]])

    def value(name: str) -> str:
        if name in ("reinforce_pp", "gdpo"):
            return ""
        found = group_advantages(
            rewards,
            estimator=name,  # type: ignore[arg-type]
            lengths=lengths,
            baselines=torch.tensor([0.5]) if name in ("remax", "rae") else None,
        )
        return ", ".join(_number(v) for v in found[0].tolist())

    rows = [
        [code(name), code(formula), value(name), _source(source)]
        for name, (formula, source) in _each("advantage", ADVANTAGES)
    ]
    headers = ["`objective.advantage`", "A", "of R = 1, 0, 0, 0, lengths 2, 6, 4, 4"]
    return table([*headers, "source"], rows)


def _corrections() -> str:
    rho = torch.tensor([[0.5, 1.0, 4.0]], dtype=torch.float64)
    mask = torch.ones_like(rho, dtype=torch.bool)
    rows = []
    for name, (formula, source) in _each("correction", CORRECTIONS):
        bounds = CORRECTION_BOUNDS.get(name, {})
        weights = correction_weights(
            rho.log(),
            torch.zeros_like(rho),
            mask,
            correction=name,  # type: ignore[arg-type]
            threshold=0.1 if name == "off_policy_seq_mask" else None,
            advantages=-torch.ones_like(rho),
            logprobs=rho.log(),
        ).weights
        shown = ", ".join(_number(value) for value in weights.expand(1, 3)[0].tolist())
        limits = ", ".join(f"{key.removeprefix('correction_')} {v:g}" for key, v in bounds.items())
        limits = "threshold, no default" if name == "off_policy_seq_mask" else limits
        rows.append([code(name), code(formula), limits, shown, _source(source)])
    headers = ["`objective.correction`", "weight of the surrogate", "bounds by default"]
    return table([*headers, "of rho = 0.5, 1, 4", "source"], rows)


# ----------------------------------------------------------------------- KL, shaping, pairs


def _kl() -> str:
    rows = []
    _same_names(KL, KL_ESTIMATORS)
    for name, (formula, gradient) in KL.items():
        cells = []
        for x in (0.5, -0.5):
            lp = torch.tensor([x], dtype=torch.float64, requires_grad=True)
            ratios = lp - lp.detach()
            zero = torch.zeros(1, dtype=torch.float64)
            value = kl_penalty(lp, zero, estimator=name, log_ratios=ratios).sum()  # type: ignore[arg-type]
            (slope,) = torch.autograd.grad(value, lp)
            cells.append(f"{_number(value.item())}, slope {_number(slope.item())}")
        rows.append([code(name), code(formula), gradient, *cells])
    headers = ["`objective.kl_estimator`", "value", "gradient in lp", "at x = 0.5", "at x = -0.5"]
    return table(headers, rows)


def _shapings() -> str:
    rows = []
    for name, formula in SHAPINGS.items():
        cells = []
        for p in (0.01, 0.1, 0.5, 0.9):
            lp = torch.tensor([math.log(p)], dtype=torch.float64, requires_grad=True)
            value = shaped(lp, shaping=name).sum()  # type: ignore[arg-type]
            (pull,) = torch.autograd.grad(value, lp)
            cells.append(_number(pull.item()))
        rows.append([code(name), code(formula), *cells])
    headers = ["`objective.off_shaping`", "f(p)", "pull at p = 0.01", "0.1", "0.5", "0.9"]
    return table(headers, rows)


def _preferences() -> str:
    _same_names(PREFERENCES, PREFERENCE_LOSSES)
    chosen, rejected = torch.tensor([2.0]).double(), torch.tensor([-1.0]).double()

    def value(name: str) -> str:
        if name in ("aot", "aot_unpaired", "sft"):
            return ""
        found = preference_loss(
            chosen,
            rejected,
            loss=name,  # type: ignore[arg-type]
            label_smoothing=0.1 if name in ("cdpo", "robust", "exo_pair") else 0.0,
            chosen_lengths=torch.tensor([4]),
            rejected_lengths=torch.tensor([5]),
        )
        return _number(found.item())

    rows = [
        [code(name), code(formula), value(name), _source(source)]
        for name, (formula, source) in PREFERENCES.items()
    ]
    return table(["`loss`", "loss of a pair", "of the example", "source"], rows)


# ----------------------------------------------------------------------------------- presets


def _presets() -> str:
    axes = ("ratio", "surrogate", "reduction", "advantage")
    rows = [
        [
            code(name),
            *(code(preset.values[axis]) for axis in axes),
            _source(preset.source),
            preset.use,
        ]
        for name, preset in PRESETS.items()
    ]
    return table(["preset", *axes, "source", "when to take it"], rows)


def _preset_defaults() -> str:
    rows = []
    for name in PRESETS:
        line = ObjectiveConfig(preset=name).resolve().describe()
        constants = line.partition("; ")[2]
        rows.append([code(name), ", ".join(map(code, constants.split(", "))) if constants else ""])
    return table(["preset", "constants that something reads"], _with_pairs(rows))


def _with_pairs(rows: list[list[str]]) -> list[list[str]]:
    """A pair such as (2, 3) was split at its comma; put it together again."""
    return [[name, re.sub(r"`([^`]*\([^`)]*)`, `([^`]*\))`", r"`\1, \2`", c)] for name, c in rows]


def _constants() -> str:
    rows = [
        [code(f"objective.{name}"), code(_written(constant.default)), _read_by(constant)]
        for name, constant in CONSTANTS.items()
        if name not in AXES
    ]
    return table(["setting", "default", "read where"], rows)


def _read_by(constant: Constant) -> str:
    found = []
    for name, values in constant.readers:
        wanted = " or ".join(code(str(value)) for value in values)
        found.append(f"`{name}` is {wanted}" if values else f"`{name}` is set")
    return "; ".join(found) or "always"


# ------------------------------------------------------------------------------------- cells


def _each(axis: str, known: Mapping[str, tuple[str, str]]) -> list[tuple[str, tuple[str, str]]]:
    """(value, its formula and source) in the order of the axis; ValueError for one left out."""
    _same_names(known, AXES[axis])
    return [(value, known[value]) for value in AXES[axis]]


def _same_names(known: Mapping[str, object], wanted: Sequence[str]) -> None:
    if set(known) != set(wanted):
        odd = sorted(set(known) ^ set(wanted))
        raise ValueError(f"docs/generators/formulas.py and the package differ in {odd}")


def _source(text: str) -> str:
    """The text with its arXiv numbers as links.

    >>> _source("2402.03300, and more")
    '[2402.03300](https://arxiv.org/abs/2402.03300), and more'
    """
    return re.sub(r"\b(\d{4}\.\d{5})\b", r"[\1](https://arxiv.org/abs/\1)", text)


def _number(value: float) -> str:
    """Six digits after the point, without zeros at the end.

    >>> _number(0.5), _number(-1e-9), _number(1.0512710963760241)
    ('0.5', '0', '1.051271')
    """
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _written(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
