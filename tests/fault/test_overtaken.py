#!/usr/bin/python3
"""test_overtaken.py - answers that are overtaken: the client has gone when its lease is granted, the limit
was raised while Redis refused, the lease was taken away while Redis renewed it.
"""
import contextlib
import json
import socket
import threading
import time

from harness import Scene, case, eventually, run_cases
from wire import Wire, request

LONG_MS = 600_000


class Doing:
    """A call by a thread of its own."""

    def __init__(self, gate, method, target, body):
        self.answer = None
        client = gate.client()

        def call():
            with contextlib.closing(client):
                self.answer = client.call(method, target, body)

        self.thread = threading.Thread(target=call, daemon=True)
        self.thread.start()

    def get(self):
        self.thread.join(30)
        assert self.answer, "there was no answer"
        return self.answer


@case
def a_lease_whose_answer_cannot_be_sent_is_ended():  # BR33: nobody knows of it
    with Scene() as scene:
        gate = scene.gateway()
        wires = [Wire(gate.port, timeout_s=20) for _ in range(40)]
        for number, wire in enumerate(wires):
            body = json.dumps({"resource": f"r{number}", "ttl_ms": LONG_MS}).encode()
            wire.send(request("POST", "/leases", [], body))
            wire.socket.shutdown(socket.SHUT_WR)
        told = set()
        for number, wire in enumerate(wires):
            answer = wire.answer()
            if answer is not None:
                assert answer.status == 201
                told.add(f"r{number}")

        def live():
            return {item["resource"] for item in gate.call("GET", "/leases").json()["items"]}

        eventually(lambda: live() == told, what="the end of all other leases")
        for number in range(len(wires)):
            if f"r{number}" not in told and gate.call("GET", f"/resources/r{number}").status == 200:
                ended = gate.history(f"r{number}")[-1]
                assert (ended["kind"], ended["reason"]) == ("release", "client_gone"), ended


@case
def who_is_refused_while_the_limit_is_raised_is_let_in():  # M2: never 409 for a race of ours
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis, options=("--redis-timeout-ms", "20000"))
        assert gate.call("PUT", "/resources/r", {"limit": 1}).status == 200
        with redis.paused():
            asking = [Doing(gate, "POST", "/leases", {"resource": "r", "ttl_ms": LONG_MS})
                      for _ in range(3)]
            time.sleep(0.3)  # until all three have asked; who comes later is let in anyway
            raised = gate.call("PUT", "/resources/r", {"limit": 3})
            assert raised.status == 200
        answers = [one.get() for one in asking]
        assert [answer.status for answer in answers] == [201] * 3, answers
        assert gate.try_acquire("r", ttl_ms=LONG_MS).code == "lease_held"


@case
def a_renewal_that_is_overtaken_tells_so():  # P6, BR24: 410 as soon as it is known
    with Scene() as scene:
        redis = scene.redis()
        gate = scene.gateway(redis=redis, options=("--redis-timeout-ms", "20000"))
        for code, end in (("lease_revoked", ("POST", "/resources/r/revoke", {"reason": "test"})),
                          ("lease_released", ("DELETE", None, None))):
            lease = gate.acquire("r", ttl_ms=LONG_MS)
            method, target, body = end
            with redis.paused():
                renewal = Doing(gate, "POST", f"/leases/{lease.id}/renew", {})
                time.sleep(0.3)  # until it has asked; who comes later is told at once
                ended = gate.call(method, target or f"/leases/{lease.id}", body)
                assert ended.status == 200
            assert renewal.get().code == code
            assert "renew" not in [row["kind"] for row in gate.history("r")]


if __name__ == "__main__":
    run_cases()
