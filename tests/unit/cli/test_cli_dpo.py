"""`workings dpo` end to end on a tiny model: the run's folder, --dry-run, --resume, messages."""

from __future__ import annotations

import json

import pytest
from cli_runs import LORA

from workings.cli.doctor.memory import training_memory
from workings.cli.doctor.model_files import read_model_files
from workings.cli.main import main
from workings.config.compose import compose
from workings.models.load import load_model
from workings.tracking.jsonl import read_metrics


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory):
    """Greetings against shouting, forty of them."""
    file = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    rows = [
        {"prompt": f"{n}+{n}?", "chosen": f"hello {2 * n}", "rejected": f"NO {'X' * (n % 7)}"}
        for n in range(40)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def dpo_arguments(model, pairs, output, *more):
    """A short run of the tiny model on the pairs."""
    return [
        "dpo",
        *(f"output_dir={output}", "seed=3", "tracking.console=false"),
        f"model={{name_or_path: {model}, dtype: float32, device: cpu}}",
        *(f"data.train.path={pairs}", "data.validation_fraction=0.2", "batch_size=8"),
        "optimizer={learning_rate: 0.01, schedule: constant, warmup_ratio: 0}",
        "evaluation={every_steps: 2, at_start: true}",
        "checkpoint={every_steps: 2, save_total_limit: 5}",
        *("max_steps=4", *more),
    ]


def rows_of(folder, kind):
    slow = ("time", "train/step_time", "train/tokens_per_sec", "train/peak_memory_gb")
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if row["kind"] == kind]
    return [{name: value for name, value in row.items() if name not in slow} for row in rows]


@pytest.fixture(scope="module")
def straight(tiny_folder, pairs_file, tmp_path_factory):
    output = tmp_path_factory.mktemp("dpo")
    assert main(dpo_arguments(tiny_folder, pairs_file, output, "name=d")) == 0
    return output / "d"


def test_dpo_the_command_trains_and_leaves_a_model(straight):
    before, *_, after = rows_of(straight, "eval")
    assert before["eval/rewards/accuracies"] == 0.5
    assert after["eval/loss"] < before["eval/loss"]
    for name in ("chosen", "rejected", "margins", "accuracies"):
        assert f"train/rewards/{name}" in rows_of(straight, "train")[-1]
    assert load_model(str(straight / "final")).model.num_parameters() > 0
    assert (straight / "best" / "best.json").is_file()
    assert (straight / "reference.safetensors").is_file()
    log = (straight / "run.log").read_text()
    assert "reference: 40 pairs scored" in log
    assert "dpo: 32 pairs, 4 steps of 8" in log


def test_dpo_the_model_card_runs_it_again(straight):
    assert "workings dpo -c config.yaml" in (straight / "final" / "README.md").read_text()
    assert compose([str(straight)], kind="dpo").batch_size == 8


def test_dpo_an_interrupted_command_resumes_bitwise(straight, tiny_folder, pairs_file, tmp_path):
    arguments = dpo_arguments(tiny_folder, pairs_file, tmp_path, "name=d")
    assert main([*arguments, "max_steps=2"]) == 0
    assert main(arguments) == 2  # the folder is there, and nobody asked to go on
    assert main([*arguments, "--resume"]) == 0
    ours, theirs = (
        (folder / "final" / "model.safetensors").read_bytes()
        for folder in (straight, tmp_path / "d")
    )
    assert ours == theirs
    assert rows_of(straight, "train") == rows_of(tmp_path / "d", "train")
    assert main([*arguments, "--resume"]) == 3


def test_dpo_another_template_is_refused_on_resume(
    straight, tiny_folder, pairs_file, tmp_path, capsys
):
    arguments = dpo_arguments(tiny_folder, pairs_file, tmp_path, "name=d", "max_steps=1")
    assert main(arguments) == 0
    capsys.readouterr()
    assert main([*arguments, "max_steps=2", "data.template=alpaca", "--resume"]) == 1
    assert "scored with another template and another rows" in capsys.readouterr().err


def test_dpo_lora_live_with_several_losses(tiny_folder, pairs_file, tmp_path):
    arguments = dpo_arguments(tiny_folder, pairs_file, tmp_path, "name=l", LORA, "reference=live")
    more = ["loss=[aot,sft]", "loss_weights=[1,0.1]", "optimizer.name=rmsprop", "max_steps=2"]
    assert main([*arguments, *more, "validation_pairs=5", "data.validation_fraction=0"]) == 0
    assert (tmp_path / "l" / "final" / "adapter_model.safetensors").is_file()
    log = (tmp_path / "l" / "run.log").read_text()
    assert "dpo: 35 pairs" in log
    assert "LoRA dropout is on in training and off in the reference" in log
    assert {"train/losses/aot", "train/losses/sft"} <= rows_of(tmp_path / "l", "train")[0].keys()


def test_dpo_validation_pairs_may_come_from_a_file(tiny_folder, pairs_file, tmp_path):
    arguments = dpo_arguments(tiny_folder, pairs_file, tmp_path, "name=v", "max_steps=1")
    more = ["data.validation_fraction=0", f"data.validation={{path: {pairs_file}}}"]
    assert main([*arguments, *more, "evaluation.limit=6"]) == 0
    log = (tmp_path / "v" / "run.log").read_text()
    assert "validation pairs: 6 rows" in log
    assert "dpo: 40 pairs" in log


def test_dpo_dry_run_prints_the_settings_and_trains_nothing(
    tiny_folder, pairs_file, tmp_path, capsys
):
    arguments = dpo_arguments(tiny_folder, pairs_file, tmp_path, "--dry-run", "--beta", "0.2")
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("kind: dpo\n")
    assert "beta: 0.2\n" in shown
    assert list(tmp_path.iterdir()) == []


def test_dpo_more_validation_pairs_than_rows_is_an_error(tiny_folder, pairs_file, tmp_path, capsys):
    arguments = dpo_arguments(tiny_folder, pairs_file, tmp_path, "data.validation_fraction=0")
    assert main([*arguments, "validation_pairs=40"]) == 2
    assert "validation_pairs=40 of 40 pairs leaves nothing to train" in capsys.readouterr().err


def test_dpo_evaluation_without_validation_pairs_is_a_warning(tiny_folder, pairs_file, tmp_path):
    arguments = dpo_arguments(tiny_folder, pairs_file, tmp_path, "name=w", "max_steps=1")
    assert main([*arguments, "data.validation_fraction=0"]) == 0
    assert "there are no validation pairs" in (tmp_path / "w" / "run.log").read_text()


def test_dpo_help_lists_its_settings(capsys):
    assert main(["dpo", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Configurations: cs336_dpo, dpo" in shown
    assert "label_smoothing" in shown


# ------------------------------------------------------------------- the commands around a run


def test_dpo_inspect_data_shows_both_responses(tiny_folder, pairs_file, tmp_path, capsys):
    _, *settings = dpo_arguments(tiny_folder, pairs_file, tmp_path)
    assert main(["inspect", "data", "-c", "dpo", *settings, "--limit", "2"]) == 0
    shown = capsys.readouterr().out
    assert "split: 32 rows to train on, 8 held out for validation" in shown
    assert "chosen tokens: median" in shown
    for side in ("chosen", "rejected"):
        assert f"row 2, {side}: pairs/" in shown
    assert shown.count("(trained)") == 4
    cut = ["data.max_response_length=3", "data.overlong=truncate", "--limit", "1"]
    assert main(["inspect", "data", "-c", "dpo", *settings, *cut]) == 1
    assert "the response is cut at the limit, so it has no EOS" in capsys.readouterr().out


def test_dpo_doctor_says_whether_a_run_will_work(tiny_folder, pairs_file, tmp_path, capsys):
    _, *settings = dpo_arguments(tiny_folder, pairs_file, tmp_path, "loss=[sigmoid,sft]")
    assert main(["doctor", "-c", "dpo", *settings]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 sigmoid + 1 sft, beta 0.1, precomputed reference" in shown
    assert "8 pairs a step, 16 responses" in shown
    assert "8 of the pairs, held out" in shown
    assert "nats per token on the first" in shown
    none = ["data.validation_fraction=0", f"data.validation={{path: {pairs_file}}}"]
    assert main(["doctor", "-c", "dpo", *settings, *none]) == 0
    assert "validation 40 of 40 rows" in " ".join(capsys.readouterr().out.split())
    assert main(["doctor", "-c", "dpo", *settings, "data.validation_fraction=0"]) == 0
    assert "there are no validation rows" in " ".join(capsys.readouterr().out.split())


def test_dpo_memory_counts_the_frozen_copy_and_one_state_of_rmsprop(
    tiny_folder, pairs_file, tmp_path
):
    def estimate(*more):
        run = compose(
            ["dpo"], dpo_arguments(tiny_folder, pairs_file, tmp_path, *more)[1:], kind="dpo"
        )
        return training_memory(
            read_model_files(run.model), run, longest_prompt=9, longest_row=20
        ).estimate

    plain, live = estimate(), estimate("reference=live")
    assert (plain.reference, live.reference) == (0, plain.weights)
    assert live.weights == plain.weights
    assert estimate("reference=live", LORA).reference == 0
    assert 2 * estimate("optimizer.name=rmsprop").optimizer == plain.optimizer
    assert plain.kv_cache == 0


def test_dpo_plot_draws_rewards(straight, tmp_path, capsys):
    assert main(["plot", str(straight), "--output", str(tmp_path)]) == 0
    assert {"eval_loss.png", "train_rewards_margins.png"} <= {p.name for p in tmp_path.iterdir()}
    capsys.readouterr()
