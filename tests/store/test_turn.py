"""Streams take turns, and the screen comes before them."""

import threading
import time

from gpumon.store.turn import PATIENCE_S, Turns
from tests.support.waiting import HANGS_S


def started(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_the_screen_comes_before_the_streams_that_wait():
    turns, order = Turns(), []
    holding, release, wants = threading.Event(), threading.Event(), threading.Event()

    def first():
        with turns.of_stream():
            holding.set()
            release.wait(HANGS_S)
            order.append("first")

    def stream():
        with turns.of_stream():
            order.append("stream")

    def screen():
        wants.set()
        with turns.of_screen():
            order.append("screen")

    threads = [started(first)]
    holding.wait(HANGS_S)
    threads += [started(stream) for _ in range(20)]
    threads.append(started(screen))
    wants.wait(HANGS_S)
    while not turns._next.locked():  # it has announced itself
        time.sleep(0)
    release.set()
    for thread in threads:
        thread.join(HANGS_S)
    assert order == ["first", "screen", *["stream"] * 20]


def test_streams_work_one_at_a_time():
    turns, at_once, most = Turns(), [0], []

    def stream():
        for _ in range(50):
            with turns.of_stream():
                at_once[0] += 1
                most.append(at_once[0])
                time.sleep(0)
                at_once[0] -= 1

    for thread in [started(stream) for _ in range(8)]:
        thread.join(HANGS_S)
    assert most == [1] * 400


def test_a_stream_that_hangs_stops_no_screen():
    turns = Turns()
    holding, release = threading.Event(), threading.Event()

    def hanging():
        with turns.of_stream():
            holding.set()
            release.wait(HANGS_S)

    thread = started(hanging)
    holding.wait(HANGS_S)
    began = time.monotonic()
    with turns.of_screen():
        pass
    assert time.monotonic() - began >= PATIENCE_S
    assert thread.is_alive()
    release.set()
    thread.join(HANGS_S)
    with turns.of_screen(), threading.Lock():
        pass  # and it is free again
    assert not turns._turn.locked()
