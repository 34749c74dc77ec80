"""`workings eval-luffy`: the flags of the earlier script, and the files that it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workings.cli.commands import eval_luffy
from workings.cli.main import main
from workings.evaluation.reports import read_results
from workings.rollout.transformers_engine import TransformersEngine
from workings.tracking.alone import run_alone
from workings.types import Sample

Captured = pytest.CaptureFixture[str]
TEXTS = {
    "1+1?": "so </think> \\boxed{2}",  # right
    "1+2?": "<think> so \\boxed{3}",  # a thought that was not finished
    "2+2?": "so </think> \\boxed{\\frac{8}{2}}",  # right in value, not in form
    "2+3?": "so </think> \\boxed{9}",
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A file with LUFFY's columns; two rows have a system message."""
    file = tmp_path / "valid.parquet"
    table = [
        {
            "data_source": "aime" if number < 2 else "math",
            "prompt": [
                *([{"role": "system", "content": "be brief"}] if number % 2 else []),
                {"role": "user", "content": question},
            ],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"split": "default", "index": number},
        }
        for number, (question, answer) in enumerate(zip(TEXTS, "2345", strict=True))
    ]
    pq.write_table(pa.Table.from_pylist(table), file)
    return file


@pytest.fixture
def saying(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The real engine is asked, and its answers are replaced; the prompts' ids are listed."""
    asked: list[list[int]] = []
    collect, submit = TransformersEngine.collect, TransformersEngine.submit
    waiting: list[Any] = []

    def remembered(self: Any, requests: Any, sampling: Any) -> Any:
        asked.extend(list(request.prompt_ids) for request in requests)
        waiting[:] = requests
        return submit(self, requests, sampling)

    def told(self: Any, pending: Any) -> list[list[Sample]]:
        from dataclasses import replace

        texts = []
        for request, samples in zip(waiting, collect(self, pending), strict=True):
            prompt = self._tokenizer.decode(list(request.prompt_ids))
            text = next(text for question, text in TEXTS.items() if question in prompt)
            texts.append([replace(sample, text=text) for sample in samples])
        return texts

    monkeypatch.setattr(TransformersEngine, "submit", remembered)
    monkeypatch.setattr(TransformersEngine, "collect", told)
    return asked


def arguments(model: Path, rows: Path, output: Path, *more: str) -> list[str]:
    return [
        *("eval-luffy", "--model_path", str(model), "--input_file", str(rows)),
        *("--output_file", str(output), "--max_tokens", "4", *more),
    ]


@pytest.mark.parametrize(
    ("flags", "right"),
    [
        ((), [True, False, True, False]),
        (("--add_oat_evaluate",), [True, False, False, False]),
        (("--any_true",), [True, False, True, False]),
    ],
)
def test_two_graders_and_unfinished_thoughts(
    flags: tuple[str, ...],
    right: list[bool],
    tiny_folder: Path,
    rows: Path,
    tmp_path: Path,
    saying: list[list[int]],
    capsys: Captured,
) -> None:
    output = tmp_path / "results" / "own.jsonl"
    assert main(arguments(tiny_folder, rows, output, "--remove_system", *flags)) == 0
    out = capsys.readouterr().out
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["correctness"] for row in found] == right
    assert {"prompt", "generated_text", "answer", "correctness"} <= found[0].keys()
    assert [row["generated_text"] for row in found] == list(TEXTS.values())
    decoded = output.with_name("own.decoded.jsonl").read_text().splitlines()
    assert [json.loads(line)["generated_text"] for line in decoded] == list(TEXTS.values())
    assert "be brief" not in output.read_text()
    log = output.with_suffix(".log").read_text()
    assert all(line in log for line in out.splitlines())
    assert [line.split()[:1] for line in out.splitlines()[2:]] == [["aime"], ["math"], ["average"]]
    assert [row["correct"] for row in read_results(output)] == right


def test_a_system_message_stays_unless_it_is_removed(
    tiny_folder: Path, rows: Path, tmp_path: Path, saying: list[list[int]]
) -> None:
    output = tmp_path / "with.jsonl"
    assert main(arguments(tiny_folder, rows, output, "--n", "2")) == 0
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(found) == 8
    assert sum("be brief" in row["prompt"] for row in found) == 4


def test_the_same_command_goes_on_and_other_settings_are_refused(
    tiny_folder: Path, rows: Path, tmp_path: Path, saying: list[list[int]], capsys: Captured
) -> None:
    output = tmp_path / "own.jsonl"
    assert main(arguments(tiny_folder, rows, output)) == 0
    asked = len(saying)
    before = output.read_bytes()
    assert main(arguments(tiny_folder, rows, output)) == 0
    assert len(saying) == asked
    assert output.read_bytes() == before
    capsys.readouterr()
    assert main(arguments(tiny_folder, rows, output, "--temperature", "0.9")) == 2
    assert "sampling.temperature: 0.6 stored, 0.9 now" in capsys.readouterr().err
    assert main(arguments(tiny_folder, rows, output, "--temperature", "0.9", "--fresh")) == 0
    assert len(saying) == 2 * asked


def test_a_mistyped_name_loses_nothing(
    tiny_folder: Path, rows: Path, tmp_path: Path, saying: list[list[int]]
) -> None:
    """--fresh removes responses only once the model and the data have loaded."""
    output = tmp_path / "own.jsonl"
    assert main(arguments(tiny_folder, rows, output)) == 0
    asked = len(saying)
    assert main(arguments(tmp_path / "nowhere", rows, output, "--fresh")) == 1
    assert main(arguments(tiny_folder, tmp_path / "nowhere.parquet", output, "--fresh")) == 2
    assert main(arguments(tiny_folder, rows, output)) == 0
    assert len(saying) == asked


def test_flags_that_contradict_each_other(
    tiny_folder: Path, rows: Path, tmp_path: Path, capsys: Captured
) -> None:
    output = tmp_path / "own.jsonl"
    both = ("--add_oat_evaluate", "--any_true")
    assert main(arguments(tiny_folder, rows, output, *both)) == 2
    assert "contradict each other" in capsys.readouterr().err
    assert main(arguments(tiny_folder, rows, tmp_path / "own.txt")) == 2
    assert "ends in .jsonl" in capsys.readouterr().err
    assert main(arguments(tiny_folder, rows, output, "--unknown", "1")) == 2


def test_without_system_does_nothing_where_there_is_none() -> None:
    from workings.types import Message, Problem

    plain = Problem(id="p", question="?", answer="1")
    assert eval_luffy.without_system(plain) is plain
    turns = (Message(role="system", content="s"), Message(role="user", content="?"))
    both = Problem(id="p", question="?", answer="1", messages=turns)
    assert eval_luffy.without_system(both).messages == turns[1:]


def test_a_file_of_something_else_is_not_overwritten(
    rows: Path, tmp_path: Path, capsys: Captured
) -> None:
    output = tmp_path / "metrics.jsonl"
    output.write_text('{"step": 1}\n')
    for option in ((), ("--fresh",)):
        assert main(arguments(tmp_path / "model", rows, output, *option)) == 2
        assert (
            f"{output} exists, and metrics.responses beside it has no responses that it was made of"
        ) in capsys.readouterr().err
    assert output.read_text() == '{"step": 1}\n'
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "valid.parquet"]


def test_two_starts_of_one_file_do_not_mix(rows: Path, tmp_path: Path, capsys: Captured) -> None:
    with run_alone(tmp_path / "own.responses"):
        assert main(arguments(tmp_path / "model", rows, tmp_path / "own.jsonl")) == 2
    assert f"another process is writing {tmp_path}/own.responses" in capsys.readouterr().err
