"""Strategies that go by a name of their own: for a kind of agent, or as a publication has them."""

from __future__ import annotations

from typing import Any, Final

from elision.strategies.guards import Guards

#: At every turn, with no gist and no folding: as all publications have it.
_PUBLISHED: Final = "schedule=every-turn, gist=0, fold=false"
#: What SWE-agent's `last_n_observations` writes.
_SWE_AGENT_TEXT: Final = "Old environment output: ({lines} lines omitted)"

#: For a kind of agent. `chat` and `code` are the example configurations "fast chat agent" and "deep code agent" of the
#: specification.
_AGENTS: Final[dict[str, str]] = {
    "chat": "masking(window=6, budget=budget(reserved=1800))",
    "code": "hybrid(window=12, summarize_at=10, tail=5, summarize_tokens=9000)",
    "swe-agent": "hybrid(window=10, summarize_at=43, tail=10)",
    "openhands": "hybrid(window=58, summarize_at=80, tail=58)",
}

#: As their documents describe them. A summary of at most 250 tokens is asked for in "under 200 tokens".
_DOCUMENTS: Final[dict[str, str]] = {
    "paper-masking": f'masking(window=10, {_PUBLISHED}, placeholder="[Observation omitted for brevity]")',
    "paper-summarization": f"summarization(every=21, tail=10, {_PUBLISHED}, summary_max_tokens=250)",
    "paper-hybrid": f'hybrid(window=10, summarize_at=43, tail=10, {_PUBLISHED}, placeholder="[Observation omitted]")',
    "paper-two-tier": f'two-tier(keep_recent=10, {_PUBLISHED}, placeholder="[Masked: {{outcome}}]")',
}

#: As the code that ran the experiments of "The Complexity Trap" has them (arXiv 2508.21433): SWE-agent's history
#: processors `last_n_observations` and `summarize_every_n_turns`, and OpenHands' condensers. The first entry that
#: SWE-agent counts as an observation is the task, which is in the head here. A summary is due at N + M turns, which is
#: `summarize_at=53` for N=43. OpenHands counts events, two a turn: its attention window of 58 is 29 turns.
_EXPERIMENTS: Final[dict[str, str]] = {
    "swe-agent-raw": "raw",
    "swe-agent-masking": f'masking(window=10, {_PUBLISHED}, placeholder="{_SWE_AGENT_TEXT}")',
    "swe-agent-summarization": f"summarization(every=21, tail=10, {_PUBLISHED})",
    "swe-agent-hybrid": (f'hybrid(window=10, summarize_at=53, tail=10, {_PUBLISHED}, placeholder="{_SWE_AGENT_TEXT}")'),
    "openhands-masking": f'masking(window=29, {_PUBLISHED}, placeholder="<MASKED>")',
    "openhands-summarization": f"summarization(every=21, tail=10, {_PUBLISHED})",
}

PRESETS: Final[dict[str, str]] = _AGENTS | _DOCUMENTS | _EXPERIMENTS

#: Guards that belong to a preset.
PRESET_GUARDS: Final[dict[str, Guards]] = {"code": Guards(max_turns=120)}

#: Settings that belong to a preset, beyond what its strategy has a use for.
PRESET_SETTINGS: Final[dict[str, dict[str, Any]]] = {"chat": {"summary_turns": 18}}
