"""`elision run`: a whole agent works on a task in a folder, its context kept small and its session kept."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from elision.agent import AnthropicModel, Model, OpenAIModel, RunReport, RunResult, Shell, run_agent
from elision.agent.prompts import SYSTEM_PROMPT
from elision.agent.resume import load_conversation
from elision.cli.console import open_console
from elision.cli.run_screen import RunScreen
from elision.cli.view_text import escape_controls
from elision.config import TypedOption, load_settings
from elision.config.effective_settings import Settings
from elision.errors import ElisionError, SettingError
from elision.manager import ContextManager
from elision.providers.provider_table import PROVIDERS
from elision.stores.store import Store
from elision.stores.store_urls import open_store

#: Turns of one run where nobody says otherwise.
MAX_TURNS = 250


#: Name of an API -> the model behind it.
_MODELS: Final[Mapping[str, type[OpenAIModel] | type[AnthropicModel]]] = {
    model.shape: model for model in (OpenAIModel, AnthropicModel)
}


def run(
    task: Annotated[
        str, typer.Argument(help="What to do; with --session it may be left out, to go on.", show_default=False)
    ] = "",
    model: Annotated[str | None, typer.Option("--model", help="The model; default: as `elision config` says.")] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="An OpenAI-compatible or Anthropic server.")
    ] = None,
    api: Annotated[
        str, typer.Option("--api", help="openai, anthropic, or auto: anthropic for models called claude….")
    ] = "auto",
    strategy: Annotated[
        str | None, typer.Option("--strategy", "-s", help="What may be hidden; default: as `elision config` says.")
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", help="Where the session is kept; default: as `elision config` says.")
    ] = None,
    session: Annotated[str | None, typer.Option("--session", help="Its name; a stored session is continued.")] = None,
    folder: Annotated[Path, typer.Option("--dir", help="The folder to work in.")] = Path(),
    max_turns: Annotated[int, typer.Option("--max-turns", help="Turns of this run.", min=1)] = MAX_TURNS,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", help="USD of the whole session, summaries included.")
    ] = None,
    seconds: Annotated[float, typer.Option("--command-seconds", help="That one command may take.", min=0.1)] = 120.0,
) -> None:
    """Let an agent work on a task with a shell, in a folder, until it returns a result.

    The key is read from OPENAI_API_KEY or ANTHROPIC_API_KEY alone, and commands never see it. Commands run as you: give
    the agent a folder, a container or a machine that it may change. Ctrl-C stops it; with --session it goes on.
    """
    given = {"strategy": strategy, "store": store, "session": session, "model": model}
    options: dict[str, Any] = {name: TypedOption(f"--{name}", value) for name, value in given.items()}
    found = load_settings(**options, max_cost_usd=TypedOption("--max-cost", max_cost))
    if not found.model:
        raise SettingError("--model: name the model to ask, such as gpt-5 or claude-sonnet-5")
    again = {"model": model, "base-url": base_url, "strategy": strategy, "store": store}
    again |= {"api": "" if api == "auto" else api, "dir": "" if folder == Path() else str(folder)}
    llm = _open_model(found.model, api, base_url)
    environment = Shell(folder, seconds=seconds)
    with closing(open_store(found.store)) as opened:
        ended = _run_task(llm, environment, task, found, opened, max_turns, again)
    if ended is None:
        raise typer.Exit(130)
    if ended.result:
        typer.echo(escape_controls(ended.result.rstrip("\n")))
    if ended.ending == "failed":
        raise ElisionError(escape_controls(ended.why))


def _run_task(
    llm: Model,
    environment: Shell,
    task: str,
    found: Settings,
    store: Store,
    max_turns: int,
    again: Mapping[str, str | None],
) -> RunResult | None:
    """The run, shown as it goes on; None if the user stopped it. again: options that a next run needs as well."""
    session = found.session or f"run-{uuid.uuid4().hex[:8]}"
    before = load_conversation(store, session, llm.shape)
    if before is None and not task:
        raise SettingError(f"no session {escape_controls(session)!r} to go on with; say what is to be done")
    screen = RunScreen(open_console(stderr=True))
    report = RunReport(model=llm.name)
    screen.print_start(llm, environment.folder, session, before is not None)
    with ContextManager.from_settings(found, store=store, session=session) as context:
        try:
            ended = run_agent(
                llm,
                environment,
                task,
                context,
                max_turns,
                system=(before.system if before else "") or SYSTEM_PROMPT,
                history=before.messages if before else (),
                report=report,
                watch=screen.print_turn,
            )
        except KeyboardInterrupt:
            ended = None
    screen.print_end(ended, report, session, again)
    return ended


def _open_model(name: str, api: str, base_url: str | None) -> Model:
    """The model behind its server. Raises SettingError."""
    kind = api
    if api == "auto":
        kind = "anthropic" if name.rsplit("/", 1)[-1].startswith("claude") else "openai"
    if kind not in _MODELS:
        raise SettingError(f"--api {api}: give auto, {' or '.join(_MODELS)}")
    host = PROVIDERS[kind].host
    url = base_url or host.url
    key = os.environ.get(host.key_variable, "")
    # Servers on this machine seldom want a key.
    if not key and urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1"):
        raise SettingError(
            f"{host.key_variable} is not set, and {url} wants a key; no other place is looked at for one"
        )
    return _MODELS[kind](name, key=key, base_url=url)
