#!/usr/bin/python3
"""The README's commands do what it says: runs each `$ command` of its console blocks against a
fresh gateway, in the folder that its data directory lies in, and compares the output; starts a
gateway on the backup that they made; runs the demo and compares its text with the picture; and
looks up every `make target` in `make help`.

What differs from run to run (ids, times, milliseconds) is replaced by a placeholder on both sides.
Ends with "N passed, M failed".
"""
import os
import pathlib
import re
import shlex
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
    (re.compile(r'"waited_ms":\d+'), '"waited_ms":<ms>'),
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


def targets():
    """(those that the README names, those that `make help` lists)"""
    code = "\n".join(re.findall(r"^```sh\n(.*?)^```", README, re.M | re.S) +
                     re.findall(r"`([^`\n]+)`", README))
    named = set(re.findall(r"^make ([a-z-]+)", code, re.M))
    listed = shell(f"make -s -C {shlex.quote(str(ROOT))} help")
    return named, set(re.findall(r"^ +make ([a-z-]+)", listed, re.M))


def start_gateway(folder):
    binary = os.path.abspath(os.environ.get("FENCEGATE_BIN", ROOT / "build" / "fencegate"))
    process = subprocess.Popen([binary, "--listen", "127.0.0.1:0"], cwd=folder,
                               stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        found = re.search(r"listening.*http://(\S+:\d+)", line)
        if found:
            return process, found.group(1)
    sys.exit("the gateway did not start")


def stop_gateway(process):
    process.send_signal(signal.SIGTERM)
    process.wait()


def shell(command, folder=None):
    run = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True, timeout=60, check=False, cwd=folder)
    return run.stdout


def restored(folder):
    """What a gateway that starts on the backup, and nothing else, knows of the resource."""
    again = pathlib.Path(folder, "again")
    data = again / "fencegate-data"
    data.mkdir(parents=True)
    pathlib.Path(folder, "copy.db").rename(data / "fencegate.db")
    gateway, address = start_gateway(again)
    try:
        return shell(f"curl -s http://{address}/resources/invoice:1234")
    finally:
        stop_gateway(gateway)


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
                check(f"$ {command}", output, shell(command.replace(ADDRESS, address), folder))
        finally:
            stop_gateway(gateway)
        known = restored(folder)
        check("the backup", "a gateway with token 2", "a gateway with token 2"
              if '"highest_fencing_token":2' in known else known)
    demo = shell(shlex.quote(str(ROOT / "tests" / "scenarios" / "gc_pause.sh")))
    check("make demo", picture(), without_lanes(demo))
    named, listed = targets()
    for target in sorted(named):
        check(f"make {target}", "a target of make help",
              "a target of make help" if target in listed else f"make help has {listed}")
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
