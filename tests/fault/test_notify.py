#!/usr/bin/python3
"""test_notify.py - what a service manager is told: a real datagram socket stands in for systemd's.

READY comes when the gateway answers and not before, STOPPING when it drains, WATCHDOG for as long
as its loop turns. A manager that is deaf, slow or not there harms nothing, and the private
redis-server knows nothing of it.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import time

import harness
from harness import case, eventually

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
AS_ITS_MANAGER = ("sh", "-c", 'WATCHDOG_PID=$$ exec "$@"', "sh")  # exec keeps the process id


class Manager:
    """The receiving end. `messages`: all that has been read, each with the time of its reading."""

    def __init__(self, scene, abstract=False):
        name = str(scene.folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + name if abstract else name)
        self.socket.setblocking(False)
        self.address = "@" + name if abstract else name
        self.messages = []
        scene.keep(self)

    def close(self):
        self.socket.close()

    def environment(self, **more):
        return {"NOTIFY_SOCKET": self.address, **more}

    def read(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                message = self.socket.recv(4096).decode()
                self.messages.append((time.monotonic(), message.split("\n")))
        return self.messages

    def count(self, line):
        return sum(line in lines for _, lines in self.read())

    def told(self, line):
        """Waits until a message holds the line; returns the lines of the first that does."""
        eventually(lambda: self.count(line), what=line)
        return next(lines for _, lines in self.messages if line in lines)

    def fill(self):
        """Lets nothing more in until somebody reads; returns how many messages that took."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for count in range(100_000):
                try:
                    sender.sendto(b"X=1", self.socket.getsockname())
                except BlockingIOError:
                    return count
        raise AssertionError("the socket takes everything")


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def redis_pids(gate):
    return [int(pid) for pid in re.findall(r"redis-server started.* pid=(\d+)", gate.log())]


def variables_of(pid):
    entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return {entry.partition("=")[0] for entry in entries} & set(VARIABLES)


# ---- READY and STOPPING -------------------------------------------------------------------------


def ready_then_stopping(abstract):
    with harness.Scene() as scene:
        manager = Manager(scene, abstract)
        gate = scene.gateway(env=manager.environment())
        ready = manager.told("READY=1")
        assert f"STATUS=Listening on http://127.0.0.1:{gate.port}" in ready, ready
        assert gate.call("GET", "/readyz").status == 200
        assert manager.count("STOPPING=1") == 0
        assert gate.stop() == 0
        stopping = manager.told("STOPPING=1")
        assert "STATUS=Draining, 0 requests in flight" in stopping, stopping
        assert manager.count("READY=1") == 1 and manager.count("WATCHDOG=1") == 0


@case
def a_socket_with_a_path_is_told_of_start_and_stop():
    ready_then_stopping(abstract=False)


@case
def a_socket_in_the_abstract_namespace_is_told_of_start_and_stop():
    ready_then_stopping(abstract=True)


@case
def not_ready_before_it_serves():
    with harness.Scene() as scene:
        manager = Manager(scene)
        gate = scene.gateway(env=manager.environment(), faults="start_server=pause",
                             expect_exit=True)
        eventually(lambda: state(gate.pid) == "T", what="the pause before the server is opened")
        assert manager.read() == []
        gate.signal(signal.SIGCONT)
        manager.told("READY=1")
        gate.await_listening()
        assert gate.call("GET", "/readyz").status == 200


@case
def never_ready_where_the_start_fails():
    with harness.Scene() as scene:
        manager = Manager(scene)
        gate = scene.gateway(env=manager.environment(), faults="start_server=error",
                             expect_exit=True)
        assert gate.wait() == 69
        assert manager.read() == []


@case
def stopping_is_told_while_a_request_is_still_in_flight():
    with harness.Scene() as scene:
        manager = Manager(scene)
        gate = scene.gateway(env=manager.environment())
        with socket.create_connection(("127.0.0.1", gate.port), harness.PATIENCE_S) as link:
            link.sendall(b"PUT /store/r/k HTTP/1.1\r\nHost: x\r\nX-Fencing-Token: 1\r\n"
                         b"Expect: 100-continue\r\nContent-Length: 1\r\n\r\n")
            assert b"100" in link.recv(100)  # its headers have been read, its body is awaited
            gate.signal(signal.SIGTERM)
            stopping = manager.told("STOPPING=1")
            assert "STATUS=Draining, 1 request in flight" in stopping, stopping
            assert gate.running()
            link.sendall(b"x")
            assert b" 412 " in link.recv(1000)
        assert gate.wait() == 0


# ---- The watchdog -------------------------------------------------------------------------------


@case
def the_watchdog_is_fed_while_the_loop_turns():
    with harness.Scene() as scene:
        manager = Manager(scene)
        env = manager.environment(WATCHDOG_USEC="100000")
        gate = scene.gateway(env=env, wrapper=AS_ITS_MANAGER)
        manager.told("READY=1")
        eventually(lambda: manager.count("WATCHDOG=1") >= 5, what="five signs of life")
        assert manager.messages[0][1][0] == "READY=1"
        assert gate.stop() == 0


@case
def a_loop_that_hangs_does_not_feed_it():
    with harness.Scene() as scene:
        manager = Manager(scene)
        gate = scene.gateway(env=manager.environment(WATCHDOG_USEC="100000"),
                             faults="before_reply=sleep(1500)")
        manager.told("WATCHDOG=1")
        client = gate.client()
        eventually(lambda: manager.count("WATCHDOG=1") >= 3, what="three signs of life")
        client.http = harness.Http(gate.port)
        client.http.connection.request("POST", "/leases", '{"resource": "r"}')
        hung = eventually(lambda: manager.read() and time.monotonic() - manager.messages[-1][0] > 1,
                          what="a second of silence")
        before = manager.count("WATCHDOG=1")
        assert hung and client.http.connection.getresponse().status == 201
        eventually(lambda: manager.count("WATCHDOG=1") > before, what="a sign of life after it")


@case
def a_watchdog_of_another_process_or_without_a_number_is_not_fed():
    for wrong in ({"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"},
                  {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "x"}, {"WATCHDOG_USEC": ""},
                  {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "-20000"}, {"WATCHDOG_USEC": "9" * 30}):
        with harness.Scene() as scene:
            manager = Manager(scene)
            gate = scene.gateway(env=manager.environment(**wrong))
            manager.told("READY=1")
            time.sleep(0.2)
            assert manager.count("WATCHDOG=1") == 0, wrong
            assert gate.stop() == 0


# ---- Managers that are not as they should be ----------------------------------------------------


@case
def ready_waits_for_a_manager_that_is_behind():
    with harness.Scene() as scene:
        manager = Manager(scene)
        manager.fill()
        gate = scene.gateway(env=manager.environment())  # which has said that it listens
        manager.told("READY=1")
        assert gate.call("GET", "/readyz").status == 200


@case
def a_manager_that_stops_reading_does_not_stop_the_loop():
    with harness.Scene() as scene:
        manager = Manager(scene)
        gate = scene.gateway(env=manager.environment(WATCHDOG_USEC="20000"),
                             options=["--log-level", "debug"])
        manager.told("READY=1")
        manager.fill()
        eventually(lambda: "cannot tell the service manager" in gate.log(), what="the debug line")
        lease = gate.acquire("r")
        assert gate.put("r", "k", lease.token, b"1").status == 201
        assert gate.stop() == 0


@case
def an_address_that_nobody_has_or_that_is_none_harms_nothing():
    with harness.Scene() as scene:
        nobody = str(scene.folder / "nobody")
        for count, address in enumerate(("", "/", "@", "relative", "vsock:2:3", "/" + 200 * "x",
                                         "@" + 200 * "x", nobody, "@" + nobody)):
            gate = scene.gateway(data=f"data{count}", env={"NOTIFY_SOCKET": address},
                                 options=["--log-level", "debug"])
            assert gate.call("GET", "/readyz").status == 200, address
            said = re.search("NOTIFY_SOCKET is not an address|cannot tell the service manager",
                             gate.log())
            assert said, (address, gate.log())
            assert gate.stop() == 0


# ---- The private redis-server -------------------------------------------------------------------


def telling_redis_server(scene):
    """A folder for PATH: what it was started with is left in the data directory, as env.PID.
    (redis-server writes its title over its own environment, so that /proc does not show it.)"""
    folder = scene.folder / "bin"
    folder.mkdir()
    script = folder / "redis-server"
    script.write_text(f'#!/bin/sh\nenv >env.$$\nexec {shutil.which("redis-server")} "$@"\n')
    script.chmod(0o755)
    return folder


@case
def the_private_redis_inherits_none_of_it_also_when_it_is_restarted():
    with harness.Scene() as scene:
        manager = Manager(scene)
        path = f"{telling_redis_server(scene)}:{os.environ['PATH']}"
        gate = scene.gateway(env=manager.environment(WATCHDOG_USEC="10000000", PATH=path),
                             wrapper=AS_ITS_MANAGER)
        manager.told("READY=1")
        assert variables_of(gate.pid) == set(VARIABLES)  # /proc tells what it was started with
        os.kill(redis_pids(gate)[0], signal.SIGKILL)
        eventually(lambda: gate.log().count("redis ready") == 2, what="the restart of redis-server")
        for pid in redis_pids(gate):
            inherited = (gate.data_dir / f"env.{pid}").read_text()
            assert f"PATH={path}" in inherited
            assert not re.search(rf"^({'|'.join(VARIABLES)})=", inherited, re.M), inherited


if __name__ == "__main__":
    harness.run_cases()
