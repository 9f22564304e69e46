#!/usr/bin/python3
"""test_stress.py - fifty clients share mutexes and semaphores, and nothing that was promised breaks.

STRESS_SECONDS (8, with SOAK=1 60) says for how long, SEED=n repeats the choices of a run (not the
schedule). What happens in it is in stress.py, what has to hold in checker.py and queue_checker.py.
With SOAK=1 the checkers also have to notice planted bugs.
"""
import os
import secrets

import harness
import stress
from harness import case

SOAK = os.environ.get("SOAK") == "1"
SECONDS = float(os.environ.get("STRESS_SECONDS") or (60 if SOAK else 8))
ROUGH_S = SECONDS / 2
PLANTED_S = 6
SEED = int(os.environ.get("SEED") or secrets.randbelow(1_000_000))


def _is_good(report):
    print(f"      {report}", flush=True)
    assert not report.problems
    # Too little work shows nothing. Generous: the machine may be busy with other tests.
    asked = [op for op in report.ops if op.f == "acquire"]
    assert sum(op.ok for op in asked) > 50 and report.accepted("write") > 20, "too little was done"
    assert report.accepted("configure") > 5 and report.accepted("revoke") > 5
    return asked


@case
def fifty_clients_that_pause_die_and_hang_up_obey_every_statement():
    asked = _is_good(stress.run(SECONDS, SEED))
    assert sum(op.ok and op.waited > 0 for op in asked) > 20, "too few waited"
    assert sum(op.gone is not None for op in asked) > 5, "too few hung up"
    assert sum(op.queued is not None for op in asked) > 20, "of too few it is known when"


@case
def also_where_the_gateway_is_killed_and_redis_emptied():
    _is_good(stress.run(ROUGH_S, SEED, rough=True))


def planted_case(bug, *statements):
    def is_noticed():
        report = stress.run(PLANTED_S, SEED, bugs=bug, keep=False)
        print(f"      {bug}: {dict(report.kinds())}", flush=True)
        assert report.kinds().keys() >= set(statements)

    harness.add_case(f"the_checkers_notice_{bug}", is_noticed)


if SOAK:
    planted_case("fencing_off", "ledger", "ended")
    planted_case("forget_ended_leases", "answers")


if __name__ == "__main__":
    print(f"SEED={SEED}", flush=True)
    harness.run_cases()
