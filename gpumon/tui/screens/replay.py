"""The keys that move through a recording; outside a replay they show a hint."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpumon.tui.keys import Key, grouped
from gpumon.tui.screens.base import Actor, Shell

if TYPE_CHECKING:
    from gpumon.sources.replay import ReplaySource

_REPLAY = ("replay",)


class ReplayKeys(Actor):
    """What they do on every screen."""

    keys = grouped(
        "Replay",
        Key("left_square_bracket", "seek(-1)", "[", "", "seek back by a tenth of the plots' time"),
        Key("right_square_bracket", "seek(1)", "[ ]", "Seek", "seek forward by as much", _REPLAY),
        Key("comma", "step(-1)", ",", "", "one sample back, and pause"),
        Key("full_stop", "step(1)", ", .", "Step", "one sample forward, and pause", _REPLAY),
        Key("g", "go_to", "g", "Go to", "go to a time", _REPLAY),
        Key("n", "next_event", "n", "Next", "go to the next finding, mark or Xid", _REPLAY),
        Key("left_curly_bracket", "speed(0.5)", "{", "", "play at half the speed"),
        Key("right_curly_bracket", "speed(2)", "{ }", "Speed", "play at twice the speed", _REPLAY),
    )

    def __init__(self, shell: Shell, *, is_replay: bool) -> None:
        super().__init__(shell)
        self.bar_where = _REPLAY if is_replay else ()

    def _player(self) -> ReplaySource | None:
        player = self.shell.moment.player
        if player is None:
            self.shell.say("this key is for replays: gpumon replay JOBID")
        return player

    def action_seek(self, direction: int) -> None:
        if player := self._player():
            player.seek(player.aim + direction * max(self.shell.moment.span_s / 10, 1.0))

    def action_seek_at(self, begin: float, cell_s: float, cell: int) -> None:
        """A click on a plot that begins then: to the middle of the cell."""
        if player := self._player():
            player.seek(begin + (cell + 0.5) * cell_s)

    def action_pick_at(self, place: int, begin: float, cell_s: float, cell: int) -> None:
        """The same on the plot of a device, which is selected."""
        self.shell.pane.actor.action_pick(place)
        self.action_seek_at(begin, cell_s, cell)

    def action_step(self, direction: int) -> None:
        """One sample, with the clock held."""
        if player := self._player():
            if not player.paused:
                player.pause()
            nodes = self.shell.moment.nodes
            interval_s = min((node.interval_s for node in nodes), default=1.0)
            player.seek(player.aim + direction * interval_s)

    def action_next_event(self) -> None:
        if player := self._player():
            player.next_event()

    def action_speed(self, factor: float) -> None:
        if player := self._player():
            player.set_speed(player.speed * factor)
            self.shell.say(f"speed {player.speed:g}")

    def action_go_to(self) -> None:
        player = self._player()
        if player is None:
            return

        def read(text: str) -> float | None:
            return parse_moment(text, player.origin, player.aim, player.end)

        def wrong(text: str) -> str:
            is_time = not text.strip() or read(text) is not None
            return "" if is_time else f"{text!r} is not a valid time"

        def go(text: str) -> None:
            if (moment := read(text)) is None:  # nothing was typed
                return
            player.seek(moment)
            if moment < player.origin or (player.end is not None and moment > player.end):
                self.shell.say(f"{text} is outside of the recording")

        from gpumon.tui.dialogs.line import LineDialog  # opened seldom, as in other screens

        form = "12:31:07, 1h30m from the beginning, +10m or -10m"
        self.shell.ask(LineDialog(form, complaint=wrong), go)


def parse_moment(text: str, origin: float, now: float, end: float | None = None) -> float | None:
    """Epoch seconds for `12:31`, `12:31:07` (on the day shown), `+90`, `-10m`, `1h30m` (from the
    beginning); None if the text is no time.

    A time of the day that lies outside of the recording, as `00:05:00`, counts from the
    beginning, if that lies within; `end`: None where that is not known.
    """
    text = text.strip().lower()
    if text[:1] in ("+", "-"):
        span = _span(text[1:])
        return None if span is None else now + (span if text[0] == "+" else -span)
    parts = text.split(":")
    if len(parts) in (2, 3) and all(part.isascii() and part.isdecimal() for part in parts):
        hours, minutes, seconds = (*map(int, parts), 0)[:3]
        if hours > 23 or minutes > 59 or seconds > 59:
            return None
        day = time.localtime(now)
        clock = (hours, minutes, seconds)
        moment = time.mktime((*day[:3], *clock, *day[6:8], -1))
        elapsed = origin + 3600 * hours + 60 * minutes + seconds
        is_elapsed = end is not None and not origin <= moment <= end and elapsed <= end
        return elapsed if is_elapsed else moment
    span = _span(text)
    return None if span is None else origin + span


_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _span(text: str) -> float | None:
    """Seconds of `90`, `10m`, `1h30m`, and of `1 h 30 min` as the title has it."""
    total, number = 0.0, ""
    text = text.replace(" ", "").replace("min", "m")
    for char in text + ("s" if text[-1:].isdecimal() else ""):
        if char.isascii() and (char.isdecimal() or char == "."):
            number += char
        elif char in _UNITS_S and number.replace(".", "", 1).isdecimal():
            total += float(number) * _UNITS_S[char]
            number = ""
        else:
            return None
    return total if text and not number and total < 1e9 else None
