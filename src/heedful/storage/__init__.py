"""Files that survive crashes, kills and full disks.

Reading order: `atomic` (writes and locks), `manifest` (checksums of a folder), `state_dict`
(tensors) with `compression`, and `json_files`.
"""
