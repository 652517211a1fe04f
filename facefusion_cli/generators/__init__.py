"""What turns aligned target crops and a source identity into new faces."""
