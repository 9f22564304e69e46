#!/usr/bin/python3
"""instructions.py - how many instructions one fenced write and one grant cost, by callgrind.

    make bench-check            compares with the last row of BASELINE.md

Times depend on the machine and on what else it does; instructions hardly do. One client sends one
request after the other on one connection, so each is a commit of its own. The gateway runs under callgrind
(all its threads are counted, its Redis is not), which writes down its counters whenever a GET /version
comes: after the warm-up, and after each stretch of 1000 requests. That is long enough for several
checkpoints of the write-ahead log. The cheapest stretch, divided by 1000, is what one request costs; a busy
machine makes the others a little dearer, because the loop turns once more here and there.

A change of more than 10 % either way fails until BASELINE.md explains it in a new row. What the
libraries do counts too: another version of SQLite or of the compiler is such a change.
"""
import http.client
import re
import shutil
import sys

from lab import BINARY, HERE, Gateway, Lab, PATIENCE_S

WARM_UP, STRETCHES, STRETCH = 250, 3, 1000  # requests
RESOURCES = 100  # that are written to
MARK = "api_version"  # the handler of GET /version
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


def _mark(connection):
    connection.request("GET", "/version")
    connection.getresponse().read()


def _counts(profile):
    """Instructions from each mark to the next one, by callgrind's numbered files."""
    files = sorted(profile.parent.glob(f"{profile.name}.*"), key=lambda path: int(path.suffix[1:]))
    return [int(re.search(r"^totals: (\d+)", path.read_text(), re.M)[1]) for path in files]


def _cost(lab, send):
    data, profile = lab.path("data"), lab.path("callgrind")
    wrapper = ["valgrind", "--tool=callgrind", "--trace-children=no", f"--dump-before={MARK}",
               f"--callgrind-out-file={profile}", BINARY]
    gate = lab.keep(Gateway(data, f"{data}.log", wrapper=wrapper))
    connection = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=PATIENCE_S)
    _prepare(connection)
    number = RESOURCES
    for count in (WARM_UP, *[STRETCH] * STRETCHES):
        _send(connection, send, range(number, number + count))
        _mark(connection)
        number += count
    connection.close()
    lab.end(gate, data)
    counts = _counts(profile)[1:1 + STRETCHES]  # the first one holds the start and the warm-up
    if len(counts) < STRETCHES:
        raise RuntimeError(f"callgrind has not seen {MARK}()")
    return round(min(counts) / STRETCH)


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
