"""A real xrootd server on the loopback address."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import free_port


@contextmanager
def xrootd_serving(program: str, folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = free_port()
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="partt_xrootd_") as name:
        home = Path(name)
        (home / "xrootd.cfg").write_text(
            f"xrd.port {port}\nall.export /jets\noss.localroot {folder}\n"
            f"all.adminpath {home}/admin\nall.pidpath {home}/admin\n"
        )
        if user:
            shutil.chown(home, user)
        command = [program, "-c", f"{home}/xrootd.cfg", "-l", f"{home}/log"]
        with subprocess.Popen(command, cwd=home, user=user, stdin=subprocess.DEVNULL) as server:
            try:
                wait_for(port, server)
                yield f"root://127.0.0.1:{port}/", server
            finally:
                server.kill()


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        assert server.poll() is None, "xrootd did not start"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("xrootd does not answer")
