"""The screen looks when something changed, and when it said; no more often than it may."""

import asyncio
import threading

from gpumon.tui.waking import Waker

LEAST_S = 0.05


async def looking(again_s=None):
    """A waker, and the times at which it looked."""
    loop, times = asyncio.get_running_loop(), []

    def look():
        times.append(loop.time())
        waker.look_in(again_s)

    waker = Waker(look, LEAST_S)
    return waker, times


async def reached(times, count):
    while len(times) < count:
        await asyncio.sleep(0.01)


async def test_a_change_is_looked_at_from_any_thread():
    waker, times = await looking()
    thread = threading.Thread(target=waker.wake)
    thread.start()
    await reached(times, 1)
    thread.join()
    await asyncio.sleep(3 * LEAST_S)
    assert len(times) == 1  # nothing changed any more


async def test_many_changes_are_one_look():
    waker, times = await looking()
    for _ in range(100):
        waker.wake()
    await reached(times, 1)
    began = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < began + 6 * LEAST_S:
        waker.wake()
        await asyncio.sleep(0)
    gaps = [later - before for before, later in zip(times, times[1:])]
    assert gaps
    assert min(gaps) >= 0.99 * LEAST_S


async def test_it_looks_again_when_it_said():
    waker, times = await looking(again_s=2 * LEAST_S)
    waker.wake()
    await reached(times, 3)
    assert min(later - before for before, later in zip(times, times[1:])) >= 1.99 * LEAST_S


async def test_a_change_is_not_put_off_by_a_later_look():
    waker, times = await looking(again_s=3600.0)
    waker.wake()
    await reached(times, 1)
    waker.wake()
    waker.look_in(3600.0)
    await reached(times, 2)


async def test_a_change_after_the_end_is_nobodys():
    waker, _ = await looking()
    ended = asyncio.new_event_loop()
    ended.close()
    waker._loop = ended
    waker.wake()
