"""queues.py - people who wait for leases: each a connection of its own, in a known order.

    line = Line(gate, "r", wait_ms=30000)
    line.join(200)                                 # parked one behind the other, surely
    gate.release(holder)
    for waiter, answer in line.answers():          # as they come, from whomever
        ...

A waiter stands in the queue when join() returns: `waiters` of the resource counts it. So the order
in which they stand is the order of their numbers.
"""
import json
import selectors
import time

from harness import PATIENCE_S, eventually, segment
from outages import gateway
from wire import SOAK, Wire, request

LONG_MS = 120_000  # a TTL and a wait that no test outlasts
THOUSAND = 1000
CROWD = THOUSAND if SOAK else 200


def wait_request(resource, **fields):
    """The bytes of POST /leases."""
    body = {"resource": resource, "ttl_ms": LONG_MS, "wait_ms": LONG_MS, **fields}
    return request("POST", "/leases", (), json.dumps(body).encode())


def waiters_of(gate, resource):
    return gate.call("GET", f"/resources/{segment(resource)}").json()["waiters"]


def await_waiters(gate, resource, count):
    eventually(lambda: waiters_of(gate, resource) == count, what=f"{count} waiters for {resource}")


def give_back(gate, answer):
    """Releases what a 201 has granted."""
    assert answer.status == 201, (answer.status, answer.body)
    released = gate.call("DELETE", f"/leases/{answer.json()['lease_id']}")
    assert released.status == 200, released.body


class Waiter(Wire):
    """One who waits. `number`: its place in the order of joining, from 0."""

    def __init__(self, gate, number, resource, **fields):
        super().__init__(gate.port)
        self.number, self.wait_ms = number, fields.get("wait_ms", LONG_MS)
        self.sent_s = time.monotonic()
        self.send(wait_request(resource, owner=str(number), **fields))


class Line:
    """All who wait for one resource that somebody holds, and nobody else waits for."""

    def __init__(self, gate, resource, **fields):
        self.gate, self.resource, self.fields = gate, resource, fields
        self.waiting, self.joined = {}, 0  # by number
        self.selector = selectors.DefaultSelector()

    def join(self, count=1, **fields):
        """So many more, the last of whom is returned."""
        waiter = None
        for _ in range(count):
            waiter = Waiter(self.gate, self.joined, self.resource, **{**self.fields, **fields})
            self.joined += 1
            self.waiting[waiter.number] = waiter
            self.selector.register(waiter.socket, selectors.EVENT_READ, waiter)
            await_waiters(self.gate, self.resource, len(self.waiting))
        return waiter

    def drop(self, waiter):
        """It is not looked at any more."""
        del self.waiting[waiter.number]
        self.selector.unregister(waiter.socket)

    def leave(self, waiter, how):
        """Hangs up; `how`: Wire.close, Wire.reset or Wire.half_close."""
        self.drop(waiter)
        how(waiter)

    def answers(self, patience_s=PATIENCE_S):
        """Yields (waiter, answer) in the order in which they come, until all have one."""
        while self.waiting:
            ready = self.selector.select(patience_s)
            assert ready, f"no answer in {patience_s} s; {len(self.waiting)} wait still"
            for key, _ in ready:
                waiter = key.data
                answer = waiter.answer()
                assert answer is not None, f"{waiter.number} was cut off"
                self.drop(waiter)
                waiter.close()
                yield waiter, answer

    def served_in_order(self, patience_s=PATIENCE_S):
        """Each gets the lease and gives it back at once: checks that it goes by numbers, with
        rising tokens. Returns the numbers."""
        numbers, last = [], 0
        for waiter, answer in self.answers(patience_s):
            assert answer.status == 201, (waiter.number, answer.status, answer.body)
            token = answer.json()["fencing_token"]
            assert token > last, (token, last)
            last = token
            numbers.append(waiter.number)
            give_back(self.gate, answer)
        assert numbers == sorted(numbers), numbers
        return numbers

    def close(self):
        for waiter in list(self.waiting.values()):
            self.leave(waiter, Wire.close)
        self.selector.close()


def queued(scene, count, resource="r", **options):
    """A Redis, a gateway on it, a holder, and so many who wait for it."""
    redis = scene.redis()
    gate = gateway(scene, redis, **options)
    holder = gate.acquire(resource, ttl_ms=LONG_MS)
    line = scene.keep(Line(gate, resource))
    line.join(count)
    return redis, gate, holder, line
