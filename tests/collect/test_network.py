import os

import psutil
import pytest

from gpumon.collect.base import Tick
from gpumon.collect.network import Network, parse_link_rate, parse_net_dev
from gpumon.model.fields import FIELDS
from gpumon.model.reading import MEASURING, Missing

from .trees import plant

HEAD = "Inter-|   Receive  |  Transmit\n face |bytes packets errs |bytes packets\n"


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def dev(**interfaces):
    lines = [
        f"{name}: {rx} 1 0 0 0 0 0 0 {tx} 1 0 0 0 0 0 0" for name, (rx, tx) in interfaces.items()
    ]
    return HEAD + "\n".join(lines) + "\n"


def port(device, number, words, rate="100 Gb/sec (4X EDR)\n", state="4: ACTIVE\n"):
    top = f"class/infiniband/{device}/ports/{number}"
    return {
        f"{top}/counters/port_rcv_data": f"{words}\n",
        f"{top}/counters/port_xmit_data": f"{2 * words}\n",
        f"{top}/rate": rate,
        f"{top}/state": state,
    }


def collected(network, mono):
    tick = Tick(1e9, mono)
    network.collect(tick)
    return tick.rows.get("net")


def test_physical_interfaces_and_their_rates(tmp_path):
    clock = Clock()
    network = Network(str(tmp_path), str(tmp_path), clock)
    plant(tmp_path, {"self/net/dev": dev(lo=(9, 9), eth0=(1000, 500), docker0=(70, 7))})
    plant(tmp_path, {"class/net/eth0/device/vendor": "", "class/net/eth0/speed": "25000\n"})
    first = collected(network, 0.0)
    assert set(first) == {"eth0"}
    assert set(first["eth0"]) == set(FIELDS["net"])
    assert first["eth0"]["rx_bytes_per_s"] == MEASURING
    assert first["eth0"]["link_bits_per_s"] == 25e9
    clock.now = 5.0
    plant(tmp_path, {"self/net/dev": dev(eth0=(6000, 500))})
    assert collected(network, 1.0) is None  # every 5 s
    second = collected(network, 5.0)["eth0"]
    assert second["rx_bytes_per_s"] == 1000.0
    assert second["tx_bytes_per_s"] == 0.0
    clock.now = 10.0
    plant(tmp_path, {"self/net/dev": dev(eth0=(5, 500))})
    assert collected(network, 10.0)["eth0"]["rx_bytes_per_s"] == Missing("implausible")


def test_without_physical_interfaces_the_busiest_eight(tmp_path):
    plant(tmp_path, {"self/net/dev": dev(**{f"veth{n}": (n, n) for n in range(12)})})
    rows = collected(Network(str(tmp_path), str(tmp_path)), 0.0)
    assert set(rows) == {f"veth{n}" for n in range(4, 12)}


@pytest.mark.parametrize("speed", ["-1\n", "4294967295\n", "0\n", "x\n"])
def test_an_unknown_link_speed_is_no_number(tmp_path, speed):
    plant(tmp_path, {"self/net/dev": dev(eth0=(1, 1)), "class/net/eth0/speed": speed})
    rows = collected(Network(str(tmp_path), str(tmp_path)), 0.0)
    assert rows["eth0"]["link_bits_per_s"] == Missing("unsupported")


def test_infiniband_counts_words_of_four_bytes(tmp_path):
    clock = Clock()
    network = Network(str(tmp_path), str(tmp_path), clock)
    plant(tmp_path, {"self/net/dev": HEAD, **port("mlx5_0", 1, 1000)})
    plant(tmp_path, port("mlx5_1", 1, 5) | port("mlx5_1", 2, 5, rate="what\n"))
    plant(tmp_path, port("mlx5_2", 1, 5, state="1: DOWN\n"))
    first = collected(network, 0.0)
    assert set(first) == {"mlx5_0", "mlx5_1/1", "mlx5_1/2"}
    assert first["mlx5_0"]["link_bits_per_s"] == 100e9
    assert first["mlx5_1/2"]["link_bits_per_s"] == Missing("unsupported")
    clock.now = 2.0
    plant(tmp_path, port("mlx5_0", 1, 2000))
    (tmp_path / "class/infiniband/mlx5_1/ports/1/counters/port_rcv_data").unlink()
    second = collected(network, 5.0)
    assert second["mlx5_0"]["rx_bytes_per_s"] == 2000.0
    assert second["mlx5_0"]["tx_bytes_per_s"] == 4000.0
    assert second["mlx5_1/1"]["rx_bytes_per_s"] == Missing("unsupported")
    assert second["mlx5_1/1"]["tx_bytes_per_s"] == 0.0


def test_a_node_without_any_of_it(tmp_path):
    assert collected(Network(str(tmp_path), str(tmp_path)), 0.0) is None


def test_this_node_as_psutil_sees_it():
    with open("/proc/self/net/dev") as file:
        ours = {interface.name: interface for interface in parse_net_dev(file.read())}
    theirs = psutil.net_io_counters(pernic=True)
    assert set(ours) == set(theirs) - {"lo"}
    for name, interface in ours.items():
        assert 0 <= interface.rx_bytes <= theirs[name].bytes_recv
    rows = collected(Network(), 0.0) or {}
    physical = {n for n in ours if os.path.exists(f"/sys/class/net/{n}/device")}
    assert set(rows) & set(ours) <= (physical or set(ours))


def test_parsers():
    assert parse_net_dev("a:b: 1 2\n") == []
    hostile = parse_net_dev("e\x1b[2J: 1 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0\n")
    assert hostile[0].name == "e?[2J"
    assert parse_link_rate("2.5 Gb/sec (1X SDR)") == 2.5e9
    assert parse_link_rate("fast") is None
