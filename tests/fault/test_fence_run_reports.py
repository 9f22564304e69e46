#!/usr/bin/python3
"""test_fence_run_reports.py - eight reports against `consul lock`, each as a case of `fence run`.

The number is that of the issue at hashicorp/consul. Each is about a job that was left to itself, or
a wait that was not what it was asked to be.
"""
import signal
import time

from harness import Scene, case, eventually, run_cases
from middleman import HANG, Middleman
from runs import LOST, Family, Next, Run, holders_of, kinds_of, ttl, waiters_of
from wire import dice


def is_ended_by(number):
    """A job of several processes is gone when we have ended, and so is the lease."""
    with Scene() as scene:
        gate = scene.gateway()
        family = Family(scene, gate, "r", "plain", "plain", "plain")
        family.await_started()
        family.signal(number)
        assert family.wait() == 128 + number, family.err()
        assert not family.living() and not holders_of(gate, "r")


@case
def report_797_a_job_goes_on_after_term():
    is_ended_by(signal.SIGTERM)


@case
def report_1210_a_job_goes_on_after_quit():
    is_ended_by(signal.SIGQUIT)


@case
def report_2489_a_job_goes_on_after_hup():
    is_ended_by(signal.SIGHUP)


@case
def report_2022_the_shell_is_killed_and_what_it_started_goes_on():
    for number in (signal.SIGTERM, signal.SIGKILL):
        with Scene() as scene:
            gate = scene.gateway()
            run = Run(scene, gate, "r", "sh", "-c", "sh -c 'sleep 1000; true'; true",
                      options=ttl(2))
            eventually(lambda: len(run.living()) == 3, what="all three")
            run.signal(number)
            run.wait()
            run.await_nobody()


@case
def report_1155_a_job_is_started_during_the_shutdown():
    """Signals that come while the lease is being granted: either no job, or one that gets it."""
    random = dice()
    with Scene() as scene:
        gate = scene.gateway()
        man = scene.keep(Middleman(gate.port))
        man.rule = lambda request: 0.02 if request.target == "/leases" else None
        for _ in range(20):
            run = Run(scene, man.url, "r", "sh", "-c", "trap 'exit 9' TERM; sleep 1000 & wait",
                      options=ttl(2))
            asked = len(man.requests)
            eventually(lambda: len(man.requests) > asked or not run.running(), what="the request")
            time.sleep(random.random() * 0.04)
            run.signal(signal.SIGTERM)
            assert run.wait() in (9, 128 + signal.SIGTERM), run.err()
            assert not run.living()
            # A grant that is lost on its way to one that leaves ends by its TTL.
            gate.release(gate.acquire("r", wait_ms=30_000))


@case
def report_4439_signals_are_ignored_during_the_wait():
    with Scene() as scene:
        gate = scene.gateway()
        gate.acquire("r", ttl_ms=120_000)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            run = Run(scene, gate, "r", "true")
            eventually(lambda: waiters_of(gate, "r") == 1, what="the wait")
            run.signal(number)
            assert run.wait() == 128 + number, run.err()
            eventually(lambda: waiters_of(gate, "r") == 0, what="an empty queue")


@case
def report_2399_a_long_wait_is_given_up_early():
    """After the longest that one request may wait; here that is a fifth of a second."""
    with Scene() as scene:
        gate = scene.gateway()
        holder = gate.acquire("r", ttl_ms=120_000)
        short = {"FENCE_WAIT_STEP": "200ms"}
        run = Run(scene, gate, "r", "true", options=("-w", "2h"), env=short)
        end = time.monotonic() + 2
        eventually(lambda: waiters_of(gate, "r") > 0, what="the wait")
        while time.monotonic() < end:
            assert run.running() and waiters_of(gate, "r") > 0
            time.sleep(0.02)
        gate.release(holder)
        assert run.wait() == 0, run.err()


@case
def report_9788_the_job_is_ended_long_after_the_loss():
    with Scene() as scene:
        gate = scene.gateway()
        man = scene.keep(Middleman(gate.port))
        family = Family(scene, man.url, "r", "plain", "deaf", options=ttl(2.4))
        family.await_started()
        following = Next(gate, "r")
        eventually(lambda: waiters_of(gate, "r") == 1, what="the next one's wait")
        man.rule = lambda request: HANG
        granted_s = following.granted_s()
        assert family.last_stamp() < granted_s and not family.living()
        assert family.wait() == LOST, family.err()
        assert kinds_of(gate, "r") == ["grant", "expire", "grant"]


if __name__ == "__main__":
    run_cases()
