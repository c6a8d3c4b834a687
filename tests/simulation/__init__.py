"""A simulated Kafka cluster under a virtual clock, to which real clients talk in bytes.

`world.py` has the clock, the queue of events and the processes; `stand_ins.py` what clients have instead of a clock and
random choices; `kafka_python.py` and `aiokafka_clients.py` all that touches private names of these libraries;
`cluster.py` the brokers, `group.py` the coordinator of classic groups; `member.py` what members have in common, and
`kafka_python_member.py` and `aiokafka_member.py` their applications; `watchers.py` what must hold; `scripts.py` scripts
from seeds, and how a failing one is cut down.

Members with state need more: `transactions.py` has what brokers do, `threads.py` processes with several threads and
clients; `stateful_member.py` is such a member, and `stateful_scripts.py` has its watchers and scripts.

`reassigning.py` has brokers that copy replicas, and `reassigning_scripts.py` the tool that lets them.
"""
