"""`workings sample`: answers on stdout, everything about them on stderr."""

from __future__ import annotations

from pathlib import Path

import pytest

from workings.cli.commands.sample import BETWEEN
from workings.cli.main import main

Captured = pytest.CaptureFixture[str]


def _arguments(model: Path, *more: str) -> list[str]:
    return ["sample", str(model), "2+3", "--template", "think", "sampling.max_tokens=6", *more]


def test_one_answer_is_all_that_stands_on_stdout(tiny_folder: Path, capsys: Captured) -> None:
    assert main(_arguments(tiny_folder)) == 0
    out, err = capsys.readouterr()
    assert BETWEEN not in out
    assert "note: answer 1 of 1: " in err
    assert "note: template think: 11 prompt tokens, ending '2+3\\n<think>'\n" in err
    assert "note: sampling: temperature 0.7, max_tokens 6, stop at EOS and '</answer>'" in err
    assert "note: engine: transformers" in err


def test_several_answers_differ_and_are_repeatable(tiny_folder: Path, capsys: Captured) -> None:
    outputs = []
    for seed in (0, 0, 1):
        assert main(_arguments(tiny_folder, "-n", "3", f"seed={seed}")) == 0
        out, err = capsys.readouterr()
        outputs.append(out)
        assert "note: answer 3 of 3: " in err
    answers = outputs[0].removesuffix("\n").split(BETWEEN)
    assert len(answers) == len(set(answers)) == 3
    assert outputs[0] == outputs[1] != outputs[2]


def test_the_ending_is_named(tiny_folder: Path, capsys: Captured) -> None:
    assert main(_arguments(tiny_folder, "sampling.max_tokens=2", "sampling.min_tokens=2")) == 0
    assert "answer 1 of 1: 2 tokens, cut at sampling.max_tokens" in capsys.readouterr().err


def test_a_chat_template_and_a_system_prompt(tiny_folder: Path, capsys: Captured) -> None:
    arguments = ["sample", str(tiny_folder), "hi", "system_prompt=Be brief.", "max_new_tokens=2"]
    assert main(arguments) == 0
    assert "40 prompt tokens, ending '>\\n<|im_start|>assistant\\n'" in capsys.readouterr().err


def test_a_model_that_is_not_there(capsys: Captured) -> None:
    assert main(["sample", "./nowhere", "hi"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: no model folder at nowhere")
