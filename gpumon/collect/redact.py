"""Command lines without what looks like a secret.

Command lines are recorded and pasted into tickets. What is hidden is hidden by its form: the
value of an option or variable with a secret's name, a password in a URL, and tokens that their
issuer made recognisable. A secret that has neither name nor form cannot be told from a word.
Where in doubt, too much is hidden.
"""

from __future__ import annotations

import os
import re
from typing import List, Match, Sequence, Tuple

from gpumon.model.text import MAX_TEXT, clean

HIDDEN = "‹hidden›"

_MAX_INPUT = 2 * MAX_TEXT  # beyond what is shown, so that no secret is cut before it is seen
_MAX_DEPTH = 3  # words in an argument of a shell in an argument of a shell

_SECRET_NAME = re.compile(
    r"(?:password|passwd|passphrase|passcode|secret|token|credentials?|signature"
    r"|(?:api|access|secret|private|auth|account|encryption|signing|license)_?key)$"
    r"|(?:^|_)(?:bearer|authorization|pat|pw|pass)$|_pwd$"
    r"|^(?:db|ssh|smtp|ftp|root|user|admin|mysql|pg|login)pass$"
)
# Tokenizers have tokens, too, and a multi-pass algorithm has passes.
_HARMLESS_NAME = re.compile(
    r"(?:^|_)(?:eos|bos|pad|unk|sep|cls|mask|stop|special|image|audio|video|start|begin|end|next"
    r"|last|first|per|by|new|add|extra|trigger|control|bad|num|n|class|initializer|placeholder"
    r"|prompt|instance)_?token$|_(?:one|two|multi|num|n|single|first|second)_?pass$"
)
_HARMLESS_VALUES = frozenset(("", "true", "false", "yes", "no", "none", "null", "on", "off"))
_NUMBER = re.compile(r"\d{1,3}$")
#: names that are secrets only in the query of a URL
_QUERY_SECRETS = frozenset(("sig", "key", "code", "auth", "sas"))

_OPTION = re.compile(r"[\"'(]*--?(?P<name>[A-Za-z][\w.-]*)$")
_SHELL_OPTION = re.compile(r"-[a-z]{0,3}c$")  # bash -lc, python -c: the next word is a program
_ASSIGNED = re.compile(
    r"(?P<left>[\"'(+]*-{0,2}(?P<name>[A-Za-z_][\w.\[\]/-]*)=)(?P<value>.*)$", re.S
)
# name=value anywhere: a query, a dict in JSON or Python, a list of settings
_NAMED = re.compile(
    r"(?<![\w.\[\]-])(?P<name>[A-Za-z_][\w.-]*)(?:[\"'\])]{0,3}\s{0,8}=\s{0,8}|[\"']\s{0,8}:\s{0,8})"
)
_VALUE = re.compile(r"\"[^\"]*\"?|'[^']*'?|[^\s\"'&]+")
_HEADER = re.compile(
    r"(?:\b|(?<=-H))(?P<name>(?:proxy-)?authorization|cookie|(?:[a-z]{1,20}-){0,4}(?:key|token|secret))"
    r"(?P<sign>\s*:\s*)(?P<value>[^\"'\s][^\"']*)",
    re.IGNORECASE,
)
_USER_IN_URL = re.compile(
    r"(?P<scheme>(?<![\w+.-])[A-Za-z][\w+.-]*://)"
    # user:password@, unless that is the digest of an image; a user alone is a token to web servers
    r"(?:[^\s/@:]{0,256}:[^\s@]{0,2048}(?:@[^\s@/]+)*@(?!sha\d+:)"
    r"|(?<=http://)[^\s/@]+@|(?<=https://)[^\s/@]+@)"
)
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,}"  # GitHub, GitLab
    r"|hf_[A-Za-z0-9]{16,}|wandb_v\d_\w{20,}|api_org_\w{16,}"  # Hugging Face, Weights & Biases
    r"|sk-[\w-]{16,}|[rs]k_(?:live|test)_\w{16,}|nvapi-[\w-]{16,}|r8_\w{20,}"  # model services
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{16,}"  # AWS, Google
    r"|xox[abeoprs]-[\w-]{10,}|pypi-[\w-]{30,}|npm_[A-Za-z0-9]{30,}|dop_v1_\w{30,}"
    r"|eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"  # JSON web tokens
    r"|(?<![-_])pass:[^\s]+"  # openssl -passin pass:…
    r")"
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*", re.S)
# Weights & Biases' older keys are 40 hexadecimal digits, like commits: only where it is named.
_HEX_40 = re.compile(r"(?<![0-9A-Fa-f])[0-9a-f]{40}(?![0-9A-Fa-f])")

_WORDS = re.compile(r"\s+|(?:\"[^\"]*\"|'[^']*'|[^\s\"'])+|[\"']")

#: program -> its options that take a password, and whether the value may stand apart
_PASSWORD_OPTIONS = {
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mariadb", "7z", "7za"), (("-p",), False)),
    **dict.fromkeys(("sshpass", "mongo", "mongosh", "mongodump"), (("-p",), True)),
    **dict.fromkeys(("zip", "unzip"), (("-P",), True)),
    **dict.fromkeys(("ldapsearch", "ldapmodify", "ldapwhoami"), (("-w",), True)),
    **dict.fromkeys(("redis-cli", "http", "https"), (("-a",), True)),
    "curl": (("-u", "--user", "--proxy-user"), True),
    "smbclient": (("-U",), True),
}
#: ... these only when they log in: elsewhere `-p` is a port
_LOGIN_PROGRAMS = frozenset(("docker", "podman", "apptainer", "singularity", "helm", "oc"))


def redact(argv: Sequence[str]) -> str:
    """The command line as one line of at most 4096 characters, safe to show and to keep."""
    words: List[str] = []
    room = _MAX_INPUT
    for word in argv:
        words.append(clean(word, max(room, 1)))
        room -= len(word) + 1
        if room <= 0:
            break
    shown = " ".join(_redact_words(words, 0))
    if "wandb" in shown.lower():
        shown = _HEX_40.sub(HIDDEN, shown)
    return clean(shown)


def _redact_words(words: List[str], depth: int) -> List[str]:
    """The arguments of one command, or the words of a text with the blanks between them."""
    shown: List[str] = []
    options: Tuple[str, ...] = ()
    apart = hide_next = is_shell_text = False
    login_program = False
    for word in words:
        if not word or word.isspace():
            shown.append(word)
            continue
        option = next(filter(word.startswith, options), "")
        if hide_next and not word.startswith("--"):
            hide_next = False
            shown.append(word if _is_harmless(word) else HIDDEN)
        elif option:
            hide_next = apart and word == option
            shown.append(option + HIDDEN if len(word) > len(option) else word)
        else:
            name = os.path.basename(word)
            options, apart = _PASSWORD_OPTIONS.get(name, (options, apart))
            login_program = login_program or name in _LOGIN_PROGRAMS
            if name == "login" and login_program:
                options, apart = ("-p",), True
            shown.append(_redact_word(word, depth, is_shell_text))
            hide_next = _announces_secret(word)
        is_shell_text = bool(_SHELL_OPTION.match(word))
    return shown


def _announces_secret(word: str) -> bool:
    """`--token`, `Bearer`: the next word is the secret."""
    word = word.strip()
    option = _OPTION.match(word)
    return _is_secret(option.group("name")) if option else word.lower() == "bearer"


def _redact_word(word: str, depth: int, is_shell_text: bool) -> str:
    assigned = None if is_shell_text else _ASSIGNED.match(word)
    if assigned and _is_secret(assigned.group("name")):
        value = assigned.group("value")
        return word if _is_harmless(value) else assigned.group("left") + HIDDEN
    word = _PRIVATE_KEY.sub(HIDDEN, word)
    word = _hide_assigned(_HEADER.sub(_hide_value, word))
    if any(map(str.isspace, word)) and depth < _MAX_DEPTH:
        outer = word[0] if word[0] in "\"'" and word[-1] == word[0] else ""
        inner = _WORDS.findall(word[1:-1] if outer else word)
        word = outer + "".join(_redact_words(inner, depth + 1)) + outer
    word = _USER_IN_URL.sub(rf"\g<scheme>{HIDDEN}@", word)
    return _TOKEN.sub(HIDDEN, word)


def _hide_value(match: Match[str]) -> str:
    return match.group("name") + match.group("sign") + HIDDEN


def _hide_assigned(text: str) -> str:
    """Hide values behind secrets' names. Other values are searched on: `a=1,token=…`."""
    shown: List[str] = []
    position = 0
    while (match := _NAMED.search(text, position)) is not None:
        shown.append(text[position : match.end()])
        position = match.end()
        value = _VALUE.match(text, position)
        name = match.group("name")
        in_query = text[max(0, match.start() - 1) : match.start()] in ("?", "&")
        secret = _is_secret(name) or (in_query and name.lower() in _QUERY_SECRETS)
        if value and secret and not _is_harmless(value.group().strip("\"'")):
            quote = value.group()[0] if value.group()[0] in "\"'" else ""
            shown.append(quote + HIDDEN + quote)
            position = value.end()
    return "".join(shown) + text[position:]


def _is_secret(name: str) -> bool:
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_").rstrip("0123456789_")
    return bool(_SECRET_NAME.search(plain)) and not _HARMLESS_NAME.search(plain)


def _is_harmless(value: str) -> bool:
    """A switch's or a short number's text, which no secret is."""
    return value.lower() in _HARMLESS_VALUES or bool(_NUMBER.match(value))
