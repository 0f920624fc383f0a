"""`elision sessions recall`: what was hidden in a session, read again; and where words occur in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import click

from elision.cli.declarations import Argument, Option
from elision.cli.options import Output, SessionName, StoreUrl
from elision.errors import SettingError, UnknownHandle
from elision.trajectory.foreign_text import make_visible

if TYPE_CHECKING:
    from elision.lab.report.report import Sentence, Words
    from elision.manager.observation_text import TextPart
    from elision.stores.store import Hit, SessionInfo, Store
    from elision.trajectory.plan import Key

#: Hits of a search.
HITS: Final = 50
#: A person reads all of it: nothing is left out as it is for an agent.
_ALL: Final = sys.maxsize


def recall(
    *,
    session: SessionName,
    name: Annotated[str, Argument(metavar="HANDLE", help="The handle in a placeholder, such as t12.1.")] = "",
    lines: Annotated[str, Option("--lines", help="Only these lines: 40-80, 40- or 7.")] = "",
    pattern: Annotated[
        str,
        Option("--pattern", help="Only lines that match a regular expression, with context."),
    ] = "",
    head: Annotated[int | None, Option("--head", help="Only this many lines from the start.", min=1)] = None,
    search: Annotated[str, Option("--search", help="Instead of a handle: list where these words occur.")] = "",
    raw: Annotated[
        bool, Option("--raw", help="Write the stored bytes, control characters included; not to a terminal.")
    ] = False,
    store: StoreUrl = None,
    output: Output,
) -> None:
    """Print a tool result of a session in full, hidden or not, or search the session.

    Control characters appear as symbols, because a terminal would act on them.
    """
    # Slow to import, and help needs none of it.
    from elision.cli.session_names import choose_session, format_session_name
    from elision.manager.observation_text import TextPart, extract_part

    part = TextPart(lines=lines, pattern=pattern, head=head)
    _check_options(name, part, search, raw=raw, as_json=output.json)
    with output.open_store(store) as opened:
        sessions = opened.sessions()
        info = choose_session(sessions, session)
        if search:
            hits = opened.search(info.key, search, HITS)
            if not hits:
                named, wanted = (format_session_name(each) for each in (info.key, search))
                raise UnknownHandle(f"session {named!r}: {wanted!r} does not occur in it; all words must occur")
            places = [{"handle": each.handle, "tool": each.tool, "excerpt": each.excerpt} for each in hits]
            output.answer("sessions recall", {"session": info.key, "search": search, "hits": places}, *_list_hits(hits))
            return
        text, others = _find_observation(opened, sessions, info, name)
    shown = extract_part(text, part, _ALL)
    if raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(shown.encode("utf-8", "surrogatepass"))
        return
    if output.json:
        data = {"session": info.key, "handle": name, "text": shown, "not_text": others}
        output.answer("sessions recall", data)
        return
    click.echo(make_visible(shown).removesuffix("\n"))
    if others:
        kinds = ", ".join(map(format_session_name, others))
        output.note(f"elision: in addition to the text there is {kinds}, which is not shown")


def _check_options(name: str, part: TextPart, search: str, *, raw: bool, as_json: bool) -> None:
    """Raises SettingError for options that contradict each other."""
    parts = {"--lines": part.lines, "--pattern": part.pattern, "--head": part.head}
    given = [option for option, value in parts.items() if value]
    if search and (name or given or raw):
        raise SettingError("--search searches the whole session: leave out the handle and its options")
    if not search and not name:
        raise SettingError(
            "give a handle, such as t12.1 (`elision sessions show SESSION` names them), or --search WORDS"
        )
    if len(given) > 1:
        raise SettingError(f"{' and '.join(given)} contradict each other; give one")
    if raw and as_json:
        raise SettingError("--raw and --json contradict each other; give one")
    if raw and sys.stdout.isatty():
        raise SettingError("--raw writes control characters as they are; send it to a file or a pipe")


# -- one result -------------------------------------------------------------------------------------------------------


def _find_observation(
    store: Store, sessions: Sequence[SessionInfo], info: SessionInfo, name: str
) -> tuple[str, list[str]]:
    """What stands under a handle, as the agent's own recall finds it, and the kinds of what is no text in it."""
    from elision.cli.session_names import format_session_name
    from elision.manager.branch import trace_stored_turn
    from elision.manager.observation_text import find_text, format_handle, parse_handle
    from elision.trajectory.turn import Opaque

    try:
        owner, key = parse_handle(name)
    except UnknownHandle as error:
        raise UnknownHandle(f"{error}; --search WORDS finds results by their words") from None
    known = {each.key: each for each in sessions}
    lineage = dict(trace_stored_turn(store, known.get, info, key[0]))
    if owner and owner not in lineage:
        raise UnknownHandle(
            f"session {format_session_name(info.key)!r} did not come from {format_session_name(owner)!r}"
        )
    for turn in [lineage[owner]] if owner else lineage.values():
        if turn is not None and (text := find_text(turn, key)) is not None:
            seen = turn.observations[key[1] - 1 : key[1]] if key[1] else turn.observations
            return text, [part.kind for each in seen for part in each.content if isinstance(part, Opaque)]
    if owner not in ("", info.key):
        # Its later turns are those of another continuation: whoever wants them names that session.
        raise UnknownHandle(
            f"session {format_session_name(owner)!r} shares nothing under {format_handle(key)} with "
            f"{format_session_name(info.key)!r}; `elision sessions recall {format_session_name(owner)} "
            f"{format_handle(key)}` reads it there"
        )
    raise UnknownHandle(_explain_missing_handle(store, info, key))


def _explain_missing_handle(store: Store, info: SessionInfo, key: Key) -> str:
    """What there is instead."""
    from elision.cli.session_names import format_session_name
    from elision.manager.observation_text import format_handle
    from elision.trajectory.plan import make_handle

    where = f"session {format_session_name(info.key)!r} keeps nothing under {format_handle(key)}"
    if not info.turns:
        return f"{where}: it has no turns yet"
    if not 1 <= key[0] <= info.turns:
        return f"{where}: its turns are 1 to {info.turns}"
    (turn,) = store.turns(info.key, key[0], key[0])
    handles = [make_handle((key[0], place)) for place in range(1, len(turn.observations) + 1)]
    if not handles:
        return f"{where}: turn {key[0]} has no results"
    return f"{where}: turn {key[0]} has only {' to '.join(dict.fromkeys((handles[0], handles[-1])))}"


def _list_hits(hits: Sequence[Hit]) -> list[Sentence]:
    """Return a line for each place, the newest turn first; whole where another program reads it."""
    from elision.cli.session_names import format_session_name
    from elision.lab.report.report import Sentence

    names = max(len(hit.handle) for hit in hits)
    tools = [format_session_name(hit.tool) if hit.tool else "said" for hit in hits]
    widest = max(map(len, tools))
    is_cut = sys.stdout.isatty()
    lines = []
    for hit, tool in zip(hits, tools, strict=True):
        excerpt = f"  {format_session_name(hit.excerpt)}"
        words: Words = [(hit.handle.ljust(names + 2), "strong"), (tool.ljust(widest), "note"), excerpt]
        lines.append(Sentence(words, whole=not is_cut, clipped=is_cut))
    return lines
