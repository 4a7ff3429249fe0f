"""Tasks: what models are for. `task` is the interface, `registry` lists the tasks."""
