"""outages.py - what the tests of Redis' faults share: what must hold while Redis is away, and after.

    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        during(gate, redis_breaks, redis_is_well_again)

In every outage the same is asked: acquire and renew answer 503 in time, writes, reads and releases go
on, and afterwards everything is as before, by itself.
"""
import itertools
import os
import random
import socket
import time

from fake_redis import FakeRedis
from harness import Lease, Redis, eventually

SOAK = bool(os.environ.get("SOAK"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
RANDOM = random.Random(SEED)

TIMEOUT_MS = 600  # --redis-timeout-ms of all gateways here
WIDE_S = 8  # above it, for a busy machine: a client that waits for ever is what we look for
LONG_MS = 120000  # a TTL that no test outlives
SECRET = "0123456789abcdef" * 2  # of a holder that is not ours

_names = itertools.count()


# ---- Servers -------------------------------------------------------------------------------------


def gateway(scene, redis, options=(), **arguments):
    return scene.gateway(redis=redis, options=("--redis-timeout-ms", str(TIMEOUT_MS), *options),
                         **arguments)


def faked(scene, *arguments):
    """A gateway on a fake Redis on a real one."""
    redis = scene.redis(*arguments)
    fake = scene.keep(FakeRedis(redis.socket))
    return redis, fake, gateway(scene, fake.url)


def again(scene, redis, *arguments):
    """The same redis-server once more, after its end."""
    return scene.keep(Redis(redis.folder, arguments))


def empty(redis):
    """FLUSHALL, after what a gateway that was just killed may still have on its way."""
    redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    redis.command("FLUSHALL")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def holders_key(resource):
    return f"fencegate:{{{resource}}}:holders"


def counter_key(resource):
    return f"fencegate:{{{resource}}}:counter"


# ---- Asking --------------------------------------------------------------------------------------


def timed(call, *words, **fields):
    """The answer, which must come in time."""
    started = time.monotonic()
    answer = call(*words, **fields)
    took = time.monotonic() - started
    assert took < TIMEOUT_MS / 1000 + WIDE_S, f"answered after {took:.1f} s: {answer}"
    return answer


def expect(answer, status, code=None):
    assert (answer.status, answer.code) == (status, code), \
        (answer.status, answer.code, answer.body)
    if status == 503:
        assert int(answer.headers["retry-after"]) >= 1
    return answer


def lease_of(gate, resource):
    """For eventually(): a lease, or None while somebody else holds it or Redis is away."""
    answer = timed(gate.try_acquire, resource, ttl_ms=LONG_MS)
    if answer.status == 201:
        return Lease(answer.json()["lease_id"], answer.json()["fencing_token"], answer)
    assert answer.status in (409, 503), answer.body
    return None


def soon(gate, resource):
    return eventually(lambda: lease_of(gate, resource), what=f"a lease of {resource}")


def is_degraded(gate):
    return gate.call("GET", "/readyz").json().get("status") == "degraded"


def recovers(gate):
    """It grants again, by itself."""

    def granted():
        answer = gate.try_acquire(f"probe {next(_names)}", ttl_ms=1000)
        assert answer.status in (201, 503), (answer.status, answer.body)
        return answer.status == 201

    eventually(granted, what="a grant after the fault")
    eventually(lambda: gate.call("GET", "/readyz").json().get("status") == "ok", what="readyz ok")


# ---- An outage -----------------------------------------------------------------------------------


def refused(gate, lease, code="redis_unavailable"):
    """Acquire and renew answer 503, in time."""
    expect(timed(gate.try_acquire, f"refused {next(_names)}"), 503, code)
    expect(timed(gate.renew, lease), 503, code)


def writes_go_on(gate, lease, resource):
    assert timed(gate.put, resource, "k", lease.token, b"x").status in (200, 201)
    assert timed(gate.get, resource, "k").body == b"x"
    expect(timed(gate.call, "POST", f"/resources/{resource}/check", None,
                 {"X-Fencing-Token": str(lease.token)}), 200)
    assert timed(gate.call, "GET", f"/leases/{lease.id}").json()["state"] == "held"


def during(gate, begin, end, code="redis_unavailable"):
    """begin() makes the outage, end() ends it; both may take a while to show."""
    held, leaving = soon(gate, "held"), soon(gate, "leaving")
    begin()
    eventually(lambda: gate.try_acquire(f"first {next(_names)}").status == 503, what="an outage")
    refused(gate, held, code)
    writes_go_on(gate, held, "held")
    expect(timed(gate.release, leaving), 200)
    expect(gate.put("leaving", "k", leaving.token, b"late"), 412, "stale_fencing_token")
    end()
    recovers(gate)
    healed(gate, held, "held")
    expect(gate.release(soon(gate, "leaving")), 200)


def healed(gate, lease, resource):
    """Also for one who held a lease all the while: renews it, or lost it; releases."""
    answer = gate.renew(lease, ttl_ms=LONG_MS)
    assert answer.status in (200, 410), answer.body
    expect(gate.release(lease), 200)
    expect(gate.release(soon(gate, resource)), 200)


def flood(gate, resources, meanwhile=lambda: None, ttl_ms=1000):
    """Acquires all at once, over as many connections; the statuses, None where none came."""
    links = []
    for name in resources:
        body = b'{"resource": "%s", "ttl_ms": %d}' % (name.encode(), ttl_ms)
        link = socket.create_connection(("127.0.0.1", gate.port), timeout=30)
        link.sendall(b"POST /leases HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        links.append(link)
    meanwhile()
    return [_status(link) for link in links]


def _status(link):
    with link:
        try:
            line = link.makefile("rb").readline()
        except ConnectionError:
            return None
        return int(line.split()[1]) if line else None
