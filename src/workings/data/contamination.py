"""Questions of a benchmark that occur in training rows: exact copies, and shared runs of words.

Three kinds of overlap, the strongest is reported:

    exact   the training question is the benchmark's, but for white space, case, LaTeX's delimiters
            and spacing, and punctuation at the end (`questions.normalised`)
    whole   the benchmark's question is shorter than n words, has at least `min_words`, and all of
            it stands somewhere in the training text
    ngram   a run of n words (13 unless set otherwise) of the benchmark's question stands in the
            training text

A question of multiple choice is compared with its choices below it, as `choices.with_options`
writes them; in another order they are the same choices. Where only one side has choices, the two
are the same (`exact`) if they are without them. Both hold for questions of at least `min_words`
words: "Which of these is true?" is many questions.

A question of fewer than `min_words` words ("Compute sin 60") is only compared as a whole, since its
few words occur in many others. `share` says how much of the benchmark's question was found: its
distinct n-grams that occur in the training text over all of them. A low share is often a common
phrase ("where m and n are relatively prime positive integers. Find m + n"), a share near 1 a copy
with another beginning or end. Source of the 13 words: Brown et al. 2020 (arXiv 2005.14165),
appendix C; here words are compared only within the question, with LaTeX's commands as words.

The benchmarks' n-grams are held in memory; training rows are looked up one at a time.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from workings.data.choices import choices_in, stem_of, with_options
from workings.data.preparation.questions import question_key
from workings.errors import ConfigError, DataError

Kind = Literal["exact", "whole", "ngram"]
KINDS: tuple[Kind, ...] = ("exact", "whole", "ngram")
# Letters of one script run together to words; Chinese and Japanese characters stand for themselves.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|\d+|[^\W\d_\u3040-\u30ff\u3400-\u9fff]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapRule:
    """When a training row counts as overlapping with a question of a benchmark.

    Attributes:
        n: words in a run.
        min_words: a question shorter than n words and than this is only compared as a whole text.
        min_share: least share of a question's n-grams; any one of them by default.
    """

    n: int = 13
    min_words: int = 8
    min_share: float = 0.0

    def __post_init__(self) -> None:
        if self.n < 2:
            raise ConfigError(f"n={self.n}; expected 2 or more words")
        if not self.min_words >= 1:
            raise ConfigError(f"min_words={self.min_words}; expected 1 or more")
        if not 0.0 <= self.min_share <= 1.0:
            raise ConfigError(f"min_share={self.min_share}; expected a value in [0, 1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkQuestions:
    """The distinct questions of one benchmark, with their ids."""

    name: str
    ids: tuple[str, ...]
    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """One training text and one question of a benchmark.

    Attributes:
        benchmark, question_id: which question.
        kind: the strongest kind of overlap.
        share: of the question's n-grams, 0 to 1; 1 for exact and whole.
    """

    benchmark: str
    question_id: str
    kind: Kind
    share: float


def words_of(text: str) -> list[str]:
    r"""The words that n-grams are made of: letters or digits in a row, without punctuation.

    >>> words_of(r"Find $\frac{12}{x^2}$, Mr. O'Neil")
    ['find', 'frac', '12', 'x', '2', 'mr', 'o', 'neil']
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def ngrams(words: Sequence[str], n: int) -> Iterator[str]:
    """The runs of n words, as text with single spaces.

    >>> list(ngrams(["a", "b", "c"], 2))
    ['a b', 'b c']
    """
    for start in range(len(words) - n + 1):
        yield " ".join(words[start : start + n])


class ContaminationIndex:
    """The questions of benchmarks, ready to be looked up in training texts."""

    def __init__(self, benchmarks: Sequence[BenchmarkQuestions], rule: OverlapRule) -> None:
        if not benchmarks:
            raise ConfigError("there is no benchmark to compare with")
        self.rule = rule
        self.benchmarks = tuple(benchmarks)
        self._names: list[tuple[str, str]] = []
        self._num_grams: list[int] = []
        self._exact: dict[bytes, list[int]] = defaultdict(list)
        self._stems: dict[bytes, list[int]] = defaultdict(list)
        self._choices: dict[int, frozenset[bytes]] = {}
        # Length of a run in words to the runs, and to the questions that hold each.
        self._runs: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for benchmark in benchmarks:
            for question_id, question in zip(benchmark.ids, benchmark.questions, strict=True):
                self._add(benchmark.name, question_id, question)

    def _add(self, benchmark: str, question_id: str, question: str) -> None:
        number = len(self._names)
        self._names.append((benchmark, question_id))
        self._exact[question_key(question)].append(number)
        stem = stem_of(question)
        if self._is_telling(stem):
            self._stems[question_key(stem)].append(number)
            self._choices[number] = _choice_keys(question)
        words = words_of(question)
        length = min(len(words), self.rule.n)
        grams: set[str] = set()
        if length >= min(self.rule.min_words, self.rule.n):
            grams = set(ngrams(words, length))
        for gram in grams:
            self._runs[length][gram].append(number)
        self._num_grams.append(len(grams))

    def look_up(
        self, question: str, *, options: Sequence[str] = (), more: str = ""
    ) -> list[Overlap]:
        """Every question of a benchmark that overlaps with the training row, strongest kind only.

        Args:
            question: compared in all three ways.
            options: the choices that the row offers beside its question.
            more: the rest of the row's text, such as its response; looked through for runs.
        """
        asked = with_options(question, options) if options else question
        kinds: dict[int, Kind] = dict.fromkeys(self._same(question, asked), "exact")
        found: Counter[int] = Counter()
        texts = [words_of(text) for text in (asked, more) if text]
        for length, runs in self._runs.items():
            seen: set[str] = set()
            for words in texts:
                seen.update(gram for gram in ngrams(words, length) if gram in runs)
            for gram in seen:
                for number in runs[gram]:
                    found[number] += 1
                    if length < self.rule.n:
                        kinds.setdefault(number, "whole")
        for number, count in found.items():
            if count / self._num_grams[number] >= self.rule.min_share:
                kinds.setdefault(number, "ngram")
        return [
            self._overlap(number, kind, found[number]) for number, kind in sorted(kinds.items())
        ]

    def _same(self, question: str, asked: str) -> Iterator[int]:
        """The questions that are the row's own, with its choices (`asked`) or without."""
        for text in dict.fromkeys((asked, question)):
            yield from self._exact.get(question_key(text), ())
        stem = stem_of(asked)
        if not stem:
            yield from self._stems.get(question_key(question), ())
        elif self._is_telling(stem):
            key = question_key(stem)
            yield from self._exact.get(key, ())
            if key in self._stems:
                offered = _choice_keys(asked)
                yield from (n for n in self._stems[key] if self._choices[n] == offered)

    def _is_telling(self, stem: str) -> bool:
        return len(words_of(stem)) >= self.rule.min_words

    def _overlap(self, number: int, kind: Kind, count: int) -> Overlap:
        benchmark, question_id = self._names[number]
        share = count / self._num_grams[number] if kind == "ngram" else 1.0
        return Overlap(benchmark=benchmark, question_id=question_id, kind=kind, share=share)


def _choice_keys(question: str) -> frozenset[bytes]:
    return frozenset(map(question_key, choices_in(question)))


def benchmark_questions(
    name: str, ids: Iterable[str], questions: Iterable[str]
) -> BenchmarkQuestions:
    """The benchmark with each question once, under the id of its first row.

    DataError where it has none.
    """
    first: dict[bytes, tuple[str, str]] = {}
    for row_id, question in zip(ids, questions, strict=True):
        if question.strip():
            first.setdefault(question_key(question), (row_id, question))
    if not first:
        raise DataError(f"the benchmark {name} has no questions")
    kept = list(first.values())
    return BenchmarkQuestions(
        name=name, ids=tuple(i for i, _ in kept), questions=tuple(q for _, q in kept)
    )
