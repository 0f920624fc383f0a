"""Java's own HTTP client, which offers h2c with each new connection's first request, gets its answers."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.clients.environments import PATIENCE, plain_environment
from tests.gateway.loopback_gateway import make_settings, run_gateway
from tests.gateway.scripted_upstream import answer_always, render_response, run_scripted_upstream

BODY = b'{"model": "gpt-4.1", "messages": [{"role": "user", "content": "Hello"}]}'


@pytest.mark.parametrize("framing", ["content-length", "chunked"])
async def test_java_s_client(java: list[str | Path], framing: str, tmp_path: Path) -> None:
    """Each of its requests reaches the provider with its body, and is answered over HTTP/1.1."""
    async with (
        run_scripted_upstream(answer_always(render_response(b"ok"))) as upstream,
        run_gateway(make_settings(upstream.url)) as gateway,
    ):
        command = [*java, f"{gateway.url}/v1/chat/completions", framing]
        done = await asyncio.to_thread(_run, command, tmp_path)
        assert done.returncode == 0, done.stderr[-4_000:]
        assert done.stdout.decode().splitlines() == ["200 HTTP_1_1 ok"] * 3
        assert [asked.body for asked in upstream.requests] == [BODY] * 3


def _run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[bytes]:
    environment = plain_environment(folder)
    return subprocess.run(
        command, env=environment, cwd=folder, input=BODY, capture_output=True, timeout=PATIENCE, check=False
    )
