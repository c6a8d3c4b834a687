"""A simulated Kafka cluster under a virtual clock, to which real clients talk in bytes.

`world.py` has the clock, the queue of events and the processes; `kafka_python.py` all that touches private names of
kafka-python; `cluster.py` the brokers, `group.py` the coordinator of classic groups; `member.py` what a member does;
`watchers.py` what must hold; `scripts.py` scripts from seeds, and how a failing one is cut down.
"""
