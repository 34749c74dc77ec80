"""The adapter module works wherever the course's suite expects it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import tests.adapters, tests.test_dropped_in
sys.path.insert(0, sys.argv[1] + "/tests")
import adapters
print(tests.test_dropped_in.found, tests.adapters.run_parse_gsm8k_response("72"))
print(adapters.run_parse_gsm8k_response("72"))
"""


def test_sft_grpo_and_dpo_adapters_import_from_a_package_and_by_themselves(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    shutil.copy(TESTS / "adapters.py", folder)
    (folder / "__init__.py").touch()
    (folder / "test_dropped_in.py").write_text(
        "from .adapters import run_masked_mean, run_parse_mmlu_response\n"
        "found = run_parse_mmlu_response({}, 'The correct answer is C')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["C", "72", "72"]
