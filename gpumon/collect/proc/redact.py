"""Command lines without what looks like a secret.

Command lines are recorded and pasted into tickets. What is hidden is hidden by its form: the
value of an option or variable with a secret's name, a password in a URL, and tokens that their
issuer made recognisable. A secret that has neither name nor form looks like any other word.
Where in doubt, too much is hidden.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from re import Match

from gpumon.collect.proc import secret_forms
from gpumon.collect.proc.secret_forms import HARMLESS_NAME, SECRET_NAME
from gpumon.model.text import MAX_TEXT, clean

HIDDEN = "‹hidden›"

_MAX_INPUT = 2 * MAX_TEXT  # beyond what is shown, so that no secret is cut before it is seen
_MAX_DEPTH = 3  # words in an argument of a shell in an argument of a shell


# patterns are compiled when they are first used, and kept by `re`: all of them take a while
_HARMLESS_VALUES = frozenset(("", "true", "false", "yes", "no", "none", "null", "on", "off"))
#: so many tokens (4096, 100_000, 1e9, 300B), or what a call gives: tokens = tokenizer(…)
_COUNT = r"(?i)[\[(]?\d[\d_.,]*(?:e[+-]?\d+)?[kmbt]?[\])},;]*$|[a-z_][\w.]*\("
_PATH = r"(?:~|\.{1,2})?/[\w.~/+-]*$"
_UUID = r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_HOLDS_FILES = ("credential", "credentials", "creds", "cookie", "cookies")
_LOGIN_NAMES = frozenset(("auth", "basic_auth", "login", "userpwd", "proxy_auth"))
_NO_SIGNS = str.maketrans("", "", "+=/")
#: names that are secrets only in the query of a URL
_QUERY_SECRETS = r"(?i)(?:^|[-_])(?:sig|key|code|auth|sas|signature|credential)$"
#: bare words that only a secret follows: `aws configure set aws_secret_access_key …`
_BARE_NAME = (
    r"(?i)[\w.-]+[._](?:password|passwd|secret|(?:api|access|auth|secret)_?key)$"
    r"|(?:[\w.-]+[._])?(?:access|api|auth|hf|hub|session)_token$"
    r"|(?-i:[A-Z][A-Z0-9_]*_TOKEN)$|(?://[\w./:-]+:)?_auth(?:Token)?$"
)

_OPTION = r"[\"'(]*--?(?P<name>[A-Za-z][\w.-]*)$"
_LABEL = r"[A-Za-z_][\w.-]*:$"  # YAML's
_SHELL_OPTION = r"-[a-z]{0,3}c$"  # bash -lc, python -c: then comes a program
_ASSIGNED = r"(?s)(?P<left>[\"'(+]*-{0,2}(?P<name>[A-Za-z_][\w.\[\]/-]*)=)(?P<value>.*)$"
# name=value, name: value anywhere: a query, a dict in JSON, YAML or Python, a list of settings;
# quotes may be escaped as often as shells were in shells, and all of it may be a URL's (%3D)
_NAMED = (
    r"(?i)(?:(?<![\w.\[\]-])|(?<=%2[267C])|(?<=%3F)|(?<=%7B))(?P<name>[A-Za-z_][\w.-]*)"
    r"(?:(?:\\{0,7}[\"'\])]){0,3}\s{0,8}(?:=>?|:=)\s{0,8}|\\{0,7}[\"']?\s{0,8}:(?!:)\s{0,8}"
    r"|(?:%2[27])?%3[ad](?:%20|\+)?)"
)
_VALUE = (
    r"(?is)(?P<escaped>\\{1,7}[\"']).*?(?:(?P=escaped)|$)|[brfu]{0,2}\"[^\"]*\"?"
    r"|[brfu]{0,2}'[^']*'?|\[[^\]]*\]?|\([^)]*\)?"
    r"|(?:%2[27])?(?:(?!%2[267c]|%7d|\\{1,7}[\"'])[^\s\"'&])+|[^\s\"'&]+"
)
_HEADER = (
    r"(?i)(?:\b|(?<=-H))(?P<name>(?:proxy-)?authorization|cookie"
    r"|(?:[a-z]{1,20}-){1,4}(?:key|token|secret|auth|password))"
    r"(?P<sign>\s*:\s*)(?P<value>[^\"'\s][^\"']*)"
)
#: pairs of arguments: auth=("user", "…"), os.environ.setdefault("X_TOKEN", "…")
_PAIR = (
    r"(?P<left>\b(?P<call>setdefault|putenv|setenv|login|\w{0,20}BasicAuth"
    r"|auth\s{0,3}=\s{0,3})\(\s{0,8}\\{0,7}[\"'](?P<name>[^\"'\\]{0,200})\\{0,7}[\"']"
    r"\s{0,8},\s{0,8}\\{0,7}[\"'])(?P<value>[^\"'\\]+)"
)
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

_WORDS = r"\s+|(?:\"[^\"]*\"|'[^']*'|[^\s\"'])+|[\"']"


def redact(argv: Sequence[str]) -> str:
    """The command line as one line of at most 4096 characters, safe to show and to keep."""
    words: list[str] = []
    room = _MAX_INPUT
    for word in argv:
        words.append(clean(word, max(room, 1)))
        room -= len(word) + 1
        if room <= 0:
            break
    shown = " ".join(_redact_words(words, 0))
    if "wandb" in shown.lower():
        shown = re.sub(_HEX_40, HIDDEN, shown)
    return clean(shown)


def _redact_words(words: list[str], depth: int) -> list[str]:
    """The arguments of one command, or the words of a text with the blanks between them."""
    shown: list[str] = []
    program = _Program()
    is_shell_text = False
    announced = ""  # the name of the value that the next word is
    for word in words:
        if not word or word.isspace():
            shown.append(word)
            continue
        option, apart = program.option_of(word)
        is_secret = program.takes_secret(word)
        if announced and not word.startswith("--") and _hides(announced, word):
            announced = ""
            shown.append(HIDDEN)
        elif option:
            announced = "password" if apart else ""
            shown.append(word if apart else option + HIDDEN)
        elif is_secret:
            announced = ""
            shown.append(HIDDEN)
        else:
            program.see(word)
            shown.append(_redact_word(word, depth, is_shell_text))
            announced = _announced_by(word)
        is_shell_text = bool(re.match(_SHELL_OPTION, word))
    return shown


class _Program:
    """The program whose arguments are read, and which of them are passwords by their place."""

    def __init__(self) -> None:
        self._joined: tuple[str, ...] = ()
        self._apart: tuple[str, ...] = ()
        self._logs_in = False
        self._places: dict[str, int] = {}
        self._left = 0  # arguments until the secret one

    def see(self, word: str) -> None:
        """A word that is not a password: perhaps the program's name, or what comes before one."""
        name = os.path.basename(word)
        if name in secret_forms.PASSWORD_OPTIONS:
            self._joined, self._apart = secret_forms.PASSWORD_OPTIONS[name]
        self._logs_in = self._logs_in or name in secret_forms.LOGIN_PROGRAMS
        if name == "login" and self._logs_in:
            self._joined = self._apart = ("-p",)
        if name in secret_forms.SECRET_ARGUMENTS:
            self._places = secret_forms.SECRET_ARGUMENTS[name]
        if word in self._places or name in self._places:
            self._left = self._places.get(word) or self._places[name]

    def option_of(self, word: str) -> tuple[str, bool]:
        """The option that this word is or begins with, and whether its value is the next word."""
        if word in self._apart:
            return word, True
        for option in self._joined:
            if word.startswith(option + "=") or (
                word.startswith(option) and word != option and not option.startswith("--")
            ):
                return option, False
        return "", False

    def takes_secret(self, word: str) -> bool:
        if not self._left or word.startswith("-"):
            return False
        self._left -= 1
        return not self._left


def _announced_by(word: str) -> str:
    """The name of the value in the next word: of `--token`, `api_key:`, `Bearer`; else ""."""
    word = word.strip()
    option = re.match(_OPTION, word)
    if option:
        return option.group("name")
    if word.lower() == "bearer" or re.match(_BARE_NAME, word):
        return "token"
    return word[:-1] if re.match(_LABEL, word) else ""


def _redact_word(word: str, depth: int, is_shell_text: bool) -> str:
    assigned = None if is_shell_text else re.match(_ASSIGNED, word)
    if assigned and _hides(assigned.group("name"), assigned.group("value")):
        return assigned.group("left") + HIDDEN
    if "-----BEGIN" in word:
        word = re.sub(_PRIVATE_KEY, HIDDEN, word)
    if "'" in word or '"' in word:
        word = re.sub(_SQL, rf"\g<left>{HIDDEN}", re.sub(_PAIR, _hide_pair, word))
    if ":" in word:
        word = re.sub(_HEADER, _hide_value, word)
    if ":" in word or "=" in word or "%3" in word:
        word = _hide_assigned(word)
    if any(map(str.isspace, word)) and depth < _MAX_DEPTH:
        outer = word[0] if word[0] in "\"'" and word[-1] == word[0] else ""
        inner = re.findall(_WORDS, word[1:-1] if outer else word)
        word = outer + "".join(_redact_words(inner, depth + 1)) + outer
    if "@" in word:
        word = re.sub(_USER_IN_URL, rf"\g<scheme>{HIDDEN}@", word)
        word = re.sub(_USER_AT_HOST, rf"\g<left>{HIDDEN}@", word)
    if "/" in word:
        word = re.sub(secret_forms.WEBHOOK, rf"\g<left>{HIDDEN}", word)
    for part, pattern in secret_forms.TOKENS_WITHIN:
        if part in word:
            word = re.sub(pattern, HIDDEN, word)
    return re.sub(_TOKEN, HIDDEN, word) if len(word) >= _SHORTEST_TOKEN else word


def _hide_pair(match: Match[str]) -> str:
    is_name = match.group("call") in ("setdefault", "putenv", "setenv")
    if is_name and not _hides(match.group("name"), match.group("value")):
        return match.group()
    return match.group("left") + HIDDEN


def _hide_value(match: Match[str]) -> str:
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
        if in_query and re.search(_QUERY_SECRETS, name):
            name = "token"
        if not _may_hide(name):
            continue
        value = re.compile(_VALUE).match(text, position)
        if value and _hides(name, value.group().strip("\\\"'")):
            quote = value.group("escaped") or value.group()[0]
            quote = quote if quote[-1] in "\"'" else ""
            shown.append(quote + HIDDEN + quote)
            position = value.end()
    return "".join(shown) + text[position:]


def _may_hide(name: str) -> bool:
    """Whether there is a value of this name that is to be hidden."""
    plain = _plain(name)
    return (
        plain.endswith(("key", "auth", "secret_id")) or plain in _LOGIN_NAMES or _is_secret(plain)
    )


def _hides(name: str, value: str) -> bool:
    """Whether a value of this name is to be hidden."""
    if value.lower() in _HARMLESS_VALUES or re.match(secret_forms.HARMLESS_VALUE, value):
        return False
    plain = _plain(name)
    if plain.endswith("pwd") and value[0] in "/~.$":
        return False
    if plain.endswith(_HOLDS_FILES) and re.match(_PATH, value):
        return False
    if plain.endswith("tokens") and re.match(_COUNT, value):
        return False
    if plain.endswith("secret_id"):
        return bool(re.match(_UUID, value))
    if (
        plain.endswith(("key", "auth"))
        and _is_random(value)
        and not re.search(HARMLESS_NAME, plain)
    ):
        return True  # else what sorts, or an image's name
    return _is_secret(plain) or (plain in _LOGIN_NAMES and (":" in value or value[:1] == "("))


def _is_secret(plain: str) -> bool:
    return bool(re.search(SECRET_NAME, plain)) and not _is_harmless(plain)


def _is_harmless(plain: str) -> bool:
    return bool(re.search(HARMLESS_NAME, plain))


def _plain(name: str) -> str:
    """`--Client.Secret2` as `client_secret`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_").rstrip("0123456789_")


def _is_random(value: str) -> bool:
    """Twenty or more letters and digits in one word, as issuers of keys make them."""
    letters = value.translate(_NO_SIGNS)
    digits = sum(map(str.isdigit, letters))
    return len(letters) >= 20 and letters.isalnum() and 3 <= digits < len(letters)
