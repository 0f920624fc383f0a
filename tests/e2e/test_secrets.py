"""Secrets in tool output, end to end: kept in the raw store, and in nothing that leaves it or lives on in other words.

One session sees every kind of secret, and everything that the product writes of it is searched for them: summaries,
log lines at DEBUG, exports, faults, exceptions, settings, and what a summarizer is asked. The secrets are made up, and
put together here so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from elision import Advanced
from elision.cli.app import app
from elision.errors import ElisionError, SettingError, StoreError, SummaryError
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.stores.memory import MemoryStore
from elision.stores.store import NewSession
from elision.stores.store_urls import open_existing, open_store
from elision.summarizers.factory import make_summarizer
from elision.telemetry.logs import PassLog
from elision.trajectory.events import Event, PassDecided, SummaryFailed
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.redact import Redaction
from tests.manager.agents import make_history, make_openai_step
from tests.summarizers.scripted_server import reply_chat, reply_error, serve_script

FOLDING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=900, schedule=every-turn)"
URL = "sqlite:///agent.db"


def _drawn(kind: str) -> str:
    """40 letters and digits that look drawn at random, others for each `kind`."""
    letters = "Zq7Wm2Xc9Vb4Nn8Kk1Jj6Hh3Gg5Ff0DdTtYyUuRr"
    shift = sum(map(ord, kind)) % len(letters)
    return letters[shift:] + letters[:shift]


_PEM = "\n".join(f"MIIEv{number}gIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7{_drawn('pem')}" for number in range(4))
#: Kind -> (line of a tool's output, what of it must not get out).
SECRETS: dict[str, tuple[str, str]] = {
    "openai": ("OPENAI_API_KEY=sk-" + f"proj-{_drawn('openai')}", _drawn("openai")),
    "anthropic": ("key: sk-" + f"ant-api03-{_drawn('anthropic')}", _drawn("anthropic")),
    "aws": ("aws_access_key_id = AKIA" + "QZ7XWM2XC9VB4NN8", "QZ7XWM2XC9VB4NN8"),
    "github": ("remote: https://ghp_" + f"{_drawn('github')}@github.com/a/b.git", _drawn("github")),
    "jwt": ("Authorization: Bearer eyJ" + f"hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.{_drawn('jwt')}", _drawn("jwt")),
    "dsn": ("DATABASE_URL=postgresql://app:" + "Tr0ub4dor-hunter@db.internal:5432/app", "Tr0ub4dor-hunter"),
    "password": ("password: " + "'C0rrectHorse9Battery'", "C0rrectHorse9Battery"),
    "private key": (f"-----BEGIN RSA PRIVATE KEY-----\n{_PEM}\n-----END RSA PRIVATE KEY-----", "ASCBKcwggSjAgEAAoIBAQ"),
}
#: A line that holds all of them on a few lines.
ALL = "\n".join(line for line, _ in SECRETS.values())


def leaks(text: str) -> list[str]:
    """Kinds of the secrets that `text` holds, in whole or but for their beginning and end."""
    plain = text.replace("\\n", "\n")
    return [kind for kind, (_, secret) in SECRETS.items() if secret in plain or secret[4:-2] in plain]


def everything(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def messages(steps: int) -> list[dict[str, Any]]:
    """An agent's history: step 2 prints everything, later ones one secret each, and the agent repeats some."""
    lines = [line for line, _ in SECRETS.values()]
    found = make_history("openai", 0, f"Use this database, please: {SECRETS['dsn'][0]}")
    for step in range(1, steps + 1):
        line = ALL if step == 2 else lines[step % len(lines)]
        filler = "\n".join(f"src/module_{step}_{row}.py: ok" for row in range(40))
        said, result = make_openai_step(step, f"{line}\n{filler}")
        said["content"] = f"I found {SECRETS['openai'][0]} and go on with src/module_{step}_1.py."
        found += [said, result]
    return found


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AGENT_CONTEXT_STORE", "ELISION_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Every line that any of our loggers writes, from DEBUG on; none may hold a secret, whatever else a test shows."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "elision")
    caplog.set_level(logging.DEBUG, "elision.context")
    yield caplog
    assert leaks(told(caplog)) == []


def told(caplog: pytest.LogCaptureFixture) -> str:
    """What stands in the log as a handler would write it, with tracebacks and the facts beside each line."""
    form = logging.Formatter("%(name)s %(levelname)s %(message)s")
    return "\n".join(
        f"{form.format(each)} {everything(getattr(each, 'elision', ''))}" for each in caplog.get_records("call")
    )


def walked(steps: int = 14, strategy: str = FOLDING, **options: Any) -> list[ContextView]:
    """A session's views. The store is a file unless told otherwise."""
    given = {"store": URL, "session": "s", "on_event": [PassLog(), PassLog("json")], **options}
    with ContextManager(strategy, **gather_options(given)) as context:
        return [context.prepare(messages(count)) for count in range(steps + 1)]


def summaries(url: str = URL) -> list[str]:
    """The text of every summary in the store, and the block in which it stands."""
    store = open_existing(url)
    found = [each.summary for each in store.events("s") if isinstance(each, PassDecided) and each.summary is not None]
    store.close()
    return [text for each in found for text in (each.text, each.block)]


def printed(*arguments: str, env: dict[str, str] | None = None) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", **(env or {})})
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_the_raw_store_keeps_them() -> None:
    """Originals are durable: recall gives every secret back, from another process's point of view too."""
    walked()
    with ContextManager(FOLDING, store=URL, session="s") as context:
        text = context.session.recall("t2.1")
        assert text.startswith(f"2\n{ALL}\n")
        assert context.session.search("Tr0ub4dor")
    assert sorted(leaks(text)) == sorted(SECRETS)


# -- what lives on in other words -------------------------------------------------------------------------------------


def copies(request: SummaryRequest) -> str:
    """A model that does what it should not: it repeats what it saw, also where nobody told it again."""
    return f"{request.task}\nThe newest file was src/module_{request.turns[-1].index}_1.py: ok\n{ALL}"


def cut(request: SummaryRequest) -> str:
    """One that repeats the middle of a text, where a private key has no beginning that tells what it is."""
    read = ", ".join(f"f{turn.index}.py" for turn in request.turns)
    return f"Read {read}; the newest says ok of src/module_{request.turns[-1].index}_1.py; {middle(request)}"


def middle(request: SummaryRequest) -> str:
    text = max((turn.observations[0].text for turn in request.turns), key=len)
    return text[text.find("BEGIN") + 200 :][:300]


@pytest.mark.parametrize("writer", [None, copies, cut], ids=["digest", "copies", "cuts"])
def test_summaries_hold_none(writer: Any) -> None:
    """Neither the digest nor a model that repeats what it is given writes a secret into a summary or its block."""
    views = walked(summarizer=writer)
    assert views[-1].diagnostics.summaries
    assert len(summaries()) >= 2
    assert leaks(everything(summaries())) == []


def test_the_digest_of_pressure_holds_none() -> None:
    """Over budget with a summarizer that fails, the digest that steps in is as clean."""

    def refuse(request: SummaryRequest) -> str:
        raise SummaryError("no", cause="refusal")

    budget = "budget=budget(tokens=2_600, max_context_pct=1.0, reserved=0)"
    walked(strategy=FOLDING.replace(")", f", {budget})"), summarizer=refuse)
    assert summaries()
    assert leaks(everything(summaries())) == []


def test_a_model_is_not_told() -> None:
    """What goes over the wire to a summarizer has none, by our rules and by those of the user."""
    hidden = Redaction(extra=(("codename", r"module_\d+_39"),))
    answer = reply_chat("Files of src were read, the newest src/module_4_1.py; all ok, go on with src/module_5_1.py.")
    with serve_script(*[answer] * 12) as server:
        writer = make_summarizer("openai:small", base_url=server.url, redaction=hidden)
        walked(summarizer=writer, redaction=hidden)
        sent = everything(server.bodies)
    assert server.requests
    assert "module_3_38" in sent
    assert "module_3_39" not in sent
    assert leaks(sent) == []


def test_placeholders_hold_none() -> None:
    """The gist of what was hidden names no secret: it stays in the view, and in everything that shows it."""
    views = walked(strategy="masking(window=2, schedule=every-turn)")
    placeholders = [hidden.text for view in views for hidden in view.diagnostics.masked]
    assert len(placeholders) == 12
    assert leaks("\n".join(placeholders)) == []


# -- what leaves ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [(), ("--log",)], ids=["run", "log"])
def test_exports_hold_none(form: tuple[str, ...], tmp_path: Path) -> None:
    """By default; with --raw they do, so they were there to be found."""
    walked(summarizer=copies)
    for raw, expected in (((), []), (("--raw",), sorted(SECRETS))):
        out = tmp_path / f"out{len(raw)}.jsonl"
        printed("sessions", "export", "s", "--store", URL, "--out", str(out), *form, *raw)
        assert sorted(leaks(out.read_text())) == expected


@pytest.mark.parametrize(
    "arguments", [("sessions",), ("sessions", "show", "s"), ("sessions", "--sizes"), ("sessions", "check")]
)
def test_lists_hold_none(arguments: tuple[str, ...]) -> None:
    """What tells of sessions without being asked for their text says no secret."""
    walked(summarizer=copies)
    assert leaks(printed(*arguments, "--store", URL)) == []


# -- what fails -------------------------------------------------------------------------------------------------------


def faults(views: list[ContextView]) -> list[str]:
    """What diagnostics say in words."""
    found = [f"{fault.cause} {fault.what}" for view in views for fault in view.diagnostics.faults]
    return [*found, *(view.diagnostics.reason for view in views), *(repr(view) for view in views)]


def test_a_summarizer_that_fails_tells_none() -> None:
    """An error that repeats the request, as many servers' do, is told without what is secret in it."""

    def echo(request: SummaryRequest) -> str:
        raise ValueError(f"400: cannot read {request.turns[1].observations[0].text[:3000]}")

    views = walked(summarizer=echo)
    assert any(view.diagnostics.faults for view in views)
    assert leaks(everything(faults(views))) == []
    store = open_existing(URL)
    attempts = [each for each in store.events("s") if isinstance(each, SummaryFailed)]
    store.close()
    assert attempts
    assert leaks(everything([each.reason for each in attempts])) == []


def test_a_server_that_fails_tells_none() -> None:
    """The same over HTTP."""
    with serve_script(*[reply_error(400, f"invalid key and {ALL}")] * 12) as server:
        views = walked(summarizer=make_summarizer("openai:small", base_url=server.url))
    assert any(view.diagnostics.faults for view in views)
    assert leaks(everything(faults(views))) == []


def test_a_bug_of_ours_tells_none() -> None:
    """What a user's extractor raises is logged and reported, without the text that it was raised about."""

    def broken(action: Any, observation: Any, said: str) -> Any:
        raise KeyError(f"{observation.text}{ALL}")

    views = walked(6, extractors={"bash": broken})
    assert any(fault.kind == "callback" for view in views for fault in view.diagnostics.faults)
    assert leaks(everything(faults(views))) == []


def test_a_listener_s_bug_tells_none() -> None:
    """Nor does what a listener raises."""

    def broken(_: object) -> None:
        raise RuntimeError(f"cannot reach {SECRETS['dsn'][0]}")

    walked(3, on_event=[broken])


class Failing(MemoryStore):
    """A store whose driver says too much."""

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        raise StoreError(f"connection to {SECRETS['dsn'][0]} refused")


def test_a_store_that_fails_tells_none() -> None:
    """The driver's words are told without the password in them."""
    context = ContextManager(FOLDING, store=Failing(), session="s", on_event=PassLog())
    views = [context.prepare(messages(count)) for count in range(4)]
    context.close()
    assert all(fault.kind == "store" for view in views for fault in view.diagnostics.faults)
    assert "refused" in everything(faults(views))
    assert leaks(everything(faults(views))) == []


DSN = SECRETS["dsn"][0].partition("=")[2]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:Tr0ub4dor-hunter@localhost:1/app?connect_timeout=1",
        "postgresql://app:Tr0ub4dor-hunter@localhost:1/app?nonsense=1",
        "mysql://app:Tr0ub4dor-hunter@localhost/app",
        "sqlite://app:Tr0ub4dor-hunter@localhost/app",
        "postgresql:app:Tr0ub4dor-hunter@localhost",
    ],
)
def test_exceptions_tell_none(url: str) -> None:
    """An address that cannot be opened is named without its password, wherever it was given."""
    for opens in (open_store, open_existing, lambda given: ContextManager(store=given)):
        with pytest.raises(ElisionError) as raised:
            opens(url)
        assert leaks(f"{raised.value}{raised.value!r}") == []
        cause: BaseException | None = raised.value
        while cause is not None:
            assert leaks(str(cause)) == []
            cause = cause.__cause__


def test_options_do_not_show_them() -> None:
    """What a debugger, a log line or a traceback with locals prints of a context manager has no password."""
    context = ContextManager(FOLDING, store=MemoryStore(), session="s")
    assert leaks(repr(context._opened.options)) == []
    with pytest.raises(SettingError) as raised:
        ContextManager(store=DSN, advanced=Advanced(thinking="banana"))
    assert leaks(str(raised.value)) == []


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_settings_show_none(form: tuple[str, ...]) -> None:
    """`elision doctor --settings` names the store and the endpoint, without their passwords."""
    env = {
        "AGENT_CONTEXT_STORE": DSN,
        "AGENT_CONTEXT_SUMMARIZER": "openai:small",
        "AGENT_CONTEXT_SUMMARIZER_BASE_URL": "http://app:Tr0ub4dor-hunter@gateway.internal/v1",
        "OPENAI_API_KEY": SECRETS["openai"][0].partition("=")[2],
    }
    text = printed("doctor", "--settings", *form, env=env)
    assert "db.internal" in text
    assert "gateway.internal" in text
    assert leaks(text) == []


def test_wrong_settings_show_none() -> None:
    """A secret that was put where another setting belongs is not repeated in the error."""
    for name in ("AGENT_CONTEXT_TOKEN_BUDGET", "AGENT_CONTEXT_STRATEGY", "AGENT_CONTEXT_MODEL_KEY"):
        result = CliRunner().invoke(app, ["doctor", "--settings"], env={name: SECRETS["openai"][0].partition("=")[2]})
        assert isinstance(result.exception, ElisionError)
        assert leaks(f"{result.output}{result.exception}") == []
