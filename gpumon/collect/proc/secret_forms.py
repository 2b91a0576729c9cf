"""How secrets look that their issuers made recognisable.

The token forms follow what issuers document and gitleaks' published rules collect (prefix,
alphabet, length); lengths here are lower bounds, so that a token that was cut is still one.
"""

from __future__ import annotations

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
