"""harness.py - what the fault tests share: servers in temporary folders, a small HTTP client, a proxy.

    with Scene() as scene:
        redis = scene.redis()                      # a real redis-server on a unix socket
        gate = scene.gateway(redis=redis)          # build/fencegate; without redis: its private one
        lease = gate.acquire("invoice:1", ttl_ms=1000)
        assert gate.put("invoice:1", "charge", lease.token, b"100").status == 201

Everything that a scene starts dies with it, also when the test is killed (PR_SET_PDEATHSIG). The fault
build (make build-faults) is used where `faults`, `bugs` or `scripts` are given.

A test file is a program: functions whose names say the case, decorated with @case, and run_cases() at
its end, which prints "N passed, M failed" and exits accordingly. Words on its command line select
cases by a part of their name.
"""
import contextlib
import ctypes
import dataclasses
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("FENCEGATE_BIN", str(ROOT / "build" / "fencegate"))
FAULT_BINARY = os.environ.get("FENCEGATE_FAULTS_BIN", str(ROOT / "build" / "faults" / "fencegate"))
PATIENCE_S = 20  # a bound against hangs, never a measurement

_libc = ctypes.CDLL(None)


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def eventually(condition, patience_s=PATIENCE_S, what="it"):
    """Polls until condition() is true and returns its value."""
    deadline = time.monotonic() + patience_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen in {patience_s} s")
        time.sleep(0.01)


# ---- Answers ------------------------------------------------------------------------------------


@dataclasses.dataclass
class Answer:
    status: int
    headers: dict  # names in lower case
    body: bytes

    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """The problem's code; None where the answer is no problem."""
        if self.headers.get("content-type") != "application/problem+json":
            return None
        return self.json()["code"]


@dataclasses.dataclass
class Lease:
    id: str
    token: int
    answer: Answer


class Http:
    """One client connection. Raises OSError or http.client.HTTPException where the peer is gone."""

    def __init__(self, port, timeout_s=PATIENCE_S):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)

    def call(self, method, target, body=None, headers=None):
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        self.connection.request(method, target, body, headers or {})
        response = self.connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, names, response.read())

    def close(self):
        self.connection.close()


def segment(name):
    return urllib.parse.quote(name, safe="")


class Client:
    """The vocabulary of fencegate over one connection that is made anew when it breaks."""

    def __init__(self, port, timeout_s=PATIENCE_S):
        self.port, self.timeout_s = port, timeout_s
        self.http = None

    def call(self, method, target, body=None, headers=None):
        self.http = self.http or Http(self.port, self.timeout_s)
        try:
            return self.http.call(method, target, body, headers)
        except BaseException:
            self.close()
            raise

    def close(self):
        if self.http:
            self.http.close()
            self.http = None

    def try_acquire(self, resource, **fields):
        return self.call("POST", "/leases", {"resource": resource, **fields})

    def acquire(self, resource, **fields):
        answer = self.try_acquire(resource, **fields)
        assert answer.status == 201, (answer.status, answer.body)
        return Lease(answer.json()["lease_id"], answer.json()["fencing_token"], answer)

    def renew(self, lease, **fields):
        return self.call("POST", f"/leases/{lease.id}/renew", fields)

    def release(self, lease):
        return self.call("DELETE", f"/leases/{lease.id}")

    def put(self, resource, key, token, value, **headers):
        names = {name.replace("_", "-"): text for name, text in headers.items()}
        return self.call("PUT", f"/store/{segment(resource)}/{segment(key)}", value,
                         {"X-Fencing-Token": str(token), **names})

    def get(self, resource, key, **headers):
        names = {name.replace("_", "-"): text for name, text in headers.items()}
        return self.call("GET", f"/store/{segment(resource)}/{segment(key)}", None, names)

    def history(self, resource):
        """All ledger rows of a resource, in commit order."""
        rows, after = [], 0
        while True:
            answer = self.call(
                "GET", f"/resources/{segment(resource)}/history?limit=1000&after={after}")
            if answer.status == 404:
                return rows
            page = answer.json()
            rows += page["items"]
            if page["next_cursor"] is None:
                return rows
            after = rows[-1]["seq"]


# ---- Servers ------------------------------------------------------------------------------------


class Server:
    """A child process with its output in a file."""

    def __init__(self, argv, log, env=None, wrapper=(), preexec=None):
        def prepare():
            _die_with_parent()
            if preexec:
                preexec()

        self.argv, self.log_path = list(argv), log
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                [*wrapper, *argv], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, **(env or {})}, preexec_fn=prepare, start_new_session=True)

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        return pathlib.Path(self.log_path).read_text(errors="replace")

    def running(self):
        return self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.running():
            self.process.kill()
        return self.process.wait(PATIENCE_S)

    def wait(self, patience_s=PATIENCE_S):
        return self.process.wait(patience_s)

    @contextlib.contextmanager
    def paused(self):
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)


class Redis(Server):
    """redis-server on a unix socket, without persistence unless `arguments` ask for it."""

    def __init__(self, folder, arguments=(), env=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.socket = str(self.folder / "redis.sock")
        argv = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", str(folder),
                "--save", "", "--appendonly", "no", "--enable-debug-command", "yes", *arguments]
        super().__init__(argv, str(self.folder / "redis.log"), env)
        eventually(lambda: self.answers() or not self.running(), what="redis")
        assert self.running(), self.log()

    @property
    def url(self):
        return f"unix://{self.socket}"

    def answers(self):
        try:
            return self.command("PING") == "PONG"
        except RedisError:
            return True  # it is there, and loads or wants a password
        except OSError:
            return False

    def command(self, *words, timeout_s=PATIENCE_S):
        return redis_command(self.socket, *words, timeout_s=timeout_s)


class RedisError(Exception):
    """An error reply."""


def redis_command(path, *words, timeout_s=PATIENCE_S):
    """One command over a connection of its own; strings in, Python values out."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(timeout_s)
        link.connect(path)
        parts = [str(word).encode() if not isinstance(word, bytes) else word for word in words]
        link.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p)
                                                        for p in parts))
        return _read_reply(link.makefile("rb"))


def _read_reply(stream):
    line = stream.readline()
    if not line:
        raise ConnectionError("redis closed the connection")
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest.decode()
    if kind == b"-":
        raise RedisError(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"$":
        length = int(rest)
        return None if length < 0 else stream.read(length + 2)[:-2].decode(errors="replace")
    return [_read_reply(stream) for _ in range(int(rest))]


class Gateway(Server, Client):
    """A fencegate process on a free port. `faults`: FG_FAILPOINTS, `bugs`: FG_BUGS, `scripts`:
    FG_SCRIPTS; any of them starts the fault build. `expect_exit`: it is to end by itself."""

    def __init__(self, data_dir, redis=None, options=(), faults="", bugs="", scripts="", env=None,
                 wrapper=(), preexec=None, expect_exit=False, faulty=False):
        self.data_dir = pathlib.Path(data_dir)
        url = redis if isinstance(redis, str) else redis.url if redis else None
        binary = FAULT_BINARY if faults or bugs or scripts or faulty else BINARY
        argv = [binary, "--listen", "127.0.0.1:0", "--data-dir", str(data_dir), *options]
        if url:
            argv += ["--redis", url]
        fault_env = {name: text for name, text in
                     (("FG_FAILPOINTS", faults), ("FG_BUGS", bugs), ("FG_SCRIPTS", scripts)) if text}
        log = f"{data_dir}.{time.monotonic_ns()}.log"
        Server.__init__(self, argv, log, {**fault_env, **(env or {})}, wrapper, preexec)
        Client.__init__(self, 0)
        if not expect_exit:
            self.await_listening()

    def await_listening(self):
        eventually(lambda: "listening" in self.log() or not self.running(), what="the gateway")
        found = re.search(r"listening.*http://[^\s\"]*:(\d+)", self.log())
        assert found, f"the gateway did not start:\n{self.log()}"
        self.port = int(found.group(1))

    def client(self, timeout_s=PATIENCE_S):
        return Client(self.port, timeout_s)

    def stop(self):
        """SIGTERM; returns the exit status."""
        Client.close(self)
        self.signal(signal.SIGTERM)
        return self.wait()


class Proxy:
    """Between a gateway and Redis: forwards bytes over unix sockets, as `rule` says.

    rule(direction, data) -> bytes to forward, or None to swallow them; direction is "up" (to Redis)
    or "down". `cut()` closes all connections; while `refuse` is set, new ones are closed at once.
    `tcp`: it listens on a free port (`port`)."""

    def __init__(self, folder, target, tcp=False):
        self.target, self.path = target, str(pathlib.Path(folder) / "proxy.sock")
        self.rule = lambda direction, data: data
        self.refuse = False
        self.links, self.lock = [], threading.Lock()
        self.listener = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
        self.listener.bind(("127.0.0.1", 0) if tcp else self.path)
        self.port = self.listener.getsockname()[1] if tcp else 0
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}" if self.port else f"unix://{self.path}"

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                if self.refuse:
                    raise ConnectionRefusedError
                far.connect(self.target)
            except OSError:
                near.close()
                continue
            with self.lock:
                self.links += [near, far]
            threading.Thread(target=self._pump, args=(near, far, "up"), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, "down"), daemon=True).start()

    def _pump(self, source, sink, direction):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                data = self.rule(direction, data)
                if data is not None:
                    sink.sendall(data)
        for link in (source, sink):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def cut(self):
        with self.lock:
            links, self.links = self.links, []
        for link in links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()
        self.cut()


class Scene:
    """A temporary folder and all servers that were started in it."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fencegate-fault-"))
        self.servers, self.count = [], 0

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for server in reversed(self.servers):
            server.kill() if isinstance(server, Server) else server.close()
        if kind and not os.environ.get("CI"):
            for server in self.servers:
                if isinstance(server, Gateway):
                    print(f"--- log of {server.argv[0]}\n{server.log()[-4000:]}")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _keep(self, server):
        self.servers.append(server)
        return server

    keep = _keep  # for servers that a test starts itself

    def redis(self, *arguments, env=None):
        self.count += 1
        return self._keep(Redis(self.folder / f"redis{self.count}", arguments, env))

    def proxy(self, redis, tcp=False):
        self.count += 1
        folder = self.folder / f"proxy{self.count}"
        folder.mkdir()
        return self._keep(Proxy(folder, redis.socket, tcp))

    def gateway(self, redis=None, data="data", **arguments):
        return self._keep(Gateway(self.folder / data, redis, **arguments))


def preload(folder, source):
    """Compiles a library of this folder; the environment that puts it before the C library."""
    library = pathlib.Path(folder) / f"{pathlib.Path(source).stem}.so"
    if not library.exists():
        subprocess.run(["cc", "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-o", library,
                        ROOT / "tests" / "fault" / source], check=True)
    asan = os.environ.get("ASAN_OPTIONS", "")  # which wants to be first
    return {"LD_PRELOAD": str(library), "ASAN_OPTIONS": f"{asan}:verify_asan_link_order=0"}


# ---- Cases --------------------------------------------------------------------------------------

_cases = []


def case(function):
    _cases.append((function.__name__, function))
    return function


def add_case(name, function):
    """For tables: one case per row."""
    _cases.append((name, function))


def run_cases():
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    chosen = [c for c in _cases if not words or any(word in c[0] for word in words)]
    failed = 0
    for name, function in chosen:
        started = time.monotonic()
        try:
            function()
            verdict = "ok  "
        except BaseException as error:  # a case may fail in any way; the others go on
            if isinstance(error, KeyboardInterrupt):
                raise
            failed += 1
            verdict = "FAIL"
            traceback.print_exc(file=sys.stdout)
        print(f"{verdict}  {time.monotonic() - started:6.1f} s  {name}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    sys.exit(1 if failed or not chosen else 0)
