"""Tasks, such as translation. `task` is the interface, `registry` lists the tasks."""
