"""stress.py - one run of many clients that share a few resources: processes that are stopped and
killed, operators that change limits and revoke, and at the end every statement of the checkers.

    report = stress.run(seconds=8, seed=7)
    assert not report.problems, report

The clients are in processes of ten (stress_worker.py). STEADY resources have a limit that does not
change and nobody revokes, so that for them the strictest statements hold; of the others the limit
changes all the time (1 included), or leases are revoked, or both. `rough`: the gateway is killed and
Redis emptied as well; then who waits is forgotten and believing holders overlap, which is no fault.
"""
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import sys
import threading
import time

import checker
import clients
import harness
import histories
import queue_checker
import workloads

WORKERS, CLIENTS = 5, 10
STEADY = {"mutex1": 1, "mutex2": 1, "pair": 2, "five": 5, "ten": 10}
CHANGING = {"limit1": 1, "limit2": 4}  # ... at the beginning
REVOKED = {"revoked1": 1, "revoked4": 4}
BOTH = {"both": 2}
LIMITS = {**STEADY, **CHANGING, **REVOKED, **BOTH}
# What counts as late or never: a bound against a lost wake-up, which would last until a TTL of 20 s
# has passed, on a machine that is busy with other tests.
PATIENCE_NS = int(3.5e9 * float(os.environ.get("FENCEGATE_SLOWER", "1")))
END_S = 60
FORGOTTEN_MS = 3000  # leases of a killed process that last longer are given back


@dataclasses.dataclass
class Report(histories.Report):
    pauses: int = 0
    kills: int = 0

    def __str__(self):
        asked = [op for op in self.ops if op.f == "acquire"]
        granted = [op for op in asked if op.ok]
        told = collections.Counter(row["kind"] for row in self.ledger)
        facts = {
            "waited and granted": sum(op.waited > 0 for op in granted),
            "known to be queued": sum(op.queued is not None for op in asked),
            "left": sum(op.gone is not None for op in asked),
            "granted to one who had left": sum(op.gone is not None and op.seq is not None
                                               for op in asked),
            "processes stopped": self.pauses, "killed": self.kills,
        }
        return "\n      ".join([super().__str__(), str(facts), f"ledger: {dict(told)}",
                                f"refused: {dict(self.refusals())}"])


# ---- Workers ------------------------------------------------------------------------------------


def left_behind(events):
    """What the clients of a killed worker held for long: {"lease", "res", "token"} each."""
    asked, held = {}, {}
    for event in events:
        if event["type"] == "invoke":
            asked[event["p"]] = event
            if event["f"] == "release":
                held.pop(event["lease"], None)
        elif event["type"] == "ok" and asked[event["p"]]["f"] == "acquire" and \
                asked[event["p"]]["ttl"] > FORGOTTEN_MS:
            held[event["lease"]] = {"lease": event["lease"], "res": asked[event["p"]]["res"],
                                    "token": event["token"]}
    return held.values()


class Staff:
    """The worker processes. All methods but stopped_ns() are the main thread's: a child dies with
    the thread that started it. `supervisor`: a client that gives back what the killed ones held for
    long, so that the others have something to do; the rest runs out."""

    def __init__(self, scene, seed, until_ns, port_file, supervisor):
        self.scene, self.seed, self.until_ns, self.port_file = scene, seed, until_ns, port_file
        self.supervisor = supervisor
        self.folder = scene.folder / "workers"
        self.folder.mkdir()
        self.workers, self.started = {}, 0
        self.ended = {}  # name -> (when it was killed, when it had ended)
        self.stops = collections.defaultdict(list)  # name -> [(from, until)]
        for _ in range(WORKERS):
            self.start()

    def start(self):
        self.started += 1
        name = f"w{self.started}"
        settings = {"name": name, "seed": self.seed, "clients": CLIENTS, "until": self.until_ns,
                    "port": str(self.port_file), "log": str(self.folder / f"{name}.jsonl"),
                    "resources": {**LIMITS, **dict.fromkeys((*CHANGING, *BOTH))}}
        program = pathlib.Path(__file__).with_name("stress_worker.py")
        argv = [sys.executable, str(program), json.dumps(settings)]
        self.workers[name] = self.scene.keep(harness.Server(argv, str(self.folder / f"{name}.log")))

    def stop_and_go(self, choices, span_s):
        """SIGSTOP for a while: longer than the short TTLs."""
        name = choices.choice(sorted(self.workers))
        begin = time.monotonic_ns()
        with self.workers[name].paused():
            time.sleep(span_s)
        self.stops[name].append((begin, time.monotonic_ns()))

    def kill(self, choices):
        name = choices.choice(sorted(self.workers))
        killed = time.monotonic_ns()
        self.workers.pop(name).kill()
        self.ended[name] = (killed, time.monotonic_ns())
        for lease in left_behind(self._notes(name)):
            self.supervisor.release(lease)
        self.start()

    def _notes(self, name):
        path = self.folder / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def come_home(self):
        """Waits for their end; returns what was wrong with it."""
        problems = []
        for name, worker in self.workers.items():
            status = worker.wait(END_S)
            if status != 0:
                problems.append(f"{name} ended with {status}: {worker.log()[-2000:]}")
        return problems

    def events(self):
        """What all of them have noted. A killed one has left all that it was asking for."""
        events = []
        for name in [*self.workers, *self.ended]:
            own, asking = self._notes(name), {}  # by whom: since when, or that it is leaving
            for event in own:
                if event["type"] in ("invoke", "leaving"):
                    asking[event["p"]] = event
                elif event["type"] != "queued":
                    del asking[event["p"]]
            for p, last in asking.items() if name in self.ended else ():
                killed, ended = self.ended[name]
                if last["type"] == "invoke":  # between our look at the clock and its end, it may be
                    own.append({"t": max(killed, last["t"]), "p": p, "type": "leaving"})
                own.append({"t": ended, "p": p, "type": "info", "gone": ended})
            events += own
        return events

    def stopped_ns(self, op):
        """For how long the worker of this op stood still while it was open."""
        worker = str(op.p).partition("c")[0]
        return sum(max(0, min(op.end, until) - max(op.start, begin))
                   for begin, until in self.stops[worker])


# ---- Operators ----------------------------------------------------------------------------------


class Operators:
    """Change limits and revoke, in a thread of their own, and note it as clients do."""

    def __init__(self, history, seed):
        self.history, self.random = history, random.Random(f"{seed}/operators")
        self.asked, self.port, self.client = 0, None, None

    def _call(self, fields, method, path, body, read):
        if self.client is None or self.client.port != self.port:
            self.client = harness.Client(self.port)
        self.asked += 1
        p = f"operator.{self.asked}"
        self.history.add(p, "invoke", **fields)
        try:
            answer = self.client.call(method, path, body)
        except Exception as error:  # the gateway was killed: nobody knows
            self.history.add(p, "info", error=repr(error))
            self.client = None
            return
        if answer.status == 200:
            self.history.add(p, "ok", **read(answer.json()))
        else:
            self.history.add(p, "fail", code=answer.code or str(answer.status))

    def set_limit(self, res, limit):
        self._call({"f": "configure", "res": res, "limit": limit}, "PUT", f"/resources/{res}",
                   {"limit": limit}, lambda _: {})

    def revoke(self, res):
        body = {"reason": f"revocation {self.asked}"}
        if self.random.random() < 0.6:
            holders = self.client.call("GET", f"/resources/{res}").json()["holders"] \
                if self.client else []
            if holders:
                body["fencing_token"] = self.random.choice(holders)["fencing_token"]
        self._call({"f": "revoke", "res": res, "reason": body["reason"],
                    "token": body.get("fencing_token")}, "POST", f"/resources/{res}/revoke", body,
                   lambda answer: {"tokens": answer["revoked"]})

    def work(self, stopped):
        while not stopped.wait(self.random.uniform(0.01, 0.12)):
            if self.port is None:
                continue
            with contextlib.suppress(Exception):  # the look at the holders
                if self.random.random() < 0.5:
                    res = self.random.choice(sorted({**CHANGING, **BOTH}))
                    self.set_limit(res, self.random.choice((1, 1, 2, 3, 5, 8)))
                else:
                    self.revoke(self.random.choice(sorted({**REVOKED, **BOTH})))


# ---- One run ------------------------------------------------------------------------------------


class Site:
    """The gateway, its Redis, and what is known of them before anybody came."""

    def __init__(self, scene, bugs=""):
        self.redis = scene.redis()
        self.gateway = scene.gateway(redis=self.redis, bugs=bugs)
        self.port_file = scene.folder / "port"
        self.scene, self.bugs, self.target = scene, bugs, clients.Target()
        self.tell_port()
        self.gateway.call("GET", "/livez")
        self.descriptors = self.count_descriptors()

    def tell_port(self):
        self.target.port = self.gateway.port
        pathlib.Path(f"{self.port_file}.new").write_text(str(self.gateway.port))
        os.replace(f"{self.port_file}.new", self.port_file)

    def count_descriptors(self):
        return len(os.listdir(f"/proc/{self.gateway.pid}/fd"))

    def kill_gateway(self, operators):
        operators.port = None
        self.gateway.kill()
        self.gateway = self.scene.gateway(redis=self.redis, bugs=self.bugs)
        self.tell_port()
        operators.port = self.gateway.port

    def resource(self, res):
        return self.gateway.call("GET", f"/resources/{res}").json()

    def live_tokens(self, res):
        items = self.gateway.call("GET", f"/leases?resource={res}&limit=1000").json()["items"]
        return {item["fencing_token"] for item in items}

    def held_tokens(self, res):
        """By Redis."""
        seconds, micros = self.redis.command("TIME")
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        members = self.redis.command("ZRANGE", f"fencegate:{{{res}}}:holders", f"({now_ms}", "+inf",
                                     "BYSCORE")
        return {int(member.partition(":")[0]) for member in members}


def torment(site, staff, operators, choices, rough, report):
    """Until the time is over: stops, kills, and what else."""
    while (left_s := (staff.until_ns - time.monotonic_ns()) / 1e9) > 0:
        time.sleep(min(left_s, choices.uniform(0.1, 0.4)))
        what = choices.random()
        if rough and what < 0.2:
            site.kill_gateway(operators)
        elif rough and what < 0.4:
            site.redis.command("FLUSHALL")
        elif what < 0.75:
            staff.stop_and_go(choices, choices.uniform(0.1, 0.9))
            report.pauses += 1
        else:
            staff.kill(choices)
            report.kills += 1


def check_end(site, ledger, rough):
    """Everybody has gone: what they left behind is what the ledger says, and no more. A gateway that
    was killed may have left more in Redis, which goes when somebody is refused for it."""
    problems = []
    harness.eventually(lambda: not any(site.resource(res)["waiters"] for res in LIMITS),
                       what="the end of waiting")
    for res in LIMITS:
        live = checker.live_tokens(ledger, res)
        if site.live_tokens(res) != live:
            problems.append(f"end: {site.live_tokens(res)} of {res} are live, by the ledger {live}")
        if rough:
            continue
        with contextlib.suppress(AssertionError):
            harness.eventually(lambda res=res, live=live: site.held_tokens(res) <= live)
        if not site.held_tokens(res) <= live:
            problems.append(f"end: Redis has {site.held_tokens(res)} of {res}, live are {live}")
    return problems


def clear(site, history, operators):
    """Revokes what is left, and uses each resource once more."""
    for res in LIMITS:
        operators.revoke(res)
        while site.live_tokens(res):
            operators.revoke(res)
    client = clients.RecordingClient(0, site.target, history, 0)
    problems = workloads.settle(client, LIMITS, histories.SETTLE_S)
    client.close()
    operators.client.close()
    if site.gateway.call("GET", "/leases").json()["items"]:
        problems.append("end: there are live leases")
    return problems


def check_traces(site, rough):
    """Nothing is left but counters that expire, and no descriptor."""
    def keys():
        return [key for key in site.redis.command("KEYS", "*") if key != "fencegate:store"]

    kinds = ("}:counter", "}:holders") if rough else ("}:counter",)
    with contextlib.suppress(AssertionError):
        harness.eventually(lambda: all(key.endswith(kinds) for key in keys()))
    problems = [f"end: {key} is left in Redis" for key in keys()
                if not key.endswith(kinds) or site.redis.command("TTL", key) < 0]
    with contextlib.suppress(AssertionError):
        harness.eventually(lambda: site.count_descriptors() <= site.descriptors)
    if site.count_descriptors() > site.descriptors:
        problems.append(f"end: {site.count_descriptors()} descriptors, {site.descriptors} before")
    return problems


def check_all(report, staff, offset_ns, rough):
    ops, ledger, problems = report.ops, report.ledger, report.problems
    problems += checker.check(ops, ledger, limit=LIMITS)
    problems += queue_checker.check_named(ops, STEADY)
    problems += [f"deadline: {op} was never answered" for op in ops if op.code == "unanswered"]
    if rough:
        return
    # At the end everything is revoked and used once more, whatever somebody still believes.
    steady = [op for op in ops if op.res in STEADY and
              (op.f != "acquire" or str(op.p).startswith("w"))]
    report.overlaps = len(checker.overlaps(steady, STEADY))
    problems += checker.check_overlaps(steady, STEADY)
    problems += queue_checker.check_overtaken(ops, ledger, offset_ns)
    problems += queue_checker.check_deadlines(ops, PATIENCE_NS, staff.stopped_ns)
    problems += queue_checker.check_starved(ops, ledger, PATIENCE_NS, LIMITS, offset_ns)
    problems += queue_checker.check_gone(ops, ledger, PATIENCE_NS, offset_ns)


def collect(report, history, staff):
    """Everybody's notes in the order of time."""
    history.events = sorted(history.events + staff.events(), key=lambda event: event["t"])
    for number, event in enumerate(history.events):
        event["i"] = number
    report.ops = checker.pair(history.events)


def work(site, staff, operators, report, rough):
    """Until all have come home."""
    stopped = threading.Event()
    with clients.running([lambda: operators.work(stopped)]):
        torment(site, staff, operators, random.Random(f"{report.seed}/torment"), rough, report)
        report.problems += staff.come_home()
        stopped.set()
        staff.supervisor.close()
    report.problems += histories.died(site.gateway)


def finish(site, history, operators, report, rough):
    """Looks at what is left, clears it away, looks again, and fetches the ledger."""
    report.problems += check_end(site, histories.fetch_ledger(site.gateway, LIMITS), rough)
    report.problems += clear(site, history, operators) + check_traces(site, rough)
    report.ledger = histories.fetch_ledger(site.gateway, LIMITS)
    status = site.gateway.stop()
    if status != 0:
        report.problems.append(f"the gateway ended with {status}: {site.gateway.log()[-500:]}")
    report.problems += histories.compare_tables(report.ledger, site.gateway.data_dir, LIMITS)


def run(seconds, seed, rough=False, bugs="", keep=True):
    """`keep` on failure: False where problems are what is wanted."""
    history, report = clients.History(), Report("rough-stress" if rough else "stress", seed)
    with histories.written_down(report, history, keep), harness.Scene() as scene:
        site, operators = Site(scene, bugs), Operators(history, seed)
        offset_ns = time.time_ns() - time.monotonic_ns()
        operators.port = site.gateway.port
        for res, limit in LIMITS.items():
            operators.set_limit(res, limit)
        supervisor = clients.RecordingClient(0, site.target, history, seed)
        staff = Staff(scene, seed, time.monotonic_ns() + int(seconds * 1e9), site.port_file,
                      supervisor)
        try:
            work(site, staff, operators, report, rough)
            if not report.problems:
                finish(site, history, operators, report, rough)
        finally:
            collect(report, history, staff)
        check_all(report, staff, offset_ns, rough)
    return report
