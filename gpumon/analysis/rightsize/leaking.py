"""Host memory that leaks: how long a request lasts, and whether any lasts for the time limit."""

from __future__ import annotations

from dataclasses import dataclass

from gpumon.analysis.leak import Leak, leak
from gpumon.analysis.once import once
from gpumon.analysis.rightsize.requested import mem_limit_bytes, requested
from gpumon.analysis.rundata import NodeData, RunData, Track

#: beyond what the pace needs until the time limit
_MARGIN = 1.1


#: so much later than the longest run is memory full that does no harm; and of a run without a
#: limit, or that its limit ended, the next one may take so many times as long (proposed)
_LATER, _LONGER = 1.2, 2.0


def outlasts(run: RunData, seconds: float) -> bool:
    """Whether memory that is full so long after the job's start lasts for any run of it."""
    limit_s = requested(run).time_limit_s
    if limit_s is None and run.live:
        return False
    longest_s = limit_s or _LONGER * run.elapsed_s
    if run.job is not None and run.job.state == "TIMEOUT":
        longest_s = max(longest_s, _LONGER * run.elapsed_s)
    return seconds > _LATER * longest_s


@dataclass(frozen=True)
class HostLeak:
    """Anonymous memory of the job on one node that grows steadily."""

    node: NodeData
    leak: Leak
    now_bytes: float  # all that counts, as last sampled
    elapsed_s: float  # of the job then

    def lasts_s(self, mem_bytes: float) -> float:
        """From the job's start until so much memory is full."""
        return max(0.0, self.elapsed_s + (mem_bytes - self.now_bytes) / self.leak.per_s)

    def needs_bytes(self, seconds: float) -> float:
        """What lasts for so long, by the pace back to the job's start, too."""
        begin = max(0.0, self.now_bytes - self.leak.per_s * self.elapsed_s)
        return _MARGIN * (begin + self.leak.per_s * seconds)


@once
def host_leaks(run: RunData) -> list[HostLeak]:
    """The leak rule (`analysis.leak`) on anonymous memory alone, against the limit.

    Never on all memory, where page cache filling up looks like a leak.
    """
    found = (_host_leak(run, node) for node in run.nodes)
    return [each for each in found if each is not None]


def _host_leak(run: RunData, node: NodeData) -> HostLeak | None:
    limit = mem_limit_bytes(node) or requested(run).mem_bytes
    track = node.job.get("mem_anon_bytes", Track())
    grows = leak(track.mean, run.bin_s, limit) if limit is not None and track.known() else None
    if grows is None:
        return None
    used = node.job.get("mem_used_bytes", track)
    at, now = max((n, value) for n, value in enumerate(used.mean) if value == value)
    elapsed_s = run.grid_start + (at + 0.5) * run.bin_s - run.start
    return HostLeak(node, grows, now, elapsed_s)
