"""Workers that are replaced; their processes are real, and load nothing."""

import asyncio

from heedful.serving.supervisor import Supervisor
from tests.worker_jobs import NoModelsJob


def test_worker_that_dies_while_the_one_before_finishes_is_replaced():
    """At once; and what ends the server ends the one that finishes, too."""

    async def reload():
        ready, is_finished, lost = asyncio.Queue(), asyncio.Event(), []
        supervisor = Supervisor(
            NoModelsJob(), "worker", on_ready=ready.put, on_lost=lost.append, report=print
        )
        await supervisor.start()
        first = await ready.get()
        tasks = [
            asyncio.ensure_future(supervisor.keep_alive()),
            asyncio.ensure_future(supervisor.reload(lambda link: is_finished.wait())),
        ]
        second = await ready.get()
        second.kill()
        third = await asyncio.wait_for(ready.get(), 30)
        assert lost == [second]
        links = supervisor.kill()
        assert {*links} == {first, third}
        await asyncio.wait_for(asyncio.gather(*(link.died for link in links)), 30)
        for task in tasks:
            task.cancel()

    asyncio.run(reload())
