"""Two evaluations paired on the same problems."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from workings.errors import DataError
from workings.evaluation.compare import (
    compare_by_problem,
    compare_folders,
    compare_results,
    holm,
)
from workings.evaluation.reports import write_results
from workings.evaluation.result import summarise


def test_stored_and_live_results_give_the_same_difference(tmp_path: Path, make_result) -> None:
    first, second = make_result(8, 40), make_result(22, 40)
    live = compare_results([first], [second], seed=0)
    folders = [
        write_results(tmp_path / name, result, settings={})
        for name, result in (("a", first), ("b", second))
    ]
    assert compare_folders(folders[:1], folders[1:], seed=0) == live
    assert live.difference == pytest.approx(14 / 40)
    assert (live.num_problems, live.num_better, live.num_worse) == (40, 14, 0)
    assert live.is_clear


def test_problems_are_paired_by_id_not_by_place(make_group) -> None:
    groups = [make_group("a", "11"), make_group("b", "10"), make_group("c", "11")]
    first = summarise(groups, dataset="sums", seed=0)
    second = summarise(groups[::-1], dataset="sums", seed=0)
    found = compare_results([first], [second])
    assert (found.num_better, found.num_worse) == (0, 0)


def test_seeds_are_pooled_by_problem(make_group) -> None:
    def run(*classes: str):
        groups = [make_group(f"p/{index}", name) for index, name in enumerate(classes)]
        return summarise(groups, dataset="sums", seed=0)

    base = [run("11", "10", "10", "10")]
    trained = [run("11", "11", "10", "10"), run("11", "10", "11", "10")]
    found = compare_results(base, trained)
    assert found.value_a == pytest.approx(0.25)
    assert found.value_b == pytest.approx((1 + 0.5 + 0.5 + 0) / 4)
    assert (found.num_better, found.num_worse) == (2, 0)


def test_other_problems_are_refused(make_group) -> None:
    first = summarise([make_group("a", "11"), make_group("b", "11")], dataset="sums", seed=0)
    second = summarise([make_group("b", "11"), make_group("c", "11")], dataset="sums", seed=0)
    with pytest.raises(DataError) as caught:
        compare_results([first], [second])
    assert str(caught.value) == (
        "the two evaluations answered other problems: 1 ('a') only in the first; 1 ('c') only in "
        "the second; 1 in both\n\nhint: evaluate both on the same data set with the same limit"
    )


def test_other_problems_under_one_id_are_refused(tmp_path: Path, make_group) -> None:
    """Rows of two files are numbered alike, and are no pairs."""

    def result(answer: str):
        group = make_group("a", "11")
        problem = replace(group.prompt.problem, answer=answer)
        group = replace(group, prompt=replace(group.prompt, problem=problem))
        return summarise([group, make_group("b", "11")], dataset="sums", seed=0)

    first, second = result("4"), result("7")
    told = r"1 of 2 have another gold answer \('a': '4' in the first, '7' in the second\)$"
    with pytest.raises(DataError) as caught:
        compare_results([first], [second])
    assert re.search(told, caught.value.message)
    with pytest.raises(DataError, match="another gold answer"):
        compare_results([first], [first, second])
    paths = [
        write_results(tmp_path / name, one, settings={})
        for name, one in (("a", first), ("b", second))
    ]
    with pytest.raises(DataError) as caught:
        compare_folders(paths[:1], paths[1:])
    assert re.search(told, caught.value.message)


def test_problems_of_one_side_are_counted_and_named() -> None:
    first = {f"p/{number}": 1.0 for number in range(20)}
    second = dict.fromkeys(list(first)[:12], 0.0)
    with pytest.raises(DataError) as caught:
        compare_by_problem(first, second, names=("base", "tuned"))
    assert caught.value.message == (
        "the two evaluations answered other problems: 8 ('p/12', 'p/13', 'p/14', 'p/15', 'p/16' "
        "and 3 more) only in base; 12 in both"
    )


def test_holm_by_its_definition() -> None:
    """The least p of the ordered list that still rejects, found by trying levels."""
    p_values = [0.004, 0.2, 0.011, 0.03, 0.03]

    def rejected(level: float) -> set[int]:
        found = set()
        for rank, index in enumerate(sorted(range(5), key=lambda i: p_values[i])):
            if p_values[index] > level / (5 - rank):
                break
            found.add(index)
        return found

    for index, corrected in enumerate(holm(p_values)):
        assert index in rejected(corrected + 1e-9)
        assert index not in rejected(corrected - 1e-9)
    assert holm([0.03]) == [0.03]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_problem_that_occurs_twice_is_refused(make_group) -> None:
    twice = summarise([make_group("a", "11"), make_group("a", "10")], dataset="sums", seed=0)
    with pytest.raises(DataError, match="sums: problem 'a' occurs twice"):
        compare_results([twice], [twice])


def test_rows_of_earlier_programs(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"metrics": {"reward": 1.0}}\n')
    with pytest.raises(DataError, match="row 1 has no id, so it cannot be paired"):
        compare_folders([path], [path])
    path.write_text(
        '{"id": "a", "metrics": {"reward": 1.0}}\n{"id": "a", "metrics": {"reward": 0.0}}\n'
    )
    assert compare_folders([path], [path]).value_a == 0.5
    path.write_text('{"id": "a", "metrics": {"reward": null}}\n')
    with pytest.raises(DataError, match="holds no graded row"):
        compare_folders([path], [path])
