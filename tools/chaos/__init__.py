"""Groups under faults, and checks of what comes of it.

`python -m tools.chaos`
    A group under a seeded schedule of faults, and a checker of all that was recorded of it.
`python -m tools.chaos.stateful`
    Members with state: disks fail as well, and the input grows.
`python -m tools.chaos.exactly_once`
    The transactional examples.
`python -m tools.chaos.soak`
    Constant load and a fault a minute: memory, threads and files stay flat.
"""
