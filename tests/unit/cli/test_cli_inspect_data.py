"""`workings inspect data`: what is shown of rows, lengths, splits and dropped rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import run_arguments

from tiny import save_tiny, tiny_tokenizer
from workings.cli.main import main

Captured = pytest.CaptureFixture[str]


def _inspect(kind: str, model: Path, *more: str) -> list[str]:
    kind_and_config = run_arguments(kind, model, Path("runs"), *more)[1:]
    return ["inspect", "data", *kind_and_config]


def _inspect_file(model: Path, file: Path) -> list[str]:
    arguments = ["inspect", "data", "-c", "sft", f"model.name_or_path={model}"]
    return [*arguments, "~data", f"data={{train: {{path: {file}}}, template: think}}"]


def _demonstrations(folder: Path) -> Path:
    rows = [
        {"prompt": "1+1", "response": "2</think> <answer>2</answer>", "answer": "2"},
        {"prompt": "2+2", "response": "4" * 60, "answer": "4"},
    ]
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_demonstrations_with_their_loss_mask(
    tiny_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    arguments = _inspect_file(tiny_folder, _demonstrations(tmp_path))
    assert main([*arguments, "data.max_response_length=40"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    rows, _, checks = (part.splitlines() for part in out.partition("\n\nok "))
    assert rows == [
        "template: think (plain text)",
        "its stop strings: '</answer>'",
        f"data: 2 of 2 rows from {tmp_path / 'rows.jsonl'} "
        "(answer = answer, question = prompt, response = response)",
        "demonstrations: 1 rows, the longest of 72 tokens; over a limit: 1 dropped, 0 truncated",
        "prompt tokens: median 11, 90 % at most 11, shortest 11, longest 11",
        "response tokens: median 29, 90 % at most 29, shortest 29, longest 29",
        "trained: 29 of 40 tokens (72%)",
        "",
        "row 1: rows/0, 11 prompt and 29 response tokens, 29 trained",
        "gold answer: '2'",
        "BOS: none; EOS <|im_end|> (3) at 39 (trained)",
        "stop string '</answer>' at 30 to 38",
        "   0  1|+|1|↵|",
        "   4  <|t|h|i|n|k|>|2|<|/|t|h|i|n|k|>|·|<|a|n|s|w|e|r|>|2|<|/|a|n|s|w|e|r|>|<|im_end|>|",
        "                    ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^^^^^^^^^^",
    ]
    assert "stop strings      '</answer>': nowhere before the end" in "\n".join(checks)
    assert not any(line.startswith("FAIL") for line in checks)


def test_a_cut_response_has_no_eos(tiny_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    arguments = _inspect_file(tiny_folder, _demonstrations(tmp_path))
    # Every response is cut, so EOS would never be learnt: a fault.
    assert main([*arguments, "data.max_response_length=20", "data.overlong=truncate"]) == 1
    out = capsys.readouterr().out
    assert "the response is cut at the limit, so it has no EOS\nBOS: none; EOS: none\n" in out
    assert "over a limit: 0 dropped, 2 truncated" in out


def test_all_tokens_trained_but_the_first(tiny_folder: Path, capsys: Captured) -> None:
    arguments = _inspect("sft", tiny_folder, "completion_only=false", "--limit", "1")
    assert main(arguments) == 0
    out = capsys.readouterr().out
    heading = next(line for line in out.splitlines() if line.startswith("row 1"))
    num_prompt, num_response = (int(heading.split()[i]) for i in (3, 6))
    assert heading.endswith(f"{num_prompt + num_response - 1} trained")


def test_prompts_of_a_grpo_run_and_its_split(tiny_folder: Path, capsys: Captured) -> None:
    arguments = _inspect("grpo", tiny_folder, "data.validation_fraction=0.25", "--limit", "2")
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "split: 30 rows to train on, 10 held out for validation" in out
    assert "row 2: arithmetic/" in out
    assert "row 3" not in out
    assert "^" not in out
    assert "Nothing of a prompt is trained; the tokens that are sampled after it are.\n" in out


def test_the_chat_template_and_the_system_prompt(tiny_folder: Path, capsys: Captured) -> None:
    arguments = ["eval", f"model.name_or_path={tiny_folder}", "template=own"]
    arguments += ["datasets=[{path: arithmetic, options: {num_problems: 2, terms: 2}}]"]
    assert main(["inspect", "data", "-c", *arguments, "system_prompt=Add."]) == 0
    out = capsys.readouterr().out
    assert "template: own (a chat template writes the prompt)" in out
    assert "its stop strings: none, EOS alone ends a response" in out
    assert "system prompt: 'Add.'" in out
    assert "<|im_start|>|s|y|s|t|e|m|↵|" in out


def test_both_phases_of_a_pipeline(tiny_folder: Path, capsys: Captured) -> None:
    arguments = ["-c", "pipeline", f"model.name_or_path={tiny_folder}", "data.template=think"]
    for phase in ("sft", "grpo"):
        arguments.append(
            f"{phase}.data.train={{path: arithmetic, split: train, options: {{num_problems: 9}}}}"
        )
    assert main(["inspect", "data", *arguments, "--limit", "1"]) == 0
    out = capsys.readouterr().out
    assert out.index("== SFT ==") < out.index("response tokens") < out.index("== GRPO ==")


def test_a_question_has_no_data(capsys: Captured) -> None:
    assert main(["inspect", "data", "-c", "sample"]) == 2
    assert "kind 'sample' has no data set to inspect" in capsys.readouterr().err


# ------------------------------------------------------------------------------------- faults


def _rows(folder: Path, *rows: tuple[str, str]) -> Path:
    file = folder / "rows.jsonl"
    lines = [json.dumps({"prompt": prompt, "response": response}) for prompt, response in rows]
    file.write_text("\n".join(lines) + "\n")
    return file


def test_every_fault_is_named(tiny_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    file = _rows(
        tmp_path,
        ("1+1", "2</think> <answer>2</answer> or <answer>3</answer>"),
        ("2+2", "<b> <think>4</think> <answer>4</answer>"),
        ("3+3" * 40, "6</think> <answer>6</answer>"),
    )
    arguments = _inspect_file(tiny_folder, file)
    assert main([*arguments, "data.max_prompt_length=60", "data.overlong=error"]) == 1
    out, err = capsys.readouterr()
    failed = [line.split("  ")[1].strip() for line in out.splitlines() if line[:4] == "FAIL"]
    assert failed == ["stop strings", "thought", "prompt lengths", "row lengths"]
    assert "1 of 3 responses hold the stop string '</answer>' before their end" in " ".join(
        out.split()
    )
    assert "error: 4 faults in the data: stop strings, thought, prompt lengths" in err


def test_a_tokenizer_without_eos_is_a_fault(tmp_path: Path, capsys: Captured) -> None:
    """Fault 2: what cannot be learnt is said before a run, not after."""
    folder = save_tiny(tmp_path / "model")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["eos_token"] = None
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    arguments = _inspect_file(folder, _rows(tmp_path, ("1+1", "2</think> <answer>2</answer>")))
    assert main(arguments) != 0
    printed = capsys.readouterr()
    assert "EOS" in printed.out + printed.err


def test_a_template_that_writes_bos_twice_is_a_fault(tmp_path: Path, capsys: Captured) -> None:
    """Fault 3, with a tokenizer that adds BOS itself."""
    folder = tmp_path / "model"
    save_tiny(folder)
    tokenizer = tiny_tokenizer(
        add_bos=True,
        chat_template="<|bos|><|bos|>{% for m in messages %}{{ m['content'] }}{% endfor %}",
    )
    tokenizer.save_pretrained(folder)
    file = _rows(tmp_path, ("1+1", "2"))
    arguments = [*_inspect_file(folder, file), "data.template=own"]
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert "rows/0 begins with two BOS tokens" in " ".join(out.split())
    assert "BOS" in err


def test_prompts_of_demonstrations(tiny_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    file = _demonstrations(tmp_path)
    arguments = ["inspect", "prompts", *_inspect_file(tiny_folder, file)[2:], "--limit", "1"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "row 1: rows/0, 11 tokens" in out
    assert "^" not in out
    assert "row 2" not in out
    assert "packing           the same targets and positions padded and packed (2 rows)" in out
