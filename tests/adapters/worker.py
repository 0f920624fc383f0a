"""Play the scenarios of one framework, in the environment that has it: a line of JSON for each process of a scenario.

    python -m tests.adapters.worker HOST FOLDER [--hook MODULE:NAME] [--only SCENARIO,...] [--damage record|file]

The framework is imported once. Each leg of a scenario is a fork of this process: what one leaves in memory, or hangs
on, is not there for the next, and a leg that continues a history has nothing of it but the framework's own store.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final

from tests.adapters.bound_service import BoundService
from tests.adapters.recording import LegRecord, Recorder
from tests.adapters.scenarios import EAGER_MASKING, SCENARIOS, Scenario
from tests.adapters.stage import AdapterSettings, Stage

#: Seconds that a leg may take.
PATIENCE: Final = 60
#: The call at which an error is planted.
FAULT_AT: Final = 8
#: What keeps the frameworks quiet and on this machine.
ENVIRONMENT: Final = {
    "AGNO_TELEMETRY": "false",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "INSPECT_DISPLAY": "none",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LOG_LEVEL": "ERROR",
    "MSWEA_COST_TRACKING": "ignore_errors",
    "MSWEA_SILENT_STARTUP": "1",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OPENAI_API_KEY": "none",
    "OPENHANDS_SUPPRESS_BANNER": "1",
    "OTEL_SDK_DISABLED": "true",
}


def stay_on_loopback(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse to look up names of other machines and to connect to them: an audit hook."""
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    else:
        return
    name = host.decode() if isinstance(host, bytes) else str(host)
    if name not in ("localhost", "::1", "None") and not name.startswith("127."):
        raise OSError(f"not loopback: {name}")


def plant_fault(kind: str) -> None:
    """Have Elision itself fail at one call: within the engine, or in `prepare` as the adapter calls it."""
    if not kind:
        return
    # Here, as a raw run imports nothing of Elision.
    from elision import ContextManager
    from elision.manager.preparation import CallPreparer

    target: type = CallPreparer if kind == "engine" else ContextManager
    names = ["decide_view"] if kind == "engine" else ["prepare", "prepare_async", "call"]
    calls = 0

    def fail_once(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == FAULT_AT:
                raise RuntimeError("a planted fault")
            return original(*arguments, **named)

        return call

    for name in names:
        setattr(target, name, fail_once(getattr(target, name)))


def damage_store(kind: str, file: Path) -> None:
    """Damage what the leg before stored: every `record`, or the whole `file` but the page that says what it is."""
    if kind == "record":
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE records SET body = substr(body, 1, 9)")
    elif kind == "file":
        whole = file.read_bytes()
        file.write_bytes(whole[:4096] + bytes(len(whole) - 4096))


async def play_leg(host: Any, scenario: Scenario, leg: int, record: LegRecord) -> None:
    """Play one leg and write down how it ended."""
    threads: list[str] = []
    try:
        for act in scenario.legs[leg]:
            threads += [run.thread for run in act]
            texts = await host.run_all(act)
            record.texts.update({run.thread: text for run, text in zip(act, texts, strict=True)})
    except Exception:  # noqa: BLE001 - what a run ends with is what the record says
        record.error = traceback.format_exc(limit=-4)
    for thread in dict.fromkeys(threads):
        try:
            record.stored[thread] = await host.read_history(thread)
        except Exception:  # noqa: BLE001 - a run that failed may have stored nothing
            record.error = record.error or traceback.format_exc(limit=-4)


def run_leg(module: Any, scenario: Scenario, leg: int, folder: Path, hook: Callable[..., Any] | None) -> LegRecord:
    """Play one leg in this process."""
    record = LegRecord(scenario.name, leg)
    if scenario.name in module.Host.MISSING:
        record.missing = module.Host.MISSING[scenario.name]
        return record
    folder.mkdir(parents=True, exist_ok=True)
    recorder = Recorder()
    settings = AdapterSettings(scenario.strategy, scenario.legs[0][0][0].model, f"sqlite:///{folder}/elision.db")
    service = BoundService(recorder, scenario.legs[leg][0][0]) if scenario.service else None
    began = time.perf_counter()
    try:
        if hook is not None:
            plant_fault(scenario.fault)
        stage = Stage(folder, recorder, settings, hook, service.url if service else "")
        asyncio.run(play_leg(module.Host(stage), scenario, leg, record))
        for close in settings.closing:
            close()
    except BaseException:  # noqa: BLE001 - the process must report whatever ended it
        record.error = record.error or traceback.format_exc(limit=-4)
    record.seconds = round(time.perf_counter() - began, 3)
    record.requests = recorder.requests
    return record


def fork_leg(module: Any, scenario: Scenario, leg: int, folder: Path, hook: Callable[..., Any] | None) -> str:
    """Play one leg in a process of its own and return its record, as a line of JSON."""
    report, modules = folder / f"leg_{leg}.json", folder / f"modules_{leg}.json"
    folder.mkdir(parents=True, exist_ok=True)
    known = set(sys.modules)
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        try:
            report.write_text(run_leg(module, scenario, leg, folder, hook).to_json(), encoding="utf-8")
            modules.write_text(json.dumps([name for name in list(sys.modules) if name not in known]), encoding="utf-8")
        except BaseException:  # noqa: BLE001 - nothing of a child may run on in the parent's code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    _, status = os.waitpid(child, 0)
    if modules.exists():
        import_modules(json.loads(modules.read_text(encoding="utf-8")))
    if report.exists():
        return report.read_text(encoding="utf-8")
    return LegRecord(scenario.name, leg, error=f"the process of this leg ended with status {status}").to_json()


def import_modules(names: list[str]) -> None:
    """Import what a leg imported late, so that the next legs need not: some frameworks load much on first use."""
    for name in names:
        with contextlib.suppress(Exception):
            import_module(name)


def load_vocabulary() -> None:
    """Load what tokens are counted with, once for all legs."""
    from elision import ContextManager

    with ContextManager(store="memory:") as context:
        context.prepare([{"role": "user", "content": "A prompt."}])


def load_hook(name: str) -> Callable[..., Any] | None:
    """Return the function that `MODULE:NAME` names; None for ""."""
    if not name:
        return None
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def main() -> None:
    """Play what the arguments name. What frameworks print goes to stderr, so that stdout is records only."""
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hook", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--damage", default="")
    options = parser.parse_args()
    records = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ.update(ENVIRONMENT, HOME=str(options.folder), MSWEA_GLOBAL_CONFIG_DIR=str(options.folder))
    os.environ.update(INSPECT_LOG_DIR=str(options.folder / "inspect"), LLM_USER_PATH=str(options.folder / "llm"))
    sys.addaudithook(stay_on_loopback)
    warnings.simplefilter("ignore")
    warnings.filterwarnings("error", module=r"elision(\..*)?$")
    began = time.perf_counter()
    module = import_module(f"tests.adapters.hosts.{options.host}")
    hook = load_hook(options.hook)
    if hook is not None:
        load_vocabulary()
    seconds = round(time.perf_counter() - began, 2)
    versions = {name: metadata.version(name) for name in module.Host.PACKAGES}
    header = {"versions": versions, "usage": module.Host.USAGE, "import_seconds": seconds}
    print(json.dumps(header), file=records, flush=True)
    names = options.only.split(",") if options.only else [scenario.name for scenario in SCENARIOS]
    for each in SCENARIOS:
        # A session that begins beside damage hides everything at once: a schedule would wait for its next rewrite.
        scenario = replace(each, strategy=EAGER_MASKING) if options.damage else each
        if scenario.name in names:
            for leg in range(len(scenario.legs)):
                if leg:
                    damage_store(options.damage, options.folder / scenario.name / "elision.db")
                line = fork_leg(module, scenario, leg, options.folder / scenario.name, hook)
                print(line, file=records, flush=True)


if __name__ == "__main__":
    main()
