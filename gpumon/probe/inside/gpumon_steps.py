"""The steps of a program, for gpumon's probe: how many, and how long one takes.

Runs where `gpumon_probe.py` runs, under the same rules.
"""

import sys
from _thread import allocate_lock as _lock
from collections import deque
from time import perf_counter as _clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MOST_TIMES = 1 << 17  # noted between two looks, 26,000 a second
_WINDOW_S = 10.0  # that times are of
_MOST_STEPS = 1 << 16  # times kept between two writings; beyond that they are only counted
_KEPT_TIMES = 200  # of those, at even distances, for percentiles
_MOST_OPTIMIZERS, _CHECKED_STEPS = 8, 8
_BY_NAME = 1  # stands for an optimizer where the program calls its steps


def is_whole(module: object) -> bool:
    """Whether it is imported to its end."""
    return module is not None and not getattr(
        getattr(module, "__spec__", None), "_initializing", False
    )


class Hook:
    """What torch calls after each step: it notes the time, and does no more than that.

    Between two steps the program has all caches for itself, so a hook takes ten times what it takes
    in a loop of its own, and the more the more it touches (benchmarks/probe.py).
    """

    __slots__ = ("aside", "times")

    def __init__(self) -> None:
        #: of steps; where it is known whose: (id, time)
        self.times: "deque[Any]" = deque(maxlen=_MOST_TIMES)
        self.aside: "Callable[[object], object] | None" = None  # called instead

    def step(self, optimizer: object, args: object, kwargs: object) -> None:
        try:
            if self.aside is None:
                self.times.append(_clock())
            else:
                self.aside(optimizer)
        except Exception:  # it is the program that steps
            self.aside = id

    step.__dict__["_torchdynamo_disable"] = True  # torch.compile would warn of the clock in it


class Steps:
    """Steps of torch's optimizers, or those that the program itself calls by that name.

    A program's step is that of the optimizer that makes the most, and of the one that follows it
    once it makes no more, as in several trials. Whose step it is, is looked at
    in the first few after each look of the thread, and in all while there are several optimizers.
    """

    def __init__(self) -> None:
        self._is_hooked = False
        self._hooking = _lock()
        self._hook = Hook()
        self._wake: "Callable[[], None]" = self.forget
        self.forget()

    def forget(self) -> None:
        # id of an optimizer -> [steps, time of the last, times since the last telling]
        self._of: "dict[int, list[Any]]" = {}
        self._steps, self._leads = 0, 0  # of all optimizers that led; which one leads
        self._since: "dict[int, int]" = {}  # steps of others since the last of that one
        self._window: "list[tuple[float, int, float, list[float]]]" = []
        self._whose, self._several_until = 0, 0.0  # by what was taken; in s
        self._hook.times.clear()
        self._hooking = _lock()  # another thread might have held it at a fork
        self._check()

    def hook(self, beside_others: bool = True) -> None:
        """Have torch call, once its optimizers are imported.

        `beside_others`: also where there are other such hooks; not from another thread, as torch
        might just be going over them.
        """
        module: "Any" = sys.modules.get("torch.optim.optimizer")
        if self._is_hooked or not is_whole(module) or not self._hooking.acquire(False):
            return
        register = getattr(module, "register_optimizer_step_post_hook", None)  # from torch 2.0 on
        others = getattr(module, "_global_optimizer_post_hooks", None)
        if not self._is_hooked and (beside_others or (others is not None and not others)):
            self._is_hooked = True
            if register is not None:
                register(self._hook.step)
        self._hooking.release()

    def _check(self) -> None:
        """Look at whose the next steps are."""
        self._checks, self._checked = _CHECKED_STEPS, 0
        self._hook.aside = self._aside

    def _aside(self, optimizer: object) -> None:
        whose, now = id(optimizer), _clock()
        self._hook.times.append((whose, now))
        self._checks -= 1
        if self._checked not in (0, whose):
            self._several_until = now + _WINDOW_S
        self._checked = whose
        if self._checks <= 0 and now > self._several_until:
            self._hook.aside = None

    def called(self) -> None:
        """The program calls this a step."""
        self._hook.times.append((_BY_NAME, _clock()))

    def wake_at_next(self, wake: "Callable[[], None]") -> None:
        """Call this at the next step."""
        self._wake, self._hook.aside = wake, self._woken

    def _woken(self, optimizer: object) -> None:
        self._check()
        self._aside(optimizer)
        self._wake()

    def stop(self) -> None:
        """Nobody looks any more."""
        self._hook.aside = id
        self._hook.times.clear()

    def look(self) -> bool:
        """Take what the hook noted; whether there ever was a step.

        Raises OverflowError if it could not note all.
        """
        times = self._hook.times
        if len(times) == _MOST_TIMES:
            raise OverflowError
        taken = [times.popleft() for _ in range(len(times))]
        for each in taken:
            whose, time = each if type(each) is tuple else (self._whose, each)
            if whose != _BY_NAME:
                self._whose = whose
            known = self._of.get(whose)
            if known is not None:
                known[0] += 1
                if len(known[2]) < _MOST_STEPS:
                    known[2].append(time - known[1])
                known[1] = time
            elif whose == _BY_NAME or self._has_room(time):
                self._of[whose] = [1, time, []]
            if whose != _BY_NAME and whose in self._of:
                self._count(whose)
        if taken:
            self._check()
        return bool(self._of)

    def _count(self, whose: int) -> None:
        since = self._since[whose] = self._since.get(whose, 0) + 1
        if whose == self._leads or since > 1 or not self._leads:
            self._steps += since
            self._leads, self._since = whose, {}

    def _has_room(self, now: float) -> bool:
        """For one more optimizer, in the place of one that has long made no step."""
        if len(self._of) >= _MOST_OPTIMIZERS:
            others = [whose for whose in self._of if whose != _BY_NAME]
            oldest = min(others, key=lambda whose: self._of[whose][1])
            if self._of[oldest][1] > now - _WINDOW_S:
                return False
            del self._of[oldest]
        return True

    def told(self, now: float) -> "dict[str, Any]":
        """Steps so far, and of the last ten seconds how long one took: mean, 95th percentile, s."""
        if not self.look():
            return {}
        named = self._of.get(_BY_NAME)
        most = named or self._of.get(self._leads) or max(self._of.values(), key=lambda o: o[0])
        times = sorted(most[2])
        for each in self._of.values():
            each[2] = []
        every = 1 + len(times) // _KEPT_TIMES
        self._window.append((now, len(times), sum(times), times[every // 2 :: every]))
        self._window = [part for part in self._window if part[0] > now - _WINDOW_S]
        told = {"steps": self._steps if named is None else named[0]}
        count = sum(part[1] for part in self._window)
        if count:
            told["step_s"] = sum(part[2] for part in self._window) / count
            told["step_p95_s"] = self._p95(count)
        return told

    def _p95(self, count: int) -> float:
        """Of the kept times, each of which stands for as many as its part had for each kept."""
        left = 0.05 * count
        kept = [(time, n / len(kept)) for _, n, _, kept in self._window for time in kept]
        kept.sort(reverse=True)
        for time, weight in kept:
            left -= weight
            if left < 0:
                return time
        return kept[-1][0]
