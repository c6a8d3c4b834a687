"""Commits of several tasks in one transaction: results, changes of state and input offsets (KIP-447).

The offsets are what fences this member: they are sent with the generation of its last assignment, and the coordinator
refuses them once there is another. A member that has the next assignment may still commit what it has processed before,
since the next owner of a revoked task gets it only after this member has rejoined (KIP-429).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from rackassign.admin.admin_client import AuthorizationError
from rackassign.errors import KafkaUnavailableError, RackassignError
from rackassign.model import TopicPartition
from rackassign.stateful.changelog.client import ChangelogClient
from rackassign.stateful.files.sqlite_file import StoreError
from rackassign.stateful.tasks.active_task import ActiveTask, FencedError
from rackassign.stateful.tasks.inputs import Inputs, Tasks
from rackassign.stateful.transactions.output import ProducerRecord
from rackassign.stateful.transactions.producer import TransactionalProducer
from rackassign.util.log_once import WarnOnce

log = logging.getLogger(__name__)


class _StaleGenerationError(RackassignError):
    """The membership of the consumer is not that of its last assignment, so others may own its tasks."""


class TransactionCommits:
    """The transactions of a member, one at a time.

    Args:
        producer: Commits them.
        consumer: The group's consumer.
        tasks: The tasks of the group.
        inputs: The input partitions.
        logs: The changelogs.
        once: Logs a warning once.
    """

    def __init__(
        self,
        producer: TransactionalProducer,
        consumer: Any,  # noqa: ANN401 - kafka-python is untyped
        tasks: Tasks,
        inputs: Inputs,
        logs: ChangelogClient,
        *,
        once: WarnOnce,
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._tasks = tasks
        self._inputs = inputs
        self._logs = logs
        self._once = once

    def is_ready(self) -> bool:
        """Return whether a transaction can be committed, and what was open before is aborted."""
        return self._producer.is_ready()

    def commit(self, tasks: Mapping[TopicPartition, ActiveTask], generation: int) -> set[TopicPartition]:
        """Commit all that these tasks have processed; return those whose states have to be restored.

        These are all of them if the transaction has failed, or after an error: what the changelogs have of it is not
        known.

        Args:
            tasks: Tasks whose state is restored.
            generation: Generation of the last assignment.

        Raises:
            StateLostError: A changelog has lost records that were written before.
            AuthorizationError: A topic must not be written to, or the group not be used.
            KafkaError: A record of the output is refused for good.
        """
        try:
            return self._commit(tasks, generation)
        except (_StaleGenerationError, FencedError) as error:
            log.info("%d tasks are released without their last transaction: %s", len(tasks), error)
        except AuthorizationError:
            # That does not pass by itself.
            raise
        except (KafkaUnavailableError, StoreError) as error:
            self._once.warn(
                "transaction", "a transaction failed, its records are processed again: %s", error, about=str(error)
            )
        return set(tasks)

    def _commit(self, tasks: Mapping[TopicPartition, ActiveTask], generation: int) -> set[TopicPartition]:
        # Once it has lost its membership, kafka-python has none to send, and the coordinator would not check it.
        membership = self._consumer.group_metadata()
        if membership.generation_id != generation or not membership.member_id:
            raise _StaleGenerationError(f"generation {membership.generation_id} follows {generation}")
        if not self._producer.is_ready():
            raise KafkaUnavailableError("the next producer of transactions has not begun yet")
        offsets: dict[TopicPartition, int] = {}
        output: list[ProducerRecord] = []
        changes: list[ProducerRecord] = []
        commits = []
        for task, active in tasks.items():
            run = active.run
            if run is None:
                continue
            records = active.records_of(run.take_commit())
            commits.append((active, records))
            changes += self._logs.encode(task, records)
            output += run.take_output()
            offsets.update({tp: self._inputs.next_offset(tp, run) for tp in self._tasks.inputs(task)})
        written = self._producer.commit(changes + output, offsets, membership)
        ends = accumulate(len(records) for _, records in commits)
        # Within a partition the offsets are consecutive, unless others have written between.
        return {
            active.tp
            for (active, records), end in zip(commits, ends, strict=True)
            if not active.committed(records, written[end - len(records)], written[end - 1] + 1)
        }
