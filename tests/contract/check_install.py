#!/usr/bin/python3
"""check_install.py - `make install`, as a packager and a user of it meet them.

  files      exactly those that the README names, under DESTDIR and nowhere else, with their modes
             and links; at other places with BINDIR and the like; none is left by `make uninstall`
  programs   fencegate and fence start and tell their version
  libfence   client/example.c is compiled with what pkg-config says, against the shared and the
             static library, and does its job with a real gateway, also after it was cut off;
             a C++ compiler takes the header
  manuals    man formats the pages without a warning
  unit       systemd-analyze verifies it, and finds little that is exposed

Run it from anywhere, after `make build`. What needs a program that is not there is skipped, with a
line. The last line is "N passed, M failed".
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import urllib.request

import contract

ROOT = contract.ROOT
BUILD = pathlib.Path(os.environ.get("FENCEGATE_BIN", ROOT / "build" / "fencegate")).resolve().parent
VERSION = re.search(r'"(.*)"', (ROOT / "gateway/version.h").read_text(encoding="utf-8"))[1]
MAJOR = VERSION.partition(".")[0]
PATIENCE_S = 60
MOST_EXPOSED = 15  # of 100, by systemd-analyze security


def run(*command, env=None, folder=None):
    """Returns (exit status, what it wrote)."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=PATIENCE_S,
                          env={**os.environ, **(env or {})}, cwd=folder)
    return done.returncode, done.stdout


def make(target, *variables):
    """`make` as from a shell of its own, not as a part of the make that runs this."""
    theirs = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "DESTDIR", "PREFIX", "INSTALL",
              "PKGCONFIGDIR", *USUAL}
    env = {name: value for name, value in os.environ.items() if name not in theirs}
    done = subprocess.run(["make", "-C", str(ROOT), "--no-print-directory", target,
                           f"BUILD={os.path.relpath(BUILD, ROOT)}", *variables], stdout=subprocess.PIPE, env=env,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=PATIENCE_S)
    return done.returncode, done.stdout


def succeeded(result):
    """The problems of a command that should have said nothing."""
    return [] if result == (0, "") else [f"exit {result[0]}: {result[1]}"]


# ---- Files ---------------------------------------------------------------------------------------


def expected(folders):
    """Path below DESTDIR -> mode, or target of the link."""
    libraries, real = folders["LIBDIR"], f"libfence.so.{VERSION}"
    return {
        f"{folders['BINDIR']}/fencegate": 0o755, f"{folders['BINDIR']}/fence": 0o755,
        f"{libraries}/libfence.a": 0o644, f"{libraries}/{real}": 0o644,
        f"{libraries}/libfence.so.{MAJOR}": real,
        f"{libraries}/libfence.so": f"libfence.so.{MAJOR}",
        f"{folders['INCLUDEDIR']}/fence.h": 0o644,
        f"{libraries}/pkgconfig/libfence.pc": 0o644,
        f"{folders['MANDIR']}/man1/fence.1": 0o644, f"{folders['MANDIR']}/man3/libfence.3": 0o644,
        f"{folders['MANDIR']}/man8/fencegate.8": 0o644,
        f"{folders['UNITDIR']}/fencegate.service": 0o644,
    }


USUAL = {"BINDIR": "/usr/local/bin", "LIBDIR": "/usr/local/lib", "INCLUDEDIR": "/usr/local/include",
         "MANDIR": "/usr/local/share/man", "UNITDIR": "/usr/local/lib/systemd/system"}
DEBIAN = {"BINDIR": "/usr/sbin", "LIBDIR": "/usr/lib/x86_64-linux-gnu",
          "INCLUDEDIR": "/usr/include/fencegate", "MANDIR": "/usr/share/man",
          "UNITDIR": "/lib/systemd/system"}


def found(tree):
    """What is there that is no folder, as expected() tells it."""
    files = {}
    for path in tree.rglob("*"):
        if path.is_symlink():
            files["/" + str(path.relative_to(tree))] = os.readlink(path)
        elif not path.is_dir():
            files["/" + str(path.relative_to(tree))] = stat.S_IMODE(path.stat().st_mode)
    return files


def differences(seen, wanted):
    return [f"{path} is {seen.get(path, 'missing')}, not {wanted.get(path, 'to be there')}"
            for path in sorted(set(seen) | set(wanted)) if seen.get(path) != wanted.get(path)]


def check_files(tally, tree):
    """Leaves an installation of the usual places in `tree`."""
    where = f"DESTDIR={tree}"
    tally.check("make install compiles nothing and says nothing", succeeded(make("install", where)))
    tally.check("the files of make install", differences(found(tree), expected(USUAL)))
    unit = (tree / "usr/local/lib/systemd/system/fencegate.service").read_text(encoding="utf-8")
    tally.check("the program of the unit", [] if "ExecStart=/usr/local/bin/fencegate\n" in unit else
                re.findall("ExecStart.*", unit))
    named = [path for path in found(tree) if not (tree / path[1:]).is_symlink()
             and str(tree).encode() in (tree / path[1:]).read_bytes()]
    tally.check("DESTDIR is stored nowhere", named)
    tally.check("make uninstall", succeeded(make("uninstall", where)))
    tally.check("the files that make uninstall leaves", sorted(found(tree)))
    make("install", where)


def check_other_places(tally, tree):
    places = [f"{name}={path}" for name, path in DEBIAN.items()]
    tally.check("make install elsewhere", succeeded(
        make("install", f"DESTDIR={tree}", "PREFIX=/usr", *places)))
    tally.check("the files elsewhere", differences(found(tree), expected(DEBIAN)))
    path = {"PKG_CONFIG_PATH": f"{tree}/usr/lib/x86_64-linux-gnu/pkgconfig"}
    for variable, place in (("prefix", "/usr"), ("libdir", DEBIAN["LIBDIR"]),
                            ("includedir", DEBIAN["INCLUDEDIR"])):
        answer = run("pkg-config", f"--variable={variable}", "libfence", env=path)
        tally.check(f"{variable} elsewhere", [] if answer == (0, place + "\n") else [str(answer)])
    make("uninstall", f"DESTDIR={tree}", "PREFIX=/usr", *places)
    tally.check("the files that are left elsewhere", sorted(found(tree)))


def check_not_built(tally, folder):
    status, said = make("install", f"BUILD={folder}", f"DESTDIR={folder}/tree")
    tally.check("make install before make", [] if status and "call make first" in said and
                not (folder / "tree").exists() else [f"exit {status}: {said}"])


# ---- Programs, and the library -------------------------------------------------------------------


def check_programs(tally, tree):
    for name in ("fencegate", "fence"):
        status, said = run(tree / "usr/local/bin" / name, "--version")
        tally.check(f"{name} --version", [] if status == 0 and
                    said.startswith(f"{name} {VERSION}") else [f"exit {status}: {said}"])


def pkg_config(tree):
    return {"PKG_CONFIG_PATH": f"{tree}/usr/local/lib/pkgconfig",
            "PKG_CONFIG_SYSROOT_DIR": str(tree)}


def check_pkg_config(tally, tree):
    status, said = run("pkg-config", "--modversion", "libfence", env=pkg_config(tree))
    tally.check("pkg-config --modversion", [] if (status, said) == (0, VERSION + "\n") else [said])
    _, said = run("pkg-config", "--libs", "libfence", env=pkg_config(tree))
    tally.check("pkg-config --libs", [] if said.split()[-1:] == ["-lfence"] and
                "-lcurl" not in said else [said])
    _, said = run("pkg-config", "--static", "--libs", "libfence", env=pkg_config(tree))
    tally.check("pkg-config --static --libs", [
        f"no {word}: {said}" for word in ("-lfence", "-lcurl", "-ljansson") if word not in said])


def needed(program):
    return re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", program)[1])


def compile_examples(tally, tree):
    """Returns the programs, linked with the shared and with the static library."""
    flags = "$(pkg-config --cflags libfence)"
    shared, static = tree / "example-shared", tree / "example-static"
    source = tree / "example.c"  # alone, as a reader has it
    shutil.copy(ROOT / "client/example.c", source)
    for program, libraries in (
            (shared, "$(pkg-config --libs libfence)"),
            (static, "-Wl,-Bstatic $(pkg-config --libs libfence) -Wl,-Bdynamic "
                     "$(env -u PKG_CONFIG_SYSROOT_DIR pkg-config --libs libcurl jansson)")):
        result = run("sh", "-c", f"cc -Wall -Wextra -Werror {source} -o {program} {flags} "
                     f"{libraries}", env=pkg_config(tree))
        tally.check(f"compiling {program.name}", succeeded(result))
    wanted = f"libfence.so.{MAJOR}"
    tally.check("example-shared needs the library by its soname",
                [] if shared.exists() and wanted in needed(shared) else ["it does not"])
    tally.check("example-static does not need it",
                [] if static.exists() and wanted not in needed(static) else ["it does"])
    return [program for program in (shared, static) if program.exists()]


@contextlib.contextmanager
def gateway(tree):
    """Runs the installed gateway; its URL."""
    process = subprocess.Popen(
        [str(tree / "usr/local/bin/fencegate"), "--listen", "127.0.0.1:0", "--data-dir",
         str(tree / "data")], stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if address := re.search(r"listening.*(http://[^\s\"]+)", line):
                yield address[1]
                return
        raise AssertionError("the gateway did not start: " + "".join(lines))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def get(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return answer.read()


def revoke(url, resource):
    body = json.dumps({"reason": "a test"}).encode()
    urllib.request.urlopen(f"{url}/resources/{resource}/revoke", body, timeout=PATIENCE_S).close()


def start(program, tree, url, resource):
    return subprocess.Popen([str(program), url, resource], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "LD_LIBRARY_PATH": f"{tree}/usr/local/lib"})


def cut_off(program, tree, url, resource):
    """Starts it, and takes its lease away while it is paused after its second step. Returns
    (exit status, stdout, stderr, how many steps it has recorded)."""
    process = start(program, tree, url, resource)
    begun = "".join(process.stdout.readline() for _ in range(3))
    process.send_signal(signal.SIGSTOP)
    revoke(url, resource)
    process.send_signal(signal.SIGCONT)
    rest, error = process.communicate(timeout=PATIENCE_S)
    return process.returncode, begun + rest, error, int(get(f"{url}/store/{resource}/steps-done"))


def check_example(tally, program, tree, url):
    for attempt in range(10):  # where this machine is busy, it may be through before we stop it
        resource = f"{program.name}:{attempt}"
        status, output, error, done = cut_off(program, tree, url, resource)
        if done < 5:
            break
    tally.check(f"{program.name} is refused when its lease was taken away", []
                if status == 1 and error and output.startswith("token 1\nstep 1\nstep 2\n")
                and "done" not in output else [f"exit {status}: {output}{error}"])
    process = start(program, tree, url, resource)
    output, error = process.communicate(timeout=PATIENCE_S)
    steps = [int(step) for step in re.findall(r"^step (\d)$", output, re.M)]
    good = (process.returncode == 0 and not error and steps == list(range(done + 1, 6))
            and output.endswith("done\n") and get(f"{url}/store/{resource}/steps-done") == b"5")
    tally.check(f"{program.name} goes on where it stopped", [] if good else
                [f"exit {process.returncode}, {done} done before: {output}{error}"])


def check_header(tally, tree):
    if not shutil.which("g++"):
        print("skipped: fence.h in C++ (no g++)")
        return
    source = tree / "example.cpp"
    source.write_text("#include <fence.h>\nint main() { fence_close(nullptr); return FENCE_OK; }\n",
                      encoding="utf-8")
    tally.check("fence.h in C++", succeeded(run(
        "g++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
        f"-I{tree}/usr/local/include", source)))


# ---- Manual pages, and the unit ------------------------------------------------------------------


def check_manuals(tally, tree):
    if not shutil.which("man") or not shutil.which("groff"):
        print("skipped: the manual pages (no man-db)")
        return
    for page in sorted((tree / "usr/local/share/man").glob("man*/*")):
        command = f"man --warnings -E UTF-8 -l -Tutf8 -Z {page} 2>&1 >/dev/null"
        tally.check(page.name, succeeded(run("sh", "-c", command,
                                             env={"LC_ALL": "C.UTF-8", "MANWIDTH": "80"})))


def check_unit(tally, folder):
    """With a prefix instead of a DESTDIR, so that the program that it names is there."""
    if not shutil.which("systemd-analyze"):
        print("skipped: the unit (no systemd-analyze)")
        return
    make("install", f"PREFIX={folder}")
    unit = folder / "lib/systemd/system/fencegate.service"
    tally.check("systemd-analyze verify", succeeded(
        run("systemd-analyze", "verify", "--man=no", unit)))
    status, said = run("systemd-analyze", "--no-pager", "security", "--offline=true",
                       f"--threshold={MOST_EXPOSED}", unit)
    tally.check("systemd-analyze security", [] if status == 0 else [said[-300:]])


def instrumented():
    """Only the ordinary build is for installing; one with sanitizers wants more to be linked."""
    return re.search(r"__(asan|tsan|gcov)_init", run("nm", BUILD / "libfence.a")[1])


def main():
    if instrumented():
        print("skipped: this is a build with sanitizers, or for coverage")
        return 0
    tally = contract.Tally()
    with contextlib.ExitStack() as stack:
        one, two, three, four = (pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="fencegate-install-"))) for _ in range(4))
        check_files(tally, one)
        check_other_places(tally, two)
        check_not_built(tally, three)
        check_programs(tally, one)
        check_pkg_config(tally, one)
        check_manuals(tally, one)
        check_unit(tally, four)
        check_header(tally, one)
        programs = compile_examples(tally, one)
        with gateway(one) as url:
            for program in programs:
                check_example(tally, program, one, url)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
