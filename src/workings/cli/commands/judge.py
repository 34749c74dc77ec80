"""`workings judge`: a model's verdict on the replies that no gold answer decides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from workings.cli.build import build_policy, build_sampling, build_template, set_threads
from workings.cli.console import write_data, write_note
from workings.cli.engines import build_engine
from workings.cli.evaluation.plan import stored_settings
from workings.cli.sampling_text import describe_sampling
from workings.config.dataset import JUDGED_RULES
from workings.config.sample import SampleConfig
from workings.data.encoding import encode_prompt
from workings.data.files import read_json, read_jsonl
from workings.errors import ConfigError, DataError
from workings.evaluation.evaluate import RESPONSES_FILE
from workings.evaluation.judged import (
    ARRAY_FILE,
    JUDGEMENT_FILE,
    JUDGEMENTS_FILE,
    LINES_FILE,
)
from workings.evaluation.judging import (
    PREFERENCE_TOKENS,
    SAFETY_TOKENS,
    Judge,
    annotation_rows,
    judge_preferences,
    judge_safety,
    length_controlled_win_rate,
    references_of,
)
from workings.evaluation.metrics import Estimate
from workings.evaluation.tables import format_estimate, text_table
from workings.rollout.collect import collect_groups
from workings.tracking.rollouts import read_groups
from workings.tracking.whole_file import write_whole
from workings.types import Problem

WIN_RATE, SAFE = JUDGED_RULES
Record = dict[str, Any]


def run(folder: Path, config: SampleConfig) -> int:
    """Judge what lies in an evaluation's folder, or one data set's; the table goes to stdout."""
    places = _judged_below(folder)
    rules = [_rule(place) for place in places]
    set_threads(config.num_threads)
    policy = build_policy(config.model, seed=config.seed, trainable=False)
    engine, engine_line = build_engine(config.engine, policy)
    for line in (*policy.report, engine_line):
        write_note(line)
    name = config.model.adapter or config.model.name_or_path
    records = []
    with closing(engine):
        for place, rule in zip(places, rules, strict=True):
            tokens = PREFERENCE_TOKENS if rule == WIN_RATE else SAFETY_TOKENS
            judge = _judge(config, policy.tokenizer, engine, max_tokens=tokens)
            decide = _preferences if rule == WIN_RATE else _safety
            found, rows = decide(place, judge, name)
            record = {"dataset": place.name, "counted": rule, "judge": name, **found}
            lines = (json.dumps(row, ensure_ascii=False) for row in rows)
            write_whole(place / JUDGEMENTS_FILE, "".join(f"{line}\n" for line in lines))
            write_whole(
                place / JUDGEMENT_FILE, json.dumps(record, indent=2, ensure_ascii=False) + "\n"
            )
            records.append(record)
    write_data(_table(records))
    for place in places:
        write_note(f"{place.name}: what {name} said of each reply is in {place / JUDGEMENTS_FILE}")
    return 0


def _judged_below(folder: Path) -> list[Path]:
    """The folder itself or those in it that hold replies for a judge."""
    if (folder / ARRAY_FILE).is_file():
        return [folder]
    found = sorted(file.parent for file in folder.glob(f"*/{ARRAY_FILE}"))
    if not found:
        raise DataError(
            f"{folder} holds no replies for a judge: no {ARRAY_FILE} in it or one folder below",
            hint="workings eval datasets=[alpaca_eval,simple_safety_tests] writes them",
        )
    return found


def _rule(place: Path) -> str:
    """How the data set is counted, as its evaluation stored it."""
    settings = stored_settings(place) or {}
    rule = settings.get("data", {}).get("counted")
    if rule not in JUDGED_RULES:
        raise DataError(
            f"{place} is counted as {rule}; a judge decides {' or '.join(JUDGED_RULES)}",
            hint="evaluate it again with this version",
        )
    return str(rule)


def _judge(config: SampleConfig, tokenizer: Any, engine: Any, *, max_tokens: int) -> Judge:
    """The model as a judge: greedy, one reply to each prompt."""
    template, system_prompt = build_template(
        config.template, tokenizer, system_prompt=config.system_prompt
    )
    sampling = build_sampling(config.sampling, template, logprobs=False)
    if sampling.temperature:
        raise ConfigError(
            f"sampling.temperature={sampling.temperature}; a judge is asked greedily",
            hint="set sampling.temperature=0",
        )
    sampling = replace(sampling, max_tokens=min(sampling.max_tokens, max_tokens))
    write_note(describe_sampling(sampling))

    def judge(prompts: Sequence[str]) -> list[str]:
        asked = [
            encode_prompt(
                Problem(id=str(number), question=text, answer=""),
                template,
                tokenizer,
                system_prompt=system_prompt,
            )
            for number, text in enumerate(prompts)
        ]
        groups = collect_groups(engine, asked, sampling, num_samples=1, seed=config.seed)
        return [group.rollouts[0].text for group in groups]

    return judge


def _safety(place: Path, judge: Judge, name: str) -> tuple[Record, list[Record]]:
    replies = [_texts(row) for row in read_jsonl(place / LINES_FILE)]
    found = judge_safety(replies, judge)
    rows = [
        {**reply, "judge": name, "judged": said, "safe": safe}
        for reply, said, safe in zip(replies, found.replies, found.verdicts, strict=True)
    ]
    return {"num_replies": len(rows), **found.to_dict()}, rows


def _preferences(place: Path, judge: Judge, name: str) -> tuple[Record, list[Record]]:
    replies = [_texts(row) for row in read_json(place / ARRAY_FILE)]
    groups = read_groups(place / RESPONSES_FILE)
    references = references_of(groups)
    found = judge_preferences(replies, references, judge)
    reference = str(groups[0].problem.extra.get("generator") or "reference")
    rows = annotation_rows(replies, references, found, reference_name=reference, annotator=name)
    record = {"num_replies": len(rows), **found.to_dict(), "reference": reference}
    controlled = None
    try:
        controlled = length_controlled_win_rate(rows)
    except DataError as error:
        write_note(str(error))
    record["length_controlled"] = controlled
    return record, [{**row, "judged": said} for row, said in zip(rows, found.replies, strict=True)]


def _texts(row: dict[str, object]) -> Record:
    """The row with texts for values; `sample`, the number of a reply, stays one."""
    return {key: value if key == "sample" else str(value) for key, value in row.items()}


def _table(records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        share = record["win_rate" if record["counted"] == WIN_RATE else "share_safe"]
        controlled = record.get("length_controlled")
        rows.append(
            [
                record["dataset"],
                record["counted"],
                "-" if share is None else format_estimate(Estimate(**share)),
                f"{controlled['length_controlled_winrate']:.1f} %" if controlled else "-",
                f"{record['num_unparsed']} of {record['num_replies']}",
            ]
        )
    headers = ["data set", "counted as", "value, 95 % interval", "length-controlled"]
    return text_table([*headers, "not understood"], rows)
