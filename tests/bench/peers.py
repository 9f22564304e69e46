"""peers.py - etcd and PostgreSQL, where they are installed: started in the lab's folder, on loopback or a
unix socket, with the durability that they have by themselves (each commit is synced).

    for peer in start_peers(lab):              # a Peer for each thing that is compared
        row = peer.measure(seconds)            # where peer.version is not None

What they do, so that it is what the gateway does:
  - etcd, guarded txn: put a value only if the lock's key still has the revision it was created with
    (the revision is the fencing token), in one txn, over the JSON gateway;
  - etcd, lock: grant a lease and lock a new name with it; two calls, counted as one lock;
  - PostgreSQL: INSERT .. ON CONFLICT DO UPDATE .. WHERE the token is not smaller, one statement, prepared.
"""
import base64
import dataclasses
import glob
import json
import os
import pathlib
import pwd
import re
import shutil
import socket
import subprocess
import urllib.request

from lab import HERE, HttpServer, PATIENCE_S, Process
from load import load

CONNECTIONS = 64
RESOURCES = 1000
VALUE = '{"amount":100,"note":"' + "x" * 76 + '"}'


@dataclasses.dataclass
class Peer:
    name: str
    work: str  # of ours: "write", "grant"
    version: str  # None: not installed
    measure: object = None  # measure(seconds) -> Row


@dataclasses.dataclass
class Row:
    rate: float
    p50_us: int
    p99_us: int
    faults: str = ""


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _b64(text):
    return base64.b64encode(text.encode()).decode()


# ---- etcd ---------------------------------------------------------------------------------------


class Etcd(HttpServer):
    def __init__(self, lab):
        folder, self.name, self.redis = lab.path("etcd"), "etcd", None
        self.url = f"http://127.0.0.1:{_free_port()}"
        peer_url = f"http://127.0.0.1:{_free_port()}"
        Process.__init__(self, ["etcd", "--data-dir", folder, "--listen-client-urls", self.url,
                                "--advertise-client-urls", self.url, "--listen-peer-urls", peer_url,
                                "--initial-advertise-peer-urls", peer_url,
                                "--initial-cluster", f"default={peer_url}"],
                         f"{folder}.log", env={"ETCD_UNSUPPORTED_ARCH": os.uname().machine})
        lab.keep(self)
        self.await_log("ready to serve client requests")
        self.guards = lab.path("guards")
        self._create_guards()

    @staticmethod
    def version():
        """None: not installed."""
        if not shutil.which("etcd"):
            return None
        text = subprocess.run(["etcd", "--version"], capture_output=True, text=True).stdout
        return re.search(r"etcd Version: (\S+)", text)[1]

    def call(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def _create_guards(self):
        """Locks' keys, each with the revision it was created with."""
        with open(self.guards, "w") as lines:
            for number in range(RESOURCES):
                key = _b64(f"lock/bench:{number:06d}")
                answer = self.call("/v3/kv/put", {"key": key, "value": _b64("held")})
                value_key = _b64(f"value/bench:{number:06d}")
                lines.write(f"{key} {value_key} {answer['header']['revision']}\n")

    def measure_txn(self, seconds):
        txn = load(self, "etcd_txn", CONNECTIONS, seconds, BENCH_GUARDS=self.guards,
                   BENCH_VALUE=_b64(VALUE))
        return Row(txn.rate, txn.p50_us, txn.p99_us, "; ".join(txn.faults))

    def measure_lock(self, seconds):
        """Two calls make one lock; its time is that of both."""
        calls = load(self, "etcd_lock", CONNECTIONS, seconds)
        return Row(calls.rate / 2, 2 * calls.p50_us, 2 * calls.p99_us, "; ".join(calls.faults))


# ---- PostgreSQL ---------------------------------------------------------------------------------


def _postgres_programs():
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: float(
        re.search(r"/(\d+)/bin", path)[1]))
    if folders:
        return pathlib.Path(folders[-1])
    found = shutil.which("postgres")
    return pathlib.Path(found).parent if found else None


def _postgres_user():
    """The server refuses root: another user then, whose the folder is."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("PostgreSQL does not run as root, and there is no user to run it as")


class Postgres:
    def __init__(self, lab):
        self.lab, self.programs, user = lab, _postgres_programs(), _postgres_user()
        self.folder = lab.path("postgres")
        self.folder.mkdir()
        lab.folder.chmod(0o711)
        if user:
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self.as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        self._start(self.folder / "data")
        self._psql(TABLE)
        self._pgbench(1, lab.path("warm-up"))

    @staticmethod
    def version():
        """None: not installed."""
        programs = _postgres_programs()
        if not programs or not (programs / "pgbench").exists():
            return None
        text = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True).stdout
        return re.search(r"PostgreSQL\) (\S+)", text)[1]

    def _start(self, data):
        programs = self.programs
        subprocess.run([programs / "initdb", "-D", data, "-A", "trust", "-U", "bench", "--no-locale",
                        "-E", "UTF8"], check=True, capture_output=True, cwd="/", **self.as_user)
        server = self.lab.keep(Process(
            [programs / "postgres", "-D", data, "-c", "listen_addresses=", "-c",
             f"unix_socket_directories={self.folder}", "-c", "fsync=on", "-c",
             "synchronous_commit=on", "-c", "max_connections=200", "-c", "shared_buffers=256MB"],
            f"{self.folder}.log", cwd="/", as_user=self.as_user))
        server.await_log("database system is ready to accept connections")

    def _psql(self, sql):
        subprocess.run([self.programs / "psql", "-h", self.folder, "-U", "bench", "-d", "postgres",
                        "-qAtX", "-c", sql], check=True, capture_output=True, text=True, cwd="/")

    def _pgbench(self, seconds, log_prefix):
        done = subprocess.run(
            [self.programs / "pgbench", "-h", self.folder, "-U", "bench", "-n", "-M", "prepared", "-c",
             str(CONNECTIONS), "-j", "1", "-T", str(seconds), "-f", HERE / "upsert.sql", "-l",
             "--log-prefix", log_prefix, "--sampling-rate", "0.2", "postgres"],
            check=True, capture_output=True, text=True, cwd="/")
        return float(re.search(r"tps = ([\d.]+)", done.stdout)[1])

    def measure_upsert(self, seconds):
        prefix = self.lab.path("pgbench")
        rate = self._pgbench(seconds, prefix)
        times = sorted(int(line.split()[2]) for path in glob.glob(f"{prefix}*")
                       for line in pathlib.Path(path).read_text().splitlines())
        return Row(rate, times[len(times) // 2], times[len(times) * 99 // 100])


TABLE = """CREATE TABLE guarded (resource text PRIMARY KEY, token bigint NOT NULL, version bigint NOT NULL,
value text NOT NULL);
INSERT INTO guarded SELECT 'bench:' || lpad(n::text, 6, '0'), 1, 1, '' FROM generate_series(0, 999) n"""


def start_peers(lab):
    etcd = Etcd(lab) if Etcd.version() else None
    postgres = Postgres(lab) if Postgres.version() else None
    return [Peer("etcd guarded txn", "write", Etcd.version(), etcd and etcd.measure_txn),
            Peer("etcd lock", "grant", Etcd.version(), etcd and etcd.measure_lock),
            Peer("PostgreSQL upsert", "write", Postgres.version(),
                 postgres and postgres.measure_upsert)]
