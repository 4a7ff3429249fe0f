"""`heedful serve`: trained runs behind one HTTP address.

A front process (asyncio, FastAPI, no torch) checks requests and batches them; one worker process
per device loads the runs and predicts. Read `protocol` (what passes between both), `worker` (the
torch side), `supervisor` (a worker that is started again when it dies), `scheduler` (queue,
admission, batches, deadlines), then `app` and the modules of its routes.
"""
