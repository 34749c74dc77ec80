"""What a number depends on: `environment.json` of a run, and the conditions of a benchmark."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

PACKAGES = (
    "workings",
    "torch",
    "triton",
    "transformers",
    "tokenizers",
    "safetensors",
    "peft",
    "accelerate",
    "datasets",
    "pyarrow",
    "numpy",
    "math-verify",
    "latex2sympy2_extended",
    "sympy",
    "hydra-core",
    "pydantic",
    "vllm",
    "ray",
    "flash-attn",
    "liger-kernel",
    "torchao",
    "bitsandbytes",
    "wandb",
    "tensorboard",
    "reasoning-gym",
)
"""Distributions whose version can change a result."""

_SECRET = re.compile(
    r"(?i)\b([\w.-]*(?:api[_-]?key|wandb_key|secret|password|(?:hf|access|auth)_?token))=\S+"
)


def environment_report(*, device: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A JSON-ready record of this machine, its software, the commit and the command.

    `device` describes the accelerator (the caller knows torch, this module does not).
    """
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "num_cpus": os.cpu_count(),
        "num_usable_cpus": _num_usable_cpus(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "device": dict(device) if device is not None else None,
        "packages": package_versions(PACKAGES),
        "git": git_state(Path(__file__).parent),
        "command": command_line(sys.argv),
    }


def package_versions(names: Sequence[str]) -> dict[str, str]:
    """Installed version by distribution name; those not installed are left out."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def git_state(folder: Path) -> dict[str, Any] | None:
    """{"commit": ..., "dirty": ...} of the checkout that tracks `folder`; None outside of one.

    A package installed into the environment of some other repository is not tracked by it, and
    that repository's commit would say nothing about this code.
    """
    tracked = _git(folder, "ls-files", "--", ".")
    if not tracked:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": _git(folder, "rev-parse", "HEAD"), "dirty": bool(changes)}


def command_line(arguments: Sequence[str]) -> str:
    """The command as it could be typed again, with what looks like a credential blanked out.

    >>> command_line(["workings", "grpo", "name=a b", "wandb.api_key=123", "max_tokens=64"])
    "workings grpo 'name=a b' 'wandb.api_key=***' max_tokens=64"
    """
    return shlex.join(_SECRET.sub(r"\1=***", argument) for argument in arguments)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _num_usable_cpus() -> int | None:
    # A container or taskset may leave fewer than the machine has; macOS cannot say.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _processor() -> str | None:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None
