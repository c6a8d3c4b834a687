"""Records of a partition that was paused in the middle of them: to go on with them once it is resumed."""

from __future__ import annotations

from typing import Any

from rackassign.clients.kafka_python.host.remedy import Consumer, Remedy, host_version
from rackassign.util.log_once import Once


def _resume_parked(consumer: Consumer, once: Once) -> None:
    """Have the host see that what it hands out from is used up: only then does it go back to what was parked."""
    fetcher = consumer._fetcher
    original = fetcher.fetched_records

    def fetched_records(max_records: int | None = None, update_offsets: bool = True) -> Any:  # noqa: FBT001, FBT002 - the host's
        try:
            if not fetcher._next_partition_records:
                fetcher._next_partition_records = None
        except Exception:  # noqa: BLE001 - then what was parked stays so, as without us
            once.warn("parked", "%s: remedy resume_parked failed", host_version(), exc_info=True)
        return original(max_records, update_offsets)

    fetcher.fetched_records = fetched_records


RESUME_PARKED = Remedy(
    name="resume_parked",
    defect=(
        "A partition that is paused while some of what was fetched is not handed out yet, and resumed, is never read"
        " again: what is left is parked, and nothing is fetched of a partition of which something is."
    ),
    proof="integration/test_followers.py::test_a_partition_that_was_paused_in_the_middle_is_read_on",
    methods={"_fetcher.fetched_records": ("max_records", "update_offsets")},
    needs=("_fetcher._next_partition_records", "_fetcher._paused_partition_records"),
    install=_resume_parked,
)
