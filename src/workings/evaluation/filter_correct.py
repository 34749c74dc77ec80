"""Demonstrations whose response the reward grades right: a filtered-correct SFT set."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workings.data.encoding import without_opened_thought
from workings.data.templates import PromptTemplate
from workings.errors import DataError
from workings.rewards.four_classes import answer_right
from workings.rewards.reward import Reward, grade_groups
from workings.rewards.reward_metrics import check_grader
from workings.types import Demonstration, Message, Problem, Prompt, Rollout, RolloutGroup, Verdict

SUFFIXES = (".jsonl", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredCorrect:
    """The rows that were kept, and what became of the others.

    Attributes:
        kept: the rows graded right, in their order.
        num_wrong: rows with a usable gold whose response is not right.
        num_bad_gold: rows whose gold cannot be graded against.
        num_no_gold: rows without a gold.
        verdicts: how often the grader gave each verdict; empty where the reward asks none.
    """

    kept: tuple[Demonstration, ...]
    num_wrong: int
    num_bad_gold: int
    num_no_gold: int
    verdicts: Mapping[str, int]

    @property
    def counts(self) -> dict[str, int]:
        """Rows by what became of them; the values add up to the rows given."""
        return {
            "kept": len(self.kept),
            "wrong": self.num_wrong,
            "unusable_gold": self.num_bad_gold,
            "no_gold": self.num_no_gold,
        }


def filter_correct(
    rows: Sequence[Demonstration], reward: Reward, *, template: PromptTemplate | None = None
) -> FilteredCorrect:
    """The rows whose response `reward` grades right: a right answer, and a total above 0.

    A response is graded as a completion of its prompt, which is what training makes of it: where
    `template` ends its prompt with the thought tag, a response loses its own. Raises GradingError
    where the grader fails on more than a few rows.
    """
    asked = [row for row in rows if row.answer is not None]
    groups = grade_groups([_as_group(row, template) for row in asked], reward)
    check_grader(groups)
    rollouts = [group.rollouts[0] for group in groups]
    bad = [_has_bad_gold(rollout) for rollout in rollouts]
    right = [_is_right(rollout) for rollout in rollouts]
    return FilteredCorrect(
        kept=tuple(row for row, keep in zip(asked, right, strict=True) if keep),
        num_wrong=len(asked) - sum(bad) - sum(right),
        num_bad_gold=sum(bad),
        num_no_gold=len(rows) - len(asked),
        verdicts=Counter(r.grade.verdict.value for r in rollouts if r.grade is not None),
    )


def write_demonstrations(path: Path, rows: Sequence[Demonstration]) -> None:
    """Write rows as JSONL or parquet, by the ending of `path`, for `load_demonstrations` to read.

    The columns are id, problem, response, answer and source, then those that the rows had besides;
    a set with a conversation has `messages` instead of problem and response. The file is written
    to the side and renamed. DataError for another ending, and for no rows.
    """
    check_suffix(path)
    if not rows:
        raise DataError(f"there are no rows to write to {path}")
    with_messages = any(row.messages for row in rows)
    records = [_record(row, with_messages=with_messages) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    if path.suffix == ".jsonl":
        lines = [json.dumps(record, ensure_ascii=False, default=_plain) for record in records]
        beside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    else:
        _write_parquet(beside, records)
    beside.replace(path)


def check_suffix(path: Path) -> None:
    """Raise DataError for a file that `write_demonstrations` cannot write."""
    if path.suffix not in SUFFIXES:
        raise DataError(
            f"{path} ends in {path.suffix or 'nothing'!r}; expected {' or '.join(SUFFIXES)}"
        )


def card_path(path: Path) -> Path:
    """The file beside a data set that says how it was made.

    >>> card_path(Path("data/correct.jsonl")).as_posix()
    'data/correct.card.json'
    """
    return path.with_name(f"{path.stem}.card.json")


def write_card(path: Path, filtered: FilteredCorrect, about: Mapping[str, object]) -> Path:
    """The card of the data set at `path`: counts and verdicts, then what `about` says."""
    card = {
        "file": path.name,
        "rows": filtered.counts,
        "verdicts": dict(sorted(filtered.verdicts.items())),
        **about,
    }
    target = card_path(path)
    text = json.dumps(card, indent=2, ensure_ascii=False, default=_plain)
    target.write_text(text + "\n", encoding="utf-8")
    return target


# ------------------------------------------------------------------------------------- grading


def _as_group(row: Demonstration, template: PromptTemplate | None) -> RolloutGroup:
    problem = Problem(
        id=row.id,
        question=row.question,
        answer=row.answer or "",
        messages=row.messages,
        source=row.source,
        extra=row.extra,
    )
    text = row.response if template is None else _completion(row.response, template)
    rollout = Rollout(
        ids=(),
        sampling_logprobs=(),
        kept_mass=(),
        mask=(),
        off_policy=(),
        text=text,
        finish_reason="eos",
        weight_version=0,
        source="demonstration",
    )
    return RolloutGroup(prompt=Prompt(problem=problem, ids=(), text=""), rollouts=(rollout,))


def _completion(response: str, template: PromptTemplate) -> str:
    """The response as it follows the template's prompt, as far as that is known without a model.

    A chat template that opens a thought says so by its `ending`, or puts its own thought tag.
    """
    prompt = template.after if template.mode == "text" else template.ending
    if template.chat_template is not None and template.thought_tag in template.chat_template:
        prompt = template.thought_tag
    return without_opened_thought(response, prompt, thought_tag=template.thought_tag)


def _has_bad_gold(rollout: Rollout) -> bool:
    return rollout.grade is not None and rollout.grade.verdict is Verdict.BAD_GOLD


def _is_right(rollout: Rollout) -> bool:
    return rollout.reward is not None and rollout.reward > 0 and answer_right(rollout)


# ------------------------------------------------------------------------------------- writing


def _record(row: Demonstration, *, with_messages: bool) -> dict[str, object]:
    own: dict[str, object] = {"id": row.id}
    if with_messages:
        context = row.messages or (Message(role="user", content=row.question),)
        own["messages"] = [*context, Message(role="assistant", content=row.response)]
    else:
        own |= {"problem": row.question, "response": row.response}
    own |= {"answer": row.answer, "source": row.source}
    return {**own, **{name: value for name, value in row.extra.items() if name not in own}}


def _write_parquet(path: Path, records: Sequence[Mapping[str, object]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {name: [record.get(name) for record in records] for name in names}
    try:
        table = pa.table(columns)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(
            f"the columns do not fit into parquet: {error}", hint="write to a .jsonl file instead"
        ) from error
    pq.write_table(table, path, compression="zstd")


def _plain(value: object) -> object:
    """Array columns of a parquet file as lists; anything else that JSON lacks as its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
