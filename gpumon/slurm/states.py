"""Slurm's words for the state of a job, by what they mean for its processes."""

from __future__ import annotations

#: states after which a job uses nothing any more
ENDED_STATES = frozenset((
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
    "DEADLINE", "OUT_OF_MEMORY", "REVOKED",
))  # fmt: skip
#: states in which a job's processes may be on its nodes
RUNNING_STATES = frozenset((
    "RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING",
))  # fmt: skip
#: states in which it waits for its start
PENDING_STATES = frozenset((
    "PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT",
))  # fmt: skip
#: states in which its time stands still
HELD_STATES = frozenset(("SUSPENDED", "STOPPED"))
