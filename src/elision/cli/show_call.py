"""One call of a stored session: its request as it was sent, what its pass did, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from elision.cli.options import parse_call_number
from elision.cli.session_names import format_session_name
from elision.cli.show_report import describe_cost, describe_failure
from elision.cli.view_report import ViewReporter
from elision.errors import SpecError
from elision.lab.report import figures
from elision.lab.report.report import Report, Words
from elision.lab.views import build_view
from elision.manager.branch import SessionBranch
from elision.manager.session_history import CallReport, SessionLog
from elision.manager.session_json import encode_call_report
from elision.providers.provider_table import find_provider_or_default
from elision.trajectory.events import RequestSent
from elision.trajectory.plan import make_handle
from elision.trajectory.trajectory import Trajectory

#: Share of a prompt that is named where the provider reported it and no message has it.
UNSEEN_SHARE: Final = 0.02


def build_call_report(log: SessionLog, call: str, dialect: str, *, full: bool) -> Report:
    """Return call number `call`, or the last; of a call that was made more than once the newest request.

    Raises SpecError for a call that was not made.
    """
    number, times = _parse_call_number(log, call)
    made, going, before = _go_to_call(log, number, times)
    spoken = dialect or (log.opened.dialect if log.opened else "")
    view = build_view(going.log, find_provider_or_default(spoken).make_renderer())
    calls = max(event.call for event in log.events if isinstance(event, RequestSent))
    # What the session knew at this call.
    state = going.log.state
    known = Trajectory(id=log.info.key, head=state.head, turns=tuple(state.turns), model=log.model)
    scale = going.log.reports.scale
    reporter = ViewReporter(
        trajectory=known,
        label=log.strategy,
        sizer=going.log.sizer,
        full=full,
        scale=scale,
        command="sessions show",
        has_page=False,
    )
    # The prompt is as long as everywhere else: by the provider's report, where there is one.
    billed = replace(view, bill=made.bills.ours, raw=made.bills.raw)
    facts = [*_list_call_facts(made, times, before)]
    unseen = made.sent_tokens - scale.convert_part(view.view.tokens)
    if unseen > UNSEEN_SHARE * made.sent_tokens:
        facts.append(("elsewhere", f"{unseen:,} of the tokens sent are in no message above, by the provider's report"))
    data = {**encode_call_report(made), "system": view.system, "messages": view.messages}
    return reporter.build(billed, title=f"Call {number} of {calls}", more=facts, data=data)


def _parse_call_number(log: SessionLog, call: str) -> tuple[int, int]:
    """The call that is meant, and how often it was made."""
    made = [event.call for event in log.events if isinstance(event, RequestSent)]
    if not made:
        raise SpecError(f"session {format_session_name(log.info.key)!r}: no call was made yet")
    number = parse_call_number(call, made[-1])
    if number not in made:
        raise SpecError(
            f"no call {format_session_name(call)!r}: give a number from {min(made)} to {max(made)}, or last"
        )
    return number, made.count(number)


def _go_to_call(log: SessionLog, number: int, times: int) -> tuple[CallReport, SessionBranch, list[CallReport]]:
    """The call's newest pass, the session as it was then, and the passes before it."""
    before: list[CallReport] = []
    for made, going in log.iterate_calls():
        if made is not None and made.diagnostics.call == number:
            times -= 1
            if not times:
                return made, going, before
        if made is not None:
            before.append(made)
    raise AssertionError(f"call {number} is in the log")


def _list_call_facts(made: CallReport, times: int, before: Sequence[CallReport]) -> Iterator[tuple[str, Words]]:
    """What a stored call has to say beyond what any view has."""
    told = made.diagnostics
    so_far = describe_cost(told, before)
    yield "cost", [(figures.format_usd(made.bills.ours.usd), "strong"), " for the prompt · so far ", *so_far]
    if made.usage is not None:
        yield "reported", _describe_reported_usage(made)
    if made.recalled:
        handles = ", ".join(make_handle(each.key) for each in made.recalled)
        yield "recalled", f"{handles} after this call"
    for failed in made.failed_summaries:
        yield "failed", [(describe_failure(failed), "worse")]
    if made.head_changed:
        yield "head", [("system prompt, tools or task had changed", "note")]
    if times > 1:
        yield "requests", f"made {times} times; this is the newest"
    for name, said in (("stop", told.stop), ("hint", told.hint)):
        if said is not None:
            yield name, [(str(said), "warning")]


def _describe_reported_usage(made: CallReport) -> str:
    usage = made.usage
    assert usage is not None
    share = figures.format_share(usage.cache_read / usage.prompt if usage.prompt else None)
    difference = usage.prompt - made.diagnostics.after
    counted = f", {abs(difference):,} {'more' if difference > 0 else 'fewer'} than counted" if difference else ""
    return f"{usage.prompt:,} tokens{counted} · {share} read from cache · {usage.output:,} answered"
