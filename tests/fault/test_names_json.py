#!/usr/bin/python3
"""test_names_json.py - names that look like other names, and JSON that is none, or too much.

Different names are different resources everywhere: in paths, in Redis, in the store, in lists and
in the log. What is no name, or no JSON that we take, is refused, and nothing is granted.
"""
import contextlib
import json
import unicodedata

from harness import Scene, case, eventually, run_cases, segment
from wire import SEED, SOAK, Wire, dice, expect_memory, memory_kb, request

# ---- Names --------------------------------------------------------------------------------------

COMPOSED = unicodedata.normalize("NFC", "caf\u00e9")
DECOMPOSED = unicodedata.normalize("NFD", "caf\u00e9")
ALIKE = [
    # Redis' hash tags, key parts and our escapes of them
    "a", "{a}", "{a", "a}", "a}{b", "{}", "{", "}", "}{", "{}a", "%7Ba%7D", "%7ba%7d", "%", "%25",
    "a:counter", "a:holders", "a}:counter", "a}:holders", "{a}:counter", "fencegate:{a}:holders",
    "fencegate:store", "store", "counter", ":", "a:", ":a", "a%00", "%00",
    # Paths
    "a/b", "a%2Fb", "a%2fb", "/", "//", "/a", "a/", "../a", "a/..", "./a", "...", ".a", "..a",
    "leases", "resources", "a?b", "a#b", "a&b=c", "a+b", "a b", " a", "a ", " ", "\\", "a\\b",
    # Letters
    "A", COMPOSED, DECOMPOSED, "a\u200b", "\u0430", "\uff41", "\ufeffa", "a\u0301", "\U0001f600",
    "\ud7ff", "\ue000", "\uffff", "\U0010ffff", "\u00a0", "\u2028", "\u202e",
    # Other languages than ours
    "'; DROP TABLE resource; --", '"', "'", "`", "$(reboot)", "${jndi:ldap://x}", "<b>", "*", "?",
    "[a-z]", "a*", "%s%n", "null", "0", "-1", "1e3", "true", "KEYS[1]", "\\u0061", "\\n",
    "x" * 200, "x" * 199, "{" * 200, "%" * 200, "é" * 100, "\U0001f600" * 50,
]


@case
def names_that_look_alike_stay_apart():  # E2 E3 E5 E6 E8 E10
    assert len(set(ALIKE)) == len(ALIKE) and COMPOSED != DECOMPOSED
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis)
        leases = {}
        for name in ALIKE:
            leases[name] = gate.acquire(name, ttl_ms=3_600_000)
            assert leases[name].token == 1 and leases[name].answer.json()["resource"] == name
            answer = gate.put(name, name, 1, name.encode())
            assert answer.status == 201 and answer.json()["key"] == name, (name, answer)

        # In Redis: one counter and one set of holders each, under a hash tag of its own.
        keys = set(redis.command("KEYS", "*")) - {"fencegate:store"}
        assert len(keys) == 2 * len(ALIKE), len(keys)
        tags = {key[key.index("{") + 1:key.index("}")] for key in keys}
        assert len(tags) == len(ALIKE) and "" not in tags
        for key in keys:
            kind = key.rpartition(":")[2]
            assert kind in ("counter", "holders"), key
            assert redis.command("TYPE", key) == ("string" if kind == "counter" else "zset"), key

        # In the store: each has its own record, and nothing else.
        for name in ALIKE:
            assert gate.get(name, name).body == name.encode(), name
            items = gate.call("GET", f"/store/{segment(name)}").json()["items"]
            assert [item["key"] for item in items] == [name]
            [row] = gate.call("GET", f"/leases?resource={segment(name)}").json()["items"]
            assert row["resource"] == name
            assert [r["kind"] for r in gate.history(name)] == ["grant", "write"], name
        listed, path = [], "/resources?limit=7"
        while path:
            page = gate.call("GET", path).json()
            listed += [item["resource"] for item in page["items"]]
            cursor = page["next_cursor"]
            path = cursor and f"/resources?limit=7&cursor={cursor}"
        assert sorted(listed, key=str.encode) == listed and set(listed) == set(ALIKE)

        # The end of one is the end of that one only; Redis hears of it after the answer.
        def held():
            return sum(redis.command("ZCARD", key) for key in keys if key.endswith("holders"))

        for number, name in enumerate(ALIKE):
            assert gate.release(leases[name]).status == 200
            if number % 10 == 0:
                left = len(ALIKE) - number - 1
                eventually(lambda it=left: held() <= it, what="the removal")
                assert held() == left, name
        for name in ALIKE:
            assert gate.acquire(name).token == 2, name


def is_name(data):
    """The contract's words, said in another language."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return (1 <= len(data) <= 200 and text not in (".", "..")
            and not any(unicodedata.category(letter) == "Cc" for letter in text))


def name_samples():
    """Bytes that are names, and bytes that are none: every byte, alone and in company, and what
    UTF-8 is known to be got wrong by."""
    for byte in range(256):
        yield bytes([byte])
        yield b"a" + bytes([byte]) + b"b"
        yield b"\xc2" + bytes([byte])
        yield b"\xed" + bytes([byte]) + b"\x80"
        yield b"\xe0" + bytes([byte]) + b"\x80"
        yield b"\xf4" + bytes([byte]) + b"\x80\x80"
    yield from (b"\xc0\x80", b"\xc1\xbf", b"\xc0\xae", b"\xc0\xaf", b"\xe0\x80\xaf",
                b"\xf0\x80\x80\xaf", b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80",
                b"\xef\xbb\xbf", b"\xe2\x82", b"\xf0\x9f\x98", b".", b"..", b"...", b"")
    for length in (199, 200, 201, 1000):
        yield b"x" * length
        yield "é".encode() * (length // 2) + b"x" * (length % 2)
    yield b"x" * 199 + b"\xc3\xa9"
    yield b"x" * 198 + b"\xc3\xa9"
    yield b"x" * 199 + b"\xc3"
    dice_ = dice()
    for _ in range(500):
        yield bytes(dice_.choices(b"a.%\x7f\x80\x9f\xa9\xbf\xc2\xc3\xe2\x82\xac\xf0\xff{}",
                                  k=dice_.randrange(1, 6)))


@case
def every_byte_in_a_path_is_judged():  # E1 E2 E4 E6
    with Scene() as scene:
        gate = scene.gateway()
        token = gate.acquire("r", ttl_ms=3_600_000).token
        for data in sorted(set(name_samples())):
            good = is_name(data)
            forms = {segment(data), "".join(f"%{byte:02x}" for byte in data)}
            for form in forms:
                answer = gate.call("GET", f"/resources/{form}")
                if data == b"":
                    assert answer.status in (400, 404), answer
                elif not good:
                    assert answer.code == "invalid_name", (data, answer)
                elif data != b"r":
                    assert answer.code == "resource_not_found", (data, answer)
            if data:
                answer = gate.put("r", data, token, b"x")
                assert answer.status in ((200, 201) if good else (400,)), (data, answer)


@case
def raw_bytes_in_a_path_are_judged_alike():  # E4
    with Scene() as scene:
        gate = scene.gateway()
        lease = gate.acquire(COMPOSED)
        with Wire(gate.port) as wire:
            wire.send(b"GET /resources/" + COMPOSED.encode() + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert wire.answer().json()["highest_fencing_token"] == lease.token
            paths = b"/resources/%s", b"/store/%s/k", b"/store/r/%s", b"/resources/%s/check"
            for data in (b"\xff", b"\xc3", b"\xe9", b"a\x80", b"\xc2\x85", b"\xed\xa0\x80",
                         b"\xc0\xaf"):
                for path in paths:
                    method = b"POST " if path.endswith(b"check") else b"GET "
                    wire.send(method + path % data + b" HTTP/1.1\r\nHost: x\r\n\r\n")
                    answer = wire.answer()
                    assert answer and answer.code == "invalid_name", (path, data, answer)


@case
def escapes_are_decoded_once_and_late():  # E1 E2
    with Scene() as scene:
        gate = scene.gateway()
        token = gate.acquire("a").token
        gate.put("a", "b", token, b"right")
        for path, status in (
                ("/store/a/b", 200), ("/store/%61/%62", 200), ("/store/a/b%00", 400),
                ("/store/a/b%00c", 400), ("/store/a%00/b", 400), ("/store/a%2Fb", 404),
                ("/store%2Fa%2Fb", 404), ("/%73tore/a/b", 404), ("/store/x/../a/b", 404),
                ("/store/x/..%2Fa%2Fb", 404), ("/store/../store/a/b", 404), ("/store/./b", 400),
                ("/store/%2e/b", 400), ("/store/%2E%2e/b", 400), ("/./store/a/b", 404),
                ("//store/a/b", 404), ("/store//b", 400), ("/store/a//b", 404),
                ("/store/a/b/", 404), ("/store/a/", 400), ("/store/a/b%", 400),
                ("/store/a/b%6", 400), ("/store/a/%%62", 400),
                ("/store/a/%2562", 404), ("/store/a/%u0062", 400), ("/store/a/b;x=1", 404),
                ("/store/a\\b", 404)):
            answer = gate.call("GET", path)
            assert answer.status == status, (path, answer)


@case
def cursors_and_filters_are_judged_as_names():  # E2 E8
    with Scene() as scene:
        gate = scene.gateway()
        for name in ALIKE[:20]:
            gate.acquire(name)
        for text in ("%00", "%ff", "a%00b", "....", "/w==", "AA", "AAAA", "a" * 400, "-1", "0.0",
                     "1.", ".", "9" * 30, "1.9" * 12, "99999999999999999999.1", "%",
                     "%F0%9F%98%80"):
            for path in ("/resources?cursor=", "/leases?cursor=", "/resources/a/history?cursor=",
                         "/resources/a/history?after=", "/store/a?cursor=", "/store/a?prefix=",
                         "/leases?resource=", "/leases?owner=", "/resources/a/history?kind=",
                         "/resources?limit="):
                answer = gate.call("GET", path + text)
                assert answer.status in (200, 400, 404), (path, text, answer)
                if answer.status == 200:
                    assert len(answer.json()["items"]) <= 20


@case
def hostile_names_leave_the_log_readable():  # E7
    hostile = [name for name in ALIKE if len(name.encode()) < 50] + [
        "\u2028{\"level\":\"x\"}\u2029", '"}\\', "\u202etxt", "${jndi:ldap://x/a}", "\\x1b[31m"]
    for log_format in ("json", "text"):
        with Scene() as scene:
            gate = scene.gateway(options=("--log-level", "debug", "--log-format", log_format))
            secrets = []
            for name in hostile:
                owner = f"\n\r\x1b[2J\x07\"{name}\u0085\u2028"
                lease = gate.acquire(name, owner=owner, ttl_ms=60_000)
                secrets.append(lease.id)
                gate.put(name, f"SECRET-KEY-{name}"[:100], lease.token, b"x")
                gate.call("GET", f"/resources/{segment(name)}?a{segment(name)}=1")
                gate.renew(lease)
                gate.release(lease)
            with Wire(gate.port) as wire:
                for raw in (b"\xff\xfe", b"\x1b[2J\x07", b"A\x0cB", b"\"};{\"level\":\"error\"",
                            b"\xe2\x80\xa8"):
                    wire.send(raw + b" /" + raw + b"\\\" HTTP/1.1\r\nHost: x\r\nX-Request-Id: \""
                              + raw + b"\r\n\r\n")
                    if wire.answer() is None:
                        break
            log = open(gate.log_path, "rb").read()
            lines = log.decode().split("\n")  # not splitlines(), which knows more line ends
            assert lines.pop() == "" and len(lines) > 3 * len(hostile)
            for line in lines:
                bad = [c for c in line if unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs")]
                assert not bad, line
                if log_format == "json":
                    row = json.loads(line)
                    assert row["level"] in ("debug", "info", "warn", "error") and "msg" in row, line
            assert not any(secret in line for secret in secrets for line in lines)
            assert "SECRET-KEY" not in log.decode()


# ---- JSON ---------------------------------------------------------------------------------------


def post(gate, body, path="/leases"):
    return gate.call("POST", path, body if isinstance(body, bytes) else body.encode())


def field(text, name="ttl_ms"):
    return f'{{"resource":"j","{name}":{text}}}'


@case
def numbers_are_whole_and_in_range():  # J3
    parsed = ["1e3", "1E3", "1000.0", "1000.5", "0.1", "-0", "-0.0", "0", "-1", "49", "86400001",
              "1e18", "9007199254740993", "9223372036854775807", "-9223372036854775808",
              "1e-400", '"1000"', "true", "null", "[1000]", '{"a":1000}', '""']
    beyond = ["9223372036854775808", "-9223372036854775809", "18446744073709551616", "9" * 300]
    unparsed = ["9" * 5000, "1e309", "-1e309", "1e999999999999", "0x3e8", "01000", "+1000",
                "1000.", ".5", "1e", "1_000", "Infinity", "-Infinity", "NaN", "nan", "--1",
                "1000n", "１０００", ""]
    with Scene() as scene:
        gate = scene.gateway()
        for name in ("ttl_ms", "limit", "wait_ms"):
            for text in parsed:
                if (name, text) in (("limit", "49"), ("wait_ms", "49"), ("wait_ms", "0"),
                                    ("wait_ms", "-0")):
                    continue
                answer = post(gate, field(text, name))
                assert answer.code == "invalid_request", (name, text, answer)
                assert answer.json()["errors"][0]["pointer"] == f"/{name}", (text, answer.body)
            for text in beyond:
                answer = post(gate, field(text, name))
                assert answer.code in ("invalid_request", "invalid_json"), (name, text, answer)
            for text in unparsed:
                answer = post(gate, field(text, name))
                assert answer.code == "invalid_json", (name, text, answer)
        assert gate.call("GET", "/resources/j").status == 404
        for number, ttl_ms in enumerate((50, 86_400_000)):
            lease = gate.acquire(f"in range {number}", ttl_ms=ttl_ms)
            assert lease.answer.json()["ttl_ms"] == ttl_ms
        for limit, wait_ms in ((1, 0), (1000, 600_000)):
            lease = gate.acquire(f"limit {limit}", limit=limit, wait_ms=wait_ms)
            assert lease.answer.json()["limit"] == limit


@case
def text_that_is_no_unicode_is_refused():  # J4 J5 E4
    bodies = [
        rb'{"resource":"\u0000"}', rb'{"resource":"a\u0000b"}', rb'{"resource":"j","a\u0000":1}',
        rb'{"resource":"\ud800"}', rb'{"resource":"\udc00"}', rb'{"resource":"\udc00\ud800"}',
        rb'{"resource":"\ud800\ud800"}', rb'{"resource":"\ud800x"}',
        rb'{"resource":"\ud800\u0041"}', rb'{"resource":"\u12"}', rb'{"resource":"\uzzzz"}',
        rb'{"resource":"\x41"}', rb'{"resource":"\'}',
        b'{"resource":"\xff"}', b'{"resource":"\xc0\x80"}', b'{"resource":"\xed\xa0\x80"}',
        b'{"resource":"\xf4\x90\x80\x80"}', b'{"resource":"\xe2\x82"}',
        b'{"resource":"\xf8\x88\x80\x80\x80"}', b'{"resource":"a\x00b"}',
        b'{"resource":"a\nb"}', b'{"resource":"a\tb"}', b'{"resource":"a\x1fb"}',
        b'{"resource":"j","owner":"\xff"}', b'{"resource":"j","owner":"\\u0000"}', b'{"\xff":1}',
        b'\xef\xbb\xbf{"resource":"j"}', '{"resource":"j"}'.encode("utf-16"),
        '{"resource":"j"}'.encode("utf-16-le"), '{"resource":"j"}'.encode("utf-32"),
        b'{"resource":"j"}\0', b'\0{"resource":"j"}', b'{"resource":"j"}\xff', b"\xff", b"\0",
    ]
    with Scene() as scene:
        gate = scene.gateway()
        for body in bodies:
            answer = post(gate, body)
            assert answer.code == "invalid_json", (body, answer)
        assert gate.call("GET", "/resources").json()["items"] == []
        # Two spellings of one name are one name.
        assert post(gate, rb'{"resource":"\ud83d\ude00\u0061\/"}').status == 201
        assert post(gate, '{"resource":"\U0001f600a/"}').code == "lease_held"
        # Characters that C1 controls are spelled by are no name, but may stand in an owner.
        assert post(gate, rb'{"resource":"a\u0085"}').code == "invalid_name"
        owner = "\u0001\u0085\n\u2028\U0001f600\"\\"
        assert gate.acquire("owned", owner=owner).answer.json()["owner"] == owner


@case
def only_one_object_is_a_body():  # J1 J6 J8
    unparsed = [
        '{"resource":"j"} {}', '{"resource":"j"}}', '{"resource":"j"},', '{"resource":"j"}x',
        '{"resource":"j"};', '{"resource":"j" "ttl_ms":50}', '{"resource":"j"/**/}',
        '{"resource":"j"} // x', '#\n{"resource":"j"}', '{resource:"j"}', "{'resource':'j'}",
        '{"resource":"j",}', '{,"resource":"j"}', '{"resource"}', '{"resource":}',
        '{"resource":"j"', '"resource":"j"', '\x0c{"resource":"j"}', '\u00a0{"resource":"j"}',
        "\n", "undefined",
        # Doubled, also where escapes spell the same
        '{"resource":"j","resource":"j"}', '{"resource":"j","\\u0072esource":"k"}',
        '{"resource":"j","ttl_ms":50,"ttl_ms":86400000}',
        '{"resource":"j","x":{"a":1,"a":2}}',
    ]
    parsed = [
        "[]", "[{}]", '["resource","j"]', "{}", '{"resource":null}', '{"resource":["j"]}',
        '{"resource":{"name":"j"}}', '{"resource":1}', '{"Resource":"j"}', '{"resource ":"j"}',
        '{"resource":"j","":1}', '{"resource":"j","ttl":50}', '{"resource":"j","TTL_MS":50}',
        '{"resource":"j","__proto__":{}}', '{"resource":"j","fencing_token":1}',
        '{"resource":"j","owner":1}', '{"resource":"j","owner":[]}',
        '{"resource":"j","owner":"' + "x" * 129 + '"}', '{"resource":"j","limit":1001}',
        '{"resource":"j","wait_ms":600001}', '{"resource":"j","limit":null}',
    ]
    with Scene() as scene:
        gate = scene.gateway()
        for code, bodies in (("invalid_json", unparsed), ("invalid_request", parsed)):
            for body in bodies:
                answer = post(gate, body)
                assert answer.code == code, (body, answer)
        for body in ("null", "true", "1", '"x"', "1.5"):
            assert post(gate, body).status == 400, body
        assert gate.call("GET", "/resources").json()["items"] == []
        assert post(gate, ' \r\n\t{"resource" : "j"\n} \r\n\t').status == 201
        lease = gate.acquire("k", owner="x" * 128)
        for path in (f"/leases/{lease.id}/renew", "/resources/k/check"):
            headers = {"X-Fencing-Token": "1"}
            for body, code in (("[]", "invalid_request"), ('{"x":1}', "invalid_request"),
                               ('{"ttl_ms":1e3}', "invalid_request"), ("{", "invalid_json")):
                assert gate.call("POST", path, body, headers).code == code, (path, body)


@case
def depth_is_cheap_to_refuse():  # J2 BR37
    with Scene() as scene:
        gate = scene.gateway()
        for depth in (9, 100, 2_048, 2_049, 100_000, 500_000):
            for opening, closing in (("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")):
                text = opening * depth + "1" + closing * depth
                if len(text) > 1_048_000:
                    continue
                for body in (text, opening * depth, f'{{"resource":"j","x":{text}}}',
                             text + '"' * 3):
                    answer = post(gate, body)
                    assert answer.code == "invalid_json" or depth < 9, (depth, opening, answer)
        # Brackets in strings, and behind escaped quotes, are no depth.
        for text in ("[" * 100, "\\\"[" * 60, "\\\\", "{" * 128):
            body = f'{{"resource":"j","owner":"{text}"}}'
            assert post(gate, body).status in (201, 400, 409), body
        assert post(gate, '{"resource":"\\"[[[[[[[[[[[["}').status == 201
        assert post(gate, "]" * 100_000 + "[" * 100_000).code == "invalid_json"


@case
def large_bodies_are_cheap_to_refuse():  # J7 J9
    def keys(names):
        return "{" + ",".join(f'"{name}":1' for name in names) + "}"

    def resource(text):
        return f'{{"resource":"{text}"}}'

    many = range(100_000)
    rows = [
        ("unknown keys", keys(many), "invalid_request"),
        ("keys to escape", keys(f"/~{i:x}" for i in range(80_000)), "invalid_request"),
        ("one key again", keys("a" for _ in many), "invalid_json"),
        ("the last one again", keys([*range(90_000), 1]), "invalid_json"),
        ("a long key", keys(["x" * 1_000_000]), "invalid_request"),
        ("a key that is cut in a character", keys(["a" + "é" * 2_000]), "invalid_request"),
        ("another one", keys(["é" * 2_000]), "invalid_request"),
        ("and with four bytes", keys(["\U0001f600" * 1_000]), "invalid_request"),
        ("a long resource", resource("x" * 1_000_000), "invalid_name"),
        ("a long resource, not ASCII", resource("é" * 500_000), "invalid_name"),
        ("escapes", resource(r"\u00e9" * 170_000), "invalid_name"),
        ("a long owner", field('"' + "x" * 1_000_000 + '"', "owner"), "invalid_request"),
        ("a long unknown field", field('"' + "x" * 1_000_000 + '"', "x"), "invalid_request"),
        ("digits", field("1" * 1_000_000), "invalid_json"),
        ("decimals", field("0." + "1" * 1_000_000), "invalid_request"),
        ("an array", field("[" + "1," * 500_000 + "1]", "x"), "invalid_request"),
        ("blanks", " " * 1_040_000, "invalid_json"),
    ]
    with Scene() as scene:
        gate = scene.gateway()
        before_kb = memory_kb(gate)
        for what, body, code in rows:
            for _ in range(5 if SOAK else 1):
                answer = post(gate, body)
                assert answer.code == code, (what, answer.status, answer.body[:300])
                assert len(answer.body) < 1_100_000, (what, len(answer.body))
        assert len(post(gate, rows[0][1]).body) < 100_000, "an answer six times the request"
        expect_memory(gate, before_kb, 60_000)
        assert gate.call("GET", "/resources").json()["items"] == []


@case
def random_bodies_are_answered():
    """Pieces of JSON in any order, and JSON with a few bytes changed."""
    pieces = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b'"resource"', b'"r"',
              b'"ttl_ms"', b"100", b"1e5", b"-", b"null", b"\\u0000", b"\\ud800", b"\xff",
              b"\xc3\xa9", b"\0", b" ", b"\n"]
    good = b'{"resource":"r","ttl_ms":1000,"owner":"caf\xc3\xa9 \\u00e9","limit":1,"wait_ms":0}'
    rolls = dice()
    with Scene() as scene:
        gate = scene.gateway()
        with contextlib.ExitStack() as stack:
            wire = stack.enter_context(Wire(gate.port))
            for turn in range(100_000 if SOAK else 3_000):
                if turn % 2:
                    body = b"".join(rolls.choices(pieces, k=rolls.randrange(30)))
                else:
                    changed = bytearray(good)
                    for _ in range(rolls.randrange(1, 4)):
                        changed[rolls.randrange(len(changed))] = rolls.randrange(256)
                    body = bytes(changed)
                path = rolls.choice(["/leases", "/resources/r/check", "/leases/x/renew"])
                wire.send(request("POST", path, ["X-Fencing-Token: 1"], body))
                answer = wire.answer()
                assert answer and answer.status in (200, 201, 400, 404, 409, 412), (body, answer)
                assert isinstance(answer.json(), dict)


if __name__ == "__main__":
    print(f"SEED={SEED}")
    run_cases()
