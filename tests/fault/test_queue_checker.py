#!/usr/bin/python3
"""test_queue_checker.py - the checks of limits and of waiting: hand-made histories, good and bad.

As test_checker.py; here times are milliseconds, and the rows of the ledger have theirs.
"""
import datetime

import checker
import queue_checker
from harness import case, run_cases
from tale import Tale, is_good, tells

MS = queue_checker.MS
PATIENCE_MS = 1000


class Story(Tale):
    """A resource that has the limit `limit` from the beginning."""

    def __init__(self, limit=1):
        super().__init__()
        self.now = 0
        self.config(f"created, limit {limit}")

    def op(self, f, start, end=None, **fields):
        for name in ("queued", "leaving", "gone"):
            if fields.get(name) is not None:
                fields[name] *= MS
        return super().op(f, start * MS, None if end is None else end * MS, **fields)

    def row(self, kind, token, seq=None, at=None, **fields):
        self.now = self.now if at is None else at
        moment = datetime.datetime.fromtimestamp(self.now / 1000, datetime.timezone.utc)
        text = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        super().row(kind, token, seq, **{"at": text, "ttl_ms": None, **fields})

    def config(self, reason, at=None):
        self.row("config", None, at=at, reason=reason)

    def lease(self, token, start, end, at=None, ttl=1_000_000, left=None, **fields):
        """Asked for, and granted at a time (else when it was answered)."""
        owner = f"owner{token}"
        self.row("grant", token, at=end if at is None else at, owner=owner, ttl_ms=ttl)
        return self.op("acquire", start, end, owner=owner, token=token, lease=f"lease{token}",
                       left=ttl if left is None else left, ttl=ttl, **fields)

    def in_vain(self, start, end, code="lease_held", waited=None, **fields):
        """An acquire that is refused."""
        return self.op("acquire", start, end, code=code, owner=f"in vain {start}",
                       waited=end - start if waited is None else waited, **fields)

    def free(self, token, at):
        self.row("release", token, at=at)
        self.op("release", at, at, token=token, lease=f"lease{token}")

    def run_out(self, token):
        self.row("expire", token)

    def revoke(self, token, at, reason="why"):
        """token None: nothing was live."""
        self.row("revoke", token, at=at, reason=reason)
        return self.op("revoke", at, at, reason=reason, tokens=[] if token is None else [token])

    def find(self, what, *options):
        checker.join(self.ops, self.ledger)
        return getattr(queue_checker, f"check_{what}")(self.ops, self.ledger, *options)


def finds(count, found):
    assert len(found) == count, found


# ---- Limits in the ledger -----------------------------------------------------------------------


@case
def a_limit_that_changes_is_followed():
    story = Story(2)
    story.lease(1, 0, 1)
    story.lease(2, 2, 3)
    story.config("limit 2 -> 3")
    story.lease(3, 4, 5)
    story.config("limit 3 -> 1")
    story.free(1, 6)
    story.free(2, 7)
    story.free(3, 8)
    story.lease(4, 9, 10)
    is_good(story, limit={})


@case
def a_grant_beyond_a_smaller_limit_is_found():
    for left in (0, 1, 2):
        story = Story(3)
        for token in (1, 2, 3):
            story.lease(token, token, token)
        story.config("limit 3 -> 2")
        for token in range(1, 4 - left):
            story.free(token, 5)
        story.lease(4, 6, 7)
        if left < 2:
            is_good(story, limit={})
        else:
            tells(story, "ledger", limit={})


@case
def a_grant_beyond_a_limit_that_is_not_yet_larger_is_found():
    story = Story(1)
    story.lease(1, 0, 1)
    story.lease(2, 2, 3)
    story.config("limit 1 -> 2")
    tells(story, "ledger", limit={})


@case
def a_lease_granted_at_limit_1_that_is_joined_is_found():
    story = Story(1)
    story.lease(1, 0, 1)
    story.config("limit 1 -> 3")
    story.lease(2, 2, 3)
    tells(story, "ledger", limit={})
    story = Story(1)
    story.lease(1, 0, 1)
    story.config("limit 1 -> 3")
    story.run_out(1)
    story.lease(2, 2, 3)
    story.lease(3, 4, 5)
    is_good(story, limit={})


@case
def leases_granted_at_a_greater_limit_may_be_joined():
    story = Story(2)
    story.lease(1, 0, 1)
    story.config("limit 2 -> 1")
    story.config("limit 1 -> 2")
    story.lease(2, 2, 3)
    is_good(story, limit={})


@case
def a_change_from_a_limit_that_it_was_not_is_found():
    story = Story(2)
    story.config("limit 3 -> 4")
    tells(story, "ledger", limit={})


@case
def a_limit_that_nobody_set_is_the_one_given():
    story = Story()
    story.ledger.clear()
    story.lease(1, 0, 1)
    story.lease(2, 2, 3)
    is_good(story, limit={"r": 2})
    is_good(story, limit=2)
    tells(story, "ledger", limit={})


@case
def a_grant_of_what_is_not_fenced_is_found():
    story = Story(1)
    story.config("fenced -> unfenced")
    story.row("write", None, key="k", version=1)
    story.op("write", 1, 2, key="k", version=1, value="v")
    is_good(story, limit={})
    story.config("unfenced -> fenced")
    story.lease(2, 3, 4)
    is_good(story, limit={})
    story.free(2, 5)
    story.config("limit 1 -> 2, fenced -> unfenced")
    story.lease(4, 6, 7)
    tells(story, "ledger", limit={})


@case
def a_write_without_a_token_to_what_is_fenced_is_found():
    story = Story(1)
    story.row("write", None, key="k", version=1)
    story.op("write", 1, 2, key="k", version=1, value="v")
    tells(story, "ledger", limit={})


@case
def who_is_live_at_the_end_is_known():
    story = Story(3)
    for token in (1, 2, 3, 4, 6):
        story.lease(token, token, token)
        if token == 3:
            story.run_out(1)
        if token == 4:
            story.revoke(3, 5)
    story.free(4, 8)
    assert checker.live_tokens(story.ledger, "r") == {2, 6}
    assert checker.live_tokens(story.ledger, "another") == set()


# ---- Revocations --------------------------------------------------------------------------------


@case
def a_revocation_skips_a_token():
    for token, words in ((3, ()), (2, ("ledger",))):
        for live in (1, None):
            story = Story(1)
            story.lease(1, 0, 1)
            if live is None:
                story.free(1, 2)
            story.revoke(live, 3)
            story.lease(token, 4, 5)
            tells(story, *words, limit={})


@case
def a_revocation_of_what_is_not_live_is_found():
    story = Story(1)
    story.lease(1, 0, 1)
    story.free(1, 2)
    story.revoke(1, 3)
    tells(story, "ledger", limit={})


@case
def what_is_accepted_after_a_revocation_is_found():
    for f, fields in (("check", {}), ("renew", {"left": 1}), ("fenced_read", {"key": "k"})):
        story = Story(2)
        story.lease(1, 0, 1)
        story.lease(2, 2, 3)
        story.revoke(1, 4)
        story.op(f, 5, 6, token=2, lease="lease2", **fields)
        is_good(story, limit={})
        story.op(f, 5, 6, token=1, lease="lease1", **fields)
        tells(story, "ended", limit={})


@case
def a_revocation_and_its_answer_have_to_agree():
    def told(change, *words):
        story = Story(1)
        story.lease(1, 0, 1)
        change(story, story.revoke(1, 4))
        tells(story, *words, limit={})

    told(lambda story, op: None)
    told(lambda story, op: setattr(op, "tokens", []), "join")
    told(lambda story, op: story.ledger.pop(), "join")
    told(lambda story, op: story.ops.remove(op), "join")

    def refused(_, op):
        op.outcome, op.code = "fail", "store_unavailable"

    def unknown(_, op):
        op.outcome = "info"

    told(refused, "join")
    told(unknown)


# ---- Co-holders ---------------------------------------------------------------------------------


@case
def what_a_replaced_co_holder_does_is_found():
    for f, fields in (("check", {}), ("renew", {"left": 1}), ("fenced_read", {"key": "k"}),
                      ("release", {})):
        story = Story(2)
        story.lease(1, 0, 1)
        story.lease(2, 2, 3)
        story.run_out(2)
        story.lease(3, 4, 10)
        story.op("check", 11, 12, token=1)
        story.op("check", 5, 12, token=2)  # overlaps the grant that replaced it
        is_good(story, limit={})
        story.op(f, 11, 12, token=2, lease="lease2", **fields)
        tells(story, "ended", *(["join"] if f == "release" else []), limit={})


@case
def a_zombie_in_the_middle_of_the_tokens_that_writes_is_found():
    story = Story(3)
    for token in (1, 2, 3):
        story.lease(token, token, token)
    story.run_out(2)
    story.lease(4, 5, 6)
    for version, token in enumerate((1, 3, 4), 1):
        story.write(token, version, 7 + version, 7 + version)
    is_good(story, limit={})
    story.write(2, 4, 20, 21)
    tells(story, "ledger", "ended", limit={})


@case
def three_that_believe_where_two_may_are_found():
    story = Story(2)
    story.lease(1, 0, 1, ttl=100)
    story.lease(2, 2, 3, ttl=100)
    assert checker.overlaps(story.ops, {"r": 2}) == []
    assert len(checker.overlaps(story.ops, 1)) == 1
    story.lease(3, 50, 51, ttl=100)
    assert len(checker.overlaps(story.ops, {"r": 2})) == 1
    story.lease(4, 101, 200, ttl=100)  # when it is answered all the others have run out
    assert len(checker.overlaps(story.ops, {"r": 2})) == 1


@case
def who_waited_believes_from_the_grant_on():
    story = Story(1)
    story.lease(1, 0, 500, ttl=100, waited=480)
    story.lease(2, 570, 575, ttl=100)
    assert len(checker.overlaps(story.ops)) == 1
    story.ops[-1].end = 585 * MS
    assert checker.overlaps(story.ops) == []


@case
def a_renewal_that_shortens_ends_the_belief_sooner():
    for outcome in ("ok", "info"):
        story = Story(1)
        story.lease(1, 0, 1, ttl=1000)
        story.op("renew", 10, 11, token=1, lease="lease1", ttl=50, left=50).outcome = outcome
        story.lease(2, 70, 71)
        assert checker.overlaps(story.ops) == []


# ---- Overtaken ----------------------------------------------------------------------------------


def _two_in_line(first, second, revoked_at=None, **fields):
    """The first one was queued at 10, the second one asked at 20: the tokens they got."""
    story = Story(1)
    rows = sorted([(first, 0), (second, 20)])
    for token, start in rows:
        if revoked_at is not None and token == rows[0][0]:
            story.revoke(None, revoked_at)
        story.lease(token, start, 100 + token, wait=1000, **({"queued": 10} if not start else {}),
                    **fields)
        story.free(token, 100 + token)
    return story.find("overtaken")


@case
def who_asked_later_is_not_granted_before():
    finds(0, _two_in_line(1, 2))
    finds(1, _two_in_line(2, 1))


@case
def who_lost_a_race_with_an_operator_is_excused():
    finds(0, _two_in_line(3, 2, revoked_at=100))
    finds(1, _two_in_line(3, 2, revoked_at=-2000))
    story = Story(1)
    story.lease(1, 20, 100)
    story.free(1, 100)
    story.lease(2, 0, 100, wait=1000, queued=10)
    story.revoke(2, 101)  # afterwards
    finds(1, story.find("overtaken"))


@case
def who_is_not_known_to_be_queued_is_not_compared():
    for queued in (None, 25):
        story = Story(2)
        story.lease(1, 20, 100)
        story.lease(2, 0, 100, wait=1000, queued=queued)
        finds(0, story.find("overtaken"))


@case
def a_newcomer_that_does_not_wait_does_not_overtake():
    story = Story(2)
    story.lease(1, 20, 21)
    story.lease(2, 0, 100, wait=1000, queued=10)
    finds(1, story.find("overtaken"))


@case
def a_grant_to_one_who_left_counts_as_well():
    story = Story(2)
    story.lease(1, 20, 21)
    gone = story.lease(2, 0, 100, wait=1000, queued=10)
    gone.outcome, gone.gone = "info", 50 * MS
    finds(1, story.find("overtaken"))


@case
def who_waited_in_vain_while_a_later_one_got_it_is_found():
    for answered, count in ((400, 1), (600, 0)):
        story = Story(1)
        story.in_vain(0, 505, wait=500, queued=10)
        story.lease(1, 20, answered)
        finds(count, story.find("overtaken"))


# ---- Deadlines ----------------------------------------------------------------------------------


def _deadline(start, end, stopped_ms=0, **fields):
    story = Story(1)
    story.in_vain(start, end, **fields)
    return queue_checker.check_deadlines(story.ops, PATIENCE_MS * MS, lambda op: stopped_ms * MS)


@case
def an_answer_long_after_its_deadline_is_found():
    finds(0, _deadline(0, 5900, wait=5000))
    finds(1, _deadline(0, 6100, wait=5000))
    finds(0, _deadline(0, 6100, wait=5000, stopped_ms=200))
    finds(1, _deadline(0, 1100))
    finds(1, _deadline(0, 6100, wait=5000, code="grant_contended"))


@case
def a_waiter_that_is_given_up_early_is_found():
    finds(0, _deadline(0, 501, wait=500, waited=500))
    finds(1, _deadline(0, 501, wait=500, waited=499))


@case
def a_wait_that_was_longer_than_its_request_is_found():
    finds(0, _deadline(0, 10, waited=11))
    finds(1, _deadline(0, 10, waited=12))


# ---- Starved ------------------------------------------------------------------------------------


def _starves(story, count=1, start=100, end=10_000):
    """One who waits from `start` on, in vain."""
    story.in_vain(start, end, wait=end - start, queued=start + 1)
    finds(count, story.find("starved", PATIENCE_MS * MS, {}))


@case
def waiting_beside_a_free_place_is_found():
    story = Story(2)
    story.lease(1, 0, 1)
    _starves(story)
    story = Story(2)
    story.lease(1, 0, 1)
    story.lease(2, 0, 1)
    _starves(story, 0)


@case
def waiting_while_many_others_are_served_is_found():
    for others, count in ((15, 1), (14, 0)):
        story = Story(1)
        story.in_vain(0, 300, wait=300, queued=1)
        for number in range(others):
            at = 10 + 10 * number
            story.op("acquire", at, at + 10, token=1, lease="l", left=1).res = "another"
        finds(count, story.find("starved", PATIENCE_MS * MS, {}))
    story = Story(1)
    story.in_vain(0, 300, wait=300, queued=1)
    for number in range(30):  # all at once
        story.op("acquire", 10, 20 + number, token=1, lease="l", left=1).res = "another"
    finds(0, story.find("starved", PATIENCE_MS * MS, {}))


@case
def waiting_after_a_release_is_found():
    for end, count in ((500, 0), (5000, 1)):
        story = Story(1)
        story.lease(1, 0, 1)
        story.free(1, 400)
        _starves(story, count, end=end)


@case
def waiting_after_a_ttl_has_passed_is_found():
    story = Story(1)
    story.lease(1, 0, 1, ttl=3000)
    _starves(story)
    for renewed_at in (2000, 3020):  # its row may come late
        story = Story(1)
        story.lease(1, 0, 1, ttl=3000)
        story.row("renew", 1, at=renewed_at, ttl_ms=30_000)
        _starves(story, 0)
    story = Story(1)
    story.lease(1, 0, 1, ttl=30_000)
    story.row("renew", 1, at=2000, ttl_ms=50)  # shortened
    _starves(story)


@case
def waiting_after_a_revocation_is_found():
    story = Story(1)
    story.lease(1, 0, 1)
    story.revoke(1, 200)
    _starves(story)


@case
def waiting_beside_a_larger_limit_is_found():
    story = Story(2)
    story.lease(1, 0, 1)
    story.lease(2, 0, 1)
    story.config("limit 2 -> 3", at=300)
    _starves(story)
    story.config("limit 3 -> 2", at=600)
    story.ops.pop()
    _starves(story, 0)


@case
def a_lease_granted_at_limit_1_leaves_no_place_until_it_ends():
    story = Story(1)
    story.lease(1, 0, 1)
    story.config("limit 1 -> 3", at=50)
    _starves(story, 0)
    story.ops.pop()
    story.run_out(1)
    story.lease(2, 200, 201)  # replaces it: then two are free
    _starves(story)


@case
def what_is_not_fenced_has_no_place():
    story = Story(1)
    story.config("fenced -> unfenced")
    _starves(story, 0)
    story.ops.pop()
    story.config("unfenced -> fenced", at=300)
    _starves(story)


@case
def waiting_ends_with_the_grant_or_when_the_client_leaves():
    story = Story(1)
    story.lease(1, 100, 9000, at=150, wait=10_000, queued=101)  # read late
    finds(0, story.find("starved", PATIENCE_MS * MS, {}))
    for leaving, count in ((300, 0), (3000, 1)):
        story = Story(1)
        story.op("acquire", 100, owner="left", wait=10_000, queued=101, leaving=leaving, gone=9000)
        finds(count, story.find("starved", PATIENCE_MS * MS, {}))


@case
def who_reads_late_that_it_was_given_up_has_not_waited_until_then():
    story = Story(1)
    story.lease(1, 0, 1, ttl=1000)  # the place is free from 1000 on
    op = story.op("acquire", 100, owner="stopped", wait=400, queued=101, leaving=5000)
    op.gone = 6000 * MS
    finds(0, story.find("starved", PATIENCE_MS * MS, {}))
    op.wait = 6000
    finds(1, story.find("starved", PATIENCE_MS * MS, {}))
    op.outcome, op.code, op.end, op.wait = "fail", "lease_held", 5000 * MS, 400
    finds(0, story.find("starved", PATIENCE_MS * MS, {}))


# ---- Gone and named -----------------------------------------------------------------------------


@case
def a_grant_to_one_who_had_left_is_found():
    for at, count in ((200, 0), (1400, 1)):
        story = Story(1)
        op = story.lease(1, 0, 1, at=at, gone=300)
        op.outcome, op.end, op.token = "info", float("inf"), None
        finds(count, story.find("gone", PATIENCE_MS * MS))


@case
def a_grant_to_one_who_had_left_while_many_others_were_served_is_found():
    for others, count in ((15, 1), (14, 0)):
        story = Story(1)
        op = story.lease(1, 0, 1, at=700, gone=300)
        op.outcome, op.end, op.token = "info", float("inf"), None
        for number in range(others):
            at = 310 + 10 * number
            story.op("acquire", at, at + 10, token=1, lease="l", left=1).res = "another"
        checker.join(story.ops[:1], story.ledger)
        finds(count, queue_checker.check_gone(story.ops, story.ledger, PATIENCE_MS * MS))


@case
def what_limit_was_named_is_held_against_the_one_that_is_set():
    def named(limit, code):
        story = Story(3)
        if code:
            story.in_vain(0, 1, code=code, named=limit)
        else:
            story.lease(1, 0, 1, named=limit)
        return queue_checker.check_named(story.ops, {"r": 3})

    finds(0, named(3, None) + named(None, None) + named(2, "limit_mismatch"))
    finds(0, named(2, "lease_held"))  # it may be that, too
    finds(1, named(2, None))
    finds(1, named(3, "limit_mismatch"))
    finds(1, named(None, "limit_mismatch"))


if __name__ == "__main__":
    run_cases()
