#!/usr/bin/python3
"""bench.py - measures the gateway against its limits and its peers, in one run, as ratios.

    make bench                                        everything, about ten minutes
    make bench BENCH_ONLY=writes,grants BENCH_CONNECTIONS=64

BENCH_ONLY         of: references writes grants cycles reads small peers rates
BENCH_CONNECTIONS  1,16,64,256,1000
BENCH_SECONDS      of one cell (4), after a second of warm-up
BENCH_ROUNDS       how often the two sides of a goal are measured in turn (3)

Candidates are measured in turn, cell by cell, so that a machine that gets slower is slower for both.
Prints one table, writes build/bench.json, says which goals are met. A failed request or a stall of the
gateway: exit 1. A goal that is missed is said, and is no failure: machines differ.
"""
import json
import os
import statistics
import sys
import time

import references
import report
from goals import goals
from lab import OUT, Lab
from load import load
from peers import start_peers
from rates import measure_rates

ALL = ["references", "writes", "grants", "cycles", "reads", "small", "peers", "rates"]
ONLY = [word for word in os.environ.get("BENCH_ONLY", "").split(",") if word] or ALL
CONNECTIONS = [int(word) for word in
               os.environ.get("BENCH_CONNECTIONS", "1,16,64,256,1000").split(",")]
SECONDS = int(os.environ.get("BENCH_SECONDS", "4"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
GOAL_CONNECTIONS = 64
RESOURCES = 1000
STARTS = 10
BUSY_CORES = 0.4


class PeerRow:
    def __init__(self, peer):
        self.peer, self.product, self.rows = peer, [], []  # Measured and peers.Row, one for each round

    def ratio(self):
        """Of our throughput to theirs."""
        return statistics.median(ours.rate / max(theirs.rate, 0.1)
                                 for ours, theirs in zip(self.product, self.rows))

    def middle(self):
        return sorted(self.rows, key=lambda row: row.rate)[len(self.rows) // 2]


class Bench:
    def __init__(self):
        self.cells = []  # (work, Measured)
        self.ratios = {}  # (work, connections) -> of the bare loop's rate, one for each round
        self.peer_rows = []
        self.group_commit = {}  # ops per commit -> writes a second
        self.redis_script = {}  # how it was asked -> rate, p50_us, p99_us
        self.maximum, self.rate_rows = 0.0, []  # at a fixed rate
        self.start_ms, self.idle_mb = [], []

    # ---- Parts ----

    def run(self, work, server, script, connections, **env):
        measured = load(server, script, connections, SECONDS, **env)
        self.cells.append((work, measured))
        report.progress(work, measured)
        return measured

    def against_bare(self, work, script, prepare):
        """`prepare(lab, server)` gives the load's environment."""
        for connections in CONNECTIONS:
            with Lab() as lab:
                loads = [(server, prepare(lab, server)) for server in (lab.gateway(), lab.bare_loop())]
                for _ in range(ROUNDS if connections == GOAL_CONNECTIONS else 1):
                    product, bare = [self.run(work, server, script, connections, **env)
                                     for server, env in loads]
                    self.ratios.setdefault((work, connections), []).append(product.rate / bare.rate)

    def alone(self, work, script, prepare):
        for connections in CONNECTIONS:
            with Lab() as lab:
                gate = lab.gateway()
                self.run(work, gate, script, connections, **prepare(lab, gate))

    # ---- BENCH_ONLY ----

    def references(self):
        with Lab() as lab:
            self.group_commit = references.group_commit(lab, min(SECONDS, 2))
            self.redis_script = references.redis_script(lab)
            constant = lab.constant()
            for connections in CONNECTIONS:
                self.run("http", constant, "plain", connections)

    def writes(self):
        self.against_bare("write", "write", leased)

    def grants(self):
        self.against_bare("grant", "grant", lambda lab, server: {})

    def cycles(self):
        self.alone("cycle", "cycle", lambda lab, server: {})

    def reads(self):
        self.alone("read", "read", written)

    def small(self):
        """How long a start takes, and what an idle gateway weighs."""
        for _ in range(STARTS):
            with Lab() as lab:
                gate = lab.gateway()
                self.start_ms.append(gate.start_s * 1000)
                time.sleep(0.5)
                self.idle_mb.append(gate.rss_mb())

    def peers(self):
        """Each of them right behind the same work of ours, so often as a goal is measured."""
        with Lab() as lab:
            gate = lab.gateway()
            loads = {"write": leased(lab, gate), "grant": {}}
            found = [PeerRow(peer) for peer in start_peers(lab)]
            for _ in range(ROUNDS):
                for row in found:
                    if row.peer.version:
                        row.product.append(load(gate, row.peer.work, GOAL_CONNECTIONS, SECONDS,
                                                **loads[row.peer.work]))
                        row.rows.append(row.peer.measure(SECONDS))
                        report.peer_progress(row)
            self.peer_rows = found

    def rates(self):
        with Lab() as lab:
            gate = lab.gateway()
            leases = lab.lease_all(gate, RESOURCES)
            self.maximum, self.rate_rows = measure_rates(gate, leases, lab, SECONDS)

    # ---- Results ----

    def ratio(self, work, connections):
        rounds = self.ratios.get((work, connections))
        return statistics.median(rounds) if rounds else None

    def faults(self):
        cells = self.cells + [(row.peer.work, cell) for row in self.peer_rows for cell in row.product]
        return [f"{work}, {cell.connections} connections: {fault}" for work, cell in cells
                if cell.server == "product" for fault in cell.faults] + \
               [f"{rate.share:.0%} of the maximum: {fault}" for rate in self.rate_rows
                for fault in rate.faults]


def leased(lab, server):
    return {"BENCH_LEASES": lab.lease_all(server, RESOURCES), "BENCH_BYTES": 100}


def written(lab, server):
    env = leased(lab, server)
    load(server, "write", 16, 1, warm_up_s=0, **env)
    return env


def main():
    unknown = [word for word in ONLY if word not in ALL]
    if unknown:
        raise SystemExit(f"BENCH_ONLY: {', '.join(unknown)} is none of {', '.join(ALL)}")
    began = time.monotonic()
    bench = Bench()
    for name in ALL:
        if name in ONLY:
            getattr(bench, name)()
    reached, faults = goals(bench), bench.faults()
    print("\n\n".join(part for part in report.parts(bench, reached) if part))
    print(f"\n{time.monotonic() - began:.0f} s")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "bench.json").write_text(
        json.dumps(report.as_json(bench, reached, faults), indent=1) + "\n")
    if any(cell.others_cores > BUSY_CORES for _, cell in bench.cells):
        print("The machine had other work to do (see `others`): these numbers say little.")
    for fault in faults:
        print(f"FAULT  {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
