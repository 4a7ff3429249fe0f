"""A course of five sessions: exercises, their solutions and typical mistakes, and a checker.

Read `exercise` first, then `session_1` to `session_5` with `session_2`, `session_3` and `session_4`
between them, and `registry`; then `child` and `checker`, which run and compare answers, and
`classroom`, the commands.
"""
