"""The state of the host's network, to compare before and after."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from lab.shell import attempt


def host_network() -> dict[str, str]:
    """What the lab must leave as it is, without the counters that change by themselves."""
    commands = {
        "links": ["ip", "-o", "link"],
        "addresses": ["ip", "-o", "address"],
        "rules": ["ip", "rule"],
        "routes": ["ip", "route", "show", "table", "all"],
        "namespaces": ["ip", "netns"],
        "forwarding": ["sysctl", "net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding"],
        "nft": ["nft", "list", "ruleset"],
        "iptables": ["iptables-save"],
    }
    found = {}
    for what, argv in commands.items():
        if shutil.which(argv[0]):
            text = attempt(argv).stdout.decode()
            text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
            found[what] = re.sub(r"packets \d+ bytes \d+|\[\d+:\d+\]|(valid|preferred)_lft \d+sec", "", text)
    found["mounts"] = Path("/proc/mounts").read_text()
    return found
