"""Models of other libraries as runs, and runs as models of other libraries."""
