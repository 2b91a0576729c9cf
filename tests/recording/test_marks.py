"""The folder of marks, as other users may leave it: nothing of theirs is followed or written to."""

from __future__ import annotations

import os
import socket
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.sample import Header
from gpumon.recording.claims import Claims
from gpumon.recording.sharing import Mark, Spool, running, send
from tests.e2e.program import environment, gpumon
from tests.support.examples import examples

OLD = b"what was there before\n"
NOW = 1_795_200_000.0


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def theirs(path, monkeypatch):
    """Give it to another user; where only root can, become one."""
    if os.geteuid() == 0:
        os.lchown(path, 54_321, 54_321)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


@pytest.mark.parametrize("umask", [0, 0o002, 0o022, 0o077])
def test_new_folders_are_private_under_any_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        spool = Claims().open(str(tmp_path / "state" / "gpumon" / "marks"), "4711", "gpu01")
    finally:
        os.umask(before)
    folders = [tmp_path / "state", tmp_path / "state" / "gpumon", os.path.dirname(spool.path)]
    assert {mode(folder) for folder in folders} == {0o700}
    assert mode(spool.path) == 0o600
    assert spool.close() == []


def test_a_folder_that_cannot_be_made_again_costs_no_other_file_anything(tmp_path):
    folder = tmp_path / "marks"
    spool = Claims().open(str(folder), "", "gpu01", local=str(tmp_path / "here"))
    os.unlink(spool.path)
    folder.rename(tmp_path / "moved")
    folder.write_bytes(OLD)
    with pytest.raises(OSError, match="marks"):
        spool.others(frozenset())
    # what is opened from now on has no number that the spool writes to
    others = [open(tmp_path / str(n), "w+b") for n in range(8)]
    header = Header("gpu01", "boot", 0.0, 1.0, 1.0, "")
    spool.hold("gpu01", spool.made("gpu01", header, is_asked_for=True))
    spool.beat()
    spool.close()
    for each in others:
        each.write(OLD)
        each.seek(0)
        assert each.read() == OLD
        each.close()
    assert folder.read_bytes() == OLD


@pytest.mark.parametrize("bits", [0o700, 0o711, 0o750, 0o755, 0o720, 0o770, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_read_is_closed_and_one_that_they_write_refused(tmp_path, bits):
    folder = tmp_path / "marks"
    folder.mkdir()
    folder.chmod(bits)
    if bits & 0o022:
        for ask in (lambda: running(str(folder)), lambda: Claims().open(str(folder), "", "gpu01")):
            with pytest.raises(PermissionError, match="other users can write to it"):
                ask()
        assert (mode(folder), os.listdir(folder)) == (bits, [])
        return
    spool = Claims().open(str(folder), "", "gpu01")
    assert [each.lease for each in running(str(folder))] == [spool.lease]
    assert mode(folder) == 0o700
    spool.close()


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "marks"
    folder.mkdir(0o700)
    theirs(folder, monkeypatch)
    for ask in (lambda: running(str(folder)), lambda: Claims().open(str(folder), "", "gpu01")):
        with pytest.raises(PermissionError, match="belongs to another user"):
            ask()


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_is_a_link_is_refused(tmp_path, there):
    elsewhere = tmp_path / "elsewhere"
    if there:
        elsewhere.mkdir()
    os.symlink(elsewhere, tmp_path / "marks")
    with pytest.raises(OSError, match="Not a directory"):
        Claims().open(str(tmp_path / "marks"), "", "gpu01")
    assert not there or os.listdir(elsewhere) == []


# -- what lies in it -------------------------------------------------------------------------------
def fifo(path, _victim):
    os.mkfifo(path)


def unix_socket(path, _victim):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))  # of which a longer name does not fit


PLANTED = {
    "link": lambda path, victim: os.symlink(victim, path),
    "link to nothing": lambda path, victim: os.symlink(f"{victim}-none", path),
    "hard link": lambda path, victim: os.link(victim, path),
    "folder": lambda path, _victim: os.mkdir(path),
    "fifo": fifo,
    "socket": unix_socket,
}


@examples(80)
@given(st.lists(st.sampled_from(sorted(PLANTED)), min_size=1, max_size=8), st.booleans())
def test_nothing_planted_is_written_to_or_takes_a_mark(tmp_path_factory, kinds, recorded):
    """Under names that spools have, the recorder's own of earlier releases among them."""
    top = tmp_path_factory.mktemp("state")
    victim, folder = top / "victim", top / "marks"
    victim.write_bytes(OLD)
    folder.mkdir(0o700)
    names = []
    for number, kind in enumerate(kinds):
        pid = os.getpid() if number == 0 else number
        names.append(f"node,gpu01,{pid},0.live")
        PLANTED[kind](str(folder / names[-1]), str(victim))
    spool = Claims().open(str(folder), "", "gpu01") if recorded else None
    assert [each.lease for each in running(str(folder))] == ([spool.lease] if spool else [])
    for name in names:
        assert not send(Spool(str(folder / name), "", "gpu01"), Mark(NOW, "text"))
    if spool:
        assert send(Spool(spool.path, "", "gpu01"), Mark(NOW, "text"))
        assert spool.close() == [Mark(NOW, "text")]
    assert (victim.read_bytes(), sorted(os.listdir(top))) == (OLD, ["marks", "victim"])
    assert sorted(os.listdir(folder)) == sorted(names)


def test_a_spool_of_another_user_takes_no_mark_and_stays(tmp_path, monkeypatch):
    folder = tmp_path / "marks"
    folder.mkdir(0o700)
    path = folder / "node,gpu01,1,0.live"
    path.write_bytes(b"")
    if os.geteuid() == 0:
        theirs(path, monkeypatch)
        assert running(str(folder)) == []
        assert not send(Spool(str(path), "", "gpu01"), Mark(NOW, "text"))
        assert path.read_bytes() == b""
    else:  # who is not root cannot make one; a read-only one of another kind stands for it
        path.chmod(0o400)
        assert not send(Spool(str(path), "", "gpu01"), Mark(NOW, "text"))


# -- as it is typed --------------------------------------------------------------------------------
def test_mark_says_in_one_line_what_to_do(tmp_path):
    folder = tmp_path / "marks"
    folder.mkdir()
    folder.chmod(0o777)
    done = gpumon("mark", "text", env=environment(GPUMON_STATE=str(tmp_path)))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"gpumon: cannot use {folder}: other users can write to it; make it private "
        "(chmod 700), or set GPUMON_STATE to another folder\n"
    )
