"""check_docs.py [ROOT] - do the sources and the papers agree?

  routes    gateway/routes.c                    = the operations of openapi.yaml
  codes     gateway/errors.def                  = the codes of openapi.yaml, each with its status,
                                                  on some operation, with an example, and explained
                                                  in the same words
  details   the texts in gateway/*.c            hold what openapi.yaml's refusals say in detail
  options   build/fencegate --help              = those of gateway/fencegate.8, stand in README.md,
                                                  and openapi.yaml names no other
  exits     top of gateway/main.c               = those of --help and gateway/fencegate.8
  headers   names in the sources                stand in openapi.yaml or README.md, and those that
                                                  openapi.yaml documents are in the sources
  document  openapi.yaml is complete and consistent in itself, and its examples are true to its
            schemas

Run it from anywhere, after `make build`. The last line is "N passed, M failed".
"""
import pathlib
import re
import subprocess
import sys

import jsonschema

import contract

# ---- routes --------------------------------------------------------------------------------------

ROUTE_ROW = re.compile(r'\{\s*"(GET|POST|PUT|DELETE)",\s*"(/[^"]*)"')


def without_names(path):
    """/leases/{id}/renew -> /leases/{}/renew: both sides may name a parameter as they like."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def check_routes(tally, document, root):
    source = root / "gateway/routes.c"
    if not source.is_file():
        tally.check("gateway/routes.c", ["there is no such file"])
        return
    routes = {(method, without_names(path)) for method, path in ROUTE_ROW.findall(
        source.read_text(encoding="utf-8"))}
    documented = {(method, without_names(path)) for method, path, _ in document.operations()}
    if not routes:
        tally.check("gateway/routes.c", ["no route found in it"])
    for route in sorted(routes | documented):
        problems = []
        if route not in documented:
            problems.append("in gateway/routes.c, but no operation in openapi.yaml")
        if route not in routes:
            problems.append("an operation in openapi.yaml, but not in gateway/routes.c")
        tally.check(" ".join(route), problems)


# ---- error codes ---------------------------------------------------------------------------------

CODE_ROW = re.compile(r"^\| `(\w+)` \| (\d{3}) \| (yes|no) \| (.+) \|$", re.M)


def all_responses(document):
    """Yields (where, status, response), those to requests without an operation too."""
    for method, path, operation in document.operations():
        for status, response in operation["responses"].items():
            yield f"{method} {path} {status}", status, response
    for status, response in document.whole["x-unrouted-responses"].items():
        yield f"x-unrouted-responses {status}", status, response


def without_marks(markdown):
    """The table marks code with backticks; errors.def, which the gateway quotes, does not."""
    return markdown.replace("`", "")


def check_codes(tally, document, root):
    errors, meanings = contract.error_table(root), contract.error_meanings(root)
    schema = document.raw["components"]["schemas"]["ErrorCode"]
    explained = {row[0]: row[1:] for row in CODE_ROW.findall(schema["description"])}
    examples = document.raw["components"]["examples"]
    listed = {}
    for _, status, response in all_responses(document):
        for code in contract.response_codes(response):
            listed.setdefault(code, set()).add(status)

    for code in sorted(set(errors) | set(schema["enum"]) | set(explained) | set(listed)):
        if code not in errors:
            tally.check(code, ["in openapi.yaml, but not in gateway/errors.def"])
            continue
        row, problems = errors[code], []
        if code not in schema["enum"]:
            problems.append("missing in the enum of ErrorCode in openapi.yaml")
        if code not in explained:
            problems.append("no row in the table of ErrorCode in openapi.yaml")
        elif explained[code][:2] != (str(row["status"]), "yes" if row["retryable"] else "no"):
            problems.append(f"the table of ErrorCode has {explained[code][:2]}, errors.def has "
                            f"{row['status']} and retryable {row['retryable']}")
        elif without_marks(explained[code][2]) != meanings[code]:
            problems.append(f"the table of ErrorCode says {explained[code][2]!r}, errors.def "
                            f"{meanings[code]!r}")
        if listed.get(code) != {str(row["status"])}:
            problems.append(f"the operations list it with {sorted(listed.get(code, []))}, "
                            f"errors.def has {row['status']}")
        value = examples.get(code, {}).get("value", {})
        wrong = [name for name in row if value.get(name) != row[name]]
        if wrong or value.get("code") != code:
            problems.append(f"components/examples/{code} differs from errors.def in "
                            f"{', '.join(wrong or ['code'])}")
        tally.check(code, problems)
    check_explanations(tally, document, errors, meanings)


def check_explanations(tally, document, errors, meanings):
    """The examples of GET /problems/{code} are what the gateway answers."""
    get = document.whole["paths"]["/problems/{code}"]["get"]
    for name, example in get["responses"]["200"]["content"]["application/json"]["examples"].items():
        value = example["value"]
        code = value.get("code")
        true = {**errors.get(code, {}), "code": code, "detail": meanings.get(code)}
        tally.check(f"the explanation {name}", [] if value == true else
                    [f"openapi.yaml has {value}, errors.def {true}"])


# ---- details -------------------------------------------------------------------------------------
#
# check_exchanges.py compares the examples of refusals with real ones, where a test provokes any.
# This is for the codes that only a full disk or the like could provoke.

FORMAT = re.compile(r'(?:(?:"(?:\\.|[^"\\\n])*"|\bPRI\w+)\s*)+')
CONVERSION = re.compile(r"%(?:%|[-0-9.*]*[a-z]*)")
FEWEST_WORDS = 2  # less could say anything: "%s: %s"
TOO_LOOSE = {"method_not_allowed"}  # "%s has %s."; some test always provokes it


def formats_in(source):
    """The texts that a C source can print, as patterns."""
    for literals in FORMAT.findall(without_comments(source)):
        text = contract.glued(re.sub(r"\bPRI\w+", '"d"', literals))
        if len(re.findall(r"[A-Za-z]{2,}", CONVERSION.sub("", text))) >= FEWEST_WORDS:
            yield re.compile(".+".join(map(re.escape, CONVERSION.split(text))))


def check_details(tally, document, root):
    formats = [pattern for source in sorted((root / "gateway").glob("*.c"))
               for pattern in formats_in(source.read_text(encoding="utf-8"))]
    for name, example in document.raw["components"]["examples"].items():
        value = example["value"]
        if value.get("code") in TOO_LOOSE | {None}:
            continue
        details = [error["detail"] for error in value.get("errors", [])] or [value["detail"]]
        tally.check(f"components/examples/{name}", [
            f"no text in gateway/*.c says {detail!r}" for detail in details
            if not any(pattern.fullmatch(detail) for pattern in formats)])


# ---- options -------------------------------------------------------------------------------------

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
HELP_OPTION = re.compile(r"^  (--[a-z][a-z0-9-]*)", re.M)
MANUAL_ITEM = re.compile(r"^\.It Fl (-[a-z][a-z0-9-]*)", re.M)
MANUAL_NAMED = re.compile(r"\bFl (-[a-z][a-z0-9-]*)")


def check_manual(tally, options, manual):
    """The manual page has an entry for each option, and names no other anywhere."""
    described = {"-" + flag for flag in MANUAL_ITEM.findall(manual)}
    named = {"-" + flag for flag in MANUAL_NAMED.findall(manual)} | set(OPTION.findall(manual))
    for option in sorted(set(options) | named):
        problems = []
        if option not in options:
            problems.append("in gateway/fencegate.8, but not in fencegate --help")
        elif option not in described:
            problems.append("an option, but no entry of gateway/fencegate.8")
        tally.check(f"{option} in the manual", problems)


def check_options(tally, document, root):
    program, readme = root / "build/fencegate", root / "README.md"
    manual = root / "gateway/fencegate.8"
    missing = [path.name for path in (program, readme, manual) if not path.is_file()]
    if missing:
        tally.check("options", [f"{name} is missing" for name in missing])
        return
    usage = subprocess.run([program, "--help"], capture_output=True, text=True, check=False,
                           timeout=30)
    options = sorted(set(HELP_OPTION.findall(usage.stdout)))
    tally.check("fencegate --help", [] if options and usage.returncode == 0 else
                [f"exit {usage.returncode}, {len(options)} options"])
    named = set(OPTION.findall(readme.read_text(encoding="utf-8")))
    for option in options:
        tally.check(option, [] if option in named else ["an option, but not in README.md"])
    for option in sorted(set(OPTION.findall(document.text)) - set(options)):
        tally.check(option, ["in openapi.yaml, but not in fencegate --help"])
    check_manual(tally, options, manual.read_text(encoding="utf-8"))

    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False,
                             timeout=30)
    documented = document.raw["info"]["version"]
    tally.check("info/version", [] if documented in version.stdout.split("\n")[0].split() else
                [f"openapi.yaml says {documented}, fencegate --version {version.stdout!r}"])


# ---- exit codes ----------------------------------------------------------------------------------

EXIT_CODES = re.compile(r"Exit codes:(.*?)(?:\*/|\Z)", re.S)
CODE_IN_LIST = re.compile(r"(?:^|[;,])[\s*]*(\d+) ")
MANUAL_CODE = re.compile(r"^\.It (\d+)$", re.M)


def listed_exits(text):
    """The numbers of "Exit codes: 0 done, 64 wrong usage; 65 ..."."""
    found = EXIT_CODES.search(text)
    return set(CODE_IN_LIST.findall(found[1])) if found else set()


def check_exits(tally, root):
    program = root / "build/fencegate"
    sources = {
        "gateway/main.c": listed_exits((root / "gateway/main.c").read_text(encoding="utf-8")),
        "gateway/fencegate.8": set(MANUAL_CODE.findall(
            (root / "gateway/fencegate.8").read_text(encoding="utf-8")))}
    if program.is_file():
        usage = subprocess.run([program, "--help"], capture_output=True, text=True, check=False,
                               timeout=30)
        sources["fencegate --help"] = listed_exits(usage.stdout)
    for code in sorted(set().union(*sources.values())):
        tally.check(f"exit {code}", [f"missing in {name}" for name, codes in sources.items()
                                     if code not in codes])


# ---- headers -------------------------------------------------------------------------------------

COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.S)
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
OWN_HEADER = re.compile(r"\bX-[A-Za-z][A-Za-z-]*[A-Za-z]", re.I)
MHD_HEADER = re.compile(r"\bMHD_HTTP_HEADER_([A-Z0-9_]+)")
# Header names are also words; one counts where it is a whole literal.
KNOWN_HEADERS = {
    "accept", "age", "allow", "authorization", "cache-control", "connection", "content-encoding",
    "content-length", "content-range", "content-type", "cookie", "date", "etag", "expect", "host",
    "idempotency-key", "idempotency-replayed", "if-match", "if-modified-since", "if-none-match",
    "if-range", "if-unmodified-since", "keep-alive", "last-modified", "location", "origin",
    "range", "retry-after", "server", "set-cookie", "te", "trailer", "transfer-encoding",
    "upgrade", "user-agent", "vary", "via", "www-authenticate"}


def without_comments(source):
    return COMMENT.sub(lambda match: match[0] if match[0].startswith('"') else " ", source)


def headers_in(source):
    """The header names, in lower case, that a C source holds outside of its comments."""
    code = without_comments(source)
    found = {name.lower().replace("_", "-") for name in MHD_HEADER.findall(code)}
    for literal in LITERAL.findall(code):
        found.update(name.lower() for name in OWN_HEADER.findall(literal))
        word = literal.rstrip(": ").lower()
        if word in KNOWN_HEADERS and (literal[:1].isupper() or "-" in literal):
            found.add(word)
    return found


def documented_headers(document):
    for _, _, operation in document.operations():
        for parameter in operation["parameters"]:
            if parameter["in"] == "header":
                yield parameter["name"]
    for _, _, response in all_responses(document):
        yield from response.get("headers", {})


def check_headers(tally, document, root):
    used = {}
    for source in sorted((root / "gateway").glob("*.c")):
        for name in headers_in(source.read_text(encoding="utf-8")):
            used.setdefault(name, source.name)
    readme = root / "README.md"
    papers = document.text + (readme.read_text(encoding="utf-8") if readme.is_file() else "")
    papers = papers.lower()
    for name, source in sorted(used.items()):
        stands = re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", papers)
        tally.check(f"header {name}", [] if stands else
                    [f"used in gateway/{source}, but neither in openapi.yaml nor in README.md"])
    for name in sorted(set(documented_headers(document))):
        tally.check(f"header {name}", [] if name.lower() in used else
                    ["documented in openapi.yaml, but not in gateway/*.c"])


# ---- the document itself -------------------------------------------------------------------------

def check_operations(tally, document):
    seen = set()
    for method, path, operation in document.operations():
        name, problems = operation.get("operationId"), []
        if not name or name in seen:
            problems.append(f"its operationId is {name}, as that of another" if name else
                            "it has no operationId")
        seen.add(name)
        problems += [f"no {part}" for part in ("summary", "description", "tags")
                     if not operation.get(part)]
        in_path = {parameter["name"] for parameter in operation["parameters"]
                   if parameter["in"] == "path" and parameter.get("required")}
        if in_path != set(re.findall(r"\{([^}]*)\}", path)):
            problems.append(f"its path parameters are {sorted(in_path)}")
        problems += [f"the parameter {parameter.get('name')} has no {part}"
                     for parameter in operation["parameters"] for part in ("description", "schema")
                     if part not in parameter]
        if not any(status.startswith("2") for status in operation["responses"]):
            problems.append("no success")
        tally.check(f"{method} {path}", problems)


def check_responses(tally, document):
    for where, status, response in all_responses(document):
        problems = [f"no header {name}" for name in ("X-Request-Id", "Cache-Control")
                    if not response.get("headers", {}).get(name, {}).get("required")]
        if not response.get("description"):
            problems.append("no description")
        content = response.get("content", {})
        problems += [f"no example for {media}" for media in content
                     if not content[media].get("examples")]
        if status >= "400":
            codes, examples = contract.response_codes(response), {}
            if list(content) != [contract.PROBLEM]:
                problems.append(f"a refusal is {contract.PROBLEM}, not {', '.join(content)}")
            else:
                examples = content[contract.PROBLEM].get("examples", {})
            if set(codes) != set(examples):
                problems.append(f"codes {sorted(codes)}, but examples {sorted(examples)}")
            problems += [f"the example {name} has code {example['value'].get('code')}, status "
                         f"{example['value'].get('status')}" for name, example in examples.items()
                         if (example["value"].get("code"), str(example["value"].get("status")))
                         != (name, status)]
        tally.check(where, problems)


def used_references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from used_references(value)
    elif isinstance(node, list):
        for item in node:
            yield from used_references(item)


def check_components(tally, document):
    tally.check("references", [f"{name} names nothing" for name in sorted(document.dangling)])
    used = set(used_references(document.raw))
    for kind, components in document.raw["components"].items():
        for name in components:
            reference = f"#/components/{kind}/{name}"
            tally.check(reference, [] if reference in used else ["nothing refers to it"])
    for name, schema in document.raw["components"]["schemas"].items():
        problems = [] if schema.get("description") else ["no description"]
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as error:
            problems.append(f"not a schema: {error.message}")
        if name not in BUILT_UPON:
            problems += open_objects(schema, name)
        tally.check(f"schema {name}", problems)


BUILT_UPON = {"LeaseFacts"}  # open on purpose: who uses it closes it with unevaluatedProperties


def open_objects(schema, place):
    """The objects in a schema that would take any other member."""
    problems = []
    for below, node in walk(schema, place):
        closed = isinstance(node, dict) and (
            node.get("additionalProperties") is False or
            node.get("unevaluatedProperties") is False or node.get("type") != "object")
        if isinstance(node, dict) and not closed:
            problems.append(f"{below} takes any other member")
    return problems


def check_examples(tally, document):
    """Whatever has a schema and an example, wherever it stands."""
    parts = {part: document.whole[part] for part in ("paths", "x-unrouted-responses")}
    for place, node in walk(parts, ""):
        if not isinstance(node, dict) or "schema" not in node:
            continue
        values = {name: example["value"] for name, example in node.get("examples", {}).items()}
        if "example" in node:
            values["example"] = node["example"]
        check = contract.validator(node["schema"])
        for name, value in values.items():
            tally.check(f"{place.strip()} example {name}", contract.complaints(check, value))


def walk(node, place):
    yield place, node
    items = node.items() if isinstance(node, dict) else enumerate(
        node if isinstance(node, list) else [])
    for key, value in items:
        yield from walk(value, f"{place} {key}")


def main(arguments):
    root = pathlib.Path(arguments[0]).resolve() if arguments else contract.ROOT
    tally = contract.Tally()
    document = contract.Document(root)
    check_routes(tally, document, root)
    check_codes(tally, document, root)
    check_details(tally, document, root)
    check_options(tally, document, root)
    check_exits(tally, root)
    check_headers(tally, document, root)
    check_operations(tally, document)
    check_responses(tally, document)
    check_components(tally, document)
    check_examples(tally, document)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
