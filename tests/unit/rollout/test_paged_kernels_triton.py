import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_the_triton_kernels_agree_with_their_torch_versions() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, str(HERE / "interpreted_paged_kernels.py")],
        cwd=HERE.parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout
