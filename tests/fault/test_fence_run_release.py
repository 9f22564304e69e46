#!/usr/bin/python3
"""test_fence_run_release.py - after `fence run` nobody waits for a lease that nobody needs any more.

A lease that is forgotten blocks the others for its TTL, which is ten minutes here.
"""
import random
import signal
import time

from harness import Scene, case, eventually, run_cases
from middleman import HANG, Middleman
from runs import LOST, PATIENCE_S, Run, holders_of

LONG = ("-t", "10m")
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def is_free(gate, resource="r"):
    assert holders_of(gate, resource) == [], "the lease was left behind"


@case
def a_lease_that_is_held_as_long_as_it_may_be_is_given_back():
    with Scene() as scene:
        gate = scene.gateway()
        for hold in ("300ms", "700ms"):
            run = Run(scene, gate, "r", "true",
                      options=(*LONG, "--min-hold", hold, "--max-hold", hold))
            assert run.wait() == 0 and run.err() == "", run.err()
            is_free(gate)


@case
def a_job_that_ends_when_it_has_to_leaves_nothing_behind():
    with Scene() as scene:
        gate = scene.gateway()
        for number in range(12):
            seconds = f"0.{480 + 3 * number}"
            run = Run(scene, gate, "r", "sleep", seconds,
                      options=(*LONG, "--max-hold", "500ms", "--kill-after", "0s"))
            assert run.wait() in (0, LOST), run.err()
            is_free(gate)


@case
def two_signals_in_a_row_do_not_give_the_release_up():
    dice = random.Random(7)
    with Scene() as scene:
        gate = scene.gateway()
        for number in range(15):
            run = Run(scene, gate, "r", "sh", "-c", "echo; exec sleep 30", options=LONG)
            eventually(run.out, what="the job")
            for _ in range(2):
                run.signal(dice.choice(ENDING[:2]))
                time.sleep(dice.uniform(0, 0.002))
            assert run.wait() in (128 + signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGKILL)
            assert run.err() == "", run.err()
            is_free(gate)


@case
def a_gateway_that_hangs_is_not_waited_for_when_two_more_signals_have_come():
    with Scene() as scene:
        gate = scene.gateway()
        man = scene.keep(Middleman(gate.port))
        run = Run(scene, man.url, "r", "sh", "-c", "echo; exec sleep 30", options=LONG)
        eventually(run.out, what="the job")
        man.rule = lambda request: HANG
        run.signal(signal.SIGTERM)
        eventually(lambda: any(request.method == "DELETE" for request in man.requests),
                   what="the release")
        for _ in range(3):
            run.signal(signal.SIGTERM)
            time.sleep(0.05)
        started = time.monotonic()
        assert run.wait() == 128 + signal.SIGTERM
        assert time.monotonic() - started < PATIENCE_S / 2
        assert "not released" in run.err(), run.err()


@case
def what_happens_to_the_lease_in_min_hold_has_not_happened_to_the_job():
    with Scene() as scene:
        gate = scene.gateway()
        for ttl in ("2s", "10m"):  # it hears of it in time, or not
            run = Run(scene, gate, "r", "sh", "-c", "echo; exit 5",
                      options=("-t", ttl, "--min-hold", "1500ms"))
            eventually(lambda now=run: now.out() and not now.living(), what="the job's end")
            assert gate.call("POST", "/resources/r/revoke", {"reason": "test"}).status == 200
            assert run.wait() == 5, run.err()
            is_free(gate)


if __name__ == "__main__":
    run_cases()
