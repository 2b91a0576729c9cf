"""Colours by meaning: good, attention, bad, unknown; never merely "large".

Views name a *role* for each run of text; only here a role becomes a colour. Every role also has a
text form (a sign, a word, bold or reverse), so that mono and colour-blind terminals lose nothing.
"""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme

from gpumon.terminal import colours

#: role -> (foreground, attributes) per palette; an empty foreground is the terminal's own
_DARK = {
    "": ("#c9d1d9", ""),
    "dim": ("#7d8793", ""),
    "title": ("#ffffff", "bold"),
    "good": ("#56d364", ""),
    "attention": ("#e3b341", ""),
    "bad": ("#ff7b72", "bold"),
    "unknown": ("#a5a9b8", ""),
    "busy": ("#4fd6a5", ""),
    "mem": ("#6aa9ff", ""),
    "third": ("#d2a8ff", ""),
    "fourth": ("#ffab70", ""),
    "bar": ("#4fd6a5", ""),
    "bar2": ("#3d6ea8", ""),
    "track": ("#30363d", ""),
    "key": ("#8ab4f8", "bold"),
}
_LIGHT = {
    "": ("#24292f", ""),
    "dim": ("#6e7781", ""),
    "title": ("#000000", "bold"),
    "good": ("#1a7f37", ""),
    "attention": ("#8a5a00", ""),
    "bad": ("#b3261e", "bold"),
    "unknown": ("#57606a", ""),
    "busy": ("#0a7d55", ""),
    "mem": ("#0b57d0", ""),
    "third": ("#7b3fb5", ""),
    "fourth": ("#b45309", ""),
    "bar": ("#0a7d55", ""),
    "bar2": ("#5b8fd6", ""),
    "track": ("#d0d7de", ""),
    "key": ("#0b57d0", "bold"),
}
# Okabe and Ito's palette, told apart with every common form of colour blindness
_COLOUR_BLIND = {
    **_DARK,
    "good": ("#009e73", ""),
    "attention": ("#f0e442", ""),
    "bad": ("#d55e00", "bold"),
    "busy": ("#56b4e9", ""),
    "mem": ("#e69f00", ""),
    "third": ("#cc79a7", ""),
    "fourth": ("#009e73", ""),
    "bar": ("#56b4e9", ""),
    "bar2": ("#8a6a1f", ""),
}
_ANSI = {
    "": ("default", ""),
    "dim": ("bright_black", ""),
    "title": ("default", "bold"),
    "good": ("green", ""),
    "attention": ("yellow", ""),
    "bad": ("red", "bold"),
    "unknown": ("bright_black", ""),
    "busy": ("green", ""),
    "mem": ("blue", ""),
    "third": ("magenta", ""),
    "fourth": ("yellow", ""),
    "bar": ("green", ""),
    "bar2": ("blue", ""),
    "track": ("bright_black", ""),
    "key": ("cyan", "bold"),
}
_MONO = {
    role: ("", "bold" if role in ("title", "bad", "attention", "busy", "key") else "")
    for role in _ANSI
} | {"dim": ("", "dim"), "track": ("", "dim"), "mem": ("", "dim")}

#: backgrounds of a heat map's cells, from nothing to all; text stays readable on each, and in
#: the terminal's own colours the number in the cell says it alone
_HEAT = {
    "dark": ("#161b22", "#12302a", "#14493c", "#176350", "#1a7d64"),
    "light": ("#f3f5f7", "#d9efe6", "#b4e0cf", "#8bd0b5", "#5fbf9a"),
    "colour-blind": ("#161b22", "#1a3044", "#1e4763", "#255f86", "#2b76a8"),
}
_ON_HEAT = {"dark": "#ffffff", "light": "#000000", "colour-blind": "#ffffff"}
HEATS = 5

_PALETTES = {
    "dark": _DARK,
    "light": _LIGHT,
    "colour-blind": _COLOUR_BLIND,
    "ansi": _ANSI,
    "mono": _MONO,
}
NAMES = tuple(_PALETTES)
NATIVE = ("ansi", "mono")  # in the terminal's own colours, as it is set up


@lru_cache(maxsize=512)
def style_of(palette: str, role: str) -> Style:
    """The style of a role; `role+selected` reverses it. `heat0` … `heat4`: a heat map's cell."""
    if role.startswith("heat"):
        return _heat_style(palette, int(role[4:]))
    selected = role.endswith("+selected")
    colour, attributes = _PALETTES[palette][role.removesuffix("+selected")]
    return Style(
        color=colour or None,
        bold="bold" in attributes or None,
        dim="dim" in attributes or None,
        reverse=selected or None,
    )


def _heat_style(palette: str, heat: int) -> Style:
    if palette in NATIVE:
        return Style(bold=heat == HEATS - 1 or None, dim=heat == 0 or None)
    return Style(color=_ON_HEAT[palette], bgcolor=_HEAT[palette][heat])


def textual_themes() -> list[Theme]:
    """One Textual theme per palette, named `gpumon-PALETTE`, for dialogs and the footer."""
    return [
        _theme("dark", "#0d1117", "#161b22", dark=True),
        _theme("colour-blind", "#0d1117", "#161b22", dark=True),
        _theme("light", "#ffffff", "#f3f5f7", dark=False),
        *(_ansi_theme(palette) for palette in NATIVE),
    ]


def _theme(palette: str, background: str, panel: str, *, dark: bool) -> Theme:
    roles = _PALETTES[palette]
    return Theme(
        name=f"gpumon-{palette}",
        primary=roles["mem"][0],
        secondary=roles["third"][0],
        accent=roles["key"][0],
        success=roles["good"][0],
        warning=roles["attention"][0],
        error=roles["bad"][0],
        foreground=roles[""][0],
        background=background,
        surface=background,
        panel=panel,
        dark=dark,
        variables={"footer-key-foreground": roles["key"][0], "footer-background": panel},
    )


def _ansi_theme(palette: str) -> Theme:
    plain = "ansi_default"
    mono = palette == "mono"
    return Theme(
        name=f"gpumon-{palette}",
        primary=plain if mono else "ansi_blue",
        secondary=plain if mono else "ansi_cyan",
        warning=plain if mono else "ansi_yellow",
        error=plain if mono else "ansi_red",
        success=plain if mono else "ansi_green",
        accent=plain if mono else "ansi_cyan",
        foreground=plain,
        background=plain,
        surface=plain,
        panel=plain,
        boost=plain,
        dark=True,
        ansi=True,
        variables={
            **BUILTIN_THEMES["ansi-dark"].variables,
            "block-cursor-foreground": "ansi_black",
            "block-cursor-background": "ansi_white",
            "input-cursor-background": "ansi_white",
            "input-cursor-foreground": "ansi_black",
            "footer-key-foreground": plain if mono else "ansi_cyan",
            "footer-background": plain,
        },
    )


def choose(setting: str) -> str:
    """The palette for a setting ("" is automatic) on this terminal."""
    depth = colours()
    if depth == 0:
        return "mono"
    if setting:
        return setting
    return "dark" if depth >= 256 else "ansi"
