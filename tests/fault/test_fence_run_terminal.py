#!/usr/bin/python3
"""test_fence_run_terminal.py - `fence run` on a terminal: Ctrl-C, Ctrl-Z, who may read from it.

The job has a process group of its own, and so is a background job until it is given the terminal.
The terminals are pseudo terminals: what is typed there goes through the kernel as from a keyboard.
"""
import os
import pty
import select
import signal
import time

from harness import Scene, case, eventually, run_cases
from runs import FENCE, LOST, PATIENCE_S, clean_environment, holders_of, waiters_of

CTRL_C, CTRL_Z = b"\x03", b"\x1a"


class Terminal:
    """A program that leads the session of a terminal of its own."""

    def __init__(self, scene, gate, *argv):
        folder = os.path.dirname(os.path.abspath(FENCE))
        env = clean_environment(gate, PATH=f"{folder}:{os.environ['PATH']}", PS1="$ ", TERM="dumb")
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.execvpe(argv[0], argv, env)
            finally:
                os._exit(127)
        self.text, self.status = b"", None
        scene.keep(self)

    def type(self, what):
        os.write(self.fd, what)

    def read(self):
        """What has been printed by now."""
        while select.select([self.fd], [], [], 0)[0]:
            try:
                got = os.read(self.fd, 65536)
            except OSError:  # Linux' way to say that nobody has the other side any more
                break
            if not got:
                break
            self.text += got
        return self.text.decode(errors="replace").replace("\r\n", "\n")

    def await_text(self, words, count=1):
        eventually(lambda: self.read().count(words) >= count or self.ended(),
                   what=f"{words!r} on the terminal")
        assert self.read().count(words) >= count, self.read()

    def ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def wait(self):
        eventually(lambda: self.read() and self.ended(), patience_s=PATIENCE_S, what="the end")
        return self.status

    def close(self):
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@case
def ctrl_c_reaches_a_job_that_does_not_read():
    with Scene() as scene:
        gate = scene.gateway()
        terminal = Terminal(scene, gate, "fence", "run", "r", "--", "sh", "-c",
                            "trap 'echo interrupted; exit 4' INT; echo begun; sleep 1000 & wait")
        terminal.await_text("begun")
        terminal.type(CTRL_C)
        assert terminal.wait() == 4 and terminal.read().count("interrupted") == 1, terminal.read()
        assert not holders_of(gate, "r")


@case
def ctrl_c_reaches_the_script_around_it_as_well():
    """So the terminal stays with the script's group while the job does not need it."""
    with Scene() as scene:
        terminal = Terminal(scene, scene.gateway(), "bash", "-c",
                            "trap 'echo script interrupted; exit 8' INT; "
                            "fence run r -- sh -c 'echo begun; exec sleep 1000'; echo went on")
        terminal.await_text("begun")
        terminal.type(CTRL_C)
        assert terminal.wait() == 8 and "went on" not in terminal.read(), terminal.read()


@case
def a_job_that_reads_is_given_the_terminal_and_the_next_command_has_it_back():
    with Scene() as scene:
        terminal = Terminal(scene, scene.gateway(), "bash", "-c",
                            "fence run r -- sh -c 'echo ask; read x; echo got=$x; read y; "
                            "echo got=$y; exit 6'; echo status=$?; read z; echo then=$z")
        terminal.await_text("ask")
        terminal.type(b"one\n")
        terminal.await_text("got=one")
        terminal.type(b"two\n")
        terminal.await_text("status=6")
        terminal.type(b"three\n")
        terminal.await_text("then=three")
        assert terminal.wait() == 0


@case
def a_job_that_reads_dev_tty_or_sets_it_up_is_given_it():
    with Scene() as scene:
        terminal = Terminal(scene, scene.gateway(), "bash", "-c",
                            "echo input | fence run r -- sh -c 'stty -echo </dev/tty; echo ask; "
                            "read x </dev/tty; stty echo </dev/tty; echo got=$x; cat'")
        terminal.await_text("ask")
        terminal.type(b"secret\n")
        terminal.await_text("input")
        assert terminal.wait() == 0 and terminal.read().count("secret") == 1, terminal.read()


@case
def a_pager_behind_it_keeps_the_terminal():
    with Scene() as scene:
        terminal = Terminal(scene, scene.gateway(), "bash", "-c",
                            "fence run r -- echo line | (cat; read x </dev/tty; echo key=$x)")
        terminal.await_text("line")
        terminal.type(b"q\n")
        terminal.await_text("key=q")
        assert terminal.wait() == 0


@case
def ctrl_c_reaches_a_job_that_has_the_terminal():
    with Scene() as scene:
        terminal = Terminal(scene, scene.gateway(), "bash", "-c",
                            "fence run r -- bash -c 'trap \"echo interrupted; exit 4\" INT; "
                            "echo ask; read x; echo got=$x; read y'; echo status=$?; read z; "
                            "echo then=$z")
        terminal.await_text("ask")
        terminal.type(b"one\n")
        terminal.await_text("got=one")
        terminal.type(CTRL_C)
        terminal.await_text("status=4")
        terminal.type(b"three\n")
        terminal.await_text("then=three")
        assert terminal.wait() == 0 and terminal.read().count("interrupted") == 1, terminal.read()


@case
def ctrl_z_suspends_nothing():
    with Scene() as scene:
        terminal = Terminal(scene, scene.gateway(), "fence", "run", "r", "--", "sh", "-c",
                            "echo begun; read x; echo got=$x; read y; echo got=$y")
        terminal.await_text("begun")
        terminal.type(b"one\n")
        terminal.await_text("got=one")  # it has the terminal
        terminal.type(CTRL_Z)
        terminal.await_text("cannot be suspended")
        terminal.type(b"two\n")
        terminal.await_text("got=two")
        assert terminal.wait() == 0


@case
def ctrl_z_suspends_nothing_either_where_the_job_does_not_read():
    with Scene() as scene:
        terminal = Terminal(scene, scene.gateway(), "fence", "run", "r", "--", "sh", "-c",
                            "echo begun; for i in 1 2 3 4; do sleep 0.2; done; echo ended")
        terminal.await_text("begun")
        terminal.type(CTRL_Z)
        terminal.await_text("cannot be suspended")
        assert terminal.wait() == 0 and "ended" in terminal.read()


@case
def in_a_shell_with_job_control_it_can_be_put_in_the_foreground():
    with Scene() as scene:
        gate = scene.gateway()
        shell = Terminal(scene, gate, "bash", "--norc", "--noediting", "-i")
        shell.type(b"fence run r -- sh -c 'echo ask; read x; echo got=$x' &\n")
        shell.await_text("ask", count=2)  # as typed, and as printed
        eventually(lambda: holders_of(gate, "r"), what="the lease")
        shell.type(b"echo still $((40 + 2)) here\n")
        shell.await_text("still 42 here")
        shell.type(b"fg\n")
        shell.await_text("fence run", count=2)
        time.sleep(0.1)
        shell.type(b"one\n")
        shell.await_text("got=one")
        shell.type(b"echo mine $((40 + 2)) again; exit 3\n")
        shell.await_text("mine 42 again")
        assert shell.wait() == 3


@case
def a_killed_job_leaves_the_terminal_as_it_was():
    with Scene() as scene:
        terminal = Terminal(scene, scene.gateway(), "bash", "-c",
                            "fence run --max-hold 1500ms --kill-after 200ms r -- sh -c "
                            "'trap \"\" TERM; stty raw -echo; echo raw; sleep 1000'; "
                            "echo status=$?; stty -a")
        terminal.await_text("raw")
        terminal.await_text(f"status={LOST}")
        terminal.await_text("icanon")
        assert terminal.wait() == 0
        settings = terminal.read().rpartition("status=")[2].split()
        assert "icanon" in settings and "echo" in settings and "-icanon" not in settings, settings


@case
def who_waits_on_a_terminal_is_told_for_what_and_can_leave():
    with Scene() as scene:
        gate = scene.gateway()
        holder = gate.acquire("r", ttl_ms=120_000, owner="somebody")
        terminal = Terminal(scene, gate, "fence", "run", "r", "--", "echo", "begun")
        terminal.await_text("fence: r: waiting")
        eventually(lambda: waiters_of(gate, "r") == 1, what="the wait")
        gate.release(holder)
        terminal.await_text("begun")
        assert terminal.wait() == 0

        holder = gate.acquire("r", ttl_ms=120_000)
        terminal = Terminal(scene, gate, "fence", "run", "r", "--", "echo", "begun")
        eventually(lambda: waiters_of(gate, "r") == 1, what="the wait")
        terminal.type(CTRL_C)
        assert terminal.wait() == 128 + signal.SIGINT and "begun" not in terminal.read()


if __name__ == "__main__":
    run_cases()
