"""What a probe tells is in use of reserved memory, in plots, rows and lanes."""

import pytest

from gpumon.model.sample import Sample
from gpumon.tui.lines import plain
from gpumon.tui.moment.pools import in_use
from gpumon.tui.parts.device_rows import device_rows
from gpumon.tui.parts.grid import device_layers
from gpumon.tui.parts.heading import IN_USE, device_title
from tests.tui.by_hand import NOW, device_row, one_node, process
from tests.tui.looking import Looking

GIB = 1 << 30


def store_of(*held, framework="torch", pools=()):
    """A device with processes that hold so many GiB, of which so many are told to be in use."""
    store = one_node(1)
    pids = range(10, 10 + len(held))
    for second in range(6):
        rows = {
            "device": {0: device_row(mem_used_bytes=sum(held) * GIB)},
            "usage": {
                (0, pid): {"mem_bytes": each * GIB, "sm_percent": 10}
                for pid, each in zip(pids, held)
            },
            "process": {pid: {"cpu_percent": 5.0} for pid in pids},
            "pool": {
                (0, pid): {"used_bytes": each * GIB}
                for pid, each in zip(pids, pools)
                if each is not None
            },
        }
        events = [process(pid, framework=framework) for pid in pids] if not second else []
        store.add("gpu01", Sample(NOW + second, second, rows, {}, events))
    return store


def found_of(*held, **rest):
    (node,) = store_of(*held, **rest).nodes()
    return in_use(node, 0, NOW + 5)


def looking(*held, glyphs="braille", **rest):
    return Looking(store_of(*held, **rest).nodes(), NOW + 5, glyphs=glyphs)


def test_in_use_is_of_all_pools_of_a_device():
    found = found_of(60, pools=[45])
    assert (found.used_bytes, found.pid, found.since) == (45 * GIB, 10, NOW - 100)
    both = found_of(30, 20, pools=[12, 3])
    assert (both.used_bytes, both.pid) == (15 * GIB, None)
    assert found_of(30, 0.4, pools=[12]).used_bytes == 12 * GIB


@pytest.mark.parametrize(
    ("held", "rest"),
    [
        ((60,), {}),
        ((30, 20), {"pools": [12]}),  # nobody knows what the other one needs
        ((70,), {"framework": "vllm", "pools": [68]}),  # its cache
        ((), {}),
    ],
)
def test_in_use_is_not_known(held, rest):
    assert found_of(*held, **rest) is None


def test_the_heading_has_both_lines_in_their_colours():
    view = looking(60, framework="tf", pools=[45])
    (node,) = view.moment.nodes
    (device,) = node.devices()

    def title(width):
        return device_title(view.moment, node, device, width, selected=False)

    assert "━45 GiB in use ━60 reserved" in plain([title(100)])
    assert "━━mem 56/75 %" in plain([title(46)])
    assert {role for text, role in title(46) if text == "56"} == {IN_USE}
    assert "*" not in plain([title(100)])


def test_the_plot_has_the_part_in_use_within_the_hatched_reservation():
    (node,) = store_of(60, pools=[45]).nodes()
    (device,) = node.devices()
    layers = device_layers(node, device, NOW + 5)
    assert [(each.kind, each.field) for each in layers[-3:]] == [
        ("hatch", "mem_used_bytes"),
        ("line", "mem_used_bytes"),
        ("line", "used_bytes"),
    ]
    assert layers[-1].place("device", 0) == ("pool", (0, 10))
    (plain_one,) = store_of(60).nodes()
    assert [each.kind for each in device_layers(plain_one, device, NOW + 5)] == [
        "area", "tint", "line",
    ]  # fmt: skip


def test_rows_and_the_request_tell_both():
    view = looking(60, framework="tf", pools=[45])
    rows = device_rows(view.moment, view.selection, [0], 80, 5, with_processes=False).rows
    assert " 56/75 %" in plain(rows)
    assert "the real need is unknown" not in view.text("job", 80, 22)
    wide = looking(60, framework="tf", pools=[45]).text("job", 130, 30)
    assert "45 + 15 reserved/80 GiB" in wide
    unknown = looking(60, framework="tf").text("job", 130, 30)
    assert "the real need is unknown" in unknown
    assert "75 %*" in unknown


@pytest.mark.parametrize("glyphs", ["braille", "ascii"])
@pytest.mark.parametrize("size", [(80, 22), (120, 38)])
def test_the_device_screen_has_the_part_in_use(size, glyphs):
    text = looking(60, framework="tf", pools=[45], glyphs=glyphs).text("device", *size)
    assert "45 GiB in use, 60 reserved" in text
    assert "GPU memory" in text
    assert "preallocated by" not in text
    if size == (120, 38):
        assert "in use of 60G" in text
