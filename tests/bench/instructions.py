#!/usr/bin/python3
"""instructions.py - how many instructions one fenced write and one grant cost, by callgrind.

    make bench-check            compares with the last row of BASELINE.md

Times depend on the machine and on what else it does; instructions hardly do. One client sends one
request after the other on one connection, so each is a commit of its own. The gateway runs under callgrind
(all its threads are counted, its Redis is not) twice, with 3000 and with 1000 requests after a warm-up;
the difference, divided by 2000, is what one costs. Start, end and warm-up cancel out, and so does what an
idle gateway does by the clock: both runs take as long.

A change of more than 10 % either way fails until BASELINE.md explains it in a new row. What the
libraries do counts too: another version of SQLite or of the compiler is such a change.
"""
import http.client
import re
import shutil
import sys
import time

from lab import BINARY, HERE, Gateway, Lab, PATIENCE_S

WARM_UP, FEW, MANY = 200, 1000, 3000
RESOURCES = 100  # that are written to
TOLERANCE = 0.10
BASELINE = HERE / "BASELINE.md"
VALUE = '{"amount":100,"note":"' + "x" * 76 + '"}'


def _write(connection, number):
    connection.request("PUT", f"/store/bench:{number % RESOURCES:06d}/value", VALUE,
                       {"X-Fencing-Token": "1", "Content-Type": "application/json"})
    return connection.getresponse()


def _grant(connection, number):
    connection.request("POST", "/leases", f'{{"resource":"bench:{number:06d}","ttl_ms":30000}}')
    return connection.getresponse()


def _send(connection, send, numbers):
    for number in numbers:
        answer = send(connection, number)
        answer.read()
        if answer.status not in (200, 201):
            raise RuntimeError(f"{send.__name__} {number}: {answer.status}")


def _prepare(connection):
    """Leases of all that is written to, and one write to each, so that later ones replace it."""
    _send(connection, _grant, range(RESOURCES))
    _send(connection, _write, range(RESOURCES))


def _total(lab, send, requests, at_least_s=0.0):
    """Instructions of a whole life of the gateway, and the seconds that it lasted."""
    data, profile = lab.path("data"), lab.path("callgrind")
    wrapper = ["valgrind", "--tool=callgrind", "--trace-children=no", f"--callgrind-out-file={profile}",
               BINARY]
    gate = lab.keep(Gateway(data, f"{data}.log", wrapper=wrapper))
    connection = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=PATIENCE_S)
    _prepare(connection)
    _send(connection, send, range(RESOURCES, RESOURCES + WARM_UP + requests))
    connection.close()
    time.sleep(max(at_least_s - (time.monotonic() - gate.started), 0.0))
    lasted_s = time.monotonic() - gate.started
    lab.end(gate, data)
    return int(re.search(r"^(?:summary|totals): (\d+)", profile.read_text(), re.M)[1]), lasted_s


def _cost(lab, send):
    many, lasted_s = _total(lab, send, MANY)
    few, _ = _total(lab, send, FEW, lasted_s)
    return round((many - few) / (MANY - FEW))


def measure():
    """(instructions of a write, of a grant)"""
    with Lab() as lab:
        return _cost(lab, _write), _cost(lab, _grant)


def last_row():
    """(date, write, grant) of the last row of the table; None where there is none yet."""
    rows = re.findall(r"^\| (\d{4}-\d\d-\d\d) \|[^|]*\| ([\d,]+) \| ([\d,]+) \|",
                      BASELINE.read_text() if BASELINE.exists() else "", re.M)
    if not rows:
        return None
    date, write, grant = rows[-1]
    return date, int(write.replace(",", "")), int(grant.replace(",", ""))


def main():
    if not shutil.which("valgrind"):
        raise SystemExit("valgrind is not installed (make bench-check installs it)")
    write, grant = measure()
    print(f"instructions of one request: write {write:,}, grant {grant:,}")
    baseline = last_row()
    if not baseline:
        print("tests/bench/BASELINE.md has no row to compare with")
        return 1
    changed = False
    for what, now, then in (("write", write, baseline[1]), ("grant", grant, baseline[2])):
        change = now / then - 1
        print(f"{what}: {change:+.1%} against {then:,} of {baseline[0]}")
        changed |= abs(change) > TOLERANCE
    if changed:
        print("More than 10 % changed. Add a row to tests/bench/BASELINE.md that says why:\n"
              f"| date | subject of the commit | {write:,} | {grant:,} | why |")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
