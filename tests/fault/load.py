"""load.py - traffic with a memory: workers that lease, write and release, and know what must hold.

    load = Load(gate, workers=4, resources=2)
    with load.running():
        ...                                        # break something
    load.expect_progress()
    load.verify(gate)

While it runs every worker checks what it sees against what all have seen before it asked:

  - a grant has a larger token than every grant of that resource that was answered before (I2, I5);
  - a write that is accepted has the newest token that was answered before it was sent (I4, I6);
  - any other status than those in `allowed` is a failure.

verify() asks a gateway for everything that was ever acknowledged (I7). An answer that never came may
have happened or not: then the stored value may be the one that was tried.
"""
import collections
import contextlib
import http.client
import threading
import time

from harness import Client

# What a client may be told while Redis or the disk misbehave.
ALLOWED = {
    "acquire": {201, 409, 503, 507},
    "put": {200, 201, 412, 503, 507},
    "release": {200, 410, 503, 507},
}


class Load:
    def __init__(self, gate, workers=4, resources=None, ttl_ms=2000, writes=2, value_bytes=20,
                 pause_s=0.002, prefix="load"):
        self.gate, self.workers, self.resources = gate, workers, resources or workers
        self.ttl_ms, self.writes, self.value_bytes = ttl_ms, writes, value_bytes
        self.pause_s, self.prefix = pause_s, prefix
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.newest = collections.Counter()  # resource -> greatest token that was answered
        self.tokens = collections.defaultdict(set)
        self.tried = collections.Counter()  # (resource, key) -> greatest number that was sent
        self.stored = collections.Counter()  # ... that was acknowledged
        self.released = collections.Counter()  # resource -> greatest token whose release was
        self.statuses = collections.Counter()  # (what, status, code)
        self.slowest_s = collections.Counter()  # what -> seconds
        self.wrong = []

    # ---- Running ----

    @contextlib.contextmanager
    def running(self):
        threads = [threading.Thread(target=self._work, args=(i,), daemon=True)
                   for i in range(self.workers)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join(30)
            self.stopping.clear()
        assert not self.wrong, self.wrong[:5]

    def turns(self, count):
        """So many turns of the first worker, in this thread. False: the gateway was gone before."""
        client = Client(self.gate.port, timeout_s=30)
        try:
            for number in range(count):
                self._turn(client, f"{self.prefix}:{number % self.resources}", "key")
        except (OSError, http.client.HTTPException):
            return False
        finally:
            client.close()
        return True

    def count(self, what, *statuses):
        return sum(n for (op, status, _), n in list(self.statuses.items())
                   if op == what and status in statuses)

    def granted(self):
        return self.count("acquire", 201)

    def written(self):
        return self.count("put", 200, 201)

    def expect_progress(self, grants=1, writes=1):
        assert self.granted() >= grants and self.written() >= writes, self.statuses

    def expect_only(self, what, *statuses):
        seen = {status for op, status, _ in self.statuses if op == what}
        assert seen <= set(statuses), self.statuses

    # ---- One worker ----

    def _work(self, number):
        resource = f"{self.prefix}:{number % self.resources}"
        client = None
        while not self.stopping.is_set():
            try:
                if client is None or client.port != self.gate.port:
                    client = Client(self.gate.port, timeout_s=30)
                self._turn(client, resource, f"key{number}")
            except (OSError, http.client.HTTPException):
                client = None  # the gateway is gone; whether it did what we asked, nobody knows
                time.sleep(0.02)
            except BaseException as error:  # shown by running()
                self.wrong.append(repr(error))
                return
            time.sleep(self.pause_s)

    def _ask(self, what, call):
        started = time.monotonic()
        answer = call()
        with self.lock:
            self.statuses[what, answer.status, answer.code] += 1
            self.slowest_s[what] = max(self.slowest_s[what], time.monotonic() - started)
        if answer.status not in ALLOWED[what]:
            raise AssertionError(f"{what}: {answer.status} {answer.body!r}")
        return answer

    def _turn(self, client, resource, key):
        with self.lock:
            newest = self.newest[resource]
        answer = self._ask("acquire", lambda: client.try_acquire(resource, ttl_ms=self.ttl_ms))
        if answer.status != 201:
            time.sleep(0.01)
            return
        token, lease_id = answer.json()["fencing_token"], answer.json()["lease_id"]
        with self.lock:
            if token <= newest or token in self.tokens[resource]:
                raise AssertionError(f"{resource}: token {token} granted after {newest}")
            self.tokens[resource].add(token)
            self.newest[resource] = max(self.newest[resource], token)
        for _ in range(self.writes):
            self._write(client, resource, key, token)
        answer = self._ask("release", lambda: client.call("DELETE", f"/leases/{lease_id}"))
        if answer.status == 200:
            with self.lock:
                self.released[resource] = max(self.released[resource], token)

    def _write(self, client, resource, key, token):
        with self.lock:
            self.tried[resource, key] += 1
            number, newest = self.tried[resource, key], self.newest[resource]
        value = self._value(number)
        answer = self._ask("put", lambda: client.put(resource, key, token, value))
        if answer.status in (200, 201):
            with self.lock:
                self.stored[resource, key] = max(self.stored[resource, key], number)
            if newest > token:
                raise AssertionError(
                    f"{resource}: token {token} wrote after {newest} had been answered")

    def _value(self, number):
        return (str(number) + " ").encode().ljust(self.value_bytes, b".")

    # ---- Afterwards ----

    def verify(self, gate):
        """Everything acknowledged is there, and the next token of each resource is a new one."""
        for (resource, key), number in self.stored.items():
            answer = gate.get(resource, key)
            assert answer.status == 200, (resource, key, number, answer.status)
            found = int(answer.body.partition(b" ")[0])
            assert number <= found <= self.tried[resource, key], \
                (resource, key, number, self.tried[resource, key], found)
            assert answer.body == self._value(found), (resource, key, found)
        for resource, newest in self.newest.items():
            row = gate.call("GET", f"/resources/{resource}").json()
            assert row["highest_fencing_token"] >= newest, (resource, newest, row)
        for resource, token in self.released.items():
            answer = gate.call("POST", f"/resources/{resource}/check", None,
                               {"X-Fencing-Token": str(token)})
            assert answer.status == 412, (resource, token, answer.body)

    def verify_new_tokens(self, gate, patience_s=20):
        """As verify(), and acquires every resource: no token is a second time given."""
        self.verify(gate)
        for resource, newest in self.newest.items():
            deadline = time.monotonic() + patience_s
            while True:
                answer = gate.try_acquire(resource, ttl_ms=1000)
                if answer.status == 201:
                    break
                assert answer.status in (409, 503), (answer.status, answer.body)
                assert time.monotonic() < deadline, (resource, answer.body)
                time.sleep(0.02)
            token = answer.json()["fencing_token"]
            assert token > newest and token not in self.tokens[resource], (resource, token, newest)
            self.tokens[resource].add(token)
            self.newest[resource] = token
            gate.call("DELETE", f"/leases/{answer.json()['lease_id']}")
