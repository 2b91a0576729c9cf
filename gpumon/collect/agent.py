"""The agent: runs the collectors once per interval and streams samples as lines.

A guest on the node: it leaves nothing behind, says what it costs, and ends when its output cannot
be written, when its job has ended, on SIGTERM, and, with `until_eof`, when its standard input
ends (`sources` hold a pipe there; under nohup and cron it does not look at its input). With
`heartbeat` it also ends when that input has been silent for 45 s: a network that was cut tells
neither end of the other for minutes.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Dict, List, Mapping, NamedTuple, NoReturn, Optional

from gpumon import __version__
from gpumon.collect.base import Collector, Schedule, Tick, node_name
from gpumon.collect.cgroup import JobCgroup
from gpumon.collect.devices import DeviceCollector
from gpumon.collect.guard import JOB_ENDED, Standing, Target, parse_target, stand
from gpumon.collect.host import Host
from gpumon.collect.jobcontext import cuda_order, cuda_order_note, job_context
from gpumon.collect.jobdevices import JobDevices
from gpumon.collect.jobpath import JobPath, find_job_cgroup
from gpumon.collect.labels import labelled
from gpumon.collect.network import Network
from gpumon.collect.proc import cpu_list_text, read_text
from gpumon.collect.processes import Processes
from gpumon.collect.room import spare_address_space
from gpumon.collect.storage import Storage
from gpumon.errors import EXIT_OK
from gpumon.model.fields import GROUP_BY_KEY
from gpumon.model.plausible import node_ceilings, refuse_above
from gpumon.model.reading import Reading
from gpumon.model.sample import Device, Event, Header, JobContext, Sample
from gpumon.model.text import clean
from gpumon.wire import Encoder

if TYPE_CHECKING:
    import argparse

_START_DEADLINE_S = 2.0  # for the driver to answer before the first sample goes out without it
_SIGNALLED = 128  # shells' convention: 128 + signal
_SILENCE_S = 45  # of a reader that was to send a line every 10 s
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Agent:
    """The collectors of one node, and what their samples look like to others."""

    def __init__(
        self,
        interval_s: float,
        environ: Optional[Mapping[str, str]] = None,
        target: Optional[Target] = None,
    ) -> None:
        """`target`: the job to speak for; without one, the job around this process, if any."""
        environ = os.environ if environ is None else environ
        self.interval_s = interval_s
        self._environ = environ
        self._target = target
        self.standing = (
            Standing(_own_job(environ), True) if target is None else stand(target, environ)
        )
        self.devices = DeviceCollector(interval_s, environ)
        self.cgroup = JobCgroup(self.standing.path)
        self._stood_in_job = self.cgroup.exists
        self._job_devices: Optional[JobDevices] = None
        self._host = Host()
        self.collectors: List[Collector] = [self.devices]
        # a shell that Slurm did not start, be it adopted, may see the GPUs of others
        if target is not None and "CUDA_VISIBLE_DEVICES" not in environ:
            self._job_devices = JobDevices(self.devices, self.cgroup, target.gpus)
            self.collectors.append(self._job_devices)
        self.collectors += [
            Processes(self.cgroup),
            self.cgroup,
            self._host,
            Network(),
            Storage(environ),
        ]
        self._schedule = Schedule()
        self._late_s = 0.0
        self.node = node_name(environ)

    def start(self, deadline_s: float = _START_DEADLINE_S) -> None:
        self.devices.start(deadline_s)
        if self._job_devices is not None:
            self._job_devices.learn_at_start()

    def header(self) -> Header:
        """Everything that does not change, as known now; `devices.changed` is then false."""
        self.devices.changed = False
        facts = self._host.facts()
        devices, notes = self.devices.devices, list(self.devices.notes)
        if self._job_devices is not None:
            devices = self._job_devices.of(devices)
            notes += [self._job_devices.note] if self._job_devices.note else []
        job = self._job(devices)
        if job is not None:
            facts["job_cpus"] = self._job_cpus(job.cpus)
        visible = (
            self._environ.get("CUDA_VISIBLE_DEVICES"),
            devices,
            self._environ.get("CUDA_DEVICE_ORDER"),
            self.cgroup.device_minors() if job else None,
        )
        order = cuda_order(*visible) if self._numbers_known else {}
        unclear = cuda_order_note(*visible) if job and self._numbers_known else ""
        return Header(
            node=self.node,
            boot_id=str(facts.get("boot_id", "")),
            time=time.time(),
            mono=time.monotonic(),
            interval_s=self.interval_s,
            gpumon=__version__,
            devices=[device._replace(cuda_index=order.get(device.key)) for device in devices],
            driver=self.devices.driver,
            nvml=self.devices.nvml,
            cuda=self.devices.cuda,
            job=job,
            facts=facts,
            notes=[*notes, *([unclear] if unclear else [])],
            agent_uid=os.getuid(),
            agent_pid=os.getpid(),
        )

    def _job(self, devices: List[Device]) -> Optional[JobContext]:
        job = job_context(self._environ if self.standing.inside else {}, self.cgroup)
        if job is None or self._job_devices is None or job.gpus is not None:
            return job
        known = self._target.gpus if self._target is not None else None
        return job._replace(gpus=len(devices) or None if known is None else known)

    def _job_cpus(self, count: Optional[int]) -> Reading:
        """`0-7,16`: the CPUs that the job may use here, by its cgroup, else by our own affinity.

        That may be one task's alone, so it counts only if it is no less than the job's.
        """
        cpus = self.cgroup.cpus()
        if isinstance(cpus, list):
            return cpu_list_text(cpus)
        own = os.sched_getaffinity(0) if self.standing.inside else frozenset()
        if not own or count is None or len(own) < count:
            return cpus
        return cpu_list_text(own)

    @property
    def _numbers_known(self) -> bool:
        """CUDA counts the job's GPUs from 0; of a part of them no number can be told."""
        return self._job_devices is None or not self._job_devices.note

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
        refuse_above(tick.rows, node_ceilings(os.cpu_count() or 1, self._host.mem_total))
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


class _Signalled(BaseException):  # no collector's failure
    """SIGTERM or SIGINT came, or SIGALRM for a silent reader; carries the number."""


class _End(NamedTuple):
    """Why the stream ends. `why` is for programs, as `guard` names it."""

    text: str = ""  # "": nobody is listening
    why: str = ""


class _Output:
    """Standard output, line by line and unbuffered: a sample is of use now or never."""

    def __init__(self, label: str = "") -> None:
        """`label`: the node's name, where lines of several nodes share one pipe."""
        self._label = label
        self._torn = False  # a signal came in the middle of a line

    def write(self, line: str) -> None:
        data = line.encode("ascii")
        data = labelled(self._label, data) if self._label else data + b"\n"
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


class Reader(NamedTuple):
    """How the reader shows that it is there."""

    until_eof: bool = False  # it holds our input open
    heartbeat: bool = False  # and sends a line every 10 s
    label: bool = False  # it reads several nodes from one pipe


_ANYBODY = Reader()


def run(
    interval_s: float,
    count: Optional[int] = None,
    reader: Reader = _ANYBODY,
    target: Optional[Target] = None,
) -> int:
    """Stream samples to standard output until there is a reason to end; returns the exit code.

    With a `target` that is always 0: as a step of the job, anything else would become the job's
    DerivedExitCode.
    """
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)

    def on_signal(number: int, _frame: object) -> None:
        for each in signals:  # a second one must not break into the end that the first one brings
            signal.signal(each, signal.SIG_IGN)
        raise _Signalled(number)

    for number in signals:
        signal.signal(number, on_signal)
    encoder = Encoder()
    code, end = EXIT_OK, _End()
    output, agent = _Output(), None
    try:
        if reader.heartbeat:
            signal.alarm(_SILENCE_S)
        agent = Agent(interval_s, target=target)
        output = _Output(agent.node if reader.label else "")
        end = _stream(agent, encoder, output, count, reader)
    except _Signalled as signalled:
        code, end = _SIGNALLED + signalled.args[0], _End(f"signal {signalled.args[0]}")
        if signalled.args[0] == signal.SIGALRM:
            code, end = EXIT_OK, _End(f"no sign of the reader for {_SILENCE_S} s")
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):  # EIO: of a terminal that is gone
            raise
    signal.alarm(0)
    if agent is None:
        return code if target is None else EXIT_OK
    if end.text:
        event = Event(time.time(), "end", text=end.text, data={"why": end.why} if end.why else {})
        output.last(encoder.sample(Sample(event.time, time.monotonic(), {}, {}, [event])))
    agent.close()
    return code if target is None else EXIT_OK


def _stream(
    agent: Agent, encoder: Encoder, output: _Output, count: Optional[int], reader: Reader
) -> _End:
    """Header and samples until the end; returns what to say about it."""
    standing = agent.standing
    if standing.why:
        output.write(encoder.header(_refusal(agent, standing)))
        return _End(standing.text, standing.why)
    agent.start()
    output.write(encoder.header(agent.header()))
    for number in range(count or sys.maxsize):
        if number:
            due = next_tick(agent.interval_s)
            if not _wait_until(due, reader):
                return _End()
            agent.late(time.monotonic() - due)
        sample = agent.sample()
        if agent.devices.changed:
            output.write(encoder.header(agent.header()))
        output.write(encoder.sample(sample))
        if agent.job_ended:
            return _End("the job has ended", JOB_ENDED)
    return _End("as many samples as were asked for")


def _refusal(agent: Agent, standing: Standing) -> Header:
    """A header of which nothing can be taken for the job's."""
    now, mono = time.time(), time.monotonic()
    return Header(agent.node, "", now, mono, agent.interval_s, __version__, notes=[standing.text])


def main() -> None:
    """`python -m gpumon.collect`, and what `gpumon collect` runs on a node without the package."""
    import argparse

    spare_address_space()
    parser = argparse.ArgumentParser(prog="gpumon collect")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds, 0.1 to 3600")
    parser.add_argument("--count", type=int)
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("--heartbeat", action="store_true")
    parser.add_argument("--label", action="store_true")
    parser.add_argument("--job")
    parser.add_argument("--gpus", type=int)
    args = parser.parse_args()
    if not 0.1 <= args.interval <= 3600:
        parser.error("--interval takes seconds from 0.1 to 3600")
    try:
        target = parse_target(args.job, args.gpus) if args.job else None
    except ValueError as error:
        parser.error(str(error))
    leave(run(args.interval, args.count, reader_of(args), target))


def reader_of(args: argparse.Namespace) -> Reader:
    """As the flags of `gpumon collect` say."""
    return Reader(args.until_eof or args.heartbeat, args.heartbeat, args.label)


def leave(code: int) -> NoReturn:
    """End at once: a worker that hangs in the driver must not hold up the exit."""
    sys.stdout.flush()
    os._exit(code)


def next_tick(interval_s: float) -> float:
    """When to tick next, in monotonic seconds: at a multiple of the interval on the wall clock, so
    that nodes tick together.

    One that is less than a tenth of the interval away is left out: the tick before came late. So
    the next tick is 0.1 to 1.1 intervals away, even if the wall clock is set meanwhile.
    """
    wait_s = interval_s - time.time() % interval_s
    return time.monotonic() + (wait_s if wait_s >= interval_s / 10 else wait_s + interval_s)


def _wait_until(due: float, reader: Reader) -> bool:
    """Sleep until `due` (monotonic); False as soon as the reader or our input has gone.

    The reader's end is noticed while asleep (POLLERR on the pipe), so that
    `gpumon collect --interval 3600 | head -1` leaves nothing behind.
    """
    poll = select.poll()
    poll.register(1, 0)
    if reader.until_eof:
        poll.register(0, select.POLLIN)
    while True:
        left = due - time.monotonic()
        if left <= 0:
            return True
        for fd, events in poll.poll(left * 1000 + 1):
            if fd == 1 and events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                return False
            if fd == 0:
                if not events & select.POLLIN or not os.read(0, 65536):
                    return False
                if reader.heartbeat:
                    signal.alarm(_SILENCE_S)
