#!/usr/bin/python3
"""test_limits.py - no descriptors, no memory, a log that nobody reads, names without end.

What runs out makes the gateway refuse, wait or die; it never spins, never half works, and is back
as soon as there is room again. What it keeps in memory, in Redis and on disk is bounded by what is
in use.
"""
import contextlib
import http.client
import json
import os
import re
import resource
import select
import signal
import threading
import time

from harness import BINARY, Scene, case, eventually, run_cases
from wire import (SEED, SOAK, Wire, acquire_request, descriptors, descriptors_return,
                  expect_memory, memory_kb, processor_s, raise_own_limit, request)

SANITIZED = any(word in BINARY for word in ("/asan/", "/tsan/"))


def calm(gate, seconds=1.0, most=0.5):
    """The gateway uses little processor time while it can do nothing."""
    used_s, started = processor_s(gate), time.monotonic()
    time.sleep(seconds)
    share = (processor_s(gate) - used_s) / (time.monotonic() - started)
    assert share < most, f"{share:.0%} of a processor for nothing"


def limited(**limits):
    """For preexec: RLIMIT_* by their names' ends."""
    def apply():
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    return apply


# ---- Descriptors and connections ----------------------------------------------------------------


class Crowd:
    """Connections that have asked; only some are answered, the others wait for them to leave."""

    def __init__(self, gate, count):
        self.waiting, self.served = [Wire(gate.port) for _ in range(count)], []
        self.refused = 0  # closed without an answer
        for wire in self.waiting:
            wire.send(request("GET", "/livez"))

    def look(self, patience_s=0.2):
        """How many have been answered when nothing more has come for a while."""
        while True:
            readable, _, _ = select.select([w.socket for w in self.waiting], [], [], patience_s)
            if not readable:
                return len(self.served)
            for wire in [w for w in self.waiting if w.socket in readable]:
                answer = wire.answer()
                assert answer is None or answer.status == 200
                self.refused += answer is None
                self.waiting.remove(wire)
                self.served.append(wire)

    def leave(self, wires, how):
        for wire in list(wires):
            how(wire)
            wires.remove(wire)


@case
def descriptors_run_out_and_come_back():  # X1 BR39 BR40
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        base = descriptors(gate)
        assert gate.stop() == 0
        for spare in (2, 5):
            gate = scene.gateway(redis=redis, preexec=limited(NOFILE=base + spare))
            held = gate.acquire("r", ttl_ms=3_600_000)  # by the one connection that stays
            for _ in range(2):
                crowd = Crowd(gate, 60)
                assert crowd.look() < 60
                calm(gate)
                assert descriptors(gate) == base + spare
                # Who is in can write, and needs no descriptor for it.
                assert gate.put("r", "k", held.token, b"x").status in (200, 201)
                # Redis goes away while there is no descriptor to reach it again, perhaps.
                redis.command("CLIENT", "KILL", "TYPE", "normal")
                crowd.leave(crowd.served, Wire.reset)
                crowd.leave(crowd.waiting, Wire.close)
                with contextlib.closing(gate.client()) as client:
                    eventually(lambda: client.try_acquire("s", ttl_ms=50).status == 201,
                               what="a lease once the others have left")
                descriptors_return(gate, base + 1, slack=0)
            assert gate.release(held).status == 200
            assert gate.log().count("\n") < 60, "a flooded log"
            assert gate.stop() == 0


@case
def who_comes_when_all_places_are_taken_gets_that_of_the_longest_idle():  # X1
    with Scene() as scene:
        gate = scene.gateway(options=("--max-connections", "16"))
        held = gate.acquire("r", ttl_ms=3_600_000)
        patient = Wire(gate.port, timeout_s=60)
        patient.send(request("POST", "/leases", [], b'{"resource":"r","wait_ms":60000}'))
        with contextlib.closing(gate.client()) as client:
            eventually(lambda: client.call("GET", "/resources/r").json()["waiters"] == 1,
                       what="a waiter")
        for count in (15, 16, 17, 60):
            for leave in (Wire.close, Wire.reset):
                crowd = Crowd(gate, count)
                eventually(lambda it=crowd: it.look(0.01) == count, what="everybody's answer")
                assert crowd.refused == 0, "cut off with a request on its way"
                calm(gate, 0.3)
                crowd.leave(crowd.served, leave)
        with contextlib.closing(gate.client()) as client:  # who waits for an answer is not idle
            assert client.call("GET", "/resources/r").json()["waiters"] == 1
            assert client.call("DELETE", f"/leases/{held.id}").status == 200
        assert patient.answer().status == 201


@case
def many_connections_write_at_once():  # X2 X4 X6 BR35
    count = min(10_000 if SOAK else 1_500, raise_own_limit(20_000) - 200)
    with Scene() as scene:
        gate = scene.gateway(options=("--max-connections", str(count + 100)))
        token = gate.acquire("r", ttl_ms=3_600_000).token
        base = descriptors(gate)
        wires = [Wire(gate.port, timeout_s=60) for _ in range(count)]
        for turn in range(2):
            for number, wire in enumerate(wires):
                wire.send(request("PUT", f"/store/r/k{number}", [f"X-Fencing-Token: {token}"], b"x")
                          if number % 2 else acquire_request(f"{turn}-{number}", 60_000))
            refused = 0
            for number, wire in enumerate(wires):
                answer = wire.answer()
                if number % 2:
                    assert answer.status == (200 if turn else 201), (number, answer)
                else:  # thousands of grants in one moment may be too many for Redis
                    refused += answer.status == 503 and answer.json()["retryable"]
                    assert answer.status in (201, 503), (number, answer)
            print(f"  {refused} of {count // 2} grants refused")
        eventually(lambda: gate.try_acquire("after").status == 201, what="the next grant")
        assert max(map(int, os.listdir(f"/proc/{gate.pid}/fd"))) > min(count, 1_024)
        for wire in wires:
            wire.close()
        descriptors_return(gate, base)


@case
def requests_to_redis_share_one_connection():  # X9
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)

        def connections():
            info = redis.command("INFO")
            return int(re.search(r"total_connections_received:(\d+)", info).group(1))

        before = connections()
        for number in range(300):
            gate.release(gate.acquire(f"r{number}"))
        assert connections() - before == 1  # our own INFO


# ---- Memory -------------------------------------------------------------------------------------


def virtual_bytes(gate):
    status = open(f"/proc/{gate.pid}/status").read()
    return int(re.search(r"VmSize:\s*(\d+)", status).group(1)) * 1024


def devour(gate, acknowledged, token):
    """Takes memory until the gateway is dead or 200 clients have asked for a megabyte each."""
    wires = []
    with contextlib.suppress(OSError):
        for number in range(200):
            with contextlib.closing(gate.client()) as client:
                value = b"%06d" % number * 100_000
                answer = client.put("r", f"k{number}", token, value)
                if answer.status == 201:
                    acknowledged[f"k{number}"] = value
                else:
                    assert answer.status in (503, 507), answer
            wire = Wire(gate.port, receive_bytes=4096)
            wire.send(request("GET", f"/store/r/k{number}") * 3)
            wires.append(wire)
            if not gate.running():
                break
    return wires


@case
def without_memory_it_dies_and_has_forgotten_nothing():  # X8
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis, data="plain")
        size = virtual_bytes(gate)
        gate.stop()
        redis.command("FLUSHALL")
        ends = []
        for megabytes in () if SANITIZED else (8, 24):  # shadow memory alone is more
            redis.command("FLUSHALL")
            data = f"data{megabytes}"
            gate = scene.gateway(redis=redis, data=data,
                                 preexec=limited(AS=size + megabytes * 1_048_576))
            token = gate.acquire("r", ttl_ms=3_600_000).token
            acknowledged = {}

            wires = []
            with contextlib.suppress(http.client.HTTPException):
                wires = devour(gate, acknowledged, token)
            for wire in wires:
                wire.reset()
            time.sleep(0.2)
            if gate.running():
                assert gate.client().call("GET", "/livez").status == 200
                gate.kill()
            else:
                assert -gate.wait() == signal.SIGABRT or gate.wait() == 74, gate.wait()
            ends.append(gate.process.returncode)
            # All that was acknowledged is there, and the holder is still the holder.
            gate = scene.gateway(redis=redis, data=data)
            for key, value in acknowledged.items():
                assert gate.get("r", key).body == value, key
            assert gate.put("r", "end", token, b"x").status == 201
            assert gate.try_acquire("r").code == "lease_held"
            gate.kill()
        print(f"  ended with {ends}")
        assert SANITIZED or -signal.SIGABRT in ends, "the limits were too generous to show anything"


class Rounds:
    """Many connections, each with one request at a time: as many commits share an fsync."""

    def __init__(self, gate, count=100):
        self.wires = [Wire(gate.port, timeout_s=60) for _ in range(count)]

    def ask(self, requests, status):
        """The answers to at most as many requests as there are connections."""
        pairs = list(zip(self.wires, requests))
        for wire, data in pairs:
            wire.send(data)
        answers = [wire.answer() for wire, _ in pairs]
        assert all(answer.status == status for answer in answers), answers
        return answers

    def come_and_go(self, names):
        """Acquires and releases each name."""
        for start in range(0, len(names), len(self.wires)):
            some = names[start:start + len(self.wires)]
            leases = self.ask([acquire_request(name, 60_000) for name in some], 201)
            self.ask([request("DELETE", answer.headers["location"]) for answer in leases], 200)

    def close(self):
        for wire in self.wires:
            wire.close()


@case
def names_that_come_and_go_leave_little():  # X3 X10: the gateway keeps nothing per name
    count = 1_000_000 if SOAK else 20_000
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        names = [f"name-{number}" for number in range(count)]
        rounds = Rounds(gate)
        rounds.come_and_go(names[:count // 2])
        half_kb = memory_kb(gate)
        rounds.come_and_go(names[count // 2:])
        grown = (memory_kb(gate) - half_kb) * 1024 / (count / 2)
        print(f"  {memory_kb(gate)} kB after {count} names; the last half: {grown:.0f} bytes each")
        # The page caches may still be filling; then nothing grows any more.
        expect_memory(gate, half_kb, 16_000)

        # Redis holds a counter for each, which goes by itself in a day.
        eventually(lambda: redis.command("DBSIZE") == count + 1, what="the last removals")
        keyspace = redis.command("INFO", "keyspace")
        found = re.search(r"keys=(\d+),expires=(\d+)", keyspace)
        assert (int(found.group(1)), int(found.group(2))) == (count + 1, count), keyspace
        assert redis.command("EXISTS", "fencegate:{name-1}:holders") == 0
        assert 0 < redis.command("PTTL", "fencegate:{name-1}:counter") <= 86_400_000 + 60_000
        used = int(re.search(r"used_memory:(\d+)", redis.command("INFO", "memory")).group(1))
        assert used / count < 1_000 + 4_000_000 / count, f"{used / count:.0f} bytes a name"

        # The counters gone, the marks carry on.
        redis.command("FLUSHALL")
        assert gate.acquire("name-1").token == 2


@case
def names_that_are_left_to_expire_leave_little():  # X3
    count = 20_000 if SOAK else 2_000
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        rounds = Rounds(gate)
        for start in range(0, count, 100):
            rounds.ask([acquire_request(f"n{start + i}", 2_000) for i in range(100)], 201)
        keyspace = redis.command("INFO", "keyspace")
        found = re.search(r"keys=(\d+),expires=(\d+)", keyspace)
        keys, expires = int(found.group(1)), int(found.group(2))
        assert expires == keys - 1 and keys <= 2 * count + 1, keyspace  # all but the store's id


# ---- Refusals -----------------------------------------------------------------------------------


@case
def a_flood_of_refused_writes_is_counted_not_kept():  # X6 X7
    seconds = 60 if SOAK else 3
    with Scene() as scene:
        gate = scene.gateway()
        stale = gate.acquire("r")
        gate.release(stale)
        live = gate.acquire("r", ttl_ms=3_600_000)
        refused, failures, stop = [0] * 4, [], threading.Event()
        flood = request("PUT", "/store/r/k", [f"X-Fencing-Token: {stale.token}"], b"x") * 50

        def attack(slot):
            try:
                with Wire(gate.port) as wire:
                    while not stop.is_set():
                        wire.send(flood)
                        for _ in range(50):
                            assert wire.answer().status == 412
                        refused[slot] += 50
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=attack, args=(slot,)) for slot in range(len(refused))]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        before_kb, written, started = memory_kb(gate), 0, time.monotonic()
        while time.monotonic() < started + seconds:
            written += 1
            assert gate.put("r", "k", live.token, b"%d" % written).status in (200, 201)
        stop.set()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        lasted = time.monotonic() - started + 0.5
        total = sum(refused)
        print(f"  {total} refused, {written} written in {lasted:.1f} s")
        assert written > 5 * seconds, "the holder was hardly served"
        expect_memory(gate, before_kb, 16_000)

        # Each refusal is in the ledger, as a row or in a count.
        time.sleep(1.1)
        gate.put("r", "k", live.token, b"end")
        rows = gate.history("r")
        kept = sum(row["kind"] == "refuse" for row in rows)
        counts = [row["count"] for row in rows if row["kind"] == "refused_dropped"]
        assert kept <= 100 * (lasted + 3), (kept, lasted)
        assert len(counts) <= lasted + 3, counts
        assert kept + sum(counts) == total, (kept, sum(counts), total)
        assert sum(row["kind"] == "write" for row in rows) == written + 1


# ---- The log ------------------------------------------------------------------------------------


class PipedGateway:
    """A gateway whose stderr is a pipe that is read only when we want to."""

    def __init__(self, scene, *options):
        self.reader, writer = os.pipe()
        self.gate = scene.gateway(options=options, expect_exit=True,
                                  preexec=lambda: os.dup2(writer, 2))
        os.close(writer)
        self.text = b""
        os.set_blocking(self.reader, False)
        eventually(lambda: b"listening" in self.read(), what="the gateway")
        self.gate.port = int(re.search(rb"listening.*http://[^\s\"]*:(\d+)", self.text).group(1))

    def read(self):
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.reader, 65536):
                self.text += data
        return self.text

    def ask(self, count):
        with Wire(self.gate.port) as wire:
            for start in range(0, count, 100):
                wire.send(request("GET", "/livez") * 100)
                assert all(wire.answer().status == 200 for _ in range(100))


@case
def a_log_that_nobody_reads_blocks_nobody():  # X7
    count = 5_000
    for log_format in ("text", "json"):
        with Scene() as scene:
            piped = PipedGateway(scene, "--log-level", "debug", "--log-format", log_format)
            piped.ask(count)
            lease = piped.gate.acquire("r")
            assert piped.gate.put("r", "k", lease.token, b"x").status == 201
            # Read again: whole lines, and one that says how many were lost.
            piped.read()
            piped.ask(100)
            text = piped.read().decode()
            lines = text.split("\n")
            assert lines.pop() == ""
            lost = [int(number) for number in
                    re.findall(r'log lines lost"?,?[ "]*count[ "]*[=:] ?(\d+)', text)]
            assert len(lost) == 1 and lost[0] > 0, (lost, lines[-3:])
            seen = sum("/livez" in line for line in lines)
            assert seen < count and count + 100 <= seen + lost[0] <= count + 110, (seen, lost)
            if log_format == "json":
                assert all(json.loads(line)["msg"] for line in lines)
            assert piped.gate.stop() == 0
            os.close(piped.reader)


@case
def a_log_whose_reader_has_died_stops_nothing():  # X7
    with Scene() as scene:
        piped = PipedGateway(scene, "--log-level", "debug")
        os.close(piped.reader)
        piped.ask(200)
        lease = piped.gate.acquire("r")
        assert piped.gate.put("r", "k", lease.token, b"x").status == 201
        assert piped.gate.stop() == 0


@case
def a_log_on_a_full_disk_stops_nothing():  # X7
    with Scene() as scene, open("/dev/full", "wb") as full:
        gate = scene.gateway(options=("--log-level", "debug"), expect_exit=True,
                             preexec=lambda: os.dup2(full.fileno(), 2))
        # Nothing says where it listens: ask the kernel.
        gate.port = eventually(lambda: listening_port(gate), what="the gateway")
        lease = gate.acquire("r")
        assert gate.put("r", "k", lease.token, b"x").status == 201
        assert gate.stop() == 0


def listening_port(gate):
    sockets = {os.readlink(entry.path) for entry in os.scandir(f"/proc/{gate.pid}/fd")
               if os.path.islink(entry.path)}
    for line in open("/proc/net/tcp").readlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
            return int(fields[1].partition(":")[2], 16)
    return None


if __name__ == "__main__":
    print(f"SEED={SEED}")
    run_cases()
