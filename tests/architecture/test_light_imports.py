"""What has to start fast imports neither torch nor anything that pulls it in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "workings"
HEAVY = (
    *("torch", "transformers", "vllm", "ray", "wandb", "peft", "accelerate", "liger_kernel"),
    *("streamlit", "tensorboard"),
)
LIGHT_ROOMS = ("config", "tracking", "data", "grading", "cli/apps")
LIGHT_FILES = (
    *("__init__.py", "types.py", "errors.py", "seeds.py", "rollout/engine.py"),
    *("cli/main.py", "cli/options.py", "cli/console.py", "cli/settings_help.py"),
)

# Imports the modules named in argv[1] one after another, and prints which brought in what.
PROBE = """
import importlib, json, sys
modules, heavy = json.loads(sys.argv[1])
found = []
for module in modules:
    importlib.import_module(module)
    for name in [name for name in heavy if name in sys.modules]:
        found.append(f"{module} imports {name}")
        heavy.remove(name)
print(json.dumps(found))
"""


def heavy_imports(modules: list[str], path: Path | None = None) -> list[str]:
    """One line for every heavy package that importing the modules brings in, in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps([modules, HEAVY])],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **({"PYTHONPATH": str(path)} if path else {})},
    )
    found: list[str] = json.loads(done.stdout)
    return found


def light_modules() -> list[str]:
    """Every module that has to do without torch."""
    files = [SOURCE / name for name in LIGHT_FILES]
    files += [path for room in LIGHT_ROOMS for path in sorted((SOURCE / room).rglob("*.py"))]
    names = (
        ".".join(["workings", *file.relative_to(SOURCE).with_suffix("").parts]) for file in files
    )
    return [name.removesuffix(".__init__") for name in names]


def test_light_modules_import_nothing_heavy() -> None:
    assert heavy_imports(light_modules()) == []


def test_a_heavy_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "innocent.py").write_text("")
    (tmp_path / "guilty.py").write_text("import torch\n")
    found = heavy_imports(["innocent", "guilty"], tmp_path)
    assert found == ["guilty imports torch"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["grpo", "--help"],
        ["grpo", "-c", "quickstart", "--dry-run"],
        ["pipeline", "-c", "tags_pipeline", "--dry-run", "--model", "smollm2"],
        ["eval", "datasets=[gsm8k]", "--dry-run"],
    ],
)
def test_help_and_dry_run_import_no_torch(arguments: list[str]) -> None:
    """Their time is printed; it has to stay below a second on a machine with nothing else to do."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "workings.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert imports_in(done.stderr) & set(HEAVY) == set()
    print(f"workings {' '.join(arguments)}: {seconds:.2f} s")  # noqa: T201


def imports_in(importtime: str) -> set[str]:
    """Top-level packages in the output of `python -X importtime`."""
    lines = [line for line in importtime.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}


def test_an_import_is_seen_in_the_times() -> None:
    text = "import time:  10 |  20 | typing\nimport time:  1 | 2 |   torch.nn\nother"
    assert imports_in(text) == {"typing", "torch"}
