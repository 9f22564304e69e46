"""clients.py - clients that write down what they ask and what they see (the format: checker.py).

A RecordingClient is used by one thread. It sends over a raw keep-alive connection, because half of
what http.client does is of no use here, and some requests have to stop in the middle. After an
unknown outcome it goes on under a new process number, as somebody who does not know what happened.
"""
import contextlib
import json
import random
import socket
import threading
import time

import harness

TIMEOUT_S = 2.0
REFUSED_PAUSE_S = 0.02  # before a client tries again where nobody listens


class History:
    """The events, in the order of their times. Any thread."""

    def __init__(self):
        self.events, self.lock, self.processes = [], threading.Lock(), 0

    def add(self, p, kind, **fields):
        with self.lock:
            self.events.append({"i": len(self.events), "t": time.monotonic_ns(), "p": p,
                                "type": kind, **fields})

    def new_process(self):
        with self.lock:
            self.processes += 1
            return self.processes

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            for event in self.events:
                file.write(json.dumps(event) + "\n")


class Target:
    """Where the gateway is at the moment, and which clients stand still."""

    def __init__(self):
        self.port = None  # None: nowhere
        self.still = {}  # client's number -> until when

    def stand_still(self, number):
        """A pause of the whole client, wherever it is."""
        until = self.still.get(number, 0)
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))


class NotSent(Exception):
    """The request has not left us."""


class Wire:
    """HTTP/1.1 over one connection, made anew when it breaks. An OSError: nobody knows what came of
    the request."""

    def __init__(self, target):
        self.target, self.link, self.stream, self.port = target, None, None, None

    def close(self):
        if self.link:
            self.stream.close()
            self.link.close()
            self.link = None

    def _connect(self):
        port = self.target.port
        if self.link and self.port == port:
            return
        self.close()
        if port is None:
            raise NotSent
        try:
            self.link = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        except OSError as error:
            raise NotSent from error
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream, self.port = self.link.makefile("rb"), port

    def call(self, method, path, body, headers, midway):
        """`midway` is called when half of the body is sent, and before anything where there is no
        body. Returns (status, headers in lower case, body)."""
        self._connect()
        lines = [f"{method} {path} HTTP/1.1", "Host: fencegate"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        try:
            if midway:
                half = len(body or b"") // 2
                self.link.sendall(head + (body or b"")[:half])
                midway()
                self.link.sendall((body or b"")[half:])
            else:
                self.link.sendall(head + (body or b""))
            return self._answer()
        except BaseException:
            self.close()
            raise

    def _answer(self):
        status = self.stream.readline().split(b" ", 2)
        if len(status) < 2:
            raise ConnectionError("closed")
        headers = {}
        while (line := self.stream.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            headers[name.decode().lower()] = value.strip().decode()
        length = int(headers.get("content-length", 0))
        body = self.stream.read(length)
        if len(body) < length:
            raise ConnectionError("cut off")
        if headers.get("connection") == "close":
            self.close()
        return int(status[1]), headers, body


def _version(headers):
    return int(headers["etag"].strip('"v'))


class RecordingClient:
    """What a client does with leases and records, each call written into the history. Calls return
    what was answered (a dict), or None where that is a refusal or unknown; then self.code tells the
    refusal's code, or is None."""

    def __init__(self, number, target, history, seed):
        self.number, self.target, self.history = number, target, history
        self.random = random.Random(f"{seed}/{number}")
        self.p, self.code = history.new_process(), None
        self.wire = Wire(target)
        self.asked = 0

    def close(self):
        self.wire.close()

    def _call(self, fields, method, path, read, body=None, headers=None, midway=None):
        self.target.stand_still(self.number)
        self.code = None
        self.history.add(self.p, "invoke", **fields)
        try:
            status, names, content = self.wire.call(method, path, body, headers or {}, midway)
            answer = read(names, content) if status < 300 else None
            self.code = None if status < 300 else self._refusal(fields, status, content)
        except NotSent:
            self.history.add(self.p, "fail", code="refused")
            self.code = "refused"
            time.sleep(REFUSED_PAUSE_S)
            return None
        except (OSError, ValueError) as error:
            self.history.add(self.p, "info", error=repr(error))
            self.p = self.history.new_process()
            time.sleep(REFUSED_PAUSE_S)
            return None
        if answer is None:
            return None
        self.history.add(self.p, "ok", **answer)
        return answer

    def _refusal(self, fields, status, content):
        if status == 404 and fields["f"] in ("read", "fenced_read"):
            self.history.add(self.p, "ok", version=None, value=None)
            return "record_not_found"
        code = json.loads(content).get("code", str(status)) if content else str(status)
        self.history.add(self.p, "fail", code=code, status=status)
        return code

    @property
    def unknown(self):
        """Whether nobody knows how the last call ended. Only after a call that returned None."""
        return self.code is None

    # ---- Leases ----

    def acquire(self, res, ttl_ms):
        """{"lease", "token", "left", "res", "ttl"}"""
        self.asked += 1
        owner = f"{self.p}-{self.asked}"

        def read(_, content):
            lease = json.loads(content)
            return {"lease": lease["lease_id"], "token": lease["fencing_token"],
                    "left": lease["expires_in_ms"]}

        body = json.dumps({"resource": res, "ttl_ms": ttl_ms, "owner": owner}).encode()
        answer = self._call({"f": "acquire", "res": res, "owner": owner, "ttl": ttl_ms}, "POST",
                            "/leases", read, body)
        return answer and {**answer, "res": res, "ttl": ttl_ms}

    def renew(self, lease):
        return self._call({**_of(lease, "renew"), "ttl": lease["ttl"]}, "POST",
                          f"/leases/{lease['lease']}/renew",
                          lambda _, content: {"left": json.loads(content)["expires_in_ms"]}, b"")

    def release(self, lease):
        def read(_, content):
            return {"again": json.loads(content).get("already_released", False)}

        return self._call(_of(lease, "release"), "DELETE", f"/leases/{lease['lease']}", read)

    def check(self, lease):
        return self._call(_of(lease, "check"), "POST",
                          f"/resources/{harness.segment(lease['res'])}/check", lambda *_: {}, b"",
                          {"X-Fencing-Token": lease["token"]})

    # ---- Records ----

    def _condition(self, lease, expect, shown):
        names = {"X-Fencing-Token": lease["token"]}
        if shown:
            names["X-Lease-Id"] = shown
        if expect is not None:
            names["If-Match" if expect else "If-None-Match"] = f'"v{expect}"' if expect else "*"
        return names

    def write(self, lease, key, value, expect=None, slowly_s=0, shown=None):
        """`slowly_s`: so long the client stops with half of the body sent. `shown`: a lease id to
        send; where there is none it is the lease's own, every other time."""
        def midway():
            time.sleep(slowly_s)
            self.target.stand_still(self.number)

        shown = shown or (lease["lease"] if self.random.random() < 0.5 else None)
        fields = {**_of(lease, "write"), "key": key, "value": value, "expect": expect,
                  "shown": shown}
        return self._call(fields, "PUT", _path(lease["res"], key),
                          lambda names, _: {"version": _version(names)}, value.encode(),
                          self._condition(lease, expect, shown), midway if slowly_s else None)

    def delete(self, lease, key, expect=None):
        return self._call({**_of(lease, "delete"), "key": key, "expect": expect}, "DELETE",
                          _path(lease["res"], key), lambda names, _: {"version": _version(names)},
                          None, self._condition(lease, expect, None))

    def read(self, res, key, lease=None):
        """With a lease it is a fenced read. {"version", "value", "wrote"}; where there is no record
        None, and self.code is record_not_found."""
        def read(names, content):
            return {"version": _version(names), "value": content.decode(),
                    "wrote": int(names["x-written-with-token"])}

        if lease:
            fields = {**_of(lease, "fenced_read"), "key": key}
            return self._call(fields, "GET", _path(res, key), read,
                              headers={"X-Fencing-Token": lease["token"]})
        return self._call({"f": "read", "res": res, "key": key}, "GET", _path(res, key), read)


def _of(lease, name):
    return {"f": name, "res": lease["res"], "lease": lease["lease"], "token": lease["token"]}


def _path(res, key):
    return f"/store/{harness.segment(res)}/{harness.segment(key)}"


@contextlib.contextmanager
def running(bodies):
    """Runs each body in a thread of its own; at the end of the block they are to come to theirs. A
    body that raises fails the block."""
    errors = []

    def guarded(body):
        try:
            body()
        except BaseException as error:  # told at the end of the block
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(harness.PATIENCE_S)
        assert not thread.is_alive(), "a client does not come to its end"
    if errors:
        raise errors[0]
