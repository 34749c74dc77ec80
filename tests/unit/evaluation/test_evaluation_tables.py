"""Text tables, as a person reads them."""

from __future__ import annotations

import doctest

from workings.evaluation import tables
from workings.evaluation.tables import format_accuracy, stage_of, stages_table, text_table


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
