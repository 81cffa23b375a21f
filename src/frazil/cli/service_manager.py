"""Reports to the service manager that has started this process: systemd's protocol, sd_notify(3). No library is needed for
one datagram.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def report_alive() -> None:
    """Reports that the process is ready, and that its loop still turns. Does nothing without a service manager."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        name = "\0" + address[1:] if address.startswith("@") else address  # Linux's sockets without a file.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, suppress(OSError):
            sender.setblocking(False)  # A service manager that reads nothing must not stop the loop.
            sender.sendto(b"READY=1\nWATCHDOG=1", name)
