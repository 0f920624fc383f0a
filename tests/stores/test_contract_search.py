"""What every store promises of its search: words, whatever their case, in one piece of a turn; newest first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elision.stores.memory import MemoryStore
from elision.stores.store import Hit, Store
from elision.trajectory.events import TurnAdded
from elision.trajectory.turn import Action, Turn, make_content
from tests.stores.session_logs import add_turn, amend_turn, begin_session

#: Turns enough that a store with an index uses it.
MANY = 600


def found(store: Store, query: str, limit: int = 20) -> list[str]:
    return [hit.handle for hit in store.search("s", query, limit)]


def test_a_hit_tells_where_and_what(store: Store) -> None:
    """Session, turn, result, tool, and a line around the words."""
    begin_session(
        store, "s", add_turn(1, "nothing"), add_turn(2, "ok", "first line\n  ValueError:   bad   input\nlast")
    )
    assert store.search("s", "valueerror") == [
        Hit(session="s", turn=2, position=2, tool="bash", excerpt="first line ValueError: bad input last")
    ]


def test_what_was_said_and_called_is_found(store: Store) -> None:
    """Reasoning, text and arguments are position 0, named by the turn alone."""
    whole = Turn(
        index=1,
        content=make_content("I open it"),
        reasoning="perhaps the parser",
        actions=(Action(id="a", name="bash", arguments='{"command": "cat setup.cfg"}'),),
    )
    begin_session(store, "s", TurnAdded(whole))
    assert found(store, "parser") == found(store, "OPEN") == found(store, "setup.cfg") == ["t1"]


def test_what_is_written_as_one_is_found_as_one(store: Store) -> None:
    """An id, a path or an error's code is several words; texts that have only the words come where nothing has it."""
    begin_session(store, "s", add_turn(1, "see ERR-104 in a/b.py"), add_turn(2, "1 ERR of 104"), add_turn(3, "b a py"))
    assert found(store, "err-104") == ["t1.1"]
    assert found(store, "ERR-104 a/b.py") == ["t1.1"]
    assert found(store, "104-err") == ["t2.1", "t1.1"]
    assert "ERR-104" in store.search("s", "err-104")[0].excerpt


def test_all_words_stand_in_one_piece(store: Store) -> None:
    """Words that are spread over results, or over turns, are no hit."""
    begin_session(store, "s", add_turn(1, "red", "green", said="blue"), add_turn(2, "green red"), add_turn(3, "red"))
    assert found(store, "red green") == ["t2.1"]
    assert found(store, "red") == ["t3.1", "t2.1", "t1.1"]
    assert found(store, "blue red") == []


def test_newest_turns_come_first_and_the_limit_holds(store: Store) -> None:
    """Within a turn what was said, then the results in order."""
    begin_session(store, "s", *(add_turn(index, "hit", "hit", said="hit") for index in range(1, MANY + 1)))
    assert found(store, "hit", 4) == [f"t{MANY}", f"t{MANY}.1", f"t{MANY}.2", f"t{MANY - 1}"]
    assert len(found(store, "hit")) == 20
    assert found(store, "hit", 0) == found(store, "hit", -1) == []


def test_a_word_is_found_inside_another(store: Store) -> None:
    """Parts of identifiers, paths, numbers, and of scripts that write without spaces."""
    begin_session(store, "s", add_turn(1, "MarshmallowError in src/fields_test.py:1234"), add_turn(2, "配置文件损坏了"))
    for query in ("error", "mallow", "fields", "s_t", "23", "TEST.PY", "m", "Error fields_test 1234"):
        assert found(store, query) == ["t1.1"], query
    assert found(store, "文件") == found(store, "损坏") == ["t2.1"]


def test_case_is_no_matter_in_any_script(store: Store) -> None:
    """Also where folding changes a word's length."""
    begin_session(store, "s", add_turn(1, "Straße ΣΊΣΥΦΟΣ İstanbul ŒUVRE"))
    for query in ("STRASSE", "straße", "σίσυφοσ", "Σίσυφος", "İSTANBUL", "i̇stanbul", "œuvre"):
        assert found(store, query) == ["t1.1"], query


HARMLESS = (
    'unclosed "quote',
    "a AND",
    "OR",
    "NOT needle",
    "needle NEAR/2 x",
    "needle*",
    "^needle",
    "col:needle",
    "{needle}",
    "(needle",
    "needle)",
    "needle -other",
    "+needle",
    "'; DROP TABLE records; --",
    "%needle%",
    "needle_",
    "\\",
    "\0needle\0",
    "🗿 needle",
    "needle & other | !x <-> y:*",
    "needle\ud800",
)


def test_any_text_is_a_query(store: Store) -> None:
    """Operators are words or nothing; stores agree on which."""
    model = MemoryStore()
    for each in (store, model):
        begin_session(
            each,
            "s",
            add_turn(1, "a needle and not more"),
            add_turn(2, 'unclosed "quote" or'),
            add_turn(3, "needle_ x y"),
        )
    for query in HARMLESS:
        assert store.search("s", query) == model.search("s", query), query


def test_a_query_without_words_finds_nothing(store: Store) -> None:
    """Nothing was asked for."""
    begin_session(store, "s", add_turn(1, "text 🗿 ... \0 ()"))
    for query in ("", " ", "\n", '"', "-", "🗿", "...", "\0", "()", "\ud800"):
        assert store.search("s", query) == [], query


def test_an_amended_turn_is_found_as_it_is_now(store: Store) -> None:
    """Whether it was searched before the amendment or not."""
    begin_session(store, "s", *(add_turn(index, "filler") for index in range(1, MANY)), add_turn(MANY, "before"))
    assert found(store, "before") == [f"t{MANY}.1"]
    store.append("s", (amend_turn(MANY, "after"), add_turn(MANY + 1, "x")), after=MANY, at=2.0)
    assert found(store, "before") == []
    assert found(store, "after") == [f"t{MANY}.1"]


def test_what_comes_later_is_found_too(store: Store) -> None:
    """Searching, appending and searching again, beyond any size at which a store begins to index."""
    begin_session(store)
    for step in range(6):
        events = [add_turn(step * 120 + index, f"word{step}x in many") for index in range(1, 121)]
        store.append("s", events, after=step * 120, at=1.0)
        assert found(store, f"word{step}x", 1) == [f"t{step * 120 + 120}.1"]
        assert len(found(store, "word0x", 1_000)) == 120
    assert len(found(store, "many", 1_000)) == 720


def test_a_deleted_session_is_not_found(store: Store) -> None:
    """Nor what it said by one of the same name."""
    begin_session(store, "s", *(add_turn(index, "secret") for index in range(1, MANY)))
    assert found(store, "secret", 1)
    store.delete("s")
    begin_session(store, "s", add_turn(1, "open"))
    assert found(store, "secret") == []
    assert found(store, "open") == ["t1.1"]


def test_large_and_odd_texts_are_searched(store: Store) -> None:
    """Far into a text, beside letters that are none, and behind a NUL."""
    begin_session(store, "s", add_turn(1, "x " * 60_000 + "needle" + " y" * 60_000), add_turn(2, "\ud800needle\0pin"))
    assert found(store, "needle") == ["t2.1", "t1.1"]
    assert found(store, "pin") == ["t2.1"]
    assert "needle" in store.search("s", "needle")[1].excerpt


words = st.text(alphabet="aAbBéÉßẞİ大_1 -\n.\u0307\ud800", max_size=6)


@given(st.lists(st.lists(words, max_size=3), min_size=1, max_size=4), words)
def test_a_search_is_a_scan(texts: list[list[str]], query: str) -> None:
    """Memory's search, which is the model of all others, finds what the plain sentence of the protocol says."""
    store = MemoryStore()
    begin_session(store, "s", *(add_turn(index, *results) for index, results in enumerate(texts, start=1)))
    split = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in query.casefold()).split()

    def scan(words: list[str]) -> list[str]:
        return [
            f"t{index}.{position}"
            for index, results in reversed(list(enumerate(texts, start=1)))
            for position, text in enumerate(results, start=1)
            if split and all(word in text.casefold() for word in words)
        ]

    expected = scan(query.casefold().split()) or scan(split)
    assert [hit.handle for hit in store.search("s", query, 1_000) if hit.position] == expected
