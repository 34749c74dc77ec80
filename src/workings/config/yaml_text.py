"""Values as YAML text that every reader takes for the same values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

_LIKE_A_NUMBER = re.compile(r"[-+.0-9]")


def yaml_text(values: Mapping[str, Any]) -> str:
    """The mapping as YAML, in its own order.

    >>> print(yaml_text({"name": "1e5", "rate": 1e-05, "stop": []}), end="")
    name: "1e5"
    rate: 1.0e-05
    stop: []
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        """As its base, with quotes wherever a reader could take text for something else."""

    Dumper.add_representer(str, _represent_text)
    text: str = yaml.dump(dict(values), Dumper=Dumper, sort_keys=False, allow_unicode=True)
    return text


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quoted where the text begins like a number (readers differ on 1e5) or holds odd characters.

    Only double quotes keep line separators as they are.
    """
    quoted = not text.isprintable() or _LIKE_A_NUMBER.match(text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if quoted else None)
