"""commands.py - the `fence` command as a user types it: what it prints, where, and how it exits.

    with site() as (scene, gate, fence):                  # or fence = Fence(gate.port)
        lease = fence.json("acquire", "-n", "-o", "json", "invoice:1")
        fence.refuses(75, "acquire", "-n", "invoice:1")   # exit status, and one line that says why
        done = fence("ls", "--keys", "invoice:1")         # done.status, .out, .err

No FENCE_* variable of the caller's environment gets through.
"""
import collections
import contextlib
import json
import os
import pathlib
import pty
import subprocess

import harness

FENCE = os.environ.get("FENCE_BIN", str(harness.ROOT / "build" / "fence"))
PATIENCE_S = 60  # a bound against hangs, never a measurement
COMMANDS = ("run", "acquire", "renew", "release", "put", "get", "rm", "ls", "inspect", "history")

Done = collections.namedtuple("Done", "status out err")


@contextlib.contextmanager
def site(**options):
    """A scene, a gateway in it, and the command that talks to it."""
    with harness.Scene() as scene:
        gate = scene.gateway(redis=scene.redis(), **options)
        yield scene, gate, Fence(gate.port)


class Fence:
    """`to`: the gateway's port, or a URL; None: where nobody answers. `env`: more variables."""

    def __init__(self, to=None, **env):
        url = f"http://127.0.0.1:{to or 1}" if not isinstance(to, str) else to
        kept = {name: text for name, text in os.environ.items()
                if not name.startswith("FENCE_") and name != "NO_COLOR"}
        self.env = {**kept, "FENCE_URL": url, **env}

    def with_env(self, **env):
        fence = Fence()
        fence.env = {**self.env, **env}
        return fence

    def start(self, *words, **arguments):
        """Begins it, with pipes unless told otherwise; its group can be signalled alone."""
        standard = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                    "stderr": subprocess.PIPE}
        return subprocess.Popen([FENCE, *words], env=self.env, **{**standard, **arguments})

    def __call__(self, *words, stdin=b"", **arguments):
        done = subprocess.run([FENCE, *words], input=stdin, env=self.env, timeout=PATIENCE_S,
                              **{**{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
                                 **arguments})
        return Done(done.returncode, done.stdout, (done.stderr or b"").decode())

    def ok(self, *words, **arguments):
        """What it prints, where it succeeds and says nothing."""
        done = self(*words, **arguments)
        assert (done.status, done.err) == (0, ""), (words, done)
        return done.out

    def json(self, *words, **arguments):
        lines = self.ok(*words, **arguments).splitlines()
        assert len(lines) == 1, lines
        return json.loads(lines[0])

    def lines(self, *words):
        """One JSON object a line."""
        return [json.loads(line) for line in self.ok(*words, "-o", "json").splitlines()]

    def refuses(self, status, *words, says="", **arguments):
        """It exits so, says one line (with `says` in it), and prints nothing."""
        done = self(*words, **arguments)
        assert done.status == status, (words, done)
        assert done.err.startswith("fence: ") and done.err.count("\n") in (1, 2), (words, done.err)
        assert done.err.endswith("\n") and done.err.replace("\n", "").isprintable(), (words, done.err)
        assert says in done.err, (words, done.err)
        assert not done.out, (words, done.out)
        return done.err

    def sh(self, script):
        """The script in a real sh, with `fence` on its PATH."""
        folder = pathlib.Path(FENCE).resolve().parent
        env = {**self.env, "PATH": f"{folder}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", "-c", script], env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_S)
        return Done(done.returncode, done.stdout, done.stderr.decode())

    def on_terminal(self, *words, once="", then=None):
        """What it prints to a terminal, with all of its output there. `once` it has said that,
        `then` is called."""
        near, far = pty.openpty()
        process = self.start(*words, stdin=far, stdout=far, stderr=far)
        os.close(far)
        text = b""
        while True:
            try:
                read = os.read(near, 65536)
            except OSError:  # Linux' way to say that nobody has the other side any more
                read = b""
            if not read:
                break
            text += read
            if then and once.encode() in text:
                then()
                then = None
        os.close(near)
        assert process.wait(PATIENCE_S) == 0, text
        return text.decode().replace("\r\n", "\n")
