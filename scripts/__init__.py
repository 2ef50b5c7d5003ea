"""The operator's commands, and under remote/ what runs on a node."""
