"""The invariants of design 2 as assertions about a run; generated and recorded runs are held against the same ones."""

from __future__ import annotations

from itertools import pairwise

from elision.trajectory.events import PassDecided, RequestSent
from elision.trajectory.foreign_text import make_encodable
from elision.trajectory.plan import Edit, Key, make_handle
from elision.trajectory.state import State
from elision.trajectory.summary_block import FRAME_TOKENS, quote_older_words
from elision.trajectory.turn import Observation, Text, Turn
from elision.trajectory.view import Segment
from tests.properties.cases import SIZER, PlayedRun, SentView, find_rewrites, get_content, list_contents
from tests.properties.followed_references import check_references
from tests.strategies.unfolding import unfold_text

#: What may stand where an observation stood.
_FORMS = dict.fromkeys(("observation", "folded", "placeholder", "clipped"), "observation")


def is_protected(run: PlayedRun, turn: Turn, observation: Observation) -> bool:
    """Pinned, tagged so, or of a tool that a rule keeps."""
    kept = any(rule.keep and rule.matches(turn, observation) for rule in run.strategy.rules)
    return turn.pinned or observation.pinned or "keep_output" in observation.tags or kept


def check_coverage_and_pairs(run: PlayedRun) -> None:
    """I2, I5: each view is head, summary, kept interjections, then every uncovered turn whole and in order."""
    for seen in run.views:
        assert [_locate_segment(segment) for segment in seen.segments] == _list_expected(run, seen)
        for segment in seen.segments:
            if segment.kind == "observation":
                assert segment.source == run.trajectory.turns[segment.turn - 1].observations[segment.index - 1]
            elif segment.kind == "assistant":
                assert segment.source == run.trajectory.turns[segment.turn - 1]


def check_folds_are_lossless(run: PlayedRun) -> None:
    """I2: each folded run stands verbatim in an earlier result that the same view shows; with it the whole is there."""
    folds: dict[Key, Edit] = {}
    for seen in run.views:
        folds |= {fold.key: fold for fold in seen.decided.folds}
        shown = {
            (segment.turn, segment.index): segment
            for segment in seen.segments
            if isinstance(segment.source, Observation)
        }
        for key, segment in shown.items():
            if segment.kind != "folded":
                continue
            fold = folds[key]
            assert isinstance(segment.source, Observation)
            assert segment.text == fold.text
            sources = {}
            for folded in fold.runs:
                assert folded.source < key
                source = shown[folded.source]
                assert isinstance(source.source, Observation)
                assert source.kind in ("observation", "folded")
                if source.kind == "folded":
                    lines = set(range(folded.source_start, folded.source_start + folded.lines))
                    for other in folds[folded.source].runs:
                        assert lines.isdisjoint(range(other.start, other.start + other.lines))
                sources[folded.source] = source.source.text
            own = segment.source.text
            assert unfold_text(fold, sources) == own
            check_references(fold, own, {make_handle(each): _find_shown_text(place) for each, place in shown.items()})
            assert segment.tokens < SIZER.count_text(own)


def _find_shown_text(segment: Segment) -> str:
    assert isinstance(segment.source, Observation)
    return segment.source.text if segment.kind == "observation" else segment.text


def check_protected_is_whole(run: PlayedRun) -> None:
    """I6: nothing is folded that is protected, what a rule keeps verbatim, or what is not text alone."""
    for seen in run.views:
        for edit in seen.decided.folds:
            turn = run.trajectory.turns[edit.key[0] - 1]
            observation = turn.observations[edit.key[1] - 1]
            assert not is_protected(run, turn, observation)
            assert not any(rule.verbatim and rule.matches(turn, observation) for rule in run.strategy.rules)
            assert all(isinstance(part, Text) for part in observation.content)


def check_newest_is_verbatim(run: PlayedRun) -> None:
    """I2: the newest turn is sent as it is; without a budget nothing is ever clipped."""
    for seen in run.views:
        kinds = {segment.kind for segment in seen.segments if segment.turn == seen.call - 1}
        assert "placeholder" not in kinds
        assert "clipped" not in {segment.kind for segment in seen.segments} or run.session.strategy.budget is not None


def _locate_segment(segment: Segment) -> tuple[str, int, int]:
    return _FORMS.get(segment.kind, segment.kind), segment.turn, segment.index


def _list_expected(run: PlayedRun, seen: SentView) -> list[tuple[str, int, int]]:
    head = run.trajectory.head
    places: list[tuple[str, int, int]] = []
    places += [("hidden", 0, 0)] if head.hidden_tokens else []
    places += [("tools", 0, 0)] if head.tools else []
    places += [("head", 0, number) for number in range(1, len(head.messages) + 1)]
    covered = run.turns_before(seen.call)[: seen.covered]
    if covered:
        places.append(("summary", 0, 0))
        places += [place for turn in covered if turn in _list_kept(run, covered) for place in _list_interjections(turn)]
    for turn in run.turns_before(seen.call)[seen.covered :]:
        places.append(("assistant", turn.index, 0))
        places += [("observation", turn.index, number) for number in range(1, len(turn.observations) + 1)]
        places += _list_interjections(turn)
    return places


def _list_interjections(turn: Turn) -> list[tuple[str, int, int]]:
    return [("interjection", turn.index, number) for number in range(1, len(turn.interjections) + 1)]


def _list_kept(run: PlayedRun, covered: tuple[Turn, ...]) -> list[Turn]:
    """Covered turns whose interjections stay: pinned ones all, and the newest others within `keep_user_tokens`."""
    left, full, kept = run.strategy.keep_user_tokens, False, []
    for turn in reversed(covered):
        size = sum(SIZER.count_message(message) for message in turn.interjections)
        pinned = any(message.pinned for message in turn.interjections)
        full = full or (size > left and not pinned)
        if turn.interjections and (pinned or not full):
            left -= size
            kept.append(turn)
    return kept


def check_events_give_the_views(run: PlayedRun) -> None:
    """I3: a fresh fold of the events alone gives every view again, byte for byte, and the same epochs."""
    state = State(SIZER)
    views = iter(run.views)
    for event in run.session.events:
        state.fold_event(event)
        if isinstance(event, RequestSent):
            seen = next(views)
            assert list_contents(tuple(state.track.segments)) == list_contents(seen.segments)
            assert state.track.tokens == seen.tokens == sum(segment.tokens for segment in seen.segments)
            assert state.epoch == seen.epoch
    assert next(views, None) is None


def check_masked_stays_masked(run: PlayedRun) -> None:
    """I3: a placeholder keeps its text until a summary covers its turn."""
    texts: dict[Key, str] = {}
    for seen in run.views:
        now = {
            (segment.turn, segment.index): segment.text for segment in seen.segments if segment.kind == "placeholder"
        }
        for key, text in texts.items():
            assert now.get(key) == text or key[0] <= seen.covered
        texts |= now


def check_covered_stays_covered(run: PlayedRun) -> None:
    """I3: a summary covers ever more, and one summary stands at a time."""
    for before, after in pairwise(run.views):
        assert before.covered <= after.covered
        assert sum(segment.kind == "summary" for segment in after.segments) == bool(after.covered)


def check_epochs_are_rewrites(run: PlayedRun) -> None:
    """I4: within an epoch each view begins with the one before; epochs = 1 + rewrites; at most one a pass."""
    lost = find_rewrites(run.views)
    for before, after in pairwise(run.views):
        assert after.epoch - before.epoch == (after.call in lost)
    assert run.views[-1].epoch == 1 + len(lost)


def check_one_decision_a_call(run: PlayedRun) -> None:
    """I4: a call has one decision, which says why, and one that hides nothing leaves the view as it was."""
    decisions = [event for event in run.session.events if isinstance(event, PassDecided)]
    assert [decision.call for decision in decisions] == [seen.call for seen in run.views]
    for seen in run.views:
        assert seen.decided.reason
        keys = [mask.key for mask in seen.decided.masks]
        assert keys == sorted(set(keys))


def check_protected_stays(run: PlayedRun) -> None:
    """I6: head, pins and protected results are never masked, and stand word for word in the block once covered."""
    head = run.trajectory.head.messages
    for seen in run.views:
        assert [segment.source for segment in seen.segments if segment.kind == "head"] == list(head)
        masked = {(segment.turn, segment.index) for segment in seen.segments if segment.kind == "placeholder"}
        block = next((segment.text for segment in seen.segments if segment.kind == "summary"), "")
        for turn in run.turns_before(seen.call):
            for number, observation in enumerate(turn.observations, start=1):
                if is_protected(run, turn, observation):
                    assert (turn.index, number) not in masked
                    if turn.index <= seen.covered:
                        quote = f"{make_handle((turn.index, number))} {observation.tool}]\n{observation.text}"
                        assert make_encodable(quote) in block


def check_users_words_stay(run: PlayedRun) -> None:
    """I6: interjections of covered turns stand word for word; past the limit the newest of them inside the block, in
    the tokens that restated constraints leave. A budget may shorten the block."""
    limit = run.session.strategy.summary_max_tokens
    for seen in run.views:
        said = [segment.source for segment in seen.segments if segment.kind == "interjection"]
        block = next((segment.text for segment in seen.segments if segment.kind == "summary"), "")
        beyond = []
        for turn in run.turns_before(seen.call):
            for message in turn.interjections:
                if not any(message is other for other in said):
                    assert turn.index <= seen.covered
                    assert not message.pinned
                    beyond.append(message)
        left = limit - count_constraint_tokens(block)
        wanted = [f"[User message of that time] {words}" for words in quote_older_words(beyond, left, SIZER)]
        quoted = [words for words in wanted if make_encodable(words) in block]
        assert quoted == wanted[len(wanted) - len(quoted) :]
        assert quoted == wanted or run.session.view_limit is not None


def count_constraint_tokens(block: str) -> int:
    """Return the tokens of the constraints that a summary block restates, with those of their label."""
    _, label, rest = block.partition("\n\n[Constraints that the user stated after these turns, word for word]\n")
    lines = rest.partition("\n\n")[0].split("\n")
    return FRAME_TOKENS + sum(SIZER.count(line) + 1 for line in lines) if label else 0


def check_raw_is_untouched(run: PlayedRun, before: str) -> None:
    """I1: turns are in the log before they are hidden, the very ones that came, unchanged to the last part."""
    assert repr(run.trajectory) == before
    for ours, given in zip(run.session.state.turns, run.trajectory.turns, strict=True):
        assert ours is given


def check_placeholders_are_short(run: PlayedRun) -> None:
    """A placeholder is shorter than what it replaces, in tokens as sent."""
    for seen in run.views:
        for mask in seen.decided.masks:
            observation = run.trajectory.turns[mask.key[0] - 1].observations[mask.key[1] - 1]
            assert SIZER.count_text(mask.text) < SIZER.count_observation(observation)


def has_same_bytes(ours: Segment, theirs: Segment) -> bool:
    return get_content(ours) == get_content(theirs)
