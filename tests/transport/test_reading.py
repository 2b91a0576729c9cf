"""One thread reads from many pipes."""

import os
import threading

from gpumon.transport.reading import Reading
from tests.support.waiting import until


def test_what_comes_on_many_pipes_is_read_by_one_thread_until_each_ends():
    reading, got, readers = Reading("pipes"), {}, set()
    pipes = [os.pipe() for _ in range(20)]

    def follow(place):
        def read():
            readers.add(threading.current_thread().name)
            piece = os.read(pipes[place][0], 100)
            got.setdefault(place, []).append(piece)
            return bool(piece)

        reading.follow(pipes[place][0], read)

    for place, (_, into) in enumerate(pipes):
        follow(place)
        os.write(into, b"%d" % place)
    until(lambda: got == {place: [b"%d" % place] for place in range(20)})
    for place, (_, into) in enumerate(pipes):
        if place % 2:
            os.close(into)
    until(lambda: all(got[place][-1] == b"" for place in range(1, 20, 2)))
    os.write(pipes[0][1], b"more")
    until(lambda: got[0] == [b"0", b"more"])
    assert [got[place] for place in range(1, 20, 2)] == [
        [b"%d" % place, b""] for place in range(1, 20, 2)
    ]
    assert readers == {"pipes"}


def test_a_number_that_another_pipe_gets_is_followed_anew():
    reading, got = Reading("pipes"), []
    for text in (b"first", b"second"):
        out, into = os.pipe()
        ended = threading.Event()

        def read(out=out, ended=ended):
            piece = os.read(out, 100)
            got.append((out, piece))
            if not piece:
                ended.set()
            return bool(piece)

        reading.follow(out, read)
        os.write(into, text)
        os.close(into)
        assert ended.wait(10)
        until(lambda out=out: out not in reading._reads)
        os.close(out)
    (first, _), _, (second, _), _ = got
    assert first == second
    assert [piece for _, piece in got] == [b"first", b"", b"second", b""]
