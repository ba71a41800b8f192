"""Policy: which call may run, which must ask, which is denied."""
