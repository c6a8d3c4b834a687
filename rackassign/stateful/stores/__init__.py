"""Stores: how an application sees the state of a task.

* `declaration` has what the application declares, `serdes` how objects become bytes, and `keys` which store a key of
  the state belongs to.
* `state` is what `process` receives. It knows neither files nor changelogs, only something that has keys in order.
"""
