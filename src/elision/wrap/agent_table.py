"""What each coding agent reads instead of its own configuration: variables, flags, and files in a temporary folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

#: "client": a test runs the real program. "trial": it ran once by hand. "documentation": nobody here ran it.
Evidence: TypeAlias = Literal["client", "trial", "documentation"]

#: Placeholders of a row's texts: the gateway's address, and the folder of its files.
URL: Final = "{url}"
FOLDER: Final = "{folder}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One agent. `{url}` and `{folder}` in its texts become the gateway's address and a temporary folder.

    binary:      the program that is started.
    environment: variable -> text, or a JSON object that is merged into what the variable holds already.
    arguments:   go before the user's own.
    files:       name -> text, written to the temporary folder.
    env_file:    a JSON file below the home whose `env` wins over variables; only `elision doctor` reads it.
    apis:        those over which the gateway serves it.
    mcp:         how it takes an MCP server for one process; "" if it does not. Agents built alike share a way.
    needs:       variable -> what it must hold; the agent is not started without it.
    clashes:     variable -> why the traffic would bypass the gateway while it is set.
    tried:       how far.
    version:     that was tried.
    note:        what a user should know, a sentence.
    refusal:     why it cannot be wrapped, a sentence; "" if it can.
    """

    name: str
    binary: str
    environment: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    env_file: str = ""
    apis: tuple[str, ...] = ()
    mcp: Literal["", "claude", "codex", "opencode"] = ""
    needs: Mapping[str, str] = field(default_factory=dict)
    clashes: Mapping[str, str] = field(default_factory=dict)
    tried: Evidence = "documentation"
    version: str = ""
    note: str = ""
    refusal: str = ""


#: What SDKs, and programs built on them, read. OpenAI's address has `/v1`. Anthropic's own clients add it to theirs,
#: the Vercel AI SDK does not: below `/anthropic` the gateway takes both.
CLIENT_VARIABLES: Final[Mapping[str, str]] = {
    "OPENAI_BASE_URL": f"{URL}/v1",
    "OPENAI_API_BASE": f"{URL}/v1",
    "ANTHROPIC_BASE_URL": f"{URL}/anthropic",
    "ANTHROPIC_API_BASE": f"{URL}/anthropic",
    "GOOGLE_GEMINI_BASE_URL": URL,
}

_OPENCODE_PROVIDERS: Final[Mapping[str, Any]] = {
    "provider": {
        "openai": {"options": {"baseURL": f"{URL}/v1"}},
        "anthropic": {"options": {"baseURL": f"{URL}/v1"}},
    }
}
_CLOUD: Final = "it sends its requests to that cloud, not to the gateway; unset it"

#: pi applies it to its own providers; keys, models and settings stay the user's.
_PI_EXTENSION: Final = f"""\
export default function (pi) {{
  pi.registerProvider("openai", {{ baseUrl: "{URL}/v1" }});
  pi.registerProvider("anthropic", {{ baseUrl: "{URL}" }});
}}
"""

_ROWS: Final = (
    Agent(
        name="claude",
        binary="claude",
        environment={"ANTHROPIC_BASE_URL": URL, "ENABLE_TOOL_SEARCH": "true"},
        env_file=".claude/settings.json",
        apis=("anthropic",),
        mcp="claude",
        clashes={"CLAUDE_CODE_USE_BEDROCK": _CLOUD, "CLAUDE_CODE_USE_VERTEX": _CLOUD},
        tried="client",
        version="2.1.330",
        note="Remote control is off at another base URL; a window of 1M tokens needs [1m] in the model's name.",
    ),
    Agent(
        name="codex",
        binary="codex",
        arguments=(
            "-c",
            'model_provider="elision"',
            "-c",
            'model_providers.elision.name="Elision"',
            "-c",
            f'model_providers.elision.base_url="{URL}/v1"',
            "-c",
            'model_providers.elision.env_key="OPENAI_API_KEY"',
            "-c",
            'model_providers.elision.wire_api="responses"',
        ),
        apis=("openai-responses",),
        mcp="codex",
        needs={"OPENAI_API_KEY": "an API key; a ChatGPT login is not routed yet"},
        tried="client",
        version="0.169.0",
        note="Codex lists sessions by provider: `codex resume` finds those that were started by `elision wrap codex`.",
    ),
    Agent(
        name="opencode",
        binary="opencode",
        environment={"OPENCODE_CONFIG_CONTENT": _OPENCODE_PROVIDERS},
        apis=("openai-responses", "anthropic"),
        mcp="opencode",
        tried="client",
        version="1.18.33",
    ),
    Agent(
        name="kilo",
        binary="kilo",
        environment={"KILO_CONFIG_CONTENT": _OPENCODE_PROVIDERS},
        apis=("openai-responses", "anthropic"),
        mcp="opencode",
        tried="trial",
        version="7.8",
    ),
    Agent(
        name="pi",
        binary="pi",
        arguments=("--extension", f"{FOLDER}/elision.js"),
        files={"elision.js": _PI_EXTENSION},
        apis=("openai-responses", "anthropic"),
        tried="client",
        version="0.73.1",
    ),
    Agent(
        name="qwen",
        binary="qwen",
        environment={"OPENAI_BASE_URL": f"{URL}/v1"},
        apis=("openai",),
        needs={"OPENAI_API_KEY": "an API key", "OPENAI_MODEL": "the model's name"},
        tried="client",
        version="0.24.4",
    ),
    Agent(
        name="copilot",
        binary="copilot",
        environment={"COPILOT_PROVIDER_BASE_URL": f"{URL}/v1", "COPILOT_PROVIDER_TYPE": "openai"},
        apis=("openai",),
        needs={
            "COPILOT_PROVIDER_API_KEY": "an API key of your own; the subscription's models cannot be moved",
            "COPILOT_MODEL": "the model's name",
        },
        tried="trial",
        version="1.0.102",
    ),
    Agent(
        name="aider",
        binary="aider",
        environment={"OPENAI_API_BASE": f"{URL}/v1", "ANTHROPIC_BASE_URL": URL, "ANTHROPIC_API_BASE": URL},
        apis=("openai", "anthropic"),
        tried="trial",
        version="0.86",
        note="It uses no tools, so there is little to hide.",
    ),
    Agent(
        name="gemini",
        binary="gemini",
        environment={"GOOGLE_GEMINI_BASE_URL": URL},
        apis=("gemini",),
        needs={"GEMINI_API_KEY": "an API key; a Google login is not routed"},
    ),
    Agent(
        name="goose",
        binary="goose",
        environment={"OPENAI_HOST": URL, "ANTHROPIC_HOST": URL},
        apis=("openai", "anthropic"),
    ),
    Agent(
        name="continue",
        binary="cn",
        refusal="Continue reads base URLs from a configuration with its models alone; set `apiBase` of each model "
        "there, and start it with `cn --config FILE`",
    ),
    Agent(
        name="cline",
        binary="cline",
        refusal="Cline keeps its base URL with its keys; run `elision serve`, then `cline auth -p openai-compatible "
        "-b http://127.0.0.1:8377/v1`",
    ),
    Agent(
        name="droid",
        binary="droid",
        refusal="droid reads base URLs from ~/.factory/settings.json alone; set `customModels[].baseUrl` there to the "
        "address of `elision serve`",
    ),
    Agent(
        name="cursor",
        binary="cursor",
        refusal="Cursor's own servers send its requests, and they cannot reach a gateway on this machine; give a "
        "gateway a public address, and set it as Override OpenAI Base URL",
    ),
)
#: Name -> agent.
AGENTS: Final[Mapping[str, Agent]] = {row.name: row for row in _ROWS}


def make_command_agent(program: str) -> Agent:
    """Return a row for any other program: it gets every variable that the usual clients read."""
    return Agent(
        name=program, binary=program, environment=CLIENT_VARIABLES, apis=("openai", "openai-responses", "anthropic")
    )
