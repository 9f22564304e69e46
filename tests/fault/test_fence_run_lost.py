#!/usr/bin/python3
"""test_fence_run_lost.py - `fence run` whose lease is lost while the job lives.

Somebody else waits for the resource, by another way to the gateway. What is shown is that the last
line any process of the job wrote is older than the moment at which that one had the lease, and that
by then none is left: not who ignores signals, not who is stopped, not who has left the group.

SOAK=1 repeats it.
"""
import os
import signal
import sys
import time

from harness import Gateway, Scene, add_case, case, eventually, run_cases
from middleman import HANG, RESET, Middleman
from runs import (FENCE, LOST, SLOWER, Family, Next, Run, boot_s, holders_of, kinds_of, ttl,
                  waiters_of)

ROUNDS = 10 if os.environ.get("SOAK") else 1
TTL_S = 2.4
EVERYBODY = ("deaf", "plain", "stopped", "session", "daemon", "chain")


def await_waiter(gate, resource="r"):
    eventually(lambda: waiters_of(gate, resource) == 1, what="the next one's wait")


def is_gone_in_time(family, following):
    """The next one is granted the lease, and whatever there was of the job had ended by then."""
    granted_s = following.granted_s()
    left = family.living()
    assert family.last_stamp() < granted_s, "a process worked while another had the lease"
    assert not left, f"{left} are left"
    count = len(family.lines())
    assert family.wait() == LOST, (family.wait(), family.err())
    assert len(family.lines()) == count


# ---- The gateway or the way to it is gone -------------------------------------------------------


def the_way_is_cut(man):
    man.rule = lambda request: RESET


def the_way_is_silent(man):
    man.rule = lambda request: HANG


def lost_by(fault, *shapes, options=()):
    """Only the run's way to the gateway is affected: the next one has it the moment it is free."""
    for _ in range(ROUNDS):
        with Scene() as scene:
            gate = scene.gateway()
            man = scene.keep(Middleman(gate.port))
            family = Family(scene, man.url, "r", *shapes, options=(*ttl(TTL_S), *options))
            family.await_started()
            following = Next(gate, "r")
            await_waiter(gate)
            fault(man)
            is_gone_in_time(family, following)
            assert "killed" in family.err(), family.err()
            assert kinds_of(gate, "r") == ["grant", "expire", "grant"], kinds_of(gate, "r")


for way in (the_way_is_cut, the_way_is_silent):
    add_case(f"{way.__name__}_nobody_of_the_job_outlives_the_lease",
             lambda way=way: lost_by(way, *EVERYBODY))


@case
def without_a_grace_between_term_and_kill_neither():
    lost_by(the_way_is_silent, *EVERYBODY, options=("--kill-after", "0s"))


@case
def the_gateway_is_frozen_and_the_job_is_dead_before_it_goes_on():
    with Scene() as scene:
        gate = scene.gateway()
        family = Family(scene, gate, "r", *EVERYBODY, options=ttl(TTL_S))
        family.await_started()
        following = Next(gate, "r")
        await_waiter(gate)
        gate.signal(signal.SIGSTOP)
        over_s = boot_s() + TTL_S * SLOWER  # what was renewed before ends by then
        assert family.wait() == LOST
        assert family.last_stamp() < over_s and not family.living()
        gate.signal(signal.SIGCONT)
        is_gone_in_time(family, following)


@case
def the_gateway_is_killed():
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        family = Family(scene, gate, "r", *EVERYBODY, options=ttl(TTL_S))
        family.await_started()
        gate.kill()
        gate = scene.keep(Gateway(gate.data_dir, redis))
        following = Next(gate, "r")
        is_gone_in_time(family, following)


@case
def a_run_within_a_run_goes_with_it():
    """The inner one has a group, a guardian and a lease of its own, by a way that is not cut."""
    with Scene() as scene:
        gate = scene.gateway()
        man = scene.keep(Middleman(gate.port))
        family = Family(scene, man.url, "r", *EVERYBODY, options=ttl(TTL_S), within=(
            "env", f"FENCE_URL=http://127.0.0.1:{gate.port}", FENCE, "run", "-t", "1h", "inner"))
        family.await_started()
        following = Next(gate, "r")
        await_waiter(gate)
        the_way_is_cut(man)
        is_gone_in_time(family, following)


# ---- The gateway says that it is over -----------------------------------------------------------


@case
def revoked_it_kills_at_once_whoever_it_is():
    with Scene() as scene:
        gate = scene.gateway()
        family = Family(scene, gate, "r", *EVERYBODY, options=(*ttl(3), "--kill-after", "1s"))
        family.await_started()
        assert gate.call("POST", "/resources/r/revoke", {"reason": "enough"}).status == 200
        assert family.wait() == LOST and not family.living()
        assert "revoked" in family.err() and "TERM" not in family.err(), family.err()
        assert family.err().count("\n") == 1


@case
def superseded_it_kills_at_once_whoever_it_is():
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        family = Family(scene, gate, "r", *EVERYBODY, options=(*ttl(3), "--kill-after", "1s"))
        family.await_started()
        eventually(lambda: redis.command("FLUSHALL") and gate.try_acquire("r").status == 201,
                   what="another lease")
        assert family.wait() == LOST and not family.living()
        assert "replaced" in family.err() and "TERM" not in family.err(), family.err()


@case
def superseded_while_it_is_released_is_79_also_after_a_job_that_went_well():
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        run = Run(scene, gate, "r", "sleep", "1", options=("-t", "1h"))
        eventually(lambda: holders_of(gate, "r"), what="the lease")
        redis.command("FLUSHALL")
        gate.acquire("r")
        assert run.wait() == LOST and run.err().count("\n") == 1, run.err()
        assert "replaced" in run.err(), run.err()


# ---- TERM, and then -----------------------------------------------------------------------------


@case
def a_job_that_ends_at_term_has_lost_its_lease_all_the_same():
    with Scene() as scene:
        gate = scene.gateway()
        man = scene.keep(Middleman(gate.port))
        script = "trap 'echo asked; exit 0' TERM; sleep 1000 & wait"
        run = Run(scene, man.url, "r", "sh", "-c", script,
                  options=(*ttl(2), "--kill-after", "500ms"))
        eventually(lambda: holders_of(gate, "r"), what="the lease")
        the_way_is_cut(man)
        assert run.wait() == LOST and run.out() == "asked\n", (run.out(), run.err())
        assert "TERM" in run.err() and "killed" not in run.err(), run.err()


@case
def term_reaches_what_is_stopped():
    with Scene() as scene:
        gate = scene.gateway()
        man = scene.keep(Middleman(gate.port))
        script = "trap 'echo asked; exit 0' TERM; kill -STOP $$"
        run = Run(scene, man.url, "r", "bash", "-c", script,
                  options=(*ttl(2), "--kill-after", "600ms"))
        eventually(lambda: holders_of(gate, "r"), what="the lease")
        the_way_is_cut(man)
        assert run.wait() == LOST and run.out() == "asked\n", (run.out(), run.err())


@case
def a_renewal_after_term_does_not_save_the_job_but_frees_the_lease():
    with Scene() as scene:
        gate = scene.gateway()
        man = scene.keep(Middleman(gate.port))
        family = Family(scene, man.url, "r", "deaf", options=(*ttl(3), "--kill-after", "1s"))
        family.await_started()
        the_way_is_silent(man)
        eventually(lambda: "TERM" in family.err(), what="TERM")
        man.rule = lambda request: None
        assert family.wait() == LOST and not family.living()
        err = family.err()
        assert "did not end after TERM" in err or "at its end" in err, err
        gate.acquire("r", wait_ms=60_000)
        assert kinds_of(gate, "r")[-2] in ("release", "expire"), kinds_of(gate, "r")


# ---- We are late, or cannot speak ---------------------------------------------------------------


@case
def stopped_past_the_ttl_it_kills_as_soon_as_it_goes_on():
    for _ in range(3 * ROUNDS):
        with Scene() as scene:
            gate = scene.gateway()
            family = Family(scene, gate, "r", *EVERYBODY, options=ttl(1))
            family.await_started()
            family.signal(signal.SIGSTOP)
            Next(gate, "r").granted_s()
            assert family.living(), "nobody else can kill it: that is what tokens are for"
            family.signal(signal.SIGCONT)
            continued = time.monotonic()
            assert family.wait() == LOST, family.err()
            assert time.monotonic() - continued < 1 * SLOWER
            assert not family.living()


@case
def stopped_together_with_the_job_it_does_not_wake_it_to_kill_it():
    with Scene() as scene:
        gate = scene.gateway()
        family = Family(scene, gate, "r", "plain", "plain", options=ttl(1))
        family.await_started()
        family.signal(signal.SIGSTOP)
        group = os.getpgid(family.living()[0])
        os.killpg(group, signal.SIGSTOP)
        Next(gate, "r").granted_s()
        count = len(family.lines())
        family.signal(signal.SIGCONT)
        assert family.wait() == LOST and len(family.lines()) == count, family.err()


@case
def a_job_that_ends_by_itself_after_its_lease_has_lost_it():
    with Scene() as scene:
        gate = scene.gateway()
        run = Run(scene, gate, "r", "sleep", str(2 * SLOWER), options=ttl(1))
        eventually(run.living, what="the job")
        run.signal(signal.SIGSTOP)
        eventually(lambda: not run.living(), what="the job's end")
        run.signal(signal.SIGCONT)
        assert run.wait() == LOST, run.err()


@case
def a_reader_of_our_output_that_sleeps_does_not_stop_the_kill():
    """The job fills the pipe that we would speak into."""
    near, far = os.pipe()
    with Scene() as scene:
        gate = scene.gateway()
        man = scene.keep(Middleman(gate.port))
        run = Run(scene, man.url, "r", sys.executable, "-c",
                  "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                  "while True: os.write(2, b'x' * 512)", options=ttl(TTL_S), stderr=far)
        os.close(far)
        eventually(run.living, what="the job")
        following = Next(gate, "r")
        await_waiter(gate)
        the_way_is_cut(man)
        following.granted_s()
        assert not run.living(), "the job lives"
        assert run.wait() == LOST
    os.close(near)


@case
def the_release_is_not_waited_for_longer_than_the_lease_lasts():
    with Scene() as scene:
        gate = scene.gateway()
        man = scene.keep(Middleman(gate.port))
        run = Run(scene, man.url, "r", "sh", "-c", "sleep 0.3; exit 3", options=ttl(1.5))
        man.rule = lambda request: HANG if request.method == "DELETE" else None
        begun = time.monotonic()
        assert run.wait() == 3, run.err()
        assert time.monotonic() - begun < 6 * SLOWER, "it waited until the client gave up"
        assert "not released" in run.err() and run.err().count("\n") == 1, run.err()
        gate.acquire("r", wait_ms=60_000)


# ---- Whom it spares -----------------------------------------------------------------------------


@case
def children_of_before_are_no_part_of_the_job():
    """A shell started one and then became `fence run`: `exec fence run ... > >(tee log)`."""
    with Scene() as scene:
        gate = scene.gateway()
        run = Run(scene, gate, "r", "sleep", "1000", options=("--max-hold", "300ms"),
                  wrapper=("sh", "-c", 'sleep 1000 & exec "$@"', "sh"))
        assert run.wait() == LOST, run.err()
        assert len(run.living()) == 1, run.living()


if __name__ == "__main__":
    run_cases()
