"""report.py - how the numbers are shown: progress lines, the table, the goals, bench.json."""
import dataclasses
import os
import platform
import subprocess
import sys

HEAD = ("work", "conn", "server", "per s", "of bare", "p50 ms", "p99 ms", "max ms", "CPU us",
        "redis us", "wrk us", "others", "RSS MB", "gap ms", "faults")


def columns(rows, left):
    """Numbers to the right; the columns in `left`, which hold words, to the left."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join("  ".join(text.ljust(width) if at in left else text.rjust(width)
                               for at, (text, width) in enumerate(zip(row, widths))).rstrip()
                     for row in rows)


def _ms(us, digits=2):
    return f"{us / 1000:.{digits}f}"


def progress(work, cell):
    print(f"{work:6} {cell.connections:5} {cell.server:10} {cell.rate:10,.0f}/s"
          f"  p50 {_ms(cell.p50_us)} ms  p99 {_ms(cell.p99_us)} ms  {'; '.join(cell.faults)}",
          file=sys.stderr, flush=True)


def peer_progress(row):
    print(f"{row.peer.work:6} {row.product[-1].connections:5} {'product':10}"
          f" {row.product[-1].rate:10,.0f}/s  {row.peer.name} {row.rows[-1].rate:,.0f}/s",
          file=sys.stderr, flush=True)


# ---- The parts of the report --------------------------------------------------------------------


def _merged(cells):
    """Cells of one kind, measured in several rounds: the one in the middle, by rate."""
    groups = {}
    for work, cell in cells:
        groups.setdefault((work, cell.connections, cell.server), []).append(cell)
    for (work, _, _), group in groups.items():
        yield work, sorted(group, key=lambda cell: cell.rate)[len(group) // 2]


def _cells(bench):
    rows = [HEAD]
    for work, cell in _merged(bench.cells):
        ratio = bench.ratio(work, cell.connections) if cell.server == "product" else None
        rows.append((work, str(cell.connections), cell.server, f"{cell.rate:,.0f}",
                     f"{ratio:.2f}" if ratio else "", _ms(cell.p50_us), _ms(cell.p99_us),
                     _ms(cell.max_us, 1), f"{cell.server_cpu_us:.1f}",
                     f"{cell.redis_cpu_us:.1f}" if cell.redis_cpu_us else "",
                     f"{cell.client_cpu_us:.1f}", f"{cell.others_cores:.2f}",
                     f"{cell.server_rss_mb:.0f}",
                     str(cell.longest_gap_ms), "; ".join(cell.faults)))
    return columns(rows, {0, 2, len(HEAD) - 1}) if len(rows) > 1 else ""


def _others(bench):
    rows = [("beside it", "per s", "p50 ms", "p99 ms", "we do", "")]
    for group, rate in bench.group_commit.items():
        rows.append((f"SQLite alone, {group} writes per commit", f"{rate:,.0f}", "", "", "", ""))
    for how, row in bench.redis_script.items():
        rows.append((f"redis-benchmark, acquire script, {how}", f"{row['rate']:,.0f}",
                     _ms(row["p50_us"]), _ms(row["p99_us"]), "", ""))
    for row in bench.peer_rows:
        if not row.rows:
            rows.append((row.peer.name, "", "", "", "", "not installed (make bench-deps)"))
            continue
        middle = row.middle()
        rows.append((f"{row.peer.name} {row.peer.version}, 64 clients", f"{middle.rate:,.0f}",
                     _ms(middle.p50_us), _ms(middle.p99_us), f"{row.ratio():.1f} times",
                     middle.faults))
    return columns(rows, {0, 5}) if len(rows) > 1 else ""


def _rates(bench):
    if not bench.rate_rows:
        return ""
    rows = [("writes at a fixed rate", "asked per s", "achieved", "p50 ms", "p99 ms", "max ms", "")]
    for rate in bench.rate_rows:
        rows.append((f"{rate.share:.0%} of {bench.maximum:,.0f}/s", f"{rate.asked:,.0f}",
                     f"{rate.achieved:,.0f}", _ms(rate.p50_us), _ms(rate.p99_us),
                     _ms(rate.max_us, 1),
                     "fell behind: the times leave waiting out" if rate.achieved < 0.98 * rate.asked
                     else ""))
    return columns(rows, {0, 6})


def _goals(goals):
    rows = [("met" if goal.met else "MISSED", goal.value, goal.wanted, goal.what) for goal in goals]
    return columns(rows, {0, 2, 3}) if rows else ""


def parts(bench, goals):
    return [_cells(bench), _others(bench), _rates(bench), _goals(goals)]


# ---- bench.json ---------------------------------------------------------------------------------


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                  if line.startswith("model name")), platform.machine())
    compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True).stdout
    return {"processor": model, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "compiler": compiler.split("\n")[0]}


def as_json(bench, goals, faults):
    return {
        "machine": machine(),
        "cells": [{"work": work, **cell.as_dict()} for work, cell in bench.cells],
        "ratios": [{"work": work, "connections": connections, "of_bare": rounds}
                   for (work, connections), rounds in bench.ratios.items()],
        "group_commit": bench.group_commit,
        "redis_script": bench.redis_script,
        "peers": [{"name": row.peer.name, "version": row.peer.version,
                   "rows": [dataclasses.asdict(each) for each in row.rows],
                   "product": [cell.as_dict() for cell in row.product]} for row in bench.peer_rows],
        "fixed_rate": {"maximum": bench.maximum,
                       "rows": [dataclasses.asdict(rate) for rate in bench.rate_rows]},
        "start_ms": bench.start_ms,
        "idle_mb": bench.idle_mb,
        "goals": [dataclasses.asdict(goal) for goal in goals],
        "faults": faults,
    }
