"""What is found about agents and gateways on a machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from elision.config import Settings, load_settings
from elision.errors import ElisionError
from elision.gateway.server import GatewayThread
from elision.gateway.settings import gateway_settings
from elision.manager import ContextManager
from elision.wrap.findings import (
    SetupFinding,
    collect_findings,
    find_gateway_in_use,
    is_address,
    is_gateway,
    read_upstreams,
    strip_path,
)

NOWHERE = Path("/nowhere")
SECRET = "sk-very-secret"


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayThread]:
    options: dict[str, Any] = {"gateway_port": 0, "gateway_log": "none", "store": "memory:"}
    with GatewayThread(gateway_settings({}, NOWHERE, **options)) as running:
        yield running


def make_settings(folder: Path, **more: object) -> Settings:
    """Settings whose gateway does not answer."""
    return load_settings({}, NOWHERE, store=f"sqlite:///{folder / 'agent.db'}", gateway_port=9, **more)


def make_environ(folder: Path, *programs: str, **more: str) -> dict[str, str]:
    """An environment with these programs on the PATH."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name in programs:
        (bin_folder / name).touch(0o755)
    return {"PATH": str(bin_folder), **more}


def find(findings: list[SetupFinding], subject: str) -> SetupFinding:
    return next(each for each in findings if each.subject == subject)


def test_a_bare_machine(tmp_path: Path) -> None:
    """Nothing is wrong where nothing is set; the way on is named, and no file is made."""
    findings = collect_findings(make_settings(tmp_path), make_environ(tmp_path))
    assert {each.status for each in findings} == {"ok", "note"}
    assert find(findings, "gateway").fix == "elision serve; elision wrap AGENT needs none"
    assert find(findings, "agents").fix == "elision wrap -- COMMAND"
    assert find(findings, "sessions").message.endswith("agent.db: not there; the first request makes it")
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_an_agent_that_reaches_the_gateway(gateway: GatewayThread, tmp_path: Path) -> None:
    """With the variables of its row it does; without them the mend is the word in front."""
    settings = make_settings(tmp_path)
    led = {"ANTHROPIC_BASE_URL": gateway.url, "ENABLE_TOOL_SEARCH": "true"}
    findings = collect_findings(settings, make_environ(tmp_path, "claude", **led))
    assert find(findings, "gateway").message == f"answers at {gateway.url}, and is ready"
    assert find(findings, "ANTHROPIC_BASE_URL").status == "ok"
    assert find(findings, "claude").message == "found; its requests go to the gateway"
    bare = find(collect_findings(settings, make_environ(tmp_path, "claude")), "claude")
    assert (bare.status, bare.fix) == ("note", "elision wrap claude")


def test_what_cannot_work(tmp_path: Path) -> None:
    """A base URL at which nothing answers, and a variable by which an agent bypasses any base URL."""
    environ = make_environ(tmp_path, "claude", OPENAI_BASE_URL="http://127.0.0.1:9/v1", CLAUDE_CODE_USE_BEDROCK="1")
    findings = collect_findings(make_settings(tmp_path), environ)
    assert {each.subject for each in findings if each.status == "failed"} == {"OPENAI_BASE_URL", "claude"}
    assert find(findings, "OPENAI_BASE_URL").fix == "elision serve at that port, or unset OPENAI_BASE_URL"
    assert find(findings, "claude").fix == "unset CLAUDE_CODE_USE_BEDROCK"


@pytest.mark.parametrize(
    ("text", "status"),
    [('{"env": {"ANTHROPIC_BASE_URL": "https://user:sk-very-secret@a"}}', "failed"), ("{", "note"), ("[]", "note")],
)
def test_a_settings_file_that_wins(text: str, status: str, tmp_path: Path) -> None:
    """Claude Code prefers the variables in its settings to those of its environment."""
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(text, encoding="utf-8")
    findings = collect_findings(make_settings(tmp_path), make_environ(tmp_path, "claude", HOME=str(tmp_path)))
    found = find(findings, "claude")
    assert found.status == status
    assert ("~/.claude/settings.json sets ANTHROPIC_BASE_URL" in found.message) == (status == "failed")
    assert SECRET not in repr(findings)


def test_agents_that_need_something(tmp_path: Path) -> None:
    """What is missing is named, and so is why an agent cannot be wrapped."""
    findings = collect_findings(make_settings(tmp_path), make_environ(tmp_path, "codex", "cursor", "qwen"))
    assert find(findings, "codex").message == "found; to be wrapped it needs OPENAI_API_KEY"
    assert find(findings, "qwen").message == "found; to be wrapped it needs OPENAI_API_KEY and OPENAI_MODEL"
    assert "cannot reach a gateway" in find(findings, "cursor").fix


def test_no_value_is_shown(tmp_path: Path) -> None:
    """Neither keys nor base URLs, which may hold passwords."""
    environ = make_environ(
        tmp_path,
        "codex",
        OPENAI_API_KEY=SECRET,
        ANTHROPIC_API_KEY=SECRET,
        OPENAI_BASE_URL=f"https://user:{SECRET}@proxy.example/v1",
        OPENCODE_CONFIG_CONTENT=f'{{"key": "{SECRET}"',
    )
    findings = collect_findings(make_settings(tmp_path), environ)
    assert find(findings, "API keys").message == "set: OPENAI_API_KEY, ANTHROPIC_API_KEY"
    assert find(findings, "OPENAI_BASE_URL").message == "set; leads past the gateway"
    assert SECRET not in repr(findings)
    assert "proxy.example" not in repr(findings)


def test_sessions_are_the_sign_of_traffic(tmp_path: Path) -> None:
    """How many there are, and when the newest changed; a store that cannot be read is a failure."""
    settings = make_settings(tmp_path)
    with closing(ContextManager("raw", store=settings.store)) as context:
        context.turns.begin("Count.")
        context.turns.view()
    findings = collect_findings(settings, make_environ(tmp_path))
    assert find(findings, "sessions").message.endswith("agent.db: 1, the newest of 0 min ago")
    (tmp_path / "agent.db").write_bytes(b"no database" * 100)
    for leftover in tmp_path.glob("agent.db-*"):
        leftover.unlink()
    assert find(collect_findings(settings, make_environ(tmp_path)), "sessions").status == "failed"


BROKEN = ["http://127.0.0.1:notaport/v1", "http://127.0.0.1:99999", "http://[::1", "no url", "file:///etc/passwd", "/"]


@pytest.mark.parametrize("url", BROKEN)
def test_what_is_no_address(url: str) -> None:
    """It is no gateway's and no upstream's; the error names the variable, and not its value."""
    assert not is_address(url)
    assert not is_gateway(url)
    assert find_gateway_in_use({"OPENAI_BASE_URL": url}) is None
    with pytest.raises(ElisionError, match=r"^OPENAI_BASE_URL is not an http or https address; fix or unset it$"):
        read_upstreams(load_settings({}), {"OPENAI_BASE_URL": url})


def test_upstreams() -> None:
    """Where clients sent their requests before."""
    environ = {"OPENAI_API_BASE": "https://proxy.example/v1", "ANTHROPIC_BASE_URL": ""}
    assert read_upstreams(load_settings({}), environ) == {"gateway_upstream_openai": "https://proxy.example/v1"}


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/anthropic", "/anthropic/v1", "/openai/"])
def test_a_gateways_own_address(path: str) -> None:
    """Below a provider's name and a version it is the same gateway."""
    assert strip_path(f"http://127.0.0.1:8377{path}") == "http://127.0.0.1:8377"
