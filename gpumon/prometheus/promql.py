"""PromQL that gpumon asks. Names of nodes and ids come in as quoted text, and only where they
have the form of one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from gpumon.errors import UsageError
from gpumon.model.text import clean

_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
_JOB = re.compile(r"[0-9]{1,10}|s[0-9A-Za-z]{1,32}")


def quoted(text: str) -> str:
    """A string literal; control characters cannot be in one of ours."""
    return '"' + clean(text, len(text)).replace("\\", "\\\\").replace('"', '\\"') + '"'


def job_ids(ids: Iterable[str]) -> list[str]:
    """Raises UsageError for what Slurm cannot have given as a number of a job or a SLUID."""
    found = list(ids)
    for each in found:
        if not _JOB.fullmatch(each):
            raise UsageError(f"{clean(each, 60)!r} is not a valid job ID")
    return found


def any_of(words: Iterable[str]) -> str:
    """A regular expression that matches one of these words, as a literal."""
    return quoted("|".join(re.escape(word) for word in words))


def hosts(nodes: Iterable[str]) -> str:
    """The same for a label that names one of these nodes: with its domain and port, or without."""
    known = list(nodes)
    for each in known:
        if not _NODE.fullmatch(each):
            raise UsageError(f"{clean(each, 60)!r} is not a valid name of a node")
    names = "|".join(re.escape(each) for each in known)
    return quoted(f"(?:{names})(?:[.][A-Za-z0-9.-]+)?(?::[0-9]+)?")


def selector(
    names: Iterable[str], equal: Mapping[str, str], like: Mapping[str, str] | None = None
) -> str:
    """Of metrics by their names, with labels that equal a text, or match a quoted expression."""
    listed = list(names)
    matchers = [f"__name__=~{any_of(listed)}"] if len(listed) > 1 else []
    matchers += [f"{label}={quoted(value)}" for label, value in equal.items()]
    matchers += [f"{label}=~{value}" for label, value in (like or {}).items()]
    return f"{'' if matchers and len(listed) > 1 else listed[0]}{{{','.join(matchers)}}}"


def node_in(labels: Mapping[str, str], names: Iterable[str], nodes: Collection[str]) -> str | None:
    """Which of the nodes the labels of these names tell; the first that names one."""
    told = (node_of(labels.get(name, ""), nodes) for name in names)
    return next((node for node in told if node is not None), None)


def node_of(label: str, nodes: Iterable[str]) -> str | None:
    """Which of the nodes a label such as `gpu01.example.org:9445` names."""
    known = set(nodes)
    host = re.sub(r":[0-9]+$", "", label)
    short = host.partition(".")[0]
    return next((each for each in (label, host, short) if each in known), None)
