"""Which GPUs are shown as the job's by an agent that stands outside of it."""

from __future__ import annotations

import os

from gpumon.collect.base import Tick
from gpumon.collect.job.devices import JobDevices
from gpumon.model.sample import Device, Event, Mig, State, leaves
from tests.collect.trees import plant_process


class Devices:
    """The collector's list of devices."""

    def __init__(self, *devices):
        self.devices = list(devices)
        self.changed = False


class Cgroup:
    """A job's cgroup that holds these processes."""

    def __init__(self, pids=(), minors=None):
        self._pids, self._minors = list(pids), minors

    def pids(self):
        return self._pids

    def device_minors(self):
        return self._minors


def gpu(key, mig=None):
    uuid = f"MIG-{key}" if mig else f"GPU-{key}"
    return Device(key, key, uuid, "A100", mig=mig, facts={"minor": key})


FOUR = [gpu(0), gpu(1), gpu(2), gpu(3)]


def tick(*usage, events=()):
    """Rows of four devices, of which these (device, pid) are in use."""
    made = Tick(100.0, 10.0)
    for device in FOUR:
        made.put("device", device.key, {"busy_percent": 1})
    for key in usage:
        made.put("usage", key, {"mem_bytes": 1})
    made.events += events
    made.states = {3: State("lost", 1.0)}
    return made


def test_what_its_processes_hold_is_the_jobs_and_stays_so():
    collector, cgroup = Devices(*FOUR), Cgroup([50, 51])
    mine = JobDevices(collector, cgroup, 2)
    first = tick((1, 50), (2, 99), (3, 98), events=[Event(1.0, "xid", 2), Event(1.0, "xid", 1)])
    mine.collect(first)
    assert set(first.rows["device"]) == {1}
    assert set(first.rows["usage"]) == {(1, 50)}  # others' processes are not shown
    assert [event.device for event in first.events] == [1]
    assert first.states == {}
    assert collector.changed  # the header is to be sent again
    assert mine.note == "Only 1 of the job's 2 GPUs are known: those its processes use."
    cgroup._pids = []
    second = tick()
    mine.collect(second)
    assert set(second.rows["device"]) == {1}


def test_minors_of_its_device_cgroup():
    mine = JobDevices(Devices(*FOUR), Cgroup(minors={2, 3}), 2)
    mine.learn_at_start()
    assert [device.key for device in mine.of(FOUR)] == [2, 3]
    assert mine.note == ""
    shown = tick()
    mine.collect(shown)
    assert shown.states == {3: State("lost", 1.0)}


def test_all_where_there_are_as_many_as_it_has():
    mine = JobDevices(Devices(*FOUR), Cgroup(), 4)
    mine.learn_at_start()
    assert mine.of(FOUR) == FOUR


def test_none_where_it_has_none():
    mine = JobDevices(Devices(*FOUR), Cgroup([50], minors={1}), 0)
    mine.learn_at_start()
    mine.collect(tick((1, 50)))
    assert (mine.of(FOUR), mine.note) == ([], "")


def test_uuids_in_its_processes_environment(tmp_path):
    plant_process(tmp_path, 50)
    (tmp_path / "50" / "environ").write_bytes(b"A=1\0CUDA_VISIBLE_DEVICES=GPU-3,0\0")
    plant_process(tmp_path, 51)
    (tmp_path / "51" / "environ").write_bytes(b"CUDA_VISIBLE_DEVICES=1\0")  # an index says nothing
    mine = JobDevices(Devices(*FOUR), Cgroup([50, 51]), 2, proc=str(tmp_path))
    mine.collect(tick())
    assert [device.key for device in mine.of(FOUR)] == [3]


def test_an_instance_brings_its_whole_gpu():
    place = Mig("GPU-0", 1, 0, "1g.10gb")
    devices = [gpu(0), gpu(1), gpu(7, place), gpu(8, place._replace(gi=2))]
    mine = JobDevices(Devices(*devices), Cgroup([50]), 1)
    mine.collect(tick((7, 50)))
    assert [device.key for device in mine.of(devices)] == [0, 7]
    assert [device.key for device in leaves(devices)] == [1, 7, 8]
    assert mine.note == ""


def test_what_is_not_known_is_said():
    mine = JobDevices(Devices(*FOUR), Cgroup(), None)
    mine.collect(tick((0, os.getpid())))
    assert mine.of(FOUR) == []
    assert mine.note == "It is unknown which GPUs belong to the job until its processes use them."
    assert JobDevices(Devices(), Cgroup(), 2).note == ""  # no driver: that is said already
