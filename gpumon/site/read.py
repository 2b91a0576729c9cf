"""Reading a site's file, and the table of GPUs that ships. `docs/site.md` describes both."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from gpumon.errors import UsageError
from gpumon.model.text import clean, shown
from gpumon.site import GpuType, NodeType, Policy, Site

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SITE_FILE = "/etc/gpumon/site.toml"
_TABLE = os.path.join(os.path.dirname(__file__), "gpus.toml")
_MIB, _GB = 1 << 20, 10**9
_TABLES = ("site", "policy", "node", "gpu", "gres", "thresholds", "links", "settings")


def load_site(path: str | None = None) -> Site:
    """The site of `path`, else of $GPUMON_SITE, else of /etc/gpumon/site.toml, else none.

    Without a file: the table of GPUs that ships, and nothing else. Raises UsageError: one line
    with the file and the key.
    """
    path = path or os.environ.get("GPUMON_SITE") or None
    if path is None and os.path.exists(_SITE_FILE):
        path = _SITE_FILE
    gpus = shipped_gpus()
    return Site(gpus=gpus) if path is None else _Reader(path).site(gpus)


@lru_cache(maxsize=1)
def shipped_gpus() -> tuple[GpuType, ...]:
    """The GPUs and MIG profiles of gpus.toml."""
    reader = _Reader(_TABLE)
    return tuple(reader.gpu(table, where) for table, where in reader.tables("gpu"))


#: of a site's file; the shipped table of GPUs has 10 KB
MAX_BYTES = 1 << 20


class _Reader:
    """One file; every complaint names it and the key."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            with open(path, "rb") as file:
                content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                most = f"{MAX_BYTES >> 20} MiB"
                raise UsageError(f"{path} is longer than {most}; correct GPUMON_SITE or the file")
            self._content = tomllib.loads(content.decode())
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; correct GPUMON_SITE or the file") from None
        except RecursionError:
            raise UsageError(f"{path}: nested too deeply; correct the file") from None
        except (ValueError, OverflowError) as error:  # TOML's errors, and numbers beyond Python's
            raise UsageError(f"{path}: {error}; correct the file") from None
        self._known(self._content, "", _TABLES)

    def site(self, shipped: tuple[GpuType, ...]) -> Site:
        general = self._table(self._content, "site", "")
        self._known(general, "site", ("name", "mem_default_per_core_gb"))
        per_core = self._table(general, "mem_default_per_core_gb", "site")
        gpus = [self.gpu(table, where) for table, where in self.tables("gpu")]
        places = {(gpu.mig_of, gpu.name) for gpu in gpus}
        gpus += [gpu for gpu in shipped if (gpu.mig_of, gpu.name) not in places]
        return Site(
            name=self._get(general, "name", "site", _text, ""),
            gpus=self._named(gpus),
            nodes=tuple(self._node(table, where, gpus) for table, where in self.tables("node")),
            policy=self._policy(),
            thresholds=self._each("thresholds", _number),
            mem_default_per_core_bytes={
                name: int(
                    self._get(per_core, name, "site.mem_default_per_core_gb", _number, 0) * _GB
                )
                for name in per_core
            },
            links=self._each("links", _text),
        )

    def gpu(self, table: Mapping[str, Any], where: str) -> GpuType:
        self._known(
            table,
            where,
            ("name", "match", "cc", "mem_mib", "year", "nvlink", "peak", "bandwidth_gb_per_s",
             "gres", "constraint", "partition", "infiniband", "mig_of", "price", "source"),
        )  # fmt: skip
        peak = self._table(table, "peak", where)
        year = self._get(table, "year", where, _whole, None)
        return GpuType(
            name=self._need(table, "name", where, _text),
            match=self._need(table, "match", where, _pattern),
            cc=self._need(table, "cc", where, _capability),
            mem_bytes=self._need(table, "mem_mib", where, _whole) * _MIB,
            peak={name: self._need(peak, name, f"{where}.peak", _number) for name in peak},
            bandwidth_gb_per_s=self._get(table, "bandwidth_gb_per_s", where, _number, None),
            year=year,
            nvlink=self._get(table, "nvlink", where, _switch, False),
            mig_of=self._get(table, "mig_of", where, _text, ""),
            source=self._get(table, "source", where, _text, ""),
            **self._names(table, where),
        )

    def _names(self, table: Mapping[str, Any], where: str) -> dict[str, Any]:
        """What the site calls a GPU."""
        return {
            "gres": self._get(table, "gres", where, _text, ""),
            "constraint": self._get(table, "constraint", where, _text, ""),
            "partition": self._get(table, "partition", where, _text, ""),
            "infiniband": self._get(table, "infiniband", where, _switch, None),
            "price": self._get(table, "price", where, _number, None),
        }

    def _named(self, gpus: list[GpuType]) -> tuple[GpuType, ...]:
        """The GPUs with the names that the table [gres] gives: "A100-80" or "A100-80/1g.10gb"."""
        given = self._table(self._content, "gres", "")
        found = {gpu.key: gpu for gpu in gpus}
        for name in given:
            if name not in found:
                raise self._wrong("gres", f"no GPU {name!r}; add it as [[gpu]], or correct it")
            names = self._table(given, name, "gres")
            where = f"gres.{name}"
            self._known(names, where, ("gres", "constraint", "partition", "infiniband", "price"))
            found[name] = replace(found[name], **self._names(names, where))
        return tuple(found.values())

    def _node(self, table: Mapping[str, Any], where: str, gpus: list[GpuType]) -> NodeType:
        self._known(table, where, ("gpu", "gpus", "cores", "mem_gb", "nvlink", "partitions"))
        gpu = self._get(table, "gpu", where, _text, "")
        if gpu and gpu not in {each.key for each in gpus}:
            raise self._wrong(f"{where}.gpu", f"no GPU {gpu!r}; add it as [[gpu]], or correct it")
        return NodeType(
            gpu=gpu,
            gpus=self._get(table, "gpus", where, _whole, 0),
            cores=self._need(table, "cores", where, _whole),
            mem_bytes=int(self._need(table, "mem_gb", where, _number) * _GB),
            nvlink=self._get(table, "nvlink", where, _switch, False),
            partitions=self._get(table, "partitions", where, _texts, ()),
        )

    def _policy(self) -> Policy:
        table = self._table(self._content, "policy", "")
        self._known(table, "policy", tuple(Policy.__dataclass_fields__))
        return Policy(
            zero_start_h=self._get(table, "zero_start_h", "policy", _number, None),
            zero_run_h=self._get(table, "zero_run_h", "policy", _number, None),
            warn_min=self._get(table, "warn_min", "policy", _numbers, ()),
            exempt_partitions=self._get(table, "exempt_partitions", "policy", _texts, ()),
            exempt_walltime_below_h=self._get(
                table, "exempt_walltime_below_h", "policy", _number, None
            ),
        )

    # -- one value

    def tables(self, name: str) -> list[tuple[Mapping[str, Any], str]]:
        """The entries of an array of tables, each with how a complaint names it."""
        found = self._content.get(name, [])
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self._wrong(name, f"write [[{name}]], once for each")
        return [(each, f"{name}[{at}]") for at, each in enumerate(found)]

    def _table(self, table: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
        found = table.get(name, {})
        if not isinstance(found, dict):
            raise self._wrong(f"{where}.{name}".strip("."), "must be a table")
        return found

    def _each(self, name: str, read: Callable[[Any], Any]) -> dict[str, Any]:
        table = self._table(self._content, name, "")
        return {key: self._need(table, key, name, read) for key in table}

    def _known(self, table: Mapping[str, Any], where: str, names: tuple[str, ...]) -> None:
        for name in table:
            if name not in names:
                raise self._wrong(
                    f"{where}.{name}".strip("."), f"unknown; known are {', '.join(names)}"
                )

    def _need(
        self, table: Mapping[str, Any], name: str, where: str, read: Callable[[Any], Any]
    ) -> Any:
        if name not in table:
            raise self._wrong(f"{where}.{name}", "is missing")
        try:
            return read(table[name])
        except (TypeError, ValueError) as error:
            raise self._wrong(f"{where}.{name}", f"{error}, not {shown(table[name])}") from None

    def _get(
        self,
        table: Mapping[str, Any],
        name: str,
        where: str,
        read: Callable[[Any], Any],
        default: Any,
    ) -> Any:
        return self._need(table, name, where, read) if name in table else default

    def _wrong(self, key: str, what: str) -> UsageError:
        return UsageError(f"{self._path}: {clean(key, 100)}: {what}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("must be text")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        raise TypeError("must be a number from 0 on")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise TypeError("must be a whole number from 0 on")
    return value


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("must be true or false")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("must be a list of texts")
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
    return str(value)


def _capability(value: Any) -> str:
    if not re.fullmatch(r"\d{1,2}\.\d", _text(value)):
        raise ValueError('must be a compute capability like "8.0"')
    return str(value)
