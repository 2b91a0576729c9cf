"""Network and InfiniBand traffic of the node. Never that of a single job."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from typing import Callable, NamedTuple

from gpumon.collect.base import Schedule, Tick
from gpumon.collect.procfs import look, parse_count
from gpumon.collect.rates import Moment, Rates, moment_since
from gpumon.model.plausible import RATE_MARGIN, implausible
from gpumon.model.reading import Missing, Reading, number, then
from gpumon.model.text import clean

_PERIOD_S = 5.0
_MAX_INTERFACES = 8
_BYTES_PER_WORD = 4  # InfiniBand counts its data in words of 4 bytes
_LINK_RATE = re.compile(r"(\d{1,5}(?:\.\d)?) Gb/sec")
#: adapters of virtual machines that state a speed which nothing holds them to
_PARAVIRTUAL = frozenset(
    ("virtio_net", "vmxnet3", "hv_netvsc", "netvsc", "vif", "xen_netfront", "ena", "gve", "mana")
)
_UNBOUND = Missing("unsupported")
_UNKNOWN_SPEED = Missing("unsupported", "link speed unknown")


class Interface(NamedTuple):
    """Bytes since the interface was made."""

    name: str
    rx_bytes: int
    tx_bytes: int


def parse_net_dev(text: str) -> list[Interface]:
    """/proc/net/dev, without the loopback."""
    interfaces = []
    for line in text.splitlines():
        name, colon, rest = line.rpartition(":")
        fields = rest.split()
        if not colon or len(fields) < 16:
            continue
        received, sent = parse_count(fields[0]), parse_count(fields[8])
        if received is not None and sent is not None and name.strip() != "lo":
            interfaces.append(Interface(clean(name.strip(), 32), received, sent))
    return interfaces


def parse_link_rate(text: str) -> float | None:
    """Bits per second of an InfiniBand port's `rate`: `100 Gb/sec (4X EDR)`."""
    match = _LINK_RATE.match(text)
    return float(match.group(1)) * 1e9 if match else None


class Network:
    """Rates of the physical interfaces and InfiniBand ports, at most eight of each."""

    name = "network"

    def __init__(
        self, proc: str = "/proc", sys: str = "/sys", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._net_dev = f"{proc}/self/net/dev"
        self._net = f"{sys}/class/net"
        self._infiniband = f"{sys}/class/infiniband"
        self._schedule = Schedule()
        self._clock = clock
        self._rates = Rates()

    def collect(self, tick: Tick) -> None:
        if not self._schedule.due("net", _PERIOD_S, tick.mono):
            return
        began = self._clock()
        interfaces = self._interfaces()
        moment = moment_since(began, self._clock)
        for interface in interfaces:
            speed = self._ethernet_speed(interface.name)
            most = _UNBOUND if self._is_virtual(interface.name) else speed
            self._put(tick, interface, speed, most, moment)
        for port, directory in self._ports():
            self._put_port(tick, port, directory)

    def _put(
        self, tick: Tick, interface: Interface, speed: Reading, most: Reading, moment: Moment
    ) -> None:
        name, received, sent = interface
        rx = self._rates.per_second(("rx", name), received, moment)
        tx = self._rates.per_second(("tx", name), sent, moment)
        readings: dict[str, Reading] = {
            "rx_bytes_per_s": _carried(rx, most),
            "tx_bytes_per_s": _carried(tx, most),
            "link_bits_per_s": speed,
        }
        tick.put("net", name, readings)

    # -- interfaces ------------------------------------------------------------------------------

    def _interfaces(self) -> list[Interface]:
        """The physical ones that ever carried something; all when none is physical."""
        interfaces = then(look(self._net_dev), parse_net_dev)
        if isinstance(interfaces, Missing):
            return []
        physical = [i for i in interfaces if os.path.exists(f"{self._net}/{i.name}/device")]
        return _busiest(physical or interfaces)

    def _ethernet_speed(self, name: str) -> Reading:
        # EINVAL while the link is down; −1 and 2³² − 1 stand for unknown
        megabits = number(then(look(f"{self._net}/{name}/speed"), parse_count))
        return megabits * 1e6 if megabits and megabits < (1 << 32) - 1 else _UNKNOWN_SPEED

    def _is_virtual(self, name: str) -> bool:
        """Whether nothing holds the interface to its speed."""
        device = f"{self._net}/{name}/device"
        if not os.path.exists(device):
            return True
        try:
            return os.path.basename(os.readlink(f"{device}/driver")) in _PARAVIRTUAL
        except OSError:
            return False

    # -- InfiniBand --------------------------------------------------------------------------------

    def _ports(self) -> list[tuple[str, str]]:
        """Name and directory of each port: mlx5_0, or mlx5_0/2 where there are several."""
        ports = []
        for device in _names_in(self._infiniband)[:64]:
            directory = f"{self._infiniband}/{device}/ports"
            numbers = _names_in(directory)[:64]
            for place in numbers:
                label = device if len(numbers) == 1 else f"{device}/{place}"
                ports.append((clean(label, 32), f"{directory}/{place}"))
        return [port for port in ports if _is_active(port[1])][:_MAX_INTERFACES]

    def _put_port(self, tick: Tick, port: str, directory: str) -> None:
        known = number(then(look(f"{directory}/rate"), parse_link_rate))
        speed: Reading = known or _UNKNOWN_SPEED  # 0 while the link is down
        readings: dict[str, Reading] = {"link_bits_per_s": speed}
        for field, counter in (("rx", "port_rcv_data"), ("tx", "port_xmit_data")):
            began = self._clock()
            words = then(look(f"{directory}/counters/{counter}"), parse_count)
            moment = moment_since(began, self._clock)
            total = then(words, lambda words: words * _BYTES_PER_WORD)
            rate = self._rates.per_second((field, port), total, moment)
            readings[f"{field}_bytes_per_s"] = _carried(rate, speed)
        tick.put("net", port, readings)


def _carried(rate: Reading, link_bits_per_s: Reading) -> Reading:
    """The rate, or Missing where no link of that speed can carry it."""
    most, bytes_per_s = number(link_bits_per_s), number(rate)
    if most is None or bytes_per_s is None or bytes_per_s <= RATE_MARGIN * most / 8:
        return rate
    return implausible(bytes_per_s, "B/s")


def _busiest(interfaces: Iterable[Interface]) -> list[Interface]:
    """By all they ever carried, not by the last seconds: the choice should not flicker."""
    ranked = sorted(interfaces, key=lambda i: (-(i.rx_bytes + i.tx_bytes), i.name))
    used = [i for i in ranked if i.rx_bytes + i.tx_bytes]
    return (used or ranked[:1])[:_MAX_INTERFACES]


def _names_in(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _is_active(directory: str) -> bool:
    state = look(f"{directory}/state")
    return isinstance(state, Missing) or "ACTIVE" in state
