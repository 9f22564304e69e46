#!/usr/bin/python3
"""test_checker.py - the checker itself: hand-made histories, for every invariant good ones and bad.

A story is told with Tale (tale.py). The good stories hold the awkward things that are allowed;
each bad one breaks one statement, and exactly the check of that statement has to say so.
"""
import json
import pathlib
import tempfile

import checker
import clients
from harness import case, run_cases
from tale import Tale, is_good, tells


# ---- Good stories -------------------------------------------------------------------------------


@case
def an_ordinary_history_is_good():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.write(1, 1, 20, 30)
    tale.read(1, 25, 35)
    tale.row("renew", 1)
    tale.op("renew", 40, 50, token=1, lease="lease1", left=10)
    tale.release(1, 60, 70)
    tale.op("release", 80, 90, token=1, lease="lease1", again=True)
    tale.grant(2, 75, 100)
    tale.write(2, 2, 110, 120, f="delete")
    tale.read(None, 130, 140)
    tale.write(2, 3, 150, 160)
    tale.read(3, 170, 180, wrote=2)
    tale.release(2, 190, 200)
    is_good(tale, exclusive=True)


@case
def a_zombie_that_is_refused_is_good():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.expire(1)
    tale.grant(2, 20, 30)
    tale.row("refuse", 1, code="stale_fencing_token", key="k")
    tale.op("write", 40, 50, token=1, key="k", value="x", code="stale_fencing_token")
    tale.op("renew", 60, 70, token=1, lease="lease1", code="lease_superseded")
    tale.op("release", 80, 90, token=1, lease="lease1", code="lease_superseded")
    is_good(tale)


@case
def a_zombies_write_that_overlaps_the_grant_may_be_accepted():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.write(1, 1, 15, 60)
    tale.expire(1)
    tale.grant(2, 20, 40)
    is_good(tale)


@case
def what_is_unknown_may_have_happened_or_not():
    tale = Tale()
    tale.op("acquire", 0, owner="lost")
    tale.grant(4, 1, None)
    tale.expire(4)
    tale.grant(5, 20, 30)
    tale.write(5, 1, 40, None, value="happened")
    tale.op("write", 40, token=5, key="k", value="did not")
    tale.read(1, 50, 60, value="happened", wrote=5)
    tale.op("release", 70, token=5)
    is_good(tale)


@case
def a_grant_that_came_too_late_to_be_answered_is_good():
    tale = Tale()
    tale.grant(1, 0, 10, code="expired_while_granting")
    tale.row("release", 1, reason="expired_while_granting")
    is_good(tale)
    tale.ledger[-1].update(kind="expire", reason=None)  # the next one was faster
    is_good(tale)


@case
def a_renewal_that_a_crash_took_is_good():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.op("renew", 20, 30, token=1, lease="lease1", left=10)
    is_good(tale)


@case
def two_may_hold_where_the_limit_is_two():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.grant(2, 20, 30)
    tale.write(1, 1, 40, 50)
    is_good(tale, limit=2)
    tells(tale, "fence", "ledger")


# ---- Bad ones: tokens ---------------------------------------------------------------------------


@case
def a_token_for_two_leases_is_found():  # CK1, I2
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.expire(1)
    tale.grant(1, 5, 12).lease = "other"
    tale.ledger[-1]["owner"] = tale.ops[-1].owner = "other"
    tells(tale, "unique", "ledger")


@case
def a_lease_with_two_tokens_is_found():  # CK1
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.expire(1)
    tale.grant(2, 20, 30).lease = "lease1"
    tells(tale, "unique")


@case
def a_later_grant_with_a_smaller_token_is_found():  # CK2, I5
    tale = Tale()
    tale.op("acquire", 0, 10, owner="a", token=5, lease="5", left=1)
    tale.op("acquire", 20, 30, owner="b", token=4, lease="4", left=1)
    tale.row("grant", 4, owner="b")
    tale.expire(4)
    tale.row("grant", 5, owner="a")
    tells(tale, "order", "real time")


@case
def concurrent_grants_may_be_answered_in_any_order():
    tale = Tale()
    tale.grant(1, 0, 50)
    tale.release(1, 12, 14)  # by somebody who was told by the first
    tale.grant(2, 15, 30)
    is_good(tale)


@case
def the_same_token_again_after_redis_lost_its_data_is_found():  # D.2 variant C
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.op("acquire", 20, 30, owner="second", token=1, lease="second", left=1)
    tells(tale, "unique", "order", "join")


# ---- The fence ----------------------------------------------------------------------------------


@case
def a_write_with_an_old_token_is_found():  # CK3, I4, I6
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.expire(1)
    tale.grant(2, 20, 30)
    tale.write(1, 1, 40, 50)
    tells(tale, "fence", "ledger")


def _after_the_grant_of_another(f, **fields):
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.expire(1)
    tale.grant(2, 20, 30)
    tale.op(f, 40, 50, token=1, lease="lease1", **fields)
    tells(tale, "fence")


@case
def a_fenced_read_with_an_old_token_is_found():
    _after_the_grant_of_another("fenced_read", key="k")


@case
def a_check_of_an_old_token_is_found():
    _after_the_grant_of_another("check")


@case
def a_renewal_after_the_next_grant_is_found():  # P9
    _after_the_grant_of_another("renew", left=10)


@case
def a_write_that_came_into_the_ledger_after_its_lease_ended_is_found():  # CK4, I4
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.release(1, 20, 50)
    tale.write(1, 1, 20, 50)
    tells(tale, "ledger")


@case
def a_write_of_a_token_never_granted_is_found():  # CK6
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.write(7, 1, 20, 30)
    tells(tale, "ledger")


def _after_the_release(f, *words, **fields):
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.release(1, 20, 30)
    tale.op(f, 40, 50, token=1, lease="lease1", **fields)
    tells(tale, "release", *words)


@case
def a_write_after_the_release_is_found():  # CK7, I6
    _after_the_release("write", "join", key="k", version=1, value="v")


@case
def a_renewal_after_the_release_is_found():  # T3
    _after_the_release("renew", left=10)


@case
def a_fenced_read_after_the_release_is_found():
    _after_the_release("fenced_read", key="k")


@case
def a_refusal_of_a_live_token_is_found():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.row("refuse", 1, code="stale_fencing_token", key="k")
    tells(tale, "ledger")
    tale.ledger[-1]["code"] = "fencing_token_not_issued"
    tells(tale, "ledger")
    tale.ledger[-1]["code"] = "version_mismatch"
    is_good(tale)


# ---- The ledger ---------------------------------------------------------------------------------


@case
def a_mark_that_falls_is_found():  # I1
    tale = Tale()
    tale.grant(2, 0, 100)
    tale.expire(2)
    tale.grant(1, 0, 100)
    tells(tale, "ledger")


@case
def more_live_leases_than_the_limit_are_found():  # CK9, I8
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.grant(2, 20, 30)
    tells(tale, "ledger")


@case
def a_lease_that_ends_twice_is_found():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.release(1, 20, 30)
    tale.expire(1)
    tells(tale, "ledger")


@case
def a_version_that_is_left_out_is_found():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.write(1, 1, 20, 30)
    tale.write(1, 3, 40, 50)
    tells(tale, "ledger")


@case
def a_seq_that_is_used_twice_is_found():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.row("write", 1, seq=1, key="k", version=1)
    tale.op("write", 0, 10, token=1, key="k", version=1, value="v")
    tells(tale, "ledger")


@case
def an_order_of_commits_that_no_client_can_have_seen_is_found():  # CK8 across records
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.row("write", 1, seq=3, key="a", version=1)
    tale.row("write", 1, seq=2, key="b", version=1)
    tale.op("write", 20, 30, token=1, key="a", version=1, value="v")
    tale.op("write", 40, 50, token=1, key="b", version=1, value="v")
    tells(tale, "real time")


# ---- Durability ---------------------------------------------------------------------------------


def _without_last_row(tale, *words):
    tale.ledger.pop()
    tells(tale, *words)


@case
def an_answered_grant_that_is_lost_is_found():  # CK5, I3, I7
    tale = Tale()
    tale.grant(1, 0, 10)
    _without_last_row(tale, "join")


@case
def an_answered_write_that_is_lost_is_found():  # CK5, I7
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.write(1, 1, 20, 30)
    _without_last_row(tale, "join")


@case
def an_answered_release_that_is_lost_is_found():  # CK5, I7
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.release(1, 20, 30)
    _without_last_row(tale, "join")


@case
def a_refused_write_that_was_done_is_found():  # CK5
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.write(1, 1, 20, 30, code="store_unavailable").version = None
    tells(tale, "join")


@case
def a_refused_acquire_that_was_granted_is_found():  # CK5
    tale = Tale()
    tale.grant(1, 0, 10, code="lease_held")
    tells(tale, "join")


@case
def a_grant_too_late_that_was_not_ended_is_found():  # T1
    tale = Tale()
    tale.grant(1, 0, 10, code="expired_while_granting")
    tells(tale, "join")


@case
def a_refused_release_that_was_done_is_found():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.release(1, 20, 30, code="lease_superseded")
    tells(tale, "join")


@case
def rows_that_nobody_asked_for_are_found():  # CK6
    for kind, fields in (("grant", {"owner": "x"}), ("write", {"key": "k", "version": 1}),
                         ("release", {}), ("renew", {})):
        tale = Tale()
        if kind != "grant":
            tale.grant(1, 0, 10)
        tale.row(kind, 1, **fields)
        tells(tale, "join")


@case
def one_unknown_write_explains_one_row_only():  # W6: a request that was carried out twice
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.write(1, 1, 20, None)
    tale.row("write", 1, key="k", version=2)
    tells(tale, "join")


@case
def a_conditional_write_explains_the_next_version_only():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.write(1, 1, 20, 30)
    tale.write(1, 2, 40, None, expect=1)
    is_good(tale)
    tale.ops[-1].expect = 5
    tells(tale, "join")


@case
def an_acquire_granted_twice_is_found():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.expire(1)
    tale.row("grant", 2, owner="owner1")
    tells(tale, "join")


@case
def a_forgotten_lease_is_found():  # I7
    for f, code in (("renew", "lease_not_found"), ("release", "lease_not_found"),
                    ("write", "fencing_token_not_issued"), ("write", "lease_mismatch"),
                    ("check", "fencing_token_not_issued"), ("acquire", "500")):
        tale = Tale()
        tale.grant(1, 0, 10)
        tale.op(f, 20, 30, token=1, lease="lease1", owner="x", key="k", code=code)
        tells(tale, "answers")


@case
def a_grant_without_time_left_is_found():  # T1, P4
    for left, ttl, good in ((0, 100, False), (1, 100, False), (2, 100, True), (9, 1000, False),
                            (100, 100, True), (101, 100, False), (-5, 100, False)):
        tale = Tale()
        tale.grant(1, 0, 10, left=left, ttl=ttl)
        assert (tale.check() == []) == good, (left, ttl)


@case
def a_write_with_the_id_of_another_lease_is_found():  # I4
    for outcome, words in (({"code": "lease_mismatch"}, ()), ({"version": 1}, ("answers",))):
        tale = Tale()
        tale.grant(1, 0, 10)
        if "version" in outcome:
            tale.row("write", 1, key="k", version=1)
        tale.op("write", 20, 30, token=1, lease="lease1", shown="other", key="k", **outcome)
        tells(tale, *words)


# ---- The register -------------------------------------------------------------------------------


def _two_writes():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.write(1, 1, 20, 30)
    tale.write(1, 2, 40, 50)
    return tale


@case
def a_stale_read_is_found():  # CK8
    tale = _two_writes()
    tale.read(1, 60, 70)
    tells(tale, "register")


@case
def a_read_that_overlaps_the_write_may_see_either():
    for version in (1, 2):
        tale = _two_writes()
        tale.read(version, 45, 70)
        is_good(tale)


@case
def two_reads_that_go_back_are_found():  # CK8: each for itself is fine
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.write(1, 1, 20, 30)
    tale.write(1, 2, 40, 100)
    tale.read(2, 50, 60)
    tale.read(1, 70, 80)
    tells(tale, "register")


@case
def a_read_from_the_future_is_found():
    tale = _two_writes()
    tale.read(2, 32, 38)
    tells(tale, "register")


@case
def a_read_of_another_value_is_found():
    for change in ({"value": "other"}, {"wrote": 9}):
        tale = _two_writes()
        tale.read(2, 60, 70, **change)
        tells(tale, "register")


@case
def a_read_of_a_version_that_nobody_wrote_is_found():
    tale = _two_writes()
    tale.read(3, 60, 70)
    tells(tale, "register")


@case
def a_read_of_an_unknown_write_dates_it():
    tale = Tale()
    tale.grant(1, 0, 10)
    tale.write(1, 1, 20, None)
    tale.read(1, 40, 50)
    is_good(tale)
    tale.read(None, 60, 70)  # it was there before, and nobody deleted it
    tells(tale, "register")


@case
def a_record_is_absent_before_its_first_write_and_after_a_delete_only():
    tale = _two_writes()
    tale.write(1, 3, 60, 70, f="delete")
    tale.write(1, 4, 80, 90)
    for start, end, good in ((11, 19, True), (25, 26, True), (32, 38, False), (55, 58, False),
                             (65, 66, True), (72, 78, True), (85, 89, True), (95, 99, False)):
        tale.read(None, start, end)
        assert (tale.check() == []) == good, (start, end, tale.check())
        tale.ops.pop()


# ---- The set ------------------------------------------------------------------------------------


def _set_of(*steps):
    """Each step: (elements written, how it ended); the last one: what was read at the end."""
    tale = Tale()
    for at, (elements, outcome) in enumerate(steps[:-1]):
        op = tale.op("write", at * 10, None, key="set", value=json.dumps(elements))
        op.outcome = outcome
    tale.op("read", 1000, 1010, key="set", value=json.dumps(steps[-1]))
    return [problem.partition(":")[0] for problem in checker.check_set(tale.ops, "set")]


@case
def a_lost_update_is_found():  # CK16: two read [a], both wrote
    assert _set_of((["a"], "ok"), (["a", "b"], "ok"), (["a", "c"], "ok"), ["a", "c"]) == ["set"]


@case
def a_set_without_lost_updates_is_good():
    assert _set_of((["a"], "ok"), (["a", "b"], "info"), (["a", "c"], "fail"),
                   (["a", "b", "d"], "ok"), ["a", "b", "d"]) == []


@case
def an_element_of_a_refused_write_is_found():
    assert _set_of((["a"], "fail"), ["a"]) == ["set"]


@case
def an_element_that_is_there_twice_is_found():
    assert _set_of((["a"], "ok"), ["a", "a"]) == ["set"]


# ---- Overlaps -----------------------------------------------------------------------------------

MS = 1_000_000


def _overlaps(*spans):
    """Each span: (answered, left in ms), from 0 on; tokens in order."""
    tale = Tale()
    for token, (start, end, left) in enumerate(spans, 1):
        tale.grant(token, start * MS, end * MS, left=left)
        tale.expire(token)
    return len(checker.overlaps(tale.ops))


@case
def overlapping_holders_are_found():  # CK11
    assert _overlaps((0, 1, 100), (50, 60, 100)) == 1
    assert _overlaps((0, 1, 100), (90, 105, 100)) == 0  # granted when the time had passed
    assert _overlaps((0, 1, 300), (50, 60, 10), (80, 90, 10)) == 2


@case
def a_renewal_lengthens_and_a_release_ends_what_a_client_believes():
    tale = Tale()
    tale.grant(1, 0, MS, left=100)
    tale.op("renew", 90 * MS, 95 * MS, token=1, lease="lease1", left=100)
    tale.expire(1)
    tale.grant(2, 140 * MS, 150 * MS)
    tells(tale, "overlap", exclusive=True)
    tale.op("release", 130 * MS, token=1, lease="lease1")
    assert checker.overlaps(tale.ops) == []


# ---- Events -------------------------------------------------------------------------------------


@case
def events_become_ops():
    history = clients.History()
    first, second = history.new_process(), history.new_process()
    history.add(first, "invoke", f="write", res="r", key="k", value="v", token=1)
    history.add("nemesis", "info", f="kill_gateway")
    history.add(second, "invoke", f="acquire", res="r", owner="o", ttl=10)
    history.add(second, "ok", token=2, lease="l", left=9)
    history.add(second, "invoke", f="release", res="r", token=2, lease="l")
    history.add(first, "info", error="timeout")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "history.jsonl"
        history.write(path)
        write, acquire, release = checker.pair(checker.load(path))
    assert (write.outcome, write.end) == ("info", float("inf"))
    assert acquire.ok and acquire.token == 2 and acquire.start < acquire.end
    assert release.outcome == "info" and release.i == 4  # it never ended


if __name__ == "__main__":
    run_cases()
