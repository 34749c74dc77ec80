"""The viewer in a real browser, without network: what a person sees of a real run.

Needs Debian's package `chromium` (any build that /usr/bin/chromium or the PATH has).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tiny_runs import grpo_arguments

from tiny import save_tiny
from workings.cli.main import main

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    # No name is looked up and no address but loopback is reached.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
SECONDS = 60
expect.set_options(timeout=1000 * SECONDS)
LATEX = r"""We have \(x^2+6x+5=(x+1)(x+5)\), so
\[ -1 + (-5) = \frac{-12}{2}. \]
It costs $5 and $6. <img src=x onerror="document.title='owned'"> ![i](http://example.com/x.png)
</think> The answer is \boxed{-6} <b>bold</b> :red[plain]."""
CARD = '[data-testid="stMarkdownContainer"]'
EVERY_LINK = (
    "![i](http://evil.example/i.png) [l](http://evil.example) http://evil.example "
    "www.evil.example me@evil.example <http://evil.example>"
)
LINKS = (
    EVERY_LINK,
    r"https&colon;//evil.example http:\/\/evil.example www\.evil.example me&commat;evil.example",
    r"\\<http://evil.example> mailto:me@evil.example",
    "[a]: http://evil.example\n\n[a] ![a]",
    # Texts of which a part is code or mathematics to a simple reader, and neither to Markdown.
    f"``{EVERY_LINK}`",
    f"\\`{EVERY_LINK}`",
    f"```a`b\n{EVERY_LINK}\n```",
    f"~~~\n```\n~~~\n\n{EVERY_LINK}\n```",
    "~~~\n```\n~~~\n\n[a]: http://evil.example\n\n[a] ![a]\n```",
    f"| a | b |\n|-|-|\n| `a | {EVERY_LINK}` |",
    f"\\\\({EVERY_LINK}\\)",
    f"`b\n\\(c` {EVERY_LINK}\\)",
    f"`b\n$c` {EVERY_LINK}$",
    f"~~~\n\\[~~~\\]\n\\[{EVERY_LINK}\\]",
    r"$\href{http://evil.example}{x}$",
)
DIAGRAMS = (
    "```mermaid\ngraph TD; A-->B\n```",
    "~~~ Mermaid\ngraph TD; A-->B\n~~~",
    "- a\n\n  ```mermaid\n  graph TD; A-->B\n  ```",
    "```m&#101;rmaid\ngraph TD; A-->B\n```",
    "```!language-mermaid\ngraph TD; A-->B\n```",
)
CODE = "```python\nfor n in found[0](1):\n    print(n)\n```\nand `a[1](2)`"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="chromium is not installed"),
]


def _row(number: int, right: bool, response: str = "", **more: object) -> dict[str, object]:
    return {
        "prompt": f"What is the sum of the roots of $x^2+6x+{number}=0$?\n<think>",
        "ground_truth": "-6",
        "response": response or f"I guess</think> \\boxed{{{-6 if right else number}}}",
        "metrics": {"format_reward": 1.0, "answer_reward": float(right), "reward": float(right)},
        "id": f"roots/{number}",
        "sample": 0,
        "subject": "Algebra" if number % 2 else "Geometry",
        "level": str(number % 3 + 1),
        "components": {},
        "correct": right,
        "extracted": "-6" if right else str(number),
        "verdict": "equal" if right else "different",
        "response_tokens": 10 + number,
        "finish_reason": "stop",
    } | more


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _flat_row(number: int) -> dict[str, object]:
    return {
        "prompt": f"What is {number}+1?",
        "generated_text": f"\\boxed{{{number + 1}}}",
        "answer": str(number + 1),
        "id": f"sums/{number}",
        "sample": 0,
        "data_source": ("amc", "aime", "math")[number % 3],
        "correctness": number % 2 == 0,
    }


def _write_whole_run(path: Path, rows: list[dict[str, object]]) -> None:
    """As programs before this one kept an evaluation."""
    same = ("id", "subject", "level", "ground_truth", "correct")
    results = [
        {name: row[name] for name in same}
        | {"question": row["prompt"], "full_response": row["response"]}
        | {"rewards": row["metrics"], "r1_format_extracted": row["extracted"]}
        for row in rows
    ]
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"metadata": {"total_samples": len(rows)}, "results": results}))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GRPO run of the tiny model with rollouts and evaluations, and two sets of responses."""
    folder = tmp_path_factory.mktemp("viewer")
    runs = folder / "runs"
    model = save_tiny(folder / "model")
    assert main(grpo_arguments(model, runs)) == 0
    _write(runs / "before/roots/results.jsonl", [_row(n, n % 4 == 0) for n in range(30)])
    after = [_row(n, n % 4 != 1) for n in range(30)]
    after[0] |= {"response": LATEX}
    _write(runs / "flat/luffy.jsonl", [_flat_row(n) for n in range(30)])
    _write(runs / "flat/luffy.decoded.jsonl", [_flat_row(n) for n in range(30)])
    _write_whole_run(runs / "eval_runs/old/step_7/old_step_7_eval_20250601_123005.json", after)
    _write(runs / "after/roots/results.jsonl", after)
    (runs / "broken").mkdir()
    (runs / "broken/metrics.jsonl").write_text(
        '{"step": 1, "train/reward": 1.0}\n{"step": 2, "tra\n'
    )
    _write(runs / "early/metrics.jsonl", [{"step": 1, "train/reward": 0.5}])
    texts = [*LINKS, *DIAGRAMS, CODE]
    _write(runs / "hostile/roots/results.jsonl", [_row(n, True, t) for n, t in enumerate(texts)])
    (folder / "secret").mkdir()
    _write(folder / "secret/results.jsonl", [_row(0, True, "the secret")])
    (runs / "linked").symlink_to(folder / "secret")
    return runs


@dataclass
class Viewer:
    """A server and a browser that reaches nothing else; `outside` is what it asked others for."""

    address: str
    browser: Browser
    outside: list[str] = field(default_factory=list)

    def open(self, **query: object) -> Page:
        context = self.browser.new_context(viewport={"width": 1280, "height": 1400})
        context.route(re.compile(r".*"), lambda route: route.continue_())
        page = context.new_page()
        page.set_default_timeout(1000 * SECONDS)
        page.on("request", lambda request: self._note(request.url))
        page.goto(f"{self.address}/?{urlencode(query, doseq=True)}")
        page.wait_for_selector('[data-testid="stButtonGroup"], [data-testid="stAlert"]')
        return page

    def _note(self, url: str) -> None:
        if not url.startswith((self.address, "data:", "blob:")):
            self.outside.append(url)


def _served(folder: Path) -> Iterator[str]:
    """The address of `workings view folder`, which ends with the test."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "workings.cli.main", "view", str(folder), "--port", str(port)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address == f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5):
                    break
            except OSError:
                assert process.poll() is None, "the server has ended"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=SECONDS)
        process.stdout.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def viewer(root: Path, browser: Browser) -> Iterator[Viewer]:
    for address in _served(root):
        viewer = Viewer(address=address, browser=browser)
        yield viewer
        assert viewer.outside == []


def test_curves_of_a_real_run(viewer: Viewer) -> None:
    page = viewer.open()
    charts = page.locator('[data-testid="stVegaLiteChart"]')
    expect(charts.first).to_be_visible()
    expect(charts).to_have_count(6)
    expect(charts.first.locator("canvas, svg").first).to_be_visible()
    assert "runs=grpo" in page.url
    expect(page.get_by_text("grpo").first).to_be_visible()


def test_a_damaged_run_and_one_at_its_first_step_beside_a_real_one(viewer: Viewer) -> None:
    page = viewer.open(view="curves", runs=["grpo", "broken", "early"])
    expect(page.get_by_test_id("stAlert")).to_contain_text("broken/metrics.jsonl line 2 is not")
    expect(page.get_by_text("No curve yet of early")).to_be_visible()
    charts = page.locator('[data-testid="stVegaLiteChart"]')
    expect(charts).to_have_count(6)
    expect(charts.first.locator("canvas, svg").first).to_be_visible()


def test_benchmarks_and_paired_differences(viewer: Viewer) -> None:
    page = viewer.open(view="benchmarks", reference="before", against=["after"])
    table = page.locator("table.wk")
    expect(table).to_have_count(2)
    expect(table.nth(0)).to_contain_text("grpo · step 6")
    expect(table.nth(1)).to_contain_text("better")


def test_latex_is_rendered_without_network_and_html_is_not(viewer: Viewer) -> None:
    page = viewer.open(view="responses", file="after/roots/results.jsonl", unfolded="yes")
    expect(page.locator(".katex").first).to_be_visible()
    expect(page.locator(".katex-display").first).to_be_visible()
    assert page.evaluate("document.fonts.check('16px KaTeX_Math')")
    text = page.locator(CARD).filter(has_text="It costs")
    expect(text.first).to_contain_text("$5 and $6")
    expect(text.first).to_contain_text("<img src=x onerror=")
    expect(page.locator(CARD).filter(has_text="<b>bold</b>").first).to_contain_text("[plain]")
    assert page.title() != "owned"
    assert page.locator(f"{CARD} img").count() == 0
    plain = viewer.open(view="responses", file="after/roots/results.jsonl", latex="no")
    expect(plain.locator("pre.plain").first).to_be_visible()
    assert plain.locator("main .katex").count() <= 3 * 10  # golds and answers only


@pytest.mark.parametrize(("markdown", "latex"), [("yes", "yes"), ("yes", "no"), ("no", "yes")])
def test_nothing_that_a_model_wrote_is_a_link_an_image_or_a_diagram(
    viewer: Viewer, markdown: str, latex: str
) -> None:
    file = "hostile/roots/results.jsonl"
    query = {"markdown": markdown, "latex": latex, "unfolded": "yes", "rows": 100}
    page = viewer.open(view="responses", file=file, **query)
    cards = page.locator('[data-testid="stMain"]')
    expect(cards.locator(".wk-head")).to_have_count(len(LINKS) + len(DIAGRAMS) + 1)
    for text in ("evil", "graph TD"):
        expect(cards.locator(CARD).filter(has_text=text).first).to_be_visible()
    if markdown == "yes":
        expect(cards.locator("pre code").last).to_be_visible()
        shown = [text.replace("\u2060", "") for text in cards.locator("code").all_inner_texts()]
        assert "for n in found[0](1):\n    print(n)" in shown
        assert "a[1](2)" in shown
    # The heading of the page has a link to itself.
    made = cards.locator(f'{CARD} :is(a:not([href^="#"]), img, [data-testid="stMermaidChart"])')
    assert made.evaluate_all("found => found.map(one => one.outerHTML)") == []
    assert viewer.outside == []


def test_filters_a_search_and_the_link_to_them(viewer: Viewer) -> None:
    page = viewer.open(view="responses", file="after/roots/results.jsonl")
    expect(page.get_by_text("30 responses").first).to_be_visible()
    page.get_by_label("Search").fill("boxed{-6}")
    page.get_by_label("Search").press("Enter")
    expect(page.get_by_text("22 of 30 responses").first).to_be_visible()
    page.get_by_test_id("stButtonGroup").filter(has_text="Truncated").get_by_text("Yes").click()
    expect(page.get_by_text("0 of 30 responses").first).to_be_visible()
    page.wait_for_function("location.search.includes('truncated=yes')")
    shared = viewer.browser.new_page()
    shared.goto(page.url)
    expect(shared.get_by_text("0 of 30 responses").first).to_be_visible()
    wrong = viewer.open(view="responses", file="after/roots/results.jsonl", kinds="10", rows=3)
    expect(wrong.get_by_text("8 of 30 responses").first).to_be_visible()
    expect(wrong.locator(".wk-head")).to_have_count(3)
    wrong.get_by_role("button", name="›").first.click()
    expect(wrong.get_by_text("Page 2 of 3").first).to_be_visible()


def test_a_file_of_several_benchmarks_is_filtered_by_source(viewer: Viewer) -> None:
    page = viewer.open(view="responses", file="flat/luffy.jsonl")
    expect(page.get_by_text("30 responses").first).to_be_visible()
    source = page.get_by_role("combobox", name="Source")
    source.fill("amc")
    source.press("Enter")
    expect(page.get_by_text("10 of 30 responses").first).to_be_visible()
    page.wait_for_function("location.search.includes('sources=amc')")
    both = viewer.open(view="responses", file="flat/luffy.jsonl", sources=["amc", "math"])
    expect(both.get_by_text("20 of 30 responses").first).to_be_visible()
    expect(both.locator(".wk-head").nth(1)).to_contain_text("math")
    shared = viewer.open(view="responses", file="flat/luffy.jsonl", sources="aime", kinds="1")
    expect(shared.get_by_text("5 of 30 responses").first).to_be_visible()
    one = viewer.open(view="responses", file="after/roots/results.jsonl")
    expect(one.get_by_text("30 responses").first).to_be_visible()
    expect(one.get_by_role("combobox", name="Subject")).to_be_visible()
    expect(one.get_by_role("combobox", name="Source")).to_have_count(0)


def test_a_whole_run_of_earlier_programs_opens(viewer: Viewer) -> None:
    file = "eval_runs/old/step_7/old_step_7_eval_20250601_123005.json"
    page = viewer.open(view="responses", file=file, kinds="10")
    expect(page.get_by_text("eval_runs/old · step 7 · 2025-06-01 12:30:05").first).to_be_visible()
    expect(page.get_by_text("8 of 30 responses").first).to_be_visible()


def test_a_narrow_page_shows_every_page_and_keeps_the_arrows_in_a_row(viewer: Viewer) -> None:
    page = viewer.open(view="responses", file="after/roots/results.jsonl")
    page.set_viewport_size({"width": 420, "height": 900})
    back, forth = (page.get_by_role("button", name=sign).first for sign in ("‹", "›"))
    expect(forth).to_be_visible()
    boxes = [one.bounding_box() for one in (back, forth)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["y"] == boxes[1]["y"]
    pages = page.get_by_test_id("stButtonGroup").filter(has_text="Side by side")
    last = pages.get_by_text("Side by side").bounding_box()
    assert last is not None
    assert last["x"] + last["width"] < 420


def test_a_group_with_rewards_advantages_and_tokens(viewer: Viewer) -> None:
    page = viewer.open(
        view="responses", file="grpo/rollouts/step_000006.parquet", colour="logprob", rows=2
    )
    expect(page.locator("pre.tokens span[title*='log-probability']").first).to_be_visible()
    page.get_by_role("button", name="All samples").first.click()
    table = page.locator("table.wk")
    expect(table).to_be_visible()
    expect(table.locator("tbody tr")).to_have_count(4)
    expect(table).to_contain_text("Advantage")
    expect(page.locator("pre.tokens")).to_have_count(4)
    page.wait_for_function("location.search.includes('problem=')")


def test_two_checkpoints_side_by_side(viewer: Viewer) -> None:
    page = viewer.open(
        view="compare",
        file="before/roots/results.jsonl",
        other="after/roots/results.jsonl",
        outcome="second",
    )
    expect(page.get_by_text("1 of 14 problems").first).to_be_visible()
    expect(page.locator(".wk-head").filter(has_text="before · roots")).to_be_visible()
    expect(page.locator(".wk-head").filter(has_text="after · roots")).to_be_visible()
    page.get_by_role("button", name="›").click()
    expect(page.get_by_text("2 of 14 problems").first).to_be_visible()
    expect(page.get_by_text("roots/3").first).to_be_visible()


@pytest.mark.parametrize(
    "query",
    [
        {"view": "responses", "file": "../secret/results.jsonl"},
        {"view": "responses", "file": "linked/results.jsonl"},
        {"view": "responses", "file": "/etc/passwd"},
        {
            "view": "compare",
            "file": "after/roots/results.jsonl",
            "other": "../secret/results.jsonl",
        },
        {"view": "curves", "runs": "../secret"},
    ],
)
def test_a_path_out_of_the_folder_is_refused(viewer: Viewer, query: dict[str, str]) -> None:
    page = viewer.open(**query)
    alert = page.get_by_test_id("stAlert")
    expect(alert).to_contain_text("leads out of the folder")
    assert "the secret" not in page.content()
    page.get_by_role("button", name="Begin anew").click()
    expect(alert).to_have_count(0)


def test_an_unknown_parameter_is_refused(viewer: Viewer) -> None:
    page = viewer.open(view="shell")
    expect(page.get_by_test_id("stAlert")).to_contain_text("expected one of curves")


def test_the_viewer_changes_nothing(root: Path, viewer: Viewer) -> None:
    before = {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}
    viewer.open(view="benchmarks")
    viewer.open(view="responses", text="x")
    assert {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))} == before


def _seconds_to_open(viewer: Viewer, file: Path, shown: str) -> float:
    """The best of three, each after the file has changed, so that nothing of it is remembered."""
    times = []
    for age in range(3):
        os.utime(file, (1e9 + age, 1e9 + age))
        start = time.monotonic()
        page = viewer.open(view="responses", file=f"{file.parents[1].name}/roots/results.jsonl")
        expect(page.get_by_text(shown).first).to_be_visible()
        expect(page.locator(".wk-head").nth(9)).to_be_visible()
        times.append(time.monotonic() - start)
        page.context.close()
    return min(times)


def test_a_folder_of_100_000_rows_opens_in_5_seconds(tmp_path: Path, browser: Browser) -> None:
    """On a machine so busy that twelve rows take as long: in twice their time."""
    filler = "We factor the polynomial and add its roots. " * 12
    for name, count in (("small", 12), ("big", 100_000)):
        rows = [_row(n, n % 3 > 0, filler + str(n)) for n in range(count)]
        _write(tmp_path / name / "roots/results.jsonl", rows)
    for address in _served(tmp_path):
        viewer = Viewer(address=address, browser=browser)
        small = _seconds_to_open(viewer, tmp_path / "small/roots/results.jsonl", "12 responses")
        file = tmp_path / "big/roots/results.jsonl"
        seconds = _seconds_to_open(viewer, file, "100,000 responses")
        print(f"to open 12 rows: {small:.1f} s, 100,000: {seconds:.1f} s")  # noqa: T201
        assert seconds < max(5.0, 2 * small)
        page = viewer.open(view="responses", file="big/roots/results.jsonl", kinds="10", page=3000)
        expect(page.get_by_text("33,334 of 100,000 responses").first).to_be_visible()
        expect(page.locator(".wk-head").nth(9)).to_contain_text("roots/89997")
