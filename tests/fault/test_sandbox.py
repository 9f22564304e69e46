#!/usr/bin/python3
"""test_sandbox.py - the gateway and its private redis-server under the restrictions of the unit.

deploy/fencegate.service forbids system calls, address families and memory that is both written and
executed. A new version of a library may want what it did not want before: here it would show.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

import harness
import sandbox
from harness import case, eventually

UNIT = harness.ROOT / "deploy" / "fencegate.service"
# LeakSanitizer wants to trace us, which no service may.
ENVIRONMENT = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}

FORBIDDEN = """
import ctypes, errno, mmap, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def refused(name, call, *numbers):
    try:
        if call() != -1:
            return print(name, "is allowed")
        number = ctypes.get_errno()
    except OSError as error:
        number = error.errno
    print(name, "is refused" if number in numbers else f"fails with {errno.errorcode[number]}")
refused("chown", lambda: os.chown("/tmp", 1, 1), errno.EPERM)
refused("setuid", lambda: os.setuid(1), errno.EPERM)
refused("mount", lambda: libc.mount(b"none", b"/mnt", b"tmpfs", 0, None), errno.EPERM)
refused("ptrace", lambda: libc.ptrace(0, 0, None, None), errno.EPERM)
refused("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW), errno.EAFNOSUPPORT)
refused("vsock", lambda: socket.socket(socket.AF_VSOCK), errno.EAFNOSUPPORT)
refused("written code", lambda: mmap.mmap(-1, 4096, prot=7), errno.EPERM)
refused("low port", lambda: socket.socket().bind(("127.0.0.1", 1)), errno.EACCES)
"""


def restricted(scene, **arguments):
    return scene.gateway(preexec=sandbox.Sandbox(UNIT).enter, env=ENVIRONMENT, **arguments)


def redis_pid(gate):
    return int(re.findall(r"redis-server started.* pid=(\d+)", gate.log())[-1])


def status_of(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def use(gate, resource):
    """Each kind of request once."""
    lease = gate.acquire(resource, ttl_ms=20_000)
    assert gate.put(resource, "k", lease.token, b"1").status == 201
    assert gate.renew(lease).status == 200
    waiting = []
    other = gate.client()
    thread = threading.Thread(target=lambda: waiting.append(
        other.acquire(resource, wait_ms=20_000, ttl_ms=20_000)))
    thread.start()
    eventually(lambda: gate.call("GET", f"/resources/{resource}").json()["waiters"],
               what="a waiter")
    assert gate.release(lease).status == 200
    thread.join()
    assert gate.put(resource, "k", lease.token, b"2").code == "stale_fencing_token"
    assert gate.put(resource, "k", waiting[0].token, b"2").status == 200
    answer = gate.call("POST", f"/resources/{resource}/revoke", {"reason": "a test"})
    assert answer.json()["revoked"] == [waiting[0].token]
    assert gate.get(resource, "k").body == b"2"
    assert len(gate.history(resource)) >= 6
    assert gate.call("GET", "/resources").status == 200


@case
def the_restrictions_are_there():
    python = ["/usr/bin/python3", "-I", "-c", FORBIDDEN]
    done = subprocess.run(python, preexec_fn=sandbox.Sandbox(UNIT).enter, capture_output=True,
                          text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 8 and all(line.endswith("is refused") for line in lines), done.stdout


@case
def with_a_private_redis_it_does_all_its_work():
    with harness.Scene() as scene:
        gate = restricted(scene)
        for pid in (gate.pid, redis_pid(gate)):
            status = status_of(pid)
            assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1", status
            assert int(status["CapEff"], 16) == 0, status
            if os.geteuid() == 0:  # nobody else can empty it
                assert int(status["CapBnd"], 16) == 0, status
        use(gate, "r")
        assert gate.call("GET", "/readyz").json()["status"] == "ok"
        assert gate.stop() == 0


@case
def its_redis_rewrites_its_file_and_is_restarted_when_it_dies():
    with harness.Scene() as scene:
        gate = restricted(scene)
        socket_path = str(gate.data_dir / "redis.sock")
        gate.acquire("r")
        harness.redis_command(socket_path, "BGREWRITEAOF")  # forks
        eventually(lambda: "aof_rewrite_in_progress:0" in
                   harness.redis_command(socket_path, "INFO", "persistence"), what="the rewriting")
        assert "aof_last_bgrewrite_status:ok" in harness.redis_command(
            socket_path, "INFO", "persistence")
        os.kill(redis_pid(gate), signal.SIGKILL)
        eventually(lambda: gate.log().count("redis ready") == 2, what="the restart")
        use(gate, "again")
        gate.kill()
        gate = restricted(scene)  # on what that one left
        use(gate, "after")
        assert gate.stop() == 0


@case
def names_of_hosts_are_found_without_netlink():
    with harness.Scene() as scene:
        redis = scene.redis()
        proxy = scene.proxy(redis, tcp=True)
        gate = restricted(scene, redis=f"redis://localhost:{proxy.port}")
        use(gate, "r")
        assert json.loads(gate.call("GET", "/readyz").body)["redis"] == "ok"
        assert gate.stop() == 0


if __name__ == "__main__":
    if sandbox.missing():
        print(f"skipped: no {sandbox.missing()}")
        sys.exit(0)
    harness.run_cases()
