"""Frames that are joined have their bounds, whatever they hold."""

from gpumon.frames.frame import Frame
from gpumon.model.bounded import weight
from gpumon.model.sample import Device, Event, Header, Process


def crowded(n):
    """A frame of one bucket with everything of new names, as a hostile file may have it."""
    frame = Frame()
    devices = [Device(key, key, f"GPU-{n}-{key}", "H200") for key in range(4)]
    frame.add_header(Header("gpu01", f"boot {n}", 0.0, 0.0, 1.0, "0", devices))
    frame.cover(7, 7)
    for device in devices:
        frame.find_device(device, ())
    for each in range(10):
        name = f"{n}-{each}"
        pid = 10 * n + each
        frame.add_path(name, "/tmp")
        frame.leave_out(name)
        frame.facts[pid] = Process(pid, "ada", "x" * 1000, "x")
        frame.add_event(Event(70.0, "note", text=name))
        for field in ("used_bytes", "free_bytes"):
            frame.rollup(("disk", name, field)).put(7, [1.0])
        frame.rollup(("process", pid, "cpu_percent")).put(7, [1.0])
    return frame


def held(frame):
    parts = (dict.fromkeys(frame.paths), frame.facts, list(frame.events), dict(frame.named()))
    return [len(each) for each in (*parts, frame.devices, frame.headers, frame.left_out())]


def test_frames_of_one_border_do_not_grow_without_end():
    frame = Frame()
    for n in range(300):
        frame.extend(crowded(n))
    before, weighed = held(frame), weight(frame.facts)
    for n in range(300, 1100):
        frame.extend(crowded(n))
    most = [512, 512, 2000, 1024, 256, 1000, 64]
    assert all(n <= bound for n, bound in zip(held(frame), most)), held(frame)
    assert held(frame)[:2] == before[:2]
    assert weight(frame.facts) == weighed
