"""What a device's readings and Xids say of a fault: for the rule, and for screens at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpumon.model.reading import Reading, number
from gpumon.model.text import clean

#: fields that must be 0, and what they say when they are not
FAULTS = {
    "remap_pending": "a row remap needs a GPU reset",
    "remap_failed": "row remapping failed",
    "retired_pending": "a page retirement needs a GPU reset",
    "recovery_action": "the driver requests a recovery",
}
#: those of them that any earlier job may have left, and that need not harm this one
_LEFT_OVER = frozenset((FAULTS["remap_pending"], FAULTS["retired_pending"]))
_RECOVERY = {1: "a reset", 2: "a reboot", 3: "a drain", 4: "a drain and a reset"}
#: Xids that are usually the program's (NVIDIA's Xid catalogue; not verified on hardware)
_OF_PROGRAM = frozenset(("13", "31", "43", "45", "68"))
#: and those of hardware or driver
_OF_NODE = {
    "48": "double-bit ECC error", "63": "row remapped", "64": "row remap failed",
    "74": "NVLink error", "79": "fell off the bus", "94": "contained ECC error",
    "95": "uncontained ECC error", "119": "GSP not responding", "120": "GSP error",
}  # fmt: skip
#: of these one that is not an error by itself: the driver did what it should
_RECORDED = frozenset(("63",))
_MOST_XIDS = 5


def faults(reading: Callable[[str], Reading | None]) -> list[str]:
    """The faults that a device's latest readings show, in words.

    Memory errors are not among them: the driver counts those since it was loaded, for any job.
    """
    found = []
    for name, words in FAULTS.items():
        value = number(reading(name))
        if not value:
            continue
        if name == "recovery_action":
            words = f"the driver requests {_RECOVERY.get(int(value), 'a recovery')}"
        found.append(words)
    return found


def xids_of(texts: Iterable[str]) -> list[str]:
    """Each once, as numbers in text."""
    return list(dict.fromkeys(clean(text, 16) for text in texts))


def fault_text(faults: list[str], xids: list[str]) -> str:
    """Both in one line."""
    return "; ".join([*faults, *map(xid_text, xids[:_MOST_XIDS])])


def is_of_program(faults: list[str], xids: list[str]) -> bool:
    """Whether all that there is are Xids that are usually the program's own."""
    return bool(xids) and not faults and _OF_PROGRAM.issuperset(xids)


def is_certain(faults: list[str], xids: list[str]) -> bool:
    """Whether any of it is an error of the node's hardware or driver, and of this time."""
    return not _LEFT_OVER.issuperset(faults) or not (_OF_NODE.keys() - _RECORDED).isdisjoint(xids)


def xid_text(xid: str) -> str:
    """`Xid 79 (fell off the bus)`."""
    words = _OF_NODE.get(xid)
    return f"Xid {xid} ({words})" if words else f"Xid {xid}"
