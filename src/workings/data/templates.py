"""Prompt templates: which text or chat turn a question is put into.

A template is a text file in `workings/conf/templates`, or a file of the user's. Its text holds
`{question}` (or one of the names that other projects use); every other brace stands for itself.
Settings may come first, between two lines of three dashes:

    ---
    mode: text                  # text, chat (the tokenizer's chat template), or tags
    stop: ["</answer>"]         # recommended stop strings
    ---
    Question: {question}
    Answer:

One newline at the end of the file belongs to the file, not to the prompt. A `.jinja` file is a chat
template that replaces the tokenizer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal, cast, get_args

from workings.data.tags import Tags, fill_tags, tag_chat_template
from workings.errors import TemplateError, unknown_name

Mode = Literal["text", "chat"]

PLACEHOLDERS = ("question", "instruction", "problem", "prompt", "q")
RESPONSE_PLACEHOLDER = "{response}"
SUFFIXES = (".txt", ".prompt", ".md", ".jinja")
SETTINGS = ("mode", "stop", "system", "ending", "thought_tag", "tags")
CHAT_SETTINGS = ("system", "ending")
FENCE = "---\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """How a question becomes a prompt.

    Attributes:
        name: the template's name, or the path of its file.
        mode: "text": `before` + question + `after` is the whole prompt; "chat": the same is the
            last user turn, and the tokenizer's chat template makes the prompt of it.
        before, after: the text around the question.
        stop: recommended stop strings; empty means that EOS alone ends a response.
        system: system message of a chat, where neither the run nor the data set gives one.
        ending: what a chat prompt has to end with; appended where the chat template does not.
        thought_tag: the tag that opens the thought when the prompt ends with it.
        chat_template: Jinja text that replaces the tokenizer's chat template.
    """

    name: str
    mode: Mode = "text"
    before: str = ""
    after: str = ""
    stop: tuple[str, ...] = ()
    system: str | None = None
    ending: str = ""
    thought_tag: str = "<think>"
    chat_template: str | None = None

    def opens_thought(self, prompt: str) -> bool:
        """True when the response to this rendered prompt begins inside the thought."""
        return prompt.rstrip().endswith(self.thought_tag)


def template_names() -> list[str]:
    """The names of the templates that come with the package."""
    return sorted(
        entry.name.removesuffix(".txt")
        for entry in resources.files("workings.conf").joinpath("templates").iterdir()
        if entry.name.endswith(".txt")
    )


def load_template(name_or_path: str, *, tags: Tags | None = None) -> PromptTemplate:
    """The template of that name, or in that file; `tags` are for templates with `mode: tags`.

    TemplateError for an unknown name (with the nearest one), a missing file, or a text without a
    place for the question.
    """
    path = Path(name_or_path).expanduser()
    if "/" in name_or_path or path.suffix in SUFFIXES:
        try:
            text = path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise TemplateError(f"the template file {path} cannot be read: {error}") from error
        if path.suffix == ".jinja":
            return PromptTemplate(name=name_or_path, mode="chat", chat_template=text)
        return parse_template(name_or_path, text, tags=tags)
    known = template_names()
    if name_or_path not in known:
        raise TemplateError(
            unknown_name("template", name_or_path, known),
            hint="a template of your own is given as a path, such as ./my_template.txt",
        )
    return parse_template(name_or_path, _packaged_text(name_or_path), tags=tags)


def parse_template(name: str, text: str, *, tags: Tags | None = None) -> PromptTemplate:
    """The template that a file's text describes; TemplateError says what is wrong with it."""
    settings, body = _front_matter(name, text)
    mode = settings.get("mode", "text")
    stop = _texts(name, "stop", settings.get("stop", ()))
    if mode == "tags":
        tags = tags or _tags(name, settings.get("tags", {}))
        return tag_template(name=name, system_prompt=body, tags=tags, stop=stop)
    if mode not in get_args(Mode):
        raise TemplateError(f"template {name}: mode: {mode!r}; expected text, chat or tags")
    misplaced = settings.keys() & {"tags", *(CHAT_SETTINGS if mode == "text" else ())}
    if misplaced:
        raise TemplateError(
            f"template {name}: {', '.join(sorted(misplaced))} has no effect with mode: {mode}"
        )
    before, after = _around_question(name, body)
    return PromptTemplate(
        name=name,
        mode=cast(Mode, mode),
        before=before,
        after=after,
        stop=stop,
        system=str(settings["system"]).strip("\n") if "system" in settings else None,
        ending=str(settings.get("ending", "")),
        thought_tag=str(settings.get("thought_tag", "<think>")),
    )


def tag_template(
    *,
    tags: Tags | None = None,
    system_prompt: str | None = None,
    name: str = "tags",
    stop: tuple[str, ...] = (),
) -> PromptTemplate:
    """The template `SYSTEM EOS question <reasoning_start>`, with a chat template of its own.

    `system_prompt` may name the tags as `{reasoning_start}`, `{reasoning_end}`, `{solution_start}`
    and `{solution_end}`; None takes the packaged text. The `chat_template` of the result is what
    to save with the tokenizer.
    """
    if system_prompt is None:
        _, system_prompt = _front_matter("tags", _packaged_text("tags"))
    tags = tags or Tags()
    system = fill_tags(system_prompt.strip("\n"), tags)
    return PromptTemplate(
        name=name,
        mode="chat",
        stop=stop,
        thought_tag=tags.reasoning_start,
        chat_template=tag_chat_template(system_prompt=system, reasoning_start=tags.reasoning_start),
    )


# ------------------------------------------------------------------------------ reading the files


def _packaged_text(name: str) -> str:
    folder = resources.files("workings.conf").joinpath("templates")
    return folder.joinpath(f"{name}.txt").read_bytes().decode()


def _front_matter(name: str, text: str) -> tuple[Mapping[str, object], str]:
    """The settings before the text, and the text without the newline that ends the file."""
    text = text.replace("\r\n", "\n")
    settings: object = {}
    if text.startswith(FENCE):
        import yaml

        head, fence, body = text.removeprefix(FENCE).partition("\n" + FENCE)
        if not fence:
            raise TemplateError(f"template {name}: the settings have no closing line of ---")
        try:
            settings = yaml.safe_load(head) or {}
        except yaml.YAMLError as error:
            raise TemplateError(f"template {name}: the settings are not YAML: {error}") from error
        text = body
    if not isinstance(settings, dict):
        raise TemplateError(f"template {name}: the settings are not a list of `key: value` lines")
    for key in settings:
        if key not in SETTINGS:
            raise TemplateError(f"template {name}: {unknown_name('setting', str(key), SETTINGS)}")
    return settings, text.removesuffix("\n")


def _around_question(name: str, text: str) -> tuple[str, str]:
    """The text before and after the placeholder; what follows the question up to `{response}`."""
    found = [field for field in PLACEHOLDERS if "{" + field + "}" in text]
    if not found:
        raise TemplateError(
            f"template {name} has no place for the question; write {{question}} where it goes"
        )
    placeholder = "{" + found[0] + "}"
    if text.count(placeholder) > 1:
        raise TemplateError(f"template {name} holds {placeholder} {text.count(placeholder)} times")
    before, after = text.split(placeholder)
    after, marker, rest = after.partition(RESPONSE_PLACEHOLDER)
    if marker and rest.strip():
        raise TemplateError(
            f"template {name}: text after {RESPONSE_PLACEHOLDER} would be lost: {rest.strip()!r}"
        )
    return before, after


def _tags(name: str, value: object) -> Tags:
    known = ("reasoning_start", "reasoning_end", "solution_start", "solution_end")
    if not isinstance(value, dict):
        raise TemplateError(f"template {name}: tags: {value!r}; expected {', '.join(known)}")
    for key in value:
        if key not in known:
            raise TemplateError(f"template {name}: {unknown_name('tag', str(key), known)}")
    return Tags(**{key: str(text) for key, text in value.items()})


def _texts(name: str, key: str, value: object) -> tuple[str, ...]:
    values = (value,) if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(
        isinstance(text, str) and text for text in values
    ):
        raise TemplateError(f"template {name}: {key}: {value!r}; expected a list of texts")
    return tuple(values)
