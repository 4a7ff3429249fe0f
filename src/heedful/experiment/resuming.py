"""What a run folder holds already: its last checkpoint, and settings that may differ now.

Invariant: only settings that say how long training runs, how it is monitored and what is kept may
change on resume; that is how a finished run is extended.
"""

from heedful.config import differences, fields_with_role
from heedful.errors import ConfigError, RunError, check
from heedful.experiment.plan import TrainingPlan
from heedful.runs import Run
from heedful.training.checkpoints import CheckpointManager, Snapshot
from heedful.training.config import TrainingConfig
from heedful.training.state import TrainingProgress, check_max_steps, finished_progress

_RESUMABLE_SETTINGS = (
    "info",
    "decoding",
    "evaluation",
    *(f"training.{name}" for name in fields_with_role(TrainingConfig, "limit", "execution")),
)


def find_snapshot(plan: TrainingPlan, checkpoints: CheckpointManager) -> Snapshot | None:
    """Return the last good checkpoint; None if the run only starts."""
    run, recipe = plan.run, plan.recipe
    if run.exists:
        return checkpoints.load()
    message = "there are checkpoints here, but not the config.yaml they were trained with"
    hint = "restore config.yaml and tokenizers/, or use another folder with --run"
    check(not run.has_checkpoints, str(run.checkpoints), message, hint, RunError)
    init_from = recipe.training.init_from
    if init_from is not None:  # the weights of that run need its tokenizers
        other = Run(init_from)
        other.verify()
        other_recipe = other.read_recipe()
        message = "that run uses a different tokenizer, so its weights do not match"
        hint = "copy the section `tokenizers` from its config.yaml"
        is_same = other_recipe.tokenizers == recipe.tokenizers
        check(is_same, f"training.init_from={init_from}", message, hint)
        run.initialize(recipe, other.read_tokenizers(other_recipe), other.original_files())
    return None


def find_finished(plan: TrainingPlan, snapshot: Snapshot) -> TrainingProgress | None:
    """Return the progress of a run that is finished under its limits; None if it is not."""
    folder = plan.run.folder
    check_max_steps(plan.config.max_steps, snapshot.step, location=str(folder))
    if progress := finished_progress(plan.recipe.limits, snapshot):
        plan.log(f"{folder}: already trained ({progress.stop_reason}) at step {snapshot.step}")
    return progress


def _discard_if_changed(plan: TrainingPlan) -> None:
    """Discard the recipe of a run that was never saved if another one follows."""
    try:
        is_same = plan.run.read_recipe() == plan.recipe
    except ConfigError:
        is_same = False
    if not is_same:
        plan.log(f"{plan.run.folder}: has no checkpoint yet; starting over with these settings")
        plan.run.discard_recipe()


def check_resume_compatible(plan: TrainingPlan) -> bool:
    """Return whether settings differ from those of the run, and log them; raise if one may not.

    A run that was never saved starts over instead, whatever differs.
    """
    run = plan.run
    if not run.exists:
        return False
    if not run.is_saved:
        _discard_if_changed(plan)
        return False
    changes = list(differences(run.read_recipe(), plan.recipe))
    for name, old, new in changes:
        may_change = any(f"{name}.".startswith(f"{prefix}.") for prefix in _RESUMABLE_SETTINGS)
        message = f"this run was started with {name}={old}, but now it is {new}"
        hint = "use the settings it was started with to resume, or another folder with --run"
        check(may_change, str(run.folder), message, hint, RunError)
    for name, old, new in changes:
        plan.log(f"{run.folder}: {name} was {old} and is now {new}")
    return bool(changes)
