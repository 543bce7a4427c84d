"""A cluster of Spark on this machine: a master and two workers with one core each, on addresses of their own.

Spark runs a task twice only on another host than the first time; so the workers need different ones.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from jmsql.testing import wait_for
from tests.spark.subprocesses import environment

HOSTS = ("127.0.0.2", "127.0.0.3")


@contextmanager
def cluster(directory: Path, url: str) -> Iterator[str]:
    """Run a cluster, and return the URL of its master."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    home = Path(pyspark.__file__).parent
    settings = {
        **environment(url),
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }
    with ExitStack() as stack:

        def run(name: str, *arguments: str, host: str) -> Path:
            log = stack.enter_context((directory / f"{name}.log").open("w"))
            program = f"org.apache.spark.deploy.{name.partition('-')[0]}"
            process = subprocess.Popen(
                [str(home / "bin/spark-class"), program, *arguments, "--host", host, "--webui-port", "0"],
                env={**settings, "SPARK_LOCAL_IP": host},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return Path(log.name)

        started = run("master.Master", "--port", str(port), host="127.0.0.1")
        wait_for(lambda: "I have been elected leader" in started.read_text(), timeout=120)
        options = ("--cores", "1", "--memory", "800m", "--work-dir", str(directory / "work"), master)
        logs = [run(f"worker.Worker-{host}", *options, host=host) for host in HOSTS]
        wait_for(lambda: all("Successfully registered" in log.read_text() for log in logs), timeout=120)
        yield master
