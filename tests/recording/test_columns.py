"""The arrays for reports hold what the decoder gives."""

import json

from gpumon.model.fields import FIELDS
from gpumon.model.reading import number
from gpumon.recording import Recording
from gpumon.wire import Encoder
from tests.recording import made
from tests.recording.recorded import record, samples_of, zstd


def columns_slowly(items, wanted):
    found = {}
    for sample in samples_of(items):
        for entity, names in wanted.items():
            for key, readings in sample.rows.get(entity, {}).items():
                for name in names:
                    if name in readings:
                        found.setdefault((entity, key, name), []).append(
                            (sample.time, number(readings[name]))
                        )
    return found


def told(columns):
    return {
        at: [(t, None if v != v else v) for t, v in zip(column.times, column.values)]
        for at, column in columns.items()
    }


WANTED = {
    entity: [name for name, field in FIELDS[entity].items() if not field.text] for entity in FIELDS
}


def test_columns_are_what_the_decoder_gives(tmp_path):
    path = tmp_path / "x.gpumon"
    record(path, made.samples(130), frame_s=50)
    with Recording(str(path)) as recording:
        assert told(recording.columns(WANTED)) == columns_slowly(recording.items(), WANTED)
        some = {"device": ["power_w"]}
        late = recording.start + 60
        assert told(recording.columns(some, late)) == columns_slowly(recording.items(late), some)


def test_columns_of_lines_in_another_writing(tmp_path, few):
    """Other blanks, other orders, brackets in texts, rows that come and go, numbers beyond."""
    encoder = Encoder()
    lines = [json.loads(encoder.header(made.header()))]
    lines += [json.loads(encoder.sample(sample)) for sample in few]
    lines[3]["rows"]["device.fast"].insert(0, [5, 1, 2, 3, 4, "]]"])
    lines[4]["rows"]["device.fast"] = []
    lines[5]["rows"]["device.fast"][0][1] = 5000
    lines[6]["rows"]["device.fast"][0][1] = None
    lines[6]["rows"]["device.fast"][0].append("l")
    text = "\n".join(json.dumps(line, sort_keys=True) for line in lines) + "\n"
    path = tmp_path / "x.gpumon"
    path.write_bytes(zstd(text.encode()))
    wanted = {"device": ["busy_percent", "mem_used_bytes"], "host": ["load1"]}
    with Recording(str(path)) as recording:
        got = told(recording.columns(wanted))
    busy = dict(got["device", 0, "busy_percent"])
    times = [round(sample.time, 3) for sample in few]
    assert len(busy) == len(few) - 1  # one sample had no row
    assert busy[times[4]] is None
    assert busy[times[5]] is None
    assert busy[times[10]] == lines[11]["rows"]["device.fast"][0][1]
    assert len(got["host", "", "load1"]) == len(few)
