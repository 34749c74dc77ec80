"""Benchmarks whose rows are not at hand, on rows made in the schema that their source publishes.

The hub is replaced by a table of (id, subset, split) to rows; all behind it is the real reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workings.data import sources
from workings.data.benchmarks import load_benchmark
from workings.data.choices import LABELS
from workings.data.loaded import Loaded
from workings.errors import DataError
from workings.types import Problem

Row = dict[str, Any]
Hub = dict[tuple[str, str | None, str], list[Row]]
Publish = Callable[[Hub], None]
IN_FORM = "\n\nAnswer with the letter of the right choice, in the form ANSWER: X."


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Puts rows on the hub; there is no folder of data sets."""
    monkeypatch.delenv("WORKINGS_DATA_DIR", raising=False)

    def put(hub: Hub) -> None:
        def read(hub_id: str, subset: str | None, split: str) -> list[Row]:
            return hub[hub_id, subset, split]

        monkeypatch.setattr(sources, "read_hub", read)

    return put


def note_of(loaded: Loaded[Problem]) -> str:
    (note,) = loaded.notes
    return note


def test_gpqa_gives_the_right_choice_a_place_of_its_own(publish: Publish) -> None:
    rows = [
        {
            "Record ID": f"rec{number}",
            "Question": f"Which of these is the sum of {number} and 1?\n",
            "Correct Answer": f"{number + 1} \n",
            "Incorrect Answer 1": "wrong 1",
            "Incorrect Answer 2": "wrong 2",
            "Incorrect Answer 3": "wrong 3",
            "Subdomain": "Arithmetic",
            "High-level domain": "Mathematics",
            "Explanation": "because",
        }
        for number in range(200)
    ]
    publish({("Idavidrein/gpqa", "gpqa_diamond", "train"): rows})
    loaded = load_benchmark("gpqa_diamond")
    assert note_of(loaded).endswith("has 200 problems, and 198 are expected")
    for number, problem in enumerate(loaded.items):
        options = problem.question.removesuffix(IN_FORM).split("\n")[1:]
        right = options["ABCD".index(problem.answer)]
        assert right == f"{problem.answer}) {number + 1}"
        assert [o[3:] for o in options if o != right] == ["wrong 1", "wrong 2", "wrong 3"]
    places = [problem.answer for problem in loaded.items]
    assert all(30 < places.count(letter) < 70 for letter in "ABCD")
    first = loaded.items[0]
    assert (first.id, first.subject, first.level) == (
        "gpqa_diamond/rec0",
        "Arithmetic",
        "Mathematics",
    )
    assert first.extra["Explanation"] == "because"
    publish({("Idavidrein/gpqa", "gpqa_diamond", "train"): rows[100:]})
    assert load_benchmark("gpqa_diamond").items == loaded.items[100:]


def test_gpqa_as_data_prepare_writes_it(tmp_path: Path) -> None:
    row = {"id": "gpqa_diamond/rec1", "problem": "q\nA) x\nB) y", "answer": "B", "subject": "s"}
    (tmp_path / "gpqa_diamond.jsonl").write_text(json.dumps(row))
    (problem,) = load_benchmark("gpqa_diamond", data_dir=tmp_path).items
    assert (problem.question, problem.answer) == (f"q\nA) x\nB) y{IN_FORM}", "B")
    assert (problem.subject, problem.extra[LABELS]) == ("s", "AB")


def test_a_choice_that_is_missing_is_an_error(publish: Publish) -> None:
    row = {"Record ID": "r", "Question": "q", "Correct Answer": "a", "Subdomain": "s"}
    row |= {"High-level domain": "h"} | {f"Incorrect Answer {i}": None for i in (1, 2, 3)}
    publish({("Idavidrein/gpqa", "gpqa_diamond", "train"): [row]})
    with pytest.raises(DataError, match="row 0: the choice in column 'Incorrect Answer 1' is None"):
        load_benchmark("gpqa_diamond")


def test_mmlu_pro_has_up_to_ten_choices(publish: Publish) -> None:
    row = {
        "question_id": 70,
        "question": "Which letter is last?",
        "options": list("abcdefghij"),
        "answer": "J",
        "answer_index": 9,
        "cot_content": "",
        "category": "business",
        "src": "ori_mmlu-business_ethics",
    }
    publish({("TIGER-Lab/MMLU-Pro", None, "test"): [row]})
    (problem,) = load_benchmark("mmlu_pro").items
    assert (problem.answer, problem.subject, problem.id) == ("J", "business", "mmlu_pro/70")
    assert problem.question.endswith(f"\nI) i\nJ) j{IN_FORM}")
    assert problem.extra[LABELS] == "ABCDEFGHIJ"


def mmlu_row(subject: str, answer: int = 1) -> Row:
    return {
        "question": "2+2?",
        "subject": subject,
        "choices": ["3", "4", "5", "6"],
        "answer": answer,
    }


def test_mmlu_and_its_parts(publish: Publish) -> None:
    rows = [mmlu_row("virology", 0), mmlu_row("astronomy", 1), mmlu_row("formal_logic", 3)]
    publish({("cais/mmlu", "all", "test"): rows})
    loaded = load_benchmark("mmlu")
    assert [(p.subject, p.answer) for p in loaded.items] == [
        *(("virology", "A"), ("astronomy", "B"), ("formal_logic", "D")),
    ]
    assert note_of(loaded) == "cais/mmlu (test) has 3 problems, and 14,042 are expected"
    assert "about virology that" in loaded.items[0].question
    assert loaded.items[0].question.endswith("2+2?\nA) 3\nB) 4\nC) 5\nD) 6\nAnswer:")
    assert [p.subject for p in load_benchmark("mmlu_stem").items] == ["astronomy"]
    assert [p.subject for p in load_benchmark("mmlu_math").items] == ["formal_logic"]
    assert [p.subject for p in load_benchmark("mmlu_virology").items] == ["virology"]
    with pytest.raises(DataError, match="none of 3 rows has subject=sociology"):
        load_benchmark("mmlu_sociology")


def test_arc_challenge_numbers_some_choices(publish: Publish) -> None:
    def row(labels: str, key: str) -> Row:
        choices = {"text": [f"t{label}" for label in labels], "label": list(labels)}
        return {"id": f"M{key}", "question": "q", "choices": choices, "answerKey": key}

    publish({("allenai/ai2_arc", "ARC-Challenge", "test"): [row("ABCD", "C"), row("1234", "2")]})
    first, second = load_benchmark("arc_c").items
    assert (first.answer, second.answer) == ("C", "B")
    assert second.question == f"q\nA) t1\nB) t2\nC) t3\nD) t4{IN_FORM}"


def test_mathqa_and_aqua(publish: Publish) -> None:
    mathqa = {
        "Problem": "What is 19 * 2 ?",
        "Rationale": "...",
        "options": "a ) 38 , b ) 27.675 , c ) 30 , d ) data inadequate , e ) none of these",
        "correct": "a",
        "annotated_formula": "multiply(19, 2)",
        "linear_formula": "",
        "category": "general",
    }
    aqua = {"question": "1+1?", "options": ["A)1", "B)2", "C)3", "D)4", "E)5"], "rationale": ""}
    publish(
        {
            ("regisss/math_qa", None, "test"): [mathqa],
            ("deepmind/aqua_rat", "raw", "test"): [{**aqua, "correct": "B"}],
        }
    )
    (problem,) = load_benchmark("mathqa").items
    assert (problem.answer, problem.subject) == ("A", "general")
    assert problem.question == (
        "What is 19 * 2 ?\nA) 38\nB) 27.675\nC) 30\nD) data inadequate\nE) none of these" + IN_FORM
    )
    (problem,) = load_benchmark("aqua").items
    assert (problem.answer, problem.question) == (
        "B",
        f"1+1?\nA) 1\nB) 2\nC) 3\nD) 4\nE) 5{IN_FORM}",
    )


def test_sat(publish: Publish) -> None:
    row = {"Question": "q", "Possible Answers": "A) 5 B) 6 C) 7 D) 8", "Answer": "D"}
    publish({("mcaleste/sat_multiple_choice_math_may_23", None, "train"): [row]})
    (problem,) = load_benchmark("sat_math").items
    assert (problem.answer, problem.question) == ("D", f"q\nA) 5\nB) 6\nC) 7\nD) 8{IN_FORM}")


def aimo_rows(contest: str, years: tuple[int, ...], answer: object) -> list[Row]:
    wiki = "https://artofproblemsolving.com/wiki/index.php"
    return [
        {
            "id": 100 * year + number,
            "problem": f"Problem {number} of {year}?",
            "solution": "...",
            "answer": answer,
            "url": f"{wiki}/{year}_{contest}_I_Problems/Problem_{number}",
        }
        for year in years
        for number in range(1, 31)
    ]


def test_the_years_of_aime(publish: Publish) -> None:
    parts = {
        ("opencompass/AIME2025", f"AIME2025-{part}", "test"): [
            {"question": f"{part}, {number}?", "answer": f"{number}"} for number in range(1, 16)
        ]
        for part in ("I", "II")
    }
    aimo = aimo_rows("AIME", (2022, 2023, 2024), "204")
    publish({("AI-MO/aimo-validation-aime", None, "train"): aimo, **parts})
    for year in (22, 23, 24):
        loaded = load_benchmark(f"aime{year}")
        assert (len(loaded.items), loaded.notes) == (30, ())
        assert {p.question[-6:-1] for p in loaded.items} == {f" 20{year}"}
    loaded = load_benchmark("aime25")
    assert (len(loaded.items), loaded.notes) == (30, ())
    assert loaded.items[15].id == "aime25/AIME2025-II/0"
    together = load_benchmark("aime")
    assert (len(together.items), together.notes) == (120, ())
    assert len({p.id for p in together.items}) == 120
    assert [p.question for p in together.items[90:]] == [p.question for p in loaded.items]


def test_golds_of_the_hub_that_are_numbers(publish: Publish) -> None:
    publish({("AI-MO/aimo-validation-amc", None, "train"): aimo_rows("AMC", (2022,), 142.0)})
    assert load_benchmark("amc").items[0].answer == "142"
    row = {"ID": "2000-I-1", "Year": 2000, "Question": "q", "Answer": "5", "Problem Number": 1}
    rows = [row, {**row, "ID": "2024-I-1", "Year": 2024}]
    publish({("di-zhang-fdu/AIME_1983_2024", None, "train"): rows})
    loaded = load_benchmark("aime_1983_2023")
    assert [(p.id, p.answer) for p in loaded.items] == [("aime_1983_2023/2000-I-1", "5")]
    assert "1 problems, and 975 are expected" in note_of(loaded)


def test_golds_inside_of_solutions(publish: Publish) -> None:
    publish(
        {
            ("openai/gsm8k", "main", "test"): [{"question": "q", "answer": "6*2=12\n#### 1,200"}],
            ("DigitalLearningGmbH/MATH-lighteval", None, "test"): [
                {
                    "problem": "q",
                    "level": "Level 5",
                    "type": "Algebra",
                    "solution": r"First \boxed{1}, then $\boxed{\frac{1}{2}}$.",
                }
            ],
            ("math-ai/olympiadbench", None, "test"): [
                {"question": "q", "final_answer": [r"$\frac{1}{2n+2}$"], "solution": ["..."]}
            ],
        }
    )
    assert load_benchmark("gsm8k").items[0].answer == "1200"
    (problem,) = load_benchmark("math").items
    assert (problem.answer, problem.subject) == (r"\frac{1}{2}", "Algebra")
    assert load_benchmark("olympiadbench").items[0].answer == r"\frac{1}{2n+2}"


def test_svamp_is_both_splits(publish: Publish) -> None:
    row = {"ID": "chal-1", "Body": "b", "Question": "q?", "Equation": "( 8.0 - 3.0 )"}
    row |= {"Answer": "5.0", "Type": "Subtraction", "question_concat": "b q?"}
    publish({("ChilleD/SVAMP", None, "train+test"): [row]})
    (problem,) = load_benchmark("svamp").items
    assert (problem.question, problem.answer, problem.subject) == ("b q?", "5.0", "Subtraction")


def test_alpaca_eval_keeps_the_reference(publish: Publish) -> None:
    row = {"instruction": "Name a tree.", "output": "Oak.", "generator": "ref", "dataset": "koala"}
    publish({("tatsu-lab/alpaca_eval", "alpaca_eval", "eval"): [row]})
    loaded = load_benchmark("alpaca_eval")
    (problem,) = loaded.items
    assert (problem.question, problem.answer) == ("Name a tree.", "")
    assert problem.extra == {"output": "Oak.", "generator": "ref", "dataset": "koala"}
    assert "answer" not in loaded.mapping


def test_the_hubs_safety_prompts(publish: Publish) -> None:
    row = {"id": "sst_001", "harm_area": "Scams", "category": "c", "prompt": "How do I cheat?"}
    publish({("Bertievidgen/SimpleSafetyTests", None, "test"): [row]})
    (problem,) = load_benchmark("simple_safety_tests").items
    assert (problem.question, problem.subject, problem.answer) == ("How do I cheat?", "Scams", "")
