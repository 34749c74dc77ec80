"""Every setting of a run, listed from the typed models: dotted path, type, default, description."""

from __future__ import annotations

import types
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from workings.config.kinds import RUN_TYPES
from workings.config.section import Section

_PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_PLURAL = {bool: "true or false", int: "whole numbers", float: "numbers", str: "texts"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key of a run's configuration.

    Attributes:
        path: dotted from the run, e.g. "optimizer.learning_rate"; `*` stands for a list's index.
        annotation: the type without `None`.
        nullable: whether null is a value.
        required: whether it has no default.
        default: the default; None where required.
        description: one line, may be empty.
        section: the nested model where the key is a group of settings or a list of them.
        constraints: bounds from `Field(ge=..., min_length=...)`.
    """

    path: str
    annotation: Any
    nullable: bool
    required: bool
    default: Any
    description: str
    section: type[Section] | None
    constraints: tuple[Any, ...]

    @property
    def open(self) -> bool:
        """True where any key may stand below (columns, options, weights)."""
        return get_origin(self.annotation) is dict

    @property
    def is_flag(self) -> bool:
        """True where `--key` alone means true."""
        return self.annotation is bool

    @property
    def is_text(self) -> bool:
        """True where a value is text whatever it looks like."""
        if get_origin(self.annotation) is Literal:
            return all(isinstance(choice, str) for choice in get_args(self.annotation))
        return self.annotation is str

    @property
    def is_list(self) -> bool:
        """True where a value is a list."""
        return get_origin(self.annotation) in (tuple, list)

    @property
    def expected(self) -> str:
        """What a value has to be, in words.

        >>> settings_of("grpo")["sampling.top_p"].expected
        'a number, above 0, at most 1'
        """
        words = ", ".join(
            [describe_type(self.annotation), *(_bound(c) for c in self.constraints if _bound(c))]
        )
        return f"{words}, or null" if self.nullable else words


def describe_type(annotation: Any) -> str:
    """A type in the words of a configuration file.

    >>> describe_type(float), describe_type(tuple[str, ...])
    ('a number', 'a list of texts')
    """
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *about = get_args(annotation)
        bounds = [_bound(c) for info in about for c in getattr(info, "metadata", [info])]
        return ", ".join([describe_type(inner), *filter(None, bounds)])
    if origin is Literal:
        choices = ", ".join(str(choice) for choice in get_args(annotation))
        return choices if len(get_args(annotation)) == 1 else f"one of {choices}"
    if origin is dict:
        return "a mapping"
    if origin in (tuple, list):
        inner = [a for a in get_args(annotation) if a is not Ellipsis]
        if Ellipsis not in get_args(annotation) and len(inner) > 1:
            return f"a list of {len(inner)} {_PLURAL.get(inner[0], 'entries')}"
        return f"a list of {_PLURAL.get(inner[0], 'sections')}"
    if origin in (Union, types.UnionType):
        *most, last = (describe_type(a) for a in get_args(annotation))
        return f"{', '.join(most)} or {last}"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return f"a section with {', '.join(annotation.model_fields)}"
    return _PLAIN.get(annotation, str(annotation))


def _bound(constraint: Any) -> str:
    match constraint:
        case annotated_types.Ge(ge=value):
            return f"at least {value:g}"
        case annotated_types.Gt(gt=value):
            return f"above {value:g}"
        case annotated_types.Le(le=value):
            return f"at most {value:g}"
        case annotated_types.Lt(lt=value):
            return f"below {value:g}"
        case annotated_types.MinLen(min_length=value):
            return f"with at least {value} entry" if value == 1 else f"with at least {value}"
    return ""


@cache
def settings_of(kind: str) -> dict[str, Setting]:
    """Every setting of a kind of run by dotted path, sections included, in the models' order."""
    return {setting.path: setting for setting in _walk(RUN_TYPES[kind], "")}


def find_setting(path: str, kind: str) -> Setting | None:
    """The setting at a dotted path; a key below an open mapping gives the mapping's own."""
    settings = settings_of(kind)
    if path in settings:
        return settings[path]
    head, _, tail = path.rpartition(".")
    while head and tail:
        above = settings.get(head)
        if above is not None:
            return above if above.open else None
        head = head.rpartition(".")[0]
    return None


def _walk(section: type[Section], prefix: str) -> list[Setting]:
    found: list[Setting] = []
    for name, info in section.model_fields.items():
        setting = _setting(f"{prefix}{name}", info)
        found.append(setting)
        if setting.section is not None:
            below = f"{setting.path}.*." if setting.is_list else f"{setting.path}."
            found.extend(_walk(setting.section, below))
    return found


def _setting(path: str, info: FieldInfo) -> Setting:
    annotation, nullable = _without_none(info.annotation)
    inner = get_args(annotation)[0] if get_origin(annotation) in (tuple, list) else annotation
    is_section = isinstance(inner, type) and issubclass(inner, Section)
    return Setting(
        path=path,
        annotation=annotation,
        nullable=nullable,
        required=info.is_required(),
        default=None if info.is_required() else info.get_default(call_default_factory=True),
        description=info.description or "",
        section=inner if is_section else None,
        constraints=tuple(info.metadata),
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    members = [a for a in get_args(annotation) if a is not type(None)]
    nullable = len(members) < len(get_args(annotation))
    if len(members) == 1:
        return members[0], nullable
    return Union[tuple(members)], nullable  # noqa: UP007 - built at run time
