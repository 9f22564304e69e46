#!/usr/bin/python3 -ISs
"""family.py - a job of several processes, each of which writes down when it was alive.

    family.py FILE SHAPE...

The job itself has the first shape, and a child for each of the others. Every few milliseconds each
writes a line "SHAPE PID SECONDS", of CLOCK_BOOTTIME, at the end of FILE. They end by themselves
after two minutes, should a test fail to end them.

    plain     does nothing special
    deaf      ignores what can be ignored
    stopped   stops itself, after one line
    session   leaves the group: a session of its own
    daemon    likewise, and has no parent any more
    chain     a session in a session in a session, each the child of the one before
"""
import os
import signal
import sys
import time


def live(shape):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        stamp(shape)
        time.sleep(0.003)
    os._exit(0)


def stamp(shape):
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    os.write(FILE, f"{shape} {os.getpid()} {now:.6f}\n".encode())


def plain():
    live("plain")


def deaf():
    for number in set(range(1, 65)) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
        signal.signal(number, signal.SIG_IGN)
    live("deaf")


def stopped():
    stamp("stopped")
    os.kill(os.getpid(), signal.SIGSTOP)
    live("stopped")


def session():
    os.setsid()
    live("session")


def daemon():
    os.setsid()
    if os.fork() == 0:
        live("daemon")
    os._exit(0)


def chain(length=4):
    os.setsid()
    if length > 1 and os.fork() == 0:
        chain(length - 1)
    live(f"chain{length}")


SHAPES = {shape.__name__: shape for shape in (plain, deaf, stopped, session, daemon, chain)}
FILE = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
for word in sys.argv[3:]:
    if os.fork() == 0:
        SHAPES[word]()
SHAPES[sys.argv[2]]()
