"""Text tables, as a person reads them."""

from __future__ import annotations

import doctest

from workings.evaluation import tables
from workings.evaluation.result import summarise
from workings.evaluation.tables import (
    estimates_table,
    evaluation_table,
    format_accuracy,
    stage_of,
    stages_table,
    text_table,
)


def test_doctests() -> None:
    assert doctest.testmod(tables).failed == 0


def test_columns_line_up() -> None:
    table = text_table(["a", "bb"], [["long", "1"], ["x", "10000"]], alignments=["right", "left"])
    assert table == "   a  bb\n----  -----\nlong  1\n   x  10000"


def test_accuracy_with_its_interval() -> None:
    assert format_accuracy("412/500", 0.788, 0.855) == "412/500  82.4 % [78.8, 85.5]"


def test_stages_side_by_side(make_result) -> None:
    stages = [
        stage_of("base", make_result(76, 200)),
        stage_of("SFT", make_result(126, 200), seconds=95.0),
        stage_of("GRPO", make_result(148, 200), seconds=732.0),
    ]
    assert stages_table(stages) == (
        "model       accuracy, 95 % interval   format  mean tokens  training\n"
        "-----  ----------------------------  -------  -----------  --------\n"
        "base    76/200  38.0 % [31.6, 44.9]  100.0 %          4.0         -\n"
        "SFT    126/200  63.0 % [56.1, 69.4]  100.0 %          4.0      1:35\n"
        "GRPO   148/200  74.0 % [67.5, 79.6]  100.0 %          4.0     12:12"
    )


def test_data_sets_with_strict_and_lenient_side_by_side(make_group) -> None:
    groups = [make_group("a", "11"), make_group("b", "01"), make_group("c", "00", extracted=[None])]
    result = summarise(groups, dataset="sums", seed=0, seconds=75.0)
    header, _, row = evaluation_table([result]).splitlines()
    assert "right (format and answer), 95 % interval" in header
    assert "answer alone" in header
    cells = row.split("  ")
    assert [cell.strip() for cell in cells if cell.strip()] == [
        "sums",
        "pass@1",
        "1/3",
        "33.3 % [6.1, 79.2]",
        "66.7 %",
        "33.3 %",
        "0.0 %",
        "33.3 %",
        "4",
        "1:15",
    ]


def test_estimates_of_several_samples(make_group) -> None:
    result = summarise(
        [make_group("a", "11", "10"), make_group("b", "11", "11")], dataset="sums", seed=0
    )
    lines = estimates_table(result).splitlines()
    assert lines[0].split() == ["sums", "95", "%", "interval"]
    assert [line.split()[0] for line in lines[2:]] == ["avg@2", "pass@1", "pass@2", "maj@2"]
