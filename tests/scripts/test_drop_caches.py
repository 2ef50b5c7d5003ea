"""The page cache before a load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remote import on_a_node


@pytest.mark.parametrize("allowed", [True, False])
def test_it_goes_where_sudo_allows(tmp_path: Path, *, allowed: bool) -> None:
    sudo = f'echo "$*" >>"{tmp_path}/sudo.log"; exit {0 if allowed else 1}'
    status, out, words = on_a_node("drop-caches.sh", {"NODE": "worker"}, tmp_path, sudo=sudo, sync=":")
    assert (status, out) == (0, f"page_cache={'dropped' if allowed else 'kept'}\n")
    assert ("sudo asks for a password" in words) is not allowed
    assert (tmp_path / "sudo.log").read_text() == "-n bash -c echo 3 >/proc/sys/vm/drop_caches\n"
