"""Work as somebody who is not root."""

from __future__ import annotations

import os
from collections.abc import Callable

_NOBODY = 65534


def as_nobody(work: Callable[[], int]) -> int:
    """The exit code of `work()` in a process that may not do what only root may."""
    pid = os.fork()
    if not pid:
        code = 255
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setuid(_NOBODY)
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
