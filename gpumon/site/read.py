"""Reading a site's file, and the table of GPUs that ships. `docs/site.md` describes both."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from gpumon.errors import UsageError, suggestion
from gpumon.model.fields import FIELDS
from gpumon.model.sample import FACTS
from gpumon.model.text import clean, shown
from gpumon.site import GpuType, NodeType, Policy, Site
from gpumon.site.own import own_families
from gpumon.site.prometheus import Family, Metric, Prometheus
from gpumon.toml import read_toml, site_file

_TABLE = os.path.join(os.path.dirname(__file__), "gpus.toml")
_FAMILIES = os.path.join(os.path.dirname(__file__), "families.toml")
_MIB, _GB = 1 << 20, 10**9
_MOST_LISTED = 20  # names in a complaint
_TABLES = (
    "site", "policy", "node", "gpu", "gres", "thresholds", "links", "settings", "prometheus",
    "family",
)  # fmt: skip


_Toml = Mapping[str, Any]
_Read = Callable[[Any], Any]  # raises TypeError or ValueError, in words


def load_site(path: str | None = None, thresholds: Callable[[], Collection[str]] = tuple) -> Site:
    """The site of `path`, else of $GPUMON_SITE, else of /etc/gpumon/site.toml, else none.

    `thresholds` gives the names that its table [thresholds] may have, if there is one. Without a
    file: the table of GPUs that ships, and nothing else. Raises UsageError: one line with the file
    and the key.
    """
    path = path or site_file()
    gpus = shipped_gpus()
    return Site(gpus=gpus) if path is None else _Reader(path).site(gpus, thresholds)


@lru_cache(maxsize=1)
def shipped_gpus() -> tuple[GpuType, ...]:
    """The GPUs and MIG profiles of gpus.toml."""
    reader = _Reader(_TABLE)
    return tuple(reader.gpu(table, where) for table, where in reader.tables("gpu"))


@lru_cache(maxsize=1)
def shipped_families() -> tuple[Family, ...]:
    """The families of gpumon exporter, and those of other exporters in families.toml."""
    reader = _Reader(_FAMILIES)
    others = (reader.family(table, where) for table, where in reader.tables("family"))
    return (*own_families(), *others)


class _Reader:
    """One file; every complaint names it and the key."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._content = read_toml(path)
        self._known(self._content, "", _TABLES)

    def site(self, shipped: tuple[GpuType, ...], thresholds: Callable[[], Collection[str]]) -> Site:
        if own := self._table(self._content, "thresholds", ""):
            self._known(own, "thresholds", thresholds())
        general = self._values(self._table(self._content, "site", ""), "site", _SITE)
        gpus = [self.gpu(table, where) for table, where in self.tables("gpu")]
        places = {gpu.key for gpu in gpus}
        gpus += [gpu for gpu in shipped if gpu.key not in places]
        policy = self._values(self._table(self._content, "policy", ""), "policy", _POLICY)
        per_core = general.get("mem_default_per_core_gb", {})
        return Site(
            name=general.get("name", ""),
            gpus=self._named(gpus),
            nodes=tuple(self._node(table, where, gpus) for table, where in self.tables("node")),
            policy=Policy(**policy),
            thresholds=self._each(self._content, "thresholds", "", _number),
            mem_default_per_core_bytes={name: int(gb * _GB) for name, gb in per_core.items()},
            links=self._each(self._content, "links", "", _text),
            prometheus=self._prometheus(),
        )

    def gpu(self, table: _Toml, where: str) -> GpuType:
        values = self._values(table, where, _GPU, needed=("name", "match", "cc", "mem_mib"))
        self._known(values.get("peak", {}), f"{where}.peak", _PEAKS)
        return GpuType(mem_bytes=values.pop("mem_mib") * _MIB, **values)

    def _prometheus(self) -> Prometheus:
        table = self._table(self._content, "prometheus", "")
        values = self._values(table, "prometheus", _PROMETHEUS)
        labels = self._each(table, "labels", "prometheus", _text)
        own = tuple(self.family(each, where) for each, where in self.tables("family"))
        return Prometheus(**{**values, "labels": labels, "families": own})

    def family(self, table: _Toml, where: str) -> Family:
        values = self._values(table, where, _FAMILY, needed=("name", "metrics"))
        metrics = self._table(values, "metrics", where)
        found = []
        for name, entries in metrics.items():
            for entry in entries if isinstance(entries, list) else [entries]:
                found.append(self._metric(name, entry, f"{where}.metrics"))
        return Family(**{"about": "", **values, "metrics": tuple(found)})

    def _metric(self, name: str, entry: Any, where: str) -> Metric:
        path = f"{where}.{name}"
        if not isinstance(entry, dict):
            raise self._wrong(path, 'must be a table like { reading = "device.busy_percent" }')
        if not _METRIC_NAME.fullmatch(name):
            raise self._wrong(path, "must be the name of a metric")
        values = self._values(entry, path, _METRIC, needed=("reading",))
        labels = self._each(entry, "where", path, _text)
        return Metric(**{**values, "name": name, "where": labels})

    def _named(self, gpus: list[GpuType]) -> tuple[GpuType, ...]:
        """The GPUs with the names that the table [gres] gives: "A100-80" or "A100-80/1g.10gb"."""
        given = self._table(self._content, "gres", "")
        found = {gpu.key: gpu for gpu in gpus}
        for name in given:
            if name not in found:
                raise self._wrong("gres", f"unknown GPU {name!r}; add it as [[gpu]] or correct it")
            names = self._values(self._table(given, name, "gres"), f"gres.{name}", _NAMES)
            found[name] = replace(found[name], **names)
        return tuple(found.values())

    def _node(self, table: _Toml, where: str, gpus: list[GpuType]) -> NodeType:
        values: dict[str, Any] = {"gpu": "", "gpus": 0}
        values |= self._values(table, where, _NODE, needed=("cores", "mem_gb"))
        gpu = values["gpu"]
        if gpu and gpu not in {each.key for each in gpus}:
            raise self._wrong(
                f"{where}.gpu", f"unknown GPU {gpu!r}; add it as [[gpu]] or correct it"
            )
        return NodeType(mem_bytes=int(values.pop("mem_gb") * _GB), **values)

    # -- one value

    def tables(self, name: str) -> list[tuple[_Toml, str]]:
        """The entries of an array of tables, each with how a complaint names it."""
        found = self._content.get(name, [])
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self._wrong(name, f"must be tables; write each as [[{name}]]")
        return [(each, f"{name}[{at}]") for at, each in enumerate(found)]

    def _table(self, table: _Toml, name: str, where: str) -> _Toml:
        found = table.get(name, {})
        if not isinstance(found, dict):
            raise self._wrong(f"{where}.{name}".strip("."), "must be a table")
        return found

    def _each(self, table: _Toml, name: str, where: str, read: _Read) -> dict[str, Any]:
        """A table of values that are all read alike, by names that the site chooses."""
        found, path = self._table(table, name, where), f"{where}.{name}".strip(".")
        return {key: self._value(found, key, path, read) for key in found}

    def _values(
        self, table: _Toml, where: str, shape: Mapping[str, _Read], needed: Collection[str] = ()
    ) -> dict[str, Any]:
        """What stands in the table, each value read as `shape` says."""
        self._known(table, where, tuple(shape))
        for name in needed:
            if name not in table:
                raise self._wrong(f"{where}.{name}", "is missing")
        return {
            name: self._each(table, name, where, _number)
            if read is _numbers_by_name
            else self._value(table, name, where, read)
            for name, read in shape.items()
            if name in table
        }

    def _value(self, table: _Toml, name: str, where: str, read: _Read) -> Any:
        try:
            return read(table[name])
        except (TypeError, ValueError) as error:
            raise self._wrong(f"{where}.{name}", f"{error}, not {shown(table[name])}") from None

    def _known(self, table: _Toml, where: str, names: Collection[str]) -> None:
        for name in table:
            if name not in names:
                near = suggestion(name, names)
                listed = f"; known: {', '.join(names)}" if len(names) <= _MOST_LISTED else ""
                raise self._wrong(f"{where}.{name}".strip("."), f"unknown{near or listed}")

    def _wrong(self, key: str, what: str) -> UsageError:
        return UsageError(f"{self._path}: {clean(key, 100)}: {what}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("must be text")
    return value


def _reading(value: Any) -> str:
    """`entity.field` of gpumon's table of readings, or a fact of a device or a host."""
    entity, _, name = _text(value).partition(".")
    known = {**_FACTS, **{each: FIELDS[each] for each in ("device", "job", "host")}}
    if entity not in known:
        raise ValueError("must begin with device., job., host., fact. or host_fact.")
    if name not in known[entity]:
        raise ValueError(f"must be a reading that gpumon has{suggestion(name, known[entity])}")
    return str(value)


def _label(value: Any) -> str:
    if not _LABEL_NAME.fullmatch(_text(value)):
        raise ValueError("must be the name of a label")
    return str(value)


def _labels(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise TypeError("must be a list of labels")
    return tuple(_label(each) for each in value)


def _metric_name(value: Any) -> str:
    if not _METRIC_NAME.fullmatch(_text(value)):
        raise ValueError("must be the name of a metric")
    return str(value)


def _factor(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e15 < value < 1e15:
        raise TypeError("must be a number")
    return float(value)


def _table_of(value: Any) -> Any:
    """A table that is read by itself."""
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        raise TypeError("must be a number, 0 or more")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise TypeError("must be a whole number, 0 or more")
    return value


def _positive(value: Any) -> int:
    if not _whole(value):
        raise ValueError("must be a whole number, 1 or more")
    return int(value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("must be true or false")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("must be a list of strings")
    return tuple(_text(each) for each in value)


def _numbers(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise TypeError("must be a list of numbers")
    return tuple(_number(each) for each in value)


def _pattern(value: Any) -> str:
    try:
        re.compile(_text(value))
    except (re.error, RecursionError, OverflowError) as error:
        why = clean(str(error), 80)
        raise ValueError(f"must be a regular expression ({why})") from None
    if _is_slow(str(value)):
        raise ValueError(
            f"must be a regular expression with at most {_MOST_REPEATS} of * + {{}}, none of them "
            "behind a ), and without references"
        )
    return str(value)


def _is_slow(pattern: str) -> bool:
    """Whether it may run endlessly on some name: with repeats of repeats the time grows
    exponentially, with n repeats as the n-th power of the name's length.
    """
    plain = _ONE_CHARACTER.sub("x", pattern)
    parts = [plain] if "(" in plain else plain.split("|")
    repeats = max(len(_REPEATS.findall(part)) for part in parts)
    return repeats > _MOST_REPEATS or bool(_ENDLESS.search(plain))


#: an escaped character or a class; what repeats; a repeated group, or a reference to one
_ONE_CHARACTER = re.compile(r"\\[^1-9]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_REPEATS = re.compile(r"[*+{]")
_ENDLESS = re.compile(r"\)\s*[*+{]|\(\?\w*x|\\[1-9]|\(\?P=")
_MOST_REPEATS = 3


def _capability(value: Any) -> str:
    if not re.fullmatch(r"\d{1,2}\.\d", _text(value)):
        raise ValueError('must be a compute capability like "8.0"')
    return str(value)


def _numbers_by_name(value: Any) -> Any:
    """A table of numbers, by names that the site chooses; read one by one."""
    return value


#: TFLOPS, or TOPS
_PEAKS = ("fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4")
#: of each table, its keys and how their values are read
_SITE = {"name": _text, "mem_default_per_core_gb": _numbers_by_name}
_POLICY = {
    "zero_start_h": _number, "zero_run_h": _number, "warn_min": _numbers,
    "exempt_partitions": _texts, "exempt_walltime_below_h": _number,
}  # fmt: skip
_NODE = {
    "gpu": _text, "gpus": _whole, "cores": _positive, "mem_gb": _number, "nvlink": _switch,
    "partitions": _texts,
}  # fmt: skip
#: what the site calls a GPU
_NAMES = {
    "gres": _text, "constraint": _text, "partition": _text, "infiniband": _switch,
    "price": _number,
}  # fmt: skip
_GPU = {
    "name": _text, "match": _pattern, "cc": _capability, "mem_mib": _positive, "year": _whole,
    "nvlink": _switch, "peak": _numbers_by_name, "bandwidth_gb_per_s": _number,
    "mig_of": _text, "source": _text, **_NAMES,
}  # fmt: skip
#: names that may stand in PromQL
_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_FACTS = {"fact": FACTS, "host_fact": ("mem_total_bytes", "cpus_online")}
_PROMETHEUS = {
    "url": _text, "interval_s": _number, "username": _text, "password_file": _text,
    "token_file": _text, "ca_file": _text, "cert_file": _text, "key_file": _text,
    "labels": _table_of,
}  # fmt: skip
_FAMILY = {
    "name": _text, "about": _text, "source": _text, "node": _labels, "job": _label,
    "job_metric": _metric_name, "uuid": _label, "index": _label, "gpu_name": _label, "mig": _label,
    "mig_profile": _label, "metrics": _table_of,
}  # fmt: skip
_METRIC = {
    "reading": _reading, "scale": _factor, "part": _factor, "rate": _switch, "whole": _switch,
    "beside": _metric_name, "unless": _metric_name, "where": _table_of,
}  # fmt: skip
