"""fill.py - large stores, quickly: rows put into the tables of a store whose gateway is stopped.

    data_dir = new_store(lab)                  # the gateway creates it, so that the tables are its own
    fill(data_dir, resources=1_000_000)        # each leased (token 1) and with a record of 100 bytes
    fill_ledger(data_dir, rows=10_000_000)

Resources are called bench:1000000, bench:1000001, ... so that all names have the same length.
"""
import contextlib
import os
import sqlite3
import time

FIRST_NAME = 1_000_000
TTL_MS = 86_400_000
LEDGER_WRITE = 6  # enum ledger_kind

SERIES = "WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < :count)"


def new_store(lab):
    data_dir = lab.path("data")
    gate = lab.gateway(data_dir=data_dir)
    gate.stop()
    lab.processes.remove(gate)
    return data_dir


@contextlib.contextmanager
def _opened(data_dir):
    db = sqlite3.connect(data_dir / "fencegate.db", isolation_level=None)
    # A crash in here costs nothing: the store is thrown away.
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -200000"):
        db.execute(f"PRAGMA {pragma}").fetchall()
    db.execute("BEGIN")
    yield db
    db.execute("COMMIT")
    db.close()
    os.sync()  # else the gateway's first commit waits for all of it


def fill(data_dir, resources):
    now = {"count": resources, "first": FIRST_NAME, "ttl": TTL_MS, "wall": int(time.time() * 1000),
           "boot": int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)}
    with _opened(data_dir) as db:
        db.execute(f"{SERIES} INSERT INTO resources (id, name, mark, lease_limit)"
                   " SELECT n, 'bench:' || (:first + n - 1), 1, 1 FROM series", now)
        db.execute(f"{SERIES} INSERT INTO leases (resource_id, token, secret, ttl_ms, lease_limit,"
                   " acquired_at_ms, waited_ms, acquired_boot_ms, deadline_boot_ms)"
                   " SELECT n, 1, randomblob(16), :ttl, 1, :wall, 0, :boot, :boot + :ttl FROM series",
                   now)
        db.execute(f"{SERIES} INSERT INTO records (resource_id, key, version, token, updated_at_ms,"
                   " content_type, value) SELECT n, 'value', 1, 1, :wall, 'application/json',"
                   " randomblob(100) FROM series", now)


def fill_ledger(data_dir, rows, resources):
    now = {"count": rows, "resources": resources, "wall": int(time.time() * 1000),
           "kind": LEDGER_WRITE}
    with _opened(data_dir) as db:
        db.execute(f"{SERIES} INSERT INTO ledger (seq, at_ms, kind, resource_id, token, key, version)"
                   " SELECT n, :wall - :count + n, :kind, n % :resources + 1, 1, 'value',"
                   " n / :resources + 1 FROM series", now)
