"""Benchmarks as files in one schema, and as questions to compare training data with.

A benchmark is one of the group `benchmark` of the configuration, or a path. A local copy in the
folder of data sets is read instead of the hub, as an evaluation would.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workings.config.dataset import DatasetConfig
from workings.config.datasets import SUITES, benchmark_names, named_datasets
from workings.config.sources import shipped_folder
from workings.data.arithmetic import ARITHMETIC
from workings.data.benchmarks import copy_of, problem_arguments, shipped_benchmarks
from workings.data.contamination import BenchmarkQuestions, benchmark_questions
from workings.data.loaded import Loaded
from workings.data.loading import load_problems
from workings.data.preparation.card import CARD, RECORD, card_text, record_text
from workings.data.preparation.checksums import sha256_of
from workings.data.preparation.written import new_folder
from workings.data.problems import group_repeats
from workings.data.sources import DATA_DIR_VARIABLE, named_copy
from workings.errors import ConfigError, DataError, unknown_name
from workings.types import Problem

Log = Callable[[str], None]
FOLDER, FILE = "data/eval", "test.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Where the rows of one benchmark are.

    Attributes:
        name: of the set.
        config: as `workings eval` would load it.
        data_dir: the folder of local copies; $WORKINGS_DATA_DIR where None.
    """

    name: str
    config: DatasetConfig
    data_dir: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The local files that are read; empty where the rows come from the hub."""
        copy = copy_of(self.config, self.data_dir)
        if copy is not None:
            return tuple(path for path in copy if path.is_file())
        path = Path(self.config.path).expanduser()
        return (path,) if path.is_file() else ()

    def load(self) -> Loaded[Problem]:
        """Its problems row by row, without the wording that asks for a form of answer.

        Rows whose gold is unusable are left out and counted.
        """
        bare = {"wording": None, "repeats": "keep", "problems": None, "bad_gold": "drop"}
        config = self.config.model_copy(update={"name": self.name, **bare})
        return load_problems(**problem_arguments(config), data_dir=self.data_dir)


def find_benchmarks(name: str, *, folder: Path | None = None) -> list[Benchmark]:
    """The benchmark of that name, those of that suite, or the data set at that path.

    ConfigError for a name that is none of them, DataError for a `folder` that does not exist.
    """
    if folder is not None and not folder.is_dir():
        raise DataError(f"{folder} is not a folder")
    if Path(name).expanduser().exists():
        configs = [DatasetConfig(path=name, name=_name_of(Path(name)), split="test")]
    else:
        found = named_datasets(name, [shipped_folder()])
        configs = [DatasetConfig.model_validate(values) for values in found]
        _require_known(name, configs[0], folder)
    return [Benchmark(name=_name_in(config), config=config, data_dir=folder) for config in configs]


def every_benchmark(*, folder: Path | None = None) -> list[Benchmark]:
    """The benchmarks of the configuration that are read, not generated."""
    return [
        Benchmark(name=_name_in(config), config=config, data_dir=folder)
        for config in shipped_benchmarks()
        if config.path != ARITHMETIC
    ]


def questions_of(
    names: Sequence[str], *, folder: Path | None = None, log: Log
) -> list[BenchmarkQuestions]:
    """The distinct questions of each benchmark, for `ContaminationIndex`."""
    found: dict[str, BenchmarkQuestions] = {}
    for benchmark in _selected(names, folder):
        loaded = benchmark.load()
        found[benchmark.name] = benchmark_questions(
            benchmark.name, (p.id for p in loaded.items), (p.question for p in loaded.items)
        )
        count = len(found[benchmark.name].ids)
        log(f"{benchmark.name}: {count:,} distinct questions from {loaded.origin}")
    return list(found.values())


def prepare_benchmark(
    benchmark: Benchmark,
    target: Path,
    *,
    replace: bool = False,
    command: str,
    versions: Mapping[str, str],
    log: Log,
) -> dict[str, object]:
    """Write `test.jsonl` and its card into the folder `target`, and give the card's record.

    One row a distinct problem: id, problem, answer, subject, level, source, then the columns that
    the source has besides. Rows that repeat a problem (a file made for avg@32 has each 32 times)
    are counted: the number of samples is a setting of the evaluation.
    """
    loaded = benchmark.load()
    distinct = group_repeats(loaded.items)
    repeated = len(loaded.items) - len(distinct)
    dropped = {**loaded.dropped, **({"repeated": repeated} if repeated else {})}
    with new_folder(target, replace=replace) as folder:
        for row in distinct:
            folder.write(FILE, _record(row.problem))
        record: dict[str, object] = {
            "recipe": benchmark.name,
            "about": f"The benchmark {benchmark.name} in the schema of Workings",
            "source": {
                "origin": loaded.origin,
                "published": benchmark.config.path,
                "revision": None if benchmark.files else "not recorded: read by `datasets`",
                "licence": "see the source's page; questions of a benchmark are not training data",
                "hub_licence": None,
                "limit": None,
            },
            "settings": {},
            "steps": [
                "the question is in `problem`, with its choices where it has some; the gold in "
                "`answer`, reduced to what is compared",
                "a problem that is repeated is written once",
            ],
            "rows": {
                "read": loaded.total,
                "written": {FILE: len(distinct)},
                "dropped": dropped,
                "changed": {},
            },
            "inputs": _inputs(benchmark),
            "outputs": folder.finish_rows(),
            "command": command,
            "versions": dict(versions),
        }
        folder.write_text(RECORD, record_text(record))
        folder.write_text(CARD, card_text(record))
    log(
        f"{benchmark.name}: {len(distinct):,} problems of {loaded.total:,} rows"
        + "".join(f"; {reason.replace('_', ' ')} {count:,}" for reason, count in dropped.items())
    )
    return record


def _require_known(name: str, config: DatasetConfig, folder: Path | None) -> None:
    """ConfigError where `name` is no benchmark's, no hub id, and no data set in the folder."""
    given = folder or os.environ.get(DATA_DIR_VARIABLE)
    if config.path != name or config.name or "/" in name or not given:
        return
    place = Path(given).expanduser()
    if place.is_dir() and named_copy(name, config.split, place) is None:
        raise ConfigError(
            unknown_name("benchmark", name, [*benchmark_names([shipped_folder()]), *SUITES]),
            hint="a file, a folder, a hub id (owner/name) or the name of a data set in "
            f"{place} may stand here as well",
        )


def _name_in(config: DatasetConfig) -> str:
    return config.name or _name_of(Path(config.path))


def _name_of(path: Path) -> str:
    """The name of a set at a path; that of its folder for FOLDER/test.jsonl.

    >>> _name_of(Path("data/eval/gsm8k/test.jsonl")), _name_of(Path("mine.jsonl"))
    ('gsm8k', 'mine')
    """
    return path.parent.name if path.stem == "test" and path.parent.name else path.stem


def _inputs(benchmark: Benchmark) -> list[dict[str, object]]:
    return [
        {"file": file.name, "bytes": file.stat().st_size, "sha256": sha256_of(file)}
        for file in benchmark.files
    ]


def _record(problem: Problem) -> dict[str, object]:
    own: dict[str, object] = {
        "id": problem.id,
        "problem": problem.question,
        "answer": problem.answer or None,
        "subject": problem.subject,
        "level": problem.level,
        "source": problem.source,
    }
    return {**own, **{name: value for name, value in problem.extra.items() if name not in own}}


def select_benchmarks(names: Sequence[str], *, folder: Path | None = None) -> list[Benchmark]:
    """The benchmarks of these names and suites, each once; all of them for no name."""
    return _selected(names, folder) if names else every_benchmark(folder=folder)


def _selected(names: Sequence[str], folder: Path | None) -> list[Benchmark]:
    if "" in names:
        raise ConfigError("a benchmark's name is empty", hint="separate names with single commas")
    found = [one for name in names for one in find_benchmarks(name, folder=folder)]
    return list({benchmark.name: benchmark for benchmark in found}.values())
