#!/usr/bin/python3
"""test_connections.py - clients that drip, leave, never read, ask ahead, or only sit there.

Whatever they do: others are served at once, nothing of one request shows up in another, and when
they are gone every descriptor comes back and every lease they left ends with its TTL.
"""
import contextlib
import threading
import time

from harness import Scene, case, eventually, run_cases
from wire import (SEED, SOAK, Wire, acquire_request, descriptors, descriptors_return, dice,
                  expect_memory, memory_kb, processor_s, raise_own_limit, request)

SLOW_COMMIT = "before_commit=sleep(60)@*"


def live(gate):
    with contextlib.closing(gate.client()) as client:
        return client.call("GET", "/livez").status == 200


@contextlib.contextmanager
def serving(**arguments):
    """A gateway that is as it was at the end: it runs, answers, and has its descriptors back."""
    with Scene() as scene:
        gate = scene.gateway(**arguments)
        assert live(gate)
        base = descriptors(gate)
        yield gate
        gate.http and gate.http.close()
        descriptors_return(gate, base)
        assert gate.running() and live(gate)


# ---- Asking ahead -------------------------------------------------------------------------------


def pipeline(number, token):
    """Requests in one go, of which most are suspended until a commit, and who has to answer what:
    (bytes, [(request id, status, expected word)])."""
    rows = []

    def row(method, path, status, word, body=b"", *headers):
        identity = f"p{number}-{len(rows)}"
        rows.append((request(method, path, [*headers, f"X-Request-Id: {identity}"], body),
                     identity, status, word))

    with_token = f"X-Fencing-Token: {token}"
    for i in range(3):
        value = f"value {number} {i}".encode()
        row("PUT", f"/store/r/k{number}-{i}", 201, f"k{number}-{i}", value, with_token)
        row("GET", f"/store/r/k{number}-{i}", 200, value.decode())
    row("POST", "/leases", 201, f"other{number}", b'{"resource":"other%d"}' % number)
    row("PUT", f"/store/r/k{number}", 412, "not_issued", b"x", "X-Fencing-Token: 999999")
    row("POST", "/leases", 409, f"other{number}", b'{"resource":"other%d"}' % number)
    row("DELETE", f"/store/r/k{number}-1", 204, "", b"", with_token)
    row("GET", f"/store/r/k{number}-1", 404, f"k{number}-1")
    row("GET", f"/store/r/k{number}-2", 200, f"value {number} 2")
    return rows


def run_pipeline(gate, rows, pieces):
    data = b"".join(row[0] for row in rows)
    cuts = [0, *sorted(pieces(len(data))), len(data)]
    with Wire(gate.port) as wire:
        for start, end in zip(cuts, cuts[1:]):
            wire.send(data[start:end])
            if len(cuts) > 2:
                time.sleep(0.002)
        for _, identity, status, word in rows:
            answer = wire.answer()
            got = answer.headers["x-request-id"], answer.status
            assert got == (identity, status) and word in answer.body.decode(), (identity, answer)


@case
def requests_sent_ahead_are_answered_in_order():  # H10 BR36
    random = dice()
    with serving(faults=SLOW_COMMIT) as gate:
        token = gate.acquire("r", ttl_ms=3_600_000).token
        failures = []

        def client(number):
            try:
                cuts = random.randrange(4) * 5
                run_pipeline(gate, pipeline(number, token),
                             lambda most: random.sample(range(1, most), cuts))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]


@case
def who_asks_ahead_and_leaves_leaves_nothing():  # H10 H7 BR34
    random = dice()
    with serving(faults="before_commit=sleep(20)@*") as gate:
        token = gate.acquire("r", ttl_ms=3_600_000).token
        for number in range(60):
            data = b"".join(row[0] for row in pipeline(number, token))
            wire = Wire(gate.port)
            wire.send(data[:random.randrange(1, len(data) + 1)])
            if random.random() < 0.5:
                time.sleep(random.random() / 20)
            random.choice([wire.close, wire.reset, wire.half_close])()
            wire.close()
        # What was asked is a prefix: if a record is there, all before it are.
        with contextlib.closing(gate.client()) as client:
            eventually(lambda: client.get("r", "none").status == 404)
            for number in range(60):
                seen = [client.get("r", f"k{number}-{i}").status for i in (0, 2)]
                assert seen in ([200, 200], [200, 404], [404, 404]), (number, seen)


# ---- Leaving ------------------------------------------------------------------------------------


def farewells(gate, token):
    """Requests of each kind, to be cut off after every byte."""
    with_token = f"X-Fencing-Token: {token}"
    lease = gate.acquire("left-lease", ttl_ms=3_600_000)
    return [
        acquire_request("left-{}", 100),
        request("PUT", "/store/r/left", [with_token], b"value"),
        request("PUT", "/store/r/left", [with_token, "Transfer-Encoding: chunked"])
        + b"3\r\nabc\r\n0\r\n\r\n",
        request("DELETE", "/store/r/left", [with_token]),
        request("POST", f"/leases/{lease.id}/renew", [], b'{"ttl_ms":3600000}'),
        request("GET", "/store/r", ["Expect: 100-continue"]) + request("GET", "/resources"),
    ]


def leave(gate, data, at, how):
    wire = Wire(gate.port)
    wire.send(data[:at])
    {"fin": wire.close, "rst": wire.reset, "half": wire.half_close}[how]()
    wire.close()


def leave_at_every_byte(most):
    with serving(options=("--request-timeout-ms", "2000")) as gate:
        token = gate.acquire("r", ttl_ms=3_600_000).token
        requests = farewells(gate, token)
        count, turn = 0, 0
        while count < most:
            how = ("fin", "rst", "half")[turn % 3]
            for data in requests:
                # With 97 names, most are asked for while somebody who has left still has them.
                for at in range(1 + turn // 3 % 3, len(data) + 1, 3):
                    leave(gate, data.replace(b"{}", b"%d" % (count % 97)), at, how)
                    count += 1
            turn += 1
            assert gate.running()
        print(f"  {count} clients left")
        # No lease outlives its TTL, whoever had it.
        with contextlib.closing(gate.client()) as client:
            for number in range(97):
                eventually(lambda n=number: client.try_acquire(f"left-{n}").status == 201,
                           what="the end of a lease that was left")
            assert client.put("r", "left", token, b"end").status in (200, 201)


@case
def clients_leave_at_every_byte():  # BR33 BR34 N-rows: FIN, RST and half-closed
    leave_at_every_byte(10_000 if SOAK else 1_500)


@case
def clients_leave_while_their_grant_is_committed():  # BR33 BR39
    with serving(faults="before_commit=sleep(30)@*") as gate:
        for turn in range(3 if not SOAK else 30):
            wires = [Wire(gate.port) for _ in range(100)]
            for number, wire in enumerate(wires):
                wire.send(acquire_request(f"gone-{number}", 200))
            time.sleep(0.01 * turn)
            for number, wire in enumerate(wires):
                (wire.reset if number % 2 else wire.close)()
            assert live(gate)
        with contextlib.closing(gate.client()) as client:
            for number in range(100):
                eventually(lambda n=number: client.try_acquire(f"gone-{n}").status == 201,
                           what="the end of a lease that was left")


@case
def a_thousand_leave_at_once():  # BR39
    count = min(5_000 if SOAK else 1_000, raise_own_limit(20_000) - 200)
    with serving(options=("--max-connections", str(count + 100))) as gate:
        token = gate.acquire("r", ttl_ms=3_600_000).token
        wires = [Wire(gate.port) for _ in range(count)]
        for number, wire in enumerate(wires):
            wire.send((request("GET", "/store/r"), acquire_request(f"many-{number}", 50),
                       request("PUT", f"/store/r/{number}", [f"X-Fencing-Token: {token}"], b"x"),
                       b"PUT /store/r/half HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
                       b"GET / HT", b"")[number % 6])
        for number, wire in enumerate(wires):
            (wire.reset if number % 3 else wire.close)()


@case
def answers_are_cut_off_by_the_client():  # H14 BR33
    with serving() as gate:
        token = gate.acquire("r", ttl_ms=3_600_000).token
        assert gate.put("r", "large", token, bytes(1_048_576)).status == 201
        before_kb = memory_kb(gate)
        for number in range(200):
            wire = Wire(gate.port, receive_bytes=4096)
            wire.send(request("GET", "/store/r/large") * (1 + number % 3))
            if number % 4:
                wire.socket.recv(1 + number * 37)
            (wire.reset if number % 2 else wire.close)()
        with contextlib.closing(gate.client()) as client:
            assert len(client.get("r", "large").body) == 1_048_576
        # One body each may be held for a moment, never all.
        expect_memory(gate, before_kb, 60_000)


# ---- Dripping -----------------------------------------------------------------------------------

DRIPS = {
    "head": (b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Note: ", b"x"),
    "headers": (b"GET /livez HTTP/1.1\r\nHost: x\r\n", b"A: b\r\n"),
    "body": (b"PUT /store/r/k HTTP/1.1\r\nHost: x\r\nX-Fencing-Token: 1\r\n"
             b"Content-Length: 100000\r\n\r\n", b"x"),
    "refused body": (b"PUT /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n", b"x"),
    "chunks": (b"PUT /store/r/k HTTP/1.1\r\nHost: x\r\nX-Fencing-Token: 1\r\n"
               b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "a chunk's size": (b"PUT /store/r/k HTTP/1.1\r\nHost: x\r\nX-Fencing-Token: 1\r\n"
                       b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
    "trailers": (b"PUT /store/r/k HTTP/1.1\r\nHost: x\r\nX-Fencing-Token: 1\r\n"
                 b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"A: b\r\n"),
}


@case
def what_drips_is_cut_off_and_delays_nobody():  # H6
    """Each part of a request, a few bytes ten times a second: longer than any idle time."""
    with serving(options=("--request-timeout-ms", "1000")) as gate:
        gate.acquire("r", ttl_ms=3_600_000)
        wires = {what: Wire(gate.port, timeout_s=0.001) for what in DRIPS for _ in range(1)}
        for what, wire in wires.items():
            wire.send(DRIPS[what][0])
        started = time.monotonic()
        while wires:
            for what, wire in list(wires.items()):
                wire.send(DRIPS[what][1])
                with contextlib.suppress(TimeoutError):
                    wire.ended()
                    wire.close()
                    del wires[what]
            assert live(gate)
            assert time.monotonic() < started + 20, f"still open: {sorted(wires)}"
            time.sleep(0.1)
        assert time.monotonic() > started + 0.9
        assert gate.get("r", "k").status == 404


@case
def chunks_without_end_are_cut_off():  # H9
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with serving(options=("--request-timeout-ms", "2000")) as gate:
        gate.acquire("r", ttl_ms=3_600_000)
        before_kb = memory_kb(gate)
        with Wire(gate.port) as wire:
            wire.send(request("PUT", "/store/r/k",
                              ["X-Fencing-Token: 1", "Transfer-Encoding: chunked"]))
            sent = 0
            while wire.send(chunk) and sent < 20_000:
                sent += 1
        assert sent < 20_000, "a body of 1.3 GB was read to its end"
        assert gate.get("r", "k").status == 404
        expect_memory(gate, before_kb, 20_000)


@case
def who_never_reads_delays_nobody():  # H7
    with serving() as gate:
        token = gate.acquire("r", ttl_ms=3_600_000).token
        assert gate.put("r", "large", token, bytes(1_048_576)).status == 201
        wires = [Wire(gate.port, receive_bytes=4096) for _ in range(30)]
        for wire in wires:
            wire.send(request("GET", "/store/r/large") * 5)
        for number in range(20):
            assert gate.put("r", f"k{number}", token, b"x").status == 201
        used_s, started = processor_s(gate), time.monotonic()
        time.sleep(1)
        share = (processor_s(gate) - used_s) / (time.monotonic() - started)
        assert share < 0.5, f"{share:.0%} of a processor while nobody reads"
        for number, wire in enumerate(wires):
            (wire.reset if number % 2 else wire.close)()


# ---- Sitting there ------------------------------------------------------------------------------


@case
def thousands_sit_there():  # BR35 X2: far beyond FD_SETSIZE
    count = min(15_000 if SOAK else 2_000, raise_own_limit(20_000) - 200)
    with serving(options=("--max-connections", str(count + 100))) as gate:
        wires = [Wire(gate.port) for _ in range(count)]
        for wire in wires[::2]:
            wire.send(request("GET", "/version"))
        for wire in wires[::2]:
            assert wire.answer().status == 200
        eventually(lambda: descriptors(gate) > count, what="accepting them all")
        used_s, started = processor_s(gate), time.monotonic()
        with contextlib.closing(gate.client()) as client:
            token = client.acquire("busy", ttl_ms=3_600_000).token
            for number in range(50):
                assert client.put("busy", f"k{number}", token, b"x").status == 201
        time.sleep(1)
        share = (processor_s(gate) - used_s) / (time.monotonic() - started)
        assert share < 0.6, f"{share:.0%} of a processor while they sit"
        # The last ones, with the greatest descriptors, work as well.
        for number, wire in enumerate(wires[-50:]):
            wire.send(acquire_request(f"last-{number}", 60_000))
            assert wire.answer().status == 201
        for wire in wires:
            wire.close()


if __name__ == "__main__":
    print(f"SEED={SEED}")
    run_cases()
