#!/usr/bin/python3
"""test_waiting.py - crowds that wait for a lease: order, the end of the wait, who may come in.

Each who waits gets its lease, or a clear refusal, by its own deadline; those who stay are served in
the order in which they came; a holder can always come in to release. Who hangs up: test_hangups.py;
Redis or the gateway going away: test_waiting_outages.py.

SOAK=1 makes the crowds larger (200 -> 1,000; one of 5,000); SEED repeats a run.
"""
import collections
import contextlib
import select
import threading
import time

from harness import Scene, case, eventually, run_cases
from outages import expect, holders_key
from queues import (CROWD, LONG_MS, Line, Waiter, await_waiters, give_back, queued, wait_request,
                    waiters_of)
from wire import (SEED, SOAK, Wire, descriptors, descriptors_return, dice, expect_memory, memory_kb,
                  raise_own_limit, request)

# ---- In order -----------------------------------------------------------------------------------


@case
def a_crowd_is_served_in_the_order_it_came():
    with Scene() as scene:
        _, gate, holder, line = queued(scene, CROWD)
        expect(gate.release(holder), 200)
        assert line.served_in_order() == list(range(CROWD))
        assert waiters_of(gate, "r") == 0
        grants = [row for row in gate.history("r") if row["kind"] == "grant"]
        assert [row["owner"] for row in grants] == [None, *map(str, range(CROWD))]


@case
def those_who_stay_keep_their_order():
    with Scene() as scene:
        _, gate, holder, line = queued(scene, CROWD)
        random, served, last = dice(), [], 0
        expect(gate.release(holder), 200)
        for waiter, answer in line.answers():
            assert answer.status == 201 and answer.json()["fencing_token"] > last, answer
            last = answer.json()["fencing_token"]
            served.append(waiter.number)
            if line.waiting and random.random() < 0.4:
                line.leave(random.choice(list(line.waiting.values())),
                           random.choice([Wire.close, Wire.reset, Wire.half_close]))
            give_back(gate, answer)
        assert served == sorted(served), served
        assert waiters_of(gate, "r") == 0


@case
def many_resources_have_a_queue_each():
    with Scene() as scene:
        gate = scene.gateway()
        count = 1000 if SOAK else 300
        raise_own_limit(2 * count + 100)
        holders = [gate.acquire(f"r{i}", ttl_ms=LONG_MS) for i in range(count)]
        waiters = [Waiter(gate, i, f"r{i}") for i in range(count)]
        for i in range(count):
            await_waiters(gate, f"r{i}", 1)
        for i in dice().sample(range(count), count):
            expect(gate.release(holders[i]), 200)
            answer = waiters[i].answer()
            assert (answer.status, answer.json()["resource"]) == (201, f"r{i}"), answer
            waiters[i].close()
        assert all(waiters_of(gate, f"r{i}") == 0 for i in range(count))


@case
def a_grant_that_loses_a_race_keeps_its_place():
    """A revocation overtakes the grant of the first one: it is made anew, and still the first."""
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis, options=("--redis-timeout-ms", "20000"))
        holder = gate.acquire("r", ttl_ms=LONG_MS)
        line = scene.keep(Line(gate, "r"))
        line.join(5)
        with redis.paused():
            expect(gate.release(holder), 200)  # the first one's attempt is on its way to Redis
            revoked = gate.call("POST", "/resources/r/revoke", {"reason": "test"})
            assert revoked.json() == {"revoked": [], "highest_fencing_token": 2}, revoked.body
        assert line.served_in_order() == list(range(5))


@case
def a_grant_that_finds_no_room_at_its_commit_is_first_again():
    """The limit falls between Redis' grant and its commit: the first one waits on, as the first."""
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis, options=("--redis-timeout-ms", "20000"))
        holders = [gate.acquire("r", ttl_ms=LONG_MS, limit=2) for _ in range(2)]
        line = scene.keep(Line(gate, "r"))
        line.join(4)
        with redis.paused(), Wire(gate.port) as settings:
            expect(gate.release(holders[0]), 200)  # the first one's attempt is on its way to Redis
            settings.send(request("PUT", "/resources/r", (), b'{"limit":1}'))
            eventually(lambda: gate.history("r")[-1]["reason"] == "limit 2 -> 1", what="the limit")
        await_waiters(gate, "r", 4)
        assert gate.call("GET", "/resources/r").json()["limit"] == 1
        expect(gate.release(holders[1]), 200)
        assert line.served_in_order() == list(range(4))


@case
def what_changes_while_the_first_one_asks_is_asked_again():
    """Its attempt, sent under the limit of 1, comes back in vain when the limit is 3 already."""
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis, options=("--redis-timeout-ms", "20000"))
        for _ in range(2):
            gate.acquire("r", ttl_ms=LONG_MS, limit=2)
        line = scene.keep(Line(gate, "r"))
        line.join(2)
        with redis.paused(), Wire(gate.port) as first, Wire(gate.port) as second:
            for wire, limit in ((first, 1), (second, 3)):
                wire.send(request("PUT", "/resources/r", (), b'{"limit":%d}' % limit))
                eventually(lambda: f"-> {limit}" in str(gate.history("r")[-1]["reason"]),
                           what="the limit")
        assert line.served_in_order() == [0, 1]


@case
def newcomers_do_not_take_what_runs_out():
    """Nobody gives anything back; many who do not want to wait ask all the time."""
    with Scene() as scene:
        gate = scene.gateway()
        holder = gate.acquire("r", ttl_ms=LONG_MS)
        line = scene.keep(Line(gate, "r", ttl_ms=60))
        line.join(20)
        asked = collections.Counter()
        done = threading.Event()

        def hurry():
            with contextlib.closing(gate.client()) as client:
                while not done.is_set():
                    asked[client.try_acquire("r", ttl_ms=60, owner="hurry").status] += 1

        threads = [threading.Thread(target=hurry, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        expect(gate.release(holder), 200)
        for waiter, answer in line.answers():
            assert answer.status == 201 or answer.code == "expired_while_granting", answer
        done.set()
        for thread in threads:
            thread.join()
        # No newcomer came in before the last of those who waited.
        owners = [row["owner"] for row in gate.history("r") if row["kind"] == "grant"]
        waited = [owner for owner in owners if owner not in (None, "hurry")]
        assert owners[1:len(waited) + 1] == waited, owners
        assert asked[409] > 20, asked


@case
def a_grant_that_the_store_refuses_is_told_to_one_alone():
    with Scene() as scene:
        redis, gate, holder, line = queued(scene, 5, faults="before_fence=error@2")
        expect(gate.release(holder), 200)
        outcomes = []
        for waiter, answer in line.answers():
            outcomes.append((waiter.number, answer.code))
            if answer.status == 201:
                give_back(gate, answer)
        assert outcomes[0] == (0, "store_unavailable"), outcomes
        assert outcomes[1:] == [(number, None) for number in range(1, 5)], outcomes
        eventually(lambda: redis.command("ZCARD", holders_key("r")) == 0, what="no holder")


@case
def a_grant_whose_answer_from_redis_is_lost_is_made_anew():
    with Scene() as scene:
        redis, gate, holder, line = queued(scene, 5, faults="after_redis_grant=error@2")
        expect(gate.release(holder), 200)
        assert line.served_in_order() == list(range(5))
        eventually(lambda: redis.command("ZCARD", holders_key("r")) == 0, what="no holder")


@case
def all_places_of_a_semaphore_are_handed_over():
    with Scene() as scene:
        gate = scene.gateway()
        holders = [gate.acquire("s", ttl_ms=LONG_MS, limit=10) for _ in range(10)]
        line = scene.keep(Line(gate, "s"))
        line.join(CROWD)
        held, served = list(holders), []
        for lease in held:
            expect(gate.release(lease), 200)
        for waiter, answer in line.answers():
            served.append((answer.json()["fencing_token"], waiter.number))
            assert len(gate.call("GET", "/resources/s").json()["holders"]) <= 10
            give_back(gate, answer)
        # Ten at once: who reads its answer first is chance, the tokens are not.
        assert [number for _, number in sorted(served)] == list(range(CROWD))


@case
def five_thousand_wait_for_one_resource():
    if not SOAK:
        return
    with Scene() as scene:
        raise_own_limit(6000)
        gate = scene.gateway()
        holder = gate.acquire("r", ttl_ms=LONG_MS)
        before_kb, base = memory_kb(gate), descriptors(gate)
        line = scene.keep(Line(gate, "r"))
        line.join(5000)
        print(f"      {(memory_kb(gate) - before_kb) / 5000:.1f} kB each")
        expect_memory(gate, before_kb, 5000 * 16)
        expect(gate.release(holder), 200)
        assert line.served_in_order(120) == list(range(5000))
        descriptors_return(gate, base)


@case
def a_release_is_not_overtaken_by_the_question_behind_it():
    """More is asked at once than Redis is told at once; the first of a queue has asked already when
    the release comes, and asks again behind it."""
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis, options=("--redis-timeout-ms", "20000"))
        holders = [gate.acquire("r", ttl_ms=LONG_MS, limit=2) for _ in range(2)]
        line = scene.keep(Line(gate, "r"))
        line.join(2)
        with redis.paused():
            settings = Wire(gate.port)
            settings.send(request("PUT", "/resources/r", (), b'{"limit":1}'))
            time.sleep(0.2)  # the first one asks, in vain
            crowd = [Waiter(gate, i, f"other {i}", wait_ms=0) for i in range(700)]
            time.sleep(0.5)
            for holder in holders:
                expect(gate.release(holder), 200)
        for waiter in crowd:
            assert waiter.answer().status == 201
            waiter.close()
        assert settings.answer().status == 200
        assert line.served_in_order() == [0, 1]


# ---- The end of the wait ------------------------------------------------------------------------


@case
def all_learn_the_end_of_their_wait():
    with Scene() as scene:
        gate = scene.gateway()
        gate.acquire("r", ttl_ms=LONG_MS, owner="H")
        random, waiters = dice(), []
        for number in range(CROWD):
            waiters.append(Waiter(gate, number, "r", wait_ms=random.randrange(1, 1500)))
        for waiter in waiters:
            answer = expect(waiter.answer(), 409, "lease_held")
            told = answer.json()
            elapsed_ms = (time.monotonic() - waiter.sent_s) * 1000
            assert waiter.wait_ms <= told["waited_ms"] <= elapsed_ms + 2, (waiter.wait_ms, told)
            assert told["holders"][0]["owner"] == "H", told
            waiter.close()
        assert waiters_of(gate, "r") == 0


@case
def a_grant_at_the_end_of_the_wait_is_one_or_the_other():
    with Scene() as scene:
        gate = scene.gateway()
        outcomes, moment = {201: 0, 409: 0}, dice()
        for _ in range(2000 if SOAK else 200):
            holder = gate.acquire("r", ttl_ms=LONG_MS)
            waiters = [Waiter(gate, i, "r", wait_ms=20) for i in range(3)]
            time.sleep(moment.uniform(0.005, 0.023))
            expect(gate.release(holder), 200)
            for waiter in waiters:
                answer = waiter.answer()
                outcomes[answer.status] += 1
                if answer.status == 201:
                    give_back(gate, answer)
                else:
                    expect(answer, 409, "lease_held")
                waiter.close()
            assert waiters_of(gate, "r") == 0
        print(f"      {outcomes}")
        assert outcomes[201] and outcomes[409], outcomes


@case
def a_gateway_that_was_paused_answers_all():
    with Scene() as scene:
        gate = scene.gateway()
        holder = gate.acquire("r", ttl_ms=LONG_MS)
        line = scene.keep(Line(gate, "r"))
        line.join(5)
        expect(gate.renew(holder, ttl_ms=1000), 200)
        hasty = [Waiter(gate, -1, "r", wait_ms=500) for _ in range(5)]
        with gate.paused():
            time.sleep(1.2)  # the lease and half of the waits are over meanwhile
        for waiter in hasty:
            expect(waiter.answer(), 409, "lease_held")
            waiter.close()
        assert line.served_in_order() == list(range(5))


# ---- Who may come in ----------------------------------------------------------------------------


@case
def a_holder_comes_in_however_many_want_to_wait():
    """Three times as many as there are connections, all of which keep theirs."""
    with Scene() as scene:
        for rounds in range(3):
            gate = scene.gateway(data=f"data{rounds}", options=("--max-connections", "16"))
            holder = gate.acquire("r", ttl_ms=LONG_MS)
            gate.close()
            crowd = [Wire(gate.port) for _ in range(48)]
            for wire in crowd:
                wire.send(wait_request("r"))
            time.sleep(0.3 * rounds)
            with contextlib.closing(gate.client()) as client:
                expect(client.renew(holder), 200)
                assert client.put("r", "k", holder.token, b"x").status == 201
            with contextlib.closing(gate.client()) as client:
                expect(client.release(holder), 200)
            for wire in crowd:
                wire.close()


@case
def exactly_as_many_wait_as_may():
    """All ask at once, before anybody knows that the resource is busy."""
    with Scene() as scene:
        for option, most in (("--max-waiters", 7), ("--max-waiters-per-resource", 7)):
            gate = scene.gateway(data=f"data{option}", options=(option, str(most)))
            holder = gate.acquire("r", ttl_ms=LONG_MS)
            with gate.paused():
                crowd = [Waiter(gate, number, "r") for number in range(60)]
            refused = []
            while len(refused) < 60 - most:
                ready, _, _ = select.select([w.socket for w in crowd], [], [], 20)
                assert ready, len(refused)
                for waiter in [w for w in crowd if w.socket in ready]:
                    expect(waiter.answer(), 429, "too_many_waiters")
                    crowd.remove(waiter)
                    refused.append(waiter)
            assert waiters_of(gate, "r") == most
            expect(gate.release(holder), 200)
            left = {waiter.socket: waiter for waiter in crowd}
            while left:
                ready, _, _ = select.select(list(left), [], [], 20)
                assert len(ready) == 1, ready
                give_back(gate, left.pop(ready[0]).answer())
            for waiter in crowd + refused:
                waiter.close()


@case
def a_holder_comes_in_however_many_sit_there():
    """Connections on which nothing was sent, or was answered, give way."""
    with Scene() as scene:
        gate = scene.gateway(options=("--max-connections", "16"))
        for answered in (False, True):
            holder = gate.acquire("r", ttl_ms=LONG_MS)
            gate.close()
            idle = [Wire(gate.port) for _ in range(40)]
            if answered:
                for wire in idle:
                    wire.send(request("GET", "/livez"))
            for _ in range(3):
                with contextlib.closing(gate.client()) as client:
                    expect(client.renew(holder), 200)
            with contextlib.closing(gate.client()) as client:
                expect(client.release(holder), 200)
            for wire in idle:
                wire.close()


@case
def answers_at_the_end_of_a_wait_do_not_keep_a_holder_out():
    with Scene() as scene:
        gate = scene.gateway(options=("--max-connections", "16"))
        holder = gate.acquire("r", ttl_ms=LONG_MS)
        waiting = [Waiter(gate, i, "r", wait_ms=300) for i in range(12)]
        gate.close()
        for waiter in waiting:
            expect(waiter.answer(), 409, "lease_held")
        crowd = [Waiter(gate, i, "r") for i in range(12)]  # beside those twelve, which stay
        with contextlib.closing(gate.client()) as client:
            expect(client.release(holder), 200)
        for wire in waiting + crowd:
            wire.close()


if __name__ == "__main__":
    print(f"SEED={SEED}")
    raise_own_limit(4096)
    run_cases()
