#!/usr/bin/python3
"""test_histories.py - whatever breaks while clients work, their history obeys every invariant.

Each workload (workloads.py) runs under its share of all nemeses (nemeses.py), and what its clients
saw is held against the ledger (checker.py). SEED=n repeats the choices of a run. With SOAK=1 each
workload runs HISTORY_SECONDS (45) at a time, HISTORY_ROUNDS (6) times, under three nemeses at once,
and the checker has to notice planted bugs: 20 minutes in all.
"""
import os
import random
import secrets

import harness
import histories
import nemeses
import workloads
from harness import case

SOAK = os.environ.get("SOAK") == "1"
SECONDS = float(os.environ.get("HISTORY_SECONDS", "45" if SOAK else "6"))
ROUNDS = int(os.environ.get("HISTORY_ROUNDS", "6" if SOAK else "1"))
FENCING_S = 10 if SOAK else 2.5
DIED = "the gateway died by itself"  # an invariant in the store was faster
SEED = int(os.environ.get("SEED") or secrets.randbelow(1_000_000))


def lossless(random_, count):
    """Nemeses under which nobody may even overlap."""
    return random_.sample(sorted(nemeses.NEMESES.keys() - nemeses.LOSING), count)


def one_run(name, seed):
    """In CI the nemeses are dealt out to the workloads, so that each comes up in every run; in the
    soak any three are at work at once, in every second round without those that lose data."""
    if SOAK:
        choices = random.Random(f"{seed}/{name}")
        names = lossless(choices, 6) if seed % 2 else choices.sample(sorted(nemeses.NEMESES), 6)
        report = histories.run(name, names, SECONDS, seed, at_once=3)
    else:
        hands = nemeses.deal(random.Random(seed), len(workloads.WORKLOADS))
        names = hands[list(workloads.WORKLOADS).index(name)]
        report = histories.run(name, names, SECONDS, seed)
    print(f"      {report}\n      under {', '.join(names)}", flush=True)
    assert not report.problems
    # Too little work shows nothing. Generous: the machine may be busy with other tests.
    assert report.accepted("write") > 5 and report.accepted("acquire") > 5, "too little was done"


def workload_case(name):
    def runs():
        for number in range(ROUNDS):
            one_run(name, SEED + number)

    harness.add_case(f"{name}_obeys_every_invariant_under_its_nemeses", runs)


# CK1-CK8, CK11, CK13; N-kill, N-pause, N-lose, N-proxy, N-script, N-evict, N-mix
for workload_name in workloads.WORKLOADS:
    workload_case(workload_name)



@case
def without_the_fence_the_lock_set_loses_updates_and_the_checker_says_so():  # CK16, N-pause
    """Else the workload were too weak. The pauses are the clients' own, longer than their TTL."""
    def short():
        return workloads.LockSet(ttl_ms=100, think_s=0.5)

    fenced = histories.run("lock_set", [], FENCING_S, SEED, workload=short(), faulty=True)
    print(f"      {fenced}", flush=True)
    assert not fenced.problems
    assert fenced.refusals()["stale_fencing_token"] > 0, "no client outslept its lease"

    unfenced = histories.run("lock_set", [], FENCING_S, SEED, workload=short(), bugs="fencing_off",
                             keep=False)
    lost = [problem for problem in unfenced.problems if problem.startswith("set:")]
    print(f"      without the fence: {unfenced.accepted('write')} writes, {len(lost)} lost; also "
          f"found: {unfenced.kinds()}", flush=True)
    assert lost, "no update was lost"
    assert {"fence", "ledger"} <= unfenced.kinds().keys()


# What the checker alone has to notice of the planted bugs, on workloads that do not look for them
# (test_planted.py does): bug, workload, nemeses, failpoints, a statement that is broken.
PLANTED = (
    ("no_lease_check", "zombies", [], "", "answers"),
    ("forget_ended_leases", "zombies", [], "", "answers"),
    ("answer_before_fence", "zombies", [], "", "answers"),
    ("skip_remaining_time", "lock_set", ["pause_gateway"], "before_commit=sleep(40)@*", "answers"),
    ("check_ge", "register", [], "", DIED),
    ("check_outside_transaction", "zombies", [], "before_commit=sleep(30)@*", DIED),
    ("raise_max", "zombies", ["flush"], "before_fence=sleep(30)@*", DIED),
)


def planted_case(bug, name, names, faults, broken):
    def is_noticed():
        report = histories.run(name, names, 5, SEED, bugs=bug, faults=faults, keep=False)
        print(f"      {report}", flush=True)
        assert report.kinds()[broken], report.kinds()

    harness.add_case(f"the_checker_notices_{bug}", is_noticed)


if SOAK:
    for row in PLANTED:
        planted_case(*row)


if __name__ == "__main__":
    print(f"SEED={SEED}", flush=True)
    harness.run_cases()
