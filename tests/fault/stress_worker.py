#!/usr/bin/python3
"""stress_worker.py - one process with some clients that share resources, until a time.

    stress_worker.py '{"name": "w3", "seed": 7, "clients": 10, "until": 81234, "resources": {...},
                       "port": "/path", "log": "/path"}'

It is started, stopped (SIGSTOP), continued and killed by stress.py. Each client takes leases with
all kinds of TTLs and wait_ms, writes, renews, checks, releases, forgets, outsleeps its TTL and goes
on as if nothing had happened, or leaves while it waits. What it asks and sees goes line by line into
its log, as checker.py reads it: with os.write(), so that a kill loses nothing that was sent.

`port` is a file that holds the gateway's port; `until` is a time of the monotonic clock, in ns;
`resources`: {name: limit, or null where it changes}.
"""
import asyncio
import contextlib
import json
import os
import pathlib
import random
import socket
import struct
import sys
import time

ANSWER_S = 30  # beyond wait_ms: a bound against hangs; TimeoutError is an OSError
AWAY_S = 0.05
LEAVE_AFTER_S = 1.0  # beyond `until`, who waits still leaves
TRIPS = 3  # requests there and back that show that one sent before has arrived
RESET = struct.pack("ii", 1, 0)  # struct linger: closing sends RST


class Wire:
    """One keep-alive connection. OSError: nobody knows what came of the request."""

    def __init__(self, port_file):
        self.port_file, self.reader, self.writer = pathlib.Path(port_file), None, None

    async def open(self):
        if self.writer is None:
            port = int(self.port_file.read_text() or 0)
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
            link = self.writer.get_extra_info("socket")
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self, reset=False):
        if self.writer is not None:
            if reset:
                link = self.writer.get_extra_info("socket")
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.writer.transport.abort()
            self.writer = None

    def send(self, method, path, body=None, headers=None):
        lines = [f"{method} {path} HTTP/1.1", "Host: fencegate"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + (body or b""))

    async def receive(self):
        """(status, headers in lower case, body)"""
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in
                       (line.partition(":") for line in head[1:] if line)}
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ConnectionError("cut off") from error
        if headers.get("connection") == "close":
            self.close()
        return int(head[0].split(" ", 2)[1]), headers, body

    async def call(self, *request):
        await self.open()
        self.send(*request)
        return await asyncio.wait_for(self.receive(), ANSWER_S)


class Log:
    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, p, kind, **fields):
        event = {"t": time.monotonic_ns(), "p": p, "type": kind, **fields}
        os.write(self.fd, (json.dumps(event) + "\n").encode())


class Client:
    """Calls return what was answered, or None; then self.code is the refusal's, None: unknown."""

    def __init__(self, settings, number, log):
        self.until_ns, self.resources = settings["until"], settings["resources"]
        self.name, self.log = f"{settings['name']}c{number}", log
        self.random = random.Random(f"{settings['seed']}/{self.name}")
        self.wire, self.side = Wire(settings["port"]), Wire(settings["port"])
        self.asked, self.processes, self.code = 0, 0, None
        self.p = f"{self.name}.0"
        self.waiting = None  # the number of the acquire whose answer has not come

    def now_left_s(self):
        return (self.until_ns - time.monotonic_ns()) / 1e9

    # ---- Asking ----

    def _unknown(self, **fields):
        self.log.add(self.p, "info", **fields)
        self.processes += 1
        self.p = f"{self.name}.{self.processes}"
        self.code = None
        self.wire.close()

    def _answered(self, status, headers, body, read):
        if status < 300:
            answer = read(headers, json.loads(body) if headers["content-type"].endswith("json")
                          else body)
            self.log.add(self.p, "ok", **answer)
            return answer
        problem = json.loads(body)
        self.code = problem.get("code", str(status))
        if self.code == "record_not_found":
            self.log.add(self.p, "ok", version=None, value=None)
        else:
            self.log.add(self.p, "fail", code=self.code, waited=problem.get("waited_ms"))
        return None

    async def _ready(self, fields):
        """Connected, and the request noted. False: nobody listens."""
        self.code = None
        try:
            await self.wire.open()
        except (OSError, ValueError):
            await asyncio.sleep(AWAY_S)
            return False
        self.log.add(self.p, "invoke", **fields)
        return True

    async def call(self, fields, request, read):
        if not await self._ready(fields):
            return None
        try:
            self.wire.send(*request)
            answer = await asyncio.wait_for(self.wire.receive(), ANSWER_S)
        except OSError as error:
            self._unknown(error=repr(error))
            await asyncio.sleep(AWAY_S)
            return None
        return self._answered(*answer, read)

    # ---- Leases ----

    async def _note_queued(self, res):
        """When several requests have gone there and back, one that was sent before has arrived."""
        acquire = self.asked
        with contextlib.suppress(OSError, ValueError):
            for _ in range(TRIPS):
                await self.side.call("GET", f"/resources/{res}")
                if self.waiting != acquire:  # a cancelled task may go on for a while
                    return
            self.log.add(self.p, "queued")
            return
        self.side.close()

    async def _leave(self, how, answer):
        """Leaves without an answer; returns it all the same where it came."""
        self.log.add(self.p, "leaving")
        if how == "half":
            self.wire.writer.write_eof()
            gone = time.monotonic_ns()
            with contextlib.suppress(OSError):
                came = await asyncio.wait_for(answer, ANSWER_S)
                self.wire.close()
                return came
            self._unknown(gone=gone)
        else:
            answer.cancel()
            self.wire.close(reset=how == "reset")
            await asyncio.sleep(0)  # the socket is closed at the loop's next turn
            self._unknown(gone=time.monotonic_ns())
        return None

    async def _wait_for_answer(self, res, wait_ms, leave_s, how):
        """The answer; None: its outcome is unknown, and that is noted."""
        self.waiting = self.asked
        answer = asyncio.ensure_future(self.wire.receive())
        probe = asyncio.ensure_future(self._note_queued(res)) if wait_ms else None
        try:
            longest_s = wait_ms / 1000 + ANSWER_S
            leave_s = max(0, min(leave_s, self.now_left_s() + LEAVE_AFTER_S))
            done, _ = await asyncio.wait({answer}, timeout=min(leave_s, longest_s))
            self.waiting = None
            if not done and leave_s > longest_s:
                answer.cancel()
                self._unknown(code="unanswered")
                return None
            if not done:
                return await self._leave(how, answer)
            return answer.result()
        except OSError as error:
            self._unknown(error=repr(error))
            return None
        finally:
            if probe and not probe.done():
                probe.cancel()
                self.side.close()

    async def acquire(self, res, ttl_ms, wait_ms, named, leave_s, how):
        self.asked += 1
        owner = f"{self.p}-{self.asked}"
        fields = {"f": "acquire", "res": res, "owner": owner, "ttl": ttl_ms, "wait": wait_ms,
                  "named": named}
        body = {"resource": res, "ttl_ms": ttl_ms, "owner": owner, "wait_ms": wait_ms}
        if named is not None:
            body["limit"] = named
        if not await self._ready(fields):
            return None

        def read(_, lease):
            return {"lease": lease["lease_id"], "token": lease["fencing_token"],
                    "left": lease["expires_in_ms"], "waited": lease["waited_ms"]}

        try:
            self.wire.send("POST", "/leases", json.dumps(body).encode())
        except OSError as error:
            self._unknown(error=repr(error))
            return None
        answer = await self._wait_for_answer(res, wait_ms, leave_s, how)
        lease = self._answered(*answer, read) if answer else None
        return lease and {**lease, "res": res, "ttl": ttl_ms}

    def _of(self, lease, name):
        return {"f": name, "res": lease["res"], "lease": lease["lease"], "token": lease["token"]}

    async def renew(self, lease, ttl_ms):
        body = json.dumps({"ttl_ms": ttl_ms}).encode()
        return await self.call({**self._of(lease, "renew"), "ttl": ttl_ms},
                               ("POST", f"/leases/{lease['lease']}/renew", body),
                               lambda _, answer: {"left": answer["expires_in_ms"]})

    async def release(self, lease):
        return await self.call(self._of(lease, "release"), ("DELETE", f"/leases/{lease['lease']}"),
                               lambda _, answer: {"again": answer.get("already_released", False)})

    async def check(self, lease):
        return await self.call(self._of(lease, "check"),
                               ("POST", f"/resources/{lease['res']}/check", b"",
                                {"X-Fencing-Token": lease["token"]}), lambda *_: {})

    async def write(self, lease):
        """False: the outcome is unknown, and this token is not to write again."""
        value = f"{self.p}-{lease['token']}-{self.random.getrandbits(32):x}"
        fields = {**self._of(lease, "write"), "key": "k", "value": value}
        done = await self.call(fields, ("PUT", f"/store/{lease['res']}/k", value.encode(),
                                        {"X-Fencing-Token": lease["token"]}),
                               lambda _, answer: {"version": answer["version"]})
        return done is not None or self.code is not None

    async def read(self, lease):
        def read(headers, body):
            return {"version": int(headers["etag"].strip('"v')), "value": body.decode(),
                    "wrote": int(headers["x-written-with-token"])}

        await self.call({"f": "read", "res": lease["res"], "key": "k"},
                        ("GET", f"/store/{lease['res']}/k"), read)

    # ---- What it does ----

    def _draw(self):
        """What to ask for."""
        chance = self.random.random
        res = self.random.choice(sorted(self.resources))
        ttl_ms = self.random.choice((self.random.randint(60, 400), self.random.randint(800, 2500),
                                     20000))
        wait_ms = self.random.choice((0, self.random.randint(1, 300),
                                      *[self.random.randint(1000, 6000)] * 2))
        limit = self.resources[res]
        named = limit if chance() < 0.4 else None
        if limit and chance() < 0.03:
            named = limit + 1
        leave_s = self.random.uniform(0, 0.4) if wait_ms and chance() < 0.12 else 1000
        how = self.random.choice(("close", "reset", "half"))
        return res, ttl_ms, wait_ms, named, leave_s, how

    async def _step(self, lease):
        what = self.random.random()
        if what < 0.55:
            return await self.write(lease)
        if what < 0.75:
            await self.renew(lease, max(50, int(lease["ttl"] * self.random.uniform(0.5, 1.5))))
        elif what < 0.9:
            await self.check(lease)
        else:
            await self.read(lease)
        return True

    async def _hold(self, lease):
        """All that it does with a lease."""
        for _ in range(self.random.randint(0, 3)):
            if not await self._step(lease):
                return
            await asyncio.sleep(self.random.uniform(0, 0.01))
        what = self.random.random()
        if what < 0.01 and lease["ttl"] < 3000 or what < 0.06 and lease["ttl"] < 500:
            return  # as if it had crashed
        if what < 0.2 and lease["ttl"] < 500:
            await asyncio.sleep(lease["ttl"] / 1000 * self.random.uniform(0.9, 1.6))
            for _ in range(2):
                if not await self._step(lease):
                    return
        for _ in range(2 if self.random.random() < 0.1 else 1):
            await self.release(lease)
        if self.random.random() < 0.05:
            await self.write(lease)

    async def run(self):
        await asyncio.sleep(self.random.uniform(0, 0.2))
        while self.now_left_s() > 0:
            lease = await self.acquire(*self._draw())
            if lease:
                await self._hold(lease)
            elif self.code is not None:
                await asyncio.sleep(self.random.uniform(0.005, 0.05))
            await asyncio.sleep(self.random.uniform(0, 0.015))
        self.wire.close()
        self.side.close()


async def main():
    settings = json.loads(sys.argv[1])
    log = Log(settings["log"])
    await asyncio.gather(*(Client(settings, number, log).run()
                           for number in range(settings["clients"])))


if __name__ == "__main__":
    asyncio.run(main())
