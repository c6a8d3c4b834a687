"""A data application: what rackassign is foretold to save, beside what it is measured to save.

Each file is a step, in this order: `traffic` lets `groups` read a topic, which publish what `counters` make of that;
`readings` is the streaming job over it, `savings` the job that joins its tables with the audit of the fleet, `page`
what people see. `workers` is the Spark that all of it runs on, and `__main__` the whole.
"""
