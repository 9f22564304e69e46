#!/usr/bin/python3
"""test_redis_replies.py - garbage in our keys, and replies that no script of ours gives.

Garbage costs at most the lease it stands on: it neither blocks a resource nor ends another lease, and
nothing that Redis says brings the gateway down or is taken for an answer that it is not.

Row numbers are those of the catalogue of failure modes, see README.md. SOAK=1 makes it longer, SEED
repeats a run.
"""
import time

from fake_redis import PASS, always, array, bulk, error
from harness import Scene, case, eventually, run_cases
from outages import (LONG_MS, RANDOM, SECRET, SEED, SOAK, counter_key, during, expect, faked, gateway,
                     holders_key, recovers, soon, timed, writes_go_on)

MAX_TOKEN = 2**53 - 1

# ---- Garbage in our keys -------------------------------------------------------------------------


GARBAGE_COUNTERS = ["05", " 5", "5 ", "+5", "-3", "1e20", "0x10", "", "nan", "inf", "9" * 20,
                    str(2**53), str(2**63 - 1), "5\x00"]


@case
def garbage_in_the_counter():  # R15, V8
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        newest = 0
        for text in GARBAGE_COUNTERS:
            redis.command("SET", counter_key("r"), text)
            lease = gate.acquire("r")
            assert lease.token > newest, text
            newest = lease.token
            gate.release(lease)
        assert newest <= 2 * len(GARBAGE_COUNTERS), "a number that is no counter was believed"


@case
def keys_of_another_type():  # R14: WRONGTYPE
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        newest = 0
        for key in (counter_key("r"), holders_key("r")):
            for words in (("RPUSH", key, "x"), ("HSET", key, "a", "b"), ("SET", key, "x"),
                          ("SADD", key, "x"), ("ZADD", key, 5, "x"), ("XADD", key, "*", "a", "b")):
                redis.command("DEL", key)
                redis.command(*words)
                lease = gate.acquire("r", ttl_ms=LONG_MS)
                assert lease.token > newest
                newest = lease.token
                redis.command("DEL", key)
                redis.command(*words)
                answer = gate.renew(lease)
                assert answer.status in (200, 410), (words, answer.body)
                redis.command("DEL", key)
                redis.command(*words)
                assert gate.call("GET", f"/leases/{lease.id}").status == 200
                expect(gate.release(lease), 200)
        during(gate, lambda: (redis.command("DEL", "fencegate:store"),
                              redis.command("RPUSH", "fencegate:store", "x")),
               lambda: redis.command("DEL", "fencegate:store"))


FAR = str(10**13)  # a score in the year 2286
GARBAGE_MEMBERS = {
    "no colon": ("garbage", FAR),
    "empty": ("", FAR),
    "no token": (f":{SECRET}", FAR),
    "leading zero": (f"05:{SECRET}", FAR),
    "sign": (f"+5:{SECRET}", FAR),
    "negative": (f"-5:{SECRET}", FAR),
    "blank": (f" 5:{SECRET}", FAR),
    "capitals": (f"5:{SECRET.upper()}", FAR),
    "short secret": ("5:abcd", FAR),
    "long secret": (f"5:{SECRET}0", FAR),
    "long token": (f"{'9' * 40}:{SECRET}", FAR),
    "above all tokens": (f"{2**63}:{SECRET}", FAR),
    "a zero byte": (b"5:" + SECRET.encode() + b"\x00", FAR),
    "not text": (b"\xff\xfe\x00", FAR),
    "for ever": (f"5:{SECRET}", "inf"),
    "for ever, garbage": ("garbage", "inf"),
    "since ever": ("garbage", "-inf"),
    "a fraction": (f"5:{SECRET}", "9999999999999.5"),
    "beyond integers": (f"5:{SECRET}", "1e300"),
}


@case
def garbage_among_the_holders_blocks_nobody():  # R15
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        wrong = []
        for name, (member, score) in GARBAGE_MEMBERS.items():
            redis.command("DEL", holders_key("r"))
            redis.command("ZADD", holders_key("r"), score, member)
            answer = timed(gate.try_acquire, "r", ttl_ms=LONG_MS)
            again_ = timed(gate.try_acquire, "r", ttl_ms=LONG_MS)
            if 201 not in (answer.status, again_.status):
                wrong.append((name, answer.status, answer.code, again_.code))
                continue
            got = answer if answer.status == 201 else again_
            gate.call("DELETE", f"/leases/{got.json()['lease_id']}")
        assert not wrong, wrong


@case
def garbage_beside_a_holder_does_not_end_it():  # R15
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        wrong = []
        for name, (member, score) in GARBAGE_MEMBERS.items():
            lease = gate.acquire("r", ttl_ms=LONG_MS)
            redis.command("ZADD", holders_key("r"), score, member)
            steps = [gate.renew(lease, ttl_ms=LONG_MS), gate.call("GET", f"/leases/{lease.id}"),
                     gate.try_acquire("r")]
            state = steps[1].json()["state"]
            left_ms = steps[1].json()["expires_in_ms"]
            statuses = [step.status for step in steps]
            if statuses != [200, 200, 409] or state != "held" or not 0 < left_ms <= LONG_MS:
                wrong.append((name, statuses, steps[0].code, state, left_ms))
            expect(gate.release(lease), 200)
            redis.command("DEL", holders_key("r"))
        assert not wrong, wrong


@case
def a_holder_whose_expiry_is_garbage():  # R15
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        wrong = []
        for score in ("inf", "-inf", "1e300", "-1e300", "0.5", str(2**63), str(-(2**63))):
            lease = gate.acquire("r", ttl_ms=LONG_MS)
            member = redis.command("ZRANGE", holders_key("r"), 0, -1)[0]
            redis.command("ZADD", holders_key("r"), score, member)
            view = gate.call("GET", f"/leases/{lease.id}")
            busy = gate.try_acquire("r", ttl_ms=LONG_MS)
            if view.status != 200 or not 0 <= view.json()["expires_in_ms"] < 2**53 or \
                    busy.status not in (201, 409):
                wrong.append((score, view.body, busy.body))
            if busy.status == 409:
                retry_ms = busy.json()["retry_after_ms"]
                if not 0 <= retry_ms < 2**53:
                    wrong.append((score, retry_ms))
                expect(gate.release(lease), 200)
            else:
                gate.call("DELETE", f"/leases/{busy.json()['lease_id']}")
        assert not wrong, wrong


@case
def the_counter_near_its_end():  # V8, V10
    with Scene() as scene:
        redis = scene.redis()
        gate = gateway(scene, redis)
        for counter in (10**14, 10**15, 2**52 + 1, MAX_TOKEN - 2):
            redis.command("SET", counter_key("r"), counter)
            lease = gate.acquire("r")
            assert lease.token == counter + 1, (lease.token, counter)
            assert gate.put("r", "k", lease.token, b"x").status in (200, 201)
            assert gate.renew(lease).status == 200
            gate.release(lease)
        last = gate.acquire("r")
        assert last.token == MAX_TOKEN
        assert gate.put("r", "k", MAX_TOKEN, b"x").status == 200
        assert gate.renew(last).status == 200
        gate.release(last)
        for _ in range(3):
            expect(gate.try_acquire("r"), 507, "tokens_exhausted")
        redis.command("DEL", counter_key("r"))  # its mark knows, too
        expect(gate.try_acquire("r"), 507, "tokens_exhausted")
        assert gate.acquire("another").token == 1

# ---- Redis says what it should not ---------------------------------------------------------------


def nested(depth):
    return b"*1\r\n" * depth + b"$1\r\nx\r\n"


def lies():
    """Replies to acquire and renew that none of our scripts gives."""
    now = int(time.time() * 1000)
    member = f"7:{SECRET}"
    expiry = str(now + LONG_MS)
    table = {text: error(text) for text in (
        "READONLY You can't write against a read only replica.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots",
        "BUSY Redis is busy running a script.", "BUSYKEY Target key name already exists.",
        "LOADING Redis is loading the dataset in memory", "NOAUTH Authentication required.",
        "NOPERM this user has no permissions", "MASTERDOWN Link with MASTER is down",
        "CLUSTERDOWN The cluster is down", "MOVED 1234 127.0.0.1:6379", "ASK 1234 127.0.0.1:6379",
        "TRYAGAIN Multiple keys request", "CROSSSLOT Keys in request don't hash to the same slot",
        "NOREPLICAS Not enough good replicas to write.", "EXECABORT Transaction discarded",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "UNKILLABLE Sorry", "NOSCRIPT No matching script.", "ERR unknown", "SOMETHINGNEW",
        "ERR user_script:12: attempt to compare nil with number", "")}
    table |= {
        "a long error": error("ERR " + "x" * 100000),
        "garbage": b"garbage\r\n",
        "binary garbage": bytes(range(256)) * 4,
        "HTTP": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        "an inline line": b"PONG\r\n",
        "nil": b"$-1\r\n",
        "a nil array": b"*-1\r\n",
        "an integer": b":7\r\n",
        "a huge integer": b":99999999999999999999999\r\n",
        "a status": b"+OK\r\n",
        "a string": bulk("GRANTED"),
        "an empty string": bulk(""),
        "a negative length": b"$-5\r\n",
        "a length that is none": b"$abc\r\n",
        "a length beyond all": b"$99999999999999999999\r\n",
        "an array beyond all": b"*99999999999999999999\r\n",
        "a negative array": b"*-7\r\n",
        "an empty array": array(),
        "deeply nested": nested(5),
        "too deeply nested": nested(100),
        "another word": array("SOMETHING", "7", str(now), array(), array()),
        "a word in lower case": array("granted", "7", str(now), array(member, expiry), array()),
        "OK of another script": array("OK"),
        "an array of integers": array(b":1\r\n", b":2\r\n", b":3\r\n", b":4\r\n"),
        "an array of nils": array(b"$-1\r\n", b"$-1\r\n", b"$-1\r\n"),
        "only the word GRANTED": array("GRANTED"),
        "only the word RENEWED": array("RENEWED"),
        "only the word BUSY": array("BUSY"),
        "GRANTED with token 0": array("GRANTED", "0", str(now), array(f"0:{SECRET}", expiry), array()),
        "GRANTED with a negative token": array("GRANTED", "-7", str(now), array(member, expiry),
                                               array()),
        "GRANTED beyond 2^53": array("GRANTED", str(2**53), str(now),
                                     array(f"{2**53}:{SECRET}", expiry), array()),
        "GRANTED beyond int64": array("GRANTED", "9" * 25, str(now), array(member, expiry), array()),
        "GRANTED with a token that is none": array("GRANTED", "7x", str(now), array(), array()),
        "GRANTED without holders": array("GRANTED", "7", str(now), array(), array()),
        "GRANTED to another": array("GRANTED", "7", str(now), array(member, expiry), array()),
        "GRANTED with holders that are none": array("GRANTED", "7", str(now), b":1\r\n", bulk("x")),
        "GRANTED with an odd list": array("GRANTED", "7", str(now), array(member), array()),
        "GRANTED with a nil in the list": array("GRANTED", "7", str(now),
                                                array(b"$-1\r\n", b"$-1\r\n"), array()),
        "GRANTED with a bad time": array("GRANTED", "7", "yesterday", array(member, "x"), array()),
    }
    return table


@case
def every_kind_of_wrong_reply():  # R14, B10
    with Scene() as scene:
        _, fake, gate = faked(scene)
        wrong = []
        for name, reply in lies().items():
            eventually(lambda: gate.try_acquire("before", ttl_ms=50).status in (201, 409),
                       what="the state before")
            lease = soon(gate, "held")
            for call in ("acquire", "renew"):
                fake.rule = always(call, reply)
                answer = timed(gate.try_acquire, "fresh") if call == "acquire" else \
                    timed(gate.renew, lease)
                if not gate.running():
                    raise AssertionError(f"{name}: the gateway died on {call}: {wrong}")
                if (answer.status, answer.code) != (503, "redis_unavailable"):
                    wrong.append((name, call, answer.status, answer.code))
                if gate.put("held", "k", lease.token, b"x").status not in (200, 201):
                    wrong.append((name, call, "put"))
                fake.rule = lambda command: PASS
                eventually(lambda: gate.try_acquire("between", ttl_ms=50).status in (201, 409),
                           what="recovery")
            if gate.release(lease).status != 200:
                wrong.append((name, "release"))
        assert not wrong, "\n".join(map(str, wrong))


@case
def wrong_replies_to_release_are_tried_again():  # R14
    with Scene() as scene:
        redis, fake, gate = faked(scene)
        wrong = []
        for name, reply in lies().items():
            lease = soon(gate, "held")
            fake.rule = always("release", reply)
            if gate.release(lease).status != 200:
                wrong.append((name, "release"))
            if gate.put("held", "k", lease.token, b"x").code != "stale_fencing_token":
                wrong.append((name, "put"))
            fake.rule = lambda command: PASS
            assert gate.running(), name
        recovers(gate)
        eventually(lambda: redis.command("ZCARD", holders_key("held")) == 0 or
                   gate.try_acquire("held", ttl_ms=50).status == 201, what="the removal")
        assert not wrong, wrong


@case
def wrong_replies_to_inspect_leave_the_expiry_unknown():  # R14
    with Scene() as scene:
        _, fake, gate = faked(scene)
        wrong = []
        for name, reply in lies().items():
            lease = soon(gate, "held")
            fake.rule = always("inspect", reply)
            answer = timed(gate.call, "GET", f"/leases/{lease.id}")
            if answer.status != 200 or answer.json()["state"] != "held" or \
                    answer.json()["expires_in_ms"] is not None:
                wrong.append((name, answer.status, answer.json().get("state")))
            fake.rule = lambda command: PASS
            gate.release(lease)
        assert not wrong, "\n".join(map(str, wrong))


@case
def wrong_first_words_keep_it_degraded():  # R14, BR9
    with Scene() as scene:
        redis, fake, gate = faked(scene)
        lease = gate.acquire("held", ttl_ms=LONG_MS)
        table = lies()
        names = list(table) if SOAK else RANDOM.sample(sorted(table), 8)
        for name in names:
            # A foreign array is an answer to hello: any but WRONG_STORE lets us in, scripts ask again.
            fake.rule = always("hello", table[name])
            fake.cut()
            writes_go_on(gate, lease, "held")
            answer = timed(gate.try_acquire, "fresh", ttl_ms=50)
            assert answer.status in (201, 409, 503), (name, answer.body)
            assert gate.running(), name
            fake.rule = lambda command: PASS
            fake.cut()
            recovers(gate)


if __name__ == "__main__":
    print(f"SEED={SEED}")
    run_cases()
