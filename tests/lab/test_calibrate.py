"""Calibration: hand-built bills with exact arithmetic, one for each cause; then the corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise

import msgspec
import pytest

from elision.formats.registry import read_runs
from elision.lab.calibrate import CAUSES, Calibration, CalibrationStudy, calibrate_run, open_billing, read_share
from elision.lab.recorded_requests import list_requests
from elision.trajectory.tokens import Sizer, Tokenizer, make_counter
from elision.trajectory.trajectory import Compaction, Problem, Trajectory
from elision.trajectory.turn import Content, Head, Message, Turn, make_content
from elision.trajectory.usage import Usage
from tests.corpus import CORPUS, reproduces

CLAUDE = "claude-fable-5"  # 10 / 50, writes 12.5, reads 1; breakpoints, 5 minutes, from 512 tokens
DEEPSEEK = "deepseek-chat"  # 0.28 / 0.42, reads 0.028; prefix, an hour, steps of 64
START = 1_760_000_000.0


@dataclass(frozen=True)
class Letters:
    """A token is a letter, so that sizes can be set to the token."""

    name: str = "letters"
    exact: bool = True

    def count(self, text: str) -> int:
        return len(text)


class Unscaled(Sizer):
    """Counts alike at every model, so that sizes hold whatever scale the table gives the model."""

    def count_as(self, tokenizer: Tokenizer) -> Sizer:
        return self


SIZER = Unscaled(Letters())


def said(tokens: int) -> Content:
    """Content of a message of so many tokens, frame (4) included."""
    return make_content("x" * (tokens - 4))


def call(prompt: int, read: int, *, at: float = 0, model: str = "", output: int = 10) -> tuple[Usage, float, str]:
    """A Claude bill: all that is not read is written."""
    return Usage(cache_read=read, cache_write=prompt - read, output=output), START + at, model


def run(
    *calls: tuple[Usage, float, str], model: str = CLAUDE, grow: Sequence[int] = (), head: int = 1500, **more: object
) -> Trajectory:
    """A run whose turns grow the prompt by exactly what was billed, or by `grow`; a head of `head` tokens is sent."""
    prompts = [usage.prompt for usage, _, _ in calls]
    sizes = list(grow) or [max(10, after - before) for before, after in pairwise(prompts)]
    turns = tuple(
        Turn(index=index, content=said(size), usage=usage, at=at, model=name or model)
        for index, ((usage, at, name), size) in enumerate(zip(calls, [*sizes, 10], strict=True), start=1)
    )
    messages = (Message(role="user", content=said(head)),)
    return Trajectory(id="main", file="a.json", model=model, head=Head(messages=messages), turns=turns, **more)


def checked(trajectory: Trajectory, sizer: Sizer = SIZER) -> Calibration:
    found = calibrate_run(trajectory, sizer)
    assert found is not None
    return found


def causes(found: Calibration) -> list[str | None]:
    return [each.cause for each in found.calls]


def same_bills(first: Usage, *others: Usage) -> bool:
    """Whether all have the same tokens, and the same USD but for the order of additions."""
    tokens = {msgspec.structs.replace(each, usd=None) for each in (first, *others)}
    return len(tokens) == 1 and all(each.usd == pytest.approx(first.usd) for each in others)


# -- what is sent and billed ------------------------------------------------------------------------------------------


def test_run_that_agrees() -> None:
    """Where every call reads what the one before left, both simulations give the bill to the token and the cent."""
    found = checked(run(call(2000, 0), call(3000, 2000, at=10), call(4000, 3000, at=20)))
    assert causes(found) == [None, None, None]
    assert same_bills(found.billed, found.counted, found.lengths)
    assert found.billed.cache_read == 5000
    assert found.billed.usd == pytest.approx((4000 * 12.5 + 5000 * 1 + 30 * 50) / 1e6)
    assert (found.difference, found.elsewhere, found.length_difference) == (0, 0, 0)
    assert found.usd_difference == pytest.approx(0, abs=1e-12)
    assert found.priced_as == "claude-fable-5"


def test_stated_cost() -> None:
    """A cost that the recording states is taken as it stands."""
    usage = Usage(cache_write=2000, output=10, usd=0.5)
    found = checked(run((usage, START, "")))
    assert found.billed.usd == 0.5
    assert found.stated


def test_other_tokenizer() -> None:
    """A provider that counts more than the table has makes our prompts too short, and hardly moves the share."""
    calls = [call(2000, 0), call(3250, 2000, at=10), call(4500, 3250, at=20)]
    found = checked(run(*calls, grow=[1000, 1000]))
    assert found.counted.prompt == 2000 + 3000 + 4000
    assert found.length_difference == pytest.approx(9000 / 9750 - 1)
    assert found.lengths == found.billed


def test_the_scale_of_the_model() -> None:
    """What a model reads is counted on its scale, what it wrote is as long as reported: 1.25 and 1 at Claude 4.5."""
    model = "claude-opus-4-5"
    turns = tuple(
        Turn(
            index=index,
            content=said(400),
            interjections=(Message(role="user", content=said(4 + 800)),),
            usage=Usage(cache_read=prompt - 1504, cache_write=1504, output=500),
            model=model,
        )
        for index, prompt in enumerate((9000, 9000 + 1504, 9000 + 2 * 1504), start=1)
    )
    found = checked(replace(run(call(2000, 0), model=model), turns=turns), Sizer(Letters()))
    assert [each.counted.prompt for each in found.calls] == [each.billed.prompt for each in found.calls]


def test_output_of_a_first_fragment_has_our_count() -> None:
    """Where only a response's first fragment was counted, the message is as long as we count it."""
    calls = [call(2000, 0, output=1, model=CLAUDE), call(3000, 2000, output=1)]
    assert [each.counted.prompt for each in checked(run(*calls)).calls] == [2000, 3000]


def test_fit_of_a_tokenizer() -> None:
    """What a model wrote is billed as reported, what it read 1.25 times our count: calibration finds both."""
    reads = [200 + 731 * number % 4_000 for number in range(30)]
    outputs = [30 + 53 * number % 300 for number in range(30)]
    prompt, turns = 2000, []
    for index, (read, output) in enumerate(zip(reads, outputs, strict=True), start=1):
        words = Message(role="user", content=said(read))
        usage = Usage(cache_read=prompt - 100, cache_write=100, output=output)
        turns.append(
            Turn(index=index, content=said(max(4, output - 20)), interjections=(words,), usage=usage, model=CLAUDE)
        )
        prompt += output + round(1.25 * read)
    found = checked(replace(run(call(2000, 0)), turns=tuple(turns)))
    (fit,) = CalibrationStudy(counter="letters", runs=(found,)).fits.values()
    assert (fit.per_output, fit.per_counted) == pytest.approx((1.0, 1.25), abs=0.01)


def test_output_of_a_first_fragment_is_no_evidence() -> None:
    """Where a format keeps the output count of a response's first fragment, no fit is made of the call."""
    calls = [call(2000, 0, output=1), call(3000, 2000, output=1), call(4000, 3000, output=1)]
    assert [each.growth for each in checked(run(*calls)).calls] == [None, None, None]


def test_warm_head() -> None:
    """What the first call read was left by other runs: it is read again when the run's own entries are dead."""
    found = checked(run(call(2000, 1200), call(3000, 1200, at=400)))
    assert found.counted.cache_read == found.billed.cache_read == 2400
    assert causes(found) == [None, "gap"]


def test_turn_without_usage() -> None:
    """A call without recorded usage is left out on both sides; what was said there is in the later prompts."""
    whole = run(call(2000, 0), call(3000, 2000), call(4000, 2000))
    silent = replace(whole, turns=(whole.turns[0], msgspec.structs.replace(whole.turns[1], usage=None), whole.turns[2]))
    found = checked(silent)
    assert [each.index for each in found.calls] == [1, 3]
    assert [each.counted.prompt for each in found.calls] == [2000, 4000]
    assert found.billed.cache_read == found.counted.cache_read == 2000


def test_no_usage() -> None:
    """A run without usage has nothing to be calibrated on."""
    silent = Trajectory(id="a", head=Head(), turns=(Turn(index=1), Turn(index=2, usage=Usage(output=4))))
    assert calibrate_run(silent, SIZER) is None


def test_tool_definitions_larger_than_billed() -> None:
    """Tool definitions that count to more than the whole first prompt are taken at what is left of it."""
    made = run(call(2000, 0), call(2500, 2000), head=1500)
    wordy = replace(made, head=msgspec.structs.replace(made.head, tools=({"name": "x" * 900},)))
    assert checked(wordy).counted.prompt == 4500


def test_unknown_model() -> None:
    """A model without a price is simulated by the rules of its way of billing, and has no USD."""
    found = checked(run(call(2000, 0), call(3000, 2000, at=10), model="acme-1"))
    assert found.priced_as is None
    assert found.counted.usd is None
    assert found.counted.cache_read == 2000


@pytest.mark.parametrize(
    ("model", "writes", "kind"), [("acme-1", True, "breakpoints"), ("deepseek/acme", False, "prefix")]
)
def test_rules_without_prices(model: str, writes: bool, kind: str) -> None:
    """Recorded cache writes show breakpoints; else the host that the name carries decides."""
    found = open_billing(model, date(2026, 1, 1), writes=writes)
    assert found.prices is None
    assert found.rules.kind == kind


# -- causes -----------------------------------------------------------------------------------------------------------


def test_gap() -> None:
    """A gap longer than the lifetime makes both sides write all again; one second less and both read."""
    late = checked(run(call(2000, 0), call(3000, 0, at=301)))
    assert causes(late) == [None, "gap"]
    assert late.counted.cache_read == late.billed.cache_read == 0
    assert causes(checked(run(call(2000, 0), call(3000, 2000, at=300)))) == [None, None]


def test_no_cache() -> None:
    """A run without a single read or write has no cache, and stays out of the totals."""
    plain = [(Usage(input=prompt, output=5), START, "") for prompt in (2000, 3000)]
    without = checked(run(*plain))
    assert causes(without) == ["no-cache", "no-cache"]
    assert not without.cached
    within = checked(run(call(2000, 0), call(3000, 2000)))
    study = CalibrationStudy(counter="o200k", runs=(without, within))
    assert study.total.billed == within.billed
    assert study.uncached == (without,)


def test_compaction_recorded() -> None:
    """After a compaction the prompt is head, summary and as many of the newest turns as were billed."""
    summary = "s" * 196  # 200 tokens with its frame
    calls = [call(2000, 0), call(3000, 2000), call(4000, 3000), call(5000, 4000), call(4700, 0), call(5200, 4700)]
    made = run(*calls, grow=[1000, 1000, 1000, 500, 500], compactions=(Compaction(before=5, summary=summary),))
    sent = list(list_requests(made, SIZER))
    kinds = [segment.kind for segment in sent[4].counted.segments]
    # 4700 - 2000 (head) - 200 (summary) leaves room for the newest three turns: 1000 + 1000 + 500.
    assert kinds == ["hidden", "head", "summary", "assistant", "assistant", "assistant"]
    assert sent[4].counted.tokens == 4700
    found = checked(made)
    assert causes(found)[4:] == ["compaction", None]
    assert found.calls[4].restart == "recorded"
    assert [each.billed.cache_read for each in found.calls] == [each.lengths.cache_read for each in found.calls]


def test_compaction_inferred() -> None:
    """A billed prompt that falls by more than a tenth was cut, though the recording does not say so."""
    found = checked(run(call(2000, 0), call(6000, 2000), call(3000, 0), call(3500, 3000)))
    assert causes(found) == [None, None, "compaction", None]
    assert found.calls[2].restart == "inferred"
    assert found.lengths.cache_read == found.billed.cache_read


def test_small_shrinkage() -> None:
    """A prompt that shrinks by a few tokens (thinking left out, say) is no restart."""
    found = checked(run(call(4000, 0), call(5000, 4000), call(4950, 4000)))
    assert [each.restart for each in found.calls] == ["", "", ""]
    assert found.lengths.prompt == found.billed.prompt
    assert found.calls[2].lengths.cache_read <= 4950


def test_changed_prefix() -> None:
    """All written again without a gap was changed in front; the tokens are counted, and the rest agrees."""
    found = checked(run(call(2000, 0), call(3000, 2000), call(4000, 0), call(5000, 4000)))
    assert causes(found) == [None, None, "changed-prefix", None]
    assert found.causes["changed-prefix"].tokens == 3000
    # The recording alone knows it, so what is simulated by our counts has it from there.
    assert found.difference == 0
    assert read_share(found.lengths) - read_share(found.billed) == pytest.approx(3000 / 14000)
    assert found.elsewhere == 0


def test_minimum() -> None:
    """A prompt below the cacheable minimum is read by neither side."""
    plain = (Usage(input=400, output=5), START, "")
    found = checked(run(plain, call(1300, 0), call(2000, 1300), head=300))
    assert causes(found) == [None, "minimum", None]
    assert found.billed == msgspec.structs.replace(found.counted, output=found.billed.output)


def test_second_model() -> None:
    """Each model has a cache of its own: the first call of another one reads nothing, the way back all."""
    other = call(2500, 0, at=10, model="claude-opus-4-8")
    found = checked(run(call(2000, 0), other, call(3000, 2000, at=20)))
    assert causes(found) == [None, "second-model", None]
    assert found.counted.cache_read == found.billed.cache_read == 2000
    assert found.calls[1].billed.usd == pytest.approx((2500 * 6.25 + 10 * 25) / 1e6)


def deepseek(*bills: tuple[int, int]) -> Trajectory:
    calls = [(Usage(input=prompt - read, cache_read=read, output=10), START, "") for prompt, read in bills]
    return run(*calls, model=DEEPSEEK)


def test_missed() -> None:
    """A provider that promises best effort and reads less than it was sent has missed."""
    found = checked(deepseek((6400, 0), (7040, 6400), (7680, 6400), (8320, 7680)))
    assert causes(found) == [None, None, "missed", None]
    assert found.causes["missed"].tokens == 640


def test_answer() -> None:
    """Where more is read than was sent before, the provider has cached its answer too."""
    found = checked(deepseek((6400, 0), (7680, 7040)))
    assert causes(found) == [None, "answer"]
    assert found.causes["answer"].tokens == -640


def test_kept_longer() -> None:
    """An entry that is read after its lifetime has outlived it."""
    found = checked(run(call(2000, 0), call(3000, 2000, at=400)))
    assert causes(found) == [None, "kept-longer"]
    assert found.causes["kept-longer"].tokens == -2000


def hourly(prompt: int, read: int, *, at: float = 0, minutes: int = 0) -> tuple[Usage, float, str]:
    """A Claude bill whose writes live an hour, but for the last `minutes` tokens."""
    written = prompt - read
    usage = Usage(cache_read=read, cache_write=written, cache_write_1h=written - minutes, output=10)
    return usage, START + at, ""


def test_an_hour_is_no_long_life() -> None:
    """What was written for an hour is read behind half an hour, as it should be, and costs 2 x input to write."""
    found = checked(run(hourly(2000, 0), hourly(3000, 2000, at=1_800), hourly(4000, 3000, at=1_810)))
    assert causes(found) == [None, None, None]
    assert found.counted == found.lengths == found.billed
    assert found.billed.usd == pytest.approx((4000 * 20 + 5000 * 1 + 30 * 50) / 1e6)


def test_behind_an_hour_there_is_a_gap() -> None:
    """An hour and a second later nothing is read."""
    assert causes(checked(run(hourly(2000, 0), hourly(3000, 0, at=3_601)))) == [None, "gap"]


def test_the_front_is_kept_longer_than_the_rest() -> None:
    """The system prompt is written for an hour and the rest for five minutes: behind half an hour the front is read."""
    system, task = Message(role="system", content=said(1500)), Message(role="user", content=said(500))
    trajectory = run(hourly(2000, 0, minutes=500), call(3000, 1500, at=1_800))
    found = checked(replace(trajectory, head=Head(messages=(system, task))))
    assert found.lengths.cache_read == found.billed.cache_read == 1500
    assert "kept-longer" not in causes(found)


def test_unsent() -> None:
    """A result recorded at several times its billed size was clipped when it was sent: it counts as it was billed."""
    found = checked(run(call(2000, 0), call(3000, 2000), call(4000, 3000), call(4500, 4000), grow=[1000, 9000, 500]))
    assert causes(found) == [None, None, "unsent", None]
    assert same_bills(found.counted, found.lengths, found.billed)


def test_unsent_text_stays_unsent_after_a_compaction() -> None:
    """What was clipped when it was sent is as short when the agent compacts and sends it again."""
    calls = [call(2000, 0), call(3000, 2000), call(4000, 3000), call(4000, 2000)]
    made = run(*calls, grow=[1000, 9000, 500], compactions=(Compaction(before=4, summary="s" * 496),))
    assert [each.counted.prompt for each in checked(made).calls] == [2000, 3000, 4000, 4000]


def test_every_cause_is_named() -> None:
    """Each cause has a description that fits beside its name in 80 columns."""
    assert all(len(name) + len(meaning) < 62 for name, meaning in CAUSES.items())


# -- the JSON ---------------------------------------------------------------------------------------------------------


def test_json() -> None:
    """The shape that is documented: runs, totals, what could not be compared."""
    made = checked(run(call(2000, 0), call(3000, 2000)))
    problem = Problem(file="b.json", line=3, reason="broken")
    told = CalibrationStudy(counter="o200k", runs=(made,), silent=(("c.json", "main"),), problems=(problem,)).to_json()
    first = told["runs"][0]
    assert first["billed"]["read_share"] == read_share(made.billed) == 0.4
    assert first["causes"] == {}
    assert first["compactions"] == {"recorded": 0, "inferred": 0}
    assert told["totals"]["calls"] == 2
    assert first["length_difference"] == 0
    assert first["usd_difference"] == pytest.approx(0, abs=1e-12)
    assert told["runs_within_2_percent"] == 1
    assert told["without_changed_prefix"]["runs"] == 1
    assert told["token_fits"] == {}
    assert told["without_usage"] == [{"file": "c.json", "trajectory": "main"}]
    assert told["problems"] == [{"file": "b.json", "line": 3, "reason": "broken"}]


# -- the corpus -------------------------------------------------------------------------------------------------------

BAR = 0.02

#: Runs whose lengths are further from the billed ones, and how far.
LENGTHS = {
    "pi-session/pi-session.jsonl.gz": 0.03,
    "mini-swe-agent/msa-deepseek_chat_test_1-100-django__django-12113.traj.json.gz": 0.03,
    "mini-swe-agent/msa-deepseek_lite_dev-marshmallow-code__marshmallow-1343.traj.json.gz": 0.04,
}
#: Recordings of providers that did no caching, or of formats that keep no cache counters.
UNCACHED = {
    "openhands-output/oh-multi-swe-bench-examples-output.jsonl.gz",
    "tau2-bench/tau2-ft41-airline_.json.gz",
    "tau2-bench/tau2-ft41-telecom_.json.gz",
}
RECORDINGS = [
    str(path.relative_to(CORPUS))
    for folder in (
        "claude-code",
        "inspect-ai",
        "mini-swe-agent",
        "openhands-output",
        "openhands-v1-events",
        "pi-session",
        "tau2-bench",
    )
    for path in sorted((CORPUS / folder).glob("*.gz"))
]


@pytest.fixture(scope="module")
def sizer() -> Sizer:
    return Sizer(make_counter())


def of_corpus(name: str, sizer: Sizer) -> list[Calibration]:
    runs = (found for found in read_runs(CORPUS / name) if isinstance(found, Trajectory))
    return [found for each in runs if (found := calibrate_run(each, sizer)) is not None]


@reproduces("calibration against recorded bills")
@pytest.mark.parametrize("name", RECORDINGS)
def test_corpus(name: str, sizer: Sizer) -> None:
    """Cache-read share and prompt tokens within 0.02 of what was billed; lengths that miss it are listed."""
    for found in of_corpus(name, sizer):
        assert found.cached is (name not in UNCACHED)
        if found.cached:
            assert abs(found.difference) <= BAR
            assert found.elsewhere is not None
            assert abs(found.elsewhere) <= BAR
            assert abs(found.length_difference) <= LENGTHS.get(name, BAR)


@reproduces("calibration against recorded bills")
def test_corpus_in_total(sizer: Sizer) -> None:
    """Prompt tokens within 2 % in total and on two runs of three, USD within 5 % where no prefix was changed."""
    runs = tuple(found for name in RECORDINGS if name not in UNCACHED for found in of_corpus(name, sizer))
    study = CalibrationStudy(counter="o200k", runs=runs)
    assert abs(study.total.length_difference) <= 0.02
    assert 3 * len(study.near_runs) >= 2 * len(study.cached)
    assert study.steady.usd_difference is not None
    assert abs(study.steady.usd_difference) <= 0.05


@reproduces("calibration against recorded bills")
@pytest.mark.parametrize("name", [name for name in RECORDINGS if name.startswith(("openhands-v1", "claude-code"))])
def test_corpus_by_length(name: str, sizer: Sizer) -> None:
    """From billed lengths nothing but the cache can be wrong: OpenHands within 0.0005, compactions included.

    Claude Code within 0.006: after a gap of 22 minutes less of the shared head was warm than at the start.
    """
    for found in of_corpus(name, sizer):
        slack = 0.0005 if name.startswith("openhands") else 0.006
        assert abs(read_share(found.lengths) - read_share(found.billed)) <= slack
