"""sandbox.py - the restrictions of a systemd unit, put on a process of ours without systemd.

    preexec = Sandbox("deploy/fencegate.service").enter     # for Popen(preexec_fn=...)

What systemd does with seccomp filters and capabilities is done here in the same way, from the lines
of the unit: SystemCallFilter (the sets as systemd-analyze tells them), SystemCallErrorNumber,
MemoryDenyWriteExecute, RestrictAddressFamilies, CapabilityBoundingSet (an empty one), and
NoNewPrivileges. Not done: what needs mounts, namespaces or another user.
"""
import ctypes
import errno
import mmap
import pathlib
import shutil
import socket
import subprocess

ALLOW = 0x7FFF0000  # SCMP_ACT_ALLOW
EQUAL, GREATER, MASKED_EQUAL = 4, 6, 7  # enum scmp_compare
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24
SHM_EXEC = 0o100000


def refuse(number):
    return 0x00050000 | number  # SCMP_ACT_ERRNO


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp"""
    _fields_ = [("argument", ctypes.c_uint), ("operator", ctypes.c_int),
                ("first", ctypes.c_uint64), ("second", ctypes.c_uint64)]


def missing():
    """What is not there and is needed; None where all is."""
    if not shutil.which("systemd-analyze"):
        return "systemd-analyze"
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return "libseccomp2"
    return None


def settings(path):
    """[(name, value)] of the unit's lines, in their order."""
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("=", 1)) for line in lines if "=" in line and line[0] not in "#["]


def call_sets():
    """Name of a set -> the words of it: calls and further sets."""
    listing = subprocess.run(["systemd-analyze", "--no-pager", "syscall-filter"], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    sets, words = {}, []
    for line in listing.splitlines():
        word = line.strip()
        if line.startswith("@"):
            words = sets[word] = []
        elif word and not word.startswith("#"):
            words.append(word)
    return sets


def calls_of(word, sets):
    if not word.startswith("@"):
        return {word}
    return set().union(*(calls_of(inner, sets) for inner in sets[word]))


def allowed_calls(filters):
    """Each value adds what it names, or with a tilde takes it away; @default is always allowed."""
    sets = call_sets()
    allowed = calls_of("@default", sets)
    for value in filters:
        named = set().union(*(calls_of(word, sets) for word in value.lstrip("~").split()))
        allowed = allowed - named if value.startswith("~") else allowed | named
    return allowed


class Filter:
    """One seccomp filter; all that are loaded apply."""

    def __init__(self, otherwise):
        self.library = ctypes.CDLL("libseccomp.so.2")
        self.library.seccomp_init.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.library.seccomp_init(otherwise))
        assert self.context

    def add(self, action, call, *comparisons):
        number = self.library.seccomp_syscall_resolve_name(call.encode())
        if number < 0:  # of another architecture
            return
        array = (Comparison * len(comparisons))(*comparisons)
        done = self.library.seccomp_rule_add_array(self.context, ctypes.c_uint32(action), number,
                                                   len(comparisons), array)
        assert done == 0, (call, done)

    def load(self):
        assert self.library.seccomp_load(self.context) == 0


class Sandbox:
    def __init__(self, unit):
        named = settings(unit)
        self.libc = ctypes.CDLL(None, use_errno=True)
        values = dict(named)  # the last one counts
        assert values["NoNewPrivileges"] == "yes" and values["CapabilityBoundingSet"] == ""
        refused = refuse(getattr(errno, values["SystemCallErrorNumber"]))
        calls = Filter(refused)
        for call in allowed_calls([value for name, value in named if name == "SystemCallFilter"]):
            calls.add(ALLOW, call)
        assert values["MemoryDenyWriteExecute"] == "yes"
        self.filters = [self._no_written_code(),
                        self._families(values["RestrictAddressFamilies"].split()), calls]

    @staticmethod
    def _no_written_code():
        both, execute = mmap.PROT_WRITE | mmap.PROT_EXEC, mmap.PROT_EXEC
        rules = Filter(ALLOW)
        rules.add(refuse(errno.EPERM), "mmap", Comparison(2, MASKED_EQUAL, both, both))
        for call in ("mprotect", "pkey_mprotect"):
            rules.add(refuse(errno.EPERM), call, Comparison(2, MASKED_EQUAL, execute, execute))
        rules.add(refuse(errno.EPERM), "shmat", Comparison(2, MASKED_EQUAL, SHM_EXEC, SHM_EXEC))
        return rules

    @staticmethod
    def _families(names):
        allowed = {int(getattr(socket, name)) for name in names}
        rules = Filter(ALLOW)
        for family in set(range(max(allowed))) - allowed:
            rules.add(refuse(errno.EAFNOSUPPORT), "socket", Comparison(0, EQUAL, family, 0))
        rules.add(refuse(errno.EAFNOSUPPORT), "socket", Comparison(0, GREATER, max(allowed), 0))
        return rules

    def enter(self):
        """Between fork and exec."""
        for capability in range(64):
            self.libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        assert self.libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        for rules in self.filters:
            rules.load()
