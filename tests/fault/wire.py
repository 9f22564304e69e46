"""wire.py - client connections as bytes, and what a process uses: descriptors, memory, processor.

    wire = Wire(gate.port)
    wire.send(b"GET /livez HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    assert wire.answer().status == 200
    assert wire.ended()                            # the gateway has closed it

Nothing is added to what a test sends, and nothing is forgiven in what it reads.
"""
import contextlib
import os
import pathlib
import random
import re
import resource
import socket
import struct
import time

from harness import Answer, PATIENCE_S, eventually

SOAK = os.environ.get("SOAK") == "1"
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)


def dice():
    """A generator of its own for each case, from the one seed that is printed."""
    return random.Random(SEED)


def request(method, target, headers=(), body=b"", host="Host: x"):
    """The bytes of a request. `headers`: lines, as text or bytes. `body`: bytes that are counted
    here; without them, the headers say what comes, if anything."""
    lines = [f"{method} {target} HTTP/1.1", host, *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    encoded = [line if isinstance(line, bytes) else line.encode() for line in lines if line]
    return b"\r\n".join(encoded) + b"\r\n\r\n" + (body or b"")


def acquire_request(resource, ttl_ms, *headers):
    return request("POST", "/leases", headers, b'{"resource":"%s","ttl_ms":%d}'
                   % (resource.encode(), ttl_ms))


class Wire:
    """One connection."""

    def __init__(self, port, timeout_s=PATIENCE_S, receive_bytes=None):
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(timeout_s)
        self.socket.connect(("127.0.0.1", port))
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        """False: the gateway has closed the connection."""
        try:
            self.socket.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def _more(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        self.buffer += data
        return bool(data)

    def answer(self, bodiless=False):
        """The next answer; None where the connection ended without one. TimeoutError: neither."""
        while b"\r\n\r\n" not in self.buffer:
            if not self._more():
                assert not self.buffer, f"the connection ended in an answer: {self.buffer!r}"
                return None
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        pairs = [line.split(": ", 1) for line in lines]
        headers = {name.lower(): value for name, value in pairs}
        assert len(headers) == len(pairs), f"a header stands twice: {head!r}"
        number = int(re.match(r"HTTP/1\.[01] (\d{3}) ", status).group(1))
        bytes_due = 0 if bodiless or number in (100, 204, 304) else int(headers["content-length"])
        while len(self.buffer) < bytes_due and self._more():
            pass
        body, self.buffer = self.buffer[:bytes_due], self.buffer[bytes_due:]
        assert len(body) == bytes_due, f"the connection ended in an answer: {head!r}"
        return Answer(number, headers, body)

    def answers(self):
        """All that come until the connection ends."""
        found = []
        while (answer := self.answer()) is not None:
            found.append(answer)
        return found

    def rest(self):
        """All bytes until the gateway closes the connection."""
        while self._more():
            pass
        return self.buffer

    def ended(self):
        """True when the gateway closes the connection; what it sends before is dropped."""
        while self._more():
            self.buffer = b""
        return True

    def half_close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self):
        self.socket.close()

    def reset(self):
        """Leaves with a RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def ask(port, data):
    """Sends bytes on a connection of their own: the answers until the gateway closes it."""
    with Wire(port) as wire:
        wire.send(data)
        return wire.answers()


# ---- What a process uses ------------------------------------------------------------------------


def descriptors(server):
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def memory_kb(server):
    """Resident memory, without pages of files."""
    status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"RssAnon:\s*(\d+) kB", status).group(1))


def expect_memory(server, before_kb, most_kb):
    """A server has not taken more than so much memory since; sanitizers keep what is freed."""
    now_kb = memory_kb(server)
    sanitized = any(word in server.argv[0] for word in ("/asan/", "/tsan/"))
    assert sanitized or now_kb < before_kb + most_kb, f"{before_kb} kB have become {now_kb} kB"


def processor_s(server):
    fields = pathlib.Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptors_return(server, base, slack=2):
    """Waits until a server has no more descriptors than before. (Redis and the store may have
    opened one or two for good in between.)"""
    eventually(lambda: descriptors(server) <= base + slack,
               what=f"{base} descriptors again, not {descriptors(server)},")


def raise_own_limit(wanted):
    """Raises our own limit on open files as far as allowed; how many there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
