r"""Answers in an environment: matrices, sums of matrices with factors, definitions by cases.

`read` reads an entry; None is returned where the environment is another, or stands in a formula.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from workings.grading.reading.answers import Answer, Cases, Collection, Matrix, Named
from workings.grading.reading.parts import MAX_ITEMS, assigned, read_items
from workings.grading.reading.relations import split_relation
from workings.grading.text.braces import split_top

Reader = Callable[[str], Answer]

_MATRIX = re.compile(
    r"(?P<factor>.*?)(?P<open>[\[(|]?)\s*\\begin\{(?P<kind>[pbBvV]?matrix|smallmatrix|array)\}"
    r"(?:\s*\{[lcr|\s]*\})?(?P<body>.*)\\end\{(?P=kind)\}\s*[\])|]?",
    re.DOTALL,
)
_TERM = re.compile(
    r"(?P<front>(?:(?!\\begin).)*?)[\[(]?\s*\\begin\{(?P<kind>[pb]?matrix|array)\}(?:\s*\{[lcr|\s]*\})?"
    r"(?P<body>(?:(?!\\begin|\\end).)*)\\end\{(?P=kind)\}\s*[\])]?(?P<back>(?:(?!\\begin).)*)",
    re.DOTALL,
)
_TRANSPOSED = re.compile(r"\s*\^\s*\{?\s*(?:T|\\top|\\text\{T\}|\\intercal|\\mathsf\s*T)\s*\}?$")
_NESTED = re.compile(r"\[\s*\[.*\]\s*\]", re.DOTALL)
_DETERMINANT = ("vmatrix", "Vmatrix")
_CASES = re.compile(
    r"(?:\\\{)?\s*\\begin\{(?P<kind>cases|aligned|align\*?|gathered|array)\}(?:\s*\{[lcr|\s]*\})?"
    r"(?P<body>.*)\\end\{(?P=kind)\}",
    re.DOTALL,
)
_CELL = re.compile(
    r"^\s*(?:\\text\s*\{\s*)?(?:if|for|when|where)(?![a-zA-Z])\s*\}?\s*|\s*[,.;]?\s*$"
)
_ROW_BREAK = r"\\\\|\\cr(?![a-zA-Z])|\\newline(?![a-zA-Z])"
_LOST_ROW_BREAK = re.compile(r"(?<!\\)\\(?=-?\d|-?[a-z](?![a-zA-Z]))")


def read_environment(text: str, read: Reader) -> Answer | None:
    r"""The matrix, sum of matrices or definition by cases that `text` is.

    >>> len(read_environment(r"\begin{pmatrix}1 & 2 \\ 3 & 4\end{pmatrix}", str).rows)
    2
    """
    transposed = _TRANSPOSED.search(text)
    if transposed:
        inner = read_environment(text[: transposed.start()], read)
        return _transpose(inner) if isinstance(inner, Matrix) and inner.factor is None else None
    for reader in (_read_matrix, _read_cases, _read_combination):
        answer = reader(text, read)
        if answer is not None:
            return answer
    return None


def _transpose(matrix: Matrix) -> Matrix:
    return Matrix(tuple(zip(*matrix.rows, strict=True)))


def read_rows(text: str, read: Reader) -> Answer | None:
    """A matrix in nested brackets, "[[1, 2], [3, 4]]", and a column as "[1, 2]^T"."""
    transposed = _TRANSPOSED.search(text)
    if transposed and text.startswith(("[", "(")):
        entries = split_top(text[1 : transposed.start()].rstrip(" )]"), "[,;]")[0]
        return Matrix(tuple((read(entry),) for entry in entries)) if len(entries) > 1 else None
    if not _NESTED.fullmatch(text):
        return None
    rows = [row.strip() for row in split_top(text[1:-1], ",")[0]]
    if not all(row.startswith("[") and row.endswith("]") for row in rows):
        return None
    entries_of = [split_top(row[1:-1], ",")[0] for row in rows]
    if len({len(entries) for entries in entries_of}) != 1:
        return None
    return Matrix(tuple(tuple(read(entry) for entry in entries) for entries in entries_of))


def _read_matrix(text: str, read: Reader) -> Answer | None:
    match = _MATRIX.fullmatch(text)
    if match is None or match["kind"] in _DETERMINANT or "\\begin" in match["body"]:
        return None
    if match["open"] == "|":
        return None
    front = match["factor"].strip().removesuffix("\\cdot").strip()
    body = match["body"]
    if "\\\\" not in body and match["kind"] != "array":
        body = _LOST_ROW_BREAK.sub(r"\\\\", body)
    if any(sign in front for sign in "=+,[") or front.startswith("\\{") or "\\text" in front:
        return None
    rows = [
        tuple(read(entry) for entry in split_top(row, "&")[0])
        for row in split_top(body, _ROW_BREAK)[0]
        if row.replace("\\hline", "").strip()
    ]
    if not rows or len({len(row) for row in rows}) != 1 or len(rows) * len(rows[0]) > MAX_ITEMS:
        return None
    factor: Answer | None = None
    if front:
        factor = read({"-": "-1", "+": "1"}.get(front, front))
    return Matrix(tuple(rows), factor)


def _read_combination(text: str, read: Reader) -> Answer | None:
    r"""A sum of matrices with factors, entry by entry: "c_1 [...] e^t + c_2 [...]"."""
    if split_relation(text)[1] or split_top(text, "[,;]")[1]:
        return None
    terms, signs = split_top(text, r"(?<!\^)[+-]")
    if terms[0]:
        signs = ["+", *signs]
    terms = [term for term in terms if term]
    matches = [_TERM.fullmatch(term) for term in terms]
    if len(signs) != len(terms) or not all(matches):
        return None
    sums: dict[tuple[int, int], str] = {}
    shapes = set()
    for sign, match in zip(signs, matches, strict=True):
        assert match is not None
        factor = f"({match['front']})" if match["front"].strip(" \\cdot") else ""
        back = f"({match['back']})" if match["back"].strip(" \\cdot") else ""
        rows = [split_top(row, "&")[0] for row in split_top(match["body"], _ROW_BREAK)[0] if row]
        shapes.add((len(rows), *{len(row) for row in rows}))
        for place in ((i, j) for i, row in enumerate(rows) for j in range(len(row))):
            entry = rows[place[0]][place[1]]
            sums[place] = sums.get(place, "") + f"{sign}{factor}({entry}){back}"
    if len(shapes) != 1 or len(next(iter(shapes))) != 2:
        return None
    ((num_rows, num_columns),) = shapes
    return Matrix(
        tuple(
            tuple(read(sums[i, j].removeprefix("+")) for j in range(num_columns))
            for i in range(num_rows)
        )
    )


def _read_cases(text: str, read: Reader) -> Answer | None:
    match = _CASES.fullmatch(text)
    if match is None:
        return None
    rows = [
        tuple(cell for cell in split_top(row, "&")[0] if cell)
        for row in split_top(match["body"], _ROW_BREAK)[0]
        if row
    ]
    rows = [tuple(_CELL.sub("", cell) for cell in row) for row in rows]
    joined = [" ".join(row).replace(" =", "=") for row in rows]
    if len(joined) == 1:
        return read(joined[0])
    if any(
        len(row) > 1 and split_relation(row[0])[1] == [] and row[1][:1] not in "=<>\\"
        for row in rows
    ):
        return Cases(tuple(rows))
    if all(len(split_relation(row)[1]) == 1 for row in joined):
        items = read_items(joined, read)
        named = [item for item in items if isinstance(item, Named)]
        return assigned(named) if len(named) == len(items) else Collection(items, "{}")
    return Cases(tuple(rows))
