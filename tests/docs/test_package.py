"""What is distributed: a source archive that builds, and a wheel that installs and runs."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from gpumon import __version__
from tests.e2e.program import ROOT

pytestmark = pytest.mark.slow


def build(source: Path, kind: str, target: Path) -> Path:
    """Runs the build backend as pip would, but in this environment: no index is needed."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (made,) = target.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Made from the unpacked source archive, so nothing of the checkout can be missing in it."""
    folder = tmp_path_factory.mktemp("dist")
    with tarfile.open(build(ROOT, "sdist", folder / "sdist")) as archive:
        archive.extractall(folder, filter="data")
    return build(folder / f"gpumon_slurm-{__version__}", "wheel", folder / "wheel")


def test_the_wheel_holds_the_package_and_the_man_page(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        head = Parser().parsestr(archive.read(metadata).decode())
    assert head["Name"] == "gpumon-slurm"
    assert head["License-Expression"] == "MIT"
    assert "Typing :: Typed" in head.get_all("Classifier")
    assert {"gpumon/py.typed", "gpumon/site/gpus.toml"} <= set(names)
    assert any(name.endswith(".data/data/share/man/man1/gpumon.1") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert tops == {"gpumon", metadata.split("/")[0], f"gpumon_slurm-{__version__}.data"}


def test_an_installed_wheel_runs(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    python = tmp_path / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", python]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", wheel], check=True)
    run = [tmp_path / "bin" / "gpumon", "--version"]
    done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == f"gpumon {__version__}\n"
    page = subprocess.run(
        ["man", "-M", tmp_path / "share" / "man", "--where", "gpumon"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert page.stdout.strip() == str(tmp_path / "share" / "man" / "man1" / "gpumon.1")
