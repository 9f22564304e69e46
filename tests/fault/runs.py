"""runs.py - `fence run`, its job, and every process that comes of it.

    run = Run(scene, gate, "r", "sh", "-c", "exit 3", options=("-t", "2s"))
    assert run.wait() == 3 and run.err() == ""

    family = Family(scene, gate, "r", "deaf", "daemon")     # the job is family.py
    family.await_started()
    assert family.wait() == 79 and not family.living()
    assert family.last_stamp() < granted_s                  # both of CLOCK_BOOTTIME

All processes that a run has started, however far they went, are found by a variable in their
environment. A run is a session of its own, and dies with the test.
"""
import collections
import os
import pathlib
import signal
import subprocess
import threading
import time
import uuid

import harness
from harness import eventually

FENCE = os.environ.get("FENCE_BIN", str(harness.ROOT / "build" / "fence"))
FAMILY = str(harness.ROOT / "tests" / "fault" / "family.py")
PATIENCE_S = 60  # a bound against hangs, never a measurement
SLOWER = float(os.environ.get("FENCEGATE_SLOWER", "1"))
LOST, NOT_OBTAINED, UNREACHABLE, USAGE = 79, 75, 69, 64
GUARDIAN = "lease-guardian"


def boot_s():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def ttl(seconds):
    """A TTL option, longer where everything is slower."""
    return ("-t", f"{int(seconds * 1000 * SLOWER)}ms")


def clean_environment(to, **more):
    """Ours without FENCE_*; `to`: a gateway, a URL."""
    url = to if isinstance(to, str) else f"http://127.0.0.1:{to.port}"
    kept = {name: text for name, text in os.environ.items() if not name.startswith("FENCE_")}
    return {**kept, "FENCE_URL": url, **more}


def command_name(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def children_of(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


class Run:
    """A `fence run`. `to`: a gateway or a URL; `before`: is called in it before exec()."""

    def __init__(self, scene, to, resource, *command, options=(), env=None, before=None,
                 wrapper=(), **arguments):
        def prepare():
            harness._die_with_parent()
            if before:
                before()

        scene.count += 1
        self.mark = f"RUN_MARK={uuid.uuid4()}"
        self.out_path = pathlib.Path(scene.folder / f"run{scene.count}.out")
        self.err_path = pathlib.Path(scene.folder / f"run{scene.count}.err")
        name, _, text = self.mark.partition("=")
        argv = [*wrapper, FENCE, "run", *options, resource, "--", *command]
        with open(self.out_path, "ab") as out, open(self.err_path, "ab") as err:
            self.process = subprocess.Popen(
                argv, env=clean_environment(to, **{name: text}, **(env or {})),
                preexec_fn=prepare, start_new_session=True,
                **{"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, **arguments})
        scene.keep(self)

    @property
    def pid(self):
        return self.process.pid

    def out(self):
        return self.out_path.read_text(errors="replace")

    def err(self):
        return self.err_path.read_text(errors="replace")

    def running(self):
        return self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        """The exit status."""
        return self.process.wait(PATIENCE_S)

    def guardian(self):
        """Its pid; 0: there is none."""
        return next((pid for pid in children_of(self.pid) if command_name(pid) == GUARDIAN), 0)

    def living(self):
        """All that came of the job and has not ended. Not children of ours that are about to become
        the guardian or the job."""
        name = command_name(self.pid)
        unborn = {pid for pid in children_of(self.pid) if command_name(pid) == name}
        return [pid for pid in self._marked()
                if pid not in unborn | {self.pid} and command_name(pid) != GUARDIAN]

    def await_nobody(self):
        eventually(lambda: not self.living(), what="the end of all processes of the job")

    def _marked(self):
        found = []
        for folder in pathlib.Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    if self.mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                        found.append(int(folder.name))
                except OSError:
                    pass  # it has just ended, or is not ours
        return found

    def close(self):
        if self.running():
            self.process.kill()
        self.process.wait(PATIENCE_S)
        for pid in self._marked():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass


class Family(Run):
    """One whose job is family.py with these shapes, run by the command `within`."""

    def __init__(self, scene, to, resource, *shapes, within=(), **arguments):
        self.stamps = pathlib.Path(scene.folder / f"family{scene.count}")
        self.shapes = shapes
        super().__init__(scene, to, resource, *within, FAMILY, str(self.stamps), *shapes,
                         **arguments)

    def lines(self):
        text = self.stamps.read_text() if self.stamps.exists() else ""
        return [line.split() for line in text.splitlines(True) if line.endswith("\n")]

    def await_started(self):
        """All are there, to the end of every chain."""
        wanted = collections.Counter("chain1" if shape == "chain" else shape
                                     for shape in self.shapes)
        eventually(lambda: wanted <= collections.Counter(shape for shape, _ in self.members())
                   or not self.running(), what="the family's start")
        assert self.running(), (self.wait(), self.err())

    def last_stamp(self):
        return max(float(line[2]) for line in self.lines())

    def members(self):
        """(shape, pid) of all who were there."""
        return {(line[0], int(line[1])) for line in self.lines()}


class Next(threading.Thread):
    """Somebody who waits for the resource from now on, by a connection of its own."""

    def __init__(self, gate, resource, wait_ms=60_000, **fields):
        super().__init__(daemon=True)
        self.client, self.resource = gate.client(timeout_s=PATIENCE_S + 60), resource
        self.fields = {"wait_ms": wait_ms, **fields}
        self.answer, self.answered_s = None, None
        self.start()

    def run(self):
        answer = self.client.try_acquire(self.resource, **self.fields)
        self.answered_s, self.answer = boot_s(), answer

    def granted_s(self):
        """When the answer had come."""
        self.join(PATIENCE_S + 60)
        assert self.answer is not None and self.answer.status == 201, self.answer
        return self.answered_s


def waiters_of(gate, resource):
    answer = gate.call("GET", f"/resources/{harness.segment(resource)}")
    return answer.json()["waiters"] if answer.status == 200 else 0


def holders_of(gate, resource):
    answer = gate.call("GET", f"/resources/{harness.segment(resource)}")
    return answer.json()["holders"] if answer.status == 200 else []


def kinds_of(gate, resource):
    return [row["kind"] for row in gate.history(resource)]
