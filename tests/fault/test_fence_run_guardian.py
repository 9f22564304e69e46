#!/usr/bin/python3
"""test_fence_run_guardian.py - `fence run` that is stopped, or whose guardian is gone; and the signals that
others take for accidents.

`fence` alone is stopped (a debugger, kill -STOP), its job is not: then only the guardian knows that the
lease is about to end.
"""
import os
import pathlib
import signal
import sys
import time

from harness import Scene, case, eventually, run_cases
from runs import LOST, SLOWER, Family, Next, Run, ttl

# Says each signal that it gets; SIGTERM ends it.
LISTENER = """
import os, signal
def say(number, _):
    os.write(1, b"%d\\n" % number)
    if number == signal.SIGTERM:
        os._exit(0)
for number in map(int, os.environ["LISTEN"].split()):
    signal.signal(number, say)
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""


@case
def stopped_alone_its_job_is_dead_before_the_next_one_begins():
    with Scene() as scene:
        gate = scene.gateway()
        family = Family(scene, gate, "r", "deaf", "plain", "stopped", options=ttl(2))
        family.await_started()
        following = Next(gate, "r")
        family.signal(signal.SIGSTOP)
        granted_s = following.granted_s()
        assert family.last_stamp() < granted_s
        family.signal(signal.SIGCONT)
        assert family.wait() == LOST, family.err()
        family.await_nobody()


@case
def stopped_after_many_renewals_it_is_the_same():
    with Scene() as scene:
        gate = scene.gateway()
        family = Family(scene, gate, "r", "deaf", options=ttl(2))
        family.await_started()
        time.sleep(4.3 * SLOWER)
        following = Next(gate, "r")
        family.signal(signal.SIGSTOP)
        granted_s = following.granted_s()
        assert family.last_stamp() < granted_s
        family.signal(signal.SIGCONT)
        assert family.wait() == LOST, family.err()


@case
def stopped_for_a_moment_it_keeps_the_lease():
    with Scene() as scene:
        gate = scene.gateway()
        family = Family(scene, gate, "r", "plain", options=ttl(4))
        family.await_started()
        token = gate.call("GET", "/resources/r").json()["holders"][0]["fencing_token"]
        for _ in range(3):
            family.signal(signal.SIGSTOP)
            time.sleep(0.7 * SLOWER)
            family.signal(signal.SIGCONT)
            time.sleep(1.5 * SLOWER)
        before = family.last_stamp()
        eventually(lambda: family.last_stamp() > before, what="another stamp")
        holders = gate.call("GET", "/resources/r").json()["holders"]
        assert [holder["fencing_token"] for holder in holders] == [token]
        family.signal(signal.SIGTERM)
        assert family.wait() == 128 + signal.SIGTERM


@case
def a_guardian_that_is_killed_is_replaced():
    with Scene() as scene:
        gate = scene.gateway()
        family = Family(scene, gate, "r", "deaf", "plain", options=ttl(30))
        family.await_started()
        for _ in range(3):
            guardian = family.guardian()
            os.kill(guardian, signal.SIGKILL)
            eventually(lambda old=guardian: family.guardian() not in (0, old), what="another guardian")
        family.process.kill()
        family.wait()
        family.await_nobody()


@case
def whoever_looks_for_the_command_line_does_not_find_the_guardian():
    with Scene() as scene:
        run = Run(scene, scene.gateway(), "invoice:1", "sh", "-c", "echo; sleep 30", options=ttl(30))
        eventually(run.out, what="the job")
        guardian = eventually(run.guardian, what="the guardian")
        command = pathlib.Path(f"/proc/{guardian}/cmdline").read_bytes()
        assert command.rstrip(b"\0") == b"lease-guardian", command
        run.signal(signal.SIGTERM)
        assert run.wait() == 128 + signal.SIGTERM


@case
def the_signals_of_accidents_are_forwarded_as_well():
    numbers = (signal.SIGABRT, signal.SIGPIPE, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE,
               signal.SIGILL, signal.SIGTRAP, signal.SIGSYS)
    with Scene() as scene:
        told = " ".join(str(int(number)) for number in (*numbers, signal.SIGTERM))
        run = Run(scene, scene.gateway(), "r", sys.executable, "-c", LISTENER, env={"LISTEN": told})
        eventually(lambda: "ready" in run.out(), what="the listener")
        for number in numbers:
            run.signal(number)
            eventually(lambda n=number: str(int(n)) in run.out().split(), what=f"signal {number}")
        run.signal(signal.SIGTERM)
        assert run.wait() == 0, run.err()


if __name__ == "__main__":
    run_cases()
