"""`workings data filter-correct`: the rows of an SFT set whose response is right, in a new file."""

from __future__ import annotations

from pathlib import Path

from workings.cli.build import (
    build_grader,
    build_run_reward,
    dataset_name,
    demonstrations_at,
)
from workings.cli.console import write_data, write_note
from workings.config.sft import SFTConfig
from workings.data.templates import load_template
from workings.errors import ConfigError, DataError
from workings.evaluation.filter_correct import (
    FilteredCorrect,
    check_suffix,
    filter_correct,
    write_card,
    write_demonstrations,
)


def run(config: SFTConfig, source: str, output: Path) -> int:
    """Write the rows of `source` that the run's reward grades right; the path goes to stdout."""
    dataset = config.data.train
    if dataset.path != source:
        dataset = dataset.model_copy(update={"path": source, "name": None})
    check_suffix(output)
    if output.exists():
        raise ConfigError(f"{output} exists", hint="choose another name; nothing is overwritten")
    loaded = demonstrations_at(dataset, seed=config.seed, log=write_note)
    with build_grader(config.grader) as grader:
        reward = build_run_reward(
            config.reward,
            grader,
            eos_token=None,
            max_tokens=config.evaluation.sampling.max_tokens,
        )
        filtered = filter_correct(
            loaded.items, reward, template=load_template(config.data.template)
        )
    write_note(describe(filtered))
    if not filtered.kept:
        raise DataError(
            f"none of the {len(loaded.items):,} responses is right under {config.reward.name}",
            hint="check reward.name and data.template: they are those of the run that will train",
        )
    write_demonstrations(output, filtered.kept)
    write_card(
        output,
        filtered,
        {
            "data": {
                "name": dataset_name(dataset),
                "origin": loaded.origin,
                "rows_read": loaded.total,
                "left_out_on_reading": dict(loaded.dropped),
                "columns": dict(loaded.mapping),
            },
            "template": config.data.template,
            "reward": dict(reward.settings),
        },
    )
    write_data(str(output))
    return 0


def describe(filtered: FilteredCorrect) -> str:
    """One line of counts.

    >>> from workings.evaluation.filter_correct import FilteredCorrect
    >>> describe(FilteredCorrect(kept=(), num_wrong=1200, num_bad_gold=1, num_no_gold=0,
    ...                          verdicts={}))
    'of 1,201 rows: kept 0, wrong 1,200, unusable gold 1, no gold 0'
    """
    counts = filtered.counts
    told = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items())
    return f"of {sum(counts.values()):,} rows: {told}"
