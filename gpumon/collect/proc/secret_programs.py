"""Which programs take a secret where: behind which option, as which argument, from which input.

Only what a form or a name does not show is listed: `--password` is hidden for every program.
"""

from __future__ import annotations

import re


def _both(*options: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return options, options


#: program, or `program subcommand` -> (options whose value is joined to them, options whose value
#: is the next word)
PASSWORD_OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(
        ("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlcheck", "mysqlshow", "mysqlslap",
         "mysqlpump", "mysqlbinlog", "mysqlsh", "mariadb", "mariadb-dump", "mariadb-admin",
         "mariadb-backup", "mariabackup", "7z", "7za", "7zz", "7zr", "p7zip"), (("-p",), ()),
    ),
    **dict.fromkeys(
        ("sshpass", "mongo", "mongosh", "mongodump", "mongorestore", "mongoexport", "mongoimport",
         "mongofiles", "mongostat", "mongotop", "cqlsh", "cypher-shell", "steghide", "twine", "az",
         "rdesktop", "yt-dlp", "youtube-dl", "ncftp", "ncftpget", "ncftpput", "mycli", "fbsql",
         "isql-fb", "gbak", "beeline", "rabbitmqadmin", "unar", "lsar", "mutool", "veracrypt",
         "ipmi-sensors", "ipmipower", "ipmi-sel", "ipmi-fru", "ipmi-chassis", "ipmiconsole",
         "racadm", "vncdo", "vncdotool", "evil-winrm", "crackmapexec", "netexec", "nxc", "smbmap",
         "instaloader", "gallery-dl", "megadl", "megaput", "megals", "megaget", "useradd",
         "usermod", "psexec", "elasticsearch-users", "iscsiadm", "hydra", "kafkacat"), _both("-p"),
    ),
    **dict.fromkeys(
        ("zip", "unzip", "zipcloak", "zipnote", "sqlcmd", "bcp", "ipmitool", "mosquitto_pub",
         "mosquitto_sub", "mosquitto_rr", "tsql", "bsqldb", "bsqlodbc", "freebcp", "p4",
         "microsocks"), _both("-P"),
    ),
    **dict.fromkeys(
        ("ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldapwhoami", "ldapcompare",
         "ldapmodrdn", "ldapexop", "ldapvi", "vsql", "dsconf", "kadmin"), _both("-w"),
    ),
    "ldappasswd": _both("-w", "-s", "-a"),
    "security": ((), ("-p", "-w", "-P")),
    **dict.fromkeys(("plink", "pscp", "psftp", "putty"), ((), ("-pw",))),
    **dict.fromkeys(("pdftotext", "pdftoppm", "pdftocairo", "pdfimages", "pdfinfo", "pdffonts",
                     "pdfdetach", "pdftohtml", "pdftops"), ((), ("-upw", "-opw"))),
    **dict.fromkeys(("redis-cli", "http", "https", "xh", "httpie", "hey"), _both("-a", "--auth")),
    **dict.fromkeys(("rar", "unrar"), (("-p", "-hp"), ())),
    **dict.fromkeys(("smbclient", "smbget", "smbcacls", "smbcquotas", "rpcclient", "winexe", "net",
                     "samba-tool", "wmic"), _both("-U", "--user", "--username")),
    "adcli": _both("-W"),
    **dict.fromkeys(("doctl", "vercel", "netlify", "frpc", "frps", "anaconda"), _both("-t")),
    **dict.fromkeys(("xfreerdp", "xfreerdp3", "wlfreerdp", "sdl-freerdp"), (("/p:", "/pth:"), ())),
    **dict.fromkeys(
        ("snmpwalk", "snmpget", "snmpset", "snmpgetnext", "snmpbulkwalk", "snmpbulkget",
         "snmptable", "snmptrap", "snmpinform", "snmpdf"), _both("-c", "-A", "-X"),
    ),
    "openssl": ((), ("-k", "-K", "-pass", "-passin", "-passout", "-password", "-passwd", "-hmac",
                     "-macopt", "-psk", "-srppass", "-kdfopt")),
    "lftp": _both("-u", "--user"),
    "curl": _both("-u", "-U", "-b", "--user", "--proxy-user", "-E", "--cert", "--pass"),
    "ssh-keygen": _both("-N", "-P"),
    "swift": _both("-K"),
    "ab": _both("-A", "-P"),
    "etcdctl": _both("--user"),
    "swaks": ((), ("-ap",)),
    "sendemail": ((), ("-xp",)),
    "kubectl": _both("--from-literal"),
    "gh": ((), ("--body",)),
    "lynx": _both("-auth", "-pauth"),
    "ntfy": _both("-u", "--user"),
    "influx": _both("-p", "-t"),
    **dict.fromkeys(("ctr images", "nerdctl pull"), _both("-u", "--user")),
    **dict.fromkeys(("ss-local", "ss-server", "ss-redir", "ss-tunnel", "sslocal", "ssserver"),
                    _both("-k")),
    **dict.fromkeys(("ttyd", "gotty"), _both("-c", "--credential")),
    "signtool": ((), ("/p", "-p")),
    "osslsigncode": ((), ("-pass",)),
    "x11vnc": ((), ("-passwd", "-viewpasswd")),
    **dict.fromkeys(("secretsdump.py", "psexec.py", "wmiexec.py", "smbexec.py", "atexec.py",
                     "secretsdump", "smbclient.py", "GetUserSPNs.py", "GetNPUsers.py"),
                    ((), ("-hashes", "-aesKey"))),
    "parallel-ssh": ((), ("-A",)),
    "kadmin.local": ((), ("-pw",)),
    "impacket": ((), ("-hashes",)),
    # subcommands: elsewhere these options are harmless
    **dict.fromkeys(("docker login", "podman login", "nerdctl login", "buildah login",
                     "skopeo login", "crane login", "oras login", "apptainer login",
                     "singularity login", "helm login", "oc login", "regctl login",
                     "poetry publish"), _both("-p")),
    **dict.fromkeys(("huggingface-cli login", "hf login", "uv publish"), _both("-t")),
    "uv publish": _both("-t", "-p"),
    "pdm publish": _both("-P"),
    "hatch publish": _both("-a"),
    **dict.fromkeys(("dotnet nuget", "prefect login", "nuget push", "choco push"), _both("-k")),
    "kaggle": ((), ("--key",)),
    "kaggle config": ((), ("-v", "--value")),
    **dict.fromkeys(("aws put-parameter", "az secret"), ((), ("--value",))),
}  # fmt: skip
#: options that may end a group of others: curl -sSu user:password
GROUPED = {"curl": ("fgGIjJklLMnNOpqRsSvZ#", "uUb")}
#: program, or `program subcommand` -> words, and which word behind each is the secret; the empty
#: word is the program itself
SECRET_ARGUMENTS: dict[str, dict[str, int]] = {
    "vault": {"login": 1, "unwrap": 1},
    "ngrok": {"authtoken": 1, "add-authtoken": 1},
    "snyk": {"auth": 1},
    "wandb": {"login": 1},
    "conda": {"token": 1},
    "poetry": {"pypi-token.pypi": 1},
    "bw": {"unlock": 1},
    "rclone": {"obscure": 1, "pass": 1, "password": 1},
    "rabbitmqctl": {"add_user": 2, "change_password": 2, "authenticate_user": 2},
    "nmcli": {"password": 1},
    "pdftk": {"user_pw": 1, "owner_pw": 1, "input_pw": 1},
    "dvc": {"password": 1},
    "redis-cli": {"AUTH": 1, "auth": 1, "requirepass": 1, "masterauth": 1},
    "mc": {"set": 4, "add": 4},
    "neo4j-admin": {"set-initial-password": 1},
    "wpa_passphrase": {"": 2},
    "htpasswd": {"-b": 3, "-nb": 2, "-nbB": 2, "-bB": 3, "-cb": 3, "-bc": 3, "-bnBC": 3},
    "mosquitto_passwd": {"-b": 3},
    "pulumi": {"--secret": 2},
    "cargo": {"login": 1},
    "vastai": {"api-key": 1},
    "cloudflared": {"install": 1},
    "netlify": {"env:set": 2},
    "heroku": {"authorizations:create": 1},
    "filebrowser add": {"add": 2},
    "samba-tool user": {"create": 2, "add": 2},
    "mega-login": {"": 2},
    "db2": {"using": 1},
    "isql": {"": 3},
    "qpdf": {"--encrypt": 1},
    "mkpasswd": {"": 1},
    "iwconfig": {"key": 1},
    "wpa_cli": {"psk": 1, "password": 1},
    "openssl passwd": {"passwd": 1},
    "bteq": {".logon": 1},
}
#: names of settings, and which word behind each is the secret: poetry config http-basic.x user …
SECRET_SETTINGS = (
    (r"http-basic\.[\w.-]+$", 2),
    (r"(?:github|gitlab|bitbucket)-(?:oauth|token)\.[\w.-]+$|bearer\.[\w-]+\.[\w.-]+$", 1),
)
#: options of those programs that take the next word, which then is no argument of theirs
SKIPPED = {"mkpasswd": ("-m", "-S", "-R"), "htpasswd": ("-C",), "wandb": ("--host",)}
#: several words in a row are secrets
SEVERAL = {"qpdf": 2}
#: program, or `program subcommand`: every NAME=VALUE among its arguments is a secret
SECRET_ASSIGNMENTS = frozenset(
    ("vault put", "flyctl set", "fly set", "doppler set", "supabase set", "modal create",
     "wrangler put", "railway set", "gh set", "heroku config:set")
)  # fmt: skip
#: Oracle's: user/password@host
USER_SLASH_PASSWORD = frozenset(
    ("sqlplus", "sqlldr", "exp", "imp", "expdp", "impdp", "rman", "sql", "sqlcl", "tkprof", "wrap")
)
#: Impacket's: domain/user:password@host
USER_COLON_PASSWORD = frozenset(
    ("psexec.py", "wmiexec.py", "smbexec.py", "secretsdump.py", "mysqlsh")
)
#: names that are also words or options of others: programs only at the beginning of a command
COMMON_WORDS = frozenset(
    ("net", "security", "sql", "exp", "imp", "wrap", "swift", "hey", "fly", "passwd", "useradd")
)
#: what reads a password from its standard input: a program, or a word in its arguments
READS_PASSWORD = frozenset(
    ("chpasswd", "passwd", "smbpasswd", "kinit", "cryptsetup", "su", "ssh-add", "htpasswd",
     "--stdin", "--password-stdin", "--with-token", "--passphrase-fd", "--passwd-on-stdin",
     "--stdin-password", "--pass-stdin", "--token-stdin", "stdin", "fd:0", "-stdin",
     "--api-key-stdin", "--secret-stdin")
)  # fmt: skip
#: program -> word that makes it read one
READS_PASSWORD_WITH = {
    "sudo": r"-[A-Za-z]*S[A-Za-z]*$|--stdin$",
    "vault": r"login$|-$",
    "wandb": r"login$",
    "wrangler": r"secret$",
    "gh": r"secret$",
    "gcloud": r"secrets$",
    "flyctl": r"secrets$",
    "docker": r"login$|secret$",
    "huggingface-cli": r"login$",
    "hf": r"login$",
}
READERS = tuple(sorted({*READS_PASSWORD_WITH, *(w for w in READS_PASSWORD if w[0].isalpha())}))
#: options that are no secret with these programs: the secret's name
HARMLESS_OPTIONS = frozenset(("--secret",))
_NAMES_SECRETS = frozenset(("gcloud", "docker", "podman", "buildah"))
_PROGRAMS = frozenset(
    key.partition(" ")[0]
    for key in (
        *PASSWORD_OPTIONS, *SECRET_ARGUMENTS, *SECRET_ASSIGNMENTS, *USER_SLASH_PASSWORD,
        *USER_COLON_PASSWORD, *_NAMES_SECRETS,
    )
)  # fmt: skip
#: what comes before a command, besides assignments
_WRAPPERS = frozenset(
    ("sudo", "env", "nohup", "time", "exec", "command", "nice", "srun", "do", "then", "else", "!")
)
_ENDS = (";", "|", "&&", "||", "&")
_VERBS = frozenset(("set", "add", "create"))
_PRINTS = ("echo", "printf", "yes")


class Program:
    """The program whose arguments are read, and which of them are passwords by their place."""

    def __init__(self, outer: Program | None = None) -> None:
        """`outer`: its options hold in its arguments too: lftp -e "open -u …"."""
        self._name = ""
        self._joined: tuple[str, ...] = outer._joined if outer else ()
        self._apart: tuple[str, ...] = outer._apart if outer else ()
        self._places: dict[str, int] = {}
        self._left = 0  # arguments until the secret one
        self._more = 0  # secrets that follow it
        self._skips = False
        self._begins = True
        self.assigns_secrets = False

    def see(self, word: str) -> None:
        """A word that is not a password: perhaps the program's name, or what comes before one."""
        name = word.lstrip("(").rstrip(";)").rpartition("/")[2]
        begins = self._begins
        self._begins = word.endswith(_ENDS) or (begins and (name in _WRAPPERS or "=" in word))
        self._skips = word in SKIPPED.get(self._name, ())
        if self._name:
            self._take(f"{self._name} {word}")
        if name in _PROGRAMS and (begins or name not in COMMON_WORDS):
            self._name = name
            self.assigns_secrets = self.assigns_secrets and not begins
            self._take(name)
            self._count("")
        self._count(word if word in self._places else name)
        for pattern, place in SECRET_SETTINGS if "." in word else ():
            if re.match(pattern, word):
                self._left = place

    def _take(self, key: str) -> None:
        if key in PASSWORD_OPTIONS:
            self._joined, self._apart = PASSWORD_OPTIONS[key]
        if key in SECRET_ARGUMENTS:
            self._places = SECRET_ARGUMENTS[key]
        self.assigns_secrets = self.assigns_secrets or key in SECRET_ASSIGNMENTS

    def _count(self, word: str) -> None:
        if word in self._places:
            self._left = self._places[word]
            self._more = SEVERAL.get(self._name, 1) - 1

    def option_of(self, word: str) -> tuple[str, bool]:
        """The option that this word is or begins with, and whether its value is the next word."""
        if word in self._apart:
            return word, True
        flags, ends = GROUPED.get(self._name, ("", ""))
        if flags and word[:1] == "-" and word[-1] in ends and not word[1:-1].strip(flags):
            return word, True
        if word in ("-pass", "-passwd", "-password"):
            return word, True
        for option in self._joined:
            if word.startswith(option + "=") or (
                word.startswith(option) and word != option and not option.startswith("--")
            ):
                return option, False
        return "", False

    def takes_secret(self, word: str) -> bool:
        if not self._left or word.startswith("-") or self._skips or word in _VERBS:
            return False
        self._left -= 1
        if self._left:
            return False
        if self._more:
            self._left, self._more = 1, self._more - 1
        return True

    def is_named(self, word: str) -> bool:
        """Whether the word is the program itself."""
        return bool(self._name) and word.endswith(self._name)

    def is_harmless(self, option: str) -> bool:
        return self._name in _NAMES_SECRETS and option.partition("=")[0] in HARMLESS_OPTIONS

    @property
    def takes_user_slash(self) -> bool:
        return self._name in USER_SLASH_PASSWORD

    @property
    def takes_user_colon(self) -> bool:
        return self._name in USER_COLON_PASSWORD


def fed(words: list[str]) -> set[int]:
    """Places of the words that a shell hands to a program which reads a password there:
    echo … | sudo -S true, sudo -S true <<< …, and what a command substitution prints.
    """
    found: set[int] = set()
    if not any(word == "|" or word[:3] == "<<<" or word.endswith(_PRINTS) for word in words):
        return found
    printed: list[int] = []  # in this pipeline
    began = 0
    for place, word in enumerate([*words, "|"]):
        if word.endswith(("(echo", "`echo", "(printf", "`printf")) and word[0] != "(":
            found |= _until_closed(words, place)
        if word != "|":
            continue
        command = range(began, min(place, len(words)))
        if _reads_password([words[each] for each in command]):
            found.update(printed)
            found |= _here(words, command)
        printed += _printed(words, command)
        began = place + 1
    return found


def _printed(words: list[str], command: range) -> list[int]:
    """What the last command, or all of it in parentheses, prints as it stands."""
    found = list(_here(words, command))
    prints = False
    grouped = any(words[each].startswith(("(", "{")) for each in command)
    begins = True
    for each in command:
        word = words[each]
        if not word or word.isspace():
            continue
        if begins and word.lstrip("({") in _PRINTS:
            prints = True
        elif prints and not re.match(r"-[neE]+$", word):
            found.append(each)
        begins = word.endswith((";", "&&", "||", "&")) or word in ("(", "{")
        if begins:
            prints = False
            found = found if grouped else []
    return found


def _here(words: list[str], command: range) -> set[int]:
    """The words behind `<<<`."""
    for each in command:
        if words[each].startswith("<<<"):
            glued = words[each] != "<<<"
            return {each} if glued else set(_next_word(words, each + 1))
    return set()


def _next_word(words: list[str], place: int) -> list[int]:
    return [each for each in range(place, len(words)) if words[each].strip()][:1]


def _until_closed(words: list[str], place: int) -> set[int]:
    found = set()
    for each in range(place + 1, len(words)):
        if words[each].strip():
            found.add(each)
        if ")" in words[each] or "`" in words[each]:
            break
    return found


def _reads_password(command: list[str]) -> bool:
    names = [word.lstrip("(").rpartition("/")[2] for word in command if word.strip()]
    if any(name.partition("=")[0] in READS_PASSWORD for name in names):
        return True
    for place, name in enumerate(names):
        how = READS_PASSWORD_WITH.get(name)
        if how and any(re.match(how, word) for word in names[place + 1 :]):
            return True
    return False
