"""Faults of the emulated driver: lost, hung, slow and restarted, as programs meet them."""

from __future__ import annotations

import ctypes
import sys

import pytest

from gpumon.model.reading import Missing
from tests.nvml.client import ask
from tests.nvml.emulator import Emulated, Scenario, old_library_dir

A100 = "A100-SXM4-80GB"


def test_a_device_is_lost_and_an_xid_tells():
    scenario = Scenario().gpu("0-1", model=A100)
    scenario.rule("nvmlDevice*", fail=15, gpu=1, from_s=1.5).xid(79, gpu=1, at_s=1.5)
    with Emulated(scenario) as gpus:
        answer = ask(
            gpus,
            """
            h = devices()
            events = N.nvmlEventSetCreate()
            for x in h:
                N.nvmlDeviceRegisterEvents(x, N.nvmlEventTypeXidCriticalError, events)
            too_early = code(N.nvmlEventSetWait_v2, events, 1)
            event = N.nvmlEventSetWait_v2(events, 30000)
            answer = [too_early, event.eventType, event.eventData,
                      code(N.nvmlDeviceGetTemperature, h[1], 0),
                      code(N.nvmlDeviceGetTemperature, h[0], 0)]
            """,
        )
        lost = gpus.expected(1.6)[1]
    assert answer == [10, 8, 79, 15, 0]
    assert set(map(str, lost["readings"].values())) == {"lost"}


def test_rules_with_a_device_meet_the_calls_that_give_its_handle():
    with Emulated(Scenario().gpu("0-2", model=A100).rule("nvmlDevice*", fail=15, gpu=1)) as gpus:
        uuid = gpus.expected()[1]["uuid"]
        answer = ask(
            gpus,
            f"""
            N.nvmlInit()
            answer = [code(N.nvmlDeviceGetHandleByIndex, i) for i in range(4)]
            answer.append(code(N.nvmlDeviceGetHandleByUUID, {uuid!r}))
            answer.append(code(N.nvmlDeviceGetHandleByUUID, "GPU-none"))
            """,
        )
    assert answer == [0, 15, 0, 2, 15, 6]


@pytest.mark.parametrize("name", ["no_driver", "mismatch"])
def test_no_initialisation(name):
    code = {"no_driver": 9, "mismatch": 18}[name]
    with Emulated(name) as gpus:
        assert ask(gpus, "answer = code(N.nvmlInit)") == code
        assert gpus.expected() == []


def test_a_call_that_never_returns_leaves_the_other_devices_alone():
    with Emulated("hang_device", start_s=100) as gpus:
        answer = ask(
            gpus,
            """
            N.nvmlInit()
            def read(index, into):
                handle = N.nvmlDeviceGetHandleByIndex(index)
                into.append(N.nvmlDeviceGetPowerUsage(handle) > 0)
            results = [[] for _ in range(4)]
            threads = [threading.Thread(target=read, args=(i, r), daemon=True)
                       for i, r in enumerate(results)]
            for thread in threads: thread.start()
            for i in (0, 2, 3): threads[i].join()
            threads[1].join(0.2)
            signal.raise_signal(signal.SIGCONT)  # a signal does not bring it back
            threads[1].join(0.1)
            answer = [results, [thread.is_alive() for thread in threads]]
            """,
        )
        readings = [device["readings"]["power_w"] for device in gpus.expected(100)]
    assert answer == [[[True], [], [True], [True]], [False, True, False, False]]
    assert readings[1] == Missing("timeout")
    assert all(isinstance(readings[number], float) for number in (0, 2, 3))


@pytest.mark.parametrize(
    ("name", "before", "call"),
    [
        ("hang_init", "", "N.nvmlInit()"),
        ("hang_at_start", "N.nvmlInit()", "N.nvmlDeviceGetHandleByIndex(1)"),
        ("hang", "h = devices()", "N.nvmlDeviceGetPowerUsage(h[1])"),
    ],
)
def test_hangs(name, before, call):
    with Emulated(name, start_s=100) as gpus:
        answer = ask(
            gpus,
            f"""
            {before}
            thread = threading.Thread(target=lambda: {call}, daemon=True)
            thread.start()
            thread.join(0.3)
            answer = thread.is_alive()
            """,
        )
    assert answer is True


def test_a_delayed_call_takes_at_least_so_long():
    scenario = Scenario().gpu(0, model="T4").rule("nvmlDeviceGetPowerUsage", delay_s=0.05)
    with Emulated(scenario) as gpus:
        answer = ask(
            gpus,
            """
            [h] = devices()
            start = time.monotonic()
            for _ in range(3): N.nvmlDeviceGetPowerUsage(h)
            answer = time.monotonic() - start
            """,
        )
    assert answer >= 0.15


def test_a_restarted_driver_wants_a_new_session():
    scenario = Scenario().gpu(0, model="T4")
    scenario.rule("nvmlInit*", fail=999, from_s=100, to_s=200)
    scenario.rule("nvmlDevice*", fail=999, from_s=100, to_s=200, sticky=True)
    with Emulated(scenario) as gpus:
        answer = ask(
            gpus,
            """
            def at(t):  # moves the scenario's clock
                with open(os.environ["FAKE_NVML_OVERRIDE"], "w") as file:
                    file.write(f"[system]\\nfreeze = {t}\\n")
                time.sleep(0.05)
            at(50)
            [h] = devices()
            read = lambda: code(N.nvmlDeviceGetPowerUsage, h)
            answer = [read()]
            at(150)
            answer += [read()]
            N.nvmlShutdown()
            answer += [code(N.nvmlInit)]
            at(50)
            answer += [code(N.nvmlInit)]
            at(250)
            answer += [read()]
            N.nvmlShutdown()
            answer += [code(N.nvmlInit), read()]
            """,
        )
    assert answer == [0, 999, 999, 0, 999, 0, 0]


def test_a_tenth_of_the_calls_fails():
    with Emulated("flaky") as gpus:
        answer = ask(
            gpus,
            "h = devices()\nanswer = [code(N.nvmlDeviceGetPowerUsage, h[0]) for _ in range(500)]",
        )
    assert set(answer) == {0, 999}
    assert 20 < answer.count(999) < 100


def test_names_with_any_bytes():
    with Emulated("hostile_text") as gpus:
        answer = ask(
            gpus,
            """
            N.nvmlInit()
            answer = []
            for i in range(3):
                buffer = ctypes.create_string_buffer(96)
                handle = N.nvmlDeviceGetHandleByIndex(i)
                N._nvmlGetFunctionPointer("nvmlDeviceGetName")(handle, buffer, 96)
                answer.append(buffer.value.decode("latin-1"))
            """,
        )
        assert answer == [device["name"] for device in gpus.expected()]
    assert "\x1b[2J" in answer[0]
    assert "\xff" in answer[1]


def test_errors_before_initialisation():
    program = (
        "import ctypes as c; l = c.CDLL('libnvidia-ml.so.1'); n = c.c_uint();"
        "print(l.nvmlDeviceGetCount_v2(c.byref(n)), l.nvmlDeviceGetName(None, None, 0))"
    )
    with Emulated("t4") as gpus:
        assert gpus.run([sys.executable, "-c", program]).stdout.split() == ["1", "1"]


def test_old_drivers_lack_symbols():
    newer = {"nvmlDeviceGetMemoryInfo_v2", "nvmlGpmSampleGet", "nvmlDeviceGetTemperatureV"}
    for version in ("418", "470", "510"):
        library = ctypes.CDLL(str(old_library_dir(version) / "libnvidia-ml.so.1"))
        there = {name for name in newer if hasattr(library, name)}
        assert there == ({"nvmlDeviceGetMemoryInfo_v2"} if version == "510" else set())
        assert hasattr(library, "nvmlDeviceGetUtilizationRates")
    with Emulated("old_driver", driver="470") as gpus:
        program = """
            [h, _] = devices()
            new = code(lambda: N.nvmlDeviceGetMemoryInfo(h, version=N.nvmlMemory_v2))
            answer = [N.nvmlDeviceGetMemoryInfo(h).used >> 20, new]
        """
        assert ask(gpus, program) == [21000, 13]
