"""The keys that move through a recording; without one they say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.tui.dialogs import LineScreen
from gpumon.tui.player import Player, parse_moment

if TYPE_CHECKING:
    from textual.app import App

    from gpumon.tui.state import ViewState

    class _Host(App[None]):
        state: ViewState
        player: Player | None

        def say(self, message: str) -> None: ...
else:
    _Host = object


class PlayerActions(_Host):
    """Actions of the app that belong to a replay."""

    def _need_player(self) -> Player | None:
        if self.player is None:
            self.say("that moves through a recording: gpumon replay JOBID")
        return self.player

    def action_seek(self, direction: int) -> None:
        player = self._need_player()
        if player is not None:
            player.seek(player.aim + direction * max(self.state.span_s / 10, 1.0))

    def action_step(self, direction: int) -> None:
        """One sample, with the clock held."""
        player = self._need_player()
        if player is None:
            return
        if not player.paused:
            player.pause()
        interval_s = min((node.interval_s for node in self.state.nodes), default=1.0)
        player.seek(player.aim + direction * interval_s)

    def action_next_event(self) -> None:
        player = self._need_player()
        if player is not None:
            player.next_event()

    def action_speed(self, factor: float) -> None:
        player = self._need_player()
        if player is not None:
            player.set_speed(player.speed * factor)
            self.say(f"speed {player.speed:g}")

    def action_go_to(self) -> None:
        player = self._need_player()
        if player is None:
            return

        def go(text: str | None) -> None:
            if text is None or player is None:
                return
            moment = parse_moment(text, player.origin, player.aim)
            if moment is None:
                self.say(f"{text!r} is no time: 12:31:07, 1h30m from the beginning, or +10m")
            else:
                player.seek(moment)

        self.push_screen(LineScreen("12:31:07, 1h30m from the beginning, +10m or -10m"), go)
