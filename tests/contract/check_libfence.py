#!/usr/bin/python3
"""check_libfence.py [ROOT] - do client/fence.h, client/libfence.3 and libfence agree?

  functions  of fence.h   = those of the manual page's SYNOPSIS, with the same types and arguments,
                            each explained in the text; = what libfence.so exports, and all that
                            libfence.a shows to a program that is linked with it
  constants  of fence.h   stand in the manual page, each status in its list; and it names no other
  members    of the structs that a caller fills or reads stand in it
  examples   of the manual page, of the top of fence.h and of README.md compile

Run it from anywhere, after `make build`. The last line is "N passed, M failed".
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import contract

# ---- fence.h -------------------------------------------------------------------------------------

COMMENT = re.compile(r"/\*.*?\*/|^#[^\n]*", re.S | re.M)
PROTOTYPE = re.compile(r"([\w ]+?[ *]+)(fence_\w+) ?\(([^;{}]*)\);")
ENUM = re.compile(r"enum(?: (\w+))? \{([^}]*)\}")
STRUCT = re.compile(r"struct (\w+) \{([^}]*)\};")
MEMBER = re.compile(r"\(\*(\w+)\)\(|(\w+)(?:\[\w+\])?;")


def squeezed(text):
    """One blank between words, none beside a star that follows a type: "const char *text"."""
    return re.sub(r"\* (?=\w)", "*", " ".join(text.split()))


def arguments(text):
    return [squeezed(part) for part in text.split(",")]


class Header:
    def __init__(self, root):
        self.text = (root / "client/fence.h").read_text(encoding="utf-8")
        code = squeezed(COMMENT.sub(" ", self.text))
        self.functions = {name: (squeezed(kind), arguments(rest))
                          for kind, name, rest in PROTOTYPE.findall(code)}
        enums = [(name, re.findall(r"\bFENCE_\w+(?= ?[,=]| ?$)", body))
                 for name, body in ENUM.findall(code)]
        self.constants = {constant for _, names in enums for constant in names}
        self.statuses = {constant for name, names in enums if name == "fence_status"
                         for constant in names}
        self.members = {(name, first or second) for name, body in STRUCT.findall(code)
                        for first, second in MEMBER.findall(body)}


# ---- libfence.3 ----------------------------------------------------------------------------------

QUOTED = re.compile(r'"([^"]*)"|(\S+)')


def words(line):
    """The arguments of a macro: what is in quotes is one."""
    return [first or second for first, second in QUOTED.findall(line)]


class Manual:
    def __init__(self, root):
        self.text = (root / "client/libfence.3").read_text(encoding="utf-8")
        self.synopsis, _, self.body = self.text.partition("\n.Sh DESCRIPTION")
        self.functions = dict(self.prototypes())

    def prototypes(self):
        kind = name = parts = None
        for line in self.synopsis.splitlines():
            macro, _, rest = line.partition(" ")
            if macro == ".Ft":
                kind = words(rest)[0]
            elif macro == ".Fn":
                name, *parts = words(rest)
                yield name, (squeezed(kind), [squeezed(part) for part in parts])
            elif macro == ".Fo":
                name, parts = rest, []
            elif macro == ".Fa":
                parts += words(rest)
            elif macro == ".Fc":
                yield name, (squeezed(kind), [squeezed(part) for part in parts])

    def named(self, macro):
        """The words that stand behind a macro somewhere in the text."""
        lines = re.findall(rf"^\.(?:[\w ]* )?{macro} (.*)", self.body, re.M)
        return {word for line in lines for word in re.findall(r"\w+", line)}

    def listed(self):
        """The statuses of the list under RETURN VALUES."""
        part = self.body.partition("\n.Sh RETURN VALUES")[2].partition("\n.Sh ")[0]
        return set(re.findall(r"^\.It Dv (\w+)$", part, re.M))

    def example(self):
        block = re.search(r"^\.Bd [^\n]*\n(#include.*?)^\.Ed", self.text, re.M | re.S)
        return block[1].replace(r"\e", "\\") if block else ""


# ---- Checks --------------------------------------------------------------------------------------


def check_functions(tally, header, manual):
    explained = manual.named("Fn")
    for name in sorted(set(header.functions) | set(manual.functions) | explained):
        in_header, in_manual = header.functions.get(name), manual.functions.get(name)
        problems = []
        if not in_header:
            problems.append("in libfence.3, but not in fence.h")
        elif not in_manual:
            problems.append("in fence.h, but not in the SYNOPSIS of libfence.3")
        elif in_header != in_manual:
            problems.append(f"fence.h has {in_header}, libfence.3 {in_manual}")
        if in_header and name not in explained:
            problems.append("in fence.h, but not in the text of libfence.3")
        tally.check(f"{name}()", problems)


def check_names(tally, header, manual):
    stands, listed = manual.named("Dv"), manual.listed()
    known = header.constants | {"NULL"}
    used = {name for name in stands if name.startswith("FENCE_")} | listed
    for name in sorted(header.constants | used):
        problems = [] if name in known else ["in libfence.3, but no constant of fence.h"]
        if name in header.constants and name not in stands:
            problems.append("in fence.h, but not in libfence.3")
        if name in header.statuses and name not in listed:
            problems.append("a status, but not in the list of RETURN VALUES in libfence.3")
        tally.check(name, problems)
    members = manual.named("Fa")
    for struct, name in sorted(header.members):
        tally.check(f"struct {struct}: {name}", [] if name in members else
                    ["in fence.h, but not in libfence.3"])


def shown(library):
    """The names that a library defines for others, without what compilers and sanitizers reserve
    for themselves."""
    which = "-D" if library.suffix == ".so" else "-g"
    lines = subprocess.run(["nm", which, "--defined-only", library], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    names = {line.split()[2].partition("@")[0] for line in lines if len(line.split()) == 3}
    return {name for name in names if not name.startswith("_")}


def check_libraries(tally, header):
    command = pathlib.Path(os.environ.get("FENCE_BIN", contract.ROOT / "build" / "fence"))
    for library in (command.with_name("libfence.so"), command.with_name("libfence.a")):
        if not library.exists():
            tally.check(library.name, ["is missing: make build"])
            continue
        names = shown(library)
        for name in sorted(names | set(header.functions)):
            problems = []
            if name not in names:
                problems.append("in fence.h, but the library does not show it")
            if name not in header.functions:
                problems.append("the library shows it, but it is not in fence.h")
            tally.check(f"{name} in {library.name}", problems)


def check_compiles(tally, root, name, program):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "example.c"
        source.write_text(program, encoding="utf-8")
        run = subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                              f"-I{root / 'client'}", str(source)], capture_output=True, text=True,
                             check=False)
    tally.check(name, [run.stderr] if run.returncode or not program else [])


def whole(lines):
    """A program whose body the lines are; complain() is for the reader to write."""
    return ("#include <fence.h>\nint complain(const char *text);\nint use(void);\n"
            f"int use(void)\n{{\n{lines}\nreturn 0;\n}}\n") if lines else ""


def check_examples(tally, root, header, manual):
    top = header.text.partition("*/")[0]
    in_header = "\n".join(re.findall(r"^ \* {5}(?!deadline =)(.*)", top, re.M))
    in_readme = "\n".join(re.findall(r"^```c\n(.*?)^```", (root / "README.md").read_text(
        encoding="utf-8"), re.M | re.S))
    check_compiles(tally, root, "the example of libfence.3", manual.example())
    check_compiles(tally, root, "the example of fence.h", whole(in_header))
    check_compiles(tally, root, "the example of README.md", whole(in_readme))


def main(given):
    root = pathlib.Path(given[0]).resolve() if given else contract.ROOT
    tally = contract.Tally()
    header, manual = Header(root), Manual(root)
    check_functions(tally, header, manual)
    check_names(tally, header, manual)
    check_libraries(tally, header)
    check_examples(tally, root, header, manual)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
