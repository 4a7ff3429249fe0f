"""`heedful serve`: trained runs behind one HTTP address.

A front process (asyncio, FastAPI, no torch) checks requests and batches them; one worker process
per device loads the runs and predicts. Reading order: `protocol` (messages between both),
`service` (the interface of routes), `problems` (errors that clients get), `worker` (a process as
the front process sees it), `served_models` (its predictions); then the front process: `settings`,
`server` (sockets and signals), `supervisor` (keeps workers running), `queued_inputs` and
`scheduler` (queue and batches), `batch_speed` (how long they take), `security` (checks before the
routes), `limits`, `app` (routes), `openapi` (their description), `metrics`, and the routes of
`documents`, `libretranslate`, `completions` and `inspector`.
"""
