"""fake_redis.py - a Redis between the gateway and a real one, which misbehaves when told to.

It reads whole commands and whole replies, so that a test can say what happens to "the reply of the
next acquire" instead of to bytes:

    fake = FakeRedis(redis.socket)                 # listens on a TCP port
    gate = scene.gateway(redis=fake.url)
    fake.rule = lambda command: error("LOADING ...") if command.name == "acquire" else PASS
    fake.rule = once("acquire", Late(0.7))         # and all others as usual

What a rule may answer:

    PASS          the real one's reply
    b"..."        these bytes, instead; Redis is not asked
    SILENCE       nothing, and Redis is not asked
    LOSE          Redis is asked, its reply is swallowed; the next command is answered as usual
    STUCK         Redis is asked; nothing is answered on this connection any more
    TWICE         Redis is asked twice; one reply
    ECHO          Redis is asked once; its reply comes twice
    HANG_UP       closes the connection
    Late(s)       Redis is asked at once, its reply comes s seconds later
    Cut(n)        the first n bytes of the reply, then closes
    Stall(n)      the first n bytes of the reply, then nothing more
"""
import contextlib
import ctypes
import dataclasses
import re
import socket
import struct
import threading
import time

_libc = ctypes.CDLL(None)

PASS, SILENCE, LOSE, STUCK, TWICE, ECHO, HANG_UP = \
    "pass", "silence", "lose", "stuck", "twice", "echo", "hang up"


@dataclasses.dataclass
class Late:
    seconds: float


@dataclasses.dataclass
class Cut:
    count: int


@dataclasses.dataclass
class Stall:
    count: int


@dataclasses.dataclass
class Command:
    name: str  # of the script, in lower case; else of the Redis command, in capitals
    words: list  # bytes
    raw: bytes

    def mentions(self, text):
        return any(text.encode() in word for word in self.words)


def error(text):
    return f"-{text}\r\n".encode()


def bulk(text):
    return b"$%d\r\n%s\r\n" % (len(text), text.encode())


def array(*items):
    """Of strings and ready replies."""
    parts = [bulk(item) if isinstance(item, str) else item for item in items]
    return b"*%d\r\n%s" % (len(parts), b"".join(parts))


def once(name, action, mentioning=""):
    """A rule: the action for the first command of that name (with that text in it), then PASS."""
    used = threading.Event()

    def rule(command):
        if command.name == name and command.mentions(mentioning) and not used.is_set():
            used.set()
            return action
        return PASS

    rule.used = used
    return rule


def always(name, action):
    return lambda command: action if command.name == name else PASS


def read_item(stream):
    """One RESP2 item as it came."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("closed")
    count = int(line[1:]) if line[:1] in b"$*" else -1
    if line[:1] == b"$" and count >= 0:
        return line + stream.read(count + 2)
    if line[:1] == b"*":
        return line + b"".join(read_item(stream) for _ in range(max(count, 0)))
    return line


def words_of(raw):
    words = []
    while raw:
        line, _, raw = raw.partition(b"\r\n")
        if line[:1] == b"$":
            count = int(line[1:])
            words.append(raw[:count])
            raw = raw[count + 2:]
    return words


class FakeRedis:
    def __init__(self, target):
        self.target = target  # the socket of the real one; may be changed
        self.rule = lambda command: PASS
        self.refuse = False  # closes new connections at once
        self.connections = 0
        self.seen = []  # Commands
        self.names = {}  # SHA-1 -> script
        self.links = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def close(self):
        # shutdown() wakes the thread in accept(); close() alone would leave it there
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.reset()

    def cut(self):
        """Closes every connection (FIN)."""
        for link in self._take_links():
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def reset(self):
        """Resets every connection (RST): a connect to nowhere, which works while another thread
        waits in recv(), where close() would not."""
        nowhere = struct.pack("=H", socket.AF_UNSPEC) + bytes(14)
        for link in self._take_links():
            if link.fileno() >= 0:
                _libc.connect(link.fileno(), nowhere, len(nowhere))

    def _take_links(self):
        with self.lock:
            links, self.links = self.links, []
        return links

    # ---- Serving ----

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if self.refuse:
                near.close()
                continue
            self.connections += 1
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.links.append(near)
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        far = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError, ConnectionError, ValueError):
            far.connect(self.target)
            commands, replies = near.makefile("rb"), far.makefile("rb")
            while True:
                raw = read_item(commands)
                command = self._command(raw)
                if not self._answer(near, far, replies, command):
                    break
        for link in (near, far):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def _command(self, raw):
        words = words_of(raw)
        name = words[0].decode().upper()
        if name in ("EVALSHA", "EVAL"):
            name = self.names.get(words[1], "?") if name == "EVALSHA" else _script_name(words[1])
        command = Command(name, words, raw)
        self.seen.append(command)
        return command

    def _ask(self, far, replies, command):
        far.sendall(command.raw)
        reply = read_item(replies)
        if command.words[0].upper() == b"SCRIPT" and reply[:1] == b"$":
            self.names[reply.split(b"\r\n")[1]] = _script_name(command.words[2])
        return reply

    def _answer(self, near, far, replies, command):
        """False: this connection is over."""
        action = self.rule(command)
        if isinstance(action, bytes):
            near.sendall(action)
            return True
        if action in (SILENCE, HANG_UP):
            return action == SILENCE
        reply = self._ask(far, replies, command)
        if action == TWICE:
            self._ask(far, replies, command)
        if action == ECHO:
            reply += reply
        if isinstance(action, Late):
            time.sleep(action.seconds)
        if isinstance(action, (Cut, Stall)):
            reply = reply[:action.count]
        if action not in (LOSE, STUCK):
            near.sendall(reply)
        if action == STUCK or isinstance(action, Stall):
            while near.recv(65536):
                pass
            return False
        return not isinstance(action, Cut)


def _script_name(text):
    found = re.search(rb"-- (\w+)\.lua", text)
    return found.group(1).decode() if found else "?"

