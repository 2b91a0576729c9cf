"""Command lines without what looks like a secret.

Command lines are recorded and pasted into tickets. A secret is known by its name (an option, a
variable, a key of a dict: `secret_names`), by its form (`secret_forms`), or by its place among
the arguments of a program or a call that takes one there (`secret_programs`, `secret_calls`).
A secret that has none of these looks like any other word. Where in doubt, too much is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from re import Match

from gpumon.collect.proc import secret_calls, secret_forms
from gpumon.collect.proc.secret_names import HARMLESS, hides, is_connection, may_hide, plain
from gpumon.collect.proc.secret_programs import READERS, Program, fed
from gpumon.model.text import MAX_TEXT, clean

HIDDEN = "‹hidden›"

_MAX_INPUT = 2 * MAX_TEXT  # beyond what is shown, so that no secret is cut before it is seen
_MAX_DEPTH = 3  # words in an argument of a shell in an argument of a shell


# patterns are compiled when they are first used, and kept by `re`: all of them take a while
#: names that are secrets only in the query of a URL
_QUERY_SECRETS = r"(?i)(?:^|[-_])(?:sig|key|code|auth|sas|sid|session|signature|credential)$"
#: bare words that only a secret follows: `aws configure set aws_secret_access_key …`
_BARE_NAME = (
    r"(?i)[\w.-]+[._](?:password|passwd|secret|(?:api|access|auth|secret)_?key)$|[\w.-]+\.psk$"
    r"|(?:[\w.-]+[._])?(?:access|api|auth|hf|hub|session)_token$|(?:credential|auth|api)\.token$"
    r"|(?-i:[A-Z][A-Z0-9_]*_TOKEN)$|(?://[\w./:-]+:)?_(?:auth(?:Token)?|password)$"
)

_OPTION = r"[\"'(]*--?(?P<name>[A-Za-z0-9][\w.-]*)$"
_LABEL = r"[A-Za-z_][\w.-]*:$"  # YAML's
_SHELL_OPTION = r"-[a-z]{0,3}c$"  # bash -lc, python -c: then comes a program
_ASSIGNED = r"(?s)(?P<left>[\"'(+]*-{0,2}(?P<name>[A-Za-z0-9_][\w.\[\]/-]*)=)(?P<value>.*)$"
# name=value, name: value anywhere: a query, a dict in JSON, YAML or Python, a list of settings;
# quotes may be escaped as often as shells were in shells, and all of it may be a URL's (%3D)
_NAMED = (
    r"(?i)(?:(?<![\w.\[\]-])|(?<=%2[267C])|(?<=%3F)|(?<=%7B))"
    r"(?P<name>[A-Za-z_][\w.-]*(?:\[\\{0,7}[\"'][\w.-]{1,64}\\{0,7}[\"']\]){0,4})"
    r"(?:\s{0,8}:\s{0,8}(?:str|bytes|String|SecretStr)\s{0,8}=\s{0,8}"
    r"|(?:\\{0,7}[\"'\])}]){0,3}\s{0,8}(?:=>?|:=)\s{0,8}|\\{0,7}[\"']?\s{0,8}:(?!:)\s{0,8}"
    r"|(?:%2[27])?%3[ad](?:%20|\+)?)"
)
_VALUE = (
    r"(?is)(?P<escaped>\\{1,7}[\"']).*?(?:(?P=escaped)|$)|[brfu]{0,2}\"[^\"]*\"?"
    r"|[brfu]{0,2}'[^']*'?|\[[^\]]*\]?|\([^)]*\)?|\{[^}]*\}?"
    r"|(?:%2[27])?(?:(?!%2[267c]|%7d|\\{1,7}[\"'])[^\s\"'&])+|[^\s\"'&]+"
)
_HEADER = (
    r"(?i)(?:\b|(?<=-H))(?P<name>(?:proxy-)?authorization|(?:set-)?cookie|token|apikey|jwt"
    r"|(?:[a-z]{1,20}-){1,4}(?:key|token|secret|auth|password|jwt|pin|session-id|sid))"
    r"(?P<sign>\s*:\s*)(?P<value>[^\"'\s][^\"']*)"
)
_CLASSES = ("\\w", "\\d", "\\s", "\\S")  # of a regular expression
_REFERENCE = r"(?i)(?:(?:bearer|basic|token|apikey)\s+)?\$[({]?\w+[)}]?\s*$"
_SQL = r"(?i)(?P<left>\b(?:identified\s{1,8}by|password)\s{1,8}\\{0,7}')[^'\\]+"
_USER_IN_URL = (
    r"(?P<scheme>(?<![\w+.-])[A-Za-z][\w+.-]*://)"
    # user:password@, unless that is an image's digest; a user alone is a token to web servers
    r"(?:[^\s/@:]{0,256}:[^\s@]{0,2048}(?:@[^\s@/]+)*@(?!sha\d+:)"
    r"|(?<=http://)[^\s/@]+@|(?<=https://)[^\s/@]+@)"
)
#: user:password@host:port without a scheme, as proxies are given
_USER_AT_HOST = (
    r"(?P<left>^|=)(?!mailto:|git:|ssh:)[\w.+-]{1,64}:(?=[^\s@/:]*\d)[^\s@/:,]{6,128}"
    r"@(?=[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}(?::\d{1,5}|\.[a-z]{2,12})(?:/|$))"
)
_USER_PERCENT = r"(?P<left>\buser(?:name)?=[^,%\s]{1,64}%)[^,\s]+"  # of mount -o
_CVS = r"(?P<left>:[a-z]{0,3}(?:pserver|ext):)[^\s@]{1,256}@"
#: Oracle's user/password@host:port/service, @//host
_USER_SLASH = (
    r"(?P<left>(?:^|(?<=[\s='\"(]))[A-Za-z][\w$#]{0,30}/)[^\s/'\"]{1,128}"
    r"@(?=//|\(DESC|[\w.-]{1,253}:\d{1,5}/)"
    # with a bare host only what is neither a version of something nor reads as a name
    r"|(?P<user>^[A-Za-z][\w$#]{0,30}/)(?=[^@]*\d)[^\s/'\"@-]{5,64}@(?=[A-Za-z][\w.-]*$)"
    r"(?!(?:v?\d[\w.]*|main|master|latest|head|dev\w*|stable|nightly|[0-9a-f]{7,40})$)"
)
#: ... of programs that take it, and behind names of connections, with any host or none
_AFTER_SLASH = r"(?P<left>^[\"']?(?:userid=)?[A-Za-z][\w$#.\[\]]*/)\S+"
_FORMS = "|".join(
    f"{prefix}{chars}{{{least},}}" if least else prefix + chars
    for prefix, chars, least in secret_forms.TOKENS
)
_TOKEN = rf"(?<![A-Za-z0-9])(?:{_FORMS})"
_SHORTEST_TOKEN = 12
_PRIVATE_KEY = r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*"
# Weights & Biases' older keys are 40 hexadecimal digits, like commits: only where it is named,
# and neither within a path or name nor behind what announces a commit.
_HEX_40 = (
    r"(?<![\w./-])(?<!commit[= ])(?<!sha[= ])(?<!rev[= ])(?<!revision[= ])(?<!hash[= ])"
    r"(?<!checkout )(?<!reset --hard )[0-9a-f]{40}(?![\w./-])"
)

_QUOTED = r"(?P<quote>[\"'])(?P<inner>[^\"']*)(?P=quote)"
_ITEM = r"([\"'])([^\"']*)\1"
_LIST = r"\[\s{0,8}(?:[\"'][^\"']*[\"']\s{0,8},\s{0,8}){1,64}[\"'][^\"']*[\"']\s{0,8},?\s{0,8}\]"
#: words, blanks, and the pipes into programs that read passwords
_PIPE = rf"\|(?=\s{{0,8}}(?:{'|'.join(READERS)})\b)"
_WORDS = rf"\s+|{_PIPE}|(?:\"[^\"]*\"|'[^']*'|(?!{_PIPE})[^\s\"'])+|[\"']"


def redact(argv: Sequence[str]) -> str:
    """The command line as one line of at most 4096 characters, safe to show and to keep."""
    words: list[str] = []
    room = _MAX_INPUT
    for word in argv:
        words.append(clean(word, max(room, 1)))
        room -= len(word) + 1
        if room <= 0:
            break
    shown = " ".join(_redact_words(words, 0, Program()))
    if "wandb" in shown.lower():
        shown = re.sub(_HEX_40, HIDDEN, shown)
    return clean(shown)


def _redact_words(words: list[str], depth: int, program: Program) -> list[str]:
    """The arguments of one command, or the words of a text with the blanks between them."""
    shown: list[str] = []
    is_shell_text = False
    announced = ""  # the name of the value that the next word is
    to_readers = fed(words)
    for place, word in enumerate(words):
        if not word or word.isspace():
            shown.append(word)
            announced = announced if word else ""
            continue
        option, apart = program.option_of(word)
        is_secret = program.takes_secret(word)
        if place in to_readers:
            shown.append(HIDDEN)
        elif announced and not word.startswith("--") and hides(announced, word):
            announced = ""
            shown.append(HIDDEN)
        elif option:
            announced = "password" if apart else ""
            value = word[len(option) :].lstrip("=")
            shown.append(word if apart or not hides("password", value) else option + HIDDEN)
        elif is_secret:
            announced = ""
            shown.append(HIDDEN)
        else:
            program.see(word)
            shown.append(_redact_argument(word, announced, depth, is_shell_text, program))
            is_name = program.is_harmless(word) or program.is_named(word)
            announced = "" if is_name else _announced_by(word)
        is_shell_text = bool(re.match(_SHELL_OPTION, word))
    return shown


def _redact_argument(
    word: str, announced: str, depth: int, is_shell_text: bool, program: Program
) -> str:
    """A word in which a secret may stand."""
    name, sign, value = word.rpartition("=")
    if program.assigns_secrets and re.match(r"[\w-]+=.", word):
        return word[: word.index("=") + 1] + HIDDEN
    if program.takes_user_slash or ("/" in word and is_connection(name or announced)):
        hidden = re.sub(_AFTER_SLASH, rf"\g<left>{HIDDEN}", value)
        if hidden != value and (program.takes_user_slash or "@" in value):
            return name + sign + hidden
    if program.takes_user_colon and re.match(r"[\w./-]+:\S+@", word):
        return f"{HIDDEN}@{word.rpartition('@')[2]}"
    return _redact_word(word, depth, is_shell_text, program)


def _announced_by(word: str) -> str:
    """The name of the value in the next word: of `--token`, `api_key:`, `Bearer`; else ""."""
    word = word.strip()
    option = re.match(_OPTION, word) if "-" in word else None
    if option:
        return option.group("name")
    if word.lower() == "bearer" or (("." in word or "_" in word) and re.match(_BARE_NAME, word)):
        return "token"
    return word[:-1] if word.endswith(":") and re.match(_LABEL, word) else ""


def _redact_word(word: str, depth: int, is_shell_text: bool, program: Program) -> str:
    is_one = "=" in word and not is_shell_text and not program.is_harmless(word)
    assigned = re.match(_ASSIGNED, word) if is_one else None
    if assigned and hides(assigned.group("name"), assigned.group("value")):
        return assigned.group("left") + HIDDEN
    if "-----BEGIN" in word:
        word = re.sub(_PRIVATE_KEY, HIDDEN, word)
    if "'" in word or '"' in word or "spawn" in word:
        word = re.sub(_SQL, rf"\g<left>{HIDDEN}", secret_calls.hide(word, HIDDEN))
        if "[" in word and depth < _MAX_DEPTH:
            word = re.sub(_LIST, _redact_list, word)
    if ":" in word:
        word = re.sub(_HEADER, _hide_value, word)
    if (":" in word or "=" in word or "%3" in word) and not program.is_harmless(word):
        word = _hide_assigned(word)
    if any(map(str.isspace, word)) and depth < _MAX_DEPTH:
        outer = word[0] if word[0] in "\"'" and word[-1] == word[0] else ""
        text = word[1:-1] if outer else word
        word = outer + _redact_text(text, depth + 1, program) + outer
    if "@" in word:
        word = re.sub(_USER_IN_URL, rf"\g<scheme>{HIDDEN}@", word)
        word = re.sub(_USER_SLASH, rf"\g<left>\g<user>{HIDDEN}@", word)
        for pattern in (_USER_AT_HOST, _CVS):
            word = re.sub(pattern, rf"\g<left>{HIDDEN}@", word)
    if "%" in word:
        word = re.sub(_USER_PERCENT, rf"\g<left>{HIDDEN}", word)
    if "/" in word:
        word = re.sub(secret_forms.WEBHOOK, rf"\g<left>{HIDDEN}", word)
    for part, pattern in secret_forms.TOKENS_WITHIN:
        if part in word:
            word = re.sub(pattern, HIDDEN, word)
    return re.sub(_TOKEN, HIDDEN, word) if len(word) >= _SHORTEST_TOKEN else word


def _redact_text(text: str, depth: int, program: Program) -> str:
    """Text with blanks: a command, a program, or prose."""
    words = re.findall(_WORDS, text)
    if len(words) > 1:
        return "".join(_redact_words(words, depth, Program(program)))

    def quoted(match: Match[str]) -> str:
        inner = match.group("inner")
        if not any(map(str.isspace, inner)):
            return match.group()
        quote = match.group("quote")
        return quote + _redact_text(inner, depth, program) + quote

    return re.sub(_QUOTED, quoted, text)


def _redact_list(match: Match[str]) -> str:
    """The arguments of a command in a list: ["mysql", "-p…"]."""
    words = re.findall(_ITEM, match.group())
    shown = iter(_redact_words([inner for _, inner in words], _MAX_DEPTH, Program()))
    return re.sub(_ITEM, lambda item: item[1] + next(shown) + item[1], match.group())


def _hide_value(match: Match[str]) -> str:
    if re.match(_REFERENCE, match.group("value")):
        return match.group()
    return match.group("name") + match.group("sign") + HIDDEN


def _hide_assigned(text: str) -> str:
    """Hide values behind secrets' names. Other values are searched on: `a=1,token=…`."""
    shown: list[str] = []
    position = 0
    while (match := re.compile(_NAMED).search(text, position)) is not None:
        shown.append(text[position : match.end()])
        position = match.end()
        name = match.group("name")
        in_query = text[max(0, match.start() - 1) : match.start()] in ("?", "&")
        if in_query and re.search(_QUERY_SECRETS, name) and not re.search(HARMLESS, plain(name)):
            name = "token"
        if not may_hide(name):
            continue
        value = re.compile(_VALUE).match(text, position)
        if (
            value
            and value.group()[:2] not in _CLASSES
            and hides(name, value.group().strip("\\\"'"))
        ):
            quote = value.group("escaped") or value.group()[0]
            quote = quote if quote[-1] in "\"'" else ""
            shown.append(quote + HIDDEN + quote)
            position = value.end()
    return "".join(shown) + text[position:]
