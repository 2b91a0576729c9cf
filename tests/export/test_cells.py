"""Both ways from a line to CSV give the same text."""

import io
import random
import string
from itertools import zip_longest

import pytest

from gpumon import demos
from gpumon.errors import WireError
from gpumon.export.cells import CellDecoder, Cells, CellTables
from gpumon.export.csv import Writer
from gpumon.export.tables import TABLES, rows
from gpumon.model.sample import Header, Sample
from gpumon.recording import Recording
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder
from tests.recording import made


def texts(items, tables=None):
    """CSV by table."""
    files = {name: io.StringIO() for name in TABLES}
    writers = {name: Writer(TABLES[name], file) for name, file in files.items()}
    for row in rows(items, None, tables):
        writers[row.table.name].write(row)
    return {name: file.getvalue() for name, file in files.items()}


def lines_of(items):
    encoder = Encoder()
    return [
        (encoder.header(item) if isinstance(item, Header) else encoder.sample(item)).encode()
        for item in items
    ]


@pytest.fixture(scope="module")
def busy():
    """Lines of a header and of samples in which every field moves."""
    return lines_of([made.header(), *made.samples(80)])


@pytest.fixture(scope="module")
def measured():
    """Lines of a real job, with values that are missing, events and states."""
    return lines_of(Recording(demos.path("finetune")).items())


def outcomes(lines, decoder, tables=None):
    """Lines of CSV; mistakes and what was left out stand among them."""

    def items():
        for line in lines:
            try:
                if (item := decoder.line(line)) is not None:
                    yield item
            except WireError as error:
                said.append(str(error))

    said: list[str] = []
    found = texts(items(), tables)
    return [*"".join(found.values()).splitlines(), *said, str(decoder.left_out)]


def differing(lines):
    """The first lines in which the two ways differ, if any."""
    pairs = zip_longest(outcomes(lines, Decoder()), outcomes(lines, CellDecoder(), CellTables()))
    return next((f"{a}\n{b}" for a, b in pairs if a != b), "")


@pytest.mark.parametrize("stream", ["busy", "measured"])
def test_the_text_is_that_of_readings(stream, request):
    assert differing(request.getfixturevalue(stream)) == ""


@pytest.mark.parametrize("stream", ["busy", "measured"])
def test_lines_of_nothing_but_rows_are_never_readings(stream, request):
    decoder = CellDecoder()
    for line in request.getfixturevalue(stream):
        item = decoder.line(line)
        if isinstance(item, Sample) and item.rows:
            others = (b'"why":', b'"events":', b'"states":')
            assert isinstance(item.rows, Cells) != any(other in line for other in others)


_PIECES = (
    "null", "true", "-0.0", "1e400", "NaN", "01", "1_0", " 1", "1.", '"', '"x"', '"a,b"', '"=1"',
    '"\\""', "]", "[", "],[", "{}", ",", "-1", "0.10", "99999999999999999999", '"u"', '"]],"',
    "9007199254740993",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_a_line_with_a_mistake_is_taken_alike(seed, busy, measured):
    rng = random.Random(seed)
    for stream in (busy, measured):
        changed = [stream[0]]
        for line in rng.choices(stream[1:], k=60):
            at = rng.randrange(len(line))
            piece = rng.choice([*_PIECES, rng.choice(string.printable)]).encode()
            changed.append(line[:at] + piece + line[at + rng.randrange(4) :])
        assert differing(changed) == ""


@pytest.mark.parametrize("piece", _PIECES)
def test_a_value_of_another_kind_is_taken_alike(piece, busy):
    """In the place of each value of a line."""
    line = busy[3].decode()
    commas = [at for at, letter in enumerate(line) if letter == ","]
    changed = [busy[0]]
    for begin, end in zip(commas, commas[1:]):
        inner = line[begin + 1 : end]
        changed.append((line[: begin + 1] + inner.replace(inner.strip('[]{}":a-z'), piece)
                        + line[end:]).encode())  # fmt: skip
    assert differing(changed) == ""
