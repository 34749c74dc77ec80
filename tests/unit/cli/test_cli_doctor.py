"""`workings doctor`: what it looks at, what it fails on, and its exit code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import grpo_arguments, run_arguments

from tiny import tiny_model, tiny_tokenizer
from workings.cli.commands import doctor as command
from workings.cli.doctor import machine
from workings.cli.doctor.findings import Finding, fail, format_finding, guarded, ok, summary, warn
from workings.cli.doctor.run import phases_of, run_findings
from workings.cli.main import main
from workings.config.compose import compose
from workings.errors import ModelError

Captured = pytest.CaptureFixture[str]
Look = Callable[[list[str]], dict[str, Finding]]


@pytest.fixture
def look(capsys: Captured) -> Look:
    """The findings about a run by what they are about, without those about the machine."""

    def look(arguments: list[str]) -> dict[str, Finding]:
        kind, _, config, *overrides = arguments
        phases = phases_of(compose([config], overrides, kind=kind))
        return {one.what: one for phase in phases.values() for one in run_findings(phase)}

    return look


def _saved(folder: Path, *, add_bos: bool = False, pad_is_eos: bool = False) -> Path:
    tokenizer = tiny_tokenizer(add_bos=add_bos, pad_is_eos=pad_is_eos)
    tiny_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _sft(model: Path, *more: str) -> list[str]:
    settings = (
        "reward=r1_zero",
        "data.validation_fraction=0.2",
        "evaluation.sampling.max_tokens=20",
    )
    return run_arguments("sft", model, Path("runs"), *settings, *more)


# ------------------------------------------------------------------------------ this machine


def test_a_host_without_a_gpu_is_fine(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(machine, "_has_nvidia_driver", lambda: False)
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for what in ("python", "torch", "threads", "memory", "packages", "grader", "flash-attn"):
        assert f"  {what}  " in out
    assert "ok    CUDA device       none; models run on the CPU" in out
    assert "FAIL" not in out


def test_a_hidden_gpu_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(machine, "_has_nvidia_driver", lambda: True)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (found,) = machine._devices()
    assert found.status == "warn"
    assert "torch finds no device; CUDA_VISIBLE_DEVICES=''" in found.text
    monkeypatch.setattr("torch.version.cuda", None)
    (found,) = machine._devices()
    assert found.text == "this host has an NVIDIA driver, but torch is a CPU build"


def test_a_missing_core_package_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    real = machine._version
    monkeypatch.setattr(machine, "_version", lambda name: None if name == "peft" else real(name))
    found = [one for one in machine._core_packages() if one.status == "FAIL"]
    assert [one.text.partition(";")[0] for one in found] == ["peft is not installed"]
    assert found[0].remedy == "pip install 'peft>=0.18'"


def test_more_threads_than_cpus() -> None:
    assert machine._threads(0).status == "warn"


# ------------------------------------------------------------------------------------ a run


def test_an_sft_run_that_will_work(tiny_folder: Path, look: Look) -> None:
    found = look(_sft(tiny_folder))
    assert {one.status for one in found.values()} == {"ok"}
    assert found["special tokens"].details == (
        "EOS  <|im_end|>       3  tokenizer, config.json, generation_config.json",
        "BOS  <|bos|>          1  tokenizer, config.json, generation_config.json",
        "PAD  <|pad|>          0  tokenizer, config.json, generation_config.json",
        "put before plain text by the tokenizer itself: nothing",
    )
    assert found["EOS learnt"].text == "<|im_end|> is the last trained token of every response"
    assert any("^^^^^^^^^^" in line for line in found["first row"].details)
    assert "40 of 40 rows" in found["data"].text
    assert "given back they are paid, another answer is not" in found["gold answers"].text
    assert "a rough estimate" in found["memory of the run"].text
    assert float(found["first loss"].text.split()[0]) > 0


def test_a_grpo_run_that_will_work(tiny_folder: Path, tmp_path: Path, look: Look) -> None:
    found = look(grpo_arguments(tiny_folder, tmp_path))
    assert [one.what for one in found.values() if one.status != "ok"] == ["stop strings"]
    assert found["batch"].text.startswith("4 prompts x 4 samples = 16 rows a step, 1 update(s)")
    assert found["objective"].text.startswith("grpo: ratio token")
    gap = float(found["engine, trainer"].text.split(" by ")[1].split()[0])
    assert gap < 1e-4
    assert found["diversity"].text == "samples of one prompt differ"
    assert found["first row"].text.endswith("a prompt, of which nothing is trained")


def test_the_command_prints_both_phases_and_counts(tiny_folder: Path, capsys: Captured) -> None:
    arguments = ["-c", "quickstart", f"model.name_or_path={tiny_folder}"]
    assert main(["doctor", *arguments, "output_dir=nowhere"]) == 0
    out = capsys.readouterr().out
    assert out.index("\nSFT run quickstart/sft\n") < out.index("\nGRPO run quickstart/grpo\n")
    assert out.splitlines()[-1] == "all is well" or "no failures" in out.splitlines()[-1]


def test_a_failure_is_the_exit_code(
    tiny_folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "machine_findings", lambda: iter(()))
    settings = _sft(tiny_folder, "evaluation.sampling.max_tokens=300")[1:]
    assert main(["doctor", *settings]) == 1
    out = capsys.readouterr().out
    assert "FAIL  positions" in out
    assert "are more than the model's 256 positions" in out
    assert "-> lower max_prompt_length, or sampling.max_tokens to 243" in out
    assert out.splitlines()[-1] == "1 failure, no warnings"


def test_settings_without_a_file_are_checked_too(tmp_path: Path, capsys: Captured) -> None:
    assert main(["doctor", "model.name_or_path=./nowhere"]) == 1
    out = capsys.readouterr().out
    assert "FAIL  model, template   no model folder at nowhere" in out
    assert "-     the rest" in out


# --------------------------------------------------------------------- EOS, BOS and padding


def test_padding_with_eos_is_named_and_learnt(tmp_path: Path, look: Look) -> None:
    found = look(_sft(_saved(tmp_path / "m", pad_is_eos=True)))
    assert found["padding"].text.startswith("with EOS; masks come from lengths")
    assert found["EOS learnt"].status == "ok"


def test_an_automatic_bos_stands_once(tmp_path: Path, look: Look) -> None:
    model = _saved(tmp_path / "m", add_bos=True)
    found = look(_sft(model))
    assert found["BOS"].text == "stands once, at the beginning of every prompt"
    assert found["special tokens"].details[-1].endswith("itself: <|bos|>")
    found = look(_sft(model, "data.template=own"))
    assert found["BOS"].text.startswith("the chat template writes the prompt")


def test_a_template_with_its_own_bos_does_not_double_it(tmp_path: Path, look: Look) -> None:
    model = _saved(tmp_path / "m", add_bos=True)
    template = tmp_path / "bos.txt"
    template.write_text("<|bos|>{question}\n<think>\n")
    found = look(_sft(model, f"data.template={template}"))
    assert found["BOS"].text == "stands once, at the beginning of every prompt"


def test_two_bos_in_a_template_fail(tmp_path: Path, look: Look) -> None:
    model = _saved(tmp_path / "m", add_bos=True)
    template = tmp_path / "bos.txt"
    template.write_text("<|bos|><|bos|>{question}\n<think>\n")
    found = look(_sft(model, f"data.template={template}"))
    assert found["BOS"].status == "FAIL"
    assert "begins with two BOS tokens" in found["BOS"].text


def test_every_eos_of_the_files_is_listed(tiny_folder: Path, tmp_path: Path, look: Look) -> None:
    model = tmp_path / "m"
    shutil.copytree(tiny_folder, model)
    file = model / "generation_config.json"
    settings = json.loads(file.read_text())
    file.write_text(
        json.dumps({**settings, "eos_token_id": [3, 1], "top_k": 1, "temperature": 0.6})
    )
    found = look(_sft(model))
    assert found["special tokens"].details[:2] == (
        "EOS  <|im_end|>       3  tokenizer, config.json, generation_config.json",
        "EOS  <|bos|>          1  generation_config.json",
    )
    assert "top_k=1" in found["generation_config"].text
    assert "are not used" in found["generation_config"].text


def test_a_turn_that_ends_with_another_token_is_pointed_out(tmp_path: Path, look: Look) -> None:
    tokenizer = tiny_tokenizer(
        chat_template="{% for m in messages %}{{ m['content'] }}<|im_start|>{% endfor %}"
    )
    tiny_model(tokenizer).save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    found = look(_sft(tmp_path / "m", "data.template=own", "data.validation_fraction=0"))
    assert found["end of a turn"].status == "warn"
    assert "ends an answer with <|im_start|> (2), which is not among" in found["end of a turn"].text


# ------------------------------------------------------------------------ data and rewards


def test_overlong_prompts_are_counted(tiny_folder: Path, look: Look) -> None:
    found = look(_sft(tiny_folder, "data.max_prompt_length=12"))
    lengths = found["prompt lengths"]
    assert lengths.status == "warn"
    assert "are over the limit of 12 and left out" in lengths.text
    found = look(_sft(tiny_folder, "data.max_prompt_length=12", "data.overlong=error"))
    assert found["prompt lengths"].status == "FAIL"


def test_missing_data_leaves_the_rest_out(tiny_folder: Path, look: Look) -> None:
    found = look(["sft", "-c", "sft", f"model.name_or_path={tiny_folder}", "data.train.path=./no"])
    assert found["data"].status == "FAIL"
    assert found["the rest"].status == "-"


def test_golds_that_cannot_be_graded_fail(tiny_folder: Path, tmp_path: Path, look: Look) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"question": "1+1", "answer": "2"}\n{"question": "2+2", "answer": ""}\n')
    arguments = ["grpo", "-c", "grpo", "~data", f"model.name_or_path={tiny_folder}"]
    arguments.append(f"data={{train: {{path: {file}}}, template: think}}")
    found = look(arguments)
    assert found["data"].status == "FAIL"
    assert "1 of 2 gold answers are not usable" in found["data"].text
    arguments[-1] = f"data={{train: {{path: {file}}}, template: think, bad_gold: drop}}"
    found = look([*arguments, "sampling.max_tokens=20", "evaluation.every_steps=0"])
    assert (found["data"].status, found["gold answers"].status) == ("warn", "ok")


def test_a_reward_that_the_prompt_does_not_ask_for(tiny_folder: Path, look: Look) -> None:
    found = look(_sft(tiny_folder, "reward=question_only"))
    assert found["template, reward"].status == "warn"
    assert "(boxed)" in found["template, reward"].text


def test_evaluation_without_validation_rows(tiny_folder: Path, look: Look) -> None:
    found = look(_sft(tiny_folder, "data.validation_fraction=0"))
    assert found["validation"].status == "warn"
    assert "nothing is evaluated" in found["validation"].text
    # Nothing is sampled then, so neither positions for answers nor a reward matter.
    assert found["sampling"].status == "-"
    assert not found.keys() & {"positions", "engine", "gold answers", "template, reward"}
    assert found["first loss"].status == "ok"


def test_an_existing_folder_is_pointed_out(sft_run: Path, tiny_folder: Path, look: Look) -> None:
    arguments = run_arguments("sft", tiny_folder, sft_run.parent, f"name={sft_run.name}")
    assert look(arguments)["folder"].status == "warn"


def test_an_evaluation_and_a_question(tiny_folder: Path, look: Look) -> None:
    data = "datasets=[{path: arithmetic, options: {num_problems: 4, terms: 2}}]"
    model = f"model.name_or_path={tiny_folder}"
    found = look(["eval", "-c", "eval", model, data, "template=think", "sampling.max_tokens=9"])
    assert {one.status for one in found.values()} == {"ok"}
    found = look(["sample", "-c", "sample", model, "sampling.max_tokens=9"])
    assert {one.status for one in found.values()} == {"ok"}
    assert "gold answers" not in found


# ---------------------------------------------------------------------------------- findings


def test_a_line_wraps_and_says_what_to_do() -> None:
    text = format_finding(warn("thing", "word " * 30, "do " * 40, details=["a table"]))
    lines = text.splitlines()
    assert lines[0].startswith("warn  thing             word word")
    assert all(line.startswith(" " * 24) for line in lines[1:-1])
    assert sum("->" in line for line in lines) == 1
    assert lines[-1] == "      a table"
    assert all(len(line) <= 100 for line in lines)


def test_the_summary_counts() -> None:
    assert summary([ok("a", "b")]) == "all is well"
    found = [warn("a", "b", "c"), fail("a", "b", None), fail("a", "b", None)]
    assert summary(found) == "2 failures, 1 warning"


def test_an_error_of_a_check_is_a_failure_with_its_hint() -> None:
    def check() -> list[Finding]:
        raise ModelError("broken", hint="mend it")

    assert guarded("x", check) == [fail("x", "broken", "mend it")]
