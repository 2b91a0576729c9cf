import os
import pwd
import signal
import subprocess

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.collect import host, network, storage
from gpumon.collect import procfs as proc
from gpumon.collect.cgroup import job as cgroup
from gpumon.collect.cgroup import path as jobpath
from gpumon.collect.proc import frameworks
from gpumon.collect.procfs import ProcFs, Users
from gpumon.collect.rates import Moment, Rates
from gpumon.model.reading import MEASURING, Missing
from tests.collect.trees import plant, stat_line
from tests.support.examples import examples
from tests.support.waiting import until

# -- one process -------------------------------------------------------------------------------


@pytest.mark.parametrize("comm", ["python", "a b", "a) (b", ")", "((", "x) S 1 2 3"])
def test_stat_of_hostile_names(comm):
    stat = proc.parse_stat(stat_line(42, comm=comm, ppid=7, session=9, ticks=(250, 50), start=77))
    assert stat == proc.Stat(42, comm, "S", 7, 9, 300, 3, 77, 100 * proc.PAGE_BYTES)


def test_stat_strips_what_could_move_a_cursor():
    assert proc.parse_stat(stat_line(1, comm="a\x1b[2Jb")).comm == "a?[2Jb"


@pytest.mark.parametrize("text", ["", "1 (x", "1 (x) S 1", stat_line(1).replace("1000", "-1")])
def test_stat_that_is_none(text):
    assert proc.parse_stat(text) is None


def test_stat_of_this_process_as_psutil_sees_it():
    stat, other = ProcFs().stat(os.getpid()), psutil.Process()
    assert (stat.pid, stat.ppid) == (other.pid, other.ppid())
    assert stat.comm == other.name()[:15]
    assert stat.threads == other.num_threads()
    assert stat.session == os.getsid(0)
    times = other.cpu_times()
    used_s = stat.cpu_ticks / proc.TICKS_PER_S
    assert used_s <= times.user + times.system + 0.02
    assert used_s == pytest.approx(times.user + times.system, abs=0.5)
    # the kernel sums the parts of this number at different moments
    assert stat.rss_bytes == pytest.approx(other.memory_info().rss, rel=0.1, abs=4 << 20)
    started = ProcFs().boot_time() + stat.start_ticks / proc.TICKS_PER_S
    assert started == pytest.approx(other.create_time(), abs=1.5)


def test_status_of_this_process():
    status = ProcFs().status("self")
    assert status.uid == os.getuid()
    assert status.namespace_pids[-1] == os.getpid()
    assert status.cpus == sorted(os.sched_getaffinity(0))


def test_status_inside_a_namespace():
    text = "Name:\tx\nUid:\t1000\t0\t0\t0\nNSpid:\t4242\t17\nCpus_allowed_list:\t0-1,4\n"
    assert proc.parse_status(text) == proc.Status(1000, (4242, 17), [0, 1, 4])
    assert proc.parse_status("Name:\tx\n") is None


def test_io_of_this_process_as_psutil_sees_it():
    before = psutil.Process().io_counters()
    io = ProcFs().io(os.getpid())
    after = psutil.Process().io_counters()
    assert before.read_chars <= io.read_bytes <= after.read_chars
    assert before.write_chars <= io.write_bytes <= after.write_chars


def test_a_process_that_is_not_there():
    nobody = ProcFs()
    for reading in (nobody.stat(0), nobody.status(0), nobody.io(0), nobody.content(0, "maps")):
        assert reading == Missing("ended")


def test_an_ended_process_ends_though_its_file_was_open():
    procfs = ProcFs()
    with subprocess.Popen(["sleep", "600"]) as process:
        assert procfs.stat(process.pid).pid == process.pid
        process.kill()
    assert procfs.stat(process.pid) == Missing("ended")
    assert procfs.io(process.pid) == Missing("ended")


def test_a_record_that_changes_is_parsed_again():
    with subprocess.Popen(["sleep", "600"]) as process:
        procfs = ProcFs()
        until(lambda: procfs.stat(process.pid).state == "S")
        process.send_signal(signal.SIGSTOP)
        until(lambda: procfs.stat(process.pid).state == "T")
        process.kill()


def test_only_some_files_are_kept_open():
    records = proc.Records(most=3)
    before = len(os.listdir("/proc/self/fd"))
    names = ["stat", "io", "statm", "status", "limits"]
    for _ in range(2):
        assert all(records.read(f"/proc/self/{name}") for name in names)
        assert len(os.listdir("/proc/self/fd")) <= before + 3
    records.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_of_another_format(tmp_path):
    plant(tmp_path, {"5/stat": "what?\n", "5/io": "rchar: x\n"})
    assert ProcFs(str(tmp_path)).stat(5) == Missing("error")
    assert ProcFs(str(tmp_path)).io(5) == Missing("error")


def test_boot_time():
    assert ProcFs().boot_time() == pytest.approx(psutil.boot_time(), abs=2)


def test_pids():
    assert os.getpid() in ProcFs().pids()
    assert ProcFs("/nowhere").pids() == []


def test_a_large_file_is_read_whole_and_a_huge_one_to_its_limit(tmp_path):
    plant(tmp_path, {"large": b"x" * 300_000})
    path = str(tmp_path / "large")
    assert len(proc.read_bytes(path)) == 300_000
    assert len(proc.read_bytes(path, limit=100_000)) == 100_000


def test_user_names_are_asked_for_once(monkeypatch):
    users = Users()
    assert users.name(os.getuid()) == pwd.getpwuid(os.getuid()).pw_name
    assert users.name(4_000_000_000) == "4000000000"
    monkeypatch.setattr(pwd, "getpwuid", None)  # a second question would fail
    assert users.name(4_000_000_000) == "4000000000"


# -- rates -------------------------------------------------------------------------------------


def test_rates():
    rates = Rates()
    assert rates.per_second("a", 100, Moment(0.0)) == MEASURING
    assert rates.per_second("a", 110, Moment(2.0)) == 5.0
    assert rates.per_second("a", 110, Moment(2.0)) == MEASURING  # no time has passed
    assert rates.per_second("a", 90, Moment(4.0)) == Missing("implausible")
    assert rates.per_second("a", 91, Moment(5.0)) == 1.0
    refused = Missing("no-permission")
    assert rates.per_second("a", refused, Moment(6.0)) == refused
    assert rates.per_second("a", 92, Moment(6.0)) == MEASURING
    rates.keep({"b"})
    assert rates.per_second("a", 93, Moment(7.0)) == MEASURING


# -- numbers and lists ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        (" 12\n", 12),
        (str(2**64 - 1), 2**64 - 1),
        (str(2**64), None),
        ("-1", None),
        ("", None),
        ("1e3", None),
        ("1_0", None),
        ("٣", None),
        ("²", None),
        ("9" * 5000, None),
    ],
)
def test_counts(text, value):
    assert proc.parse_count(text) == value


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8\n", [0, 1, 2, 3, 8]),
        ("5", [5]),
        ("\n", []),
        ("3-1", None),
        ("0-99999999", None),
        ("0,,1", None),
        ("a", None),
        ("1-", None),
    ],
)
def test_cpu_lists(text, cpus):
    assert proc.parse_cpu_list(text) == cpus
    if cpus is not None:
        assert proc.parse_cpu_list(proc.cpu_list_text(cpus)) == sorted(set(cpus))


def test_a_cpu_list_is_written_as_the_kernel_does():
    assert proc.cpu_list_text([8, 0, 1, 3, 2, 8]) == "0-3,8"
    assert proc.cpu_list_text([]) == ""


def test_pressure():
    assert proc.parse_pressure("some avg10=12.50 avg60=1.00 avg300=0.00 total=9\n") == 12.5
    assert proc.parse_pressure("some avg10=101.00 avg60=1.00\n") == Missing("error")
    assert proc.parse_pressure("") == Missing("error")


# -- every parser of this package takes any text -------------------------------------------------

PARSERS = [
    proc.parse_count,
    proc.parse_cpu_list,
    proc.parse_table,
    proc.parse_stat,
    proc.parse_status,
    proc.parse_io,
    proc.parse_boot_time,
    proc.parse_pressure,
    host.parse_cpu_ticks,
    host.parse_meminfo,
    host.parse_loadavg,
    network.parse_net_dev,
    network.parse_link_rate,
    storage.parse_scratch_mounts,
    jobpath.parse_mounts,
    cgroup.parse_io_stat,
    cgroup.parse_blkio_bytes,
    cgroup.parse_device_minors,
    lambda text: jobpath.find_job_cgroup(text, {"SLURM_JOB_ID": text}),
    lambda text: frameworks.find_frameworks(text, text),
    lambda text: frameworks.parse_environ(text.encode("utf-8", "surrogatepass")),
    lambda text: frameworks.environment_hints(dict.fromkeys(frameworks.VERDICTS, text)),
    lambda text: storage.candidates({"TMPDIR": text, "SLURM_TMPDIR": text}, text),
]

#: shaped like the files, with what breaks parsers in the places of numbers and names
_ODD = st.sampled_from((
    "0", "1", "-1", "18446744073709551615", "18446744073709551616", "9" * 40, "nan", "inf", "1e999",
    "0x10", "½", "٣", "²", "", " ", "max", "%", ":", "\0", "\x1b[2J", "1-", "-", "0-4294967295",
))  # fmt: skip
_SHAPES = st.sampled_from(
    [
        "{0} (x) S {1} {2} 3 4 5 6 7 8 9 10 11 {3} {4} 14 15 16 17 {5} 19 {6} 21 {7}",
        "Uid:\t{0}\t{1}\nNSpid:\t{2}\t{3}\nCpus_allowed_list:\t{4}-{5},{6}\n",
        "rchar: {0}\nwchar: {1}\nread_bytes: {2}\n",
        "cpu  {0} {1} {2} {3} {4} {5} {6} {7}\nbtime {0}\n",
        "MemTotal: {0} kB\nMemFree: {1} kB\nCached: {2} kB\nHugePages_Total: {3}\n",
        "{0} {1} {2} 1/200 33\n",
        "  {0}: {1} 0 0 0 0 0 0 0 {2} 0 0 0 0 0 0 0\n",
        "{0} Gb/sec ({1}X EDR)\n",
        "1 2 0:3 {0} /scratch{1} rw - ext4 {2} rw\n3 4 0:5 / {3} rw - cgroup x rw,{4}\n",
        "{0}:{1}:/slurm/uid_{2}/job_{3}/step_{4}/task_{5}\n",
        "8:{0} rbytes={1} wbytes={2}\n8:0 Read {3}\n8:0 Write {4}\n",
        "c 195:{0} {1}\na {2}:{3} rwm\n",
        "some avg10={0} avg60={1} total={2}\nnr_periods {3}\n",
        "7f-8 r-xp {0} 08:01 1 /x/{1}/libtorch_cuda.so{2}\n",
    ]
)
_TEXTS = st.one_of(
    st.text(max_size=200),
    st.binary(max_size=200).map(lambda content: content.decode("utf-8", "replace")),
    st.builds(lambda shape, odd: shape.format(*odd), _SHAPES, st.lists(_ODD, min_size=8)),
)


def _numbers_in(parsed):
    if isinstance(parsed, (int, float)) and not isinstance(parsed, bool):
        yield parsed
    elif isinstance(parsed, dict):
        for value in parsed.values():
            yield from _numbers_in(value)
    elif isinstance(parsed, (list, tuple, set, frozenset)):
        for value in parsed:
            yield from _numbers_in(value)


@examples(1500)
@given(_TEXTS)
def test_no_parser_raises_or_lets_an_impossible_number_through(text):
    """1500 texts for each of 23 parsers."""
    for parse in PARSERS:
        for value in _numbers_in(parse(text)):
            assert 0 <= value < 1 << 80, parse
