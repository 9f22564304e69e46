#!/usr/bin/python3
"""test_fence_cli_faults.py - the commands of `fence` but run, where something is wrong around them:
signals, an output that takes nothing, terminals, gateways that are away or are none.

What must hold for `acquire`: either it exits with 0 and the lease is there and was told, or nobody
holds the resource.
"""
import collections
import json
import os
import random
import re
import signal
import socket
import time

import harness
from commands import COMMANDS, PATIENCE_S, Fence, site
from harness import case, eventually
from middleman import HALF, HANG, RESET, Middleman, answer

SOAK = bool(os.environ.get("SOAK"))
SEED = int(os.environ.get("SEED", time.time_ns() % 1000000))
LONG_MS = 300000
UNREACHABLE, OUTPUT, NOT_HELD, SIGNALLED = 69, 74, 75, 128
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# One call of each command that asks the gateway something.
CALLS = (["acquire", "-n", "r"], ["renew", "abc"], ["release", "abc"],
         ["put", "r", "k", "v", "--token", "1"], ["get", "r", "k"],
         ["rm", "r", "k", "--token", "1"], ["ls"], ["ls", "--keys", "r"], ["inspect", "r"],
         ["history", "r"], ["ls", "-o", "json"], ["renew", "-o", "json", "abc"])


def resource(gate, name="r"):
    return gate.call("GET", f"/resources/{name}").json()


def await_waiter(gate):
    eventually(lambda: resource(gate)["waiters"] == 1, what="a waiter")


def die_by_default():
    """A test may have been started with signals ignored."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)


def start(fence, *words, **arguments):
    return fence.start(*words, preexec_fn=die_by_default, **arguments)


# ---- Signals ------------------------------------------------------------------------------------


@case
def a_signal_ends_the_wait():
    with site() as (scene, gate, fence):
        gate.acquire("r", ttl_ms=LONG_MS)
        for number in ENDING:
            process = start(fence, "acquire", "r")
            await_waiter(gate)
            process.send_signal(number)
            out, err = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, out, err) == (SIGNALLED + number, b"", b""), (out, err)
            eventually(lambda: resource(gate)["waiters"] == 0, what="leaving the queue")


@case
def a_signal_that_is_ignored_from_the_start_stays_so():
    with site() as (scene, gate, fence):
        held = gate.acquire("r", ttl_ms=LONG_MS)
        process = fence.start("acquire", "r", preexec_fn=lambda: signal.signal(signal.SIGHUP,
                                                                               signal.SIG_IGN))
        await_waiter(gate)
        process.send_signal(signal.SIGHUP)
        gate.release(held)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0 and resource(gate)["holders"], (out, err)


@case
def a_signal_at_any_moment_leaves_a_lease_that_was_told_or_none():
    """Also right after the grant, before the output, in the middle of the release, and while the
    answer is on its way."""
    print(f"SEED={SEED}")
    dice = random.Random(SEED)
    with site() as (scene, gate, fence):
        started = time.monotonic()
        fence.ok("acquire", "-n", "first")
        span_s, ends = 1.5 * (time.monotonic() - started), collections.Counter()
        for number in range(400 if SOAK else 60):
            name = f"r{number}"
            process = start(fence, "acquire", "-t", "5m", "-o", "json", name)
            time.sleep(dice.uniform(0, span_s))
            process.send_signal(dice.choice(ENDING))
            out, err = process.communicate(timeout=PATIENCE_S)
            status = process.returncode
            assert err == b"", err
            ends[status] += 1
            if status == 0:
                told = json.loads(out)
                assert gate.call("GET", f"/leases/{told['lease_id']}").json()["state"] in (
                    "held", "expired"), told
                gate.call("DELETE", f"/leases/{told['lease_id']}")
            elif status > 0:  # it has seen the signal
                assert status in {SIGNALLED + ending for ending in ENDING}, status
                eventually(lambda: gate.call("GET", f"/resources/{name}").status == 404 or
                           not resource(gate, name)["holders"], what="no holder")
            else:  # before it looked for signals: nothing was asked
                assert -status in ENDING and out == b"", (status, out)
                assert gate.call("GET", f"/resources/{name}").status == 404
        print("exit statuses:", dict(ends))


@case
def the_second_signal_ends_it_at_once():
    """The lease cannot be told (a full disk), its release hangs; nobody waits for that."""
    with site() as (scene, gate, fence):
        man = scene.keep(Middleman(gate.port))
        man.rule = lambda request: HANG if request.method == "DELETE" else None
        with open("/dev/full", "wb") as full:
            process = start(Fence(man.url), "acquire", "r", stdout=full)
        eventually(lambda: any(request.method == "DELETE" for request in man.requests),
                   what="the release")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        status = process.wait(PATIENCE_S)
        process.stderr.close()
        assert status in (SIGNALLED + signal.SIGINT, SIGNALLED + signal.SIGTERM), status


# ---- Standard streams ---------------------------------------------------------------------------


@case
def what_cannot_be_told_is_released():
    with site() as (scene, gate, fence):
        for form in ("text", "json", "env"):
            with open("/dev/full", "wb") as full:
                fence.refuses(OUTPUT, "acquire", "-n", "-o", form, "r", stdout=full, says="stdout")
            assert resource(gate)["holders"] == []
            done = fence("acquire", "-n", "-o", form, "r", stdout=None,
                         preexec_fn=lambda: os.close(1))
            assert done.status == OUTPUT and resource(gate)["holders"] == [], done
            reading, writing = os.pipe()
            os.close(reading)
            done = fence("acquire", "-n", "-o", form, "r", stdout=writing)
            os.close(writing)
            assert done.status == OUTPUT and resource(gate)["holders"] == [], done


@case
def an_output_that_cannot_be_written_is_74():
    with site() as (scene, gate, fence):
        lease = gate.acquire("r", ttl_ms=LONG_MS)
        gate.put("r", "k", lease.token, b"v")
        for words in (["--help"], ["--version"], ["get", "--help"], ["renew", lease.id],
                      ["put", "r", "k", "w", "--token", "1"], ["get", "r", "k"], ["ls"],
                      ["get", "r", "k", "-o", "json"], ["ls", "-o", "json"], ["ls", "--keys", "r"],
                      ["inspect", "r"], ["inspect", "-o", "json", "r"], ["history", "r"]):
            with open("/dev/full", "wb") as full:
                fence.refuses(OUTPUT, *words, stdout=full)
        with open("/dev/full", "wb") as full:
            assert fence("release", lease.id, stdout=full).status == 0  # it has nothing to print


@case
def closed_standard_streams_are_no_sockets():
    """The numbers 0 to 2 are not taken by the connection to the gateway."""
    with site() as (scene, gate, fence):
        def close_all():
            for fd in (0, 1, 2):
                os.close(fd)
        lease = gate.acquire("r", ttl_ms=LONG_MS)
        gate.put("r", "k", lease.token, b"value")
        done = fence("get", "r", "k", stdout=None, stderr=None, preexec_fn=close_all)
        assert done.status == OUTPUT, done
        done = fence("put", "r", "k", "--token", "1", preexec_fn=lambda: os.close(0))
        assert done.status == 64 and "standard input" in done.err, done
        assert fence.ok("get", "r", "k") == b"value"


@case
def a_reader_that_leaves_ends_a_list():
    with site() as (scene, gate, fence):
        for number in range(1200):
            gate.call("PUT", f"/resources/{number}{'x' * 150}", {"limit": 1})
        process = fence.start("ls", "-o", "json")
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE_S) == OUTPUT
        assert process.stderr.read().startswith(b"fence: stdout: ")
        process.stderr.close()


@case
def colour_is_for_terminals_only():
    with site() as (scene, gate, fence):
        gate.put("r", "k", 9, b"v")
        gate.acquire("r", ttl_ms=LONG_MS)
        gate.put("r", "k", 9, b"v")
        terminal = fence.with_env(TERM="xterm", NO_COLOR="")
        for words in (["ls"], ["history", "r"]):
            coloured = terminal.on_terminal(*words)
            plain = terminal.with_env(NO_COLOR="1").on_terminal(*words)
            assert "\033[3" in coloured and "\033" not in plain, coloured
            assert "\033" not in terminal.with_env(TERM="dumb").on_terminal(*words)
            assert "\033" not in terminal.ok(*words).decode()
            shown = [re.sub(r"\d+ s", "", text) for text in
                     (re.sub("\033\\[\\d*m", "", coloured), plain)]
            assert shown[0] == shown[1], shown  # colour moves nothing


@case
def who_sits_at_a_terminal_is_told():
    with site() as (scene, gate, fence):
        lease = gate.acquire("r", ttl_ms=LONG_MS)
        terminal = fence.with_env(TERM="xterm")
        text = terminal.on_terminal("acquire", "-t", "5m", "r", once="fence: waiting for r\r\n",
                                    then=lambda: gate.release(lease))
        assert "lease id" in text, text
        mine = fence.json("acquire", "-n", "-o", "json", "s")["lease_id"]
        text = terminal.on_terminal("release", mine)
        assert re.fullmatch(r"fence: release: held for .* m?s\n", text), text
        assert fence("release", mine).err.count("\n") == 1


# ---- Gateways -----------------------------------------------------------------------------------


@case
def no_gateway_is_69():
    fence = Fence()
    for words in CALLS:
        fence.refuses(UNREACHABLE, *words, says="cannot be reached")
    Fence("http://nowhere.invalid").refuses(UNREACHABLE, "ls")


@case
def a_gateway_that_cannot_serve_is_69():
    """Without Redis there are no leases; the store goes on."""
    with harness.Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        fence = Fence(gate.port)
        lease = gate.acquire("r", ttl_ms=LONG_MS)
        redis.kill()
        fence.refuses(UNREACHABLE, "acquire", "-n", "s", says="redis_unavailable")
        fence.refuses(UNREACHABLE, "acquire", "-w", "1s", "s", says="redis_unavailable")
        fence.refuses(UNREACHABLE, "renew", lease.id, says="redis_unavailable")
        assert fence.ok("put", "r", "k", "v", "--token", str(lease.token)) == b"v1\n"
        text = fence.ok("ls").decode()
        assert re.search(r"^r +held +1 +1 +0 +1 +somebody \(\?\)$", text, re.M), text
        fence.ok("release", lease.id)


NONSENSE = (
    answer(200, b"<html>It works!</html>"), answer(502, b"<html>Bad Gateway</html>"),
    answer(404, b"Not Found"), answer(200, b"", "application/json"),
    answer(200, b"[1]", "application/json"), answer(200, b"{}", "application/json"),
    answer(200, b'{"items":{},"next_cursor":null,"lease_id":7}', "application/json"),
    answer(200, b'{"items":[1],"next_cursor":null,"fencing_token":"1"}', "application/json"),
    answer(200, b'{"items":[]}', "application/json"),
    answer(200, b'{"items":[],"next_cursor":7}', "application/json"),
    answer(200, b'{"items":[],"next_cursor":""}', "application/json"),
    answer(200, b'{"items":[],"next_cursor":null', "application/json"),
    answer(409, b'{"code":"lease_held"}', "application/problem+json"),
    answer(201, b'{"lease_id":"../../x\\u001b","resource":"r"}', "application/json"),
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n\r\n", b"\0\xff\r\n\r\n", RESET, b"")


def hang_up(man):
    """The connections are closed instead of an answer."""
    for link in list(man.links):
        link.shutdown(socket.SHUT_RDWR)
    return b""


@case
def an_answer_that_is_not_one_of_fencegate_is_69():
    with site() as (scene, gate, _):
        gate.acquire("r", ttl_ms=LONG_MS)
        man = scene.keep(Middleman(gate.port))
        fence, wrong = Fence(man.url), []
        for nonsense in NONSENSE:
            man.rule = lambda request, spoilt=nonsense: spoilt or hang_up(man)
            for words in CALLS:
                done = fence(*words)
                if done.status != UNREACHABLE or done.out or done.err.count("\n") != 1:
                    wrong.append((nonsense, words, done))
    assert not wrong, wrong


@case
def a_list_that_never_ends_is_given_up():
    with site() as (scene, gate, _):
        man = scene.keep(Middleman(gate.port))
        fence = Fence(man.url)
        page = answer(200, b'{"items":[{"resource":"r"}],"next_cursor":"on"}', "application/json")
        man.rule = lambda request: page
        for words in (["ls"], ["ls", "-o", "json"], ["history", "r"], ["ls", "--keys", "r"]):
            done = fence(*words)
            assert done.status == UNREACHABLE and "not a page of a list" in done.err, done
            assert done.out, "what came before stands"


@case
def what_a_gateway_sends_cannot_steer_a_terminal():
    hostile = "\x1b]0;owned\x07\x1b[2J\r\n\x9b31m\u2028\u202e.txt"
    row = {"fenced": True, "limit": 1, "highest_fencing_token": 1, "waiters": 0, "seq": 1,
           "fencing_token": 1, "expires_in_ms": 10, "released": True, "expired": False,
           "held_ms": 1, "holders": [{"fencing_token": 1, "owner": hostile, "expires_in_ms": 5}]}
    row.update({name: hostile for name in ("resource", "key", "at", "kind", "owner", "reason",
                                           "content_type", "updated_at")})
    problem = {"type": "x", "title": "t", "status": 503, "detail": hostile, "retryable": True,
               "code": "draining\x1b[2J"}
    with site() as (scene, gate, _):
        man = scene.keep(Middleman(gate.port))
        fence = Fence(man.url, NO_COLOR="1")
        whole = {"items": [row], "next_cursor": None, **row}
        for status, body in ((200, whole), (503, problem)):
            sent = answer(status, json.dumps(body).encode(), "application/json")
            man.rule = lambda request, sent=sent: sent
            for words in CALLS:
                if words[0] in ("acquire", "put", "get", "rm") and status == 200:
                    continue  # they print nothing of this
                done = fence(*words)
                assert done.status == (0 if status == 200 else UNREACHABLE), (words, done)
                shown = done.err + (done.out.decode() if "json" not in words else "")
                bad = [c for c in shown if not c.isprintable() and c != "\n"]
                assert not bad, (words, bad, shown)
                if status == 200 and words[0] in ("ls", "history", "inspect"):
                    assert "json" in words or "\\u001b]0;owned\\u0007\\u001b[2J\\r\\n" in shown, shown
                    assert fence.on_terminal(*words).replace("\n", "").isprintable(), words


@case
def half_an_answer_and_none_are_69():
    """It takes as long as the client's patience, so all are asked at the same time."""
    with site() as (scene, gate, _):
        gate.acquire("r", ttl_ms=LONG_MS)
        running = []
        for way in (HALF, HANG):
            man = scene.keep(Middleman(gate.port))
            man.rule = lambda request, spoilt=way: spoilt
            for words in CALLS if SOAK else CALLS[:4]:
                running.append((words, start(Fence(man.url), *words)))
        for words, process in running:
            out, err = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, out) == (UNREACHABLE, b""), (words, process.returncode, err)
            assert err.startswith(b"fence: ") and err.count(b"\n") == 1, (words, err)


@case
def the_secret_of_a_lease_is_never_said():
    with site() as (scene, gate, fence):
        lease = gate.acquire("r", ttl_ms=LONG_MS)
        for words in (["renew", lease.id + "/"], ["release", lease.id], ["release", lease.id],
                      ["renew", lease.id],
                      ["put", "r", "k", "v", "--token", "1", "--lease-id", lease.id]):
            assert lease.id not in fence(*words).err
            assert lease.id not in Fence()(*words).err


assert set(COMMANDS) - {"run"} == {words[0] for words in CALLS}
harness.run_cases()
