"""load.py - one cell of the table: wrk with one thread against a server, and what it cost.

    measured = load(gate, "write", connections=64, seconds=4, BENCH_LEASES=path, BENCH_BYTES=100)
    measured.rate, measured.p99_us, measured.faults

wrk is a closed loop: each connection sends its next request when it has the answer to the last one.
It says how much a server can do; what clients of a fixed rate see is in rates.py. Every 100 ms the
bytes that wrk has read are looked at; a time in which there were none is a gap, and one of STALL_MS is
a stall. A connection that alone gets no answer shows as a timeout, and in the greatest latency.
"""
import dataclasses
import os
import pathlib
import re
import subprocess
import time

from lab import HERE, TICKS

SAMPLE_S = 0.1
STALL_MS = 300  # of a busy machine; what the sampling is after lasts a second or for ever
WARM_UP_S = 1
NUMBER = re.compile(r"(\w+)=(\d+)")


@dataclasses.dataclass
class Measured:
    server: str
    connections: int
    seconds: float
    requests: int
    rate: float  # requests a second
    p50_us: int
    p90_us: int
    p99_us: int
    max_us: int
    server_cpu_us: float  # of all its threads, for each request
    redis_cpu_us: float
    client_cpu_us: float
    server_rss_mb: float
    longest_gap_ms: int
    others_cores: float  # processors that were busy with something else, the kernel's own work included
    faults: list  # what may not happen, in words

    def as_dict(self):
        return {name: round(value, 2) if isinstance(value, float) else value
                for name, value in dataclasses.asdict(self).items()}


def _bytes_read(pid):
    """What a process has read so far, from sockets too; None where it is gone."""
    try:
        return int(re.search(r"rchar: (\d+)", pathlib.Path(f"/proc/{pid}/io").read_text())[1])
    except (OSError, TypeError):
        return None


def _watch(process, until):
    """Until wrk is about to end: the longest time without an answer, in ms."""
    longest, read, progress = 0.0, None, time.monotonic()
    while process.poll() is None:
        time.sleep(SAMPLE_S)
        now, seen = time.monotonic(), _bytes_read(process.pid)
        if seen is None or now > until:
            continue
        if seen != read:
            read, progress = seen, now
        longest = max(longest, now - progress)
    return int(longest * 1000)


def _machine_busy_s():
    """Processor time that the whole machine has spent, on anything."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / TICKS


def _run_wrk(url, script, connections, seconds, env):
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s",
            str(HERE / "wrk" / f"{script}.lua"), url]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "BENCH_WRK": str(HERE / "wrk"), **env})
    before = os.times()
    gap_ms = _watch(process, time.monotonic() + seconds)
    output = process.communicate()[0]
    after = os.times()
    client_cpu_s = (after.children_user + after.children_system
                    - before.children_user - before.children_system)
    line = re.search(r"^bench .*$", output, re.M)
    if not line:
        raise RuntimeError(f"{' '.join(argv)} failed:\n{output}")
    return {name: int(text) for name, text in NUMBER.findall(line[0])}, gap_ms, client_cpu_s


def _faults(numbers, gap_ms):
    found = [f"{numbers[name]} {words}" for name, words in
             (("non_2xx", "answers were errors"), ("connect", "connections failed"),
              ("read", "reads failed"), ("write", "writes failed"), ("timeout", "timeouts"))
             if numbers[name]]
    if gap_ms >= STALL_MS:
        found.append(f"nothing was answered for {gap_ms} ms")
    if not numbers["requests"]:
        found.append("no request was answered")
    return found


def load(server, script, connections, seconds, path="", warm_up_s=WARM_UP_S, **env):
    env = {name: str(value) for name, value in env.items()}
    run = 0

    def once(duration):
        nonlocal run
        run += 1
        prefix = f"{env.get('BENCH_PREFIX', 'b')}:{connections}:{time.monotonic_ns()}:{run}:"
        return _run_wrk(server.url + path, script, connections, duration,
                        {**env, "BENCH_PREFIX": prefix})

    if warm_up_s:
        once(warm_up_s)
    server_before, redis_before = server.cpu_s(), server.redis_cpu_s()
    machine_before = _machine_busy_s()
    numbers, gap_ms, client_cpu_s = once(seconds)
    server_cpu_s = server.cpu_s() - server_before
    redis_cpu_s = server.redis_cpu_s() - redis_before
    others_s = _machine_busy_s() - machine_before - server_cpu_s - redis_cpu_s - client_cpu_s
    requests = max(numbers["requests"], 1)
    duration_s = numbers["duration_us"] / 1e6
    return Measured(
        server.name, connections, duration_s, numbers["requests"], numbers["requests"] / duration_s,
        numbers["p50_us"], numbers["p90_us"], numbers["p99_us"], numbers["max_us"],
        server_cpu_s * 1e6 / requests, redis_cpu_s * 1e6 / requests, client_cpu_s * 1e6 / requests,
        server.rss_mb(), gap_ms, max(others_s, 0.0) / duration_s, _faults(numbers, gap_ms))
