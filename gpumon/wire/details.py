"""What is said of missing values: words by the place of the value, as both ends keep them."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from gpumon.model.sample import Event, Key

#: group, key of the row, field
Place = Tuple[str, Key, str]


def forget_ended(words: Dict[Place, Any], events: List[Event]) -> None:
    """Drop the details of processes that are no longer read: of a long job, of thousands."""
    ended = {event.pid for event in events if event.kind == "process-end"}
    if not ended:
        return
    for place in [place for place in words if _pid(place) in ended]:
        del words[place]


def _pid(place: Place) -> Optional[int]:
    group, key, _ = place
    if isinstance(key, tuple):
        return key[1]
    return key if isinstance(key, int) and group.startswith("process.") else None
