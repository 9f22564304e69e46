#!/usr/bin/python3
"""waiting.py - what waiting for a lease costs: those who wait, and everybody else.

    make bench-waiting                         about a minute
    make bench-waiting BENCH_ONLY=hand_overs

BENCH_ONLY     of: hand_overs writes memory
BENCH_SECONDS  of one cell (4)
BENCH_ROUNDS   how often writes are measured with and without waiters, in turn (3)

hand_overs  2, 100 and 1000 wait for one resource. Who gets it releases it at once and queues again, so
            each release finds so many waiting. From the moment in which the DELETE is sent, and from
            that in which its answer is there, to the arrival of the next one's 201. And what Redis was
            asked meanwhile.
writes      fenced writes from 64 connections, with 5,000 others that wait, over those with none.
memory      RSS with 5,000 that wait minus that without these connections, divided by 5,000.

Prints one table, writes build/bench-waiting.json. An error, a stall, a waiter that was passed over: exit 1.
A goal that is missed is said, and is no failure.
"""
import dataclasses
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import time

import report
from lab import OUT, PATIENCE_S, PROGRAMS, Lab, Process
from load import load

ALL = ["hand_overs", "writes", "memory"]
ONLY = [word for word in os.environ.get("BENCH_ONLY", "").split(",") if word] or ALL
SECONDS = int(os.environ.get("BENCH_SECONDS", "4"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
CROWDS = (2, 100, 1000)
GOAL_CROWD, GOAL_MS = 100, 5
PARKED, PARKED_ON = 5000, 100  # that many clients wait for that many resources
GOAL_RATIO, GOAL_BYTES = 0.85, 8000
CONNECTIONS = 64
RESOURCES = 1000  # that are written to
UNFAIR = 2  # one client got it so many times more than another: not by chance
CONSTANT = 0.1  # that much, in calls of a script, is chance
BUSY_CORES = 0.4


@dataclasses.dataclass
class Row:
    work: str
    waiters: int
    wanted: str = ""
    met: bool | None = None  # None: there is no goal
    value: str = ""
    times_us: list = dataclasses.field(default_factory=list)  # sorted

    def percentile_us(self, percent):
        return self.times_us[min(len(self.times_us) * percent // 100, len(self.times_us) - 1)]

    def as_dict(self):
        times = {f"p{percent}_us": self.percentile_us(percent) for percent in (50, 99)} | {
            "max_us": self.times_us[-1], "count": len(self.times_us)} if self.times_us else {}
        return {"work": self.work, "waiters": self.waiters, "value": self.value,
                "wanted": self.wanted, "met": self.met, **times}


@dataclasses.dataclass
class HandOvers:
    waiters: int
    count: int
    sent_us: list  # to the next one's 201; sorted
    answered_us: list
    scripts: float  # that Redis ran for one
    commands: float  # that these called


class Waiting:
    def __init__(self):
        self.rows, self.cells, self.faults = [], [], []

    # ---- hand_overs ----

    def hand_overs(self):
        with Lab() as lab:
            redis = lab.redis()
            gate = lab.gateway("--redis", f"unix://{redis.socket}")
            found = [self._hand_over(lab, gate, redis, waiters) for waiters in CROWDS]
        for each in found:
            row = Row("hand-over, since the DELETE was sent", each.waiters,
                      value=f"{each.count / SECONDS:,.0f}/s", times_us=each.sent_us)
            if each.waiters == GOAL_CROWD:
                row.wanted, row.met = f"p99 < {GOAL_MS} ms", row.percentile_us(99) < GOAL_MS * 1000
            self.rows.append(row)
        self.rows += [Row("hand-over, since its answer was there", each.waiters,
                          times_us=each.answered_us) for each in found]
        self.rows += [Row("Redis: scripts of a hand-over (commands in them)", each.waiters,
                          value=f"{each.scripts:.2f} ({each.commands:.1f})") for each in found]
        scripts = [each.scripts for each in found]
        self.rows[-1].wanted, self.rows[-1].met = "constant", max(scripts) - min(scripts) < CONSTANT

    def _hand_over(self, lab, gate, redis, waiters):
        """Somebody holds it until all have queued."""
        name = f"hand-over:{waiters}"
        lease_id = _call(gate, "POST", "/leases", f'{{"resource":"{name}"}}')["lease_id"]
        clients = _clients(lab, "hand-over", gate.port, name, waiters + 1, SECONDS)
        _await_waiters(gate, waiters + 1, clients)
        before = _redis_calls(redis)
        _call(gate, "DELETE", f"/leases/{lease_id}")
        time.sleep(SECONDS)  # await_log() looks often, which costs processor time
        found, _ = clients.await_log(r"done (\d+) (\d+) (\d+)")
        calls = [after - then for then, after in zip(before, _redis_calls(redis))]
        count, fewest, most = map(int, found.groups())
        pairs = [tuple(map(int, pair)) for pair in re.findall(r"^(\d+) (\d+)$", clients.log(), re.M)]
        lab.end(clients)
        _await_waiters(gate, 0)
        if most - fewest > UNFAIR:
            self.faults.append(f"{waiters} waiters: one got it {fewest} times, another {most} times")
        print(f"hand-over, {waiters} waiters: {count / SECONDS:,.0f}/s", file=sys.stderr, flush=True)
        # The release that began it all, with the grant after it, is one more.
        scripts, commands = (each / (count + 1) for each in calls)
        return HandOvers(waiters, count, *(sorted(times) for times in zip(*pairs)), scripts, commands)

    # ---- writes ----

    def writes(self):
        """One gateway; the 5,000 come and go between the cells."""
        ratios = []
        with Lab() as lab:
            gate = lab.gateway()
            env = {"BENCH_LEASES": lab.lease_all(gate, RESOURCES), "BENCH_BYTES": 100}
            for _ in range(ROUNDS):
                alone = self._write(gate, 0, env)
                clients = _park(lab, gate, "park")
                crowded = self._write(gate, PARKED, env)
                _await_waiters(gate, PARKED, clients)
                lab.end(clients)
                _await_waiters(gate, 0)
                ratios.append(crowded.rate / alone.rate)
        ratio = statistics.median(ratios)
        self.rows.append(Row("fenced writes, of those with nobody waiting", PARKED,
                             f">= {GOAL_RATIO}", ratio >= GOAL_RATIO, f"{ratio:.2f}"))

    def _write(self, gate, waiters, env):
        cell = load(gate, "write", CONNECTIONS, SECONDS, **env)
        report.progress(f"write, {waiters} waiters", cell)
        self.cells.append((waiters, cell))
        self.faults += [f"write, {waiters} waiters: {fault}" for fault in cell.faults]
        return cell

    # ---- memory ----

    def memory(self):
        for how, what, goal in (("park", "memory of a waiter, new connection", True),
                                ("park-used", "memory of a waiter, connection that was used before", True),
                                ("idle", "of that: the connection, when nothing is asked", False)):
            with Lab() as lab:
                gate = lab.gateway()
                lab.lease_all(gate, PARKED_ON)
                before_mb = gate.rss_mb()
                _park(lab, gate, how)
                each = (gate.rss_mb() - before_mb) * 1e6 / PARKED
            row = Row(what, PARKED, value=f"{each / 1000:.1f} KB")
            if goal:
                row.wanted, row.met = f"< {GOAL_BYTES // 1000} KB", each < GOAL_BYTES
            self.rows.append(row)

    # ---- Results ----

    def table(self):
        shown = [("work", "waiters", "p50 ms", "p99 ms", "max ms", "value", "goal", "")]
        for row in self.rows:
            times = [f"{us / 1000:.2f}" for us in (row.percentile_us(50), row.percentile_us(99),
                                                    row.times_us[-1])] if row.times_us else [""] * 3
            verdict = "" if row.met is None else "met" if row.met else "MISSED"
            shown.append((row.work, f"{row.waiters:,}", *times, row.value, row.wanted, verdict))
        return report.columns(shown, {0, 6, 7})

    def as_json(self):
        return {"machine": report.machine(), "rows": [row.as_dict() for row in self.rows],
                "cells": [{"waiters": waiters, **cell.as_dict()} for waiters, cell in self.cells],
                "faults": self.faults}


def _call(gate, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=PATIENCE_S)
    connection.request(method, path, body)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path}: {answer.status} {text.decode()}")
    return json.loads(text)


def _redis_calls(redis):
    """(scripts that were run so far, all other commands: nearly all of them inside of scripts)"""
    text = subprocess.run(["redis-cli", "-s", redis.socket, "INFO", "commandstats"], check=True,
                          capture_output=True, text=True).stdout
    calls = {name: int(count) for name, count in re.findall(r"cmdstat_(\S+?):calls=(\d+)", text)}
    scripts = sum(calls.get(name, 0) for name in ("evalsha", "eval"))
    return scripts, sum(calls.values()) - scripts


def _clients(lab, work, *arguments):
    """waiting_clients.c; returns when all have asked."""
    clients = lab.keep(Process([PROGRAMS / "waiting_clients", work, *arguments], lab.path("clients.log")))
    clients.await_log("queued|parked")
    return clients


def _park(lab, gate, how):
    clients = _clients(lab, how, gate.port, PARKED_ON, PARKED)
    _await_waiters(gate, 0 if how == "idle" else PARKED, clients)
    return clients


def _await_waiters(gate, count, clients=None):
    """Until that many wait, over all resources. `clients` have to be there still."""
    until = time.monotonic() + PATIENCE_S
    while True:
        seen = sum(item["waiters"] for item in _call(gate, "GET", "/resources?limit=1000")["items"])
        if clients and clients.process.poll() is not None:
            raise RuntimeError(clients.log()[-2000:])
        if seen == count:
            return
        if time.monotonic() > until:
            raise RuntimeError(f"{seen} clients wait, not {count}")
        time.sleep(0.02)


def main():
    unknown = [word for word in ONLY if word not in ALL]
    if unknown:
        raise SystemExit(f"BENCH_ONLY: {', '.join(unknown)} is none of {', '.join(ALL)}")
    began = time.monotonic()
    waiting = Waiting()
    for name in ALL:
        if name in ONLY:
            getattr(waiting, name)()
    print(waiting.table())
    print(f"\n{time.monotonic() - began:.0f} s")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "bench-waiting.json").write_text(json.dumps(waiting.as_json(), indent=1) + "\n")
    if any(cell.others_cores > BUSY_CORES for _, cell in waiting.cells):
        print("The machine had other work to do: these numbers say little.")
    for fault in waiting.faults:
        print(f"FAULT  {fault}")
    return 1 if waiting.faults else 0


if __name__ == "__main__":
    sys.exit(main())
