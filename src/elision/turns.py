"""The strategies of the papers as pure functions over a list of turns: no store, no session, no messages.

    from elision.turns import mask

    shown = mask(turns, window=10)      # turns: [(reasoning, action, observation), ...]

A turn is a tuple or list of (reasoning, action, observation), a mapping with those keys, or a
`elision.trajectory.turn.Turn`; each comes back in the shape that it was given in. Nothing is changed in place.

The functions decide what `ContextManager` decides with the schedule `every-turn`: the context of the call that follows
the given turns. A context manager does more: it knows the prompt cache, keeps what is hidden
for recall, and reports what was saved.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from msgspec.structs import replace

from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.errors import SettingError
from elision.manager.manual_turns import make_head, make_turn
from elision.providers.shared.base_renderer import format_text_summary
from elision.strategies.gist import KnownIdentifiers
from elision.strategies.placeholder import PUBLISHED_TEXT, Placeholders
from elision.strategies.schedules import EveryTurnSchedule
from elision.strategies.selectors import RuleTable
from elision.strategies.strategy import Hybrid, Masking, Strategy, Summarization, TwoTier
from elision.summarizers.factory import make_summarizer
from elision.summarizers.summary_checks import SummaryResult
from elision.trajectory.events import PassDecided, RequestSent, SummaryFailed
from elision.trajectory.plan import Summary, SummaryRequest
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.summary_block import format_summary_block
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Turn, make_content

__all__ = ["TurnsSummary", "hybrid", "mask", "summarize", "two_tier"]

#: A turn in any of the shapes that the functions take.
TurnShape = TypeVar("TurnShape")
#: Who writes summaries: `digest`, `KIND:MODEL`, or a function.
SummaryWriter: TypeAlias = str | Callable[[SummaryRequest], "str | SummaryResult"]

#: The placeholder of the published hybrid, which is shorter than that of masking.
HYBRID_TEXT: Final = "[Observation omitted]"
#: The placeholder of the published two tiers: what each result was, in short.
TWO_TIER_TEXT: Final = "[Masked: {outcome}]"
_KEYS: Final = ("reasoning", "action", "observation")
#: Pins and tags of results that are given as a `Turn`.
_TAG_RULES: Final = RuleTable()
#: Without a gist no placeholder depends on what the agent knows.
_NOTHING_KNOWN: Final = KnownIdentifiers()
_SIZER: Final = Sizer(make_counter("o200k"))
_log: Final = logging.getLogger("elision.turns")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnsSummary:
    """A summary in a list of turns, in place of those that it covers.

    content:       what the summarizer wrote.
    covers:        the newest turn that it covers, counted from 1: it is in place of turns 1 to `covers`.
    kept_messages: messages of the user between the covered turns that stay word for word, oldest first. Only turns
                   that were given as `Turn` have such messages.

    `str()` returns it as the text of a context has it: `[Summary through turn 33: ...]`.
    """

    content: str
    covers: int
    kept_messages: tuple[str, ...] = ()
    _summary: Summary | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return format_text_summary(self._as_summary().block, self.covers).strip("\n")

    def _as_summary(self) -> Summary:
        """Return the engine's value; a summary that was stored as text gets its block anew."""
        if self._summary is not None:
            return self._summary
        block = format_summary_block(self.content, self.covers, (), ())
        return Summary(covers=self.covers, text=self.content, block=block)


def mask(turns: Iterable[TurnShape], *, window: int = 10, placeholder: str = PUBLISHED_TEXT) -> list[TurnShape]:
    """Return `turns` with the observations of all but the newest `window` turns replaced by `placeholder`.

    placeholder: as the option of that name of a strategy: a text, or a template such as `[Turn {turn}: {tokens} tokens
                 omitted]`; "" for a description of what happened. An observation that is not longer stays.

    Raises SpecError for options without a meaning, SettingError for what is no turn.
    """
    given: list[Any] = list(turns)
    placeholders = Masking(window=window, placeholder=placeholder, gist=0, handles=False).placeholders
    fixed_text = placeholders.fixed_text
    is_longer = _make_length_test(fixed_text)
    shown: list[Any] = []
    for index, turn in enumerate(given, start=1):
        # Most lists hold texts only, and one placeholder for all: nothing of them has to be read as a Turn.
        if not (fixed_text and _has_texts_only(turn)):
            shown.append(_mask_turn(turn, index, len(given), window, placeholders))
        elif index + window <= len(given) and is_longer(turn[2]):
            shown.append((turn[0], turn[1], fixed_text))
        else:
            shown.append(turn)
    return shown


def summarize(
    turns: Iterable[TurnShape],
    *,
    every: int = 21,
    tail: int = 10,
    summarizer: SummaryWriter = "digest",
    summary_max_tokens: int = 1_000,
    task: str = "",
    previous: TurnsSummary | None = None,
) -> list[TurnsSummary | TurnShape]:
    """Return `turns` with all but the newest ones replaced by a summary, once `every` + `tail` turns follow the last.

    summarizer: `digest` (no model), `KIND:MODEL` as `ContextManager` takes it, or a function of a SummaryRequest that
                returns the text. Each summary is given the one before, or the task, and the covered turns in full.
    summary_max_tokens: what a summary may have. None is asked for where it would not be shorter than what it replaces.
    task:       what the agent works on.
    previous:   the summary of an earlier result for the first of these turns. Without it, a long list is summarized
                from its beginning, with a request for every summary that a run would have made.

    The first element of the result is a TurnsSummary, or there is none: before the first summary is due, and where the
    answer was refused, which is logged; then the turns stay as they are. Raises SpecError for options without a
    meaning, SettingError for what is no turn, and whatever a function raises.
    """
    strategy = Summarization(
        every=every, tail=tail, summary_max_tokens=summary_max_tokens, handles=False, schedule=EveryTurnSchedule()
    )
    return _run_strategy(strategy, list(turns), summarizer, task, previous)


def hybrid(
    turns: Iterable[TurnShape],
    *,
    window: int = 10,
    summarize_at: int = 43,
    tail: int = 10,
    placeholder: str = HYBRID_TEXT,
    summarizer: SummaryWriter = "digest",
    summary_max_tokens: int = 1_000,
    task: str = "",
    previous: TurnsSummary | None = None,
) -> list[TurnsSummary | TurnShape]:
    """Return `turns` masked, and begun by a summary of all but the newest `tail` once `summarize_at` follow the last.

    Arguments and result are those of `mask` and `summarize`. Give the turns unmasked at every call: summaries are
    written from what the observations said.
    """
    strategy = Hybrid(
        window=window,
        summarize_at=summarize_at,
        tail=tail,
        placeholder=placeholder,
        gist=0,
        summary_max_tokens=summary_max_tokens,
        handles=False,
        schedule=EveryTurnSchedule(),
    )
    return _run_strategy(strategy, list(turns), summarizer, task, previous)


def two_tier(
    turns: Iterable[TurnShape],
    *,
    keep_recent: int = 10,
    soft: int = 32_000,
    hard: int = 64_000,
    after_steps: int = 50,
    summarize_min_turns: int = 10,
    placeholder: str = TWO_TIER_TEXT,
    summarizer: SummaryWriter = "digest",
    summary_max_tokens: int = 1_000,
    task: str = "",
    previous: TurnsSummary | None = None,
) -> list[TurnsSummary | TurnShape]:
    """Return `turns` with all but the newest `keep_recent` results masked, and begun by a summary if still too large.

    It is made above `hard` tokens, and above `soft` after more than `after_steps` turns; not again before
    `summarize_min_turns` new turns. Both count `task` and the turns: take off what else your prompt holds. The other
    arguments and the result are those of `mask` and `summarize`. Give the turns unmasked at every call.
    """
    strategy = TwoTier(
        keep_recent=keep_recent,
        soft=soft,
        hard=hard,
        after_steps=after_steps,
        summarize_min_turns=summarize_min_turns,
        placeholder=placeholder,
        gist=0,
        summary_max_tokens=summary_max_tokens,
        handles=False,
        schedule=EveryTurnSchedule(),
    )
    return _run_strategy(strategy, list(turns), summarizer, task, previous)


def _make_length_test(text: str) -> Callable[[str], bool]:
    """Return what says whether an observation has more tokens than `text`."""
    count = make_counter("o200k").count
    limit = count(text)
    # Each word that follows white space has a token of its own, but for slashes, which end the token before them.
    has_enough_words = re.compile(rf"(?:[^\s/]\S*[ \t\r\n]+){{{limit}}}[^\s/]").match
    return lambda observation: has_enough_words(observation) is not None or count(observation) > limit


def _has_texts_only(turn: Any) -> bool:
    """Return whether `turn` is a plain tuple of reasoning, action and observation, each a text."""
    return type(turn) is tuple and len(turn) == len(_KEYS) and type(turn[0]) is type(turn[1]) is type(turn[2]) is str


def _mask_turn(turn: Any, index: int, turns: int, window: int, placeholders: Placeholders) -> Any:
    """Return `turn`, number `index` of `turns`, in its own shape with the placeholders of what is older than `window`.

    Raises SettingError for what is no turn.
    """
    read = _read_turn(turn, index)
    texts = {}
    for position, observation in enumerate(read.observations, start=1):
        outcome = _TAG_RULES.apply_rules(read, observation)
        if outcome.keep or index + (outcome.after or window) > turns:
            continue
        text = placeholders.write_placeholder((index, position), read, observation, _NOTHING_KNOWN)
        if _SIZER.count_observation(observation) > _SIZER.count_text(text):
            texts[position] = text
    return _replace_results(turn, texts) if texts else turn


def _run_strategy(
    strategy: Strategy,
    given: Sequence[TurnShape],
    summarizer: SummaryWriter,
    task: str,
    previous: TurnsSummary | None,
) -> list[TurnsSummary | TurnShape]:
    """Make every call of a run of these turns, and return what the last one shows."""
    writer = summarizer
    if isinstance(writer, str):
        writer = make_summarizer(writer, environment=os.environ)
    session = Log.fold((), LogSetup(strategy, find_price_set("uncached")))
    session.set_head(make_head(task, "", ()))
    read = [_read_turn(turn, index) for index, turn in enumerate(given, start=1)]
    covered = _count_covered(previous, len(read))
    for turn in read:
        session.add_turn(turn)
        if turn.index == covered and previous is not None:
            _adopt_summary(session, previous)
        elif turn.index > covered:
            run_pass(decide(session, make_plain_terms()), writer)
    refused = [event for event in session.events if isinstance(event, SummaryFailed)]
    if refused:
        last = refused[-1]
        _log.warning(
            "%d of the summaries were refused, and the turns stay; the last, of call %d: %s",
            len(refused),
            last.call,
            last.reason,
        )
    kept = _collect_turns(given, session)
    live = session.state.summary
    if live is None:
        return [*kept]
    messages = [message.text for index in live.interjections for message in read[index - 1].interjections]
    made = TurnsSummary(content=live.text, covers=live.covers, kept_messages=tuple(messages), _summary=live)
    return [made, *kept]


def _count_covered(previous: TurnsSummary | None, turns: int) -> int:
    """Return the newest turn that `previous` covers. Raises SettingError where there is no such turn."""
    if previous is None:
        return 0
    if not 1 <= previous.covers <= turns:
        raise SettingError(
            f"previous covers turns 1 to {previous.covers}, and {turns} turns are given: "
            "give all turns from the first on"
        )
    return previous.covers


def _adopt_summary(session: Log, previous: TurnsSummary) -> None:
    """Have the session go on from `previous`, which covers all turns that it has."""
    call = len(session.state.turns) + 1
    summary = previous._as_summary()
    if previous._summary is None:
        # It was stored as text. What the user said between the covered turns stays with it.
        spoken = tuple(turn.index for turn in session.state.turns if turn.interjections)
        summary = replace(summary, interjections=spoken)
    decided = PassDecided(call, "summary due", summary=summary)
    session.extend([decided, RequestSent(call=call, at=None, model="", tokens=0)])


# -- shapes -----------------------------------------------------------------------------------------------------------


def _read_turn(turn: Any, index: int) -> Turn:
    """Return a given turn as a value, with number `index`. Raises SettingError for what is no turn."""
    if isinstance(turn, Turn):
        return replace(turn, index=index)
    reasoning, action, observation = _read_fields(turn, index)
    return make_turn(index, reasoning, action, observation, "")


def _read_fields(turn: Any, index: int) -> tuple[str, Any, Any]:
    if isinstance(turn, Mapping) and any(key in turn for key in _KEYS):
        reasoning, action, observation = (turn.get(key) for key in _KEYS)
    elif isinstance(turn, tuple | list) and len(turn) == len(_KEYS):
        reasoning, action, observation = turn
    elif isinstance(turn, TurnsSummary):
        raise SettingError(f"turns[{index - 1}] is a summary: give all turns as they were, and it as `previous`")
    else:
        raise SettingError(
            f"turns[{index - 1}] is a {type(turn).__name__} and no turn: give (reasoning, action, observation), "
            "a mapping with these keys, or a Turn"
        )
    if not isinstance(reasoning, str | None):
        raise SettingError(f"turns[{index - 1}]: reasoning is a {type(reasoning).__name__}: give a text")
    return reasoning or "", action, observation


def _collect_turns(given: Sequence[TurnShape], session: Log) -> list[TurnShape]:
    """Return the given turns that no summary covers, with the texts that the session shows in place of results."""
    texts: dict[int, dict[int, str]] = {}
    for (turn, position), edit in session.state.edits.items():
        texts.setdefault(turn, {})[position] = edit.text
    covered = session.state.covered_turns
    return [
        _replace_results(turn, texts[index]) if index in texts else turn
        for index, turn in enumerate(given[covered:], start=covered + 1)
    ]


def _replace_results(turn: Any, texts: Mapping[int, str]) -> Any:
    """Return `turn` in its own shape with `texts`, by position from 1, in place of its observations."""
    if isinstance(turn, Turn):
        observations = tuple(
            replace(each, content=make_content(texts[position])) if position in texts else each
            for position, each in enumerate(turn.observations, start=1)
        )
        return replace(turn, observations=observations)
    if isinstance(turn, Mapping):
        return {**turn, "observation": _replace_texts(turn["observation"], texts)}
    *others, observation = turn
    shown = [*others, _replace_texts(observation, texts)]
    if isinstance(turn, list):
        return shown
    # A named tuple is made of its fields; a plain one has no `_make`.
    make = getattr(type(turn), "_make", tuple)
    return make(shown)


def _replace_texts(observation: Any, texts: Mapping[int, str]) -> Any:
    """Return one observation, or a list of several, with `texts` in their places."""
    if isinstance(observation, list):
        return [texts.get(position, each) for position, each in enumerate(observation, start=1)]
    return texts[1]
