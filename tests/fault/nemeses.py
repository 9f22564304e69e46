"""nemeses.py - a gateway with its Redis, and what can be done to them while clients work.

A nemesis is a function (system, random, span_s) that breaks something, waits about so long, and
puts it right again. Several may be at work at once: each holds the locks of what it breaks. LOSING
are those after which two clients may rightly believe that they hold the same resource, because
Redis forgot (or was told nonsense); the fence has to make that harmless.
"""
import concurrent.futures
import contextlib
import threading
import time

import harness

REDIS_TIMEOUT_MS = 200
OPTIONS = ("--redis-timeout-ms", str(REDIS_TIMEOUT_MS))

# A server dies with the thread that started it (PR_SET_PDEATHSIG), so this one starts them all.
_starter = concurrent.futures.ThreadPoolExecutor(1)


class System:
    """One gateway over one Redis. `lossy`: Redis keeps its data in memory only, and starts again
    from the last dump that somebody saved (so that nothing on disk brings back what was lost); else
    it has every command on disk before it answers. `private`: the gateway has its own Redis, which
    dies with it."""

    def __init__(self, scene, target, lossy=False, proxied=False, private=False, **gateway):
        self.scene, self.target, self.gateway_options = scene, target, gateway
        self.gateway_lock, self.redis_lock = threading.Lock(), threading.Lock()
        self.stopped = threading.Event()
        arguments = ("--dbfilename", "old.rdb") if lossy else ("--appendfsync", "always")
        self.redis_arguments = arguments if lossy else ("--appendonly", "yes", *arguments)
        self.redis = None if private else scene.redis(*self.redis_arguments)
        self.proxy = scene.proxy(self.redis) if proxied else None
        self.gateway = None
        self.start_gateway()

    def start_gateway(self, **more):
        self.gateway = _starter.submit(self.scene.gateway, redis=self.proxy or self.redis,
                                       options=OPTIONS, **self.gateway_options, **more).result()
        self.target.port = self.gateway.port

    def kill_gateway(self):
        assert self.gateway.running(), f"the gateway died by itself:\n{self.gateway.log()[-4000:]}"
        self.target.port = None
        self.gateway.kill()

    def start_redis(self):
        self.redis = _starter.submit(harness.Redis, self.redis.folder,
                                     self.redis_arguments).result()
        self.scene.servers.append(self.redis)
        harness.eventually(self._redis_serves, what="loading")

    def _redis_serves(self):
        try:
            return self.redis.command("PING") == "PONG"
        except harness.RedisError:  # LOADING
            return False

    def wait(self, span_s):
        """Sleeps, but not beyond the end of the run."""
        self.stopped.wait(span_s)

    def ready(self):
        """The gateway serves, and has its Redis."""
        with contextlib.suppress(OSError, ValueError):
            answer = self.gateway.call("GET", "/readyz")
            return answer.status == 200 and answer.json()["status"] == "ok"
        return False


# ---- Kill ---------------------------------------------------------------------------------------


def kill_gateway(system, random, span_s):
    with system.gateway_lock:
        system.kill_gateway()
        system.wait(random.uniform(0, span_s / 4))
        system.start_gateway()
    system.wait(span_s / 2)


def kill_redis(system, random, span_s):
    with system.redis_lock:
        system.redis.kill()
        system.wait(random.uniform(0, span_s))
        system.start_redis()


def kill_both(system, random, span_s):
    with system.gateway_lock, system.redis_lock:
        for kill in random.sample([system.kill_gateway, system.redis.kill], 2):
            kill()
        system.wait(random.uniform(0, span_s / 2))
        for start in random.sample([system.start_gateway, system.start_redis], 2):
            start()


# What `error` means to a client there is certain: it is refused, or told nothing.
FAILPOINTS = {
    "after_redis_grant": ("crash", "error", "sleep(60)"),
    "before_fence": ("crash", "error", "sleep(60)"),
    "in_batch": ("crash", "error", "sleep(20)"),
    "before_commit": ("crash", "error", "sleep(60)"),
    "after_commit": ("crash", "error", "sleep(60)"),
    "after_fence_commit": ("crash", "sleep(60)"),
    "after_store_release": ("crash", "error", "sleep(60)"),
    "before_reply": ("crash", "error", "sleep(20)"),
}


def failpoint(system, random, span_s):
    """The gateway misbehaves at one place, once or again and again, or dies there."""
    point = random.choice(sorted(FAILPOINTS))
    action = random.choice(FAILPOINTS[point])
    often = "*" if action.startswith("sleep") else random.randint(1, 40)
    with system.gateway_lock:
        system.kill_gateway()
        system.start_gateway(faults=f"{point}={action}@{often}")
        deadline = time.monotonic() + span_s
        while time.monotonic() < deadline and system.gateway.running():
            system.wait(0.02)
            if system.stopped.is_set():
                break
        system.target.port = None
        system.gateway.kill()
        system.start_gateway()


# ---- Pause --------------------------------------------------------------------------------------


def pause_gateway(system, random, span_s):
    with system.gateway_lock, system.gateway.paused():
        system.wait(random.uniform(0.1, span_s))


def pause_redis(system, random, span_s):
    with system.redis_lock, system.redis.paused():
        system.wait(random.uniform(0.1, span_s))


def pause_clients(system, random, span_s):
    """A third of them, wherever they are."""
    until = time.monotonic() + span_s
    for number in range(40):
        if random.random() < 0.33:
            system.target.still[number] = until
    system.wait(span_s)


# ---- Lose ---------------------------------------------------------------------------------------


def flush(system, random, span_s):
    with system.redis_lock:
        for _ in range(random.randint(1, 3)):
            system.redis.command("FLUSHALL")
            system.wait(random.uniform(0, span_s / 3))


def restart_empty(system, random, span_s):
    with system.redis_lock:
        system.redis.kill()
        for dump in system.redis.folder.glob("*.rdb"):
            dump.unlink()
        system.wait(random.uniform(0, span_s / 2))
        system.start_redis()


def restore_old(system, random, span_s):
    """Redis comes back as it was when the dump was made."""
    with system.redis_lock:
        system.redis.command("SAVE")
        system.wait(random.uniform(span_s / 2, span_s))
        system.redis.kill()
        system.start_redis()


def evict(system, random, span_s):
    """Redis throws away what it likes: foreign keys fill its memory."""
    with system.redis_lock:
        for name, value in (("maxmemory-policy", "allkeys-lru"), ("maxmemory", "3mb")):
            system.redis.command("CONFIG", "SET", name, value)
        deadline = time.monotonic() + span_s
        while time.monotonic() < deadline and not system.stopped.is_set():
            with contextlib.suppress(harness.RedisError):  # OOM
                name = f"junk:{random.getrandbits(40)}"
                system.redis.command("SET", name, "x" * 50000, "PX", "3000")
        system.redis.command("CONFIG", "SET", "maxmemory", "0")
        system.redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")


# ---- Between the gateway and Redis --------------------------------------------------------------


@contextlib.contextmanager
def _rule(system, rule):
    usual, system.proxy.rule = system.proxy.rule, rule
    try:
        yield
    finally:
        system.proxy.rule = usual


def proxy_swallow(system, random, span_s):
    """Nothing arrives: neither at Redis nor here, or only one of the two. The latter leaves
    holders in Redis whose grant nobody heard of."""
    ways = random.choice([("up",), ("down",), ("up", "down")])
    with system.redis_lock, _rule(system, lambda way, data: None if way in ways else data):
        system.wait(span_s)
        system.proxy.cut()


def proxy_delay(system, random, span_s):
    """Replies and commands arrive late, some after the gateway has given them up."""
    def late(_, data):
        if random.random() < 0.2:
            time.sleep(random.uniform(0, 1.6 * REDIS_TIMEOUT_MS / 1000))
        return data

    with system.redis_lock, _rule(system, late):
        system.wait(span_s)


def proxy_cut(system, random, span_s):
    """Connections end, at any byte."""
    ended = threading.Event()  # from the byte where it ends nothing goes through any more

    def some(_, data):
        if ended.is_set():
            return None
        if random.random() < 0.02:
            ended.set()
            return data[:random.randrange(len(data))]
        return data

    with system.redis_lock, _rule(system, some):
        deadline = time.monotonic() + span_s
        while time.monotonic() < deadline and not system.stopped.is_set():
            ended.wait(0.2)
            system.proxy.cut()
            ended.clear()


def proxy_refuse(system, random, span_s):
    with system.redis_lock:
        system.proxy.refuse = True
        system.proxy.cut()
        system.wait(random.uniform(0.1, span_s))
        system.proxy.refuse = False


def proxy_duplicate(system, random, span_s):
    """Commands reach Redis twice, so that each reply after that is taken for that of another
    command: the fence has to hold whatever Redis says."""
    def twice(way, data):
        return data * 2 if way == "up" and random.random() < 0.1 else data

    with system.redis_lock, _rule(system, twice):
        system.wait(span_s)
        system.proxy.cut()


# ---- Scripts ------------------------------------------------------------------------------------


def flush_scripts(system, _random, span_s):
    with system.redis_lock:
        deadline = time.monotonic() + span_s
        while time.monotonic() < deadline and not system.stopped.is_set():
            system.redis.command("SCRIPT", "FLUSH")
            system.wait(0.01)


NEMESES = {nemesis.__name__: nemesis for nemesis in (
    kill_gateway, kill_redis, kill_both, failpoint, pause_gateway, pause_redis, pause_clients,
    flush, restart_empty, restore_old, evict, proxy_swallow, proxy_delay, proxy_cut, proxy_refuse,
    proxy_duplicate, flush_scripts)}
LOSING = {"flush", "restart_empty", "restore_old", "evict", "proxy_duplicate"}
PROXIED = {name for name in NEMESES if name.startswith("proxy_")}


def deal(random, hands):
    """All nemeses, shuffled and dealt out to so many hands."""
    names = sorted(NEMESES)
    random.shuffle(names)
    return [names[hand::hands] for hand in range(hands)]


def torment(system, history, random, names, span_s, gap_s):
    """Until the system is stopped: each of the nemeses in turn, in a new order each time."""
    while not system.stopped.is_set():
        for name in random.sample(names, len(names)):
            system.wait(random.uniform(0, gap_s))
            if system.stopped.is_set():
                break
            history.add("nemesis", "info", f=name)
            NEMESES[name](system, random, span_s)
            history.add("nemesis", "info", f=f"{name} is over")
