"""`elision sessions recall`: what was hidden in a session, read again; and where words occur in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Final

import click

from elision.cli.declarations import Argument, Option
from elision.cli.options import Json, Quiet, SessionName, StoreUrl
from elision.errors import SettingError, UnknownHandle
from elision.trajectory.control_characters import make_visible

if TYPE_CHECKING:
    from elision.manager.observation_text import TextPart
    from elision.stores.store import Hit, SessionInfo, Store
    from elision.trajectory.plan import Key

#: Hits of a search.
HITS: Final = 50
#: A person reads all of it: nothing is left out as it is for an agent.
_ALL: Final = sys.maxsize


def recall(
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
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print a tool result of a session in full, hidden or not, or search the session.

    Control characters appear as symbols, because a terminal would act on them.
    """
    # Slow to import, and help needs none of it.
    from elision.cli.console import name_store
    from elision.cli.outputs import print_json
    from elision.cli.session_names import choose_session
    from elision.config import load_settings
    from elision.manager.observation_text import TextPart, extract_part
    from elision.stores.store_urls import open_existing

    part = TextPart(lines=lines, pattern=pattern, head=head)
    _check_options(name, part, search, raw=raw, as_json=json)
    with closing(open_existing(name_store(store or load_settings().store, quiet=quiet))) as opened:
        sessions = opened.sessions()
        info = choose_session(sessions, session)
        if search:
            hits = opened.search(info.key, search, HITS)
            _check_hits(hits, info, search)
            if json:
                places = [{"handle": each.handle, "tool": each.tool, "excerpt": each.excerpt} for each in hits]
                print_json("sessions recall", {"session": info.key, "search": search, "hits": places})
            else:
                _print_hits(hits)
            return
        text, others = _find_observation(opened, sessions, info, name)
    if json:
        shown = extract_part(text, part, _ALL)
        print_json("sessions recall", {"session": info.key, "handle": name, "text": shown, "not_text": others})
    else:
        _print_text(text, [] if quiet else others, part, raw=raw)


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
    from elision.manager.lineage import trace_stored_turn
    from elision.manager.observation_text import find_text, format_handle, parse_handle
    from elision.trajectory.content import Opaque

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


def _print_text(text: str, others: list[str], part: TextPart, *, raw: bool) -> None:
    from elision.cli.session_names import format_session_name
    from elision.manager.observation_text import extract_part

    if raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(extract_part(text, part, _ALL).encode("utf-8", "surrogatepass"))
        return
    click.echo(make_visible(extract_part(text, part, _ALL)).removesuffix("\n"))
    if others:
        click.echo(
            f"elision: in addition to the text there is {', '.join(map(format_session_name, others))}, "
            f"which is not shown",
            err=True,
        )


# -- words ------------------------------------------------------------------------------------------------------------


def _check_hits(hits: Sequence[Hit], info: SessionInfo, words: str) -> None:
    """Raise UnknownHandle if there is none."""
    from elision.cli.session_names import format_session_name

    if not hits:
        session = format_session_name(info.key)
        wanted = format_session_name(words)
        raise UnknownHandle(f"session {session!r}: {wanted!r} does not occur in it; all words must occur")


def _print_hits(hits: Sequence[Hit]) -> None:
    """A line for each place, the newest turn first."""
    from rich.text import Text

    from elision.cli.console import open_console
    from elision.cli.session_names import format_session_name

    console = open_console()
    tools = [format_session_name(hit.tool) if hit.tool else "said" for hit in hits]
    name_width = max(len(hit.handle) for hit in hits)
    tool_width = max(map(len, tools))
    for hit, tool in zip(hits, tools, strict=True):
        line = Text.assemble((f"{hit.handle:<{name_width}}", "bold"), "  ", (f"{tool:<{tool_width}}", "cyan"))
        line.append(f"  {format_session_name(hit.excerpt)}")
        # Whole where another program reads it.
        cut = console.is_terminal
        console.print(line, no_wrap=True, overflow="ellipsis" if cut else "ignore", crop=cut)
