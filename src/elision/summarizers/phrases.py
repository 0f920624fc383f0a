"""How texts begin that are no summaries: refusals, errors, tool calls, the task continued, orders.

Only beginnings are checked: a summary may well mention a refusal or an error further down.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Final

# By language; pieces of regular expressions, words apart by one space.
_REFUSALS: Final = {
    "English": (
        r"(?:i['’]m|i am|we['’]re|we are) (?:(?:really|very|so|truly) )?sorry",
        r"sorry,? (?:but )?i",
        r"(?:my )?apologies",
        r"i apologi[sz]e",
        r"(?:i|we) (?:cannot|can['’]?t|could not|won['’]?t|will not|must decline|am unable|am not able|are unable)",
        r"i['’]m (?:unable|not able)",
        r"unfortunately,? i",
        r"as an ai",
    ),
    "German": (r"(?:es )?tut mir leid", r"leider kann ich", r"ich kann (?:\w+ ){0,4}nicht"),
    "French": (r"(?:je suis )?désolée?", r"je (?:ne )?peux pas"),
    "Spanish": (r"lo siento", r"no puedo"),
    "Portuguese": (r"desculpe", r"sinto muito", r"não posso"),
    "Italian": (r"mi dispiace", r"non posso"),
    "Dutch": (r"het spijt me", r"ik kan (?:\w+ ){0,4}niet"),
    "Swedish, Danish, Norwegian": (r"tyvärr", r"desværre", r"beklager"),
    "Polish, Czech": (r"przykro mi", r"nie mogę", r"omlouvám se"),
    "Turkish": (r"üzgünüm",),
    "Russian, Ukrainian": (r"извините", r"к сожалению", r"я не могу", r"вибачте", r"на жаль"),
    "Chinese": (r"(?:很|非常)?抱歉", r"对不起", r"對不起", r"我(?:无法|無法|不能)"),
    "Japanese": (r"申し訳", r"すみません", r"ごめんなさい"),
    "Korean": (r"죄송", r"미안"),
    "Arabic, Hindi": (r"عذر", r"آسف", r"क्षमा", r"मुझे खेद"),
    "Vietnamese, Indonesian": (r"xin lỗi", r"maaf"),
}
_ERRORS: Final = (
    r"<!doctype html",
    r"<html\b",
    r"<\?xml\b",
    r"\{ ?\"(?:error|errors|detail|message|type|code)\" ?:",
    r"traceback \(most recent call last\)",
    r"(?:\w{1,40}\.){0,6}\w{0,40}(?:Error|Exception) ?[:(]",
    r"(?:api |http |server |upstream )?(?:error|exception) ?(?:code|response|\d|[:(]|from|while|occurred)",
    r"(?:http/\d\S{0,3} |status:? |status code:? )?[45]\d\d\W{1,4}(?:bad|unauthor|forbidden|not|too|request|internal|"
    r"service|gateway|payload)",
    r"rate limit",
    r"too many requests",
    r"internal server error",
    r"service (?:temporarily )?unavailable",
    r"bad gateway",
    r"gateway time-?out",
    r"(?:the )?request (?:timed out|failed)",
    r"overloaded",
    r"insufficient[_ ]quota",
    r"context[_ ]length[_ ]exceeded",
    r"prompt is too long",
    r"this model's maximum",
    r"upstream connect",
    r"connection (?:error|reset|refused|aborted)",
    r"an? (?:unexpected |internal )?error (?:has )?occurred",
    r"you exceeded your",
    r"invalid (?:api key|request)",
)
_CALLS: Final = (
    r"<(?:tool_call|function_calls?|function=|invoke|tool_use|\|tool)",
    r"\[TOOL_CALLS\]",
    r"<\|python_tag\|>",
    r"\{\s?\"(?:name|tool|function|tool_calls?|command)\"\s?:",
    r"```(?:bash|sh|shell|python|tool_code|json)\s[^`]{1,4000}```\s*\Z",
    r"thought:[^`]{0,4000}\n(?:action|```)",
)
# What comes next, where a summary reports what was done.
_GOING_ON: Final = (
    r"(?:(?:okay|ok|sure|now|great|next|alright|perfect)[,.!:]? )?"
    r"(?:let me|let['’]s|i['’]ll|i will|i['’]m going to|i need to) (?!summar|provide|write|give|create)\w",
    r"lass mich",
    r"ich werde",
    r"je vais",
    r"voy a",
    r"我将",
    r"我会",
    r"让我",
)
# Orders to the reader: the agent would take them for a new request of the user.
_ORDERS: Final = (
    r"please ",
    r"you (?:must|should|need to|have to|will now) ",
    r"your (?:next )?task (?:is|now) ",
    r"continue (?:with|by|from) ",
    r"proceed (?:with|to) ",
    r"ignore (?:all|any|the|previous) ",
    r"new (?:task|instructions?):",
    r"bitte ",
    r"du musst ",
    r"请",
    r"veuillez ",
    r"por favor",
)


def _compile_beginning(pieces: Iterable[str], marks: str = r"[\W_]*") -> re.Pattern[str]:
    """Return a pattern for any of `pieces` at the beginning, after `marks`."""
    return re.compile(rf"{marks}(?:{'|'.join(pieces)})", re.IGNORECASE)


def _end_word(piece: str) -> str:
    """Return `piece` such that a word ends with it; scripts without spaces have no such ends."""
    return rf"{piece}\b" if piece[-1].isascii() else piece


_REFUSAL: Final = _compile_beginning(map(_end_word, chain.from_iterable(_REFUSALS.values())))
_ERROR: Final = _compile_beginning(_ERRORS, r"\s*")
_CALL: Final = _compile_beginning(_CALLS, r"\s*")
_GOES_ON: Final = _compile_beginning(_GOING_ON)
_ORDER: Final = _compile_beginning(_ORDERS)


def is_refusal(start: str) -> bool:
    """Return whether a text that begins with `start`, on one line, is a refusal."""
    return bool(_REFUSAL.match(start))


def is_error_text(start: str) -> bool:
    """Return whether a text that begins with `start` is an error of a server or a client."""
    return bool(_ERROR.match(start))


def is_tool_call(text: str) -> bool:
    """Return whether the whole `text` is the call of a tool, in one of the forms that models write into text."""
    return bool(_CALL.match(text))


def is_continuing_task(start: str) -> bool:
    """Return whether a text that begins with `start` continues the task."""
    return bool(_GOES_ON.match(start))


def is_giving_orders(start: str) -> bool:
    """Return whether a text that begins with `start` gives orders to its reader."""
    return bool(_ORDER.match(start))
