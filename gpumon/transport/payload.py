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

from gpumon.collect.stacks.ranks import SHIPPED
from gpumon.transport.modules import modules

#: how long one Python may take to say its version; one of a dead file system never does
_PYTHON_S = 10
#: from the shell's start to the agent's own watch, whose patience is the same
_START_S = 45

#: started by _SHELL below, which gives the PID of its clock; runs on any Python 3. The clock's
#: input is "PID LENGTH\n", the PID being that of the watch, and LENGTH bytes.
_LOADER = """\
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

#: the first Python that is new enough: a node's default may be 3.6, or none
_PYTHONS = (
    "python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9",
    "/usr/bin/python3", "/usr/libexec/platform-python", "python",
)  # fmt: skip
NO_PYTHON = "no Python 3.9 or later on this node; load a Python module in the shell start-up file"
HUNG_PYTHON = f"does not answer within {_PYTHON_S} s; is a file system of this node down?"
#: The shell waits for the agent, and two children of it end whatever hangs before that starts. The
#: watch drains the input: behind the agent's modules nobody would see its end. The clock ticks.
#: `tail` keeps the modules until the loader reads them from the clock's input, by /proc: it is the
#: only way to give a pipe to a process that is there already. When the agent is loaded, the loader
#: kills both; a `sleep` of the clock stays for a second at most. Nobody here kills the shell
#: itself. $0 is what Python runs.
_SHELL = " ".join((
    "exec 3<&0 4>&2 </dev/null 2>/dev/null; me=$$; t=0; hung=; p=; c=; clock=;",
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
