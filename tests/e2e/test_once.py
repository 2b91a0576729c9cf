"""`gpumon once` against the oracle: every field of every scenario, and the reasons for the rest."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
from typing import Any

import psutil
import pytest

from gpumon.model.fields import FIELDS, throttle_words
from gpumon.model.reading import REASONS, Missing
from gpumon.model.sample import FACTS
from tests.e2e.program import GPUMON, environment, gpumon, once, once_text
from tests.nvml.emulator import Emulated, Proc, Scenario, library_dir
from tests.nvml.scenario import FOLDER
from tests.support.waiting import HANGS_S

AT_S = 30.0  # the moment at which the scenarios stand still
RATES = {f"{link}_{way}_bytes_per_s" for link in ("pcie", "nvlink") for way in ("tx", "rx")}
BURST = ("busy_min_percent", "busy_mean_percent", "busy_max_percent", "busy_gap_s")
GPM = {name for name in FIELDS["device"] if re.match(r"(sm|dram|tensor|fp..|int)_.*percent", name)}
COUNTERS = {"energy_j", "throttle_power_s", "throttle_thermal_s"}
USAGE = ("type", "mem_bytes", "sm_percent", "mem_percent", "encoder_percent", "decoder_percent")

SCENARIOS = sorted(path.stem for path in FOLDER.glob("*.scn"))
#: scenario -> a sentence in `notes`, where there is no device to ask
WITHOUT_DEVICES = {
    "hang_all": "is not responding",
    "hang_init": "is not responding",
    "mismatch": "reboot the node",
    "no_devices": "No NVIDIA device",
    "no_driver": "No NVIDIA driver",
}
#: scenario -> the device that never answers
HUNG = {"hang": 1, "hang_at_start": 1, "hang_device": 1}
#: (scenario, field): the oracle does not know the board's limits on these
NOT_TOLD = {
    ("gb10", "bar1_used_bytes"),
    ("implausible", "bar1_used_bytes"),
    ("implausible", "mem_reserved_bytes"),
}


def reason(entry: dict[str, Any], name: str) -> str:
    """Why a value is null; the words behind the colon are for people."""
    assert entry[name] is None, name
    why: str = entry["missing"][name].split(":")[0]
    return why


# -- every scenario ----------------------------------------------------------------------------
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "flaky"])
def test_every_field_is_what_the_driver_was_told(name):
    with Emulated(name, freeze_s=AT_S) as gpus:
        body, truths = once(gpus), gpus.expected()
        past = [gpus.expected(AT_S - ago_s) for ago_s in (1.0, 0.5)]
    check_schema(body)
    if name in WITHOUT_DEVICES:
        assert body["devices"] == []
        assert WITHOUT_DEVICES[name] in body["notes"][0]
        return
    assert body["notes"] == []
    assert [d["index"] for d in body["devices"]] == [truth["index"] for truth in truths]
    for place, (told, truth) in enumerate(zip(body["devices"], truths)):
        if HUNG.get(name) == place:
            check_silent(told)
            continue
        powers = [one[place]["readings"].get("power_w") for one in (*past, truths)]
        check_identity(told, truth)
        check_readings(name, told, truth, powers)
        check_processes(told, truth)


def check_identity(told, truth):
    if truth["readings"]["busy_percent"] in (Missing("lost"), Missing("error")):
        assert told["state"]["state"] == truth["readings"]["busy_percent"].reason
        assert told["uuid"] in (None, truth["uuid"])
        return
    assert told["state"] is None
    assert (told["uuid"], told["name"], told["mig"]) == (
        truth["uuid"], printable(truth["name"]), truth["mig"],
    )  # fmt: skip
    for name in ("serial", "bus_id", "minor"):
        if told[name] is not None and told["mig"] is None:
            assert told[name] == truth[name]


def printable(text):
    """The name of a device as it may be shown: one `?` or blank for each unsafe character."""
    raw = text.encode("latin-1").decode("utf-8", "replace")  # the oracle tells bytes
    shown = (" " if c in "\t\n\r" else c if c.isprintable() or c == "\ufffd" else "?" for c in raw)
    return "".join(shown)


def check_readings(name, told, truth, powers):
    divided = told["mig_mode"] == 1
    for field, ideal in truth["readings"].items():
        if (name, field) in NOT_TOLD:
            continue
        if field == "throttle_mask":
            field = "throttle"
            ideal = ideal if isinstance(ideal, Missing) else throttle_words(int(ideal))
        if divided and field in GPM:
            assert reason(told, field) == "mig"  # its instances have their own
        elif isinstance(ideal, Missing):
            why = reason(told, field)
            assert why == ideal.reason or (
                divided and {why, ideal.reason} <= {"mig", "unsupported"}
            )
        elif field in RATES:
            assert told[field] == 0  # as long as the counters stand still
        elif field == "power_w":  # the mean of the last second
            assert min(powers) - 1 <= told[field] <= max(powers) + 1
        elif isinstance(ideal, list):
            assert told[field] == ideal
        else:
            assert told[field] == pytest.approx(ideal, rel=1e-6, abs=1e-3), field


def check_processes(told, truth):
    if isinstance(truth["processes"], Missing):
        assert reason(told, "processes") == truth["processes"].reason
        return
    if told["mig_mode"] == 1:
        assert reason(told, "processes") == "mig"  # they are listed with the instances
        return
    assert [p["pid"] for p in told["processes"]] == [p["pid"] for p in truth["processes"]]
    for process, ideal in zip(told["processes"], truth["processes"]):
        for field in USAGE:
            if isinstance(ideal[field], Missing):
                assert reason(process, field) == ideal[field].reason
            else:
                assert process[field] == ideal[field], field


def check_silent(told):
    """A device that does not answer: in its place, named, and without a single number."""
    assert told["state"]["state"] == "hung"
    assert told["state"]["detail"].startswith("nvmlDevice")
    for field in (*FIELDS["device"], *(FACTS if told["uuid"] is None else ())):
        name = "throttle" if field == "throttle_mask" else field
        assert reason(told, name) == "timeout", name
        assert "nvmlDevice" in told["missing"][name]


# -- the schema --------------------------------------------------------------------------------
DEVICE_NAMES = {
    "index", "cuda_index", "uuid", "name", "mig", "busy_percent", "mem_used_bytes",
    "mem_total_bytes", "mem_controller_percent", "power_w", "power_limit_w", "energy_j",
    "temperature_c", "sm_clock_mhz", "throttle", "sm_active_percent", "tensor_active_percent",
    "dram_active_percent", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "ecc_uncorrected", "xid",
    "processes", "missing",
}  # fmt: skip
PROCESS_NAMES = {
    "pid", "user", "mem_bytes", "sm_percent", "cpu_percent", "rss_bytes", "framework", "job",
    "command",
}  # fmt: skip


def check_schema(body):
    """The names that others read; a null reading has its reason, and only a null has one."""
    assert next(iter(body)) == "version"
    assert body["version"] == 1
    assert body.keys() >= {
        "gpumon", "node", "time", "driver", "cuda", "devices", "host", "job", "agent",
    }  # fmt: skip
    assert body["host"].keys() >= {
        "cpus",
        "cpu_percent",
        "mem_total_bytes",
        "mem_used_bytes",
        "load1",
    }
    collectors = body["agent"]["collectors"]
    assert body["agent"]["cpu_s"] > 0
    assert collectors.keys() >= {"nvml", "processes", "cgroup", "host", "network", "storage"}
    assert all(one["ok"] is True and one["ms"] >= 0 for one in collectors.values()), collectors
    for device in body["devices"]:
        assert device.keys() >= DEVICE_NAMES | set(FACTS)
        assert device.keys() >= set(FIELDS["device"]) - {"throttle_mask"}
        check_missing(device, {*FIELDS["device"], *FACTS, "throttle"} - {"throttle_mask"})
        for process in device["processes"] or ():
            assert process.keys() >= PROCESS_NAMES
            check_missing(process, {*FIELDS["usage"], *FIELDS["process"]})
    check_missing(body["host"], {*FIELDS["host"], "cpus", "mem_total_bytes"})
    for table, entity in (("net", "net"), ("disk", "disk")):
        for row in body[table]:
            check_missing(row, set(FIELDS[entity]))


def check_missing(entry, names):
    assert {name for name in names if entry[name] is None} <= set(entry["missing"])
    for name, why in entry["missing"].items():
        assert entry[name] is None, name
        assert why.split(":")[0] in REASONS
    for name, value in entry.items():
        assert not isinstance(value, bool) or name == "own_step", name


# -- while time goes on ------------------------------------------------------------------------
def test_rates_and_counters_while_time_goes_on():
    """A pause between a counter and its clock spoils one run; not three in a row."""
    with Emulated("constant", start_s=20) as gpus:
        for _ in range(3):
            before, body, after = gpus.expected(), once(gpus), gpus.expected()
            near = [
                told[field] == pytest.approx(truth["readings"][field], rel=0.1)
                for told, truth in zip(body["devices"], after)
                for field in RATES
            ]
            if all(near):
                break
    assert len(near) == 8
    assert all(near), body["devices"]
    for told, earlier, later in zip(body["devices"], before, after):
        for field in COUNTERS:
            low, high = earlier["readings"][field], later["readings"][field]
            assert low - 1e-3 <= told[field] <= high + 1e-3
        assert [told[field] for field in BURST] == [60, 60, 60, 0]
        (process,), (ideal,) = told["processes"], later["processes"]
        assert {field: process[field] for field in USAGE} == {
            field: ideal[field] for field in USAGE
        }
        for field in GPM:
            assert told[field] == pytest.approx(later["readings"][field], abs=1e-3)


def test_instances_of_a_board_with_gpm_have_their_own_activity():
    with Emulated("mig_h200", start_s=20) as gpus:
        body, truths = once(gpus), gpus.expected()
    instances = [(d, t) for d, t in zip(body["devices"], truths) if d["mig"]]
    assert len(instances) == 2
    for told, truth in instances:
        for field in GPM:
            assert told[field] == pytest.approx(truth["readings"][field], abs=1e-3), field


def test_the_drivers_own_samples_are_not_lost_between_two_looks():
    """Twice in a row: "no news" since a moment ago is neither idleness nor a missing value."""
    with Emulated("a100x8", start_s=30) as gpus:
        devices = [device for _ in range(2) for device in once(gpus)["devices"]]
    for device in devices:
        low, mean, high, gap_s = (device[field] for field in BURST)
        assert 0 <= low <= mean <= high <= 100
        assert gap_s == 0
    busy = [d for d in devices if d["busy_min_percent"] > 5]
    assert busy
    assert all(sum(p["sm_percent"] for p in d["processes"]) > 0 for d in busy)


def test_a_tenth_of_the_calls_fail():
    with Emulated("flaky", freeze_s=AT_S) as gpus:
        body, truths = once(gpus), gpus.expected()
    check_schema(body)
    right = wrong = 0
    for told, truth in zip(body["devices"], truths):
        for field, ideal in truth["readings"].items():
            if field in RATES | {"throttle_mask", "power_w"} or isinstance(ideal, Missing):
                continue
            if told[field] is None:
                assert reason(told, field) in ("error", "measuring")
                wrong += 1
            else:
                assert told[field] == pytest.approx(ideal, rel=1e-6, abs=1e-3), field
                right += 1
    assert right > 10 * wrong


@pytest.mark.parametrize("driver", ["418", "470", "510"])
def test_older_drivers(driver):
    with Emulated("old_driver", freeze_s=AT_S, driver=driver) as gpus:
        body, truths = once(gpus), gpus.expected()
    check_schema(body)
    for told, truth in zip(body["devices"], truths):
        assert told["busy_percent"] == 55
        assert told["mem_used_bytes"] == 21000 * 2**20
        assert [p["pid"] for p in told["processes"]] == [p["pid"] for p in truth["processes"]]


# -- processes ---------------------------------------------------------------------------------
def test_sixteen_real_processes():
    with Emulated("a100x8", freeze_s=AT_S) as gpus:
        body, truths = once(gpus), gpus.expected()
        real = {pid: psutil.Process(pid) for pid in gpus.pids.values()}
        seen = {p["pid"]: p for device in body["devices"] for p in device["processes"]}
        assert seen.keys() == real.keys()
        for pid, process in seen.items():
            assert process["user"] == getpass.getuser()
            assert process["command"] == " ".join(real[pid].cmdline())
            assert (process["threads"], process["state"]) == (1, "S")
            assert process["cpu_percent"] == 0
            assert process["read_bytes_per_s"] in (0, None)  # a rate needs two looks at it
            assert process["job"] is None
            assert process["framework"] is None
    assert [len(device["processes"]) for device in body["devices"]] == [2] * 8
    assert all(len(truth["processes"]) == 2 for truth in truths)


def test_memory_threads_and_time_of_a_process():
    code = (
        "import threading, time\n"
        "while time.process_time() < 0.5: pass\n"
        "held = bytearray(100 << 20)\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "print('ready', flush=True)\n"
        "input()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child, Emulated(Scenario().gpu(0, model="T4", procs=[Proc(child.pid, 900)])) as gpus:
        assert child.stdout.readline() == b"ready\n"
        (process,) = once(gpus)["devices"][0]["processes"]
        real = psutil.Process(child.pid)
        assert process["rss_bytes"] == pytest.approx(real.memory_info().rss, abs=2 << 20)
        assert process["threads"] == real.num_threads() == 2
        cpu = real.cpu_times()
        assert process["cpu_s"] == pytest.approx(cpu.user + cpu.system, abs=0.03)
        child.kill()


def test_a_pid_that_is_not_here_is_in_another_namespace_only_if_there_is_one():
    nested = os.readlink("/proc/self/ns/pid") != "pid:[4026531836]"
    with Emulated("pid_namespace", freeze_s=AT_S) as gpus:
        (process,) = once(gpus)["devices"][0]["processes"]
    note = "in another PID namespace" if nested else "no such process on this node"
    assert process["note"] == note
    assert (process["mem_bytes"], process["command"]) == (20000 * 2**20, None)
    assert reason(process, "rss_bytes") == ("namespace" if nested else "ended")


def test_a_process_that_vanishes_while_it_is_read():
    """The driver still names it; calls are slow, so that it ends between its devices' answers."""
    scenario = Scenario(system={"latency_us": 10000, "reap": 0})
    scenario.gpu(0, model="T4", util=50, procs=[Proc("@stays", 2000), Proc("@goes", 3000)])
    with Emulated(scenario) as gpus:
        command = [*GPUMON, "once", "--json"]
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(gpus.env)
        )
        goes = gpus.pids["goes"]
        while "nvmlDeviceGetComputeRunningProcesses_v3" not in gpus.stats():
            assert running.poll() is None
        gpus.end("goes")
        out, err = running.communicate(timeout=HANGS_S)
    assert (running.returncode, err) == (0, b"")
    body = json.loads(out)
    check_schema(body)
    stays, gone = body["devices"][0]["processes"]
    assert stays["rss_bytes"] > 0
    assert (gone["pid"], gone["mem_bytes"]) == (goes, 3000 * 2**20)
    assert gone["cpu_percent"] is None or gone["state"] != "S"


# -- the job -----------------------------------------------------------------------------------
JOB = {
    "SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "train", "SLURM_JOB_USER": "ada",
    "SLURMD_NODENAME": "gpu01", "SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "65536",
    "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_PARTITION": "a100",
}  # fmt: skip


def test_the_job_around_it():
    with Emulated("a100x4", freeze_s=AT_S) as gpus:
        body = once(gpus, **JOB, CUDA_VISIBLE_DEVICES="2,0")
        text = once_text(gpus, **JOB, CUDA_VISIBLE_DEVICES="2,0")
    check_schema(body)
    job = body["job"]
    assert job.keys() >= {
        "id", "cpus", "cpu_cores_used", "mem_limit_bytes", "mem_used_bytes", "mem_cache_bytes",
    }  # fmt: skip
    assert (job["id"], job["name"], job["user"], job["cpus"]) == ("4711", "train", "ada", 8)
    assert job["mem_limit_bytes"] == 64 << 30  # no cgroup here: as the environment says
    check_missing(job, set(FIELDS["job"]))
    assert body["node"] == "gpu01"
    assert [device["cuda_index"] for device in body["devices"]] == [1, None, 0, None]
    assert "job 4711 train" in text
    assert "of 8 cores" in text


# -- text --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", ["a100x8", "v100x2", "mig", "na_all", "gb10", "no_permission", "many", "lost"]
)
def test_text_shows_the_same_values(name):
    with Emulated(name, freeze_s=AT_S) as gpus:
        text, truths = once_text(gpus), gpus.expected()
    lines = [line for line in text.splitlines() if " | busy " in line or " | lost" in line]
    assert len(lines) == len(truths)
    for line, truth in zip(lines, truths):
        label = str(truth["index"]) + (f"/gi{truth['mig']['gi']}" if truth["mig"] else "")
        assert line.startswith(f"[{label}]")
        busy, temperature = (truth["readings"].get(n) for n in ("busy_percent", "temperature_c"))
        used = truth["readings"]["mem_used_bytes"]
        if busy == Missing("lost"):
            assert line.endswith("| lost GPU is lost")
            continue
        assert truth["name"].removeprefix("NVIDIA ") in line
        assert f"busy {busy if isinstance(busy, Missing) else f'{busy:.0f} %'} |" in line
        if truth["mig"] is None:
            assert line.endswith(str(temperature) if isinstance(temperature, Missing)
                                 else f"{temperature:.0f} °C")  # fmt: skip
        if not isinstance(used, Missing):
            assert f"({used / truth['mem_total_bytes'] * 100:.0f} %)" in line
    for truth in truths:
        processes = truth["processes"]
        if isinstance(processes, Missing) or (truth["readings"].get("mig_mode") == 1):
            continue
        for process in processes:
            label = str(truth["index"]) + (f"/gi{truth['mig']['gi']}" if truth["mig"] else "")
            (line,) = re.findall(rf"^\[{label}\] +{process['pid']} .*$", text, re.M)
            sm = process["sm_percent"]
            assert ("n/a MIG" if isinstance(sm, Missing) else f"SM {sm:3.0f} %") in line


@pytest.mark.parametrize("name", sorted(WITHOUT_DEVICES))
def test_text_says_why_there_is_no_device(name):
    with Emulated(name, freeze_s=AT_S) as gpus:
        text = once_text(gpus)
    assert WITHOUT_DEVICES[name] in text
    assert "host CPU" in text


def test_text_names_the_device_that_does_not_answer():
    with Emulated("hang", freeze_s=AT_S) as gpus:
        text = once_text(gpus)
    assert re.search(r"^\[1\] unknown +\| hung nvmlDevice", text, re.M)
    assert len(re.findall(r"\| busy \d+ %", text)) == 3


def test_slowed_devices_say_by_what():
    with Emulated("throttling", freeze_s=AT_S) as gpus:
        text = once_text(gpus)
    throttled = re.findall(r"^\[(\d)\].*throttled \((.*)\)$", text, re.M)
    assert throttled == [("0", "heat"), ("1", "hardware, heat"), ("2", "hardware, power brake")]


# -- hostile text ------------------------------------------------------------------------------
HOSTILE = "\x1b]0;owned\x07\x1b[2J\n[9] fake | busy 1 %\r\x9b31m\u202e</script>\"',{}"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_hostile_names_and_commands_move_no_cursor(encoding):
    child = subprocess.Popen(["evil", HOSTILE], executable=library_dir() / "sleeper")
    try:
        scenario = Scenario().gpu(
            0, model="T4", name=r"A\x1b[2J\xff\xe2\x80\xae\x0a", procs=[Proc(child.pid, 500)]
        )
        with Emulated(scenario, freeze_s=AT_S) as gpus:
            env = environment(gpus.env, PYTHONIOENCODING=encoding, SLURM_JOB_ID="1",
                              SLURM_JOB_NAME=HOSTILE, SLURMD_NODENAME="n\x1b[31m")  # fmt: skip
            outputs = [
                gpumon(*args, env=env, encoding=encoding)
                for args in (["once"], ["once", "--json"], ["doctor"], ["doctor", "--json"])
            ]
    finally:
        child.kill()
        child.wait()
    for done in outputs:
        assert (done.returncode, done.stderr) == (0, "")
        unsafe = [c for c in done.stdout if not c.isprintable() and c not in "\n\ufffd"]
        assert not unsafe
    assert "[9] fake" in outputs[0].stdout
    assert not re.search(r"^\[9\]", outputs[0].stdout, re.M)  # no line of its own
    body = json.loads(outputs[1].stdout)
    (process,) = body["devices"][0]["processes"]
    texts = [process["command"], body["devices"][0]["name"], body["job"]["name"], body["node"]]
    for text in texts:
        assert "\x1b" not in text
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", text)
    assert process["command"].startswith("evil ?]0;owned?")


def test_the_interpreter_is_the_one_of_the_tests():
    """Else all of the above would say nothing of this Python."""
    done = gpumon("doctor", "--json")
    (python,) = [c for c in json.loads(done.stdout)["checks"] if c["name"] == "python"]
    assert sys.executable in python["detail"]
