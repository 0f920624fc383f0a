"""The two example configurations of the specification, verbatim, on every route that reads settings."""

from __future__ import annotations

import re
from pathlib import Path

import prometheus_client
import pytest
from click.testing import CliRunner

from elision import ContextManager
from elision.cli.app import app
from elision.config import load_settings
from elision.errors import SettingError
from elision.gateway.settings import gateway_settings
from elision.strategies.guards import Guards
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Hybrid, Masking, Strategy
from elision.testing.builders import step
from tests.gateway.serve_process import start_serve

CHAT = (
    "- **Fast chat agent**: `AGENT_CONTEXT_STRATEGY=masking`, `AGENT_CONTEXT_MASKING_WINDOW=6`, "
    "`AGENT_CONTEXT_RESERVED=1800`, `AGENT_CONTEXT_SUMMARY_TURNS=18`."
)
CODE = (
    "- **Deep code agent**: `AGENT_CONTEXT_STRATEGY=hybrid`, `AGENT_CONTEXT_MASKING_WINDOW=12`, "
    "`AGENT_CONTEXT_SUMMARY_TURNS=10`, `AGENT_CONTEXT_SUMMARY_TOKENS=9000`, `AGENT_CONTEXT_MAX_TURNS=120`."
)
#: The preset of the same meaning.
PRESETS = {CHAT: "chat", CODE: "code"}
MEANT: dict[str, Strategy] = {
    CHAT: parse_strategy("masking(window=6, budget=budget(reserved=1800))"),
    CODE: Hybrid(window=12, summarize_at=10, tail=5, summarize_tokens=9_000),
}

examples = pytest.mark.parametrize("line", [CHAT, CODE], ids=["chat", "code"])


def variables(line: str) -> dict[str, str]:
    """The variables that the specification's line sets."""
    return dict(re.findall(r"`(\w+)=(\w+)`", line))


@examples
def test_by_environment(line: str, tmp_path: Path) -> None:
    """They mean what they say; the preset of that kind of agent means the same."""
    found = load_settings(variables(line), tmp_path)
    assert found.strategy == MEANT[line] == load_settings({"AGENT_CONTEXT_STRATEGY": PRESETS[line]}, tmp_path).strategy
    assert found.guards == load_settings({"AGENT_CONTEXT_STRATEGY": PRESETS[line]}, tmp_path).guards


@examples
def test_by_from_env(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager starts with them and hides by them."""
    monkeypatch.chdir(tmp_path)
    with ContextManager.from_env(variables(line), store="memory:", prices="uncached") as context:
        masked = []
        for number in range(1, 20):
            diagnostics = context.turns.view().diagnostics
            masked.append(diagnostics.masked)
            context.turns.append(step(number))
    first = next(call for call, count in enumerate(masked, start=1) if count)
    window = MEANT[line].window  # type: ignore[attr-defined]
    assert first == window + 2


@examples
def test_by_config(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its settings is listed with its value and its variable, with a note where it is not used now."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["doctor", "--settings"], env=variables(line) | {"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    rows = {row.split()[0]: row.split() for row in result.output.splitlines() if row.split()}
    for variable, value in variables(line).items():
        name = variable.removeprefix("AGENT_CONTEXT_").lower()
        assert variable in rows[name]
        if name != "strategy":
            assert rows[name][1].replace("_", "") == value
    words = " ".join(result.output.split())
    if line == CHAT:
        assert "summary_turns: used if the strategy makes summaries" in words
    else:
        assert "summary_tail: 5 instead of 10, since summary_turns is 10" in words


@examples
def test_by_serve(line: str, tmp_path: Path) -> None:
    """The gateway takes them, and stops a session at the turns that they allow."""
    found = gateway_settings(variables(line), tmp_path)
    assert found.library.strategy == MEANT[line]
    assert found.session_max_turns == (120 if line == CODE else None)
    assert found.at_limit == "refuse"


def test_by_a_gateway_process(tmp_path: Path) -> None:
    """`elision serve` starts with the line as it stands, says what it limits, and is ready."""
    with start_serve(tmp_path, **variables(CODE)) as gateway:
        assert gateway.url, gateway.log
        assert gateway.popen.stdout is not None
        limits = "Limits:            120 turns a session; beyond them requests are refused (429)\n"
        assert gateway.popen.stdout.readline() == limits
        assert gateway.send_request("/healthz")[0] == 200
        assert gateway.end_process() == 0


def test_the_placeholder_of_the_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is one variable; with the gist switched off it is what is sent."""
    monkeypatch.chdir(tmp_path)
    text = "[OMITTED_OBSERVATION: too old; available in memory store]"
    given = {"AGENT_CONTEXT_PLACEHOLDER": text, "AGENT_CONTEXT_GIST": "0", "AGENT_CONTEXT_SCHEDULE": "every-turn"}
    with ContextManager.from_env(given, store="memory:") as context:
        for number in range(1, 15):
            context.turns.append(step(number))
        sent = [message.get("content") for message in context.turns.view().messages]
    assert sent.count(text) == 4


#: The tuning knobs of the specification, each with a value and with the setting that it is here.
KNOBS = {
    "tokenBudget": (90_000, "token_budget"),
    "reservedForResponse": (1_500, "reserved"),
    "maxContextPct": (0.5, "max_context_pct"),
    "maskingWindow": (7, "masking_window"),
    "summarizationTurnThreshold": (18, "summary_turns"),
    "summarizationTokenThreshold": (9_000, "summary_tokens"),
    "summaryMaxTokens": (300, "summary_max_tokens"),
    "maxTurns": (77, "max_turns"),
    "maxCostUsd": (2.5, "max_cost_usd"),
    "plateauWindow": (4, "plateau_window"),
}
HYBRID = {"AGENT_CONTEXT_STRATEGY": "hybrid"}

knobs = pytest.mark.parametrize("knob", KNOBS)


def write_in_snake_case(knob: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", knob)


@knobs
def test_knobs_by_environment_and_file(knob: str, tmp_path: Path) -> None:
    """Each is the setting that it means, in the specification's spelling and in that of variables and files."""
    value, setting = KNOBS[knob]
    snake = write_in_snake_case(knob)
    expected = load_settings(HYBRID, tmp_path, **{setting: value})
    assert (
        load_settings({**HYBRID, f"AGENT_CONTEXT_{snake.upper()}": str(value)}, tmp_path).strategy == expected.strategy
    )
    for name in (knob, snake):
        (tmp_path / "elision.toml").write_text(f"{name} = {value}\n")
        found = load_settings(HYBRID, tmp_path)
        assert (found.strategy, found.guards) == (expected.strategy, expected.guards) != (Hybrid(), Guards())
        gateway = gateway_settings(HYBRID, tmp_path).library
        assert (gateway.strategy, gateway.guards) == (expected.strategy, expected.guards)


@knobs
def test_knobs_by_from_env(knob: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As arguments they do what the settings do: they override the environment, and nothing is refused."""
    monkeypatch.chdir(tmp_path)
    value, setting = KNOBS[knob]
    given = {**HYBRID, f"AGENT_CONTEXT_{setting.upper()}": str(type(value)(value * 0.9))}
    shown = []
    for name in (setting, knob, write_in_snake_case(knob)):
        with ContextManager.from_env(given, store="memory:", **{name: value}) as context:
            shown.append((context._opened.calls.options.strategy, context._opened.calls.options.guards))
    assert shown[0] == shown[1] == shown[2]


def test_two_spellings_of_a_knob_must_agree(tmp_path: Path) -> None:
    """Both places are named."""
    with pytest.raises(
        SettingError, match="argument summary_turns says 20, but argument summarizationTurnThreshold says 18"
    ):
        load_settings({}, tmp_path, summarizationTurnThreshold=18, summary_turns=20)


def test_metrics_by_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager of the environment emits the documented metrics, without a line of code for it."""
    monkeypatch.chdir(tmp_path)
    before = prometheus_client.generate_latest().decode()
    with ContextManager.from_env(
        {"AGENT_CONTEXT_METRICS": "prometheus"}, store="memory:", model="spec-model"
    ) as context:
        context.turns.append(step(1))
        context.turns.view()
    page = prometheus_client.generate_latest().decode()
    for name in ("tokens_in", "tokens_out", "masked_observation_tokens", "estimated_cost_usd", "turn_count"):
        assert f'agent_context_{name}{{model="spec-model"}}' in page
        assert f'agent_context_{name}{{model="spec-model"}}' not in before


def test_defaults_of_the_specification(tmp_path: Path) -> None:
    """Nobody says anything: masking with a window of 10, 1,000 tokens reserved, 0.85 of the budget."""
    found = load_settings({}, tmp_path)
    assert found.strategy == Masking(window=10)
    shown = {entry.key.name: entry.value for entry in found.entries}
    assert shown | {"reserved": "1_000", "max_context_pct": "0.85"} == shown
