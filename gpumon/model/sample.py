"""The stream of one node: a header with constant facts, then samples."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

from gpumon.model.reading import Missing, Reading

#: device number, process id, interface name …; a tuple (device, pid) for `usage` and `pool`
Key = Union[int, str, "tuple[int, int]"]
#: entity -> key -> field -> reading; only what was read in this tick
Rows = Dict[str, Dict[Key, Dict[str, Reading]]]


class Mig(NamedTuple):
    """Where a MIG instance sits."""

    parent: str  # UUID of the whole device
    gi: int
    ci: int
    profile: str  # "1g.10gb"


class Device(NamedTuple):
    """One GPU or MIG instance: what identifies it and what does not change.

    `key` numbers it within one stream and is never used again for another; `index` is its number on
    the node, the same inside and outside of a job; `cuda_index` the job's (None: not visible to it,
    or not known). `facts` holds static readings by the names of `FACTS` below, each a value or the
    reason why not.
    """

    key: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody wants here
    uuid: str  # "" if the device was lost before it could be read
    name: str
    cuda_index: Optional[int] = None
    mig: Optional[Mig] = None
    facts: Dict[str, Reading] = {}

    @property
    def label(self) -> str:
        """`0`, or `0/gi3` for a MIG instance, to show after the node's name."""
        if self.mig is None:
            return str(self.index)
        return f"{self.index}/gi{self.mig.gi}" + (f".{self.mig.ci}" if self.mig.ci else "")

    def is_same(self, other: Device) -> bool:
        """By the UUID; by the place where one was lost before it could be asked for its."""
        if self.uuid and other.uuid:
            return self.uuid == other.uuid
        return (self.index, self.mig) == (other.index, other.mig)


def leaves(devices: Iterable[Device]) -> List[Device]:
    """What Slurm counts as GPUs: instances, and GPUs that are not divided."""
    devices = list(devices)
    parents = {device.mig.parent for device in devices if device.mig}
    return [device for device in devices if device.mig or device.uuid not in parents]


#: names that `Device.facts` may hold
FACTS = (
    "mem_total_bytes", "bus_id", "serial", "minor", "vbios", "architecture",
    "compute_capability", "cores", "multiprocessors", "power_limit_default_w",
    "power_limit_min_w", "power_limit_max_w", "sm_clock_max_mhz", "mem_clock_max_mhz",
    "temperature_slowdown_c", "temperature_shutdown_c", "temperature_mem_max_c",
    "pcie_gen_max", "pcie_width_max", "nvlink_links", "numa_node", "cpu_affinity", "ecc_mode",
    "gpm", "display_active", "power_kind",
)  # fmt: skip


class Process(NamedTuple):
    """What does not change about a process; sent when it is first seen."""

    pid: int
    user: str
    command: str  # redacted, control characters stripped
    name: str  # /proc's comm
    ppid: int = 0
    uid: int = -1
    start: float = 0.0  # epoch seconds
    own: bool = False  # belongs to the user who runs the agent
    in_job: bool = False  # stands in the job's cgroup
    framework: str = ""  # tf jax torch vllm rmm llama cuda-other, or "" (unknown, not none)
    job: str = ""  # Slurm job id from its cgroup
    #: verdicts on the few named variables, never their text; `also` more frameworks, `purpose` what
    #: its libraries are for
    hints: Dict[str, str] = {}
    note: str = ""  # "in another PID namespace", …

    @classmethod
    def of(cls, event: Event) -> Process:
        """The facts that a `process` event carries, but for those of a wrong type."""
        facts: Dict[str, Any] = {"user": "", "command": "", "name": ""}
        example = cls(0, **facts)
        for field in cls._fields[1:]:
            value = event.data.get(field)
            if field == "start" and isinstance(value, int):
                value = float(value)
            if isinstance(value, type(getattr(example, field))):
                facts[field] = value
        return cls(event.pid or 0, **facts)


class State(NamedTuple):
    """A device that is not well: `lost`, `hung` or `error`, since when (epoch s), and why."""

    state: str
    since: float
    detail: str = ""


#: `why` in the data of an `end` event, for readers that act on it
WRONG_JOB = "wrong-job"
NO_JOB = "no-job"
JOB_ENDED = "job-ended"
NO_ROOM = "no-room"


class Event(NamedTuple):
    """Something that happened at one moment.

    kinds: `process` (facts of a new or changed one in `data`), `process-end`, `xid`, `device`,
    `mark`, `gap`, `note`, `end`. Readers skip kinds they do not know.
    """

    time: float
    kind: str
    device: Optional[int] = None
    pid: Optional[int] = None
    text: str = ""
    data: Dict[str, Union[str, int, float, bool, Dict[str, str], None]] = {}


class JobContext(NamedTuple):
    """The job around the agent, from its cgroup and environment alone."""

    id: str
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    cluster: str = ""
    nodes: str = ""  # as Slurm writes it: gpu[01-02]
    node_count: int = 0
    step: str = ""
    array: str = ""  # 4711_3 for a task of an array
    cpus: Optional[int] = None  # on this node
    mem_limit_bytes: Optional[int] = None  # on this node
    gpus: Optional[int] = None  # on this node
    start: Optional[float] = None
    end: Optional[float] = None  # when the time limit ends it
    source: str = ""  # "environment", "cgroup", …
    restarts: Optional[int] = None  # how often it was requeued before
    own_step: bool = False  # the step was started for gpumon alone; False where not known


#: notes of a header that are no trouble: there is nothing to measure
NO_DRIVER = "No NVIDIA driver on this node."
NO_MODULE = "No NVIDIA driver on this node (its kernel module is not loaded)."
NO_DEVICE = "No NVIDIA device is visible here."


class Header(NamedTuple):
    """First line of a stream, and again whenever something in it changes."""

    node: str
    boot_id: str
    time: float
    mono: float
    interval_s: float
    gpumon: str
    devices: List[Device] = []
    driver: str = ""
    nvml: str = ""
    cuda: str = ""
    job: Optional[JobContext] = None
    #: of the node: cpus, mem_total_bytes, swap_total_bytes, kernel, …
    facts: Dict[str, Reading] = {}
    notes: List[str] = []  # sentences for people: NO_DRIVER, …
    agent_uid: int = -1
    agent_pid: int = 0


class Sample(NamedTuple):
    """Everything measured on one node at one time.

    `rows` holds only what was read in this tick: a reading's age is the age of the sample it
    came in. `states` names every device that is not well at this moment.
    """

    time: float  # wall clock, epoch seconds UTC
    mono: float  # monotonic, for differences
    rows: Rows
    states: Dict[int, State] = {}
    events: List[Event] = []


#: (group, key, field) -> what is missing there, in words of its own
Details = Mapping[Tuple[str, Key, str], Missing]


class Received(Sample):
    """A sample with the line that it came in, where that says this and nothing else.

    `_replace` gives one without a line, so a line never stands for what was changed.
    """

    line: bytes = b""  # without its end; b"": to be encoded
    details: Details = {}  # of the stream so far, with those of this line; it continues to change
