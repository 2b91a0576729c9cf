"""What the completion scripts ask gpumon itself while the user types: ids of jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from gpumon.errors import EXIT_OK

#: the first word of such a call; no command, so that no help shows it
COMPLETE = "__complete"
#: what may be asked: functions of gpumon.services.completing
JOBS = ("running", "known", "recorded")
#: shell -> between an id and what it is; bash shows nothing but the id
_BETWEEN = {"zsh": ":", "fish": "\t"}


def complete(words: Sequence[str]) -> int:
    """Print the candidates for `SHELL JOBS`; errors are silent."""
    with contextlib.suppress(Exception):
        shell, jobs = words
        from gpumon.services import completing

        between = _BETWEEN.get(shell)
        for each in getattr(completing, jobs)() if jobs in JOBS else ():
            print(each.id if between is None else f"{each.id}{between}{each.about}")
    return EXIT_OK
