"""references.py - the limits that need no gateway: SQLite alone, and Redis with the acquire script."""
import csv
import io
import subprocess

from lab import PATIENCE_S, PROGRAMS, ROOT

REQUESTS = 200_000


def group_commit(lab, seconds):
    """{ops per commit: writes a second}"""
    folder = lab.path("group-commit")
    folder.mkdir()
    done = subprocess.run([PROGRAMS / "group_commit", folder, str(seconds)], check=True,
                          capture_output=True, text=True, timeout=PATIENCE_S * 4)
    return {int(group): float(rate) for group, rate in
            (line.split() for line in done.stdout.splitlines())}


def _redis_benchmark(redis, options, sha):
    """redis-benchmark draws a number for each __rand_int__, so counter and holders get different names;
    that costs the same."""
    script = ["EVALSHA", sha, "3", "fencegate:store", "fencegate:{bench:__rand_int__}:counter",
              "fencegate:{bench:__rand_int__}:holders", "bench", "0", "1", "30000", "0" * 32, "86400000"]
    done = subprocess.run(["redis-benchmark", "-s", redis.socket, "-n", str(REQUESTS), "-r",
                           "1000000000000", "--csv", *options, *script], check=True,
                          capture_output=True, text=True, timeout=PATIENCE_S * 4)
    row = list(csv.DictReader(io.StringIO(done.stdout)))[-1]
    return {"rate": float(row["rps"]), "p50_us": int(float(row["p50_latency_ms"]) * 1000),
            "p99_us": int(float(row["p99_latency_ms"]) * 1000)}


def redis_script(lab):
    """The acquire script alone: 64 clients of one request each, and one that pipelines as we do."""
    redis = lab.redis()
    script = (ROOT / "lua" / "acquire.lua").read_text()
    sha = subprocess.run(["redis-cli", "-s", redis.socket, "-x", "SCRIPT", "LOAD"], input=script,
                         check=True, capture_output=True, text=True).stdout.strip()
    found = {"64 clients": _redis_benchmark(redis, ["-c", "64"], sha),
             "pipeline of 64": _redis_benchmark(redis, ["-c", "1", "-P", "64"], sha)}
    lab.end(redis, *redis.folders)
    return found
