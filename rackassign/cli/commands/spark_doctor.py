"""`rackassign spark-doctor`: the racks of the executors of a Spark application, and the local share to expect."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rackassign.cli import ExitCode
from rackassign.cli.connection import Bootstrap, ClientConfig, client_config
from rackassign.cli.terminal import Output, check_output, examples, plain_line, progress_display
from rackassign.errors import ConfigError, MissingExtraError
from rackassign.rack_sources import RACK_VARIABLE
from rackassign.text import Settings, short_repr
from rackassign.util.client_properties import CONNECTION_PROPERTIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rackassign.spark import Diagnosis

app = typer.Typer(rich_markup_mode=None)


@app.command(
    epilog=examples("spark-doctor --bootstrap-server localhost:9092 --topic orders --master spark://driver:7077")
)
def spark_doctor(
    *,
    bootstrap: Bootstrap,
    topic: Annotated[str, typer.Option(help="Topic that the application reads.")],
    master: Annotated[str, typer.Option(help="Spark master URL (default: from the Spark configuration).")] = "",
    conf: Annotated[
        list[str] | None, typer.Option("--conf", help="Spark configuration: NAME=VALUE; repeatable.")
    ] = None,
    rack_env: Annotated[
        str, typer.Option("--rack-env", help="Environment variable of executors that holds the rack.")
    ] = RACK_VARIABLE,
    client_config_file: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Report the racks of executors and the local share to expect. Exit 1: problems found."""
    check_output(output, "table", "json")
    client = _client(bootstrap, client_config_file)
    from rackassign.spark import doctor  # noqa: PLC0415 - other commands do without

    with progress_display() as progress:
        # It can take minutes until a cluster manager has started the first executor.
        progress.show_step("Starting Spark")
        session = _session(master, conf or [])
        try:
            diagnosis = doctor(
                session, bootstrap, topic, rack_env=rack_env, client=client, report_progress=progress.on_progress
            )
        finally:
            session.stop()
    if output == "json":
        sys.stdout.write(json.dumps(diagnosis.as_json()) + "\n")
    else:
        _show(diagnosis, Console(highlight=False, soft_wrap=True))
    return ExitCode.NO if diagnosis.findings else ExitCode.DONE


def _client(bootstrap: str, file: str) -> dict[str, str]:
    """Return the properties of the file for librdkafka."""
    config = client_config(bootstrap, file)
    if "ssl_check_hostname" in config:
        config["ssl_check_hostname"] = "https" if config["ssl_check_hostname"] else "none"
    given = (each for each in CONNECTION_PROPERTIES if each.kafka_python in config)
    return Settings({each.librdkafka: config[each.kafka_python] for each in given})


def _session(master: str, conf: list[str]) -> SparkSession:
    pairs = [entry.partition("=") for entry in conf]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise ConfigError(f"conf: expected NAME=VALUE, got {short_repr(name)}")
    try:
        from pyspark.errors import PySparkException  # noqa: PLC0415 - comes with an extra
        from pyspark.sql import SparkSession  # noqa: PLC0415 - the same
    except ImportError:
        raise MissingExtraError("pyspark", "spark") from None
    builder: Any = SparkSession.builder.appName("rackassign spark-doctor")
    if master:
        builder = builder.master(master)
    for name, _, value in [("spark.ui.showConsoleProgress", "", "false"), *pairs]:
        builder = builder.config(name, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except PySparkException as error:
        raise ConfigError(f"Spark does not start: {str(error).splitlines()[0]}") from None
    return session


def _show(diagnosis: Diagnosis, console: Console) -> None:
    table = Table(title=f"Executors, and {diagnosis.topic}")
    for heading in ("host", "process", "rack", "slots seen"):
        table.add_column(heading)
    for executor in diagnosis.executors:
        rack = "unknown" if executor.rack is None else executor.rack
        table.add_row(plain_line(executor.host), str(executor.process), plain_line(rack), str(executor.slots))
    console.print(table)
    least, most = diagnosis.replicas
    spread = str(least) if least == most else f"{least} to {most}"
    racks = ", ".join(diagnosis.broker_racks) or "none"
    console.print(plain_line(f"racks of brokers: {racks}; each partition has replicas in {spread} of them"))
    expected = diagnosis.expected
    for name, share in (("none", expected.none), ("executor", expected.executor), ("pull", expected.pull)):
        console.print(plain_line(f"expected to be read locally with rackBinding={name}: {share:.0%}"))
    for finding in diagnosis.findings:
        console.print(plain_line(f"- {finding}"))
