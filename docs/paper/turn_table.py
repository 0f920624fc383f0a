"""The packaged table of turns, `src/elision/lab/elongation.toml`, from the published runs."""

from __future__ import annotations

from docs.paper.facts import Experiment, PaperFacts
from docs.paper.statistics import list_common, mean_turns

SOURCE = "The Complexity Trap (arXiv:2508.21433), SWE-agent on SWE-bench Verified, runs per instance; MIT"
#: Prefixes of the experiments of one model each, in the order of the authors' table of differences.
MODELS = ("gemini", "gemini-thinking", "coder", "qwen32", "qwen32-thinking")
STRATEGIES = ("masking-10", "summarization-21")
HYBRIDS = ("hybrid-43", "hybrid-21")


def build_turn_table(facts: PaperFacts) -> str:
    """Return the table as TOML: each model with its strategies, then all strategies on the 50 instances they share."""
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
    return "\n".join(lines) + "\n"


def _list_entries(raw: Experiment, strategies: list[Experiment], *, shared: bool) -> list[str]:
    instances = list_common([raw, *strategies])
    lines = []
    for each in strategies:
        lines += [
            "",
            "[[measurement]]",
            f'model = "{each.model}"',
            f'strategy = "{each.strategy}"',
            f"window = {each.window}",
            f"every = {each.every}",
            f"instances = {len(instances)}",
            f"turns = {mean_turns(each, instances):.4f}",
            f"raw_turns = {mean_turns(raw, instances):.4f}",
            f"shared = {str(shared).lower()}",
        ]
    return lines
