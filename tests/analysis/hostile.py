"""Run data in which somebody else's names are hostile, and what a line to paste may hold."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields, is_dataclass, replace

from hypothesis import strategies as st

from gpumon.analysis.rundata import Coverage, Track

#: fields of evidence, job, site and wire that hold names which users, admins or files chose
NAMES = frozenset((
    "node", "nodes", "node_list", "batch_node", "failed_node", "expected_nodes", "id", "raw_id",
    "array_job_id", "array_task", "het_job_id", "array", "job", "user", "account", "partition",
    "partitions", "cluster", "gres", "constraint", "submit_line", "work_dir", "std_out", "std_err",
    "state_by", "name", "command", "uuid", "text", "detail", "comment", "gpu",
))  # fmt: skip
#: text that ends a word, begins an option, a command or a comment, or reads as something else
ATTACKS = (
    " --output=/tmp/x", "\n#SBATCH --uid=0", "\r--wrap=id", "\t-o/tmp/x", "$(id)", "`id`", ";id;",
    "|id", "&&id", "'", '"', "\\", "' --wrap=id '", "#", " #", "--wrap=id", "-o", "\u202e--mem",
    "\u2028#SBATCH --wrap=id", "\u0440\u0430", "\uff0d\uff0dwrap", "\x1b]52;c;aWQ=\x07", "\x00",
    "{}", "{0}", "%n", "!!", "*", "~", "$HOME", "${IFS}id", ">x", "<x", "(id)", "[0]", ",", "=",
    "]", "\u0665",
    "![a](http://x.example)", "<script>", "</code>", "[a](javascript:x)", "|a|b|", "`` ` ``",
    "<http://x.example>", "**a**", "\n\n# a",
)  # fmt: skip

hostile = st.lists(
    st.one_of(st.sampled_from(ATTACKS), st.text(max_size=4)), min_size=1, max_size=3
).map("".join)

#: what the lines of the job script may set, and nothing else
OPTIONS = frozenset((
    "mem", "mem-per-cpu", "mem-per-gpu", "tmp", "nodes", "ntasks", "ntasks-per-node",
    "cpus-per-task", "cpus-per-gpu", "gres", "gpus", "gpus-per-node", "gpus-per-task",
    "gpus-per-socket", "partition", "constraint", "exclude", "time", "signal", "gpu-bind",
))  # fmt: skip


def poisoned(value, change, name=""):
    """The same with every name changed; `change` gets the old one."""
    if isinstance(value, str):
        return change(value) if name in NAMES and value else value
    if isinstance(value, (Track, Coverage)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{
            each.name: poisoned(getattr(value, each.name), change, each.name)
            for each in fields(value) if each.init
        })  # fmt: skip
    if hasattr(value, "_fields"):
        return value._replace(**{
            each: poisoned(getattr(value, each), change, each) for each in value._fields
        })  # fmt: skip
    if isinstance(value, (list, tuple)):
        return type(value)(poisoned(each, change, name) for each in value)
    if isinstance(value, dict):
        return {key: poisoned(each, change, name) for key, each in value.items()}
    return value


def directives(line):
    """What sbatch would take from the line: its options; AssertionError for anything else."""
    assert line.startswith("#SBATCH "), line
    found = []
    words = iter(shlex.split(line[len("#SBATCH ") :], comments=True))
    for word in words:
        if word in ("-t", "-c"):
            found.append("time" if word == "-t" else "cpus-per-task")
            assert re.fullmatch(r"[\d:-]+", next(words), re.ASCII), line
            continue
        match = re.fullmatch(r"--([a-z-]+)=[A-Za-z0-9_][\w.:,=+@\[\]-]*", word, re.ASCII)
        assert match, line
        found.append(match.group(1))
    assert set(found) <= OPTIONS, line
    return found


def arguments(line):
    """The words of one plain command; AssertionError where a shell would see more in it."""
    assert line.isprintable(), line
    whole = line.replace("""'"'"'""", "")  # a quote within quotes, as shlex writes it
    bare = re.sub(r"'[^']*'", "x", whole)  # single quotes hold everything
    assert not re.search(r"[;&|<>`#\\\n]|\$\(", bare.replace('"', "")), line
    return shlex.split(line)
