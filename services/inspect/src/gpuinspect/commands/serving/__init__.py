"""`gpushare serve` and its flags."""
