"""Time series as data: `series` reads them, `batching` cuts windows with lags and covariates."""
