"""Bells and desktop notifications, as terminals take them; the title of the window.

OSC 9 (iTerm2, Windows Terminal), OSC 777 (urxvt, foot, VTE) and OSC 99 (kitty) notify; a terminal
that does not say which it is gets both of the first: each ignores what it does not know. tmux and
GNU screen pass on what is wrapped for them; tmux only with `allow-passthrough on`, so there the
bell rings as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gpumon.model.text import clean
from gpumon.tui.jobs import job_id, state_text

if TYPE_CHECKING:
    from gpumon.pipeline.notices import Ask, Notice
    from gpumon.slurm.job import Job

#: s from one look for news to the next, and so the most that is sent
_LOOK_S = 1.0
_LONGEST = 160  # characters of a notification
_LONGEST_TITLE = 80
_BELL = "\a"
#: they show text where others take commands
_BARE = ("linux", "vt", "dumb", "unknown", "ansi", "cons25")
#: terminals as TERM, TERM_PROGRAM or LC_TERMINAL name them -> the sequence that they take
_KNOWN = {
    "kitty": ("99",), "foot": ("777",), "rxvt": ("777",), "ghostty": ("777",), "wezterm": ("777",),
    "iterm": ("9",), "contour": ("777",),
}  # fmt: skip
_SEQUENCES = {
    "9": "\x1b]9;{text}\a",
    "777": "\x1b]777;notify;gpumon;{text}\a",
    "99": "\x1b]99;i=gpumon;{text}\x1b\\",
}


class Notifier:
    """Sends what is new to the terminal, and tells `on_end` of the job's end.

    ask: for what is new; None while a recording is played. how: off, bell or desktop.
    """

    def __init__(
        self, ask: Ask | None, how: str, environ: Mapping[str, str],
        on_end: Callable[[Job], None] | None,
    ) -> None:  # fmt: skip
        self._ask = ask
        self._how = how
        self._environ = environ
        self._on_end = on_end
        self._next = 0.0

    def is_due(self, now: float) -> bool:
        """Whether to look for news at `now` (monotonic)."""
        if self._ask is None or now < self._next:
            return False
        self._next = now + _LOOK_S
        return True

    def look(self) -> str:
        """What to write to the terminal now; "" mostly."""
        notices = self._ask() if self._ask is not None else []
        for each in notices:
            if each.kind == "end" and each.job is not None and self._on_end is not None:
                self._on_end(each.job)
        return notification(self._how, text_of(notices), self._environ) if notices else ""

    def title(self, job: Job | None) -> str:
        """The title that the terminal's window should have; "" for its own."""
        if job is None or _is_bare(self._environ):
            return ""
        return _harmless(title_text(job), _LONGEST_TITLE)


def text_of(notices: Sequence[Notice]) -> str:
    """The first of them, the end before all others, and how many more there are."""
    first = min(notices, key=lambda each: each.kind != "end")
    job = first.job
    who = f"{job_id(job)} {clean(job.name, 40)}".rstrip() if job is not None else "gpumon"
    what = first.title
    if first.kind == "time":
        what = "10 minutes left"
    elif first.kind != "finding" and job is not None:
        what = state_text(job)
    more = f" (and {len(notices) - 1} more)" if len(notices) > 1 else ""
    return f"{who}: {what}{more}"


def notification(how: str, text: str, environ: Mapping[str, str]) -> str:
    """The bytes of a bell or a notification; "" for off."""
    if how == "off":
        return ""
    if how == "bell" or _is_bare(environ):
        return _BELL
    text = _harmless(text, _LONGEST)
    sent = "".join(_SEQUENCES[each].format(text=text) for each in _taken(environ))
    if environ.get("TMUX"):
        return _BELL + "\x1bPtmux;" + sent.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if environ.get("STY"):
        return _BELL + "".join(f"\x1bP{each}\x1b\\" for each in _split(sent))
    return sent


def title_text(job: Job) -> str:
    """`4711 train RUNNING - gpumon`."""
    words = (job_id(job), clean(job.name, 40), clean(job.state, 40), "- gpumon")
    return " ".join(word for word in words if word)


def _harmless(text: str, most: int) -> str:
    """Without control characters, which could end the sequence; `;` separates fields."""
    return clean(text, most).replace(";", ",")


def _is_bare(environ: Mapping[str, str]) -> bool:
    return environ.get("TERM", "").startswith(_BARE)


def _taken(environ: Mapping[str, str]) -> tuple[str, ...]:
    names = (environ.get(name, "") for name in ("LC_TERMINAL", "TERM_PROGRAM", "TERM"))
    said = " ".join(names).lower()
    return next((kinds for name, kinds in _KNOWN.items() if name in said), ("9", "777"))


def _split(sent: str) -> list[str]:
    """One sequence a piece, as screen ends at the first terminator."""
    return [f"\x1b]{part}" for part in sent.replace("\x1b\\", "\a").split("\x1b]") if part]
