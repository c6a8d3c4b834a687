"""A data application: what rackassign is predicted to save, compared with what it is measured to save.

Each file is a step, in this order: `traffic` lets `groups` read a topic, which publish what `counters` make of that;
`readings` is the streaming job over it, whose windows `results` sends back to Kafka, `savings` the job that joins its
tables with the bill of a snapshot, `page` what people see. `__main__` is the whole, on brokers and a Spark with racks
of its own (`rackassign.testing`).
"""
