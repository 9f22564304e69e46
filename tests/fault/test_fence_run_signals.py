#!/usr/bin/python3
"""test_fence_run_signals.py - `fence run` and signals: to us, at any moment, and SIGKILL of us.

The moments are random (SEED repeats them, SOAK=1 takes many more).
"""
import os
import signal
import sys
import time

from harness import Scene, case, eventually, run_cases
from middleman import HANG, Middleman
from runs import (FENCE, SLOWER, Family, Next, Run, children_of, command_name, holders_of, kinds_of,
                  ttl, waiters_of)
from wire import SEED, SOAK, dice

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP,
          signal.SIGSYS, signal.SIGABRT}
OTHERS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGCHLD, 32, 33}
FORWARDED = sorted(set(range(1, 65)) - FAULTS - OTHERS)
MOMENTS = 400 if SOAK else 40

LISTENER = """
import os, signal, sys, time
def tell(number, frame):
    os.write(1, b"%d\\n" % number)
for number in map(int, sys.argv[1:]):
    signal.signal(number, tell)
os.write(1, b"ready\\n")
while True:
    time.sleep(1)
"""


def listener(scene, gate, *numbers, **arguments):
    """A job that writes down each of these signals that it gets."""
    run = Run(scene, gate, "r", sys.executable, "-c", LISTENER,
              *(str(int(number)) for number in numbers), **arguments)
    eventually(lambda: "ready" in run.out() or not run.running(), what="the job")
    return run


def heard(run):
    return [int(word) for word in run.out().split()[1:]]


# ---- While the job runs -------------------------------------------------------------------------


@case
def every_signal_that_can_be_forwarded_is():
    with Scene() as scene:
        run = listener(scene, scene.gateway(), *FORWARDED)
        for number in FORWARDED:
            if number == signal.SIGINT:
                continue  # after SIGTERM it would kill
            run.signal(number)
            eventually(lambda: number in heard(run) or not run.running(), what=f"signal {number}")
        assert heard(run) == [number for number in FORWARDED if number != signal.SIGINT]


@case
def a_signal_reaches_the_whole_group():
    with Scene() as scene:
        gate = scene.gateway()
        child = "sh -c 'echo; exec sleep 1000' &"
        run = Run(scene, gate, "r", "sh", "-c", f"trap : TERM; {child} {child} wait; wait; exit 9")
        eventually(lambda: run.out().count("\n") == 2, what="the children")
        run.signal(signal.SIGTERM)
        assert run.wait() == 9, run.err()
        assert not run.living() and run.err() == ""


@case
def a_job_that_ends_at_the_signal_is_told_by_128_and_its_number():
    with Scene() as scene:
        gate = scene.gateway()
        for number in (*ENDS, signal.SIGUSR1, signal.SIGALRM):
            run = Run(scene, gate, "r", "sh", "-c", "echo; exec sleep 1000")
            eventually(run.out, what="the job")
            run.signal(number)
            assert run.wait() == 128 + number, (number, run.err())
            assert run.err() == "" and not holders_of(gate, "r")


@case
def term_or_int_twice_kills_the_whole_group():
    with Scene() as scene:
        gate = scene.gateway()
        for first in (signal.SIGTERM, signal.SIGINT):
            for second in (signal.SIGTERM, signal.SIGINT):
                run = Family(scene, gate, "r", "deaf", "deaf", "stopped")
                run.await_started()
                run.signal(first)
                time.sleep(0.02)
                assert run.running()
                run.signal(second)
                assert run.wait() == 128 + signal.SIGKILL, run.err()
                assert not run.living() and not holders_of(gate, "r")


@case
def what_nohup_ignores_is_ignored_by_us_and_the_job():
    with Scene() as scene:
        run = Run(scene, scene.gateway(), "r", "grep", "SigIgn", "/proc/self/status",
                  wrapper=("nohup",))
        assert run.wait() == 0 and int(run.out().split()[-1], 16) & 1, run.out()
        run = listener(scene, scene.gateway(data="second"), signal.SIGUSR1, wrapper=("nohup",))
        run.signal(signal.SIGHUP)
        run.signal(signal.SIGUSR1)
        eventually(lambda: heard(run), what="the signal after it")
        assert heard(run) == [signal.SIGUSR1] and run.running()


@case
def a_stopped_job_stays_stopped_until_it_is_continued():
    with Scene() as scene:
        run = listener(scene, scene.gateway(), signal.SIGUSR1)
        job = run.living()[0]
        os.kill(job, signal.SIGSTOP)
        run.signal(signal.SIGUSR1)
        time.sleep(0.2)
        assert heard(run) == [] and run.err() == ""
        run.signal(signal.SIGCONT)
        eventually(lambda: heard(run) == [signal.SIGUSR1], what="the signal")


# ---- Before the job -----------------------------------------------------------------------------


def waiting(scene, gate, *command):
    """One whose turn it is not yet."""
    run = Run(scene, gate, "r", *(command or ("echo", "started")), options=("-t", "120s"))
    eventually(lambda: waiters_of(gate, "r") == 1 or not run.running(), what="the wait")
    return run


@case
def while_it_waits_a_signal_makes_it_leave_the_queue_and_no_job_starts():
    with Scene() as scene:
        gate = scene.gateway()
        holder = gate.acquire("r", ttl_ms=120_000)
        for number in ENDS:
            run = waiting(scene, gate)
            run.signal(number)
            assert run.wait() == 128 + number, (number, run.err())
            assert run.out() == "" and run.err() == ""
            eventually(lambda: waiters_of(gate, "r") == 0, what="an empty queue")
        assert kinds_of(gate, "r") == ["grant"]


@case
def while_it_waits_other_signals_change_nothing_and_do_not_reach_the_job_later():
    with Scene() as scene:
        gate = scene.gateway()
        holder = gate.acquire("r", ttl_ms=120_000)
        run = waiting(scene, gate)
        for number in set(FORWARDED) - set(ENDS):
            run.signal(number)
        time.sleep(0.2)
        assert run.running() and waiters_of(gate, "r") == 1
        gate.release(holder)
        assert run.wait() == 0 and run.out() == "started\n", run.err()


@case
def a_signal_together_with_the_grant_starts_no_job_that_is_not_told():
    """It is sent with the release that is waited for. Whichever is seen first, nothing is left."""
    random = dice()
    with Scene() as scene:
        gate = scene.gateway()
        started = 0
        for _ in range(MOMENTS):
            holder = gate.acquire("r", ttl_ms=120_000, wait_ms=60_000)
            run = waiting(scene, gate, "sh", "-c", "echo started; exec sleep 1000")
            gate.release(holder)
            time.sleep(random.random() * 0.003)
            run.signal(signal.SIGTERM)
            assert run.wait() == 128 + signal.SIGTERM, run.err()
            started += run.out() != ""
            assert not run.living() and run.err() == ""
        gate.acquire("r", wait_ms=10_000)
        print(f"      {started} of {MOMENTS} jobs were started (SEED={SEED})")


@case
def a_second_signal_is_not_to_wait_for_anything():
    with Scene() as scene:
        gate = scene.gateway()
        man = scene.keep(Middleman(gate.port))
        man.rule = lambda request: HANG
        run = Run(scene, man.url, "r", "true", options=("-t", "1h"))
        eventually(lambda: man.requests, what="the request")
        run.signal(signal.SIGTERM)
        run.signal(signal.SIGTERM)
        begun = time.monotonic()
        assert run.wait() == 128 + signal.SIGTERM
        assert time.monotonic() - begun < 1.5 * SLOWER

        man.rule = lambda request: HANG if request.method == "DELETE" else None
        run = Run(scene, man.url, "s", "sh", "-c", "exit 7", options=("-t", "1h"))
        eventually(lambda: man.requests[-1].method == "DELETE", what="the release")
        begun = time.monotonic()
        run.signal(signal.SIGTERM)
        time.sleep(0.1)
        assert run.running(), "the first one lets it be released"
        run.signal(signal.SIGINT)
        assert run.wait() == 7 and time.monotonic() - begun < 3 * SLOWER
        assert "not released" in run.err()


@case
def a_signal_at_any_moment_leaves_no_process_and_no_lease():
    random = dice()
    with Scene() as scene:
        gate = scene.gateway()
        at_work = 0
        for number in range(MOMENTS):
            run = Run(scene, gate, f"r{number % 4}", "sh", "-c",
                      "echo; sleep 1000 & exec sleep 1000", options=("-t", "120s"))
            time.sleep(random.random() * 0.06)
            end = random.choice(ENDS)
            run.signal(end)
            status = run.wait()
            # Before it could block signals it ends as any program does.
            assert status in (128 + end, -end), (status, run.err())
            assert not run.living(), "an orphan"
            at_work += run.out() != ""
        for number in range(4):
            gate.acquire(f"r{number}", wait_ms=10_000)
        print(f"      {at_work} of {MOMENTS} jobs were at work (SEED={SEED})")


@case
def the_end_of_a_job_at_the_signal_is_not_missed():
    """A group of many is slow to signal: the job may end before we have read the next signal. With
    a TTL of a day nothing else would wake us."""
    with Scene() as scene:
        gate = scene.gateway()
        many = "for i in 1 2 3 4 5 6; do sleep 1000 & done; echo; exec sleep 1000"
        for _ in range(MOMENTS):
            run = Run(scene, gate, "r", "sh", "-c", many, options=("-t", "24h"))
            eventually(run.out, what="the job")
            run.signal(signal.SIGTERM)
            assert run.wait() == 128 + signal.SIGTERM, run.err()


# ---- SIGKILL ------------------------------------------------------------------------------------


@case
def killed_at_any_moment_no_process_is_left_and_the_lease_ends_with_its_ttl():
    random = dice()
    with Scene() as scene:
        gate = scene.gateway()
        at_work = 0
        for number in range(MOMENTS):
            run = Family(scene, gate, f"r{number}", "deaf", "plain", "stopped", options=ttl(1))
            time.sleep(random.random() * 0.08)
            run.process.kill()
            run.wait()
            run.await_nobody()
            at_work += run.stamps.exists()
        for number in range(MOMENTS):
            gate.acquire(f"r{number}", wait_ms=30_000)
        print(f"      {at_work} of {MOMENTS} jobs were at work (SEED={SEED})")


@case
def killed_its_whole_family_is_dead_before_the_next_one_begins():
    with Scene() as scene:
        gate = scene.gateway()
        family = Family(scene, gate, "r", "deaf", "plain", "stopped", options=ttl(2))
        family.await_started()
        following = Next(gate, "r")
        family.process.kill()
        granted_s = following.granted_s()
        assert family.last_stamp() < granted_s and not family.living()


@case
def killed_while_it_waits_it_leaves_the_queue():
    with Scene() as scene:
        gate = scene.gateway()
        holder = gate.acquire("r", ttl_ms=120_000)
        run = waiting(scene, gate)
        guardian = eventually(run.guardian, what="the guardian")
        run.process.kill()
        eventually(lambda: waiters_of(gate, "r") == 0, what="an empty queue")
        eventually(lambda: not os.path.exists(f"/proc/{guardian}"), what="the guardian's end")


@case
def killed_by_name_the_guardian_is_spared():
    """As `killall -9 fence` does, for the one and its children."""
    with Scene() as scene:
        gate = scene.gateway()
        family = Family(scene, gate, "r", "deaf", "plain", options=ttl(30))
        family.await_started()
        name = os.path.basename(FENCE)
        for pid in (*children_of(family.pid), family.pid):
            if command_name(pid) == name:
                os.kill(pid, signal.SIGKILL)
        family.wait()
        family.await_nobody()


@case
def killed_together_with_its_guardian_the_job_itself_dies():
    with Scene() as scene:
        gate = scene.gateway()
        family = Family(scene, gate, "r", "deaf", options=ttl(30))
        family.await_started()
        guardian = family.guardian()
        os.kill(guardian, signal.SIGKILL)
        os.kill(family.pid, signal.SIGKILL)
        family.wait()
        family.await_nobody()


@case
def the_guardian_is_out_of_the_way():
    """Our group and our session are signalled, the terminal is gone, our output is waited for."""
    with Scene() as scene:
        gate = scene.gateway()
        run = Run(scene, gate, "r", "sh", "-c", "trap : TERM HUP USR1; echo; sleep 1; exit 3")
        eventually(run.out, what="the job")
        guardian = eventually(run.guardian, what="the guardian")
        assert os.getsid(guardian) == guardian != os.getsid(run.pid)
        kept = sorted(os.readlink(f"/proc/{guardian}/fd/{fd}").partition(":")[0]
                      for fd in os.listdir(f"/proc/{guardian}/fd"))
        assert kept in (["pipe"], ["anon_inode", "pipe"]), f"it keeps {kept}: not all its own"
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGTSTP):
            os.kill(guardian, number)
        os.killpg(run.pid, signal.SIGHUP)
        assert run.wait() == 3
        assert not os.path.exists(f"/proc/{guardian}")


if __name__ == "__main__":
    run_cases()
