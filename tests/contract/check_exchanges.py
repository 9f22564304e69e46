"""check_exchanges.py [--quiet] FILE... - were the answers that the tests saw the documented ones?

Each FILE has one exchange a line, as the API tests record them (FENCEGATE_EXCHANGES):

    {"method":"POST","target":"/leases","request_headers":{},"request_body":"{...}",
     "status":201,"headers":{"Content-Type":"application/json"},"body":"{...}"}

A body that is not UTF-8 is {"base64":"..."}. Each is held against openapi.yaml: is the status
documented for the operation, with this content type, these headers and such a body? Refusals are
also held against gateway/errors.def, and so is what GET /problems/{code} tells. A request that was
accepted must be a documented one, too. What no operation takes (unknown path or method, broken
framing) is held against x-unrouted-responses.

Then the other way round: of each code that was seen, openapi.yaml's examples must be refusals that
were seen, word for word, but for the names, numbers and times of the case.

At the end: which documented answers were seen, and which no test has provoked (for information);
--quiet leaves that out. The last line is "N passed, M failed". What passes is a kind of answer (an
operation, a status, a code), however often it came, so that the number does not depend on how often
a test had to ask; each wrong answer is a failure of its own.
"""
import base64
import binascii
import collections
import json
import re
import sys
import urllib.parse

import contract

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
NO_BODY = {"204", "304"}
LIBRARY = "(refused by the HTTP library)"


def body_bytes(body):
    if isinstance(body, dict):
        return base64.b64decode(body["base64"], validate=True)
    return body.encode()


def without_doubles(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"a name stands twice among {names}")
    return dict(pairs)


def no_constant(name):
    raise ValueError(f"{name} is not JSON")


def parsed_json(text):
    return json.loads(text, object_pairs_hook=without_doubles, parse_constant=no_constant)


def header_value(text, schema):
    """A header's text as the type that its schema wants."""
    types = {schema.get("type")} | {part.get("type") for part in schema.get("allOf", [])}
    is_number = "integer" in types and re.fullmatch(r"0|[1-9][0-9]{0,15}", text)
    return int(text) if is_number else text


class Exchange:
    """One line of a file."""

    def __init__(self, line):
        raw = parsed_json(line)
        self.method, self.target = raw["method"], raw["target"]
        self.status = str(raw["status"])
        self.request_headers = {name.lower(): value
                                for name, value in raw["request_headers"].items()}
        self.headers = {name.lower(): value for name, value in raw["headers"].items()}
        self.request_body = body_bytes(raw["request_body"])
        self.body = body_bytes(raw["body"])
        self.path, _, self.query = self.target.partition("?")
        self.media = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        self.problem = None  # the body of a refusal, once it has proved valid

    def from_library(self):
        """Refused by the HTTP library before the gateway's code saw it."""
        return (self.status in {"400", "413", "414", "431", "500", "501", "505"} and
                "x-request-id" not in self.headers and self.media in {"", "text/html"} and
                (not self.body or self.body.lstrip().lower().startswith(b"<html")))


class Interface:
    """openapi.yaml, arranged for looking up what an exchange may look like."""

    def __init__(self, document, errors, meanings):
        self.errors = errors
        self.meanings = meanings
        self.examples = document.raw["components"]["examples"]
        self.operations = {(method, path): operation
                           for method, path, operation in document.operations()}
        self.templates = [(self.pattern(path), path)
                          for path in sorted(document.whole["paths"], key=lambda p: "{" in p)]
        self.unrouted = document.whole["x-unrouted-responses"]
        self.header_names = {name.lower() for response in self.all_responses()
                             for name in response.get("headers", {})}
        self.validators = {}

    @staticmethod
    def pattern(path):
        """Matches raw segments, so that %2F stays inside of one. An empty segment matches, too:
        the answer to it may be that of the route (400) or that there is none (404)."""
        return re.compile("/".join("[^/]*" if part.startswith("{") else re.escape(part)
                                   for part in path.split("/")))

    def all_responses(self):
        for operation in self.operations.values():
            yield from operation["responses"].values()
        yield from self.unrouted.values()

    def template(self, path):
        for pattern, template in self.templates:
            if pattern.fullmatch(path):
                return template
        return None

    def find(self, exchange):
        """(name for the list, operation or None, responses by status) for an exchange."""
        template = self.template(exchange.path)
        method = "GET" if exchange.method == "HEAD" else exchange.method
        operation = self.operations.get((method, template))
        empty_segment = "//" in exchange.path or exchange.path.endswith("/")
        if not operation or (empty_segment and exchange.status == "404"):
            return "(no operation)", None, self.unrouted
        return f"{method} {template}", operation, operation["responses"]

    def complaints(self, schema, value):
        key = id(schema)
        if key not in self.validators:
            self.validators[key] = contract.validator(schema)
        return contract.complaints(self.validators[key], value)


# ---- the answer ----------------------------------------------------------------------------------

def check_headers(interface, exchange, response):
    problems = []
    for name, header in response.get("headers", {}).items():
        text = exchange.headers.get(name.lower())
        if text is None:
            if header.get("required"):
                problems.append(f"the header {name} is missing")
            continue
        schema = header["schema"]
        problems += [f"header {name}: {text!r}: {line}"
                     for line in interface.complaints(schema, header_value(text, schema))]
    problems += [f"the header {name} stands nowhere in openapi.yaml" for name in exchange.headers
                 if name.startswith("x-") and name not in interface.header_names]
    wanted = exchange.request_headers.get("x-request-id", "")
    if REQUEST_ID.fullmatch(wanted) and exchange.headers.get("x-request-id") != wanted:
        problems.append(f"X-Request-Id {wanted!r} did not come back")
    return problems


def documented_media(response, media):
    content = response.get("content", {})
    for name in (media, media.partition("/")[0] + "/*", "*/*"):
        if name in content:
            return content[name]
    return None


def check_body(interface, exchange, response):
    if exchange.method == "HEAD" or exchange.status in NO_BODY or "content" not in response:
        return ["there is a body, but there must be none"] if exchange.body else []
    media = documented_media(response, exchange.media)
    if media is None:
        return [f"the content type {exchange.media!r} is not documented"]
    if exchange.media not in {"application/json", contract.PROBLEM} or "schema" not in media:
        return []
    try:
        value = parsed_json(exchange.body.decode())
    except ValueError as error:
        return [f"the body is not JSON: {error}"]
    problems = interface.complaints(media["schema"], value)
    if exchange.media == contract.PROBLEM and not problems:
        exchange.problem = value
        problems += check_problem(interface, exchange, value)
    if exchange.path.startswith("/problems/") and exchange.status == "200" and not problems:
        problems += check_explanation(interface, value)
    return problems


def check_problem(interface, exchange, value):
    """What the schema cannot say of a refusal."""
    row = interface.errors[value["code"]]
    problems = [f"{name} is {value[name]!r}, errors.def has {row[name]!r}"
                for name in row if value[name] != row[name]]
    if str(value["status"]) != exchange.status:
        problems.append(f"the body says status {value['status']}")
    wanted = value.get("retry_after_ms")
    wanted = None if wanted is None else str(-(-wanted // 1000))
    if exchange.headers.get("retry-after") != wanted:
        problems.append(f"Retry-After is {exchange.headers.get('retry-after')}, but retry_after_ms "
                        f"is {value.get('retry_after_ms')}")
    if "allow" in value:
        allow = [method.strip() for method in exchange.headers.get("allow", "").split(",")]
        if sorted(allow) != sorted(value["allow"]):
            problems.append(f"Allow is {allow}, but the body has {value['allow']}")
    return problems


def check_explanation(interface, value):
    """What GET /problems/{code} tells is what errors.def says."""
    code = value["code"]
    true = {**interface.errors[code], "detail": interface.meanings[code]}
    return [f"{name} is {value[name]!r}, errors.def has {true[name]!r}"
            for name in true if value[name] != true[name]]


# ---- the request, where it was accepted ----------------------------------------------------------

def check_guard(exchange):
    """A write is guarded by a token or, of an unfenced resource, by a condition."""
    if exchange.method not in ("PUT", "DELETE") or not exchange.path.startswith("/store/"):
        return []
    sent = exchange.request_headers
    if "x-fencing-token" not in sent and not {"if-match", "if-none-match"} & sent.keys():
        return ["a write was accepted without a token and without a condition"]
    return []


def check_request(interface, exchange, operation):
    in_query = {parameter["name"] for parameter in operation["parameters"]
                if parameter["in"] == "query"}
    problems = check_guard(exchange)
    for part in filter(None, exchange.query.split("&")):
        name = urllib.parse.unquote(part.partition("=")[0])
        if name not in in_query:
            problems.append(f"the query parameter {name!r} is not documented, but was accepted")
    for parameter in operation["parameters"]:
        name, schema = parameter["name"], parameter["schema"]
        text = exchange.request_headers.get(name.lower())
        if parameter["in"] != "header":
            continue
        if text is not None:
            problems += [f"accepted with {name} {text!r}: {line}"
                         for line in interface.complaints(schema, header_value(text, schema))]
        elif parameter.get("required"):
            problems.append(f"accepted without the header {name}")
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if "schema" in schema:
        try:
            value = parsed_json(exchange.request_body.decode() or "{}")
            problems += [f"the body was accepted: {line}"
                         for line in interface.complaints(schema["schema"], value)]
        except ValueError as error:
            problems.append(f"a body that is not JSON was accepted: {error}")
    return problems


class Seen:
    """What the exchanges were examples of."""

    def __init__(self):
        self.counts = collections.Counter()  # (name, status, code or None) -> how many
        self.wrong = set()                   # those of them of which some answer was wrong
        self.refusals = {}                   # code -> {its fixed part as text: its fixed part}

    def note(self, name, exchange, problems):
        refusal = exchange.problem
        kind = name, exchange.status, refusal and refusal["code"]
        self.counts[kind] += 1
        if problems:
            self.wrong.add(kind)
        elif refusal:
            part = fixed_part(refusal)
            self.refusals.setdefault(refusal["code"], {})[json.dumps(part, sort_keys=True)] = part


def check_exchange(interface, exchange, seen):
    """Problems of one exchange, as lines. Notes in `seen` what it was an example of."""
    if exchange.from_library():
        seen.note(LIBRARY, exchange, [])
        return []
    name, operation, responses = interface.find(exchange)
    response = responses.get(exchange.status)
    if response is None:
        problems = [f"{name} has no documented status {exchange.status}"]
    else:
        problems = check_headers(interface, exchange, response)
        problems += check_body(interface, exchange, response)
        if operation and exchange.status < "300":
            problems += check_request(interface, exchange, operation)
    seen.note(name, exchange, problems)
    return problems


# ---- the examples --------------------------------------------------------------------------------

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
NAMES = ("resource", "key", "owner")


def fixed_part(refusal):
    """A refusal with its names, numbers and times replaced: what is the same in every such case."""
    fixed = {name: generalized(name, value) for name, value in refusal.items()}
    fixed["status"] = refusal["status"]
    fixed["detail"] = generalized_text(refusal["detail"], refusal)
    if "retry_after_ms" in refusal and "holders" not in refusal:
        fixed["retry_after_ms"] = refusal["retry_after_ms"]  # a constant, no lease's time
    return fixed


def generalized(name, value):
    if isinstance(value, dict):
        return {below: generalized(below, part) for below, part in value.items()}
    if isinstance(value, list):
        return [generalized(name, part) for part in value]
    if name in NAMES:  # an owner can be null
        return f"<{name}>"
    if isinstance(value, int) and not isinstance(value, bool):
        return "<number>"
    return generalized_text(value, {}) if isinstance(value, str) else value


def generalized_text(text, refusal):
    """The words of `text`, a sentence, without what belongs to the case that `refusal` tells of."""
    for name in NAMES:
        if isinstance(refusal.get(name), str):
            text = re.sub(rf"(?<!\w){re.escape(refusal[name])}(?!\w)", f"<{name}>", text, count=1)
    if refusal.get("allow"):
        text = text.replace(", ".join(refusal["allow"]), "<methods>")
    if refusal:
        text = re.sub(r"(?<!\S)/\S*", "<path>", text)
    text = re.sub(r"near '.*'", "near <text>", text)
    return re.sub(r"\b\d+\b", "<number>", TIME.sub("<time>", text))


def check_examples(interface, seen, tally):
    """The examples of openapi.yaml against the refusals that were seen."""
    for code, refusals in seen.refusals.items():
        examples = {name: fixed_part(example["value"])
                    for name, example in interface.examples.items()
                    if example["value"].get("code") == code}
        for name, example in examples.items():
            problems = []
            if json.dumps(example, sort_keys=True) not in refusals:
                likest = min(refusals.values(), key=lambda part: differences(part, example))
                problems = [f"no test has seen such an answer. It has {example.get(member)!r} as "
                            f"{member}, the likest that was seen {likest.get(member)!r}"
                            for member in {**example, **likest}
                            if example.get(member, "") != likest.get(member, "")]
            tally.check(f"components/examples/{name}", problems)
        unlike = {tuple(sorted(part)) for part in refusals.values()}
        unlike -= {tuple(sorted(example)) for example in examples.values()}
        tally.check(f"the members of {code}", [f"seen with {', '.join(members)}, but no example "
                                               "has these" for members in unlike])


def differences(part, other):
    return sum(part.get(name, "") != other.get(name, "") for name in {**part, **other})


# ---- files and the list at the end ---------------------------------------------------------------

def check_file(interface, path, tally, seen):
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}:{number}"
            try:
                exchange = Exchange(line)
            except (ValueError, KeyError, AttributeError, TypeError, binascii.Error) as error:
                tally.check(where, [f"not an exchange: {error!r}"])
                continue
            problems = check_exchange(interface, exchange, seen)
            if problems:
                where += f": {exchange.method} {exchange.target[:100]} -> {exchange.status}"
                tally.check(where, problems)


def print_coverage(interface, seen):
    """Every documented answer with how often it was seen, then the ones that never were."""
    counts, never = collections.Counter(), []
    for (name, status, _), count in seen.counts.items():
        counts[name, status] += count
    documented = [(f"{method} {path}", operation["responses"])
                  for (method, path), operation in interface.operations.items()]
    documented.append(("(no operation)", interface.unrouted))
    print("seen  answer")
    for name, responses in documented:
        for status, response in responses.items():
            count = counts.pop((name, status), 0)
            print(f"{count:4}  {name} {status}")
            codes = [code for code in contract.response_codes(response)
                     if (name, status, code) not in seen.counts]
            if not count:
                never.append(f"{name} {status}")
            elif codes:
                never.append(f"{name} {status} {' '.join(codes)}")
    for (name, status), count in counts.items():
        print(f"{count:4}  {name} {status} (not documented)")
    print("\ndocumented, but provoked by no test (for information):")
    print("\n".join(f"      {line}" for line in never or ["nothing"]))
    print()


def main(arguments):
    quiet = "--quiet" in arguments
    files = [argument for argument in arguments if argument != "--quiet"]
    if not files:
        print(__doc__, file=sys.stderr)
        return 64
    interface = Interface(contract.Document(), contract.error_table(), contract.error_meanings())
    tally, seen = contract.Tally(), Seen()
    for path in files:
        try:
            check_file(interface, path, tally, seen)
        except OSError as error:
            tally.check(path, [str(error)])
    for kind in set(seen.counts) - seen.wrong:
        if kind[0] != LIBRARY:  # it is not documented: nothing was checked
            tally.check(kind, [])
    check_examples(interface, seen, tally)
    if not quiet:
        print_coverage(interface, seen)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
