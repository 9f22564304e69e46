"""jobs.py - `fence run` with a job that a test can follow.

    job = Job(scene, url, "r", "-t", "1s")         # fence run -t 1s r -- the job
    job.await_started()
    assert job.wait() == 79
    assert job.last_beat() < granted_at            # both of CLOCK_BOOTTIME, in seconds

The job writes CLOCK_BOOTTIME into a file every few milliseconds for as long as it lives, or for
`seconds`. So what is compared is what the job did with what the next holder was told, not how long
something took.
"""
import os
import pathlib
import signal
import sys
import time

import harness

FENCE = os.environ.get("FENCE_BIN", str(harness.ROOT / "build" / "fence"))
PYTHON = sys.executable
BEATS = """
import os, signal, sys, time
path, seconds = sys.argv[1], float(sys.argv[2])
for number in [int(word) for word in sys.argv[3:]]:
    signal.signal(number, signal.SIG_IGN)
out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
end = time.monotonic() + seconds
while time.monotonic() < end:
    os.write(out, b"%.6f\\n" % time.clock_gettime(time.CLOCK_BOOTTIME))
    time.sleep(0.004)
"""


def boot_s():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Job(harness.Server):
    """`fence run OPTIONS RESOURCE -- the job`. `ignores`: signals that the job ignores."""

    def __init__(self, scene, url, resource, *options, seconds=1000, ignores=(), env=None):
        scene.count += 1
        self.beats = pathlib.Path(scene.folder / f"beats{scene.count}")
        # What is preloaded to deceive `fence` is not to deceive the job's clock.
        argv = [FENCE, "run", *options, resource, "--", "env", "-u", "LD_PRELOAD", PYTHON, "-c",
                BEATS, str(self.beats), str(seconds), *(str(int(number)) for number in ignores)]
        super().__init__(argv, str(scene.folder / f"job{scene.count}.log"),
                         {"FENCE_URL": url, **(env or {})})
        scene.keep(self)

    def await_started(self):
        harness.eventually(lambda: self.beats.exists() and self.beats.stat().st_size > 0
                           or not self.running(), what="the job's start")
        assert self.running(), self.log()

    def last_beat(self):
        """When the job was last seen at work; of CLOCK_BOOTTIME, in seconds."""
        lines = self.beats.read_text().split()
        return float(lines[-1])

    def beats_go_on(self):
        before = self.last_beat()
        harness.eventually(lambda: self.last_beat() > before, what="another beat")

    def kill(self):
        """The job ends with its client, and the test sees that it does."""
        if self.running():
            self.signal(signal.SIGCONT)
        return super().kill()
