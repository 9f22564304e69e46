"""checker.py - does a history of what clients saw, with the ledger, obey the invariants?

A history is a list of events (clients.py writes them, one JSON line each), all on one monotonic
clock, so that "before" is exact:

    {"i": 42, "t": 8812345, "p": 7, "type": "invoke", "f": "write", "res": "r3", "token": 18, ...}
    {"i": 43, "t": 8812399, "p": 7, "type": "ok", "version": 5}

type: invoke, then ok (done), fail (known not done) or info (nobody knows). What f can be, and which
fields go with it: struct Op below. The ledger is the gateway's own list of rows in the order of its
commits, as GET /resources/{r}/history gives it.

pair() makes ops of events, join() finds the ledger row of each op and thereby learns how the
unknown ones ended; then each check_*() proves one statement and returns what contradicts it, as
lines for people. check() does all of that. Everything is a pure function; times are ns.

    unique     a token of a resource is one lease's; a lease has one token              I2
    order      granted before the other was asked for: the smaller token                I5
    fence      after a grant was answered nothing of a smaller token is accepted        I6
    release    after a release was answered nothing of that lease is accepted           I6
    answers    refusals are those of the contract; no acknowledged lease is forgotten;
               a grant has time left; a wrong lease id does not write                   I4 I7
    ledger     in commit order: tokens rise, only live leases write or end, at most
               `limit` are live, versions rise by one                                   I1 I2 I4 I8
    join       what was answered stands in the ledger, what was refused does not,
               and nothing stands there that nobody asked for                           I3 I7
    real time  the ledger's order is one that clients could have seen                   I3 I5
    register   each record is linearizable
    set        no acknowledged element of a set was lost, none came from nowhere
    overlaps   two clients believed at the same time that they hold it (never unsafe;
               it may happen only where Redis lost data)

The register needs no search, because the ledger gives the order of the writes: a greedy walk
through the versions places each write as early as what came before lets it be, and all is well if
no write or read is thereby placed after its answer.
"""
import collections
import dataclasses
import json
import math

NOT_READ = object()
USES = ("write", "delete", "renew", "check", "fenced_read")


@dataclasses.dataclass
class Op:
    """One request. What a request has: acquire owner, ttl; renew, release lease, token; write and
    delete token, lease (the token's), shown (the lease id that was sent), key, expect (version that
    the condition names, 0: absent, None: none), write also value; read key; fenced_read key, token;
    check token."""

    i: int
    p: int
    f: str
    res: str
    start: int
    end: float = math.inf  # of an unknown outcome: for ever
    outcome: str = "info"
    owner: str = None
    ttl: int = None
    lease: str = None
    shown: str = None
    token: int = None
    key: str = None
    value: str = None  # written, or read (None: no record)
    expect: int = None
    version: int = None  # answered to write, delete, read
    wrote: int = None  # read: the token that the value was written with
    left: int = None  # acquire, renew: ms, from the start on
    again: bool = False  # release: had been released before
    code: str = None  # of a refusal
    seq: int = None  # join() sets it: the op's row in the ledger

    @property
    def ok(self):
        return self.outcome == "ok"

    def __str__(self):
        return f"{self.f} of {self.res}, token {self.token} (event {self.i})"


FIELDS = {field.name for field in dataclasses.fields(Op)}


def load(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def pair(events):
    """Events in, ops out, in the order of their invocation."""
    ops, waiting = [], {}
    for event in events:
        if event["type"] == "invoke":
            fields = {name: value for name, value in event.items() if name in FIELDS}
            op = Op(start=event["t"], **fields)
            assert op.p not in waiting, f"process {op.p} asks twice at once (event {op.i})"
            waiting[op.p] = op
            ops.append(op)
        elif event["p"] != "nemesis":
            op = waiting.pop(event["p"])
            op.outcome = event["type"]
            if op.outcome != "info":
                op.end = event["t"]
            for name in FIELDS & event.keys() - {"i", "p"}:
                setattr(op, name, event[name])
    return ops


def by_resource(ops):
    groups = collections.defaultdict(list)
    for op in ops:
        groups[op.res].append(op)
    return groups


def in_order(ledger):
    return sorted(ledger, key=lambda row: row["seq"])


# ---- Tokens -------------------------------------------------------------------------------------


def check_unique(ops, ledger):
    problems, lease_of, token_of, granted = [], {}, {}, set()
    for op in ops:
        if op.f != "acquire" or not op.ok:
            continue
        name = (op.res, op.token)
        if lease_of.setdefault(name, op.lease) != op.lease:
            problems.append(f"unique: {op} was answered to two leases")
        if token_of.setdefault(op.lease, name) != name:
            problems.append(f"unique: {op} is a lease that had {token_of[op.lease]}")
    for row in ledger:
        if row["kind"] == "grant":
            name = (row["resource"], row["fencing_token"])
            if name in granted:
                problems.append(f"unique: the ledger grants {name} twice (seq {row['seq']})")
            granted.add(name)
    return problems


def answered_before(grants, ops):
    """Pairs of each op with the grant of the greatest token that was answered before it began."""
    grants = sorted(grants, key=lambda op: op.end)
    greatest, at = None, 0
    for op in sorted(ops, key=lambda op: op.start):
        while at < len(grants) and grants[at].end < op.start:
            if greatest is None or grants[at].token > greatest.token:
                greatest = grants[at]
            at += 1
        if greatest:
            yield op, greatest


def grants_of(ops):
    return [op for op in ops if op.f == "acquire" and op.ok]


def check_order(ops):
    return [f"order: {op} came after {before} was answered"
            for group in by_resource(ops).values()
            for op, before in answered_before(grants_of(group), grants_of(group))
            if op.token <= before.token]


def check_fence(ops):
    """For mutexes: with a greater limit the ledger's live set has to answer (check_ledger)."""
    problems = []
    for group in by_resource(ops).values():
        uses = [op for op in group if op.ok and
                (op.f in USES or (op.f == "release" and not op.again))]
        problems += [f"fence: {op} was accepted after {before} was answered"
                     for op, before in answered_before(grants_of(group), uses)
                     if op.token < before.token]
    return problems


def check_release(ops):
    problems, released = [], {}
    for op in ops:
        name = (op.res, op.token)
        if op.f == "release" and op.ok and (name not in released or op.end < released[name].end):
            released[name] = op
    for op in ops:
        end = released.get((op.res, op.token))
        if op.f in USES and op.ok and end and op.start > end.end:
            problems.append(f"release: {op} was accepted after event {end.i} had released it")
    return problems


# ---- Answers ------------------------------------------------------------------------------------

AWAY = {"refused", "draining", "overloaded", "store_unavailable", "storage_full"}
REDIS = AWAY | {"redis_unavailable"}
FENCE = AWAY | {"stale_fencing_token"}
REFUSALS = {
    "acquire": REDIS | {"lease_held", "grant_contended", "expired_while_granting"},
    "renew": REDIS | {"lease_expired", "lease_superseded", "lease_released"},
    "release": AWAY | {"lease_superseded"},
    "write": FENCE | {"version_mismatch"},
    "delete": FENCE | {"version_mismatch", "record_not_found"},
    "read": AWAY,
    "fenced_read": FENCE,
    "check": FENCE,
}


def _check_refusal(op):
    """The tokens and leases in a history were answered by the gateway, so it has to know them: a
    token "not issued", a lease "not found" or not its token's is a grant that was forgotten."""
    wrong_lease = op.shown is not None and op.shown != op.lease
    if op.outcome == "fail" and not (op.code in REFUSALS[op.f] or
                                     (wrong_lease and op.code == "lease_mismatch")):
        return f"was refused with {op.code}"
    if op.ok and wrong_lease:
        return "was accepted with the id of another lease"
    return None


def _check_left(op):
    """A lease is answered while it is still worth something."""
    least = max(2, op.ttl // 100) if op.f == "acquire" else 0
    if op.ok and not least <= op.left <= op.ttl:
        return f"was answered with {op.left} of {op.ttl} ms left"
    return None


def check_answers(ops):
    problems = []
    for op in ops:
        wrong = _check_refusal(op) or (op.ttl is not None and _check_left(op))
        if wrong:
            problems.append(f"answers: {op} {wrong}")
    return problems


# ---- The ledger by itself -----------------------------------------------------------------------


class _Fence:
    """What a resource's rows so far say about it."""

    def __init__(self):
        self.mark, self.live = 0, set()


def _check_row(row, fence, limit):
    """What is wrong with this row; fence is then as after it."""
    kind, token = row["kind"], row["fencing_token"]
    if kind == "grant":
        before, fence.mark = fence.mark, max(fence.mark, token)
        fence.live.add(token)
        if token <= before:
            return f"the token is not above the mark {before}"
        if len(fence.live) > limit:
            return f"{len(fence.live)} leases are live, the limit is {limit}"
    elif kind in ("release", "expire", "renew", "write", "delete"):
        live = token in fence.live
        if kind in ("release", "expire"):
            fence.live.discard(token)
        if not live:
            return f"the token is not live; {sorted(fence.live)} are"
    elif kind == "refuse":
        if row["code"] == "stale_fencing_token" and token in fence.live:
            return "the token is live"
        if row["code"] == "fencing_token_not_issued" and token <= fence.mark:
            return f"the token was issued, the mark is {fence.mark}"
    return None


def check_ledger(ledger, limit=1):
    problems, seqs = [], set()
    fences, versions = collections.defaultdict(_Fence), collections.Counter()
    for row in in_order(ledger):
        where = f"ledger: seq {row['seq']}, {row['kind']} of {row['resource']}, " \
                f"token {row['fencing_token']}"
        if row["seq"] in seqs:
            problems.append(f"{where}: the number is used twice")
        seqs.add(row["seq"])
        wrong = _check_row(row, fences[row["resource"]], limit)
        if wrong:
            problems.append(f"{where}: {wrong}")
        if row["kind"] in ("write", "delete"):
            record = (row["resource"], row["key"])
            if row["version"] != versions[record] + 1:
                problems.append(f"{where}: version {row['version']} of {row['key']} follows "
                                f"{versions[record]}")
            versions[record] = row["version"]
    return problems


# ---- The ledger and the history -----------------------------------------------------------------


def _join_grants(ops, rows):
    """By the owner's name, which is another for each acquire."""
    problems, row_of = [], {}
    ended = {(row["resource"], row["fencing_token"]) for row in rows if row["kind"] == "expire" or
             (row["kind"] == "release" and row["reason"] == "expired_while_granting")}
    for row in rows:
        if row["kind"] == "grant":
            if row["owner"] in row_of:
                problems.append(f"join: one acquire, {row['owner']}, was granted twice "
                                f"(seq {row['seq']})")
            row_of[row["owner"]] = row
    for op in ops:
        if op.f != "acquire":
            continue
        row = row_of.pop(op.owner, None)
        if op.ok and (row is None or (row["resource"], row["fencing_token"]) != (op.res, op.token)):
            problems.append(f"join: {op} was answered, but is not in the ledger")
        elif row is not None:
            if op.outcome == "fail" and (op.code != "expired_while_granting" or
                                         (op.res, row["fencing_token"]) not in ended):
                problems.append(f"join: {op} was refused with {op.code}, but is in the ledger "
                                f"(seq {row['seq']})")
            op.seq, op.token = row["seq"], row["fencing_token"]
    problems += [f"join: nobody asked for the grant to {owner} (seq {row['seq']})"
                 for owner, row in row_of.items()]
    return problems


def _candidate(row, unknown, seen):
    """The unknown write that made this row, if any did."""
    fits = [op for op in unknown[row["kind"], row["resource"], row["key"], row["fencing_token"]]
            if op.seq is None and (not op.expect or op.expect + 1 == row["version"])]
    read = seen.get((row["resource"], row["key"], row["version"]), NOT_READ)
    exact = [op for op in fits if op.value == read]
    return (exact or fits or [None])[0]


def _join_writes(ops, rows):
    """By the version, where it was answered."""
    problems, unknown, seen = [], collections.defaultdict(list), {}
    row_of = {(row["resource"], row["key"], row["version"]): row for row in rows
              if row["kind"] in ("write", "delete")}
    for op in ops:
        if op.f in ("read", "fenced_read") and op.ok:
            seen[op.res, op.key, op.version] = op.value
        if op.f not in ("write", "delete"):
            continue
        if op.outcome == "info":
            unknown[op.f, op.res, op.key, op.token].append(op)
        elif op.ok:
            row = row_of.pop((op.res, op.key, op.version), None)
            if row is None or (row["kind"], row["fencing_token"]) != (op.f, op.token):
                problems.append(f"join: {op} was answered with version {op.version} of {op.key}, "
                                f"but is not in the ledger")
            else:
                op.seq = row["seq"]
    for row in row_of.values():
        op = _candidate(row, unknown, seen)
        if op:
            op.seq, op.version = row["seq"], row["version"]
        else:
            problems.append(f"join: nobody is known to have written version {row['version']} of "
                            f"{row['key']} in {row['resource']} (seq {row['seq']})")
    return problems


def _join_ends(ops, rows):
    """Releases and renewals, by the token. A renewal's row rides on the next commit, so that a
    crash may take it, also when it was answered."""
    problems, asked, released = [], collections.defaultdict(list), {}
    for op in ops:
        if op.f in ("release", "renew"):
            asked[op.f, op.res, op.token].append(op)
    for row in rows:
        name = (row["resource"], row["fencing_token"])
        if row["kind"] == "release":
            released[name] = row
        if row["kind"] in ("release", "renew") and not row["reason"] and \
                all(op.outcome == "fail" for op in asked[(row["kind"], *name)]):
            problems.append(f"join: nobody asked for the {row['kind']} of {name} "
                            f"(seq {row['seq']})")
    for op in ops:
        if op.f != "release":
            continue
        row = released.get((op.res, op.token))
        if op.ok and row is None:
            problems.append(f"join: {op} was answered, but is not in the ledger")
        elif op.ok and not op.again:
            op.seq = row["seq"]
        elif op.code == "lease_superseded" and row is not None:
            problems.append(f"join: {op} was refused, but is in the ledger (seq {row['seq']})")
    return problems


def join(ops, ledger):
    """Sets op.seq, and for unknown outcomes that happened op.token or op.version."""
    for op in ops:
        op.seq = None
        if op.outcome == "info" and op.f in ("write", "delete"):
            op.version = None
    rows = in_order(ledger)
    return _join_grants(ops, rows) + _join_writes(ops, rows) + _join_ends(ops, rows)


def check_real_time(ops):
    """After join(). Whatever was answered before something else was asked for stands before it."""
    problems, earliest = [], None
    for op in sorted((op for op in ops if op.seq is not None), key=lambda op: -op.seq):
        if earliest and earliest.end < op.start:
            problems.append(f"real time: {op} has seq {op.seq}, but {earliest} with the later seq "
                            f"{earliest.seq} had been answered before")
        if earliest is None or op.end < earliest.end:
            earliest = op
    return problems


# ---- Records ------------------------------------------------------------------------------------


class _Record:
    """The writes of one record in order, and its reads."""

    def __init__(self):
        self.writes, self.reads = {}, collections.defaultdict(list)
        self.absent = []  # reads that found no record: of no version in particular


def _records(ops):
    records = collections.defaultdict(_Record)
    for op in ops:
        if op.f in ("write", "delete") and op.version is not None:
            records[op.res, op.key].writes[op.version] = op
        elif op.f in ("read", "fenced_read") and op.ok:
            record = records[op.res, op.key]
            if op.version is None:
                record.absent.append(op)
            else:
                record.reads[op.version].append(op)
    return records


def _check_values(record):
    for version, reads in record.reads.items():
        write = record.writes.get(version)
        for op in reads:
            if write is None or write.f == "delete":
                yield f"register: {op} saw version {version} of {op.key}, which nobody wrote"
            elif (op.value, op.wrote) != (write.value, write.token):
                yield f"register: {op} saw another value or token than {write} gave version " \
                      f"{version} of {op.key}"


def _check_points(record):
    """The greedy walk. A read of no record needs a time at which there may have been none: between
    the earliest point of a delete (or the beginning) and the latest of the write after it."""
    last = max([0, *record.writes, *record.reads])
    point, earliest = -math.inf, {0: -math.inf}
    for version in range(1, last + 1):
        write, reads = record.writes.get(version), record.reads[version]
        if write:
            point = max(point, write.start)
            if point > write.end:
                yield f"register: {write} made version {version} of {write.key} after its answer"
        earliest[version] = point
        for op in reads:
            if point > op.end:
                yield f"register: {op} saw version {version} of {op.key} before it was there"
        point = max([point, *(op.start for op in reads)])
    latest = {last + 1: math.inf}
    for version in range(last, 0, -1):
        ends = [op.end for op in [record.writes.get(version), *record.reads[version]] if op]
        latest[version] = min([latest[version + 1], *ends])
    gaps = [(earliest[v], latest[v + 1]) for v in range(last + 1)
            if v == 0 or (v in record.writes and record.writes[v].f == "delete")]
    for op in record.absent:
        if not any(begin <= op.end and op.start <= end for begin, end in gaps):
            yield f"register: {op} saw no record {op.key} where there was one"


def check_register(ops):
    """After join()."""
    return [problem for record in _records(ops).values()
            for check in (_check_values, _check_points) for problem in check(record)]


def check_set(ops, key):
    """Each write of `key` holds the JSON list that was read before it, with one new element at its
    end. The last read of each resource tells what became of them."""
    problems = []
    for res, group in by_resource(ops).items():
        reads = [op for op in group if op.f == "read" and op.ok and op.key == key]
        writes = [op for op in group if op.f == "write" and op.key == key]
        if not reads:
            continue
        final = json.loads(max(reads, key=lambda op: op.start).value or "[]")
        done = {json.loads(op.value)[-1]: op for op in writes if op.ok}
        failed = {json.loads(op.value)[-1] for op in writes if op.outcome == "fail"}
        problems += [f"set: the element of {op} is lost" for element, op in done.items()
                     if element not in final]
        problems += [f"set: {res} holds {element} of a refused write" for element in final
                     if element in failed]
        if len(set(final)) < len(final):
            problems.append(f"set: {res} holds an element twice")
    return problems


# ---- Who believed to hold it --------------------------------------------------------------------


def overlaps(ops):
    """Pairs of grants whose clients both had reason to think that they hold the resource: from the
    answer until the time left has passed, counted from the request, or the release begins."""
    held = collections.defaultdict(list)
    until, grant_of = {}, {}
    for op in ops:
        name = (op.res, op.token)
        if op.f == "acquire" and op.ok:
            grant_of[name], until[name] = op, op.start + op.left * 1_000_000
    for op in ops:
        name = (op.res, op.token)
        if op.f == "renew" and op.ok and name in until:
            until[name] = max(until[name], op.start + op.left * 1_000_000)
    for op in ops:
        name = (op.res, op.token)
        if op.f == "release" and name in until:
            until[name] = min(until[name], op.start)
    for name, op in grant_of.items():
        held[op.res].append((op.end, until[name], op))
    found = []
    for spans in held.values():
        latest = None
        for span in sorted(spans, key=lambda span: span[0]):
            if latest and span[0] < latest[1]:
                found.append((latest[2], span[2]))
            if latest is None or span[1] > latest[1]:
                latest = span
    return found


def check_overlaps(ops):
    return [f"overlap: {second} was answered while {first} still held it"
            for first, second in overlaps(ops)]


def check(ops, ledger, limit=1, exclusive=False):
    """All of it; `exclusive`: Redis kept its data and its clock, so nobody may overlap either."""
    problems = join(ops, ledger)
    problems += check_unique(ops, ledger) + check_order(ops) + check_release(ops)
    problems += check_answers(ops) + check_ledger(ledger, limit) + check_real_time(ops)
    problems += check_register(ops)
    if limit == 1:
        problems += check_fence(ops)
    if exclusive:
        problems += check_overlaps(ops)
    return problems
