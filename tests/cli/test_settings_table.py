"""`elision doctor --settings` at the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from elision.cli.app import app
from elision.config.setting_keys import ALL_KEYS


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elision.toml").write_text('strategy = "hybrid"\nmasking_window = 8\n', encoding="utf-8")


def run(*arguments: str, width: int = 100, **environ: str) -> Any:
    return CliRunner().invoke(app, ["doctor", "--settings", *arguments], env={"COLUMNS": str(width), **environ})


def printed(*arguments: str, width: int = 100, **environ: str) -> str:
    result = run(*arguments, width=width, **environ)
    assert result.exit_code == 0, result.output
    text: str = result.output
    return text


@pytest.mark.parametrize("width", [80, 100, 160])
def test_every_setting_is_shown(width: int) -> None:
    """Each has one line with its value and its place, within the width and uncut."""
    text = printed("--all", width=width)
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.split()}
    assert set(ALL_KEYS) <= set(lines)
    assert lines["masking_window"][1:3] == ["8", "elision.toml:2"]
    assert lines["summary_turns"][1:3] == ["43", "default"]
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def test_wide_terminals_show_the_meaning() -> None:
    """Where there is room, what each setting means stands beside it on the same line."""
    assert "newest turns whose tool results stay" in printed(width=160)
    assert "newest turns whose tool results stay" not in printed(width=100)


def test_long_values_take_several_lines() -> None:
    """Where room is short, the place goes before a value or a setting's name."""
    text = printed(width=80, ELISION_GATEWAY_UPSTREAM_ANTHROPIC="https://my.proxy.example.com/anthropic")
    assert "gateway_upstream_anthropic" in text
    joined = "".join(text.split())
    assert "https://my.proxy.example." in joined
    assert "ELISION_GATEWAY_UPSTREAM_ANTHROPIC" in printed(width=120, ELISION_GATEWAY_UPSTREAM_ANTHROPIC="none")
    assert "masking_window  8" in printed(width=160)


def test_only_what_somebody_set_is_shown() -> None:
    """Settings with their default are counted, and listed with --all."""
    text = printed()
    assert "masking_window" in text
    assert "summary_turns" not in text
    assert re.search(r"\d+ settings are at their defaults; elision doctor --settings --all lists them\.", text)


def test_nothing_set_is_a_sentence(tmp_path: Path) -> None:
    """Rather than an empty table."""
    (tmp_path / "elision.toml").unlink()
    assert "All settings are at their defaults; elision doctor --settings --all lists them." in printed()


def test_what_has_no_effect_is_said() -> None:
    """A setting that another strategy set aside is named below the table."""
    text = printed(ELISION_STRATEGY="raw")
    assert "masking_window: used if the strategy masks by turns, as masking and hybrid do" in " ".join(text.split())


_AS_RAW = "nothing is hidden, largest request about 49,700 tokens (raw 49,700)."


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("raw", "raw hides nothing, in any run."),
        ("paper-masking", "first placeholder at call 12, largest request about "),
        ("Paper-Hybrid", "first placeholder at call 12, first summary at call 44, largest request about "),
        (
            "masking(window=200)",
            f"{_AS_RAW} Nor in one of 150 calls.",
        ),
        (
            "openhands",
            f"{_AS_RAW} In a longer one: first summary about call ",
        ),
        ("masking(budget=2000)", "system prompt, tools, task and the newest turn need"),
    ],
)
def test_when_the_strategy_will_act(strategy: str, expected: str) -> None:
    """One sentence, for a typical run at the prices in force; JSON has the figures."""
    given = {"ELISION_STRATEGY": strategy, "ELISION_MASKING_WINDOW": ""}
    (Path.cwd() / "elision.toml").unlink()
    forecast = CliRunner().invoke(app, ["replay", "--forecast"], env=given)
    words = " ".join(forecast.stdout.split())
    assert f"In a typical coding run of 88 calls at the prices of anthropic: {expected}" in words
    found = CliRunner().invoke(app, ["replay", "--forecast", "--json"], env=given)
    [figures] = json.loads(found.stdout)["forecasts"]
    if strategy == "Paper-Hybrid":
        assert (figures["first_placeholder"], figures["first_summary"], figures["prices"]) == (12, 44, "anthropic")


def test_json() -> None:
    """The same as JSON, passwords left out."""
    found = json.loads(printed("--json", ELISION_STORE="postgresql://me:hunter2@db/x"))
    assert found["schema"] == "elision/1"
    by_name = {each["name"]: each for each in found["settings"]}
    assert list(by_name) == list(ALL_KEYS)
    assert by_name["masking_window"]["from"] == "elision.toml:2"
    assert by_name["store"] == {
        "name": "store",
        "variable": "ELISION_STORE",
        "value": "postgresql://me:***@db/x",
        "from": "ELISION_STORE",
        "note": "",
        "meaning": ALL_KEYS["store"].meaning,
    }


def test_who_writes_summaries_is_said() -> None:
    """Model, address, prompt and temperature, in table and JSON; the digest is named as such."""
    assert "Summaries: by the digest, without a model\n" in printed()
    Path("prompt.txt").write_text("{previous}{turns}", encoding="utf-8")
    environ = {
        "ELISION_SUMMARIZER": "openai:qwen3-coder",
        "ELISION_SUMMARIZER_BASE_URL": "http://127.0.0.1:9/v1",
        "ELISION_SUMMARY_PROMPT": "prompt.txt",
    }
    said = "by openai:qwen3-coder at http://127.0.0.1:9/v1, prompt prompt.txt"
    assert f"Summaries: {said}\n" in printed(**environ)
    assert json.loads(printed("--json", **environ))["summaries"] == said


def test_a_prompt_without_effect_is_noted() -> None:
    """The digest asks no model: the setting is kept, and what it would be used for is said."""
    Path("prompt.txt").write_text("{previous}{turns}", encoding="utf-8")
    text = printed(width=160, ELISION_SUMMARY_PROMPT="prompt.txt")
    assert "summary_prompt: used if a model writes summaries; the digest asks none" in text


@pytest.mark.parametrize(
    ("strategy", "window", "warned"),
    [
        ("openhands", "27", True),
        ("openhands", "28", False),
        ("openhands-masking", "10", True),
        ("openhands-summarization", "10", False),
        ("masking", "10", False),
        ("swe-agent", "10", False),
    ],
)
def test_a_small_window_for_openhands_is_warned_of(tmp_path: Path, strategy: str, window: str, warned: bool) -> None:
    """From the published runs, in the text and in JSON; of other agents' windows nothing is known."""
    (tmp_path / "elision.toml").unlink()
    environ = {"ELISION_STRATEGY": strategy, "ELISION_MASKING_WINDOW": window}
    assert (f"Warning: a window of {window} turns is small for OpenHands." in printed(**environ)) == warned
    warning = json.loads(printed("--json", **environ))["warning"]
    assert (warning is not None) == warned
