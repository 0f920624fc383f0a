"""What 30 tool calls cost with each agent framework: as it is, with its own compaction, and with our adapter.

The real frameworks play the script of tests/adapters with a scripted model, each in its own environment. Those that are
not installed are named. Tokens count a quarter of their characters. A prompt's beginning that the prompt before it had
costs 0.1, what is new 1.25, as with a cache that is written for five minutes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.adapters import checks
from tests.adapters.environments import ENVIRONMENTS, ROOT, explain_missing, run_host
from tests.adapters.recording import LegRecord
from tests.adapters.scenarios import TURNS, list_part

#: Each framework's own means, and the hook that puts it in our adapter's place.
PEERS = {
    "langchain": {
        "`ContextEditingMiddleware(keep=5)`": "langchain_edit",
        "`SummarizationMiddleware(keep=20)`": "langchain_summary",
    },
    "openai_agents": {"`ToolOutputTrimmer(recent_turns=2)`": "openai_agents_trimmer"},
    "strands": {
        "default window of 40": "strands_default",
        "window of 12, `per_turn=True`": "strands_window",
        "`stale_tool_cleanup`": "strands_cleanup",
    },
    "google_adk": {"`ContextFilterPlugin`": "google_adk_filter"},
    "agent_framework": {
        "`ToolResultCompactionStrategy(5)`": "agent_framework_results",
        "`SlidingWindowStrategy(10)`": "agent_framework_window",
    },
    "inspect_ai": {"`CompactionEdit(keep_tool_uses=5)`": "inspect_ai_edit"},
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A run. cost: in tokens of plain input. stored: how many of the results the framework has in full afterwards."""

    framework: str
    means: str
    cost: float
    rewrites: int
    stored: str
    recalled: bool

    def format_line(self, raw: float) -> str:
        """Return it as a line of a Markdown table. raw: cost of the same framework with nothing hidden."""
        cells = (
            self.framework,
            self.means,
            f"{self.cost / raw:.2f}",
            str(self.rewrites),
            self.stored,
            "yes" if self.recalled else "–",
        )
        return f"| {' | '.join(cells)} |"


def describe_stored(record: LegRecord) -> str:
    """Return how many of the results that the model saw the framework has stored whole, such as `30 of 30`."""
    stored = [message.text for message in record.stored.get("thread-1", [])]
    sent = [message.text for request in record.requests for message in request.messages]
    seen = [part for part in range(1, TURNS + 1) if _has_part(sent, part)]
    return f"{sum(_has_part(stored, part) for part in seen)} of {len(seen)}"


def _has_part(texts: Sequence[str], part: int) -> bool:
    """Return whether a text has the result of a part, from its first line to its last; it may be JSON."""
    first, *_, last = list_part(part).splitlines()[1:]
    return any(first in text and last in text for text in texts)


def has_recalled(record: LegRecord) -> bool:
    """Return whether the model read a hidden result again."""
    try:
        checks.check_recall(record)
    except AssertionError:
        return False
    return True


def play_framework(host: str, means: str, hook: str) -> Row | str:
    """Play the script. Returns why there is no row where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        recordings = run_host(host, Path(folder), hook, ["plain"])
        (record,) = recordings.legs["plain"]
    if record.error or not record.requests:
        return f"{host}, {means}: {record.error.strip().splitlines()[-1] if record.error else record.missing}"
    requests = [request for request in record.requests if not request.refused]
    version = next(iter(recordings.versions.values()))
    return Row(
        framework=f"{host} {version}",
        means=means,
        cost=checks.count_cost(requests),
        rewrites=checks.count_rewrites(requests),
        stored=describe_stored(record),
        recalled=has_recalled(record),
    )


def list_rows(host: str) -> Iterator[Row | str]:
    """Yield the rows of a framework: with nothing hidden, with its own means, with our adapter."""
    yield play_framework(host, "nothing hidden", "")
    for means, name in PEERS.get(host, {}).items():
        yield play_framework(host, means, f"benchmarks.framework_peers:{name}")
    if (ROOT / "tests" / "adapters" / "hooks" / f"{host}.py").exists():
        yield play_framework(host, "**Elision** `masking(window=5)`", f"tests.adapters.hooks.{host}:attach")


def main(hosts: Sequence[str] = ()) -> None:
    """Print the table. hosts: names of frameworks as in tests/adapters/hosts; all if empty."""
    print("| framework | context | cost ÷ raw | rewrites | stored whole | recall |")
    print("|---|---|---|---|---|---|")
    missing = []
    for host in hosts or ENVIRONMENTS:
        if reason := explain_missing(host):
            missing.append(reason)
            continue
        raw = 0.0
        for row in list_rows(host):
            if isinstance(row, str):
                missing.append(row)
                continue
            raw = raw or row.cost
            print(row.format_line(raw), flush=True)
    for reason in missing:
        print(f"NOT PLAYED: {reason}", file=sys.stderr)
