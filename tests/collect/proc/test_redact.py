import re
import shlex
import string
import time
import uuid
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.collect.proc import secret_forms
from gpumon.collect.proc.redact import HIDDEN, redact
from tests.collect.trees import fixture
from tests.support.examples import examples


def _corpus():
    lines = [line for line in fixture("commands.txt").splitlines() if not line.startswith("#")]
    pairs = "\n".join(lines).strip().split("\n\n")
    return [tuple(pair.split("\n")) for pair in pairs]


@pytest.mark.parametrize(("before", "after"), _corpus())
def test_corpus(before, after):
    assert redact(before.split("|")) == after


def test_corpus_covers_both_kinds():
    hidden = [after for _, after in _corpus() if HIDDEN in after]
    assert len(hidden) >= 20
    assert len(_corpus()) - len(hidden) >= 8


# The last characters of a secret are never among those that may stand behind a value in a text.
_LETTERS = string.ascii_letters + string.digits
_SECRETS = st.builds(
    lambda head, body, tail: head + body + tail,
    st.text(_LETTERS, min_size=4, max_size=6),
    st.text(_LETTERS + "!#$%*+./:=?^_~-", max_size=30),
    st.text(_LETTERS, min_size=4, max_size=6),
)
_NAMES = st.sampled_from((
    "token", "password", "api-key", "api_key", "hf_token", "client-secret", "db.password",
    "accessToken", "passwd", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "PGPASSWORD", "MYSQL_PWD",
    "credentials", "auth_key", "secret2", "private-key", "x.y.token", "wandb-key", "STORAGE_KEY",
))  # fmt: skip
_FORMS = st.sampled_from(
    [
        ["--{name}", "{secret}"],
        ["-{name}", "{secret}"],
        ["--{name}={secret}"],
        ["-D{name}={secret}"],
        ["{name}={secret}"],
        ["+{name}={secret}"],
        ["--config", "lr=1,{name}={secret}"],
        ["bash", "-c", "{name}={secret} python a.py"],
        ["bash", "-c", "python a.py --{name} {secret} --lr 1"],
        ["bash", "-c", "python a.py --{name} '{secret} {secret}' --lr 1"],
        ["bash", "-c", 'python a.py --{name}="{secret} {secret}" --lr 1'],
        ["python", "-c", "f({name}='{secret}', x=1)"],
        ["python", "-c", 'f(**{{"{name}": "{secret}"}})'],
        ["python", "-c", "os.environ['{name}'] = '{secret}'"],
        ["python", "-c", 'os.environ["{name}"]="{secret}"; x = 1'],
        ['{{"lr": 1, "{name}": "{secret}"}}'],
        ["https://example.org/?a=1&{name}={secret}&b=2"],
        ["https://user:{secret}@example.org/x"],
        ["postgresql://user:{secret}@db:5432/x"],
        ["https://{secret}@example.org/x"],
        ["curl", "-H", "Authorization: Bearer {secret}"],
        ["curl", "-H", "X-Api-Key: {secret}"],
        ["curl", "-HAuthorization: Basic {secret}"],
        ["curl", "-u", "alice:{secret}", "https://example.org"],
        ["bash", "-c", "curl -H 'Authorization: Bearer {secret}' https://example.org"],
        ["python", "a.py", "{name}:{secret}"],
        ["python", "a.py", "lr: 1, {name}: {secret}"],
        ["mysql", "-p{secret}"],
        ["sshpass", "-p{secret}", "ssh", "x"],
        ["sshpass", "-p", "{secret}", "ssh", "x"],
        ["/usr/bin/docker", "login", "-p", "{secret}"],
        ["redis-cli", "-a", "{secret}"],
        ["ghp_{secret}aaaaaaaaaaaaaaaa"],
    ]
)


@examples(3000)
@given(_FORMS, _NAMES, _SECRETS)
def test_a_secret_in_any_form_does_not_survive(form, name, secret):
    if form[0].startswith("https://{secret}"):
        secret = "".join(filter(str.isalnum, secret))  # what may stand there in a URL
    if form[0].startswith("ghp_"):
        secret = "".join(filter(str.isalnum, secret))
    if "?a=1" in form[0]:
        secret = secret.replace("#", "")
    argv = [part.format(name=name, secret=secret) for part in form]
    shown = redact(argv)
    assert secret not in shown
    assert HIDDEN in shown


_PLAIN = st.text(string.ascii_lowercase + string.digits + "-_./=", min_size=1, max_size=12)


@examples(1000)
@given(st.lists(st.one_of(_PLAIN, st.sampled_from(["--lr", "--max-tokens", "a=b", "/x/y"]))))
def test_a_command_line_without_secrets_is_untouched(argv):
    named = ("token", "password", "secret", "key", "passwd", "pass", "pwd", "pat", "pw", "pass:")
    if not any(word in " ".join(argv) for word in named):
        assert redact(argv) == " ".join(argv)


@examples(1000)
@given(st.lists(st.text(max_size=60), max_size=12))
def test_any_command_line_becomes_one_safe_line(argv):
    shown = redact(argv)
    assert len(shown) <= 4096
    for character in shown:
        assert not 0x7F <= ord(character) < 0xA0
        assert character not in "\n\r\t\x1b\u202e\u2066\u200b\ufeff"


def test_control_characters_do_not_hide_a_secret():
    assert "s3cr3t" not in redact(["--password\n", "s3cr3tvalue"])
    assert redact(["a\x1b]0;x\x07b\u202ec"]) == "a?]0;x?b?c"


def test_a_long_command_line_is_cut_after_what_is_secret_was_hidden():
    shown = redact(["x" * 4080, "--token", "s3cr3tvalue" * 100, "y" * 5000])
    assert len(shown) == 4096
    assert "s3c" not in shown


def test_a_hostile_command_line_takes_no_long_time():
    """Each would take minutes with a pattern that goes back over what it has read."""
    for text in ("http://:" * 2000, "a=" * 8000, "'\"" * 8000, "a-" * 8000, "-eyJaaaaaaaa" * 1400):
        assert len(redact([text, text + " x"])) <= 4096


# -- a corpus of forms -----------------------------------------------------------------------------

_ALPHABETS = {
    "an": _LETTERS,
    "pw": _LETTERS,
    "pwd": _LETTERS,
    "hex": "0123456789abcdef",
    "up": string.ascii_uppercase + "234567",
    "num": string.digits,
    "b64": _LETTERS + "+/",
}
_MARK = re.compile(r"«(\w+)(?::(\d+))?»")


def _commands(name):
    """The lines of a fixture: one command each; a quoted argument may go on on the next line."""
    text = re.sub(r"^#.*\n", "", fixture(name), flags=re.M)
    command = ""
    for line in text.splitlines():
        command = f"{command}\n{line}" if command else line
        try:
            shlex.split(command)
        except ValueError:
            continue
        yield command
        command = ""


#: what people choose: nothing but its place or name shows that it is one
_CHOSEN = ("hunter2", "Tr0ub4dor.3", "correcthorsebattery", "letmein99")


def _made(kind, length, random):
    if kind == "low":
        return random.choice(_CHOSEN)
    if kind == "uuid":
        return str(uuid.UUID(int=random.getrandbits(128)))
    least = [random.choice(string.digits), random.choice(string.digits)] if kind != "num" else []
    body = random.choices(_ALPHABETS[kind], k=int(length or 12) - len(least))
    signs = random.choices("!_-.~^%+@#*", k=1) if kind == "pw" else []
    body[1:1] = least + signs  # as any password: letters, digits, a sign
    return "".join(body)


@pytest.mark.parametrize("command", _commands("secrets.txt"))
def test_no_secret_of_the_corpus_survives(command):
    for seed in range(5):
        random = Random(f"{command}{seed}")
        secrets = []

        def make(match, random=random, secrets=secrets):
            secrets.append(_made(match[1], match[2], random))
            return secrets[-1]

        argv = shlex.split(_MARK.sub(make, command))
        shown = redact(argv)
        survived = [
            each
            for each in secrets
            if any(each[at : at + 6] in shown for at in range(len(each) - 5))
        ]
        assert not survived, shown
        assert HIDDEN in shown
        assert shown.startswith(argv[0])


@pytest.mark.parametrize("command", _commands("harmless.txt"))
def test_what_is_harmless_stays(command):
    argv = shlex.split(command)
    assert redact(argv) == " ".join(argv)


def test_the_corpus_is_large():
    assert len(list(_commands("secrets.txt"))) >= 1000
    assert len(list(_commands("harmless.txt"))) >= 500


@pytest.mark.parametrize("form", secret_forms.TOKENS)
def test_each_form_stands_for_itself(form):
    """No form is hidden behind an earlier one or cannot match at all."""
    prefix, chars, least = form
    pattern = re.compile(f"{prefix}{chars}{{{least},}}" if least else prefix + chars)
    assert not pattern.search("python train.py --lr 3e-4 /scratch/data")
    assert len(prefix) >= 2


#: pieces of the patterns, repeated: what goes back over what it has read takes minutes
_SLOW = (
    "http://:", "a=", "'\"", "a-", "-eyJaaaaaaaa", "\\\"", "\\", "a=\\\"", "a:\\'", "password=\\\"",
    "token: ", "%3d", "a%3D%22", "auth=(", "login('", "setdefault('a',", "password '", "a:b@",
    "x-y-", "x-key:", "[", "key=[", "(", "secret=(", "a.b.", "//", "/a", "~/", "id=", "id=a,",
    "<", "1", "1_", "0123456789abcdef0123456789abcdef01234567", "commit ", "s.a1", "sk-", "Q~",
    "SG.", "authress_", "pat.", "identified  by ", "hooks.slack.com/services/", "@", "a@", ":",
    "=", "AccountKey=", "Pwd=a;", "echo a|sudo -S ", "echo ", "$(echo ", "<<< ", "| ", "f(key='",
    "['a',", "connect('a', 'b', '", "jwt.encode(a, ", "login(", "a/b@", "user=a%", "send ",
    "spawn ", "secrets.", "['secrets']", "curl -sSu ", "sqlplus a/", "a: str = ",
    "é", "\u200b", "{", "}", "\n", "--", "-p", "curl ", "vault login ",
)  # fmt: skip


@pytest.mark.parametrize("piece", _SLOW)
def test_time_grows_with_the_length_alone(piece):
    """Eight times the text within the bound takes no more than about eight times as long."""

    def seconds(size):
        text = (piece * size)[:size]
        best = 1e9
        for _ in range(3):
            began = time.process_time()
            redact(["bash", "-c", text, "token=" + text, text + " wandb"])
            best = min(best, time.process_time() - began)
        return best

    short = max(seconds(1000), 1e-4)
    assert seconds(8000) < 40 * short + 0.2
