#!/usr/bin/python3
"""growth.py - what becomes of speed and memory when there is more of everything.

    make bench-growth                          about five minutes, 3 GB in TMPDIR
    make bench-growth BENCH_ONLY=resources

BENCH_ONLY     of: resources ledger values flight
BENCH_SECONDS  of one cell (4), after a second of warm-up
BENCH_ROUNDS   how often the stores of one table are measured in turn (3); the median is shown

Fenced writes from 64 connections to resources drawn at random, each of which is leased and has a record.
Prints a table for each part, writes build/bench-growth.json. A failed request or a stall: exit 1.
"""
import contextlib
import json
import os
import statistics
import sys

import fill
import report
from lab import OUT, Lab
from load import load

ALL = ["resources", "ledger", "values", "flight"]
ONLY = [word for word in os.environ.get("BENCH_ONLY", "").split(",") if word] or ALL
SECONDS = int(os.environ.get("BENCH_SECONDS", "4"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
CONNECTIONS = 64
FEW = 1000
LEDGER_ROWS = 10_000_000
PRUNED_TO = 1_000_000


class Row:
    """One store (or size, or number of connections), measured in several rounds."""

    def __init__(self, name):
        self.name, self.cells, self.start_ms, self.store_mb = name, [], None, None

    def middle(self):
        return sorted(self.cells, key=lambda cell: cell.rate)[len(self.cells) // 2]

    def as_dict(self):
        return {"name": self.name, "start_ms": self.start_ms, "store_mb": self.store_mb,
                "cells": [cell.as_dict() for cell in self.cells]}


def _store_mb(gate):
    return sum(path.stat().st_size for path in gate.folders[0].glob("fencegate.db*")) / 1e6


def _measure(row, gate, connections=CONNECTIONS, **env):
    cell = load(gate, "spread", connections, SECONDS, **{"BENCH_COUNT": FEW, "BENCH_BYTES": 100, **env})
    row.cells.append(cell)
    report.progress(row.name, cell)


@contextlib.contextmanager
def _store(lab, resources, ledger_rows=0):
    data_dir = fill.new_store(lab)
    fill.fill(data_dir, resources)
    if ledger_rows:
        fill.fill_ledger(data_dir, ledger_rows, resources)
    yield data_dir


def _start(lab, row, data_dir, *options):
    gate = lab.gateway(*options, data_dir=data_dir)
    row.start_ms, row.store_mb = gate.start_s * 1000, _store_mb(gate)
    return gate


# ---- The parts ----------------------------------------------------------------------------------


def resources():
    """All stores are open at once and are written to in turn; those that wait cost nothing."""
    rows = []
    with Lab() as lab:
        gates = []
        for count in (FEW, 100_000, 1_000_000):
            row = Row(f"{count:,} resources")
            with _store(lab, count) as data_dir:
                gates.append((row, count, _start(lab, row, data_dir)))
            rows.append(row)
        for _ in range(ROUNDS):
            for row, count, gate in gates:
                _measure(row, gate, BENCH_COUNT=count)
    return rows


def ledger():
    """The same store with few and with many ledger rows; then with a maximum that it is far beyond,
    so that it is pruned all the time."""
    rows = [Row("ledger empty"), Row(f"{LEDGER_ROWS:,} ledger rows"),
            Row(f"the same, pruned to {PRUNED_TO:,}")]
    keep = ("--ledger-max-rows", "1000000000")
    with Lab() as lab:
        with _store(lab, FEW) as data_dir:
            empty = _start(lab, rows[0], data_dir, *keep)
        with _store(lab, FEW, LEDGER_ROWS) as data_dir:
            full = _start(lab, rows[1], data_dir, *keep)
        for _ in range(ROUNDS):
            _measure(rows[0], empty)
            _measure(rows[1], full)
        full.stop()
        lab.processes.remove(full)
        pruned = _start(lab, rows[2], full.folders[0], "--ledger-max-rows", str(PRUNED_TO))
        for _ in range(ROUNDS):
            _measure(rows[2], pruned)
    return rows


def values():
    rows = []
    with Lab() as lab, _store(lab, FEW) as data_dir:
        gate = _start(lab, Row(""), data_dir)
        for size, count in ((100, FEW), (10_000, FEW), (1_000_000, 50)):
            row = Row(f"values of {size:,} bytes")
            rows.append(row)
            for _ in range(ROUNDS):
                _measure(row, gate, BENCH_COUNT=count, BENCH_BYTES=size)
            row.store_mb = _store_mb(gate)
    return rows


def flight():
    rows = [(Row(f"{connections} in flight"), connections) for connections in (1, 8, 64)]
    with Lab() as lab, _store(lab, FEW) as data_dir:
        gate = _start(lab, Row(""), data_dir)
        for _ in range(ROUNDS):
            for row, connections in rows:
                _measure(row, gate, connections)
    return [row for row, _ in rows]


# ---- Results ------------------------------------------------------------------------------------


def table(part, rows):
    first = statistics.median(cell.rate for cell in rows[0].cells)
    shown = [(part, "per s", "of the first", "p50 ms", "p99 ms", "max ms", "CPU us", "others",
              "RSS MB", "start ms", "store MB", "faults")]
    for row in rows:
        cell = row.middle()
        shown.append((row.name, f"{cell.rate:,.0f}", f"{cell.rate / first:.2f}",
                      f"{cell.p50_us / 1000:.2f}", f"{cell.p99_us / 1000:.2f}",
                      f"{max(each.max_us for each in row.cells) / 1000:.1f}",
                      f"{cell.server_cpu_us:.1f}", f"{cell.others_cores:.2f}",
                      f"{max(each.server_rss_mb for each in row.cells):.0f}",
                      f"{row.start_ms:.0f}" if row.start_ms else "",
                      f"{row.store_mb:,.0f}" if row.store_mb else "",
                      "; ".join(fault for each in row.cells for fault in each.faults)))
    return report.columns(shown, {0, len(shown[0]) - 1})


def goal_line(rows):
    rates = [statistics.median(cell.rate for cell in row.cells) for row in rows]
    ratio = rates[-1] / rates[0]
    verdict = "met" if ratio >= 0.8 else "MISSED"
    return f"{verdict}  {ratio:.2f}  >= 0.8  1,000,000 resources, of the throughput with 1,000"


def main():
    unknown = [word for word in ONLY if word not in ALL]
    if unknown:
        raise SystemExit(f"BENCH_ONLY: {', '.join(unknown)} is none of {', '.join(ALL)}")
    found = {name: globals()[name]() for name in ALL if name in ONLY}
    print("\n\n".join(table(part, rows) for part, rows in found.items()))
    if "resources" in found:
        print(f"\n{goal_line(found['resources'])}")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "bench-growth.json").write_text(json.dumps(
        {"machine": report.machine(),
         **{part: [row.as_dict() for row in rows] for part, rows in found.items()}}, indent=1) + "\n")
    return 1 if any(cell.faults for rows in found.values() for row in rows for cell in row.cells) else 0


if __name__ == "__main__":
    sys.exit(main())
