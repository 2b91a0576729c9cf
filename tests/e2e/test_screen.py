"""The dashboard shows what the driver was told to say, device by device and process by process."""

import re
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.model.reading import Missing
from tests.e2e.screen import USER, Dashboard, rows, titles
from tests.nvml.emulator import Emulated, Proc, Scenario

AT_S = 30.0  # time stands still here, so that comparisons are exact
SMALL, USUAL, LARGE, HUGE = (80, 24), (120, 40), (160, 50), (200, 60)
SENTENCES = {
    "no_driver": "No NVIDIA driver on this node",
    "mismatch": "The driver was updated while the node ran: the node needs a reboot",
    "no_devices": "No NVIDIA device is visible here.",
    "hang_init": "The NVIDIA driver does not answer",
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
            assert dashboard.text().count("└┬") == len(devices)  # a plot each
        else:
            assert len(re.findall(r"^▶?GPU \d+ (?:\d|lost)", shown, re.M)) >= len(devices)


def test_a_device_without_any_reading_shows_no_number():
    with still("na_all") as gpus, Dashboard(gpus) as dashboard:
        dashboard.wait_for("busy n/a  mem n/a")
        dashboard.keys("2")
        shown = dashboard.wait_for("power n/a")
        facts = shown[shown.index("busy") : shown.index("PID") if "PID" in shown else None]
        assert not re.search(r"\d (%|W|°C|MHz|GiB)", facts)


@pytest.mark.parametrize(("scenario", "sentence"), SENTENCES.items())
def test_without_devices_it_says_why_and_shows_the_host(scenario, sentence):
    with Emulated(scenario) as gpus, Dashboard(gpus, size=SMALL) as dashboard:
        shown = dashboard.wait_for_all(
            [sentence, "gpumon demo shows how it looks with GPUs", "CPU"]
        )
        assert "GPU 0" not in shown
        dashboard.keys("2")
        dashboard.wait_for("No GPU is visible here.")
        dashboard.keys("3")
        dashboard.wait_for("0 on GPUs")
        dashboard.keys("q")
        assert dashboard.wait_exit() == 0


def test_fifty_six_devices_scroll():
    with still("many") as gpus:
        wanted = rows(gpus.expected())
        with Dashboard(gpus, size=HUGE) as dashboard:
            dashboard.wait_for_all([*wanted[:50], "of 56"])
        with Dashboard(gpus, size=SMALL) as dashboard:
            dashboard.wait_for_all(wanted[:18])
            dashboard.keys("End")
            shown = dashboard.wait_for_all([*wanted[38:], "-56 of 56"])
            assert wanted[0] not in shown
            dashboard.keys("2")
            dashboard.wait_for_all(["56 of 56", gpus.expected()[55]["uuid"]])


def test_a_device_that_is_lost_later_keeps_its_row():
    with Emulated("lost", start_s=16) as gpus, Dashboard(gpus, size=SMALL) as dashboard:
        dashboard.wait_until(lambda shown: "GPU 2 97 %" in shown)
        lost = r"GPU 2 lost Xid 79 · (\d+) s ago"
        ages = {dashboard_age(dashboard, lost, more_than=age) for age in (-1, 2)}
        assert len(ages) == 2
        shown = dashboard.plain()
        assert all(
            re.search(rf"GPU {index} \d+ % \d+ % \d+ \d+ {USER}", shown) for index in (0, 1, 3)
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
        gib = said["mem_used_bytes"] / 2**30
        shown = dashboard.wait_for_all(
            [
                f"GPU 1 {device['name'].removeprefix('NVIDIA ')}",
                device["uuid"],
                f"bus {device['bus_id'][4:]}",
                f"busy {said['busy_percent']} %",
                f"mem {gib:.1f} / ",
                f"power {said['power_w']:.0f} W / {said['power_limit_w']:.0f} W",
                f"temp {said['temperature_c']} °C",
                f"SM clock {said['sm_clock_mhz']} MHz",
                f"state P{said['pstate']}",
                "clocks held by sw_power_cap, sw_thermal",  # 0x24
                f"PCIe gen {said['pcie_gen']} × {said['pcie_width']}",
                f"ECC uncorrected {said['ecc_uncorrected']}",
                f"mem-ctrl {said['mem_controller_percent']} %",
                f"encoder {said['encoder_percent']} %",
                f"decoder {said['decoder_percent']} %",
                f"SM {said['sm_active_percent']:.0f} % tensor {said['tensor_active_percent']:.0f} %"
                f" DRAM {said['dram_active_percent']:.0f} %"
                f" occupancy {said['sm_occupancy_percent']:.0f} %",
                "PCIe ↓",
                "NVLink ↓",
            ]
        )
        for link in ("pcie", "nvlink"):
            rx, tx = rates(shown, link)
            assert rx == pytest.approx(said[f"{link}_rx_bytes_per_s"], rel=0.1)
            assert tx == pytest.approx(said[f"{link}_tx_bytes_per_s"], rel=0.1)


def rates(shown, link):
    """Received and sent, in bytes per second."""
    value = r"([\d.]+) ([KMG])iB/s"
    (found,) = re.findall(rf"{link} ↓ {value} ↑ {value}", shown, re.I)
    rx, rx_unit, tx, tx_unit = found
    return tuple(
        float(number) * 1024 ** ("KMG".index(unit) + 1)
        for number, unit in ((rx, rx_unit), (tx, tx_unit))
    )


def test_an_old_board_shows_its_errors_and_no_gpm():
    with still("v100x2") as gpus, Dashboard(gpus, size=USUAL) as dashboard:
        said = gpus.expected()[0]["readings"]
        assert said["sm_active_percent"] == Missing("unsupported")
        dashboard.wait_for_all(["● GPU 0: 2 uncorrectable memory errors"])
        dashboard.keys("2")
        shown = dashboard.wait_for_all(
            [
                f"ECC uncorrected {said['ecc_uncorrected']}",
                f"PCIe gen {said['pcie_gen']} × {said['pcie_width']}",
                f"SM clock {said['sm_clock_mhz']} MHz",
            ]
        )
        assert "tensor" not in shown


def test_a_mig_instance_says_where_it_sits():
    with still("mig") as gpus, Dashboard(gpus, size=USUAL) as dashboard:
        board, instance = gpus.expected()[:2]
        dashboard.wait_for("GPU 0/gi2")
        dashboard.keys("Right", "Enter")
        (process,) = instance["processes"]
        dashboard.wait_for_all(
            [
                f"GPU 0/gi2 {board['name'].removeprefix('NVIDIA ')}",
                f"3g.40gb on {board['uuid']}",
                instance["uuid"],
                "busy n/a MIG",
                f"{process['pid']} {USER} {process['mem_bytes'] / 2**30:.1f} GiB n/a",
            ]
        )


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
            gib = (
                f"{process['mem_bytes'] / 2**30:.{1 if process['mem_bytes'] > 10 * 2**30 else 2}f}"
            )
            gib = gib.rstrip("0").rstrip(".")
            head = f"{pid} {USER} {device['index']} {gib} GiB {process['sm_percent']} %"
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
            [f"{here} {USER} 0 19.5 GiB 40 %", "4194305 ? 0 11.7 GiB 30 % n/a n/a n/a ?"]
        )
        assert "python train_resnet.py" in shown
