"""The dashboard shows what the driver was told to say, device by device and process by process."""

import re
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.model.reading import Missing
from tests.e2e.screen import USER, Dashboard, gib, processes, rows, rows_with_processes, titles
from tests.nvml.emulator import Emulated, Proc, Scenario

pytestmark = pytest.mark.terminal

AT_S = 30.0  # time stands still here, so that comparisons are exact
SMALL, USUAL, LARGE, HUGE = (80, 24), (120, 40), (160, 50), (200, 60)
SENTENCES = {
    "no_driver": "No NVIDIA driver on this node",
    "mismatch": "The driver was updated without a reboot: ask the site's staff",
    "no_devices": "No NVIDIA device is visible here.",
    "hang_init": "The NVIDIA driver is not responding",
}


@contextmanager
def still(scenario):
    """The scenario with its time and power held: the driver's power is a mean over a second."""
    with Emulated(scenario, freeze_s=AT_S) as gpus:
        boards = {device["index"] for device in gpus.expected()}
        gpus.override("".join(f"[gpu {n}]\npower = {100.4 + 5 * n}\n" for n in boards))
        yield gpus


@pytest.mark.parametrize(
    ("scenario", "size", "layout"),
    [
        ("a100x8", LARGE, titles),
        ("a100x8", SMALL, rows),
        ("mig", USUAL, titles),
        ("v100x2", USUAL, titles),
        ("na", SMALL, titles),
        ("na_all", USUAL, titles),
        ("lost_at_start", SMALL, rows),
        ("lost_at_start", HUGE, titles),
        ("slow", LARGE, titles),
    ],
)
def test_every_device_shows_what_the_driver_says(scenario, size, layout):
    with still(scenario) as gpus, Dashboard(gpus, size=size) as dashboard:
        devices = gpus.expected()
        shown = dashboard.wait_for_all(layout(devices))
        if layout is titles:
            lines = shown.splitlines()
            for title in titles(devices):  # a plot each: the scale of its row begins below it
                (at,) = [at for at, line in enumerate(lines) if title in line]
                assert re.match(r"100\b", lines[at + 1])
        else:
            assert len(re.findall(r"^▶?GPU \d+ (?:\d|● lost)", shown, re.M)) == len(devices)
            dashboard.wait_for_all(processes(devices)[:8])  # as many as fit


def test_a_device_without_any_reading_shows_no_number():
    with still("na_all") as gpus, Dashboard(gpus) as dashboard:
        dashboard.wait_for("busy n/a ━mem n/a")
        dashboard.keys("2")
        shown = dashboard.wait_for_all([gpus.expected()[0]["uuid"], "no process on this GPU"])
        assert not re.search(r"\d (%|W|°C|MHz|[KMGT]?i?B|kWh)", shown)
        assert dashboard.lanes() == {}


@pytest.mark.parametrize(("scenario", "sentence"), SENTENCES.items())
def test_without_devices_it_says_why_and_shows_the_host(scenario, sentence):
    with Emulated(scenario) as gpus, Dashboard(gpus, size=SMALL) as dashboard:
        shown = dashboard.wait_for_all([sentence, "run gpumon demo to see a job with GPUs", "CPU"])
        assert "GPU 0" not in shown
        dashboard.keys("2")
        dashboard.wait_for("No GPU is visible here.")
        dashboard.keys("3")
        dashboard.wait_for("0 on GPUs")
        dashboard.keys("q")
        assert dashboard.wait_exit() == 0


def test_fifty_six_devices_scroll():
    with still("many") as gpus:
        wanted = rows_with_processes(gpus.expected(), wide=True)
        with Dashboard(gpus, size=HUGE) as dashboard:
            dashboard.wait_for_all([*wanted[:50], " of 56 busy "])
        wanted = rows_with_processes(gpus.expected())
        with Dashboard(gpus, size=SMALL) as dashboard:
            dashboard.wait_for_all(wanted[:18])
            dashboard.keys("End")
            shown = dashboard.wait_for_all([*wanted[38:], "-56 of 56 busy "])
            assert wanted[0] not in shown
            dashboard.keys("2")
            dashboard.wait_for_all(["56 of 56", gpus.expected()[55]["uuid"]])


def test_a_device_that_is_lost_later_keeps_its_row():
    with Emulated("lost") as gpus, Dashboard(gpus, size=SMALL) as dashboard:
        dashboard.wait_until(lambda shown: "GPU 2 97 %" in shown)
        gpus.override("[system]\nfreeze = 20.1\n")
        lost = r"GPU 2 ● lost Xid 79 · (\d+) s ago"
        ages = {dashboard_age(dashboard, lost, more_than=age) for age in (-1, 2)}
        assert len(ages) == 2
        shown = dashboard.plain()
        assert all(
            re.search(rf"GPU {index} \d+ % \d+ % \d+ \d+$", shown, re.M) for index in (0, 1, 3)
        )


def dashboard_age(dashboard, pattern, more_than):
    """The age in seconds that the screen shows, once it is more than so much."""
    found = []

    def holds(shown):
        found[:] = [int(age) for age in re.findall(pattern, shown)]
        return found and found[0] > more_than

    dashboard.wait_until(holds)
    return found[0]


# -- the device screen --------------------------------------------------------------------------


def test_the_device_screen_shows_every_reading():
    with Emulated("constant") as gpus, Dashboard(gpus, size=HUGE) as dashboard:
        device = gpus.expected()[1]
        said = device["readings"]
        dashboard.wait_for("GPU 1")
        dashboard.keys("Down", "Enter")
        dashboard.wait_for_all(
            [
                f"GPU 1 {device['name'].removeprefix('NVIDIA ')}",
                device["uuid"],
                f"bus {device['bus_id'][4:]}",
                f"state P{said['pstate']}",
                "clocks limited by power limit, heat",  # 0x24
                f"PCIe gen {said['pcie_gen']} × {said['pcie_width']}",
                f"ECC errors {said['ecc_uncorrected']} uncorrected",
                f"memory controller {said['mem_controller_percent']} %",
                f"encoder {said['encoder_percent']} %",
                f"decoder {said['decoder_percent']} %",
            ]
        )
        values = {
            "busy": f"{said['busy_percent']} %",
            "GPU memory": f"{gib(said['mem_used_bytes'])} GiB",
            "SM": f"{said['sm_active_percent']:.0f} %",
            "tensor": f"{said['tensor_active_percent']:.0f} %",
            "DRAM": f"{said['dram_active_percent']:.0f} %",
            "occupancy": f"{said['sm_occupancy_percent']:.0f} %",
            "power": f"{said['power_w']:.0f} W",
            "SM clock": f"{said['sm_clock_mhz']} MHz",
            "temperature": f"{said['temperature_c']} °C",
        }
        links = {
            f"{link} {sign}": said[f"{link.lower()}_{way}_bytes_per_s"]
            for link in ("PCIe", "NVLink")
            for sign, way in (("↓", "rx"), ("↑", "tx"))
        }

        def right(_shown):
            """All of them; what is constant has its value as its peak."""
            lanes = dashboard.lanes()
            return (
                lanes.keys() == values.keys() | links.keys()
                and all(lanes[lane][:2] == (text, text) for lane, text in values.items())
                and all(
                    rate(lanes[lane].value) == pytest.approx(said_rate, rel=0.1)
                    for lane, said_rate in links.items()
                )
            )

        dashboard.wait_until(right)
        assert dashboard.lanes()["power"].top == f"{said['power_limit_w']:.0f}"


def rate(text):
    """Bytes per second."""
    found = re.fullmatch(r"([\d.]+) ([KMG])iB/s", text)
    return float(found[1]) * 1024 ** ("KMG".index(found[2]) + 1) if found else None


def test_an_old_board_shows_its_errors_and_no_gpm():
    with still("v100x2") as gpus, Dashboard(gpus, size=USUAL) as dashboard:
        said = gpus.expected()[0]["readings"]
        assert said["sm_active_percent"] == Missing("unsupported")
        dashboard.wait_for_all(["▲ GPU 0: a page retirement needs a GPU reset"])
        dashboard.keys("2")
        shown = dashboard.wait_for_all(
            [
                f"ECC errors {said['ecc_uncorrected']} uncorrected",
                f"PCIe gen {said['pcie_gen']} × {said['pcie_width']}",
                "SM clock",
            ]
        )
        assert dashboard.lanes()["SM clock"].value == f"{said['sm_clock_mhz']} MHz"
        assert "SM, tensor, DRAM, occupancy n/a needs Hopper or later" in shown
        assert not {"SM", "tensor", "DRAM", "occupancy"} & dashboard.lanes().keys()


def test_a_mig_instance_says_where_it_sits():
    with still("mig") as gpus, Dashboard(gpus, size=USUAL) as dashboard:
        board, instance = gpus.expected()[:2]
        dashboard.wait_for_all(["GPU 0/gi2 3g.40gb busy n/a MIG"])
        dashboard.keys("Right", "Enter")
        (process,) = instance["processes"]
        dashboard.wait_for_all(
            [
                f"GPU 0/gi2 {board['name'].removeprefix('NVIDIA ')}",
                f"3g.40gb on {board['uuid']}",
                instance["uuid"],
                f"{process['pid']} {USER} 0/gi2 {process['mem_bytes'] / 2**30:.1f} GiB n/a",
            ]
        )
        used = instance["readings"]["mem_used_bytes"]
        assert {name: lane.value for name, lane in dashboard.lanes().items()} == {
            "GPU memory": f"{gib(used)} GiB"
        }


# -- processes ----------------------------------------------------------------------------------


def sixteen():
    """Two processes on each of eight boards; every number differs from every other."""
    scenario = Scenario().gpu("0-7", model="A100-SXM4-80GB", util=80)
    for gpu in range(8):
        first = Proc(f"@first{gpu}", 20000 + 512 * gpu, sm=40 + gpu)
        second = Proc(f"@second{gpu}", 3000 + 256 * gpu, sm=10 + gpu)
        scenario.gpu(gpu, procs=[first, second])
    return scenario


def process_rows(gpus):
    """`4711 ada 3 21.0 GiB 43 %` for each, and the command that really runs."""
    found = []
    for device in gpus.expected():
        for process in device["processes"]:
            pid = process["pid"]
            command = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").replace("\0", " ")
            used = gib(process["mem_bytes"])
            head = f"{pid} {USER} {device['index']} {used} GiB {process['sm_percent']} %"
            found.append((head, command))
    return found


def test_sixteen_processes_show_what_the_driver_and_proc_say():
    with Emulated(sixteen()) as gpus, Dashboard(gpus, size=HUGE) as dashboard:
        wanted = process_rows(gpus)
        assert len(wanted) == 16
        dashboard.wait_for("GPU 7")
        dashboard.keys("3")
        shown = dashboard.wait_for_all([*(head for head, _ in wanted), "16 on GPUs"])
        for head, command in wanted:
            (line,) = [line for line in shown.splitlines() if head in line]
            assert line.endswith(f" {command}")
        order = re.findall(r"([\d.]+) GiB \d+ %", shown)
        assert [float(gib) for gib in order] == sorted(map(float, order), reverse=True)


def test_processes_fit_a_small_terminal_and_can_be_filtered():
    with Emulated(sixteen()) as gpus, Dashboard(gpus, size=SMALL) as dashboard:
        wanted = process_rows(gpus)
        dashboard.wait_for("GPU 7")
        dashboard.keys("3")
        dashboard.wait_for_all(head for head, _ in wanted)
        dashboard.keys("/")
        dashboard.type("gpu=5")
        dashboard.keys("Enter")
        on_five = [head for head, _ in wanted if f" {USER} 5 " in head]
        shown = dashboard.wait_for_all([*on_five, "2 processes, 2 on GPUs"])
        assert all(head not in shown for head, _ in wanted if head not in on_five)


def test_a_process_that_ends_leaves_and_the_others_stay():
    with Emulated(sixteen()) as gpus, Dashboard(gpus, size=HUGE) as dashboard:
        gone = gpus.pids["first3"]
        others = [head for head, _ in process_rows(gpus) if not head.startswith(f"{gone} ")]
        dashboard.wait_for("GPU 7")
        dashboard.keys("3")
        dashboard.wait_for(str(gone))
        gpus.end("first3")
        shown = dashboard.wait_for_all([*others, "15 on GPUs, 1 ended"])
        assert re.search(rf"{gone} {USER} 3 - - - - - \d+ s ended \d+ s ago: python", shown)


def test_a_process_that_vanished_while_it_was_read_shows_what_is_known():
    with Emulated("gone_process") as gpus, Dashboard(gpus, size=USUAL) as dashboard:
        dashboard.wait_for("GPU 0")
        dashboard.keys("3")
        here = gpus.pids["train"]
        shown = dashboard.wait_for_all(
            [f"{here} {USER} 0 19.5 GiB 40 %", "4194305 ? 0 11.7 GiB 30 % n/a n/a"]
        )
        assert "python train_resnet.py" in shown
