#!/usr/bin/python3
"""test_failpoints.py - every failpoint of gateway/faults.c x every action, once.

A row is one request that runs into one failpoint, on a data directory and a Redis database of its
own:

    setup    an ordinary gateway: a lease and a record that are kept, a lease that is about to be
             released, and a predecessor: a lease whose TTL has passed, not replaced yet
    victim   the fault build with the failpoint set, and the request
    look     by the victim where it lives on, else by a new gateway: did it happen or not?
    after    the victim is killed, an ordinary gateway starts: what was acknowledged is there

POINTS says of each failpoint what the client sees and whether the thing has happened by then.
"lost" is a connection that ends without an answer. The rest follows from the contract: a grant that
was not made durable leaves the predecessor unfenced and the resource free at once, orphan in Redis
or not; one that was made durable has fenced it, and holds the resource until its TTL; no token
comes twice.

The rows run a few at a time, each from start to end in one thread: servers die with the thread that
started them.
"""
import concurrent.futures
import datetime
import http.client
import pathlib
import re
import signal
import sys
import threading
import time

from harness import ROOT, Answer, Gateway, Scene, add_case, case, eventually, run_cases

AT_ONCE = 6
SLEEP_MS = 300
SHORT_TTL_MS = 250  # passes while the victim is paused
HELD_TTL_MS = 2500  # outlives a restart, mostly
LONG_TTL_MS = 60000
HOUSEKEEPING_S = 1.0  # the writer thread leaves a new store alone for so long

LOST = "lost"
START, ACQUIRE, WRITE, RELEASE = "start", "acquire", "write", "release"

# point: requests that pass it, what `error` makes of them, whether they have happened by then
POINTS = {
    "start_store": ((START,), 65, None),
    "start_redis": ((START,), 69, None),
    "start_server": ((START,), 69, None),
    "after_redis_grant": ((ACQUIRE,), "redis_unavailable", False),
    "before_fence": ((ACQUIRE,), "store_unavailable", False),
    "in_batch": ((ACQUIRE, WRITE), "store_unavailable", False),
    "before_commit": ((ACQUIRE, WRITE), "storage_full", False),
    "after_commit": ((ACQUIRE, WRITE), LOST, True),  # ends with exit 74
    "after_fence_commit": ((ACQUIRE,), "store_unavailable", True),
    "after_store_release": ((RELEASE,), 200, True),
    "before_reply": ((ACQUIRE, WRITE, RELEASE), LOST, True),
}
ACTIONS = {"crash": "crash", "error": "error", "sleep": f"sleep({SLEEP_MS})", "pause": "pause"}

# Housekeeping commits, too: with `sleep` every commit is slow, so that the request's own is.
OF_COMMITS = ("before_commit", "after_commit")


# ---- What a row is made of ----------------------------------------------------------------------


class Before:
    """What stands before the victim starts. `kept` and `leaving` are live; `old` has run out."""

    def __init__(self, gate):
        self.old = gate.acquire("r", ttl_ms=LONG_TTL_MS)
        assert gate.put("r", "k", self.old.token, b"old").status == 201
        self.kept = gate.acquire("kept", ttl_ms=LONG_TTL_MS)
        assert gate.put("kept", "k", self.kept.token, b"first").status == 201
        self.leaving = gate.acquire("leaving", ttl_ms=LONG_TTL_MS)
        assert gate.renew(self.old, ttl_ms=50).status == 200
        time.sleep(0.06)


def ask(gate, op, before, ttl_ms):
    """The request of a row: the Answer, or LOST."""
    if op == ACQUIRE:
        return unless_lost(gate, "try_acquire", "r", ttl_ms=ttl_ms)
    if op == WRITE:
        return unless_lost(gate, "put", "kept", "k", before.kept.token, b"second")
    return unless_lost(gate, "release", before.leaving)


def unless_lost(gate, call, *arguments, **fields):
    client = gate.client()
    try:
        return getattr(client, call)(*arguments, **fields)
    except (OSError, http.client.HTTPException):
        return LOST
    finally:
        client.close()


class Asked:
    """The request under way in a thread of its own."""

    def __init__(self, call, *arguments):
        self.began = time.monotonic()
        self.outcome, self.took = None, None
        self.thread = threading.Thread(target=self._run, args=(call, *arguments), daemon=True)
        self.thread.start()

    def _run(self, call, *arguments):
        self.outcome = call(*arguments)
        self.took = time.monotonic() - self.began

    def result(self):
        self.thread.join(60)
        assert self.outcome is not None, "no answer"
        return self.outcome


def stopped(server):
    state = pathlib.Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


def hit_by_request(gate, point, spawned):
    """Whether it was the request that ran into the failpoint: certain, unless it is one of commits
    and housekeeping could have come first, as on a machine that is very slow to start us."""
    line = re.search(rf"^(\S+) WARN +failpoint name={point} ", gate.log(), re.M)
    assert line, f"the failpoint was not reached:\n{gate.log()}"
    at = datetime.datetime.fromisoformat(line[1].replace("Z", "+00:00")).timestamp()
    return point not in OF_COMMITS or at < spawned + HOUSEKEEPING_S


# ---- What has to hold ---------------------------------------------------------------------------


def check_answer(outcome, op, point, action, took, ttl_ms):
    """What the client saw; only where the failpoint was certainly the request's."""
    error, durable = POINTS[point][1:]
    if action == "crash":
        assert outcome == LOST, outcome
    elif action == "error" and error == LOST:
        assert outcome == LOST, outcome
    elif action == "error" and isinstance(error, str):
        assert isinstance(outcome, Answer) and outcome.code == error, outcome
        assert outcome.status == (507 if error == "storage_full" else 503), outcome
        assert outcome.json()["retryable"] is True
    elif action == "pause" and op == ACQUIRE and point != "before_reply":
        assert outcome.code == "expired_while_granting", outcome
    else:
        assert outcome.status == (201 if op == ACQUIRE else 200), outcome
    if action == "sleep":
        assert took * 1000 >= SLEEP_MS, took
        if op == ACQUIRE and point != "before_reply":  # P4: what is left, not what was asked for
            assert outcome.json()["expires_in_ms"] <= ttl_ms - SLEEP_MS, outcome.json()


def grants(gate, resource="r"):
    """The tokens granted so far, from the ledger: each larger than all before."""
    tokens = [row["fencing_token"] for row in gate.history(resource) if row["kind"] == "grant"]
    assert tokens == sorted(set(tokens)), tokens
    return tokens


def look_at_acquire(gate, before, outcome, asked, ttl_ms):
    """Whether the grant is durable; then what everybody else sees of it."""
    tokens = grants(gate)
    durable = tokens[-1] > before.old.token
    answered = isinstance(outcome, Answer) and outcome.status == 201
    if answered:  # I3
        assert tokens[-1] == outcome.json()["fencing_token"], (tokens, outcome.json())
        assert gate.put("r", "k", tokens[-1], b"new").status == 200
    ended = any(row["reason"] == "expired_while_granting" for row in gate.history("r"))
    assert ended == (isinstance(outcome, Answer) and outcome.code == "expired_while_granting")

    stale = gate.put("r", "k", before.old.token, b"late")
    if durable:
        assert stale.code == "stale_fencing_token", stale
        assert stale.json()["reason"] == "superseded", stale.json()
    else:
        assert stale.status == 200, stale

    next_one = gate.try_acquire("r", ttl_ms=LONG_TTL_MS)
    if answered and next_one.status != 201:
        assert next_one.code == "lease_held", next_one
        assert gate.call("DELETE", outcome.headers["location"]).status == 200
        next_one = gate.try_acquire("r", ttl_ms=LONG_TTL_MS)
    elif durable and not ended:  # somebody has it who does not know: nobody else before its TTL
        while next_one.status != 201:
            assert next_one.code == "lease_held", next_one
            holders = [holder["fencing_token"] for holder in next_one.json()["holders"]]
            assert holders == tokens[-1:], (holders, tokens)
            time.sleep(0.02)
            next_one = gate.try_acquire("r", ttl_ms=LONG_TTL_MS)
        # The gateway has noticed that the answer could not be sent; else it costs the TTL.
        noticed = any(row["reason"] == "client_gone" for row in gate.history("r"))
        assert noticed or (time.monotonic() - asked.began) * 1000 >= ttl_ms - 5
    assert next_one.status == 201, next_one
    token = next_one.json()["fencing_token"]
    assert token > tokens[-1], (token, tokens)
    assert grants(gate) == tokens + [token]
    assert gate.put("r", "k", before.old.token, b"late").code == "stale_fencing_token"
    return durable


def look_at_write(gate, before, outcome):
    now = gate.get("kept", "k")
    durable = now.body == b"second"
    assert durable or now.body == b"first", now
    assert now.headers["etag"] == ('"v2"' if durable else '"v1"')
    if isinstance(outcome, Answer):
        assert durable == (outcome.status == 200), (outcome, now)
    writes = [row for row in gate.history("kept") if row["kind"] == "write"]
    assert len(writes) == (2 if durable else 1), writes
    return durable


def look_at_release(gate, before, outcome):
    late = gate.put("leaving", "k", before.leaving.token, b"late")
    durable = late.status == 412
    if durable:  # I6
        assert late.json()["reason"] == "released", late.json()
        again = gate.release(before.leaving)
        assert again.status == 200 and again.json()["already_released"], again
        next_one = gate.acquire("leaving", ttl_ms=LONG_TTL_MS)
        assert next_one.token > before.leaving.token
    if isinstance(outcome, Answer):
        assert durable == (outcome.status == 200), (outcome, late)
    return durable


def check_kept(gate, before):
    """What was acknowledged before the victim started."""
    lease = gate.call("GET", f"/leases/{before.kept.id}").json()
    assert lease["state"] == "held", lease
    version = int(gate.get("kept", "k").headers["etag"].strip('"v'))
    answer = gate.put("kept", "k", before.kept.token, b"third", X_Lease_Id=before.kept.id)
    assert answer.status == 200 and answer.json()["version"] == version + 1, answer
    assert gate.renew(before.kept).status == 200
    assert gate.try_acquire("kept").code == "lease_held"


# ---- A row --------------------------------------------------------------------------------------


def start_row(scene, url, point, action):
    """A failpoint of the start: nothing has happened, and the next start is as any other."""
    with scene_gateway(scene, url) as gate:
        before = Before(gate)
    began = time.monotonic()
    victim = scene.gateway(redis=url, faults=f"{point}={ACTIONS[action]}", expect_exit=True)
    if action == "crash":
        assert victim.wait() == -signal.SIGKILL
    elif action == "error":
        assert victim.wait() == POINTS[point][1], victim.log()
    else:
        if action == "pause":
            eventually(lambda: stopped(victim), what="SIGSTOP")
            time.sleep(0.05)
            assert "listening" not in victim.log()
            victim.signal(signal.SIGCONT)
        victim.await_listening()
        assert action == "pause" or (time.monotonic() - began) * 1000 >= SLEEP_MS
        check_kept(victim, before)
        assert victim.stop() == 0
    with scene_gateway(scene, url) as gate:
        check_kept(gate, before)


class scene_gateway:
    """An ordinary gateway, killed at the end: it never has a chance to tidy up."""

    def __init__(self, scene, url):
        self.gate = scene.gateway(redis=url)

    def __enter__(self):
        return self.gate

    def __exit__(self, *_):
        Gateway.close(self.gate)
        self.gate.kill()


def request_row(scene, url, point, action, op):
    with scene_gateway(scene, url) as gate:
        before = Before(gate)

    durable = POINTS[point][2]
    ttl_ms = LONG_TTL_MS
    if op == ACQUIRE and action == "pause" and point != "before_reply":
        ttl_ms = SHORT_TTL_MS
    elif op == ACQUIRE and action in ("crash", "error") and durable:
        ttl_ms = HELD_TTL_MS
    times = "@*" if action == "sleep" and point in OF_COMMITS else ""
    spawned = time.time()
    victim = scene.gateway(redis=url, faults=f"{point}={ACTIONS[action]}{times}")
    asked = Asked(ask, victim, op, before, ttl_ms)
    if action == "pause":
        eventually(lambda: stopped(victim), what="SIGSTOP")
        time.sleep((SHORT_TTL_MS + 50) / 1000)
        victim.signal(signal.SIGCONT)
    outcome = asked.result()

    certain = hit_by_request(victim, point, spawned)
    if action == "crash":
        assert victim.wait() == -signal.SIGKILL
    elif action == "error" and point == "after_commit":
        assert victim.wait() == 74, victim.log()
    if certain:
        check_answer(outcome, op, point, action, asked.took, ttl_ms)

    look = {ACQUIRE: lambda gate: look_at_acquire(gate, before, outcome, asked, ttl_ms),
            WRITE: lambda gate: look_at_write(gate, before, outcome),
            RELEASE: lambda gate: look_at_release(gate, before, outcome)}[op]
    expected = durable or action in ("sleep", "pause")
    if victim.running():
        happened = look(victim)
        victim.kill()
    else:
        with scene_gateway(scene, url) as gate:
            happened = look(gate)
    assert happened == expected or not certain, happened
    with scene_gateway(scene, url) as gate:
        tokens = grants(gate)
        check_kept(gate, before)
        assert gate.put("r", "k2", tokens[-1] + 1, b"never").code == "fencing_token_not_issued"


def run_row(redis, number, point, action, op):
    url = f"{redis.url}?db={number}"
    with Scene() as scene:
        if op == START:
            start_row(scene, url, point, action)
        else:
            request_row(scene, url, point, action, op)


# ---- Several requests in one batch --------------------------------------------------------------


def batch_row(redis, number, fault, refused):
    """The first write is held before its COMMIT, so that the others gather and share the next one,
    in which the failpoint waits. What was answered with 201 is there, also after kill -9; what was
    refused is not; a lost answer may mean either. `refused`: how many are; None: some are lost."""
    url = f"{redis.url}?db={number}"
    with Scene() as scene:
        with scene_gateway(scene, url) as gate:
            lease = gate.acquire("r", ttl_ms=LONG_TTL_MS)
        victim = scene.gateway(redis=url, faults=fault)
        keys = [f"k{i}" for i in range(6)]
        asked = {}
        for key in keys:
            asked[key] = Asked(unless_lost, victim, "put", "r", key, lease.token, b"x")
            if len(asked) == 1:
                time.sleep(0.05)
        outcomes = {key: asked[key].result() for key in keys}
        victim.kill()
        codes = [outcome if outcome == LOST else outcome.code for outcome in outcomes.values()]
        if refused is None:
            assert LOST in codes, codes
        else:
            assert LOST not in codes and len(codes) - codes.count(None) == refused, codes
        with scene_gateway(scene, url) as gate:
            for key, outcome in outcomes.items():
                if outcome != LOST:
                    there = gate.get("r", key).status
                    assert there == (200 if outcome.status == 201 else 404), (key, outcome, there)
            written = [row["key"] for row in gate.history("r") if row["kind"] == "write"]
            assert sorted(written) == [key for key in keys if gate.get("r", key).status == 200]


BATCHES = {
    "an_error_in_one_op_never_touches_its_neighbours":
        ("before_commit=sleep(300) in_batch=error@4", 1),
    "a_crash_within_a_batch_loses_nothing_acknowledged":
        ("before_commit=sleep(300) in_batch=crash@4", None),
}


# ---- All of it ----------------------------------------------------------------------------------


@case
def every_failpoint_has_its_rows():
    source = (ROOT / "gateway" / "faults.c").read_text()
    assert set(re.findall(r'\.name = "(\w+)"', source)) == set(POINTS)


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    rows = [(point, action, op) for point, (ops, *_) in POINTS.items() for op in ops
            for action in ACTIONS]
    with Scene() as scene:
        redis = scene.redis("--databases", str(len(rows) + len(BATCHES)))
        work = {"_".join(row): (run_row, row) for row in rows}
        work.update({name: (batch_row, settings) for name, settings in BATCHES.items()})
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for number, (name, (run, settings)) in enumerate(work.items()):
                if not words or any(word in name for word in words):
                    add_case(name, pool.submit(run, redis, number, *settings).result)
            run_cases()


main()
