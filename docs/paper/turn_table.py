"""The packaged table of turns, `src/elision/lab/elongation.toml`, from the published runs."""

from __future__ import annotations

from collections.abc import Mapping

from docs.paper.facts import Experiment, PaperFacts
from docs.paper.statistics import list_common, mean_turns

SOURCE = "The Complexity Trap (arXiv:2508.21433), {scaffolds} on SWE-bench Verified, runs per instance; MIT"
#: Prefixes of the experiments of one model each, in the order of the authors' table of differences.
MODELS = ("gemini", "gemini-thinking", "coder", "qwen32", "qwen32-thinking")
STRATEGIES = ("masking-10", "summarization-21")
HYBRIDS = ("hybrid-43", "hybrid-21")
OPENHANDS_ALL = ("masking-10-all", "masking-72-all", "summarization-21-all")


def build_turn_table(facts: PaperFacts) -> str:
    """Return the table as TOML: each model with its strategies, then all strategies on the 50 instances they share.

    SWE-agent first, then OpenHands. Its masking counts events, two a turn, and is entered in turns. Its summaries count
    turns: in the data the first is due at 31, and another about every 21 after it.
    """
    found = facts.experiments
    lines = [
        "# Turns of real agents under a strategy, against raw on the same instances. Written by",
        "# `python docs/update_paper.py` from docs/data/complexity-trap; docs/concepts/paper.md explains it.",
        f'source = "{SOURCE}"',
    ]
    for model in MODELS:
        lines += _list_entries(found[f"{model}-raw"], [found[f"{model}-{name}"] for name in STRATEGIES], shared=False)
    every = [found[f"coder-{name}"] for name in (*STRATEGIES, *HYBRIDS)]
    lines += _list_entries(found["coder-raw"], every, shared=True)
    windows = {dose.experiment: dose.window for dose in facts.doses}
    windows |= {f"{name}-all": window for name, window in windows.items()}
    every = [found[f"openhands-{name}"] for name in OPENHANDS_ALL]
    lines += _list_entries(found["openhands-raw-all"], every, shared=False, windows=windows)
    names = [dose.experiment for dose in facts.doses if dose.window]
    every = [found[name] for name in (*names, "openhands-summarization-21")]
    lines += _list_entries(found["openhands-raw"], every, shared=True, windows=windows)
    return "\n".join(lines) + "\n"


def _list_entries(
    raw: Experiment, strategies: list[Experiment], *, shared: bool, windows: Mapping[str, int] | None = None
) -> list[str]:
    """Return the entries of `strategies`. windows: in turns, by experiment, where M counts events."""
    instances = list_common([raw, *strategies])
    lines = []
    for each in strategies:
        lines += [
            "",
            "[[measurement]]",
            f'scaffold = "{each.scaffold}"',
            f'model = "{each.model}"',
            f'strategy = "{each.strategy}"',
            f"window = {(windows or {}).get(each.key, each.window)}",
            f"every = {each.every}",
            f"instances = {len(instances)}",
            f"turns = {mean_turns(each, instances):.4f}",
            f"raw_turns = {mean_turns(raw, instances):.4f}",
            f"shared = {str(shared).lower()}",
        ]
    return lines
