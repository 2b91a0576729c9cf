"""The agent: runs the collectors once per interval and streams samples as lines.

A guest on the node: it leaves nothing behind, says what it costs, and ends when its output cannot
be written, when its job has ended, on SIGTERM, and, with `until_eof`, when its standard input
ends (`sources` hold a pipe there; under srun, nohup and cron it does not look at its input).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import Dict, List, Mapping, NoReturn, Optional

from gpumon import __version__
from gpumon.collect.base import Collector, Schedule, Tick, node_name
from gpumon.collect.cgroup import JobCgroup
from gpumon.collect.devices import DeviceCollector
from gpumon.collect.host import Host
from gpumon.collect.jobcontext import cuda_order, cuda_order_note, job_context
from gpumon.collect.jobpath import JobPath, find_job_cgroup
from gpumon.collect.network import Network
from gpumon.collect.proc import read_text
from gpumon.collect.processes import Processes
from gpumon.collect.storage import Storage
from gpumon.errors import EXIT_OK
from gpumon.model.fields import GROUP_BY_KEY
from gpumon.model.reading import Reading
from gpumon.model.sample import Event, Header, Sample
from gpumon.model.text import clean
from gpumon.wire import Encoder

_START_DEADLINE_S = 2.0  # for the driver to answer before the first sample goes out without it
_SIGNALLED = 128  # shells' convention: 128 + signal
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Agent:
    """The collectors of one node, and what their samples look like to others."""

    def __init__(self, interval_s: float, environ: Optional[Mapping[str, str]] = None) -> None:
        environ = os.environ if environ is None else environ
        self.interval_s = interval_s
        self._environ = environ
        self.devices = DeviceCollector(interval_s, environ)
        self.cgroup = JobCgroup(_own_job(environ))
        self._stood_in_job = self.cgroup.exists
        self._host = Host()
        self.collectors: List[Collector] = [
            self.devices,
            Processes(self.cgroup),
            self.cgroup,
            self._host,
            Network(),
            Storage(environ),
        ]
        self._schedule = Schedule()
        self._late_s = 0.0
        self._node = node_name(environ)

    def start(self, deadline_s: float = _START_DEADLINE_S) -> None:
        self.devices.start(deadline_s)

    def header(self) -> Header:
        """Everything that does not change, as known now; `devices.changed` is then false."""
        self.devices.changed = False
        facts = self._host.facts()
        job = job_context(self._environ, self.cgroup)
        visible = (
            self._environ.get("CUDA_VISIBLE_DEVICES"),
            self.devices.devices,
            self._environ.get("CUDA_DEVICE_ORDER"),
            self.cgroup.device_minors() if job else None,
        )
        order = cuda_order(*visible)
        unclear = cuda_order_note(*visible) if job else ""
        return Header(
            node=self._node,
            boot_id=str(facts.get("boot_id", "")),
            time=time.time(),
            mono=time.monotonic(),
            interval_s=self.interval_s,
            gpumon=__version__,
            devices=[
                device._replace(cuda_index=order.get(device.key)) for device in self.devices.devices
            ],
            driver=self.devices.driver,
            nvml=self.devices.nvml,
            cuda=self.devices.cuda,
            job=job,
            facts=facts,
            notes=[*self.devices.notes, *([unclear] if unclear else [])],
            agent_uid=os.getuid(),
            agent_pid=os.getpid(),
        )

    def sample(self) -> Sample:
        """One tick of every collector; one that fails is data and does not end the others."""
        tick = Tick(time.time(), time.monotonic())
        for collector in self.collectors:
            began = time.perf_counter()
            ok, detail = 1, ""
            try:
                collector.collect(tick)
            except Exception as error:
                ok, detail = 0, clean(f"{type(error).__name__}: {error}", 200)
            took_ms = (time.perf_counter() - began) * 1e3
            if not ok or self._schedule.due(collector.name, 5, tick.mono):
                row: Dict[str, Reading] = {"ok": ok, "ms": round(took_ms, 3), "detail": detail}
                tick.put("collector", collector.name, row)
        group = GROUP_BY_KEY["agent.agent"]
        if self._schedule.due(group.key, group.period_s, tick.mono):
            tick.put("agent", "", self._cost())
        return Sample(tick.time, tick.mono, tick.rows, tick.states, tick.events)

    def late(self, seconds: float) -> None:
        """Note by how much a tick began late."""
        self._late_s = max(self._late_s, seconds)

    def close(self) -> None:
        self.devices.close()

    @property
    def job_ended(self) -> bool:
        """The agent stood in a job's cgroup, and that is gone."""
        return self._stood_in_job and not self.cgroup.exists

    def _cost(self) -> Dict[str, Reading]:
        with open("/proc/self/statm", "rb") as file:
            rss_bytes = int(file.read().split()[1]) * _PAGE_BYTES
        late_s, self._late_s = self._late_s, 0.0
        return {"cpu_s": time.process_time(), "rss_bytes": rss_bytes, "late_s": max(0.0, late_s)}


def _own_job(environ: Mapping[str, str]) -> Optional[JobPath]:
    """The job in whose cgroup this process stands."""
    try:
        return find_job_cgroup(read_text("/proc/self/cgroup"), environ)
    except OSError:
        return None


class _Signalled(Exception):
    """SIGTERM or SIGINT came; carries the number."""


class _Output:
    """Standard output, line by line and unbuffered: a sample is of use now or never."""

    def __init__(self) -> None:
        self._torn = False  # a signal came in the middle of a line

    def write(self, line: str) -> None:
        data = line.encode("ascii") + b"\n"
        if self._torn:
            data = b"\n" + data
        while data:
            self._torn = True
            data = data[os.write(1, data) :]
        self._torn = False

    def last(self, line: str) -> None:
        """Write if that is possible at once; a reader that is gone or slow misses it."""
        poll = select.poll()
        poll.register(1, select.POLLOUT)
        try:
            if any(events == select.POLLOUT for _, events in poll.poll(0)):
                self.write(line)
        except OSError:
            pass


def run(interval_s: float, count: Optional[int] = None, *, until_eof: bool = False) -> int:
    """Stream samples to standard output until there is a reason to end; returns the exit code."""

    def on_signal(number: int, _frame: object) -> None:
        raise _Signalled(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    output = _Output()
    encoder = Encoder()
    code, reason = EXIT_OK, ""
    agent = Agent(interval_s)
    try:
        reason = _stream(agent, encoder, output, count, until_eof)
    except _Signalled as signalled:
        code, reason = _SIGNALLED + signalled.args[0], f"signal {signalled.args[0]}"
    except BrokenPipeError:
        pass
    if reason:
        end = Event(time.time(), "end", text=reason)
        output.last(encoder.sample(Sample(end.time, time.monotonic(), {}, {}, [end])))
    agent.close()
    return code


def _stream(
    agent: Agent, encoder: Encoder, output: _Output, count: Optional[int], until_eof: bool
) -> str:
    """Header and samples until the end; returns what to say about it ("": nobody is listening)."""
    agent.start()
    output.write(encoder.header(agent.header()))
    for number in range(count or sys.maxsize):
        if number:
            due = next_tick(agent.interval_s)
            if not _wait_until(due, until_eof):
                return ""
            agent.late(time.time() - due)
        sample = agent.sample()
        if agent.devices.changed:
            output.write(encoder.header(agent.header()))
        output.write(encoder.sample(sample))
        if agent.job_ended:
            return "the job has ended"
    return "as many samples as were asked for"


def main() -> None:
    """`python -m gpumon.collect`, and what `gpumon collect` runs on a node without the package."""
    import argparse

    parser = argparse.ArgumentParser(prog="gpumon collect")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds, 0.1 to 3600")
    parser.add_argument("--count", type=int)
    parser.add_argument("--until-eof", action="store_true")
    args = parser.parse_args()
    if not 0.1 <= args.interval <= 3600:
        parser.error("--interval takes seconds from 0.1 to 3600")
    leave(run(args.interval, args.count, until_eof=args.until_eof))


def leave(code: int) -> NoReturn:
    """End at once: a worker that hangs in the driver must not hold up the exit."""
    sys.stdout.flush()
    os._exit(code)


def next_tick(interval_s: float) -> float:
    """The next multiple of the interval on the wall clock, so that nodes tick together.

    One that is less than a tenth of the interval away is left out: the tick before came late.
    """
    now = time.time()
    due = (now // interval_s + 1) * interval_s
    return due if due - now >= interval_s / 10 else due + interval_s


def _wait_until(due: float, until_eof: bool) -> bool:
    """Sleep until `due` (wall clock); False as soon as the reader or our input has gone.

    The reader's end is noticed while asleep (POLLERR on the pipe), so that
    `gpumon collect --interval 3600 | head -1` leaves nothing behind.
    """
    poll = select.poll()
    poll.register(1, 0)
    if until_eof:
        poll.register(0, select.POLLIN)
    end = time.monotonic() + max(0.0, due - time.time())
    while True:
        left = end - time.monotonic()
        if left <= 0:
            return True
        for fd, events in poll.poll(left * 1000 + 1):
            if fd == 1 and events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                return False
            if fd == 0 and (events & ~select.POLLIN or not os.read(0, 65536)):
                return False
