"""Numbers for people: bytes in binary units, durations, rates. One form each, everywhere."""

from __future__ import annotations

from math import ceil
from typing import Optional

_KIB = 1024.0
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def bytes_text(size_bytes: float) -> str:
    """`512 B`, `38.2 GiB`, `80 GiB`: three significant digits, no false precision."""
    value, unit = _scaled(size_bytes)
    return f"{_three(value)} {unit}"


def of_bytes_text(used_bytes: float, total_bytes: float) -> str:
    """`31 / 256 GiB`: both in the unit of the total, as on a shared axis."""
    value, unit = _scaled(total_bytes)
    factor = _KIB ** _UNITS.index(unit)
    return f"{_three(used_bytes / factor)} / {_three(value)} {unit}"


def size_text(size_bytes: float) -> str:
    """As Slurm reads it, always with a unit: `9G`, `768M`; rounded up to MiB."""
    mib = ceil(size_bytes / _KIB**2)
    return f"{mib}M" if mib % 1024 else f"{mib // 1024}G"


def plural(count: int, noun: str, ending: str = "s") -> str:
    """`1 node`, `2 nodes`, `3,000 samples`."""
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def rate_text(bytes_per_s: float) -> str:
    """`2.1 GiB/s`."""
    return f"{bytes_text(bytes_per_s)}/s"


def clock_text(seconds: float) -> str:
    """`02:14:09`, from a day on `3-02:14:09` as Slurm writes it."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86400)
    text = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def age_text(seconds: float) -> str:
    """`45 s`, `8 min`, `2 h 05 min`, `1 d 3 h`: a duration or an age."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def measured_text(seconds: float) -> str:
    """How long something was observed: to the nearest minute, as windows of whole buckets are."""
    return age_text(seconds if seconds < 120 else 60 * round(seconds / 60))


def step_text(step_us: float) -> str:
    """How long a step of a program takes: `270 µs`, `21.4 ms`, `1.34 s`, `2 min`."""
    if step_us < 1000:
        return f"{step_us:.0f} µs"
    if step_us < 1e6:
        return f"{step_us / 1e3:.3g} ms" if step_us < 999.5e3 else "1 s"
    return f"{step_us / 1e6:.3g} s" if step_us < 120e6 else age_text(step_us / 1e6)


def span_text(seconds: float) -> str:
    """A chosen length, as of a plot's time: as `age_text`, but `1 min`, `3 h`, `7 d` if exact."""
    whole = round(seconds)
    text = "1 min" if whole == 60 else age_text(whole)
    return text.removesuffix(" 00 min").removesuffix(" 0 h")


def parse_size(text: str) -> Optional[float]:
    """Bytes from `10G`, `512M`, `1.5T`, `100`; K, M, G, T are powers of 1024. None if no size."""
    text = text.strip().upper().removesuffix("IB") if text else ""
    text = text[:-1] if text.endswith("B") else text
    factor = 1.0
    if text and text[-1] in "KMGT":
        factor = _KIB ** ("KMGT".index(text[-1]) + 1)
        text = text[:-1]
    try:
        value = float(text)
    except ValueError:
        return None
    return value * factor if 0 <= value < 1e18 else None


def _scaled(value: float) -> tuple[float, str]:
    scaled = float(value)
    for unit in _UNITS[:-1]:
        if abs(scaled) < 999.5:
            return scaled, unit
        scaled /= _KIB
    return scaled, _UNITS[-1]


def _three(value: float) -> str:
    """Three significant digits, without a trailing `.0`."""
    if abs(value) >= 99.95 or value == int(value):
        return f"{value:.0f}"
    text = f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".")
