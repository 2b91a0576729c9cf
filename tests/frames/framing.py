"""Streams as frames, as pipelines and recorders make them."""

from gpumon.analysis.run import WHOLE, Run
from gpumon.frames.builder import built
from gpumon.frames.framer import Framer
from gpumon.frames.lines import frame_of, lines_of
from gpumon.recording import Recorder
from gpumon.wire.decoder import Decoder
from gpumon.wire.encoder import Encoder


def gather(streams, job=None, site=None, *, limits=WHOLE, **more):
    """The run data of streams, each with the name of its node, in frames of ten minutes."""
    run = Run(limits)
    for node, items in streams:
        for frame in built(items):
            run.add(node, frame)
    return run.data(job, site, **more)


class Gathering:
    """The same item by item, as beside a screen."""

    def __init__(self, limits=WHOLE):
        self.run = Run(limits)
        self.framers = {}

    def add(self, node, item):
        framer = self.framers.setdefault(node, Framer(replayed=True))
        for frame in framer.add(item):
            self.run.add(node, frame)

    def data(self, *told, **more):
        for node, framer in self.framers.items():
            for frame in framer.rest():
                self.run.add(node, frame)
        return self.run.data(*told, **more)


class Recorded:
    """The same in frames of ten minutes that have been lines of a recording."""

    def __init__(self):
        self.run = Run()
        self._items = {}

    def add(self, node, item):
        self._items.setdefault(node, []).append(item)

    def data(self, *told, **more):
        for node, items in self._items.items():
            for frame in built(items):
                lines = [line.encode() for line in lines_of(frame, 7)]
                self.run.add(node, frame_of(lines, 7, shown=False)() if lines else frame)
        return self.run.data(*told, **more)


class FramedRecorder(Recorder):
    """A recorder that also gets the frames of what it records, as the wire keeps that."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.framer = Framer(replayed=True)
        self._wire = Encoder(), Decoder()

    def header(self, header, living=()):
        encoder, decoder = self._wire
        list(self.framer.add(decoder.line(encoder.header(header))))
        super().header(header, living)

    def add(self, sample):
        encoder, decoder = self._wire
        for frame in self.framer.add(decoder.line(encoder.sample(sample))):
            self.frame(frame)
        super().add(sample)

    def close(self, reason="", *, in_haste=False):
        for frame in self.framer.rest():
            self.frame(frame)
        super().close(reason, in_haste=in_haste)
