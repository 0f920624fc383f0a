"""The gateway's settings: their sources, their table in a file, and what does not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from elision.config.setting_keys import GATEWAY_KEYS
from elision.errors import SettingError
from elision.gateway.settings import GatewaySettings, gateway_settings, is_loopback

TOKEN = "correct-horse-battery"


def of(folder: Path, toml: str = "", file: str = "elision.toml", **environ: str) -> GatewaySettings:
    (folder / file).write_text(toml, encoding="utf-8")
    return gateway_settings({f"AGENT_CONTEXT_{name}": value for name, value in environ.items()}, folder)


def refused(folder: Path, toml: str = "", file: str = "elision.toml", **environ: str) -> str:
    with pytest.raises(SettingError) as caught:
        of(folder, toml, file, **environ)
    return str(caught.value)


def test_defaults(tmp_path: Path) -> None:
    """Loopback, the providers' own addresses, no budget; each value is its key's default."""
    found = of(tmp_path)
    assert found.library.gateway == {name.removeprefix("gateway_"): key.default for name, key in GATEWAY_KEYS.items()}
    assert (found.host, found.port, found.upstreams["openai"]) == ("127.0.0.1", 8377, "https://api.openai.com")


def test_the_sources(tmp_path: Path) -> None:
    """A table of the file, above it the environment, above it arguments; the library's own stand outside the table."""
    toml = 'strategy = "hybrid"\nrecall = "never"\n[gateway]\nport = 1\nworkers = 2\nmemory_bytes = "1GiB"\n'
    (tmp_path / "elision.toml").write_text(toml, encoding="utf-8")
    environ = {"AGENT_CONTEXT_GATEWAY_PORT": "2", "AGENT_CONTEXT_GATEWAY_WORKERS": "3"}
    found = gateway_settings(environ, tmp_path, gateway_port=3)
    assert (found.port, found.workers, found.memory_bytes) == (3, 3, 2**30)
    assert found.library.recall == "never"
    places = {entry.key.name: entry.place for entry in found.library.entries}
    assert places["gateway_port"] == "argument gateway_port"
    assert places["gateway_workers"] == "AGENT_CONTEXT_GATEWAY_WORKERS"
    assert places["gateway_memory_bytes"] == "elision.toml:6"
    assert places["gateway_host"] == "default"


def test_guards_limit_sessions_here_too(tmp_path: Path) -> None:
    """max_cost_usd and max_turns, a preset's too, are the limits of the gateway's sessions, unless those are given."""
    found = of(tmp_path, "max_turns = 40\n", MAX_COST_USD="2.50", GATEWAY_SESSION_MAX_COST_USD="none")
    assert (found.session_max_cost_usd, found.session_max_turns, found.at_limit) == (None, 40, "refuse")
    found = of(tmp_path, "max_turns = 40\n[gateway]\nsession_max_turns = 50\n", MAX_COST_USD="2.50")
    assert (found.session_max_cost_usd, found.session_max_turns) == (2.5, 50)
    places = {entry.key.name: (entry.value, entry.place) for entry in found.library.entries}
    assert places["gateway_session_max_cost_usd"] == ("2.5", "AGENT_CONTEXT_MAX_COST_USD")
    assert places["gateway_session_max_turns"] == ("50", "elision.toml:3")
    (tmp_path / "elision.toml").unlink()
    found = of(tmp_path, STRATEGY="code")
    assert (found.library.guards.max_turns, found.session_max_turns) == (120, 120)
    places = {entry.key.name: (entry.value, entry.place) for entry in found.library.entries}
    assert places["gateway_session_max_turns"] == ("120", "preset code")
    assert of(tmp_path, STRATEGY="code", GATEWAY_SESSION_MAX_TURNS="none").session_max_turns is None
    assert of(tmp_path, STRATEGY="code", MAX_TURNS="none").session_max_turns is None


def test_a_port_is_no_count(tmp_path: Path) -> None:
    """It is shown as it is typed; what is counted is shown in groups of digits."""
    shown = {entry.key.name: entry.value for entry in of(tmp_path, GATEWAY_PORT="18377").library.entries}
    assert (shown["gateway_port"], shown["gateway_max_sessions"]) == ("18377", "1_000")


def test_a_table_of_pyproject(tmp_path: Path) -> None:
    """There the table is [tool.elision.gateway]."""
    found = of(tmp_path, "[project]\nport = 2\n[tool.elision.gateway]\nport = 5\n", "pyproject.toml")
    assert found.port == 5
    place = next(entry.place for entry in found.library.entries if entry.key.name == "gateway_port")
    assert place == "pyproject.toml:4"


def test_names_that_do_not_exist(tmp_path: Path) -> None:
    """A near miss is told as it is written there; so is a name on the wrong side of the table."""
    assert refused(tmp_path, GATEWAY_PROT="1") == (
        "AGENT_CONTEXT_GATEWAY_PROT: no such setting; did you mean AGENT_CONTEXT_GATEWAY_PORT?"
    )
    assert refused(tmp_path, "[gateway]\nprot = 1") == "elision.toml:2: no setting 'prot'; did you mean port?"
    assert "there are: host, port, workers" in refused(tmp_path, "[gateway]\nzzz = 1")
    assert refused(tmp_path, "[gateway]\nstore = 'memory:'") == (
        "elision.toml:2: store is not a setting of the gateway; write it outside [gateway]"
    )
    assert refused(tmp_path, "gateway_port = 1") == (
        "elision.toml:1: gateway_port is written as port in the table [gateway]"
    )
    assert refused(tmp_path, "gateway = 1") == "elision.toml:1: gateway is a table: [gateway]"


@pytest.mark.parametrize(
    ("name", "value", "mend"),
    [
        ("PORT", "70000", "a whole number, 0 to 65535"),
        ("UPSTREAM_OPENAI", "api.openai.com", "begins with http:// or https://, or none"),
        ("UPSTREAM_OPENAI", "https://me:hunter2@host/v1", "without a user"),
        ("MEMORY_BYTES", "10XB", "such as 64MiB"),
        ("AT_LIMIT", "stop", "hint, refuse"),
        ("MAX_READ_BYTES", "1GiB", "lower the first, or raise the second"),
    ],
)
def test_values_that_are_none(tmp_path: Path, name: str, value: str, mend: str) -> None:
    """What a setting cannot be is refused with what it can be, and without a password that stands in it."""
    said = refused(tmp_path, **{f"GATEWAY_{name}": value})
    assert mend in said
    assert "hunter2" not in said


def test_no_provider(tmp_path: Path) -> None:
    """An API that is not served has none."""
    assert list(of(tmp_path, GATEWAY_UPSTREAM_ANTHROPIC="none").upstreams) == ["openai", "gemini"]


def test_beyond_loopback(tmp_path: Path) -> None:
    """A host that others reach is refused, unless there is a token for what only the owner may see."""
    assert "give an admin token" in refused(tmp_path, GATEWAY_HOST="0.0.0.0")
    found = of(tmp_path, GATEWAY_HOST="0.0.0.0", GATEWAY_ADMIN_TOKEN=TOKEN)
    assert found.admin_token == TOKEN


def test_the_token_is_shown_nowhere(tmp_path: Path) -> None:
    """Neither in what is in force nor in an error."""
    found = of(tmp_path, GATEWAY_ADMIN_TOKEN=TOKEN)
    assert TOKEN not in repr(found) + repr(found.library)
    assert {entry.key.name: entry.value for entry in found.library.entries if entry.key.secret} == {
        "gateway_admin_token": "***",
        "gateway_secret": "none",
    }
    said = refused(tmp_path, GATEWAY_ADMIN_TOKEN="hunter2")
    assert "hunter2" not in said
    assert "16 or more" in said


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("a.localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.168.0.1", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
    ],
)
def test_what_is_loopback(host: str, ours: bool) -> None:
    """Addresses of this machine alone, and the names that always mean them."""
    assert is_loopback(host) is ours
