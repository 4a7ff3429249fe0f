"""Rating of texts: a task that only the tests have, as another package would add it."""
