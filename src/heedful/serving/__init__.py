"""`heedful serve`: trained runs behind one HTTP address.

A front process (asyncio, FastAPI, no torch) checks requests and batches them; one worker process
per device loads the runs and predicts. Reading order: `protocol` (what passes between both),
`service` (what routes use), `problems` (errors that clients get), `worker` (a worker process as
the front process sees it), `served_models` (what it does); then the front process: `settings`,
`server` (sockets and signals), `supervisor` (keeps workers running), `scheduler` (queue and
batches), `batch_speed` (how long they take), `security` (what stands before the routes), `app`
(routes), `metrics`, and the routes of `documents`, `libretranslate` and `completions`.
"""
