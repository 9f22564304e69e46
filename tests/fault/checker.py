"""checker.py - does a history of what clients saw, with the ledger, obey the invariants?

A history is a list of events (clients.py writes them, one JSON line each), all on one monotonic
clock, so that "before" is exact:

    {"i": 42, "t": 8812345, "p": 7, "type": "invoke", "f": "write", "res": "r3", "token": 18, ...}
    {"i": 43, "t": 8812399, "p": 7, "type": "ok", "version": 5}

type: invoke, then ok (done), fail (known not done) or info (nobody knows); between them queued, where
an acquire is known to wait. What f can be, and which
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
    ledger     in commit order: tokens rise, only live leases write or end, a grant
               leaves at most as many live as the limit then was, a lease granted at
               limit 1 stays alone, versions rise by one                                I1 I2 I4 I8
    ended      nothing of a lease is accepted after its end was known: after anything
               was answered that stands behind it in the ledger                         I6
    join       what was answered stands in the ledger, what was refused does not,
               and nothing stands there that nobody asked for                           I3 I7
    real time  the ledger's order is one that clients could have seen                   I3 I5
    register   each record is linearizable
    set        no acknowledged element of a set was lost, none came from nowhere
    overlaps   more clients than the limit believed at the same time that they hold it
               (never unsafe; it may happen only where Redis lost data)

The register needs no search, because the ledger gives the order of the writes: a greedy walk
through the versions places each write as early as what came before lets it be, and all is well if
no write or read is thereby placed after its answer.
"""
import bisect
import collections
import dataclasses
import json
import math
import re

NOT_READ = object()
USES = ("write", "delete", "renew", "check", "fenced_read")


@dataclasses.dataclass
class Op:
    """One request. What a request has: acquire owner, ttl, wait, named (the limit); renew, release lease, token; write and
    delete token, lease (the token's), shown (the lease id that was sent), key, expect (version that
    the condition names, 0: absent, None: none), write also value; read key; fenced_read key, token;
    check token; configure limit; revoke reason, token (None: all)."""

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
    left: int = None  # acquire, renew: ms, from the start (and `waited` after it) on
    wait: int = 0  # acquire: ms that it is ready to wait
    named: int = None  # acquire: the limit that it names
    waited: int = 0  # acquire: ms that it has waited, as answered
    queued: float = None  # acquire: when it certainly stood in the queue, where it still waited
    leaving: float = None  # when its client was about to leave without an answer, ...
    gone: float = None  # ... and when it certainly had
    limit: int = None  # configure
    reason: str = None  # revoke: another for each
    tokens: list = None  # answered to revoke
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
        elif event["type"] in ("queued", "leaving"):
            setattr(waiting[event["p"]], event["type"], event["t"])
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
    "acquire": REDIS | {"lease_held", "grant_contended", "expired_while_granting",
                        "limit_mismatch", "too_many_waiters"},
    "renew": REDIS | {"lease_expired", "lease_superseded", "lease_released", "lease_revoked"},
    "release": AWAY | {"lease_superseded", "lease_revoked"},
    "configure": AWAY,
    "revoke": AWAY,
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


class Fence:
    """What a resource's rows so far say about it."""

    def __init__(self, limit):
        self.mark, self.limit, self.fenced = 0, limit, True
        self.least = 1  # the next token, at least: a revocation skips one
        self.live = {}  # token -> the limit at its grant


def _check_grant(token, fence):
    before, least = fence.mark, fence.least
    others = [other for other, limit in fence.live.items() if limit == 1]
    fence.mark = max(fence.mark, token)
    fence.least = fence.mark + 1
    fence.live[token] = fence.limit
    if token <= before:
        return f"the token is not above the mark {before}"
    if token < least:
        return f"the token is below {least}, although a revocation had skipped one"
    if len(fence.live) > fence.limit:
        return f"{len(fence.live)} leases are live, the limit is {fence.limit}"
    if others:
        return f"{others} was granted at limit 1 and is not alone"
    return None if fence.fenced else "the resource is not fenced"


def read_config(reason, fence):
    """What a config row says: "created, limit 3", "limit unset -> 3", "limit 1 -> 3, fenced ->
    unfenced". Returns what is wrong with it."""
    changed = re.search(r"limit (?:(\d+|unset) -> )?(\d+)", reason)
    before = fence.limit
    if changed:
        fence.limit = int(changed[2])
    if reason.endswith("unfenced"):
        fence.fenced, fence.least = False, fence.mark + 2
    elif reason.endswith("fenced"):
        fence.fenced = True
    if changed and changed[1] not in (None, "unset", str(before)):
        return f"the limit was {before}"
    return None


def _check_row(row, fence):
    """What is wrong with this row; fence is then as after it."""
    kind, token = row["kind"], row["fencing_token"]
    if kind == "grant":
        return _check_grant(token, fence)
    if kind == "config":
        return read_config(row["reason"], fence)
    if kind == "revoke":
        fence.least = max(fence.least, fence.mark + 2)
        if token is not None and fence.live.pop(token, None) is None:
            return f"the token is not live; {sorted(fence.live)} are"
    elif kind in ("release", "expire", "renew", "write", "delete"):
        live = token in fence.live
        if kind in ("release", "expire"):
            fence.live.pop(token, None)
        if not live and not (token is None and not fence.fenced):
            return f"the token is not live; {sorted(fence.live)} are"
    elif kind == "refuse":
        if row["code"] == "stale_fencing_token" and token in fence.live:
            return "the token is live"
        if row["code"] == "fencing_token_not_issued" and token <= fence.mark:
            return f"the token was issued, the mark is {fence.mark}"
    return None


def limit_of(limit, res):
    """`limit` is one for all resources, or a dict of those that have another than 1."""
    return limit.get(res, 1) if isinstance(limit, dict) else limit


def live_tokens(ledger, res):
    """Which leases of a resource are live when all rows have been read."""
    fence = Fence(1)
    for row in in_order(ledger):
        if row["resource"] == res:
            _check_row(row, fence)
    return set(fence.live)


def check_ledger(ledger, limit=1):
    """`limit`: at the beginning; the config rows tell what became of it."""
    problems, seqs = [], set()
    fences, versions = {}, collections.Counter()
    for row in in_order(ledger):
        where = f"ledger: seq {row['seq']}, {row['kind']} of {row['resource']}, " \
                f"token {row['fencing_token']}"
        if row["seq"] in seqs:
            problems.append(f"{where}: the number is used twice")
        seqs.add(row["seq"])
        fence = fences.setdefault(row["resource"], Fence(limit_of(limit, row["resource"])))
        wrong = _check_row(row, fence)
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


def _join_revocations(ops, rows):
    """By the reason, which is another for each."""
    problems, rows_of = [], collections.defaultdict(list)
    for row in rows:
        if row["kind"] == "revoke" and row["reason"] != "unfenced":
            rows_of[row["resource"], row["reason"]].append(row)
    for op in ops:
        if op.f != "revoke":
            continue
        found = rows_of.pop((op.res, op.reason), [])
        tokens = [row["fencing_token"] for row in found if row["fencing_token"] is not None]
        if op.ok and (not found or tokens != op.tokens):
            problems.append(f"join: {op} was answered with {op.tokens}, the ledger has {tokens}")
        elif op.outcome == "fail" and found:
            problems.append(f"join: {op} was refused, but is in the ledger "
                            f"(seq {found[0]['seq']})")
        op.seq = found[0]["seq"] if found else None
    problems += [f"join: nobody asked for the revocation {name} (seq {found[0]['seq']})"
                 for name, found in rows_of.items()]
    return problems


def join(ops, ledger):
    """Sets op.seq, and for unknown outcomes that happened op.token or op.version."""
    for op in ops:
        op.seq = None
        if op.outcome == "info" and op.f in ("write", "delete"):
            op.version = None
    rows = in_order(ledger)
    return _join_grants(ops, rows) + _join_writes(ops, rows) + _join_ends(ops, rows) + \
        _join_revocations(ops, rows)


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


def check_ended(ops, ledger):
    """After join(). With any limit; for mutexes check_fence() says it without the ledger."""
    problems, ended = [], {}
    for row in ledger:
        if row["kind"] in ("release", "expire", "revoke") and row["fencing_token"] is not None:
            ended[row["resource"], row["fencing_token"]] = row["seq"]
    # When it was known at the latest that the ledger had come to a row.
    seqs, known = [], []
    for op in sorted((op for op in ops if op.seq is not None), key=lambda op: -op.seq):
        seqs.append(-op.seq)
        known.append(min(op.end, known[-1] if known else math.inf))
    for op in ops:
        seq = ended.get((op.res, op.token))
        first_release = op.f == "release" and not op.again and op.seq != seq
        if seq is None or not op.ok or not (op.f in USES or first_release):
            continue
        behind = bisect.bisect_right(seqs, -seq)  # so many ops stand there or behind it
        if behind and known[behind - 1] < op.start:
            problems.append(f"ended: {op} was accepted after the end of its lease, seq {seq}, had "
                            f"been answered")
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


def beliefs(ops):
    """{resource: [(from, until, op), ...]} of all grants, by their begin: their clients have reason
    to think that they hold it from the answer until the time left has passed, counted from the
    request and what was waited, or from the newest renewal; or until they begin to release it."""
    until, grant_of, spans = {}, {}, collections.defaultdict(list)
    for op in ops:
        name = (op.res, op.token)
        if op.f == "acquire" and op.ok:
            grant_of[name] = op
            until[name] = op.start + ((op.waited or 0) + op.left) * 1_000_000
    for op in ops:
        name = (op.res, op.token)
        if op.f == "renew" and op.ok and name in until:
            until[name] = op.start + op.left * 1_000_000
        elif op.f == "renew" and op.outcome == "info" and name in until and op.ttl:
            until[name] = min(until[name], op.start + op.ttl * 1_000_000)  # may have shortened
    for op in ops:
        name = (op.res, op.token)
        if op.f == "release" and name in until:
            until[name] = min(until[name], op.start)
    for name, op in grant_of.items():
        if op.end <= until[name]:
            spans[op.res].append((op.end, until[name], op))
    return {res: sorted(found, key=lambda span: span[0]) for res, found in spans.items()}


def overlaps(ops, limit=1):
    """Grants whose clients believed to hold a resource while `limit` others did: as pairs, with one
    of the others."""
    found = []
    for res, spans in beliefs(ops).items():
        holding = []  # ends first
        for begin, until, op in spans:
            holding = [other for other in holding if other[0] > begin]
            if len(holding) >= limit_of(limit, res):
                found.append((max(holding, key=lambda other: other[0])[1], op))
            holding.append((until, op))
    return found


def check_overlaps(ops, limit=1):
    return [f"overlap: {second} was answered while {first} still held it"
            for first, second in overlaps(ops, limit)]


def check(ops, ledger, limit=1, exclusive=False):
    """All of it; `limit`: of all resources, or a dict, at the beginning; `exclusive`: Redis kept its
    data and its clock, so nobody may overlap either (for limits that do not change)."""
    problems = join(ops, ledger)
    problems += check_unique(ops, ledger) + check_order(ops) + check_release(ops)
    problems += check_answers(ops) + check_ledger(ledger, limit) + check_real_time(ops)
    problems += check_register(ops)
    problems += check_fence(ops) if limit == 1 else check_ended(ops, ledger)
    if exclusive:
        problems += check_overlaps(ops, limit)
    return problems
