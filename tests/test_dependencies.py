"""What an install brings along: a package that is new is a decision, made here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("packaging", reason="packaging is not installed: dependencies are not looked at")

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT: dict[str, Any] = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
#: Extra ("" for the base) -> what it may bring beside the base and the extras that it names; direct packages first.
#: A package that a newer release of another brings is added here, or kept out there.
ALLOWED = {
    "": "backports-zstd google-re2 msgspec platformdirs tiktoken"
    " | certifi charset-normalizer idna regex requests urllib3",
    "cli": "click genai-prices rich | annotated-types anyio h11 httpcore2 httpx2 markdown-it-py mdurl pydantic"
    " pydantic-core pygments truststore typing-extensions typing-inspection",
    "report": "numpy resvg-py |",
    "study": "duckdb fsspec pyarrow |",
    "tune": "optuna | alembic colorlog mako markupsafe numpy packaging pyyaml sqlalchemy tqdm typing-extensions",
    "gateway": "aiohttp httptools starlette uvicorn websockets | aiohappyeyeballs aiosignal anyio attrs click"
    " frozenlist h11 multidict propcache typing-extensions yarl",
    "llm": "urllib3 |",
    "prometheus": "prometheus-client |",
    "otel": "opentelemetry-api opentelemetry-sdk | opentelemetry-semantic-conventions typing-extensions",
    "postgres": "psycopg | psycopg-binary psycopg-pool typing-extensions",
    "mcp": "mcp | annotated-types anyio attrs cffi click cryptography h11 httpcore2 httpx2 jsonschema"
    " jsonschema-specifications mcp-types opentelemetry-api pycparser pydantic pydantic-core pyjwt python-multipart"
    " referencing rpds-py sse-starlette starlette truststore typing-extensions typing-inspection uvicorn",
    "fast-tokens": "gigatoken | annotated-doc awkward awkward-cpp annotated-types fsspec importlib-metadata numpy"
    " lazy-importer markdown-it-py mdurl packaging pydantic pydantic-core pygments rich shellingham typer"
    " typing-extensions typing-inspection zipp",
}
#: Extras whose packages are their users' choice, so only the direct ones are named.
CHOSEN = {
    "ray": "ray",
    "litellm": "litellm",
    "langchain": "langchain langgraph",
    "langgraph": "langgraph langgraph-prebuilt",
    "deepagents": "deepagents",
    "llama-index": "llama-index-core",
    "agno": "agno",
    "openai-agents": "openai-agents",
    "llm-plugin": "llm",
    "strands": "strands-agents",
    "crewai": "crewai",
    "openhands": "openhands-sdk",
    "smolagents": "smolagents",
    "mini-swe-agent": "mini-swe-agent",
    "pydantic-ai": "pydantic-ai-slim",
    "google-adk": "google-adk",
    "agent-framework": "agent-framework-core",
    "inspect-ai": "inspect-ai",
}
#: For working on Elision itself, and all extras together.
OTHERS = {"all", "dev"}


def list_own(extra: str) -> list[Requirement]:
    texts = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    return [need for need in map(Requirement, texts) if need.name != "elision"]


def find_names(needs: Iterable[Requirement]) -> set[str]:
    """The packages that these need on this machine, themselves included. Skips where one is not installed."""
    found: set[str] = set()
    waiting, seen = list(needs), set[tuple[str, frozenset[str]]]()
    while waiting:
        need = waiting.pop()
        name = canonicalize_name(need.name)
        if (name, frozenset(need.extras)) in seen:
            continue
        seen.add((name, frozenset(need.extras)))
        found.add(name)
        try:
            inner = map(Requirement, distribution(name).requires or ())
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed: what it brings is not looked at")
        waiting += [
            each
            for each in inner
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *need.extras))
        ]
    return found


def test_every_extra_is_listed() -> None:
    """A new extra is a decision, too."""
    assert {"", *PROJECT["optional-dependencies"]} == {*ALLOWED, *CHOSEN, *OTHERS}


@pytest.mark.parametrize("extra", [*ALLOWED, *CHOSEN])
def test_direct_dependencies_are_those_that_were_decided_on(extra: str) -> None:
    """Each is named first in its row, and no other is."""
    row = ALLOWED.get(extra, "").partition("|")[0] or CHOSEN.get(extra, "")
    assert {canonicalize_name(need.name) for need in list_own(extra)} == set(row.split())


@pytest.mark.parametrize("extra", ALLOWED)
def test_nothing_else_comes_along(extra: str) -> None:
    """What the packages of an extra need in turn, as they are installed here; fewer are welcome."""
    base = set(ALLOWED[""].replace("|", " ").split())
    needs = [need for need in list_own(extra) if need.marker is None or need.marker.evaluate()]
    assert find_names(needs) <= set(ALLOWED[extra].replace("|", " ").split()) | (base if extra else set())


def test_the_environments_of_frameworks_hold_what_the_gateway_needs() -> None:
    """They are installed without what their packages need in turn, so a dependency that is new is locked there, too."""
    for path in (Path(__file__).parent / "adapters").glob("requirements*.txt"):
        locked = {canonicalize_name(line.partition("==")[0]) for line in path.read_text(encoding="utf-8").splitlines()}
        needs = {canonicalize_name(need.name) for need in (*list_own(""), *list_own("gateway"))}
        assert needs <= locked, path.name


def test_uvicorn_is_the_newest_that_is_allowed() -> None:
    """Its protocol is extended in `gateway/http_protocol.py`, so the tests run with the newest below the bound."""
    (need,) = (need for need in list_own("gateway") if need.name == "uvicorn")
    bound = re.search(r"<0\.(\d+)", str(need.specifier))
    assert bound
    assert Version(version("uvicorn")).release[:2] == (0, int(bound[1]) - 1)
