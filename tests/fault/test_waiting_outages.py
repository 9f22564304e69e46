#!/usr/bin/python3
"""test_waiting_outages.py - Redis or the gateway goes away while a crowd waits for a lease.

Each who waits gets its lease, or a clear refusal, by its own deadline, and those who stay keep
their order; newcomers are refused at once. Nothing of those who waited is in the way afterwards.

SOAK=1 makes all crowds as large (200 -> 1,000); SEED repeats a run.
"""
import os
import re
import signal
import time

from harness import Scene, case, eventually, run_cases
from outages import again, expect, gateway, holders_key, is_degraded
from queues import (CROWD, LONG_MS, THOUSAND, Line, Waiter, await_waiters, give_back, queued,
                    waiters_of)
from wire import SEED, SOAK, Wire, dice, raise_own_limit

SHORT_MS = 4000  # a wait that ends while Redis is away

# ---- Redis goes away ----------------------------------------------------------------------------


def staggered(line, count):
    """Of the last sixty every third waits for SHORT_MS only, all others for as long as it takes."""
    line.join(count - 60)
    for number in range(60):
        line.join(wait_ms=SHORT_MS if number % 3 == 0 else LONG_MS)


def outage(gate, line, holder, end):
    """Redis is away by now; `end` brings it back. Newcomers are refused at once, who does not wait
    long is told at its deadline, the others are served in order afterwards."""
    eventually(lambda: is_degraded(gate), what="degraded")
    for resource in ("r", "another"):
        started = time.monotonic()
        expect(gate.try_acquire(resource, wait_ms=LONG_MS), 503, "redis_unavailable")
        assert time.monotonic() - started < 5
    assert gate.put("r", "k", holder.token, b"x").status in (200, 201)
    expect(gate.release(holder), 200)  # the store knows it, Redis will
    for waiter in [w for w in line.waiting.values() if w.wait_ms == SHORT_MS]:
        answer = waiter.answer()
        late_s = time.monotonic() - waiter.sent_s - waiter.wait_ms / 1000
        assert answer.code in ("lease_held", "redis_unavailable"), answer
        assert -0.002 < late_s < 5, f"{waiter.number} was told {late_s:.1f} s late"
        line.leave(waiter, Wire.close)
    await_waiters(gate, "r", line.joined - 20)
    end()
    assert len(line.served_in_order()) == line.joined - 20


@case
def redis_is_stopped_and_goes_on():
    with Scene() as scene:
        redis, gate, holder, line = queued(scene, 0)
        staggered(line, THOUSAND)
        redis.signal(signal.SIGSTOP)
        outage(gate, line, holder, lambda: redis.signal(signal.SIGCONT))


@case
def redis_is_killed_and_started_again():
    with Scene() as scene:
        redis, gate, holder, line = queued(scene, 0)
        staggered(line, THOUSAND)
        redis.kill()
        outage(gate, line, holder, lambda: again(scene, redis))


@case
def its_own_redis_is_killed():
    with Scene() as scene:
        gate = scene.gateway()
        holder = gate.acquire("r", ttl_ms=LONG_MS)
        line = scene.keep(Line(gate, "r"))
        line.join(50)
        pid = int(re.findall(r"redis-server started pid=(\d+)", gate.log())[-1])
        os.kill(pid, signal.SIGKILL)
        expect(gate.release(holder), 200)
        assert line.served_in_order() == list(range(50))


@case
def redis_is_emptied():
    with Scene() as scene:
        redis, gate, holder, line = queued(scene, THOUSAND)
        redis.command("FLUSHALL")
        time.sleep(0.1)
        assert waiters_of(gate, "r") in (THOUSAND, THOUSAND - 1)
        assert gate.put("r", "k", holder.token, b"x").status in (201, 412)
        gate.release(holder)
        assert line.served_in_order() == list(range(THOUSAND))


@case
def redis_is_emptied_while_they_are_served():
    with Scene() as scene:
        redis, gate, holder, line = queued(scene, CROWD)
        expect(gate.release(holder), 200)
        tokens, served = [], []
        for waiter, answer in line.answers():
            assert answer.status == 201, answer
            tokens.append(answer.json()["fencing_token"])
            served.append(waiter.number)
            if len(served) % 10 == 5:
                redis.command("FLUSHALL")
            gate.call("DELETE", f"/leases/{answer.json()['lease_id']}")
        assert tokens == sorted(set(tokens)) and served == sorted(served)


@case
def redis_refuses_for_a_while():
    """The link is up, but nothing is granted: out of memory."""
    with Scene() as scene:
        redis, gate, holder, line = queued(scene, 20)
        redis.command("CONFIG", "SET", "maxmemory", 1)
        expect(gate.release(holder), 200)
        eventually(lambda: gate.try_acquire("another").status == 503, what="a refusal")
        expect(gate.try_acquire("another", wait_ms=LONG_MS), 503, "redis_unavailable")
        time.sleep(1.5)
        assert waiters_of(gate, "r") == 20
        redis.command("CONFIG", "SET", "maxmemory", 0)
        assert line.served_in_order() == list(range(20))


@case
def redis_goes_to_another_store():
    with Scene() as scene:
        redis, gate, holder, line = queued(scene, 20)
        ours = redis.command("GET", "fencegate:store")
        redis.command("SET", "fencegate:store", "another")
        expect(gate.release(holder), 200)
        for _, answer in line.answers():
            expect(answer, 503, "store_mismatch")
        redis.command("SET", "fencegate:store", ours)
        eventually(lambda: gate.try_acquire("r").status == 201, what="a lease")


@case
def redis_comes_and_goes_under_a_queue():
    with Scene() as scene:
        redis, gate, holder, line = queued(scene, CROWD)
        random = dice()
        expect(gate.release(holder), 200)
        served = []
        for waiter, answer in line.answers():
            assert answer.status == 201, answer
            served.append(waiter.number)
            if random.random() < 0.1:
                redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            gate.call("DELETE", f"/leases/{answer.json()['lease_id']}")
        # A grant whose answer is lost is made anew, for the one who is first then: itself.
        assert served == sorted(served), served
        assert len(served) == CROWD


@case
def a_thousand_queues_go_on_when_redis_is_back():
    """It has forgotten all holders: each queue's first one is granted the resource."""
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        count = THOUSAND if SOAK else 400
        names = [f"r{number}" for number in range(count)]
        holders = [gate.acquire(name, ttl_ms=LONG_MS) for name in names]
        waiters = [Waiter(gate, 0, name) for name in names]
        for name in names:
            await_waiters(gate, name, 1)
        redis.kill()
        eventually(lambda: is_degraded(gate), what="degraded")
        again(scene, redis)
        for waiter, holder in zip(waiters, holders):
            answer = waiter.answer()
            assert answer.status == 201, answer
            assert answer.json()["fencing_token"] > holder.token
            waiter.close()
        expect(gate.put(names[0], "k", holders[0].token, b"x"), 412, "stale_fencing_token")


# ---- The gateway goes away ----------------------------------------------------------------------


@case
def a_stop_tells_all_at_once():
    with Scene() as scene:
        _, gate, holder, line = queued(scene, THOUSAND)
        started = time.monotonic()
        gate.signal(signal.SIGTERM)
        for _, answer in line.answers():
            expect(answer, 503, "draining")
        took_s = time.monotonic() - started
        print(f"      {THOUSAND} answered in {took_s * 1000:.0f} ms")
        assert took_s < 5, took_s  # a second, on a machine that has nothing else to do
        gate.close()
        assert gate.wait() == 0
        assert holder.token == 1


@case
def a_stop_while_redis_does_not_answer_tells_all():
    with Scene() as scene:
        redis, gate, holder, line = queued(scene, 50)
        with redis.paused():
            expect(gate.release(holder), 200)  # the first one waits for Redis now
            gate.signal(signal.SIGTERM)
            for waiter, answer in line.answers():
                expect(answer, 503, "draining")
            gate.close()
            assert gate.wait() == 0


@case
def a_stop_while_they_are_served_loses_nobody():
    with Scene() as scene:
        _, gate, holder, line = queued(scene, CROWD)
        expect(gate.release(holder), 200)
        outcomes = []
        for waiter, answer in line.answers():
            outcomes.append(answer.status)
            if len(outcomes) == CROWD // 4:
                gate.signal(signal.SIGTERM)
                gate.close()
            elif answer.status == 201 and len(outcomes) < CROWD // 4:
                give_back(gate, answer)
            elif answer.status != 201:
                expect(answer, 503, "draining")
        assert outcomes.count(201) >= CROWD // 4 and len(outcomes) == CROWD
        assert gate.wait() == 0


@case
def after_a_kill_nobody_is_in_the_way():
    with Scene() as scene:
        redis, gate, holder, line = queued(scene, THOUSAND)
        gate.kill()
        line.close()
        gate = gateway(scene, redis)
        assert waiters_of(gate, "r") == 0
        expect(gate.try_acquire("r"), 409, "lease_held")  # it is held, by whom we have not told
        expect(gate.release(holder), 200)
        assert gate.try_acquire("r", ttl_ms=LONG_MS).status == 201
        assert gate.try_acquire("never seen", ttl_ms=LONG_MS).status == 201
        assert redis.command("ZCARD", holders_key("r")) == 1


@case
def a_kill_while_they_are_served_leaves_nothing_in_the_way():
    with Scene() as scene:
        redis = scene.redis()
        for turn in range(40 if SOAK else 6):
            gate = gateway(scene, redis)
            resource = f"r{turn}"
            holder = gate.acquire(resource, ttl_ms=LONG_MS)
            line = scene.keep(Line(gate, resource))
            line.join(30)
            expect(gate.release(holder), 200)
            due = dice().randrange(1, 25)
            for count, (_, answer) in enumerate(line.answers()):
                give_back(gate, answer)
                if count == due:
                    break
            gate.kill()
            gate = gateway(scene, redis)
            # Who was granted the lease and never told holds it, in the store; nobody else does.
            live = gate.call("GET", f"/leases?resource={resource}").json()["items"]
            assert len(live) <= 1, live
            if live:
                gate.call("POST", f"/resources/{resource}/revoke", {"reason": "its client is gone"})
            assert gate.try_acquire(resource, ttl_ms=LONG_MS).status == 201
            assert redis.command("ZCARD", holders_key(resource)) == 1
            assert gate.stop() == 0


if __name__ == "__main__":
    print(f"SEED={SEED}")
    raise_own_limit(4096)
    run_cases()
