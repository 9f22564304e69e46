#!/usr/bin/python3
"""test_fence_faults.py - what `fence run` makes of a gateway, a network and clocks that misbehave.

Either the lease is kept and the job goes on, or the job is dead before anybody else can have the
lease. The second is shown by the job's last stamp (family.py), which is before the moment at which
somebody who waits at the gateway (by another way) is told that the lease is his.
"""
import contextlib
import os
import pathlib
import time

import harness
from harness import case, eventually
from middleman import BUSY, HALF, HANG, LOSE, RESET, Middleman, answer
from runs import LOST, NOT_OBTAINED, SLOWER, Family, boot_s, ttl

TTL_MS = 1500
SOAK = os.environ.get("SOAK") == "1"
NONSENSE = {
    "a page of html": answer(200, b"<html>It works!</html>"),
    "html with an error": answer(502, b"<html>Bad Gateway</html>"),
    "another's json": answer(200, b'{"ok":true}', "application/json"),
    "another's 404": answer(404, b'{"error":"no such thing"}', "application/json"),
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "no http": b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n\r\n",
    "an empty body": answer(200, b"", "application/json"),
}


@contextlib.contextmanager
def site(**options):
    """A gateway, and a middleman before it."""
    with harness.Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis, **options)
        yield scene, redis, gate, scene.keep(Middleman(gate.port))


def is_renewal(request):
    return request.target.endswith("/renew")


# What is preloaded to deceive `fence` is not to deceive the job's clock.
UNDECEIVED = ("env", "-u", "LD_PRELOAD")


def begin(scene, man, ttl_ms=TTL_MS, **arguments):
    """With little time to end: nearly all of the TTL is there for renewals."""
    job = Family(scene, man.url, "r", "plain", options=(*ttl(ttl_ms / 1000), "--kill-after", "20ms"),
                 within=UNDECEIVED, **arguments)
    job.await_started()
    return job


def token_of(gate):
    holders = gate.call("GET", "/resources/r").json()["holders"]
    return holders[0]["fencing_token"] if holders else None


def is_kept(gate, job, ttls=2):
    """For so many TTLs the same lease, and the job at work."""
    token, end = token_of(gate), time.monotonic() + ttls * TTL_MS / 1000 * SLOWER
    while time.monotonic() < end:
        assert job.running(), job.err()
        assert token_of(gate) == token, "the lease was lost"
        time.sleep(0.05)
    before = job.last_stamp()
    eventually(lambda: job.last_stamp() > before, what="another stamp")


def is_stopped_in_time(gate, job):
    """Who waits at the gateway gets the lease, and by then the job is dead."""
    granted = gate.client().acquire("r", wait_ms=60_000, owner="the next")
    granted_s = boot_s()
    assert job.last_stamp() < granted_s, "the job was alive when another had the lease"
    count = len(job.stamps.read_text())
    assert job.wait() == LOST, job.err()
    assert len(job.stamps.read_text()) == count, "the job was at work after that"
    assert granted.token > 1


# ---- Kept ---------------------------------------------------------------------------------------


@case
def a_gateway_that_is_restarted_in_mid_job_finds_the_lease_still_wanted():
    with harness.Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        man = scene.keep(Middleman(gate.port))
        job = begin(scene, man, ttl_ms=3000)
        token = token_of(gate)
        gate.stop()
        time.sleep(0.3)
        gate = scene.gateway(redis=redis)
        man.gateway_port = gate.port
        is_kept(gate, job)
        assert token_of(gate) == token


@case
def a_gateway_that_is_slow_keeps_the_lease():
    with site() as (scene, _, gate, man):
        man.rule = lambda request: 0.2 * TTL_MS / 1000 * SLOWER if is_renewal(request) else None
        is_kept(gate, begin(scene, man))


@case
def renewals_that_fail_for_nine_tenths_of_the_ttl_and_then_work_keep_the_lease():
    ttl_ms = 3000
    ways = {"503": BUSY, "silence": HANG}
    if SOAK:
        ways |= {"reset": RESET, "half": HALF, "lost": LOSE, "html": NONSENSE["a page of html"]}
    for name, spoiled in ways.items():
        with site() as (scene, _, gate, man):
            job = begin(scene, man, ttl_ms=ttl_ms)
            eventually(lambda: len(man.targets("/renew")) == 2, what="two renewals")
            end = man.targets("/renew")[-1].when + 0.9 * ttl_ms / 1000 * SLOWER
            man.rule = lambda request: spoiled if is_renewal(request) and time.monotonic() < end \
                else None
            while time.monotonic() < end:
                assert job.running(), (name, job.err())
                time.sleep(0.02)
            is_kept(gate, job, ttls=1)


@case
def a_single_connection_that_hangs_costs_nothing():
    with site() as (scene, _, gate, man):
        hung = []

        def rule(request):
            if is_renewal(request) and len(hung) < 3:
                hung.append(request)
                return HANG
            return None

        man.rule = rule
        is_kept(gate, begin(scene, man), ttls=3)
        assert len(hung) == 3


@case
def redis_emptied_in_mid_job_is_given_the_lease_back_by_the_next_renewal():
    with site() as (scene, redis, gate, man):
        job = begin(scene, man)
        token = token_of(gate)
        redis.command("FLUSHALL")
        renewals = len(man.targets("/renew"))
        eventually(lambda: len(man.targets("/renew")) >= renewals + 2, what="two renewals")
        assert token_of(gate) == token
        assert gate.try_acquire("r").code == "lease_held"
        is_kept(gate, job, ttls=1)


# ---- Lost in time -------------------------------------------------------------------------------


@case
def a_gateway_that_answers_nonsense_for_ever_stops_the_job_before_the_ttl_ends():
    for name, spoiled in NONSENSE.items():
        with site() as (scene, _, gate, man):
            job = begin(scene, man)
            man.rule = lambda request: spoiled  # of everything, the release as well
            is_stopped_in_time(gate, job)
            assert "lease" in job.err(), (name, job.err())


@case
def a_gateway_that_hangs_in_the_middle_of_an_answer_stops_the_job_before_the_ttl_ends():
    for spoiled in (HANG, LOSE, RESET):
        with site() as (scene, _, gate, man):
            job = begin(scene, man)
            man.rule = lambda request: RESET if spoiled == LOSE else spoiled
            is_stopped_in_time(gate, job)


@case
def half_answers_to_renewals_that_were_done_stop_the_job_as_well():
    """The lease goes on at the server; the client cannot know, and believes nothing."""
    with site() as (scene, _, gate, man):
        job = begin(scene, man)
        man.rule = lambda request: HALF if is_renewal(request) else None
        assert job.wait() == LOST, job.err()
        granted = gate.client().acquire("r", wait_ms=60_000)
        assert job.last_stamp() < boot_s() and granted.token == 2


@case
def an_operators_reason_reaches_whoever_reads_the_log_of_the_job():
    with site() as (scene, _, gate, man):
        job = begin(scene, man)
        revoked = gate.call("POST", "/resources/r/revoke", {"reason": "deploy at noon"})
        assert revoked.json()["revoked"] == [1]
        assert job.wait() == LOST
        assert "deploy at noon" in job.err(), job.err()


# ---- Clocks -------------------------------------------------------------------------------------


def faketime_library():
    found = sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    assert found, "libfaketime is not there"
    return str(found[0])


@case
def a_wall_clock_that_is_set_back_and_forth_changes_nothing():
    with site() as (scene, _, gate, man):
        clock = scene.folder / "clock"
        clock.write_text("+0")
        # It moves CLOCK_BOOTTIME as well, which no machine does: that has to be harmless, too.
        env = {"LD_PRELOAD": faketime_library(), "FAKETIME_TIMESTAMP_FILE": str(clock),
               "FAKETIME_NO_CACHE": "1",
               "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0"}
        job = begin(scene, man, env=env)
        for offset in ("-2d", "+3d", "-10y", "+1h", "+0"):
            clock.write_text(offset)
            is_kept(gate, job, ttls=0.6)
        clock.write_text("-1d")
        man.rule = lambda request: HANG
        is_stopped_in_time(gate, job)


@case
def a_machine_that_was_suspended_keeps_the_deadline():
    """CLOCK_MONOTONIC stands still all the time: neither renewals nor the deadline stand on it."""
    with site() as (scene, _, gate, man):
        asleep = scene.folder / "asleep"
        asleep.touch()
        env = {**harness.preload(scene.folder, "suspend_shim.c"), "SHIM_SUSPEND": str(asleep)}
        job = begin(scene, man, env=env)
        is_kept(gate, job)
        man.rule = lambda request: HANG
        is_stopped_in_time(gate, job)


# ---- Before it begins ---------------------------------------------------------------------------


@case
def a_ttl_that_is_too_short_for_the_way_there_and_back_is_named():
    with site() as (scene, _, gate, man):
        man.rule = lambda request: 0.3 if request.target == "/leases" else None
        job = Family(scene, man.url, "r", "plain", options=("-t", "200ms"))
        assert job.wait() == NOT_OBTAINED, job.err()
        assert "TTL" in job.err() and "short" in job.err(), job.err()
        assert not job.stamps.exists(), "the job was started"
        kinds = [row["kind"] for row in gate.history("r")]
        assert kinds in (["grant", "release"], ["grant"]), kinds


@case
def a_gateway_that_restarts_while_somebody_waits_is_asked_again():
    with site() as (scene, redis, gate, man):
        held = gate.acquire("r", ttl_ms=60_000)
        job = Family(scene, man.url, "r", "plain", options=("-t", "5s"))
        eventually(lambda: gate.call("GET", "/resources/r").json()["waiters"] == 1, what="the wait")
        time.sleep(0.15)  # it has stood there
        gate.stop()
        gate = scene.gateway(redis=redis)
        man.gateway_port = gate.port
        eventually(lambda: gate.call("GET", "/resources/r").json()["waiters"] == 1,
                   what="the wait after the restart")
        assert gate.release(held).status == 200
        job.await_started()


if __name__ == "__main__":
    harness.run_cases()
