"""histories.py - one run: clients at work, nemeses at theirs, then the checker.

    report = histories.run("lock_set", ["kill_gateway", "flush"], seconds=6, seed=7)
    assert not report.problems, report

What happens: a workload's clients run under the nemeses for so many seconds; everything is healed;
each resource has to work again within a bound; the ledger is fetched from the gateway, and compared
with the store's tables when the gateway has ended; Redis may hold nobody who is not live; then
checker.check(). Where there is any problem, history and ledger are written to files in
build/histories/, and the report says where.
"""
import collections
import contextlib
import dataclasses
import json
import random
import sqlite3
import threading
import time

import checker
import clients
import harness
import nemeses
import workloads

FOLDER = harness.ROOT / "build" / "histories"
SETTLE_S = 15  # for all resources, with every deadline and back-off well inside
SHOWN = 10  # problems in a report

KINDS = ("", "grant", "renew", "release", "expire", "revoke", "write", "delete", "refuse",
         "refused_dropped", "config")  # enum ledger_kind


@dataclasses.dataclass
class Report:
    name: str
    seed: int
    problems: list = dataclasses.field(default_factory=list)
    ops: list = dataclasses.field(default_factory=list)
    ledger: list = dataclasses.field(default_factory=list)
    overlaps: int = 0

    def counts(self):
        return collections.Counter(op.outcome for op in self.ops)

    def refusals(self):
        return collections.Counter(op.code for op in self.ops if op.outcome == "fail")

    def kinds(self):
        """How many problems there are with each statement."""
        return collections.Counter(problem.partition(":")[0] for problem in self.problems)

    def accepted(self, kind):
        return sum(op.f == kind and op.ok for op in self.ops)

    def __str__(self):
        counts = self.counts()
        lines = [f"{self.name}, seed {self.seed}: {len(self.ops)} ops, {counts['ok']} ok, "
                 f"{counts['fail']} refused, {counts['info']} unknown; {len(self.ledger)} ledger "
                 f"rows; {self.overlaps} overlaps; {len(self.problems)} problems"]
        lines += [f"  {problem}" for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"  ... and {len(self.problems) - SHOWN} more")
        return "\n".join(lines)


# ---- After the run ------------------------------------------------------------------------------


def table_rows(data_dir):
    """The ledger as it stands in the store's tables; the gateway has ended."""
    with contextlib.closing(sqlite3.connect(f"file:{data_dir}/fencegate.db?mode=ro",
                                            uri=True)) as db:
        rows = db.execute("SELECT l.seq, l.kind, coalesce(r.name, l.resource), l.token, l.owner,"
                          " l.key, l.version, l.code FROM ledger AS l LEFT JOIN resources AS r"
                          " ON r.id = l.resource_id ORDER BY l.seq").fetchall()
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    names = ("seq", "kind", "resource", "fencing_token", "owner", "key", "version", "code")
    return [dict(zip(names, (row[0], KINDS[row[1]], *row[2:]))) for row in rows]


def compare_tables(ledger, data_dir, resources):
    """But for refusals that were only counted: their rows come when their second is over."""
    table = [row for row in table_rows(data_dir)
             if row["resource"] in resources and row["kind"] != "refused_dropped"]
    answered = [{name: row[name] for name in table[0]} for row in checker.in_order(ledger)
                if row["kind"] != "refused_dropped"]
    return [] if answered == table else [f"ledger: the API answered {len(answered)} rows, the "
                                         f"table has {len(table)}, and they differ"]


def check_marks(gateway, ledger, resources):
    """I1: the mark is the last grant's token; nothing else raised it here."""
    last = {row["resource"]: row["fencing_token"] for row in checker.in_order(ledger)
            if row["kind"] == "grant"}
    marks = {res: gateway.call("GET", f"/resources/{res}").json()["highest_fencing_token"]
             for res in resources}
    return [f"mark: {res} is at {marks[res]}, the last grant was {last.get(res)}"
            for res in resources if marks[res] != last.get(res)]


def check_redis(redis, resources):
    """Everything was released, so nobody may hold anything; all but the store's name expires."""
    def holders():
        now_ms = int(redis.command("TIME")[0]) * 1000
        return [res for res in resources
                if redis.command("ZCOUNT", f"fencegate:{{{res}}}:holders", now_ms, "+inf")]

    problems, deadline = [], time.monotonic() + harness.PATIENCE_S
    while holders() and time.monotonic() < deadline:
        time.sleep(0.02)
    problems += [f"redis: {res} is still held by an orphan" for res in holders()]
    for key in redis.command("KEYS", "fencegate:*"):
        if key != "fencegate:store" and redis.command("TTL", key) < 0:
            problems.append(f"redis: {key} never expires")
    return problems


def fetch_ledger(gateway, resources):
    return [row for res in resources for row in gateway.history(res)]


def died(gateway):
    """What its log says at the end, where it is not there any more."""
    return [] if gateway.running() else [f"the gateway died by itself: {gateway.log()[-500:]}"]


def finish(report, system, history, client, resources, keys, exclusive, held=()):
    """Heals (the nemeses are at rest), lets everything settle, checks all there is to check.
    `held`: further resources, which stay held for longer than we can wait."""
    gateway, problems = system.gateway, report.problems
    report.ops = checker.pair(history.events)
    problems += died(gateway)
    if problems:
        return
    harness.eventually(system.ready, what="recovery")
    problems += workloads.settle(client, resources, SETTLE_S)
    workloads.read_all(client, resources, keys)
    client.close()
    free, resources = resources, [*resources, *held]
    report.ledger = fetch_ledger(gateway, resources)
    problems += check_marks(gateway, report.ledger, resources)
    if system.redis:
        problems += check_redis(system.redis, free)
    status = gateway.stop()
    if status != 0:
        problems.append(f"the gateway ended with {status}: {gateway.log()[-500:]}")
    problems += compare_tables(report.ledger, gateway.data_dir, resources)
    report.ops = checker.pair(history.events)
    problems += checker.check(report.ops, report.ledger, exclusive=exclusive)
    report.overlaps = len(checker.overlaps(report.ops))


@contextlib.contextmanager
def written_down(report, history, wanted=True):
    """Where the block ends with problems, or not at all, history and ledger go into files."""
    failed = True
    try:
        yield
        failed = bool(report.problems)
    finally:
        if failed and wanted:
            path = FOLDER / f"{report.name}-{report.seed}-{time.time_ns() // 1_000_000}.jsonl"
            history.write(path)
            path.with_suffix(".ledger.jsonl").write_text(
                "".join(json.dumps(row) + "\n" for row in checker.in_order(report.ledger)))
            print(f"      the history is in {path}", flush=True)


# ---- The run ------------------------------------------------------------------------------------


def work(system, history, workload, names, seconds, seed, at_once):
    """Clients and nemeses for so many seconds; returns one more client, for what comes after."""
    stopped = threading.Event()
    staff = [clients.RecordingClient(number, system.target, history, seed)
             for number in range(workload.CLIENTS + 1)]
    bodies = workload.bodies(staff[:-1], stopped)
    span_s = max(0.4, min(2.0, seconds / 8))
    for number in range(at_once if names else 0):
        choices = random.Random(f"{seed}/nemesis {number}")
        bodies.append(lambda choices=choices: nemeses.torment(system, history, choices, names,
                                                              span_s, span_s / 2))
    with clients.running(bodies):
        time.sleep(seconds)
        stopped.set()
        system.stopped.set()
        system.target.still.clear()
    for client in staff[:-1]:
        client.close()
    return staff[-1]


def run(name, names, seconds, seed, at_once=1, workload=None, keep=True, **gateway):
    """`names`: of nemeses, `at_once` of them at a time; further arguments go to the gateway. `keep`
    on failure: False where problems are what is wanted."""
    workload = workload or workloads.WORKLOADS[name]()
    history, report = clients.History(), Report(name, seed)
    with written_down(report, history, keep):
        _run(report, history, workload, names, seconds, at_once, gateway)
    return report


def _run(report, history, workload, names, seconds, at_once, gateway):
    lossy, target = bool(nemeses.LOSING & set(names)), clients.Target()
    with harness.Scene() as scene:
        system = nemeses.System(scene, target, lossy, bool(nemeses.PROXIED & set(names)), **gateway)
        last = work(system, history, workload, names, seconds, report.seed, at_once)
        keys = getattr(workload, "KEYS", [getattr(workload, "KEY", None)])
        finish(report, system, history, last, workload.RESOURCES, keys, not lossy)
    if isinstance(workload, workloads.LockSet):
        report.problems += checker.check_set(report.ops, workload.KEY)
