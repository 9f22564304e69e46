"""tale.py - hand-made histories, for the tests of the checkers.

Each call is an op that begins and ends at given times (or never), and where it reached the store a
ledger row. All is about one resource, "r".
"""
import checker


class Tale:
    def __init__(self):
        self.ops, self.ledger = [], []

    def op(self, f, start, end=None, **fields):
        """Ends at `end` with ok; with code= refused; without an end nobody knows."""
        op = checker.Op(i=len(self.ops), p=len(self.ops), f=f, res="r", start=start, **fields)
        if end is not None:
            op.end, op.outcome = end, "fail" if op.code else "ok"
        self.ops.append(op)
        return op

    def row(self, kind, token, seq=None, **fields):
        blank = dict.fromkeys(("owner", "key", "version", "code", "reason"))
        self.ledger.append({"seq": seq or len(self.ledger) + 1, "kind": kind, "resource": "r",
                            "fencing_token": token, **blank, **fields})

    # The usual: an op with its row.

    def grant(self, token, start, end, left=10, **fields):
        owner = f"owner{token}"
        self.row("grant", token, owner=owner)
        return self.op("acquire", start, end, owner=owner, token=token, lease=f"lease{token}",
                       left=left, **fields)

    def write(self, token, version, start, end, value=None, f="write", **fields):
        self.row(f, token, key="k", version=version)
        return self.op(f, start, end, token=token, key="k", version=version if end else None,
                       value=value or f"v{version}", **fields)

    def read(self, version, start, end, value=None, wrote=1, **fields):
        return self.op("read", start, end, key="k", version=version,
                       value=value or (f"v{version}" if version else None), wrote=wrote, **fields)

    def release(self, token, start, end, **fields):
        self.row("release", token)
        return self.op("release", start, end, token=token, lease=f"lease{token}", **fields)

    def expire(self, token):
        self.row("expire", token)

    def check(self, **options):
        return checker.check(self.ops, self.ledger, **options)


def tells(tale, *words, **options):
    """The checker finds something, and names the statements `words`, no other."""
    found = tale.check(**options)
    names = {problem.partition(":")[0] for problem in found}
    assert names == set(words), (words, found)


def is_good(tale, **options):
    assert tale.check(**options) == [], tale.check(**options)
