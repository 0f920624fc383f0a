"""The columns of a study's tables: what a run becomes, and what a row of the lab is made from again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import pyarrow as pa

from elision.lab.evidence import EvidenceTally
from elision.lab.report.figures import is_hindsight, is_raw, is_sent
from elision.lab.results import GROWTH_TURNS, RECORDED, Row, SentSummary, Series, is_on_top
from elision.lab.run_loading import StudySettings, find_day
from elision.lab.study import RunOutcome
from elision.study.manifest import RunFacts, clean_text, pick_fields
from elision.study.run_sample import hash_item
from elision.trajectory.prices import Bill
from elision.trajectory.trajectory import Trajectory

_WORD: Final = pa.dictionary(pa.int32(), pa.string())
_TYPES: Final = {
    "hash": pa.uint64(),
    "text": pa.string(),
    "word": _WORD,
    "count": pa.int64(),
    "usd": pa.float64(),
    "share": pa.float64(),
}

#: Name, kind and meaning of each column of `rows`; the page on studies lists them.
COLUMNS: Final[tuple[tuple[str, str, str], ...]] = (
    ("run", "hash", "hash of file and trajectory, to group by"),
    ("file", "text", "where the run was read from"),
    ("trajectory", "text", "its name in that file"),
    ("reader", "word", "format of the recording"),
    ("strategy", "word", "label of the strategy, or the row as billed or as recorded"),
    ("model", "word", "model that was recorded"),
    ("priced_as", "word", "price list at which the run is billed"),
    ("day", "word", "UTC date of the first turn; else the `day=` of its path, or the column of its data set"),
    ("tag", "word", "the `tag=` of its path, or the column of its data set"),
    ("turns", "count", "turns of the run"),
    ("tool_turns", "count", "turns with an answered call"),
    ("calls", "count", "calls of the replay"),
    ("input", "count", "tokens billed at the input rate"),
    ("cache_write", "count", "tokens written to the cache"),
    ("cache_write_1h", "count", "of these, for an hour"),
    ("cache_read", "count", "tokens read from the cache"),
    ("output", "count", "tokens of answers"),
    ("prompt_usd", "usd", "all of these"),
    ("summary_input", "count", "tokens that the summarizer read"),
    ("summary_cache_write", "count", "of its prompts, written to the cache"),
    ("summary_cache_write_1h", "count", "of these, for an hour"),
    ("summary_cache_read", "count", "of its prompts, read from the cache"),
    ("summary_output", "count", "tokens that it wrote"),
    ("summary_usd", "usd", "all of these"),
    ("usd", "usd", "the run under the strategy: `prompt_usd` and `summary_usd`"),
    ("raw_usd", "usd", "sending everything"),
    ("recorded_usd", "usd", "the run as it was sent; null if unknown"),
    ("hindsight_usd", "usd", "the strategy's cheapest schedule; null if not computed"),
    ("late_usd", "usd", "one more turn, by the run's last ten"),
    ("least_turns_usd", "usd", "with the fewest assumed turns; null if none"),
    ("most_turns_usd", "usd", "with the most turns that are assumed"),
    ("is_cheapest", "count", "1 if this row is the cheapest for the run, among what was sent and usable strategies"),
    ("peak", "count", "tokens of the largest view"),
    ("worst_ratio", "share", "highest bill so far against sending everything, at any call"),
    ("epochs", "count", "1, and one for each rewrite of the cache"),
    ("summaries", "count", "summaries made"),
    ("masked", "count", "results masked"),
    ("folded", "count", "results folded"),
    ("folded_tokens", "count", "what folding left out"),
    ("evidence_items", "count", "facts used that only tool results contain"),
    ("evidence_found", "count", "of these, still visible"),
    ("evidence_found_plain", "count", "of these, without the text of summaries"),
    ("evidence_items_filtered", "count", "facts used, without those common to the format"),
    ("evidence_found_filtered", "count", "of these, still visible"),
    ("regret_turns", "count", "turns that missed a fact"),
    ("regret_turns_filtered", "count", "the same, without facts common to the format"),
    ("own_items", "count", "the agent's own earlier words that it used again"),
    ("own_found", "count", "of these, still visible"),
    ("own_missing_turns", "count", "turns missing one of them and no fact"),
    ("repeats", "count", "calls made before with the same arguments"),
    ("repeats_hidden", "count", "of these, with the earlier result hidden"),
    *(
        (f"context_{turn}", "count", f"tokens of the context at turn {turn}; null in a shorter run")
        for turn in GROWTH_TURNS
    ),
    ("condensed_runs", "count", "1 if the agent condensed its own history"),
    ("cuts", "count", "how often it did"),
    ("inferred_cuts", "count", "of these, seen only in the bill"),
    ("unnamed_cuts", "count", "of these, those whose recording does not show what stayed"),
    ("windowed_runs", "count", "1 if the agent saw only its newest results"),
    ("unclear", "count", "how often the recording does not show what stayed"),
    ("billed_runs", "count", "1 if the recording states a bill"),
    ("silent_runs", "count", "1 if it has no usage"),
    ("partial_runs", "count", "1 if it has the usage of only some calls"),
    ("unpriced_runs", "count", "1 if its model has no known price"),
    ("own_prices", "count", "1 if it is priced as the model that was billed"),
    ("mixed_runs", "count", "1 if other models made calls"),
    ("other_calls", "count", "of these calls, those in every row as they were billed"),
    ("blended_calls", "count", "of these calls, those priced as the run's model"),
    ("tokens_observations", "count", "tokens of tool results, each message counted once"),
    ("tokens_reasoning", "count", "of reasoning and text"),
    ("tokens_actions", "count", "of tool calls"),
    ("tokens_user", "count", "of user messages between turns"),
    ("tokens_head", "count", "of system prompt, tools and task"),
    ("noise", "share", "share of the used facts that a sampled run contains as well"),
    ("noise_filtered", "share", "the same, without facts common to the format"),
    ("floor_window", "count", "window under which the run was recorded; null without one"),
    ("floor_items", "count", "facts used, under plain masking at that window"),
    ("floor_found", "count", "of these, still visible"),
)
ROWS: Final = pa.schema([(name, _TYPES[kind]) for name, kind, _ in COLUMNS])
_SERIES: Final = ("tokens", "rewrites", "summaries")
#: Call by call, with `--calls`: one row per run and strategy.
CALLS: Final = pa.schema(
    [
        ("run", pa.uint64()),
        ("strategy", _WORD),
        *((name, pa.list_(pa.int32())) for name in _SERIES),
    ]
)
PROBLEMS: Final = pa.schema(
    [("shard", pa.int32()), ("file", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("kind", pa.string())]
)

_CAUSE: Final = [("cause", pa.string()), ("tokens", pa.int64()), ("usd", pa.float64()), ("avoidable_usd", pa.float64())]
_HABIT: Final = [("habit", pa.string()), *_CAUSE[1:]]
_FINDING: Final = [
    *((name, pa.int64()) for name in ("call", "tokens", "first_token")),
    *((name, pa.string()) for name in ("cause", "place")),
    *((name, pa.float64()) for name in ("usd", "seconds")),
    ("is_inferred", pa.bool_()),
]
_TOOL: Final = [("name", pa.string()), *((name, pa.int64()) for name in ("tokens", "calls", "idle_runs"))]
#: Of an audit: a row for each call that a log records; one with call 0 for a log without usage. place: the run's, in
#: the order of reading. signature: equal for a call and its copy in another log. tools: that the run declares, in the
#: row of its first call alone. tools_usd: what their definitions cost at the call.
AUDIT_ROWS: Final = pa.schema(
    [
        *(("place", pa.int64()), ("call", pa.int32()), ("signature", pa.uint64())),
        *(("file", pa.string()), ("trajectory", pa.string())),
        *((name, _WORD) for name in ("reader", "run_model", "model", "day", "tag", "role")),
        *(("is_priced", pa.bool_()), ("tokens", pa.int64())),
        *((name, pa.float64()) for name in ("usd", "stated_usd", "avoidable_usd", "tools_usd")),
        *(("causes", pa.list_(pa.struct(_CAUSE))), ("habits", pa.list_(pa.struct(_HABIT)))),
        *(("findings", pa.list_(pa.struct(_FINDING))), ("tools", pa.list_(pa.struct(_TOOL)))),
    ]
)

#: Fields of a lab's row that are columns under their own names.
SAME: Final = tuple(
    each.name
    for each in fields(Row)
    if each.name in {name for name, kind, _ in COLUMNS if kind not in ("text", "word")}
)
#: Of how the run was sent: fields of the lab's summary, for one run.
SENT: Final = tuple(each.name for each in fields(SentSummary) if each.name != "runs")
#: What a run's tokens are.
COMPOSITION: Final = ("observations", "reasoning", "actions", "user", "head")
BILL: Final = ("input", "cache_write", "cache_write_1h", "cache_read", "output")


@dataclass(frozen=True, slots=True)
class RunMeasures:
    """What a run's rows share beside its outcome.

    noise: as it is, and without common property. floor: plain masking at the window of the recording, if it has one.
    """

    facts: RunFacts
    noise: float | None
    noise_filtered: float | None
    floor: EvidenceTally | None


def build_run_rows(
    run: Trajectory, outcome: RunOutcome, measures: RunMeasures, settings: StudySettings
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of one run, and its calls.

    What a strategy does on top of the agent's own condensing is left out where the agent condensed nothing: there it is
    the row of the strategy itself, which a report adds if any other run was condensed.
    """
    identity = hash_item(f"{run.file}\0{run.id}")
    sent = outcome.sent
    shared = {"run": identity, **_encode_run(run, outcome, measures, settings)}
    kept = [(row, series) for row, series in outcome.rows if sent.cuts or not is_on_top(row.strategy)]
    rows = [shared | {"is_cheapest": 0} | _encode_row(row, series) for row, series in kept]
    if choices := [row for row in rows if is_choice(row["strategy"])]:
        min(choices, key=lambda row: row["usd"])["is_cheapest"] = 1
    calls = [{"run": identity, "strategy": row.strategy} | pick_fields(series, _SERIES) for row, series in kept]
    return rows, calls


def _encode_run(run: Trajectory, outcome: RunOutcome, measures: RunMeasures, settings: StudySettings) -> dict[str, Any]:
    shared: dict[str, Any] = {
        "model": clean_text(run.model),
        "priced_as": settings.find_prices(run).name,
        "day": str(find_day(run) or measures.facts.day),
        "tag": clean_text(measures.facts.tag),
        "noise": measures.noise,
        "noise_filtered": measures.noise_filtered,
    }
    if measures.floor is not None:
        shared |= {
            "floor_window": run.recorded_window,
            "floor_items": measures.floor.items,
            "floor_found": measures.floor.found,
        }
    shared |= {name: int(getattr(outcome.sent, name)) for name in SENT}
    if (whole := outcome.composition) is not None:
        shared |= {f"tokens_{name}": getattr(whole, name) for name in COMPOSITION}
    return shared


def is_choice(label: str) -> bool:
    """Return whether a row is of what was sent, or of a strategy that can be run."""
    return label == RECORDED or not (is_raw(label) or is_sent(label) or is_hindsight(label))


def _encode_row(row: Row, series: Series) -> dict[str, Any]:
    low, high = row.extended_usd or (None, None)
    length = len(series.tokens)
    return {
        **{name: clean_text(getattr(row, name)) for name in ("file", "trajectory", "reader", "strategy")},
        **pick_fields(row, (*SAME, "usd")),
        **pick_fields(row.bill, BILL),
        **{f"summary_{name}": getattr(row.summarizer, name) for name in (*BILL, "usd")},
        "prompt_usd": row.bill.usd,
        "least_turns_usd": low,
        "most_turns_usd": high,
        **{f"context_{turn}": series.tokens[turn - 1] for turn in GROWTH_TURNS if turn <= length},
    }


def decode_row(values: Mapping[str, Any]) -> Row:
    """Return a row of the lab. values: columns of `rows`, or sums of them with the number of `runs`."""
    texts = {name: values[name] for name in ("file", "trajectory", "reader") if name in values}
    low, high = values["least_turns_usd"], values["most_turns_usd"]
    return Row(
        **texts,
        **{name: values[name] for name in SAME},
        strategy=values["strategy"],
        runs=values.get("runs", 1),
        bill=Bill(**{name: values[name] for name in BILL}, usd=values["prompt_usd"]),
        summarizer=Bill(**{name: values[f"summary_{name}"] for name in (*BILL, "usd")}),
        extended_usd=None if low is None or high is None else (low, high),
    )
