"""pi and Codex as programs: configured for a gateway, with a home of their own, and nothing to say to anyone else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.clients.environments import HERE, Outside, plain_environment, run

KEY = "sk-client"


def pi(script: Path, home: Path, work: Path, url: str, api: str, prompt: str, *options: str, **more: Any) -> str:
    """What pi prints for one prompt. api: as pi calls it; more: of the model's entry in its configuration."""
    config = home / "agent"
    config.mkdir(parents=True, exist_ok=True)
    name = more.pop("id")
    entry = {"id": name, "contextWindow": 200_000, "maxTokens": 8_000, **more}
    base = url if api == "anthropic-messages" else f"{url}/v1"
    provider = {"baseUrl": base, "api": api, "apiKey": KEY, "models": [entry]}
    (config / "models.json").write_text(json.dumps({"providers": {"elision": provider}}), encoding="utf-8")
    strayed = home / "strayed.txt"
    environment = plain_environment(
        home,
        PI_CODING_AGENT_DIR=str(config),
        PI_OFFLINE="1",
        PI_TELEMETRY="0",
        PI_SKIP_VERSION_CHECK="1",
        NODE_OPTIONS=f"--require {HERE / 'node' / 'loopback.cjs'}",
        LOOPBACK_STRAYED=str(strayed),
    )
    with Outside() as outside:
        command = ["node", script, "--provider", "elision", "--model", name, "-p", *options, prompt]
        said = run(command, {**environment, **outside.environment()}, work)
    assert not strayed.exists(), strayed.read_text(encoding="utf-8")
    assert outside.asked == [], outside.asked
    return said


_CODEX = """\
model = "{model}"
model_provider = "elision"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

# Its plugins are fetched from elsewhere.
[features]
plugins = false
apps = false

[analytics]
enabled = false

[feedback]
enabled = false

[model_providers.elision]
name = "Elision"
base_url = "{url}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


def codex(script: Path, home: Path, work: Path, url: str, model: str, prompt: str, *options: str) -> str:
    """What `codex exec` prints for one prompt. It has no sandbox here: commands are the test's own, in `work`."""
    config = home / "codex"
    config.mkdir(parents=True, exist_ok=True)
    (config / "config.toml").write_text(_CODEX.format(model=model, url=url), encoding="utf-8")
    environment = plain_environment(home, CODEX_HOME=str(config), GATEWAY_KEY=KEY)
    with Outside() as outside:
        command = ["node", script, "exec", *options, "--skip-git-repo-check", prompt]
        said = run(command, {**environment, **outside.environment()}, work)
    assert outside.asked == [], outside.asked
    return said
