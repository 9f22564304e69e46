#!/usr/bin/python3
"""holding.py - what `fence run` adds to a job.

    make bench-holding                         ten seconds

BENCH_RUNS   how often the job is run each way (300)

The job is /bin/true, on a gateway on loopback: run by itself, and under a lease, in turn, so that a machine
that becomes slower is slower for both. From posix_spawn() to the end of waitpid(). What is added is starting
`fence`, a grant and a release (each on the disk before it is answered), and what keeps the job in hand: a
group of its own, a guardian, a watchdog.

Prints one table, writes build/bench-holding.json. A run that fails: exit 1. A goal that is missed is said, and
is no failure.
"""
import json
import os
import statistics
import sys
import time

import report
from lab import OUT, ROOT, Lab

FENCE = os.environ.get("FENCE_BIN", str(ROOT / "build" / "fence"))
RUNS = int(os.environ.get("BENCH_RUNS", "300"))
GOAL_MS = 10


def run_us(argv, env):
    began = time.monotonic_ns()
    _, status = os.waitpid(os.posix_spawn(argv[0], argv, env), 0)
    took_us = (time.monotonic_ns() - began) / 1000
    if status != 0:
        raise SystemExit(f"{' '.join(argv)} ended with {os.waitstatus_to_exitcode(status)}")
    return took_us


def measure():
    """Times in us: of the job alone, of the job under a lease."""
    alone, held = [], []
    with Lab() as lab:
        env = {**os.environ, "FENCE_URL": f"http://127.0.0.1:{lab.gateway().port}"}
        for number in range(RUNS + 10):
            pair = (run_us(["/bin/true"], env),
                    run_us([FENCE, "run", f"job:{number % 20}", "--", "/bin/true"], env))
            if number >= 10:  # the first warm caches up
                alone.append(pair[0])
                held.append(pair[1])
    return sorted(alone), sorted(held)


def row(work, times, wanted="", met=None):
    p50, p99 = statistics.median(times), times[len(times) * 99 // 100]
    return {"work": work, "p50_us": p50, "p99_us": p99, "max_us": times[-1], "wanted": wanted,
            "met": met}


def main():
    alone, held = measure()
    added = statistics.median(held) - statistics.median(alone)
    rows = [row("/bin/true", alone), row("fence run job -- /bin/true", held)]
    shown = [("work", "p50 ms", "p99 ms", "max ms")]
    shown += [(each["work"], *(f"{each[name] / 1000:.2f}" for name in ("p50_us", "p99_us", "max_us")))
              for each in rows]
    print(report.columns(shown, {0}))
    met = added < GOAL_MS * 1000
    print(f"\nadded at the median: {added / 1000:.2f} ms; goal < {GOAL_MS} ms: "
          f"{'met' if met else 'MISSED'}")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "bench-holding.json").write_text(json.dumps(
        {"machine": report.machine(), "rows": rows, "added_us": added, "met": met}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
