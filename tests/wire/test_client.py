"""A client gives back what it took: its connections."""

import socket
from threading import Thread

from gangline.compose.client import Client

EMPTY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"


def test_a_client_leaves_no_connection_open_when_it_is_closed() -> None:
    after: list[bytes] = []

    def answer_once(listening: socket.socket) -> None:
        talking = listening.accept()[0]
        with talking:
            talking.settimeout(20)
            talking.recv(65536)
            talking.sendall(EMPTY)
            after.append(talking.recv(1))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Thread(target=answer_once, args=(listening,))
        server.start()
        with Client(f"http://127.0.0.1:{listening.getsockname()[1]}", "a-key") as client:
            assert list(client.bases.list()) == []
            assert after == []
        server.join()
    assert after == [b""]
