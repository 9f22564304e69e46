"""lab.py - the servers that are measured, in one temporary folder, on free ports of 127.0.0.1.

    with Lab() as lab:
        gate = lab.gateway()                   # build/fencegate with its private Redis
        bare = lab.bare_loop()                 # the reference, with a Redis of its own
        leases = lab.lease_all(gate, 1000)     # a file with lines "resource token"
        before = gate.cpu_s()
        ...
        gate.cpu_s() - before, gate.rss_mb()

All that it starts dies with it, also when it is killed (PR_SET_PDEATHSIG). The folder lies where
TMPDIR says; it has to be a disk: in memory a commit costs nothing, and the lab refuses to measure there.
"""
import concurrent.futures
import ctypes
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BINARY = os.environ.get("FENCEGATE_BIN", str(ROOT / "build" / "fencegate"))
PROGRAMS = pathlib.Path(os.environ.get("BENCH_PROGRAMS", ROOT / "build" / "tests" / "bench"))
OUT = pathlib.Path(os.environ.get("BENCH_OUT", ROOT / "build"))

PATIENCE_S = 60  # a bound against hangs
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6
REDIS_OPTIONS = ["--port", "0", "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
                 "--maxmemory-policy", "noeviction", "--loglevel", "warning"]

_libc = ctypes.CDLL(None)


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def raise_open_files():
    """1000 connections need as many descriptors, here and in what we start."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def filesystem(path):
    """The type of the filesystem that holds `path`: "ext4"."""
    best = ("", "unknown")
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, mount, kind = line.split()[:3]
        inside = f"{path}/".startswith(mount if mount.endswith("/") else f"{mount}/")
        if inside and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best[1]


def cpu_s(pid):
    """Processor time of a process and all its threads, user and system, so far."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mb(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MB


class Process:
    """A program with its output in a log file."""

    def __init__(self, argv, log, env=None, cwd=None, as_user=None):
        self.log_path = pathlib.Path(log)
        self.started = time.monotonic()
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                [str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, preexec_fn=_die_with_parent, cwd=cwd,
                env={**os.environ, **(env or {})}, **(as_user or {}))
        self.pid = self.process.pid

    def log(self):
        return self.log_path.read_text(errors="replace")

    def await_log(self, pattern, patience_s=PATIENCE_S):
        """Waits for a line; returns the match and the seconds since the start."""
        while not (found := re.search(pattern, self.log())):
            if self.process.poll() is not None or time.monotonic() - self.started > patience_s:
                raise RuntimeError(f"{self.process.args[0]} did not start:\n{self.log()[-2000:]}")
            time.sleep(0.002)
        return found, time.monotonic() - self.started

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    def cpu_s(self):
        return cpu_s(self.pid)

    def rss_mb(self):
        return rss_mb(self.pid)


class HttpServer(Process):
    """Prints a line with "listening" and its URL when it is ready."""

    def __init__(self, name, argv, log, redis=None, **options):
        super().__init__(argv, log, **options)
        self.name = name
        found, self.start_s = self.await_log(r"listening.*http://127\.0\.0\.1:(\d+)")
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.redis = redis

    def redis_cpu_s(self):
        return self.redis.cpu_s() if self.redis else 0.0


class Gateway(HttpServer):
    """`wrapper`: what to run it under, the program included."""

    def __init__(self, data_dir, log, options=(), wrapper=(BINARY,)):
        super().__init__("product", [*wrapper, "--listen", "127.0.0.1:0", "--data-dir", data_dir,
                                     *options], log)
        found = re.search(r"redis-server started pid=(\d+)", self.log())
        self.redis_pid = int(found[1]) if found else 0

    def redis_cpu_s(self):
        return cpu_s(self.redis_pid)


class Lab:
    def __init__(self):
        raise_open_files()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the folder is removed
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fencegate-bench-"))
        self.filesystem = filesystem(self.folder)
        if self.filesystem in ("tmpfs", "ramfs"):
            self.folder.rmdir()
            raise SystemExit(f"{self.folder.parent} is in memory: set TMPDIR to a folder on a disk")
        self.processes, self.count = [], 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        """A name of its own in the folder."""
        self.count += 1
        return self.folder / f"{self.count}-{name}"

    def keep(self, process):
        self.processes.append(process)
        return process

    def end(self, server, *folders):
        """Stops a server and removes what it has written."""
        redis = getattr(server, "redis", None)
        for process in (server, redis):
            if process:
                process.stop()
                self.processes.remove(process)
        for folder in (*folders, *getattr(server, "folders", ())):
            shutil.rmtree(folder, ignore_errors=True)

    # ---- Servers ----

    def gateway(self, *options, data_dir=None):
        data_dir = data_dir or self.path("data")
        gate = self.keep(Gateway(data_dir, f"{data_dir}.log", options))
        gate.folders = [data_dir]
        return gate

    def redis(self):
        folder = self.path("redis")
        folder.mkdir()
        redis = self.keep(Process(["redis-server", *REDIS_OPTIONS, "--unixsocket", "redis.sock",
                                   "--dir", "."], f"{folder}.log", cwd=folder))
        redis.socket = folder / "redis.sock"
        redis.folders = [folder]
        while not redis.socket.exists():
            time.sleep(0.005)
        return redis

    def bare_loop(self):
        redis, folder = self.redis(), self.path("bare")
        folder.mkdir()
        bare = self.keep(HttpServer("bare loop", [PROGRAMS / "bare_loop", folder, redis.socket],
                                    f"{folder}.log", redis))
        bare.folders = [folder, *redis.folders]
        return bare

    def constant(self):
        return self.keep(HttpServer("constant", [PROGRAMS / "constant"], self.path("constant.log")))

    # ---- Preparing ----

    def lease_all(self, server, count, ttl_ms=86400000):
        """Leases `count` resources; returns a file with a line "resource token" for each."""
        names = [f"bench:{number:06d}" for number in range(count)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            parts = pool.map(lambda part: _lease(server.port, part, ttl_ms),
                             [names[at::8] for at in range(8)])
            lines = sorted(line for part in parts for line in part)
        path = self.path("leases")
        path.write_text("".join(lines))
        return path


def _lease(port, names, ttl_ms):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    lines = []
    for name in names:
        connection.request("POST", "/leases", f'{{"resource":"{name}","ttl_ms":{ttl_ms}}}')
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 201:
            raise RuntimeError(f"no lease of {name}: {answer.status} {body.decode()}")
        lines.append(f"{name} {json.loads(body)['fencing_token']}\n")
    connection.close()
    return lines
