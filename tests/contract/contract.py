"""contract.py - what the contract tests share: openapi.yaml, errors.def, and how to count.

The document is read once. References are replaced by what they name (`expanded`), so that the
JSON schema validator needs no resolver of its own; nothing in openapi.yaml refers to itself.
"""
import pathlib
import re

import jsonschema
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
PROBLEM = "application/problem+json"


# The loader on libyaml, ten times as fast, where PyYAML was built with it.
class StrictLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML without doubled keys (the loader would keep the last one) and without dates."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} stands here twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()}


class Document:
    """openapi.yaml, with its references followed."""

    def __init__(self, root=ROOT):
        self.text = (root / "openapi/openapi.yaml").read_text(encoding="utf-8")
        self.raw = yaml.load(self.text, StrictLoader)
        self.dangling = set()
        self.whole = self.expanded(self.raw)

    def target(self, reference):
        """What "#/components/..." names; {} where there is nothing (noted in `dangling`)."""
        node = self.raw
        for part in reference.removeprefix("#/").split("/"):
            if not isinstance(node, dict) or part not in node:
                self.dangling.add(reference)
                return {}
            node = node[part]
        return node

    def expanded(self, node):
        """A copy without references. What stands beside one holds in addition to it."""
        if isinstance(node, list):
            return [self.expanded(item) for item in node]
        if not isinstance(node, dict):
            return node
        copy = {key: self.expanded(value) for key, value in node.items() if key != "$ref"}
        if "$ref" not in node:
            return copy
        target = self.expanded(self.target(node["$ref"]))
        if not copy:
            return target
        return {**copy, "allOf": [target, *copy.get("allOf", [])]}

    def operations(self):
        """Yields (METHOD, path, operation) with the path's parameters added to the operation's."""
        for path, item in self.whole["paths"].items():
            for method in METHODS:
                if method in item:
                    parameters = item.get("parameters", []) + item[method].get("parameters", [])
                    yield method.upper(), path, {**item[method], "parameters": parameters}


def validator(schema):
    return jsonschema.Draft202012Validator(schema)


def complaints(check, value):
    """What `check`, a validator, finds wrong with `value`: a list of lines, each with its place."""
    found = sorted(check.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
    return [f"at {'/' + '/'.join(map(str, error.absolute_path))}: {shortened(error.message)}"
            for error in found]


def shortened(text, longest=300):
    return text if len(text) <= longest else text[:longest] + " ..."


def response_codes(response):
    """The error codes that a documented response names, [] where it is no refusal."""
    schema = response.get("content", {}).get(PROBLEM, {}).get("schema", {})
    return schema.get("properties", {}).get("code", {}).get("enum", [])


# A row may span lines, and a text be several literals side by side, as C glues them together.
C_STRINGS = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
ERROR_ROW = re.compile(
    r'^FG_ERROR\(\s*(\w+)\s*,\s*(\d{3})\s*,\s*"(\w+)"\s*,\s*(true|false)\s*,\s*' +
    C_STRINGS + r',\s*' + C_STRINGS + r'\)', re.M)


def glued(literals):
    """The text of C string literals that stand side by side."""
    return "".join(re.sub(r"\\(.)", r"\1", literal)
                   for literal in re.findall(r'"((?:[^"\\]|\\.)*)"', literals))


def error_rows(root):
    text = (root / "gateway/errors.def").read_text(encoding="utf-8")
    rows = ERROR_ROW.findall(text)
    if len(rows) != len(re.findall(r"^FG_ERROR\(", text, re.M)):
        raise ValueError("gateway/errors.def has a row that this test cannot read")
    return rows


def error_table(root=ROOT):
    """errors.def as {code: {"type", "title", "status", "retryable"}}, in its order."""
    return {code: {"type": "/problems/" + code.replace("_", "-"), "title": glued(title),
                   "status": int(status), "retryable": retryable == "true"}
            for _, status, code, retryable, title, _ in error_rows(root)}


def error_meanings(root=ROOT):
    """errors.def as {code: what it means}."""
    return {code: glued(meaning) for _, _, code, _, _, meaning in error_rows(root)}


class Tally:
    """Counts checks and says what was wrong with those that failed."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, subject, problems):
        """One check, passed if `problems`, a list of lines, is empty."""
        if not problems:
            self.passed += 1
            return
        self.failed += 1
        for problem in problems:
            print(f"FAIL  {subject}: {problem}")

    def end(self):
        """Prints the result; returns the exit status. Nothing checked is a failure too."""
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed or not self.passed else 0
