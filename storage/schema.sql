-- schema.sql - the store's tables, version 2 (PRAGMA user_version).
--
-- Run once, in the transaction that creates a store. Changing it: add a migration step in database.c
-- and raise STORE_SCHEMA_VERSION; a store that was ever handed out is only ever migrated forward.
-- Times: *_at_ms are wall clock (for people), *_boot_ms are CLOCK_BOOTTIME (for durations).

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;
-- uuid            this store's name, compared with Redis' copy by every script
-- base            the mark of every resource without a row; a resource's mark is max(mark, base)
-- wall_minus_boot the offset of the two clocks at the last opening, to carry deadlines over a reboot

CREATE TABLE resources (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    mark        INTEGER NOT NULL CHECK (mark BETWEEN 0 AND 9007199254740991),
    lease_limit INTEGER CHECK (lease_limit BETWEEN 1 AND 1000), -- NULL until the first grant
    fenced      INTEGER NOT NULL DEFAULT 1 CHECK (fenced IN (0, 1))
) STRICT;

-- I1: whatever the code above it does, a mark never falls.
CREATE TRIGGER resources_mark_never_falls
BEFORE UPDATE OF mark ON resources WHEN NEW.mark < OLD.mark
BEGIN
    SELECT RAISE(ABORT, 'a mark may not fall');
END;

CREATE TRIGGER resources_never_deleted
BEFORE DELETE ON resources
BEGIN
    SELECT RAISE(ABORT, 'a mark may not be forgotten');
END;

-- Live leases (state 0) and, for a day, ended ones. I2: the primary key is the mark's value.
CREATE TABLE leases (
    resource_id      INTEGER NOT NULL REFERENCES resources (id),
    token            INTEGER NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
    secret           BLOB NOT NULL CHECK (length(secret) = 16),
    owner            TEXT,
    ttl_ms           INTEGER NOT NULL,
    lease_limit      INTEGER NOT NULL,
    state            INTEGER NOT NULL DEFAULT 0, -- enum lease_state
    acquired_at_ms   INTEGER NOT NULL,
    waited_ms        INTEGER NOT NULL,
    acquired_boot_ms INTEGER NOT NULL,
    deadline_boot_ms INTEGER NOT NULL, -- when its TTL passes by the gateway's own clock
    ended_at_ms      INTEGER,
    held_ms          INTEGER,
    remaining_ms     INTEGER,
    reason           TEXT,
    superseded_by    INTEGER,
    PRIMARY KEY (resource_id, token)
) STRICT, WITHOUT ROWID;

CREATE INDEX leases_live ON leases (resource_id, token) WHERE state = 0;
CREATE INDEX leases_ended ON leases (ended_at_ms) WHERE state <> 0;

-- Guarded records. A deleted one keeps its row (value NULL), so that its version goes on.
CREATE TABLE records (
    id            INTEGER PRIMARY KEY,
    resource_id   INTEGER NOT NULL REFERENCES resources (id),
    key           TEXT NOT NULL,
    version       INTEGER NOT NULL CHECK (version >= 1),
    token         INTEGER,
    updated_at_ms INTEGER NOT NULL,
    content_type  TEXT,
    value         BLOB,
    UNIQUE (resource_id, key)
) STRICT;

-- Append-only; pruned from its old end. `resource` stands only where the resource has no row.
CREATE TABLE ledger (
    seq         INTEGER PRIMARY KEY,
    at_ms       INTEGER NOT NULL,
    kind        INTEGER NOT NULL, -- enum ledger_kind
    resource_id INTEGER,
    resource    TEXT,
    token       INTEGER,
    owner       TEXT,
    key         TEXT,
    version     INTEGER,
    code        TEXT,
    reason      TEXT,
    ttl_ms      INTEGER,
    ended_at_ms INTEGER,
    count       INTEGER
) STRICT;

-- A resource's rows, block by block of 4096 (LEDGER_BLOCK_BITS in storage/internal.h). Within
-- a block they are sorted; appending touches the few pages of the newest one, however many
-- resources there are, where an index by resource alone would touch another page with every row.
-- A history looks into each block: some microseconds for one that has nothing of the resource.
CREATE INDEX ledger_by_block ON ledger (seq >> 12, resource_id) WHERE resource_id IS NOT NULL;
