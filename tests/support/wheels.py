"""Wheels made by hand, for a pip without an index: a dependency, and what builds gpumon."""

from __future__ import annotations

import sysconfig
import zipfile
from pathlib import Path

_BACKEND = """
import zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "gpumon_slurm-0.1.0"
    with zipfile.ZipFile(f"{folder}/{name}-py3-none-any.whl", "w") as wheel:
        def write(file, text):
            wheel.writestr(f"{name}.dist-info/{file}", text)
        write("METADATA", "Metadata-Version: 2.1\\nName: gpumon-slurm\\nVersion: 0.1.0\\n"
              "Requires-Dist: %s\\n")
        write("WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        write("RECORD", "")
    return f"{name}-py3-none-any.whl"
"""


def index(folder: Path, requirement: str) -> dict[str, str]:
    """pip's settings for a folder that has `borrowed`, by which the packages of these tests are
    found, in versions 1 and 2, and a builder of a gpumon with this requirement alone.
    """
    folder.mkdir(exist_ok=True)
    packages = sysconfig.get_path("purelib")
    for version in ("1", "2"):
        _wheel(folder, "borrowed", version, {"borrowed.pth": f"{packages}\n"})
    _wheel(folder, "hatchling", "9", {"hatchling/build.py": _BACKEND % requirement})
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


def _wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    about = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        for path, text in about.items():
            wheel.writestr(f"{name}-{version}.dist-info/{path}", text)
