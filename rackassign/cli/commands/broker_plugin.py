"""`rackassign broker-plugin`: where the jar of the broker plug-in is, and how brokers load it."""

from __future__ import annotations

from typing import Annotated

import typer

from rackassign import broker_plugin
from rackassign.cli import ExitCode
from rackassign.cli.terminal import examples
from rackassign.errors import ConfigError
from rackassign.text import short_repr

app = typer.Typer(rich_markup_mode=None, help="The rack-aware assignor that runs in brokers (KIP-848).")

_HINTS = {
    "kafka": """\
# On each broker, one after the other: copy the jar, add the line to server.properties, restart the broker.
cp {jar} KAFKA_HOME/libs/
echo '{property}={assignors}' >> KAFKA_HOME/config/server.properties""",
    "docker": """\
# Dockerfile, beside a copy of {jar}
FROM apache/kafka:4.4.0
COPY {name} /opt/kafka/libs/
# Then start the container with this environment as well:
# KAFKA_GROUP_CONSUMER_ASSIGNORS={assignors}""",
    "strimzi": """\
# Dockerfile of the image for spec.kafka.image, beside a copy of {jar}
FROM THE_IMAGE_OF_YOUR_STRIMZI_AND_KAFKA
COPY {name} /opt/kafka/libs/
# In the Kafka resource:
# spec:
#   kafka:
#     config:
#       {property}: {assignors}""",
}


@app.command(epilog=examples("broker-plugin path"))
def path() -> int:
    """Print the path of the jar."""
    typer.echo(broker_plugin.jar_path())
    return ExitCode.DONE


@app.command("install-hint", epilog=examples("broker-plugin install-hint strimzi"))
def install_hint(
    where: Annotated[str, typer.Argument(help="kafka, docker or strimzi.", metavar="WHERE")] = "kafka",
) -> int:
    """Print what to do on each broker."""
    hint = _HINTS.get(where)
    if hint is None:
        raise ConfigError(f"WHERE must be one of {', '.join(_HINTS)}, got {short_repr(where)}")
    words = {"property": broker_plugin.PROPERTY, "assignors": broker_plugin.ASSIGNORS, "name": broker_plugin.JAR}
    typer.echo(hint.format(jar=broker_plugin.jar_path(), **words))
    typer.echo(
        "# Clients set client.rack. Members that request uniform, and those that request nothing, get its plans."
    )
    return ExitCode.DONE
