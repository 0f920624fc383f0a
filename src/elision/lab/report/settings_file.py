"""The recommended point as an `elision.toml`, ready to use."""

from __future__ import annotations

import json
from dataclasses import replace

from elision.lab.report import tuning_wording
from elision.lab.report.figures import neutralize_text
from elision.lab.report.report import Provenance
from elision.lab.tuning.search_space import FAMILIES
from elision.lab.tuning.tuning_result import Tuning
from elision.strategies.spec import describe_strategy, parse_strategy


def write_settings(tuning: Tuning, made_by: Provenance) -> str:
    """Return the file's text: what was found on which runs as comments, and the strategy in full."""
    comments = [
        f"Found by Elision {made_by.version}: {made_by.command}",
        tuning_wording.describe_scope(tuning),
        tuning_wording.write_headline(tuning),
        tuning_wording.write_verdict(tuning),
        tuning_wording.describe_excess(tuning),
    ]
    lines = [f"# {neutralize_text(comment)}" for comment in comments if comment]
    return "\n".join([*lines, f"strategy = {quote_toml(describe_fully(tuning.recommended))}"]) + "\n"


def describe_fully(text: str) -> str:
    """Return `text` with every option that a tuning chooses, so that it means the same if a default changes."""
    strategy = parse_strategy(text)
    names = [name for name in FAMILIES.get(strategy.name, ()) if name != "rules"]
    if not names:
        return text
    plain = type(strategy)()
    rest = describe_strategy(replace(strategy, **{name: getattr(plain, name) for name in names}))
    others = rest.partition("(")[2].removesuffix(")")
    stated = [f"{name}={getattr(strategy, name)}" for name in names]
    return f"{strategy.name}({', '.join([*stated, *filter(None, [others])])})"


def quote_toml(text: str) -> str:
    """Return `text` as a string of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
