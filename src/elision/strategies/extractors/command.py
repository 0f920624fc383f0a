"""A shell command, taken apart far enough to see which program's output one is looking at, and which part of it.

A count of the lines that `| head` let through is not a total.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile

from elision.strategies.extractors.outcome import (
    PATH_CHARS,
    decode_arguments,
    find_text_argument,
    find_tool_name,
    shorten_path,
    shorten_to_line,
)
from elision.strategies.extractors.result_text import UnwrappedOutput, unwrap_output
from elision.trajectory.foreign_text import search_pieces
from elision.trajectory.turn import Action, Observation

#: Characters of a command that are looked at.
LONGEST_COMMAND = 8_000
#: Names of tools that run shell commands (globs, any case).
SHELLS = ("*bash*", "*shell*", "sh", "cmd", "*terminal*", "*command*", "*exec*", "run", "console", "*process*")

_HEREDOC = re.compile(r"<<-?\s{0,5}(['\"]?)(\w{1,40})\1")
#: SWE-agent's `edit 10:20`, whose new lines follow up to `end_of_edit`.
_LINE_EDIT = re.compile(r"edit \d+:\d+\s*\n")
_TOKEN = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|&&|\|\||\|&|[;|\n()]|[^'\"\\;&|\n()]+|.", re.DOTALL)
_NOISE = re.compile(r"\s{0,3}(?:2>&1|2>\s?/dev/null|&>\s?/dev/null)")
_REDIRECTED = re.compile(r"(?<![2&=<-])>(?![&=])(?!>?\s{0,3}/dev/null)")
_TARGET = re.compile(r"(?<![2&=<-])>{1,2}\|?\s{0,5}([^\s;|&<>()]{1,500})")
_LONG_WORD = re.compile(rf"[^\s'\"]{{0,200}}/[^\s'\"]{{{PATH_CHARS},400}}")
# Words without a backslash, in which quotes may stand for more than themselves; a quote that is not closed is apart.
# `shlex` reads letter by letter, fifty times slower.
_WORD = re.compile(r"""(?:[^ \t\r\n'"]|'[^']*'|"[^"]*")+|['"]""")
_QUOTES = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w{0,60}=")
_TRIVIAL = frozenset(
    {"cd", "pushd", "popd", "echo", "export", "source", ".", "set", "true", ":", "sleep", "unset", "conda"}
)
_WRAPPERS = frozenset({"sudo", "time", "nohup", "env", "command", "npx", "stdbuf", "xvfb-run", "nice"})
_RUNNERS = {"uv": "run", "poetry": "run", "pipenv": "run", "bundle": "exec", "hatch": "run", "pdm": "run"}
#: Programs behind a pipe that only choose or order lines.
FILTERS = frozenset(
    {"head", "tail", "sort", "uniq", "less", "more", "cat", "grep", "egrep", "rg", "sed", "nl", "column"}
)


#: How tools mark an output of which they show only a part.
_CLIPPED = re.compile(
    r"<response clipped>|<elided_chars>|\[Showing lines \d{1,9}-\d{1,9} of \d|\(?results (?:are )?truncated"
    r"|\[\d{1,9} more (?:lines|matches|results|files)\b"
    r"|\[(?:\d{1,9} )?(?:lines|characters|chars|output) (?:truncated|omitted)",
    re.I,
)
#: Characters of the longest of these marks.
_LONGEST_MARK = 64
_RANGE = re.compile(r"(\d{1,9})(?:,(\d{1,9}|\$))?p(?:;\d{1,9}q)?")
_NUMBER = re.compile(r"(?:-n|-m|-|--lines=|--max-count=)?(\d{1,9})")
#: Programs that let every line through.
_WHOLE = frozenset({"sort", "cat", "nl", "less", "more", "column"})


@dataclass(frozen=True, slots=True)
class Stage:
    """One program of a pipeline: its words without assignments and wrappers; `text` as it was written."""

    text: str
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        """The program's name without folders; "" if there is none."""
        if self.words:
            return self.words[0].rpartition("/")[2]
        return ""

    @property
    def operands(self) -> tuple[str, ...]:
        """The words that are neither options nor redirections, the program left out."""
        plain = (word for word in self.words[1:] if not word.startswith("-"))
        return tuple(word for word in plain if ">" not in word[:2] and "<" not in word[:2])

    @property
    def redirect_target(self) -> str:
        """The file that standard output is written to; "" if it is not redirected."""
        unquoted = "".join(" _ " if token[0][0] in "'\"\\" else token[0] for token in _TOKEN.finditer(self.text))
        if not _REDIRECTED.search(unquoted):
            return ""
        found = _TARGET.search(self.text)
        if found:
            return found[1].strip("'\"")
        return ""

    def has_option(self, *options: str) -> bool:
        """Whether one of the long or, bundled or not, short `options` is given."""
        short = {option[1:] for option in options if len(option) == 2}
        for word in self.words[1:]:
            if word in options or any(word.startswith(f"{option}=") for option in options if option.startswith("--")):
                return True
            if word.startswith("-") and not word.startswith("--") and any(letter in word for letter in short):
                return True
        return False


@dataclass(frozen=True, slots=True)
class Command:
    """pipelines: what is run one after another, `cd` and the like left out unless there is nothing else."""

    pipelines: tuple[tuple[Stage, ...], ...]

    @property
    def only_pipeline(self) -> tuple[Stage, ...]:
        """The only pipeline; () where there are several: then the output is nobody's alone."""
        if len(self.pipelines) == 1:
            return self.pipelines[0]
        return ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every stage of every pipeline."""
        return tuple(stage for pipeline in self.pipelines for stage in pipeline)

    @property
    def label(self) -> str:
        """The command in one line: no `cd`, no heredoc bodies, no trailing pagers or silenced streams."""
        shown = " && ".join(_format_pipeline(pipeline) for pipeline in self.pipelines)
        shown = _LONG_WORD.sub(lambda word: word[0] if "://" in word[0] else shorten_path(word[0]), shown[:1_000])
        return shorten_to_line(shown, 64)


def find_command(action: Action | None, observation: Observation) -> Command | None:
    """The shell command that `observation` answers; None where the action holds none."""
    text = _find_command_text(action, observation)
    command = parse_command(text[:LONGEST_COMMAND])
    if command.pipelines:
        return command
    return None


def find_output(action: Action | None, observation: Observation) -> UnwrappedOutput:
    """The output of the command, out of its envelope and without the echo that some terminals record before it."""
    envelope = unwrap_output(observation.text)
    typed = [
        line.strip() for line in _find_command_text(action, observation)[:LONGEST_COMMAND].split("\n") if line.strip()
    ]
    body = envelope.body.lstrip()
    if not typed or len(typed[0]) < 8 or body[: len(typed[0])] != typed[0]:
        return envelope
    return UnwrappedOutput(envelope.exit_code, _remove_echo(body, typed))


def _remove_echo(body: str, typed: list[str]) -> str:
    """`body` behind the lines that repeat `typed`; blank lines may be lost in the echo."""
    position = 0
    for expected in typed:
        while True:
            end = body.find("\n", position)
            line = body[position : end if end >= 0 else None]
            if line.strip() or end < 0:
                break
            position = end + 1
        if line.strip() != expected:
            break
        if end < 0:
            return ""
        position = end + 1
    return body[position:]


def _find_command_text(action: Action | None, observation: Observation) -> str:
    if action is None:
        return ""
    arguments = decode_arguments(action)
    if not arguments:
        is_json = action.arguments.lstrip()[:1] in ("{", "[", "")
        return "" if is_json and not action.implicit else action.arguments
    for key in ("command", "cmd", "commands", "script", "input"):
        value = arguments.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return _join_words(key, value)
    if find_tool_name(action, observation).lower() in ("bash", "shell"):
        return find_text_argument(arguments, "code")
    return ""


def _join_words(key: str, words: list[str]) -> str:
    if key == "commands":
        return "\n".join(words)
    if len(words) >= 3 and words[1] in ("-c", "-lc", "-ic"):
        return words[2]
    return " ".join(words)


@lru_cache(maxsize=128)
def parse_command(text: str) -> Command:
    """`text` as pipelines of stages. The small cache serves those who look at the same call in turn, or again."""
    pipelines = []
    for pieces in _split_pipelines(_remove_heredocs(text)):
        texts = [piece for piece in map(str.strip, pieces) if piece and not piece.startswith("#")]
        words = [_skip_wrapper_words(_split_words(_NOISE.sub(" ", piece))) for piece in texts]
        pipelines.append(tuple(map(Stage, texts, words)))
    pipelines = list(filter(None, pipelines))
    informative = [pipeline for pipeline in pipelines if pipeline[0].program not in _TRIVIAL or len(pipeline) > 1]
    redirected = [pipeline for pipeline in pipelines if pipeline[0].program == "echo" and ">" in pipeline[0].text]
    return Command(tuple(informative or redirected or pipelines[-1:]))


def _remove_heredocs(text: str) -> str:
    if _LINE_EDIT.match(text):
        return text.partition("\n")[0]
    for _ in range(20):
        found = _HEREDOC.search(text)
        if found is None:
            break
        line_end = text.find("\n", found.end())
        line_end = line_end if line_end >= 0 else len(text)
        close = re.compile(rf"^[ \t]*{re.escape(found[2])}[ \t]*$", re.MULTILINE).search(text, line_end)
        text = text[: found.start()] + text[found.end() : line_end] + (text[close.end() :] if close else "")
    return text


def _split_pipelines(text: str) -> Iterator[list[str]]:
    """Pipelines as lists of the texts of their stages."""
    pieces: list[str] = [""]
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        depth = max(0, depth + (token == "(") - (token == ")"))
        if depth == 0 and token in ("&&", "||", ";", "\n"):
            yield pieces
            pieces = [""]
        elif depth == 0 and token in ("|", "|&"):
            pieces.append("")
        elif token != "\\\n":
            pieces[-1] += token
    yield pieces


def _split_words(text: str) -> list[str]:
    if "\\" not in text:
        words = _WORD.findall(text)
        if "'" not in words and '"' not in words:
            return [_QUOTES.sub(r"\1\2", word) for word in words]
    try:
        return shlex.split(text)
    except ValueError:  # an open quote: the command was cut, or is no shell
        return text.split()


def _skip_wrapper_words(words: list[str]) -> tuple[str, ...]:
    while words:
        first = words[0].rpartition("/")[2]
        if _ASSIGNMENT.match(words[0]) or first in _WRAPPERS:
            words = list(dropwhile(lambda word: word.startswith("-"), words[1:]))
        elif first == "timeout":
            words = [word for word in words[1:] if not word.startswith("-")][1:]
        elif first in _RUNNERS and words[1:2] == [_RUNNERS[first]]:
            words = words[2:]
        else:
            break
    return tuple(words)


def _format_pipeline(pipeline: tuple[Stage, ...]) -> str:
    kept = list(pipeline)
    while len(kept) > 1 and kept[-1].program in ("head", "tail", "cat", "less"):
        kept.pop()
    return " | ".join(_NOISE.sub("", stage.text).strip() for stage in kept)


def qualify_count(result: str, body: str, command: Command | None = None) -> str:
    """Return `result`, marked as the count of a part of the output unless `body` is all of it."""
    if not result[:1].isdigit():
        return result
    stages = command.pipelines[-1] if command and command.pipelines else ()
    part = _find_chosen_part(stages, body.strip("\n").count("\n") + 1)
    if not part and search_pieces(_CLIPPED, body, _LONGEST_MARK):
        part = "shown:"
    return f"{part} {result}".strip()


def _find_chosen_part(stages: Sequence[Stage], lines: int) -> str:
    """Return which lines of a pipeline's output are here: "first", "last", "shown:"; "" for all of its `lines`."""
    for position, stage in enumerate(stages):
        part, limit = _read_limit(stage)
        is_counted = all(later.program in _WHOLE for later in stages[position + 1 :])
        if part and (lines >= limit or not is_counted):
            return part
    return ""


def _read_limit(stage: Stage) -> tuple[str, int]:
    """Return which lines `stage` lets through, and how many at most: "" for all, 0 where the number is unknown."""
    if stage.program == "sed":
        script = next((found for word in stage.words[1:] if (found := _RANGE.fullmatch(word))), None)
        if script is None or not stage.has_option("-n"):
            return "", 0
        first = int(script[1])
        last = int(script[2] or first) if script[2] != "$" else 0
        return ("first" if first == 1 else "shown:"), last - first + 1
    if stage.program == "head":
        return "first", _find_limit(stage, "-n", "--lines")
    if stage.program == "tail":
        return "last", 0 if "+" in stage.text else _find_limit(stage, "-n", "--lines")
    if stage.program == "grep" and stage.has_option("-m", "--max-count"):
        return "first", _find_limit(stage, "-m", "--max-count")
    return "", 0


def _find_limit(stage: Stage, *options: str) -> int:
    """Return the number of lines that `stage` is limited to, also where it is bundled: `-20`, `-n20`, `-n 20`."""
    for before, word in zip(stage.words, stage.words[1:], strict=False):
        found = _NUMBER.fullmatch(word)
        if found and (word.startswith("-") or before in options):
            return int(found[1])
    return 0 if stage.has_option("-c", "--bytes") else 10
