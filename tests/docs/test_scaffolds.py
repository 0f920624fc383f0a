"""Every file of `examples/scaffolds` is what the page says: settings that load, configurations with known fields."""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from elision.gateway.settings import gateway_settings
from elision.strategies.strategy import Raw
from tests.docs.blocks import ROOT
from tests.e2e.doors import NOWHERE

SCAFFOLDS = ROOT / "examples" / "scaffolds"
NAMES = ("swe-agent", "openhands", "mini-swe-agent")
STRATEGIES = ("raw", "masking", "summarization", "hybrid")
#: Fields of SWE-agent's `GenericAPIModelConfig` (`sweagent/agent/models.py`, 1.1), which forbids all others.
SWE_AGENT_MODEL = {
    "name",
    "per_instance_cost_limit",
    "total_cost_limit",
    "per_instance_call_limit",
    "temperature",
    "top_p",
    "api_base",
    "api_version",
    "api_key",
    "stop",
    "completion_kwargs",
    "convert_system_to_user",
    "retry",
    "delay",
    "fallbacks",
    "choose_api_key_by_thread",
    "max_input_tokens",
    "max_output_tokens",
    "litellm_model_registry",
    "custom_tokenizer",
}
ADDRESS = "http://127.0.0.1:8377/v1"


def load(path: Path) -> Any:
    """The file as the scaffold reads it."""
    text = path.read_text(encoding="utf-8")
    return {".yaml": yaml.safe_load, ".json": json.loads, ".toml": tomllib.loads}[path.suffix](text)


def test_one_file_per_strategy() -> None:
    """And nothing that no test looks at."""
    common = {f"{strategy}.toml" for strategy in STRATEGIES}
    own = {
        "swe-agent": {"gateway.yaml"},
        "mini-swe-agent": {"gateway.yaml"},
        "openhands": {"llm.json", "config.toml", "agent.py"},
    }
    for name in NAMES:
        assert {path.name for path in (SCAFFOLDS / name).iterdir()} == common | own[name]


@pytest.mark.parametrize("scaffold", NAMES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_settings_of_the_gateway(scaffold: str, strategy: str) -> None:
    """They load, name a strategy that parses, keep their own store, and have no effectless setting."""
    path = SCAFFOLDS / scaffold / f"{strategy}.toml"
    found = gateway_settings({"AGENT_CONTEXT_CONFIG": str(path)}, NOWHERE)
    assert found.port == 8377
    assert found.library.store == f"sqlite:///{scaffold}-{strategy}.db"
    assert isinstance(found.library.strategy, Raw) == (strategy == "raw")
    assert [entry for entry in found.library.entries if entry.note and entry.place.startswith(str(path))] == []
    assert f"examples/scaffolds/{scaffold}/{strategy}.toml elision serve" in path.read_text(encoding="utf-8")


def test_swe_agent() -> None:
    """Known fields of its model, and its history processors off."""
    found = load(SCAFFOLDS / "swe-agent" / "gateway.yaml")
    assert found.keys() == {"agent"}
    assert found["agent"].keys() == {"model", "history_processors"}
    assert found["agent"]["history_processors"] == []
    assert found["agent"]["model"].keys() <= SWE_AGENT_MODEL
    assert found["agent"]["model"]["api_base"] == ADDRESS


def test_mini_swe_agent() -> None:
    """What LiteLLM is given, under the model; tests/clients merges and runs it with the program."""
    found = load(SCAFFOLDS / "mini-swe-agent" / "gateway.yaml")
    assert found["model"]["model_kwargs"] == {"api_base": ADDRESS, "drop_params": True}


def test_openhands() -> None:
    """No condenser of its own in either version; tests/clients runs the program with the SDK."""
    folder = SCAFFOLDS / "openhands"
    assert load(folder / "llm.json")["base_url"] == ADDRESS
    old = load(folder / "config.toml")
    assert (old["llm"]["base_url"], old["condenser"]) == (ADDRESS, {"type": "noop"})
    program = ast.parse((folder / "agent.py").read_text(encoding="utf-8"))
    given = {
        word.arg: ast.unparse(word.value)
        for node in ast.walk(program)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Agent"
        for word in node.keywords
    }
    assert given["condenser"] == "None"
