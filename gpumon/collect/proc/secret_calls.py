"""Calls in a program's text that take a secret as an argument without a name."""

from __future__ import annotations

import re
from re import Match

from gpumon.collect.proc.secret_names import hides

_OPEN = r"[brfu]{0,2}\\{0,7}[\"']"
_CLOSE = r"\\{0,7}[\"']"
_TEXT = r"[^\"'\\]{1,512}"
#: two texts, the second a value by the name of the first or a password: auth=("user", "…"),
#: os.environ.setdefault("X_TOKEN", "…"); also Sys.setenv
_PAIR = (
    r"(?P<left>\b(?P<call>setdefault|putenv|setenv|login|authenticate|\w{0,20}(?:Basic|Digest|Ntlm)"
    rf"\w{{0,10}}|auth\s{{0,3}}=\s{{0,3}})\(\s{{0,8}}{_OPEN}(?P<name>[^\"'\\]{{0,200}}){_CLOSE}"
    rf"\s{{0,8}},\s{{0,8}}{_OPEN})(?P<value>[^\"'\\]+)"
)
#: the only text, or the first: login("…"), Fernet(b"…"), hmac.new(b"…", …)
_FIRST = (
    r"(?P<left>\b(?:(?:login|authenticate)(?=\([^,()]*(?:,\s*\w+\s*=[^)]*)?\))"
    r"|set_?(?:api_?key|token|password|secret)|Fernet|SecretStr|hmac\.new|ConvertTo-SecureString"
    rf"|(?:from|with)_(?:token|api_key)|(?:Token|Bearer|ApiKey)Auth)(?:\(|\s)\s{{0,8}}{_OPEN})"
    rf"(?P<value>{_TEXT})(?={_CLOSE}(?!\s{{0,8}},\s{{0,8}}{_OPEN}[^\"']*{_CLOSE}\s{{0,8}},))"
)
#: the third of three: connect("host", "user", "…"), set_password("service", "user", "…")
_THIRD = (
    rf"(?P<left>\b(?:\w{{0,20}}connect|set_password)\(\s{{0,8}}{_OPEN}{_TEXT}{_CLOSE}\s{{0,8}},\s{{0,8}}"
    rf"{_OPEN})(?P<second>{_TEXT})(?P<between>{_CLOSE}\s{{0,8}},\s{{0,8}}{_OPEN})(?P<value>{_TEXT})"
)
#: the text behind what is signed: jwt.encode({…}, "…")
_ENCODED = rf"(?P<left>\bjwt\.(?:en|de)code\([^\"']{{0,200}},\s{{0,8}}{_OPEN})(?P<value>{_TEXT})"
#: by a name that means something else elsewhere: login(key="…")
_KEY = (
    r"(?P<left>\b(?:login|authenticate|sign_in|\w{0,20}(?:[Cc]lient|API|AI))\([^()]{0,200}"
    rf"\bkey\s{{0,8}}=\s{{0,8}}{_OPEN})(?P<value>{_TEXT})"
)
#: connect("user/password@host")
_SLASH = (
    rf"(?P<left>\b(?:[Cc]onnect|\w{{0,20}}[Pp]ool)\(\s{{0,8}}{_OPEN}[A-Za-z][\w$#]{{0,30}}/)"
    rf"(?P<value>{_TEXT})"
)
#: a key that does not read as a name, unless the call looks something up by it
_NAMED_KEY = (
    rf"(?P<left>\b(?P<call>\w{{1,40}})\([^()]{{0,200}}?\bkey\s{{0,8}}=\s{{0,8}}{_OPEN})"
    r"(?P<value>(?=[^\"'\\]*\d)[^\s\"'\\_/.-]{6,512})"
)
_LOOKS_UP = frozenset(
    ("get", "pop", "sort", "sorted", "min", "max", "sort_values", "groupby", "merge", "join", "add")
)
#: what is sent to a prompt: send "…\r"
_SENT = (
    r"(?P<left>\bsend(?:_user|line)?(?:\s{1,8}|\()(?:--\s{1,8})?[\"'{]?)"
    r"(?P<value>[^\"'}\s][^\"'}]*)"
)


def hide(text: str, hidden: str) -> str:
    """The text of a program with such arguments hidden."""

    def pair(match: Match[str]) -> str:
        is_name = match.group("call") in ("setdefault", "putenv", "setenv")
        if is_name and not hides(match.group("name"), match.group("value")):
            return match.group()
        return match.group("left") + hidden

    text = re.sub(_PAIR, pair, text)
    text = re.sub(_THIRD, rf"\g<left>{hidden}\g<between>{hidden}", text)
    for pattern in (_FIRST, _ENCODED, _KEY, _SLASH):
        text = re.sub(pattern, rf"\g<left>{hidden}", text)
    text = re.sub(
        _NAMED_KEY,
        lambda key: key.group() if key.group("call") in _LOOKS_UP else key.group("left") + hidden,
        text,
    )
    if re.search(r"(?i)assword|passphrase|\bpin\b|\bspawn\b", text):
        text = re.sub(_SENT, rf"\g<left>{hidden}", text)
    return text
