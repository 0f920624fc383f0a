"""A coding agent with a shell, made of `elision.agent`: its context stays small, and its session is kept.

    python examples/agent.py "Fix the failing test." --model gpt-5 --dir ~/project --session fix

The key is read from OPENAI_API_KEY or ANTHROPIC_API_KEY, and commands never see it. They run as you: give the agent a
folder, a container or a machine that it may change. Ctrl-C stops it; the same --session continues it.
"""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elision import ContextManager, open_store
from elision.agent import AnthropicModel, Model, OpenAIModel, RunReport, Shell, Step, run_agent
from elision.agent.loop import SYSTEM_PROMPT, load_conversation
from elision.config import TypedOption, load_settings
from elision.errors import ElisionError, SettingError
from elision.providers.provider_table import PROVIDERS
from elision.trajectory.foreign_text import escape_controls


def main() -> int:
    """Run the agent; the exit code is 0 unless it failed (1), could not begin (2) or was interrupted (130)."""
    options = parse_options()
    given = {
        name: TypedOption(f"--{name.replace('_', '-')}", getattr(options, name))
        for name in ("model", "strategy", "store", "session", "max_cost_usd")
    }
    try:
        return work(options, given)
    except ElisionError as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("task", nargs="?", default="", help="what to do; may be left out to continue a --session")
    parser.add_argument("--model", help="such as gpt-5 or claude-sonnet-5")
    parser.add_argument("--base-url", help="an OpenAI-compatible or Anthropic server")
    parser.add_argument("--strategy", help="what may be hidden, e.g. 'masking(window=20)'")
    parser.add_argument("--store", help="where the session is kept, e.g. sqlite:///agent.db")
    parser.add_argument("--session", help="its name; a stored session is continued")
    parser.add_argument("--dir", type=Path, default=Path(), help="the folder to work in")
    parser.add_argument("--max-turns", type=int, default=250, help="turns of this run")
    parser.add_argument("--max-cost-usd", type=float, help="USD of the whole session, summaries included")
    return parser.parse_args()


def work(options: argparse.Namespace, given: dict[str, Any]) -> int:
    settings = load_settings(**given)
    model = open_model(settings.model, options.base_url)
    name = settings.session or f"run-{uuid.uuid4().hex[:8]}"
    report = RunReport(model=model.name)
    with closing(open_store(settings.store)) as store:
        before = load_conversation(store, name, model.shape)
        if before is None and not options.task:
            raise SettingError(f"no session {name!r} to continue; say what is to be done")
        print(f"{model.name} in {options.dir.resolve()}, session {escape_controls(name)}", file=sys.stderr)
        with ContextManager.from_env(**{**given, "store": store, "session": name}) as context:
            try:
                ended = run_agent(
                    model,
                    Shell(options.dir),
                    options.task,
                    context,
                    options.max_turns,
                    system=(before.system if before else "") or SYSTEM_PROMPT,
                    history=before.messages if before else (),
                    report=report,
                    watch=print_turn,
                )
            except KeyboardInterrupt:
                print(f"stopped; `elision sessions show {escape_controls(name)}` shows what it did", file=sys.stderr)
                return 130
    figures = ", ".join(f"{key} {value}" for key, value in asdict(report).items() if isinstance(value, int | float))
    print(f"{ended.ending}: {escape_controls(ended.why)}; {figures}", file=sys.stderr)
    if ended.result:
        print(escape_controls(ended.result.rstrip("\n")))
    return 1 if ended.ending == "failed" else 0


def print_turn(step: Step) -> None:
    """Print one turn: the tokens that were sent, the bill so far, and the command or the answer."""
    seen = step.diagnostics
    said = escape_controls(step.calls[0] if step.calls else " ".join(step.text.split())).replace("\n", " ")
    print(f"{seen.turns + 1:4} {seen.after:>8,} tokens ${seen.costs.ours:<8.3f} {said[:100]}", file=sys.stderr)


def open_model(name: str | None, base_url: str | None) -> Model:
    """Return the model behind its server: Anthropic's for names like claude-…, else OpenAI's. Raises SettingError."""
    if not name:
        raise SettingError("--model: name the model to ask, such as gpt-5 or claude-sonnet-5")
    kind = "anthropic" if name.rsplit("/", 1)[-1].startswith("claude") else "openai"
    host = PROVIDERS[kind].host
    key = os.environ.get(host.key_variable, "")
    # Servers on this machine seldom want a key.
    if not key and base_url is None:
        raise SettingError(f"{host.key_variable} is not set, and {host.url} wants a key")
    return (AnthropicModel if kind == "anthropic" else OpenAIModel)(name, key=key, base_url=base_url or host.url)


if __name__ == "__main__":
    sys.exit(main())
