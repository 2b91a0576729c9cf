"""Folders that others can write to: what they plant, or swap while gpumon looks, harms nobody."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

from gpumon import files
from gpumon.files import NotWritten, write_file
from gpumon.sources.files import tracks_of
from gpumon.wire.encoder import Encoder
from tests.e2e.program import GPUMON, environment, gpumon
from tests.recording import made
from tests.recording.recorded import record
from tests.support.waiting import HANGS_S

pytestmark = pytest.mark.slow

OLD = b"what was there before\n" * 50
STRANGER = 54_321


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("recorded") / "small.gpumon"
    record(path, made.samples(5))
    return str(path)


@pytest.fixture
def give(monkeypatch):
    """Give a file, a link or a folder to another user; where only root can, `fstat` says so."""
    given = set()
    real = os.fstat

    def told(descriptor):
        status = real(descriptor)
        if (status.st_dev, status.st_ino) not in given:
            return status
        fields = list(status)
        fields[4] = STRANGER
        return os.stat_result(fields)

    def to_stranger(path):
        if os.geteuid() == 0:
            os.lchown(path, STRANGER, STRANGER)
        else:
            status = os.lstat(path)
            given.add((status.st_dev, status.st_ino))
            monkeypatch.setattr(os, "fstat", told)

    return to_stranger


def made_in(folder, mode):
    folder.mkdir()
    folder.chmod(mode)
    return folder


# -- what lies there -------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o775, 0o777, 0o1777])
@pytest.mark.parametrize("whose", itertools.product(("mine", "theirs"), ("mine", "theirs", "none")))
def test_links(tmp_path, give, mode, whose):
    """One's own are followed; those of others only to files of their own, and not where everyone
    can make them.
    """
    link_is, target_is = whose
    shared, private = made_in(tmp_path / "shared", mode), made_in(tmp_path / "private", 0o700)
    target, link = private / "target", shared / "page"
    os.symlink(target, link)
    if target_is != "none":
        target.write_bytes(OLD)
        target.chmod(0o604)
    if target_is == "theirs":
        give(target)
    if link_is == "theirs":
        give(link)
    follows = link_is == "mine" or (target_is == "theirs" and not mode & 0o002)
    kept = os.geteuid() == 0 or target_is != "theirs"  # its owner
    if follows and kept:
        write_file(str(link), "new")
        assert target.read_bytes() == b"new"
    else:
        with pytest.raises(NotWritten, match=r"cannot write .*; name another file"):
            write_file(str(link), "new")
        assert (target.read_bytes() if target.exists() else b"") == (
            b"" if target_is == "none" else OLD
        )
    assert link.is_symlink()
    assert set(os.listdir(private)) <= {"target"}
    assert os.listdir(shared) == ["page"]


@pytest.mark.parametrize("kind", ["file", "fifo"])
@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_what_a_stranger_made_where_everyone_can_is_not_written_to(tmp_path, give, mode, kind):
    shared = made_in(tmp_path / "shared", mode)
    path = shared / "page"
    if kind == "file":
        path.write_bytes(OLD)
    else:
        os.mkfifo(path)
    path.chmod(0o666)
    give(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(NotWritten, match="belongs to another user"):
        write_file(str(path), "new")
    assert os.read(reader, 4096) == (OLD if kind == "file" else b"")
    os.close(reader)
    assert os.listdir(shared) == ["page"]


# -- what is swapped -------------------------------------------------------------------------------
def test_what_is_swapped_while_it_is_written_leads_nowhere(tmp_path, give, monkeypatch):
    """A stranger swaps the name between nothing, a file, a FIFO and links to somebody's files."""
    monkeypatch.setattr(files, "READER_S", 0.0)
    shared, private = made_in(tmp_path / "shared", 0o755), made_in(tmp_path / "private", 0o755)
    hand = made_in(tmp_path / "hand", 0o700)
    victim = private / "victim"
    victim.write_bytes(OLD)
    page = shared / "page"
    stop = threading.Event()

    def swap():
        for turn in itertools.count():
            if stop.is_set():
                return
            new = hand / str(turn)
            if turn % 5 == 0:
                new.write_bytes(b"")
            elif turn % 5 == 1:
                os.mkfifo(new)
            else:
                os.symlink(private / ("none" if turn % 5 == 2 else "victim"), new)
            give(new)
            os.rename(new, page)
            if turn % 5 == 3:
                page.unlink()

    swapper = threading.Thread(target=swap)
    swapper.start()
    done = {True: 0, False: 0}
    until = time.monotonic() + HANGS_S
    try:
        while min(done.values()) < 100 and time.monotonic() < until:
            try:
                write_file(str(page), "new")
                done[True] += 1
            except NotWritten:
                done[False] += 1
    finally:
        stop.set()
        swapper.join()
    assert min(done.values()) > 0
    assert (victim.read_bytes(), os.listdir(private)) == (OLD, ["victim"])
    assert set(os.listdir(shared)) <= {"page"}


# -- folders of tables -----------------------------------------------------------------------------
def test_tables_appear_together_or_not_at_all(recording, tmp_path, monkeypatch):
    """The last of them cannot get its name."""
    from gpumon import cli

    real, names = os.rename, []

    def fails(source, target, **options):
        names.append(target)
        if target == "host.csv":
            raise OSError(5, os.strerror(5))
        real(source, target, **options)

    monkeypatch.setattr(os, "rename", fails)
    out = tmp_path / "out"
    assert cli.main(["export", recording, "--to", "csv", "-o", str(out)]) == 1
    assert len(names) > 1
    assert list(out.iterdir()) == []


def test_a_folder_given_by_a_link_gets_its_tables(recording, tmp_path):
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "link")
    done = gpumon("export", recording, "--to", "csv", "-o", str(tmp_path / "link"))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "link").is_symlink()
    assert "device.csv" in os.listdir(tmp_path / "real")


# -- standard output -------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("words", [
    ("report",),
    ("export", "--to", "json"),
    ("export", "--to", "csv", "--table", "device"),
    ("export", "--to", "parquet", "--table", "host"),
])  # fmt: skip
def test_standard_output_by_its_names(recording, tmp_path, words, name):
    """To a pipe, and to the end of a file that something else was written to."""
    command = [words[0], recording, *words[1:], "-o"]
    path = tmp_path / "direct"
    assert gpumon(*command, str(path)).returncode == 0
    direct = path.read_bytes()
    assert direct
    done = gpumon(*command, name, text=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, direct, b"")
    log = tmp_path / "log"
    log.write_bytes(OLD)
    with open(log, "ab") as file:
        done = gpumon(*command, name, capture_output=False, stdout=file, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    assert log.read_bytes() == OLD + direct
    assert sorted(os.listdir(tmp_path)) == ["direct", "log"]


def test_no_complaint_goes_to_standard_output_where_standard_error_is_closed(recording, tmp_path):
    torn = tmp_path / "torn.gpumon"
    with open(recording, "rb") as file:
        torn.write_bytes(file.read()[:-10])
    heard = gpumon("export", str(torn), "--to", "json")
    assert heard.stderr
    code = 'exec 2>&-; exec "$@"'
    words = ["sh", "-c", code, "-", *GPUMON, "export", str(torn), "--to", "json"]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=HANGS_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, heard.stdout, "")


def test_a_file_called_minus_has_a_folder_before_it(recording, tmp_path):
    done = gpumon("report", recording, "-o", "./-", cwd=tmp_path)
    assert (done.returncode, done.stdout, os.listdir(tmp_path)) == (0, "", ["-"])


# -- recordings ------------------------------------------------------------------------------------
@pytest.mark.parametrize("named", ["itself", "as it was called", "a link", "another one", "lines"])
@pytest.mark.parametrize("words", [
    ("report",),
    ("export", "--to", "json"),
    ("export", "--to", "parquet", "--table", "host"),
])  # fmt: skip
def test_neither_a_recording_nor_what_is_read_is_written_over(recording, tmp_path, words, named):
    read, target = tmp_path / "run.gpumon", tmp_path / "run.gpumon"
    shutil.copy(recording, read)
    if named == "as it was called":
        read = target = read.rename(tmp_path / "run.zst")
    elif named == "a link":
        target = tmp_path / "link"
        target.symlink_to(read)
    elif named == "another one":
        target = tmp_path / "another"
        shutil.copy(recording, target)
    elif named == "lines":
        read = target = tmp_path / "run.jsonl"
        encoder = Encoder()
        lines = [encoder.header(made.header()), *map(encoder.sample, made.samples(5))]
        read.write_text("".join(lines))
    before = target.read_bytes()
    done = gpumon(words[0], str(read), *words[1:], "-o", str(target))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "name another file with -o" in done.stderr
    assert target.read_bytes() == before


def test_a_recording_is_read_under_any_name(recording, tmp_path):
    path = tmp_path / "run.zst"
    shutil.copy(recording, path)
    for words in ("report", "export --to json", "compare"):
        command, *options = words.split()
        runs = [str(path)] * (2 if command == "compare" else 1)
        done = gpumon(command, *runs, *options)
        assert (done.returncode, done.stderr) == (0, "")
    (as_it_was,), (renamed,) = tracks_of([recording]), tracks_of([str(path)])
    assert list(renamed.items(None)) == list(as_it_was.items(None))


# -- the end of the program ------------------------------------------------------------------------
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_at_any_time_the_old_file_or_the_new_one_is_there(recording, tmp_path, number):
    path = tmp_path / "there"
    command = ["export", recording, "--to", "json", "-o", str(path)]
    assert gpumon(*command).returncode == 0
    new = path.read_bytes()
    for turn in range(8):
        path.write_bytes(OLD)
        process = subprocess.Popen(
            [*GPUMON, *command], env=environment(), stderr=subprocess.DEVNULL
        )
        time.sleep(0.05 * turn)
        process.send_signal(number)
        process.wait(HANGS_S)
        assert path.read_bytes() in (OLD, new)
        if number != signal.SIGKILL:
            assert os.listdir(tmp_path) == ["there"]
