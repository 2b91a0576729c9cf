"""How secrets look on a command line: their names, their issuers' forms, the options before them.

The token forms follow what issuers document and gitleaks' published rules collect (prefix,
alphabet, length); lengths here are lower bounds, so that a token that was cut is still one.
"""

from __future__ import annotations

#: the end of a name, in lower case and with `_` between its words
SECRET_NAME = (
    r"(?:password|passwd|passphrase|passcode|secret|credential|cookie)s?$|tokens?$"
    r"|(?:api|access|secret|private|auth|account|encryption|signing|license|app|master|shared"
    r"|storage|subscription|hmac|jwt|deploy|session|service|aws|azure|comet|hf|huggingface|kaggle"
    r"|ngc|openai|anthropic|wandb)_?keys?$"
    r"|(?:^|_)(?:bearer|authorization|pat|pw|pass|creds?|psk|otp|totp|twofactor|mfa_code)$|pwd$"
    r"|(?:db|ssh|smtp|ftp|root|user|admin|mysql|pg|login|store|key|ldap|imap|sudo|become|vnc|rpc"
    r"|require|mail|http|proxy|bind)pass$"
    r"|webhook_url$|shared_?access_?signature$|(?:j|php)sess(?:ion)?id$|mnemonic$"
    r"|(?:seed|recovery)_phrase$"
)
#: tokenizers have tokens, too, a multi-pass algorithm has passes, and a cache has keys
HARMLESS_NAME = (
    r"(?:^|_)(?:eos|bos|pad|unk|sep|cls|mask|stop|special|image|audio|video|start|begin|end|next"
    r"|last|first|per|by|new|add|added|extra|trigger|control|bad|num|n|class|initializer"
    r"|placeholder|prompt|instance|max|min|total|early|think|tool|suppress|forced|ignore|skip"
    r"|train|eval|warmup|budget|context|visual|text|speech|register|latent|memory|batch|draft"
    r"|speculative|drop|keep|merge|prune)_?(?:new_)?tokens?$"
    r"|_(?:one|two|multi|num|n|single|first|second)_?pass$|^(?:one|two|multi|single)pass$"
    r"|(?:^|_)(?:sort|group|cache|object|row|primary|foreign|partition|dedup|data|dataset|image"
    r"|monitor|metric)_?keys?$"
)
#: never a secret under any name: a short number, a tokenizer's own word (<think>, <|end|>,
#: [MASK]), a version (token==1.2), a file that holds one, docker's --secret id=x,src=file
HARMLESS_VALUE = (
    r"\d{1,3}$|</?[\w|-]{1,30}>$|\[[A-Z_]{1,20}\]$|==?\d[\w.*]*$"
    r"|(?:~|\.{1,2}|\$\{?HOME\}?)?/(?:[\w.~+@-]*/)*[\w.~+@-]*\.(?:pem|key|json|txt|crt|p12|pfx|pub"
    r"|env|ini|cfg|toml|ya?ml|netrc)$"
    r"|(?:~|\$\{?HOME\}?)?/(?:[\w.~+@-]*/)*(?:\.ssh|secrets|\.secrets)/[\w.~+@-]+$"
    r"|id=[\w.-]+(?:,(?:src|source|env|type|target)=[\w.~/$+-]*)*$"
)

_ALNUM, _WORD, _B64 = "[A-Za-z0-9]", r"[\w-]", "[A-Za-z0-9+/=_-]"
#: what follows a prefix: at least so many of an alphabet
TOKENS: tuple[tuple[str, str, int], ...] = (
    # code and packages: GitHub, GitLab, Bitbucket, npm, PyPI, RubyGems, NuGet, Clojars, Docker
    ("gh[pousr]_", _ALNUM, 16), ("github_pat_", r"\w", 20),
    ("gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-", r"[\w.-]", 16),
    ("GR1348941", _WORD, 16),
    ("ATBB", _ALNUM, 28), ("ATCTT3", r"[\w=-]", 20), ("ATATT3", r"[\w=-]", 20),
    ("npm_", _ALNUM, 30), ("pypi-", _WORD, 30), ("rubygems_", "[a-f0-9]", 30),
    ("oy2", "[a-z0-9]", 43),
    ("CLOJARS_", "[a-z0-9]", 40), ("dckr_[po]at_", _WORD, 16), ("AKCp", _ALNUM, 40),
    ("cmVmd", _ALNUM, 50),
    # models and experiments
    ("hf_", _ALNUM, 16), ("api_org_", r"\w", 16), ("wandb_v\\d_", r"\w", 20),
    ("sk-(?:proj|ant|or|svcacct|admin|lf|None)-", _WORD, 8), ("sk-(?=[A-Za-z]*\\d)", _ALNUM, 16),
    ("nvapi-", _WORD, 16), ("r8_", _ALNUM, 30), ("gsk_", r"\w", 20), ("pplx-", r"\w", 20),
    ("tvly-", _WORD, 16), ("lsv2_[ps][tk]_", r"\w", 20), ("ls__", _ALNUM, 30), ("xai-", _ALNUM, 40),
    ("tgp_v1_", _WORD, 20), ("fw_(?=[A-Za-z]*\\d)", _ALNUM, 20), ("jina_", _ALNUM, 40),
    ("local-", "[0-9a-f]", 40),
    ("dapi", "[0-9a-f]", 32), ("pcsk_", r"\w", 30), ("(?<![-_])key-", "[0-9a-f]", 32),
    # clouds: AWS, Google, Azure, Alibaba, DigitalOcean, Heroku, Fly, Netlify, PlanetScale, Yandex
    ("(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])", "[A-Z0-9]", 16), ("ABSK", "[A-Za-z0-9+/]", 40),
    ("bedrock-api-key-", r"[\w+/=-]", 16), ("AIza", _WORD, 30), ("ya29\\.", r"[\w.-]", 16),
    ("GOCSPX-", _WORD, 20), ("1//0", _WORD, 30), ("LTAI", _ALNUM, 16),
    ("do[opr]_v1_", r"\w", 30), ("HRKU-", _WORD, 30), ("fo1_", _WORD, 30),
    ("fm[12][ar]?_", _B64, 40),
    ("nfp_", _ALNUM, 30), ("pscale_(?:tkn|oauth|pw)_", r"[\w=.-]", 20), ("AQVN", _WORD, 30),
    ("t1\\.", r"[\w=.-]", 80), ("tskey-(?:auth|api|client|scim|webhook)-", _WORD, 16),
    ("v1\\.0-[a-f0-9]{24}-", "[a-f0-9]", 60), ("EAA[MC]", _ALNUM, 60),
    # infrastructure: Vault, Terraform, Pulumi, Doppler, Dynatrace, Grafana, New Relic, Sentry, …
    ("hv[sbr]\\.", _WORD, 8), ("s\\.(?=[A-Za-z]*\\d)", _ALNUM + "{24}(?![A-Za-z0-9])", 0),
    ("pul-", "[a-f0-9]", 30),
    ("dp\\.(?:pt|st|ct|sa|scim|audit)\\.", r"[\w.-]", 20), ("dt0[a-z]\\d\\d\\.", r"[\w.]", 30),
    ("gl(?:sa|c)_", r"[\w+/=]", 24), ("NR(?:AK|II|IQ|JS|RA)-", r"[\w-]", 16),
    ("sntry[su]_", r"[\w+/=-]", 30), ("sgp_", r"\w", 30), ("PMAK-", _WORD, 30),
    ("lin_api_", _ALNUM, 30),
    ("ntn_", _ALNUM, 30), ("secret_", _ALNUM, 40), ("pnu_", _ALNUM, 30), ("ops_eyJ", _B64, 40),
    ("A3-[A-Z0-9]{6}-", "[A-Z0-9-]", 20), ("AGE-SECRET-KEY-1", "[0-9A-Z]", 20),
    ("sha256~", _WORD, 30), ("figd_", _WORD, 30), ("sbp_", "[a-f0-9]", 40),
    ("sb_secret_", _WORD, 16),
    ("dnkey-", r"[\w=-]", 30), ("ico-", _ALNUM, 32), ("rdme_", "[a-z0-9]", 60),
    ("tfp_", r"[\w.=-]", 40),
    ("API-", "[A-Z0-9]", 26), ("4b1d", _ALNUM + "{38}(?![A-Za-z0-9])", 0),
    ("sm_[aps]at_", _ALNUM, 16),
    ("(?:authress|scauth)_", r"[\w.+/=-]", 60),
    ("[ps]at\\.", _WORD + r"{22}\.[A-Za-z0-9]{24}\.\w+", 0),
    ("p8e-", "[A-Za-z0-9]", 30),
    # payment, mail, chat
    ("[rs]k_(?:live|test|prod)_", r"\w", 10), ("whsec_", r"[\w+/=]", 16), ("SG\\.", r"[\w.=-]", 40),
    ("SG\\.", r"[\w-]{16,}\.[\w-]{16,}", 0), ("xkeysib-", r"[\w-]", 40),
    ("SK", "[0-9a-fA-F]{32}(?!\\w)", 0),
    ("sq0[a-z]{3}-", _WORD, 20), ("EAAA", _WORD, 40), ("EZ[AT]K", _ALNUM, 40),
    ("re_", _ALNUM + "{6,10}_" + _ALNUM + "{20,}", 0),
    ("FLWSECK(?:_TEST)?-", r"[\w-]", 12), ("duffel_(?:test|live)_", r"[\w=-]", 30),
    ("shippo_(?:live|test)_", "[a-fA-F0-9]", 30), ("shp(?:at|ca|pa|ss)_", "[a-fA-F0-9]", 30),
    ("fio-u-", r"[\w=-]", 40), ("xox[abeoprs]-", _WORD, 10), ("xoxe\\.xox[bp]-", _WORD, 10),
    ("xapp-\\d-", _WORD, 20), ("sl\\.", r"[\w=-]", 100), ("[ps]k\\.eyJ", r"[\w.=-]", 30),
    ("tk-us-", _WORD, 40), ("s-s4t2(?:ud|af)-", "[a-f0-9]", 60), ("phx_", _ALNUM, 40),
    # JSON web tokens, Grafana's older keys
    ("eyJ", r"[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?", 0), ("eyJrIjoi", _B64, 40),
)  # fmt: skip
#: forms that are known by what stands within them: that, and the whole (openssl -passin pass:…)
TOKENS_WITHIN: tuple[tuple[str, str], ...] = (
    ("pass:", r"(?<![-_\w])pass:\S+"),
    ("Q~", r"(?<![\w.~])[\w.~]{3}\dQ~[\w.~-]{30,}"),  # Azure
    (".atlasv1.", r"(?<![A-Za-z0-9])[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{20,}"),  # Terraform
    ("_mmk", r"(?<![A-Za-z0-9])[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),  # MaxMind
)
#: the right to post, by its address
WEBHOOK = (
    r"(?P<left>hooks\.slack\.com/(?:services|workflows|triggers)/"
    r"|discord(?:app)?\.com/api/webhooks/\d+/|api\.telegram\.org/bot"
    r"|\.webhook\.office\.com/webhookb2/|maker\.ifttt\.com/trigger/[\w-]+/(?:json/)?with/key/"
    r"|chat\.googleapis\.com/v1/spaces/[\w-]+/messages\?key=)[^\s\"'/][^\s\"']*"
)


def _both(*options: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return options, options


#: program -> (options whose value is joined to them, options whose value is the next word)
PASSWORD_OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(
        ("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlcheck", "mysqlshow", "mariadb",
         "mariadb-dump", "7z", "7za", "7zz", "7zr"), (("-p",), ()),
    ),
    **dict.fromkeys(
        ("sshpass", "mongo", "mongosh", "mongodump", "mongorestore", "mongoexport", "mongoimport",
         "cqlsh", "cypher-shell", "steghide", "twine", "az", "rdesktop", "yt-dlp", "youtube-dl",
         "ncftp", "ncftpget", "ncftpput", "kadmin"), _both("-p"),
    ),
    "anaconda": _both("-t"),
    **dict.fromkeys(
        ("zip", "unzip", "zipcloak", "sqlcmd", "bcp", "ipmitool", "mosquitto_pub", "mosquitto_sub"),
        _both("-P"),
    ),
    **dict.fromkeys(
        ("ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldappasswd", "ldapwhoami"),
        _both("-w"),
    ),
    **dict.fromkeys(("redis-cli", "http", "https", "xh"), _both("-a", "--auth")),
    **dict.fromkeys(("rar", "unrar"), (("-p", "-hp"), ())),
    **dict.fromkeys(("smbclient", "rpcclient", "winexe", "net"), _both("-U", "--user")),
    **dict.fromkeys(("doctl", "vercel", "netlify"), _both("-t")),
    **dict.fromkeys(("xfreerdp", "xfreerdp3", "wlfreerdp"), (("/p:", "/pth:"), ())),
    **dict.fromkeys(("snmpwalk", "snmpget", "snmpset"), _both("-c", "-A", "-X")),
    "openssl": ((), ("-k", "-K", "-pass", "-passin", "-passout", "-password", "-passwd", "-hmac")),
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
}  # fmt: skip
#: ... only behind `login`: elsewhere `-p` is a port
LOGIN_PROGRAMS = frozenset(
    ("docker", "podman", "nerdctl", "buildah", "skopeo", "crane", "oras", "apptainer",
     "singularity", "helm", "oc")
)  # fmt: skip
#: program -> words, and which word behind each is the secret
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
    "wpa_passphrase": {"wpa_passphrase": 2},
    "htpasswd": {"-b": 3, "-nb": 2, "-nbB": 2, "-bB": 3, "-cb": 3, "-bc": 3},
    "pulumi": {"--secret": 2},
}
