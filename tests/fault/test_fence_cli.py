#!/usr/bin/python3
"""test_fence_cli.py - `fence`: help, wrong usage, and leases in each form that they are told in."""
import json
import re
import shlex

import harness
from commands import COMMANDS, Fence, site
from harness import case, eventually

LONG = ("-t", "5m")
REFUSED, USAGE, UNREACHABLE, NOT_HELD, LOST = 1, 64, 69, 75, 79
HOSTILE = ["it's", "'; exit 7; '", "$(exit 7)", "`exit 7`", '"', "\\", "a\nb", "a\n\nexport X=1\n",
           "!!", "*", "# no", "-n", "ż 漢字 🔒", "'\\''", " ", "${FENCE_TOKEN}"]


def holders(gate, resource):
    return gate.call("GET", f"/resources/{harness.segment(resource)}").json()["holders"]


# ---- Help and usage ---------------------------------------------------------------------------


@case
def help_fits_a_screen():
    fence = Fence()
    whole = fence.ok("--help").decode()
    assert whole == fence.ok("help").decode() == fence.ok("-h").decode()
    assert all(re.search(rf"^  {command} ", whole, re.M) for command in COMMANDS), whole
    for command in COMMANDS:
        text = fence.ok(command, "--help").decode()
        assert text == fence.ok("help", command).decode() == fence.ok(command, "-h").decode()
        assert text.startswith(f"Usage: fence {command} "), text
        whole += "\f" + text
    for page in whole.split("\f"):
        lines = page.splitlines()
        assert len(lines) <= 24 and max(map(len, lines)) <= 80, page
        assert not any(line.endswith(" ") for line in lines), page


@case
def the_manual_tells_every_command_option_and_variable():
    manual = (harness.ROOT / "client" / "fence.1").read_text()
    fence = Fence()
    for command in COMMANDS:
        assert f".Ss fence {command}\n" in manual, command
        for option in re.findall(r"--([a-z-]+)", fence.ok(command, "--help").decode()):
            assert re.search(rf"(Fl|,) -{option}\b", manual), (command, option)
    sources = [path.read_text() for path in (harness.ROOT / "client").glob("*.c")]
    for name in {name for text in sources for name in re.findall(r'"(FENCE_[A-Z_]+)"', text)}:
        assert name in manual, name


@case
def the_version_is_that_of_the_gateway():
    source = (harness.ROOT / "gateway" / "version.h").read_text()
    version = re.search(r'FG_VERSION "(.*)"', source).group(1)
    assert Fence().ok("--version").decode() == f"fence {version}\n"


WRONG = """\
nothing
--nothing
help nothing
acquire
acquire a b
acquire -n ''
acquire --nothing a
acquire -x a
acquire --limit
acquire a -t
acquire --no-wait=1 a
acquire --limit 0 a
acquire --limit 1001 a
acquire --limit +1 a
acquire -E 256 a
acquire -E -1 a
acquire -n -w 1s a
acquire -o yaml a
acquire -o js a
acquire -o '' a
acquire -t 49ms a
renew
renew ''
renew a/b
renew a b
renew -o env a
release
release 'a b'
release -o json a
put
put r
put r k v w
put r k -1 --token 1
put r k @/nowhere/at/all
put r k @/
put r '' v
put '' k v
put r k v --token 0
put r k v --token 01x
put r k v --token 9007199254740992
put r k v --token 1 --no-token
put r k v --no-token --lease-id x
put r k v --if-version 0
put r k v --if-version vx
rm r
rm r k --if-version absent
get r
get r k -o text
get '' k
ls a b
ls --keys
ls --keys ''
ls --keys a b c
inspect
inspect ''
inspect a b
history
history r --after x
history r --after -1"""


@case
def wrong_usage_is_told_in_one_line_and_nothing_is_sent():
    fence = Fence()  # whoever sent something would exit with 69
    for line in WRONG.splitlines():
        fence.refuses(USAGE, *shlex.split(line))
    for words in ([], ["acquire", "-n", b"\xff"], ["acquire", "-n", "r" * 201],
                  ["renew", "i" * 22, "another"], ["release", "i" * 300],
                  ["acquire", "-n", "--owner", "o" * 129, "r"],
                  ["put", "r", "k", "v", "--type", "a\r\nb: c"]):
        fence.refuses(USAGE, *words)
    for name, text in (("FENCE_URL", "nonsense"), ("FENCE_URL", "ftp://127.0.0.1"),
                       ("FENCE_WAIT_STEP", "10"), ("FENCE_WAIT_STEP", "11m"),
                       ("FENCE_WAIT_STEP", "0s")):
        fence.with_env(**{name: text}).refuses(USAGE, "acquire", "-n", "a", says=name)


@case
def durations_have_a_unit():
    with site() as (scene, gate, fence):
        for text in ("", "1", "1.5s", "-1s", "+1s", " 1s", "1s ", "1 s", "1d", "1S", "s", "1ss",
                     "1m1s", "25h", "86400001ms", "99999999999999999999h", "0x10s"):
            fence.refuses(USAGE, "acquire", "-n", "-t", text, "r")
        for text, ttl_ms in (("9999ms", 9999), ("0010s", 10000), ("2m", 120000), ("24h", 86400000)):
            assert fence.json("acquire", "-n", "-t", text, "-o", "json", text)["ttl_ms"] == ttl_ms
        assert fence.json("acquire", "-w", "0s", "-o", "json", "free")["waited_ms"] >= 0


@case
def names_that_the_gateway_does_not_take_are_wrong_usage():
    with site() as (scene, gate, fence):
        for words in (["acquire", "-n", ".."], ["acquire", "-n", "a\nb"], ["put", "..", "k", "v"],
                      ["get", "r", "."], ["rm", "r", "a\tb", "--token", "1"], ["inspect", "."],
                      ["history", "r", "--kind", "nothing"], ["ls", "--keys", "."]):
            fence.refuses(USAGE, *words)


@case
def options_stand_anywhere_and_dashes_end_them():
    with site() as (scene, gate, fence):
        fence.ok("acquire", "r", "-n", "-t", "1m")
        fence.ok("acquire", "-nt1m", "--", "-n")
        assert holders(gate, "-n")
        fence.ok("put", "--token=1", "r", "--type", "a/b", "k", "--", "-5")
        assert fence.ok("get", "r", "k") == b"-5"


# ---- Leases -------------------------------------------------------------------------------------


@case
def acquire_prints_the_lease_in_each_form():
    with site() as (scene, gate, fence):
        lease = fence.json("acquire", "-n", *LONG, "--limit", "3", "--owner", "me", "-o", "json",
                           "r")
        theirs = gate.call("GET", f"/leases/{lease['lease_id']}").json()
        assert list(lease) == ["lease_id", "resource", "owner", "fencing_token", "limit", "ttl_ms",
                               "expires_in_ms", "expires_at", "waited_ms"], lease
        assert all(lease[name] == theirs[name] for name in
                   ("lease_id", "resource", "owner", "fencing_token", "limit", "ttl_ms")), lease
        assert 0 < lease["expires_in_ms"] < 300000 and lease["expires_at"].endswith("Z"), lease
        text = fence.ok("acquire", "-n", *LONG, "r").decode()
        facts = dict(re.split(r" {2,}", line) for line in text.splitlines())
        assert list(facts) == ["resource", "token", "lease id", "owner", "expires in", "waited"]
        assert (facts["resource"], facts["token"]) == ("r", "2")
        assert re.fullmatch(r".+@.+", facts["owner"]) and facts["expires in"].startswith("4 min")
        env = fence.ok("acquire", "-n", *LONG, "-o", "env", "r").decode().splitlines()
        assert [re.fullmatch(r"export (\w+)='.*'", line).group(1) for line in env] == [
            "FENCE_URL", "FENCE_RESOURCE", "FENCE_LEASE_ID", "FENCE_TOKEN", "FENCE_OWNER",
            "FENCE_TTL_MS", "FENCE_EXPIRES_AT"]


@case
def a_shell_evaluates_whatever_the_names_hold():
    with site() as (scene, gate, fence):
        for number, text in enumerate(HOSTILE):
            resource = f"{number} {text}".replace("\n", "-")
            done = fence.with_env(OWNER=text, RESOURCE=resource).sh("""
                eval "$(fence acquire -n -t 5m -o env --owner "$OWNER" -- "$RESOURCE")" || exit
                printf '%s\\0' "$FENCE_RESOURCE" "$FENCE_OWNER" "$FENCE_TOKEN" "$FENCE_TTL_MS"
                fence put "$FENCE_RESOURCE" k v && fence release""")
            assert (done.status, done.err) == (0, ""), (text, done)
            told = done.out.decode().split("\0")
            assert told == [resource, text, "1", "300000", "v1\n"], (text, done)
            assert holders(gate, resource) == []


@case
def a_shell_that_evaluates_a_failure_fails():
    with site() as (scene, gate, fence):
        gate.acquire("r", ttl_ms=300000)
        script = 'eval "$(fence acquire {} -o env r)" && echo went on'
        for options, status in (("-n", NOT_HELD), ("-n -E 9", 9), ("-w 50ms", NOT_HELD),
                                ("-n --limit 2", REFUSED)):
            done = fence.sh(script.format(options))
            assert (done.status, done.out) == (status, b""), (options, done)
        assert Fence().sh(script.format("-n")).status == UNREACHABLE
        assert fence.sh(script.format("-n -w 1s")).status == USAGE


@case
def what_others_hold_is_not_obtained():
    with site() as (scene, gate, fence):
        held = gate.acquire("r", ttl_ms=300000)
        fence.refuses(NOT_HELD, "acquire", "-n", "r", says="acquire r: somebody else holds it")
        fence.refuses(NOT_HELD, "acquire", "-w", "100ms", "r", says="(lease_held)")
        fence.refuses(9, "acquire", "-n", "-E", "9", "r")
        assert fence.ok("acquire", "-n", "-E", "0", "r") == b""  # it is no failure: nothing is said
        fence.refuses(REFUSED, "acquire", "-n", "-E0", "--limit", "2", "r", says="limit_mismatch")
        for options in ([], ["-w", "1h"]):
            process = fence.start("acquire", *LONG, *options, "-o", "json", "r")
            eventually(lambda: gate.call("GET", "/resources/r").json()["waiters"], what="a waiter")
            gate.release(held)
            out, err = process.communicate(timeout=harness.PATIENCE_S)
            assert process.returncode == 0, err
            told = json.loads(out)
            held = harness.Lease(told["lease_id"], told["fencing_token"], None)


@case
def renew_and_release_take_an_id_or_that_of_the_environment():
    with site() as (scene, gate, fence):
        lease = gate.acquire("r", ttl_ms=60000)
        inside = fence.with_env(FENCE_LEASE_ID=lease.id)
        for renew in (lambda *words: fence.ok("renew", *words, lease.id),
                      lambda *words: inside.ok("renew", *words)):
            renewed = json.loads(renew("-t", "10m", "-o", "json"))
            assert renewed["lease_id"] == lease.id and renewed["expires_in_ms"] > 500000, renewed
            text = renew().decode()
            assert re.search(r"^expires in +59\.\d s$", text, re.M), text
            assert lease.id not in text
        inside.ok("release")
        assert holders(gate, "r") == []
        assert "before" in fence("release", lease.id).err
        inside.refuses(LOST, "renew", says="lease_released")
        assert lease.id not in fence("renew", lease.id).err


@case
def an_id_may_begin_with_a_dash():
    with site() as (scene, gate, fence):
        while not (lease := gate.acquire("r", ttl_ms=300000, limit=1000)).id.startswith("-"):
            gate.release(lease)
        for words in (["renew", lease.id, "-t", "6m"], ["renew", "-t", "6m", lease.id],
                      ["renew", "-o", "json", "--", lease.id], ["release", lease.id]):
            fence.ok(*words)
        fence.refuses(LOST, "renew", lease.id, says="lease_released")


@case
def a_lease_that_is_over_is_79():
    with site() as (scene, gate, fence):
        expired = gate.acquire("r", ttl_ms=400)
        eventually(lambda: not holders(gate, "r"), what="the end of the lease")
        fence.refuses(LOST, "renew", expired.id, says="lease_expired")
        done = fence("release", expired.id)
        assert done.status == 0 and "had run out" in done.err, done
        old = gate.acquire("r", ttl_ms=400)
        eventually(lambda: not holders(gate, "r"), what="the end of the lease")
        gate.acquire("r", ttl_ms=300000)
        revoked = gate.acquire("s")
        assert gate.call("POST", "/resources/s/revoke", {"reason": "moved \x1b[31m"}).status == 200
        for command in ("renew", "release"):
            fence.refuses(LOST, command, old.id, says="lease_superseded")
            fence.refuses(LOST, command, revoked.id, says="lease_revoked")
            fence.refuses(LOST, command, "nobody-knows-this-one", says="lease_not_found")


harness.run_cases()
