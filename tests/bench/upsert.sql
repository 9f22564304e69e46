-- upsert.sql - PostgreSQL's guarded write, for pgbench: the row changes only under a token that is not
-- smaller than the one it was written with.
\set number random(0, 999)
INSERT INTO guarded (resource, token, version, value)
VALUES ('bench:' || lpad((:number)::text, 6, '0'), 1, 1,
        '{"amount":100,"note":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}')
ON CONFLICT (resource) DO UPDATE
SET token = excluded.token, version = guarded.version + 1, value = excluded.value
WHERE guarded.token <= excluded.token RETURNING version;
