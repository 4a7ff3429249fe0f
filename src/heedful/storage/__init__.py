"""Files that survive crashes, kills and full disks: atomic writes, manifests, state dicts."""
