"""Files of serving platforms and launchers."""
