"""Metrics and log of served requests: every fact in its place, every label of few values, no secret and no content."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from dataclasses import replace
from typing import Any, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from elision.gateway import request_metrics
from elision.gateway.request_metrics import MAX_TENANTS, MetricsPage
from elision.gateway.request_record import (
    LOGGER_NAME,
    Disposition,
    RequestLog,
    RequestRecord,
    choose_form,
    collect_facts,
    log_to_stderr,
)
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.metric_table import MAX_MODELS
from elision.telemetry.metric_table import METRICS as LIBRARY
from elision.trajectory.usage import Usage
from tests.gateway.gateway_trial import open_trial
from tests.gateway.scripted_upstream import answer_always, render_response

KEY = "sk-ant-api03-" + "aB3" * 20
TOLD = Diagnostics(session="s", branch="s-2", call=7, turns=9, before=900, after=400, raw=1_000, reason="masking")
FULL = RequestRecord(
    api="anthropic",
    path="/v1/messages",
    how="view",
    session="s-2",
    status=200,
    bytes_in=5_000,
    bytes_up=2_000,
    bytes_out=300,
    added_seconds=0.004,
    waited_seconds=0.001,
    first_byte_seconds=0.5,
    total_seconds=1.5,
    is_stream=True,
    model="claude-sonnet-4-5",
    is_complete=True,
    recalls=2,
    rounds=3,
    cache_miss="messages_changed",
    cleared_tokens=70,
    thinking_dropped=1,
    usage=Usage(input=50, cache_read=350, output=20),
    step_diagnostics=[TOLD],
)


def read(page: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every value of a page by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def value(page: bytes, name: str, **labels: str) -> float:
    return read(page)[f"agent_context_{name}", tuple(sorted(labels.items()))]


def test_every_fact_is_counted() -> None:
    """A request adds to each metric that it says something of, under its API."""
    scrape = MetricsPage()
    scrape.add_request(FULL)
    scrape.add_request(RequestRecord(api="anthropic", status=502, how="passed", cause="dns"))
    scrape.set_gauges(in_flight=3, waiting=2, held_bytes=500, sessions=9)
    page, api = scrape.render(), {"api": "anthropic"}
    assert value(page, "gateway_requests_total", **api, how="view", status="2xx") == 1
    assert value(page, "gateway_errors_total", **api, cause="dns") == 1
    assert value(page, "gateway_bytes_up_total", **api) == 2_000
    assert value(page, "gateway_added_seconds_sum", **api) == 0.004
    assert value(page, "gateway_added_seconds_count", **api) == 1
    assert value(page, "gateway_waited_seconds_sum", **api) == 0.001
    assert value(page, "gateway_first_byte_seconds_sum", **api) == 0.5
    assert value(page, "gateway_answer_seconds_sum", **api) == 1.5
    assert value(page, "gateway_recalls_total", **api) == 2
    assert value(page, "gateway_rounds_total", **api) == 3
    assert value(page, "gateway_cache_misses_total", reason="messages_changed") == 1
    assert value(page, "gateway_cleared_tokens_total") == 70
    assert value(page, "gateway_thinking_dropped_total") == 1
    assert value(page, "gateway_in_flight") == 3
    assert value(page, "gateway_held_bytes") == 500
    assert value(page, "passes_total", acted="no", reason="other") == 1


def test_roles_are_counted() -> None:
    """Answered requests and their billed tokens, by what asked; what passed unread has no role."""
    scrape = MetricsPage()
    for role in ("main", "sub-agent", "sub-agent", ""):
        scrape.add_request(replace(FULL, role=role))
    scrape.add_request(replace(FULL, role="side", status=529))
    page = scrape.render()
    assert value(page, "gateway_role_requests_total", role="main") == 1
    assert value(page, "gateway_role_requests_total", role="sub-agent") == 2
    assert value(page, "gateway_role_tokens_total", role="sub-agent", part="cache_read") == 700
    assert not any(("role", "side") in labels for _, labels in read(page))
    assert collect_facts(replace(FULL, role="sub-agent"))["role"] == "sub-agent"


def asked(model: str, status: int) -> RequestRecord:
    """One request of a session of its own."""
    return replace(
        FULL, status=status, model=model, step_diagnostics=[replace(TOLD, session=model, branch=model, model=model)]
    )


def models(page: bytes) -> set[str]:
    return {found for _, labels in read(page) for name, found in labels if name == "model"}


def test_names_that_no_provider_has() -> None:
    """A model is told apart once a provider answered for it, or where its price is known: names that anybody may ask
    for with no valid key leave the places to those."""
    scrape = MetricsPage()
    for number in range(2 * MAX_MODELS):
        scrape.add_request(asked(f"made-up-{number}", 401))
        # Other spellings of a price that is known.
        scrape.add_request(asked(f"{'/' * number}gpt-5.2", 404))
    found = models(scrape.render())
    assert {"gpt-5.2", "other"} <= found
    assert not any(each.startswith("made-up") for each in found)
    assert len(found) <= MAX_MODELS // 2 + 1
    scrape.add_request(asked("our-own", 200))
    scrape.add_request(asked("our-own", 500))
    assert value(scrape.render(), "tokens_in", model="our-own") == 1_000
    assert value(scrape.render(), "raw_tokens_total", model="our-own") == 2_000


def test_a_long_name_of_a_model(caplog: pytest.LogCaptureFixture) -> None:
    """However long it is, and whether it is answered or not, the page and the log line stay short."""
    caplog.set_level(logging.INFO, LOGGER_NAME)
    scrape, log = MetricsPage(), RequestLog("json")
    for status in (200, 401):
        for number in range(3):
            served = asked(f"{number} x\ny" + "z" * 100_000, status)
            scrape.add_request(served)
            log.log_request(served)
    assert max(len(found) for found in models(scrape.render())) <= 128
    assert len(models(scrape.render())) == 3
    assert max(len(each.getMessage()) for each in caplog.records) < 2_000


def test_tenants_are_few() -> None:
    """The first hundred keys that were answered have a label of their own; whoever is refused has none."""
    page = MetricsPage()
    for number in range(MAX_TENANTS + 20):
        status = 401 if number == 3 else 200
        page.add_request(RequestRecord(api="openai", namespace=f"k{number:08x}{0:024x}", status=status))
    text = page.render().decode()
    labels = re.findall(r'tenant_requests_total\{tenant="([^"]*)"\} (\d+)\.0', text)
    assert len(labels) == MAX_TENANTS + 1
    assert ("other", "19") in labels


def test_names_and_labels() -> None:
    """Names are each once, also beside the library's; labels take listed values, few of them."""
    ours = [*request_metrics.METRICS, *request_metrics.GAUGES]
    names = [each.name for each in (*ours, *LIBRARY)]
    assert len(set(names)) == len(names)
    assert all(each.name.endswith("_total") == (each.kind == "counter") for each in ours)
    assert all(label in request_metrics.LABELS for each in ours for label in each.labels)
    assert set(request_metrics.LABELS["how"]) == set(get_args(Disposition))
    for each in ours:
        series = 1
        for label in each.labels:
            series *= len(request_metrics.LABELS[label]) + 1
        assert series < 300, each.name


@pytest.mark.parametrize(
    ("word", "label"),
    [
        ("dns", "dns"),
        ("upstream-429", "upstream-429"),
        ("upstream-404", "upstream-4xx"),
        ("upstream-503", "upstream-5xx"),
        ("upstream-<b>", "other"),
        ("anything else", "other"),
    ],
)
def test_causes(word: str, label: str) -> None:
    """Whatever a cause is, its label is one of the list."""
    assert request_metrics.label_cause(word) == label


def test_a_line_says_what_became_of_a_request() -> None:
    """Tokens before and after, bytes, milliseconds; what is nothing is left out, and a path of ours is no news."""
    assert collect_facts(FULL) == {
        "event": "request",
        "api": "anthropic",
        "status": 200,
        "how": "view",
        "session": "s-2",
        "call": 7,
        "model": "claude-sonnet-4-5",
        "tokens_in": 1_000,
        "tokens_out": 400,
        "billed_tokens": 400,
        "cached_tokens": 350,
        "answer_tokens": 20,
        "stream": True,
        "complete": True,
        "rounds": 3,
        "recalls": 2,
        "cache_miss": "messages_changed",
        "bytes_in": 5_000,
        "bytes_up": 2_000,
        "bytes_out": 300,
        "added_ms": 4.0,
        "waited_ms": 1.0,
        "first_ms": 500.0,
        "ms": 1500.0,
    }
    assert collect_facts(RequestRecord(path="/v1/files", rounds=1)) == {
        "event": "request",
        "api": "none",
        "path": "/v1/files",
        "status": 0,
        "how": "passed",
        "added_ms": 0.0,
        "ms": 0.0,
    }


@pytest.mark.parametrize("form", ["json", "text"])
def test_lines(form: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One line of ASCII each, secrets taken out of what others chose; loud where something went wrong."""
    caplog.set_level(logging.INFO, LOGGER_NAME)
    log = RequestLog(form)
    log.log_request(RequestRecord(api="openai", status=200, model=f"a\nb {KEY}"))
    log.log_request(RequestRecord(api="openai", status=502, cause="dns", why=f"key {KEY}"))
    first, second = caplog.records
    assert [each.levelname for each in caplog.records] == ["INFO", "WARNING"]
    for record in (first, second):
        said = record.getMessage()
        assert said.isascii()
        assert "\n" not in said
        assert KEY not in said
    if form == "json":
        assert json.loads(second.getMessage())["cause"] == "dns"


async def test_neither_key_nor_words_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Of a request neither credential nor query nor content stands in log or metrics, even where it fails."""
    caplog.set_level(logging.DEBUG)
    body = json.dumps({"model": "gpt-5", "messages": [{"role": "user", "content": "the-secret-plan"}]}).encode()

    told = ""
    for url in ({"gateway_upstream_openai": "http://127.0.0.1:1"}, {}):
        answer = answer_always(render_response(b"{}"))
        async with open_trial(answer, gateway_log="json", strategy="masking", **url) as (*_, client):
            for path in ("/v1/chat/completions", "/v1/messages", "/v1/files"):
                await client.request(
                    "POST", f"{path}?q=the-query", body, f"authorization: Bearer {KEY}", f"x-api-key: {KEY}"
                )
            told += (await client.request("GET", "/metrics")).body.decode()
    told += "".join(f"{each.getMessage()} {each.exc_text}" for each in caplog.records)
    assert "refused" in told
    for secret in (KEY, "the-secret-plan", "the-query"):
        assert secret not in told


async def test_a_log_that_fails_fails_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever counting or logging meets, the client has its answer."""

    def broken(self: object, served: RequestRecord) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(MetricsPage, "add_request", broken)

    async with open_trial(answer_always(render_response(b"ok")), gateway_off=True) as (*_, client):
        for _ in range(2):
            assert (await client.request("POST", "/v1/chat/completions", b"{}")).body == b"ok"


@pytest.mark.parametrize(("terminal", "expected"), [(True, "message=up"), (False, '"message": "up"')])
def test_lines_are_text_in_a_terminal_and_json_elsewhere(
    terminal: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default, `auto`: people read the one, programs the other."""

    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    logger = logging.getLogger("elision")
    before = (logger.handlers, logger.propagate, logger.level)
    try:
        log_to_stderr(choose_form("auto"))
        logger.info("up")
    finally:
        logger.handlers, logger.propagate = before[0], before[1]
        logger.setLevel(before[2])
    assert expected in stream.getvalue()
