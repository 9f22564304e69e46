"""network.py - the network between a client and the gateway, that a scenario can cut.

    network.py HOST:PORT

Listens on a free port of 127.0.0.1, prints it, and hands the bytes of each connection on to
HOST:PORT and back. Stopped (SIGSTOP) it is a network that swallows everything: connections stay
open, new ones are made, nothing comes through. Killed, it has closed all and refuses new ones.
"""
import socket
import sys
import threading


def hand_on(source, target):
    """Until one of the two ends; then neither is of use any more."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def connect(near, gateway):
    with near:
        try:
            far = socket.create_connection(gateway)
        except OSError:
            return
        with far:
            back = threading.Thread(target=hand_on, args=(far, near), daemon=True)
            back.start()
            hand_on(near, far)
            back.join()


def main():
    host, _, port = sys.argv[1].rpartition(":")
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listener.getsockname()[1], flush=True)
    while True:
        near, _ = listener.accept()
        threading.Thread(target=connect, args=(near, (host, int(port))), daemon=True).start()


main()
