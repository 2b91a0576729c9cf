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
    r"(?:password|passwd|passphrase|passcode|secret|token|credentials?|cookies?|webhook_url"
    r"|(?:api|access|secret|private|auth|account|encryption|signing|license|app|master|shared"
    r"|storage|subscription|aws|azure|comet|hf|huggingface|ngc|openai|wandb)_?key)$"
    r"|(?:^|_)(?:bearer|authorization|pat|pw|pass)$|_pwd$"
    r"|^(?:db|ssh|smtp|ftp|root|user|admin|mysql|pg|login)pass$"
)
# Tokenizers have tokens, too, and a multi-pass algorithm has passes.
_HARMLESS_NAME = re.compile(
    r"(?:^|_)(?:eos|bos|pad|unk|sep|cls|mask|stop|special|image|audio|video|start|begin|end|next"
    r"|last|first|per|by|new|add|extra|trigger|control|bad|num|n|class|initializer|placeholder"
    r"|prompt|instance|max|min|total|early)_?token$"
    r"|_(?:one|two|multi|num|n|single|first|second)_?pass$"
)
_HARMLESS_VALUES = frozenset(("", "true", "false", "yes", "no", "none", "null", "on", "off"))
#: a short number; a word of a tokenizer's own: <think>, <|end|>, [MASK]
_HARMLESS = re.compile(r"\d{1,3}$|</?[\w|-]{1,30}>$|\[[A-Z_]{1,20}\]$")
_PATH = re.compile(r"(?:~|\.{1,2})?/[\w.~/+-]*$")
_LOGIN_NAMES = frozenset(("auth", "basic_auth", "login", "userpwd", "proxy_auth"))
_NO_SIGNS = str.maketrans("", "", "+=")
#: names that are secrets only in the query of a URL
_QUERY_SECRETS = re.compile(r"(?:^|[-_])(?:sig|key|code|auth|sas|signature|credential)$", re.I)
#: bare words that only a secret follows: `aws configure set aws_secret_access_key …`
_BARE_NAME = re.compile(
    r"\w+[._](?:password|passwd|secret|(?:api|access|auth|secret)_?key)$"
    r"|(?:\w+[._])?(?:access|api|auth|hf|hub)_token$",
    re.I,
)

_OPTION = re.compile(r"[\"'(]*--?(?P<name>[A-Za-z][\w.-]*)$")
_LABEL = re.compile(r"[A-Za-z_][\w.-]*:$")  # YAML's
_SHELL_OPTION = re.compile(r"-[a-z]{0,3}c$")  # bash -lc, python -c: the next word is a program
_ASSIGNED = re.compile(
    r"(?P<left>[\"'(+]*-{0,2}(?P<name>[A-Za-z_][\w.\[\]/-]*)=)(?P<value>.*)$", re.S
)
# name=value, name: value anywhere: a query, a dict in JSON, YAML or Python, a list of settings
_NAMED = re.compile(
    r"(?<![\w.\[\]-])(?P<name>[A-Za-z_][\w.-]*)(?:[\"'\])]{0,3}\s{0,8}=\s{0,8}|[\"']?\s{0,8}:\s{0,8})"
)
_VALUE = re.compile(r"\"[^\"]*\"?|'[^']*'?|[^\s\"'&]+")
_HEADER = re.compile(
    r"(?:\b|(?<=-H))(?P<name>(?:proxy-)?authorization|cookie|(?:[a-z]{1,20}-){1,4}(?:key|token|secret))"
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
    r"|gsk_\w{20,}|pplx-\w{20,}|tvly-[\w-]{16,}|lsv2_[ps][tk]_\w{20,}|local-[0-9a-f]{40}"
    r"|dapi[0-9a-f]{32}|SG\.[\w-]{16,}\.[\w-]{16,}"  # Databricks, SendGrid
    r"|xox[abeoprs]-[\w-]{10,}|pypi-[\w-]{30,}|npm_[A-Za-z0-9]{30,}|dop_v1_\w{30,}"
    r"|eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"  # JSON web tokens
    r"|(?<![-_])pass:[^\s]+"  # openssl -passin pass:…
    r")"
)
#: what messengers take as the right to post
_WEBHOOK = re.compile(
    r"(?P<left>hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/\d+/"
    r"|api\.telegram\.org/bot)[^\s\"'/][^\s\"']*"
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
    **dict.fromkeys(("rar", "unrar"), (("-p", "-hp"), False)),
    "curl": (("-u", "-U", "-b", "--user", "--proxy-user"), True),
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
    apart = is_shell_text = False
    announced = ""  # the name of the value that the next word is
    login_program = False
    for word in words:
        if not word or word.isspace():
            shown.append(word)
            continue
        option = next(filter(word.startswith, options), "")
        if announced and not word.startswith("--") and _hides(announced, word):
            announced = ""
            shown.append(HIDDEN)
        elif option:
            announced = "password" if apart and word == option else ""
            shown.append(option + HIDDEN if len(word) > len(option) else word)
        else:
            name = os.path.basename(word)
            options, apart = _PASSWORD_OPTIONS.get(name, (options, apart))
            login_program = login_program or name in _LOGIN_PROGRAMS
            if name == "login" and login_program:
                options, apart = ("-p",), True
            shown.append(_redact_word(word, depth, is_shell_text))
            announced = _announced_by(word)
        is_shell_text = bool(_SHELL_OPTION.match(word))
    return shown


def _announced_by(word: str) -> str:
    """The name of the value in the next word: of `--token`, `api_key:`, `Bearer`; else ""."""
    word = word.strip()
    option = _OPTION.match(word)
    if option:
        return option.group("name")
    if word.lower() == "bearer" or _BARE_NAME.match(word):
        return "token"
    return word[:-1] if _LABEL.match(word) else ""


def _redact_word(word: str, depth: int, is_shell_text: bool) -> str:
    assigned = None if is_shell_text else _ASSIGNED.match(word)
    if assigned and _hides(assigned.group("name"), assigned.group("value")):
        return assigned.group("left") + HIDDEN
    word = _PRIVATE_KEY.sub(HIDDEN, word)
    word = _hide_assigned(_HEADER.sub(_hide_value, word))
    if any(map(str.isspace, word)) and depth < _MAX_DEPTH:
        outer = word[0] if word[0] in "\"'" and word[-1] == word[0] else ""
        inner = _WORDS.findall(word[1:-1] if outer else word)
        word = outer + "".join(_redact_words(inner, depth + 1)) + outer
    word = _USER_IN_URL.sub(rf"\g<scheme>{HIDDEN}@", word)
    word = _WEBHOOK.sub(rf"\g<left>{HIDDEN}", word)
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
        in_query = in_query and bool(_QUERY_SECRETS.search(name))
        if value and _hides("token" if in_query else name, value.group().strip("\"'")):
            quote = value.group()[0] if value.group()[0] in "\"'" else ""
            shown.append(quote + HIDDEN + quote)
            position = value.end()
    return "".join(shown) + text[position:]


def _hides(name: str, value: str) -> bool:
    """Whether a value of this name is to be hidden."""
    if value.lower() in _HARMLESS_VALUES or _HARMLESS.match(value):
        return False
    plain = _plain(name)
    if plain.endswith("credentials") and _PATH.match(value):
        return False
    if plain.endswith("key") and _is_random(value):  # else what sorts, or an image's name
        return True
    return _is_secret(name) or (plain in _LOGIN_NAMES and ":" in value)


def _is_secret(name: str) -> bool:
    plain = _plain(name)
    return bool(_SECRET_NAME.search(plain)) and not _HARMLESS_NAME.search(plain)


def _plain(name: str) -> str:
    """`--Client.Secret2` as `client_secret`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_").rstrip("0123456789_")


def _is_random(value: str) -> bool:
    """Twenty or more letters and digits in one word, as issuers of keys make them."""
    letters = value.translate(_NO_SIGNS)
    digits = sum(map(str.isdigit, letters))
    return len(letters) >= 20 and letters.isalnum() and 3 <= digits < len(letters)
