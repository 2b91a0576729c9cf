"""Writes recordings as their tests need them."""

import zstandard

from gpumon.model.sample import Sample
from gpumon.recording import Recorder
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder
from tests.recording import made


class Clock:
    """The recorder's, which stands where the samples are."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def record(path, samples, *, close="done", header=None, **options):
    clock = Clock()
    recorder = Recorder(str(path), clock=clock, **options)
    recorder.header(header or made.header())
    for sample in samples:
        clock.now = sample.mono
        recorder.add(sample)
    if close is not None:
        recorder.close(close)
    return recorder


def written(sample):
    """The sample as the wire keeps it."""
    encoder, decoder = Encoder(), Decoder()
    decoder.line(encoder.header(made.header()))
    return decoder.line(encoder.sample(sample))


def samples_of(items):
    return [item for item in items if isinstance(item, Sample)]


def zstd(data, **options):
    return zstandard.ZstdCompressor(**options).compress(data)
