#!/usr/bin/python3
"""test_redis_faults.py - Redis forgets, refuses, is another's, or has another time.

Where Redis loses or changes its data, tokens rise all the same and the earlier holder is refused
(load.py watches that); where it refuses, grants stop and nothing else (outages.py).

Row numbers are those of the catalogue of failure modes, see README.md. SOAK=1 makes it longer, SEED
repeats a run.
"""
import collections
import concurrent.futures
import contextlib
import pathlib
import random
import shutil
import signal
import socket
import struct
import threading
import time

from fake_redis import array
from harness import Redis, RedisError, Scene, case, eventually, preload, run_cases
from load import Load
from outages import (LONG_MS, RANDOM, SEED, SOAK, again, counter_key, during, expect, free_port,
                     gateway, holders_key, is_degraded, recovers, soon, timed, writes_go_on)

# ---- Redis loses its data ------------------------------------------------------------------------


@case
def flushall_under_load():  # R6, M9
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        load = Load(gate, workers=4, resources=2)
        with load.running():
            until = time.monotonic() + (30 if SOAK else 1.5)
            while time.monotonic() < until:
                time.sleep(RANDOM.uniform(0, 0.1))
                redis.command("FLUSHALL")
        load.expect_only("acquire", 201, 409, 503)
        load.expect_only("put", 200, 201, 412)
        load.expect_progress(10, 10)
        load.verify_new_tokens(gate)


@case
def flushall_fences_the_first_holder_at_the_next_grant():  # R6, R1
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        first = gate.acquire("r", ttl_ms=LONG_MS)
        redis.command("FLUSHALL")
        assert gate.put("r", "k", first.token, b"1").status == 201  # nobody else holds it
        second = gate.acquire("r", ttl_ms=LONG_MS)
        assert second.token > first.token
        expect(gate.put("r", "k", first.token, b"2"), 412, "stale_fencing_token")
        expect(gate.renew(first), 410, "lease_superseded")
        rows = [row for row in gate.history("r") if row["kind"] == "expire"]
        assert [row["reason"] for row in rows] == ["lost_by_redis"], rows


@case
def one_key_deleted_by_an_operator():  # R6
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        for key in (counter_key("r"), holders_key("r"), "fencegate:store"):
            lease = gate.acquire("r", ttl_ms=LONG_MS)
            redis.command("DEL", key)
            answer = gate.try_acquire("r", ttl_ms=LONG_MS)
            if key == holders_key("r"):
                assert answer.status == 201 and answer.json()["fencing_token"] > lease.token
                expect(gate.put("r", "k", lease.token, b"x"), 412, "stale_fencing_token")
                gate.call("DELETE", f"/leases/{answer.json()['lease_id']}")
            else:
                expect(answer, 409, "lease_held")
                assert gate.put("r", "k", lease.token, b"x").status in (200, 201)
                expect(gate.release(lease), 200)


@case
def restart_without_persistence_under_load():  # R1
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        load = Load(gate, workers=4, resources=2)
        with load.running():
            for _ in range(60 if SOAK else 2):
                time.sleep(RANDOM.uniform(0.2, 0.4))
                redis.kill()
                time.sleep(RANDOM.uniform(0, 0.1))
                redis = again(scene, redis)
                granted = load.granted()
                eventually(lambda: load.granted() > granted, what="a grant")
        load.expect_only("put", 200, 201, 412)
        load.verify_new_tokens(gate)


def old_data_restored(*persistence, save):  # R2, R3
    with Scene() as scene:
        redis = scene.redis(*persistence)
        gate = gateway(scene, redis)
        first = gate.acquire("r", ttl_ms=LONG_MS)
        copy = scene.folder / "copy"
        save(redis)
        shutil.copytree(redis.folder, copy, ignore=shutil.ignore_patterns("*.sock"))
        gate.release(first)
        leases = []
        for _ in range(20):
            leases.append(gate.acquire("r", ttl_ms=LONG_MS))
            gate.release(leases[-1])
        second = gate.acquire("r", ttl_ms=LONG_MS)
        redis.kill()
        shutil.rmtree(redis.folder)
        shutil.copytree(copy, redis.folder)
        redis = again(scene, redis, *persistence)
        recovers(gate)
        assert redis.command("GET", counter_key("r")) == str(first.token), "the copy is not old"
        # The holder of the old data is no holder any more: an orphan, removed at once.
        third = gate.acquire("r", ttl_ms=LONG_MS)
        assert third.token > second.token
        for stale in (first, leases[-1], second):
            expect(gate.put("r", "k", stale.token, b"x"), 412, "stale_fencing_token")
        assert gate.put("r", "k", third.token, b"x").status == 201


@case
def an_old_dump_restored():  # R3
    old_data_restored(save=lambda redis: redis.command("SAVE"))


@case
def an_old_append_only_file_restored():  # R2
    old_data_restored("--appendonly", "yes", "--appendfsync", "always", save=lambda redis: None)


@case
def replica_promoted_with_lag():  # R4, BR13
    with Scene() as scene:
        master = scene.redis("--repl-diskless-sync-delay", "0")
        pipe = scene.proxy(master, tcp=True)
        replica = scene.redis("--replicaof", f"127.0.0.1 {pipe.port}")
        proxy = scene.proxy(master)
        gate = gateway(scene, proxy)
        first = gate.acquire("r", ttl_ms=LONG_MS)
        eventually(lambda: replica.command("GET", counter_key("r")) == str(first.token),
                   what="replication")
        replica.signal(signal.SIGSTOP)
        pipe.rule = lambda direction, data: None if direction == "down" else data
        expect(gate.release(first), 200)
        for _ in range(5):
            lagging = soon(gate, "r")
            expect(gate.release(lagging), 200)
        lagging = soon(gate, "r")
        master.kill()
        replica.signal(signal.SIGCONT)
        replica.command("REPLICAOF", "NO", "ONE")
        assert replica.command("GET", counter_key("r")) == str(first.token), "it has not lagged"
        proxy.target = replica.socket
        proxy.cut()
        recovers(gate)
        second = gate.acquire("r", ttl_ms=LONG_MS)
        assert second.token > lagging.token
        expect(gate.put("r", "k", first.token, b"x"), 412, "stale_fencing_token")
        expect(gate.put("r", "k", lagging.token, b"x"), 412, "stale_fencing_token")
        assert gate.put("r", "k", second.token, b"x").status == 201


@case
def two_masters_in_turn():  # R5
    with Scene() as scene:
        masters = [scene.redis(), scene.redis()]
        proxy = scene.proxy(masters[0])
        gate = gateway(scene, proxy)
        load = Load(gate, workers=4, resources=2)
        with load.running():
            for i in range(100 if SOAK else 6):
                time.sleep(RANDOM.uniform(0.1, 0.3))
                proxy.target = masters[(i + 1) % 2].socket
                proxy.cut()
        load.expect_only("put", 200, 201, 412)
        load.expect_progress(10, 10)
        recovers(gate)
        load.verify_new_tokens(gate)


@case
def eviction_is_warned_of_and_costs_leases_only():  # R7, R8, BR16
    with Scene() as scene:
        redis = scene.redis("--maxmemory-policy", "allkeys-lru")
        gate = gateway(scene, redis)
        eventually(lambda: "may evict leases" in gate.log() and "allkeys-lru" in gate.log(),
                   what="a warning")
        first = gate.acquire("r", ttl_ms=LONG_MS)
        memory = dict(line.split(":", 1) for line in redis.command("INFO", "memory").split("\r\n")
                      if ":" in line)
        redis.command("CONFIG", "SET", "maxmemory", int(memory["used_memory"]) + 200000)
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(redis.socket)
            stream = link.makefile("rb")
            for i in range(200000):
                key, value = f"junk:{i}".encode(), b"x" * 1000
                link.sendall(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n"
                             % (len(key), key, len(value), value))
                stream.readline()
                if i % 20 == 0 and not redis.command("EXISTS", holders_key("r"), counter_key("r")):
                    break
        assert not redis.command("EXISTS", holders_key("r"), counter_key("r")), "nothing evicted"
        second = gate.acquire("r", ttl_ms=LONG_MS)
        assert second.token > first.token
        expect(gate.put("r", "k", first.token, b"x"), 412, "stale_fencing_token")

# ---- Scripts -------------------------------------------------------------------------------------


@case
def script_flush_in_a_loop_under_load():  # R10, BR18
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis, options=())
        load = Load(gate, workers=4, pause_s=0)
        with load.running():
            until = time.monotonic() + (30 if SOAK else 1.5)
            while time.monotonic() < until:
                redis.command("SCRIPT", "FLUSH")
                time.sleep(0.002)
        missed = redis.command("INFO", "errorstats")
        assert "NOSCRIPT" in missed, missed
        load.expect_only("acquire", 201)  # with the same arguments, so nobody notices
        load.expect_only("release", 200)
        load.verify_new_tokens(gate)

# ---- Redis refuses -------------------------------------------------------------------------------


@case
def readonly_master_recovers_by_itself():  # R12, BR17
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        during(gate, lambda: redis.command("REPLICAOF", "127.0.0.1", free_port()),
               lambda: redis.command("REPLICAOF", "NO", "ONE"))


@case
def a_stale_replica_masterdown():  # R14
    with Scene() as scene:
        redis = scene.redis("--replica-serve-stale-data", "no")
        gate = gateway(scene, redis)
        during(gate, lambda: redis.command("REPLICAOF", "127.0.0.1", free_port()),
               lambda: redis.command("REPLICAOF", "NO", "ONE"))


@case
def out_of_memory_lets_holders_leave():  # R9, BR15
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        leaving = gate.acquire("leaving", ttl_ms=LONG_MS)
        late = gate.acquire("late", ttl_ms=LONG_MS)
        redis.command("CONFIG", "SET", "maxmemory", 1)
        expect(timed(gate.try_acquire, "refused"), 503, "redis_unavailable")
        assert timed(gate.renew, leaving).status in (200, 503)
        writes_go_on(gate, leaving, "leaving")
        expect(gate.release(leaving), 200)
        eventually(lambda: redis.command("ZCARD", holders_key("leaving")) == 0,
                   what="a removal without memory")
        # Longer than the heartbeat: what Redis says to that must not cost us the link.
        time.sleep(2.5)
        expect(gate.release(late), 200)
        eventually(lambda: redis.command("ZCARD", holders_key("late")) == 0, patience_s=5,
                   what="a removal without memory, later")
        expect(timed(gate.try_acquire, "refused"), 503, "redis_unavailable")
        redis.command("CONFIG", "SET", "maxmemory", 0)
        recovers(gate)


@case
def a_failed_save_misconf():  # R13
    with Scene() as scene:
        redis = scene.redis()
        redis.command("CONFIG", "SET", "save", "3600 1000000")
        gate = gateway(scene, redis)
        in_the_way = redis.folder / "dump.rdb"

        def begin():
            (in_the_way / "x").mkdir(parents=True)
            redis.command("BGSAVE")
            eventually(lambda: "rdb_last_bgsave_status:err" in redis.command("INFO", "persistence"),
                       what="a failed save")

        def end():
            shutil.rmtree(in_the_way)
            redis.command("BGSAVE")

        during(gate, begin, end)


@case
def somebody_elses_long_script_busy():  # R11, BR12
    with Scene() as scene:
        redis = scene.redis("--busy-reply-threshold", "100")
        gate = gateway(scene, redis)
        script = ("local function now() local t = redis.call('TIME')"
                  " return t[1] * 1000 + t[2] / 1000 end"
                  " local begun = now() repeat local t = now() until t > begun + ARGV[1]"
                  " return redis.status_reply('done')")
        outcome = []

        def run(ms):
            outcome.append(redis.command("EVAL", script, 0, ms, timeout_s=60))

        thread = threading.Thread(target=run, args=(2500,))
        during(gate, thread.start, thread.join)
        assert outcome == ["done"], "we must not kill a script of others"
        for i in range(100):
            assert gate.try_acquire(f"after {i}").status == 201


class LoadingRedis(Redis):
    """Does not wait until it is through."""

    def answers(self):
        return pathlib.Path(self.socket).exists() and super().answers()


@case
def loading_its_data():  # R14
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        redis.command("DEBUG", "POPULATE", 3000)
        redis.command("SAVE")

        def begin():
            redis.kill()
            scene.keep(LoadingRedis(redis.folder, ("--key-load-delay", "600",
                                                    "--loading-process-events-interval-bytes",
                                                    "1024")))
            with contextlib.suppress(RedisError):
                redis.command("PING")

        during(gate, begin, lambda: None)


@case
def a_password_set_at_run_time_noauth():  # R14
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        admin = socket.socket(socket.AF_UNIX)  # connected before, so it stays authenticated
        admin.connect(redis.socket)
        stream = admin.makefile("rb")

        def do(*words):
            admin.sendall(array(*words))
            line = stream.readline()
            assert line[:1] in b"+:", line

        def begin():
            do("CONFIG", "SET", "requirepass", "secret")
            do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

        during(gate, begin, lambda: do("CONFIG", "SET", "requirepass", ""))
        assert "secret" not in gate.log()
        admin.close()


@case
def an_acl_user_with_few_rights_and_fewer():  # R14: NOPERM, AUTH
    with Scene() as scene:
        port = free_port()
        redis = scene.redis("--port", str(port))
        allowed = ("+evalsha", "+eval", "+script|load", "+get", "+mget", "+set", "+del", "+type",
                   "+time", "+zadd", "+zrem", "+zrange", "+zrangebyscore", "+zremrangebyscore", "+zscore",
                   "+zcount", "+zcard", "+pexpireat", "+incr", "+pexpire", "+expire")
        redis.command("ACL", "SETUSER", "gate", "on", ">p@ss:w/rd", "resetkeys", "~fencegate:*",
                      *allowed)
        gate = gateway(scene, f"redis://gate:p%40ss%3Aw%2Frd@127.0.0.1:{port}")
        recovers(gate)
        during(gate, lambda: redis.command("ACL", "SETUSER", "gate", "-evalsha", "-eval"),
               lambda: redis.command("ACL", "SETUSER", "gate", "+evalsha", "+eval"))
        during(gate, lambda: redis.command("ACL", "SETUSER", "gate", "resetkeys"),
               lambda: redis.command("ACL", "SETUSER", "gate", "~fencegate:*"))

        def begin():
            redis.command("ACL", "SETUSER", "gate", "off")
            redis.command("CLIENT", "KILL", "USER", "gate")

        during(gate, begin, lambda: redis.command("ACL", "SETUSER", "gate", "on"))
        assert "p@ss" not in gate.log() and "p%40ss" not in gate.log()


@case
def a_wrong_password_is_tried_again():  # R14: WRONGPASS
    with Scene() as scene:
        port = free_port()
        redis = scene.redis("--port", str(port))
        redis.command("ACL", "SETUSER", "gate", "on", ">right", "~*", "+@all")
        gate = gateway(scene, f"redis://gate:wrong@127.0.0.1:{port}")
        expect(timed(gate.try_acquire, "r"), 503, "redis_unavailable")
        assert is_degraded(gate)
        redis.command("ACL", "SETUSER", "gate", ">wrong")
        recovers(gate)


@case
def too_few_replicas_noreplicas():  # R16
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        during(gate, lambda: redis.command("CONFIG", "SET", "min-replicas-to-write", 1),
               lambda: redis.command("CONFIG", "SET", "min-replicas-to-write", 0))


@case
def a_redis_cluster_by_mistake():  # R17
    with Scene() as scene:
        port = free_port() % 50000 + 2000
        redis = scene.redis("--port", str(port), "--cluster-enabled", "yes")
        gate = gateway(scene, redis)  # no slot is served: CLUSTERDOWN
        expect(timed(gate.try_acquire, "r"), 503, "redis_unavailable")
        redis.command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: "cluster_state:ok" in redis.command("CLUSTER", "INFO"), what="a cluster")
        time.sleep(0.3)
        # The store's key and the resource's are in different slots: CROSSSLOT, for ever.
        expect(timed(gate.try_acquire, "r"), 503, "redis_unavailable")
        assert gate.running() and gate.stop() == 0


@case
def out_of_connections():  # R14: "max number of clients reached", an answer to no question
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        admin = socket.socket(socket.AF_UNIX)
        admin.connect(redis.socket)
        stream = admin.makefile("rb")

        def do(*words):
            admin.sendall(array(*words))
            line = stream.readline()
            assert line[:1] in b"+:", line

        def begin():
            do("CONFIG", "SET", "maxclients", "1")
            do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

        during(gate, begin, lambda: do("CONFIG", "SET", "maxclients", "100"))
        admin.close()

# ---- Another store's -----------------------------------------------------------------------------


@case
def another_store_at_run_time():
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        ours = redis.command("GET", "fencegate:store")
        during(gate, lambda: redis.command("SET", "fencegate:store", "another"),
               lambda: redis.command("SET", "fencegate:store", ours), code="store_mismatch")
        assert redis.command("GET", "fencegate:store") == ours


@case
def another_gateway_on_the_same_redis():
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        lease = gate.acquire("r", ttl_ms=LONG_MS)
        second = gateway(scene, redis, data="second", expect_exit=True)
        assert second.wait() == 78, second.log()
        third = gateway(scene, redis, data="third", options=("--adopt-redis",))
        # It has another store: nothing that ours has fenced is known there.
        expect(timed(gate.try_acquire, "x"), 503, "store_mismatch")
        assert gate.call("GET", "/readyz").status == 503
        writes_go_on(gate, lease, "r")
        orphan = third.acquire("r", ttl_ms=LONG_MS)
        assert third.put("r", "k", orphan.token, b"theirs").status == 201
        assert gate.get("r", "k").body == b"x"
        expect(gate.release(lease), 200)
        assert third.renew(orphan).status == 200, "our release must not touch their holder"

# ---- Clocks --------------------------------------------------------------------------------------


class Clock:
    """The wall clock of a server that is started with `env`."""

    def __init__(self, scene):
        self.path = scene.folder / "clock"
        self.path.write_bytes(bytes(8))
        self.env = {**preload(scene.folder, "clock_shim.c"), "SHIM_CLOCK": str(self.path)}

    def set(self, offset_s):
        with open(self.path, "r+b") as file:
            file.write(struct.pack("=q", offset_s * 1000000))


@case
def redis_clock_jumps_forward():  # T4, BR14
    with Scene() as scene:
        clock = Clock(scene)
        redis = scene.redis(env=clock.env)
        gate = gateway(scene, redis)
        first = gate.acquire("r", ttl_ms=LONG_MS)
        expect(gate.try_acquire("r"), 409, "lease_held")
        clock.set(3600)
        eventually(lambda: int(redis.command("TIME")[0]) > time.time() + 3000, what="the jump")
        assert gate.put("r", "k", first.token, b"x").status == 201  # nobody has replaced it
        second = gate.acquire("r", ttl_ms=LONG_MS)
        assert second.token > first.token
        expect(gate.put("r", "k", first.token, b"x"), 412, "stale_fencing_token")
        expect(gate.renew(first), 410, "lease_superseded")
        assert gate.put("r", "k", second.token, b"x").status == 200
        assert gate.renew(second, ttl_ms=LONG_MS).status == 200
        left_ms = gate.call("GET", f"/leases/{second.id}").json()["expires_in_ms"]
        assert 0 < left_ms <= LONG_MS, left_ms


@case
def redis_clock_jumps_back():  # T5
    with Scene() as scene:
        clock = Clock(scene)
        redis = scene.redis(env=clock.env)
        gate = gateway(scene, redis)
        first = gate.acquire("r", ttl_ms=LONG_MS)
        clock.set(-3600)
        eventually(lambda: int(redis.command("TIME")[0]) < time.time() - 3000, what="the jump")
        busy = expect(gate.try_acquire("r"), 409, "lease_held")
        assert int(busy.headers["retry-after"]) <= 3600 + LONG_MS // 1000 + 1
        assert gate.put("r", "k", first.token, b"x").status == 201
        assert gate.renew(first, ttl_ms=LONG_MS).status == 200  # now by the new clock
        expect(gate.release(first), 200)
        second = gate.acquire("r", ttl_ms=200)
        assert second.token > first.token
        expect(gate.put("r", "k", first.token, b"x"), 412, "stale_fencing_token")
        third = soon(gate, "r")
        assert third.token > second.token
        expect(gate.put("r", "k", second.token, b"x"), 412, "stale_fencing_token")


@case
def redis_clock_jumps_about_under_load():  # T4, T5
    with Scene() as scene:
        clock = Clock(scene)
        redis = scene.redis(env=clock.env)
        gate = gateway(scene, redis)
        load = Load(gate, workers=4, resources=2, ttl_ms=300)
        with load.running():
            for _ in range(300 if SOAK else 15):
                clock.set(RANDOM.choice([0, 0, 3600, -3600, 1, -1]))
                time.sleep(0.1)
            clock.set(7200)  # all that was granted in the future runs out
            granted = load.granted()
            eventually(lambda: load.granted() > granted + 2, what="grants")
        load.expect_only("acquire", 201, 409, 503)
        load.expect_only("put", 200, 201, 412)
        load.verify_new_tokens(gate)


@case
def the_gateways_clock_jumps():  # T6
    with Scene() as scene:
        clock = Clock(scene)
        redis = scene.redis()
        gate = gateway(scene, redis, env=clock.env)
        lease = gate.acquire("r", ttl_ms=LONG_MS)
        for offset_s in (3600, -3600, 86400 * 400, 0):
            clock.set(offset_s)
            view = gate.call("GET", f"/leases/{lease.id}").json()
            assert view["state"] == "held" and 0 < view["expires_in_ms"] <= LONG_MS, view
            expect(gate.try_acquire("r"), 409, "lease_held")
            assert gate.put("r", "k", lease.token, b"x").status in (200, 201)
            assert gate.renew(lease, ttl_ms=LONG_MS).status == 200
        expect(gate.release(lease), 200)
        assert gate.acquire("r").token == lease.token + 1


# ---- Races with the TTL --------------------------------------------------------------------------


def in_parallel(count, work):
    """work(i) in so many threads; the first exception of any."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        for outcome in [pool.submit(work, i) for i in range(count)]:
            outcome.result()


@case
def a_renewal_that_races_the_expiry():  # T2
    with Scene() as scene:
        gate = gateway(scene, scene.redis())
        outcomes = collections.Counter()

        def race(number):
            client, delay = gate.client(), random.Random(SEED + number)
            for i in range(1000 if SOAK else 12):
                lease = client.acquire(f"r{number}", ttl_ms=50)
                time.sleep(delay.uniform(0.045, 0.052))
                renewed = client.renew(lease, ttl_ms=LONG_MS)
                outcomes[renewed.status] += 1
                if renewed.status == 200:
                    expect(client.try_acquire(f"r{number}"), 409, "lease_held")
                    expect(client.release(lease), 200)
                else:
                    expect(renewed, 410, "lease_expired")
                    other = client.acquire(f"r{number}", ttl_ms=LONG_MS)
                    assert other.token > lease.token
                    expect(client.renew(lease), 410, "lease_superseded")
                    expect(client.release(other), 200)

        in_parallel(8, race)
        assert set(outcomes) <= {200, 410}, outcomes


@case
def a_renewal_that_races_the_release():  # T3, BR22
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)

        def race(number):
            name, clients = f"r{number}", [gate.client(), gate.client()]
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                for _ in range(1000 if SOAK else 20):
                    lease = clients[0].acquire(name, ttl_ms=LONG_MS)
                    renewed = pool.submit(clients[0].renew, lease)
                    expect(pool.submit(clients[1].release, lease).result(), 200)
                    assert renewed.result().status in (200, 410)
                    expect(clients[0].renew(lease), 410, "lease_released")
                    # Never put back: the next one comes in at once.
                    expect(clients[0].release(clients[0].acquire(name, ttl_ms=LONG_MS)), 200)

        in_parallel(4, race)
        for number in range(4):
            eventually(lambda n=number: redis.command("ZCARD", holders_key(f"r{n}")) == 0,
                       what="no holders")


if __name__ == "__main__":
    print(f"SEED={SEED}")
    run_cases()
