#!/usr/bin/python3
"""test_semaphores.py - semaphores while something breaks at the worst moment: races that a failpoint
or a proxy before Redis holds open, crashes of the gateway, clocks that jump.

What they do in ordinary times is in tests/api/test_semaphores.c, at random in test_stress.py.
"""
import contextlib
import mmap
import struct
import threading

from harness import Proxy, Scene, case, eventually, preload, run_cases

LONG_MS = 600_000
WAIT_MS = 60_000


class Asking:
    """A request for a lease, sent by a thread of its own."""

    def __init__(self, gate, resource, **fields):
        self.answer = None
        client = gate.client()
        fields = {"ttl_ms": LONG_MS, **fields}

        def ask():
            with contextlib.closing(client):
                self.answer = client.try_acquire(resource, **fields)

        self.thread = threading.Thread(target=ask, daemon=True)
        self.thread.start()

    def get(self):
        self.thread.join(30)
        assert self.answer, "there was no answer"
        return self.answer


class Valve(Proxy):
    """A proxy before Redis that can hold its answers back."""

    def __init__(self, folder, redis):
        self.open = threading.Event()
        self.open.set()
        self.held_back = 0
        super().__init__(folder, redis.socket)
        self.rule = self._rule

    def _rule(self, direction, data):
        if direction == "down" and not self.open.is_set():
            self.held_back += 1
            self.open.wait(20)
        return data


def look(gate, resource):
    return gate.call("GET", f"/resources/{resource}").json()


def wait_behind(gate, resource, count=1, **fields):
    """`count` waiters, one behind the other."""
    waiting = []
    for number in range(count):
        waiting.append(Asking(gate, resource, wait_ms=WAIT_MS, **fields))
        eventually(lambda number=number: look(gate, resource)["waiters"] == number + 1)
    return waiting


def take(gate, resource, limit, count):
    """`count` leases of a resource that has this limit."""
    gate.call("PUT", f"/resources/{resource}", {"limit": limit})
    return [gate.acquire(resource, ttl_ms=LONG_MS) for _ in range(count)]


def set_limit_unanswered(gate, resource, before, after):
    """While Redis does not answer: PUT's answer asks it, too. That it is done stands in the ledger."""
    threading.Thread(target=gate.client().call, daemon=True,
                     args=("PUT", f"/resources/{resource}", {"limit": after})).start()
    eventually(lambda: gate.history(resource)[-1]["reason"] == f"limit {before} -> {after}")


def writers(gate, resource, leases):
    """Which of them may write."""
    return [gate.call("POST", f"/resources/{resource}/check", None,
                      {"X-Fencing-Token": str(lease.token)}).status == 200 for lease in leases]


# ---- The first grant ----------------------------------------------------------------------------


def _beside_the_first_grant(**fields):
    """The first grant names 3; while it is being fenced somebody else asks. Both answers."""
    with Scene() as scene:
        gate = scene.gateway(redis=scene.redis(), faults="before_fence=sleep(400)@1")
        first = Asking(gate, "r", limit=3)
        counter = "fencegate:{r}:counter"
        eventually(lambda: scene.servers[0].command("EXISTS", counter))  # granted by Redis
        second = Asking(gate, "r", **fields).get()
        assert first.get().status == 201
        assert look(gate, "r")["limit"] == 3
        return second


@case
def none_named_beside_a_first_grant_under_way():
    """In no order of the two is 409 the answer: it takes what the first one sets."""
    answer = _beside_the_first_grant()
    assert answer.status == 201 and answer.json()["limit"] == 3, answer.body
    answer = _beside_the_first_grant(wait_ms=WAIT_MS)
    assert answer.status == 201 and answer.json()["limit"] == 3, answer.body


@case
def another_limit_named_beside_a_first_grant_under_way():
    for limit in (1, 2, 1000):
        answer = _beside_the_first_grant(limit=limit)
        assert answer.code == "limit_mismatch" and answer.json()["limit"] == 3, answer.body
    assert _beside_the_first_grant(limit=3).status == 201


@case
def a_first_grant_that_fails_fixes_no_limit():
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis, faults="before_fence=sleep(400)@1 before_commit=error@1")
        first = Asking(gate, "r", limit=3)
        eventually(lambda: redis.command("EXISTS", "fencegate:{r}:counter"))
        others = [Asking(gate, "r"), Asking(gate, "r", wait_ms=WAIT_MS)]
        assert first.get().code == "storage_full"
        # Nothing is set, so it is a mutex: one of the two gets it. The other one waits or is refused.
        answers = [others[0].get()]
        if answers[0].status == 201:
            gate.call("DELETE", f"/leases/{answers[0].json()['lease_id']}")
        answers.append(others[1].get())
        codes = [answer.code for answer in answers]
        assert None in codes and set(codes) <= {None, "lease_held"}, codes
        assert look(gate, "r")["limit"] == 1 and len(look(gate, "r")["holders"]) <= 1


# ---- Changes while a grant is under way ---------------------------------------------------------


@case
def a_smaller_limit_that_comes_after_a_grant_under_way():
    """The writer has the grant already: it counts."""
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis, faults="before_fence=sleep(400)@3")
        leases = take(gate, "r", 3, 2)
        counter = redis.command("GET", "fencegate:{r}:counter")
        asking = Asking(gate, "r")
        eventually(lambda: redis.command("GET", "fencegate:{r}:counter") != counter)
        assert gate.call("PUT", "/resources/r", {"limit": 1}).status == 200
        assert asking.get().status == 201
        assert len(look(gate, "r")["holders"]) == 3
        assert writers(gate, "r", leases) == [True, True]


@case
def a_smaller_limit_that_comes_before_a_grant_under_way():
    """Redis has granted it, and the answer is on its way: there is no place for it any more. Who
    waits keeps its place before those behind it."""
    with Scene() as scene:
        redis = scene.redis()
        proxy = scene.keep(Valve(scene.folder, redis))
        gate = scene.gateway(redis=proxy, options=("--redis-timeout-ms", "20000"))
        leases = take(gate, "r", 3, 2)
        proxy.open.clear()
        first = Asking(gate, "r", wait_ms=WAIT_MS)
        eventually(lambda: proxy.held_back, what="the grant")
        second = Asking(gate, "r", wait_ms=WAIT_MS)
        set_limit_unanswered(gate, "r", 3, 1)
        proxy.open.set()
        eventually(lambda: look(gate, "r")["waiters"] == 2)
        assert len(look(gate, "r")["holders"]) == 2
        for lease in leases:
            assert gate.release(lease).status == 200
        granted = first.get().json()
        assert granted["limit"] == 1 and look(gate, "r")["waiters"] == 1
        assert gate.call("DELETE", f"/leases/{granted['lease_id']}").status == 200
        assert second.get().json()["fencing_token"] > granted["fencing_token"]


@case
def a_larger_limit_while_the_one_that_is_alone_is_under_way():
    """Granted at limit 1: it stays alone."""
    with Scene() as scene:
        gate = scene.gateway(redis=scene.redis(), faults="before_fence=sleep(400)@1")
        gate.call("PUT", "/resources/r", {"limit": 1})
        first = Asking(gate, "r")
        eventually(lambda: scene.servers[0].command("EXISTS", "fencegate:{r}:counter"))
        waiting = wait_behind(gate, "r", 3)
        assert gate.call("PUT", "/resources/r", {"limit": 3}).status == 200
        granted = first.get().json()
        assert gate.try_acquire("r").code == "lease_held"
        assert look(gate, "r")["waiters"] == 3
        gate.call("DELETE", f"/leases/{granted['lease_id']}")
        assert [asking.get().status for asking in waiting] == [201, 201, 201]


# ---- No wake-up is lost -------------------------------------------------------------------------


@case
def a_release_while_the_head_is_being_refused():
    """Redis has refused the head of the queue, and the answer is on its way when a place becomes
    free: it asks once more."""
    with Scene() as scene:
        redis = scene.redis()
        proxy = scene.keep(Valve(scene.folder, redis))
        gate = scene.gateway(redis=proxy, options=("--redis-timeout-ms", "20000"))
        first, second = take(gate, "r", 2, 2)
        proxy.open.clear()
        asking = Asking(gate, "r", wait_ms=WAIT_MS)
        eventually(lambda: proxy.held_back, what="the refusal")
        assert gate.release(second).status == 200
        proxy.open.set()
        answer = asking.get()
        assert answer.status == 201 and answer.json()["waited_ms"] < WAIT_MS / 2, answer.body
        assert writers(gate, "r", [first]) == [True]


@case
def a_larger_limit_while_the_head_is_being_refused():
    with Scene() as scene:
        redis = scene.redis()
        proxy = scene.keep(Valve(scene.folder, redis))
        gate = scene.gateway(redis=proxy, options=("--redis-timeout-ms", "20000"))
        leases = take(gate, "r", 2, 2)
        proxy.open.clear()
        asking = Asking(gate, "r", wait_ms=WAIT_MS)
        eventually(lambda: proxy.held_back, what="the refusal")
        set_limit_unanswered(gate, "r", 2, 3)
        proxy.open.set()
        answer = asking.get()
        assert answer.status == 201 and answer.json()["waited_ms"] < WAIT_MS / 2, answer.body
        assert writers(gate, "r", leases) == [True, True]


@case
def a_grant_that_failed_gives_its_place_to_the_next():
    with Scene() as scene:
        gate = scene.gateway(redis=scene.redis(), faults="before_fence=error@3")
        first, _ = take(gate, "r", 2, 2)
        waiting = wait_behind(gate, "r", 2)
        assert gate.release(first).status == 200
        assert waiting[0].get().code == "store_unavailable"
        answer = waiting[1].get()
        assert answer.status == 201 and answer.json()["waited_ms"] < WAIT_MS / 2, answer.body
        assert len(look(gate, "r")["holders"]) == 2


@case
def a_grant_that_came_too_late_gives_its_place_to_the_next():
    with Scene() as scene:
        gate = scene.gateway(redis=scene.redis(), faults="before_fence=sleep(400)@3")
        first, _ = take(gate, "r", 2, 2)
        waiting = [*wait_behind(gate, "r", ttl_ms=100)]
        waiting.append(Asking(gate, "r", wait_ms=WAIT_MS))
        eventually(lambda: look(gate, "r")["waiters"] == 2)
        assert gate.release(first).status == 200
        assert waiting[0].get().code == "expired_while_granting"
        answer = waiting[1].get()
        assert answer.status == 201 and answer.json()["waited_ms"] < WAIT_MS / 2, answer.body


@case
def a_revocation_while_a_grant_is_under_way_costs_it_one_more_attempt():
    """Its token is skipped; it gets another, and keeps its place before those behind it."""
    with Scene() as scene:
        redis = scene.redis()
        proxy = scene.keep(Valve(scene.folder, redis))
        gate = scene.gateway(redis=proxy, options=("--redis-timeout-ms", "20000"))
        leases = take(gate, "r", 3, 2)
        proxy.open.clear()
        asking = Asking(gate, "r")
        eventually(lambda: proxy.held_back, what="the grant")
        body = {"reason": "why", "fencing_token": leases[0].token}
        assert gate.call("POST", "/resources/r/revoke", body).json()["revoked"] == [leases[0].token]
        proxy.open.set()
        answer = asking.get()
        assert answer.status == 201, answer.body
        assert answer.json()["fencing_token"] > leases[1].token + 1
        assert writers(gate, "r", leases) == [False, True]
        gate.acquire("r", ttl_ms=LONG_MS)
        assert gate.try_acquire("r").code == "lease_held"


# ---- Crashes of the gateway ---------------------------------------------------------------------


def _crash(point, hit):
    """Two of three places are taken when the gateway crashes in the third one's grant; what the next
    gateway finds: the number of grants that it gives away at once, who may write."""
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis, faults=f"{point}=crash@{hit}")
        leases = take(gate, "r", 3, 2)
        with contextlib.suppress(Exception):
            gate.try_acquire("r", ttl_ms=LONG_MS)
        gate.wait()
        gate = scene.gateway(redis=redis)
        assert look(gate, "r")["limit"] == 3
        granted = 0
        while gate.try_acquire("r", ttl_ms=LONG_MS).status == 201:
            granted += 1
        assert writers(gate, "r", leases) == [True, True]
        assert [gate.renew(lease).status for lease in leases] == [200, 200]
        return granted, len(look(gate, "r")["holders"])


@case
def a_crash_before_the_fence_leaves_a_place_that_is_found_free():
    assert _crash("after_redis_grant", 3) == (1, 3)
    assert _crash("before_fence", 3) == (1, 3)


@case
def a_crash_after_the_fence_leaves_a_place_that_is_taken():
    assert _crash("after_fence_commit", 3) == (0, 3)


@case
def a_crash_after_a_release_leaves_a_place_that_is_found_free():
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis, faults="after_store_release=crash@1")
        leases = take(gate, "r", 3, 3)
        with contextlib.suppress(Exception):
            gate.release(leases[1])
        gate.wait()
        gate = scene.gateway(redis=redis)
        assert gate.try_acquire("r", ttl_ms=LONG_MS).status == 201
        assert gate.try_acquire("r", ttl_ms=LONG_MS).code == "lease_held"
        assert writers(gate, "r", leases) == [True, False, True]
        assert gate.release(leases[1]).json()["already_released"]
        assert gate.try_acquire("r", ttl_ms=LONG_MS).code == "lease_held"


@case
def a_lease_that_is_alone_is_so_after_a_restart():
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        (alone,) = take(gate, "r", 1, 1)
        gate.call("PUT", "/resources/r", {"limit": 3})
        gate.kill()
        gate = scene.gateway(redis=redis)
        assert gate.try_acquire("r").code == "lease_held"
        assert gate.renew(alone).status == 200
        assert gate.release(alone).status == 200
        assert [gate.try_acquire("r").status for _ in range(4)] == [201, 201, 201, 409]


# ---- Time is Redis' -----------------------------------------------------------------------------


class Clock:
    """The wall clock of a server that is started with `env`."""

    def __init__(self, scene):
        self.path = scene.folder / "clock"
        self.path.write_bytes(bytes(8))
        self.env = {**preload(scene.folder, "clock_shim.c"), "SHIM_CLOCK": str(self.path)}

    def set(self, seconds):
        with open(self.path, "r+b") as file, mmap.mmap(file.fileno(), 8) as memory:
            memory[:] = struct.pack("q", int(seconds * 1_000_000))


@case
def the_gateways_wall_clock_changes_nothing():
    for seconds in (7200, -7200):
        with Scene() as scene:
            clock = Clock(scene)
            gate = scene.gateway(redis=scene.redis(), env=clock.env)
            leases = take(gate, "r", 3, 3)
            clock.set(seconds)
            assert gate.try_acquire("r").code == "lease_held"
            assert len(look(gate, "r")["holders"]) == 3
            assert [gate.renew(lease).status for lease in leases] == [200] * 3
            short = gate.renew(leases[1], ttl_ms=100)
            assert short.status == 200 and short.json()["expires_in_ms"] <= 100, short.body
            fourth = eventually(lambda gate=gate: _granted(gate))
            assert writers(gate, "r", [*leases, fourth]) == [True, False, True, True]


def _granted(gate):
    with contextlib.suppress(AssertionError):
        return gate.acquire("r", ttl_ms=LONG_MS)
    return None


@case
def when_redis_clock_jumps_forward_new_grants_replace_what_ran_out():
    with Scene() as scene:
        clock = Clock(scene)
        gate = scene.gateway(redis=scene.redis(env=clock.env))
        leases = take(gate, "r", 3, 2)
        clock.set(3600)
        assert look(gate, "r")["holders"] == []
        assert writers(gate, "r", leases) == [True, True]  # nobody has replaced them
        younger = [gate.acquire("r", ttl_ms=LONG_MS) for _ in range(3)]
        assert gate.try_acquire("r").code == "lease_held"
        assert writers(gate, "r", [*leases, *younger]) == [False, False, True, True, True]
        assert [gate.renew(lease).code for lease in leases] == ["lease_superseded"] * 2


@case
def when_redis_clock_jumps_back_nobody_gets_in_beside_the_holders():
    with Scene() as scene:
        clock = Clock(scene)
        gate = scene.gateway(redis=scene.redis(env=clock.env))
        leases = take(gate, "r", 2, 2)
        clock.set(-3600)
        assert gate.try_acquire("r").code == "lease_held"
        assert [gate.renew(lease, ttl_ms=LONG_MS).status for lease in leases] == [200, 200]
        assert gate.try_acquire("r").code == "lease_held"
        assert gate.release(leases[0]).status == 200
        third = gate.acquire("r", ttl_ms=LONG_MS)
        assert gate.try_acquire("r").code == "lease_held"
        assert writers(gate, "r", [*leases, third]) == [False, True, True]


if __name__ == "__main__":
    run_cases()
