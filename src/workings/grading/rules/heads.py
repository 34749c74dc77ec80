r"""The letters that a definition binds: "f(t) = t^2" defines what "f(x) = x^2" does.

The name itself is compared elsewhere; here the answer's letters are replaced by the gold's.
"""

from __future__ import annotations

import re

from workings.grading.reading.answers import Named

_HEAD = re.compile(
    r"(?P<name>[A-Za-z]'{0,3})\s*(?:\(\s*(?P<arguments>[a-z](?:\s*,\s*[a-z])*)\s*\)"
    r"|_\{?\s*(?P<index>[a-z])\s*\}?)"
)


def with_arguments_of(answer: Named, gold: Named) -> str | None:
    """The answer's body in the letters of the gold; None where both use the same, or none do.

    A letter that is free in the body must not become a bound one: `f(y) = x` stays different from
    `f(x) = x`, and is given back with a sign that nothing equals.
    """
    heads = [_HEAD.fullmatch(one.relation.sides[0].strip()) for one in (answer, gold)]
    if heads[0] is None or heads[1] is None or heads[0]["name"] != heads[1]["name"]:
        return None
    letters = [_letters(head) for head in heads if head is not None]
    if letters[0] == letters[1] or len(letters[0]) != len(letters[1]):
        return None
    body = answer.relation.sides[1]
    pairs = dict(zip(letters[0], letters[1], strict=True))
    captured = set(letters[1]) - set(letters[0])
    return _LETTER.sub(
        lambda match: (
            pairs.get(match[0], rf"\text{{free }}{match[0]}")
            if match[0] in pairs or match[0] in captured
            else match[0]
        ),
        body,
    )


_LETTER = re.compile(r"(?<![a-zA-Z\\])[a-z](?![a-zA-Z])|(?<=[\d\s)}])[a-z](?=[a-z]?(?![a-zA-Z]))")


def _letters(head: re.Match[str]) -> list[str]:
    if head["index"]:
        return [head["index"]]
    return [letter.strip() for letter in head["arguments"].split(",")]
