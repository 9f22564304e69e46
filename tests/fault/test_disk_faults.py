#!/usr/bin/python3
"""test_disk_faults.py - the disk is full, read-only, or gives back another file than it was given.

A full disk costs what needs room, and nothing when there is room again. A store that is damaged, lost or
not ours is refused with one clear line and left as it is, never created anew: that would set every mark
to 0.

Row numbers are those of the catalogue of failure modes, see README.md. SOAK=1 makes it longer, SEED
repeats a run.
"""
import contextlib
import os
import resource
import shutil
import signal
import sqlite3
import threading
import time

from disks import FILES, Disk, may_mount, take_own_mounts
from harness import Scene, case, eventually, run_cases
from load import Load
from outages import LONG_MS, RANDOM, SEED, SOAK, empty, expect, holders_key, recovers

FULL = {"storage_full", "store_unavailable"}


def refuses(gate, *words, status=65):
    """Ends at the start, with one line that says why."""
    assert gate.wait() == status, (gate.process.returncode, gate.log())
    lines = [line for line in gate.log().splitlines() if " ERROR " in line]
    assert len(lines) == 1 and all(word in lines[0] for word in words), gate.log()


def full(load):
    """How many answers said that the disk is full."""
    return sum(n for (_, status, _), n in list(load.statuses.items()) if status == 507)


def ready(gate):
    return gate.call("GET", "/readyz").status == 200


# ---- Full ----------------------------------------------------------------------------------------


@case
def full_in_mid_batch_under_load():  # D4
    if not may_mount():
        return
    with Scene() as scene:
        disk = scene.keep(Disk(scene.folder / "disk", kib=24576))
        redis = scene.redis()
        gate = scene.gateway(redis=redis, data="disk")
        load = Load(gate, workers=8, value_bytes=2000, pause_s=0)
        with load.running():
            for _ in range(20 if SOAK else 2):
                written = load.written()
                eventually(lambda: load.written() > written + 50, what="writes")
                disk.fill()
                refused = full(load)
                eventually(lambda: full(load) > refused + 20, what="507")
                resource_, key = next(iter(load.stored))
                assert gate.get(resource_, key).status == 200  # reads go on
                eventually(lambda: not ready(gate), what="a failing store")
                time.sleep(RANDOM.uniform(0, 1))
                disk.free()
                eventually(lambda: ready(gate), what="a store that works again")
        load.expect_only("put", 200, 201, 412, 507)
        assert {code for op, status, code in load.statuses if status == 507} == {"storage_full"}
        load.verify_new_tokens(gate)
        assert len(gate.log()) < 100000, "one line for each refused write"
        gate.kill()
        load.verify_new_tokens(scene.gateway(redis=redis, data="disk"))


@case
def full_during_a_grant():  # D4
    if not may_mount():
        return
    with Scene() as scene:
        disk = scene.keep(Disk(scene.folder / "disk", kib=2048))
        redis = scene.redis()
        gate = scene.gateway(redis=redis, data="disk")
        held = gate.acquire("held", ttl_ms=LONG_MS)
        disk.fill()
        names = (f"r{i}" for i in range(100000))
        name = eventually(lambda: _refused(gate, next(names)), what="507")
        # Undone in Redis: nobody holds it, and nobody waits for a TTL once there is room.
        eventually(lambda: not redis.command("EXISTS", holders_key(name)), what="the undo")
        assert gate.call("GET", f"/resources/{name}").status == 404
        assert gate.renew(held).status == 200
        assert gate.call("GET", f"/leases/{held.id}").json()["state"] == "held"
        answer = gate.release(held)
        assert answer.status == 200 or answer.code in FULL, answer.body
        assert gate.running()
        disk.free()
        eventually(lambda: ready(gate), what="a store that works again")
        lease = gate.acquire(name)
        assert lease.token >= 1
        expect(gate.release(lease), 200)
        expect(gate.release(held), 200)


def _refused(gate, name):
    answer = gate.try_acquire(name, ttl_ms=LONG_MS)
    assert answer.status == 201 or answer.code in FULL, answer.body
    return name if answer.code == "storage_full" else None


@case
def full_at_the_start():  # D4
    if not may_mount():
        return
    with Scene() as scene:
        disks = [scene.keep(Disk(scene.folder / data, kib=2048)) for data in ("old", "new")]
        redis = scene.redis()
        gate = scene.gateway(redis=redis, data="old")
        lease = gate.acquire("r", ttl_ms=LONG_MS)
        assert gate.put("r", "k", lease.token, b"x").status == 201
        assert gate.stop() == 0
        for disk in disks:
            disk.fill()
        for data in ("new", "old"):
            gate = scene.gateway(redis=redis, data=data, expect_exit=True)
            eventually(lambda: "listening" in gate.log() or not gate.running())
            if data == "old" and gate.running():
                gate.await_listening()  # it needs no room to start
                assert gate.get("r", "k").body == b"x"
                gate.stop()
                continue
            assert gate.wait() in (65, 73), (gate.process.returncode, gate.log())
            assert len([line for line in gate.log().splitlines() if " ERROR " in line]) == 1
        for disk in disks:
            disk.free()
        gate = scene.gateway(redis=redis, data="old")
        assert gate.get("r", "k").body == b"x"
        assert gate.put("r", "k", lease.token, b"y").status == 200
        gate.stop()
        empty(redis)
        assert scene.gateway(redis=redis, data="new").acquire("r").token == 1


@case
def full_with_the_private_redis_on_it():  # D4
    if not may_mount():
        return
    with Scene() as scene:
        disk = scene.keep(Disk(scene.folder / "disk", kib=24576))
        gate = scene.gateway(data="disk")
        load = Load(gate, workers=4, value_bytes=2000)
        with load.running():
            eventually(lambda: load.written() > 30, what="writes")
            disk.fill()
            eventually(lambda: full(load) + load.count("acquire", 503) > 30, what="507")
            time.sleep(1.5)  # its append-only file fails by now, too
            disk.free()
            written = load.written()
            eventually(lambda: load.written() > written + 10, what="writes")
        recovers(gate)
        load.verify_new_tokens(gate)
        assert gate.stop() == 0


@case
def a_file_size_limit_is_an_io_error():  # D5
    with Scene() as scene:
        redis = scene.redis()
        limit = 200 * 1024
        gate = scene.gateway(redis=redis, preexec=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (limit, limit)))
        load = Load(gate, workers=4, value_bytes=2000)
        with load.running():
            status = gate.wait()
        # EFBIG, as any error of a write: not a death by SIGXFSZ.
        assert status == 74 and "the store failed: stopping" in gate.log(), (status, gate.log())
        empty(redis)
        load.gate = scene.gateway(redis=redis)
        load.verify_new_tokens(load.gate)


# ---- Read-only -----------------------------------------------------------------------------------


@case
def read_only_at_the_start():  # D16; while running: disk_gone_read_only, test_disk_calls.py
    if not may_mount():
        return
    with Scene() as scene:
        disk = scene.keep(Disk(scene.folder / "disk", kib=24576))
        redis = scene.redis()
        gate = scene.gateway(redis=redis, data="disk")
        lease = gate.acquire("r", ttl_ms=LONG_MS)
        gate.kill()
        disk.remount("ro")
        gate = scene.gateway(redis=redis, data="disk", expect_exit=True)
        assert gate.wait() in (65, 73), (gate.process.returncode, gate.log())
        assert len([line for line in gate.log().splitlines() if " ERROR " in line]) == 1, gate.log()
        disk.remount("rw")
        gate = scene.gateway(redis=redis, data="disk")
        assert gate.put("r", "k", lease.token, b"x").status == 201


# ---- Another file than before --------------------------------------------------------------------


class Store:
    """A stopped gateway's data directory that a case may damage, and mend again."""

    def __init__(self, scene, clean=True):
        self.scene, self.redis = scene, scene.redis()
        self.load = Load(None, workers=4, value_bytes=500)
        gate = self.load.gate = scene.gateway(redis=self.redis)
        self.folder = gate.data_dir
        with self.load.running():
            eventually(lambda: self.load.written() > 60, what="writes")
        if clean:
            assert gate.stop() == 0
        else:
            gate.kill()
        self.copy = scene.folder / "copy"
        shutil.copytree(self.folder, self.copy)

    def path(self, file="d"):
        return self.folder / FILES[file]

    def mend(self):
        shutil.rmtree(self.folder)
        shutil.copytree(self.copy, self.folder)

    def start(self, **arguments):
        return self.scene.gateway(redis=self.redis, expect_exit=True, **arguments)

    def refused(self, *words):
        """By a gateway that leaves the file as it is."""
        before = self.path().read_bytes() if self.path().is_file() else None
        refuses(self.start(), *words)
        after = self.path().read_bytes() if self.path().is_file() else None
        assert before == after or before is None, "the file was changed"
        if before is None and after is not None:
            assert after == b"" or b"resources" not in after, "a new store was created"
            refuses(self.start(), *words)  # the second time, too
        self.mend()


@case
def damaged_files_are_refused_and_left_alone():  # D14
    with Scene() as scene:
        store = Store(scene)
        whole = store.path().read_bytes()

        def with_bytes(at, data):
            content = bytearray(whole)
            content[at:at + len(data)] = data
            store.path().write_bytes(content)

        with_bytes(3, b"X")  # "SQLXte format 3"
        store.refused("not a database")
        with_bytes(16, b"\x00\x03")  # page size
        store.refused()
        with_bytes(100, b"\x77")  # the first page's kind
        store.refused()
        with_bytes(4096, bytes(4096))  # a page of zeros
        store.refused("damaged")
        with_bytes(68, b"XXXX")  # application_id
        store.refused("not a fencegate store")
        with_bytes(0, os.urandom(len(whole)))
        store.refused("not a database")
        for count in (len(whole) - 4096, len(whole) // 2, 4096, 512, 100, 20, 1):
            store.path().write_bytes(whole[:count])
            store.refused()
        store.load.verify_new_tokens(scene.gateway(redis=store.redis))  # mended


@case
def bit_flips_never_crash_it():  # D14
    with Scene() as scene:
        store = Store(scene)
        whole = store.path().read_bytes()
        outcomes = {"refused": 0, "served": 0, "stopped": 0}
        for _ in range(1000 if SOAK else 25):
            content = bytearray(whole)
            at = RANDOM.choice([RANDOM.randrange(100), RANDOM.randrange(len(whole))])
            content[at] ^= 1 << RANDOM.randrange(8)
            store.path().write_bytes(content)
            gate = store.start()
            eventually(lambda: "listening" in gate.log() or not gate.running())
            if "listening" in gate.log():
                gate.await_listening()
                load = Load(gate, workers=1, resources=4)
                outcomes["served" if load.turns(8) else "stopped"] += 1
                gate.signal(signal.SIGTERM)
            else:
                outcomes["refused"] += 1
            assert gate.wait() in (0, 65, 74, 78), (at, gate.process.returncode, gate.log())
            store.mend()
            empty(store.redis)  # a flip may have been in the store's UUID
        assert outcomes["refused"] > 0, outcomes


@case
def a_damaged_wal_loses_at_most_what_follows():  # D14
    with Scene() as scene:
        store = Store(scene, clean=False)
        whole = store.path("w").read_bytes()
        for _ in range(200 if SOAK else 8):
            content = bytearray(whole)
            content[RANDOM.randrange(len(content))] ^= 1 << RANDOM.randrange(8)
            store.path("w").write_bytes(content)
            gate = store.start()
            eventually(lambda: "listening" in gate.log() or not gate.running())
            gate.signal(signal.SIGTERM) if gate.running() else None
            assert gate.wait() in (0, 65, 74), gate.log()
            store.mend()


@case
def a_lost_database_is_never_created_anew():  # D14
    with Scene() as scene:
        store = Store(scene)
        store.path().unlink()
        store.refused()
        store.path().write_bytes(b"")
        store.refused()
        store.path().unlink()
        empty(store.redis)  # and nobody is left who knows it
        store.refused()
        store.path().unlink()
        store.path().mkdir()
        store.refused()
        store.path().unlink()
        store.path().symlink_to(store.copy / FILES["d"])
        refuses(store.start())
        store.path().unlink()
        store.mend()
        store.load.verify_new_tokens(scene.gateway(redis=store.redis))


@case
def a_data_directory_behind_a_symbolic_link():
    with Scene() as scene:
        (scene.folder / "elsewhere" / "deep").mkdir(parents=True)
        (scene.folder / "link").symlink_to(scene.folder / "elsewhere")
        gate = scene.gateway(redis=scene.redis(), data="link/deep")
        assert gate.put("r", "k", gate.acquire("r").token, b"x").status == 201
        assert (scene.folder / "elsewhere" / "deep" / FILES["d"]).exists()


@case
def another_stores_database_is_noticed():  # D14, D17
    with Scene() as scene:
        store = Store(scene)
        empty(store.redis)
        other = scene.gateway(redis=store.redis, data="other")
        other.acquire("load:0")
        other.stop()
        shutil.copy(other.data_dir / FILES["d"], store.path())
        store.refused("store.uuid")


@case
def other_peoples_databases_are_left_alone():  # D14
    with Scene() as scene:
        store = Store(scene)

        def replaced_by(*statements):
            store.path().unlink()
            with contextlib.closing(sqlite3.connect(store.path())) as database:
                for statement in statements:
                    database.execute(statement)
                database.commit()

        replaced_by("CREATE TABLE people (name TEXT)")
        store.refused("not a fencegate store")
        replaced_by("PRAGMA application_id = 1179730260")  # ours, but no tables
        store.refused()
        replaced_by("PRAGMA user_version = 1", "CREATE TABLE meta (name TEXT, value ANY)")
        store.refused("not a fencegate store")


@case
def a_newer_store_is_refused():  # D19
    with Scene() as scene:
        store = Store(scene)
        with contextlib.closing(sqlite3.connect(store.path())) as database:
            database.execute("PRAGMA user_version = 9999")
        store.refused("schema version 9999")


@case
def a_wal_deleted_between_a_crash_and_the_start():  # D18
    with Scene() as scene:
        store = Store(scene, clean=False)
        assert store.path("w").stat().st_size > 0
        store.path("w").unlink()
        # What it held was acknowledged: a store without it is not whole.
        refuses(store.start())
        store.mend()
        store.load.verify_new_tokens(scene.gateway(redis=store.redis))


@case
def an_old_copy_restored_while_redis_knows_better():  # D17
    with Scene() as scene:
        store = Store(scene)
        old = scene.folder / "old"
        shutil.copytree(store.folder, old)
        gate = scene.gateway(redis=store.redis)
        newest = 0
        for _ in range(20):
            lease = gate.acquire("load:0", ttl_ms=LONG_MS)
            newest = lease.token
            gate.release(lease)
        assert gate.stop() == 0
        shutil.rmtree(store.folder)
        shutil.copytree(old, store.folder)
        assert scene.gateway(redis=store.redis).acquire("load:0").token > newest


@case
def the_database_deleted_while_it_runs():  # D15
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        load = Load(gate, workers=4)
        with load.running():
            eventually(lambda: load.written() > 20, what="writes")
            (gate.data_dir / FILES["d"]).unlink()
            assert gate.wait() == 74, gate.log()
        assert "removed" in gate.log()
        refuses(scene.gateway(redis=redis, expect_exit=True))


@case
def the_database_replaced_while_it_runs():  # D15
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        gate.acquire("r")
        copy = gate.data_dir / "copy"
        shutil.copy(gate.data_dir / FILES["d"], copy)
        copy.rename(gate.data_dir / FILES["d"])
        assert gate.wait() == 74, gate.log()


@case
def the_wal_deleted_while_it_runs():  # D15, D18
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        gate.acquire("r")
        (gate.data_dir / FILES["w"]).unlink()
        assert gate.wait() == 74, gate.log()


# ---- Other processes -----------------------------------------------------------------------------


@contextlib.contextmanager
def another_process_holds(gate, statement):
    """A transaction of another program on the same file."""
    database = sqlite3.connect(gate.data_dir / FILES["d"], isolation_level=None,
                               check_same_thread=False)
    database.execute("PRAGMA wal_autocheckpoint = 0")
    database.execute(statement)
    database.execute("SELECT count(*) FROM ledger").fetchall()
    try:
        yield database
    finally:
        database.execute("ROLLBACK")
        database.close()


@case
def the_wal_stays_bounded_with_a_slow_reader():  # D10, BR29
    limit = 64 << 20  # PRAGMA journal_size_limit
    with Scene() as scene:
        gate = scene.gateway(redis=scene.redis())
        wal = gate.data_dir / FILES["w"]
        load = Load(gate, workers=3, value_bytes=500000, pause_s=0)
        with load.running():
            with another_process_holds(gate, "BEGIN"):
                # It cannot be used anew while somebody reads what was before.
                enough = limit + (8 << 20) if SOAK else 12 << 20
                eventually(lambda: wal.stat().st_size > enough, patience_s=300 if SOAK else 20,
                           what="a long WAL")
            if SOAK:
                eventually(lambda: wal.stat().st_size <= limit, what="a shorter WAL")
            longest, written = wal.stat().st_size, load.written()
            rounds = 1000 if SOAK else 60  # much more than it holds
            eventually(lambda: load.written() > written + rounds, patience_s=300 if SOAK else 20,
                       what="writes")
        assert wal.stat().st_size <= longest + (8 << 20), (longest, wal.stat().st_size)
        load.expect_only("put", 200, 201)
        load.verify_new_tokens(gate)


@case
def our_own_lists_do_not_keep_the_wal_long():  # D10
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        wal = gate.data_dir / FILES["w"]
        load = Load(gate, workers=2, value_bytes=100000, pause_s=0)
        done = threading.Event()

        def lists():
            client = gate.client()
            while not done.is_set():
                for target in ("/resources", "/leases", "/resources/load:0/history?limit=1000",
                               "/store/load:0"):
                    assert client.call("GET", target).status in (200, 404)

        reader = threading.Thread(target=lists, daemon=True)
        reader.start()
        with load.running():
            time.sleep(30 if SOAK else 2)
        done.set()
        reader.join(20)
        assert load.written() > 100 and wal.stat().st_size < 30 << 20, wal.stat().st_size


@case
def another_process_holds_the_write_lock():  # D1, D2, BR26, BR27
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        held = gate.acquire("held", ttl_ms=LONG_MS)
        assert gate.put("held", "k", held.token, b"x").status == 201
        load = Load(gate, workers=4, ttl_ms=12000)  # longer than the store waits for the lock
        with load.running():
            eventually(lambda: load.written() > 5, what="writes")
            with another_process_holds(gate, "BEGIN IMMEDIATE"):
                time.sleep(1)  # a while: waited for
                for _ in range(5):
                    assert gate.get("held", "k").body == b"x"  # reads go on
            written = load.written()
            eventually(lambda: load.written() > written + 5, what="writes")
            load.expect_only("put", 200, 201)
            load.expect_only("acquire", 201)
            with another_process_holds(gate, "BEGIN IMMEDIATE"):
                eventually(lambda: load.count("put", 503) + load.count("acquire", 503), what="503")
                expect(gate.call("GET", "/readyz"), 503, "store_unavailable")
                assert gate.get("held", "k").body == b"x"
            eventually(lambda: ready(gate), what="a store that works again")
            written = load.written()
            eventually(lambda: load.written() > written + 5, what="writes")
        assert {code for _, status, code in load.statuses if status == 503} == {"store_unavailable"}
        load.verify_new_tokens(gate)


@case
def another_tool_changes_the_schema():  # D21
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        load = Load(gate, workers=4)
        with load.running():
            for i in range(10):
                with contextlib.closing(sqlite3.connect(gate.data_dir / FILES["d"], timeout=20)) as tool:
                    tool.execute("PRAGMA wal_autocheckpoint = 0")
                    tool.execute(f"CREATE INDEX theirs{i} ON records (updated_at_ms)")
                    tool.execute(f"CREATE TABLE theirs_too{i} (x)")
                    tool.commit()
                written = load.written()
                eventually(lambda: load.written() > written, what="writes")
        load.expect_only("put", 200, 201)
        load.verify_new_tokens(gate)


@case
def six_gateways_want_one_directory():  # D3, D12, BR28
    with Scene() as scene:
        store = Store(scene, clean=False)
        for _ in range(10 if SOAK else 2):
            gates = [store.start() for _ in range(6)]
            eventually(lambda: sum(not gate.running() for gate in gates) == 5, what="five exits")
            serving = [gate for gate in gates if gate.running()]
            serving[0].await_listening()
            assert all(gate.wait() == 69 for gate in gates if gate is not serving[0])
            store.load.verify_new_tokens(serving[0])
            serving[0].kill()


@case
def kill_9_during_the_start():  # C8
    with Scene() as scene:
        store = Store(scene, clean=False)
        for _ in range(300 if SOAK else 20):
            gate = store.start()
            time.sleep(RANDOM.uniform(0, 0.03))
            gate.kill()
        store.load.gate = scene.gateway(redis=store.redis)
        store.load.verify_new_tokens(store.load.gate)


if __name__ == "__main__":
    take_own_mounts()
    print(f"SEED={SEED}")
    run_cases()
