"""Colours by meaning: good, attention, bad, unknown; never merely "large".

Views name a *role* for each run of text; only here a role becomes a colour. Every role also has a
text form (a sign, a word, bold or reverse), so that mono and colour-blind terminals lose nothing.
"""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme

from gpumon.chart.filled import SHADES
from gpumon.terminal import colours

#: role -> its colour in each palette but mono. Colour-blind: Okabe and Ito's, which are told apart
#: with every common form of colour blindness. ANSI: the terminal's own
_COLOURS = {
    #        dark       light      colour-blind ansi
    "": ("#c9d1d9", "#24292f", "#c9d1d9", "default"),
    "dim": ("#7d8793", "#646c76", "#7d8793", "bright_black"),
    "title": ("#ffffff", "#000000", "#ffffff", "default"),
    "good": ("#56d364", "#1a7f37", "#009e73", "green"),
    "attention": ("#e3b341", "#8a5a00", "#f0e442", "yellow"),
    "bad": ("#ff7b72", "#b3261e", "#da6306", "red"),
    "unknown": ("#a5a9b8", "#57606a", "#a5a9b8", "bright_black"),
    "busy": ("#4fd6a5", "#0a7d55", "#56b4e9", "green"),
    "hollow": ("#23604c", "#a5d9c6", "#25516e", "bright_black"),  # busy, but no SM at work
    "busy-slowed": ("#d99a3c", "#b8741a", "#f0e442", "yellow"),  # the same while throttled
    "hollow-slowed": ("#6b4c1e", "#ecd3ab", "#77722a", "bright_black"),
    "hatch": ("#2b4a75", "#a9c4ee", "#6b5218", "bright_black"),
    "mem": ("#6aa9ff", "#0b57d0", "#e69f00", "blue"),
    "third": ("#d2a8ff", "#7b3fb5", "#cc79a7", "magenta"),
    "fourth": ("#ffab70", "#b45309", "#009e73", "yellow"),
    "bar": ("#4fd6a5", "#0a7d55", "#56b4e9", "green"),
    "bar2": ("#3d6ea8", "#5b8fd6", "#8a6a1f", "blue"),
    "track": ("#30363d", "#d0d7de", "#30363d", "bright_black"),
    "key": ("#8ab4f8", "#0b57d0", "#8ab4f8", "cyan"),
}
_BOLD = {"title", "bad", "key"}
_MONO_BOLD = _BOLD | {"attention", "busy", "busy-slowed"}
_MONO_DIM = {"dim", "track", "mem", "hollow", "hollow-slowed", "hatch"}


def _palette(column: int) -> dict[str, tuple[str, str]]:
    return {
        role: (colours[column], "bold" if role in _BOLD else "")
        for role, colours in _COLOURS.items()
    }


#: role -> (foreground, attributes); an empty foreground is the terminal's own
_PALETTES = {
    "dark": _palette(0),
    "light": _palette(1),
    "colour-blind": _palette(2),
    "ansi": _palette(3),
    "mono": {
        role: ("", "bold" if role in _MONO_BOLD else "dim" if role in _MONO_DIM else "")
        for role in _COLOURS
    },
}
NAMES = tuple(_PALETTES)
NATIVE = ("ansi", "mono")  # in the terminal's own colours, as it is set up

#: backgrounds of a heat map's cells, from nothing to all; text stays readable on each, and in
#: the terminal's own colours the number in the cell says it alone
_HEAT = {
    "dark": ("#161b22", "#12302a", "#14493c", "#176350", "#1a7d64"),
    "light": ("#f3f5f7", "#d9efe6", "#b4e0cf", "#8bd0b5", "#5fbf9a"),
    "colour-blind": ("#161b22", "#1a3044", "#1e4763", "#255f86", "#2b76a8"),
}
_BACKGROUNDS = {"dark": "#0d1117", "colour-blind": "#0d1117", "light": "#ffffff"}
_LOWEST, _HIGHEST = 0.38, 0.8  # of an area's colour, at its bottom and top: a line on it is seen
_ON_HEAT = {"dark": "#ffffff", "light": "#000000", "colour-blind": "#ffffff"}
HEATS = 5


@lru_cache(maxsize=1024)
def style_of(palette: str, role: str) -> Style:
    """The style of a role; `role+selected` reverses it, `role+plain` is not bold. `heat0` …
    `heat4`: a heat map's cell.

    `busy.3` is a shade of an area; `mem/busy.3` lies on it.
    """
    if role.startswith("heat"):
        return _heat_style(palette, int(role[4:]))
    role, _, ground = role.partition("/")
    if ground:
        if palette == "mono":  # there is one colour: a line is cut out of the area
            return style_of(palette, role) if "." in role else Style(reverse=True)
        return style_of(palette, role) + Style(bgcolor=style_of(palette, ground).color)
    role, _, shade = role.partition(".")
    if shade and palette not in NATIVE:
        is_smooth = colours() > 256
        return Style(color=_shaded(palette, role, int(shade) if is_smooth else SHADES - 1))
    selected = role.endswith("+selected")
    is_plain = role.endswith("+plain")
    colour, attributes = _PALETTES[palette][role.partition("+")[0]]
    return Style(
        color=colour or None,
        bold=("bold" in attributes and not is_plain) or None,
        dim="dim" in attributes or None,
        reverse=selected or None,
    )


def _shaded(palette: str, role: str, shade: int) -> str:
    """The role's colour, towards the bottom of an area nearer to the background."""
    colour, ground = (bytes.fromhex(each[1:]) for each in (_PALETTES[palette][role][0],
                                                           _BACKGROUNDS[palette]))  # fmt: skip
    share = _LOWEST + (_HIGHEST - _LOWEST) * shade / (SHADES - 1)
    mixed = (round(above * share + below * (1 - share)) for above, below in zip(colour, ground))
    return f"#{bytes(mixed).hex()}"


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
            **({"border": plain, "input-selection-background": "ansi_white"} if mono else {}),
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
