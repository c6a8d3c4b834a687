"""Tasks: what is processed by one member at a time, and moves as a whole.

* `active_tasks` has the tasks of a member, `active_task` one of them: restored, fenced, written.
* `transaction_commits` commits several tasks together, with what they have written to the output.
* `run` processes records in memory. What it has changed becomes a commit, together with the `progress`.
* `inputs` reads the input from where the progress ends, `membership_check` asks whether this member may process, and
  `offset_commits` informs other tools.
"""
