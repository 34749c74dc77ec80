"""The settings of `workings dpo`: rules that tie them, names of earlier programs, shipped runs."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from workings.config.aliases import ALIASES
from workings.config.compose import compose, compose_with_notes
from workings.config.dpo import PREFERENCE_LOSSES, SFT_TERM, DPOConfig
from workings.config.dump import dump_yaml
from workings.config.fields import find_setting
from workings.config.sections import OptimizerConfig
from workings.errors import ConfigError
from workings.objectives.preference import PreferenceLoss

DATA: dict[str, Any] = {"train": {"path": "p"}}


def _dpo(**values: Any) -> DPOConfig:
    return DPOConfig.model_validate(
        {"name": "d", "model": {"name_or_path": "m"}, "data": DATA, **values}
    )


def test_dpo_defaults_are_those_of_the_paper() -> None:
    run = _dpo()
    assert (run.kind, run.loss, run.beta, run.batch_size) == ("dpo", ("sigmoid",), 0.1, 64)
    assert run.terms == {"sigmoid": 1.0}
    assert (run.reference, run.evaluation.best) == ("precomputed", "accuracy")


def test_dpo_every_loss_of_the_objective_has_a_name_here() -> None:
    assert (*get_args(PreferenceLoss), SFT_TERM) == PREFERENCE_LOSSES


@pytest.mark.parametrize(
    ("values", "terms"),
    [
        ({"loss": "ipo"}, {"ipo": 1.0}),
        ({"loss": ["sigmoid", "sft"]}, {"sigmoid": 1.0, "sft": 1.0}),
        (
            {"loss": ["sigmoid", "bco_pair", "sft"], "loss_weights": [0.8, 0.2, 1]},
            {"sigmoid": 0.8, "bco_pair": 0.2, "sft": 1.0},
        ),
        ({"loss": "hinge", "rpo_alpha": 0.5}, {"hinge": 1.0, "sft": 0.5}),
    ],
)
def test_dpo_terms_are_losses_with_their_weights(
    values: dict[str, Any], terms: dict[str, float]
) -> None:
    assert _dpo(**values).terms == terms


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"loss": "sigmod"}, "unknown loss 'sigmod'; did you mean 'sigmoid'?", ""),
        ({"loss": ["ipo", "ipo"]}, "loss names ipo twice", "give it one weight instead"),
        (
            {"loss": ["ipo", "sft"], "loss_weights": [1.0]},
            "loss_weights has 1 numbers for 2 losses (ipo, sft); expected one for each",
            "",
        ),
        ({"loss": "sft"}, "loss=sft alone never looks at the rejected", "`workings sft`"),
        (
            {"loss": ["ipo", "sft"], "rpo_alpha": 1.0},
            "loss names sft and rpo_alpha=1 sets its weight as well",
            "keep one of them",
        ),
        (
            {"label_smoothing": 0.1},
            "label_smoothing=0.1 has no effect with loss=sigmoid",
            "loss=cdpo is sigmoid with label smoothing",
        ),
        (
            {"loss": "robust", "label_smoothing": 0.5},
            "label_smoothing=0.5 with loss=robust, which divides by 1 - 2 label_smoothing",
            "swap chosen and rejected",
        ),
        ({"loss": "exo_pair"}, "loss=exo_pair takes the logarithm", "0.001 is usual"),
        ({"ipo_sum": True}, "ipo_sum has no effect with loss=sigmoid", "set loss=ipo"),
        (
            {"data": {**DATA, "bad_gold": "drop"}},
            "data.bad_gold has no effect here: pairs have no gold answers",
            "",
        ),
        (
            {"loss": "aot", "batch_size": 1},
            "batch_size=1 with loss=aot, which sorts the pairs of a step",
            "set batch_size to 2 or more",
        ),
        (
            {"batch": {"microbatch_rows": 1}},
            "batch.microbatch_rows=1, but the two responses of a pair stay together",
            "set it to 2 or more",
        ),
        (
            {"validation_pairs": 20, "data": {**DATA, "validation_fraction": 0.1}},
            "validation_pairs=20 and data.validation_fraction are both set",
            "keep one of them",
        ),
        (
            {"validation_pairs": 20, "data": {**DATA, "validation": {"path": "v"}}},
            "validation_pairs=20 and data.validation are both set",
            "keep one of them",
        ),
    ],
)
def test_dpo_settings_that_cannot_work_are_refused_with_a_remedy(
    values: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        _dpo(**values)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    "values", [{"beta": 0}, {"ld_alpha": 1.5}, {"label_smoothing": 1}, {"loss": []}]
)
def test_dpo_numbers_out_of_their_range_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        _dpo(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rmsprop_alpha": 0.9}, "optimizer.rmsprop_alpha=0.9 has no effect with optimizer.name"),
        ({"name": "rmsprop", "weight_decay": 0.1}, "optimizer.weight_decay=0.1 has no effect"),
        ({"name": "rmsprop", "betas": (0.9, 0.9)}, "optimizer.betas=(0.9, 0.9) has no effect"),
        ({"name": "rmsprop", "offload": True}, "optimizer.offload=True has no effect"),
    ],
)
def test_dpo_optimizer_constants_that_nothing_reads_are_refused(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        OptimizerConfig.model_validate(values)
    assert message in caught.value.message


# ------------------------------------------------------------- composition and earlier programs


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("loss=ipo", "loss", ("ipo",)),
        ("loss_type=hinge", "loss", ("hinge",)),
        ("loss_type=[sigmoid,sft]", "loss", ("sigmoid", "sft")),
        ("dpo_beta=0.2", "beta", 0.2),
        ("beta=0.2", "beta", 0.2),
        ("precompute_ref_log_probs=true", "reference", "precomputed"),
        ("precompute_ref_log_probs=false", "reference", "live"),
        ("max_completion_length=99", "data.max_response_length", 99),
        ("max_target_length=99", "data.max_response_length", 99),
        ("max_prompt_length=98", "data.max_prompt_length", 98),
        ("max_length=1500", "data.max_response_length", 476),
        ("optim=rmsprop", "optimizer.name", "rmsprop"),
        ("optim=adamw_torch", "optimizer.name", "adamw"),
        ("metric_for_best_model=eval_loss", "evaluation.best", "loss"),
        ("metric_for_best_model=eval_rewards/accuracies", "evaluation.best", "accuracy"),
        ("num_train_epochs=3", "epochs", 3.0),
        ("global_batch_size=32", "batch_size", 32),
        ("dpo_training.lr=1e-7", "optimizer.learning_rate", 1e-7),
        ("train_path=a.jsonl", "data.train.path", "a.jsonl"),
        ("eval_steps=7", "evaluation.every_steps", 7),
        ("num_val_pairs=9", "validation_pairs", 9),
        ("train_validation_split=0.9", "data.validation_fraction", 0.1),
    ],
)
def test_dpo_names_of_earlier_programs(override: str, path: str, value: Any) -> None:
    found: Any = compose(
        ["dpo"],
        [override, *(["data.validation_fraction=0"] * path.startswith("validation"))],
        kind="dpo",
    )
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value


def test_dpo_rows_of_the_alias_table_lead_to_settings() -> None:
    for alias in ALIASES["dpo"].values():
        target = alias.target
        assert not target or target.startswith("__older__.") or find_setting(target, "dpo")


def test_dpo_accumulation_counts_pairs_and_microbatches_count_responses() -> None:
    composed = compose_with_notes(
        ["dpo"],
        ["per_device_train_batch_size=4", "gradient_accumulation_steps=8"],
        kind="dpo",
    )
    run = composed.run
    assert isinstance(run, DPOConfig)
    assert (run.batch_size, run.batch.microbatch_rows) == (32, 8)
    assert any("2 responses a pair" in note for note in composed.notes)


def test_dpo_the_course_run_has_the_handouts_numbers() -> None:
    run = compose(["cs336_dpo"], kind="dpo")
    assert (run.batch_size, run.beta, run.epochs, run.validation_pairs) == (64, 0.1, 1, 200)
    assert (run.optimizer.name, run.optimizer.learning_rate) == ("rmsprop", 1e-6)


@pytest.mark.parametrize("name", ["dpo", "cs336_dpo"])
def test_dpo_a_resolved_run_is_read_back_to_itself(name: str, tmp_path: Any) -> None:
    run = compose([name], ["loss=[sigmoid,sft]", "loss_weights=[1,0.2]"], kind="dpo")
    file = tmp_path / "config.yaml"
    file.write_text(dump_yaml(run))
    assert compose([str(file)], kind="dpo") == run
    file.write_text("kind: dpo\ndefaults: [dpo, _self_]\nloss: robust\nlabel_smoothing: 0.1\n")
    assert compose([str(file)], kind="dpo").loss == ("robust",)
