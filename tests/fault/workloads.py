"""workloads.py - what the clients of a history do.

    lock_set   W1  read a set under a lease, think longer than the TTL, write it with one element
                   more: an element that vanishes is a lost update
    zombies    W2  never release, stop for up to three TTLs (also with half a request sent), then
                   write with every token they ever had
    register   W4  holders write, delete, renew, release or forget, and some go on after that;
                   readers read everything
    retries    W6  each request is sent one to three times, late and out of order

A workload is a class: RESOURCES, CLIENTS, and bodies(clients, stopped): one function for each
thread; stopped is an Event, after which they are to come to their end. All choices come from the
clients' own random numbers.

A token whose write has an unknown outcome does not write that key again: so the checker can tell
which write a row of the ledger belongs to.
"""
import functools
import heapq
import json
import queue
import threading
import time

HELD_PAUSE_S = (0.005, 0.03)  # before somebody asks again for what is held
AWAY_PAUSE_S = 0.02  # before somebody asks again what could not be answered


def _names(count):
    return [f"r{number}" for number in range(1, count + 1)]


def _rest(client, stopped):
    """After a refused or unknown acquire."""
    held = client.code == "lease_held"
    stopped.wait(client.random.uniform(*HELD_PAUSE_S) if held else AWAY_PAUSE_S)


class LockSet:
    """W1."""

    RESOURCES, CLIENTS = _names(5), 10
    KEY = "set"

    def __init__(self, ttl_ms=250, think_s=0.4):
        self.ttl_ms, self.think_s = ttl_ms, think_s

    def _add(self, client, stopped):
        lease = client.acquire(client.random.choice(self.RESOURCES), self.ttl_ms)
        if lease is None:
            return _rest(client, stopped)
        read = client.read(lease["res"], self.KEY)
        if read or client.code == "record_not_found":
            elements = json.loads(read["value"]) if read else []
            # Half of them hurry, so that most of the work is done by holders.
            slow = client.random.random() < 0.5
            stopped.wait(client.random.uniform(0, self.think_s if slow else self.think_s / 8))
            elements.append(f"{client.number}-{client.asked}")
            client.write(lease, self.KEY, json.dumps(elements))
        return client.release(lease)

    def _client(self, client, stopped):
        while not stopped.is_set():
            self._add(client, stopped)

    def bodies(self, clients, stopped):
        return [functools.partial(self._client, client, stopped) for client in clients]


class Zombies:
    """W2."""

    RESOURCES, CLIENTS = _names(5), 20
    KEYS = ("a", "b")
    REMEMBERED = 12  # tokens for each client

    def __init__(self, ttl_ms=300):
        self.ttl_ms = ttl_ms

    def _use(self, client, leases, lease):
        """One use of a lease, whatever became of it. False: its token is to be forgotten."""
        key, what = client.random.choice(self.KEYS), client.random.random()
        if what < 0.65:
            stop_s = client.random.uniform(0.5, 1.5) * self.ttl_ms / 1000
            slowly_s = stop_s if client.random.random() < 0.03 else 0
            value = f"{client.p}-{lease['token']}-{client.random.getrandbits(32):x}"
            return client.write(lease, key, value, slowly_s=slowly_s) or not client.unknown
        if what < 0.68:
            another = client.random.choice(leases)["lease"]
            return client.write(lease, key, f"{client.p}-{another}", shown=another) or \
                not client.unknown
        if what < 0.75:
            client.read(lease["res"], key, lease)
        elif what < 0.85:
            client.check(lease)
        elif what < 0.92:
            client.renew(lease)
        else:
            client.read(lease["res"], key)
        return True

    def _client(self, client, stopped):
        leases = []
        while not stopped.is_set():
            if not leases or client.random.random() < 0.2:
                lease = client.acquire(client.random.choice(self.RESOURCES), self.ttl_ms)
                leases = (leases + [lease])[-self.REMEMBERED:] if lease else leases
            if leases:
                # The newest is the most interesting one: the others are refused nearly always.
                lease = leases[-1] if client.random.random() < 0.6 else client.random.choice(leases)
                if not self._use(client, leases, lease):
                    leases.remove(lease)
            ttl_s = self.ttl_ms / 1000
            long = client.random.random() < 0.02
            stopped.wait(client.random.uniform(0.5, 3) * ttl_s if long
                         else client.random.uniform(0, 0.06))

    def bodies(self, clients, stopped):
        return [functools.partial(self._client, client, stopped) for client in clients]


class Register:
    """W4."""

    RESOURCES, CLIENTS = _names(20), 14
    KEYS = ("a", "b")
    READERS = 4

    def __init__(self, ttls_ms=(300, 1200)):
        self.ttls_ms = ttls_ms

    def _step(self, client, lease, key):
        """One write or renewal by a holder. False: enough."""
        what = client.random.random()
        if what < 0.6:
            value = f"{client.p}-{lease['token']}-{client.random.getrandbits(32):x}"
            return client.write(lease, key, value) is not None
        if what < 0.7:
            client.delete(lease, key)
            return not client.unknown
        if what < 0.8:
            client.renew(lease)
        else:
            client.read(lease["res"], key, lease)
        return True

    def _holder(self, client, stopped):
        while not stopped.is_set():
            lease = client.acquire(client.random.choice(self.RESOURCES),
                                   client.random.randint(*self.ttls_ms))
            if lease is None:
                _rest(client, stopped)
                continue
            for _ in range(client.random.randint(1, 12)):
                if not self._step(client, lease, client.random.choice(self.KEYS)):
                    break
                stopped.wait(client.random.uniform(0, 0.02))
            if client.random.random() < 0.7:
                client.release(lease)
                if client.random.random() < 0.2:
                    self._step(client, lease, "late")

    def _reader(self, client, stopped):
        while not stopped.is_set():
            client.read(client.random.choice(self.RESOURCES), client.random.choice(self.KEYS))
            stopped.wait(client.random.uniform(0, 0.03))

    def bodies(self, clients, stopped):
        return [functools.partial(self._reader if at < self.READERS else self._holder, client,
                                  stopped) for at, client in enumerate(clients)]


class Post:
    """Carries out calls later, in the order of their times, by whichever carrier is free."""

    def __init__(self):
        self.heap, self.count, self.condition = [], 0, threading.Condition()

    def put(self, delay_s, call):
        with self.condition:
            self.count += 1
            heapq.heappush(self.heap, (time.monotonic() + delay_s, self.count, call))
            self.condition.notify()

    def _next(self, stopped):
        """The next call that is due; None when all is over."""
        with self.condition:
            while not stopped.is_set():
                left = self.heap[0][0] - time.monotonic() if self.heap else 0.05
                if self.heap and left <= 0:
                    return heapq.heappop(self.heap)[2]
                self.condition.wait(min(left, 0.05))
            return None

    def carry(self, client, stopped):
        while call := self._next(stopped):
            call(client)


class Retries:
    """W6. Planners decide, carriers send. Writes are conditional on the version before, so that of
    all copies of a write at most one may be accepted."""

    RESOURCES, CLIENTS = _names(6), 14
    PLANNERS = 4
    KEY = "a"

    def __init__(self, ttl_ms=400):
        self.ttl_ms = ttl_ms
        self.post = Post()

    def _send(self, planner, call):
        """Sends one to three copies, the first soon; returns the first answer that is no None, None
        when none came within a TTL or so."""
        answers = queue.Queue()
        copies = planner.random.randint(1, 3)
        for copy in range(copies):
            delay_ms = planner.random.uniform(0, 2 * self.ttl_ms if copy else 15)
            self.post.put(delay_ms / 1000, lambda carrier: answers.put(call(carrier)))
        deadline = time.monotonic() + 1.5 * self.ttl_ms / 1000
        for _ in range(copies):
            try:
                answer = answers.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                return None
            if answer is not None:
                return answer
        return None

    def _round(self, planner, stopped):
        res = planner.random.choice(self.RESOURCES)
        lease = self._send(planner, lambda carrier: carrier.acquire(res, self.ttl_ms))
        read = planner.read(res, self.KEY) if lease else None
        if lease is None or (read is None and planner.code != "record_not_found"):
            return stopped.wait(AWAY_PAUSE_S)
        version = read["version"] if read else 0
        for number in range(planner.random.randint(1, 4)):
            value = f"{planner.p}-{lease['token']}-{number}"
            done = self._send(planner, functools.partial(self._write, lease, value, version))
            if done is None:
                break
            version = done["version"]
            if planner.random.random() < 0.3:
                self._send(planner, lambda carrier: carrier.renew(lease))
        return self._send(planner, lambda carrier: carrier.release(lease))

    def _write(self, lease, value, version, carrier):
        return carrier.write(lease, self.KEY, value, expect=version)

    def _planner(self, client, stopped):
        while not stopped.is_set():
            self._round(client, stopped)

    def bodies(self, clients, stopped):
        return [functools.partial(self._planner if at < self.PLANNERS else self.post.carry, client,
                                  stopped) for at, client in enumerate(clients)]


WORKLOADS = {"lock_set": LockSet, "zombies": Zombies, "register": Register, "retries": Retries}


def settle(client, resources, bound_s):
    """Liveness: within bound_s every resource can be acquired, written, read and released. Returns
    what could not, as lines for people."""
    problems = []
    deadline = time.monotonic() + bound_s
    for res in resources:
        lease = client.acquire(res, 10000)
        while lease is None and time.monotonic() < deadline:
            time.sleep(0.02)
            lease = client.acquire(res, 10000)
        if lease is None:
            problems.append(f"liveness: {res} cannot be acquired: {client.code}")
            continue
        written = client.write(lease, "settled", f"{client.p}-{res}")
        read = client.read(res, "settled")
        if not (written and read and read["version"] == written["version"]):
            problems.append(f"liveness: {res} cannot be written: {client.code}")
        if client.release(lease) is None:
            problems.append(f"liveness: {res} cannot be released: {client.code}")
    return problems


def read_all(client, resources, keys):
    """The last word on each record, for checks that need one."""
    for res in resources:
        for key in keys:
            client.read(res, key)
