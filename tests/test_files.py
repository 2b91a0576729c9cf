"""Every file that gpumon writes, over every kind of thing that may lie where it is to go."""

from __future__ import annotations

import contextlib
import os
import resource
import stat
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon import cli, files
from gpumon.cli import running
from gpumon.files import NotWritten, Output, write_file
from gpumon.tui.screens.report import ReportPane
from tests.e2e.program import GPUMON, environment, gpumon
from tests.recording import made
from tests.recording.recorded import record
from tests.support.examples import examples
from tests.support.waiting import HANGS_S
from tests.tui.looking import Looking

OLD = b"what was there before\n" * 50
ROOT = os.geteuid() == 0
STRANGER = 54_321


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("recorded") / "small.gpumon"
    record(path, made.samples(5))
    return str(path)


# -- who writes ------------------------------------------------------------------------------------
def command(*words):
    """A command that takes -o."""

    def write(recording, path, monkeypatch):
        return cli.main([words[0], recording, *words[1:], "-o", str(path)])

    return write


def key(recording, path, monkeypatch):
    """The key `e`, which names its file itself, in the folder where gpumon was started."""
    folder, name = os.path.split(path)
    monkeypatch.setattr(
        "gpumon.files.write_file",
        lambda _name, body, **options: write_file(os.path.join(folder, name), body, **options),
    )
    monkeypatch.setattr("gpumon.report.render.markdown.markdown", lambda _report: "# a page\n" * 99)
    report = SimpleNamespace(job=SimpleNamespace(id="4711", raw_id="4711"))
    looking = Looking(evaluation=SimpleNamespace(report=report))
    pane = looking.panes["report"]
    assert isinstance(pane, ReportPane)
    pane.action_save()
    (line,) = looking.said
    saved = f"saved as {os.path.join(os.getcwd(), 'gpumon-report-4711.md')}"
    assert line == saved or line.startswith("not saved: cannot write ")
    return int(line.startswith("not"))


WRITERS = {
    "report": command("report", "--format", "md"),
    "json": command("export", "--to", "json"),
    "csv": command("export", "--to", "csv", "--table", "device"),
    "parquet": command("export", "--to", "parquet", "--table", "host"),
    "key": key,
}


@pytest.fixture(params=WRITERS)
def write(request, recording, monkeypatch, tmp_path, capsys):
    """Write to a path; (exit code, the one line of complaint, what it would write)."""
    writer = WRITERS[request.param]
    monkeypatch.setattr(files, "READER_S", 0.2)

    def ask(path):
        fresh = tmp_path / "fresh" / "fresh"
        fresh.parent.mkdir(exist_ok=True)
        assert writer(recording, fresh, monkeypatch) == 0
        body = fresh.read_bytes()
        assert body
        capsys.readouterr()
        code = writer(recording, path, monkeypatch)
        said = capsys.readouterr().err
        assert said.count("\n") <= 1
        assert "mistake" not in said
        return SimpleNamespace(code=code, said=said, body=body, chosen=request.param != "key")

    return ask


@pytest.fixture
def folder(tmp_path):
    """Holds what is written to and, where a test says so, somebody's file; nothing else after."""
    found = tmp_path / "folder"
    found.mkdir()
    return found


def names(folder):
    return sorted(os.listdir(folder))


def private_device(folder, minor):
    """/dev/null (3) or /dev/full (7): a node of our own where that may be made."""
    name = {3: "null", 7: "full"}[minor]
    if not ROOT:
        return f"/dev/{name}"  # which nobody else can replace
    path = folder / name
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    return path


# -- regular files ---------------------------------------------------------------------------------
def test_a_new_file_has_the_mode_of_the_umask(write, folder):
    before = os.umask(0o027)
    try:
        done = write(folder / "new")
    finally:
        os.umask(before)
    assert (done.code, names(folder)) == (0, ["new"])
    assert (folder / "new").read_bytes() == done.body
    assert stat.S_IMODE((folder / "new").stat().st_mode) == 0o640


def test_what_is_replaced_keeps_its_mode_and_owner(write, folder):
    path = folder / "there"
    path.write_bytes(OLD)
    path.chmod(0o640)
    if ROOT:
        os.chown(path, STRANGER, STRANGER + 1)
    before = path.stat()
    done = write(path)
    after = path.stat()
    assert (done.code, path.read_bytes(), names(folder)) == (0, done.body, ["there"])
    for name in ("st_mode", "st_uid", "st_gid"):
        assert getattr(after, name) == getattr(before, name)


def test_a_link_stays_and_its_target_is_replaced_where_it_lies(write, folder):
    (folder / "in").mkdir()
    target = folder / "in" / "target"
    target.write_bytes(OLD)
    target.chmod(0o604)
    os.symlink("in/target", folder / "middle")
    os.symlink(folder / "middle", folder / "link")
    done = write(folder / "link")
    assert (done.code, target.read_bytes()) == (0, done.body)
    assert os.readlink(folder / "link") == str(folder / "middle")
    assert os.readlink(folder / "middle") == "in/target"
    assert stat.S_IMODE(target.stat().st_mode) == 0o604
    assert (names(folder), names(folder / "in")) == (["in", "link", "middle"], ["target"])


def test_a_link_to_nothing_gets_its_target(write, folder):
    (folder / "in").mkdir()
    os.symlink("in/target", folder / "link")
    done = write(folder / "link")
    assert (done.code, (folder / "in" / "target").read_bytes()) == (0, done.body)
    assert os.readlink(folder / "link") == "in/target"


def test_of_hard_links_only_the_named_one_is_replaced(write, folder):
    (folder / "one").write_bytes(OLD)
    os.link(folder / "one", folder / "two")
    done = write(folder / "one")
    assert (done.code, (folder / "one").read_bytes()) == (0, done.body)
    assert ((folder / "two").read_bytes(), names(folder)) == (OLD, ["one", "two"])


def test_names_that_others_might_have_guessed_are_never_touched(write, folder):
    """Somebody's file, led to from every name that a program might take for a temporary file."""
    victim = folder / "victim"
    victim.write_bytes(OLD)
    planted = [f"page{end}" for end in (".part", ".tmp", "~", ".new", ".swp", f".{os.getpid()}")]
    planted += [f".page{end}" for end in (".part", ".tmp", ".swp")]
    for name in planted:
        os.symlink(victim, folder / name)
    done = write(folder / "page")
    assert (done.code, victim.read_bytes()) == (0, OLD)
    assert names(folder) == sorted([*planted, "page", "victim"])
    assert all((folder / name).is_symlink() for name in planted)


# -- what is no regular file -----------------------------------------------------------------------
def test_a_device_stays_a_device(write, folder):
    null = private_device(folder, 3)
    os.symlink(null, folder / "link")
    for path in (null, folder / "link"):
        done = write(path)
        assert done.code == (0 if done.chosen else 1)
        assert stat.S_ISCHR(os.stat(null).st_mode)
    assert (folder / "link").is_symlink()
    assert set(names(folder)) <= {"null", "link"}


def test_a_device_that_is_full_is_one_line(write, folder):
    full = private_device(folder, 7)
    done = write(full)
    assert done.code == 1
    if done.chosen:
        assert f"cannot write {full}: no space left on its file system; free some" in done.said
    assert stat.S_ISCHR(os.stat(full).st_mode)


def test_a_fifo_gets_everything_where_a_program_reads_it(write, folder):
    os.mkfifo(folder / "fifo")
    got = []
    reader = threading.Thread(target=lambda: got.append((folder / "fifo").read_bytes()))
    reader.start()
    done = write(folder / "fifo")
    if not done.chosen:  # nobody named it
        assert done.code == 1
        with contextlib.suppress(OSError):  # which lets the reader end, unless it has
            os.close(os.open(folder / "fifo", os.O_WRONLY | os.O_NONBLOCK))
    reader.join(HANGS_S)
    assert got == ([done.body] if done.chosen else [b""])
    assert stat.S_ISFIFO((folder / "fifo").stat().st_mode)
    assert names(folder) == ["fifo"]


def test_a_fifo_without_a_reader_holds_nobody_up(write, folder):
    os.mkfifo(folder / "fifo")
    done = write(folder / "fifo")
    assert (done.code, names(folder)) == (1, ["fifo"])
    if done.chosen:
        assert "no program reads from this FIFO; start the program that reads it" in done.said


def test_a_fifo_waits_for_its_reader(folder, monkeypatch):
    os.mkfifo(folder / "fifo")
    got = []

    def late():
        time.sleep(0.3)
        got.append((folder / "fifo").read_bytes())

    reader = threading.Thread(target=late)
    reader.start()
    write_file(str(folder / "fifo"), "x")
    reader.join(HANGS_S)
    assert got == [b"x"]


def test_a_descriptor_is_written_to_where_it_stands(write, folder):
    """/dev/fd/N of a pipe, and of a file that something was appended to before."""
    if not (done := write(folder / "some")).chosen:
        return
    reading, writing = os.pipe()
    got = []
    reader = threading.Thread(target=lambda: got.append(open(reading, "rb").read()))
    reader.start()
    assert write(f"/dev/fd/{writing}").code == 0
    os.close(writing)
    reader.join(HANGS_S)
    assert got == [done.body]
    (folder / "log").write_bytes(OLD)
    os.symlink("/proc/self/fd", folder / "fds")
    with open(folder / "log", "ab") as log:
        assert write(folder / "fds" / str(log.fileno())).code == 0
    assert (folder / "log").read_bytes() == OLD + done.body
    assert write(f"/dev/fd/{writing}").code == 1  # closed


# -- what cannot be written ------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["folder", "loop", "no folder", "read-only", "socket", "long"])
def test_what_cannot_be_written_is_one_line(write, folder, kind):
    path = folder / "there"
    left = ["there"]
    if kind == "folder":
        path.mkdir()
    elif kind == "loop":
        os.symlink("there", path)
    elif kind == "no folder":
        path, left = folder / "none" / "there", []
    elif kind == "long":
        path, left = folder / ("x" * 300), []
    elif kind == "socket":
        import socket

        with socket.socket(socket.AF_UNIX) as made_one:
            made_one.bind(str(path))
    elif kind == "read-only":
        path.write_bytes(OLD)
        path.chmod(0o444)
        if ROOT:  # as whom no mode stops: what nobody may write to
            path, left = "/proc/version", ["there"]
    done = write(path)
    assert done.code in (1, 2)
    if done.chosen:
        assert done.said.startswith("gpumon: ")
        assert "; " in done.said  # what to do
        assert "start the program" not in done.said  # that is for a FIFO
    assert names(folder) == left


def test_a_folder_in_which_nothing_can_be_made(folder, recording):
    """As somebody who is not root, where the file alone could be written."""
    path = folder / "there"
    path.write_bytes(OLD)
    path.chmod(0o666)
    folder.chmod(0o555)
    for each in (folder, *list(folder.parents)[:4]):  # pytest's own
        if ROOT and each.stat().st_uid == 0:
            each.chmod(each.stat().st_mode | 0o055)
    code = (
        "import os, sys\n"
        "from gpumon.files import write_file\n"
        f"os.geteuid() or os.setuid({STRANGER})\n"
        "write_file(sys.argv[1], 'new')\n"
    )
    done = subprocess.run(
        [GPUMON[0], "-c", code, str(path)],
        env=environment(), capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip
    folder.chmod(0o755)
    assert "you may not create files in its folder; name another file" in done.stderr
    assert (path.read_bytes(), names(folder)) == (OLD, ["there"])


@pytest.mark.slow
@pytest.mark.parametrize("words", [
    ("report", "--format", "html"),
    ("export", "--to", "json"),
    ("export", "--to", "csv", "--table", "device"),
    ("export", "--to", "parquet", "--table", "device"),
])  # fmt: skip
def test_a_disk_that_is_full_leaves_the_old_file_whole(recording, folder, words):
    """A limit on the size of files is the full disk that a test may make: a write that fails."""
    path = folder / "there"
    path.write_bytes(OLD)
    done = gpumon(
        words[0], recording, *words[1:], "-o", str(path),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"gpumon: cannot write {path}: File too large; name another file\n"
    assert (path.read_bytes(), names(folder)) == (OLD, ["there"])


@pytest.mark.parametrize("step", ["write", "fdatasync", "fchmod", "rename"])
@pytest.mark.parametrize("number", [28, 122, 5])  # ENOSPC, EDQUOT, EIO
def test_an_error_at_any_step_leaves_the_old_file_whole(folder, monkeypatch, step, number):
    path = folder / "there"
    path.write_bytes(OLD)
    path.chmod(0o640)

    def fails(*_args, **_options):
        raise OSError(number, os.strerror(number))

    if step == "write":
        output = Output(str(path))
        monkeypatch.setattr(files._File, "write", fails)
        output.stream.write(b"new")
        with pytest.raises(OSError, match=os.strerror(number)):
            output.close()
        output.discard()
    else:
        monkeypatch.setattr(os, step, fails)
        with pytest.raises(NotWritten, match=r"cannot write .*; "):
            write_file(str(path), "new")
    monkeypatch.undo()
    assert (path.read_bytes(), names(folder)) == (OLD, ["there"])


def test_an_interrupt_leaves_the_old_file_whole(recording, folder, monkeypatch):
    path = folder / "there"
    path.write_bytes(OLD)

    def interrupted(_self, _data):
        raise KeyboardInterrupt

    monkeypatch.setattr(files._File, "write", interrupted)
    for words in (["report", recording], ["export", recording, "--to", "json"]):
        with pytest.raises(KeyboardInterrupt):
            running._run([*words, "-o", str(path)])
    assert (path.read_bytes(), names(folder)) == (OLD, ["there"])


# -- anything at once ------------------------------------------------------------------------------
@examples(60)
@given(
    mode=st.integers(0o200, 0o777).map(lambda mode: mode | 0o200),
    umask=st.integers(0, 0o777),
    links=st.integers(0, 41),
    old=st.one_of(st.none(), st.binary(max_size=20_000)),
    new=st.text(max_size=20_000),
    fails=st.sampled_from(["", "", "write", "fdatasync", "fchmod", "rename"]),
)
def test_whatever_was_there(tmp_path_factory, mode, umask, links, old, new, fails):
    """Chains of links over folders, any mode and umask, any contents, a fault at any step."""
    folder = tmp_path_factory.mktemp("any")
    path = target = folder / "target"
    if old is not None:
        target.write_bytes(old)
        target.chmod(mode)
    for number in range(links):
        inner = folder / f"in{number}"
        inner.mkdir()
        os.symlink(os.path.relpath(path, inner), inner / "link")
        path = inner / "link"
    before = os.umask(umask)
    try:
        with pytest.MonkeyPatch.context() as patch:
            if fails:
                patch.setattr(files._File if fails == "write" else os, fails, full)
            write_file(str(path), new)
        is_written = True
    except (NotWritten, OSError):
        is_written = False
    finally:
        os.umask(before)
    if links >= 40 or fails in ("fdatasync", "rename"):
        assert not is_written
    elif not fails:
        assert is_written
    there = ["target"] if is_written or old is not None else []
    assert sorted(os.listdir(folder)) == sorted([*there, *(f"in{n}" for n in range(links))])
    if there:
        kept = stat.S_IMODE(target.stat().st_mode)
        assert kept == (0o666 & ~umask if old is None else mode)
        target.chmod(0o600)  # who is not root cannot read every mode
        assert target.read_bytes() == (new.encode("utf-8", "replace") if is_written else old)


def full(*_args, **_options):
    raise OSError(28, os.strerror(28))
