"""What is started instead of Python: has `python_server` fork the process, and lives as long as that does.

Its arguments are the server's socket, and those of Python. It loads nothing that it can do without.
`JMSQL_TEST_STARTED_BY` tells the process which one has started it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

if __name__ == "__main__":
    server = socket.socket(socket.AF_UNIX)
    server.connect(sys.argv[1])
    os.environ["JMSQL_TEST_STARTED_BY"] = str(os.getppid())
    variables = [name + b"=" + value for name, value in os.environb.items()]
    parts = ([os.fsencode(os.getcwd())], [os.fsencode(word) for word in sys.argv[2:]], variables)  # noqa: PTH109
    request = b"\0\0".join(b"\0".join(part) for part in parts)
    server.sendall(len(request).to_bytes(4))
    socket.send_fds(server, [request[:1]], [0, 1, 2])
    server.sendall(request[1:])
    for stream in range(3):
        os.close(stream)
    signal.signal(signal.SIGTERM, lambda number, _: server.sendall(bytes([number])))
    answer = server.recv(1)
    os._exit(answer[0] if answer else 1)
