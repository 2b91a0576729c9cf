"""One sample of this node for a program, and its table in a notebook."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from gpumon.api.command import end, start
from gpumon.errors import GpumonError
from gpumon.model.units import of_bytes_text

if TYPE_CHECKING:
    import pandas

_CELL = "text-align:left;padding:0 1em 0 0"
_BAR = "display:inline-block;height:.7em;width:{width}em;background:{colour}"
_BAR_EM = 6.0


class Snapshot(dict[str, Any]):
    """The object that `gpumon once --json` prints (docs/json.md)."""

    def to_frame(self) -> pandas.DataFrame:
        """A row for each device. Raises GpumonError without pandas."""
        try:
            import pandas
        except ImportError:
            raise GpumonError("to_frame() needs pandas; install it: pip install pandas") from None
        rows = [
            {name: value for name, value in device.items() if not isinstance(value, (dict, list))}
            for device in self["devices"]
        ]
        return pandas.DataFrame(rows)

    def _repr_html_(self) -> str:
        """A table for Jupyter, with a bar for busy and memory of each device."""
        head = "".join(
            f'<th style="{_CELL}">{name}</th>'
            for name in ("GPU", "name", "busy", "memory", "power", "temperature")
        )
        rows = "".join(map(_row, self["devices"])) or '<tr><td colspan="6">no GPU</td></tr>'
        title = escape(f"{self['node']}" + (f", job {job}" if (job := self._job()) else ""))
        return f"<table><caption>{title}</caption><tr>{head}</tr>{rows}</table>"

    def _job(self) -> str:
        return str((self.get("job") or {}).get("id") or "")


def snapshot() -> Snapshot:
    """One sample of this node: of this job's devices, where there is a job around the program.

    Takes a part of a second, in a process of its own. Raises GpumonError.
    """
    return Snapshot(json.loads(end(start("once", "--json"))[0]))


def _row(device: dict[str, Any]) -> str:
    used, total = device["mem_used_bytes"], device["mem_total_bytes"]
    share = 100 * used / total if used is not None and total else None
    memory = of_bytes_text(used, total) if share is not None else ""
    cells = (
        escape(str(device["index"])),
        escape(str(device["name"] or "")),
        _bar(device["busy_percent"], "#2e7d32") + _figure(device, "busy_percent", " %"),
        _bar(share, "#1565c0") + (memory or _figure(device, "mem_used_bytes", "")),
        _figure(device, "power_w", " W"),
        _figure(device, "temperature_c", " °C"),
    )
    return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"


def _bar(percent: float | None, colour: str) -> str:
    if percent is None:
        return ""
    width = round(_BAR_EM * min(percent, 100.0) / 100, 2)
    rest = _BAR.format(width=round(_BAR_EM - width, 2), colour="#8883")
    full = _BAR.format(width=width, colour=colour)
    return f'<span style="{full}"></span><span style="{rest}"></span> '


def _figure(device: dict[str, Any], name: str, unit: str) -> str:
    """The value, or the reason why there is none."""
    value = device[name]
    if value is None:
        reason = device["missing"].get(name, "not-sampled").partition(":")[0]
        return escape(f"n/a {reason}")
    return f"{value:.0f}{unit}"
