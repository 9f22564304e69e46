#!/usr/bin/python3
"""readme_table.py - the tables of README.md's section "How fast", from build/bench.json and, where it is
there, build/bench-growth.json. After a run on a quiet machine: tests/bench/readme_table.py"""
import json
import statistics
import sys

from lab import OUT

CONNECTIONS = 64
WORK = (("write", "fenced write", 1), ("grant", "grant", 1), ("cycle", "acquire + release", 2),
        ("read", "read", 1))


def _ms(us):
    return f"{us / 1000:.1f} ms" if us >= 1000 else f"{us / 1000:.2f} ms"


def _rounded(rate):
    """41,000: no more figures than another run would show again."""
    digits = 10 ** max(len(str(int(rate))) - 2, 0)
    return f"{round(rate / digits) * digits:,}"


def _cells(bench, work, connections):
    return sorted((cell for cell in bench["cells"] if cell["server"] == "product" and
                   (cell["work"], cell["connections"]) == (work, connections)),
                  key=lambda cell: cell["rate"])


def _times_peers(bench, work):
    """"4.9 x etcd's ..." of all that is compared with this work."""
    found = []
    for peer in bench["peers"]:
        ratios = [ours["rate"] / theirs["rate"] for ours, theirs in zip(peer["product"], peer["rows"])]
        if ratios and (peer["name"] == "etcd lock") == (work == "grant"):
            found.append(f"{statistics.median(ratios):.1f} × {peer['name']}")
    return ", ".join(found) if work in ("write", "grant") else ""


def at_one_load(bench):
    yield f"| {CONNECTIONS} connections | per second | p50 | p99 | of the bare loop | of others |"
    yield "|---|---|---|---|---|---|"
    for work, name, parts in WORK:
        cells = _cells(bench, work, CONNECTIONS)
        if cells:
            cell = cells[len(cells) // 2]
            ratio = next((f"{statistics.median(row['of_bare']):.2f}" for row in bench["ratios"] if
                          (row["work"], row["connections"]) == (work, CONNECTIONS)), "")
            times = "" if parts > 1 else f"{_ms(cell['p50_us'])} | {_ms(cell['p99_us'])}"
            yield (f"| {name} | {_rounded(cell['rate'] / parts)} | {times or ' | '} | {ratio} |"
                   f" {_times_peers(bench, work)} |")


def by_connections(bench):
    all_connections = sorted({cell["connections"] for cell in bench["cells"]})
    yield f"| connections | {' | '.join(map(str, all_connections))} |"
    yield "|---" * (len(all_connections) + 1) + "|"
    for work, name, parts in WORK:
        rates = [[cell["rate"] / parts for cell in _cells(bench, work, connections)]
                 for connections in all_connections]
        if any(rates):
            shown = (_rounded(statistics.median(each)) if each else "" for each in rates)
            yield f"| {name}, per second | {' | '.join(shown)} |"


def at_fixed_rates(bench):
    rows = bench["fixed_rate"]["rows"]
    if rows:
        yield "| fenced writes at a fixed rate | p50 | p99 | max |"
        yield "|---|---|---|---|"
        for row in rows:
            yield (f"| {row['share']:.0%} of the maximum, {_rounded(row['asked'])}/s |"
                   f" {_ms(row['p50_us'])} | {_ms(row['p99_us'])} | {_ms(row['max_us'])} |")


def growth(found):
    yield "| 64 connections | writes per second | of the first | p99 | memory | start |"
    yield "|---|---|---|---|---|---|"
    for part in ("resources", "ledger", "values"):
        first = None
        for row in found.get(part, ()):
            cells = sorted(row["cells"], key=lambda cell: cell["rate"])
            cell = cells[len(cells) // 2]
            first = first or cell["rate"]
            start = f"{row['start_ms']:.0f} ms" if row["start_ms"] else ""
            yield (f"| {row['name']} | {_rounded(cell['rate'])} | {cell['rate'] / first:.2f} |"
                   f" {_ms(cell['p99_us'])} | {cell['server_rss_mb']:.0f} MB | {start} |")


def main():
    bench = json.loads((OUT / "bench.json").read_text())
    tables = [at_one_load(bench), by_connections(bench), at_fixed_rates(bench)]
    grown = OUT / "bench-growth.json"
    if grown.exists():
        tables.append(growth(json.loads(grown.read_text())))
    print("\n\n".join(text for text in ("\n".join(table) for table in tables) if text))


if __name__ == "__main__":
    sys.exit(main())
