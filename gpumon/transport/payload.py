"""The agent brings itself to a node: nothing is installed there, nothing is left behind.

The node's Python gets a short loader with `-c`; the loader reads the agent's own modules, and
NVIDIA's binding, from its standard input and imports them from memory. Nothing is ever
written: a full or read-only $TMPDIR does not matter, and there is nothing to remove after a
kill -9. The price is that the node compiles the modules at each start, a few tenths of a second.
Both ends have the same versions by construction, whatever is installed on the node. What follows on
the same pipe are heartbeats.

The shell stays the agent's parent and ends with 0 whatever becomes of it: under srun it is the
step's task, and its exit code would become the job's DerivedExitCode. A node's `python3` may hang
for good before any of this runs (a dead file system, a wrapper script). So a Python that does not
answer is killed and the next one tried, and all but the shell is killed when the agent has not
started within 45 s, or 2 s after the input ends.
"""

from __future__ import annotations

import base64
import json
import zlib
from functools import cache

from gpumon.collect import guest
from gpumon.collect.cgroup.room import NO_ROOM, START_BYTES
from gpumon.collect.stacks.ranks import SHIPPED
from gpumon.transport.modules import modules

#: how long one Python may take to say its version; one of a dead file system never does
_PYTHON_S = 10
#: from the shell's start to the agent's own watch, whose patience is the same
_START_S = 45

#: started by _SHELL below, which gives the PID of its clock; runs on any Python 3. The clock's
#: input is "PID LENGTH\n", the PID being that of the watch, and LENGTH bytes.
_LOADER = (
    f"""\
try: open("/proc/self/comm", "w").write("{guest.NAME}")
except OSError: pass
"""
    + """\
import json, os, signal, stat, sys, time, zlib
from importlib.machinery import ModuleSpec
for end in signal.SIGTERM, signal.SIGHUP, signal.SIGINT: signal.signal(end, lambda *_: os._exit(0))
clock = int(sys.argv.pop(1))
def take(count):
    data = b""
    while len(data) < count:
        part = os.read(feed, count - len(data))
        if not part: sys.exit(0)
        data += part
    return data
try:
    while True:
        feed = os.open("/proc/%d/fd/0" % clock, os.O_RDONLY)
        if stat.S_ISFIFO(os.fstat(feed).st_mode): break
        os.close(feed)
        time.sleep(0.01)
except OSError: sys.exit(0)
start = b""
while not start.endswith(b"\\n"): start += take(1)
watch, length = map(int, start.split())
if not length: sys.exit(0)
modules = json.loads(zlib.decompress(take(length)).decode("utf-8"))
os.close(feed)
class Shipped:
    def find_spec(self, name, path=None, target=None):
        if name in modules: return ModuleSpec(name, self, is_package=modules[name][0])
    def create_module(self, spec): return None
    def exec_module(self, module):
        name = module.__name__
        code = compile(modules[name][1], "<%s>" % name, "exec", dont_inherit=True)
        exec(code, module.__dict__)
        del modules[name]
sys.meta_path.insert(0, Shipped())
sys.argv[0] = "gpumon collect"
from gpumon.collect.stream import main
for pid in watch, clock:
    try: os.kill(pid, signal.SIGKILL)
    except OSError: pass
main()
"""
)

#: the first Python that is new enough: a node's default may be 3.6, or none
_PYTHONS = (
    "python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9",
    "/usr/bin/python3", "/usr/libexec/platform-python", "python",
)  # fmt: skip
NO_PYTHON = "no Python 3.9 or later on this node; load a Python module in the shell start-up file"
HUNG_PYTHON = f"does not answer within {_PYTHON_S} s; is a file system of this node down?"
#: What `collect.cgroup.room` tests, by the shell itself, before there is a Python. The folder is
#: that of /proc/self/cgroup, below the mount that /proc/self/mountinfo names for it.
_ROOM = " ".join((
    # of one folder: limit, used, and page cache that nobody used lately
    "free() { l= u= f=0; for k in max high limit_in_bytes; do x=; read -r x <$1/memory.$k;",
    # not "max", and not v1's largest number
    'case $x in "" | *[!0-9]* | ???????????????????*) continue; esac;',
    '[ "$l" ] && [ $l -le $x ] || l=$x; done; [ "$l" ] || return;',
    'for k in usage_in_bytes current; do [ "$u" ] || read -r u <$1/memory.$k; done;',
    "while read -r k x; do case $k in total_inactive_file) f=$x; break;; inactive_file) f=$x;",
    'esac; done <$1/memory.stat; [ "$u" ] || return; u=$((l - u + f)); [ $u -ge 0 ] || u=0;',
    f'[ $u -ge {START_BYTES} ] || {{ echo "{NO_ROOM}: $((u >> 20)) MiB,',
    f'and gpumon starts nothing in a job with less than {START_BYTES >> 20} MiB" >&4; exit 0;',
    "}; }; room() { d=$1$2; while :; do free $d;",
    "case $d in $1/*) d=${d%/*};; *) return; esac; done; };",
    "v= w=; while IFS=: read -r x k p; do case $x,$k, in 0,,) w=$p;; *,memory,*) v=$p; esac;",
    "done </proc/self/cgroup; while read -r x x x r d k; do",
    'case $r,${v:+v}-$k, in /..*) continue;; *,-*" - cgroup2 "*) p=$w;;',
    '*,v-*" - cgroup "*,memory,*) p=$v;; *) continue; esac;',
    "[ $r != / ] || r=; case $p/ in $r/*) room $d ${p#$r}; esac; done </proc/self/mountinfo; p=;",
))  # fmt: skip
#: The shell waits for the agent, and two children of it end whatever hangs before that starts. The
#: watch drains the input: behind the agent's modules nobody would see its end. The clock ticks.
#: `tail` keeps the modules until the loader reads them from the clock's input, by /proc: it is the
#: only way to give a pipe to a process that is there already. When the agent is loaded, the loader
#: kills both; a `sleep` of the clock stays for a second at most. Nobody here kills the shell
#: itself. $0 is what Python runs.
#: First it takes the last place (`collect.guest`), then it ends where there is no room (`_ROOM`).
_SHELL = " ".join((
    "{ echo 1000 >/proc/$$/oom_score_adj; } 2>/dev/null;",
    "exec 3<&0 4>&2 </dev/null 2>/dev/null; me=$$; t=0; hung=; p=; c=; clock=;",
    _ROOM,
    # kills these processes and their descendants, but neither the shell nor the caller; a stopped
    # one starts no more
    "is_ours() { [ $1 = $me ] || [ $1 = $$ ]; };",
    'fell() { for k do is_ours "$k" || kill -STOP "$k"; x=;',
    'read -r x <"/proc/$k/task/$k/children"; is_ours "$k" || kill -KILL "$k"; fell $x; done; };',
    # kills all that was started here; with orphans, where this shell leads its process group
    'clear() { fell $$; [ "$lead" = $$ ] && for f in /proc/[0-9]*/stat; do x=; read -r x <"$f";',
    r'k=${x%% *}; set -- ${x##*\) }; [ "$3" = $$ ] && fell "$k"; done; };',
    r"group() { lead=$3; }; read -r x </proc/self/stat; group ${x##*\) };",
    f'leave() {{ [ "$hung" ] && echo "${{hung# }} {HUNG_PYTHON}" >&4; clear; exit 0; }};',
    # an agent that runs (its clock has gone) ends by itself
    'end() { if [ "$c" ] && ! kill -0 "$clock"; then kill -TERM "$c"; else clear; exit 0; fi; };',
    "trap '' PIPE; trap end TERM HUP INT;",
    """trap 'hung="$hung $p"; leave' USR1; trap 't=$((t+1))' USR2;""",
    # of the watch and the clock: the helpers' folders come before those that may hang
    "own() { read -r me x </proc/self/stat; PATH=/usr/bin:/bin:$PATH; };",
    "late() { sleep 1; sleep 1; kill -USR1 $$; sleep 1; clear; exit; };",
    '{ own; read -r n <&3; echo "$me ${n:-0}"; head -c "${n:-0}" <&3 3<&- |',
    '{ tail -c "${n:-0}" <&5 3<&- 5<&- & } 5<&0; exec >/dev/null;',
    "while read -r x <&3; do :; done; late; } 4>&- |",
    f"{{ own; i=0; while [ $i -lt {_START_S} ] && kill -USR2 $$; do sleep 1; i=$((i+1)); done;",
    "late; } 3<&- 4>&- >/dev/null & clock=$!;",
    f"for p in {' '.join(_PYTHONS)}; do t=0;",
    '"$p" -I -S -c "import sys, json, zlib, base64; sys.exit(sys.version_info < (3, 9))"',
    ">/dev/null 3<&- 4>&- & c=$!;",
    f"while kill -0 $c && [ $t -lt {_PYTHON_S} ]; do wait $c; r=$?; done;",
    f'if [ $t -ge {_PYTHON_S} ]; then fell $c; hung="$hung $p"; elif [ $r = 0 ]; then',
    '"$p" -I -S -c "$0" $clock "$@" <&3 3<&- 2>&4 4>&- & c=$!; exec 3<&- >/dev/null;',
    "while kill -0 $c; do wait $c; done; kill -0 $clock && clear; exit 0; fi; c=; done;",
    f'[ "$hung" ] || echo "{NO_PYTHON}" >&4; leave',
))  # fmt: skip


def agent_argv(*flags: str) -> list[str]:
    """The command that runs the agent on a node with these flags of `gpumon collect`.

    No word of it has a line end in it: csh, as a login shell, would stumble.
    """
    packed = base64.b64encode(zlib.compress(_LOADER.encode(), 9)).decode()
    start = f"{SHIPPED}zlib.decompress(base64.b64decode('{packed}')))"
    return ["/bin/sh", "-c", _SHELL, start, *flags]


@cache
def payload() -> bytes:
    """What the loader waits for: the length, a line end, the modules; the same at every call."""
    packed = zlib.compress(json.dumps(modules(), sort_keys=True).encode(), 9)
    return b"%d\n%s" % (len(packed), packed)
