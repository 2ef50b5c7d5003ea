"""The engine holds what programs expect of it: seen with real SSH servers on this machine, and no Docker."""
