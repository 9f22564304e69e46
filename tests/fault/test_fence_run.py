#!/usr/bin/python3
"""test_fence_run.py - `fence run` where nothing is wrong: what the job finds, how it exits, how
long the lease is held.
"""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

from harness import Scene, case, eventually, run_cases
from runs import (FENCE, LOST, NOT_OBTAINED, SLOWER, UNREACHABLE, USAGE, Family, Next, Run,
                  clean_environment, holders_of, kinds_of, ttl, waiters_of)

# ---- How it exits -------------------------------------------------------------------------------


@case
def it_exits_as_the_job_does_and_says_nothing():
    with Scene() as scene:
        gate = scene.gateway()
        for status in (0, 1, 3, 79, 255):
            run = Run(scene, gate, "r", "sh", "-c", f"exit {status}")
            assert run.wait() == status, (status, run.err())
            assert run.out() == "" and run.err() == ""


@case
def a_job_that_was_ended_by_a_signal_is_128_and_its_number():
    with Scene() as scene:
        gate = scene.gateway()
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGRTMIN + 3):
            run = Run(scene, gate, "r", "sh", "-c", f"kill -{int(number)} $$")
            assert run.wait() == 128 + number, (number, run.err())


def is_not_run(scene, gate, status, *command, **arguments):
    """It exits so, with one line, and the lease is free at once."""
    run = Run(scene, gate, "r", *command, options=("--min-hold", "1h"), **arguments)
    assert run.wait() == status, (run.wait(), run.err())
    assert run.err().startswith("fence: ") and run.err().count("\n") == 1, run.err()
    assert not holders_of(gate, "r"), "the lease was not released"


@case
def a_command_that_is_not_there_is_127():
    with Scene() as scene:
        gate = scene.gateway()
        is_not_run(scene, gate, 127, "no-such-command")
        is_not_run(scene, gate, 127, "/no/such/command")
        is_not_run(scene, gate, 127, "sh", env={"PATH": "/nowhere"})


@case
def a_command_that_cannot_be_executed_is_126():
    with Scene() as scene:
        gate = scene.gateway()
        script = scene.folder / "script"
        script.write_text("#!/bin/sh\nexit 0\n")
        is_not_run(scene, gate, 126, str(script))
        is_not_run(scene, gate, 126, str(scene.folder))
        script.chmod(0o755)
        assert Run(scene, gate, "r", str(script)).wait() == 0


@case
def wrong_usage_is_64_and_nothing_is_asked():
    with Scene() as scene:
        gate = scene.gateway()
        for words in (("r",), (), ("r", "--"), ("-n", "-w", "1s", "r", "true"),
                      ("-t", "5", "r", "true"), ("-t", "10ms", "r", "true"),
                      ("-E", "256", "r", "true"), ("r", "-n", "true"),
                      ("--limit", "0", "r", "true"), ("--no-such-option", "r", "true"),
                      ("--min-hold", "2s", "--max-hold", "1s", "r", "true")):
            done = subprocess.run([FENCE, "run", *words], env=clean_environment(gate),
                                  capture_output=True, timeout=60)
            assert done.returncode == USAGE, (words, done)
            assert done.stderr.startswith(b"fence: run: ") and done.stderr.count(b"\n") == 1, done
            assert b"fence run --help" in done.stderr, done
        assert kinds_of(gate, "r") == []


@case
def a_gateway_that_is_not_there_is_69():
    with Scene() as scene:
        run = Run(scene, "http://127.0.0.1:1", "r", "true", options=("-E", "7"))
        assert run.wait() == UNREACHABLE and run.err().count("\n") == 1


@case
def a_lease_that_is_not_obtained_is_75_or_what_E_says():
    with Scene() as scene:
        gate = scene.gateway()
        gate.acquire("r", ttl_ms=120_000)
        for options, status in ((("-n",), 75), (("-w", "200ms"), 75), (("-w", "0s"), 75),
                                (("-n", "-E", "3"), 3)):
            run = Run(scene, gate, "r", "true", options=options)
            assert run.wait() == status, (options, run.err())
            assert "holds it" in run.err() and run.err().count("\n") == 1
        skipped = Run(scene, gate, "r", "true", options=("-n", "-E", "0"))
        assert skipped.wait() == 0 and skipped.err() == "", "a skipped run is no failure with -E 0"


@case
def it_waits_without_end_for_its_turn():
    with Scene() as scene:
        gate = scene.gateway()
        holder = gate.acquire("r", ttl_ms=120_000)
        run = Run(scene, gate, "r", "sh", "-c", "echo $FENCE_TOKEN",
                  env={"FENCE_WAIT_STEP": "150ms"})
        eventually(lambda: waiters_of(gate, "r") > 0, what="the wait")
        time.sleep(0.8)  # many steps
        assert run.running() and waiters_of(gate, "r") > 0
        assert gate.release(holder).status == 200
        assert run.wait() == 0 and int(run.out()) > holder.token, (run.out(), run.err())


# ---- What the job finds -------------------------------------------------------------------------


@case
def the_environment_tells_of_the_lease():
    with Scene() as scene:
        gate = scene.gateway()
        run = Run(scene, gate, "a/b c", sys.executable, "-c",
                  "import os, json; print(json.dumps(dict(os.environ))); input()",
                  options=("--owner", "me & you", "-t", "45s"), stdin=subprocess.PIPE,
                  env={"FENCE_TOKEN": "of another", "OTHER": "kept", "FENCE_TOKENS": "kept, too"})
        eventually(run.out, what="the environment")
        found = json.loads(run.out())
        holder = holders_of(gate, "a/b c")[0]
        lease = gate.call("GET", f"/leases/{found['FENCE_LEASE_ID']}").json()
        assert found["FENCE_URL"] == f"http://127.0.0.1:{gate.port}"
        assert found["FENCE_RESOURCE"] == "a/b c" and found["FENCE_OWNER"] == "me & you"
        assert int(found["FENCE_TOKEN"]) == holder["fencing_token"] == lease["fencing_token"]
        assert found["FENCE_TTL_MS"] == "45000" and found["FENCE_EXPIRES_AT"].endswith("Z")
        assert holder["owner"] == "me & you" and lease["state"] == "held"
        assert found["OTHER"] == "kept" and found["FENCE_TOKENS"] == "kept, too"
        run.process.communicate(b"\n")
        assert run.wait() == 0


@case
def by_default_the_owner_is_host_and_pid_and_the_ttl_30_seconds():
    with Scene() as scene:
        run = Run(scene, scene.gateway(), "r", "sh", "-c", "echo $FENCE_OWNER $FENCE_TTL_MS")
        assert run.wait() == 0
        assert run.out().split() == [f"{os.uname().nodename}:{run.pid}", "30000"], run.out()


@case
def the_command_line_is_passed_on_word_by_word_without_a_shell():
    with Scene() as scene:
        words = ["-n", "--", "$(id)", "a  b", "", "*", "\n", "-t"]
        run = Run(scene, scene.gateway(), "r", sys.executable, "-c",
                  "import sys, json; print(json.dumps(sys.argv[1:]))", *words)
        assert run.wait() == 0 and json.loads(run.out()) == words


@case
def input_is_passed_on():
    with Scene() as scene:
        run = Run(scene, scene.gateway(), "r", "cat", stdin=subprocess.PIPE)
        run.process.communicate(b"line\n" * 10_000)
        assert run.wait() == 0 and run.out() == "line\n" * 10_000


@case
def the_callers_descriptors_reach_the_job_and_ours_do_not():
    with Scene() as scene:
        near, far = os.pipe()
        os.dup2(far, 57)
        run = Run(scene, scene.gateway(), "r", "bash", "-c",
                  "ls -l /proc/self/fd; echo passed >&57", pass_fds=(57,))
        os.close(57)
        os.close(far)
        assert run.wait() == 0, run.err()
        assert os.read(near, 100) == b"passed\n"
        os.close(near)
        found = {line.split()[8]: line.split()[-1]
                 for line in run.out().splitlines() if "->" in line}
        assert set(found) - {"3"} == {"0", "1", "2", "57"}, found
        assert found.get("3", "/proc/").startswith("/proc/"), "more than the folder that ls reads"


@case
def a_closed_descriptor_stays_closed():
    with Scene() as scene:
        def close():
            os.close(0)
            os.close(2)

        run = Run(scene, scene.gateway(), "r", "sh", "-c", "ls /proc/$$/fd", before=close)
        assert run.wait() == 0 and not {"0", "2"} & set(run.out().split()), run.out()


def status_field(run, name):
    return next(line.split()[1] for line in run.out().splitlines() if line.startswith(name + ":"))


@case
def the_job_has_the_signals_as_we_found_them():
    def usual():
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)

    def unusual():
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])

    def bits(*numbers):
        return sum(1 << (number - 1) for number in numbers)

    ignored = bits(signal.SIGPIPE, signal.SIGCHLD, signal.SIGUSR1)
    with Scene() as scene:
        gate = scene.gateway()
        for before, mask, ignores in ((usual, 0, 0), (unusual, bits(signal.SIGUSR2), ignored)):
            run = Run(scene, gate, "r", "cat", "/proc/self/status", before=before)
            assert run.wait() == 0
            assert int(status_field(run, "SigBlk"), 16) == mask, run.out()
            # 32 and 33 are the C library's own; a child of posix_spawn() finds them ignored.
            assert int(status_field(run, "SigIgn"), 16) & ~bits(32, 33) == ignores, run.out()


@case
def the_job_has_a_process_group_of_its_own():
    with Scene() as scene:
        run = Run(scene, scene.gateway(), "r", sys.executable, "-c",
                  "import os; print(os.getpid(), os.getpgrp(), os.getsid(0))")
        assert run.wait() == 0
        pid, group, session = (int(word) for word in run.out().split())
        assert pid == group != run.pid and session == run.pid


# ---- How it ends --------------------------------------------------------------------------------


@case
def what_is_left_of_the_group_is_killed_after_the_job():
    with Scene() as scene:
        gate = scene.gateway()
        run = Run(scene, gate, "r", "sh", "-c",
                  "trap '' TERM; sleep 1000 & (trap '' TERM HUP; sleep 1000) & "
                  "(kill -STOP $(exec sh -c 'echo $PPID'); sleep 1000) & exit 5")
        assert run.wait() == 5 and run.err() == "", run.err()
        assert not run.living(), "a process of the group lives"
        assert kinds_of(gate, "r") == ["grant", "release"]


@case
def what_has_left_the_group_lives_on_after_a_normal_end():
    with Scene() as scene:
        run = Run(scene, scene.gateway(), "r", "sh", "-c", "setsid sleep 1000 & sleep 0.1; exit 0")
        assert run.wait() == 0 and len(run.living()) == 1, run.living()


@case
def many_orphans_do_not_keep_it_waiting_and_none_is_left_unreaped():
    script = "for i in $(seq 200); do (sleep 0.0$((i % 9)) &) ; done; sleep 0.2; " \
             "ps -o stat= --ppid $PPID | grep -c Z"
    with Scene() as scene:
        gate = scene.gateway()
        run = Run(scene, gate, "r", "sh", "-c", script)
        run.wait()
        assert run.out().strip() == "0" and not run.living(), (run.out(), run.err())
        assert kinds_of(gate, "r") == ["grant", "release"]


@case
def a_zombie_that_nobody_reaps_does_not_keep_it_waiting():
    """Its parent has left the group, and lives on."""
    script = "import os, sys, time\n" \
             "if os.fork() == 0:\n" \
             "    if os.fork() == 0: time.sleep(1000)\n" \
             "    os.setsid(); os.write(1, b'left'); time.sleep(1000)\n" \
             "time.sleep(0.3)"
    with Scene() as scene:
        gate = scene.gateway()
        run = Run(scene, gate, "r", sys.executable, "-c", script, options=("-t", "1h"))
        assert run.wait() == 0 and run.err() == "", run.err()
        assert not holders_of(gate, "r") and len(run.living()) == 1


@case
def nothing_of_ours_is_left():
    with Scene() as scene:
        run = Run(scene, scene.gateway(), "r", "sleep", "0.2")
        guardian = eventually(run.guardian, what="the guardian")
        assert run.wait() == 0
        assert not os.path.exists(f"/proc/{guardian}")


@case
def a_job_longer_than_the_ttl_keeps_its_lease():
    with Scene() as scene:
        gate = scene.gateway()
        run = Run(scene, gate, "r", "sleep", str(3 * SLOWER), options=ttl(0.6))
        eventually(lambda: holders_of(gate, "r"), what="the lease")
        while run.running():
            held = holders_of(gate, "r")
            assert held and held[0]["fencing_token"] == 1 or not run.running() or run.wait() == 0
            time.sleep(0.05)
        assert run.wait() == 0 and run.err() == "", run.err()


# ---- --min-hold, --max-hold ---------------------------------------------------------------------


@contextlib.contextmanager
def holding(hold, *options):
    """A job that is over, and whose lease is kept for so long."""
    with Scene() as scene:
        gate = scene.gateway()
        run = Run(scene, gate, "r", "sh", "-c", "echo; exit 4",
                  options=("--min-hold", hold, *options))
        eventually(lambda: run.out() and not run.living(), what="the job's end")
        yield scene, gate, run


@case
def min_hold_keeps_the_lease_of_a_short_job_and_renews_it():
    with holding("2s", *ttl(0.6)) as (_, gate, run):
        begun = time.monotonic()
        while time.monotonic() < begun + 1:
            assert run.running() and len(holders_of(gate, "r")) == 1
            time.sleep(0.05)
        assert run.wait() == 4 and run.err() == "", run.err()
        assert not holders_of(gate, "r") and kinds_of(gate, "r")[-1] == "release"


@case
def min_hold_is_kept_without_us_where_we_are_asked_to_leave():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        with holding("60s", *ttl(2)) as (_, gate, run):
            run.signal(number)
            assert run.wait() == 4 and run.err() == "", run.err()
            left_ms = holders_of(gate, "r")[0]["expires_in_ms"]
            assert 30_000 < left_ms <= 60_000, left_ms


@case
def min_hold_of_a_job_that_was_asked_to_end_is_kept_without_us():
    with Scene() as scene:
        gate = scene.gateway()
        run = Run(scene, gate, "r", "sleep", "1000", options=("--min-hold", "60s"))
        eventually(run.living, what="the job")
        run.signal(signal.SIGTERM)
        assert run.wait() == 128 + signal.SIGTERM
        assert 30_000 < holders_of(gate, "r")[0]["expires_in_ms"] <= 60_000


@case
def a_lease_lost_in_min_hold_is_told_and_the_status_is_the_jobs():
    with holding("60s", *ttl(1)) as (_, gate, run):
        assert gate.call("POST", "/resources/r/revoke", {"reason": "enough"}).status == 200
        assert run.wait() == 4
        assert run.err().count("\n") == 1 and "revoked" in run.err(), run.err()


@case
def max_hold_ends_the_job_by_term_and_frees_the_lease():
    with Scene() as scene:
        gate = scene.gateway()
        script = "trap 'echo asked; exit 0' TERM; sleep 1000 & wait"
        run = Run(scene, gate, "r", "sh", "-c", script,
                  options=("--max-hold", "1500ms", "--kill-after", "1s", "-t", "60s"))
        assert run.wait() == LOST and run.out() == "asked\n", (run.out(), run.err())
        assert "max-hold" in run.err() and run.err().count("\n") == 1, run.err()
        assert not holders_of(gate, "r") and not run.living()


@case
def max_hold_ends_a_deaf_job_by_kill_and_frees_the_lease():
    with Scene() as scene:
        gate = scene.gateway()
        family = Family(scene, gate, "r", "deaf", "stopped", "daemon",
                        options=("--max-hold", "2s", "--kill-after", "500ms", "-t", "60s"))
        family.await_started()
        following = Next(gate, "r")
        assert family.wait() == LOST, family.err()
        assert family.last_stamp() < following.granted_s() and not family.living()


@case
def of_a_semaphore_as_many_run_as_the_limit_says():
    with Scene() as scene:
        gate = scene.gateway()
        runs = [Run(scene, gate, "r", "sleep", "1000", options=("--limit", "2")) for _ in range(3)]
        eventually(lambda: len(holders_of(gate, "r")) == 2 and waiters_of(gate, "r") == 1,
                   what="two at work and one that waits")
        other = Run(scene, gate, "r", "true", options=("--limit", "3", "-n"))
        assert other.wait() not in (0, NOT_OBTAINED) and "limit" in other.err(), other.err()
        for run in runs:
            run.signal(signal.SIGTERM)


if __name__ == "__main__":
    run_cases()
