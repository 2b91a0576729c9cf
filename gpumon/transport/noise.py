"""What others write on the agent's output before its first line: start-up files, prologs."""

from __future__ import annotations

#: as much of it is skipped, whatever it is
MAX_NOISE_BYTES = 16 << 20
NOISE = (
    f"more than {MAX_NOISE_BYTES >> 20} MiB of other output came before the agent's first line; "
    "shell start-up files must print nothing where there is no terminal"
)
