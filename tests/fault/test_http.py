#!/usr/bin/python3
"""test_http.py - requests that two parsers could read differently, and what is no HTTP at all.

Each hostile request carries a second one, complete and with a live token, in the place where a
parser that counts otherwise would find it. It must never be executed: record "k" stays as it was,
and record "smuggled" does not come to be. tests/api/test_requests.c has the plain cases.
"""
import contextlib
import re

from harness import Scene, case, run_cases
from wire import Wire, ask, dice, request, SEED

PUT = "PUT", "/store/r/k"


class Target:
    """A gateway whose resource "r" has a stale and a live token, and a record "k"."""

    def __init__(self, scene, **arguments):
        self.gate = scene.gateway(**arguments)
        first = self.gate.acquire("r")
        assert self.gate.release(first).status == 200
        self.stale = first.token
        self.live = self.gate.acquire("r", ttl_ms=3_600_000).token
        assert self.gate.put("r", "k", self.live, b"value").status == 201
        self.token = f"X-Fencing-Token: {self.live}"
        self.smuggled = request("PUT", "/store/r/smuggled", [self.token], b"!")

    def ask(self, data):
        return ask(self.gate.port, data)

    def expect_untouched(self, what):
        client = self.gate.client()  # the others' connections may be long gone
        with contextlib.closing(client):
            answer = client.get("r", "k")
            assert (answer.body, answer.headers["etag"]) == (b"value", '"v1"'), (what, answer)
            assert client.get("r", "smuggled").status == 404, what


@contextlib.contextmanager
def target(**arguments):
    with Scene() as scene:
        it = Target(scene, **arguments)
        yield it
        it.expect_untouched("at the end")


def expect_refused(it, what, data, statuses=(400,)):
    """Refused, and the connection closed: what follows on it cannot be trusted. The library writes
    the head of some of its own refusals twice (H5), so that only the bytes can be looked at."""
    with Wire(it.gate.port) as wire:
        wire.send(data)
        found = [int(number) for number in re.findall(rb"HTTP/1\.1 (\d+)", wire.rest())]
    assert 1 <= len(found) <= 2 and set(found) <= set(statuses), (what, found)
    it.expect_untouched(what)


# ---- Framing ------------------------------------------------------------------------------------


def framings(smuggled):
    chunked = b"0\r\n\r\n" + smuggled
    length, none = f"Content-Length: {len(smuggled)}", "Content-Length: 0"
    whole = f"Content-Length: {len(chunked)}"
    te = "Transfer-Encoding: chunked"
    return [
        # H2, BR41
        ("two lengths, the first hides", [none, length], smuggled),
        ("two lengths, the second hides", [length, none], smuggled),
        ("two lengths that agree", [length, length], smuggled),
        ("two lengths, one in small letters", [none, length.lower()], smuggled),
        # H1, BR41
        ("length before chunked", [whole, te], chunked),
        ("length after chunked", [te, whole], chunked),
        ("length 0 and chunked", [none, te], chunked),
        # H3
        ("xchunked", ["Transfer-Encoding: xchunked"], chunked),
        ("gzip, chunked", ["Transfer-Encoding: gzip, chunked"], chunked),
        ("chunked, identity", ["Transfer-Encoding: chunked, identity"], chunked),
        ("identity", ["Transfer-Encoding: identity", length], smuggled),
        ("chunked twice", [te, te], chunked),
        ("chunked and another", [te, "Transfer-Encoding: x"], chunked),
        ("chunked with a blank behind", [te + " "], chunked),
        ("chunked with a vertical tab", ["Transfer-Encoding: \x0bchunked"], chunked),
        ("chunked with a parameter", [te + ";q=1"], chunked),
        ("chunked in quotes", ['Transfer-Encoding: "chunked"'], chunked),
        ("nothing as encoding", ["Transfer-Encoding:", length], smuggled),
        ("space before the colon, encoding", ["Transfer-Encoding : chunked"], chunked),
        ("space before the colon, length", [f"Content-Length : {len(smuggled)}"], smuggled),
        ("folded encoding", ["Transfer-Encoding:\r\n chunked"], chunked),
        ("folded length", [f"Content-Length:\r\n {len(smuggled)}"], smuggled),
        ("length, folded on", [none + "\r\n 1"], smuggled),
        # H5
        ("length with plus", [f"Content-Length: +{len(smuggled)}"], smuggled),
        ("length with minus", ["Content-Length: -1"], smuggled),
        ("length in hex", [f"Content-Length: 0x{len(smuggled):x}"], smuggled),
        ("length with a blank behind", [length + " "], smuggled),
        ("length as a list", [f"Content-Length: 0, {len(smuggled)}"], smuggled),
        ("length 2^63-1", ["Content-Length: 9223372036854775807"], smuggled),
        ("length of many digits", ["Content-Length: " + "0" * 30 + "1"], smuggled),
        ("a line without a colon", ["Content-Length 0"], smuggled),
        ("a name with a blank", ["Content Length: 0"], smuggled),
        ("a name with a bracket", ["Content-Length(: 0"], smuggled),
        ("a name that is not ASCII", ["Content-Längth: 0"], smuggled),
    ]


@case
def framing_that_hides_a_request_closes():  # H1 H2 H3 H5 BR41
    with target() as it:
        for what, headers, rest in framings(it.smuggled):
            # The head's own token is live: were the request taken, the record would change.
            expect_refused(it, what, request(*PUT, [it.token, *headers]) + rest)
            # The same where the token is refused anyhow, or the route: still closed.
            expect_refused(it, what, request(*PUT, headers) + rest)
            expect_refused(it, what, request("GET", "/livez", headers) + rest)


@case
def a_length_beyond_all_numbers_closes():  # H5
    with target() as it:
        for digits in ("18446744073709551616", "9" * 40):
            data = request(*PUT, [it.token, f"Content-Length: {digits}"]) + it.smuggled
            expect_refused(it, digits, data, (400, 413))


@case
def there_is_exactly_one_host():  # H4
    with target() as it:
        for host in ("", "Host: a\r\nHost: a", "Host: a\r\nhost: b", "Host: a\r\nHost : b"):
            data = request(*PUT, [it.token], b"x", host=host) + it.smuggled
            expect_refused(it, host, data)


@case
def chunks_that_are_none_close():  # H1
    with target() as it:
        te = [it.token, "Transfer-Encoding: chunked"]
        for size in (b"zz", b"-1", b"0x1", b"+1", b"1 1", b"", b"ffffffffffffffffff", b"1\r"):
            body = size + b"\r\nv\r\n0\r\n\r\n"
            expect_refused(it, size, request(*PUT, te) + body + it.smuggled, (400, 413))
        # Shorter and longer than their size says.
        expect_refused(it, "short", request(*PUT, te) + b"5\r\nv\r\n0\r\n\r\n" + it.smuggled)
        expect_refused(it, "long", request(*PUT, te) + b"1\r\nvalue\r\n0\r\n\r\n" + it.smuggled)


@case
def a_trailer_is_no_header():  # H1 V4
    with target() as it:
        te, close = "Transfer-Encoding: chunked", "Connection: close"
        end = b"1\r\nv\r\n0\r\n" + it.token.encode() + b"\r\n\r\n"
        [answer] = it.ask(request(*PUT, [te, close]) + end)
        assert answer.code == "fencing_token_required", answer
        stale = f"X-Fencing-Token: {it.stale}"
        [answer] = it.ask(request(*PUT, [te, close, stale, "Trailer: X-Fencing-Token"]) + end)
        assert answer.code == "stale_fencing_token", answer


@case
def a_body_is_never_the_next_request():  # H13
    with target() as it:
        inner = it.smuggled
        for method, path in (("GET", "/livez"), ("HEAD", "/livez"), ("GET", "/nothing"),
                             ("PATCH", "/livez"), ("GET", "/store/r/%zz"), ("GET", "/livez?x=1"),
                             ("PUT", "/store/r/k"), ("POST", "/leases"), ("DELETE", "/leases/x")):
            with Wire(it.gate.port) as wire:
                wire.send(request(method, path, [], inner) + request("GET", "/version"))
                first = wire.answer(bodiless=method == "HEAD")
                second = wire.answer()
                assert second.status == 200 and b"version" in second.body, (method, path, second)
                assert first.status < 500
            it.expect_untouched((method, path))


@case
def a_bare_line_feed_ends_no_line():  # H4
    with target() as it:
        hidden = f"X-Note: a\nX-Fencing-Token: {it.live}"
        for headers in ([hidden], [hidden, it.token], [it.token, "X-Note: a\nX-Note: b"]):
            expect_refused(it, headers, request(*PUT, headers, b"x"))
        for end in (b"\n", b"\r\r\n"):
            data = request(*PUT, [it.token], b"x").replace(b"\r\n", end)
            expect_refused(it, end, data + it.smuggled)


@case
def a_line_that_begins_with_a_colon_hides_nothing():  # H4: the library ends the head there
    with target() as it:
        for line in (":", ": x", ":x", ": x\r\n: y"):
            for headers in ([it.token, line], [line, it.token], [line]):
                expect_refused(it, headers, request(*PUT, headers, b"x") + it.smuggled)
                expect_refused(it, headers, request("GET", "/livez", headers) + it.smuggled)


# ---- Tokens -------------------------------------------------------------------------------------


def spellings(token):
    """Lines that give some parser the token, and have to be refused in company."""
    return {
        "plain": f"X-Fencing-Token: {token}",
        "small letters": f"x-fencing-token: {token}",
        "no blank": f"X-Fencing-Token:{token}",
        "space before the colon": f"X-Fencing-Token : {token}",
        "tab before the colon": f"X-Fencing-Token\t: {token}",
        "folded": f"X-Fencing-Token:\r\n {token}",
        "folded with a tab": f"X-Fencing-Token:\r\n\t{token}",
        "begins with a blank": f" X-Fencing-Token: {token}",
        "a list": f"X-Fencing-Token: {token}, {token}",
        "NUL and more": f"X-Fencing-Token: {token}\x00{token}",
    }


@case
def two_tokens_are_none_however_they_are_written():  # V2 V3 V5 V6
    with target() as it:
        for one in spellings(it.stale).items():
            for other in spellings(it.live).items():
                for (what, line), (and_what, and_line) in ((one, other), (other, one)):
                    data = request(*PUT, ["A: b", line, and_line, "Connection: close"], b"x")
                    answers = it.ask(data)
                    assert all(answer.status in (400, 412) for answer in answers), \
                        (what, and_what, answers)
        it.expect_untouched("two tokens")


@case
def blanks_after_a_token_are_not_trimmed_away():  # V2
    with target() as it:
        for blank in (" ", "\t", " \t ", "\x0b", "\x0c", "\x85", "\xa0"):
            for line in (f"{it.token}{blank}", f"X-Fencing-Token: {blank}x{it.live}"):
                [answer] = it.ask(request(*PUT, [line, "Connection: close"], b"x"))
                assert answer.code == "fencing_token_malformed", (line, answer)


@case
def a_nul_is_refused_wherever_it_stands():  # V7: the library would cut the text there
    nuls = ["\0" * count for count in range(1, 9)]
    with target() as it:
        for nul in nuls:
            for line in (f"{it.token}{nul}", f"{it.token}{nul}9",
                         f"X-Fencing-Token: {nul}{it.live}", f"X-Note: a{nul}", f"X-Note:{nul}",
                         f"X-Note{nul}: a", nul, f"{nul}: a"):
                for headers in ([line, it.token], [it.token, line], [line]):
                    expect_refused(it, headers, request(*PUT, headers, b"x") + it.smuggled)
            for start in (f"PUT{nul} /store/r/k", f"PUT /store/r/k{nul}", f"PUT /store/r{nul}/k",
                          f"{nul}PUT /store/r/k", f"PUT /store/r/k?{nul}"):
                head = [f"{start} HTTP/1.1", "Host: x", it.token, "Content-Length: 0", "", ""]
                answers = it.ask("\r\n".join(head).encode() + it.smuggled)
                assert all(answer.status in (400, 404, 405) for answer in answers), (start, answers)
                it.expect_untouched(start)


@case
def a_forged_token_locks_nobody_out():  # V1
    with target() as it:
        for token in (it.live + 1, 2**53 - 1):
            answer = it.gate.put("r", "k", token, b"x")
            assert answer.code == "fencing_token_not_issued", answer
        check = request("POST", "/resources/r/check", [it.token, "Connection: close"])
        [answer] = it.ask(check)
        assert answer.status == 200 and answer.json()["fencing_token"] == it.live, answer


@case
def a_token_has_one_place():  # V4
    with target() as it:
        for query in (f"fencing_token={it.live}", f"X-Fencing-Token={it.live}", "token=1"):
            [answer] = it.ask(request("PUT", f"/store/r/k?{query}",
                                      [it.token, "Connection: close"], b"x"))
            assert answer.code == "invalid_request", answer
        [answer] = it.ask(request("POST", "/resources/r/check", [it.token, "Connection: close"],
                                  b'{"fencing_token":%d}' % it.live))
        assert answer.code == "invalid_request", answer


# ---- Request lines ------------------------------------------------------------------------------


@case
def only_paths_are_targets():  # E9
    with target() as it:
        for line in ("GET http://evil/livez", "GET http://x/livez", "GET //evil/livez",
                     "OPTIONS *", "CONNECT x:80", "GET livez", "GET ?a", "GET *"):
            answers = it.ask(request(*line.split(" "), ["Connection: close"]))
            assert [a.status for a in answers] in ([400], [404], [405]), (line, answers)


@case
def methods_are_the_ones_we_have():  # H12
    with target() as it:
        token = [it.token, "Connection: close"]
        for method in ("put", "Put", "TRACE", "CONNECT", "OPTIONS", "PROPFIND", "P" * 1000, "P\x01",
                       "ÜT"):
            answers = it.ask(request(method, "/store/r/k", token, b"x"))
            assert all(answer.status in (400, 405, 501) for answer in answers), (method, answers)
        it.expect_untouched("methods")


@case
def spaces_in_a_request_line_make_no_other_request():  # H4
    with target() as it:
        for start in ("PUT  /store/r/k", "PUT\t/store/r/k", "PUT /store/r/k /x",
                      " PUT /store/r/k", "PUT /store/r/k x", "PUT /store/r/k ", "PUT", "PUT "):
            data = f"{start} HTTP/1.1\r\nHost: x\r\nX-Fencing-Token: {it.stale}\r\n" \
                   "Content-Length: 0\r\nConnection: close\r\n\r\n"
            answers = it.ask(data.encode())
            assert all(answer.status in (400, 412) for answer in answers), (start, answers)


@case
def other_versions_of_http_end_cleanly():  # H15
    with target() as it:
        [answer] = it.ask(b"GET /livez HTTP/1.0\r\n\r\n")
        assert answer.status == 200, answer
        with Wire(it.gate.port) as wire:
            for _ in range(2):
                wire.send(b"GET /livez HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                assert wire.answer().status == 200
        for data in (b"GET /livez\r\n\r\n", b"GET /livez HTTP/0.9\r\n\r\n",
                     b"GET /livez HTTP/2.0\r\nHost: x\r\n\r\n", b"GET /livez HTTP/x\r\n\r\n",
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\4\0\0\0\0\0"):
            answers = it.ask(data)
            assert all(answer.status in (400, 505) for answer in answers), (data, answers)


@case
def what_is_no_http_does_not_flood_the_log():  # H15
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) + b" a b\r\n\r\n"
    random = dice()
    with target() as it:
        before = len(it.gate.log())
        for _ in range(100):
            it.ask(hello)
            noise = random.randbytes(random.randrange(1, 300)) + b"\r\n\r\n"
            with Wire(it.gate.port) as wire:
                wire.send(noise)
        assert len(it.gate.log()) == before, it.gate.log()[before:]


@case
def any_bytes_as_a_target_are_answered():  # E4 H16: what is echoed in an answer stays JSON
    random = dice()
    paths = [b"/\xff", b"/leases/\xff", b"/store/\xc3", b"/a" + "é".encode() * 2000,
             b"/" + "é".encode() * 2000, b"/leases?" + b"%C3%A9" * 2000,
             b"/leases?a" + b"%C3%A9" * 2000, b"/resources/%0d%0aX-Evil:%201", b"/%22%5c%00"]
    alphabet = [bytes([byte]) for byte in range(0x21, 0x100) if byte != 0x7f] + [
        b"%", b"%00", b"%0d%0a", b"%ff", b"%c3%a9", b"/", b"..", b"?", b"&", b"=", b"+", b"#", b";"]
    prefixes = [b"/", b"/leases/", b"/store/", b"/store/r/", b"/resources/", b"/leases?",
                b"/problems/", b"/leases/x/", b"/resources?cursor="]
    for _ in range(1000):
        paths.append(random.choice(prefixes)
                     + b"".join(random.choices(alphabet, k=random.randrange(1, 40))))
    with target() as it:
        with contextlib.ExitStack() as stack:
            wire = stack.enter_context(Wire(it.gate.port))
            for path in paths:
                method = random.choice([b"GET", b"PATCH", b"POST", b"DELETE"])
                wire.send(method + b" " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = wire.answer()
                assert it.gate.running(), (method, path)
                if answer is None:  # the library did not take it
                    wire = stack.enter_context(Wire(it.gate.port))
                    continue
                assert "x-evil" not in answer.headers
                if answer.status >= 400 and "x-request-id" in answer.headers:
                    assert answer.json()["status"] == answer.status, (path, answer)
                if answer.headers.get("connection") == "close":
                    wire = stack.enter_context(Wire(it.gate.port))


# ---- Sizes --------------------------------------------------------------------------------------


@case
def heads_of_any_size_are_answered_or_refused():  # H8
    with target(options=("--request-timeout-ms", "1000")) as it:
        rows = [(["A: " + "x" * 12_000], 200), (["A: " + "x" * 70_000], 431),
                (["A: " + "x" * 2_000_000], 431), (["A" * 20_000 + ": x"], 431),
                ([f"A{i}: x" for i in range(100)], 200), ([f"A{i}: x" for i in range(2_000)], 431),
                (["A: x"] * 20_000, 431), (["A: x\r\n y"] * 20_000, 431)]
        for headers, status in rows:
            answers = it.ask(request("GET", "/livez", [*headers, "Connection: close"]))
            got = [answer.status for answer in answers]
            assert got in ([status], []), (headers[0][:9], answers)


@case
def queries_of_any_size_are_answered_or_cut_off():  # H8: no connection hangs beyond the deadline
    with target(options=("--request-timeout-ms", "300")) as it:
        for word in ("a", "limit=1", "limit=", "resource=r", "=", ""):
            for count in (2, 100, 400, 1_000, 4_000, 100_000):
                with Wire(it.gate.port, timeout_s=15) as wire:
                    wire.send(request("GET", "/leases?" + "&".join([word] * count),
                                      ["Connection: close"]))
                    answers = wire.answers()
                assert all(400 <= answer.status < 500 for answer in answers) or not word, \
                    (word, count, answers)


@case
def a_refusal_reaches_who_sends_first_and_reads_then():  # H14
    with target() as it:
        for size in (1_000, 100_000, 1_048_576):  # all that --max-body allows
            for _ in range(20):
                [answer] = it.ask(request(*PUT, ["Connection: close"], bytes(size)))
                assert answer.code == "fencing_token_required", answer
        for size in (1_048_577, 3_000_000, 20_000_000):
            with contextlib.closing(it.gate.client()) as client:
                for _ in range(3):
                    answer = client.put("r", "k", it.live, bytes(size))
                    assert answer.code == "body_too_large", answer
                    if answer.headers.get("connection") == "close":
                        client.close()


@case
def a_body_that_grows_too_large_is_refused_in_the_middle():  # H9 H14
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with target(options=("--max-body", "100000")) as it:
        for chunks in (2, 10, 100):
            with Wire(it.gate.port) as wire:
                wire.send(request(*PUT, [it.token, "Transfer-Encoding: chunked"]) + chunk * chunks
                          + b"0\r\n\r\n" + request("GET", "/version"))
                answer = wire.answer()
                assert answer.code == "body_too_large", answer
                after = wire.answer()
                assert after is None or b"version" in after.body, after
            it.expect_untouched(chunks)


# ---- Expect -------------------------------------------------------------------------------------


@case
def continue_is_said_to_who_may():  # H11
    with target(options=("--max-body", "2000", "--request-timeout-ms", "1000")) as it:
        expects = ["Expect: 100-continue", it.token]
        with Wire(it.gate.port) as wire:
            wire.send(request("PUT", "/store/r/other", [*expects, "Content-Length: 1"]))
            assert wire.answer().status == 100
            wire.send(b"x")
            assert wire.answer().status == 201
        # No body comes: cut off at the deadline.
        with Wire(it.gate.port) as wire:
            wire.send(request(*PUT, [*expects, "Content-Length: 1"]))
            assert wire.answer().status == 100 and wire.ended()
        # Who is refused isn't asked for the body.
        for headers, code in ((["Content-Length: 999999"], "body_too_large"),
                              (["Content-Length: 1", "X-Fencing-Token: 0"],
                               "fencing_token_malformed")):
            [answer] = it.ask(request(*PUT, [*expects, *headers]))
            assert answer.code == code, answer
        for value in ("200-ok", "100-continue, x", ""):
            [answer] = it.ask(request(*PUT, [it.token, f"Expect: {value}", "Connection: close"],
                                      b"x"))
            assert answer.status in (400, 417), (value, answer)
        it.expect_untouched("expect")


if __name__ == "__main__":
    print(f"SEED={SEED}")
    run_cases()
