"""A course of five sessions: exercises, their solutions and typical mistakes, and a checker.

Read `exercise` first, then `session_1`, `session_2`, `session_3`, `session_4`, `session_5` and
`registry`; then `child` and `checker`, which run and compare answers, and `classroom`, which
prepares a class.
"""
