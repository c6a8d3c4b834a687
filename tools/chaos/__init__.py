"""The proof by chaos: a group under a seeded schedule of faults, and a checker of all that was recorded of it.

`python -m tools.chaos --seeds 20` plays twenty schedules, each on a cluster of its own.
"""
