"""The rollout benchmark: models, cases, workers and turns; our side on a CPU, vLLM's settings."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(str(BENCHMARKS))
        from shapes import SHAPES, write_model

        return write_model(SHAPES["tiny"], tmp_path_factory.mktemp("model") / "tiny")


# ------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_transformers_reads_the_random_model_whole(family: str, tmp_path: Path) -> None:
    from dataclasses import replace

    import torch
    from shapes import SHAPES, write_model

    from workings.models.load import load_model

    shape = replace(SHAPES["tiny"], family=family)
    folder = write_model(shape, tmp_path / family)
    loaded = load_model(str(folder), device="cpu")  # refuses a model that lacks weights
    assert not [line for line in loaded.report if "left out" in line]
    weights = dict(loaded.model.named_parameters())
    assert sum(weight.numel() for weight in weights.values()) == shape.num_parameters
    matrix = weights["model.layers.1.mlp.up_proj.weight"]
    assert matrix.std().item() == pytest.approx(0.02, rel=0.05)
    assert torch.equal(weights["model.norm.weight"], torch.ones(shape.hidden))


def test_a_prompt_as_text_has_the_ids_it_was_made_of(tiny: Path) -> None:
    from shapes import SHAPES, load_tokenizer, random_prompts, text_of

    tokenizer = load_tokenizer(tiny)
    prompts = random_prompts(SHAPES["tiny"], 5, 9, seed=1)
    assert [tuple(tokenizer(text_of(ids))["input_ids"]) for ids in prompts] == prompts
    assert tokenizer.eos_token_id == 0
    assert tokenizer.pad_token_id == 1
    assert random_prompts(SHAPES["tiny"], 5, 9, seed=2) != prompts


@pytest.mark.parametrize("name", ["0.5B", "135M"])
def test_every_family_has_a_tokenizer_that_reads_its_prompts(name: str, tmp_path: Path) -> None:
    from shapes import SHAPES, load_tokenizer, random_prompts, text_of, write_tokenizer

    write_tokenizer(SHAPES[name], tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    (prompt,) = random_prompts(SHAPES[name], 1, 9, seed=1)
    assert tuple(tokenizer(text_of(prompt))["input_ids"]) == prompt


# -------------------------------------------------------------------------------------------- cases


def test_cases_have_titles_of_their_own_and_the_sizes_of_the_issue() -> None:
    from rollout_cases import CASES, PUBLISHED

    assert len({CASES[name].title for name in PUBLISHED}) == len(PUBLISHED)
    main = CASES["main"]
    assert (main.sequences, main.tokens, main.longest) == (1024, 1024 * 1024, 1280)
    assert CASES[CASES["defaults"].also or ""].lengths() == CASES["defaults"].lengths()


def test_mixed_lengths_have_a_long_tail_and_stay_the_same() -> None:
    from rollout_cases import CASES

    case = CASES["mixed"]
    lengths = sorted(case.lengths())
    assert lengths == sorted(case.lengths())
    assert lengths[0] >= 16
    assert lengths[-1] <= case.output_tokens
    assert lengths[-1] > 4 * lengths[len(lengths) // 2]
    assert case.tokens == case.samples * sum(lengths)


def test_no_two_repeats_share_a_prompt() -> None:
    from rollout_cases import CASES

    case = CASES["smoke"]
    assert case.prompt_ids(0) == case.prompt_ids(0)
    assert not set(case.prompt_ids(0)) & set(case.prompt_ids(1))


def test_groups_share_model_and_settings() -> None:
    from rollout_cases import chosen

    groups = chosen(["main", "3B", "defaults", "seqs_64"])
    assert [[case.name for case in group] for group in groups] == [
        ["main", "seqs_64"],
        ["3B"],
        ["defaults"],
    ]


def test_a_warm_up_shrinks_through_forty_sizes() -> None:
    from rollout_engines import stairs

    lengths = stairs(1024)
    assert len(lengths) == 1024
    assert sorted(set(lengths)) == [8 * number for number in range(1, 41)]


# -------------------------------------------------------------------------------------------- turns


class Noted:
    """A side that writes down what it is told."""

    def __init__(self, name: str, notes: list[str], seconds: float = 1.0) -> None:
        self.name, self.notes, self.seconds = name, notes, seconds

    def call(self, method: str, *arguments: Any, timeout: float | None = None) -> Any:
        from rollout_engines import Run

        repeat = f" {arguments[1]}" if method == "run" else ""
        self.notes.append(f"{self.name} {method}{repeat}")
        return Run(tokens=100, seconds=self.seconds)

    def close(self) -> None:
        self.notes.append(f"{self.name} close")


def test_sides_alternate_and_one_sleeps_where_there_is_no_room() -> None:
    from rollout import Turns, measure
    from rollout_cases import CASES
    from workers import Budget

    notes: list[str] = []
    turns = Turns({"ours": Noted("ours", notes), "vllm": Noted("vllm", notes)}, sleeping=True)
    runs = measure(CASES["smoke"], turns, repeats=2, budget=Budget(None), sides=("ours", "vllm"))
    assert notes == [
        *("vllm sleep", "ours run 0", "ours sleep", "vllm wake", "vllm run 0"),
        *("vllm sleep", "ours wake", "ours run 1", "ours sleep", "vllm wake", "vllm run 1"),
    ]
    assert [len(runs[side]) for side in ("ours", "vllm")] == [2, 2]


def test_both_stay_awake_where_there_is_room() -> None:
    from rollout import Turns, measure
    from rollout_cases import CASES
    from workers import Budget

    notes: list[str] = []
    turns = Turns({"ours": Noted("ours", notes), "vllm": Noted("vllm", notes)})
    measure(CASES["smoke"], turns, repeats=1, budget=Budget(None), sides=("ours", "vllm"))
    assert notes == ["ours run 0", "vllm run 0"]


def test_no_repeat_is_begun_that_the_budget_does_not_hold() -> None:
    from rollout import Turns, measure
    from rollout_cases import CASES
    from workers import Budget

    turns = Turns({"ours": Noted("ours", [], seconds=60.0)})
    runs = measure(CASES["smoke"], turns, repeats=3, budget=Budget(60.0), sides=("ours",))
    assert len(runs["ours"]) == 1


def test_a_row_has_median_range_peer_and_ratio() -> None:
    from report import FIELDS
    from rollout import row
    from rollout_cases import CASES
    from rollout_engines import Run

    def runs(*rates: int) -> list[Run]:
        return [Run(tokens=rate, seconds=1.0) for rate in rates]

    found = row(
        CASES["main"], {"ours": runs(6000, 6400, 6200), "vllm": runs(2000)}, peer="vLLM 0, tuned"
    )
    assert found == {
        "name": "1.5B, 128 x 8 samples, 256 in, 1,024 out",
        "value": 6200,
        "unit": "tokens/s",
        "n": 3,
        "note": "6,000 to 6,400 of 3; vLLM 0, tuned 2,000 to 2,000 of 1",
        "peer": "vLLM 0, tuned",
        "peer_value": 2000,
        "ratio": 3.1,
    }
    assert found.keys() <= FIELDS
    alone = row(CASES["main"], {"ours": [], "vllm": runs(2000)}, peer="vLLM 0, tuned")
    assert alone is not None
    assert alone["name"].startswith("vLLM 0, tuned: ")
    assert row(CASES["main"], {"ours": []}, peer="") is None


# ---------------------------------------------------------------------------------------- the sides


def test_our_side_samples_as_many_tokens_as_the_case_says(tiny: Path) -> None:
    from rollout_cases import CASES
    from rollout_engines import Ours

    side = Ours()
    settings = {"folder": str(tiny), "name": "transformers", "device": "cpu", "share": 0.5}
    side.open([CASES["smoke"]], settings)
    for case in (CASES["smoke"], CASES["smoke_mixed"]):
        run = side.run(case, 0)
        assert run.tokens == case.tokens
        assert run.seconds > 0
    side.sleep()
    side.wake()
    side.close()


def test_other_lengths_or_no_logprobs_end_the_measurement() -> None:
    from rollout_cases import CASES
    from rollout_engines import check

    case = CASES["smoke"]
    right = [12] * case.sequences
    assert check(case, right, True) == case.tokens
    with pytest.raises(
        ValueError, match=r"smoke: 1 completions have other lengths: \[\(11, 12\)\]"
    ):
        check(case, [11, *right[1:]], True)
    with pytest.raises(ValueError, match="log-probabilities are missing"):
        check(case, right, False)


def test_vllm_at_its_defaults_gets_nothing_but_its_share() -> None:
    from rollout_engines import vllm_sampling, vllm_settings

    asked = {"share": 0.8, "longest": 1280, "sleeps": False}
    assert vllm_settings("defaults", **asked) == {"gpu_memory_utilization": 0.8}
    tuned = vllm_settings("tuned", **asked | {"sleeps": True})
    assert tuned["compilation_config"]["cudagraph_capture_sizes"][-1] == 1024
    assert tuned["enable_sleep_mode"]
    assert tuned["max_model_len"] > 1280
    assert vllm_sampling("defaults").items() <= vllm_sampling("tuned").items()
    assert vllm_sampling("defaults")["logprobs"] == 0


# ------------------------------------------------------------------------------------------ workers

ECHO = """
import os, time

class Worker:
    def attach(self, connection):
        self.attached = connection is not None

    def say(self, text):
        return f"{os.environ['SAID']} {text} {self.attached}"

    def fail(self):
        raise ValueError("no such thing")

    def wait(self, seconds):
        time.sleep(seconds)

    def close(self):
        pass
"""


def test_a_worker_answers_fails_and_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workers import Elsewhere, WorkerFailed

    (tmp_path / "echo_worker.py").write_text(ECHO)
    monkeypatch.syspath_prepend(str(tmp_path))
    worker = Elsewhere("echo_worker:Worker", environment={"SAID": "hello"}, preload=("no_such",))
    assert worker.call("say", "you", timeout=60) == "hello you True"
    with pytest.raises(WorkerFailed, match="ValueError: no such thing"):
        worker.call("fail", timeout=60)
    with pytest.raises(WorkerFailed, match="echo_worker:Worker did not answer within 0 s"):
        worker.call("wait", 0.5, timeout=0.01)
    worker.close()
    with pytest.raises(WorkerFailed, match="echo_worker:Worker has ended"):
        worker.call("say", "you")


# ------------------------------------------------------------------------------------- results file


def test_a_file_keeps_the_rows_of_earlier_calls_on_the_same_machine(tmp_path: Path) -> None:
    from measured import document, write

    path = tmp_path / "deep" / "rollout.json"
    rows = [{"name": "one", "value": 1.0}, {"name": "two", "value": 2.0}]
    write(path, document("rollout", rows, command="first", device={"gpu": "card"}, notes=["a"]))
    again = [{"name": "two", "value": 3.0}]
    write(path, document("rollout", again, command="then", device={"gpu": "card"}, notes=["b"]))
    content = json.loads(path.read_text())
    assert content["results"] == [rows[0], again[0]]
    assert content["notes"] == ["a", "b"]
    assert content["machine"]["gpu"] == "card"
    other = document("rollout", again, command="other", device={"gpu": "another"})
    with pytest.raises(ValueError, match="was measured with machine"):
        write(path, other)


def test_the_command_refuses_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    import rollout

    with pytest.raises(SystemExit):
        rollout.main(["--cases", "main,nothing"])
    assert "unknown case nothing; there are main" in capsys.readouterr().err


def test_a_call_measures_ours_and_writes_the_file(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import measurement
    import rollout
    from rollout_engines import Ours
    from workers import Here

    made = SimpleNamespace(Maker=measurement.Maker, Ours=Ours)
    monkeypatch.setattr(
        measurement, "Elsewhere", lambda name, **_: Here(getattr(made, name.split(":")[1])())
    )
    out = tmp_path / "rollout.json"
    arguments = ["--cases", "smoke", "--only", "ours", "--engine", "transformers"]
    arguments += ["--device", "cpu", "--models", str(tiny.parent), "--out", str(out)]
    assert rollout.main([*arguments, "--repeats", "2", "--commit", "abc"]) == 0
    content = json.loads(out.read_text())
    assert content["commit"] == "abc"
    [line] = content["results"]
    assert line["name"] == "tiny, 4 x 2 samples, 16 in, 12 out"
    assert line["n"] == 2
    assert line["value"] > 0


def test_a_side_that_cannot_start_is_left_out(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import measurement
    import rollout
    from rollout_engines import Ours
    from workers import Here, WorkerFailed

    class Broken:
        def open(self, *arguments: Any) -> None:
            raise WorkerFailed("no such engine")

        def close(self) -> None:
            pass

    made = SimpleNamespace(Maker=measurement.Maker, Ours=Ours, VLLM=Broken)
    monkeypatch.setattr(
        measurement, "Elsewhere", lambda name, **_: Here(getattr(made, name.split(":")[1])())
    )
    arguments = ["--cases", "smoke", "--engine", "transformers", "--device", "cpu"]
    arguments += ["--models", str(tiny.parent), "--out", str(tmp_path / "rollout.json")]
    assert rollout.main([*arguments, "--repeats", "1"]) == 1
    assert "measuring without vllm: no such engine" in capsys.readouterr().err
    [line] = json.loads((tmp_path / "rollout.json").read_text())["results"]
    assert "peer" not in line


def test_no_benchmark_has_the_name_of_a_package_that_transformers_looks_for() -> None:
    """A script's folder comes first on the path, so its files are found before packages."""
    import re

    from transformers.utils import import_utils

    asked = {
        found[1] for name in dir(import_utils) if (found := re.match(r"is_(\w+)_available", name))
    }
    assert "kernels" in asked
    assert not asked & {path.stem for path in BENCHMARKS.glob("*.py")}
