"""The clock, the queue of events, and processes: what runs next is known, and the same each time.

An event has a time, and events of one time run in the order in which they were made. Nothing waits in real time.
Randomness comes from generators with a seed, one for each process, so that what one process draws changes nothing for
another one.
"""

from __future__ import annotations

import hashlib
import heapq
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

EPOCH_S = 1_700_000_000.0
"""What `time.time()` is when the clock shows 0."""

_SWITCH_S = 0.0002
"""Seconds until a thread that may go on does so. Without it a loop that never waits would stop the clock."""


_QUICK, _QUICK_SHARE = 20, 0.9
"""Turns in one moment that the application's thread gives the loop itself, and how often it does."""


_RESTLESS = 1000
"""Switches to an application's thread within a second that are no waiting."""


class KilledError(BaseException):
    """Ends the thread of a process that was killed; no handler of the program may catch it."""


class Violation(AssertionError):  # noqa: N818 - what a watcher has seen
    """What must hold does not; `rule` is its name."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Event:
    """Something that happens at a time, unless it is cancelled."""

    __slots__ = ("action", "at", "kind", "owner", "seq")

    def __init__(self, at: float, seq: int, kind: str, owner: Process | None, action: Callable[[], object]) -> None:
        self.at = at
        self.seq = seq
        self.kind = kind
        self.owner = owner
        self.action: Callable[[], object] | None = action

    def __lt__(self, other: Event) -> bool:
        return (self.at, self.seq) < (other.at, other.seq)

    def cancel(self) -> None:
        self.action = None


class World:
    """Runs events in the order of their times."""

    def __init__(self, seed: object = 0, *, noise: bool = True) -> None:
        self.now = 0.0
        self.seed = seed
        self.noise = noise
        self.current: Process | None = None
        self.events = 0
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.log: list[str] | None = None
        self.problems: list[Violation] = []
        self._digest = hashlib.blake2b(digest_size=16)
        self._last = "start"
        self._queue: list[Event] = []
        self._seq = 0

    def rng(self, name: object) -> random.Random:
        """Return a generator for this name; strings are seeds that do not depend on the hash seed of the process."""
        return random.Random(f"{self.seed}/{name}")

    def at(self, when: float, kind: str, action: Callable[[], object], owner: Process | None = None) -> Event:
        self._seq += 1
        event = Event(max(when, self.now), self._seq, kind, owner, action)
        heapq.heappush(self._queue, event)
        return event

    def later(self, delay_s: float, kind: str, action: Callable[[], object], owner: Process | None = None) -> Event:
        return self.at(self.now + delay_s, kind, action, owner)

    def note(self, kind: str, detail: str = "") -> None:
        """Add to the trace of this run, by which two runs are compared, and to the coverage of pairs."""
        line = f"{self.now:.6f} {kind} {detail}"
        self._digest.update(line.encode())
        if self.log is not None:
            self.log.append(line)
        self.pairs[self._last, kind] += 1
        self._last = kind

    def trace(self) -> str:
        return self._digest.hexdigest()

    def violated(self, rule: str, text: str) -> None:
        self.problems.append(Violation(rule, f"at {self.now:.3f} s: {text}"))

    def run(self, until: float) -> None:
        """Run the events up to a time, or up to the first violation."""
        queue = self._queue
        while queue and not self.problems:
            if queue[0].at > until:
                break
            event = heapq.heappop(queue)
            action, owner = event.action, event.owner
            if action is None or (owner is not None and owner.dead):
                continue
            if owner is not None and owner.paused_until > event.at:
                event.at = owner.paused_until
                self._seq += 1
                event.seq = self._seq
                heapq.heappush(queue, event)
                continue
            self.now = max(self.now, event.at)
            self.events += 1
            event.action = None
            self.current = owner
            action()
            self.current = None
        else:
            return
        self.now = max(self.now, until)


class Process:
    """Something that can be killed and suspended: a member or a broker."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self.paused_until = 0.0
        self.rng = world.rng(name)

    def pause(self, seconds: float) -> None:
        self.paused_until = max(self.paused_until, self.world.now + seconds)


class Broker(Process):
    """A broker."""

    def __init__(self, world: World, node: int, rack: str | None) -> None:
        super().__init__(world, f"broker-{node}")
        self.node, self.rack = node, rack
        self.incarnation = 0
        self.fenced = False

    @property
    def address(self) -> tuple[str, int]:
        return ("broker", 9000 + self.node)


class ClientProcess(Process):
    """A process with a client, whose loop for input and output the world gives its turns."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._turn: Event | None = None
        self._alarm: Event | None = None
        self.ended = False
        self.loop: Any = None

    def wake_loop(self) -> None:
        """Give the loop a turn now, unless it has one already."""
        if self._turn is None and not self.dead:
            self._turn = self.world.later(0.0, "loop", self._take_turn, self)

    def _take_turn(self) -> None:
        self._turn = None
        if self.loop is None:
            return
        next_at = self.loop.turn()
        if self._alarm is not None:
            if self._alarm.at == next_at and self._alarm.action is not None:
                return
            self._alarm.cancel()
        self._alarm = None if next_at is None else self.world.at(next_at, "timer", self.wake_loop, self)

    def kill(self) -> None:
        """End it at once: none of its code has an effect any more."""
        self.dead = True
        if self.loop is not None:
            self.loop.destroy()


class ThreadedProcess(ClientProcess):
    """A process with an application's thread besides the loop.

    The thread is a real one, but it runs only between `_resume` and `_park`, while the world waits for it.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._may_run, self._has_parked = threading.Lock(), threading.Lock()
        self._may_run.acquire()
        self._has_parked.acquire()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._waiting: object = None
        self.in_application = False
        self._quick, self._quick_at = 0, -1.0
        self._switches = (-1, 0)

    def application(self) -> None:
        """Run what the thread runs."""

    def start(self) -> None:
        self._thread.start()
        self.world.later(0.0, "start", self._resume, self)

    def _run(self) -> None:
        self._may_run.acquire()
        try:
            if not self.dead:
                self.application()
        except KilledError:
            pass
        except BaseException as error:  # noqa: BLE001 - reported by the world
            if not self.dead:
                self.world.violated("the application goes on", f"{self.name}: {error!r}")
        self.ended = True
        self._has_parked.release()

    def _resume(self) -> None:
        second = int(self.world.now)
        self._switches = (second, self._switches[1] + 1 if self._switches[0] == second else 1)
        if self._switches[1] == _RESTLESS:
            self.world.violated("polls wait", f"{self.name} takes {_RESTLESS} turns in a second")
        self.in_application = True
        self._may_run.release()
        self._has_parked.acquire()
        self.in_application = False

    def _park(self) -> None:
        if not self.dead:
            self._has_parked.release()
            self._may_run.acquire()
        if self.dead:
            raise KilledError

    def _give_turns(self) -> None:
        """Give the loop its next turn, with which much is done.

        Then mostly no thread is switched to, which takes far longer.
        """
        if self._quick_at != self.world.now:
            self._quick_at, self._quick = self.world.now, 0
        if self._quick < _QUICK and self._turn is not None and self.rng.random() < _QUICK_SHARE:
            self._quick += 1
            self._turn.cancel()
            self.in_application = False
            self._take_turn()
            self.in_application = True

    def wait(self, future: Any) -> None:
        """Wait on the application's thread until a future is done."""
        self._give_turns()
        while not future.is_done:
            self._waiting = token = object()

            def wake(_: object, token: object = token) -> None:
                if self._waiting is token:
                    self._waiting = None
                    self.world.later(_SWITCH_S, "app", self._resume, self)

            future.add_both(wake)
            self._park()

    def sleep(self, seconds: float) -> None:
        self.world.later(max(seconds, _SWITCH_S), "app", self._resume, self)
        self._park()

    def kill(self) -> None:
        super().kill()
        # Its thread is unwound.
        if not self.ended and self._thread.is_alive() and not self.in_application:
            self._resume()
