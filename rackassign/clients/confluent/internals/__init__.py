"""The one form of librdkafka that is not documented, and is needed nevertheless.

Rules of this package:

* No module outside of it knows the form of bytes that librdkafka writes for itself.
* A form is compared with what the installed librdkafka writes, before it is used. If they differ, the call that needs
  it is refused; everything else works.
"""

from rackassign.clients.confluent.internals.group_metadata import form_difference, serialize_group_metadata

__all__ = ["form_difference", "serialize_group_metadata"]
