"""`gpumon record`, `mark` and `runs`: what a command feels of it (nothing), and what it leaves."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from gpumon.errors import GpumonError
from gpumon.model.reading import NOT_SAMPLED
from gpumon.model.sample import Sample
from gpumon.recording import Recording
from gpumon.services import wrapper
from tests.e2e.program import GPUMON, environment, gpumon
from tests.e2e.screen import Dashboard
from tests.nvml.emulator import Emulated
from tests.probe.standins import TENSORFLOW, TORCH, plant
from tests.support.users import as_nobody
from tests.support.waiting import HANGS_S, until

RECORD = [*GPUMON, "record"]
PROGRAM = shlex.join(GPUMON)
BASH = shutil.which("bash") or "/bin/bash"


@pytest.fixture
def env(tmp_path):
    """An environment whose recordings lie apart."""
    return environment(GPUMON_STATE=str(tmp_path / "state"))


def state(env):
    return Path(env["GPUMON_STATE"])


def recordings(env):
    return [Recording(str(path)) for path in sorted(state(env).rglob("*.gpumon"))]


def finished(env):
    """Wait for the only recording to be closed."""

    def closed():
        try:
            return [each for each in recordings(env) if each.state == "ended"]
        except GpumonError:  # nothing in it yet
            return []

    return until(closed)


def recorded(env):
    """The only recording there is: its samples and how it ended."""
    (recording,) = recordings(env)
    samples = [item for item in recording.items() if isinstance(item, Sample)]
    ends = [event.text for sample in samples for event in sample.events if event.kind == "end"]
    return [sample for sample in samples if sample.rows], ends


def marks(env):
    (recording,) = recordings(env)
    return marks_in(recording)


def marks_in(recording):
    samples = [item for item in recording.items() if isinstance(item, Sample)]
    return [event for item in samples for event in item.events if event.kind == "mark"]


def record(*args, **options):
    return gpumon("record", *args, **options)


@contextmanager
def running(env, *args, **options):
    """`gpumon record` while it runs, with its output in pipes."""
    process = subprocess.Popen(
        [*RECORD, *args], env=env, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def started(env):
    """Wait for a recorder that has a spool: it runs."""
    return until(lambda: list(state(env).glob("marks/*.live")))


# -- a command feels nothing ----------------------------------------------------------------------
def test_its_exit_code_is_the_commands(env):
    done = record("--", "sh", "-c", "exit 7", env=env)
    assert (done.returncode, done.stdout) == (7, "")
    samples, ends = recorded(env)
    assert samples
    assert ends == ["the command ended: exit 7"]


@pytest.mark.parametrize("descriptors", range(6, 14))
def test_it_runs_where_nothing_is_left_for_the_recorder(env, descriptors):
    limited = ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "-", *RECORD]
    command = ["sh", "-c", "echo out; exit 7"]
    done = subprocess.run(
        [*limited, "--", *command], env=env, capture_output=True, text=True, timeout=HANGS_S
    )
    assert (done.returncode, done.stdout) == (7, "out\n")
    if "recorded" not in done.stderr:
        assert done.stderr.startswith("gpumon: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", ["0", "1", "2", "01", "12", "012"])
def test_it_runs_whatever_standard_files_are_closed(env, tmp_path, closed):
    """And finds them closed, as without the recorder."""
    closing = " ".join(f"{number}>&-" for number in closed)
    seen = tmp_path / "seen"
    look = f"for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && printf $n; done > {seen}; exit 7"
    code = f'exec {closing}; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", code, "-", *RECORD, "--", "sh", "-c", look], env=env, timeout=HANGS_S
    )
    assert done.returncode == 7
    assert set("012") - set(seen.read_text()) == set(closed) - {"1"}  # which `look` itself opens
    assert recorded(env)[1] == ["the command ended: exit 7"]


def test_a_command_without_a_name_is_not_found(env):
    done = record("--", "", env=env)
    assert (done.returncode, done.stderr) == (127, "gpumon: : command not found\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_it_ends_by_the_signal_that_ended_the_command(env, number):
    done = record("--", "sh", "-c", f"kill -{int(number)} $$", env=env)
    assert done.returncode == -number  # which a shell calls 128 + n
    assert recorded(env)[1] == [f"the command ended: signal {int(number)}"]


def test_a_shell_sees_128_and_the_signal(env):
    script = f"{PROGRAM} record --quiet -- sh -c 'kill -TERM $$'; echo $?"
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True)
    assert done.stdout == "143\n"


def test_what_cannot_be_run(env, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("echo ran $1\n")
    for command, code, words in (
        ("no-such-program", 127, "no-such-program: command not found"),
        (str(plain), 126, f"{plain}: cannot be run: Permission denied"),
        (str(tmp_path), 126, f"{tmp_path}: cannot be run: Permission denied"),
        (f"{plain}/below", 127, f"{plain}/below: cannot be run: {os.strerror(errno.ENOTDIR)}"),
    ):
        done = record("--", command, env=env)
        assert (done.returncode, done.stdout, done.stderr) == (code, "", f"gpumon: {words}\n")
    assert not list(state(env).rglob("*.gpumon"))
    plain.chmod(0o755)  # a script without a first line runs in the shell's own
    done = record("--quiet", "--", str(plain), "too", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran too\n", "")


def test_a_folder_of_path_that_may_not_be_searched_holds_no_command(monkeypatch):
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        top.chmod(0o711)  # pytest's own folders are closed to everybody else
        closed, plain = top / "closed", top / "open"
        for folder in (closed, plain):
            folder.mkdir()
            (folder / "not-executable").write_text("")
        plain.chmod(0o755)
        closed.chmod(0)
        for path, name, code in (
            (f"{closed}", "no-such-program", 127),
            (f"/usr/bin:{closed}", "no-such-program", 127),
            (f"{closed}:/usr/bin", "true", 0),
            (f"{closed}", "not-executable", 127),
            (f"{plain}:{closed}", "not-executable", 126),
        ):
            environ = {**os.environb, b"PATH": path.encode()}
            monkeypatch.setattr(wrapper, "environment", lambda environ=environ: environ)
            assert as_nobody(lambda name=name: wrapper.become([name])) == code
        closed.chmod(0o700)


def test_input_and_output_pass_through_untouched(env):
    data = bytes(range(256)) * 5000
    done = subprocess.run(
        [*RECORD, "--quiet", "--", "sh", "-c", "tee /dev/stderr"],
        input=data, env=env, capture_output=True, timeout=HANGS_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, data, data)


def test_pipes_end_as_without_it(env):
    script = f"set -o pipefail; yes | {PROGRAM} record --quiet -- head -1; echo $?"
    script += f"; {PROGRAM} record --quiet -- yes | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        [BASH, "-c", script], env=env, capture_output=True, text=True, timeout=HANGS_S
    )
    assert done.stdout.split() == ["y", "141", "y", "141"]  # yes, by SIGPIPE
    assert done.stderr == ""


#: what a process inherits; its group and session are the outer shell's
INHERITED = r"""
grep -E '^(Sig(Blk|Ign)|Umask|Cpus_allowed|NoNewPrivs|Groups)' /proc/self/status
cat /proc/self/limits /proc/self/oom_score_adj /proc/self/cgroup
awk '{print $5 == $6, $19}' /proc/self/stat
od -c /proc/self/environ
ls -l /proc/self/fd | awk '{print $9, $10, $11}' | grep -v /proc
pwd
"""


@pytest.mark.parametrize("more", [{}, {"LC_ALL": "C.UTF-8"}])
@pytest.mark.parametrize("trapped", ["", "HUP INT QUIT CHLD USR1"])
def test_the_command_inherits_what_it_would_without_it(env, tmp_path, more, trapped):
    """Files, limits, ignored signals, the environment byte by byte, group and session."""
    program = tmp_path / "inherited.sh"
    program.write_text(INHERITED)
    command = f"sh {program}"
    clean = {name: value for name, value in env.items() if not name.startswith(("LC_", "LANG"))}
    said = []
    for words in (command, f"{PROGRAM} record --quiet -- {command}"):
        before = f"trap '' {trapped or 'WINCH'}; ulimit -n 200; umask 027; exec 7</dev/null; cd /"
        done = subprocess.run(
            ["sh", "-c", f"{before}; {words}; true"], env={**clean, **more}, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True,
        )  # fmt: skip
        said.append(re.sub(r"pipe:\[\d+\]", "", done.stdout))  # their numbers differ
        assert done.stderr == ""
    assert said[0] == said[1] != ""


# -- signals --------------------------------------------------------------------------------------
COUNTING = """
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"one\\n"))
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"last\\n"), os._exit(3)))
os.write(1, b"ready\\n")
while True:
    time.sleep(60)
"""


def test_signals_to_it_reach_the_command_once(env):
    with running(env, "--", sys.executable, "-c", COUNTING) as process:
        assert process.stdout.readline() == "ready\n"
        for _ in range(3):
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.readline() == "one\n"
        process.terminate()
        assert process.stdout.read() == "last\n"
        assert process.wait(HANGS_S) == 3
    assert recorded(env)[1] == ["the command ended: exit 3"]


def test_a_time_limit_ends_the_command_and_leaves_the_recording_whole(env):
    held = f"1234.{os.getpid()}"  # nobody else's
    command = ["timeout", "600", *RECORD, "--", "sleep", held]
    with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as limit:
        started(env)
        limit.send_signal(signal.SIGALRM)  # its time is up
        assert limit.wait(HANGS_S) == 124
    assert recorded(env)[1] == ["the command ended: signal 15"]
    assert not [p for p in psutil.process_iter(["cmdline"]) if held in (p.info["cmdline"] or [])]


def test_killed_itself_it_leaves_the_command_alone(env, tmp_path):
    go_on = tmp_path / "go-on"
    script = f"echo $$; until [ -e {go_on} ]; do sleep 0.1; done; echo alive"
    with running(env, "--", "sh", "-c", script) as process:
        pid = int(process.stdout.readline())
        started(env)
        process.kill()
        assert process.wait(HANGS_S) == -signal.SIGKILL
        go_on.touch()
        assert process.stdout.read() == "alive\n"
    until(lambda: not psutil.pid_exists(pid))
    finished(env)
    assert recorded(env)[1] == ["gpumon was killed"]


def test_a_killed_recorder_disturbs_nobody(env):
    with subprocess.Popen(
        [*RECORD, "--", "sh", "-c", "read line; exit 5"], env=env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        started(env)
        (recorder,) = [
            child for child in psutil.Process(process.pid).children() if child.name() != "sh"
        ]
        recorder.kill()
        assert process.stderr.readline() == "gpumon: the recorder was killed by signal 9\n"
        assert process.communicate("go\n", timeout=HANGS_S) == ("", "")
        assert process.returncode == 5


# -- in a terminal --------------------------------------------------------------------------------
class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self, env):
        self._pid, self._terminal = pty.fork()
        if not self._pid:
            os.execve(BASH, ["bash", "--norc", "--noprofile", "-i"], {**env, "PS1": "$ "})
        self._said = ""

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        os.close(self._terminal)  # hangs up: the shell and its jobs end
        os.waitpid(self._pid, 0)

    def type(self, text):
        os.write(self._terminal, text.encode())

    def run(self, line):
        self.type(f"{line}\n")

    def wait_for(self, pattern):
        """What it says up to and with a pattern, on from what was waited for before."""
        deadline = time.monotonic() + HANGS_S
        while not (found := re.search(pattern, self._said, re.M)):
            left = deadline - time.monotonic()
            assert select.select([self._terminal], [], [], max(left, 0))[0], self._said
            self._said += os.read(self._terminal, 65536).decode(errors="replace")
        self._said = self._said[found.end() :]
        return found


#: not dash, whoever started it: between its vfork and exec, Ctrl-Z stops only the child, and
#: Ctrl-C ends neither
TICKING = """
import itertools, time
for n in itertools.count():
    print(f"<{n}>", flush=True)
    time.sleep(0.1)
"""


@pytest.mark.terminal
def test_job_control_in_an_interactive_shell(env):
    loop = shlex.join([sys.executable, "-c", TICKING])
    with Shell(env) as shell:
        shell.run(f"{PROGRAM} record --quiet -- {loop}")
        shell.wait_for("<5>")
        shell.type("\x1a")
        shell.wait_for(r"\[1\]\+ +Stopped ")
        shell.run("echo a=$((40+2))")
        shell.wait_for("a=42")
        shell.run("fg")
        resumed = int(shell.wait_for(r"<(\d+)>")[1])
        shell.wait_for(f"<{resumed + 5}>")
        shell.type("\x1a")
        shell.wait_for(r"\[1\]\+ +Stopped ")
        shell.run("bg")
        resumed = int(shell.wait_for(r"<(\d+)>")[1])
        shell.wait_for(f"<{resumed + 5}>")
        shell.run("kill %1; wait %1; echo code=$?")
        shell.wait_for("code=143")
        shell.run(f"{PROGRAM} record --quiet -- {loop}; echo code=$?")
        shell.wait_for("<5>")
        shell.type("\x03")
        shell.wait_for(r"\^C")
        shell.run("echo code=$?")
        shell.wait_for("code=130")


@pytest.mark.terminal
def test_ctrl_c_breaks_a_loop_of_the_shell(env):
    loop = shlex.join([sys.executable, "-c", TICKING])
    with Shell(env) as shell:
        shell.run(f"for n in 1 2 3; do echo in-$n; {PROGRAM} record --quiet -- {loop}; done")
        shell.wait_for(r"in-1\r")
        shell.wait_for("<2>")
        shell.type("\x03")
        ended = shell.wait_for(r"in-2\r|\$ $")  # the next one, or a prompt
        assert "in-2" not in ended[0]
        shell.run("echo all=$((1+1))")
        before = shell.wait_for("all=2").string
        assert "in-2" not in before


@pytest.mark.terminal
def test_a_shell_as_the_command_has_the_terminal(env):
    with Shell(env) as shell:
        shell.run(f"{PROGRAM} record --quiet -- {BASH} --norc --noprofile -i")
        shell.run("sh -c 'echo inner=$((1+1)); exec sleep 60'")
        shell.wait_for("inner=2")
        shell.type("\x1a")
        shell.wait_for("Stopped +sh -c")
        shell.run("kill -9 %1; suspend")
        shell.wait_for(r"Stopped.*record")
        shell.run("echo outer=$((1+1))")
        shell.wait_for("outer=2")
        shell.run("fg")
        shell.run("echo inner=$((2+2)); exit 9")
        shell.wait_for("inner=4")
        shell.run("echo code=$?")
        shell.wait_for("code=9")


# -- what it leaves -------------------------------------------------------------------------------
def test_a_path_with_control_characters_reaches_no_terminal(env, tmp_path):
    done = record("-o", f"{tmp_path}/\x1b[2Jfile.gpumon", "--", "true", env=env)
    assert done.returncode == 0
    assert f"{tmp_path}/?[2Jfile.gpumon" in done.stderr
    assert "\x1b" not in done.stderr


def test_the_summary_and_the_recording_of_gpus(env):
    with Emulated("a100x4", start_s=20) as gpus:
        job = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "train", "SLURMD_NODENAME": "gpu07"}
        more = {**environment(gpus.env), "GPUMON_STATE": env["GPUMON_STATE"], **job}
        done = record("--interval", "0.5", "--", "sleep", "3", env=more)
    where, devices, host = done.stderr.splitlines()
    (recording,) = recordings(env)
    assert re.fullmatch(
        r"gpumon: recorded \d+ s(?: of \d+ s)? on gpu07 \(\d+ % covered, [\d.]+ KiB\) in "
        + str(recording.path),
        where,
    )
    assert re.findall(r"GPU (\d) busy \d+ % mem [\d.]+ / \d+ GiB", devices) == list("0123")
    assert host.startswith(("gpumon: host CPU ", "gpumon: job CPU "))
    assert recording.path.startswith(str(state(env) / "jobs" / "local" / "4711" / "gpu07-"))
    assert os.stat(recording.path).st_mode & 0o777 == 0o600
    samples, _ = recorded(env)
    rows = [sample.rows.get("device", {}).get(0, {}) for sample in samples]
    busy = [row["busy_percent"] for row in rows if "busy_percent" in row]
    assert len(busy) >= 3  # 7 where the machine is idle
    assert all(isinstance(value, (int, float)) for value in busy)
    listed = gpumon("runs", env=env)
    assert re.search(
        r"^4711 +train +gpu07 +\d\d \w+ +[\d:]+ +\d+ s +[\d.]+ KiB +ended$", listed.stdout, re.M
    )
    (body,) = json.loads(gpumon("runs", "--json", env=env).stdout)["runs"]
    assert (body["job"], body["name"], body["nodes"], body["state"]) == (
        "4711", "train", ["gpu07"], "ended",
    )  # fmt: skip
    assert body["paths"] == [recording.path]


def test_a_driver_that_hangs_delays_nothing_and_a_pipe_ends_with_the_command(env):
    with Emulated("hang_init") as gpus:
        more = {**environment(gpus.env), "GPUMON_STATE": env["GPUMON_STATE"]}
        done = record("--", "echo", "hi", env=more)
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert (
        done.stderr == "gpumon: the recorder is still writing; 'gpumon runs' lists its recording\n"
    )
    finished(env)


SLOW = """
import sys, time
from gpumon.services.wrapper import run_wrapped
def works():
    sys.stdin.read()
    while time.process_time() < 1.5: pass
    print("recorded", flush=True)
sys.exit(run_wrapped(["true"], works))
"""


def test_a_recorder_that_still_works_is_waited_for():
    """As on a node whose cores are all busy."""
    done = subprocess.run(
        [sys.executable, "-c", SLOW], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "recorded\n")


def test_where_to(env, tmp_path):
    file, folder = tmp_path / "my.gpumon", tmp_path / "folder"
    folder.mkdir()
    assert record("-o", str(file), "--", "true", env=env).returncode == 0
    assert Recording(str(file)).state == "ended"
    for given in (str(folder), f"{tmp_path}/new/"):
        done = record("-o", given, "--", "true", env=env)
        assert (done.returncode, "cannot" in done.stderr) == (0, False)
    assert len(list((tmp_path / "new").iterdir())) == 1
    (inside,) = folder.iterdir()
    assert Recording(str(inside)).state == "ended"
    before = file.read_bytes()
    done = record("-o", str(file), "--", "echo", "hi", env=env)
    assert (done.returncode, done.stdout) == (0, "hi\n")  # no reason not to run it
    assert (
        done.stderr
        == f"gpumon: not recording: {file} exists; a recording never overwrites a file\n"
    )
    assert file.read_bytes() == before


def test_settings_that_cannot_be_read_are_no_reason_not_to_run(env):
    done = record("--quiet", "--", "echo", "hi", env={**env, "GPUMON_INTERVAL_S": "soon"})
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert done.stderr == (
        "gpumon: recording with default settings: GPUMON_INTERVAL_S='soon': must be a number\n"
    )
    assert recorded(env)[0]


def test_a_full_disk_ends_the_recording_and_nothing_else(env, tmp_path):
    """A file system of 16 KiB, most of which is taken."""
    folder = tmp_path / "small"
    folder.mkdir()
    script = f"mount -t tmpfs -o size=16k none {folder} && head -c 12k /dev/zero > {folder}/x && "
    script += f"{PROGRAM} record --interval 0.1 -o {folder} -- sh -c 'sleep 12; echo done; exit 3'"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        env=env, capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "done\n"), done.stderr
    assert re.fullmatch(
        r"gpumon: \S+: recording stopped: no space left on its file system\n", done.stderr
    )


# -- in the background ----------------------------------------------------------------------------
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_alone_it_ends_by_a_signal_and_leaves_its_summary(env, number):
    with running(env) as process:
        started(env)
        process.send_signal(number)
        said = process.communicate(timeout=HANGS_S)[1]
        assert process.returncode == 0
    assert [line.split()[1] for line in said.splitlines()] == ["recorded", "no", "host"]
    samples, ends = recorded(env)
    assert samples
    assert ends == [number.name]
    assert not list(state(env).rglob("*.live"))


def test_alone_it_ends_with_the_shell_that_started_it(env):
    script = f"{PROGRAM} record --quiet & while ! ls $GPUMON_STATE/marks/*.live; do sleep 0.1; done"
    subprocess.run(["sh", "-c", script], env=env, capture_output=True, timeout=HANGS_S)
    finished(env)
    assert recorded(env)[1] == ["the shell ended"]


def test_alone_it_ends_with_its_input_and_by_no_signal_meant_for_the_job(env):
    argv = [*RECORD, "--until-eof"]
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until(lambda: list(state(env).glob("marks/*.live")))
        for number in (signal.SIGUSR1, signal.SIGUSR2):  # sbatch --signal
            process.send_signal(number)
        process.stdin.write(b"anything\n")
        process.stdin.close()
        assert process.wait(HANGS_S) == 0
    assert recorded(env)[1] == ["it was stopped"]


@pytest.mark.parametrize("pid", ["$$", "1"])
def test_in_a_step_of_its_own_it_ends_with_0_whatever_keeps_it_from_recording(env, tmp_path, pid):
    """Any other code would become the job's DerivedExitCode; below a user's shell it is heard."""
    (tmp_path / "there.gpumon").touch()
    start = f'export SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_TASK_PID={pid}; exec "$@"'
    argv = ["sh", "-c", start, "sh", *RECORD, "-o", str(tmp_path / "there.gpumon")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=HANGS_S)
    assert done.returncode == (0 if pid == "$$" else 1)
    assert "a recording never overwrites a file" in done.stderr


def test_nohup_outlives_the_shell(env):
    script = f"nohup {PROGRAM} record --quiet >/dev/null 2>&1 & echo $!"
    script += "; while ! ls $GPUMON_STATE/marks/*.live >&2; do sleep 0.1; done"
    done = subprocess.run(
        ["sh", "-c", script], env=env, capture_output=True, text=True, timeout=HANGS_S
    )
    process = psutil.Process(int(done.stdout))
    process.terminate()
    finished(env)
    assert recorded(env)[1] == ["SIGTERM"]  # and not the end of the shell, which came before


# -- marks ----------------------------------------------------------------------------------------
def test_a_mark_of_the_command_is_in_its_recording(env):
    script = f"until {PROGRAM} mark epoch 2 >/dev/null 2>&1; do sleep 0.1; done"
    assert record("--", "sh", "-c", script, env=env).returncode == 0
    (mark,) = marks(env)
    assert mark.text == "epoch 2"
    (recording,) = recordings(env)
    assert recording.start - 5 <= mark.time <= recording.end + 5


def test_many_marks_at_once_all_arrive_clean_and_short(env):
    texts = [f"mark {number} \x1b[2J\n" + "x" * 300 for number in range(6)]
    with running(env) as process:
        started(env)
        marking = [subprocess.Popen([*GPUMON, "mark", text], env=env) for text in texts]
        assert [each.wait(HANGS_S) for each in marking] == [0] * 6
        process.terminate()
        process.wait(HANGS_S)
    found = sorted(mark.text for mark in marks(env))
    assert [text[:11] for text in found] == [f"mark {number} ?[2J" for number in range(6)]
    assert all(len(text) == 200 for text in found)


def test_a_mark_goes_to_the_job_it_was_made_in(env):
    jobs = [{**env, "SLURM_JOB_ID": job, "SLURMD_NODENAME": "gpu07"} for job in ("11", "12")]
    with running(jobs[0]) as first, running(jobs[1]) as second:
        until(lambda: len(list(state(env).glob("marks/*.live"))) == 2)
        assert gpumon("mark", "mine", env=jobs[1]).returncode == 0
        other = {**env, "SLURM_JOB_ID": "13", "SLURMD_NODENAME": "gpu07"}
        done = gpumon("mark", "nobody's", env=other)
        assert (done.returncode, done.stdout) == (4, "")
        assert done.stderr == (
            "gpumon: nothing records job 13 (recorded are 11, 12); "
            "start 'gpumon' or 'gpumon record' there first\n"
        )
        for process in (first, second):
            process.terminate()
            process.wait(HANGS_S)
    made = {each.header.job.id: marks_in(each) for each in recordings(env)}
    assert {job: [mark.text for mark in found] for job, found in made.items()} == {
        "11": [],
        "12": ["mine"],
    }


def test_without_a_recorder_a_mark_says_so(env):
    done = gpumon("mark", "lost", env=env)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("gpumon: nothing records this node; start 'gpumon'")
    assert gpumon("mark", " \n ", env=env).returncode == 2
    with running(env) as process:
        started(env)
        process.kill()
        process.wait()
        assert gpumon("mark", "too late", env=env).returncode == 4
    assert not list(state(env).rglob("*.live"))  # what a dead one left is gone


# -- the dashboard --------------------------------------------------------------------------------
@pytest.mark.terminal
def test_the_dashboard_records_says_so_and_takes_marks(env):
    more = {"GPUMON_STATE": env["GPUMON_STATE"], "GPUMON_RECORD": "1"}
    with Emulated("a100x4") as gpus, Dashboard(gpus, **more) as dashboard:
        dashboard.wait_for("recording to ")
        dashboard.keys("m")
        dashboard.type("epoch 2")
        dashboard.keys("Enter")
        dashboard.wait_for("marked: epoch 2")
        assert gpumon("mark", "epoch 3", env=env).returncode == 0
        until(lambda: len(list(state(env).rglob("*.gpumon"))) == 1)
        dashboard.keys("q")
        assert dashboard.wait_exit() == 0
    assert [mark.text for mark in marks(env)] == ["epoch 2", "epoch 3"]
    assert recorded(env)[1] == ["gpumon was quit"]


@pytest.mark.terminal
def test_no_record_writes_nothing(env):
    more = {"GPUMON_STATE": env["GPUMON_STATE"], "GPUMON_RECORD": "1"}
    with Emulated("a100x4") as gpus, Dashboard(gpus, "--no-record", **more) as dashboard:
        dashboard.wait_for("busy")
        dashboard.keys("q")
        assert dashboard.wait_exit() == 0
    assert not list(state(env).rglob("*.gpumon"))


@pytest.mark.terminal
def test_runs_are_compared_and_played_on_the_screen(env):
    for _ in range(2):
        assert record("--", "sleep", "2", env=env).returncode == 0
    first, second = sorted(path.stem for path in state(env).rglob("*.gpumon"))
    with Emulated("a100x4") as gpus:
        more = {"GPUMON_STATE": env["GPUMON_STATE"]}
        with Dashboard(gpus, "runs", **more) as dashboard:
            dashboard.wait_for_all([first, second, "Compare"])
            dashboard.keys("c")
            dashboard.wait_for("If both did the same work")
            dashboard.keys("Escape", "Enter")
            dashboard.wait_for("Seek")
            dashboard.keys("Escape")
            dashboard.wait_for("Compare")
            dashboard.keys("q")
            assert dashboard.wait_exit() == 0


def test_no_runs_are_no_error(env):
    done = gpumon("runs", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"No recordings in {state(env)};")
    assert json.loads(gpumon("runs", "--json", env=env).stdout) == {"version": 1, "runs": []}


def test_old_recordings_go_when_another_begins(env):
    assert record("--quiet", "--", "true", env=env).returncode == 0
    (old,) = recordings(env)
    os.utime(old.path, (time.time() - 40 * 86400,) * 2)
    with running({**env, "GPUMON_RECORD_KEEP_DAYS": "50"}) as process:
        started(env)
        process.terminate()
        process.wait(HANGS_S)
    assert os.path.exists(old.path)
    with running(env):  # 30 days, when nothing else is said
        until(lambda: not os.path.exists(old.path))


# -- the probe -----------------------------------------------------------------------------------

PROBED = """
import glob, os, time, torch
torch.cuda.init()
torch.cuda.hold(1, 20 << 30, 70 << 30)
until = time.monotonic() + 100
mine = os.environ["GPUMON_PROBE_DIR"] + f"/{os.getpid()}-*"
while time.monotonic() < until and not glob.glob(mine):
    time.sleep(0.1)
time.sleep(3)
torch.cuda.hold(1, 30 << 30, 70 << 30)
print("trained")
"""


def test_the_probe_tells_what_of_a_reservation_is_in_use(env, tmp_path):
    env["PYTHONPATH"] = str(plant(tmp_path / "site-packages", TORCH))
    env["TMPDIR"] = str(tmp_path)
    with Emulated("a100x4") as gpus:
        done = subprocess.run(
            [*RECORD, "--probe", "--", sys.executable, "-c", PROBED],
            env={**env, **gpus.env}, capture_output=True, text=True, timeout=HANGS_S,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "gpumon: the probe measured inside 1 process\n" in done.stderr
    assert list((tmp_path / f"gpumon-probe-{os.getuid()}").iterdir()) == []
    samples, _ = recorded(env)
    pools = [row for sample in samples for row in sample.rows.get("pool", {}).items()]
    assert {key[0] for key, _ in pools} == {1}
    assert pools[0][1]["used_bytes"] == 20 << 30
    assert pools[-1][1] == {
        "used_bytes": 30 << 30, "peak_bytes": 30 << 30, "reserved_bytes": 70 << 30,
        "reserved_peak_bytes": 70 << 30, "retries": 3, "ooms": 0, "limit_bytes": NOT_SAMPLED,
    }  # fmt: skip


def test_where_a_stranger_planted_the_usual_folder_the_probe_has_another(env, tmp_path):
    env["TMPDIR"] = str(tmp_path)
    (tmp_path / f"gpumon-probe-{os.getuid()}").write_text("")
    done = subprocess.run(
        [*RECORD, "--probe", "--", "sh", "-c", "stat -c %a:%n $GPUMON_PROBE_DIR; exit 3"],
        env=env, capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stdout.startswith(f"700:{tmp_path}/gpumon-probe-{os.getuid()}-")
    assert "no probe: " not in done.stderr


def test_a_probe_needs_a_command(env):
    done = gpumon("record", "--probe", env=env)
    assert done.returncode == 2
    assert "--probe -- COMMAND" in done.stderr


def test_the_setting_asks_for_the_probe_too(env, tmp_path):
    env |= {"TMPDIR": str(tmp_path), "GPUMON_PROBE": "1"}
    done = subprocess.run(
        [*RECORD, "--", "sh", "-c", "echo $GPUMON_PROBE_DIR"],
        env=env, capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip
    assert done.stdout == f"{tmp_path}/gpumon-probe-{os.getuid()}\n"
    assert "gpumon: the probe found no Python" in done.stderr


PREALLOCATED = """
import glob, os, time, tensorflow
with open(os.environ["HELD"], "w") as file:
    file.write(f"2 {os.getpid()} 76000 50\\n")
tensorflow.python.eager.context._context._initialized = True
until = time.monotonic() + 100
mine = os.environ["GPUMON_PROBE_DIR"] + f"/{os.getpid()}-*"
while time.monotonic() < until and not glob.glob(mine):
    time.sleep(0.1)
time.sleep(4)
"""


def test_a_report_of_a_probed_run_has_the_need_behind_a_reservation(env, tmp_path):
    env["PYTHONPATH"] = str(plant(tmp_path / "site-packages", TENSORFLOW))
    held, scenario = tmp_path / "held", tmp_path / "a.scn"
    held.write_text("")
    boards = "[system]\n[gpu 0-3]\nmodel = A100-SXM4-80GB\nutil = 80\n"
    scenario.write_text(f"{boards}[system]\npids_file = {held}\n")
    env |= {"TMPDIR": str(tmp_path), "HELD": str(held), "CUDA_VISIBLE_DEVICES": "2"}
    with Emulated(scenario) as gpus:
        done = subprocess.run(
            [*RECORD, "--probe", "--interval", "0.5", "--", sys.executable, "-c", PREALLOCATED],
            env={**env, **gpus.env}, capture_output=True, text=True, timeout=HANGS_S,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (recording,) = sorted(state(env).rglob("*.gpumon"))
    told = json.loads(gpumon("report", str(recording), "--format", "json", env=env).stdout)
    (row,) = [each for each in told["devices"] if each["mem_truth"] == "measured"]
    assert (row["index"], row["mem_in_use_peak_bytes"]) == (2, 9 << 30)
    assert 9 << 30 < row["mem_need_bytes"] < 10 << 30
    text = gpumon("report", str(recording), env=env).stdout
    assert "9 GiB in use, 74.2 GiB reserved" in text
    assert "ALLOW_GROWTH" not in text
