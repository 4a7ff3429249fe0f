import pytest

from heedful.training.config import TrainingConfig
from heedful.training.state import ResourceUsage, TrainingLimits, TrainingProgress

NOWHERE = ResourceUsage(step=0, epochs=0, minutes=0.0, flops=0.0)
UNITS = {
    "step": ("max_steps", "all 8 steps taken"),
    "epochs": ("max_epochs", "all 8 epochs seen"),
    "minutes": ("max_minutes", "8 minutes are over"),
    "operations": ("max_operations", "8 operations done"),
}


@pytest.mark.parametrize("unit", UNITS)
def test_a_limit_is_passed_when_it_is_reached_and_not_before(unit):
    setting, reason = UNITS[unit]
    limits = TrainingLimits(TrainingConfig(**{setting: 8}))
    assert limits.reached_limit(NOWHERE._replace(**{unit: 7})) == ""
    assert limits.reached_limit(NOWHERE._replace(**{unit: 8})) == reason


def test_the_way_to_the_nearest_limit_counts():
    limits = TrainingLimits(TrainingConfig(max_steps=100, max_minutes=10))
    assert limits.fraction_done(NOWHERE) == 0
    assert limits.fraction_done(ResourceUsage(step=20, epochs=3, minutes=5.0, flops=1e9)) == 0.5
    assert limits.fraction_done(ResourceUsage(step=200, epochs=3, minutes=5.0, flops=1e9)) == 1


def test_patience_counts_validations_since_the_best():
    limits = TrainingLimits(TrainingConfig(patience=2))
    assert limits.early_stopping_reason(TrainingProgress(data_fingerprint="", scores=[])) == ""
    assert (
        limits.early_stopping_reason(TrainingProgress(data_fingerprint="", scores=[3.0, 2.0, 2.5]))
        == ""
    )
    assert limits.early_stopping_reason(
        TrainingProgress(data_fingerprint="", scores=[3.0, 2.0, 2.5, 2.0])
    ) == ("no better in 2 validations")


def test_without_patience_there_is_always_hope():
    limits = TrainingLimits(TrainingConfig(patience=None))
    assert (
        limits.early_stopping_reason(
            TrainingProgress(data_fingerprint="", scores=[1.0, *[2.0] * 100])
        )
        == ""
    )
