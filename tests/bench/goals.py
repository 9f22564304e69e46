"""goals.py - what the gateway is meant to reach (on two cores, load generator included), against what
it did. A goal whose numbers were not measured, or whose peer is not installed, is left out."""
import dataclasses
import statistics

CONNECTIONS = 64


@dataclasses.dataclass
class Goal:
    what: str
    value: str
    wanted: str
    met: bool


def _of_bare(bench, work):
    ratio = bench.ratio(work, CONNECTIONS)
    if ratio is not None:
        yield Goal(f"durable {work}, {CONNECTIONS} connections, of the bare loop", f"{ratio:.2f}",
                   ">= 0.85", ratio >= 0.85)


def _of_peer(bench, name, wanted):
    for row in bench.peer_rows:
        if row.peer.name == name and row.rows:
            ratio = row.ratio()
            yield Goal(f"durable {row.peer.work}, {CONNECTIONS} connections, of {name}",
                       f"{ratio:.1f}", f">= {wanted}", ratio >= wanted)


def _single_write(bench):
    cells = [cell for name, cell in bench.cells
             if (name, cell.server, cell.connections) == ("write", "product", 1)]
    if cells:
        p50_ms = statistics.median(cell.p50_us for cell in cells) / 1000
        yield Goal("one client, one write, p50", f"{p50_ms:.2f} ms", "< 0.35 ms", p50_ms < 0.35)


def _small(bench):
    if bench.idle_mb:
        idle_mb = max(bench.idle_mb)
        yield Goal("idle, RSS", f"{idle_mb:.1f} MB", "< 20 MB", idle_mb < 20)
    if bench.start_ms:
        start_ms = statistics.median(bench.start_ms)
        yield Goal(f"start, with the private Redis, median of {len(bench.start_ms)}",
                   f"{start_ms:.0f} ms", "< 150 ms", start_ms < 150)


def goals(bench):
    return [*_of_bare(bench, "write"), *_of_peer(bench, "etcd guarded txn", 5),
            *_of_peer(bench, "PostgreSQL upsert", 1.4), *_of_bare(bench, "grant"),
            *_of_peer(bench, "etcd lock", 5), *_single_write(bench), *_small(bench)]
