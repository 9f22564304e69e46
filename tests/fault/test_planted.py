#!/usr/bin/python3
"""test_planted.py - every planted bug is caught, and by what.

The fault build can take each safeguard of the gateway away (FG_BUGS, gateway/faults.c; two scripts
in tests/fault/lua/ through FG_SCRIPTS). For each of them stands a probe here: a few requests that a
client might make, and what the contract says of them. A case runs its probe twice on the fault
build: without the bug, where it must hold; with the bug, where it must not. There it is either the
probe that sees a wrong answer, or an invariant in the store that stops the process first, which a
probe only sees as a lost connection. A bug that nothing sees is a hole in the tests.

It prints a row of the table in README.md for each.

Probes that need a race (two grants in flight) sleep in a failpoint and may, on a busy machine, miss
it: with the bug a probe has TRIES tries. Without it, one: it must always hold.
"""
import concurrent.futures
import contextlib
import errno
import http.client
import re
import socket
import sqlite3
import struct
import sys
import threading
import time

from harness import ROOT, Scene, add_case, case, eventually, preload, run_cases

AT_ONCE = 4
TRIES = 3
RACE_MS = 400  # how long a failpoint (or a lock) holds a race open

PROBES = {}  # bug: (probe, what to start the gateway with)


class Violated(AssertionError):
    """A probe has seen what must not be."""


def must(condition, what):
    if not condition:
        raise Violated(what)


def probe(bug, **settings):
    """`settings`: how to start the gateway; `scripts`: the bug is a script, not one of FG_BUGS."""
    def add(function):
        PROBES[bug] = (function, settings)
        return function
    return add


class Stage:
    """What a probe plays on: a Redis, and gateways on one data directory, with the bug or not."""

    def __init__(self, scene, bug, settings, planted):
        self.scene = scene
        self.redis = scene.redis()
        self.arguments = {key: value for key, value in settings.items() if key != "scripts"}
        self.arguments["faulty"] = True
        if planted and "scripts" in settings:
            self.arguments["scripts"] = str(ROOT / "tests" / "fault" / "lua" / settings["scripts"])
        elif planted:
            self.arguments["bugs"] = bug
        self.gates = []

    def gateway(self, redis=None, **more):
        gate = self.scene.gateway(redis=redis or self.redis, **{**self.arguments, **more})
        self.gates.append(gate)
        return gate

    def invariant(self):
        """The invariant that stopped a gateway; None: none did."""
        for gate in self.gates:
            for line in gate.log().splitlines():
                if "invariant violated" in line:
                    return line.partition('="')[2].rstrip('"')
        return None


def in_background(call, *arguments, **fields):
    """A call in a thread, over a connection of its own."""
    future = concurrent.futures.Future()

    def run():
        try:
            future.set_result(call(*arguments, **fields))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def expire(gate, resource, **fields):
    """A lease whose time has passed and which nobody has replaced."""
    lease = gate.acquire(resource, ttl_ms=30000, **fields)
    must(gate.renew(lease, ttl_ms=50).status == 200, "a lease can be renewed")
    time.sleep(0.06)
    return lease


def reached(gate, point):
    eventually(lambda: f"failpoint name={point}" in gate.log(), what=point)


# ---- The mark and the grant ---------------------------------------------------------------------


@probe("raise_max", faults=f"before_fence=sleep({RACE_MS})")
def redis_loses_its_data_between_two_grants(stage):  # R6: the same number is proposed twice
    gate = stage.gateway()
    first = in_background(gate.client().try_acquire, "r")
    reached(gate, "before_fence")
    stage.redis.command("FLUSHALL")
    second = gate.client().try_acquire("r")
    answers = [first.result(30), second]
    must([answer.status for answer in answers] == [201, 201], f"both are granted: {answers}")
    tokens = [answer.json()["fencing_token"] for answer in answers]
    must(tokens[0] < tokens[1], f"tokens rise: {tokens}")


@probe("answer_before_fence", faults=f"before_fence=sleep({RACE_MS})@2")
def killed_right_after_a_grant_was_answered(stage):  # C3, I3
    gate = stage.gateway()
    old = expire(gate, "r")
    new = gate.acquire("r")
    gate.kill()
    gate = stage.gateway(faults="")
    must(gate.put("r", "k", old.token, b"late").status == 412, "the predecessor is fenced")
    must(gate.put("r", "k", new.token, b"new").status == 201, "the grant that was answered counts")


@probe("skip_remaining_time", faults="before_fence=sleep(300)")
def the_fence_commit_takes_longer_than_the_ttl(stage):  # T1
    answer = stage.gateway().try_acquire("r", ttl_ms=200)
    must(answer.code == "expired_while_granting", f"what has run out is not given: {answer}")


# ---- The check ----------------------------------------------------------------------------------


@probe("no_lease_check")
def a_write_with_the_lease_id_of_another_lease(stage):
    gate = stage.gateway()
    mine, other = gate.acquire("r"), gate.acquire("other")
    answer = gate.put("r", "k", mine.token, b"x", X_Lease_Id=other.id)
    must(answer.code == "lease_mismatch", f"the lease id has to be the token's: {answer}")


@probe("check_ge")
def a_forged_token_above_the_mark(stage):  # V1
    gate = stage.gateway()
    lease = gate.acquire("r")
    answer = gate.put("r", "k", lease.token + 1000, b"x")
    must(answer.code == "fencing_token_not_issued", f"it was never issued: {answer}")


@probe("check_outside_transaction", faults=f"before_fence=sleep({RACE_MS})@2")
def a_write_while_the_next_grant_is_being_fenced(stage):  # P5
    gate = stage.gateway()
    old = expire(gate, "r")
    grant = in_background(gate.client().try_acquire, "r")
    reached(gate, "before_fence")
    answer = gate.put("r", "k", old.token, b"late")
    must(grant.result(30).status == 201, "the grant is answered")
    must(answer.code == "stale_fencing_token", f"the grant was first: {answer}")


@probe("fencing_off")
def a_write_of_the_one_that_was_replaced(stage):  # P1
    gate = stage.gateway()
    old = expire(gate, "r")
    gate.acquire("r")
    answer = gate.put("r", "k", old.token, b"late")
    must(answer.code == "stale_fencing_token", f"a replaced holder may not write: {answer}")


@probe("forget_ended_leases")
def releasing_twice(stage):  # M7
    gate = stage.gateway()
    lease = gate.acquire("r")
    must(gate.release(lease).status == 200, "the first time")
    answer = gate.release(lease)
    must(answer.status == 200 and answer.json().get("already_released"), f"once more: {answer}")


# ---- SQLite -------------------------------------------------------------------------------------

# What shim.c is told: pwrite of the write-ahead log fails, from the next one on.
DISK_FULL = struct.pack("5q", 2, ord("w"), 1, 1, errno.ENOSPC)


@probe("ignore_failed_commit")
def a_write_while_the_disk_is_full(stage):  # D4
    control = stage.scene.folder / "control"
    control.write_bytes(bytes(4096))
    shim = preload(stage.scene.folder, "shim.c")
    gate = stage.gateway(env={**shim, "SHIM_CONTROL": str(control)})
    lease = gate.acquire("r")
    with open(control, "r+b") as file:
        file.write(DISK_FULL)
    written = gate.put("r", "k", lease.token, b"x")
    read = gate.get("r", "k")
    must((written.code, read.status) == ("storage_full", 404), f"nothing written: {written} {read}")


@probe("deferred_begin")
def somebody_else_holds_the_write_lock_for_a_moment(stage):  # D1, BR26
    gate = stage.gateway()
    lease = gate.acquire("r")
    other = sqlite3.connect(gate.data_dir / "fencegate.db", isolation_level=None)
    with contextlib.closing(other):
        other.execute("BEGIN IMMEDIATE")
        write = in_background(gate.client().put, "r", "k", lease.token, b"x")
        time.sleep(RACE_MS / 1000)
        other.execute("ROLLBACK")
        answer = write.result(30)
    must(answer.status == 201, f"the write waits its turn: {answer}")


# ---- HTTP ---------------------------------------------------------------------------------------


@probe("unescape_on")
def a_key_with_an_escaped_nul(stage):  # E1
    gate = stage.gateway()
    lease = gate.acquire("r")
    answer = gate.call("PUT", "/store/r/key%00rest", b"x", {"X-Fencing-Token": str(lease.token)})
    must(answer.code == "invalid_name", f"it is no name: {answer}")
    must(gate.get("r", "key").status == 404, "and not the name of another record")


@probe("first_header_wins")
def two_fencing_tokens_in_one_request(stage):  # V3
    gate = stage.gateway()
    lease = gate.acquire("r")
    with socket.create_connection(("127.0.0.1", gate.port), 20) as link:
        link.sendall(b"PUT /store/r/k HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
                     b"X-Fencing-Token: %d\r\nX-Fencing-Token: 99\r\n\r\nx" % lease.token)
        response = http.client.HTTPResponse(link)
        response.begin()
        must(response.status == 400, f"which of the two? {response.status} {response.read()}")


# ---- Redis --------------------------------------------------------------------------------------


class LateReply:
    """A proxy rule: the next grant reaches the gateway only when it asks for `wanted`."""

    def __init__(self, wanted):
        self.wanted, self.armed, self.asked = wanted, False, threading.Event()

    def __call__(self, direction, data):
        if direction == "up" and self.wanted in data:
            self.asked.set()
        elif direction == "down" and self.armed and b"GRANTED" in data:
            self.armed = False
            self.asked.wait(20)
        return data


def unless_503(answer):
    return answer if answer.status != 503 else None


@probe("reuse_timed_out_connection", options=("--redis-timeout-ms", "1000"))
def the_reply_to_a_timed_out_call_comes_late(stage):  # R18, BR1
    proxy = stage.scene.proxy(stage.redis)
    proxy.rule = LateReply(b"fencegate:{b}:")
    gate = stage.gateway(proxy)
    for _ in range(5):  # tokens of `a` are not to be mixed up with those of `b`
        gate.release(gate.acquire("a"))
    gate.acquire("last")  # now nothing is under way any more
    proxy.rule.armed = True
    must(gate.try_acquire("a").code == "redis_unavailable", "no answer in time")
    answer = eventually(lambda: unless_503(gate.try_acquire("b")), what="a new connection")
    must(answer.status == 201, f"nobody holds b: {answer}")
    # Another token than its first: that of `a`, or that of a second try, because the first was
    # answered with what was meant for `a`, which scripts.c no longer takes for a grant of `b`.
    must(answer.json()["fencing_token"] == 1, f"it got its own answer: {answer}")


@probe("no_noscript_fallback")
def redis_forgets_its_scripts(stage):  # R10, BR18
    gate = stage.gateway()
    stage.redis.command("SCRIPT", "FLUSH", "SYNC")
    answer = gate.try_acquire("r")
    must(answer.status == 201, f"the script is sent along: {answer}")


@probe("undo_by_resource", scripts="undo_by_resource")
def a_release_repeated_while_the_next_one_holds(stage):  # N2
    gate = stage.gateway()
    first = gate.acquire("r")
    gate.release(first)
    gate.acquire("r")
    must(gate.release(first).json().get("already_released"), "a release may be repeated")
    answer = gate.try_acquire("r")
    must(answer.code == "lease_held", f"it removed its own holder only: {answer}")


@probe("zadd_xx", scripts="zadd_xx")
def renewing_what_has_run_out(stage):  # M3, P9
    gate = stage.gateway()
    lease = expire(gate, "r")
    answer = gate.renew(lease)
    must(answer.code == "lease_expired", f"it is not created again: {answer}")


# ---- Cases --------------------------------------------------------------------------------------


def attempt(bug, planted):
    """Runs a probe: None where it holds, else what caught the bug."""
    function, settings = PROBES[bug]
    with Scene() as scene:
        stage = Stage(scene, bug, settings, planted)
        try:
            function(stage)
            return None
        except (Violated, OSError, http.client.HTTPException) as error:
            invariant = stage.invariant()
            if not planted or not (invariant or isinstance(error, Violated)):
                raise
            return f"the store stops itself: {invariant}" if invariant else "a wrong answer"


def run_bug(bug):
    name = PROBES[bug][0].__name__
    attempt(bug, planted=False)
    started = time.monotonic()
    for number in range(1, TRIES + 1):
        caught = attempt(bug, planted=True)
        if caught:
            seconds = time.monotonic() - started
            return f"| `{bug}` | `{name}`: {caught} | {seconds:.1f} |" + (
                f" at try {number}" if number > 1 else "")
    raise AssertionError(f"{bug} is not seen by {name}")


@case
def every_planted_bug_has_its_probe():
    source = (ROOT / "gateway" / "faults.c").read_text()
    scripts = {path.name for path in (ROOT / "tests" / "fault" / "lua").iterdir()}
    assert set(re.findall(r'\{"(\w+)", false\}', source)) | scripts == set(PROBES)


def case_of(future):
    def wait():
        print(future.result(), flush=True)
    return wait


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for bug, (function, _) in PROBES.items():
            name = f"{bug} ({function.__name__})"
            if not words or any(word in name for word in words):
                add_case(name, case_of(pool.submit(run_bug, bug)))
        run_cases()


main()
