"""`elision view` at the terminal."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from elision.errors import ElisionError, FormatError, PriceError, SpecError
from elision.lab.report.report import FoldedText, fold_text
from elision.trajectory.foreign_text import escape_controls
from tests.cli.in_process import Command

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
EXCERPT = DATA / "claude_code" / "excerpt.jsonl"
SEVERAL = DATA / "openai_chat" / "tau2-sft-excerpt.jsonl"
PLAIN = "masking(window=2, schedule=every-turn, gist=0, placeholder='[gone]')"
HYBRID = "hybrid(window=2, summarize_at=4, tail=2, summary_max_tokens=80, schedule=every-turn)"


COMMAND = Command("view")
run, printed, refused = COMMAND.run, COMMAND.print, COMMAND.refuse


def read_call(text: str) -> dict[str, Any]:
    """What --json prints, without the envelope."""
    found: dict[str, Any] = json.loads(text)
    assert (found.pop("schema"), found.pop("command")) == ("elision/1", "view")
    found.pop("headline", "")
    return found


def read_calls(text: str) -> list[dict[str, Any]]:
    """What --all --json prints: one object, whose calls are a line each."""
    calls: list[dict[str, Any]] = read_call(text)["calls"]
    assert len(text.splitlines()) == len(calls) + 2
    return calls


def chat(path: Path, *observations: str) -> Path:
    """A recorded run that made a call for each of `observations`, and then said goodbye."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look around."}]
    for number, text in enumerate(observations, start=1):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        messages += [{"role": "tool", "tool_call_id": f"c{number}", "content": text}]
    path.write_text(json.dumps({"messages": [*messages, {"role": "assistant", "content": "Bye."}]}))
    return path


# -- the page -------------------------------------------------------------------------------------------------------


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("update_view", ROOT / "tests" / "golden" / "update_view.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()


@pytest.mark.parametrize("name", SCRIPT.CASES)
def test_a_real_view_is_the_golden_one(name: str) -> None:
    """Pages and messages change only when somebody means them to (tests/golden/update_view.py)."""
    assert SCRIPT.CASES[name]() == (SCRIPT.FOLDER / name).read_text(encoding="utf-8")


def test_the_last_call_is_shown_if_none_is_asked_for() -> None:
    """The excerpt has seven calls."""
    assert "Call 7 of 7" in printed(EXCERPT)
    assert "Call 2 of 7" in printed(EXCERPT, "--call", 2)


def test_long_texts_are_folded_with_a_count_unless_all_is_asked_for() -> None:
    """What is left out is counted; `--full` leaves nothing out."""
    text = "\n".join(f"row {number}" for number in range(40))
    page = printed(EXCERPT, "--strategy", "raw", "--call", 4)
    assert "more rows" in page
    assert "more rows" not in printed(EXCERPT, "--strategy", "raw", "--call", 4, "--full")
    assert fold_text(text, 2, 1, 80) == FoldedText("row 0\nrow 1", "row 39", 37, len(text) - 17)


def test_what_is_masked_and_summarized_is_named() -> None:
    """Size before and after, and how many of how many."""
    page = printed(EXCERPT, "--strategy", PLAIN, "--call", 5)
    assert "t2.2 Glob  masked now, was 1,228 tokens" in page
    assert "3 of 5 observations masked" in page
    assert "summary  of turns 1-2, written now" in printed(EXCERPT, "--strategy", HYBRID, "--call", 5)


def test_a_trajectory_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    """Escapes and the like are signs, markup and links are text; tabs and newlines stay what they are."""
    evil = "\x1b[31mred\x1b]0;title\x07 [bold]b[/bold] :smile: \x9b2J\r50%\r\n\x08\u202eabc [link=file:///x]y[/link]"
    page = printed(chat(tmp_path / "run.json", evil), "--strategy", "raw")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", page)
    assert "␛[31mred␛]0;title␇ [bold]b[/bold] :smile:" in page
    assert "[link=file:///x]y[/link]" in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb", "a   b"),
        ("10%\r20%\r\ndone", "10%\n20%\ndone"),
        ("\x1b[1;31mred\x1b[0m \x1b(Bplain", "red plain"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\sixel", "sixel"),
        ("cut \x1b[", "cut "),
        ("a\ud800b", "a?b"),
    ],
)
def test_text_without_what_a_terminal_acts_on(text: str, shown: str) -> None:
    """Sequences go whole, so that no rest of them is left."""
    assert escape_controls(text) == shown


def test_a_fold_breaks_at_spaces_and_leaves_short_texts_alone() -> None:
    """Nothing is lost between head and tail."""
    text = "word " * 400
    cut = fold_text(text, 3, 2, 40)
    assert cut.head.endswith("word ")
    assert len(cut.head) + cut.letters + len(cut.tail) == len(text)
    assert fold_text("one\ntwo\nthree", 1, 1, 40) == FoldedText("one\ntwo\nthree")
    assert fold_text("x" * 1000, 1, 1, 100).head == "x" * 100


def test_a_page_shows_the_same(tmp_path: Path) -> None:
    """With --html: the messages, what is masked, the totals; the middle of a long text opens by a click."""
    file = tmp_path / "view.html"
    text = printed(EXCERPT, "--strategy", PLAIN, "--call", 5, "--html", file)
    page = file.read_text(encoding="utf-8").replace("\xa0", " ")
    assert page.startswith("<!doctype html>")
    for words in (text.splitlines()[0], "masked now, was 1,228 tokens", "3 of 5 observations masked", "turn 4"):
        assert words in page
    long = (EXCERPT, "--strategy", "raw", "--call", 4, "--html", file)
    for more, is_folded in (((), True), (("--full",), False)):
        printed(*long, *more)
        found = re.search(r"<details><summary>[\d,]+ more rows</summary>", file.read_text(encoding="utf-8"))
        assert bool(found) == is_folded
    assert "leave out --all" in refused(SpecError, EXCERPT, "--all", "--json", "--html", file)


def test_a_long_text_is_whole_on_a_page(tmp_path: Path) -> None:
    """Beginning, middle and end of a folded text are all of it, and nothing in it is markup."""
    rows = [f"row {number} <b>" for number in range(60)]
    printed(chat(tmp_path / "run.json", "\n".join(rows)), "--strategy", "raw", "--html", tmp_path / "view.html")
    page = (tmp_path / "view.html").read_text(encoding="utf-8")
    assert re.findall(r"row \d+ &lt;b&gt;", page) == [row.replace("<b>", "&lt;b&gt;") for row in rows]
    assert "<b>" not in page


# -- differences ----------------------------------------------------------------------------------------------------


def test_a_difference_shows_what_was_rewritten_and_what_is_new() -> None:
    """The first rewritten byte, what stood there, what stands there now."""
    page = printed(EXCERPT, "--strategy", PLAIN, "--call", 5, "--diff")
    assert "First rewritten byte 1,053: message 5 (t2.1 Bash)" in page
    assert "− t2.2 Glob  1,228 tokens" in page
    assert "+ t2.2 Glob  masked now" in page
    assert "2 messages, 152 tokens as before, sent again" in page


def test_a_difference_without_a_rewrite_says_so() -> None:
    """What was sent stands."""
    assert "Nothing was rewritten" in printed(EXCERPT, "--strategy", "raw", "--diff")
    assert "everything is new" in printed(EXCERPT, "--strategy", "raw", "--call", 1, "--diff")


def test_a_difference_tells_what_gave_way_to_a_summary() -> None:
    """Covered turns are counted, the summary is shown."""
    page = printed(EXCERPT, "--strategy", HYBRID, "--call", 5, "--diff")
    assert re.search(r"− 5 messages, [\d,]+ tokens give way to a summary", page)
    assert "+ summary  of turns 1-2, written now" in page


def test_a_difference_as_json() -> None:
    """The same numbers."""
    told = read_call(printed(EXCERPT, "--strategy", PLAIN, "--call", 5, "--diff", "--json"))
    assert told["first_rewritten"] == {"message": 5, "character": 0, "byte": 1053, "tokens_kept": 19003}
    assert told["keep"] == 4
    assert len(told["messages"]) == 6


# -- JSON -----------------------------------------------------------------------------------------------------------


def test_one_call_as_json() -> None:
    """Call, epoch and the messages, on standard output."""
    told = read_call(printed(EXCERPT, "--strategy", PLAIN, "--call", 5, "--json"))
    assert list(told) == ["call", "epoch", "messages", "bills"]
    assert (told["call"], told["epoch"]) == (5, 3)
    assert told["messages"][2]["content"] == "[gone]"


def test_every_call() -> None:
    """In order, with the epochs that rewrites begin."""
    told = read_calls(printed(EXCERPT, "--strategy", PLAIN, "--all", "--json"))
    assert [each["call"] for each in told] == [1, 2, 3, 4, 5, 6, 7]
    assert [each["epoch"] for each in told] == sorted(each["epoch"] for each in told)


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("strategy", ["raw", PLAIN, HYBRID])
def test_deltas_put_together_are_the_whole_views(dialect: str, strategy: str) -> None:
    """`keep` messages of the call before, and the new ones."""
    asked = (SEVERAL, "--strategy", strategy, "--dialect", dialect, "--json")
    told: list[Any] = []
    system: list[Any] = []
    views, deltas = (read_calls(printed(*asked, *more)) for more in (("--all",), ("--all", "--delta")))
    for whole, delta in zip(views, deltas, strict=True):
        told = told[: delta["keep"]] + delta["messages"]
        system = delta.get("system", system)
        assert told == whole["messages"]
        assert system == whole.get("system", [])


def test_the_dialect_is_chosen() -> None:
    """Anthropic's has its system prompt apart and blocks for content."""
    told = read_call(printed(SEVERAL, "--strategy", "raw", "--dialect", "anthropic", "--json"))
    assert told["system"][0]["type"] == "text"
    assert {message["role"] for message in told["messages"]} == {"user", "assistant"}
    assert all(isinstance(message["content"], list) for message in told["messages"])


def test_letters_of_any_script_come_back(tmp_path: Path) -> None:
    """From the JSON of one call, whatever the terminal speaks."""
    told = read_call(printed(chat(tmp_path / "run.json", "caf\u00e9 \u89c2"), "--strategy", "raw", "--json"))
    assert "caf\u00e9 \u89c2" in str(told["messages"])


# -- which run, which call ------------------------------------------------------------------------------------------


def test_the_longest_run_of_a_file_unless_one_is_named() -> None:
    """The file holds two, of 13 and 10 turns."""
    assert "Call 13 of 13" in printed(SEVERAL)
    assert "Call 10 of 10" in printed(SEVERAL, "--trajectory", "line 2")


def test_an_unknown_run_lists_those_that_are_there() -> None:
    """So that it can be named right."""
    assert "line 1, line 2" in refused(FormatError, SEVERAL, "--trajectory", "line 9")


@pytest.mark.parametrize("call", ["0", "8", "-1", "first", "2.5", "²"])
def test_a_call_that_is_not_there_says_which_are(call: str) -> None:
    """The excerpt has seven."""
    assert "from 1 to 7, or last" in refused(SpecError, EXCERPT, f"--call={call}")


@pytest.mark.parametrize(
    ("error", "arguments", "says"),
    [
        (SpecError, ("--dialect", "bison"), "openai, openai-responses, anthropic, gemini"),
        (SpecError, ("--strategy", "magic"), "masking"),
        (SpecError, ("--tokens", "gpt2"), "o200k"),
        (PriceError, ("--prices", "cheap"), "cheap"),
        (PriceError, ("--model", "gpt-5", "--prices", "openai"), "contradict"),
        (SpecError, ("--all", "--json", "--call", "3"), "--call 3"),
        (SpecError, ("--all",), "--all is for --json"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(error: type[ElisionError], arguments: tuple[str, ...], says: str) -> None:
    """What was wrong, and what there is."""
    assert says in refused(error, EXCERPT, *arguments)


def test_problems_of_a_file_are_told_beside_the_page(tmp_path: Path) -> None:
    """On standard error, the first five one by one."""
    path = tmp_path / "run.jsonl"
    path.write_text(SEVERAL.read_text() + "{broken\n" * 8)
    result = run(path)
    assert "Call 13 of 13" in result.stdout
    assert result.stderr.count(f"{path}:") == 5
    assert "3 more" in result.stderr


def test_hindsight_can_be_looked_at() -> None:
    """Its plan is worked out before the first call."""
    assert "planned" in printed(EXCERPT, "--strategy", "masking(window=2, schedule=hindsight)")


def test_an_unrecorded_head_is_shown_by_its_size() -> None:
    """The recording bills a prompt of which it holds but the end."""
    assert "[unrecorded head, 18,843 tokens]" in printed(EXCERPT)


# -- the page about it ----------------------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "guides" / "dashboard.md"


def _commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ elision view ")]


@pytest.mark.parametrize("command", _commands())
def test_every_command_of_the_docs_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands there, from the root of the repository; what it writes, it writes elsewhere."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)
    assert words[:2] == ["elision", "view"]
    printed(*words[2:])


def test_the_docs_name_every_option() -> None:
    """An option that nobody can find is none."""
    page = PAGE.read_text(encoding="utf-8")
    help_text = re.sub(r"\x1b\[[\d;]*m", "", printed("--help-all", width=200))
    options = set(re.findall(r"--[a-z]+", help_text)) - {"--help", "--help-all", "--quiet"}
    assert len(options) > 10
    assert {option for option in options if option not in page} == set()


def test_a_page_says_how_its_figures_compare_with_what_placeholders_state() -> None:
    """The figures are the model's, the text of a placeholder is the same at each model; price sets have no scale."""
    eager = ("-s", "masking(window=2, schedule=every-turn)")
    page = printed(EXCERPT, "--model", "claude-opus-4-8", *eager)
    assert re.search(r"scale +1\.60 tokens for each one that placeholders and summaries state", page)
    assert "scale " not in printed(EXCERPT, "--prices", "anthropic", *eager)
