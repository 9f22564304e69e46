#!/usr/bin/python3
"""test_disk_calls.py - every write and every sync of the store fails once, or is the last one ever.

A library before the C library (shim.c) fails the n-th call, kills the process there, or notes what a
power cut would leave on the disk. After each of these: nothing acknowledged is lost, no token comes
twice, no released lease writes (load.py keeps the books), and the store opens again.

Row numbers are those of the catalogue of failure modes, see README.md. SOAK=1 takes every n instead of
some, SEED repeats a run.
"""
import errno
import shutil
import signal
import time

from disks import Shim, write_image
from harness import Scene, add_case, case, eventually, run_cases
from load import Load
from outages import RANDOM, SEED, SOAK, empty

CALLS = {"write": Shim.WRITE, "sync": Shim.SYNC, "truncate": Shim.TRUNCATE}
SMALL, BIG = 20, 300000  # bytes of a value; of the big ones a few reach a checkpoint
TURNS = 10


def stopped_by_io_error(gate):
    """An I/O error ends the process, with a line that says why."""
    assert gate.wait() == 74, (gate.process.returncode, gate.log())
    assert "the store failed: stopping" in gate.log(), gate.log()


# ---- One error, at run time ----------------------------------------------------------------------


def error_at_run_time(call, error, file):
    with Scene() as scene:
        redis, shim = scene.redis(), Shim(scene.folder)
        gate = scene.gateway(redis=redis, env=shim.env)
        load = Load(gate, workers=4)
        with load.running():
            eventually(lambda: load.written() > 20, what="some writes")
            shim.fail(call, error, nth=RANDOM.randrange(1, 20), file=file)
            stopped_by_io_error(gate)
        assert shim.get("fired") == 1  # never tried again
        empty(redis)  # what Redis knows must not matter
        load.gate = scene.gateway(redis=redis)
        load.verify_new_tokens(load.gate)
        assert load.gate.stop() == 0


for name_, call_, error_ in (("sync_error", Shim.SYNC, errno.EIO),  # D6
                             ("write_error", Shim.WRITE, errno.EIO),  # D7
                             ("disk_gone_read_only", Shim.WRITE, errno.EROFS)):  # D16
    add_case(f"{name_}_ends_the_process_and_it_starts_again",
             lambda call=call_, error=error_: error_at_run_time(call, error, "w"))


@case
def sync_error_of_a_checkpoint_ends_the_process():  # D6
    with Scene() as scene:
        redis, shim = scene.redis(), Shim(scene.folder)
        gate = scene.gateway(redis=redis, env=shim.env)
        shim.fail(Shim.SYNC, errno.EIO, file="d")
        load = Load(gate, workers=1, resources=150, value_bytes=BIG)
        assert not load.turns(150), "no checkpoint came"
        stopped_by_io_error(gate)
        empty(redis)
        load.verify_new_tokens(scene.gateway(redis=redis))


@case
def short_writes_are_finished():  # D7
    with Scene() as scene:
        redis, shim = scene.redis(), Shim(scene.folder)
        shim.fail(Shim.WRITE, Shim.SHORT, for_ever=True)
        gate = scene.gateway(redis=redis, env=shim.env)
        load = Load(gate, workers=4)
        with load.running():
            eventually(lambda: load.written() > 50, what="some writes")
        assert shim.get("fired") > 100
        gate.kill()
        load.verify_new_tokens(scene.gateway(redis=redis))


@case
def slow_syncs_are_shared_and_nobody_is_lost():  # X6
    with Scene() as scene:
        redis, shim = scene.redis(), Shim(scene.folder)
        gate = scene.gateway(redis=redis, env=shim.env)
        load = Load(gate, workers=30, ttl_ms=30000)
        shim.set(sync_us=100000)
        with load.running():
            time.sleep(20 if SOAK else 3)
        syncs, written = shim.count(Shim.SYNC), load.written()
        shim.heal()
        load.expect_only("put", 200, 201)
        assert written > 2 * syncs, (written, syncs)
        load.verify_new_tokens(gate)


# ---- The n-th call -------------------------------------------------------------------------------


def drive(scene, redis, shim, data, value_bytes, tune=lambda: None):
    """A short life on a new data directory, from its creation to its stop. Returns the books and how
    it ended: an exit status, or None where it would not start."""
    empty(redis)
    shim.heal()
    tune()
    gate = scene.gateway(redis=redis, data=data, env=shim.env, expect_exit=True)
    load = Load(gate, workers=1, resources=3, value_bytes=value_bytes, pause_s=0)
    eventually(lambda: "listening" in gate.log() or not gate.running(), what="a start or an end")
    if gate.running() or "listening" in gate.log():
        gate.await_listening()
        load.turns(TURNS)
    if gate.running():
        gate.signal(signal.SIGTERM)
    return load, gate.wait()


def look_again(scene, redis, data, load, name):
    """On the disk that works again: it starts, and the books agree."""
    empty(redis)
    gate = scene.gateway(redis=redis, data=data)
    try:
        load.verify_new_tokens(gate)
    except AssertionError as error:
        raise AssertionError(f"after {name}: {error}") from error
    assert gate.stop() == 0
    shutil.rmtree(gate.data_dir)


def each_nth(call, error, allowed, for_ever=False):
    with Scene() as scene:
        redis, shim = scene.redis(), Shim(scene.folder)
        for value_bytes in (SMALL, BIG):
            load, status = drive(scene, redis, shim, "clean", value_bytes)
            assert status == 0 and load.written() == 2 * TURNS, (status, load.statuses)
            total = shim.count(call)
            look_again(scene, redis, "clean", load, "a clean run")
            few = 4 if not SOAK else 50 if value_bytes == BIG else total
            for nth in sorted(RANDOM.sample(range(1, total + 1), min(few, total))):
                name = f"n{nth}"
                load, status = drive(scene, redis, shim, name, value_bytes,
                                     lambda n=nth: shim.fail(call, error, n, for_ever))
                assert status in allowed, (nth, status, load.gate.log())
                look_again(scene, redis, name, load, f"call {nth} of {total}")


IO_ERROR = (0, 65, 74)  # not noticed (a checkpoint at the end), at the start, later
for name_, call_ in CALLS.items():  # D6, D7
    add_case(f"io_error_at_the_nth_{name_}",
             lambda call=call_: each_nth(call, errno.EIO, IO_ERROR))
add_case("io_error_from_the_nth_write_on",
         lambda: each_nth(Shim.WRITE, errno.EIO, IO_ERROR, for_ever=True))
add_case("disk_full_at_the_nth_write",  # D4
         lambda: each_nth(Shim.WRITE, errno.ENOSPC, IO_ERROR))
add_case("disk_full_from_the_nth_write_on",
         lambda: each_nth(Shim.WRITE, errno.ENOSPC, IO_ERROR, for_ever=True))
for name_, call_ in CALLS.items():  # C4, C6, C7
    add_case(f"kill_9_at_the_nth_{name_}",
             lambda call=call_: each_nth(call, Shim.KILL, (-signal.SIGKILL, 0)))


# ---- Power cuts ----------------------------------------------------------------------------------


def cut_power(scene, redis, shim, data, load, image, seconds, keep, tune=lambda: None):
    """Serves for so long, loses power, returns what stands on the disk."""
    shim.heal()
    tune()
    gate = scene.gateway(redis=redis, data=data, env=shim.journaling())
    load.gate = gate
    load.verify_new_tokens(gate)
    with load.running():
        time.sleep(seconds)
        gate.kill()
    return shim.after_power_cut(image, RANDOM, keep)


@case
def power_cut_loses_nothing_acknowledged():  # D8, C4, C7, I7
    with Scene() as scene:
        redis, shim = scene.redis(), Shim(scene.folder)
        data, image = "data", {}
        load = Load(None, workers=6, value_bytes=3000, ttl_ms=500, pause_s=0)
        for round_ in range(300 if SOAK else 10):
            keep = RANDOM.choice([0, 0.1, 0.5, 0.9, 1])
            image = cut_power(scene, redis, shim, data, load, image, RANDOM.uniform(0, 0.6), keep)
            write_image(scene.folder / data, image)
            empty(redis)
        load.gate = scene.gateway(redis=redis, data=data)
        load.verify_new_tokens(load.gate)
        load.expect_progress(50, 100)


@case
def power_cut_at_the_start_of_a_new_store():  # D8: the creation itself
    with Scene() as scene:
        redis, shim = scene.redis(), Shim(scene.folder)
        for round_ in range(100 if SOAK else 8):
            empty(redis)
            data = f"data{round_}"
            shim.heal()
            shim.fail(Shim.WRITE, Shim.KILL, nth=RANDOM.randrange(1, 30))
            gate = scene.gateway(redis=redis, data=data, env=shim.journaling(), expect_exit=True)
            eventually(lambda: "listening" in gate.log() or not gate.running())
            gate.kill()
            image = shim.after_power_cut({}, RANDOM, RANDOM.choice([0, 0.5, 1]))
            write_image(gate.data_dir, image)
            empty(redis)
            gate = scene.gateway(redis=redis, data=data)
            assert gate.acquire("r").token >= 1
            gate.kill()  # it would claim the emptied Redis for this round's store


@case
def a_disk_that_lies_about_syncs_is_found_out():  # D9: the test above can see a loss
    with Scene() as scene:
        redis, shim = scene.redis(), Shim(scene.folder)
        for round_ in range(5):
            load = Load(None, workers=4, value_bytes=3000, ttl_ms=500)
            data = f"data{round_}"
            empty(redis)
            image = cut_power(scene, redis, shim, data, load, {}, 0.3, 0.5,
                              tune=lambda: shim.set(lying=1))
            write_image(scene.folder / data, image)
            empty(redis)
            gate = scene.gateway(redis=redis, data=data, expect_exit=True)
            eventually(lambda: "listening" in gate.log() or not gate.running())
            if not gate.running():
                assert gate.wait() == 65, gate.log()  # damaged, and refused
                return
            gate.await_listening()
            try:
                load.verify_new_tokens(gate)
            except AssertionError:
                return
            gate.kill()
        raise AssertionError("half of all writes were dropped, and nothing was missing")


if __name__ == "__main__":
    print(f"SEED={SEED}")
    run_cases()
