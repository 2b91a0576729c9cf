"""The emulated driver through the official Python binding, each case in a fresh process."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys

import pytest

from gpumon.model.reading import Missing
from tests.nvml.client import ask
from tests.nvml.emulator import Emulated, Proc, Scenario, binding_dir, library_dir, read_stats

A100 = "A100-SXM4-80GB"
MIB = 2**20


# -- values ------------------------------------------------------------------------------------
def test_both_versions_of_memory_info():
    with Emulated(Scenario().gpu(0, model=A100, mem_mib=20000)) as gpus:
        answer = ask(
            gpus,
            """
            [h] = devices()
            old = N.nvmlDeviceGetMemoryInfo(h)
            new = N.nvmlDeviceGetMemoryInfo(h, version=N.nvmlMemory_v2)
            wrong = code(lambda: N.nvmlDeviceGetMemoryInfo(h, version=2))
            answer = [x >> 20 for x in (old.used, new.used, new.reserved, old.total)]
            answer += [old.free == new.free, wrong]
            """,
        )
    assert answer == [20904, 20000, 904, 81920, True, 13]


@pytest.mark.slow
def test_waves_are_the_same_in_every_process():
    scenario = Scenario().gpu(0, model="T4", util="sine 50 40 30")
    scenario.gpu(1, model="T4", util="noise 50 40 1")
    program = """
        h = devices()
        answer = [N.nvmlDeviceGetUtilizationRates(x).gpu for x in h]
        answer.append(N.nvmlDeviceGetTotalEnergyConsumption(h[0]))
    """
    with Emulated(scenario, freeze_s=12.5) as gpus:
        assert ask(gpus, program) == ask(gpus, program)
    with Emulated(scenario, freeze_s=7.5) as gpus:  # a quarter of the period
        assert ask(gpus, program)[0] == 90


def test_values_move_while_a_program_runs():
    with Emulated(Scenario().gpu(0, model="T4", util=10)) as gpus:
        answer = ask(
            gpus,
            """
            [h] = devices()
            before = N.nvmlDeviceGetUtilizationRates(h).gpu
            with open(os.environ["FAKE_NVML_OVERRIDE"], "w") as file:
                file.write("[gpu 0]\\nutil = 77\\nmem = 5000\\n")
            time.sleep(0.06)
            info = N.nvmlDeviceGetMemoryInfo(h, version=N.nvmlMemory_v2)
            answer = [before, N.nvmlDeviceGetUtilizationRates(h).gpu, info.used >> 20]
            """,
        )
        assert answer == [10, 77, 5000]
        gpus.override("[gpu 0]\nutil = 33\n")
        assert gpus.expected()[0]["readings"]["busy_percent"] == 33


def test_sample_buffers_and_field_values():
    with Emulated(Scenario().gpu(0, model=A100, util=50, power_w=200), start_s=60) as gpus:
        answer = ask(
            gpus,
            """
            [h] = devices()
            kind, samples = N.nvmlDeviceGetSamples(h, N.NVML_GPU_UTILIZATION_SAMPLES, 0)
            newest = samples[-1].timeStamp
            ids = [N.NVML_FI_DEV_MEMORY_TEMP, N.NVML_FI_DEV_POWER_INSTANT,
                   N.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
                   (N.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 0xFFFFFFFF), 250]
            fields = N.nvmlDeviceGetFieldValues(h, ids)
            now = fields[0].timestamp
            energy_j = fields[2].value.ullVal / 1000
            answer = [kind, len(samples), samples[-1].sampleValue.uiVal, 0 <= now - newest,
                      [f.nvmlReturn for f in fields], fields[1].value.uiVal, energy_j,
                      now / 1e6]
            """,
        )
        elapsed_s = answer.pop() - gpus.epoch_s
    assert answer.pop() == pytest.approx(200 * elapsed_s, rel=0.01)
    assert answer == [1, 100, 50, True, [0, 0, 0, 0, 3], 200000]


def test_gpm_where_the_board_has_it():
    scenario = Scenario().gpu(0, model="H200", util=80, gpm_tensor=33).gpu(1, model=A100)
    program = """
        h = devices()
        supported = [N.nvmlGpmQueryDeviceSupport(x).isSupportedDevice for x in h]
        first, second = N.nvmlGpmSampleAlloc(), N.nvmlGpmSampleAlloc()
        N.nvmlGpmSampleGet(h[0], first)
        time.sleep(0.12)
        N.nvmlGpmSampleGet(h[0], second)
        query = N.c_nvmlGpmMetricsGet_t()
        query.version = N.NVML_GPM_METRICS_GET_VERSION
        ids = [2, 3, 5, 10, 21]
        query.numMetrics, query.sample1, query.sample2 = len(ids), first, second
        for i, k in enumerate(ids):
            query.metrics[i].metricId = k
        N.nvmlGpmMetricsGet(query)
        metrics = [query.metrics[i] for i in range(len(ids))]
        answer = [supported, [m.nvmlReturn for m in metrics], [m.value for m in metrics]]
    """
    for freeze_s in (None, 30.0):
        with Emulated(scenario, freeze_s=freeze_s) as gpus:
            supported, codes, values = ask(gpus, program)
        assert supported == [1, 0]
        assert codes == [0] * 5
        assert values == pytest.approx([62.4, 33.6, 33, 32, 80 * 21000 / 1024])


def test_values_beyond_the_possible():
    with Emulated("implausible") as gpus:
        answer = ask(
            gpus,
            """
            h = devices()
            answer = [[N.nvmlDeviceGetUtilizationRates(x).gpu, N.nvmlDeviceGetTemperature(x, 0)]
                      for x in h]
            """,
        )
        readings = gpus.expected()[0]["readings"]
    assert answer[0] == [37100, 6553]
    assert answer[1][0] == answer[2][0] == 50
    wrong = ("busy_percent", "temperature_c", "power_w", "mem_used_bytes", "encoder_percent")
    assert [readings[name] for name in wrong] == [Missing("implausible")] * len(wrong)


# -- processes ---------------------------------------------------------------------------------
def test_process_lists():
    procs = [
        Proc("self", 1000, sm=60),
        Proc("ppid", "na", type="G"),
        Proc(4194305, 5),  # beyond the kernel's pids: the driver drops it
    ]
    with Emulated(Scenario().gpu(0, model=A100, util=80, procs=procs)) as gpus:
        answer = ask(
            gpus,
            """
            [h] = devices()
            compute = N.nvmlDeviceGetComputeRunningProcesses(h)
            graphics = N.nvmlDeviceGetGraphicsRunningProcesses(h)
            used = N.nvmlDeviceGetProcessUtilization(h, 0)
            answer = [[p.pid == os.getpid() for p in compute], compute[0].usedGpuMemory,
                      [p.usedGpuMemory for p in graphics],
                      [(u.smUtil, u.memUtil) for u in used if u.pid == os.getpid()]]
            """,
        )
    assert answer == [[True], 1000 * MIB, [None], [[60, 27]]]


def test_the_first_version_of_the_process_list():
    with Emulated(Scenario().gpu(0, model=A100, procs=[Proc("self", 1000)])) as gpus:
        answer = ask(
            gpus,
            """
            class First(ctypes.Structure):
                _fields_ = [("pid", ctypes.c_uint), ("mem", ctypes.c_ulonglong)]
            [h] = devices()
            count, array = ctypes.c_uint(4), (First * 4)()
            function = N._nvmlGetFunctionPointer("nvmlDeviceGetComputeRunningProcesses")
            result = function(h, ctypes.byref(count), array)
            answer = [result, count.value, array[0].pid == os.getpid(), array[0].mem]
            """,
        )
    assert answer == [0, 1, True, 1000 * MIB]


def test_idle_processes_have_no_utilization():
    with Emulated(Scenario().gpu(0, model="T4", util=0, procs=[Proc("self", 10)])) as gpus:
        assert ask(gpus, "answer = code(N.nvmlDeviceGetProcessUtilization, devices()[0], 0)") == 6


def test_standins_are_real_and_leave_the_list_when_they_end():
    program = """
        answer = [[p.pid for p in N.nvmlDeviceGetComputeRunningProcesses(h)] for h in devices()]
    """
    with Emulated("a100x4") as gpus:
        train, reserve = gpus.pids["train"], gpus.pids["reserve"]
        assert ask(gpus, program) == [[train], [train], [reserve], [gpus.pids["sweep"]]]
        gpus.end("train")
        assert ask(gpus, program) == [[], [], [reserve], [gpus.pids["sweep"]]]


def test_a_process_that_is_gone_but_listed():
    with Emulated("gone_process") as gpus:
        answer = ask(
            gpus,
            """
            pids = [p.pid for p in N.nvmlDeviceGetComputeRunningProcesses(devices()[0])]
            answer = [[pid, os.path.exists(f"/proc/{pid}")] for pid in pids]
            """,
        )
        assert answer == [[gpus.pids["train"], True], [4194305, False]]


def test_pids_of_another_namespace():
    with Emulated("pid_namespace") as gpus:
        [device] = gpus.expected()
        assert device["processes"][0]["pid"] == gpus.pids["train"] + 5_000_000


def test_a_full_house():
    procs = [Proc("ppid", number) for number in range(16)]
    with Emulated(Scenario().gpu("0-63", model=A100, procs=procs)) as gpus:
        answer = ask(
            gpus,
            """
            h = devices()
            lists = [N.nvmlDeviceGetComputeRunningProcesses(x) for x in h]
            answer = [len({N.nvmlDeviceGetUUID(x) for x in h}),
                      len({N.nvmlDeviceGetPciInfo(x).busId for x in h}),
                      [[p.usedGpuMemory >> 20 for p in one] for one in lists]]
            """,
        )
    assert answer == [64, 64, [list(range(16))] * 64]


def test_accounting_remembers():
    wave = "tri 100 4100 10"
    procs = [Proc(4194305, wave, sm=25, from_s=2, to_s=12)]
    with Emulated(Scenario().gpu(0, model=A100, accounting=1, procs=procs), start_s=60) as gpus:
        answer = ask(
            gpus,
            """
            [h] = devices()
            [pid] = N.nvmlDeviceGetAccountingPids(h)
            a = N.nvmlDeviceGetAccountingStats(h, pid)
            answer = [a.gpuUtilization, a.time, a.isRunning, a.maxMemoryUsage >> 20]
            """,
        )
    assert answer[:3] == [25, 10000, 0]
    assert 3900 < answer[3] <= 4100


# -- MIG ---------------------------------------------------------------------------------------
_SLICES = """
h = devices()
slices = []
for i in range(N.nvmlDeviceGetMaxMigDeviceCount(h[0])):
    try:
        slices.append(N.nvmlDeviceGetMigDeviceHandleByIndex(h[0], i))
    except N.NVMLError_NotFound:
        break
"""


def test_mig():
    with Emulated("mig") as gpus:
        answer = ask(
            gpus,
            _SLICES
            + """
answer = {
    "modes": [N.nvmlDeviceGetMigMode(x)[0] for x in h],
    "busy": [code(N.nvmlDeviceGetUtilizationRates, x) for x in h],
    "names": [N.nvmlDeviceGetName(x) for x in slices],
    "ids": [[N.nvmlDeviceGetGpuInstanceId(x), N.nvmlDeviceGetComputeInstanceId(x)]
            for x in slices],
    "uuids": [N.nvmlDeviceGetUUID(N.nvmlDeviceGetHandleByUUID(N.nvmlDeviceGetUUID(x)))
              for x in slices],
    "totals": [N.nvmlDeviceGetMemoryInfo(x).total for x in slices],
    "sms": [N.nvmlDeviceGetAttributes(x).multiprocessorCount for x in slices],
    "processes": [len(N.nvmlDeviceGetComputeRunningProcesses(x)) for x in [h[0], *slices]],
    "parent": N.nvmlDeviceGetIndex(N.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(slices[1])),
}
""",
        )
        board, *slices, whole = gpus.expected()
    assert answer["modes"] == [1, 0]
    assert answer["busy"] == [3, 0]
    assert answer["names"] == [one["name"] for one in slices]
    assert answer["ids"] == [[2, 0], [3, 0], [9, 0], [10, 0]]
    assert answer["uuids"] == [one["uuid"] for one in slices]
    assert answer["totals"] == [one["mem_total_bytes"] for one in slices]
    assert answer["sms"] == [42, 28, 14, 14]
    assert answer["processes"] == [3, 1, 1, 1, 0]
    assert answer["parent"] == 0
    assert board["readings"]["busy_percent"] == Missing("mig")
    assert whole["mig"] is None


def test_56_slices():
    with Emulated("mig_8x7") as gpus:
        devices = gpus.expected()
    assert sum(device["mig"] is None for device in devices) == 8
    assert len({device["uuid"] for device in devices if device["mig"]}) == 56


def test_a_refused_list_on_the_board_but_not_on_its_slices():
    with Emulated("mig_no_permission") as gpus:
        answer = ask(
            gpus,
            _SLICES
            + """
answer = [code(N.nvmlDeviceGetComputeRunningProcesses, x) for x in [h[0], *slices]]
""",
        )
        board, first, _second = gpus.expected()
    assert answer == [4, 0, 0]
    assert board["processes"] == Missing("no-permission")
    assert len(first["processes"]) == 1


# -- bookkeeping -------------------------------------------------------------------------------
def test_call_statistics():
    with Emulated(Scenario().gpu(0, model="T4").rule("nvmlDeviceGetName", fail=3)) as gpus:
        program = """
            [h] = devices()
            for _ in range(7): N.nvmlDeviceGetPowerUsage(h)
            answer = code(N.nvmlDeviceGetName, h)
        """
        assert ask(gpus, program) == 3
        assert ask(gpus, program) == 3
        stats = gpus.stats()
    assert stats["nvmlDeviceGetPowerUsage"][:2] == (14, 0)
    assert stats["nvmlDeviceGetName"][:2] == (2, 2)


@pytest.mark.parametrize("size_bytes", [0, 4096 * 10])
def test_call_statistics_of_a_process_that_only_begins(tmp_path, size_bytes):
    path = tmp_path / "stats.1"
    path.write_bytes(bytes(size_bytes))
    assert read_stats(path) == {}


def test_boards_without_a_device_file_are_hidden():
    """What a device cgroup forbids, `tests/slurm` shows on real ones."""
    hidden = Scenario(system={"device_files": 1}).gpu("0-1", model=A100, minor=120)
    hidden.gpu(0, uuid="GPU-0")
    program = """
        N.nvmlInit()
        answer = [N.nvmlDeviceGetCount(), code(N.nvmlDeviceGetHandleByIndex, 0),
                  code(N.nvmlDeviceGetHandleByUUID, "GPU-0")]
    """
    with Emulated(hidden) as gpus:
        assert ask(gpus, program) == [0, 2, 6]


def test_layouts_agree_with_the_official_binding(monkeypatch):
    spec = importlib.util.spec_from_file_location("official", binding_dir() / "pynvml.py")
    binding = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "official", binding)  # it looks itself up
    spec.loader.exec_module(binding)

    def structure(name: str) -> type:
        candidates = (f"c_{name}", name, f"c_{name.removesuffix('_t')}")
        return next(getattr(binding, one) for one in candidates if hasattr(binding, one))

    layout = subprocess.check_output([library_dir() / "layout"], text=True).splitlines()
    checked = 0
    for line in layout:
        kind, name, *rest = line.split()
        if kind == "struct":
            assert ctypes.sizeof(structure(name)) == int(rest[0]), line
        else:
            member = getattr(structure(name), rest[0])
            assert [member.offset, member.size] == [int(rest[1]), int(rest[2])], line
        checked += 1
    assert checked > 80
