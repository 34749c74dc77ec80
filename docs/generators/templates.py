"""The prompt templates that come with the package, as the package reads them."""

from __future__ import annotations

from generators.blocks import ROOT, Blocks, code, table

from workings.data.templates import PromptTemplate, load_template, template_names

PAGE = ROOT / "docs" / "reference" / "templates.md"


def blocks() -> Blocks:
    """The page's one block."""
    rows = []
    for name in template_names():
        template = load_template(name)
        stop = ", ".join(map(code, template.stop)) or "EOS alone"
        rows.append([f"`{name}`", template.mode, prompt_end(template), stop])
    headers = ["template", "mode", "the prompt ends with", "stops at"]
    return {PAGE: {"templates": table(headers, rows)}}


def prompt_end(template: PromptTemplate) -> str:
    """The last line of a prompt of this template, in words or as it stands."""
    if template.chat_template is not None:
        return f"{code(template.thought_tag)}, by a chat template of its own"
    if template.mode == "chat":
        then = f", then {code(template.ending)}" if template.ending else ""
        return f"the chat template's generation prompt{then}"
    if not template.after:
        return "the question"
    *_, last = template.after.removesuffix("\n").split("\n")
    return code(last + "\n" if template.after.endswith("\n") else last)
