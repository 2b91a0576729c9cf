"""Names of devices in one line."""

from gpumon.tui.parts.phrasing import devices_named


def test_devices_of_one_node_share_its_name():
    assert devices_named(["GPU 2", "GPU 3"]) == "GPU 2, 3"
    assert devices_named(["gpu02:2", "gpu02:3", "gpu03:0"]) == "gpu02:2, 3, gpu03:0"
    assert devices_named(["gpu02:0", "gpu03:0", "gpu03:1"]) == "gpu02:0, gpu03:0, 1"
    assert devices_named([f"GPU {n}" for n in range(5)]) == "5 GPUs"
