"""Every screen beside the others: names, keys, and what each key reaches."""

import re

from gpumon.tui.app import GpumonApp
from gpumon.tui.screens import KEYS
from gpumon.tui.screens.array.screen import TASK_OF_ARRAY, BackKeys
from gpumon.tui.screens.device.screen import DevicePane
from gpumon.tui.screens.marks import MarkKeys
from gpumon.tui.screens.replay import ReplayKeys
from tests.tui import cluster
from tests.tui.looking import Looking


def test_every_key_has_somebody_who_acts_on_it():
    looking = Looking()
    actors = (*looking.panes.values(), ReplayKeys, MarkKeys, BackKeys, GpumonApp)
    for key in KEYS:
        name = re.findall(r"\w+", key.action)[0]
        assert any(hasattr(actor, f"action_{name}") for actor in actors), key


def test_no_key_means_two_things():
    names = [name for key in KEYS for name in key.keys.split(",")]
    assert len(names) == len(set(names))


def test_the_bar_names_screens_that_there_are():
    places = {*Looking().panes, "array", "replay", "output known", TASK_OF_ARRAY}
    assert {place for key in KEYS for place in key.where} <= places


def test_keys_of_screens_are_in_the_table_of_all():
    for pane in Looking().panes.values():
        assert set(pane.keys) <= set(KEYS)


def test_2_on_a_process_opens_the_device_of_its_own_node():
    store, now = cluster.fill(2, seconds=3)
    looking = Looking(store.nodes(), now)
    found = looking.entries()
    looking.processes.cursor = next(
        place for place, entry in enumerate(found) if entry.node.name == "gpu02"
    )
    looking.draw("processes", 120, 38)
    looking.show("processes")
    device_pane = looking.panes["device"]
    assert isinstance(device_pane, DevicePane)
    device_pane.action_device()
    node, device = looking.selection.current(looking.moment)
    entry = looking.entries()[looking.processes.cursor]
    assert node.name == "gpu02"
    assert device.key in entry.process.usage
    assert looking.pane.name == "device"
