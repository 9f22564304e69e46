"""test_contract.py - do the contract tests notice what they are there to notice?

A checker that finds nothing wrong is worth only as much as its power to find something. Here each
rule of check_exchanges.py gets one exchange that keeps it and one that breaks it, and check_docs.py
gets a small tree of sources that agree, then one fault at a time.
"""
import contextlib
import copy
import io
import json
import pathlib
import re
import shutil
import sys
import tempfile

import check_docs
import check_exchanges
import contract

DOCUMENT = contract.Document()
ERRORS = contract.error_table()
MEANINGS = contract.error_meanings()
INTERFACE = check_exchanges.Interface(DOCUMENT, ERRORS, MEANINGS)
EXAMPLES = DOCUMENT.raw["components"]["examples"]
ABSENT = object()  # as a changed value: take the member away


# ---- exchanges -----------------------------------------------------------------------------------

def exchange(request, status, body="", headers=None, request_headers=None, request_body=""):
    """One line of a file; `request` is "METHOD target", a `body` of an object is JSON."""
    method, target = request.split(" ", 1)
    media = contract.PROBLEM if status >= 400 else "application/json"
    all_headers = {"X-Request-Id": "r-1", "Cache-Control": "no-store"}
    if body != "":
        all_headers["Content-Type"] = media
    all_headers.update(headers or {})
    return {"method": method, "target": target, "request_headers": request_headers or {},
            "request_body": request_body, "status": status, "headers": all_headers,
            "body": json.dumps(body) if isinstance(body, dict) and "base64" not in body else body}


def refusal(request, code, headers=None, **more):
    value = EXAMPLES[code]["value"]
    if "retry_after_ms" in value:
        headers = {"Retry-After": str(-(-value["retry_after_ms"] // 1000)), **(headers or {})}
    return exchange(request, value["status"], value, headers, **more)


LEASE = EXAMPLES["lease"]["value"]
TOKEN = {"X-Fencing-Token": "4"}
WRITTEN = {"resource": "orders/42", "key": "charge", "version": 1, "fencing_token": 4}
LIST_ITEM = {name: value for name, value in LEASE.items() if name != "lease_id"}

GRANT = exchange("POST /leases", 201, LEASE, request_body='{"resource":"invoice:1234"}',
                 headers={"Location": "/leases/" + LEASE["lease_id"], "X-Fencing-Token": "3"})
PUT = exchange("PUT /store/orders%2F42/charge", 201, WRITTEN, {"ETag": '"v1"'}, TOKEN, "100")
READ = exchange("GET /store/orders%2F42/charge", 200, {"base64": "/w=="},
                {"ETag": '"v1"', "X-Written-With-Token": "4", "Content-Type": "image/png"})
HELD = refusal("POST /leases", "lease_held", request_body='{"resource":"invoice:1234"}')
STALE = refusal("PUT /store/a/b", "stale_fencing_token", request_headers=TOKEN)
WRONG_METHOD = refusal("DELETE /leases", "method_not_allowed", {"Allow": "GET, HEAD, POST"})
LIBRARY = {**exchange("GET /livez", 400, "<html>bad</html>"),
           "headers": {"Content-Type": "text/html"}}

GOOD = {
    "grant": GRANT,
    "held": HELD,
    "stale": STALE,
    "write": PUT,
    "read of bytes": READ,
    "HEAD": {**READ, "method": "HEAD", "body": ""},
    "not modified": exchange("GET /store/a/b", 304, "", {"ETag": '"v1"'}),
    "delete": exchange("DELETE /store/a/b", 204, "", request_headers=TOKEN),
    "check": exchange("POST /resources/a/check", 200, {"current": True, "fencing_token": 4},
                      request_headers=TOKEN),
    "unfenced write": exchange("PUT /store/a/b", 200, {**WRITTEN, "fencing_token": None},
                               {"ETag": '"v2"'}, {"If-Match": '"v1"'}, "100"),
    "unfenced delete": exchange("DELETE /store/a/b", 204, "",
                                request_headers={"If-Match": '"v2"'}),
    "unfenced read": exchange("GET /store/a/b", 200, "x",
                              {"ETag": '"v2"', "Content-Type": "text/plain"}),
    "renewal without a body": exchange("POST /leases/abc/renew", 200, LEASE,
                                       {"X-Fencing-Token": "3"}),
    "list": exchange("GET /leases?resource=a%2Fb&limit=1", 200,
                     {"items": [LIST_ITEM], "next_cursor": None}),
    "explained": exchange("GET /problems/lease-held", 200,
                          {**ERRORS["lease_held"], "code": "lease_held",
                           "detail": MEANINGS["lease_held"]}),
    "this document": exchange("GET /openapi.yaml", 200, DOCUMENT.text,
                              {"Content-Type": "application/yaml; charset=utf-8"}),
    "unknown path": refusal("GET /nowhere", "not_found"),
    "empty segment, no route": refusal("GET /resources/", "not_found"),
    "empty segment, no name": refusal("GET /resources/", "invalid_name"),
    "unknown lease": refusal("GET /leases/x", "lease_not_found"),
    "unknown parameter": refusal("GET /leases?page=2", "invalid_request_query"),
    "empty name": refusal("POST /leases", "invalid_name_in_body"),
    "wrong method": WRONG_METHOD,
    "unknown method": {**WRONG_METHOD, "method": "BREW"},
    "target that is no path": refusal("GET *", "bad_header"),
    "the library's own refusal": LIBRARY,
    **{f"acquire: {code}": refusal("POST /leases", code)
       for code in ("invalid_json", "invalid_request", "redis_unavailable", "draining",
                    "storage_full", "tokens_exhausted", "limit_mismatch", "too_many_waiters",
                    "body_too_large")},
}

# What is changed (a path into the exchange; "body." and "request_body." go on into the JSON), to
# what, and a pattern for the complaint.
BAD = [
    (GRANT, "status", 202, "no documented status 202"),
    (GRANT, "headers.Location", ABSENT, "header Location is missing"),
    (GRANT, "headers.Location", "http://x/leases/1", "header Location: .* does not match"),
    (GRANT, "headers.X-Fencing-Token", "03", "X-Fencing-Token: '03'"),
    (GRANT, "headers.X-Request-Id", ABSENT, "X-Request-Id is missing"),
    (GRANT, "headers.Cache-Control", "private", "Cache-Control: 'private'"),
    (GRANT, "headers.X-Secret", "1", "x-secret stands nowhere"),
    (GRANT, "headers.Content-Type", "text/plain", "'text/plain' is not documented"),
    (GRANT, "request_headers.X-Request-Id", "mine", "'mine' did not come back"),
    (GRANT, "body", "{", "the body is not JSON"),
    (GRANT, "body", '{"state":"held","state":"held"}', "stands twice"),
    (GRANT, "body", '{"ttl_ms":NaN}', "NaN is not JSON"),
    (GRANT, "body.fencing_token", 0, "at /fencing_token: 0 is less"),
    (GRANT, "body.fencing_token", 9007199254740992, "at /fencing_token: .* is greater"),
    (GRANT, "body.owner", ABSENT, "'owner' is a required"),
    (GRANT, "body.secret", 1, "'secret' was unexpected"),
    (GRANT, "body.state", "lost", "at /state"),
    (GRANT, "body.acquired_at", "2026-01-05T09:30:00Z", "at /acquired_at"),
    (GRANT, "body.expires_in_ms", 1.5, "at /expires_in_ms"),
    (GRANT, "target", "/leases?fast=1", "'fast' is not documented, but was accepted"),
    (GRANT, "request_body.limit", 1001, "the body was accepted: at /limit"),
    (GRANT, "request_body.tll_ms", 1, "the body was accepted: .*'tll_ms' was unexpected"),
    (GRANT, "request_body", "{", "not JSON was accepted"),
    (HELD, "headers.Retry-After", "12", "Retry-After is 12"),
    (HELD, "headers.Retry-After", ABSENT, "Retry-After is None, but"),
    (HELD, "headers.Content-Type", "application/json", "'application/json' is not documented"),
    (HELD, "body.holders", ABSENT, "'holders' is a required"),
    (HELD, "body.title", "Held", "title is 'Held', errors.def has"),
    (HELD, "body.retryable", False, "retry|errors.def"),
    (HELD, "body.type", "about:blank", "at /type"),
    (HELD, "body.code", "stale_fencing_token", "at /code"),
    (HELD, "body.status", 410, "status is 410"),
    (HELD, "body.errors", [{"pointer": "", "detail": "x"}], "at /errors"),
    (STALE, "body.reason", "lost", "at /reason"),
    (STALE, "body.ended_at", ABSENT, "'ended_at' is a required"),
    (STALE, "body.superseded_by.at", ABSENT, "at /superseded_by"),
    (STALE, "target", "/leases", "no operation. has no documented status 412"),
    (PUT, "request_headers.X-Fencing-Token", ABSENT, "without a token and without a condition"),
    (GOOD["delete"], "request_headers.X-Fencing-Token", ABSENT, "without a token and without"),
    (GOOD["check"], "request_headers.X-Fencing-Token", ABSENT, "without the header X-Fencing-T"),
    (PUT, "request_headers.X-Fencing-Token", "007", "accepted with X-Fencing-Token '007'"),
    (PUT, "request_headers.If-Match", "v3", "accepted with If-Match 'v3'"),
    (PUT, "headers.ETag", "v1", "header ETag: 'v1'"),
    (PUT, "target", "/store/orders/42/charge", "no documented status 201"),
    (READ, "method", "HEAD", "there is a body"),
    (READ, "headers.X-Written-With-Token", "0", "X-Written-With-Token: .* 0 is less"),
    (GOOD["delete"], "body", "x", "there is a body"),
    (GOOD["list"], "body.items", [LEASE], "'lease_id' was unexpected"),
    (GOOD["list"], "body.items", [{**LIST_ITEM, "state": "released"}], "at /items/0/state"),
    (GOOD["unknown path"], "body.code", "lease_not_found", "at /code"),
    (GOOD["explained"], "body.detail", "Held.", "detail is 'Held.', errors.def has"),
    (GOOD["explained"], "body.title", "Held", "title is 'Held', errors.def has"),
    (WRONG_METHOD, "headers.Allow", "GET", "Allow is .'GET'., but"),
    (WRONG_METHOD, "headers.Allow", ABSENT, "header Allow is missing"),
    (LIBRARY, "headers.Content-Type", "text/plain", "X-Request-Id is missing"),
    (GOOD["acquire: draining"], "headers.Retry-After", ABSENT, "header Retry-After is missing"),
    (GOOD["acquire: tokens_exhausted"], "headers.Retry-After", "1", "Retry-After is 1, but"),
    (GOOD["acquire: storage_full"], "headers.Retry-After", ABSENT, "Retry-After is None, but"),
]


def changed(original, path, value):
    """A copy of an exchange with one member set or, where `value` is ABSENT, taken away."""
    copied = copy.deepcopy(original)
    place, *rest = path.split(".")
    inside_json = place.endswith("body") and rest
    node = json.loads(copied[place]) if inside_json else copied[place]
    whole = node
    if not rest:
        copied[place] = value
        return copied
    for name in rest[:-1]:
        node = node[name]
    if value is ABSENT:
        del node[rest[-1]]
    else:
        node[rest[-1]] = value
    copied[place] = json.dumps(whole) if inside_json else whole
    return copied


def problems_of(raw):
    line = check_exchanges.Exchange(json.dumps(raw))
    return check_exchanges.check_exchange(INTERFACE, line, check_exchanges.Seen())


def test_exchanges(tally):
    for name, good in GOOD.items():
        tally.check(f"good exchange, {name}", problems_of(good))
    for original, path, value, pattern in BAD:
        found = problems_of(changed(original, path, value))
        seen = any(re.search(pattern, line) for line in found)
        shown = "taken away" if value is ABSENT else f"= {value!r}"
        tally.check(f"bad exchange, {original['target']} with {path} {shown}",
                    [] if seen else [f"{pattern!r} expected, got {found or 'no complaint'}"])


def outcome(*exchanges):
    """(exit status, lines) of the program over a file of these exchanges, or of other lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "exchanges"
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n"
                                for line in exchanges), encoding="utf-8")
        return run(check_exchanges.main, [str(path)])


def test_exchange_files(tally):
    """The program as a whole: its last line and exit status."""
    good = list(GOOD.values())
    status, output = outcome(*good)
    counted = output[-1]
    tally.check("a good file", [] if
                status == 0 and re.fullmatch("[1-9][0-9]* passed, 0 failed", counted) and
                "   2  DELETE /store/{resource}/{key} 204" in output else output[-3:])
    status, output = outcome(*good, *good)
    tally.check("the same answers twice count once", [] if
                (status, output[-1]) == (0, counted) else output[-3:])
    status, output = outcome(*good, changed(GRANT, "status", 299), "nonsense")
    tally.check("a file with a bad answer and a bad line", [] if
                (status, output[-1]) == (1, counted.replace("0 failed", "2 failed")) else
                output[-3:])
    status, output = outcome()
    tally.check("an empty file", [] if status == 1 else output[-3:])
    status, output = outcome(LIBRARY)
    tally.check("a file in which nothing is documented", [] if status == 1 else output[-3:])
    status, output = run(check_exchanges.main, ["/nowhere/exchanges"])
    tally.check("no file", [] if status == 1 else output[-3:])


OTHER_CASE = {
    "detail": "Token 7 may no longer write: the newest of a is 9. Do not try again; acquire a new "
              "lease.",
    "resource": "a", "fencing_token": 7, "highest_fencing_token": 9,
    "superseded_by": {"fencing_token": 9, "owner": None, "at": "2027-02-03T04:05:06.789Z"},
    "ended_at": "2027-02-03T04:05:06.789Z"}

# Which refusal is answered otherwise, what is changed in it, and the complaint about the example.
UNTRUE = [
    ("stale", {"detail": "Too late."}, "stale_fencing_token: .*'Too late.'"),
    ("stale", {"reason": "unknown"}, "stale_fencing_token: .* as reason, .*'unknown'"),
    ("stale", {"detail": OTHER_CASE["detail"]}, "stale_fencing_token: .* as detail"),
    ("unknown lease", {"resource": "a"}, "members of lease_not_found: seen with .*resource"),
    ("wrong method", {"allow": ["GET", "HEAD", "POST"]}, "method_not_allowed: .* as allow"),
    ("unknown parameter", {"errors": [{"pointer": "?page", "detail": "No."}]},
     "invalid_request_query: .* as errors"),
    ("acquire: draining", {"retry_after_ms": 999}, "draining: .* 1000 as retry_after_ms"),
]


def test_examples(tally):
    """An example that no answer bears out is found; other names, numbers and times are none."""
    def answered_otherwise(name, members):
        answers = list(GOOD.values())
        for index, answer in enumerate(answers):
            if answer["body"] == GOOD[name]["body"]:
                for member, value in members.items():
                    answers[index] = changed(answers[index], f"body.{member}", value)
        return outcome(*answers)

    status, output = answered_otherwise("stale", OTHER_CASE)
    tally.check("another case", [] if status == 0 else output[:3])
    for name, members, pattern in UNTRUE:
        status, output = answered_otherwise(name, members)
        seen = any(re.search(pattern, line) for line in output if line.startswith("FAIL"))
        tally.check(f"examples, {name} answered with {members}", [] if seen and status == 1 else
                    [f"{pattern!r} expected, got {output[:3]}"])


def run(program, arguments):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        status = program(arguments)
    return status, output.getvalue().splitlines()


# ---- sources and papers --------------------------------------------------------------------------

USAGE = """#!/bin/sh
if [ "$1" = --version ]; then echo "fencegate 0.1.0"; else echo "
%s

Exit codes: 0 done, 64 wrong usage."; fi
"""


def agreeing_tree(root):
    """The least that check_docs.py finds nothing wrong with."""
    for folder in ("gateway", "openapi", "build"):
        (root / folder).mkdir()
    shutil.copy(contract.ROOT / "openapi/openapi.yaml", root / "openapi")
    shutil.copy(contract.ROOT / "gateway/errors.def", root / "gateway")
    routes = "".join(f'    {{"{method}", "{path}", handler}},\n'
                     for method, path, _ in DOCUMENT.operations())
    (root / "gateway/routes.c").write_text(routes, encoding="utf-8")
    names = sorted(set(check_docs.documented_headers(DOCUMENT)) - {"Location"})
    (root / "gateway/reply.c").write_text(
        "/* \"X-Only-In-A-Comment\" */\nMHD_HTTP_HEADER_LOCATION\n" +
        "".join(f'"{name}"\n' for name in names), encoding="utf-8")
    details = {error["detail"] for example in EXAMPLES.values()
               for error in [example["value"], *example["value"].get("errors", [])]
               if "detail" in error}
    (root / "gateway/details.c").write_text(
        "".join(f"{json.dumps(detail)};\n" for detail in details), encoding="utf-8")
    (root / "gateway/main.c").write_text("/* Exit codes: 0 stopped; 64 bad option. */",
                                         encoding="utf-8")
    options = sorted(set(check_docs.OPTION.findall(DOCUMENT.text)))
    (root / "README.md").write_text(" ".join(options), encoding="utf-8")
    (root / "gateway/fencegate.8").write_text(
        "".join(f".It Fl {option[1:]}\n" for option in options) + ".It 0\n.It 64\n",
        encoding="utf-8")
    program = root / "build/fencegate"
    program.write_text(USAGE % "".join(f"  {option}\n" for option in options), encoding="utf-8")
    program.chmod(0o755)


# A file, what is replaced in it, by what, and a pattern for the complaint.
FAULTS = [
    ("gateway/routes.c", '"GET", "/leases"', '"GET", "/locks"', "GET /locks: in gateway/routes.c"),
    ("gateway/routes.c", '"GET", "/leases"', '"PUT", "/leases"', "GET /leases: an operation in"),
    ("gateway/errors.def", '410, "lease_expired"', '409, "lease_expired"', "lease_expired: .*409"),
    ("gateway/errors.def", '"lease_held", true', '"lease_held", false', "lease_held: .*retryable"),
    ("gateway/errors.def", '"lease_held"', '"lease_taken"', "lease_taken: missing in the enum"),
    ("gateway/errors.def", '"The lease has run out"', '"Too late"', "lease_expired: .* in title"),
    ("gateway/errors.def", 'No lease has this id', 'No such lease', "lease_not_found: the table"),
    ("gateway/errors.def", '"The lease of this token', '"The lease of that token',
     "explanation stale: openapi.yaml has"),
    ("gateway/details.c", "Nothing was done.", "Nothing done.", "overloaded: no text in gateway"),
    ("gateway/main.c", "64 bad", "65 bad", "exit 65: missing in|exit 64: missing in gateway/main"),
    ("gateway/fencegate.8", ".It 64\n", "", "exit 64: missing in gateway/fencegate.8"),
    ("gateway/fencegate.8", "-max-body", "-most-body", "--most-body in the manual: in gateway"),
    ("gateway/reply.c", '"ETag"', '"ETag"\n"X-New"', "header x-new: used in gateway/reply.c"),
    ("gateway/reply.c", '"Retry-After"', '"Vary"', "header vary: used|Retry-After: documented"),
    ("gateway/reply.c", '"If-Match"', '""', "If-Match: documented in openapi.yaml, but not"),
    ("build/fencegate", "--max-body", "--max-body\n  --new-option", "--new-option: an option, but"),
    ("build/fencegate", "--max-body", "--body", "--max-body: in openapi.yaml, but not"),
    ("build/fencegate", "0.1.0", "0.2.0", "info/version: openapi.yaml says 0.1.0"),
    ("openapi/openapi.yaml", "operationId: listLeases", "operationId: getLease", "as that of"),
    ("openapi/openapi.yaml", "    Liveness:\n",
     "    Unused:\n      description: x\n    Liveness:\n", "schemas/Unused: nothing refers to it"),
    ("openapi/openapi.yaml", "schemas/Liveness\"", "schemas/Missing\"", "Missing names nothing"),
    ("openapi/openapi.yaml", '"waiters": 0 }', '"waiters": -1 }', "-1 is less than"),
    ("openapi/openapi.yaml", "example: worker-A", "example: 7", "example example: .* 7 is not"),
    ("openapi/openapi.yaml", "additionalProperties: false\n      required: [status, redis",
     "required: [status, redis", "schema Readiness: Readiness takes any other"),
    ("openapi/openapi.yaml", "enum: [lease_held, limit_mismatch, ", "enum: [lease_held, ",
     "POST /leases 409: codes .* but examples"),
    ("openapi/openapi.yaml", "      summary: List live leases\n", "", "GET /leases: no summary"),
    ("openapi/openapi.yaml", "| `draining` | 503 |", "| `draining` | 500 |", "draining: the table"),
]


def docs_problems(change=None):
    """What check_docs.py prints about the agreeing tree, with one change made to it."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        agreeing_tree(root)
        if change:
            name, old, new, _ = change
            text = (root / name).read_text(encoding="utf-8")
            if old not in text:
                return 0, [f"{old!r} does not stand in {name}"]
            (root / name).write_text(text.replace(old, new, 1), encoding="utf-8")
        return run(check_docs.main, [folder])


def test_docs(tally):
    status, output = docs_problems()
    tally.check("papers that agree", [] if status == 0 else output[:5])
    for fault in FAULTS:
        status, output = docs_problems(fault)
        seen = any(re.search(fault[3], line) for line in output if line.startswith("FAIL"))
        tally.check(f"papers with {fault[2]!r} in {fault[0]}", [] if seen and status == 1 else
                    [f"{fault[3]!r} expected, got {output[:3]}"])


def main():
    tally = contract.Tally()
    test_exchanges(tally)
    test_exchange_files(tally)
    test_examples(tally)
    test_docs(tally)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
