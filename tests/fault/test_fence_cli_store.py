#!/usr/bin/python3
"""test_fence_cli_store.py - `fence` put, get, rm, ls, inspect, history: what they do and print."""
import base64
import re
import unicodedata

import harness
from commands import site
from harness import case

REFUSED, USAGE, STALE = 1, 64, 80


def columns(text):
    """What it takes on a terminal."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def kept(told):
    """The value that `get -o json` tells."""
    if "value" in told:
        return told["value"].encode()
    return base64.b64decode(told["value_base64"])


# ---- Records ------------------------------------------------------------------------------------


@case
def what_was_put_is_got_byte_by_byte():
    with site() as (scene, gate, fence):
        token = str(gate.acquire("r", ttl_ms=300000).token)
        whole = bytes(range(256)) * 2000
        path = gate.data_dir.parent / "value"
        path.write_bytes(whole)
        for source, stdin, value in ((["plain"], b"no", b"plain"), ([""], b"no", b""),
                                     ([f"@{path}"], b"no", whole), (["-"], whole, whole),
                                     ([], b"from stdin\n", b"from stdin\n"), (["-"], b"", b"")):
            version = fence.ok("put", "r", "k", *source, "--token", token, stdin=stdin)
            assert re.fullmatch(rb"v\d+\n", version), version
            assert fence.ok("get", "r", "k") == value
            told = fence.json("get", "r", "k", "-o", "json")
            assert f"v{told['version']}\n".encode() == version, (told, version)
            assert kept(told) == value and told["bytes"] == len(value)
        for value in (b"a", b"ab", b"abc", b"\xff", b"\xff\xfe", b"\0\xff\0", "ż\0".encode()):
            fence.ok("put", "r", "b", "--token", token, stdin=value)
            told = fence.json("get", "r", "b", "-o", "json")
            assert kept(told) == value and ("value_base64" in told) == (b"\xff" in value), told
        fence.ok("put", "r", "k", "{}", "--token", token, "--type", "application/json; a=b")
        told = fence.json("get", "r", "k", "-o", "json")
        assert told == {"resource": "r", "key": "k", "version": 7, "fencing_token": int(token),
                        "bytes": 2, "content_type": "application/json; a=b", "value": "{}"}, told


@case
def versions_are_conditions():
    with site() as (scene, gate, fence):
        right = ("--token", str(gate.acquire("r", ttl_ms=300000).token))
        assert fence.ok("put", "r", "k", "a", "--if-version", "absent", *right) == b"v1\n"
        fence.refuses(REFUSED, "put", "r", "k", "b", "--if-version", "absent", *right)
        assert fence.ok("put", "r", "k", "b", "--if-version", "1", *right) == b"v2\n"
        fence.refuses(REFUSED, "put", "r", "k", "c", "--if-version", "1", *right,
                      says="version_mismatch")
        fence.refuses(REFUSED, "rm", "r", "k", "--if-version", "1", *right)
        assert fence.ok("rm", "r", "k", "--if-version", "2", *right) == b""
        fence.refuses(REFUSED, "rm", "r", "k", *right, says="record_not_found")
        fence.refuses(REFUSED, "get", "r", "k", says="record_not_found")
        fence.refuses(REFUSED, "get", "nowhere", "k")


@case
def the_token_of_the_environment_is_for_its_resource_only():
    with site() as (scene, gate, fence):
        lease, other = gate.acquire("r", ttl_ms=300000), gate.acquire("s", ttl_ms=300000)
        inside = fence.with_env(FENCE_RESOURCE="r", FENCE_TOKEN=str(lease.token),
                                FENCE_LEASE_ID=lease.id)
        assert inside.ok("put", "r", "k", "v") == b"v1\n"
        assert inside.ok("rm", "r", "k") == b""
        assert other.token == lease.token  # so that only the name keeps them apart
        done = inside("put", "s", "k", "v")
        assert done.status == REFUSED and "fencing_token_required" in done.err, done
        assert "FENCE_TOKEN was not sent: it is for r" in done.err, done
        assert inside.ok("put", "s", "k", "v", "--token", str(other.token)) == b"v1\n"
        inside.refuses(REFUSED, "put", "r", "k", "v", "--no-token", says="fencing_token_required")
        inside.refuses(STALE, "put", "r", "k", "v", "--lease-id", other.id, says="lease_mismatch")
        inside.with_env(FENCE_TOKEN="x").refuses(USAGE, "put", "r", "k", "v", says="FENCE_TOKEN")
        for empty in ("FENCE_RESOURCE", "FENCE_TOKEN"):
            inside.with_env(**{empty: ""}).refuses(REFUSED, "put", "r", "k", "v")
        assert inside.with_env(FENCE_LEASE_ID="").ok("put", "r", "k", "v") == b"v3\n"
        gate.call("PUT", "/resources/open", {"fenced": False})
        assert fence.ok("put", "open", "k", "v", "--if-version", "absent") == b"v1\n"


@case
def a_stale_token_is_80():
    with site() as (scene, gate, fence):
        lease = gate.acquire("r", ttl_ms=300000)
        inside = fence.with_env(FENCE_RESOURCE="r", FENCE_TOKEN=str(lease.token),
                                FENCE_LEASE_ID=lease.id)
        inside.ok("put", "r", "k", "v")
        inside.ok("release")
        inside.refuses(STALE, "put", "r", "k", "late", says="stale_fencing_token")
        inside.refuses(STALE, "rm", "r", "k")
        inside.refuses(STALE, "put", "r", "k", "v", "--token", "999", says="not_issued")
        inside.refuses(STALE, "get", "r", "k", "--token", str(lease.token))
        assert inside.ok("get", "r", "k") == b"v"  # a plain read, whatever the environment holds


@case
def a_value_that_is_too_large_is_refused():
    with site(options=("--max-body", "1024")) as (scene, gate, fence):
        gate.acquire("r", ttl_ms=300000)
        fence.refuses(REFUSED, "put", "r", "k", "--token", "1", stdin=b"x" * 1025, says="too_large")


# ---- Lists --------------------------------------------------------------------------------------


def table(text):
    """The cells of a table, by their column; what stands in a column begins or ends with it."""
    lines = text.splitlines()
    assert not any(line.endswith(" ") for line in lines), text
    head = re.split(r" {2,}", lines[0].strip())
    return [dict(zip(head, re.split(r" {2,}", line.strip()))) for line in lines[1:]]


@case
def ls_lists_resources_in_columns():
    with site() as (scene, gate, fence):
        assert fence.ok("ls") == b"" and fence.ok("ls", "-o", "json") == b""
        gate.acquire("invoice:1", ttl_ms=300000, owner="a")
        for owner in "abcde":
            gate.acquire("pool:漢字", ttl_ms=300000, owner=owner, limit=9)
        gate.release(gate.acquire("invoice:2"))
        gate.call("PUT", "/resources/open", {"fenced": False})
        gate.acquire("nameless", ttl_ms=300000)
        text = fence.ok("ls").decode()
        rows = {row["RESOURCE"]: row for row in table(text)}
        assert [rows[name]["STATE"] for name in ("invoice:1", "invoice:2", "open", "pool:漢字")] == [
            "held", "free", "unfenced", "held"], text
        assert rows["pool:漢字"]["HOLDERS"] == "5" and rows["pool:漢字"]["LIMIT"] == "9", text
        assert re.fullmatch(r"a \(.*\), b \(.*\), c \(4 min \d+ s\), \.\.\.",
                            rows["pool:漢字"]["HELD BY"]), text
        assert re.fullmatch(r"a \(4 min \d+ s\)", rows["invoice:1"]["HELD BY"]), text
        assert rows["invoice:2"]["HELD BY"] == "-" and rows["invoice:2"]["TOKEN"] == "1", text
        assert rows["nameless"]["HELD BY"].startswith("somebody ("), text
        lines = text.splitlines()
        edges = {columns(re.match(r"\S+ +", line).group()) for line in lines}
        assert len(edges) == 1, (edges, text)
        assert [row["RESOURCE"] for row in table(fence.ok("ls", "invoice:").decode())] == [
            "invoice:1", "invoice:2"]
        assert fence.ok("ls", "nothing") == b""
        page = gate.call("GET", "/resources").json()["items"]
        mine = fence.lines("ls")
        for resource in page + mine:
            for holder in resource["holders"]:
                holder.pop("expires_in_ms")
        assert mine == page


@case
def lists_go_through_all_pages():
    with site() as (scene, gate, fence):
        names = {f"r{number:04}" for number in range(2001)}
        for name in names:
            assert gate.call("PUT", f"/resources/{name}", {"limit": 1}).status == 200
        assert {row["resource"] for row in fence.lines("ls")} == names
        assert len(fence.ok("ls").splitlines()) == 2002
        assert [row["resource"] for row in fence.lines("ls", "r200")] == ["r2000"]
        for limit in range(2, 1005):
            gate.call("PUT", "/resources/r0000", {"limit": limit % 1000 + 1})
        rows = fence.lines("history", "r0000")
        assert rows == gate.history("r0000") and len(rows) > 1000
        assert fence.lines("history", "r0000", "--after", str(rows[-3]["seq"])) == rows[-2:]


@case
def ls_keys_lists_records():
    with site() as (scene, gate, fence):
        token = str(gate.acquire("a/b & c", ttl_ms=300000).token)
        keys = ["plain", "p=&+%#? /é", "漢字", "p;x"]
        for key in keys:
            fence.ok("put", "a/b & c", key, "value", "--token", token, "--type", "text/plain")
        assert {row["key"] for row in fence.lines("ls", "--keys", "a/b & c")} == set(keys)
        for prefix in ("p", "p=&+%#? ", "漢", ""):
            found = [row["key"] for row in fence.lines("ls", "--keys", "a/b & c", prefix)]
            assert sorted(found) == sorted(key for key in keys if key.startswith(prefix)), prefix
        row = next(row for row in table(fence.ok("ls", "--keys", "a/b & c").decode())
                   if row["KEY"] == "plain")
        assert (row["VERSION"], row["TOKEN"], row["BYTES"], row["TYPE"]) == ("1", "1", "5",
                                                                             "text/plain")
        fence.refuses(REFUSED, "ls", "--keys", "nowhere", says="resource_not_found")


@case
def inspect_shows_who_holds_it():
    with site() as (scene, gate, fence):
        for owner in ("worker-A", None):
            gate.acquire("r", ttl_ms=300000, limit=3, **({"owner": owner} if owner else {}))
        text = fence.ok("inspect", "r").decode()
        facts, held = text.split("\n\n")
        assert dict(re.split(r" {2,}", line) for line in facts.splitlines()) == {
            "resource": "r", "fenced": "yes", "limit": "3", "highest token": "2", "waiters": "0",
            "holders": "2"}, text
        assert [(row["TOKEN"], row["OWNER"]) for row in table(held)] == [
            ("1", "worker-A"), ("2", "-")], text
        mine = fence.json("inspect", "r", "-o", "json")
        theirs = gate.call("GET", "/resources/r").json()
        for resource in (mine, theirs):
            assert [holder.pop("expires_in_ms") > 0 for holder in resource["holders"]]
        assert mine == theirs
        gate.call("PUT", "/resources/open", {"fenced": False})
        assert b"fenced         no\n" in fence.ok("inspect", "open")
        fence.refuses(REFUSED, "inspect", "nowhere", says="resource_not_found")


@case
def history_tells_what_has_happened():
    with site() as (scene, gate, fence):
        lease = gate.acquire("r", ttl_ms=60000, owner="worker-A")
        gate.put("r", "k", lease.token, b"v")
        gate.put("r", "k", 99, b"v")
        gate.release(lease)
        gate.put("r", "k", lease.token, b"v")
        gate.call("PUT", "/resources/r", {"limit": 2})
        rows = table(fence.ok("history", "r").decode())
        shown = ("KIND", "TOKEN", "OWNER", "KEY", "DETAILS")
        seen = [[row[name] for name in shown] for row in rows]
        assert seen == [["grant", "1", "worker-A", "-", "for 1 min 0 s"],
                        ["write", "1", "worker-A", "k", "v1"],
                        ["refuse", "99", "-", "k", "fencing_token_not_issued"],
                        ["release", "1", "worker-A", "-", "-"],
                        ["refuse", "1", "worker-A", "k", "stale_fencing_token: released"],
                        ["config", "-", "-", "-", "limit 1 -> 2"]], rows
        assert all(re.fullmatch(r"[\d-]{10}T[\d:]{8}\.\d{3}Z", row["TIME"]) for row in rows), rows
        theirs = gate.history("r")
        assert fence.lines("history", "r") == theirs
        assert fence.lines("history", "r", "--kind", "refuse") == [
            row for row in theirs if row["kind"] == "refuse"]
        assert fence.lines("history", "r", "--after", str(theirs[3]["seq"])) == theirs[4:]
        fence.refuses(REFUSED, "history", "nowhere", says="resource_not_found")


harness.run_cases()
