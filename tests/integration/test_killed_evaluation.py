"""An evaluation that was killed, or that several processes share, ends as one that was not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from warm_process import WarmProcess

from tiny import save_tiny
from workings.cli.main import main
from workings.rollout.transformers_engine import TransformersEngine

DATA_SETS = (
    "datasets=[{path: arithmetic, name: short, options: {num_problems: 10, terms: 2}}, "
    "{path: arithmetic, name: long, options: {num_problems: 7, terms: 4}}]"
)
GREEDY = ("sampling.temperature=0.0",)
SAMPLED = ("sampling.temperature=0.8", "sampling.top_p=0.9", "num_samples=2")
SETTINGS = {"greedy": GREEDY, "sampled": SAMPLED}
PART_ROWS = 4
PARTS = {"greedy": (3, 2), "sampled": (5, 4)}
"""Of the two data sets, with 4 and 2 problems in a part."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


def arguments(model, output, *more):
    return [
        *("eval", "-c", "eval", f"model.name_or_path={model}", f"output_dir={output}", "name=e"),
        *("template=think", "sampling.max_tokens=10", "tracking.console=false", DATA_SETS),
        *("num_threads=1", f"part_rows={PART_ROWS}", *more),
    ]


@pytest.fixture(scope="module")
def straight(model, tmp_path_factory):
    """The files of evaluations that nothing disturbs, made when first asked for."""
    made = {}

    def files(kind):
        if kind not in made:
            output = tmp_path_factory.mktemp(f"straight-{kind}")
            assert main(arguments(model, output, *SETTINGS[kind])) == 0
            made[kind] = contents(output / "e")
        return made[kind]

    return files


def contents(folder):
    """Every file of the data sets, without the time that a summary tells."""
    found = {}
    for path in sorted(folder.glob("*/*")):
        if path.name == "summary.json":
            summary = json.loads(path.read_text())
            del summary["seconds"], summary["settings"]["backend"]
            found[f"{path.parent.name}/{path.name}"] = summary
        elif path.name != "sampling.json":
            found[f"{path.parent.name}/{path.name}"] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def processes():
    process = WarmProcess("killed_evaluation", env={"OMP_NUM_THREADS": "1"})
    yield process
    process.close()


@pytest.mark.parametrize(
    ("kind", "moment", "at", "left"),
    [
        ("greedy", "sample", 2, 4),
        ("sampled", "storing", 3, 7),
        pytest.param("sampled", "stored", 7, 2, marks=pytest.mark.slow),
        pytest.param("greedy", "grade", 1, 2, marks=pytest.mark.slow),
    ],
)
def test_a_killed_evaluation_goes_on_where_it_stood(
    kind, moment, at, left, model, straight, processes, tmp_path, monkeypatch
):
    """`left` parts are sampled after the kill, and what was there before is not touched."""
    given = arguments(model, tmp_path, *SETTINGS[kind])
    end = processes.run(
        "killed_evaluation", [moment, str(at), *given], output=tmp_path / "output.txt"
    )
    assert end.returncode == -signal.SIGKILL, end.output
    before = {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in (tmp_path / "e").glob("*/responses*/part_*.parquet")
    }
    sampled = []
    submit = TransformersEngine.submit

    def counted(self, requests, sampling):
        sampled.append(requests)
        for path, state in before.items():  # gone once its data set is complete
            assert not path.exists() or (path.stat().st_mtime_ns, path.read_bytes()) == state
        return submit(self, requests, sampling)

    monkeypatch.setattr(TransformersEngine, "submit", counted)
    assert main([*given, "--resume"]) == 0
    assert len(sampled) == left
    assert left < sum(PARTS[kind])
    assert contents(tmp_path / "e") == straight(kind)


@pytest.mark.parametrize("kind", ["greedy", pytest.param("sampled", marks=pytest.mark.slow)])
def test_several_processes_give_what_one_gives(kind, model, straight, tmp_path):
    given = arguments(model, tmp_path, *SETTINGS[kind], "devices=[cpu,cpu]")
    assert main(given) == 0
    assert contents(tmp_path / "e") == straight(kind)
    log = (tmp_path / "e" / "run.log").read_text()
    assert "in 2 processes, on cpu, cpu" in log


def test_responses_do_not_depend_on_the_size_of_parts_where_they_are_drawn(
    model, straight, tmp_path
):
    """The seeds follow from the problems; the arithmetic of this model does from nothing else."""
    assert main(arguments(model, tmp_path, *SAMPLED, "part_rows=6")) == 0
    ours = (tmp_path / "e" / "short" / "results.jsonl").read_bytes()
    assert ours == straight("sampled")["short/results.jsonl"]


def test_stored_responses_are_graded_again_without_torch(model, tmp_path):
    """Importing torch or transformers would fail in that process."""
    assert main(arguments(model, tmp_path, *GREEDY)) == 0
    folder = tmp_path / "e"
    before = contents(folder)
    program = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; "
        "from workings.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    for more in ([], ["reward.mode=four_class"]):
        done = subprocess.run(
            [sys.executable, "-c", program, "eval", "--regrade", str(folder), *more],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "graded again, without a model" in done.stderr
        after = contents(folder)
        assert (after == before) == (not more)
        assert after["short/responses.parquet"] == before["short/responses.parquet"]
    settings = json.loads((folder / "short" / "summary.json").read_text())["settings"]
    assert settings["grader"]["mode"] == "four_class"
    assert settings["backend"].startswith("engine: transformers")
