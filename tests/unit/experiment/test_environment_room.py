"""Free memory: the nearest of all limits counts."""

import pytest

from heedful.experiment.environment import free_memory

MEMINFO = "MemTotal:  2000000 kB\nMemFree:  100 kB\nMemAvailable:  1000000 kB\n"


@pytest.fixture
def machine(tmp_path):
    """Write files as a kernel would show them; give their root."""

    def write(**files):
        for name, text in {"proc/meminfo": MEMINFO, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_without_groups_it_is_what_the_machine_has(machine):
    assert free_memory(machine()) == 1_000_000 * 1024


def test_a_group_counts_what_it_has_left_and_what_it_can_drop(machine):
    root = machine(
        **{
            "proc/self/cgroup": "0::/jobs/one\n",
            "sys/fs/cgroup/jobs/one/memory.max": "max\n",
            "sys/fs/cgroup/jobs/one/memory.current": "1000\n",
            "sys/fs/cgroup/jobs/memory.max": "500000\n",
            "sys/fs/cgroup/jobs/memory.current": "200000\n",
            "sys/fs/cgroup/jobs/memory.stat": "anon 1\ninactive_file 50000\n",
        }
    )
    assert free_memory(root) == 350_000


def test_groups_of_the_older_kind_count_too(machine):
    root = machine(
        **{
            "proc/self/cgroup": "4:memory:/job\n1:cpu:/\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "700000\n",
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "800000\n",
            "sys/fs/cgroup/memory/job/memory.stat": "total_inactive_file 150000\n",
        }
    )
    assert free_memory(root) == 50_000


def test_a_group_that_is_full_leaves_nothing(machine):
    root = machine(
        **{
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "1000\n",
            "sys/fs/cgroup/memory.current": "2000\n",
        }
    )
    assert free_memory(root) == 0


def test_where_a_kernel_shows_nothing_the_whole_machine_is_taken(tmp_path):
    assert free_memory(tmp_path) >= free_memory() > 0
