"""Every command that the documentation shows parses, with its configuration composed."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from workings.cli import main as cli
from workings.cli.commands.wandb_setup import settings_text
from workings.config.compose import compose
from workings.config.dump import dump_yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
APPS = ("shared", "runs", "grading", "results", "inspect", "data", "wandb", "profile")
STARTS = ("workings ", ".venv/bin/workings ", "uv run workings ")
RUNS = {
    "runs/mine": ("grpo", ["grpo"]),
    "runs/mine/checkpoints/step_000100": ("grpo", ["grpo"]),
    "runs/quickstart/grpo": ("grpo", ["quickstart"]),
}
"""Folders that the pages speak of, and the run that each would hold."""


def commands_of(text: str) -> Iterator[str]:
    """The `workings` commands in the bash blocks of a page, continued lines joined."""
    for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith(STARTS):
                yield line.strip()


def arguments_of(command: str) -> list[str]:
    """The arguments after `workings`, a comment at the end left out."""
    words = shlex.split(command, comments=True)
    return words[words.index(next(w for w in words if w.endswith("workings"))) + 1 :]


def every_command() -> list[tuple[str, str]]:
    return [
        (page.relative_to(ROOT).as_posix(), command)
        for page in PAGES
        for command in commands_of(page.read_text(encoding="utf-8"))
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and runs that the pages speak of."""
    root = tmp_path_factory.mktemp("docs")
    for name, (kind, configs) in RUNS.items():
        (root / name).mkdir(parents=True)
        run = compose(configs, ["name=mine"], kind=kind)
        (root / name / "config.yaml").write_text(dump_yaml(run), encoding="utf-8")
    page = ROOT / "docs" / "guides" / "your-own-data.md"
    (mine,) = re.findall(r"```yaml\n(# mine\.yaml\n.*?)```", page.read_text(), re.DOTALL)
    (root / "mine.yaml").write_text(mine, encoding="utf-8")
    text = settings_text(entity="team", project="sums", online=True)
    (root / "wandb.yaml").write_text(text, encoding="utf-8")
    (root / "my_template.txt").write_text("{question}\n", encoding="utf-8")
    return root


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    """The names of commands that would have run; nothing does."""
    names: list[str] = []

    def note(command: str, *arguments: object, **options: object) -> int:
        names.append(command)
        return 0

    for name in APPS:
        module = importlib.import_module(f"workings.cli.apps.{name}")
        if hasattr(module, "hand_over"):
            monkeypatch.setattr(module, "hand_over", note)
    monkeypatch.chdir(folder)
    return names


@pytest.mark.parametrize(("page", "command"), every_command())
def test_commands_of_the_docs_parse(
    page: str, command: str, handed_over: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(arguments_of(command))
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert handed_over or printed.out


def test_there_are_commands_to_check() -> None:
    assert len(every_command()) > 40


def test_every_command_has_its_module() -> None:
    apps = [(Path(cli.__file__).parent / "apps" / f"{name}.py").read_text() for name in APPS]
    names = re.findall(r'hand_over\(\s*"(\w+)"', "\n".join(apps))
    kinds = ["sft", "grpo", "pipeline", "eval"]
    folder = Path(cli.__file__).parent / "commands"
    assert [n for n in [*kinds, *names] if not (folder / f"{n}.py").is_file()] == []


@pytest.mark.parametrize("name", ["mine.yaml", "m2.yaml"])
def test_files_of_the_docs_compose(name: str, folder: Path) -> None:
    """The two YAML files that the guides show."""
    if name == "m2.yaml":
        page = ROOT / "docs" / "guides" / "configuration.md"
        (text,) = re.findall(r"```yaml\n(# mine\.yaml\n.*?)```", page.read_text(), re.DOTALL)
        (folder / name).write_text(text, encoding="utf-8")
    run = compose([str(folder / name)], kind="grpo")
    assert run.name == "mine"  # type: ignore[union-attr]


def test_messages_of_the_docs_are_the_real_ones(
    handed_over: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "guides" / "configuration.md").read_text(encoding="utf-8")
    shown = re.findall(r"```text\n(error: .*?)```", text, re.DOTALL)
    for arguments, message in zip(
        (["optimizer.learning_rat=1"], ["train_batch_size=100"]), shown, strict=True
    ):
        assert cli.main(["grpo", "-c", "grpo", *arguments]) == 2
        assert capsys.readouterr().err == message


def test_the_quickstart_is_as_described() -> None:
    """500 held-out problems, eight answers to each, and a control."""
    run = compose(["quickstart"], kind="pipeline")
    assert run.test.options["num_problems"] == 500  # type: ignore[union-attr]
    assert run.test.options["terms"] == 4  # type: ignore[union-attr]
    assert run.sft.data.train.options["terms"] == [2, 3]  # type: ignore[union-attr]
    assert run.grpo.num_generations == 8  # type: ignore[union-attr]
    assert run.control  # type: ignore[union-attr]
    page = " ".join((ROOT / "docs" / "guides" / "quickstart.md").read_text().split())
    for said in ("500 sums of four digits", "two or three digits", "samples eight answers"):
        assert said in page


def test_a_wrong_command_is_found(handed_over: list[str]) -> None:
    text = "```bash\nworkings grpo -c grpo \\\n    max_stepz=3   # no\n$ ls\n```\n"
    (command,) = commands_of(text)
    assert arguments_of(command) == ["grpo", "-c", "grpo", "max_stepz=3"]
    assert cli.main(arguments_of(command)) == 2
