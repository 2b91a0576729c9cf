"""Streams made to fill a memory: each is a header, then lines without end, the same each time.

A bomb grows one thing that a reader keeps: keys, texts, events, headers, times. `mixed` draws
from all of them and from lines that are no stream at all. Every line is within the wire's limit
unless the bomb is about that.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from itertools import count, cycle

from gpumon.model.fields import GROUPS
from gpumon.wire import MAX_LINE_BYTES

START = 1_795_200_000.0
NODE = "gpu01"
GROUP_TABLE = {
    group.key: {
        "period_s": group.period_s,
        "fields": [[field.name, field.unit] for field in group.fields],
    }
    for group in GROUPS
}
_FIELDS = {group.key: group.fields for group in GROUPS}
#: of four bytes each in memory, as one of them makes all of a text
_WIDE = "\U0001f4a3"
_ROOM = MAX_LINE_BYTES - 4096

Lines = Iterator[bytes]


def dump(body: dict) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def header(devices: list | None = None, **other: object) -> bytes:
    body = {
        "wire": "1.0", "gpumon": "0.1.0", "node": NODE, "boot_id": "b", "t": START, "m": 1.0,
        "interval_s": 1.0, "devices": devices if devices is not None else [device(0)],
        "facts": {"cpus": 8}, "groups": GROUP_TABLE, "agent": {"uid": 1, "pid": 2}, "job": None,
    }  # fmt: skip
    return dump({**body, **other})


def device(key: int, **other: object) -> dict:
    uuid = f"GPU-{key:08d}"
    return {"key": key, "index": key, "uuid": uuid, "name": "NVIDIA H100", "facts": {}, **other}


def sample(at: float, rows: dict | None = None, **other: object) -> bytes:
    body: dict = {"t": START + at, "m": 1.0 + at, **other}
    if rows is not None:
        body["rows"] = rows
    return dump(body)


def row(group: str, key: object, n: int = 1, text: str = "x") -> list:
    """A row of numbers that are all plausible."""
    return [key, *(text if each.text else min(n % 90, each.high) for each in _FIELDS[group])]


def fitting(make: Callable[[int], object], numbers: Iterator[int], most: int = 1 << 20) -> list:
    """As many as one line takes."""
    found, left = [], _ROOM
    for number in numbers:
        each = make(number)
        left -= len(json.dumps(each, ensure_ascii=False).encode()) + 1
        if left < 0 or len(found) == most:
            return found
        found.append(each)
    return found


def new_headers() -> Lines:
    """A header after the other, each with other devices, facts and notes."""
    for turn in count():
        facts = {f"{n}": "y" * 40 for n in range(4)}
        devices = [device(turn * 900 + n, facts=facts) for n in range(900)]
        yield header(devices, notes=[f"{turn} {n} " + "n" * 480 for n in range(64)])


def same_headers() -> Lines:
    """One header again and again, as fast as the pipe takes it."""
    one = header([device(n) for n in range(1024)])
    while True:
        yield one


def large_headers() -> Lines:
    """Few devices with as many facts as a line takes."""
    for turn in count():
        facts = {f"{turn}-{n}": n for n in range(50_000)}
        yield header([device(0, facts=facts)])


def new_device_keys() -> Lines:
    """8,000 devices a sample that no header lists."""
    yield header()
    for turn in count():
        keys = range(1 + turn * 8000, 1 + (turn + 1) * 8000)
        yield sample(turn, {"device.fast": [row("device.fast", key, key) for key in keys]})


def new_devices() -> Lines:
    """Headers that list other devices each time, and a sample of each."""
    for turn in count():
        keys = range(turn * 1000, (turn + 1) * 1000)
        yield header([device(key) for key in keys])
        yield sample(turn, {"device.fast": [row("device.fast", key, key) for key in keys]})


def time_jumps() -> Lines:
    """As many devices as a header may list, and clocks that fill every ring with few samples."""
    yield header([device(n) for n in range(1024)])
    groups = ("device.fast", "device.gpm", "device.links", "device.thermal", "device.clocks")
    for turn in count():
        for group in groups:
            yield sample(turn * 600.0, {group: [row(group, n, turn + n) for n in range(1024)]})


def tiny() -> Lines:
    """Samples of a few bytes, thousands in a second of the stream."""
    yield header()
    for turn in count():
        yield sample(turn * 1e-3, {"device.fast": [row("device.fast", 0, turn)]})


def one_moment() -> Lines:
    """All samples at one time."""
    yield header()
    for turn in count():
        yield sample(0.0, {"device.fast": [row("device.fast", 0, turn)]})


def events() -> Lines:
    yield header()
    kinds = cycle(("note", "xid", "mark", "device", "gap", "what"))
    for turn in count():
        kind = next(kinds)
        some = fitting(
            lambda n, turn=turn, kind=kind: {"t": START + turn, "kind": kind, "device": 0,
                                             "text": f"{n} of {turn}"}, count())  # fmt: skip
        yield sample(turn, {"device.fast": [row("device.fast", 0)]}, events=some)


def long_events() -> Lines:
    """Texts as long as can be, with as much data."""
    yield header()
    for turn in count():
        data = {f"{n}": {f"{k}": _WIDE * 200 for k in range(40)} for n in range(2)}
        one = {"t": START + turn, "kind": "note", "text": _WIDE * 4096, "data": data}
        some = fitting(lambda n, one=one: one, count())
        yield sample(turn, {"device.fast": [row("device.fast", 0)]}, events=some)


def process_of(pid: int, **other: object) -> dict:
    data = {"user": "ada", "command": "python", "name": "python", "start": 1.0, "own": True,
            "in_job": True, **other}  # fmt: skip
    return {"t": START, "kind": "process", "pid": pid, "data": data}


def processes() -> Lines:
    """New processes, thousands a sample, none of which ends."""
    yield header()
    pids = count(1)
    for turn in count():
        some = fitting(process_of, pids)
        first = some[0]["pid"]
        usage = [row("usage.usage", [0, first + n], n) for n in range(1000)]
        rows = {"usage.usage": usage, "device.fast": [row("device.fast", 0)],
                "device.processes": [row("device.processes", 0)]}  # fmt: skip
        yield sample(turn, rows, events=some[:-1400])


def long_processes() -> Lines:
    """Processes with command lines and hints as long as can be."""
    yield header()
    pids = count(1)
    for turn in count():
        hints = {f"{n}": _WIDE * 200 for n in range(60)}
        some = fitting(
            lambda pid, hints=hints: process_of(pid, command=_WIDE * 4096, hints=hints), pids
        )
        yield sample(turn, {"device.fast": [row("device.fast", 0)]}, events=some)


def process_rows() -> Lines:
    """Rows of processes that nobody named."""
    yield header()
    for turn in count():
        pids = range(turn * 8000, (turn + 1) * 8000)
        yield sample(turn, {"process.process": [row("process.process", pid, pid) for pid in pids]})
        yield sample(turn, {"usage.usage": [row("usage.usage", [0, pid], pid) for pid in pids]})


def reused_pids() -> Lines:
    """The same numbers, each time another process."""
    yield header()
    for turn in count():
        some = [process_of(pid, start=1.0 + turn) for pid in range(500)]
        rows = {"usage.usage": [row("usage.usage", [0, pid], turn) for pid in range(500)],
                "process.process": [row("process.process", pid, turn) for pid in range(500)],
                "device.fast": [row("device.fast", 0)],
                "device.processes": [row("device.processes", 0)]}  # fmt: skip
        yield sample(turn, rows, events=some)


def why() -> Lines:
    """Words behind missing values of keys that never were."""
    yield header()
    keys = count()
    for turn in count():
        some = fitting(lambda n: ["device.fast", n, "busy_percent", f"{n} " + _WIDE * 190], keys)
        yield sample(turn, {"device.fast": [row("device.fast", 0)]}, why=some)


def states() -> Lines:
    """States of devices that no header lists."""
    yield header()
    keys = count(1)
    for turn in count():
        some = fitting(lambda n: [n, "lost", START, f"Xid {n}"], keys)
        yield sample(turn, {"device.fast": [row("device.fast", 0)]}, states=some)


def labels() -> Lines:
    """Interfaces, disks and collectors with new names each time."""
    yield header()
    names = count()
    for turn in count():
        rows = {
            group: [row(group, f"{next(names)}" + "k" * 60, turn, "p" * 60) for _ in range(2000)]
            for group in ("net.net", "disk.disk", "collector.collector")
        }
        yield sample(turn, rows)


def texts() -> Lines:
    """Values that are texts, as long as can be, of many keys."""
    yield header()
    names = count()
    for turn in count():
        some = fitting(lambda n: row("disk.disk", f"{n}", n, _WIDE * 4000), names)
        yield sample(turn, {"disk.disk": some})


def wide_samples() -> Lines:
    """Every group with as many rows as it may have."""
    yield header([device(n) for n in range(500)])
    keys = {"device": range(500), "usage": [[n % 500, n] for n in range(500)], "host": [""],
            "pool": [[n % 500, n] for n in range(500)], "program": range(500),
            "process": range(500), "job": [""], "agent": [""]}  # fmt: skip
    for turn in count():
        rows = {
            group.key: [row(group.key, key, turn)
                        for key in keys.get(group.entity, [f"{n}" for n in range(500)])]
            for group in GROUPS
        }  # fmt: skip
        for group, table in rows.items():
            yield sample(turn, {group: table})


def deep() -> Lines:
    """JSON as deep and as dense as a line takes."""
    yield header()
    size = _ROOM // 2
    for turn in count():
        yield (b"[" * size + b"]" * size, b'{"a":' * size, b'{"t":1,"m":1,"rows":'
               + b'{"a":' * 900 + b"1" + b"}" * 902)[turn % 3]  # fmt: skip
        yield sample(turn, {"unknown": [[]] * 300_000})
        yield sample(turn, {"host.host": [[""]] * 8000})
        yield sample(turn, other=[{}] * 300_000)


def long_lines() -> Lines:
    """Lines longer than any may be."""
    yield header()
    for turn in count():
        yield b'{"t":1,"m":1,"x":"' + b"x" * (3 * MAX_LINE_BYTES) + b'"}'
        yield sample(turn, {"device.fast": [row("device.fast", 0)]})


def wrong_types() -> Lines:
    """Keys and values of kinds that their places do not take."""
    odd = random.Random("types")
    values = (None, True, -1, 1e308, 10**400, 1e400, "", "x", [], {}, [[]], [1, 2], [1, 2, 3], -0.0)
    groups = [group.key for group in GROUPS]
    yield header()
    for turn in count():
        rows = {}
        for group in odd.sample(groups, 3):
            rows[group] = [
                row(group, odd.choice((*values, 0, [0, 1], "eth0")), turn) for _ in range(20)
            ]
            for each in rows[group]:
                each[odd.randrange(len(each))] = odd.choice(values)
        body: dict = {"t": START + turn, "m": turn, "rows": rows}
        body[odd.choice(("t", "m", "rows", "why", "states", "events"))] = odd.choice(values)
        yield dump(body)
        fields = [[odd.choice(("", "busy_percent", "new")), ""] for _ in range(odd.randrange(4))]
        declared = {group: {"period_s": 1, "fields": fields} for group in odd.sample(groups, 4)}
        other = {odd.choice(("t", "m", "interval_s", "devices", "facts", "job", "node", "agent",
                             "notes", "driver", "boot_id")): odd.choice(values)}  # fmt: skip
        yield header(groups={**GROUP_TABLE, **declared}, **other)
        yield sample(turn, {group: [[odd.choice((0, "", [0, 1])), *(1 for _ in fields)]]
                            for group in declared})  # fmt: skip


def odd_devices() -> Lines:
    """Devices that are listed twice, share a UUID, or have none."""
    odd = random.Random("devices")
    for turn in count():
        listed = [device(odd.randrange(1 << 40), uuid=odd.choice(("", "GPU-1", "GPU-2")),
                         index=odd.randrange(3)) for _ in range(odd.randrange(1, 200))]  # fmt: skip
        yield header(listed, t=START + turn)
        keys = [each["key"] for each in listed]
        yield sample(turn, {"device.fast": [row("device.fast", key, turn) for key in keys]},
                     states=[[key, "lost", START, ""] for key in keys[::2]])  # fmt: skip


def wild_times() -> Lines:
    """Clocks that go anywhere."""
    odd = random.Random("times")
    yield header()
    for turn in count():
        at = odd.choice((0, -START, 1e9, -1e9, 1e14, -1e14, 3600, turn, -turn)) * odd.random()
        yield sample(at, {"device.fast": [row("device.fast", 0, turn)],
                          "job.cgroup": [row("job.cgroup", "")]},
                     events=[{"t": START - at, "kind": "mark", "text": "x"}])  # fmt: skip


def agents() -> Lines:
    """Headers as if the agent or the node began anew each time, with a job each."""
    for turn in count():
        yield header([device(n) for n in range(8)], boot_id=f"{turn}",
                     job={"id": str(turn), "name": "n" * 500, "nodes": "x" * 500})  # fmt: skip
        yield sample(turn, {"device.fast": [row("device.fast", n, turn) for n in range(8)],
                            "process.process": [row("process.process", turn)]},
                     events=[process_of(turn)])  # fmt: skip


def nodes() -> Lines:
    """Headers that name another node each time."""
    for turn in count():
        yield header(node=f"gpu{turn}")
        yield sample(turn, {"device.fast": [row("device.fast", 0, turn)]})


SINGLE: dict[str, Callable[[], Lines]] = {
    each.__name__: each
    for each in (
        new_headers, same_headers, large_headers, new_device_keys, new_devices, time_jumps, tiny,
        one_moment, events, long_events, processes, long_processes, process_rows, reused_pids, why,
        states, labels, texts, wide_samples, deep, long_lines, wrong_types, odd_devices, wild_times,
        agents, nodes,
    )
}  # fmt: skip


def mixed(seed: str) -> Lines:
    """Lines of all the others in any order, some of them torn."""
    odd = random.Random(seed)
    streams = [make() for make in SINGLE.values()]
    yield header()
    while True:
        line = next(odd.choice(streams))
        yield line if odd.random() < 0.95 else line[: odd.randrange(len(line))]


def lines_of(name: str) -> Lines:
    """The lines of a bomb, or of `mixed-SEED`."""
    return SINGLE[name]() if name in SINGLE else mixed(name)
