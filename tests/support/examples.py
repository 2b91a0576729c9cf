"""How many examples a property is tried with: few for every edit, very many when asked to."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

#: at most so many, by profile; a thorough run tries as many as the property asks for
_MOST = {"fast": 12, "full": 80}


def use(profile: str) -> None:
    """Take the profile `fast`, `full` or `thorough`. The fast one tries the same every time."""
    more: dict[str, Any] = {"derandomize": True, "database": None} if profile == "fast" else {}
    most = _MOST.get(profile, settings.default.max_examples)
    settings.register_profile(profile, deadline=None, max_examples=min(most, 100), **more)
    settings.load_profile(profile)


def examples(count: int, **more: Any) -> settings:
    """A decorator: up to so many examples, as the run's profile allows."""
    most = _MOST.get(settings.get_current_profile_name(), count)
    return settings(max_examples=min(count, most), **more)
