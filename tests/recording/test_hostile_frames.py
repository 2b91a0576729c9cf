"""Lines of a frame that no recorder wrote: opened, or refused for its samples; nothing else."""

import json
import random
from math import inf, nan

import pytest

from gpumon.analysis.rules.catalogue import evaluate
from gpumon.analysis.run import Run
from gpumon.frames.builder import built
from gpumon.frames.lines import MALFORMED, frame_of, lines_of
from gpumon.model.fields import FIELDS, kept_field
from gpumon.model.untrusted import MAX_TIME
from gpumon.report.build import build
from gpumon.report.render.forms import FORMS, Medium, render
from tests.recording.streams import stream

HAPPENINGS = [(5, "comes"), (9, "comes"), (60, "xid"), (70, "lost"), (90, "well")]
VALUES = (
    None, True, False, -1, 0, 1, 3.5, 10**18, 10**40, 1e25, -1e25, 1e12, 1e308, nan, inf, "", "x",
    "\x1b[2J\x00", "1e300", [], {}, [1], [[]], {"a": 1}, [None, None], 1 << 33, 1e-300,
)  # fmt: skip


@pytest.fixture(scope="module")
def frames():
    """Two, one after the other."""
    return list(built(stream(2, 110, HAPPENINGS), 60.0))[:2]


def opened(lines):
    found = frame_of([*(line.encode() for line in lines), b"{}"], 7, shown=True)
    return found and found()


def changed(body, rng):
    """The value with one part of it, at any depth, replaced, left out, or there twice."""
    if isinstance(body, str) and body.startswith("{") and rng.random() < 0.9:
        return json.dumps(changed(json.loads(body), rng))
    if not body or not isinstance(body, (dict, list)) or rng.random() < 0.1:
        is_number = isinstance(body, (int, float)) and rng.random() < 0.3
        return -body if is_number else rng.choice(VALUES)
    at = rng.choice(list(body) if isinstance(body, dict) else range(len(body)))
    if rng.random() < 0.05:
        del body[at]
    elif rng.random() < 0.05 and isinstance(body, list):
        body.append(body[at])
    else:
        body[at] = changed(body[at], rng)
    return body


@pytest.mark.parametrize("seed", range(4))
def test_changed_lines_are_refused_or_harmless(frames, seed):
    rng = random.Random(seed)
    found = 0
    for _ in range(150):
        lines = lines_of(frames[0], 7)
        at = 0 if rng.random() < 0.7 else rng.randrange(len(lines))
        body = json.loads(lines[at])
        name = rng.choice(list(body)[1:])  # behind its place among the lines
        body[name] = changed(body[name], rng)
        lines[at] = json.dumps(body, separators=(",", ":"))
        try:
            frame = opened(lines)
        except MALFORMED:
            continue
        assert frame is not None
        found += 1
        assert list(outside(frame)) == []
        lines_of(frame, 7)
        if found % 10 == 0:
            run = Run()
            run.add("gpu01", frame)
            run.add("gpu01", frames[1])
            data = run.data()
            evaluate(data)
            for form in FORMS:
                render(form, [build(data)], Medium())
    assert 20 < found < 150


def outside(frame):
    """What of a frame no stream could have brought about."""
    times = [frame.samples.first, frame.samples.last]
    amounts = [
        ("job", "mem_limit_bytes", frame.job.mem_limit_bytes),
        ("job", "mem_used_bytes", frame.job.mem_peak_bytes),
        ("job", "cpu_cores_used", frame.job.cores.peak60()),
        ("job", "cpu_s", frame.job.cpu_s.result()),
    ]
    rollups = [(entity, field, own) for (entity, _, field), own in frame.named()]
    for device in frame.devices:
        amounts += [("device", name, each.newest) for name, each in device.counters.items()]
        amounts += [("device", "mem_used_bytes", device.mem_before_bytes)]
        for process in device.processes:
            times += [process.first, process.last, *process.rise[0]]
            amounts += [("usage", "mem_bytes", value) for value in process.rise[1]]
            amounts += [("pool", name, most) for name, most in process.pool.items()]
    for program in frame.programs.values():
        times += [program.first, program.last, program.since, program.stepped or 0.0]
        amounts += [("program", "rank", program.rank), ("program", "steps", program.steps.newest)]
    yield from (time for time in times if not abs(time) <= MAX_TIME)
    for entity, name, value in amounts:
        field = FIELDS[entity][name]
        if value is not None and not field.low <= value <= field.high:
            yield entity, name, value
    first, last = frame.extent or (0, -1)
    for entity, name, own in rollups:
        field = kept_field(entity, name)
        for *values, count in zip(own.low, own.mean, own.high, own.count):
            known = [value for value in values if value == value]
            if count and len(known) < 3:
                yield entity, name, "counted, but not known"
            if len(known) == 3 and known != sorted(known):
                yield entity, name, "a mean beyond its extremes"
            if not all(field.low <= value <= field.high * 1.001 for value in known):
                yield entity, name, values
        if len(own) and not first <= own.first <= own.last <= last:
            yield entity, name, "reaches farther than the frame"


@pytest.mark.parametrize("by", [10**13, -(10**13), 10**9])
def test_buckets_that_are_elsewhere_than_their_frame_are_refused(frames, by):
    """Joined with its neighbours they would be bridged by gaps, which fill any memory."""
    head, *lines = lines_of(frames[0], 7)
    body = json.loads(head)
    body["buckets"] = [each + by for each in body["buckets"]]
    with pytest.raises(ValueError, match="outside of the extent"):
        opened([json.dumps(body, separators=(",", ":")), *lines])


def test_devices_are_counted_from_the_first(frames):
    lines = lines_of(frames[0], 7)
    at, line = next((n, each) for n, each in enumerate(lines) if '"device"' in each and n)
    body = json.loads(line)
    next(each for each in body["names"] if each[0] == "device")[2][0] = -1
    lines[at] = json.dumps(body, separators=(",", ":"))
    with pytest.raises(IndexError):
        opened(lines)


def test_a_mean_beyond_its_extremes_is_refused(frames):
    lines = lines_of(frames[0], 7)
    for at, line in enumerate(lines[1:], 1):
        body = json.loads(line)
        for place, (size, width) in enumerate(zip(body.get("sizes", ()), body.get("widths", ()))):
            if width == 3 * size:
                begin, digits = 8 * sum(body["widths"][:place]), 8 * size
                values = body["values"]
                mean, rest = values[begin : begin + digits], values[begin + digits :]
                high = rest[digits : 2 * digits]
                swapped = high + rest[:digits] + mean + rest[2 * digits :]
                body["values"] = values[:begin] + swapped
                lines[at] = json.dumps(body, separators=(",", ":"))
                with pytest.raises(ValueError, match="beyond its extremes"):
                    opened(lines)
                return
    raise AssertionError("no rollup with extremes")
