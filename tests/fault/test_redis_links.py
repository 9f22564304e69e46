#!/usr/bin/python3
"""test_redis_links.py - the connection to Redis: late, cut, doubled, swallowed, silent, gone.

A reply that is not there in time is nobody's; a grant that was never answered blocks nobody; after
200 lost connections the gateway has one, and everything goes on.

Row numbers are those of the catalogue of failure modes, see README.md. SOAK=1 makes it longer, SEED
repeats a run.
"""
import signal
import socket
import threading
import time

from fake_redis import (ECHO, HANG_UP, LOSE, PASS, SILENCE, STUCK, TWICE, Cut, FakeRedis, Late, Stall,
                        error, once)
from harness import Client, Scene, case, eventually, run_cases
from load import Load
from outages import (LONG_MS, RANDOM, SEED, SOAK, TIMEOUT_MS, again, counter_key, expect, faked, flood, gateway,
                     healed, holders_key, is_degraded, recovers, refused, soon, timed, writes_go_on)

# ---- Replies that come late, twice, in part, or not at all ---------------------------------------


@case
def a_reply_after_its_deadline_is_nobodys():  # R18, BR1
    with Scene() as scene:
        redis, fake, gate = faked(scene)
        redis.command("SET", counter_key("a"), 1000)  # tokens tell the resources apart
        late_count = 0
        for _ in range(50 if SOAK else 4):
            late_s = TIMEOUT_MS / 1000 + RANDOM.choice([0.005, 0.05, 0.3])
            fake.rule = once("acquire", Late(late_s), "{a}")
            tokens = {}

            def ask(name):
                client = Client(gate.port)
                answer = eventually(lambda: _not_503(client, name), what="an answer")
                tokens[name] = answer.json()["fencing_token"]
                client.call("DELETE", f"/leases/{answer.json()['lease_id']}")

            answer = timed(gate.try_acquire, "a", ttl_ms=LONG_MS)
            if answer.status == 201:  # the gateway came late to its deadline itself: a reply that is
                assert answer.json()["fencing_token"] > 1000  # there by then is taken, by its own call
                gate.call("DELETE", answer.headers["location"])
                continue
            late_count += 1
            expect(answer, 503, "redis_unavailable")
            ask("b")
            time.sleep(0.35)
            ask("c")
            ask("a")
            assert tokens["b"] < 1000 and tokens["c"] < 1000 < tokens["a"], tokens
            fake.rule = lambda command: PASS
        assert late_count > 0


def _not_503(client, name):
    answer = client.try_acquire(name, ttl_ms=LONG_MS)
    assert answer.status in (201, 503), answer.body
    return answer if answer.status == 201 else None


@case
def a_swallowed_reply_leaves_an_orphan_that_blocks_nobody():  # N1, N2, BR2, BR20
    with Scene() as scene:
        redis, fake, gate = faked(scene)
        fake.rule = once("acquire", STUCK)
        expect(timed(gate.try_acquire, "r", ttl_ms=LONG_MS), 503, "redis_unavailable")
        orphan = redis.command("ZRANGE", holders_key("r"), 0, -1)
        assert len(orphan) == 1
        lease = soon(gate, "r")  # at once, no TTL to wait for
        assert lease.token == int(orphan[0].split(":")[0]) + 1
        fake.rule = once("renew", STUCK)
        expect(timed(gate.renew, lease, ttl_ms=LONG_MS), 503, "redis_unavailable")
        assert eventually(lambda: gate.renew(lease).status == 200 or None, what="a renewal")
        fake.rule = once("release", STUCK)
        expect(timed(gate.release, lease), 200)
        # The removal's outcome is unknown: it is sent again, and harms nobody.
        second = soon(gate, "r")
        time.sleep(0.6)
        assert gate.renew(second).status == 200
        assert len(redis.command("ZRANGE", holders_key("r"), 0, -1)) == 1


@case
def a_reply_that_is_lost_while_the_next_is_answered():  # N1: replies shift by one
    with Scene() as scene:
        redis, fake, gate = faked(scene)
        redis.command("SET", counter_key("b"), 1000)
        fake.rule = once("acquire", LOSE, "{a}")
        answers = {}

        def ask(name):
            answers[name] = Client(gate.port).try_acquire(name, ttl_ms=LONG_MS)

        threads = [threading.Thread(target=ask, args=(name,)) for name in "ab"]
        threads[0].start()
        eventually(lambda: fake.rule.used.is_set(), what="the swallowed reply")
        threads[1].start()
        for thread in threads:
            thread.join()
        # "a" must not be told what was said of "b".
        assert answers["a"].status == 503, answers["a"].body
        fake.rule = lambda command: PASS
        recovers(gate)
        assert soon(gate, "a").token < 1000


@case
def replies_cut_at_every_byte():  # N10
    with Scene() as scene:
        redis, fake, gate = faked(scene)
        lengths = {"acquire": 115, "renew": 70, "release": 20}
        for name, length in lengths.items():
            counts = range(length) if SOAK else sorted(RANDOM.sample(range(1, length), 5)) + [0]
            for count in counts:
                lease = None
                if name != "acquire":
                    lease = soon(gate, "r")
                fake.rule = once(name, Cut(count))
                if name == "acquire":
                    answer = timed(gate.try_acquire, "r", ttl_ms=LONG_MS)
                elif name == "renew":
                    answer = timed(gate.renew, lease, ttl_ms=LONG_MS)
                else:
                    answer = timed(gate.release, lease)
                # Where the reply was shorter than we thought, nothing was cut.
                assert answer.status in ((200,) if name == "release" else (200, 201, 503)), \
                    (name, count, answer.body)
                if answer.status == 201:
                    expect(gate.call("DELETE", f"/leases/{answer.json()['lease_id']}"), 200)
                eventually(lambda: fake.rule.used.is_set(), what=f"{name} cut")
                fake.rule = lambda command: PASS
                if name == "renew":
                    assert eventually(lambda: gate.renew(lease).status == 200 or None)
                    expect(gate.release(lease), 200)
                eventually(lambda: gate.call("GET", "/readyz").json()["status"] == "ok")


@case
def replies_that_stop_in_the_middle():  # N10, N8
    with Scene() as scene:
        _, fake, gate = faked(scene)
        for count in range(0, 115, 1 if SOAK else 40):
            fake.rule = once("acquire", Stall(count))
            expect(timed(gate.try_acquire, "r", ttl_ms=LONG_MS), 503, "redis_unavailable")
            lease = soon(gate, "r")
            expect(gate.release(lease), 200)


@case
def requests_that_arrive_twice():  # N4, N11, BR20
    with Scene() as scene:
        redis, fake, gate = faked(scene)
        fake.rule = lambda command: TWICE
        newest = 0
        for _ in range(5):
            lease = gate.acquire("r", ttl_ms=LONG_MS)
            assert lease.token > newest
            newest = lease.token
            assert gate.put("r", "k", lease.token, b"x").status in (200, 201)
            assert gate.renew(lease).status == 200
            expect(gate.release(lease), 200)
        load = Load(gate, workers=4, resources=2)
        with load.running():
            time.sleep(10 if SOAK else 0.6)
        load.expect_progress(5, 5)
        load.verify_new_tokens(gate)


@case
def an_acquire_that_arrives_again_after_the_release():  # N4: a ghost
    with Scene() as scene:
        redis, fake, gate = faked(scene)
        lease = gate.acquire("r", ttl_ms=LONG_MS)
        raw = next(c.raw for c in reversed(fake.seen) if c.name == "acquire")
        expect(gate.release(lease), 200)
        eventually(lambda: redis.command("ZCARD", holders_key("r")) == 0, what="the release")
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(redis.socket)
            link.sendall(raw)
            assert link.recv(4096)[:1] == b"*"
        ghost = redis.command("ZRANGE", holders_key("r"), 0, -1)[0]
        assert int(ghost.split(":")[0]) > lease.token  # with the secret of the released one
        expect(gate.put("r", "k", int(ghost.split(":")[0]), b"x"), 412, "fencing_token_not_issued")
        second = gate.acquire("r", ttl_ms=LONG_MS)
        assert second.token > int(ghost.split(":")[0])
        expect(gate.renew(lease), 410, "lease_released")


@case
def a_reply_that_comes_twice():  # N4: an answer to no question
    with Scene() as scene:
        redis, fake, gate = faked(scene)
        redis.command("SET", counter_key("a"), 1000)
        fake.rule = once("acquire", ECHO, "{a}")
        first = timed(gate.try_acquire, "a", ttl_ms=LONG_MS)
        assert first.status in (201, 503), first.body
        answer = eventually(lambda: _not_503(gate, "b"), what="a grant")
        assert gate.running()
        assert answer.json()["fencing_token"] < 1000, "the reply to another one was believed"


@case
def half_open_accepts_and_never_answers():  # N8, BR9
    with Scene() as scene:
        redis, fake, gate = faked(scene)
        held = gate.acquire("held", ttl_ms=LONG_MS)
        fake.rule = lambda command: SILENCE
        for _ in range(3):
            refused(gate, held)
        writes_go_on(gate, held, "held")
        fake.cut()  # also new connections are silent
        for _ in range(3):
            refused(gate, held)
        eventually(lambda: is_degraded(gate), what="degraded")
        fake.rule = lambda command: PASS
        recovers(gate)
        healed(gate, held, "held")


@case
def a_port_where_no_connect_ever_ends():  # BR9
    with Scene() as scene:
        hole = socket.socket()
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        fillers = []
        for _ in range(8):  # a full backlog: further SYNs are dropped
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(hole.getsockname())
            fillers.append(filler)
        gate = gateway(scene, f"redis://127.0.0.1:{hole.getsockname()[1]}")
        for _ in range(3):
            expect(timed(gate.try_acquire, "r"), 503, "redis_unavailable")
        assert is_degraded(gate)
        for link in [*fillers, hole]:
            link.close()


@case
def one_stuck_command_under_traffic():  # BR4
    with Scene() as scene:
        _, fake, gate = faked(scene)
        gone = threading.Event()

        def traffic():
            client = Client(gate.port)
            while not gone.is_set():
                assert client.try_acquire("traffic", ttl_ms=50).status in (201, 409, 503)
                time.sleep(0.02)

        threads = [threading.Thread(target=traffic, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20 if SOAK else 2):
                fake.rule = once("acquire", STUCK, "{stuck}")
                started = time.monotonic()
                expect(timed(gate.try_acquire, "stuck", ttl_ms=1000), 503, "redis_unavailable")
                assert time.monotonic() - started > TIMEOUT_MS / 1000 * 0.9 or \
                    not fake.rule.used.is_set()
                fake.rule = lambda command: PASS
                eventually(lambda: gate.try_acquire("stuck", ttl_ms=50).status == 201)
        finally:
            gone.set()
        for thread in threads:
            thread.join(30)

@case
def readonly_while_a_hundred_are_in_flight():  # BR7
    with Scene() as scene:
        _, fake, gate = faked(scene)
        for round_ in range(100 if SOAK else 5):
            sent = once("acquire", error("READONLY You can't write against a read only replica."),
                        mentioning=f"in flight {round_} 30")
            fake.rule = sent
            statuses = flood(gate, [f"in flight {round_} {i}" for i in range(100)])
            assert sent.used.is_set() and set(statuses) <= {201, 503} and 503 in statuses, statuses
            recovers(gate)


# ---- Connections ---------------------------------------------------------------------------------


@case
def reconnect_storm_under_load():  # X11, BR5, BR11
    with Scene() as scene:
        redis, fake, gate = faked(scene)
        load = Load(gate, workers=4, resources=2)
        with load.running():
            for _ in range(2000 if SOAK else 200):
                time.sleep(RANDOM.uniform(0, 0.012))
                RANDOM.choice([fake.cut, fake.reset])()
        load.expect_only("put", 200, 201, 412)
        recovers(gate)
        before = fake.connections
        time.sleep(0.3)
        assert fake.connections - before <= 2, "one connection, not many"
        load.verify_new_tokens(gate)


@case
def stopped_and_started_under_load():  # BR11
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        load = Load(gate, workers=4, resources=2)
        with load.running():
            for _ in range(200 if SOAK else 6):
                redis.signal(RANDOM.choice([signal.SIGTERM, signal.SIGKILL]))
                redis.wait()
                redis = again(scene, redis)
                time.sleep(RANDOM.uniform(0, 0.1))
        load.expect_only("put", 200, 201, 412)
        recovers(gate)
        load.verify_new_tokens(gate)


@case
def killed_while_many_commands_are_queued():  # BR5, X5
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        for i in range(50 if SOAK else 3):
            redis.signal(signal.SIGSTOP)
            statuses = flood(gate, [f"queued {i} {n}" for n in range(1000 if SOAK else 300)],
                             meanwhile=redis.kill)
            assert set(statuses) == {503}, statuses
            redis = again(scene, redis)
            recovers(gate)


@case
def client_kill_and_idle_timeout():  # BR8
    with Scene() as scene:
        redis = scene.redis("--timeout", "1")
        gate = gateway(scene, redis)
        for i in range(5):
            assert redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") >= 1
            recovers(gate)
        time.sleep(2.5)  # our heartbeat keeps it awake
        assert gate.try_acquire("after a rest").status == 201


@case
def idle_past_the_timeout():  # BR3
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis, options=("--redis-timeout-ms", "100"))
        for i in range(3):
            time.sleep(0.35)
            assert gate.try_acquire(f"r{i}").status == 201
        assert "redis lost" not in gate.log()


@case
def sigterm_right_after_a_reset():  # BR6
    with Scene() as scene:
        redis = scene.redis()
        fake = scene.keep(FakeRedis(redis.socket))
        for i in range(100 if SOAK else 8):
            gate = gateway(scene, fake.url)
            lease = gate.acquire(f"r{i}", ttl_ms=50)
            fake.rule = RANDOM.choice([lambda command: PASS, lambda command: SILENCE,
                                       lambda command: HANG_UP])
            RANDOM.choice([fake.reset, fake.cut])()
            if i % 2:
                time.sleep(RANDOM.uniform(0, 0.05))
            gate.signal(signal.SIGTERM)
            assert gate.wait() == 0, gate.log()
            assert lease.token == 1
            fake.rule = lambda command: PASS


@case
def stopped_while_redis_does_not_answer():  # C10
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        redis.signal(signal.SIGSTOP)

        def stop():
            time.sleep(0.2)  # what has not been read by then is not answered
            gate.signal(signal.SIGTERM)

        statuses = flood(gate, [f"r{i}" for i in range(50)], meanwhile=stop)
        assert set(statuses) <= {503, None} and 503 in statuses, statuses
        assert gate.wait() == 0, gate.log()

if __name__ == "__main__":
    print(f"SEED={SEED}")
    run_cases()
