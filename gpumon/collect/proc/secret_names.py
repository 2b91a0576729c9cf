"""Which names announce a secret, and which of their values are none."""

from __future__ import annotations

import re

# all names are compared in lower case and with `_` between their words
#: the end of a name
_END = (
    r"(?:passw(?:or)?d|passwrd|passw|pword|pswd|psw|passwort|wachtwoord|contrasena|mot_de_passe"
    r"|passphrase|passcode|passkey|keyphrase|secret|credential|cookie)s?$|tokens?$"
    r"|(?:api|access|secret|private|auth|account|encryption|signing|license|app|master|shared"
    r"|storage|subscription|hmac|jwt|deploy|session|service|consumer|wallet|aws|azure|comet|hf"
    r"|huggingface|kaggle|ngc|openai|anthropic|wandb|aes|fernet|cipher|crypto|encrypt|decrypt|decryption|pgp|gpg|sign|webhook"
    r"|stripe|sendgrid|datadog|dd|pinecone|cohere|mistral|gemini|groq|replicate|runpod|serpapi|github"
    r"|gitlab|neptune|clearml|rails_master)_?keys?$"
    r"|(?:^|_)(?:bearer|authorization|pat|pw|pass|creds?|psk|otp|totp|twofactor|[2m]fa|jwt|pin|puk"
    r"|sas|pin_?code|(?:mfa|2fa|unlock|verification|security|access|auth|recovery|backup)_code)$"
    r"|pwd$|(?:php|j)?sess(?:ion)?_?id$"
    r"|(?:db|ssh|smtp|smb|ftp|root|user|admin|mysql|pg|login|store|key|ldap|imap|sudo|become|vnc"
    r"|rpc|require|mail|http|proxy|bind|master|rc|sftp)pass$"
    r"|(?:db|root|admin|user|my|ldap|bind|sql)pw$"
    r"|webhook_url$|jwt_signing$|shared_?access_?signature$|mnemonic$|(?:seed|recovery)_phrase$"
)
#: words that stand for nothing else, wherever they are in a name: DB_PASSWORD_PROD
_ANYWHERE = (
    r"(?:^|_)(?:password|passwd|passphrase|(?:api|secret|private|access)_?key"
    r"|(?:access|auth|bearer|api|refresh|secret)_?token|jwt_signing)s?_"
)
#: words that may stand for something else, with what follows only behind a secret
_FOLLOWED = (
    r"(?:^|_)(?:secret|token|key|credential|cookie|pass|pw|pin|jwt|otp)s?_(?:value|string|plain"
    r"|plaintext|literal|raw|b64|base64|hex|prod|production|dev|staging|read|write|rw|ro|admin|root"
    r"|github|gitlab|hf|huggingface|wandb|openai|slack|azure|aws|gcp|base)$"
)
#: what is below one of these is a secret, whatever its own name: cfg.secrets.x, creds['a']
_WITHIN = r"(?i)(?:^|[^A-Za-z0-9])(?:secrets?|credentials?|creds|passwords)[.\]\[\"'\\]+[\w\"']"
#: the last word of names that tell about a secret, and are none
_ABOUT = (
    r"_(?:file|files|path|paths|dir|dirs|directory|folder|policy|length|len|min|max|size|name|names"
    r"|field|fields|column|prompt|stdin|fd|env|var|variable|cmd|command|eval|manager|helper|hint"
    r"|strength|reset|url|uri|host|expiry|expires|ttl|age|encoding|type|types|kind|store|id|ids"
    r"|count|num|number|required|generator|list|dataset|data|dim|location|provider|backend|mode"
    r"|method|protected|authentication|auth|enabled|enable|rotation|header|prefix|suffix|timeout"
    r"|retries|attempts|source|ref|version|algorithm|alg|audience|issuer|regex|pattern|profile"
    r"|region|user|username|scheme|format|key_type|scope|scopes|class|function|engine|mount)$"
)
#: of commands that print a password
_PRINTED = r"pass\w*(?:cmd|command|eval)$"
#: tokenizers have tokens, too, a multi-pass algorithm has passes, and a cache has keys
HARMLESS = (
    r"(?:^|_)(?:eos|bos|pad|unk|sep|cls|mask|stop|special|image|audio|video|start|begin|end|next"
    r"|last|first|per|by|new|add|added|extra|trigger|control|bad|num|n|class|initializer"
    r"|placeholder|prompt|instance|max|min|total|early|think|tool|suppress|forced|ignore|skip"
    r"|train|eval|warmup|budget|context|visual|vision|text|speech|register|latent|memory|batch"
    r"|draft|speculative|drop|keep|merge|prune|global|local|patch|mean|avg|query|prefix|suffix"
    r"|soft|virtual|learnable|input|output|target|source|prefill|decode|cached|generated"
    r"|completion|action|state|dummy|null|blank|word|sub_?word|language|task|timestamp)"
    r"_?(?:new_)?tokens?$"
    r"|_(?:one|two|multi|num|n|single|first|second|forward|backward|low|high|band)_?pass$"
    r"|^(?:one|two|multi|single|low|high|band|all)pass$"
    r"|(?:^|_)(?:sort|group|cache|object|row|primary|foreign|partition|dedup|data|dataset|image"
    r"|monitor|metric|query|text|label|feature|index|lookup|state|batch|loss)_?keys?$"
)
#: names of logins: only with a password, as `user:password`
_LOGINS = frozenset(
    ("auth", "basic_auth", "login", "userpwd", "proxy_auth", "http_auth", "basic", "auth_string",
     "proxyauth", "pauth", "auth_cred", "auth_user", "webauth",)
)  # fmt: skip
_HOLDS_FILES = ("credential", "credentials", "creds", "cookie", "cookies")
_CONNECTIONS = (
    r"(?:^|_)(?:dsn|userid|connect|connection|conn|conn_str|db|database|oracle|target"
    r"|(?:database|db|oracle)_url)$"
)

_HARMLESS_VALUES = frozenset(
    (
        "",
        "true",
        "false",
        "yes",
        "no",
        "none",
        "null",
        "on",
        "off",
        "auto",
        "stdin",
        "-",
        "bearer",
        "basic",
    )
)
#: never a secret under any name: a short number, a tokenizer's own word (<think>, <|end|>,
#: [MASK]), a version (token==1.2), a file that holds one, docker's --secret id=x,src=file, a list
#: of CPUs (0-7), where to take it from ($TOKEN, $(cat f), env:X, os.environ['X'], input())
_HARMLESS_VALUE = (
    r"\d{1,3}(?:\.\d+)?[)\]};,]*$|\d{1,3}[-,][\d,-]*$|</?[\w|-]{1,30}>$|\[[A-Z_]{1,20}\]$|==?\d[\w.*]*$"
    r"|(?:~|\.{1,2}|\$\{?HOME\}?)?/(?:[\w.~+@-]*/)*[\w.~+@-]*\.(?:pem|key|json|txt|crt|p12|pfx|pub"
    r"|env|ini|cfg|toml|ya?ml|netrc)$"
    r"|(?:~|\$\{?HOME\}?)?/(?:[\w.~+@-]*/)*(?:\.ssh|secrets|\.secrets)/[\w.~+@-]+$"
    r"|id=[\w.-]+(?:,(?:src|source|env|type|target)=[\w.~/$+-]*)*$"
    r"|(?:\$\{?[A-Z_][A-Z0-9_]*\}?[:@%/;)}]?)+$|\$\(|`|\\[wdsWDS]|\.[*+]|[a-z]{1,12}:$|env:\w+$|file:/|(?:os\.)?(?:environ|getenv)\b"
    r"|getpass\b|input\(|process\.env\b|ENV\[|Sys\.getenv|keyring\.get|secrets\.token_|open\("
)
#: so many tokens (4096, 100_000, 1e9, 300B), or what a call gives: tokens = tokenizer(…)
_COUNT = r"(?i)[\[(]?\d[\d_.,]*(?:e[+-]?\d+)?[kmbt]?[\])},;]*$|[a-z_][\w.]*\("
_PATH = r"(?:~|\.{1,2})?/[\w.~/+-]*$"
_UUID = r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_WORDS_IN = r"[A-Z]?[a-z]+|[A-Z]+|\d+"


def plain(name: str) -> str:
    """`--Client.apiKey2` as `client_api_key`."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", apart.lower()).strip("_").rstrip("0123456789_")


def is_connection(name: str) -> bool:
    """Whether a value of this name may be Oracle's user/password@host."""
    return bool(re.search(_CONNECTIONS, plain(name)))


def may_hide(name: str) -> bool:
    """Whether there is a value of this name that is to be hidden."""
    short = plain(name)
    return (
        short.endswith(("key", "auth", "login", "secret_id"))
        or short in _LOGINS
        or _is_secret(name, short)
        or bool(re.search(_PRINTED, short))
    )


def hides(name: str, value: str) -> bool:
    """Whether a value of this name is to be hidden."""
    bare = value.strip("\"'").rstrip(",;")
    if bare.lower() in _HARMLESS_VALUES or re.match(_HARMLESS_VALUE, bare):
        return False
    short = plain(name)
    if re.search(_PRINTED, short):
        return bool(re.match(r"(?:echo|printf)\b", bare))
    if short.endswith("pwd") and value[0] in "/~.$":
        return False
    if short.endswith(_HOLDS_FILES) and re.match(_PATH, value):
        return False
    if short.endswith(("tokens", "pass")) and re.match(_COUNT, value):
        return False
    if short.endswith("secret_id"):
        return bool(re.match(_UUID, value))
    if (
        short.endswith(("key", "auth", "login"))
        and is_random(value)
        and not re.search(HARMLESS, short)
    ):
        return True  # else what sorts, or an image's name
    if short in _LOGINS:
        return ":" in value or value[:1] == "("
    return _is_secret(name, short)


def _is_secret(name: str, short: str) -> bool:
    if re.search(HARMLESS, short):
        return False
    if re.search(_END, short) or re.search(_FOLLOWED, short):
        return True
    named = re.search(_ANYWHERE, short) or re.search(_WITHIN, name)
    return bool(named) and not re.search(_ABOUT, short)


def is_random(value: str) -> bool:
    """Letters and digits in one word as issuers of keys make them: twenty or more, or ten or more
    that do not read as names with numbers (resnet50, layer1_block2, ImageNet21k).
    """
    letters = value.translate({ord(sign): None for sign in "+=/"})
    digits = sum(map(str.isdigit, letters))
    if len(letters) >= 20 and letters.isalnum() and 3 <= digits < len(letters):
        return True
    if not re.match(r"[\w+=.~!%^*#-]+$", value):
        return False
    for part in re.split(r"[^A-Za-z0-9]+", value):
        words = re.findall(_WORDS_IN, part)
        if len(part) >= 10 and len(words) >= 4 and len(part) <= 2.7 * len(words):
            return any(map(str.isdigit, part)) and not part.isdigit()
    return False
