"""Reports of simulated jobs and rows of screens are those of the goldens.

Those of the corpus are compared where its cases are judged (tests/corpus/test_corpus.py).
"""

from pathlib import Path

import pytest

from tests.corpus.cases import all_cases
from tests.golden import files, reports, screens
from tests.simulator.draw import make

pytestmark = pytest.mark.usefixtures("utc")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, reports.JOBS, 10))
def test_simulated_jobs_are_reported_as_before(first):
    found = "".join(reports.of_job(n).difference() for n in range(first, first + 10))
    assert not found, found


@pytest.mark.parametrize("name", screens.SCENES)
async def test_screens_are_as_before(name):
    texts = await screens.texts(name)
    found = "".join(files.difference(f"screens/{name}", *each) for each in texts.items())
    assert not found, found


def test_goldens_are_of_what_there_is():
    """No section of a case, job or screen that went."""
    wanted = {(f"corpus-{case.family}", case.name) for case in all_cases().values()}
    wanted |= {reports.where(make(reports.SEED, number)) for number in range(reports.JOBS)}
    sizes = [f"{width}x{height}" for width, height in screens.SIZES]
    assert _titles("pages") == wanted
    assert _titles("verdicts") == wanted
    assert _titles("screens") == {(name, size) for name in screens.SCENES for size in sizes}


def _titles(folder: str) -> set[tuple[str, str]]:
    names = [path.stem for path in Path(files.FOLDER, folder).glob("*.txt")]
    return {(name, title) for name in names for title in files.sections(f"{folder}/{name}")}


def test_a_difference_is_shown_and_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FOLDER", tmp_path / "tests" / "golden")
    files.FOLDER.mkdir(parents=True)
    lines = [f"{number} %" for number in range(200)]
    files.write("pages/made", {"one": "\n".join(lines), "two": "x"})
    files.sections.cache_clear()
    assert files.difference("pages/made", "two", "x \n") == ""
    found = files.difference("pages/made", "one", "\n".join([*lines[:-1], "200 %"]))
    assert "-199 %\n+200 %\n" in found
    assert "--write" in found
    assert "more lines" in files.difference("pages/made", "one", "")
    files.sections.cache_clear()
