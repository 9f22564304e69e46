#!/usr/bin/python3
"""test_hangups.py - clients that wait for a lease and hang up: at any moment, in any way.

Who leaves (FIN, RST, or only its half) leaves the queue at once and gets nothing. What it had been
granted, and was never told, is ended at once: in the store first, with the reason client_gone. What
it was told costs at most its TTL.

SOAK=1: 10,000 of them instead of 1,000. SEED repeats the choices.
"""
import collections
import random
import signal
import threading
import time

from harness import Scene, case, eventually, run_cases
from outages import expect, holders_key
from queues import LONG_MS, Line, Waiter, await_waiters, give_back, wait_request, waiters_of
from wire import (SEED, SOAK, Wire, descriptors, descriptors_return, dice, raise_own_limit)

WAYS = {"close": Wire.close, "reset": Wire.reset, "half_close": Wire.half_close}


def held(scene, count, faults="", **options):
    """A gateway with a Redis, a holder, and so many who wait."""
    redis = scene.redis()
    gate = scene.gateway(redis=redis, faults=faults, options=("--redis-timeout-ms", "20000"),
                         **options)
    holder = gate.acquire("r", ttl_ms=LONG_MS)
    line = scene.keep(Line(gate, "r"))
    line.join(count)
    return redis, gate, holder, line


def rows(gate, kind, resource="r"):
    return [row for row in gate.history(resource) if row["kind"] == kind]


def owners(gate, kind):
    return [row["owner"] for row in rows(gate, kind)]


# ---- At chosen moments --------------------------------------------------------------------------


@case
def who_leaves_the_queue_is_gone_at_once():
    with Scene() as scene:
        _, gate, holder, line = held(scene, 60)
        base = descriptors(gate)
        for count, number in enumerate(dice().sample(range(60), 45)):
            waiter = line.waiting[number]
            line.leave(waiter, list(WAYS.values())[count % 3])
            await_waiters(gate, "r", 60 - count - 1)
            if count % 3 == 2:
                assert waiter.ended(), "a half-closed connection is closed without an answer"
        descriptors_return(gate, base - 45)
        expect(gate.release(holder), 200)
        stayed = sorted(line.waiting)
        assert line.served_in_order() == stayed
        assert owners(gate, "grant") == [None, *map(str, stayed)]


@case
def who_leaves_with_its_request_never_stands_in_the_queue():
    """The end of the connection comes with the last byte, or just behind it."""
    with Scene() as scene:
        _, gate, holder, line = held(scene, 0)
        base, pause = descriptors(gate), dice()
        kept = line.join()
        for way in WAYS.values():
            for _ in range(100):
                waiter = Waiter(gate, -1, "r")
                if pause.random() < 0.5:
                    time.sleep(pause.uniform(0, 0.002))
                way(waiter)
            await_waiters(gate, "r", 1)
        # Behind a request that is answered first, too.
        for way in WAYS.values():
            for _ in range(20):
                wire = Wire(gate.port)
                wire.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" + wait_request("r"))
                way(wire)
            await_waiters(gate, "r", 1)
        descriptors_return(gate, base)
        expect(gate.release(holder), 200)
        assert line.served_in_order() == [kept.number]
        assert owners(gate, "grant") == [None, "0"]


@case
def who_leaves_with_requests_behind_its_wait_is_noticed():
    """What was sent ahead is not read while it waits; the end behind it is seen all the same."""
    with Scene() as scene:
        _, gate, holder, _ = held(scene, 0)
        for way in WAYS.values():
            wires = [Wire(gate.port) for _ in range(10)]
            for wire in wires:
                wire.send(wait_request("r") + b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
            await_waiters(gate, "r", 10)
            for wire in wires:
                way(wire)
            await_waiters(gate, "r", 0)
        expect(gate.release(holder), 200)
        assert owners(gate, "grant") == [None]


def _leaves_while_redis_decides(way):
    with Scene() as scene:
        redis, gate, holder, line = held(scene, 3)
        first = line.waiting[0]
        with redis.paused():
            expect(gate.release(holder), 200)  # the first one's attempt is on its way
            line.leave(first, way)
            line.leave(line.waiting[1], way)
            await_waiters_at_most(gate, 2)
            time.sleep(0.2)
        assert line.served_in_order() == [2]
        # What Redis had granted is undone; the store has never heard of it.
        assert owners(gate, "grant") == [None, "2"]
        eventually(lambda: redis.command("ZCARD", holders_key("r")) == 0, what="no holder")


def await_waiters_at_most(gate, count):
    eventually(lambda: waiters_of(gate, "r") <= count, what=f"at most {count} waiters")


@case
def who_leaves_while_redis_decides_is_granted_nothing():
    for way in WAYS.values():
        _leaves_while_redis_decides(way)


def _leaves_while_its_grant_is_committed(way):
    """The writer sleeps before the second grant: the client leaves meanwhile."""
    with Scene() as scene:
        redis, gate, holder, line = held(scene, 3, faults="before_fence=sleep(700)@2")
        first = line.waiting[0]
        expect(gate.release(holder), 200)
        eventually(lambda: "name=before_fence" in gate.log(), what="the commit")
        line.leave(first, way)
        assert line.served_in_order() == [1, 2]
        grants = rows(gate, "grant")
        assert [row["owner"] for row in grants] == [None, "0", "1", "2"], grants
        gone = [row for row in rows(gate, "release") if row["owner"] == "0"]
        assert [row["reason"] for row in gone] == ["client_gone"], gone
        answer = gate.put("r", "k", grants[1]["fencing_token"], b"x")
        assert (answer.code, answer.json()["reason"]) == ("stale_fencing_token", "released"), answer
        eventually(lambda: redis.command("ZCARD", holders_key("r")) == 0, what="no holder")


@case
def who_leaves_while_its_grant_is_committed_has_it_ended_at_once():
    for way in WAYS.values():
        _leaves_while_its_grant_is_committed(way)


@case
def who_leaves_with_its_answer_costs_at_most_the_ttl():
    with Scene() as scene:
        gate = scene.gateway()
        for way in WAYS.values():
            holder = gate.acquire("r", ttl_ms=LONG_MS)
            line = scene.keep(Line(gate, "r"))
            first = line.join(ttl_ms=300)
            line.join()
            expect(gate.release(holder), 200)
            answer = first.answer()
            assert answer.status == 201
            line.leave(first, way)
            assert line.served_in_order() == [1]


@case
def a_crowd_that_hangs_up_at_once_is_gone_at_once():
    with Scene() as scene:
        count = 1000 if SOAK else 300
        _, gate, holder, line = held(scene, count)
        base = descriptors(gate) - count
        gate.signal(signal.SIGSTOP)
        for number in range(count):
            if number % 100 != 50:
                line.leave(line.waiting[number], list(WAYS.values())[number % 3])
        gate.signal(signal.SIGCONT)
        stayed = sorted(line.waiting)
        await_waiters(gate, "r", len(stayed))
        expect(gate.release(holder), 200)
        assert line.served_in_order() == stayed
        descriptors_return(gate, base)


# ---- At any moment ------------------------------------------------------------------------------


class Party:
    """Honest workers, who take a lease, hold it and give it back; and guests, who hang up."""

    RESOURCES = ("a", "b", "c")

    def __init__(self, gate, guests):
        self.gate, self.left = gate, guests
        self.lock = threading.Lock()
        self.outcomes = collections.Counter()
        self.errors = []

    def run(self, workers=4, hosts=8):
        threads = [threading.Thread(target=self._guarded, args=(self._guest, i), daemon=True)
                   for i in range(hosts)]
        threads += [threading.Thread(target=self._guarded, args=(self._worker, i), daemon=True)
                    for i in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _guarded(self, body, number):
        try:
            body(number, random.Random(f"{SEED}-{body.__name__}-{number}"))
        except Exception as error:  # the main thread raises it
            self.errors.append(error)

    def _next(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0 and not self.errors

    def _worker(self, number, choose):
        client = self.gate.client()
        while self.left > 0 and not self.errors:
            resource = choose.choice(self.RESOURCES)
            lease = client.acquire(resource, ttl_ms=LONG_MS, wait_ms=LONG_MS, owner="worker")
            assert client.put(resource, "k", lease.token, b"%d" % number).status in (200, 201)
            time.sleep(choose.choice([0, 0, 0, 0.002]))
            expect(client.release(lease), 200)
            self.outcomes["worked"] += 1
        client.close()

    def _guest(self, _number, choose):
        ways = list(WAYS.values())
        while self._next():
            wire = Wire(self.gate.port)
            wire.send(wait_request(choose.choice(self.RESOURCES), ttl_ms=60, owner="guest",
                                   wait_ms=choose.choice([5, 50, LONG_MS])))
            moment = choose.random()
            if moment < 0.85:
                time.sleep(choose.choice([0, 0.0002, 0.0005, 0.001, 0.002, 0.005]))
            else:  # with the answer, or in the middle of it
                wire.socket.settimeout(0.02)
                try:
                    wire.socket.recv(choose.choice([1, 65536]))
                except TimeoutError:
                    pass
            way = choose.choice(ways)
            way(wire)
            if way is Wire.half_close:
                wire.socket.settimeout(20)
                wire.ended()
                wire.close()


@case
def hangups_at_any_moment_leave_nothing_behind():
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        for resource in Party.RESOURCES:
            give_back(gate, gate.try_acquire(resource))
        base = descriptors(gate)
        party = Party(gate, 10_000 if SOAK else 1_000)
        party.run()
        assert party.outcomes["worked"] > 20, party.outcomes

        # No waiter, no descriptor; no lease but those that were told, for as long as their TTL.
        for resource in Party.RESOURCES:
            await_waiters(gate, resource, 0)
            lease = gate.acquire(resource, ttl_ms=LONG_MS, wait_ms=10_000)
            expect(gate.release(lease), 200)
            eventually(lambda r=resource: redis.command("ZCARD", holders_key(r)) == 0,
                       what="no holder")
            expect_ledger(gate, resource, party)
        descriptors_return(gate, base)
        assert gate.call("GET", "/leases").json()["items"] == []
        print(f"      {dict(party.outcomes)}")


def expect_ledger(gate, resource, party):
    """Each grant has ended once, those of the workers by their own hand."""
    history = gate.history(resource)
    ended = {}
    for row in history:
        if row["kind"] in ("release", "expire"):
            assert row["fencing_token"] not in ended, row
            ended[row["fencing_token"]] = row
    for row in history:
        if row["kind"] != "grant":
            continue
        end = ended.pop(row["fencing_token"])
        how = end["reason"] or end["kind"]
        allowed = ("client_gone", "expire", "expired_while_granting") if row["owner"] == "guest" \
            else ("release",)
        assert how in allowed, (row, end)
        party.outcomes[f"{row['owner']}: {how}"] += 1
    assert not ended, ended


if __name__ == "__main__":
    print(f"SEED={SEED}")
    raise_own_limit(4096)
    run_cases()
