"""Several evaluations against a reference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from workings.errors import DataError
from workings.evaluation.compare import compare_folders, holm
from workings.evaluation.comparison import Side, compare_sides
from workings.evaluation.stored_evaluations import StoredEvaluation, find_evaluation


def _stored(folder: Path, *, samples: int = 1, **right: Sequence[int]) -> StoredEvaluation:
    """{data set: problems that are right}, of twenty; the first sample of each decides."""
    for dataset, solved in right.items():
        (folder / dataset).mkdir(parents=True)
        rows = [
            {"id": f"{dataset}/{number}", "sample": sample, "correct": number in solved and not s}
            for number in range(20)
            for sample, s in enumerate([False] * samples)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / dataset / "results.jsonl").write_text(text)
    found = find_evaluation(folder)
    assert found is not None
    return found


def _side(label: str, *evaluations: StoredEvaluation) -> Side:
    return Side(label=label, evaluations=evaluations)


def test_every_other_side_on_every_data_set(tmp_path: Path) -> None:
    base = _stored(tmp_path / "base", sums=range(5), words=range(8))
    better = _stored(tmp_path / "better", sums=range(18), words=range(8))
    little = _stored(tmp_path / "little", sums=range(6), words=range(9))
    found = compare_sides(
        _side("base", base),
        [_side("better", better), _side("little", little)],
        data_sets=("sums", "words"),
    )
    assert [(one.dataset, one.other, one.finding) for one in found] == [
        ("sums", "better", "better"),
        ("sums", "little", "not clear"),
        ("words", "better", "not clear"),
        ("words", "little", "not clear"),
    ]
    first = found[0]
    assert first.difference == compare_folders([base.data_sets["sums"]], [better.data_sets["sums"]])
    assert (first.reference_accuracy.value, first.other_accuracy.value) == (0.25, 0.9)
    assert [one.corrected_p_value for one in found] == holm(
        [one.difference.p_value for one in found]
    )
    turned = compare_sides(_side("better", better), [_side("base", base)], data_sets=("sums",))
    assert turned[0].finding == "worse"


def test_what_is_clear_alone_need_not_be_among_many(tmp_path: Path) -> None:
    base = _stored(tmp_path / "base", sums=range(5))
    better = _side("better", _stored(tmp_path / "better", sums=range(10)))
    same = [_side(f"same {n}", _stored(tmp_path / f"s{n}", sums=range(5))) for n in range(3)]
    (alone,) = compare_sides(_side("base", base), [better], data_sets=("sums",))
    assert alone.finding == "better"
    assert alone.corrected_p_value == alone.difference.p_value < 0.05
    among = compare_sides(_side("base", base), [better, *same], data_sets=("sums",))
    assert among[0].difference == alone.difference
    assert among[0].corrected_p_value == pytest.approx(4 * alone.difference.p_value)
    assert among[0].finding == "not clear"


def test_seeds_are_pooled_by_problem(tmp_path: Path) -> None:
    runs = [_stored(tmp_path / f"{n}", samples=2, sums=range(4 + n)) for n in range(3)]
    base = _stored(tmp_path / "base", sums=range(4))
    (found,) = compare_sides(_side("base", base), [_side("runs", *runs)], data_sets=("sums",))
    assert found.other_seeds == (0.2, 0.25, 0.3)
    assert found.reference_seeds == (0.2,)
    assert found.other_accuracy.value == pytest.approx(0.25)
    assert found.other_accuracy.num_samples == 6
    assert (found.difference.num_better, found.difference.num_worse) == (2, 0)


def test_other_problems_are_refused_with_their_sides(tmp_path: Path) -> None:
    base = _stored(tmp_path / "base", sums=range(4))
    short = _stored(tmp_path / "short", sums=range(4))
    file = short.data_sets["sums"]
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(DataError, match=r"sums: .*: 1 \('sums/19'\) only in base; 19 in both"):
        compare_sides(_side("base", base), [_side("short", short)], data_sets=("sums",))
    with pytest.raises(DataError, match=r"sums: both cannot be pooled: .* only in .*base; 19"):
        compare_sides(_side("both", base, short), [_side("base", base)], data_sets=("sums",))


def test_plain_json(tmp_path: Path) -> None:
    sides = [_side(name, _stored(tmp_path / name, sums=range(3))) for name in ("a", "b")]
    (found,) = compare_sides(sides[0], sides[1:], data_sets=("sums",))
    content = json.loads(json.dumps(found.to_dict()))
    assert content["finding"] == "not clear"
    assert content["difference"]["difference"] == 0.0
    assert content["difference"]["high"] > 0.1
