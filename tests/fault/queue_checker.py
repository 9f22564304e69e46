"""queue_checker.py - does a history of clients that wait obey what is promised to them?

The ops and the ledger are those of checker.py, after checker.join(). An op `queued` at a time stood
in its resource's queue then for certain: its client had sent it, and another request that was sent
after it had been answered. So whoever asked after that time is behind it. A client that
leaves without an answer does so between `leaving` and `gone`: it may be stopped in between, and the
end of a killed process takes a while. Everything is a pure function that returns lines for people;
times are ns on the history's clock, and `offset_ns` is what the ledger's wall clock is ahead of it.

    overtaken  who asked later is not granted before one who still waits
    deadline   each is answered by the end of its wait_ms, and what it is told of it is right
    starved    nobody waits beside a free place: by the ledger, fewer hold it than the limit.
               "Waits" is: for longer than we are patient, or while others asked, one after the
               other, and were granted at once, so that it was not the machine that was slow
    gone       nothing is granted to a client that has left; "has left" likewise
    named      a limit other than the one that is set is refused, that one is not
"""
import bisect
import datetime
import heapq
import math

import checker

MS = 1_000_000
REVOKED_LATELY_NS = 1000 * MS
OTHERS = 15  # that were granted something, one after the other
IDLE_NS = 20 * MS  # less is not looked at: the ledger's times are milliseconds


def time_ns(text, offset_ns):
    """Of a ledger row's "2026-11-29T14:08:55.157Z", on the history's clock."""
    moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return round(moment.timestamp() * 1000) * MS - offset_ns


class _AtOnce:
    """Those who were granted something without waiting."""

    def __init__(self, ops):
        self.spans = sorted((op.end, op.start) for op in ops
                            if op.f == "acquire" and op.ok and not op.waited)

    def chain(self, begin, end):
        """How many were, one after the other, in this time; no more than OTHERS."""
        count = 0
        for ended, started in self.spans[bisect.bisect_left(self.spans, (begin,)):]:
            if ended > end or count == OTHERS:
                break
            if started >= begin:
                count, begin = count + 1, ended
        return count


def _acquires(ops):
    return {res: [op for op in group if op.f == "acquire"]
            for res, group in checker.by_resource(ops).items()}


# ---- Overtaken ----------------------------------------------------------------------------------


class _Changes:
    """When operators revoked or changed something: a grant that was under way at that moment is
    asked for once more, and those that Redis had granted behind it are then before it."""

    def __init__(self, ledger, offset_ns):
        self.rows = {}
        for row in checker.in_order(ledger):
            created = (row["reason"] or "").startswith("created")
            if row["kind"] in ("revoke", "config") and not created:
                self.rows.setdefault(row["resource"], []).append(
                    (row["seq"], time_ns(row["at"], offset_ns)))

    def excuse(self, later, at_ns):
        """Whether `later`, granted at that time, may have been such a one."""
        rows = self.rows.get(later.res, [])
        before = bisect.bisect_left(rows, (later.seq, -math.inf))
        return before > 0 and at_ns - rows[before - 1][1] < REVOKED_LATELY_NS


def _newest_queued(group):
    """Each grant of a resource, with the greatest token of those that were queued before it asked."""
    queued = sorted((op for op in group if op.queued is not None and op.token is not None),
                    key=lambda op: op.queued)
    greatest, at = None, 0
    for op in sorted(group, key=lambda op: op.start):
        while at < len(queued) and queued[at].queued < op.start:
            if greatest is None or queued[at].token > greatest.token:
                greatest = queued[at]
            at += 1
        if greatest and op.token is not None:
            yield op, greatest


def _until(op, group):
    """Those who were granted it although they asked after `op` was queued, which waited in vain."""
    deadline = op.start + op.wait * MS
    return [other for other in group
            if other.ok and op.queued < other.start and other.end < deadline]


def check_overtaken(ops, ledger, offset_ns=0):
    problems, changes = [], _Changes(ledger, offset_ns)
    at_of = {row["seq"]: row["at"] for row in ledger if row["kind"] == "grant"}

    def excused(op):
        return changes.excuse(op, time_ns(at_of[op.seq], offset_ns))

    for group in _acquires(ops).values():
        problems += [f"overtaken: {op} came after {before} stood in the queue"
                     for op, before in _newest_queued(group)
                     if op.token < before.token and not excused(op)]
        granted = sorted((op for op in group if op.ok), key=lambda op: op.start)
        starts = [op.start for op in granted]
        for op in group:
            if op.queued is None or op.code != "lease_held":
                continue
            others = granted[bisect.bisect_right(starts, op.queued):]
            problems += [f"overtaken: {op} waited in vain, {other} came after it"
                         for other in _until(op, others) if not excused(other)]
    return problems


# ---- Deadlines ----------------------------------------------------------------------------------


def check_deadlines(ops, patience_ns, stopped=lambda op: 0):
    """`stopped(op)`: for how long its client stood still while it was open."""
    problems = []
    for op in ops:
        if op.f != "acquire" or not (op.ok or op.outcome == "fail"):
            continue
        took_ns = op.end - op.start
        late_ns = took_ns - stopped(op) - op.wait * MS
        if late_ns > patience_ns:
            problems.append(f"deadline: {op} was answered {late_ns // MS} ms after its wait_ms "
                            f"{op.wait}")
        if op.waited is not None and op.waited * MS > took_ns + MS:
            problems.append(f"deadline: {op} is said to have waited {op.waited} ms, and took "
                            f"{took_ns // MS}")
        if op.code == "lease_held" and op.waited < op.wait:
            problems.append(f"deadline: {op} was given up after {op.waited} of {op.wait} ms")
    return problems


# ---- Starved ------------------------------------------------------------------------------------


class _Places:
    """Who holds one resource, as time goes on, and when a place was free."""

    def __init__(self, limit):
        self.fence = checker.Fence(limit)
        self.granted = {}  # live token -> the limit at its grant
        self.until = {}  # held token -> when its TTL passes
        self.ends = []  # heap of (until, token)
        self.free_since = -math.inf
        self.free = []  # (from, until)

    def _full(self):
        alone = any(self.granted[token] == 1 for token in self.until)
        return len(self.until) >= (1 if alone else self.fence.limit) or not self.fence.fenced

    def _settle(self, now):
        if self._full() and self.free_since is not None:
            self.free.append((self.free_since, now))
            self.free_since = None
        elif not self._full() and self.free_since is None:
            self.free_since = now

    def pass_time(self, now):
        while self.ends and self.ends[0][0] <= now:
            until, token = heapq.heappop(self.ends)
            if self.until.get(token) == until:
                del self.until[token]
                self._settle(until)

    def take(self, row, now, renewed):
        """`renewed`: when it is renewed after this row, None: never. Until then it is held, also
        where that row came late."""
        kind, token = row["kind"], row["fencing_token"]
        if kind == "grant":
            self.granted[token] = self.fence.limit
        if kind in ("grant", "renew"):
            self.until[token] = max(now + row["ttl_ms"] * MS, renewed or now)
            heapq.heappush(self.ends, (self.until[token], token))
        elif kind in ("release", "expire", "revoke"):
            self.granted.pop(token, None)
            self.until.pop(token, None)
        elif kind == "config":
            checker.read_config(row["reason"], self.fence)
        self._settle(now)


def _free_times(ledger, limit, offset_ns):
    places, renewed, rows = {}, {}, []
    for row in reversed(checker.in_order(ledger)):
        name, now = (row["resource"], row["fencing_token"]), time_ns(row["at"], offset_ns)
        rows.append((row, now, renewed.get(name)))
        if row["kind"] == "renew":
            renewed[name] = now
    for row, now, next_renewal in reversed(rows):
        res = row["resource"]
        if res not in places:
            places[res] = _Places(checker.limit_of(limit, res))
        places[res].pass_time(now)
        places[res].take(row, now, next_renewal)
    for place in places.values():
        place.pass_time(math.inf)
        if place.free_since is not None:
            place.free.append((place.free_since, math.inf))
    return {res: place.free for res, place in places.items()}


def _waited_until(op, at_of, offset_ns):
    """When its waiting ended, by what the gateway did; None where that is not known."""
    if op.seq is not None:
        return time_ns(at_of[op.seq], offset_ns)
    ends = [end for end in (op.leaving, op.end if op.code == "lease_held" else None)
            if end is not None]
    # The gateway gives it up when its wait_ms have passed, whenever the client comes to see that.
    return min(*ends, op.start + op.wait * MS) if ends else None


def _idle_times(op, spans, until):
    """When there was a free place while it waited."""
    first = max(0, bisect.bisect_right(spans, (op.queued, math.inf)) - 1)
    for begin, end in spans[first:]:
        if begin > until:
            return
        begin, end = max(begin, op.queued), min(end, until)
        if end - begin > IDLE_NS:
            yield begin, end


def check_starved(ops, ledger, patience_ns, limit=1, offset_ns=0):
    problems, free, at_once = [], _free_times(ledger, limit, offset_ns), _AtOnce(ops)
    at_of = {row["seq"]: row["at"] for row in ledger if row["kind"] == "grant"}
    for op in ops:
        until = _waited_until(op, at_of, offset_ns) if op.f == "acquire" else None
        if until is None or op.queued is None:
            continue
        for begin, end in _idle_times(op, free.get(op.res, []), until):
            others = at_once.chain(begin, end)
            if end - begin > patience_ns or others == OTHERS:
                problems.append(f"starved: {op} waited {(end - begin) // MS} ms beside a free "
                                f"place, while at least {others} others came and were granted")
                break
    return problems


# ---- Gone and named -----------------------------------------------------------------------------


def check_gone(ops, ledger, patience_ns, offset_ns=0):
    at_of = {row["seq"]: row["at"] for row in ledger if row["kind"] == "grant"}
    problems, at_once = [], _AtOnce(ops)
    for op in ops:
        if op.f == "acquire" and op.gone is not None and op.seq is not None:
            granted = time_ns(at_of[op.seq], offset_ns)
            late_ns = granted - op.gone
            others = at_once.chain(op.gone, granted) if late_ns > IDLE_NS else 0
            if late_ns > patience_ns or others == OTHERS:
                problems.append(f"gone: {op} was granted {late_ns // MS} ms after its client left, "
                                f"while at least {others} others came and were granted")
    return problems


def check_named(ops, limits):
    """`limits`: of the resources whose limit was set once and does not change."""
    problems = []
    for op in ops:
        if op.f != "acquire" or op.res not in limits or op.outcome == "info":
            continue
        fits = op.named in (None, limits[op.res])
        if op.ok and not fits:
            problems.append(f"named: {op} named {op.named}, the limit is {limits[op.res]}")
        if fits and op.code == "limit_mismatch":
            problems.append(f"named: {op} named {op.named} and was refused")
    return problems
