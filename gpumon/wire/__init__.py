"""The stream: the only format that both ends share. `docs/wire.md` describes it for readers.

Lines of JSON: a header, then samples. What the agent prints, what crosses ssh, what lies in a
recording and what the demo replays is this, read by this reader. A sample's `rows` holds
one table per group of fields that was read in that tick; a missing value is null, and the letters
behind the row give the reasons in order. Everything read is range-checked and cleaned.
"""

#: major: a reader of another major refuses. minor: fields, groups and event kinds were added.
VERSION = (1, 0)
MAX_LINE_BYTES = 1 << 20
MAX_ROWS = 8192  # of one group in one sample
MAX_DEVICES = 1024
#: what a reader keeps of one header, of one sample and of one event; the rest is left out
MAX_FACTS, MAX_NOTES = 64, 64
MAX_EVENTS = 4096
MAX_DATA = 32
#: readings of one stream whose missing values have words of their own
MAX_WHY = 16_384
#: s between samples, as gpumon itself writes it; another claim is taken for the nearest of these
MIN_INTERVAL_S, MAX_INTERVAL_S = 0.1, 3600.0
