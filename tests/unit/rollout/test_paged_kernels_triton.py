import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNELS = HERE.parents[2] / "src" / "workings" / "rollout" / "paged" / "kernels"


def run_python(*arguments: str) -> str:
    """What a Python process of its own printed; it must end with 0."""
    pytest.importorskip("triton", reason="triton is not installed")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    folders = [str(HERE), str(HERE.parents[1]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(folders)
    run = subprocess.run(
        [sys.executable, *arguments],
        cwd=HERE.parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_the_triton_kernels_agree_with_their_torch_versions() -> None:
    cases = str(HERE / "interpreted_paged_kernels.py")
    assert " passed" in run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", cases)


@pytest.mark.slow
def test_every_triton_kernel_compiles_for_an_h100() -> None:
    printed = run_python(str(HERE / "compiled_paged_kernels.py"))
    kernels = {
        line.removeprefix("def ").partition("(")[0]
        for path in KERNELS.glob("*_triton.py")
        for line in path.read_text().splitlines()
        if line.startswith("def ") and "kernel(" in line
    }
    assert len(kernels) >= 10
    assert {line.split()[1] for line in printed.splitlines() if "compiled" in line} == kernels
