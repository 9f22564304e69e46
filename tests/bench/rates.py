"""rates.py - latency at a fixed rate: what clients see that do not wait for each other.

    rows = measure_rates(gate, leases, lab, seconds)   # 30, 60 and 90 % of the maximum

h2load keeps each of 256 connections at its share of the rate (--rps), whether answers are quick or
slow. Its clients would all begin in the same microsecond and then send in bursts of 256, so they are
started one after the other, over more than a second (--rate); the log's rows from then on count. It
times a request from when it is sent, so a connection that is still waiting when its next request is due
hides that delay: `achieved` tells. Where that is the rate asked for, nothing was left out.

Writes only: h2load can't put a new name into each body, so it can't ask for grants.
"""
import dataclasses
import pathlib
import re
import subprocess

from lab import PATIENCE_S

CLIENTS = 256
RAMP_PERIOD_MS = 5  # one more connection each
RAMP_S = CLIENTS * RAMP_PERIOD_MS / 1000
SHARES = (0.3, 0.6, 0.9)


@dataclasses.dataclass
class Rate:
    share: float  # of the maximum
    asked: float  # requests a second
    achieved: float
    p50_us: int
    p99_us: int
    max_us: int
    faults: list


def _h2load(options):
    argv = ["h2load", "--h1", "-c", str(CLIENTS), "-t", "1", *[str(word) for word in options]]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S * 2)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _request_options(gate, leases, lab):
    """PUT of 100 bytes to each leased resource in turn. A fresh lease's token is 1: one header for all."""
    lines = pathlib.Path(leases).read_text().split("\n")[:-1]
    if any(line.split()[1] != "1" for line in lines):
        raise RuntimeError("the resources are not fresh")
    uris, body = lab.path("uris"), lab.path("body")
    uris.write_text("".join(f"{gate.url}/store/{line.split()[0]}/value\n" for line in lines))
    body.write_text('{"amount":100,"note":"' + "x" * 76 + '"}')
    return ["-i", uris, "-d", body, "-H", ":method: PUT", "-H", "x-fencing-token: 1", "-H",
            "content-type: application/json"]


def _maximum(options, seconds):
    text = _h2load([*options, "-D", seconds, "--warm-up-time=1"])
    return float(re.search(r"finished in [\d.]+s, ([\d.]+) req/s", text)[1])


def _at_rate(options, lab, share, rate, seconds):
    log = lab.path("h2load.log")
    requests = int(rate * (seconds + RAMP_S))
    _h2load([*options, "--rps", f"{rate / CLIENTS:.4f}", "-n", requests, "-r", "1",
             f"--rate-period={RAMP_PERIOD_MS}ms", "--log-file", log])
    rows = sorted(tuple(int(word) for word in line.split())
                  for line in log.read_text().splitlines())
    begin = rows[0][0] + RAMP_S * 1e6
    end = begin + (seconds - 0.5) * 1e6
    inside = [row for row in rows if begin <= row[0] < end]
    times = sorted(row[2] for row in inside)
    refused = sum(row[1] not in (200, 201) for row in rows)
    return Rate(share, rate, len(inside) / (seconds - 0.5), times[len(times) // 2],
                times[len(times) * 99 // 100], times[-1],
                [f"{refused} answers were errors"] if refused else [])


def measure_rates(gate, leases, lab, seconds):
    options = _request_options(gate, leases, lab)
    maximum = _maximum(options, seconds)
    return maximum, [_at_rate(options, lab, share, share * maximum, seconds) for share in SHARES]
