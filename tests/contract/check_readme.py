#!/usr/bin/python3
"""The README's commands do what it says: runs each `$ command` of its console blocks against a fresh
gateway and compares the output, and runs the demo and compares its text with the picture.

What differs from run to run (ids, times, milliseconds) is replaced by a placeholder on both sides.
Ends with "N passed, M failed".
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
ADDRESS = "127.0.0.1:8080"

VARIABLE = [
    (re.compile(r'"lease_id":"[A-Za-z0-9_-]{40}"'), '"lease_id":"<id>"'),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "<time>"),
    (re.compile(r'"expires_in_ms":\d+'), '"expires_in_ms":<ms>'),
    (re.compile(r"^ +\d+\.\d\ds", re.M), "   <s>"),
]


def normal(text):
    for pattern, placeholder in VARIABLE:
        text = pattern.sub(placeholder, text)
    return text.rstrip()


def console_commands():
    """(command, expected output) of every ```console block, in order."""
    for block in re.findall(r"^```console\n(.*?)^```", README, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def picture():
    """The demo's text: without the two lanes, whose lengths are times."""
    block = re.search(r"^```text\n(fencegate: why.*?)^```", README, re.M | re.S).group(1)
    return without_lanes(block)


def without_lanes(text):
    return "\n".join(l for l in text.splitlines() if not re.match(r" +[AB] +\[", l)).strip()


def start_gateway(folder):
    binary = os.environ.get("FENCEGATE_BIN", str(ROOT / "build" / "fencegate"))
    process = subprocess.Popen([binary, "--listen", "127.0.0.1:0", "--data-dir", folder + "/data"],
                               stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        found = re.search(r"listening.*http://(\S+:\d+)", line)
        if found:
            return process, found.group(1)
    sys.exit("the gateway did not start")


def shell(command):
    run = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True, timeout=60, check=False)
    return run.stdout


def main():
    results = []

    def check(name, expected, seen):
        results.append(normal(expected) == normal(seen))
        if not results[-1]:
            print(f"FAIL  {name}\n  README:\n{normal(expected)}\n  seen:\n{normal(seen)}")

    with tempfile.TemporaryDirectory() as folder:
        gateway, address = start_gateway(folder)
        try:
            for command, output in console_commands():
                check(f"$ {command}", output, shell(command.replace(ADDRESS, address)))
        finally:
            gateway.send_signal(signal.SIGTERM)
            gateway.wait()
    demo = shell(str(ROOT / "tests" / "scenarios" / "gc_pause.sh"))
    check("make demo", picture(), without_lanes(demo))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
