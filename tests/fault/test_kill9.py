#!/usr/bin/python3
"""test_kill9.py - the gateway is killed again and again while clients work; it loses nothing.

One cycle: clients work for a moment, the gateway dies by SIGKILL (at any time, or at a failpoint
that several requests have reached), an ordinary one starts on the same data. Then every resource
that by the ledger nobody holds has to be granted at the first try: neither a release that Redis has
not heard of nor a grant that Redis made and the store never saw may block it. Its leases here last
a minute, so that no expiry helps. What a client still holds can be written and released, and is
free then.

After the cycles the checker goes through all that the clients saw (checker.py): nothing that was
acknowledged is missing from the ledger, no token came twice, every record is linearizable.

SEED=n repeats the choices. KILLS: cycles (20; with SOAK=1: 200).
"""
import collections
import contextlib
import functools
import os
import random
import secrets
import signal
import threading
import time

import clients
import harness
import histories
import nemeses
import workloads
from harness import case

SOAK = os.environ.get("SOAK") == "1"
KILLS = int(os.environ.get("KILLS", "200" if SOAK else "20"))
SEED = int(os.environ.get("SEED") or secrets.randbelow(1_000_000))
MINUTE_MS = 60000  # longer than any case here waits
PRIVATE = 4  # clients with a resource of their own

STARTING = ("start_store", "start_redis", "start_server")
WORKING = ("after_redis_grant", "before_fence", "in_batch", "before_commit", "after_commit",
           "after_fence_commit", "after_store_release", "before_reply")


class Private:
    """A client with a resource to itself: acquires, writes, releases, with leases of a minute."""

    def __init__(self, client):
        self.client, self.number, self.names, self.lease = client, 0, [], None
        self.new_resource()

    def new_resource(self):
        self.number += 1
        self.names.append(f"private-{self.client.number}-{self.number}")
        self.lease = None

    @property
    def res(self):
        return self.names[-1]

    def work(self, stopped):
        while not stopped.is_set():
            self.lease = self.client.acquire(self.res, MINUTE_MS)
            if self.lease is None:
                stopped.wait(0.01)
                continue
            for number in range(self.client.random.randint(0, 3)):
                if self.client.write(self.lease, "k", f"{self.client.p}-{number}") is None:
                    return
            if self.client.release(self.lease) is None:
                return
            self.lease = None


class Cycles:
    """The gateway, the clients, and what is done to them."""

    def __init__(self, scene, name, **system):
        self.random = random.Random(SEED)
        self.history, self.report = clients.History(), histories.Report(name, SEED)
        target = clients.Target()
        self.system = nemeses.System(scene, target, **system)
        self.shared = workloads.Register(ttls_ms=(200, 600))
        self.shared.RESOURCES, self.shared.READERS = self.shared.RESOURCES[:8], 2
        self.staff = [clients.RecordingClient(number, target, self.history, SEED)
                      for number in range(6 + PRIVATE + 1)]
        self.privates = [Private(client) for client in self.staff[6:-1]]
        self.prober = self.staff[-1]
        self.stood = collections.Counter()

    def die(self, how):
        """Clients work; how() ends the gateway; the clients come to their ends."""
        stopped = threading.Event()
        bodies = self.shared.bodies(self.staff[:6], stopped)
        bodies += [functools.partial(private.work, stopped) for private in self.privates]
        with clients.running(bodies):
            how()
            self.system.target.port = None
            stopped.set()
        status = self.system.gateway.wait()
        assert status == -signal.SIGKILL, (status, self.system.gateway.log()[-2000:])
        self.history.add("nemesis", "info", f="killed")

    def at_any_time(self):
        time.sleep(self.random.uniform(0, 0.5))
        self.system.kill_gateway()

    def at_failpoint(self):
        harness.eventually(lambda: not self.system.gateway.running(), what="the failpoint")

    # ---- After the restart ----

    def free_at_once(self, res):
        lease = self.prober.acquire(res, MINUTE_MS)
        assert lease, f"{res} is free by the ledger, but was refused: {self.prober.code}"
        assert self.prober.write(lease, "probe", f"{self.prober.p}"), self.prober.code
        assert self.prober.release(lease), self.prober.code

    def live(self, res):
        """The tokens that are live by the ledger."""
        live = set()
        for row in self.system.gateway.history(res):
            if row["kind"] == "grant":
                live.add(row["fencing_token"])
            elif row["kind"] in ("release", "expire"):
                live.discard(row["fencing_token"])
        return live

    def in_redis(self, res):
        """Whether Redis believes that somebody holds it."""
        redis = self.system.redis
        return redis and redis.command("EXISTS", f"fencegate:{{{res}}}:holders")

    def look(self, private):
        """Returns how it stands with the client's resource."""
        live, lease = self.live(private.res), private.lease
        if live and not (lease and live == {lease["token"]}):
            # A grant was durable, and its answer never came: that costs its TTL.
            private.new_resource()
            return "unanswered"
        if live:
            # The client still holds it: it can write, and leave.
            client = private.client
            assert client.write(lease, "held on", f"{client.p}"), client.code
            assert client.release(lease), client.code
        private.lease = None
        in_redis = self.in_redis(private.res)
        self.free_at_once(private.res)
        return "held" if live else "free, but not for Redis" if in_redis else "free"

    def restart(self):
        self.system.start_gateway()
        self.history.add("nemesis", "info", f="started")
        harness.eventually(self.system.ready, what="readiness")
        self.stood.update(self.look(private) for private in self.privates)

    def finish(self):
        """All that the checker can say."""
        names = [*self.shared.RESOURCES,
                 *(res for private in self.privates for res in private.names)]
        held = [res for res in names if res.startswith("private") and self.live(res)]
        for client in self.staff[:-1]:
            client.close()
        report = self.report
        histories.finish(report, self.system, self.history, self.prober,
                         [res for res in names if res not in held],
                         ("a", "b", "k", "held on", "probe"), exclusive=True, held=held)
        print(f"      {report}\n      resources after a kill: {dict(self.stood)}", flush=True)
        assert not report.problems
        assert report.accepted("acquire") > 10 and report.accepted("write") > 10, "too little done"


@contextlib.contextmanager
def cycles(name, **system):
    with harness.Scene() as scene:
        made = Cycles(scene, name, **system)
        with histories.written_down(made.report, made.history):
            yield made
            made.finish()


@case
def after_a_crash_at_each_failpoint_under_load_all_is_there_and_free():  # C1-C3, C5, C6, C9
    with cycles("failpoints") as these:
        for point in these.random.sample(WORKING, len(WORKING)):
            these.system.kill_gateway()
            these.system.start_gateway(faults=f"{point}=crash@{these.random.randint(1, 12)}")
            these.die(these.at_failpoint)
            these.restart()


@case
def after_a_kill_at_any_time_under_load_all_is_there_and_free():  # C1-C6, C9
    with cycles("kills") as these:
        for _ in range(KILLS):
            these.die(these.at_any_time)
            these.restart()


@case
def its_own_redis_dies_with_it_and_neither_forgets():  # C4, and the private redis-server
    with cycles("kills of both", private=True) as these:
        for _ in range(max(3, KILLS // 8)):
            these.die(these.at_any_time)
            these.restart()


@case
def it_may_be_killed_while_it_starts():  # C8
    with cycles("kills at the start") as these:
        these.die(these.at_any_time)
        start = functools.partial(these.system.scene.gateway, redis=these.system.redis,
                                  expect_exit=True)
        for point in STARTING:
            assert start(faults=f"{point}=crash").wait() == -signal.SIGKILL, point
        for _ in range(max(10, KILLS // 2)):
            gate = start()
            time.sleep(these.random.uniform(0, 0.06))
            gate.kill()
        these.restart()


if __name__ == "__main__":
    print(f"SEED={SEED}", flush=True)
    harness.run_cases()
