"""middleman.py - a proxy between a client and the gateway that understands HTTP, and spoils answers.

    man = scene.keep(Middleman(gate.port))
    man.rule = lambda request: 0.2 if request.target.endswith("/renew") else None
    ... FENCE_URL=man.url

The rule is asked for each request and says what becomes of it:

    None       forwarded, and the answer passed on
    a number   likewise, after so many seconds
    bytes      these are sent instead; the gateway never sees the request
    HANG       no answer, the connection stays open; nothing is forwarded
    HALF       forwarded; half of the answer comes, and then nothing
    LOSE       forwarded; the connection is closed instead of the answer
    RESET      the connection is reset; nothing is forwarded

`requests` holds all of them in the order of their coming: (when, method, target), of time.monotonic().
"""
import collections
import contextlib
import socket
import struct
import threading
import time

HANG, HALF, LOSE, RESET = "hang", "half", "lose", "reset"
Request = collections.namedtuple("Request", "when method target")


def answer(status, body, content_type="text/html", reason="Whatever"):
    """The bytes of an answer that no fencegate gives."""
    head = (f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n")
    return head.encode() + body


BUSY = answer(503, b'{"type":"/problems/redis-unavailable","title":"t","status":503,"detail":"d",'
                   b'"code":"redis_unavailable","retryable":true}', "application/problem+json")


class Middleman:
    def __init__(self, port):
        self.gateway_port = port
        self.rule = lambda request: None
        self.requests, self.links, self.lock = [], set(), threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def targets(self, end):
        """Of the requests whose target ends so."""
        return [request for request in self.requests if request.target.endswith(end)]

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.links.add(near)
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        with contextlib.suppress(OSError), near, near.makefile("rb") as stream:
            while message := _read_message(stream):
                if not self._one(near, stream, message):
                    break
        with self.lock:
            self.links.discard(near)

    def _one(self, near, stream, message):
        method, target, _ = message.split(b"\r\n", 1)[0].decode().split(" ", 2)
        request = Request(time.monotonic(), method, target)
        self.requests.append(request)
        verdict = self.rule(request)
        if isinstance(verdict, bytes):
            near.sendall(verdict)
            return True
        if verdict == HANG:
            return stream.read(1)  # until the client leaves
        if verdict == RESET:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if isinstance(verdict, (int, float)):
            time.sleep(verdict)
        reply = self._forward(near, message)
        if verdict == LOSE or reply is None:
            near.shutdown(socket.SHUT_RDWR)  # close() alone waits for who still reads from it
            return False
        if verdict == HALF:
            near.sendall(reply[:len(reply) // 2])
            return stream.read(1)
        near.sendall(reply)
        return True

    def _forward(self, near, message):
        """The answer; None: there is none. A client that leaves meanwhile is let go of at once."""
        try:
            with socket.create_connection(("127.0.0.1", self.gateway_port)) as far:
                far.sendall(message)
                threading.Thread(target=_leave_with, args=(near, far), daemon=True).start()
                with far.makefile("rb") as stream:
                    return _read_message(stream) or None
        except OSError:
            return None

    def close(self):
        self.listener.close()
        with self.lock:
            links = list(self.links)
        for link in links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)


def _leave_with(near, far):
    """Closes `far` when the client of `near` is gone."""
    with contextlib.suppress(OSError):
        if near.recv(1, socket.MSG_PEEK) == b"":
            far.shutdown(socket.SHUT_RDWR)


def _read_message(stream):
    """A request or an answer, with its body; b"" at the end."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return b""
        head += line
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return head + stream.read(length)
